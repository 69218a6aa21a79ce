"""Factors: which dimensions of an op's inputs and outputs go together, so that parts can be worked on alone.

A product of (m, k) and (k, n) has the factors m, k and n: cut along m, each part of the result comes of a
part of the left side; cut along k, the parts are added up. A rule takes the types of inputs and outputs, and
the attributes, and names the factor of every dimension, "" for one that must be whole. Elementwise ops and
reductions need none: theirs follows from what they say otherwise.

A dimension may be several pieces of a factor, one behind the other: a third of (m, 3n) has the factors m and
n, and there the last dimension is ``3*n``. One that is in pieces only if it is cut so is ``n|3*k``: a reshape
of 12 to (3, 4) goes along the first dimension of the result, or along the second of each third.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from weft.base.records import NamedTuple
from weft.ir.types import TensorType

if TYPE_CHECKING:  # ops name the rules here
    from weft.ops.op import Op

Names = tuple[str, ...]
Types = Sequence[TensorType]


class Factors(NamedTuple):
    """The factors of an op on tensors of some types.

    Attributes:
        inputs: for each input, the factor of each dimension.
        outputs: likewise.
        folds: of factors that no output has, what makes one of the parts: "add", "max" or "min".
        once: inputs that are added to the result: of all parts of a folded factor, one alone gets them.
        picks: a factor whose elements an input of whole numbers names, and the place of that input: each part
            does what is numbered there.
    """

    inputs: tuple[Names, ...]
    outputs: tuple[Names, ...]
    folds: Mapping[str, str] = {}
    once: tuple[int, ...] = ()
    picks: tuple[str, int] | None = None


FactorRule = Callable[..., Factors]  # (input types, output types, **attributes)
FOLDED = {"add": "add", "max": "max", "min": "min", "or_": "max", "and_": "min"}  # of truth values likewise


@lru_cache(4096)
def options(name: str) -> tuple[tuple[int, str], ...]:
    """What a dimension may be: of which factor it has how many pieces.

    >>> from weft.ops.factors import options
    >>> options("n"), options("3*n"), options("n|3*k")
    (((1, 'n'),), ((3, 'n'),), ((1, 'n'), (3, 'k')))
    """
    found = [part.rpartition("*") for part in name.split("|")]
    return tuple([(int(count) if star else 1, base) for count, star, base in found])


def factors_of(op: Op, inputs: Types, outputs: Types, attrs: Mapping[str, Any]) -> Factors | None:
    """The factors of an op; None where it has none, so that everything must be whole.

    >>> from weft.ops.contract import matrix_multiply
    >>> from weft.ops.factors import factors_of
    >>> from weft.ir.types import TensorType
    >>> from weft.base.dtypes import float32
    >>> x, y = TensorType((8, 4), float32), TensorType((4, 6), float32)
    >>> factors_of(matrix_multiply, [x, y], [TensorType((8, 6), float32)], {}).inputs
    (('m', 'k'), ('k', 'n'))
    """
    if op.factors is not None:
        found: Factors | None = op.factors(inputs, outputs, **attrs)
        return found
    if op.scalar is not None or op.accepts:
        return aligned(inputs, outputs)
    if op.fold and op.fold_over == "axes":
        return _reduced(op.fold, inputs[0], attrs["axes"], attrs["keepdims"])
    return None


def numbered(t: TensorType) -> Names:
    """A factor for each dimension."""
    return tuple([f"d{i}" for i in range(t.ndim)])


def whole(t: TensorType) -> Names:
    """No dimension may be cut."""
    return ("",) * t.ndim


def aligned(inputs: Types, outputs: Types) -> Factors:
    """Of an op that broadcasts its inputs: dimensions counted from the last."""
    shape = outputs[0].shape
    names = numbered(outputs[0])

    def of(t: TensorType) -> Names:
        lead = len(shape) - t.ndim
        return tuple(
            [n if s == full else "" for n, s, full in zip(names[lead:], t.shape, shape[lead:], strict=True)]
        )

    return Factors(tuple(map(of, inputs)), tuple(names for _ in outputs))


def _reduced(fold: str, x: TensorType, axes: tuple[int, ...], keepdims: bool) -> Factors:
    names = numbered(x)
    folds = {names[a]: FOLDED[fold] for a in axes if fold in FOLDED}
    taken = tuple(["" if i in axes and names[i] not in folds else n for i, n in enumerate(names)])
    kept = ["" if i in axes else n for i, n in enumerate(names) if keepdims or i not in axes]
    return Factors((taken,), (tuple(kept),), folds)


def along(*whole_axes: str) -> FactorRule:
    """A rule of an op whose outputs have the dimensions of its one input: all are free but those that
    attributes name.
    """

    def rule(inputs: Types, outputs: Types, **attrs: int | tuple[int, ...]) -> Factors:
        fixed: set[int] = set()
        for name in whole_axes:
            axes = attrs[name]
            fixed.update(axes if isinstance(axes, tuple) else (axes,))
        names = tuple(["" if i in fixed else n for i, n in enumerate(numbered(inputs[0]))])
        return Factors((names,), tuple(names for _ in outputs))

    return rule


def where_equal(inputs: Types, outputs: Types, **attrs: object) -> Factors:
    """Of an op that leaves the size of a dimension alone where it does nothing along it, such as joining."""
    free = [all(t.shape[i] == s for t in inputs) for i, s in enumerate(outputs[0].shape)]
    names = tuple([n if ok else "" for n, ok in zip(numbered(outputs[0]), free, strict=True)])
    return Factors(tuple(names for _ in inputs), (names,))


def pieces_in(whole: Any, part: Any) -> int:
    """How many equal pieces make a dimension, of the size of one; 1 where it does not go."""
    known = isinstance(whole, int) and isinstance(part, int) and part > 0
    return whole // part if known and whole > part and whole % part == 0 else 1


def of_join(inputs: Types, outputs: Types, *, axis: int) -> Factors:
    """Of joining: tensors of one size are the pieces of the result."""
    found, (out,) = where_equal(inputs, outputs), outputs
    count = pieces_in(out.shape[axis], inputs[0].shape[axis])
    if count == 1 or any(t.shape[axis] != inputs[0].shape[axis] for t in inputs):
        return found
    names = numbered(out)
    joined = tuple([f"{count}*{n}" if d == axis else n for d, n in enumerate(names)])
    return Factors(tuple([names for _ in inputs]), (joined,))


def of_product(inputs: Types, outputs: Types) -> Factors:
    """Of a product of matrices."""
    ins, outs = ([TensorType(t.shape[:-2], t.dtype) for t in types] for types in (inputs, outputs))
    (a, b), (out,) = aligned(ins, outs)[:2]
    return Factors(((*a, "m", "k"), (*b, "k", "n")), ((*out, "m", "n"),), {"k": "add"})


def of_order(inputs: Types, outputs: Types, *, axes: tuple[int, ...]) -> Factors:
    """Of another order of dimensions."""
    names = numbered(inputs[0])
    return Factors((names,), (tuple([names[a] for a in axes]),))


def of_broadcast(inputs: Types, outputs: Types, **attrs: object) -> Factors:
    """Of repeating along new dimensions, and along those of size 1."""
    return aligned(inputs, outputs)


def of_reshape(inputs: Types, outputs: Types, **attrs: object) -> Factors:
    """Of a reshape: runs of dimensions that hold the same elements; the first of a run may be cut."""
    old, new = inputs[0].shape, outputs[0].shape
    names: tuple[list[str], list[str]] = ([""] * len(old), [""] * len(new))
    if 0 in old or not all(isinstance(s, int) for s in (*old, *new)):
        return Factors((tuple(names[0]),), (tuple(names[1]),))
    i = j = 0
    while i < len(old) and j < len(new):
        if old[i] == 1 or new[j] == 1:  # in no run
            i, j = i + (old[i] == 1), j + (old[i] != 1)
            continue
        names[0][i] = names[1][j] = f"r{i}"
        a, b, first = old[i], new[j], (i, j)
        i, j = i + 1, j + 1
        while a != b:
            if a < b:
                a, i = a * old[i], i + 1
            else:
                b, j = b * new[j], j + 1
        _name_pieces((old, new), names, first, (i, j))
    return Factors((tuple(names[0]),), (tuple(names[1]),))


def _name_pieces(
    shapes: tuple[Any, Any], names: tuple[list[str], list[str]], first: tuple[int, int], end: tuple[int, int]
) -> None:
    """Of a run that is one dimension on one side: it may be in pieces, of which the other side has a number
    and what is in them.
    """
    for one, other in ((0, 1), (1, 0)):
        if end[one] - first[one] == 1 and end[other] - first[other] > 1:
            count, name = shapes[other][first[other]], f"s{first[0]}"
            names[one][first[one]] += f"|{count}*{name}"
            names[other][first[other] + 1] = name


def of_gather(inputs: Types, outputs: Types, from_end: bool = True) -> Factors:
    """Of indexing: indices may be cut, and the rest; what one array of indices numbers, too, by its parts."""
    x, *indices = inputs
    places, rest = _indexed(x, indices, outputs[0])
    out = ((*places.outputs[0], *rest),)
    if len(indices) != 1:
        return Factors(((*[""] * len(indices), *rest), *places.inputs), out)
    return Factors((("row", *rest), *places.inputs), out, {"row": "add"}, picks=("row", 1))


def of_scatter_add(inputs: Types, outputs: Types) -> Factors:
    """Of adding at indices: what parts of the indices add is added up, to the array once."""
    x, v, *indices = inputs
    places, rest = _indexed(x, indices, v)
    kept = ("row", *rest) if len(indices) == 1 else (*[""] * len(indices), *rest)
    folds = {name: "add" for name in places.outputs[0] if name}
    picks = ("row", 2) if len(indices) == 1 else None
    added = (*places.outputs[0], *rest)
    return Factors((kept, added, *places.inputs), (kept,), folds, once=(0,), picks=picks)


def of_scatter(inputs: Types, outputs: Types) -> Factors:
    """Of writing at indices: which write comes last matters, so they must be whole."""
    x, v, *indices = inputs
    _, rest = _indexed(x, indices, v)
    kept = (*[""] * len(indices), *rest)
    return Factors((kept, (*[""] * (v.ndim - len(rest)), *rest), *map(whole, indices)), (kept,))


def _indexed(x: TensorType, indices: Sequence[TensorType], part: TensorType) -> tuple[Factors, Names]:
    rest = tuple([f"x{i}" for i in range(len(indices), x.ndim)])
    lead = TensorType(part.shape[: part.ndim - len(rest)], part.dtype)
    return aligned(indices, [lead]), rest


def of_class(inputs: Types, outputs: Types, *, axis: int, **attrs: object) -> Factors:
    """Of taking one class of each row, or putting it there: a part does so with the classes it has."""
    few = min(inputs[0], outputs[0], key=lambda t: t.ndim)
    short = numbered(few)
    long = (*short[:axis], "class", *short[axis:])
    if inputs[0] is few:
        return Factors((short, short), (long,), picks=("class", 1))
    return Factors((long, short), (short,), {"class": "add"}, picks=("class", 1))


def of_statistics(inputs: Types, outputs: Types, *, axes: tuple[int, ...], **attrs: object) -> Factors:
    """Of standardising over axes, which must be whole; means and variances have them of size 1."""
    names = tuple(["" if i in axes else n for i, n in enumerate(numbered(inputs[0]))])
    return Factors((names,), (names, names, names))


def of_convolution(inputs: Types, outputs: Types, *, groups: int, **attrs: object) -> Factors:
    """Of a convolution: examples, and without groups the channels; those of the input are added up."""
    space = ("",) * (inputs[0].ndim - 2)
    if groups != 1:
        return Factors((("n", "", *space), ("", "", *space)), (("n", "", *space),))
    return Factors((("n", "c", *space), ("o", "c", *space)), (("n", "o", *space),), {"c": "add"})


def of_pool(inputs: Types, outputs: Types, *, kernel: tuple[int, ...], **attrs: object) -> Factors:
    """Of a pool: all dimensions before those that it goes along."""
    count = inputs[0].ndim - len(kernel)
    names = (*numbered(inputs[0])[:count], *[""] * len(kernel))
    return Factors((names,), tuple(names for _ in outputs))


def of_windows(inputs: Types, outputs: Types, *, kernel: tuple[int, ...], **attrs: object) -> Factors:
    """Of windows: all dimensions before those that they go along."""
    lead = min(inputs[0].ndim, outputs[0].ndim) - len(kernel)
    names = [(*numbered(t)[:lead], *[""] * (t.ndim - lead)) for t in (*inputs, *outputs)]
    return Factors((names[0],), tuple(names[1:]))


def of_place(inputs: Types, outputs: Types, *, axis: int, keepdims: bool) -> Factors:
    """Of where along an axis something is: the other dimensions."""
    names = numbered(inputs[0])
    out = [n if i != axis else "" for i, n in enumerate(names) if keepdims or i != axis]
    return Factors((tuple([n if i != axis else "" for i, n in enumerate(names)]),), (tuple(out),))


def of_matrices(inputs: Types, outputs: Types, **attrs: object) -> Factors:
    """Of what is done with each matrix: the dimensions before the last two of inputs."""
    leads = [t.shape[:-2][::-1] for t in inputs]
    sizes = [[size for size in row if size != 1] or [1] for row in zip_longest(*leads, fillvalue=1)]
    shape = [row[0] for row in sizes[::-1]]
    names = [f"d{i}" for i in range(len(shape))]

    def taken(t: TensorType) -> Names:
        lead = len(shape) - (t.ndim - 2)
        pairs = zip(names[lead:], t.shape, shape[lead:], strict=False)
        return (*[n if size == full else "" for n, size, full in pairs], "", "")

    def given(t: TensorType) -> Names:
        return (*names, *[""] * (t.ndim - len(names)))

    return Factors(tuple(map(taken, inputs)), tuple(map(given, outputs)))


# What attributes become on parts: by the whole types of the inputs, and the types of the parts


def resized(op: Op, attrs: Mapping[str, Any], types: Types, parts: Types, outs: Types) -> dict[str, Any]:
    """The attributes of an op on parts of its inputs, which give parts of its outputs."""
    if op.resize is not None:
        found: dict[str, Any] = op.resize(attrs, types, parts, outs)
        return found
    return {**attrs, "shape": outs[0].shape} if "shape" in attrs else dict(attrs)


def resize_slice(attrs: Mapping[str, Any], types: Types, parts: Types, outs: Types) -> dict[str, Any]:
    """A slice of a part: what was taken whole still is, and of what is in pieces the same ones."""
    return {**attrs, **_scaled(attrs, ("starts", "stops"), types[0], parts[0])}


def resize_pad(attrs: Mapping[str, Any], types: Types, parts: Types, outs: Types) -> dict[str, Any]:
    """Padding of a part: as many pieces."""
    return {**attrs, **_scaled(attrs, ("low", "high"), types[0], parts[0])}


def _scaled(
    attrs: Mapping[str, Any], names: Sequence[str], full: TensorType, part: TensorType
) -> dict[str, Any]:
    """Attributes that are numbers of elements along dimensions, for those of a part."""
    return {
        name: tuple(
            [n if f == p else n * p // f for n, f, p in zip(attrs[name], full.shape, part.shape, strict=True)]
        )
        for name in names
    }

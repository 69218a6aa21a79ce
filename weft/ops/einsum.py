"""Einstein sums: sums of products over labelled axes, as permutations, reshapes and matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import prod
from string import ascii_letters
from typing import Any

from weft.base.records import NamedTuple
from weft.base.size_bounds import typical
from weft.errors import ArgumentError, ShapeError
from weft.ops.contract import matrix_multiply
from weft.ops.op import Sample, Tensor, TensorLike, composite, type_of
from weft.ops.reduce import reduce_sum
from weft.ops.samples import complex_array, int_array, real_array
from weft.ops.select import run_in_single, same_dtype
from weft.ops.view.padding import diagonal
from weft.ops.view.primitives import permute, reshape

Labels = tuple[str, ...]


class _Term(NamedTuple):
    """A tensor with a label for each axis, no label twice."""

    tensor: Tensor
    labels: Labels

    @property
    def sizes(self) -> dict[str, int]:
        return dict(zip(self.labels, self.tensor.shape, strict=True))


# Reading the equation


def _split_labels(text: str, rank: int | None, equation: str) -> list[str]:
    """The labels of one term; the axes of an ellipsis are called ...0 (the last), ...1, and so on."""
    before, dots, after = text.partition("...")
    if not all(c.isalpha() for c in before + after):
        raise ArgumentError("einsum", f"a term must be letters and at most one ellipsis, got {equation!r}")
    if not dots:
        return list(before)
    hidden = 0 if rank is None else rank - len(before) - len(after)
    return [*before, *(f"...{i}" for i in reversed(range(hidden))), *after]


def _parse(equation: str, operands: Sequence[Any]) -> tuple[list[list[str]], list[str]]:
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(operands):
        raise ArgumentError("einsum", f"{equation!r} needs {len(parts)} tensors, got {len(operands)}")
    terms = []
    for part, x in zip(parts, operands, strict=True):
        labels = _split_labels(part, x.ndim, equation)
        if len(labels) != x.ndim:
            raise ShapeError(
                "einsum", f"a term must have a label for each axis, got {part!r} for {type_of(x)}"
            )
        terms.append(labels)
    hidden = sorted({v for labels in terms for v in labels if v[0] == "."}, key=lambda v: -int(v[3:]))
    if arrow:
        return terms, _explicit_output(right, terms, hidden, equation)
    counts: dict[str, int] = {}
    for label in (v for labels in terms for v in labels):
        counts[label] = counts.get(label, 0) + 1
    return terms, hidden + sorted(v for v, n in counts.items() if n == 1 and v[0] != ".")


def _explicit_output(right: str, terms: list[list[str]], hidden: list[str], equation: str) -> list[str]:
    before, dots, after = right.partition("...")
    _split_labels(right, None, equation)
    output = [*before, *(hidden if dots else []), *after]
    known = {v for labels in terms for v in labels}
    if len(set(output)) != len(output) or not set(output) <= known:
        raise ArgumentError(
            "einsum", f"output labels must be distinct labels of the inputs, got {equation!r}"
        )
    return output


def _check_sizes(terms: list[list[str]], operands: Sequence[Any], equation: str) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for labels, x in zip(terms, operands, strict=True):
        for label, size in zip(labels, x.shape, strict=True):
            known = sizes.setdefault(label, size)
            if known == 1:
                sizes[label] = size
            elif size not in (1, known):
                name = "the ellipsis" if label[0] == "." else repr(label)
                message = f"sizes of {name} in {equation!r} must agree, got {known} and {size}"
                raise ShapeError("einsum", message, clash=(known, size))
    return sizes


# Reducing terms


def _without_repeats(tensor: Tensor, labels: list[str]) -> _Term:
    """A term in which an axis labelled twice is replaced by its diagonal."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            tensor = diagonal(tensor, axis1=first, axis2=second)
            labels = [v for i, v in enumerate(labels) if i not in (first, second)] + [label]
    return _Term(tensor, tuple(labels))


def _reduced(term: _Term, keep: set[str], sizes: dict[str, int]) -> _Term:
    """A term summed over labels that no one else needs, without axes of size 1 that are broadcast."""
    axes = tuple(i for i, v in enumerate(term.labels) if v not in keep)
    tensor = reduce_sum(term.tensor, axes=axes, keepdims=False) if axes else term.tensor
    labels = tuple(v for v in term.labels if v in keep)
    kept = [(v, n) for v, n in zip(labels, tensor.shape, strict=True) if n == sizes[v]]
    if len(kept) < len(labels):
        tensor = reshape(tensor, shape=tuple(n for _, n in kept))
    return _Term(tensor, tuple(v for v, _ in kept))


def _arranged(term: _Term, *groups: Sequence[str]) -> Tensor:
    """The tensor with its axes in the order of groups of labels, each group one axis."""
    order = tuple(term.labels.index(v) for group in groups for v in group)
    sizes = term.sizes
    tensor = term.tensor if order == tuple(range(len(order))) else permute(term.tensor, axes=order)
    shape = tuple(prod(sizes[v] for v in group) for group in groups)
    return tensor if tensor.shape == shape else reshape(tensor, shape=shape)


def _contract(a: _Term, b: _Term, keep: set[str], sizes: dict[str, int]) -> _Term:
    """The product of two terms, summed over their labels that are not kept."""
    a, b = _reduced(a, keep.union(b.labels), sizes), _reduced(b, keep.union(a.labels), sizes)
    shared = [v for v in a.labels if v in b.labels]
    batch, summed = [v for v in shared if v in keep], [v for v in shared if v not in keep]
    free_a, free_b = ([v for v in t.labels if v not in shared] for t in (a, b))
    labels = (*batch, *free_a, *free_b)
    if summed:
        product = matrix_multiply(_arranged(a, batch, free_a, summed), _arranged(b, batch, summed, free_b))
    else:
        product = _arranged(a, batch, free_a, ()) * _arranged(b, batch, (), free_b)
    return _Term(reshape(product, shape=tuple(sizes[v] for v in labels)), labels)


def _cheapest_pair(terms: list[_Term], output: set[str], sizes: dict[str, int]) -> tuple[int, int]:
    """The two terms whose product is smallest next to what it replaces."""

    def cost(pair: tuple[int, int]) -> tuple[int, int]:
        a, b = (terms[i] for i in pair)
        needed = _needed(terms, pair, output)
        union = set(a.labels) | set(b.labels)
        result, work = (prod(typical(sizes[v]) for v in labels) for labels in (union & needed, union))
        return result - prod(map(typical, a.tensor.shape)) - prod(map(typical, b.tensor.shape)), work

    return min(combinations(range(len(terms)), 2), key=cost)


def _needed(terms: list[_Term], except_: Sequence[int], output: set[str]) -> set[str]:
    """The labels that the output or the other terms have."""
    return output.union(*(t.labels for i, t in enumerate(terms) if i not in except_))


def _einsum_samples() -> list[Sample]:
    a, b, c = real_array((2, 3)), real_array((3, 4), seed=1), real_array((4, 2), seed=2)
    cube, square = real_array((5, 2, 3), seed=3), real_array((3, 3), seed=4)
    cases: list[tuple[str, tuple[Any, ...]]] = [
        ("ij,jk->ik", (a, b)),
        ("ij,jk", (a, b)),
        ("ij,jk,kl->il", (a, b, c)),
        ("ij,jk,ki->", (a, b, c)),
        ("ij->ji", (a,)),
        ("ij->", (a,)),
        ("ii->i", (square,)),
        ("ii", (square,)),
        ("...ij,jk->...ik", (cube, b)),
        ("b...,b...->...", (cube, cube)),
        ("...,...", (cube, a)),
        ("ij,ij->ij", (a, a)),
        ("i,j->ij", (a[0], b[0])),
        ("bij,bjk->bik", (cube, real_array((5, 3, 2)))),
        ("bhqd,bhkd->bhqk", (real_array((2, 2, 3, 4)), real_array((2, 2, 5, 4)))),
        ("iij,jk->ik", (real_array((3, 3, 2)), a)),
        ("ij,jk->ik", (complex_array((2, 3)), complex_array((3, 2), seed=1))),
        ("ij,jk->ik", (int_array((2, 3)), int_array((3, 2), seed=1))),
        ("ij,jk->ik", (real_array((0, 3)), b)),
        ("i...,i...->...", (real_array((2, 1)), a)),
        ("...i,...j,...j->i...", (a, real_array((1, 4)), real_array((2, 4)))),
    ]
    return [Sample(arrays, {"equation": equation}) for equation, arrays in cases]


@composite(
    "einsum",
    samples=_einsum_samples,
    sampled=lambda *xs, equation: einsum(equation, *xs),  # type: ignore[has-type]
    precision="low",
)
def einsum(equation: str, *operands: Tensor) -> Tensor:
    """The sum of products over the labels that do not appear in the output.

    Each axis has a letter; a letter in several terms runs over their axes together. ``...`` stands for axes
    that broadcast. Without ``->`` the output has the letters that appear once, in alphabetical order.

    >>> import weft
    >>> weft.einsum("ij,jk->ik", weft.ones((2, 3)), weft.ones((3, 4))).shape
    (2, 4)
    >>> weft.einsum("ii", weft.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor(5.)
    """
    if isinstance(equation, TensorLike):
        equation, operands = _from_numbers(equation, *operands)
    if not isinstance(equation, str):
        raise ArgumentError(
            "einsum", f"the first argument must be an equation such as 'ij,jk->ik', got {equation!r}"
        )
    tensors = (
        list(operands[0]) if len(operands) == 1 and isinstance(operands[0], list | tuple) else list(operands)
    )
    if not tensors:
        raise ArgumentError("einsum", "at least one tensor is needed, got none")
    labels, output = _parse(equation, tensors)
    sizes = _check_sizes(labels, tensors, equation)
    tensors = same_dtype("einsum", *tensors)

    def contract(*given: Tensor) -> Tensor:
        return _contract_all(given, labels, output, sizes)

    # a chain of products is rounded once; the result of a single one is what is stored
    return contract(*tensors) if len(tensors) < 3 else run_in_single(contract, tuple(tensors), {})


def _from_numbers(*given: Any) -> tuple[str, tuple[Tensor, ...]]:
    """The equation and tensors of a call that numbers axes: ``einsum(x, [0, 1], y, [1, 2], [0, 2])``."""
    terms = [_letters(labels) for labels in (*given[1::2], *given[len(given) - len(given) % 2 :])]
    inputs = terms[: len(given) // 2]
    equation = ",".join(inputs) + "".join("->" + last for last in terms[len(inputs) :])
    return equation, given[: 2 * len(inputs) : 2]


def _letters(labels: Any) -> str:
    if not isinstance(labels, list | tuple):
        raise ArgumentError("einsum", f"a tensor must be followed by a list of its labels, got {labels!r}")
    for label in labels:
        if label is not Ellipsis and not (isinstance(label, int) and 0 <= label < len(ascii_letters)):
            raise ArgumentError("einsum", f"labels must be in 0..{len(ascii_letters) - 1}, got {label!r}")
    return "".join("..." if label is Ellipsis else ascii_letters[label] for label in labels)


def _contract_all(
    tensors: Sequence[Tensor], labels: Sequence[Any], output: Any, sizes: dict[str, int]
) -> Tensor:
    """Contract pairs of tensors, the cheapest first, until one is left."""
    terms = [_without_repeats(x, v) for x, v in zip(tensors, labels, strict=True)]
    wanted = set(output)
    terms = [_reduced(t, _needed(terms, (i,), wanted), sizes) for i, t in enumerate(terms)]
    while len(terms) > 1:
        i, j = _cheapest_pair(terms, wanted, sizes)
        merged = _contract(terms[i], terms[j], _needed(terms, (i, j), wanted), sizes)
        terms = [t for k, t in enumerate(terms) if k not in (i, j)] + [merged]
    return _arranged(_reduced(terms[0], wanted, sizes), *([v] for v in output))

"""Sizes of arguments that vary from call to call: they get names, and one graph serves them all.

The first call captures sizes as they are. A call that differs from earlier ones by sizes alone gives every
axis that varied a name; axes that always had the same size share one. Sizes 0 and 1 stand for themselves,
for 1 is broadcast and 0 makes things empty. Where captured code needs the number itself, sizes stay fixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.records import NamedTuple
from weft.base.sizes import Size, bind, named_size, solve
from weft.capture.program.call_keys import CallKey, TensorKey
from weft.errors import ShapeError
from weft.tensor.form import Form

Shape = tuple[Any, ...]
_LETTERS = "nmklpqrst"
_MANY = -1  # any size from 2 on
_MOST_SEEN = 32


class OpenType(NamedTuple):
    """The type of a tensor that leaves open what its sizes are from 2 on."""

    sizes: tuple[int, ...]
    dtype: Any


def shape_and_dtype(key: TensorKey) -> tuple[Shape, Any]:
    """What the key of a tensor says of its type."""
    kind = key.type
    return (kind.shape, kind.dtype) if isinstance(kind, Form) else kind


def open_key(key: CallKey) -> CallKey:
    """The key of a call that leaves sizes open: calls with the same one differ by sizes alone."""
    return key._replace(leaves=tuple([_opened(k) if isinstance(k, TensorKey) else k for k in key.leaves]))


def _opened(part: TensorKey) -> TensorKey:
    shape, dtype = shape_and_dtype(part)
    sizes = tuple([_MANY if isinstance(size, Size) or size > 1 else size for size in shape])
    return TensorKey(OpenType(sizes, dtype), part.requires_grad)


def named_key(key: CallKey, shapes: Sequence[Shape]) -> CallKey:
    """The key of a call, whose tensors have shapes in which sizes are named."""
    rest = iter(shapes)
    leaves = [_named(part, next(rest)) if isinstance(part, TensorKey) else part for part in key.leaves]
    return key._replace(leaves=tuple(leaves))


def _named(part: TensorKey, shape: Shape) -> TensorKey:
    if not has_names([shape]):
        return part
    return TensorKey((shape, shape_and_dtype(part)[1]), part.requires_grad)


def has_names(shapes: Sequence[Shape]) -> bool:
    """Whether some size of shapes has a name."""
    return any(isinstance(size, Size) for shape in shapes for size in shape)


def values_of(shapes: Sequence[Shape], actual: Sequence[Shape]) -> dict[str, int]:
    """The named sizes of shapes, by the shapes that tensors have."""
    pairs = [p for both in zip(shapes, actual, strict=False) for p in zip(*both, strict=True)]
    return {str(size): number for size, number in pairs if isinstance(size, Size)}


def admits(key: CallKey, shapes: Sequence[Shape]) -> bool:
    """Whether shapes fit a key with named sizes, of calls with the same open key."""
    return fit([shape_and_dtype(part)[0] for part in key.leaves if isinstance(part, TensorKey)], shapes)


def fit(wanted: Sequence[Shape], shapes: Sequence[Shape]) -> bool:
    """Whether named sizes can be those of shapes, of which there may be more: each name is one number.

    >>> from weft.base.sizes import named_size
    >>> from weft.capture.program.sizes import fit
    >>> n = named_size("n")
    >>> fit([(n, 3), (n,)], [(5, 3), (5,)]), fit([(n, 3), (n,)], [(5, 3), (4,)]), fit([(2 * n,)], [(5,)])
    (True, False, False)
    """
    sizes: dict[str, int] = {}
    expressions: list[tuple[Size, int]] = []
    for shape, actual in zip(wanted, shapes, strict=False):  # floats that are inputs come last
        for size, number in zip(shape, actual, strict=True):
            if isinstance(size, Size) and not (name := str(size)).isidentifier():
                expressions.append((size, number))
            elif (sizes.setdefault(name, number) if isinstance(size, Size) else size) != number:
                return False
    return not expressions or _solved(expressions, sizes)


def _solved(expressions: Sequence[tuple[Size, int]], sizes: dict[str, int]) -> bool:
    """Whether sizes such as ``4*h`` can be some numbers, given the names that are known."""
    try:
        for _ in expressions:  # a later one may tell the name that an earlier one left open
            for size, number in expressions:
                if isinstance(known := bind(size, sizes), Size):
                    solve(known, number, sizes)
    except ShapeError:
        return False
    return all(bind(size, sizes) == number for size, number in expressions)


class Varying:
    """The sizes that calls of one function had, by their open key."""

    __slots__ = ("_fixed", "_seen")

    def __init__(self) -> None:
        self._seen: dict[CallKey, list[Sequence[Shape]]] = {}
        self._fixed: set[CallKey] = set()

    def note(self, key: CallKey, shapes: Sequence[Shape]) -> None:
        """Remember the sizes of a call that was captured."""
        seen = self._seen.setdefault(key, [])
        if shapes not in seen and len(seen) < _MOST_SEEN:
            seen.append(shapes)

    def keep_fixed(self, key: CallKey) -> None:
        """Never give names to sizes of such calls again: captured code needs the numbers."""
        self._fixed.add(key)

    def is_fixed(self, key: CallKey) -> bool:
        """Whether sizes of such calls stay numbers."""
        return key in self._fixed

    def named(self, key: CallKey, shapes: Sequence[Shape]) -> list[Shape] | None:
        """The shapes of a call, with names for sizes that varied; None if none did, or they must be fixed."""
        if key in self._fixed:
            return None
        named = name_sizes([*self._seen.get(key, ()), shapes])
        return named if has_names(named) else None


def name_sizes(calls: Sequence[Sequence[Shape]]) -> list[Shape]:
    """The shapes of the last of some calls, in which sizes that varied between them have names.

    >>> from weft.capture.program.sizes import name_sizes
    >>> name_sizes([[(32, 8), (32,)], [(48, 8), (48,)]])
    [(n, 8), (n,)]
    >>> name_sizes([[(32, 8), (32,)], [(48, 9), (24,)]])
    [(n, m), (k,)]
    """
    names: dict[tuple[int, ...], Size] = {}

    def size(tensor: int, axis: int) -> Any:
        history = tuple([shapes[tensor][axis] for shapes in calls])
        if len(set(history)) == 1:
            return history[0]
        if history not in names:
            count = len(names)
            names[history] = named_size(_LETTERS[count] if count < len(_LETTERS) else f"size{count}")
        return names[history]

    return [
        tuple([size(tensor, axis) for axis in range(len(shape))]) for tensor, shape in enumerate(calls[-1])
    ]

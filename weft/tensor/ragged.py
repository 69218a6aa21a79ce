"""Ragged tensors: rows of different length, kept end to end in one dense tensor.

``values`` holds all rows one after the other along its first axis; ``splits`` tells where each begins.
Everything that computes is a function of ops on ``values``, so gradients and transforms work as for
dense tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, Self

import numpy as np

from weft.base.dtypes import DTypeLike, as_dtype
from weft.base.elsewhere import unknown_of
from weft.base.public import public
from weft.base.trees import register_tree
from weft.errors import ArgumentError, AxisError, BoundsError, DtypeError, ShapeError
from weft.ops.contract import matrix_multiply
from weft.ops.index import gather_nd, scatter_add_nd
from weft.ops.op import Array, Attrs, Op, Operand, type_of
from weft.ops.reduce import max as reduce_max
from weft.ops.reduce import min as reduce_min
from weft.ops.reduce import prod as reduce_prod
from weft.ops.select import cast, where
from weft.ops.view.primitives import concat
from weft.ops.view.primitives import reshape as reshape_to
from weft.tensor import functions
from weft.tensor.creation import tensor
from weft.tensor.operators import attach_operators
from weft.tensor.tensor import Tensor, wrap
from weft.tensor.valued import Valued


class RaggedTensor(Valued):
    """Rows of different length.

    >>> import weft
    >>> r = weft.ragged([[1.0, 2.0, 3.0], [], [4.0]])
    >>> r.sum()
    tensor([6., 0., 4.])
    >>> (r * 2).to_padded()
    tensor([[2., 4., 6.],
            [0., 0., 0.],
            [8., 0., 0.]])
    """

    __slots__ = ("_splits", "values")

    def __init__(self, values: Tensor, splits: Array) -> None:
        self.values = values
        self._splits = splits

    # What it is

    @property
    def splits(self) -> Tensor:
        """Where each row begins in ``values``, and where the last one ends."""
        return wrap(self._splits)

    @property
    def lengths(self) -> Tensor:
        """The length of each row."""
        return wrap(np.diff(self._splits))

    @property
    def shape(self) -> tuple[int | None, ...]:  # type: ignore[override]
        """Number of rows, None for their length, then the shape of an element."""
        return (len(self), None, *self.values.shape[1:])

    @property
    def ndim(self) -> int:
        """The rank: rows, elements of a row, and the axes of an element."""
        return self.values.ndim + 1

    def parts(self) -> tuple[tuple[Any, ...], Any]:
        """The values; beside them where each row begins, which Python code computes with."""
        return (self.values,), tuple(self._splits.tolist())

    @classmethod
    def from_parts(cls, tensors: tuple[Any, ...], rest: Any) -> RaggedTensor:
        """The ragged tensor of values, with rows that begin there."""
        return cls(tensors[0], np.array(rest, np.int64))

    def _with(self, values: Tensor) -> Self:
        return type(self)(values, self._splits)

    def __len__(self) -> int:
        return len(self._splits) - 1

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int | slice) -> Any:
        """Row i as a dense tensor, or some rows as a ragged one."""
        rows = len(self)
        if isinstance(i, slice):
            return self.take_rows(range(*i.indices(rows)))
        if isinstance(i, Tensor | np.ndarray | list | tuple):
            got = type(i).__name__
            hint = "use .take_rows(numbers)"
            raise ArgumentError("index", f"rows are taken by an int or a slice, got {got}", hint=hint)
        if not -rows <= int(i) < rows:
            raise BoundsError("index", f"row must be in {-rows}..{rows - 1}, got {int(i)}")
        i = int(i) % rows
        return self.values[int(self._splits[i]) : int(self._splits[i + 1])]

    def take_rows(self, rows: Sequence[int]) -> RaggedTensor:
        """The rows of the given numbers, in that order."""
        lengths = np.diff(self._splits)[list(rows)] if len(rows) else np.zeros(0, np.int64)
        starts = self._splits[list(rows)] if len(rows) else np.zeros(0, np.int64)
        splits = _splits_of(lengths)
        index = np.arange(splits[-1]) + np.repeat(starts - splits[:-1], lengths)
        return RaggedTensor(gather_nd(self.values, wrap(index.astype(np.int64))), splits)

    def unbind(self) -> tuple[Tensor, ...]:
        """The rows, each a dense tensor."""
        return tuple(self)

    def astype(self, dtype: DTypeLike | None) -> RaggedTensor:
        """The same rows in another dtype."""
        return self._with(cast(self.values, dtype=as_dtype(dtype)))

    def __getattr__(self, name: str) -> NoReturn:
        hint = "use .to_padded() or .map()" if hasattr(Tensor, name) else ""
        raise unknown_of(name, self, "RaggedTensor", hint)

    def tolist(self) -> list[Tensor]:
        """The rows as lists."""
        return [row.tolist() for row in self]

    def __repr__(self) -> str:
        body = ",\n        ".join(
            repr(row).removeprefix("tensor(").partition("]")[0] + "]" for row in self.detach()
        )
        extra = ", requires_grad=True" if self.requires_grad else ""
        return f"ragged([{body}]{extra})" if self.values.ndim == 1 else f"ragged({self.tolist()}{extra})"

    # Dense forms

    def _row_of_each(self) -> Array:
        return np.repeat(np.arange(len(self)), np.diff(self._splits))

    def _place_in_row(self) -> Any:
        return np.arange(self._splits[-1]) - np.repeat(self._splits[:-1], np.diff(self._splits))

    def to_padded(self, value: float = 0.0, length: int | None = None) -> Tensor:
        """The rows side by side, filled with ``value`` up to the longest (or up to ``length``)."""
        longest = int(np.diff(self._splits).max(initial=0))
        length = longest if length is None else length
        if length < longest:
            raise ShapeError("to_padded", f"length must be at least the longest row, {longest}, got {length}")
        rows, places = wrap(self._row_of_each()), wrap(self._place_in_row())
        zeros = wrap(np.zeros((len(self), length, *self.values.shape[1:]), self.dtype))
        padded: Tensor = scatter_add_nd(zeros, self.values, rows, places)
        return padded if value == 0 else where(self.mask(length), padded, value)

    def mask(self, length: int | None = None) -> Tensor:
        """True where ``to_padded`` holds an element of a row."""
        lengths = np.diff(self._splits)
        length = int(lengths.max(initial=0)) if length is None else length
        inside = np.arange(length)[None, :] < lengths[:, None]
        return wrap(inside.reshape(*inside.shape, *[1] * (self.values.ndim - 1)))

    # Elementwise

    def map(self, function: Callable[[Any], Any]) -> RaggedTensor:
        """Apply a function to all elements at once; it must keep their number."""
        values = function(self.values)
        if not isinstance(values, Tensor) or values.shape[:1] != self.values.shape[:1]:
            got = type_of(values) if isinstance(values, Tensor) else type(values).__name__
            raise ShapeError("map", f"the function must keep the {self.values.shape[0]} elements, got {got}")
        return self._with(values)

    def apply_op(self, op: Op, inputs: tuple[Any, ...], attrs: Attrs) -> RaggedTensor:
        """An elementwise op on all elements, or a matrix product with each."""
        if op.accepts:
            return self._with(op.on_tensors(*[self._operand(op.name, x) for x in inputs]))
        if op is cast:
            return self._with(cast(self.values, **attrs))
        if op is matrix_multiply and inputs[0] is self:
            return RaggedTensor(op(self.values, inputs[1]), self._splits)
        raise ArgumentError(
            op.name, "inputs must be dense, got a ragged tensor", hint="use .to_padded() or .map()"
        )

    def _operand(self, op: str, other: Operand) -> Any:
        """One input of an elementwise op, element by element: same rows, one value a row, or broadcast."""
        if isinstance(other, RaggedTensor):
            if not np.array_equal(self._splits, other._splits):
                lengths = f"{np.diff(self._splits).tolist()} and {np.diff(other._splits).tolist()}"
                raise ShapeError(op, f"rows must have equal lengths, got {lengths}")
            return other.values
        if isinstance(other, Tensor) and other.ndim == self.ndim and other.shape[1] == 1:
            if other.shape[0] not in (1, len(self)):
                raise ShapeError(op, f"one value a row needs {len(self)} rows, got {type_of(other)}")
            flat = reshape_to(other, shape=(other.shape[0], *other.shape[2:]))
            rows = self._row_of_each() if other.shape[0] > 1 else np.zeros(int(self._splits[-1]), np.int64)
            return gather_nd(flat, wrap(rows))
        if isinstance(other, Tensor) and other.ndim >= self.ndim:
            raise ShapeError(op, f"a dense side must have one value a row, (n, 1, ...), got {type_of(other)}")
        return other

    # Reduction over each row

    def sum(self, axis: int = 1) -> Tensor:
        """The sum of each row; 0 for an empty one."""
        self._check_axis("sum", axis)
        zeros = wrap(np.zeros((len(self), *self.values.shape[1:]), self.dtype))
        out: Tensor = scatter_add_nd(zeros, self.values, wrap(self._row_of_each()))
        return out

    def mean(self, axis: int = 1) -> Tensor:
        """The mean of each row; NaN for an empty one."""
        self._check_axis("mean", axis)
        lengths = np.diff(self._splits).astype(self.dtype).reshape(-1, *[1] * (self.values.ndim - 1))
        mean: Tensor = self.sum() / wrap(lengths)
        return mean

    def max(self, axis: int = 1) -> Tensor:
        """The largest element of each row; -inf for an empty one."""
        self._check_axis("max", axis)
        self._check_float("max")
        return reduce_max(self.to_padded(-np.inf, self._at_least_one()), axis=1)

    def min(self, axis: int = 1) -> Tensor:
        """The smallest element of each row; inf for an empty one."""
        self._check_axis("min", axis)
        self._check_float("min")
        return reduce_min(self.to_padded(np.inf, self._at_least_one()), axis=1)

    def prod(self, axis: int = 1) -> Tensor:
        """The product of each row; 1 for an empty one."""
        self._check_axis("prod", axis)
        return reduce_prod(self.to_padded(1.0), axis=1)

    def softmax(self, axis: int = 1) -> RaggedTensor:
        """The softmax within each row."""
        self._check_axis("softmax", axis)
        top = self.max().detach()
        top = where(top == -np.inf, 0.0, top)
        shifted = functions.exp(self.values - self._spread(top))
        return self._with(shifted / self._spread(self._with(shifted).sum()))

    def _check_axis(self, op: str, axis: int) -> None:
        if axis not in (1, -self.values.ndim):
            hint = "to_padded() makes a tensor that can be reduced along any axis"
            raise AxisError(op, f"axis must be 1, that of the rows' elements, got {axis}", hint=hint)

    def _spread(self, per_row: Tensor) -> Tensor:
        """A value for each row, repeated for each of its elements."""
        return gather_nd(per_row, wrap(self._row_of_each()))

    def _at_least_one(self) -> int:
        return max(1, int(np.diff(self._splits).max(initial=0)))

    def _check_float(self, op: str) -> None:
        if self.dtype.kind not in "fV":
            raise DtypeError(op, f"dtype must be floating, got {self.dtype.name}")


attach_operators(RaggedTensor)


def _splits_of(lengths: Any) -> Array:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


@public
def ragged(
    rows: Sequence[Any], *, dtype: DTypeLike | None = None, requires_grad: bool = False
) -> RaggedTensor:
    """A ragged tensor from a list of rows: lists of numbers, arrays or tensors.

    >>> import weft
    >>> weft.ragged([[1, 2], [3]]).lengths
    tensor([2, 1])
    """
    tensors = [row if isinstance(row, Tensor) else tensor(row, dtype=dtype) for row in rows]
    filled = [t for t in tensors if t.shape[:1] != (0,)] or tensors
    for t in filled:
        if t.ndim == 0 or t.shape[1:] != filled[0].shape[1:]:
            raise ShapeError(
                "ragged", f"elements of all rows must have one shape, got {list(map(type_of, filled))}"
            )
    if not filled:
        raise ArgumentError("ragged", "at least one row is needed to know the dtype", hint="use from_splits")
    lengths = [t.shape[0] for t in tensors]
    out = RaggedTensor(concat(filled, axis=0), _splits_of(lengths))
    return out.requires_grad_() if requires_grad else out


@public
def ragged_from_padded(x: Tensor, lengths: Tensor | Array | Sequence[int], /) -> RaggedTensor:
    """The ragged tensor of the first ``lengths[i]`` elements of each row of a dense one, with gradients.

    >>> import weft
    >>> weft.ragged_from_padded(weft.tensor([[1.0, 2.0], [3.0, 0.0]]), [2, 1]).tolist()
    [[1.0, 2.0], [3.0]]
    """
    counts = np.asarray(lengths._array("ragged_from_padded") if isinstance(lengths, Tensor) else lengths)
    if x.ndim < 2 or counts.shape != x.shape[:1]:
        raise ShapeError(
            "ragged_from_padded",
            f"a length is needed for each row, got {type_of(x)} and {counts.shape} lengths",
        )
    if counts.size and (counts.min() < 0 or counts.max() > x.shape[1]):
        raise BoundsError("ragged_from_padded", f"lengths must be in 0..{x.shape[1]}, got {counts.tolist()}")
    shell = RaggedTensor(wrap(np.zeros(int(counts.sum()))), _splits_of(counts))
    values = gather_nd(x, wrap(shell._row_of_each()), wrap(shell._place_in_row()))
    return RaggedTensor(values, shell._splits)


@public
def ragged_from_splits(values: Tensor, splits: object, /) -> RaggedTensor:
    """The ragged tensor of rows ``values[splits[i]:splits[i + 1]]``.

    >>> import weft
    >>> weft.ragged_from_splits(weft.tensor([1.0, 2.0, 3.0]), [0, 1, 3]).tolist()
    [[1.0], [2.0, 3.0]]
    """
    bounds = np.asarray(splits._array("ragged_from_splits") if isinstance(splits, Tensor) else splits)
    total = values.shape[0] if values.ndim else 0
    fits = bounds.ndim == 1 and bounds.size > 0 and bounds[0] == 0 and bounds[-1] == total
    if not fits or (np.diff(bounds) < 0).any():
        raise ShapeError(
            "ragged_from_splits",
            f"splits must rise from 0 to {total}, got {bounds.tolist()} for {type_of(values)}",
        )
    return RaggedTensor(values, bounds.astype(np.int64))


register_tree(
    RaggedTensor,
    lambda r: ((r.values,), tuple(r._splits.tolist())),
    lambda splits, children: RaggedTensor(children[0], np.array(splits, np.int64)),
)

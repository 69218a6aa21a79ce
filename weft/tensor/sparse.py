"""Sparse tensors in coordinate form: a list of indices, the values there, and a shape.

Everything that computes is a function of ops on ``values``, so gradients, transforms and higher orders
work as for dense tensors; ``indices`` are integers and have no gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Self

import numpy as np

from weft.base.counted import Answer, counted
from weft.base.dtypes import DType, DTypeLike, as_dtype, default_float, int64, kind, uint8
from weft.base.elsewhere import unknown_of
from weft.base.public import public
from weft.base.shapes import Axes, Shape, ShapeLike, normalize_axes, normalize_axis, normalize_shape, size_of
from weft.base.trees import register_tree
from weft.errors import ArgumentError, BoundsError, DtypeError, ShapeError
from weft.ops import arithmetic as ops
from weft.ops.contract import matrix_multiply, transpose_last
from weft.ops.effects import check
from weft.ops.index import gather_nd, scatter_add_nd
from weft.ops.op import Array, Attrs, Op, Operand, intercepted, type_of
from weft.ops.reduce import reduce_sum as reduce_sum_op
from weft.ops.reduce import sum as reduce_sum
from weft.ops.select import cast as cast_op
from weft.ops.select import same_dtype
from weft.ops.size import filled, size_value
from weft.ops.view.primitives import concat, stack
from weft.ops.view.primitives import reshape as reshape_to
from weft.tensor import functions as f
from weft.tensor.creation import asarray
from weft.tensor.mode import thread
from weft.tensor.operators import attach_operators
from weft.tensor.stored import stored
from weft.tensor.tensor import Tensor, wrap
from weft.tensor.valued import Valued


class SparseTensor(Valued):
    """A tensor that keeps only some of its elements; the others are 0.

    Duplicate indices are allowed and mean the sum of their values; ``coalesce()`` sums and sorts them.

    >>> import weft
    >>> s = weft.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3))
    >>> s.to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 5.]])
    """

    __slots__ = ("_coalesced", "_extents", "_shape", "indices", "values")

    def __init__(self, indices: Tensor, values: Tensor, shape: Shape, *, coalesced: bool = False) -> None:
        self.indices = stored(indices) if coalesced else indices
        self.values = stored(values) if coalesced else values
        self._shape = shape
        self._extents: tuple[Any, ...] = ()  # for each sparse axis, a tensor without elements, as long as it
        self._coalesced = coalesced

    # What it is

    @property
    def shape(self) -> Shape:
        """The size of each axis."""
        if not self._extents:
            return self._shape
        return (*[x.shape[0] for x in self._extents], *self.values.shape[1:])  # in a capture some are open

    @property
    def ndim(self) -> int:
        """The rank."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements, zeros included; called, the shape or a size of it, as of tensors."""
        count: int = counted(size_of(self.shape), self.shape)
        return count

    def numel(self) -> int:
        """The number of elements, zeros included."""
        return self.size

    def dim(self) -> int:
        """The rank."""
        return self.ndim

    def sparse_dim(self) -> int:
        """How many axes, the first ones, are sparse."""
        return self.indices.shape[0]

    def dense_dim(self) -> int:
        """How many axes, the last ones, each stored value has."""
        return self.values.ndim - 1

    def __bool__(self) -> bool:
        raise self._no_number("bool")

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nnz(self) -> int:
        """The number of stored values."""
        return self.values.shape[0]

    @property
    def is_coalesced(self) -> bool:
        """Whether indices are known to be sorted and distinct."""
        return Answer(self._coalesced)  # type: ignore[return-value]

    def clone(self) -> SparseTensor:
        """A copy that the graph knows of."""
        return self._with(self.values.clone())

    def parts(self) -> tuple[tuple[Any, ...], Any]:
        """Values, indices, and a tensor for each sparse axis, so that its size may be open as theirs are.

        Beside them stands whether indices are sorted and distinct.
        """
        if not self._extents:
            self._extents = tuple(_zeros((size, 0), uint8) for size in self._sparse_shape)
        return (self.values, self.indices, *self._extents), self._coalesced

    @classmethod
    def from_parts(cls, tensors: tuple[Any, ...], rest: Any) -> SparseTensor:
        """The sparse tensor of values, indices and sizes."""
        values, indices, *extents = tensors
        out = cls(indices, values, (), coalesced=rest)
        out._extents = tuple(extents)
        return out

    def _with(self, values: Tensor) -> Self:
        return type(self)(self.indices, values, self.shape, coalesced=self._coalesced)

    def __repr__(self) -> str:
        head = "sparse_coo_tensor("
        body = f"indices={self.indices!r},\nvalues={self.values!r},\nshape={self.shape}, nnz={self.nnz})"
        return head + body.replace("\n", "\n" + " " * len(head))

    # Forms

    def _rows(self) -> list[Tensor]:
        """The index along each sparse axis."""
        return [self.indices[axis] for axis in range(self.indices.shape[0])]

    @property
    def _sparse_shape(self) -> Shape:
        return self.shape[: self.indices.shape[0]]

    def coalesce(self) -> SparseTensor:
        """The same tensor with sorted, distinct indices: values at equal indices are summed."""
        if self._coalesced:
            return self
        sparse_shape = self._sparse_shape
        flat = np.ravel_multi_index(tuple(self.indices._array("coalesce")), sparse_shape) if self.nnz else []
        distinct, inverse = np.unique(np.asarray(flat, np.int64), return_inverse=True)
        zeros = np.zeros((distinct.size, *self.values.shape[1:]), self.dtype)
        values = scatter_add_nd(wrap(zeros), self.values, wrap(inverse.astype(np.int64)))
        indices = np.stack(np.unravel_index(distinct, sparse_shape)).astype(np.int64)
        return SparseTensor(wrap(indices), values, self.shape, coalesced=True)

    def to_dense(self) -> Tensor:
        """The dense tensor."""
        dense: Tensor = scatter_add_nd(_zeros(self.shape, self.dtype), self.values, *self._rows())
        return dense

    def astype(self, dtype: DTypeLike | None) -> SparseTensor:
        """The same tensor in another dtype."""
        return self._with(cast_op(self.values, dtype=as_dtype(dtype)))

    def transpose(self, a: int = 0, b: int = 1) -> SparseTensor:
        """The tensor with two of its sparse axes swapped."""
        rank = self.indices.shape[0]
        a, b = normalize_axis("transpose", a, rank), normalize_axis("transpose", b, rank)
        order = list(range(rank))
        order[a], order[b] = order[b], order[a]
        shape = (*[self.shape[i] for i in order], *self.shape[rank:])
        return SparseTensor(gather_nd(self.indices, wrap(np.array(order))), self.values, shape)

    @property
    def T(self) -> SparseTensor:  # noqa: N802 - the array API's name
        """The transpose of a matrix."""
        if self.ndim != 2:
            raise ShapeError("T", f"the tensor must have two axes, got shape {self.shape}")
        return self.transpose()

    def t(self) -> SparseTensor:
        """The transpose of a matrix, as ``T``."""
        return self.T

    def __getattr__(self, name: str) -> NoReturn:
        hint = "use .to_dense() first" if hasattr(Tensor, name) else ""
        raise unknown_of(name, self, "SparseTensor", hint)

    def __getitem__(self, key: object) -> NoReturn:
        raise ArgumentError(
            "index", "the tensor must be dense, got a sparse one", hint="use .to_dense() first"
        )

    # Arithmetic

    def map(self, function: Callable[[Any], Any]) -> SparseTensor:
        """Apply a function that keeps 0 at 0, such as ``weft.relu`` or ``weft.sin``, to the values.

        The values are coalesced first, so that a function that is not linear sees the sums.
        """
        whole = self.coalesce()
        return whole._with(function(whole.values))

    def apply_op(self, op: Op, inputs: tuple[Any, ...], attrs: Attrs) -> Any:
        """Arithmetic that keeps the tensor sparse, products, and functions that keep 0 at 0."""
        if op in _RULES:
            return _RULES[op](*inputs, **attrs)
        if op.accepts and len(inputs) == 1 and op.eval(np.zeros((), self.dtype)) == 0:
            return self.map(op.on_tensors)
        raise ArgumentError(op.name, "the result would not be sparse", hint="use .to_dense() first")

    @public
    def sum(self, axis: Axes = None) -> Tensor:
        """The sum over all elements, or over sparse axes, as a dense tensor."""
        if axis is None:
            total: Tensor = reduce_sum(self.values)
            return total
        rank = self.indices.shape[0]
        axes = normalize_axes("sum", axis, rank)
        kept = [a for a in range(rank) if a not in axes]
        shape = (*[self.shape[a] for a in kept], *self.shape[rank:])
        if not kept:
            return reduce_sum(self.values, axis=0)
        rows = self._rows()
        out: Tensor = scatter_add_nd(_zeros(shape, self.dtype), self.values, *[rows[a] for a in kept])
        return out


def _add(x: Any, y: Any) -> Any:
    """The sum of two sparse tensors is sparse; with a dense one it is dense."""
    if not (isinstance(x, SparseTensor) and isinstance(y, SparseTensor)):
        x, y = (s.to_dense() if isinstance(s, SparseTensor) else s for s in (x, y))
        return f.add(x, y)
    if x.shape != y.shape or x.indices.shape[0] != y.indices.shape[0]:
        raise ShapeError("add", f"sparse shapes must be equal, got {x.shape} and {y.shape}")
    indices = concat([x.indices, y.indices], axis=1)
    left, right = same_dtype("add", x.values, y.values)
    return SparseTensor(indices, concat([left, right], axis=0), x.shape).coalesce()


def _is_scalar(x: Tensor) -> bool:
    return isinstance(x, int | float | complex) or (isinstance(x, Tensor) and x.ndim == 0)


def _mul(x: Any, y: Any) -> SparseTensor:
    """The product is sparse where either side is."""
    if not isinstance(x, SparseTensor):
        x, y = y, x
    if _is_scalar(y):
        return x._with(x.values * y)  # type: ignore[no-any-return]
    if isinstance(y, SparseTensor):
        y = y.to_dense()
    if y.shape != x.shape:
        raise ShapeError("mul", f"shapes must be equal, got {x.shape} and {y.shape}")
    whole = x.coalesce()
    return whole._with(whole.values * gather_nd(y, *whole._rows()))  # type: ignore[no-any-return]


def _div(x: Tensor, y: Operand) -> SparseTensor:
    if not isinstance(x, SparseTensor) or not _is_scalar(y):
        raise ArgumentError("div", "a sparse tensor is divided by a scalar only", hint="use .to_dense()")
    return x._with(x.values / y)


def _check_matrix(op: str, s: SparseTensor) -> None:
    if s.ndim != 2 or s.indices.shape[0] != 2:
        raise ShapeError(op, f"the sparse side must be a matrix, got shape {s.shape}")


def _inner_sizes_differ(left: Shape, right: Shape) -> ShapeError:
    clash = f"{left[1]} vs {right[0]}"
    return ShapeError("matmul", f"inner dimensions must agree, got shapes {left} and {right} ({clash})")


def _matmul(s: Any, dense: Tensor) -> Tensor:
    """Sparse @ dense and dense @ sparse are dense; sparse @ sparse is sparse."""
    if not isinstance(s, SparseTensor):
        return transpose_last(_matmul(dense.T, transpose_last(s)))
    _check_matrix("matmul", s)
    if isinstance(dense, SparseTensor):
        return _matmul_sparse(s, dense)
    if dense.ndim != 2:
        raise ShapeError("matmul", f"the dense side must be a vector or matrix, got {type_of(dense)}")
    if dense.shape[0] != s.shape[1]:
        raise _inner_sizes_differ(s.shape, dense.shape)
    values, dense = same_dtype("matmul", s.values, dense)
    rows, columns = s._rows()
    terms = reshape_to(values, shape=(s.nnz, 1)) * gather_nd(dense, columns)
    return scatter_add_nd(_zeros((s.shape[0], *dense.shape[1:]), terms.dtype), terms, rows)


def _zeros(shape: Shape, dtype: DType) -> Tensor:
    """Zeros to add to, of sizes that may be named."""
    zeros = filled(shape, 0, dtype)
    return wrap(zeros) if isinstance(zeros, np.ndarray) else zeros


def _matmul_sparse(x: SparseTensor, y: SparseTensor) -> SparseTensor:
    """Pair each value of x at (i, k) with every value of y in row k."""
    _check_matrix("matmul", y)
    if x.shape[1] != y.shape[0]:
        raise _inner_sizes_differ(x.shape, y.shape)
    y = y.coalesce()
    (i, k), (rows, columns) = x.indices._array("matmul"), y.indices._array("matmul")
    starts = np.searchsorted(rows, np.arange(y.shape[0] + 1))
    counts = (starts[1:] - starts[:-1])[k]
    left = np.repeat(np.arange(x.nnz), counts)
    offsets = np.arange(left.size) - np.repeat(np.cumsum(counts) - counts, counts)
    right = starts[:-1][k][left] + offsets
    indices = np.stack([i[left], columns[right]]).astype(np.int64)
    a, b = same_dtype("matmul", x.values, y.values)
    values = gather_nd(a, wrap(left)) * gather_nd(b, wrap(right))
    return SparseTensor(wrap(indices), values, (x.shape[0], y.shape[1])).coalesce()


def _sum(s: SparseTensor, *, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    if keepdims:
        raise ArgumentError("sum", "keepdims must be False for a sparse tensor, got True")
    return s.sum(axis=None if len(axes) == s.ndim else axes)


_RULES: dict[Op, Callable[..., Any]] = {
    ops.add: _add,
    ops.sub: lambda x, y: _add(x, f.neg(y)),
    ops.mul: _mul,
    ops.div: _div,
    ops.neg: lambda x: x._with(f.neg(x.values)),
    matrix_multiply: _matmul,
    reduce_sum_op: _sum,
    cast_op: lambda x, *, dtype: x.astype(dtype),
}
attach_operators(SparseTensor)


@public
def sparse_coo_tensor(
    indices: Tensor | Array | Sequence[Any],
    values: Tensor | Array | Sequence[Any],
    shape: ShapeLike | None = None,
    *,
    dtype: DTypeLike | None = None,
    requires_grad: bool = False,
) -> SparseTensor:
    """A sparse tensor from coordinates.

    Args:
        indices: integers of shape (sparse rank, number of values).
        values: one for each column of indices; further axes make the last axes of the tensor dense.
        shape: of the whole tensor; by default just large enough.
        dtype: of the values.
        requires_grad: ask for gradients of the values.

    >>> import weft
    >>> eye = weft.sparse_coo_tensor([[0, 1], [0, 1]], [1.0, 1.0])
    >>> eye @ weft.tensor([3.0, 4.0])
    tensor([3., 4.])
    """
    index = indices if isinstance(indices, Tensor) else asarray(np.asarray(indices, np.int64))
    value = values if isinstance(values, Tensor) else asarray(values, dtype=dtype or _float_if_list(values))
    if dtype is not None:
        value = cast_op(value, dtype=as_dtype(dtype))
    if kind(index.dtype) not in "iu":
        raise DtypeError("sparse_coo_tensor", f"indices must be integers, got {index.dtype.name}")
    if index.ndim != 2 or value.ndim < 1 or value.shape[0] != index.shape[1]:
        raise ShapeError(
            "sparse_coo_tensor",
            f"indices must be (rank, n) with n values, got {type_of(index)} and {type_of(value)}",
        )
    coordinates = cast_op(index, dtype=int64)
    if shape is not None and intercepted.threads and thread.capture is not None:
        full = _shape_of_run(coordinates, value.shape[1:], shape)
    else:
        full = _checked_shape(coordinates._array("sparse_coo_tensor"), value.shape[1:], shape)
    value = value if isinstance(values, Tensor) else stored(value)
    coordinates = coordinates if isinstance(indices, Tensor) else stored(coordinates)
    out = SparseTensor(coordinates, value, full)
    return out.requires_grad_() if requires_grad else out


def _float_if_list(values: Any) -> Any:
    return default_float() if not hasattr(values, "dtype") and np.asarray(values).dtype.kind == "f" else None


def _shape_of_run(indices: Tensor, dense: Shape, shape: object) -> Shape:
    """The whole shape, where only a run tells the indices, and checks them."""
    full = _given_shape(indices.shape[0], dense, shape)
    sizes = [asarray(size_value(size, int64)) for size in full[: indices.shape[0]]]
    inside = f.logical_and(indices >= 0, indices < reshape_to(stack(sizes), shape=(len(sizes), 1))).all()
    text = f"sparse_coo_tensor: indices must be in a tensor of shape {full}"
    check.on_tensors(inside, pieces=(text,), places=())
    return full


def _given_shape(rank: int, dense: Shape, shape: object) -> Shape:
    full = normalize_shape("sparse_coo_tensor", shape)
    if len(full) != rank + len(dense) or full[rank:] != dense:
        raise ShapeError(
            "sparse_coo_tensor", f"shape must have {rank} sparse axes and end in {dense}, got {full}"
        )
    return full


def _checked_shape(indices: Any, dense: Shape, shape: object) -> Shape:
    """The whole shape, large enough for the indices."""
    least = tuple(int(row.max()) + 1 if row.size else 0 for row in indices)
    if shape is None:
        return least + dense
    full = _given_shape(len(least), dense, shape)
    for axis, (row, size) in enumerate(zip(indices, full, strict=False)):
        if row.size and (row.min() < 0 or row.max() >= size):
            bad = int(row.min() if row.min() < 0 else row.max())
            allowed = f"in 0..{size - 1} for axis {axis} of size {size}"
            raise BoundsError("sparse_coo_tensor", f"indices must be {allowed}, got {bad}")
    return full


@public
def to_sparse(x: Tensor, /, sparse_dims: int | None = None) -> SparseTensor:
    """The sparse form of a dense tensor: its elements that are not 0, with gradients.

    >>> import weft
    >>> weft.to_sparse(weft.tensor([[0.0, 2.0], [0.0, 0.0]])).indices
    tensor([[0],
            [1]])
    """
    rank = x.ndim if sparse_dims is None else sparse_dims
    if not 0 < rank <= x.ndim:
        raise ArgumentError("to_sparse", f"sparse_dims must be in 1..{x.ndim}, got {sparse_dims}")
    array = x._array("to_sparse")
    occupied = array != 0
    if rank < x.ndim:
        occupied = occupied.any(axis=tuple(range(rank, x.ndim)))
    found = [wrap(i.astype(np.int64)) for i in np.nonzero(occupied)]
    indices = wrap(np.stack([i._data for i in found]))
    return SparseTensor(indices, gather_nd(x, *found), x.shape, coalesced=True)


class _Frame:
    """Where the values of a sparse tensor stand: what trees keep of it beside the values."""

    __slots__ = ("coalesced", "indices", "shape")

    def __init__(self, s: SparseTensor) -> None:
        self.indices, self.shape, self.coalesced = s.indices, s.shape, s._coalesced

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Frame) or self.shape != other.shape:
            return False
        return self.indices is other.indices or np.array_equal(self.indices._data, other.indices._data)

    def __hash__(self) -> int:
        return hash(self.shape)


register_tree(
    SparseTensor,
    lambda s: ((s.values,), _Frame(s)),
    lambda frame, children: SparseTensor(frame.indices, children[0], frame.shape, coalesced=frame.coalesced),
)

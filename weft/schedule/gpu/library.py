"""What libraries of a GPU compute.

Products of matrices are taken as they lie: transposed, in batches, in half precision. Attention in half
precision reads query, keys and values as they lie, too; convolutions take channels last. What ranks exchange
is moved by one, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product as all_of
from math import prod

from weft.base.dtypes import kind
from weft.base.sizes import Size
from weft.ir.graph import Node
from weft.loop.index import Extent, Index
from weft.ops.library_collective import LIBRARY_COLLECTIVES
from weft.schedule.arrays import Array
from weft.schedule.cpu.matmul.lowering import _folded
from weft.schedule.extents import is_number
from weft.schedule.gpu.machine import Gpu
from weft.schedule.region import HostCall
from weft.schedule.target import lowers
from weft.schedule.writer import Writer

_MOST_CALLS = 64  # for one product with several axes of batches


def multiply_by_library(
    writer: Writer, inputs: Sequence[Array], out: Array, bias: Array | None = None
) -> bool:
    """Have a library multiply, where it is there and takes the matrices as they lie; False where not.

    A bias is a dense row that it adds to each row of the product.
    """
    machine = writer.target.machine
    if not isinstance(machine, Gpu) or not machine.libraries or kind(out.dtype) != "f":
        return False
    if not out.is_dense or not _is_large(inputs[0], out, machine.least_product):
        return False
    # A batch of one right side is a taller left side.
    batch, a, b = _folded(out.shape[:-2], *inputs)
    if bias is not None and batch:  # one call takes one row
        batch, a, b = _folded(out.shape[:-2], writer.copied(inputs[0]), inputs[1])
    a, b = (x if _matrix(x) is not None else writer.copied(x) for x in (a, b))
    m, n = a.shape[-2], b.shape[-1]
    wide = [1] * (len(batch) + 1)
    for axis in reversed(range(len(batch))):
        wide[axis] = wide[axis + 1] * batch[axis]
    apart = tuple(m * n * w for w in wide[1:])
    whole = Array(out.buffer, (*batch, m, n), (*apart, n, 1), out.offset)
    found = _calls((a, b, whole), batch)
    if found is None:
        return False
    for places, many, strides in found:
        _write(writer, (a, b, whole), places, many, strides, bias)
    return True


def _is_large(a: Array, out: Array, least: int) -> bool:
    return is_worth_a_call((*out.shape, a.shape[-1]), least)


def is_worth_a_call(shape: Sequence[Extent], least: int) -> bool:
    """Whether a product is large enough for a library; one of unknown size is."""
    sizes = [s for s in shape if not isinstance(s, Size)]
    return len(sizes) < len(shape) or prod(sizes) >= least


def _matrix(x: Array) -> tuple[Index, bool] | None:
    """How far apart the rows of a matrix are, and whether it lies transposed; None where it does neither."""
    (down, across), (high, wide) = x.strides[-2:], x.shape[-2:]
    if is_number(across, 1) and not _overlaps(down, wide, high):
        return Index.of(down), False
    if is_number(down, 1) and not _overlaps(across, high, wide):
        return Index.of(across), True
    return None


def _overlaps(stride: Extent, size: Extent, count: Extent) -> bool:
    """Whether so many rows of a size are nearer to each other than that, as those of a broadcast are."""
    if is_number(count, 1):
        return False
    if isinstance(stride, Size) or isinstance(size, Size):
        return is_number(stride, 0)
    return stride < size


Call = tuple[tuple[Extent, ...], Extent, tuple[Extent, ...]]  # where matrices begin, how many, how far apart


def _calls(arrays: Sequence[Array], batch: Sequence[Extent]) -> Iterator[Call] | None:
    """The calls for a batch: the last axes that lie evenly are one call's, each of the others has calls."""
    axes = len(batch)
    count: Extent = 1
    strides: tuple[Extent, ...] = (0,) * len(arrays)
    lead = axes
    while lead and (
        is_number(count, 1)
        or all(x.strides[lead - 1] == s * count for x, s in zip(arrays, strides, strict=True))
    ):
        lead -= 1
        if is_number(count, 1):
            strides = tuple(x.strides[lead] for x in arrays)
        count = batch[lead] * count
    around = batch[:lead]
    if any(isinstance(s, Size) for s in around) or prod(around) > _MOST_CALLS:
        return None
    return _each(arrays, around, count, strides)


def _each(
    arrays: Sequence[Array], around: Sequence[Extent], count: Extent, strides: tuple[Extent, ...]
) -> Iterator[Call]:
    for at in all_of(*[range(int(s)) for s in around]):
        offsets = [sum((i * s for i, s in zip(at, x.strides, strict=False)), 0) for x in arrays]
        yield tuple(offsets), count, strides


def _write(
    writer: Writer,
    arrays: Sequence[Array],
    offsets: Sequence[Extent],
    many: Extent,
    strides: Sequence[Extent],
    bias: Array | None,
) -> None:
    a, b, _ = arrays
    left, right = _matrix(a), _matrix(b)
    assert left is not None
    assert right is not None
    m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
    places = [(x.buffer, x.offset + at) for x, at in zip(arrays, offsets, strict=True)]
    batch = None if is_number(many, 1) else many
    writer.main.matmul(
        places[0], places[1], places[2], Index.of(m), Index.of(n), Index.of(k),
        (left[0], right[0], Index.of(n)), transposed=(left[1], right[1]),
        batch=batch, strides=() if batch is None else strides,
        bias=None if bias is None else (bias.buffer, bias.offset),
    )  # fmt: skip


@lowers("library_matmul_add", target="gpu", any_layout=True)
def _multiply_add(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    *sides, row = inputs
    (out,) = outputs
    dense = out if out.is_dense else writer.temporary(out.shape, out.dtype)
    done = multiply_by_library(writer, sides, dense, row if row.is_dense else writer.copied(row))
    assert done, "it was to be for the library"
    if dense is not out:
        writer.copy(dense, out)


# Attention and convolutions


@lowers(
    "library_attention", "library_attention_gradient", "library_attention_packed",
    "library_conv", "library_conv_add", "library_conv_input", "library_conv_input_add", "library_conv_weight",
    target="gpu", any_layout=True,
)  # fmt: skip
def _call(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    types = tuple(v.type for v in node.inputs), tuple(v.type for v in node.outputs)
    entry = HostCall(node, *types, (), library=True)
    writer.host(entry, [x if _is_readable(x) else writer.copied(x) for x in inputs], outputs)


# Collectives


@lowers(*[op.name for op in LIBRARY_COLLECTIVES], target="gpu")
def _collect(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    types = tuple(v.type for v in node.inputs), tuple(v.type for v in node.outputs)
    entry = HostCall(node, *types, (), library=True)
    writer.host(entry, [x if x.is_dense else writer.copied(x) for x in inputs], outputs)


def _is_readable(x: Array) -> bool:
    """Whether a library can read an array in 16 bytes at a time: features one after another."""
    own = 16 // x.dtype.itemsize

    def are_even(numbers: Iterable[Extent]) -> bool:
        return all(not isinstance(n, Size) and n % own == 0 for n in numbers)

    begins_so = are_even([*x.offset.terms.values(), x.offset.offset])
    return begins_so and (x.is_dense or (are_even(x.strides[:-1]) and is_number(x.strides[-1], 1)))

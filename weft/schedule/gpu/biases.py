"""A row that is added to each row of a product, by the library that multiplies.

It adds before it rounds, and that costs next to nothing; a kernel would read and write the whole product once
more. Where there is a kernel that does so anyway, the row costs nothing there, and stays.
"""

from __future__ import annotations

from weft.base.dtypes import float64, kind
from weft.base.sizes import Size
from weft.ir.graph import Node, Value
from weft.ops.arithmetic import add
from weft.ops.contract import matrix_multiply as matmul
from weft.schedule.fusion import Grouping
from weft.schedule.gpu.library import is_worth_a_call, multiply_by_library
from weft.schedule.gpu.machine import Gpu
from weft.schedule.gpu.sliced import is_sliced
from weft.schedule.region import Scope
from weft.schedule.use_def import UseDef


def find_biases(grouping: Grouping, machine: Gpu) -> dict[int, int]:
    """By number of a sum that is nothing but a product and a row, that of the product.

    These sums are in no group any more.
    """
    use_def, found = grouping.use_def, dict[int, int]()
    if not machine.libraries:
        return found
    for i, group in list(grouping.groups.items()):
        if group.members != [i] or use_def.nodes[i].op is not add:
            continue
        j = _product(use_def, i, machine)
        if j is not None and j not in grouping.groups:
            del grouping.groups[i]
            found[i] = j
    return found


def _product(use_def: UseDef, i: int, machine: Gpu) -> int | None:
    """The product in a sum, if the rest is a row, and nobody else needs it."""
    node = use_def.nodes[i]
    for x, row in (node.inputs, node.inputs[::-1]):
        j = use_def.producer.get(x)
        made = None if j is None else use_def.nodes[j]
        if j is None or made is None or made.op is not matmul or not _is_row(row, x):
            continue
        alone = use_def.users[j] == {i} and x not in use_def.kept
        if alone and node.outputs[0].type == x.type and _is_for_library(made, machine):
            return j
    return None


def _is_row(row: Value, x: Value) -> bool:
    shape, last = row.type.shape, x.type.shape[-1]
    return row.type.dtype == x.type.dtype and shape[-1:] == (last,) and all(s == 1 for s in shape[:-1])


def _is_for_library(made: Node, machine: Gpu) -> bool:
    """Whether a library multiplies in one call: the right side is one matrix, of a known size."""
    (left, right), (out,) = made.inputs, made.outputs
    dtype, known = out.type.dtype, not any(isinstance(s, Size) for s in right.type.shape)
    if kind(dtype) != "f" or dtype == float64 or right.type.ndim != 2 or out.type.ndim < 2 or not known:
        return False
    if is_sliced(made, machine):
        return False
    empty = 0 in (*out.type.shape, *right.type.shape)
    return not empty and is_worth_a_call((*out.type.shape, left.type.shape[-1]), machine.least_product)


def lower_biased(scope: Scope, use_def: UseDef, number: int, product: Node) -> None:
    """Write a product with the row that is added to it."""
    writer, node = scope.writer, use_def.nodes[number]
    (x,), (out,) = product.outputs, node.outputs
    row = next(v for v in node.inputs if v is not x)
    inputs = [scope.array(v) for v in product.inputs]
    bias = scope.dense(row)
    target = scope.output(out)
    dense = target if target.is_dense else writer.temporary(target.shape, target.dtype)
    done = multiply_by_library(writer, inputs, dense, bias)
    assert done, "it was to be for the library"
    if dense is not target:
        writer.copy(dense, target)

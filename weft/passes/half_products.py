"""Products and convolutions of float32 in half precision, in a graph that was captured without.

It does to a graph what ``weft.autocast`` does to code: ops and composites that declare a low precision
(``Op.precision``) get their float32 inputs in half precision, and are summed in float32. Here their results
are float32 again, so that the rest of the graph is as it was, and so are its inputs and results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.base.dtypes import DType, DTypeLike, as_dtype, bfloat16, float16, float32
from weft.errors import ArgumentError, WeftError
from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import Draft, sweep
from weft.ir.types import TensorType
from weft.ops.call import call
from weft.ops.op import COMPOSITES, OPS
from weft.ops.select import cast
from weft.ops.view.primitives import permute, reshape
from weft.passes.base import graph_pass
from weft.transform.composites import call_outputs, composite_body

_NAMES: dict[str, DType] = {"bf16": bfloat16, "f16": float16}
_VIEWS = (permute, reshape)


def as_half(op: str, precision: DTypeLike | None) -> DType | None:
    """The dtype that a setting ``precision`` names; None without one.

    >>> from weft.passes.half_products import as_half
    >>> as_half("compile", "f16")
    dtype('float16')
    """
    if precision is None:
        return None
    try:
        found = _NAMES.get(precision) if isinstance(precision, str) else None
        found = found or as_dtype(precision)
    except (WeftError, TypeError):
        found = None
    if found not in _NAMES.values():
        raise ArgumentError(op, f'precision must be "bf16" or "f16", got {precision!r}')
    return found


@graph_pass
def half_products(graph: Graph, dtype: DType = bfloat16) -> Graph:
    """Write products and convolutions of float32 as those of numbers in half precision.

    >>> import weft
    >>> from weft.passes.half_products import half_products
    >>> graph = weft.make_graph(lambda x, w: weft.exp(x @ w))(weft.ones(2, 3), weft.ones(3, 4))
    >>> print(half_products(graph).to_text(locations=False))
    graph <lambda>(%x: f32[2,3], %w: f32[3,4]) {
      %0: bf16[2,3] = cast(%x, dtype=bf16)
      %1: bf16[3,4] = cast(%w, dtype=bf16)
      %2: bf16[2,4] = matmul(%0, %1)
      %3: f32[2,4] = cast(%2, dtype=f32)
      %4: f32[2,4] = exp(%3)
      return %4
    }
    <BLANKLINE>
    """

    def product(draft: Draft, node: Node) -> Sequence[Value] | None:
        if not _is_single(node):
            return None
        outs = draft.emit(node.op, [_half(draft, v, dtype) for v in node.inputs], **node.attrs)
        return _single(draft, outs, node)

    def composite(draft: Draft, node: Node) -> Sequence[Value] | None:
        entry = COMPOSITES.get(node.attrs["function"])
        if entry is None or entry.precision != "low" or not _is_single(node):
            return None
        if call_outputs(node) != (None, ()):
            return draft.expand(node.attrs["body"], node.inputs)
        types = [TensorType(v.type.shape, dtype) if v.type.dtype == float32 else v.type for v in node.inputs]
        function, arguments = node.attrs["function"], node.attrs["arguments"]
        body = composite_body(function, arguments, types, None, (), node.location)
        if body is None or len(body.outputs) != len(node.outputs):
            return draft.expand(node.attrs["body"], node.inputs)
        inputs = [_half(draft, v, dtype) for v in node.inputs]
        outs = draft.emit(call, inputs, function=function, arguments=arguments, body=body)
        return _single(draft, outs, node)

    low: dict[object, list[Callable[..., Sequence[Value] | None]]] = {
        op: [product] for op in OPS.values() if op.precision == "low"
    }
    return sweep(graph, {**low, call: [composite]})


def _is_single(node: Node) -> bool:
    """Whether all floating inputs of a node are float32."""
    floats = [v.type.dtype for v in node.inputs if v.type.dtype.kind not in "biu"]
    return bool(floats) and all(dtype == float32 for dtype in floats)


def _half(draft: Draft, value: Value, dtype: DType) -> Value:
    """A value in half precision; of a view, what it views is cast: a weight, or what was cast before."""
    if value.type.dtype != float32:
        return value
    node = draft.made.get(value)
    if node is not None and node.op is cast and node.inputs[0].type.dtype == dtype:
        return node.inputs[0]
    if node is not None and node.op in _VIEWS:
        return draft.emit(node.op, [_half(draft, node.inputs[0], dtype)], **node.attrs)[0]
    return draft.emit(cast, [value], dtype=dtype)[0]


def _single(draft: Draft, outs: Sequence[Value], node: Node) -> list[Value]:
    """Results in the dtypes that they had."""
    return [
        out if out.type == old.type else draft.emit(cast, [out], dtype=old.type.dtype)[0]
        for out, old in zip(outs, node.outputs, strict=True)
    ]

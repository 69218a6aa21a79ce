"""The flat path of ops whose derivative is declared, such as matmul, reshape and sum, on plain arrays.

As in ``weft.tensor.fast``, anything unusual falls through to the general path, which decides and explains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.dtypes import float32, float64
from weft.base.switch import switch
from weft.errors import WeftError
from weft.ops.op import NoGradient, Op, casting
from weft.ops.view.slices import slice_axes
from weft.tensor.autocast import in_precision
from weft.tensor.dispatch import declared_rule, record, wrap
from weft.tensor.large import LARGE, evaluate_large, with_kernels
from weft.tensor.mode import thread
from weft.tensor.node import make_node
from weft.tensor.pieces import in_pieces
from weft.tensor.tensor import Tensor

ndarray = np.ndarray
asarray = np.asarray


def fast_declared(
    op: Op, general: Callable[..., Any], staged: Callable[..., Any], intercepted: Any
) -> Callable[..., Any]:
    """A function that runs an op of one output on tensors of plain arrays, and leaves the rest to general.

    While a thread captures (``intercepted.threads``) it leaves all to ``staged``.
    """
    evaluate = op.eval
    runs_large, pulls_large = op.large_eval, op.large_vjp
    has_gradient = not isinstance(op.vjp, NoGradient)
    precision = op.precision

    def function(*inputs: Any, **attrs: object) -> Any:
        if precision and casting:
            inputs = tuple(in_precision(precision, inputs))
        if intercepted.threads:
            return staged(*inputs, **attrs)
        datas = []
        edges = []
        for x in inputs:
            if not isinstance(x, Tensor) or type(x._data) is not ndarray:
                return general(*inputs, **attrs)
            datas.append(x._data)
            edges.append(x._node)
        try:
            if runs_large and datas[0].size >= LARGE:
                out = evaluate_large(op, datas, attrs)
            else:
                out = evaluate(*datas, **attrs)
        except WeftError:
            raise
        except Exception:  # whatever it was, the general path says it in the user's terms
            return general(*inputs, **attrs)
        t = wrap(out if type(out) is ndarray else asarray(out))
        if has_gradient and edges.count(None) != len(edges) and (not switch.off or thread.recording):
            t._node = node_of_call(tuple(edges), datas, t._data, attrs)
        return t

    def node_of_call(edges: tuple[Any, ...], datas: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
        if out.dtype is float32 or out.dtype is float64:
            rule, plan = declared_rule(op)
            if pulls_large and datas[0].size >= LARGE:
                rule = with_kernels(rule)
            elif op is slice_axes and datas[0].size >= LARGE:
                rule = in_pieces(rule)
            return make_node(rule, edges, plan.save(datas, (out,), attrs))
        return record(op, edges, datas, (out,), attrs)

    return function

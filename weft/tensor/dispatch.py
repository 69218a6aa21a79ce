"""From an op to a function on tensors.

``apply`` is the general path: evaluate on whatever the data is, then record. ``build`` gives each op its
function on tensors; elementwise ops get a flat fast path for the common case (arrays of float32 or
float64 of one dtype), which gives up on anything unusual and lets the general path decide, so that
promotion, errors and other kinds of data are handled in one place.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import default_float, float32, float64, kind, result_dtype
from weft.base.dtypes import scalar_dtype
from weft.errors import ArgumentError, DtypeError, WeftError
from weft.ops.families import describe_kinds
from weft.ops.op import NoGradient, Op, TensorLike, set_tensor_layer, type_of
from weft.tensor.mode import switch, thread
from weft.tensor.node import Node, Output
from weft.tensor.rules import Backward, Plan, bind_declared, bind_elementwise, saved_by_partials

ndarray = np.ndarray
asarray = np.asarray
new = object.__new__

# Overflow, division by zero and invalid values give inf and NaN silently, as in every tensor library.
# NumPy would warn; np.errstate would cost more than the op. So its warnings are ignored where they name
# a module of weft; if the user turned warnings into errors, the fast path gives up and `evaluate` runs.
warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"weft\.")


TENSOR: Any = None  # the Tensor class, set by weft.tensor.tensor, which builds on this module


def wrap(data: Any, node: Any = None) -> Any:
    """A tensor of data, an output of node."""
    t = new(TENSOR)
    t._data = data
    t._node = node
    return t


def recording() -> bool:
    """Whether this thread records."""
    return not switch.off or thread.recording


def as_tensors(op: Op, inputs: Sequence[Any]) -> list[Any]:
    """Inputs as tensors; arrays and scalars become constants of the dtype they have next to the tensors."""
    dtypes = [x.dtype for x in inputs if isinstance(x, TensorLike | ndarray | np.generic)]
    out = []
    for x in inputs:
        if isinstance(x, TensorLike):
            out.append(x)
        elif isinstance(x, ndarray | np.generic):
            out.append(wrap(asarray(x)))
        elif isinstance(x, bool | int | float | complex):
            dtype = scalar_dtype(x, result_dtype(op.name, *dtypes))
            out.append(wrap(scalar_array(op.name, x, dtype)))
        else:
            hint = "make it one with weft.tensor(...)" if isinstance(x, list | tuple) else None
            raise ArgumentError(op.name, f"inputs must be tensors, got {type(x).__name__}", hint=hint)
    return out


def scalar_array(op: str, value: Any, dtype: Any) -> Any:
    """A Python scalar as a 0-d array, or an error if the dtype cannot hold it."""
    try:
        return asarray(value, dtype)
    except OverflowError:
        raise DtypeError(op, f"{dtype.name} must be able to hold the scalar, got {value}") from None


def evaluate(op: Op, inputs: Sequence[Any], attrs: dict[str, Any]) -> tuple[Any, ...]:
    """Run an op on the data of tensors, whatever that is; gives the data of the outputs."""
    datas = [t._data for t in inputs]
    traced = [d for d in datas if type(d) is not ndarray]
    if traced:
        top = max(traced, key=lambda d: d.level)
        outs: tuple[Any, ...] = top.interpret(op, inputs, attrs)
        return outs
    try:
        with np.errstate(all="ignore"):
            result = op.eval(*datas, **attrs)
    except WeftError:
        raise
    except Exception:
        op.type_rule(*map(type_of, datas), **attrs)  # raises in the user's terms if the types are at fault
        raise
    if op.outputs == 1:
        return (result if type(result) is ndarray else asarray(result),)
    return tuple(r if type(r) is ndarray else asarray(r) for r in result)


def apply(op: Op, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """Evaluate an op on tensors and record it; one tensor, or a tuple if the op has several outputs."""
    outs = evaluate(op, inputs, attrs)
    edges = tuple([t._node for t in inputs])
    node = None
    if any(e is not None for e in edges) and recording():
        node = record(op, edges, [t._data for t in inputs], outs, attrs)
    if op.outputs == 1:
        return wrap(outs[0], node)
    if node is None:
        return tuple(wrap(out) for out in outs)
    return tuple(
        wrap(out, Output(node, k) if kind(out.dtype) in "fc" else None) for k, out in enumerate(outs)
    )


def record(op: Op, edges: tuple[Any, ...], datas: list[Any], outs: tuple[Any, ...], attrs: Any) -> Node | None:
    """A node for one application of op, or None if its output has no gradient."""
    if isinstance(op.vjp, NoGradient):
        return None
    if op.partials is not None and op.vjp is None:
        complex_valued = kind(outs[0].dtype) == "c"
        shapes = tuple([d.shape for d in datas])
        same = all(s == shapes[0] for s in shapes)
        keep = saved_by_partials(op)
        kept = [d if k else None for d, k in zip((*datas, outs[0]), keep, strict=True)]
        return Node(elementwise_rule(op, complex_valued), edges, (*kept, None if same else shapes))
    rule, plan = declared_rule(op)
    saved = plan.save(datas, outs, attrs)
    if op.outputs > 1:
        saved = (*saved, tuple(map(type_of, outs)))  # the engine fills gradients that did not arrive
    return Node(rule, edges, saved)


def elementwise_rule(op: Op, complex_valued: bool) -> Backward:
    """The bound rule of an elementwise op, for real or complex outputs."""
    if op.rule is None:
        op.rule = (bind_elementwise(op), bind_elementwise(op, conjugate=True))
    rule: Backward = op.rule[complex_valued]
    return rule


def declared_rule(op: Op) -> tuple[Backward, Plan]:
    """The bound rule and plan of an op whose vjp is declared."""
    if op.rule is None:
        op.rule = bind_declared(op)
    rule: tuple[Backward, Plan] = op.rule
    return rule


def promoted(op: Op, inputs: Sequence[Any]) -> list[Any]:
    """Inputs of an elementwise op as tensors of the one dtype it computes in."""
    tensors = as_tensors(op, inputs)
    dtype = result_dtype(op.name, *[t.dtype for t in tensors])
    letter = kind(dtype)
    if letter not in op.accepts:
        if letter == "b" and "i" in op.accepts and op.result != "same":
            dtype = np.dtype(np.int8)
        elif letter in "biu" and "f" in op.accepts:
            dtype = default_float()
        else:
            raise DtypeError(op.name, f"dtype must be {describe_kinds(op.accepts)}, got {dtype.name}")
    return [t if t._data.dtype == dtype else t.astype(dtype) for t in tensors]


def build(op: Op) -> Callable[..., Any]:
    """The function that runs op on tensors."""
    if op.accepts == "":

        def function(*inputs: Any, **attrs: Any) -> Any:
            return apply(op, as_tensors(op, inputs), attrs)

        return _named(function, op)
    if op.partials is None or op.vjp is not None:

        def mapped(*inputs: Any) -> Any:
            return apply(op, promoted(op, inputs), {})

        return _named(mapped, op)
    fast = {1: _fast_unary, 2: _fast_binary}.get(len(op.inputs))
    if fast is None or not isinstance(op.eval, np.ufunc):

        def general(*inputs: Any) -> Any:
            return apply(op, promoted(op, inputs), {})

        return _named(general, op)
    return _named(fast(op), op)


def _named(function: Any, op: Op) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = op.name
    named: Callable[..., Any] = function
    return named


def _fast_unary(op: Op) -> Callable[..., Any]:
    ufunc = op.eval
    keep_x, keep_out = saved_by_partials(op)
    rule = elementwise_rule(op, complex_valued=False)

    def function(x: Any, /) -> Any:
        try:
            a = x._data
            if (dtype := a.dtype) is float32 or dtype is float64:
                out = ufunc(a)
                if type(out) is not ndarray:
                    out = asarray(out)
                t = new(TENSOR)
                t._data = out
                edge = x._node
                if edge is None or (switch.off and not thread.recording):
                    t._node = None
                    return t
                node = new(Node)
                node.rule = rule
                node.edges = (edge,)
                node.saved = (a if keep_x else None, out if keep_out else None, None)
                node.nr = edge.nr + 1
                t._node = node
                return t
        except Exception:  # noqa: S110 - whatever it was, the general path below says it in the user's terms
            pass
        return apply(op, promoted(op, (x,)), {})

    return function


def _fast_binary(op: Op) -> Callable[..., Any]:
    ufunc = op.eval
    keep_x, keep_y, keep_out = saved_by_partials(op)
    rule = elementwise_rule(op, complex_valued=False)

    def function(x: Any, y: Any, /) -> Any:
        try:
            a = x._data
            dtype = a.dtype
            if type(y) is float or type(y) is int:
                b = asarray(y, dtype)
                right = None
            else:
                b = y._data
                right = y._node
            if dtype is b.dtype and (dtype is float32 or dtype is float64):
                out = ufunc(a, b)
                if type(out) is not ndarray:
                    out = asarray(out)
                t = new(TENSOR)
                t._data = out
                left = x._node
                if left is right is None or (switch.off and not thread.recording):
                    t._node = None
                    return t
                node = new(Node)
                node.rule = rule
                node.edges = (left, right)
                node.saved = (
                    a if keep_x else None,
                    b if keep_y else None,
                    out if keep_out else None,
                    None if a.shape == b.shape else (a.shape, b.shape),
                )
                if right is None or (left is not None and left.nr >= right.nr):
                    node.nr = left.nr + 1
                else:
                    node.nr = right.nr + 1
                t._node = node
                return t
        except Exception:  # noqa: S110 - whatever it was, the general path below says it in the user's terms
            pass
        return apply(op, promoted(op, (x, y)), {})

    return function


set_tensor_layer(build)

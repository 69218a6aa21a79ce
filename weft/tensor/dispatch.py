"""From an op to its result on tensors: evaluate on whatever the data is, then record.

``apply`` is the general path. The flat path of elementwise ops on plain arrays, and the functions that
choose between the two, are in ``weft.tensor.fast``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from weft.base.concrete import CONCRETE, any_on_device, any_placed, is_concrete
from weft.base.dtypes import DType, bfloat16, float32, float64, kind
from weft.base.hooks import hooks
from weft.base.switch import switch
from weft.errors import WeftError
from weft.ops.op import Array, Attrs, NoGradient, Op, Tensor, TensorLike, intercepted, type_of
from weft.ops.select import cast
from weft.ops.size import filled, is_shared
from weft.tensor.large import LARGE, evaluate_large, with_kernels
from weft.tensor.mode import thread
from weft.tensor.node import Node, Output, make_node
from weft.tensor.promotion import as_arrays, common_dtype, in_dtype
from weft.tensor.rules import Backward, Plan, bind_declared, bind_elementwise, saved_by_partials

ndarray = np.ndarray
asarray = np.asarray
new = object.__new__

# Overflow, division by zero and invalid values give inf and NaN silently, as in every tensor library.
# NumPy would warn; np.errstate would cost more than the op. So its warnings are ignored where they name
# a module of weft; if the user turned warnings into errors, the fast path gives up and `evaluate` runs.
warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"weft\.")


TENSOR: Any = None  # the Tensor class, set by weft.tensor.tensor, which builds on this module

IDENTIFY: Callable[[Any], None] | None = None  # told of a look-up, set by weft.capture.runtime.identity
FORMAT: Any = None  # how a tensor of a capture is written in an f-string, set by weft.capture.runtime.text


def wrap(data: object, node: object = None) -> Tensor:
    """A tensor of data, an output of node."""
    t: Tensor = new(TENSOR)
    t._data = data
    t._node = node
    t._form = None
    return t


def filled_like(x: Any, value: int) -> Any:
    """A tensor of one number in the shape and dtype of another, of data or of a type."""
    out = filled(x.shape, value, x.dtype)
    return out if isinstance(out, TensorLike) else as_constant(out)


def stage(tensor: Any) -> bool:
    """Whether this thread captures a graph; the tensor then stands for its value there."""
    capture = thread.capture
    if capture is None:
        data = tensor._data
        if not is_concrete(data) and hasattr(data, "lent") and data.lent() is not None:
            data.await_other_thread("capture")
        return False
    if is_concrete(tensor._data) and not capture.root.region:
        capture.root.adopt(tensor)
    return True


def own_data(data: object) -> Any:
    """The data of a tensor for a thread that does not capture; another may have lent it to its graph."""
    array = data.lent() if not is_concrete(data) and hasattr(data, "lent") else None
    return data if array is None else array


def recording() -> bool:
    """Whether this thread records."""
    return not switch.off or thread.recording


def as_tensors(op: Op, inputs: Sequence[Any]) -> list[Tensor]:
    """Inputs as tensors; arrays and numbers become constants.

    An array of the user is copied if the graph may keep it, so that it may change before backward.
    """
    for x in inputs:
        if not isinstance(x, TensorLike):
            break
    else:
        return list(inputs)
    kept = recording() and any(isinstance(x, TensorLike) and x._node is not None for x in inputs)  # type: ignore[attr-defined]
    if intercepted.threads and thread.capture is not None:
        return [x if isinstance(x, TensorLike) else captured_constant(x) for x in as_arrays(op, inputs)]
    return [x if isinstance(x, TensorLike) else wrap(x.copy() if kept else x) for x in as_arrays(op, inputs)]


def captured_constant(array: Array) -> Tensor:
    """An array as a constant of the graph that this thread captures; numbers are shared."""
    capture = thread.capture
    if not array.ndim:
        return wrap(capture.number(array))
    if is_shared(array):
        return wrap(capture.constant(array))
    if array.size and not any(array.strides):  # one number everywhere, which takes no memory
        return wrap(capture.constant(np.broadcast_to(array[(0,) * array.ndim].copy(), array.shape)))
    return wrap(capture.constant(array.copy()))


def as_constant(array: Array) -> Tensor:
    """A tensor of an array that nobody else has: a constant of the graph, if this thread captures one."""
    return captured_constant(array) if intercepted.threads and thread.capture is not None else wrap(array)


def evaluate(op: Op, inputs: Sequence[Any], attrs: dict[str, Any]) -> tuple[Tensor, ...]:
    """Run an op on the data of tensors, whatever that is; gives the data of the outputs."""
    datas = [t._data for t in inputs]
    top = capture = thread.capture if intercepted.threads else None  # the innermost that has a hand in it
    for data in datas:
        if not is_concrete(data) and (top is None or data.level > top.level):
            top = data
    if top is not None:
        if top is capture:
            datas = []  # it takes tensors as they are, and may change what they hold
        return top.interpret(op, inputs, attrs)  # type: ignore[no-any-return]
    if len(CONCRETE) > 1 and (run := _elsewhere(datas)) is not None:
        outs: tuple[Any, ...] = run(op, inputs, datas, attrs)
        if intercepted.threads and thread.evaluated is not None:
            thread.evaluated(op, datas, outs, attrs)
        return outs
    try:
        with np.errstate(all="ignore"):
            if op.outputs != 1 and op.large_eval and datas[0].size >= LARGE:
                result = evaluate_large(op, datas, attrs)
            else:
                result = op.eval(*datas, **attrs)
    except WeftError:
        raise
    except Exception:
        op.type_rule(*map(type_of, datas), **attrs)  # raises in the user's terms if the types are at fault
        raise
    if op.outputs == 1:
        outs = (result if type(result) is ndarray else asarray(result),)
    else:
        outs = tuple(r if type(r) is ndarray else asarray(r) for r in result)
    if intercepted.threads and thread.evaluated is not None:
        thread.evaluated(op, datas, outs, attrs)
    return outs


def _elsewhere(datas: Sequence[Any]) -> Callable[..., tuple[Any, ...]] | None:
    """What evaluates ops on data that is not whole in the memory of the host; None if it is."""
    if any_placed(datas):
        return hooks.evaluate_placed
    return hooks.evaluate_on_device if any_on_device(datas) else None


def apply(op: Op, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """Evaluate an op on tensors and record it; one tensor, or a tuple if the op has several outputs."""
    outs = evaluate(op, inputs, attrs)
    edges = tuple([t._node for t in inputs])
    node = None
    if edges.count(None) < len(edges) and recording():
        datas = [t._data for t in inputs]
        if intercepted.threads and thread.capture is None:
            datas = list(map(own_data, datas))
        node = record(op, edges, datas, outs, attrs)
    if node is not None and intercepted.threads and thread.capture is not None:
        thread.capture.note(node)
    if op.outputs == 1:
        return wrap(outs[0], node)
    if node is None:
        return tuple(wrap(out) for out in outs)
    return tuple(
        wrap(out, Output(node, k) if kind(out.dtype) in "fc" else None) for k, out in enumerate(outs)
    )


def record(
    op: Op, edges: tuple[Any, ...], datas: list[Any], outs: tuple[Any, ...], attrs: Attrs
) -> Node | None:
    """A node for one application of op, or None if its output has no gradient."""
    if isinstance(op.vjp, NoGradient) or (op.outputs == 1 and kind(outs[0].dtype) not in "fc"):
        return None
    dtypes = tuple([d.dtype for d in datas])
    complex_valued = any(kind(dtype) == "c" for dtype in dtypes)
    if op.partials is not None and not (op.vjp is not None and complex_valued):
        rule = elementwise_rule(op, complex_valued)
        shapes = tuple([d.shape for d in datas])
        same = all(s == shapes[0] for s in shapes)
        keep = saved_by_partials(op, tuple([e is not None for e in edges]))
        kept = [d if k else None for d, k in zip((*datas, outs[0]), keep, strict=True)]
        saved: tuple[Any, ...] = (*kept, None if same else shapes)
    else:
        rule, plan = declared_rule(op)
        saved = plan.save(datas, outs, attrs)
        if op.outputs != 1:
            rule = rule if op.outputs else rule.replace(outputs=len(outs))
            saved = (*saved, tuple(map(type_of, outs)))  # the engine fills gradients that did not arrive
        if op.large_vjp and type(datas[0]) is ndarray and datas[0].size >= LARGE:
            rule = with_kernels(rule)
    return make_node(rounding_back(rule, dtypes) if bfloat16 in dtypes else rule, edges, saved)


@cache
def rounding_back(rule: Backward, dtypes: tuple[DType, ...]) -> Backward:
    """A rule whose gradients have the inputs' dtypes, though NumPy makes bfloat16 times 0.5 a float32."""

    def rounding(run: Any) -> Callable[..., Any]:
        def rounded(g: Tensor, saved: Any, edges: object) -> Sequence[Any]:
            return [
                g if g is None or g.dtype == dtype else cast(g, dtype=dtype)
                for g, dtype in zip(run(g, saved, edges), dtypes, strict=True)
            ]

        return rounded

    careful = None if rule.careful is None else rounding(rule.careful)
    return rule.replace(run=rounding(rule.run), careful=careful)


@cache
def elementwise_rule(op: Op, complex_valued: bool) -> Backward:
    """The bound rule of an elementwise op, for real or complex inputs."""
    return bind_elementwise(op, conjugate=complex_valued)


@cache
def declared_rule(op: Op) -> tuple[Backward, Plan]:
    """The bound rule and plan of an op whose vjp is declared."""
    return bind_declared(op)


def _of_one_dtype(op: Op, inputs: Sequence[Any]) -> list[Any] | None:
    """Inputs that are tensors of one dtype, or such and floats, which is what flows inside transforms."""
    dtype, out = None, []
    for x in inputs:
        if isinstance(x, TensorLike):
            if dtype is None:
                dtype = x._data.dtype  # type: ignore[attr-defined]
            elif x._data.dtype is not dtype:  # type: ignore[attr-defined]
                return None
            out.append(x)
        elif type(x) is float and (dtype is float32 or dtype is float64):
            number = asarray(x, dtype)
            out.append(captured_constant(number) if intercepted.threads and thread.capture else wrap(number))
        else:
            return None
    return out if dtype is not None and kind(dtype) in op.accepts else None


def promoted(op: Op, inputs: Sequence[Any]) -> list[Tensor]:
    """Inputs of an elementwise op as tensors of the one dtype it computes in."""
    if (ready := _of_one_dtype(op, inputs)) is not None:
        return ready
    tensors = as_tensors(op, inputs)
    dtype = common_dtype(op, [t._data.dtype for t in tensors])
    return [in_dtype(t, dtype) for t in tensors]

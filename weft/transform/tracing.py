"""From functions to closed graphs and back: tracing a function of tensors, and running a graph on tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.base.sizes import bind
from weft.errors import CaptureError
from weft.ir.graph import Array, Graph, Node, Value
from weft.ir.order import sizes_of
from weft.ir.types import TensorType
from weft.ops.call import call
from weft.ops.op import Op, intercepted
from weft.tensor.autocast import not_casting
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor, wrap
from weft.transform.building import Capture, capturing
from weft.transform.fresh import learn_sizes, replayed_attrs
from weft.transform.scopes import CHECKPOINT, add_scope, note_checkpoint


def trace_graph(
    function: Callable[..., Any],
    types: Sequence[TensorType],
    name: str = "graph",
    names: Sequence[str] = (),
    *,
    closed: bool = False,
    make: Callable[..., Capture] = Capture,
) -> tuple[Graph, list[Tensor]]:
    """The closed graph of a function of tensors that returns a tensor or a sequence of them.

    Args:
        function: of tensors.
        types: of its arguments.
        name: of the graph.
        names: of the inputs.
        closed: the function uses nothing from around it: arrays that it makes are constants.
        make: of the capture.

    Returns:
        The graph, whose inputs are those of the types and then what the function used from around it, and
        the tensors that these last inputs stand for.
    """
    with capturing(name, region=True, make=make) as capture:
        capture.closed = closed
        given = [capture.input(t, n) for t, n in zip(types, names or [""] * len(types), strict=True)]
        out = function(*given)
        listed = out if isinstance(out, tuple | list) else (out,)
        values = [capture.value_of(t) for t in listed]
        del out, listed, given
        if capture.journal:
            slot = next(iter(capture.journal.values()))[0]
            message = f"the function must not change what is outside of it, got {slot.describe()}"
            raise CaptureError(name, message)
    imports = capture.settle()
    inputs = [*capture.inputs, *[e.value for e, _ in imports]]
    return capture.graph(inputs, values), [t for _, t in imports if t is not None]


Run = Callable[[Op, Sequence[Any], dict[str, Any]], Sequence[Any] | None]


def replay(graph: Graph, inputs: Sequence[Any], *, run: Run | None = None) -> list[Any]:
    """Run a graph on tensors by its ops, so that it records, or becomes part of another graph or transform.

    In a capture the new nodes keep the locations of the old ones, and calls stay calls. What is given as
    ``run`` may give the results of an op in another way, or None.
    """
    capture = thread.capture if intercepted.threads else None
    before = None if capture is None else capture._phase
    try:
        with not_casting():  # a graph has its dtypes
            return _replay(graph, inputs, capture, "" if before is None else before.phase, {}, run)
    finally:
        if capture is not None:
            capture._phase = before


def _replay(
    graph: Graph,
    inputs: Sequence[Any],
    capture: Capture | None,
    phase: str,
    around: Mapping[str, Any],
    run: Run | None,
) -> list[Any]:
    """Run a graph, or the body of a call, which may use sizes that are known around it alone."""
    values: dict[Value, Any] = {v: _replayed_constant(a, capture) for v, a in graph.constants.items()}
    values |= dict(zip(graph.inputs, inputs, strict=True))
    sizes: dict[str, Any] = dict(around)
    for value, given_one in zip(graph.inputs, inputs, strict=True):
        learn_sizes(value, given_one._data.shape, sizes)
    known = sizes_of(graph.inputs).union(around)
    for node in graph.nodes:
        given = [values[v] for v in node.inputs]
        if capture is not None and node.location is not None:
            capture._phase = node.location._replace(phase=phase) if phase else node.location
        if node.op is call:
            outs = _replay_call(node, given, capture, phase, sizes, run)
        else:
            outs = _replay_node(node.op, given, dict(replayed_attrs(node, sizes, known)), run)
        for value, out in zip(node.outputs, outs, strict=True):
            learn_sizes(value, out._data.shape, sizes)
            values[value] = out
    return [values[v] for v in graph.results]


def _replay_node(op: Op, given: Sequence[Any], attrs: dict[str, Any], run: Run | None) -> Sequence[Any]:
    found = None if run is None else run(op, given, attrs)
    if found is not None:
        return found
    result: Any = op.on_tensors(*given, **attrs)
    return (result,) if op.outputs == 1 else result


def _replayed_constant(array: Array, capture: Capture | None) -> Any:
    if capture is None:
        return wrap(array)
    return wrap(capture.constant(array) if array.ndim else capture.number(array))


def _replay_call(
    node: Node,
    given: Sequence[Any],
    capture: Capture | None,
    phase: str,
    sizes: Mapping[str, Any],
    run: Run | None,
) -> Sequence[Any]:
    """Run the body of a call op by op; what it adds to a capture is folded into a call again."""
    start, before = 0 if capture is None else len(capture.nodes), [t._data for t in given]
    outs = _replay(node.attrs["body"], given, capture, phase, sizes, run)
    if capture is not None:
        name, arguments = node.attrs["function"], bind(node.attrs["arguments"], sizes)
        if name == CHECKPOINT:
            note_checkpoint(capture, start)
            return outs
        add_scope(capture, start, name, arguments, given, before, outs)
    return outs

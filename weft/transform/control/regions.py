"""Regions: what a branch or the body of a loop did when traced, and how those of one node are made alike.

Code in a region may use tensors from around it, which become operands of the node, and may change slots (the
value of a tensor, its gradient, an attribute), which become outputs of the node, and carries of a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from weft.base.dtypes import kind
from weft.base.records import NamedTuple
from weft.errors import CaptureError
from weft.ir.graph import Graph, Node, Value
from weft.ir.types import TensorType
from weft.ops import control
from weft.ops.call import call
from weft.ops.op import NoGradient, Op, type_of
from weft.ops.view.primitives import broadcast_to
from weft.tensor.dispatch import captured_constant
from weft.tensor.engine import node_of
from weft.tensor.generator import current_key_rules, using_key_rules
from weft.tensor.mode import set_recording, thread
from weft.tensor.node import Instrumented, Leaf
from weft.tensor.tensor import Tensor, wrap
from weft.transform.building import Capture, capturing
from weft.transform.captured import Captured, is_cut, name_of
from weft.transform.slots import DataSlot, Slot
from weft.transform.staging import gives_leaf
from weft.transform.tracing import trace_graph


class Change(NamedTuple):
    """A slot that a region changed.

    Attributes:
        slot: the slot.
        held: what it held at the end.
        value: the value of that, if it was a tensor.
        constant: whether no gradient flows through it.
    """

    slot: Slot
    held: Any
    value: Value | None
    constant: bool


class Region(NamedTuple):
    """What a function did when it was traced, before it is known what else the node around must carry.

    Attributes:
        capture: ended; it can still be frozen.
        outputs: values of what the function returned.
        constant: for each output, whether no gradient flows through it.
        imports: what the function used from around it, each with the value it is inside.
        changes: by key, the slots that the function changed.
        met: how many tensors from outside the root had met when the function was traced.
    """

    capture: Capture
    outputs: list[Value]
    constant: list[bool]
    imports: list[tuple[Value, Tensor]]
    changes: dict[tuple[Any, ...], Change]
    met: int


def trace_region(
    function: Callable[[list[Tensor]], Sequence[Tensor]],
    types: Sequence[TensorType],
    name: str,
    slots: Sequence[tuple[Slot, TensorType]] = (),
) -> Region:
    """Trace a function of tensors, and of slots that hold further inputs of the region while it runs."""
    with capturing(name, region=True) as capture, _drawing(capture, name):
        given = [capture.input(t) for t in types]
        for slot, t in slots:
            name = name_of(slot.tensor) if isinstance(slot, DataSlot) else ""
            capture.before_write(slot)
            put_content(slot, capture.input(t, name))
        recording = thread.recording
        results = list(function(given))
        check_recording(recording, "a branch or loop of a graph")
        capture.check_hooks()
        _check_behind(capture, results)
        outputs = [capture.result_of(t) for t in results]
        constant = [is_cut(t) for t in results]
        del results, given
        found = capture.take_changes()
        datas = {id(slot.tensor): held for slot, held in found if isinstance(slot, DataSlot)}
        changes = {
            slot.key: _change(capture, slot, held, datas)
            for slot, held in found
            if not _is_local(capture, slot)
        }
    imports = [(e.value, t) for e, t in capture.settle() if t is not None]
    return Region(capture, outputs, constant, imports, changes, len(capture.root.lent))


def _drawing(capture: Capture, name: str) -> AbstractContextManager[None]:
    """What random draws do in a region: in a loop without a capture around they would all be the same one."""
    if not capture.root.region or name not in ("body", "test"):
        return nullcontext()
    return using_key_rules((*current_key_rules(), _refuse_draw))


def _refuse_draw(key: Tensor) -> Tensor:
    message = "a draw in a loop whose end each example decides must have a key, got one without"
    raise CaptureError("while_loop", message, hint="carry a key, and split it with weft.random.split")


def check_recording(before: bool, what: str) -> None:
    """Raise if captured code left recording turned on or off: a run of the graph would not."""
    if thread.recording is not before:
        set_recording(before)
        raise CaptureError(
            "set_grad_enabled",
            f"{what} must leave recording as it was, got a call that sets it there",
            hint="write `with weft.set_grad_enabled(...):` around what it is for",
        )


def _check_behind(capture: Capture, results: Sequence[Tensor]) -> None:
    """Raise if what leads to results has a hook, which a backward outside would not run, or begins inside."""
    waiting, seen = [t._node for t in results if t._node is not None], set()
    while waiting:
        node = node_of(waiting.pop())
        if node in capture.notes.leaves:
            raise gives_leaf()
        if node in seen or not capture.recorded(node):
            continue
        seen.add(node)
        rule = node.rule
        if type(rule) is Instrumented and (rule.tensor_hooks or rule.node_hooks or rule.node_prehooks):
            raise CaptureError(
                "register_hook",
                "a hook in a branch or loop of a graph must be for a backward in it, got one on its result",
                hint="set the hook on what the branch or loop gives, after it",
            )
        waiting += [e for e in node.edges if e is not None]


def _is_local(capture: Capture, slot: Slot) -> bool:
    """Whether a slot belongs to a tensor that was made inside, and ends there."""
    data = getattr(getattr(slot, "tensor", None), "_data", None)
    return slot.is_new() or (type(data) is Captured and data.capture is capture)


def _change(capture: Capture, slot: Slot, held: object, datas: Mapping[int, Tensor]) -> Change:
    """What a slot held; a tensor that it refers to had data, by id, at the end, and they were put back."""
    if not isinstance(held, Tensor):
        return Change(slot, held, None, True)
    content = datas.get(id(held), held)
    return Change(slot, held, capture.result_of(content), is_cut(content))


def put_content(slot: Slot, content: Tensor) -> None:
    """Let a slot hold a tensor; a leaf stays the leaf it is."""
    if isinstance(slot, DataSlot) and type(slot.tensor._node) is Leaf:
        content = wrap(content._data, slot.tensor._node)
    slot.put(content)


def has_gradient(tensor: Tensor) -> bool:
    """Whether a gradient may flow to a tensor: by the tape, or by the graph of a region."""
    data = tensor._data
    if kind(data.dtype) not in "fc" or is_cut(tensor):
        return False
    return tensor._node is not None or (type(data) is Captured and data.capture.region)


def is_recorded(regions: Sequence[Region], *, kept: bool = False) -> bool:
    """Whether a gradient flows through regions: one that they record, or one of what they hand on as it is.

    Where one flows, the outputs of a region that recorded nothing itself get their stops now.
    """
    kept = kept or any(region.capture.records for region in regions)
    for region in regions:
        around = {value for value, tensor in region.imports if has_gradient(tensor)}
        rows = zip(region.outputs, region.constant, strict=True)
        kept = kept or any(value in around and not constant for value, constant in rows)
    if kept:
        for region in regions:
            if not region.capture.records:
                _stop_outputs(region)
    return kept


def _stop_outputs(region: Region) -> None:
    capture = region.capture
    for i, constant in enumerate(region.constant):
        if constant:
            region.outputs[i] = capture.stop(region.outputs[i])
    for key, change in region.changes.items():
        if change.value is not None and change.constant:
            region.changes[key] = change._replace(value=capture.stop(change.value))


class Operands:
    """What the regions of one node use from around it, each tensor once."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self._numbers: dict[tuple[int, int, bool], int] = {}

    def number(self, tensor: Tensor, taken: Mapping[int, Value]) -> int:
        """The place of a tensor among the operands: a new one if it has none yet, or its own is taken."""
        data = tensor._data
        if type(tensor._node) is Leaf and is_cut(tensor) and thread.recording:
            raise CaptureError(
                "requires_grad_",
                "a leaf that a branch or loop makes must be used there itself, got one that a branch or loop "
                "inside it uses, where its gradient would be lost",
                hint="make the leaf outside of the branch or loop, or write the inner one with weft.where",
            )
        known = data.value if type(data) is Captured else data
        key = (id(known), id(tensor._node), is_cut(tensor))
        found = self._numbers.setdefault(key, len(self.tensors))
        if found == len(self.tensors) or found in taken:
            found = len(self.tensors)
            self.tensors.append(tensor)
        return found


def freeze_regions(
    regions: Sequence[Region], inputs: Sequence[Sequence[Value]], outputs: Sequence[Sequence[Value]]
) -> tuple[list[Graph], list[Tensor]]:
    """The graphs of the regions of one node, closed over the same operands, and these."""
    operands = Operands()
    places: list[dict[int, Value]] = []
    for region in regions:
        mine: dict[int, Value] = {}
        for value, tensor in region.imports:
            mine[operands.number(tensor, mine)] = value
        places.append(mine)
    graphs = []
    for region, given, results, mine in zip(regions, inputs, outputs, places, strict=True):
        shared = [mine.get(i) or Value(type_of(t), name_of(t)) for i, t in enumerate(operands.tensors)]
        graphs.append(region.capture.graph([*given, *shared], results))
    return graphs, operands.tensors


def zeros(t: TensorType) -> Any:
    """Zeros of a type, an array or a tensor; in a capture, and so where sizes may be named, a value of it."""
    if thread.capture is None:
        return np.zeros(t.shape, t.dtype)
    zero = captured_constant(np.zeros((), t.dtype))
    return broadcast_to(zero, shape=t.shape) if t.shape else zero


@contextmanager
def attempt(capture: Capture) -> Iterator[None]:
    """Undo what is done to a capture, and to those around it, if the block raises; it can then be retried."""
    chain = [capture]
    while chain[-1].parent is not None:
        chain.append(chain[-1].parent)
    marks = [c.mark() for c in chain]
    try:
        yield
    except BaseException:
        for c, mark in reversed(list(zip(chain, marks, strict=True))):
            c.go_back(mark)  # the innermost last: it knows best what slots held
        raise
    finally:
        for c in chain:
            c._attempts.pop()


Values = Sequence[Any]  # arrays or tensors; None where there is none


# What the rules of control flow share


def is_smooth(value: Value) -> bool:
    """Whether a value can have a derivative."""
    return kind(value.type.dtype) in "fc"


def reached_outputs(graph: Graph, inputs: Collection[int]) -> set[int]:
    """The outputs of a graph that may have a derivative by some of its inputs."""
    reached = {graph.inputs[i] for i in inputs}
    for node in graph.nodes:
        if not reached.isdisjoint(node.inputs):
            places = _reached_of(node, {i for i, v in enumerate(node.inputs) if v in reached})
            reached.update(v for i, v in enumerate(node.outputs) if is_smooth(v) and i in places)
    return {k for k, v in enumerate(graph.outputs) if v in reached}


def _reached_of(node: Node, inputs: Collection[int]) -> Collection[int]:
    """The outputs of a node that may have a derivative by some of its inputs."""
    if node.op in (control.cond, control.switch):
        return reached_of_branches(node.attrs["branches"], {i - 1 for i in inputs if i})
    if node.op in (control.scan, control.while_loop):
        first = int(node.attrs.get("counted", False))
        length = node.attrs.get("length")
        ran = isinstance(length, int) and length > 0
        given = {i - first for i in inputs}
        return reached_of_loop(node.attrs["body"], node.attrs["carries"], given, ran=ran)
    if node.op is call:
        return reached_outputs(node.attrs["body"], inputs)
    return (
        ()
        if isinstance(node.op.vjp, NoGradient) or not any(has_partial(node.op, i) for i in inputs)
        else range(len(node.outputs))
    )


def has_partial(op: Op, i: int) -> bool:
    """Whether the derivative of an op by an input is not zero always."""
    partial = None if op.partials is None or i >= len(op.partials) else op.partials[i]
    return not (isinstance(partial, int | float) and partial == 0)


def reached_of_branches(branches: Sequence[Graph], inputs: Collection[int]) -> set[int]:
    """The outputs of branches that may, in one of them, have a derivative by some of their inputs."""
    return set().union(*[reached_outputs(branch, inputs) for branch in branches])


def reached_of_loop(body: Graph, carries: int, inputs: Collection[int], *, ran: bool = False) -> set[int]:
    """The outputs of a loop that may have a derivative by some inputs.

    A carry that comes in so keeps it where the loop may have no turn; ``ran`` says that it has one.
    """
    active = active_inputs(body, carries, inputs)
    return reached_outputs(body, active) | {i for i in active if i < carries and not ran}


def active_inputs(body: Graph, carries: int, inputs: Iterable[int]) -> set[int]:
    """Some inputs of the body of a loop, and the carries that come to depend on them."""
    active = set(inputs)
    while True:
        carried = {k for k in reached_outputs(body, active) if k < carries}
        if carried <= active:
            return active
        active |= carried


def inputs_behind(graph: Graph, outputs: Iterable[int]) -> set[int]:
    """The inputs that some outputs of a graph hang on, by numbers that have gradients."""
    wanted = {graph.outputs[k] for k in outputs if is_smooth(graph.outputs[k])}
    for node in reversed(graph.nodes):
        if not wanted.isdisjoint(node.outputs):
            places = _inputs_behind_node(node, {i for i, v in enumerate(node.outputs) if v in wanted})
            wanted.update(v for i, v in enumerate(node.inputs) if is_smooth(v) and i in places)
    return {i for i, value in enumerate(graph.inputs) if value in wanted}


def _inputs_behind_node(node: Node, outputs: Collection[int]) -> Collection[int]:
    """The inputs of a node by which some of its outputs may have a derivative."""
    if node.op in (control.cond, control.switch):
        return {i + 1 for b in node.attrs["branches"] for i in inputs_behind(b, outputs)}
    if node.op in (control.scan, control.while_loop):
        body, first = node.attrs["body"], int(node.attrs.get("counted", False))
        given = [k for k in outputs if k < len(body.outputs)]
        return {i + first for i in inputs_behind_loop(body, node.attrs["carries"], given)}
    if node.op is call:
        return inputs_behind(node.attrs["body"], outputs)
    if isinstance(node.op.vjp, NoGradient):
        return ()
    return [i for i in range(len(node.inputs)) if has_partial(node.op, i)]


def inputs_behind_loop(body: Graph, carries: int, outputs: Iterable[int]) -> set[int]:
    """The inputs of the body of a loop that some results of the loop hang on."""
    wanted = set(outputs)
    while True:
        behind = inputs_behind(body, wanted)
        carried = {i for i in behind if i < carries}
        if carried <= wanted:
            return behind | {k for k in wanted if k < carries}  # which it ends with without a turn
        wanted |= carried


def trace_closed(function: Callable[..., Sequence[Any]], types: Sequence[TensorType], name: str) -> Graph:
    """The graph of a function that uses nothing from around it."""
    graph, imports = trace_graph(function, types, name, closed=True)
    assert not imports, "a rule makes closed regions"
    return graph


def types_of(values: Iterable[Value]) -> list[TensorType]:
    """The types of values."""
    return [v.type for v in values]


def split_groups(items: Sequence[Any], groups: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Items in groups as long as these."""
    rest = iter(items)
    return [[next(rest) for _ in group] for group in groups]

"""What a picture shows: boxes, arrows between them, and clusters of boxes by module and region.

A diagram is made from a captured graph or from a tensor's dynamic graph; ``weft.viewer.picture`` and
``weft.viewer.picture`` know nothing but diagrams.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import weft
from weft.capture.call.function import GraphFunction
from weft.errors import ArgumentError
from weft.ir.types import TensorType

SHORT = 24  # characters of an attribute that are shown
WIDEST = 36  # and of all of them


@dataclass(frozen=True)
class Box:
    """One node of a picture.

    Attributes:
        label: lines of text.
        kind: "input", "param", "constant", "op", "output".
        cluster: names of the clusters it is in, the outermost first.
        phase: "backward" for what a gradient added.
    """

    label: tuple[str, ...]
    kind: str
    cluster: tuple[str, ...] = ()
    phase: str = ""


@dataclass(frozen=True)
class Arrow:
    """From one box to another, by number; the label is the type of what flows."""

    source: int
    target: int
    label: str = ""
    dashed: bool = False


@dataclass
class Diagram:
    """Boxes, and arrows between them."""

    name: str
    boxes: list[Box] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)

    def add(self, *label: str, kind: str = "op", cluster: tuple[str, ...] = (), phase: str = "") -> int:
        """A new box; its number."""
        self.boxes.append(Box(tuple(line for line in label if line), kind, cluster, phase))
        return len(self.boxes) - 1


def diagram_of(
    shown: Any, params: Mapping[str, Any] | None = None, *, backward: bool = False, saved: bool = False
) -> Diagram:
    """The diagram of a graph, of a function that has one, or of a tensor's dynamic graph.

    Args:
        shown: what to draw.
        params: names for tensors of a dynamic graph.
        backward: draw the graph of a function's gradient instead.
        saved: with what each op of a dynamic graph has kept for its gradient.

    >>> import weft
    >>> from weft.viewer.diagram import diagram_of
    >>> x = weft.ones(2, requires_grad=True)
    >>> [box.label for box in diagram_of(weft.tanh(x), {"x": x}).boxes]
    [('tensor', 'f32[2]'), ('Tanh',), ('x', 'f32[2]')]
    """
    if isinstance(shown, weft.Graph):
        return _of_graph(shown)
    if weft.is_tensor(shown):
        return _of_tensor(shown, params or {}, saved)
    if isinstance(shown, weft.data.Pipeline):
        return _of_pipeline(shown)
    graph = _backward_of(shown) if backward else getattr(shown, "graph", None)
    if isinstance(graph, weft.Graph):
        return _of_graph(graph)
    raise ArgumentError(
        "dot",
        f"must be a tensor, a graph or a function that has been captured, got {type(shown).__name__}",
        hint="call the compiled function once, or use weft.make_graph",
    )


def _backward_of(function: Any) -> Any:
    """The graph of a function's gradient; an error if there is none apart from its own."""
    versions = function.versions if isinstance(function, GraphFunction) else ()
    found = [v.program.derivative.backward for v in versions if v.program.derivative is not None]
    if not found:
        hint = "call it on tensors that require gradients; a training step has them in its own graph"
        raise ArgumentError("dot", "backward must be of a captured function with a gradient", hint=hint)
    return found[0]


def _of_pipeline(pipeline: Any) -> Diagram:
    from weft.data.element_type import element_types, format_type
    from weft.data.stage import stages_of
    from weft.data.text import describe_stage

    diagram = Diagram("pipeline")
    stages = stages_of(pipeline.stage)
    types = element_types(stages)
    boxes = {s: diagram.add(describe_stage(s), kind="op" if s.inputs else "input") for s in stages}
    for stage in stages:
        for source in stage.inputs:
            known = types[source]
            label = "" if known is None else format_type(known)
            diagram.arrows.append(Arrow(boxes[source], boxes[stage], label))
    return diagram


# Captured graphs


def _of_graph(graph: Any) -> Diagram:
    diagram = Diagram(graph.name)
    _Graph(diagram, graph, ()).draw()
    return diagram


class _Graph:
    """Draws a graph, or a region, into a diagram."""

    def __init__(self, diagram: Diagram, graph: Any, cluster: tuple[str, ...]) -> None:
        self.diagram = diagram
        self.graph = graph
        self.cluster = cluster
        self.makers: dict[Any, int] = {}

    def draw(self) -> list[int]:
        """Draw all; the numbers of the boxes of its inputs."""
        graph, add = self.graph, self.diagram.add
        inputs = []
        for value, role in zip(graph.inputs, graph.roles, strict=True):
            kind = "input" if role == "arg" else "param"
            self.makers[value] = add(value.name or "?", str(value.type), kind=kind, cluster=self.cluster)
            inputs.append(self.makers[value])
        for number, node in enumerate(graph.nodes):
            self._draw_node(number, node)
        names = [f"output {i}" if len(graph.outputs) > 1 else "output" for i in range(len(graph.outputs))]
        names += [f"{old.name} after" for old, _ in graph.updates]
        for name, value in zip(names, graph.results, strict=True):
            box = add(name, kind="output", cluster=self.cluster)
            self._connect(value, box)
        return inputs

    def _draw_node(self, number: int, node: Any) -> None:
        where = node.location
        modules = tuple(where.module.split(".")) if where is not None and where.module else ()
        cluster = (*self.cluster, *modules)
        constants = [_short(self.graph.constants[v]) for v in node.inputs if self._is_written_in(v)]
        label = (_title(node), ", ".join(constants), str(where or ""))
        phase = where.phase if where is not None else ""
        box = self.diagram.add(*label, cluster=cluster, phase=phase)
        for value in node.inputs:
            if not self._is_written_in(value):
                self._connect(value, box)
        for value in node.outputs:
            self.makers[value] = box
        for i, region in enumerate(() if _is_call(node) else node.regions):
            name = f"{node.op.name} {number}: {region.name or i}"
            for inside in _Graph(self.diagram, region, (*cluster, name)).draw():
                self.diagram.arrows.append(Arrow(box, inside, dashed=True))

    def _is_written_in(self, value: Any) -> bool:
        """Whether a value is a constant of one element, which is written into the box that uses it."""
        array = self.graph.constants.get(value)
        return array is not None and array.size == 1

    def _connect(self, value: Any, box: int) -> None:
        if value not in self.makers:
            array = self.graph.constants[value]
            label = (_short(array),) if array.size == 1 else (value.name or "constant", str(value.type))
            self.makers[value] = self.diagram.add(*label, kind="constant", cluster=self.cluster)
        self.diagram.arrows.append(Arrow(self.makers[value], box, str(value.type)))


def _is_call(node: Any) -> bool:
    """Whether a node is a function of ops, which is drawn as one box."""
    return "function" in node.attrs


def _title(node: Any) -> str:
    if _is_call(node):
        return str(node.attrs["function"])
    shown = {k: str(v) for k, v in node.attrs.items() if not isinstance(v, weft.Graph) and v is not None}
    inside = ", ".join(f"{k}={v}" for k, v in shown.items() if len(v) <= SHORT)
    if len(inside) > WIDEST:
        inside = inside[: WIDEST - 1].rstrip(", (") + "…"
    return f"{node.op.name}({inside})" if inside else str(node.op.name)


def _short(array: Any) -> str:
    return f"{np.asarray(array).reshape(-1)[0]:g}" if np.asarray(array).dtype.kind in "fiub" else str(array)


# Dynamic graphs


def _of_tensor(tensor: Any, params: Mapping[str, Any], saved: bool) -> Diagram:
    """The graph that ``tensor.backward()`` would go through."""
    diagram = Diagram("backward")
    names = {id(p): name for name, p in params.items()}
    root = diagram.add(_name(tensor, names) or "tensor", _type_of(tensor), kind="output")
    if tensor.grad_fn is None:
        return diagram
    numbers: dict[int, int] = {}
    order: list[Any] = []
    stack = [tensor.grad_fn]
    while stack:
        node = stack.pop()
        if id(node) in numbers:
            continue
        numbers[id(node)] = _add_grad_fn(diagram, node, names)
        if saved:
            _add_saved(diagram, node, numbers[id(node)])
        order.append(node)  # keeps it, so that its id stays its own
        stack += [f for f, _ in node.next_functions if f is not None]
    diagram.arrows.append(Arrow(numbers[id(tensor.grad_fn)], root))
    for node in order:
        for f, _ in node.next_functions:
            if f is not None:
                diagram.arrows.append(Arrow(numbers[id(f)], numbers[id(node)]))
    return diagram


def _add_grad_fn(diagram: Diagram, node: Any, names: Mapping[int, str]) -> int:
    variable = getattr(node, "variable", None)
    if variable is None:
        return diagram.add(node.name.removesuffix("Backward"))
    return diagram.add(_name(variable, names) or "leaf", _type_of(variable), kind="param")


def _add_saved(diagram: Diagram, node: Any, box: int) -> None:
    """Boxes for the arrays that a node keeps for its gradient; none once backward has freed them."""
    held = getattr(node, "saved", None)
    for array in held if isinstance(held, tuple) else ():
        if isinstance(array, np.ndarray):
            kept = diagram.add("saved", str(TensorType(array.shape, array.dtype)), kind="constant")
            diagram.arrows.append(Arrow(kept, box, dashed=True))


def _name(tensor: Any, names: Mapping[int, str]) -> str:
    return names.get(id(tensor)) or getattr(tensor, "name", "") or ""


def _type_of(tensor: Any) -> str:
    return str(TensorType(tensor.shape, tensor.dtype))

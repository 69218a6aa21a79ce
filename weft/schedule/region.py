"""The lowering of one graph, or of one region of it, into the main function of a program.

Each value gets a place: an array, a scalar of the main function, or a number. A view of an array in memory is
another array, and costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.records import dataclass
from weft.base.sizes import is_known, named_size
from weft.base.stopping import stopped_error
from weft.errors import ShapeError, WeftError
from weft.ir.graph import Graph, Node, Value
from weft.ir.interpret import placed
from weft.ir.order import sizes_defined, sizes_of, sizes_used
from weft.ir.types import TensorType
from weft.loop.ir import Const
from weft.ops.classes import class_error
from weft.ops.control_run import ragged_error
from weft.ops.index import bounds_error
from weft.ops.linalg.common import indefinite_error, infinite_error, singular_error
from weft.schedule.arrays import Array, Progression, as_progression, view_of
from weft.schedule.pointwise.rules import Reader, as_constant
from weft.schedule.use_def import is_view
from weft.schedule.writer import Writer, over

Place = Any  # an Array, or a scalar of the main function; a Const fills an array of any shape


@dataclass(frozen=True)
class HostCall:
    """An op that Python runs: an entry of the table of host calls.

    Attributes:
        library: whether a library of the device computes it, and Python has no part in it.
    """

    node: Node
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    sizes: tuple[Any, ...]
    library: bool = False

    @property
    def op(self) -> Any:
        """The op."""
        return self.node.op

    @property
    def attrs(self) -> Any:
        """Its attributes."""
        return self.node.attrs


@dataclass(frozen=True)
class Failure:
    """An entry of the table of failures: what failed, and in which way."""

    node: Node
    kind: Any

    def error(self, values: Sequence[int]) -> Exception:
        """The error that a run raises, with the values that the code noted."""
        return failure_error(self.node, self.kind, values)


class Scope:
    """Where the values of a graph are, while it is being lowered.

    Attributes:
        writer: of the program.
        graph: that is being lowered.
        places: by value.
        wanted: by value, the array that it should be written to, where one is waiting for it.
        parts: by value, the part of an array that it is written to.
        views: by value, the view that gives it.
        layouts: by value, the order of its axes in memory where it is not the usual one.
        write_view: writes a view out that no strides describe.
    """

    def __init__(self, writer: Writer, graph: Graph, inputs: Sequence[Place]) -> None:
        self.writer = writer
        self.graph = graph
        self.places: dict[Value, Place] = dict(zip(graph.inputs, inputs, strict=True))
        self.wanted: dict[Value, Array] = {}
        self.parts: dict[Value, Array] = {}
        self.views: dict[Value, Node] = {n.outputs[0]: n for n in graph.nodes if is_view(n)}
        self.write_view: Callable[[Scope, Value], None] = _no_writer
        self.layouts: dict[Value, tuple[int, ...]] = {}
        self.held: list[Any] = []  # what keys of the builder's memory name by its address
        for value, array in graph.constants.items():
            self.places[value] = as_constant(array) or as_progression(array) or writer.constant(array)

    # Reading

    def find(self, value: Value) -> Place | None:
        """The place of a value, also of a view of an array in memory; None where it has none yet."""
        place = self.places.get(value)
        node = self.views.get(value)
        if (
            place is None
            and node is not None
            and self.find(node.inputs[0]) is not None
            and as_view(self, node)
        ):
            place = self.places[value]
        return place

    def place(self, value: Value) -> Place:
        """The place of a value; a view that no strides describe is written out."""
        place = self.find(value)
        if place is None:
            self.write_view(self, value)
            place = self.places[value]
        return place

    def array(self, value: Value) -> Array:
        """A value in memory."""
        place = self.place(value)
        if isinstance(place, Array):
            return place
        shape = value.type.shape
        key = ("array", id(place), shape)
        out = self.writer.main.recall(key)
        if out is None and isinstance(place, Const) and shape:
            out = self.writer.filled(place, shape)
        elif out is None and isinstance(place, Progression):
            out = self.writer.counted(place)
        elif out is None:
            out = self.writer.temporary(shape, value.type.dtype, "s")
            self.writer.main.store(out.buffer, 0, place)
        self.writer.main.remember(key, out)
        self.held.append(place)
        return out

    def dense(self, value: Value) -> Array:
        """A value in memory with its elements in order."""
        array = self.array(value)
        return array if array.is_dense else self.writer.copied(array)

    def scalar(self, value: Value) -> Any:
        """A value of one element as a scalar of the main function."""
        place = self.place(value)
        if not isinstance(place, Array):
            return place
        key = ("scalar", id(place))
        found = self.writer.main.recall(key)
        if found is None:
            found = self.writer.main.load(place.buffer, place.offset)
            self.writer.main.remember(key, found)
        return found

    # Writing

    def output(self, value: Value) -> Array:
        """The array that a value is to be written to."""
        place = self.wanted.get(value)
        if value in self.parts:
            place = self.parts[value]  # of an array that is there
        elif place is None:
            place = self.writer.temporary(value.type.shape, value.type.dtype)
            if value in self.layouts:
                place = place.in_layout(self.layouts[value])
            held = self.writer.origins.buffers
            held[place.buffer] = held[place.buffer]._replace(value=value)
        else:
            self.writer.make_room(place)
        self.places[value] = place
        return place

    def reader(self, builder: Any, sources: Any, nodes: Any) -> Reader:
        """A reader for a kernel."""
        return Reader(builder, sources, nodes, lambda node, kind: self.writer.failure(Failure(node, kind)))


def _no_writer(scope: Scope, value: Value) -> None:
    raise AssertionError(f"nobody writes out {value}")


def as_view(scope: Scope, node: Node) -> bool:
    """Give the result of a view of an array in memory its place, without code; False where that fails."""
    place = scope.places.get(node.inputs[0]) if node.inputs else None
    if isinstance(place, Const) and is_view(node):
        scope.places[node.outputs[0]] = place
        return True
    if not isinstance(place, Array):
        return False
    view = view_of(place, node)
    if view is None:
        return False
    scope.places[node.outputs[0]] = view
    return True


def run_on_host(scope: Scope, node: Node) -> None:
    """Have Python run a node."""
    inputs = [scope.dense(v) for v in node.inputs]
    types = tuple(v.type for v in node.inputs), tuple(v.type for v in node.outputs)
    names = sizes_of((*node.inputs, *node.outputs)) | sizes_used(node) | sizes_defined(node)
    entry = HostCall(node, *types, tuple(map(named_size, sorted(names))))
    outputs = [scope.output(v) for v in node.outputs]
    if node.op.in_place:  # the copy goes away where nobody else reads the input
        scope.writer.copy(inputs[0], outputs[0])
        inputs[0] = outputs[0]
    scope.writer.host(entry, inputs, outputs)


# Regions of control flow, in the place where they run


Lower = Callable[[Scope], None]


def lower_region(
    scope: Scope, graph: Graph, inputs: Sequence[Any], wanted: Sequence[Array | None], lower: Lower
) -> list[Any]:
    """Lower a region here; gives the places of its outputs, which are the wanted ones where that is easy."""
    inner = Scope(scope.writer, graph, inputs)
    bound = scope.writer.bound.copy()
    given = {*graph.inputs, *graph.constants}
    for value, array in zip(graph.outputs, wanted, strict=True):
        if array is not None and value not in given:
            inner.wanted.setdefault(value, array)
    lower(inner)
    places = [_place(inner, v) for v in graph.outputs]
    scope.writer.bound = bound
    return places


def _place(scope: Scope, value: Value) -> Any:
    """Where an output is: a scalar where it is one element, else an array."""
    if value.type.shape == ():
        return scope.scalar(value)
    place = scope.place(value)
    return place if isinstance(place, Const) else scope.array(value)


def put(scope: Scope, place: Any, target: Array) -> None:
    """Make an array hold a value, unless it does already."""
    if isinstance(place, Progression):
        place = scope.writer.counted(place)
    if isinstance(place, Array):
        if not is_same(place, target):
            scope.writer.copy(place, target)
    elif target.shape == ():
        scope.writer.main.store(target.buffer, target.offset, place)
    else:
        with scope.writer.kernel("fill", [], [target]) as k:
            (out,) = k.writes
            over(k.builder, out.shape, lambda *i: k.builder.store(out.buffer, out.at(*i), place))


def is_same(a: Array, b: Array) -> bool:
    """Whether two arrays are one in memory."""
    same_start = a.offset is b.offset or repr(a.offset) == repr(b.offset)
    return a.buffer is b.buffer and same_start and a.strides == b.strides


def failure_error(node: Node, kind: str, values: Sequence[int]) -> Exception:
    """The error of a node that failed in a way that its lowering names, with the values it noted.

    >>> import weft
    >>> from weft.schedule.region import failure_error
    >>> graph = weft.make_graph(lambda x, i: x[i])(weft.ones(3), weft.tensor(0))
    >>> node = next(n for n in graph.nodes if n.op.name == "gather")
    >>> print(str(failure_error(node, "bounds", [0, 3, 7])).splitlines()[0])
    gather: index must be in -3..2 for axis 0 of size 3, got 7
    """
    count, error = _ERRORS[kind]
    return placed(error(node, *values[:count]), node)


def _matrix_text(node: Node, number: int) -> str:
    """Words for a matrix of the batch that a node works on."""
    a = node.inputs[0].type
    lead = a.shape[:-2]
    if not lead:
        return str(a)
    index = np.unravel_index(number, lead) if is_known(lead) else (number,)
    return f"matrix {', '.join(map(str, index))} of {a}"


def _singular(node: Node, number: int) -> WeftError:
    return singular_error(node.op.name, _matrix_text(node, number))


def _indefinite(node: Node, number: int, row: int, unknown: int) -> WeftError:
    if unknown:
        return infinite_error(node.op.name, node.inputs[0].type)
    return indefinite_error(f"one that is not from row {row} on", _matrix_text(node, number))


def _outside(node: Node, axis: int, size: int, index: int) -> WeftError:
    return bounds_error(node.op.name, axis, size, np.asarray(index), node.attrs.get("from_end", True))


def _recount(node: Node, told: int, got: int) -> WeftError:
    return ShapeError(node.op.name, f"must give as many rows as it gave before, got {told} and {got}")


# By kind of failure, how many values are noted, and the error that they make.
_ERRORS: dict[str, tuple[int, Callable[..., WeftError]]] = {
    "bounds": (3, _outside),
    "class": (3, lambda node, classes, ignore, got: class_error(classes, ignore, got)),
    "singular": (1, _singular),
    "indefinite": (3, _indefinite),
    "recount": (2, lambda node, told, got: _recount(node, told, got)),
    "stopped": (0, lambda node: stopped_error(node.op.name)),
    "ragged": (2, lambda node, first, got: ragged_error(node.op.name, first, got)),
}

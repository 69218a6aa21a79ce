"""Sessions: run a graph on feeds, computing only what the fetches need.

Each combination of fetches and feeds is cut out of the graph, and a backend makes a function of it; that is
done once. Parameters are read when a run begins, and updates applied when it has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft.base.concrete import any_on_device, is_concrete, is_on_device
from weft.base.forks import Level, lock_of
from weft.base.frames import format_location
from weft.base.hooks import hooks
from weft.base.records import NamedTuple
from weft.base.tracebacks import edge
from weft.base.trees import tree_flatten, tree_unflatten
from weft.capture.program.cutting import cut_out
from weft.capture.static.block import captures, generators, parameters, places
from weft.capture.static.feeds import check_feeds, feed_items
from weft.capture.static.static import Update
from weft.errors import ArgumentError, GraphError
from weft.ir.graph import Array, Graph, Value
from weft.ops.nan import check_setting
from weft.tensor.tensor import Tensor, wrap
from weft.transform.captured import Captured, not_capturing

_state = lock_of(
    Level.VERSIONS
)  # held while parameters are read or changed, so that no run sees half of an update


class _Program(NamedTuple):
    """A part of the graph, ready to run: the function from the arrays of inputs to those of results.

    Attributes:
        inputs: values of the whole graph.
        results: likewise.
        draws: the states of generators that it draws from, each with the state after it.
        function: what the backend made.
    """

    inputs: tuple[Value, ...]
    results: tuple[Value, ...]
    draws: dict[Value, Value]
    function: Any


class Session:
    """Runs a graph: ``Session(graph).run(fetches, feeds)``. Several threads may share one.

    Args:
        graph: written by hand, or captured from a function.
        backend: the name of what makes functions of graphs; the default is the fastest there is.
        disable: names of passes of ``weft.passes.LOWERING`` to leave out, and of choices of the schedule.
        debug: check every index that compiled code reads and writes at.
        check_nan: raise an error that names the line where a result becomes NaN; with "all" also where one
            becomes infinite though what it is made of is finite.

    >>> import weft
    >>> w = weft.tensor([2.0, 3.0])
    >>> with weft.Graph("f") as g:
    ...     x = weft.placeholder("x", ("batch", 2))
    ...     y = x * w
    ...     total = y.sum()
    >>> session = weft.Session(g)
    >>> session.run({"y": y, "total": total}, {x: [[1.0, 1.0]]})
    {'y': tensor([[2., 3.]]), 'total': tensor(5.)}
    """

    @edge
    def __init__(
        self,
        graph: Graph,
        backend: str | None = None,
        *,
        disable: Iterable[str] = (),
        debug: bool = False,
        check_nan: bool | str = False,
    ) -> None:
        if not isinstance(graph, Graph):
            raise ArgumentError("Session", f"must be given a graph, got {type(graph).__name__}")
        self.graph = graph
        self.backend = hooks.default_backend() if backend is None else backend
        options = {"debug": debug, "check_nan": check_setting("Session", check_nan)}
        from weft.schedule.choices import check_disabled  # loads the passes

        off = check_disabled("Session", disable)
        self._build = hooks.builder("Session", backend, options, {"disable": off or None})
        self._programs: dict[tuple[Any, ...], _Program] = {}
        self._named: dict[Any, Value] = {}  # what names stand for; finding one goes through the graph
        self._lock = lock_of(Level.VERSIONS)

    @edge
    def run(
        self,
        fetches: Any,
        feeds: Mapping[Any, Any] | None = None,
        *,
        updates: bool = False,
        effects: bool = False,
    ) -> Any:
        """The values of fetches, as tensors in a tree like that of the fetches.

        Args:
            fetches: tensors or values of the graph, names, updates, None, and trees of these.
            feeds: by placeholder (tensor, value or name) its value. Any other tensor of the graph may be fed
                too, and then has this value instead of its own.
            updates: apply all updates of the graph, and not only those among the fetches.
            effects: run all nodes that print or check something, and not only those that the fetches need.
        """
        self._check_complete()
        leaves, structure = tree_flatten(fetches, is_leaf=lambda x: isinstance(x, Update | Tensor | Value))
        wanted = [self._fetched(leaf) for leaf in leaves]
        changes = self._changes(leaves, updates)
        given = {self._value("feeds", key): item for key, item in feed_items("run", self.graph, feeds)}
        results = tuple(dict.fromkeys([v for values in wanted for v in values] + list(changes.values())))
        fed = check_feeds(self.graph, given)
        program = self._program(results, frozenset(given).difference(self.graph.inputs), effects, fed)
        arrays = self._execute(program, fed, {**program.draws, **changes})
        pairs = zip(leaves, wanted, strict=True)
        return tree_unflatten(structure, [_result(leaf, [arrays[v] for v in vs]) for leaf, vs in pairs])

    # What is asked for

    def _check_complete(self) -> None:
        if type(self.graph.nodes) is not tuple:
            raise GraphError(
                "run", f"the graph must be complete, got {self.graph.name}, whose block has not ended yet"
            )

    def _fetched(self, leaf: Any) -> list[Value]:
        """The values that a fetch needs."""
        if leaf is None:
            return []
        if isinstance(leaf, Update):
            return [self._value("fetches", new) for _, new in leaf.changes]
        return [self._value("fetches", leaf)]

    def _value(self, what: str, key: Any) -> Value:
        """The value of the graph that a tensor, a value or a name stands for."""
        graph = self.graph
        if isinstance(key, Value | str):
            found: Value | None = self._named.get(key)
            if found is None:
                found = self._named[key] = graph.value(key)
            return found
        if not isinstance(key, Tensor):
            raise ArgumentError("run", f"{what} must be tensors, values or names, got {type(key).__name__}")
        data = key._data
        written = captures.get(graph)
        if type(data) is Captured and written is not None and data.capture is written:
            if data.value in written.values:
                return data.value
        else:
            for value in graph.inputs:
                if parameters.get(value) is key:
                    return value
        raise _foreign(graph, what, key)

    def _changes(self, leaves: Sequence[Any], everything: bool) -> dict[Value, Value]:
        """The parameters that a run changes, each with its new value."""
        pairs = list(self.graph.updates) if everything else []
        for leaf in leaves:
            if isinstance(leaf, Update):
                pairs += [(self._value("fetches", t), self._value("fetches", new)) for t, new in leaf.changes]
        changes: dict[Value, Value] = {}
        for old, new in pairs:
            if changes.setdefault(old, new) is not new:
                raise GraphError("run", f"a parameter must have one new value in a run, got two for {old!r}")
        return changes

    # Running

    def _program(
        self,
        results: tuple[Value, ...],
        overridden: frozenset[Value],
        effects: bool,
        fed: Mapping[Value, Array],
    ) -> _Program:
        key = (results, overridden, effects)
        with self._lock:
            if key not in self._programs:
                _, inputs = cut_out(self.graph, results, overridden, effects=effects)
                draws = {old: new for old, new in self.graph.updates if old in generators and old in inputs}
                results = tuple(dict.fromkeys([*results, *draws.values()]))
                part, inputs = cut_out(self.graph, results, overridden, effects=effects)
                build = self._build
                known = [fed[v] if v in fed else getattr(parameters.get(v), "_data", None) for v in inputs]
                if any_on_device(known):  # that is where it runs
                    build = hooks.build_on_device(build, next(filter(is_on_device, known)))
                self._programs[key] = _Program(inputs, results, draws, build(part))
            return self._programs[key]

    def _execute(
        self,
        program: _Program,
        fed: Mapping[Value, Array],
        changes: Mapping[Value, Value],
    ) -> dict[Value, Array]:
        with not_capturing():
            with _state:
                arrays = [self._input(v, fed) for v in program.inputs]
                if changes:
                    out = dict(zip(program.results, program.function(arrays), strict=True))
                    _apply(changes, out)
                    return out
            return dict(zip(program.results, program.function(arrays), strict=True))

    def _input(self, value: Value, fed: Mapping[Value, Array]) -> Array:
        if value in fed:
            return fed[value]
        tensor = parameters.get(value)
        if tensor is not None:
            return current_array(tensor)
        if value in generators:
            state: Array = generators[value]._state_array()
            return state
        raise missing_feed(value)


def missing_feed(value: Value) -> GraphError:
    """The error where a placeholder that is needed is not fed."""
    place = places.get(value)
    name = value.name or f"an input of type {value.type}"
    where = "" if place is None else f", made at {format_location(place.place)}"
    return GraphError(
        "run", f"every placeholder that the fetches need must be fed, got none for {name}{where}"
    )


def _foreign(graph: Graph, what: str, tensor: Tensor) -> GraphError:
    data, where = tensor._data, ""
    if type(data) is Captured:
        made = data.capture.location_of(data.value) or places.get(data.value)
        where = f" of graph {data.capture.name}"
        where += "" if made is None else f", made at {format_location(made.place)}"
    return GraphError("run", f"{what} must be of graph {graph.name}, got a tensor{where}")


def current_array(tensor: Tensor) -> Array:
    """The array of a tensor, also while a graph that is being written stands in for it."""
    data = tensor._data
    while type(data) is Captured:
        external = next((e for e in data.capture.externals if e.reference() is tensor), None)
        if external is None:
            raise data.escaped("run")
        data = external.array
    array: Array = data
    return array


def _apply(changes: Mapping[Value, Value], arrays: Mapping[Value, Array]) -> None:
    """Give parameters and generators what a run computed for them, all or none."""
    tensors = [(parameters[old], new) for old, new in changes.items() if old not in generators]
    if any(not is_concrete(tensor._data) for tensor, _ in tensors):
        raise GraphError("run", "a parameter must not be changed while a graph that uses it is being written")
    for tensor, new in tensors:
        tensor._data, tensor._form = arrays[new].copy(), None
    for old, new in changes.items():
        if old in generators:
            generators[old]._set_state_array(arrays[new])


def _result(leaf: Any, arrays: Sequence[Array]) -> Any:
    if leaf is None or (isinstance(leaf, Update) and leaf.is_group):
        return None
    return wrap(arrays[0].copy())

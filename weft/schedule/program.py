"""From a graph to a program: the driver of the schedule.

order -> groups, each lowered in turn -> elide_copies -> vectorise -> waves -> memory plan

Graphs are rewritten before, by ``weft.passes.lower``; any graph becomes a program without, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from weft.base.dtypes import kind
from weft.base.sizes import Size, size_names
from weft.errors import GraphError
from weft.ir.graph import Graph, Node, Value
from weft.ir.order import sizes_defined, sizes_needed, sizes_of
from weft.loop.ir import Buffer, Const, Function, Leave, Program
from weft.ops.size import iota
from weft.schedule.arrays import Array, Progression
from weft.schedule.choices import enabled
from weft.schedule.control import change_element, changes_element, is_control, lower_control
from weft.schedule.copy_elision import elide_copies
from weft.schedule.fusion import Group, Grouping
from weft.schedule.in_place import (
    Filling,
    change_part,
    find_changes,
    find_fills,
    find_parts,
    make_in_parts,
)
from weft.schedule.memory import find_donated, plan_arena
from weft.schedule.nan_checks import lower_with_checks
from weft.schedule.order import form_waves, order_units
from weft.schedule.origins import kernel_name
from weft.schedule.pointwise.rules import has_pointwise_rule
from weft.schedule.region import Failure, Scope, run_on_host
from weft.schedule.stops import add_stops
from weft.schedule.target import Target
from weft.schedule.use_def import UseDef
from weft.schedule.writer import Writer, over


def lower_graph(
    graph: Graph,
    *,
    debug: bool = False,
    check_nan: bool | str = False,
    fast_math: bool = False,
    target: Target | None = None,
    written: Callable[[Function], object] | None = None,
    disable: Collection[str] = (),
    stops: bool = True,
) -> Program:
    """The program of a graph: its inputs, then its results (outputs and updates), are those of the graph.

    ``written`` is told of each kernel as soon as it is there. ``disable`` names choices of the schedule to
    switch off, see ``weft.schedule.choices``. With ``stops`` its loops end when they are asked to.

    >>> import weft
    >>> from weft.schedule.program import lower_graph
    >>> graph = weft.make_graph(lambda x: weft.tanh(x) * 2.0)(weft.ones(4))
    >>> program = lower_graph(graph)
    >>> program.inputs, program.outputs
    (1, 1)
    """
    sized = _has_sizes(graph)
    if sized:
        _check_sizes_are_told(graph)
    writer = Writer(sized=sized, debug=debug, check_nan=check_nan, target=target)
    writer.written = written
    writer.bound = sizes_of(graph.inputs) if sized else set()
    writer.disabled = disabled = frozenset(disable)
    writer.origins.graph = graph
    choices = enabled(disabled | writer.target.lacks)
    writer.origins.choices = () if check_nan else choices
    inputs = [_parameter("in", i, v) for i, v in enumerate(graph.inputs)]
    outputs = [_parameter("out", i, v) for i, v in enumerate(graph.results)]
    _write_main(Scope(writer, graph, inputs), outputs)
    _improve(writer)
    if stops:
        add_stops(writer.main.block, writer.loops, lambda node: writer.failure(Failure(node, "stopped")))
    main = _main_function(writer, graph, inputs, outputs)
    others = range(len(outputs)) if writer.target.keeps_results else ()
    donates = "donation" not in disabled
    donated, late = find_donated(main, _updates(graph), len(inputs), others) if donates else ([], [])
    placed = [t for t in writer.temporaries if t not in main.scratch]
    plan = plan_arena(main.body, placed, share="memory_plan" not in disabled, zones=debug)
    return Program(
        main,
        len(inputs),
        len(outputs),
        tuple(writer.constants),
        plan.offsets,
        plan.size,
        tuple(writer.heap),
        writer.failures,
        writer.hosts,
        tuple(donated),
        writer.origins,
        fast_math,
        plan.spans,
        tuple(late),
    )


def _write_main(scope: Scope, outputs: Sequence[Array]) -> None:
    """Write all nodes of a graph; its results are in the end where they are wanted."""
    graph = scope.graph
    given = {*graph.inputs, *graph.constants}
    # What is given lies elsewhere and is copied at the end; all else is made in the memory of the result.
    for value, array in zip(graph.results, outputs, strict=True):
        if value not in given:
            scope.wanted.setdefault(value, array)
    lower_scope(scope)
    makers = {v: node for node in graph.nodes for v in node.outputs}
    for value, array in zip(graph.results, outputs, strict=True):
        with scope.writer.lowering([makers[value]] if value in makers else []):
            _deliver(scope, value, array)


def _improve(writer: Writer) -> None:
    """What is done to the main function as a whole, as far as it is not switched off."""
    if "copy_elision" not in writer.disabled:
        elide_copies(writer.main.block, writer.temporaries)
    if "vectorisation" not in writer.disabled:
        writer.target.finish(writer.main.block)
    writer.target.settle(writer)
    if "waves" not in writer.disabled and writer.target.makes_waves:
        form_waves(writer.main.block)


def _main_function(
    writer: Writer, graph: Graph, inputs: Sequence[Array], outputs: Sequence[Array]
) -> Function:
    names = sorted(size_names(s for v in graph.inputs for s in v.type.shape))
    told = size_names(s for v in graph.results for s in v.type.shape)
    names += sorted(told.difference(names))  # whoever calls reads them, to know the shapes of results
    small = [
        t for t in writer.temporaries if not isinstance(t.size, Size) and t.size <= writer.target.in_registers
    ]
    small = [] if writer.debug else small  # which has no zones around it
    return Function(
        graph.name,
        (*[a.buffer for a in (*inputs, *outputs)], *writer.constant_buffers),
        tuple(names),
        writer.main.block,
        frozenset(a.buffer for a in outputs),
        tuple(small),
    )


def _updates(graph: Graph) -> list[tuple[int, int]]:
    """Inputs and the results that they become, by number."""
    place = {v: i for i, v in enumerate(graph.inputs)}
    return [(place[old], len(graph.outputs) + k) for k, (old, _) in enumerate(graph.updates)]


def _parameter(name: str, number: int, value: Value) -> Array:
    array = Array(Buffer(f"{name}{number}", value.type.dtype, 0), value.type.shape)
    array.buffer.size = array.size
    return array


def _deliver(scope: Scope, value: Value, target: Array) -> None:
    """Make sure that a result lies in its buffer."""
    place = scope.place(value)
    if isinstance(place, Array):
        if place.buffer is not target.buffer:
            scope.writer.make_room(target)
            scope.writer.copy(place, target)
    elif target.shape == ():
        scope.writer.main.store(target.buffer, 0, place)
    else:
        scope.writer.make_room(target)
        scope.writer.copy(scope.array(value), target)


def _has_sizes(graph: Graph) -> bool:
    values = [*graph.inputs, *[v for node in graph.walk() for v in node.outputs]]
    return any(isinstance(s, Size) for v in values for s in v.type.shape)


def _check_sizes_are_told(graph: Graph) -> None:
    """Raise unless every named size is that of an input, or is told by a node."""
    told = sizes_of(graph.inputs).union(*[sizes_defined(node) for node in graph.walk()])
    missing = sorted((sizes_needed(graph) | sizes_of(graph.results)) - told)
    if missing:
        hint = "give the graph an input of that size, or a number in its place"
        raise GraphError(graph.name, f"size {missing[0]} must be that of an input, got none", hint=hint)


def lower_scope(scope: Scope) -> None:
    """Lower the nodes of a scope: those that are fused as one kernel, the others by themselves."""
    scope.write_view = _write_view
    if scope.writer.check_nan:
        lower_with_checks(scope, lower_node)
        return
    use_def, disabled = UseDef(scope.graph), scope.writer.disabled
    target = scope.writer.target
    in_loop = scope.writer.depth > 0 and target.changes_parts and "copy_elision" not in disabled
    changes = find_changes(use_def) if in_loop else set()
    grouping = Grouping(use_def, rows_end=target.rows_end, apart=changes)
    grouping.run(fuse="fusion" not in disabled)
    groups = grouping.groups
    scope.layouts, joined = target.plan(grouping, disabled)
    # What was joined to another unit is written with that one, and passed over when its turn comes.
    done = {min(groups[j].members) if j in groups else j for j in joined.values()}
    fills = find_fills(use_def, groups, changes) if "fusion" not in disabled else {}
    parts = find_parts(use_def, groups) if target.joins_in_place and "fusion" not in disabled else {}
    done |= {use_def.producer[part.whole.outputs[0]] for part in parts.values()}
    changing = {i: use_def.producer[fill.change.outputs[0]] for i, fill in fills.items()}
    for unit in order_units(use_def, groups, changing):
        members = unit.members if isinstance(unit, Group) else [unit]
        anchor = unit.anchor if isinstance(unit, Group) else unit
        if parts:
            make_in_parts(scope, parts, [v for i in members for v in use_def.nodes[i].outputs])
        if anchor in joined:
            follower = use_def.nodes[joined[anchor]]
            with scope.writer.lowering([*[use_def.nodes[i] for i in members], follower]):
                target.lower_joined(scope, use_def, unit, follower)
        elif min(members) in done:
            continue
        elif isinstance(unit, Group):
            with scope.writer.lowering([use_def.nodes[i] for i in unit.members]):
                name = kernel_name([use_def.nodes[i] for i in unit.members])
                filling = Filling(scope, use_def, fills[members[0]]) if members[0] in changing else None
                filled = filling is not None and filling.begin()
                target.lower_group(scope, use_def, unit, name)
                if filling is not None and filled:
                    filling.end()
                    done.add(changing[members[0]])
        else:
            with scope.writer.lowering([use_def.nodes[unit]]):
                if unit not in changes or not change_part(scope, use_def.nodes[unit]):
                    lower_node(scope, use_def.nodes[unit])


def lower_node(scope: Scope, node: Node) -> None:
    """A node by itself."""
    if is_control(node):
        lower_control(scope, node, lower_scope)
    elif _is_scalar(node):
        _lower_scalar(scope, node)
    elif node.op is iota and kind(node.attrs["dtype"]) in "iu":
        scope.places[node.outputs[0]] = Progression(0, 1, node.attrs["size"], node.attrs["dtype"])
    elif changes_element(node):
        change_element(scope, node)
    elif scope.writer.target.lower_node(scope, node):
        return
    elif has_pointwise_rule(node):
        _write_pointwise(scope, node, node.outputs[0])
    elif node.op.effect:
        _run_effect(scope, node)
    else:
        run_on_host(scope, node)


def _run_effect(scope: Scope, node: Node) -> None:
    """Have Python run a node that others see: not in a run that has failed, which ends if this one fails."""
    scope.writer.main.add_statement(Leave())
    run_on_host(scope, node)
    scope.writer.main.add_statement(Leave())


def _is_scalar(node: Node) -> bool:
    return has_pointwise_rule(node) and len(node.outputs) == 1 and node.outputs[0].type.shape == ()


def _lower_scalar(scope: Scope, node: Node) -> None:
    """A value of one element, in the code of the main function."""
    sources = {v: scope.scalar(v) if v.type.shape == () else scope.place(v) for v in node.inputs}
    (out,) = node.outputs
    reader = scope.reader(scope.writer.main, sources, {out: node})
    scope.places[out] = reader.read(out, ())


def _write_view(scope: Scope, value: Value) -> None:
    """Write out a view that no strides describe."""
    with scope.writer.lowering([scope.views[value]]):
        _write_pointwise(scope, scope.views[value], value)


def _write_pointwise(scope: Scope, node: Node, out: Value) -> None:
    """A kernel that computes each element of a result by itself."""
    places = {v: scope.place(v) for v in node.inputs}
    memory = [v for v, place in places.items() if isinstance(place, Array) or v.type.shape == ()]
    memory = [v for v in memory if not isinstance(places[v], Const)]
    reads = [scope.array(v) for v in memory]
    with scope.writer.kernel(node.op.name, reads, [scope.output(out)]) as k:
        reader = scope.reader(k.builder, places | dict(zip(memory, k.reads, strict=True)), {out: node})
        (target,) = k.writes
        store = k.builder.store
        over(k.builder, target.shape, lambda *i: store(target.buffer, target.at(*i), reader.read(out, i)))

"""A version of a compiled function: a program with the functions that check it, run it and apply its changes.

The functions are generated, see ``weft.capture.call.running``. Where gradients flow, the tensors hang in the
dynamic graph by one node, whose rule runs the backward graph. Nothing here refers back to its version, so
that one which nobody needs any more is gone at once, with the tensors it holds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.concrete import is_concrete, is_on_device
from weft.base.frozen import is_frozen
from weft.base.hooks import hooks
from weft.capture.call.accuracy import Accuracy, accuracy_of
from weft.capture.call.replaying import input_tensors, replay_program
from weft.capture.call.running import Calls, Run, compile_run
from weft.capture.program.aliases import Aliases
from weft.capture.program.call_keys import ANY_CALL, CallKey
from weft.capture.program.guards import Check, TensorGuard, compile_check
from weft.capture.program.program import Program
from weft.capture.program.sources import Fixed
from weft.capture.record.entry import Entry, compile_entry, no_entry
from weft.capture.record.settling import MOST_SETTLED, looks_at_floats, settled
from weft.errors import TraceGuardError
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.ir.types import TensorType
from weft.ops.effects import print_text, said
from weft.ops.guard import guard
from weft.tensor.engine import zeros_beside
from weft.tensor.mode import no_grad
from weft.tensor.rules import Backward
from weft.tensor.tensor import Tensor, wrap
from weft.transform.aot import once
from weft.transform.control.at_once import replay_at_once
from weft.transform.reverse import vjp
from weft.transform.tracing import replay

Build = Callable[[Graph], Run]


class Version:
    """A program that can be called.

    Attributes:
        program: what it runs.
        graph: that of the program.
        check: tells whether its guards hold for the tensors among the arguments of a call.
        key: of the calls it is for, in which sizes that they may choose are named.
        names: of the leaves of the arguments.
        is_open: whether sizes have names in it.
        run: what the backend made of the graph.
        number: the how manieth of its function it is, from 1 on.
        reason: why it was captured beside others; "" for the first.
        enter: runs it on arguments as they are given, if the call is one of its own; else gives ``MISS``.
    """

    def __init__(
        self,
        program: Program,
        build: Build,
        key: CallKey = ANY_CALL,
        names: Sequence[str] = (),
        tensors: Sequence[Any] = (),
        *,
        is_open: bool = False,
    ) -> None:
        self.key = key
        self.names = names
        self.is_open = is_open
        self.number = 0
        self.reason = ""
        self._build = _build_for(build, program, tensors)
        self._begin(program)

    def _begin(self, program: Program) -> None:
        """Make the functions of a program."""
        build, key = self._build, self.key
        self.program = program
        self.graph = program.graph
        derivative = program.derivative
        self.run = build(_with_weights(program) if derivative is None else derivative.forward)
        self._gradient = None if derivative is None else _Gradient(program, build)
        rule = None if self._gradient is None else self._gradient.rule()
        changes = any(u.kind == "data" for u in program.updates)
        aliases = Aliases(program) if changes else None
        calls = Calls(self.run, functools.partial(replay_program, program), rule, aliases)
        self._call = compile_run(program, calls)
        if _may_print_in_vain(program.graph):
            self._call = _noting_prints(self._call)
        more = () if aliases is None else (aliases.holds_code,)
        self.check: Check = compile_check(program.guards, self._tensor_guards(), program.arguments, more)
        held = (id(s.held) for s in program.sources if isinstance(s, Fixed))
        self._fixed = frozenset(held if program.updates else ())
        self.enter: Entry = no_entry
        if key is not ANY_CALL:
            self.enter = compile_entry(key, self.check, self._call, self._fixed)

    def _tensor_guards(self) -> Sequence[TensorGuard]:
        """The guards on tensors; where the program runs on a device, states are expected there."""
        form_of = getattr(self.run, "form_of", None)
        guards = self.program.tensors
        if form_of is None:
            return guards
        return [g._replace(form=form_of(TensorType(g.shape, g.dtype))) for g in guards]

    def holds(self, tensors: Sequence[Any]) -> bool:
        """Whether the program may be run on arguments whose key is that of the captured call."""
        if self._fixed and not self._fixed.isdisjoint(map(id, tensors)):
            return False  # an argument that is also a tensor from outside: changes would not meet
        return self.check(tensors)

    def settle(self, error: TraceGuardError) -> bool:
        """Expect of a float that Python looked at what compiled code computes; whether that is all it takes.

        Of the call that was captured, the two differ by rounding alone: kernels add in another order, and do
        not round between a product and a sum.
        """
        program = settled(self.program, error)
        if program is not None:
            self._begin(program)
        return program is not None

    def settle_on(self, tensors: Sequence[Any]) -> None:
        """Settle all guards on the tensors of the captured call, by a run that changes nothing."""
        if not looks_at_floats(self.graph):
            return
        for _ in range(MOST_SETTLED):
            try:
                datas = [t._data for t in input_tensors(self.program, tensors)]
                self.run([d.copy() if is_on_device(d) else np.array(d) for d in datas])
            except TraceGuardError as error:
                if not self.settle(error):
                    return
            else:
                return

    def __call__(self, tensors: Sequence[Any]) -> Any:
        """Run on the tensors among the arguments."""
        return self._call(tensors)

    def replay(self, tensors: Sequence[Any]) -> Any:
        """Run op by op on tensors that hold something else than arrays, inside a transform such as vmap."""
        return replay_program(self.program, tensors)

    def accuracy(self, tensors: Sequence[Any]) -> Accuracy:
        """How far what runs is from the graph, op by op, on the tensors of a call; it has no effects."""
        datas = [t._data for t in input_tensors(self.program, tensors)]
        with said.silence():
            found = self.run([d.copy() if is_on_device(d) else np.array(d) for d in datas])
        host = [d.to_host() if is_on_device(d) else np.array(d) for d in datas]
        results = [x.to_host() if is_on_device(x) else x for x in found[: len(self.graph.outputs)]]
        with said.silence():
            expected = interpret(self.graph, host, self.graph.outputs)
        return accuracy_of(results, expected)

    def explain(self, tensors: Sequence[Any] | None = None) -> tuple[Any, ...]:
        """What the backend made of the graph, and of the backward graph if that was needed already.

        On the tensors among the arguments of a call it may tell more: how long it takes.
        """
        if tensors is None and not self.program.arguments:
            tensors = ()
        arrays = None if tensors is None else [t._data for t in input_tensors(self.program, tensors)]
        parts = [_explained(self.run, self.graph, arrays)]
        if self._gradient is not None and self._gradient.pull is not None:
            parts.append(_explained(self._gradient.pull, self.program.derivative.backward, None))
        return tuple(parts)


def _may_print_in_vain(graph: Graph) -> bool:
    """Whether a run may print and then find that it is not the one that a call needs."""
    ops = {node.op for node in graph.walk()}
    return print_text in ops and guard in ops


def _noting_prints(call: Callable[[Sequence[Any]], Any]) -> Callable[[Sequence[Any]], Any]:
    """A call whose error tells what was printed before it."""

    def run(tensors: Sequence[Any]) -> Any:
        with said.noting() as texts:
            try:
                return call(tensors)
            except TraceGuardError as error:
                error.said = texts
                raise

    return run


def _with_weights(program: Program) -> Graph:
    """The graph of a program, told which of its parameters nobody writes to."""
    graph = program.graph
    roles = [
        "weight" if role == "param" and isinstance(s, Fixed) and is_frozen(s.held._data) else role
        for s, role in zip(program.sources, graph.roles, strict=True)
    ]
    return graph.replace(roles=roles) if "weight" in roles else graph


def _build_for(build: Build, program: Program, tensors: Sequence[Any]) -> Build:
    """What makes code for where the tensors are that a program is captured for, and those that it holds."""
    if hasattr(build, "for_program"):  # on a mesh: for the parts that ranks hold
        return build.for_program(program, tensors)  # type: ignore[no-any-return]
    there = placed_data(program, tensors)
    return build if there is None else hooks.build_on_device(build, there)


def placed_data(program: Program, tensors: Sequence[Any]) -> Any:
    """The first data on a device among tensors of a call and those that a program holds; None if none is."""
    held = [s.held._data for s in program.sources if isinstance(s, Fixed)]
    return next(filter(is_on_device, [*[t._data for t in tensors], *held]), None)


def run_graph(run: Any, graph: Graph) -> Graph:
    """The graph that kernels were made of, with the history of all passes; or the one that was given."""
    origins = getattr(getattr(run, "loops", None), "origins", None)
    lowered: Graph | None = getattr(origins, "graph", None)
    given: Graph = getattr(run, "graph", graph)
    return given if lowered is None else lowered


def _explained(run: Any, graph: Graph, arrays: Sequence[Any] | None) -> Any:
    if not hasattr(run, "explain"):
        return str(graph)
    return run.explain() if arrays is None else run.explain(arrays)


class _Gradient:
    """The backward graph of a program, built when it is first needed.

    Attributes:
        pull: what the backend made of it; None until then.
    """

    __slots__ = ("_build", "_program", "pull")

    def __init__(self, program: Program, build: Build) -> None:
        self._program = program
        self._build = build
        self.pull: Run | None = None

    def rule(self) -> Backward:
        """The rule of the node that results hang by."""
        program = self._program
        place = {k: j for j, k in enumerate(program.wrt)}
        slots = [place.get(k) for k in range(len(program.sources))]
        name, count = program.graph.name.strip("<>") or "compiled", len(program.roots)
        return Backward(
            name, self._backward, (*slots, None, None), count, not program.reach, takes_devices=True
        )

    def _backward(self, g: Any, saved: tuple[Any, ...], edges: tuple[Any, ...]) -> Sequence[Any]:
        program = self._program
        grads = g if isinstance(g, list) else [g]
        inputs, residuals = saved[: len(program.sources)], saved[len(program.sources)]
        came = sum(1 << k for k, g in enumerate(grads) if g is not None) if program.reach else 0
        on_tensors = any(isinstance(x, Tensor) for x in grads)
        if any(g is None for g in grads):
            rows = zip(grads, saved[-1], strict=True)
            grads = [zeros_beside(t, grads, on_tensors=on_tensors) if g is None else g for g, t in rows]
        if on_tensors:
            return self._backward_on_tensors(grads, inputs, came)
        if self.pull is None:
            self.pull = self._build(program.derivative.backward)
        return self._present(
            self.pull([*residuals, *[inputs[i] for i in program.derivative.kept], *grads]), came
        )

    def _present(self, found: Sequence[Any], came: int) -> Sequence[Any]:
        """The gradients that are there in this run: to which a way was taken from a root that has one.

        Args:
            found: what the backward graph gives, with truths at the end.
            came: which roots have one, as bits.
        """
        reach = self._program.reach
        if not reach:
            return found
        truths = list(map(bool, found[len(reach) :]))
        return [
            g if r.sure & came or any(came >> k & 1 and truths[i] for k, i in r.told) else None
            for g, r in zip(found, reach, strict=False)
        ]

    def _backward_on_tensors(self, grads: Sequence[Any], inputs: Sequence[Any], came: int) -> Sequence[Any]:
        """The gradients with a graph of their own: the forward graph runs again, on tensors."""
        program = self._program
        given = [x if isinstance(x, Tensor) else wrap(x) for x in inputs]
        count = len(program.wrt)
        if program.untold_gradient:
            found = self._backward_by_graphs(grads, given)
            return self._present_on_tensors([once(x) for x in found[:count]], found[count:], came)

        is_told = any(r.told for r in program.reach)

        def run(*variables: Any) -> list[Any]:
            values = list(given)
            for k, x in zip(program.wrt, variables, strict=True):
                values[k] = x
            results = (replay_at_once if is_told else replay)(program.graph, values)
            return [results[program.made[i].result] for i in program.roots]

        _, pull = vjp(run, *[given[k] for k in program.wrt])
        found = pull(list(grads))
        truths: Sequence[Any] = ()
        if is_told:
            with no_grad():
                truths = self._backward_by_graphs(grads, given)[count:]
        return self._present_on_tensors(found, truths, came)

    def _present_on_tensors(self, found: Sequence[Any], truths: Sequence[Any], came: int) -> Sequence[Any]:
        """Likewise; inside a transform no run has told yet, and zeros stand for none."""
        datas = [t._data for t in truths]
        return self._present([*found, *datas], came) if all(map(is_concrete, datas)) else found

    def _backward_by_graphs(self, grads: Sequence[Any], given: Sequence[Any]) -> Sequence[Any]:
        """Likewise, by the graphs of the derivative, which have the gradients of custom functions."""
        derivative, first = self._program.derivative, len(self._program.graph.outputs)
        residuals = replay(derivative.forward, given)[first : first + derivative.saved]
        return replay(derivative.backward, [*residuals, *[given[i] for i in derivative.kept], *grads])

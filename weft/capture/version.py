"""A version of a compiled function: a program with the functions that check it, run it and apply its changes.

A call gathers the arrays of the inputs, runs the graph, makes tensors of the results, and only then changes
what the program changes, so that a run that fails changes nothing. Where gradients flow, the tensors hang
in the dynamic graph by one node, whose rule runs the backward graph.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from weft.base.trees import tree_unflatten
from weft.capture.guards import Names, compile_check
from weft.capture.program import Item, Plain, Program, Scalar, Tree, Update
from weft.capture.root import lock
from weft.capture.sources import Fixed, array_code, tensor_code
from weft.ir.graph import Graph
from weft.ops.op import type_of
from weft.tensor.mode import running_levels
from weft.tensor.node import FREED, Leaf, Output, make_node
from weft.tensor.rules import Backward
from weft.tensor.tensor import Tensor, wrap
from weft.transform.reverse import vjp
from weft.transform.tracing import replay

ndarray = np.ndarray
Arrays = Sequence[Any]
Run = Callable[[Arrays], Arrays]
Build = Callable[[Graph], Run]


_clock = itertools.count(1)


class Version:
    """A program that can be called.

    Attributes:
        program: what it runs.
        graph: that of the program.
        check: tells whether the program holds for the tensors among the arguments of a call.
        key: of the arguments it was captured with.
        names: of the leaves of these arguments.
        used: grows with each call of any version.
    """

    def __init__(
        self, program: Program, build: Build, key: tuple[Any, ...] = (), names: Sequence[str] = ()
    ) -> None:
        self.program = program
        self.graph = program.graph
        self.key = key
        self.names = names
        self.used = next(_clock)
        self._build = build
        derivative = program.derivative
        self._run = build(program.graph if derivative is None else derivative.forward)
        self._pull: Run | None = None
        self.check = compile_check(program.guards, program.tensors, program.arguments)
        self._gather = self._function([functools.partial(array_code, s) for s in program.sources])
        self._edges = self._function([_edge(program.sources[i]) for i in program.wrt])
        self._fixed = {id(s.held) for s in program.sources if isinstance(s, Fixed)}
        self._rule = self._make_rule() if program.derivative is not None else None
        self._contents = [_reader(tree) for tree in (program.returned, *[u.content for u in program.updates])]
        self._targets = [self._target(u) for u in program.updates]

    def holds(self, tensors: Sequence[Any]) -> bool:
        """Whether the program may be run on arguments whose key is that of the captured call."""
        if self.program.updates and tensors and not self._fixed.isdisjoint(map(id, tensors)):
            return False  # an argument that is also a tensor from outside: changes would not meet
        return self.check(tensors)

    def __call__(self, tensors: Sequence[Any]) -> Any:
        """Run on the tensors among the arguments."""
        self.used = next(_clock)
        with lock if self.program.updates else nullcontext():
            arrays = self._gather(tensors)
            if running_levels and not _are_arrays(arrays):
                with lock:  # another thread may have lent a tensor to a graph
                    arrays = self._gather(tensors)
                if not _are_arrays(arrays):
                    return self.replay(tensors)  # inside a transform that a tensor from outside belongs to
            return self._leave(self._make(arrays, self._run(arrays), tensors), tensors)

    def _leave(self, made: list[Any], tensors: Sequence[Any]) -> Any:
        """Change what the program changes; gives what the function returned."""
        contents = [read(made, tensors) for read in self._contents]
        targets = [target(tensors) for target in self._targets]
        for update, target, content in zip(self.program.updates, targets, contents[1:], strict=True):
            _apply(update, target, content)
        return contents[0]

    def replay(self, tensors: Sequence[Any]) -> Any:
        """Run op by op on tensors that hold something else than arrays, inside a transform such as vmap."""
        program = self.program
        results = replay(self.graph, self._inputs(tensors))
        made = [(results[m.result], m.place) for m in program.made]
        return self._leave([t if place or t._node is None else t.detach() for t, place in made], tensors)

    def _inputs(self, tensors: Sequence[Any]) -> list[Any]:
        """The tensors that are the inputs."""
        codes = [functools.partial(tensor_code, s) for s in self.program.sources]
        pairs = zip(self._gather(tensors), self._function(codes)(tensors), strict=True)
        return [wrap(array) if tensor is None else tensor for array, tensor in pairs]

    # Results

    def _make(self, arrays: Arrays, results: Arrays, tensors: Sequence[Any]) -> list[Any]:
        residuals: Arrays = ()
        if self._rule is not None:  # the forward graph gives residuals between outputs and updates
            count, saved = len(self.graph.outputs), self.program.derivative.saved
            residuals, results = results[count : count + saved], [*results[:count], *results[count + saved :]]
        made = [wrap(results[m.result]) for m in self.program.made]
        if self._rule is not None:
            self._hang(made, (*arrays, residuals), tensors)
        for tensor, m in zip(made, self.program.made, strict=True):
            if m.place == "leaf":
                tensor._node = Leaf(tensor)
            elif m.place == "freed":
                tensor._node = make_node(_USED_UP, (), FREED)
        return made

    def _hang(self, made: list[Any], saved: tuple[Any, ...], tensors: Sequence[Any]) -> None:
        """Give the tensors that gradients flow to their node."""
        rule = self._rule
        assert rule is not None
        roots = [made[i] for i in self.program.roots]
        node = make_node(rule, tuple(self._edges(tensors)), (*saved, tuple(map(type_of, roots))))
        for k, tensor in enumerate(roots):
            tensor._node = node if len(roots) == 1 else Output(node, k)

    # Gradients

    def _make_rule(self) -> Backward:
        program = self.program
        place = {k: j for j, k in enumerate(program.wrt)}
        slots = [place.get(k) for k in range(len(program.sources))]
        name = self.graph.name.strip("<>") or "compiled"
        return Backward(name, self._backward, (*slots, None, None), len(program.roots))

    def _backward(self, g: Any, saved: tuple[Any, ...], edges: tuple[Any, ...]) -> Sequence[Any]:
        grads = g if isinstance(g, list) else [g]
        inputs, residuals = saved[: len(self.program.sources)], saved[len(self.program.sources)]
        if any(isinstance(x, Tensor) for x in grads):
            return self._backward_on_tensors(grads, inputs)
        derivative = self.program.derivative
        if self._pull is None:
            self._pull = self._build(derivative.backward)
        found: Sequence[Any] = self._pull([*residuals, *[inputs[i] for i in derivative.kept], *grads])
        return found

    def _backward_on_tensors(self, grads: Sequence[Any], inputs: Sequence[Any]) -> Sequence[Any]:
        """The gradients with a graph of their own: the forward graph runs again, on tensors."""
        program = self.program
        given = [x if isinstance(x, Tensor) else wrap(x) for x in inputs]

        def run(*variables: Any) -> list[Any]:
            values = list(given)
            for k, x in zip(program.wrt, variables, strict=True):
                values[k] = x
            results = replay(self.graph, values)
            return [results[program.made[i].result] for i in program.roots]

        _, pull = vjp(run, *[given[k] for k in program.wrt])
        found: Sequence[Any] = pull(list(grads))
        return found

    # Generated functions

    def _function(self, codes: Sequence[Callable[[Any], str]]) -> Callable[[Sequence[Any]], list[Any]]:
        """A function of the tensors among the arguments that gives what expressions give."""
        names = Names(self.program.arguments)
        listed = ", ".join(code(names) for code in codes)
        return names.function("gather", "a", f"[{listed}]")  # type: ignore[no-any-return]

    def _target(self, update: Update) -> Callable[[Sequence[Any]], Any]:
        if update.kind == "slot":
            return lambda tensors: update.target
        if isinstance(update.target, Fixed):  # there are hundreds in a training step: nothing to compile
            held = update.target.held
            return lambda tensors: held
        find = self._function([functools.partial(tensor_code, update.target)])
        return lambda tensors: find(tensors)[0]


def _are_arrays(arrays: Arrays) -> bool:
    return all(type(a) is ndarray for a in arrays)


def _used_up(g: Any, saved: Any, edges: Any) -> Sequence[Any]:
    return ()


_USED_UP = Backward("compiled", _used_up, ())


def _edge(source: Any) -> Callable[[Any], str]:
    return lambda bind: f"{tensor_code(source, bind)}._node"


def _reader(tree: Tree) -> Callable[[list[Any], Sequence[Any]], Any]:
    """A function of the tensors that a call makes and of its arguments that gives the tree."""
    if tree.structure.items == (None,) and isinstance(tree.leaves[0], Item):
        number = tree.leaves[0].number
        return lambda made, a: made[number]
    names = Names()
    leaves = [_leaf_code(leaf, names) for leaf in tree.leaves]
    if tree.structure.items == (None,):
        body = leaves[0]
    else:
        body = f"{names(tree_unflatten)}({names(tree.structure)}, [{', '.join(leaves)}])"
    return names.function("read", "made, a", body)  # type: ignore[no-any-return]


def _leaf_code(leaf: Any, names: Names) -> str:
    if isinstance(leaf, Item):
        return f"made[{leaf.number}]"
    if isinstance(leaf, Plain):
        return f"{names(leaf.value)}.copy()" if leaf.copied else names(leaf.value)
    if isinstance(leaf, Scalar):
        return f"{names(leaf.kind)}(made[{leaf.result}]._data)"
    return tensor_code(leaf, names)


def _apply(update: Update, target: Any, content: Any) -> None:
    """Change something outside."""
    if update.kind == "grad":
        target._grad = content
    elif update.kind == "slot":
        target.apply(content)
    else:
        if not isinstance(content._node, Leaf):
            target._node = content._node
        elif not isinstance(target._node, Leaf):
            target._node = Leaf(target)
        target._data, target._form = content._data, None

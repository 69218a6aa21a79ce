"""Running a program op by op, on tensors that hold something else than arrays, as inside ``vmap``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.concrete import is_concrete
from weft.base.trees import tree_unflatten
from weft.capture.call.running import put_data
from weft.capture.program.aliases import link_view
from weft.capture.program.guards import Names
from weft.capture.program.program import (
    BuiltAt,
    Item,
    Pick,
    Plain,
    Program,
    Scalar,
    Tree,
    fill_object,
    new_object,
)
from weft.capture.program.sources import array_code, tensor_code
from weft.ops.select import select
from weft.tensor.tensor import wrap
from weft.transform.tracing import replay


def replay_program(program: Program, tensors: Sequence[Any]) -> Any:
    """Run a program on the tensors among the arguments of a call, and change what it changes."""
    results = replay(program.graph, input_tensors(program, tensors))
    made = [(results[m.result], m.place) for m in program.made]
    tensors_of = [t if place or t._node is None else t._value() for t, place in made]
    return _Call(program, tensors_of, tensors).leave()


def input_tensors(program: Program, tensors: Sequence[Any]) -> list[Any]:
    """The tensors that are the inputs of a program, in a call on the tensors among its arguments."""
    names = Names(program.arguments)
    pairs = ", ".join(f"({array_code(s, names)}, {tensor_code(s, names)})" for s in program.sources)
    found = names.function("inputs", "a", f"[{pairs}]")(tensors)
    return [wrap(array) if tensor is None else tensor for array, tensor in found]


class _Call:
    """What a call has made, to be put where the program says.

    Args:
        program: of the call.
        made: the tensors that it has made.
        tensors: those among its arguments.
    """

    def __init__(self, program: Program, made: list[Any], tensors: Sequence[Any]) -> None:
        self.program = program
        self.made = made
        self.tensors = tensors
        self.built = [None if b.kind is None else new_object(b.kind) for b in program.built]

    def leave(self) -> Any:
        """Change what the program changes; gives what the function returned."""
        program = self.program
        self._build()
        returned = self._tree(program.returned)
        contents = [self._tree(u.content) for u in program.updates]
        targets = [u.target if u.kind == "slot" else self._leaf(u.target) for u in program.updates]
        for update, target, content in zip(program.updates, targets, contents, strict=True):
            if update.kind == "grad":
                target._grad = content
            elif update.kind == "slot":
                target.apply(content)
            else:
                put_data(target, content)
        for tensor, one in zip(self.made, program.made, strict=True):
            if one.view is not None and not one.view.numbers:
                link_view(tensor, self._leaf(one.view.parent), one.view.steps, ())
            if one.retains and tensor._node is not None:
                tensor.retain_grad()
        return returned

    def _build(self) -> None:
        built = self.program.built
        for k, (kind, content, pick) in enumerate(built):
            if kind is None:
                self.built[k] = self._container(content, pick)
        for k, (kind, content, _) in enumerate(built):
            if kind is not None:
                fill_object(self.built[k], *self._tree(content))

    def _container(self, content: Tree, pick: Any) -> Any:
        truth = None if pick is None else self.made[pick[0].number]._data
        if truth is None or not is_concrete(truth):  # of several: each has what it holds
            return self._tree(content)
        way = pick[1] if truth else pick[2]
        return self._tree(content) if way is None else self._leaf(way)

    def _tree(self, tree: Tree) -> Any:
        return tree_unflatten(tree.structure, [self._leaf(leaf) for leaf in tree.leaves])

    def _leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, Item):
            return self.made[leaf.number]
        if isinstance(leaf, BuiltAt):
            return self.built[leaf.number]
        if isinstance(leaf, Pick):
            truth = self.made[leaf.truth.number]
            one, other = self._leaf(leaf.one), self._leaf(leaf.other)
            return (one if truth._data else other) if is_concrete(truth._data) else select(truth, one, other)
        if isinstance(leaf, Plain):
            return leaf.value.copy() if leaf.copied else leaf.value
        if isinstance(leaf, Scalar):
            return leaf.kind(self.made[leaf.result]._data)
        return self._tensor(leaf)

    def _tensor(self, source: Any) -> Any:
        """The tensor that a source is."""
        names = Names(self.program.arguments)
        return names.function("tensor", "a", tensor_code(source, names))(self.tensors)

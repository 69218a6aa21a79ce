"""Running a program op by op, on tensors that hold something else than arrays, as inside ``vmap``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.concrete import is_concrete
from weft.base.trees import tree_unflatten
from weft.capture.call.running import put_data
from weft.capture.program.aliases import link_view
from weft.capture.program.guards import Names
from weft.capture.program.program import Item, Pick, Plain, Program, Scalar, Tree
from weft.capture.program.sources import array_code, tensor_code
from weft.ops.select import select
from weft.tensor.tensor import wrap
from weft.transform.tracing import replay


def replay_program(program: Program, tensors: Sequence[Any]) -> Any:
    """Run a program on the tensors among the arguments of a call, and change what it changes."""
    results = replay(program.graph, input_tensors(program, tensors))
    made = [(results[m.result], m.place) for m in program.made]
    return _leave(program, [t if place or t._node is None else t._value() for t, place in made], tensors)


def input_tensors(program: Program, tensors: Sequence[Any]) -> list[Any]:
    """The tensors that are the inputs of a program, in a call on the tensors among its arguments."""
    names = Names(program.arguments)
    pairs = ", ".join(f"({array_code(s, names)}, {tensor_code(s, names)})" for s in program.sources)
    found = names.function("inputs", "a", f"[{pairs}]")(tensors)
    return [wrap(array) if tensor is None else tensor for array, tensor in found]


def _leave(program: Program, made: list[Any], tensors: Sequence[Any]) -> Any:
    """Change what the program changes; gives what the function returned."""
    updates = program.updates
    returned = _content(program, program.returned, made, tensors)
    contents = [_content(program, u.content, made, tensors) for u in updates]
    targets = [u.target if u.kind == "slot" else _tensor(program, u.target, tensors) for u in updates]
    for update, target, content in zip(updates, targets, contents, strict=True):
        if update.kind == "grad":
            target._grad = content
        elif update.kind == "slot":
            target.apply(content)
        else:
            put_data(target, content)
    for tensor, one in zip(made, program.made, strict=True):
        if one.view is not None and not one.view.numbers:
            link_view(tensor, _leaf(program, one.view.parent, made, tensors), one.view.steps, ())
        if one.retains and tensor._node is not None:
            tensor.retain_grad()
    return returned


def _content(program: Program, tree: Tree, made: list[Any], tensors: Sequence[Any]) -> Any:
    leaves = [_leaf(program, leaf, made, tensors) for leaf in tree.leaves]
    return tree_unflatten(tree.structure, leaves)


def _leaf(program: Program, leaf: Any, made: list[Any], tensors: Sequence[Any]) -> Any:
    if isinstance(leaf, Item):
        return made[leaf.number]
    if isinstance(leaf, Pick):
        truth = made[leaf.truth.number]
        one, other = (_leaf(program, x, made, tensors) for x in (leaf.one, leaf.other))
        return (one if truth._data else other) if is_concrete(truth._data) else select(truth, one, other)
    if isinstance(leaf, Plain):
        return leaf.value.copy() if leaf.copied else leaf.value
    if isinstance(leaf, Scalar):
        return leaf.kind(made[leaf.result]._data)
    return _tensor(program, leaf, tensors)


def _tensor(program: Program, source: Any, tensors: Sequence[Any]) -> Any:
    """The tensor that a source is."""
    names = Names(program.arguments)
    return names.function("tensor", "a", tensor_code(source, names))(tensors)

"""A graph with all that a call of it needs, as it is in a file, and what it is made of.

Everything that a graph reads and that is no argument is a weight: parameters, the state and the gradients
that a training step goes on from, numbers that were read anew at each call.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from weft.base.frozen import freeze
from weft.base.trees import tree_unflatten
from weft.capture.call.version import Version
from weft.capture.program.arguments import signature_of
from weft.capture.program.call_keys import CallKey, Same, TensorKey
from weft.capture.program.program import BuiltAt, Item, Pick, Plain, Program, Scalar, Tree
from weft.capture.program.slots import PathSlot, PythonSlot, parts_of
from weft.capture.program.sources import Argument, Dynamic, Fixed, Gradient, InSlot, Source, State
from weft.capture.static.block import generators, parameters
from weft.capture.static.session import current_array
from weft.errors import ArgumentError
from weft.io.layout import Array
from weft.io.parts import Parted, parted_structure
from weft.io.trees import Mark
from weft.ir.graph import Graph, Value
from weft.passes.dce import dce
from weft.tensor.generator import CURRENT, default_generator
from weft.tensor.tensor import wrap

_HINT = "save a function of tensors, numbers and strings"


class Saved(NamedTuple):
    """What a graph file holds. In its trees marks stand for what a call gives and takes.

    Attributes:
        graph: whose outputs are those that ``returned`` uses.
        sources: for each input of the graph ``input`` with the number of a tensor among the arguments,
            ``weight`` with a name, or ``generator`` with a state, or "global".
        weights: arrays by name.
        signature: how it is called.
        arguments: by parameter, the tree it was captured with: ``input`` for a tensor, ``float_input`` for a
            number that may differ; sparse and ragged tensors are ``Parted``; anything else is as it was.
        returned: a tree of ``output``, ``number`` (an output that is a Python number), ``input``, ``weight``.
    """

    graph: Graph
    sources: tuple[Mark, ...]
    weights: dict[str, Array]
    signature: inspect.Signature
    arguments: dict[str, Any]
    returned: Any


# From a captured function


def saved_version(function: Callable[..., Any], version: Version) -> Saved:
    """What is to be saved of a version of a function."""
    program = version.program
    _check_updates(program)
    weights = _Weights()
    sources = [weights.mark(s, v.name) for v, s in zip(program.graph.inputs, program.sources, strict=True)]
    outputs: dict[Value, int] = {}
    returned = _plain(_returned_tree(program.returned, program, outputs, weights))
    graph = dce(_with_state(program).replace(outputs=tuple(outputs)))
    graph, sources = _without_unused(graph, sources)
    signature, arguments = _captured_arguments(function, version.key)
    return Saved(graph, tuple(sources), weights.arrays, signature, arguments, returned)


def _check_updates(program: Program) -> None:
    """Raise if a call changes a tensor that it reads into one of another type, which a graph cannot say."""
    changed = {old for old, _ in program.graph.updates}
    by_source = dict(zip(program.sources, program.graph.inputs, strict=True))
    for update in program.updates:
        value = by_source.get(update.target) if update.kind == "data" else None
        if value is not None and value not in changed:
            raise ArgumentError("save", f"state must keep its type, got {value} that becomes another")


def _with_state(program: Program) -> Graph:
    """The graph of a program, whose updates tell of numbers and trees of tensors in Python, too.

    What a call changes is state there, be it an argument.
    """
    new = dict(_replaced(program))
    graph = program.graph
    updates = (*graph.updates, *new.items())
    changed = {old for old, _ in updates}
    roles = ["state" if v in changed else role for v, role in zip(graph.inputs, graph.roles, strict=True)]
    return graph.replace(roles=roles, updates=updates) if changed else graph


def _replaced(program: Program) -> Iterator[tuple[Value, Value]]:
    """Numbers and trees of tensors that calls replace, in which each part that is read gets a new value."""
    read = {_place(s): v for v, s in zip(program.graph.inputs, program.sources, strict=True)}
    known = {old for old, _ in program.graph.updates}
    for update in program.updates:
        if update.kind != "slot" or not isinstance(update.target, PythonSlot):
            continue
        leaves = list(update.content.leaves)
        tree = tree_unflatten(update.content.structure, list(range(len(leaves))))
        new = {PathSlot(update.target, path).key: leaves[i] for path, i in parts_of(tree) if type(i) is int}
        for key, old in read.items():
            if key is None or key[1] != update.target.key or old in known:
                continue
            leaf = new.get(key)
            value = _made_of(leaf, program) if isinstance(leaf, Item | Scalar) else None
            if value is None or value.type != old.type:
                what = update.target.describe()
                raise ArgumentError("save", f"state must keep its type, got {what}, which becomes another")
            yield old, value


def _place(source: Source) -> tuple[Any, ...] | None:
    """The place in Python that a number or a part of a tree is read from, as the key of a ``PathSlot``."""
    if isinstance(source, InSlot) and isinstance(source.slot, PathSlot):
        return source.slot.key
    slot = getattr(source.function, "__self__", None) if isinstance(source, Dynamic) else None
    return PathSlot(slot, ()).key if isinstance(slot, PythonSlot) else None


class _Weights:
    """Gives what a graph reads from outside names, and holds the arrays."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self._marks: dict[Source, Mark] = {}

    def mark(self, source: Source, name: str) -> Mark:
        """The mark of a source."""
        if isinstance(source, Argument):
            return Mark("input", source.number)
        if source not in self._marks:
            self._marks[source] = self._new_mark(source, name or "weight")
        return self._marks[source]

    def _new_mark(self, source: Source, name: str) -> Mark:
        if isinstance(source, State):
            own = source.generator not in (CURRENT, default_generator)
            return Mark("generator", [int(n) for n in source.generator._state_array()] if own else "global")
        return Mark("weight", self.add(name, _array(source)))

    def add(self, name: str, array: Array) -> str:
        """Hold an array; gives its name."""
        own, number = name, 1
        while own in self.arrays:
            number += 1
            own = f"{name}~{number}"
        self.arrays[own] = _on_host(array)
        return own


def _array(source: Source) -> Array:
    """What a source gives now."""
    match source:
        case Dynamic():
            array: Array = source.read()
            return array
        case Fixed(held):
            return current_array(held)
        case Gradient(Fixed(held)):
            return current_array(held.grad)
        case InSlot(slot):
            return current_array(slot.get())
        case _:
            raise ArgumentError("save", "gradients of arguments must not be read", hint=_HINT)


def _made_of(leaf: Item | Scalar, program: Program) -> Value:
    """The value that a call makes a tensor or a number of."""
    number = leaf.number if isinstance(leaf, Item) else leaf.result
    return program.graph.results[program.made[number].result]


def _returned_tree(tree: Tree, program: Program, outputs: dict[Value, int], weights: _Weights) -> Any:
    leaves = [_returned(leaf, program, outputs, weights) for leaf in tree.leaves]
    return tree_unflatten(parted_structure(tree.structure), leaves)


def _returned(leaf: Any, program: Program, outputs: dict[Value, int], weights: _Weights) -> Any:
    if isinstance(leaf, BuiltAt):  # in a file, what is in two places is there twice
        kind, tree, _ = program.built[leaf.number]
        if kind is not None:
            raise ArgumentError(
                "save", f"results must be trees of tensors, got a {kind.__name__}", hint=_HINT
            )
        return _returned_tree(tree, program, outputs, weights)
    if isinstance(leaf, Plain):
        return leaf.value
    leaf = leaf.value if isinstance(leaf, Pick) else leaf
    if isinstance(leaf, Item | Scalar):
        value = _made_of(leaf, program)
        place = outputs.setdefault(value, len(outputs))
        return (
            Mark("output", place) if isinstance(leaf, Item) else Mark("number", [place, leaf.kind.__name__])
        )
    return weights.mark(leaf, "returned")


def _plain(x: Any) -> Any:
    """A tree of dicts, lists and tuples alone: a reader of the file need not have the user's classes."""
    if isinstance(x, Mark):
        return x
    if isinstance(x, Parted):
        return Parted(x.kind, tuple(map(_plain, x.tensors)), x.rest)
    if isinstance(x, tuple | list):
        items = [_plain(item) for item in x]
        return items if isinstance(x, list) else tuple(items)
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return {f.name: _plain(getattr(x, f.name)) for f in dataclasses.fields(x)}
    return {k: _plain(v) for k, v in x.items()} if isinstance(x, dict) else x


def _without_unused(graph: Graph, sources: list[Mark]) -> tuple[Graph, list[Mark]]:
    """The graph without inputs that nothing needs any more; arguments stay."""
    used = {v for node in graph.nodes for v in node.inputs}.union(graph.results)
    used |= {old for old, _ in graph.updates}
    kept = [i for i, v in enumerate(graph.inputs) if v in used or sources[i].word == "input"]
    inputs, roles = [graph.inputs[i] for i in kept], [graph.roles[i] for i in kept]
    return graph.replace(inputs=inputs, roles=roles), [sources[i] for i in kept]


def _captured_arguments(
    function: Callable[..., Any], key: CallKey
) -> tuple[inspect.Signature, dict[str, Any]]:
    """How a function is called, and with which tree it was captured."""
    args, kwargs = tree_unflatten(parted_structure(key.shape.structure), _argument_leaves(key.leaves))
    signature = signature_of(function)
    if signature is None:
        kinds = inspect.Parameter
        signature = inspect.Signature(
            [kinds(f"x{i}", kinds.POSITIONAL_ONLY) for i in range(len(args))]
            + [kinds(name, kinds.KEYWORD_ONLY) for name in kwargs]
        )
    return signature, dict(signature.bind(*args, **kwargs).arguments)


def _argument_leaves(parts: tuple[Any, ...]) -> list[Any]:
    """What stands for each leaf of the arguments; floats that are inputs come after all tensors."""
    tensors, floats = count(), count(sum(isinstance(part, TensorKey) for part in parts))
    leaves: list[Any] = []
    for part in parts:
        if isinstance(part, TensorKey):
            leaves.append(Mark("input", next(tensors)))
        elif type(part) is int:  # a tensor that came before
            leaves.append(Mark("input", part))
        else:
            leaves.append(Mark("float_input", next(floats)) if part is float else _value(part))
    return leaves


def _value(part: Any) -> Any:
    """The plain argument that a key stands for."""
    if isinstance(part, Same):
        raise ArgumentError(
            "save", f"arguments must be tensors or plain values, got {part.obj!r}", hint=_HINT
        )
    kind, *rest = part
    if kind is float:
        return rest[0] if len(rest) == 1 else 0.0 * rest[0] if rest[1] else float("nan")
    if kind is complex:
        return complex(_value(rest[0]), _value(rest[1]))
    return np.frombuffer(rest[0], kind)[0] if issubclass(kind, np.generic) else rest[0]


# From a graph


def saved_graph(graph: Graph) -> Saved:
    """What is to be saved of a graph; it is called with its arguments, by position or name."""
    weights = _Weights()
    sources: list[Mark] = []
    names: list[str] = []
    for value, role in zip(graph.inputs, graph.roles, strict=True):
        if value in parameters:
            sources.append(
                Mark("weight", weights.add(value.name or "weight", current_array(parameters[value])))
            )
        elif value in generators:
            sources.append(weights.mark(State(generators[value]), ""))
        elif role == "arg":
            sources.append(Mark("input", len(names)))
            names.append(value.name)
        else:
            hint = "save it where it was captured"
            raise ArgumentError(
                "save_graph", f"all parameters must have data, got none for {value}", hint=hint
            )
    results = [Mark("output", i) for i in range(len(graph.outputs))]
    returned = results[0] if len(results) == 1 else tuple(results)
    signature = _signature_of_names(names)
    arguments = {name: Mark("input", i) for i, name in enumerate(signature.parameters)}
    return Saved(graph, tuple(sources), weights.arrays, signature, arguments, returned)


def _signature_of_names(names: list[str]) -> inspect.Signature:
    kinds = inspect.Parameter
    if len(set(names)) == len(names) and all(name.isidentifier() for name in names):
        return inspect.Signature([kinds(name, kinds.POSITIONAL_OR_KEYWORD) for name in names])
    return inspect.Signature([kinds(f"x{i}", kinds.POSITIONAL_ONLY) for i in range(len(names))])


def names_given(saved: Saved) -> dict[int, str]:
    """By number of an argument its name in the graph, where Python has no parameter of that name: "0"."""
    pairs = zip(saved.sources, saved.graph.inputs, strict=True)
    named = sorted((mark.value, value.name) for mark, value in pairs if mark.word == "input")
    names = [name for _, name in named]
    made_up = saved.signature == _signature_of_names(names) and all(names) and len(set(names)) == len(names)
    return dict(enumerate(names)) if made_up else {}


def with_weights(saved: Saved, weights: Mapping[str, Any]) -> Saved:
    """The same with the data that tensors hold now."""
    return saved._replace(weights={name: _on_host(current_array(t)) for name, t in weights.items()})


def _on_host(array: Any) -> Array:
    """An array for a file, wherever its elements are."""
    return array if isinstance(array, np.ndarray) else array.to_host()


def tensors_of(saved: Saved) -> dict[str, Any]:
    """A tensor for each weight."""
    return {name: wrap(array) for name, array in saved.weights.items()}


def freeze_weights(saved: Saved) -> None:
    """Make the arrays of weights read-only that the graph does not change: what is computed of them stays.

    They are those of a file, which nobody else has. State gets memory of its own, which runs may write over.
    """
    changed = {old for old, _ in saved.graph.updates}
    pairs = list(zip(saved.sources, saved.graph.inputs, strict=True))
    state = {mark.value for mark, value in pairs if mark.word == "weight" and value in changed}
    for name, array in list(saved.weights.items()):
        if name not in state:
            freeze(array)
        elif array.flags.writeable:
            saved.weights[name] = array.copy()

"""Calls of a graph that was loaded: the program it becomes, and the tensors among the arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.backends import builder
from weft.base.concrete import is_concrete
from weft.base.device import CPU
from weft.base.dtypes import kind
from weft.base.sizes import Size, bind, solve
from weft.base.trees import flatten_like, tree_flatten, tree_map
from weft.capture.call.version import Version
from weft.capture.program.arguments import readable
from weft.capture.program.guards import StandIn, same
from weft.capture.program.program import Content, Item, Made, Plain, Program, Scalar, Tree, Update
from weft.capture.program.slots import GeneratorSlot
from weft.capture.program.sources import Argument, Fixed, Source, State
from weft.errors import ArgumentError, DtypeError, ShapeError, WeftError
from weft.io.parts import taken_apart, whole_structure
from weft.io.saved import Saved, tensors_of
from weft.io.trees import Mark
from weft.ir.types import TensorType
from weft.ops.op import type_of
from weft.passes.pipeline import optimize
from weft.tensor.alias import check_ways_up
from weft.tensor.convert import from_ndarray
from weft.tensor.creation import asarray
from weft.tensor.dispatch import recording
from weft.tensor.generator import CURRENT, Generator
from weft.tensor.mode import thread
from weft.tensor.moving import move
from weft.tensor.tensor import Tensor, wrap

_LEAF = tree_flatten(0)[1]
_NUMBERS = {"float": float, "int": int, "bool": bool, "complex": complex}


def program_of(saved: Saved, weights: Mapping[str, Any]) -> Program:
    """The program of a graph, whose weights are in tensors."""
    graph = saved.graph
    held: dict[str, Source] = {name: Fixed(tensor) for name, tensor in weights.items()}
    sources = tuple(_source(mark, held) for mark in saved.sources)
    count = len(graph.outputs)  # gradients flow to outputs where ops run one by one, and not to state
    made = [Made(i, "graph" if i < count else "") for i in range(len(graph.results))]
    by_value = dict(zip(graph.inputs, sources, strict=True))
    updates = [_update(by_value[old], count + i) for i, (old, _) in enumerate(graph.updates)]
    leaves, structure = tree_flatten(saved.returned, is_leaf=lambda x: isinstance(x, Mark))
    returned = Tree(whole_structure(structure), tuple(_content(leaf, held) for leaf in leaves))
    arguments = tuple(StandIn(mark.value) for mark in saved.sources if mark.word == "input")
    return Program(graph, sources, returned, tuple(made), tuple(updates), (), (), arguments)


def _source(mark: Mark, held: Mapping[str, Source]) -> Source:
    if mark.word == "input":
        return Argument(mark.value)
    if mark.word == "weight":
        return held[mark.value]
    if mark.value == "global":
        return State(CURRENT)
    generator = Generator()
    generator._set_state_array(np.array(mark.value, np.uint64))
    return State(generator)


def _update(source: Source, result: int) -> Update:
    content = Tree(_LEAF, (Item(result),))
    if isinstance(source, State):
        return Update("slot", GeneratorSlot(source.generator, {}), content)
    return Update("data", source, content)


def _content(leaf: Any, held: Mapping[str, Source]) -> Content:
    if not isinstance(leaf, Mark):
        return Plain(leaf)
    if leaf.word == "output":
        return Item(leaf.value)
    if leaf.word == "number":
        return Scalar(leaf.value[0], _NUMBERS[leaf.value[1]])
    return Argument(leaf.value) if leaf.word == "input" else held[leaf.value]  # type: ignore[return-value]


class Binder:
    """Finds the tensors among the arguments of a call, and checks that the graph is one for them."""

    def __init__(self, name: str, saved: Saved) -> None:
        self.name = name
        self.signature = saved.signature
        self.arguments = saved.arguments
        self.leaves, self.structure = tree_flatten(saved.arguments, is_leaf=lambda x: isinstance(x, Mark))
        self.labels = [readable(path).removeprefix(".") for path in self.structure.paths()]
        marks = zip(saved.sources, saved.graph.inputs, strict=True)
        self.types = {mark.value: value.type for mark, value in marks if mark.word == "input"}
        self.plans = {number: _plan(kind.shape) for number, kind in self.types.items()}
        parameters = saved.signature.parameters.values()
        positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        plain = all(isinstance(x, Mark) for x in saved.arguments.values())
        self.is_plain = plain and list(saved.arguments) == positional[: len(self.leaves)]

    def tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The tensors in the order of the graph's arguments."""
        if self.is_plain and not kwargs and len(args) == len(self.leaves):
            given: Sequence[Any] = args
        else:
            given = self._bound(args, kwargs)
        found: dict[int, Any] = {}
        sizes: dict[str, int] = {}
        for leaf, value, label in zip(self.leaves, given, self.labels, strict=True):
            if not isinstance(leaf, Mark):
                self._check_same(label, leaf, value)
                continue
            tensor = self._tensor(leaf, label, value, sizes)
            if found.setdefault(leaf.value, tensor) is not tensor:
                raise ArgumentError(self.name, f"{label} must be a tensor given before, got another one")
        return [found[i] for i in sorted(found)]

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        try:
            given = dict(self.signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            hint = f"it is called as {self.name}{self.signature}"
            raise ArgumentError(self.name, str(error), hint=hint) from None
        for name in [*given, *self.arguments]:
            default = self.signature.parameters[name].default
            if name not in self.arguments:
                self._check_same(name, default, given.pop(name))
            elif name not in given:
                given[name] = default
        ordered = {name: given[name] for name in self.arguments}
        return flatten_like(self.name, self.structure, taken_apart(ordered))

    def _check_same(self, label: str, saved: Any, given: Any) -> None:
        if not same(saved, given):
            hint = "plain values are part of a saved graph; save another one with this value"
            raise ArgumentError(self.name, f"{label} must be {saved!r}, got {given!r}", hint=hint)

    def _tensor(self, mark: Mark, label: str, value: Any, sizes: dict[str, int]) -> Any:
        wanted = self.types[mark.value]
        if mark.word == "float_input":
            if type(value) is not float:
                raise ArgumentError(self.name, f"{label} must be a float, got {type(value).__name__}")
            return wrap(np.asarray(value, np.float64))
        tensor = value if isinstance(value, Tensor) else self._converted(label, value, wanted)
        if tensor.dtype != wanted.dtype:
            hint = f"cast it with .astype(weft.{wanted.dtype.name})"
            message = f"{label} must be {wanted.dtype.name}, got {tensor.dtype.name}"
            raise DtypeError(self.name, message, hint=hint)
        self._check_shape(label, mark.value, tensor, sizes)
        return tensor

    def _converted(self, label: str, value: Any, wanted: TensorType) -> Any:
        """An array, or nested lists of numbers, as a tensor."""
        try:
            if isinstance(value, np.ndarray):
                return wrap(from_ndarray(self.name, value, None, None))
            if kind(wanted.dtype) in "iub" and isinstance(value, float):
                raise ArgumentError(self.name, "a float")
            return asarray(value, dtype=wanted.dtype)
        except WeftError:
            got = type(value).__name__
            raise ArgumentError(self.name, f"{label} must be a tensor {wanted}, got {got}") from None

    def _check_shape(self, label: str, number: int, tensor: Any, sizes: dict[str, int]) -> None:
        plan, shape = self.plans[number], tensor.shape
        fits = len(plan) == len(shape)
        for size, actual in zip(plan, shape, strict=False):
            if type(size) is str:
                fits = fits and sizes.setdefault(size, actual) == actual
            elif size != actual:
                fits = fits and _solves(size, actual, sizes)
        if not fits:
            told = ", ".join(f"{name}={size}" for name, size in sizes.items())
            where = f", where {told}" if told else ""
            message = f"{label} must be {self.types[number]}, got {type_of(tensor)}{where}"
            example = 'weft.TensorType(("batch", 3), weft.float32) as an example'
            hint = f"{example} leaves a size open when saving, and so do calls with other sizes before it"
            raise ShapeError(self.name, message, hint=None if told else hint)


def _plan(shape: Sequence[Any]) -> tuple[Any, ...]:
    """A shape in which open sizes are their names, where they are no more than a name."""
    return tuple(str(s) if isinstance(s, Size) and str(s).isidentifier() else s for s in shape)


def _solves(size: Any, actual: Any, sizes: dict[str, int]) -> bool:
    """Whether a size such as 2*n can be this number, with the names that are known."""
    known = bind(size, sizes)
    try:
        if isinstance(known, Size) and isinstance(actual, int):
            solve(known, actual, sizes)
    except ShapeError:
        return False
    return bool(bind(size, sizes) == actual)


def marks_in(tree: Any) -> list[Mark]:
    """The marks of a tree."""
    found: list[Mark] = []
    tree_map(found.append, tree, is_leaf=lambda x: isinstance(x, Mark))
    return [mark for mark in found if isinstance(mark, Mark)]


# A graph with all that compiles it and finds out what is wrong with a call


class Opened:
    """A graph that is compiled at its first call.

    Attributes:
        saved: what the file holds.
        weights: a tensor for each weight.
        binder: finds the tensors among the arguments of a call.
        version: what runs it; None before the first call.
        device: where it runs: arguments are moved there.
    """

    def __init__(self, saved: Saved, backend: Any = None, weights: dict[str, Any] | None = None) -> None:
        self.saved = saved
        build = builder("load_graph", backend, hints={"keep": True})
        self._build = lambda graph: build(optimize(graph))
        self.weights: dict[str, Tensor] = tensors_of(saved) if weights is None else weights
        self.binder = Binder(saved.graph.name, saved)
        self._program = program_of(saved, self.weights)
        targets = [u.target for u in self._program.updates if u.kind == "data"]
        self._changed = [t.number for t in targets if isinstance(t, Argument)]
        self.version: Version | None = None
        self.device = CPU

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a call gives."""
        tensors = self.binder.tensors(args, kwargs)
        for i in self._changed:
            check_ways_up(tensors[i], self.binder.name)
        if self.device is not CPU:
            tensors = [move(x, self.device) for x in tensors]
        if self.version is None:
            self.version = Version(self._program, self._build)
        read, taped = (*tensors, *self.weights.values()), recording()
        followed = any(not is_concrete(x._data) or (x._node is not None and taped) for x in read)
        if thread.capture is not None or followed:  # by the tape, or a transform
            return self.version.replay(tensors)
        return self.version(tensors)

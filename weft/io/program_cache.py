"""Graphs from files that were compiled on this machine before: run without their text and without a compiler.

A program is kept under everything that it depends on: the text of the graph and of how it is called, the
types of all arrays, the values of its constants, weft, the processor. That a program is found means that such
a file was read and checked before. Weights are read at each call, and are in no program. Only simple graphs
are kept: tensors by position go in, a tree of tensors comes out, nothing is changed. A call that is not so is
a ``MISS``: all of the graph is then read, and it is compiled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.backends import Chosen, Executable, find_backend
from weft.base.frozen import freeze
from weft.io.layout import Contents, Reading
from weft.tensor.dispatch import recording
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor, wrap

if TYPE_CHECKING:
    from weft.backends.capabilities import Key, Note, ProgramStore, Shapes, StoredProgram
    from weft.io.calls import Opened
    from weft.io.saved import Saved

MISS = object()
_MOST = 64  # shapes of a graph with named sizes that are kept


class CachedProgram:
    """The compiled program of a graph on disk, or the place for it after the first call.

    Attributes:
        key: that it is kept under.
        program: the machine code; None if there is none yet.
        weights: a tensor for each weight, if there is a program.
        name: of the graph, if there is a program.
    """

    def __init__(self, store: ProgramStore, key: Key) -> None:
        self.key = key
        self.program: StoredProgram | None = store.find(key)
        self._store = store
        self.weights: dict[str, Tensor] = {}
        self.name = ""
        self._arrays: Mapping[str, Any] = {}
        self._known: set[Shapes] = set()

    def prepare(self, contents: Contents) -> bool:
        """Have at hand what calls need of the file; whether there is a program."""
        self._arrays = contents.arrays
        if self.program is None:
            return False
        program = self.program
        note = program.note
        self.name, self._count, self._returned = note["name"], note["arguments"], note["returned"]
        self.weights = {name: wrap(freeze(self._arrays[array])) for name, array in note["weights"].items()}
        sources = list(enumerate(note["sources"]))
        self._fixed = [(i, self.weights[name]) for i, name in sources if type(name) is str]
        self._given = [(i, number) for i, number in sources if type(number) is int]
        self._blank: list[Any] = [None] * len(sources)
        self._plans = {tuple(shapes[i] for i, _ in self._given): p for shapes, p in program.plans.items()}
        self._known = set(program.plans)
        return True

    def call(self, args: tuple[Any, ...]) -> Any:
        """What a call gives, or MISS."""
        program = self.program
        if program is None or len(args) != self._count or thread.capture is not None:
            return MISS
        follows = recording()
        arrays = self._blank.copy()
        for i, number in self._given:
            x = args[number]
            if isinstance(x, Tensor):
                if x._node is not None and follows:
                    return MISS
                x = x._data
            if type(x) is not np.ndarray:
                return MISS
            arrays[i] = x
        for i, tensor in self._fixed:
            if tensor._node is not None and follows:
                return MISS
            arrays[i] = tensor._data
        plan = self._plans.get(tuple([arrays[i].shape for i, _ in self._given]))
        results = None if plan is None else program.run(arrays, plan)
        return MISS if results is None else _tree(self._returned, results)

    def keep(self, opened: Opened) -> None:
        """Have the program of a call that was compiled here kept, with its shapes."""
        version = opened.version
        run = None if version is None else version.run
        if not isinstance(run, Executable):
            return
        shapes = self._store.shapes(run)
        if self._known.issuperset(shapes) or len(self._known) >= _MOST:
            return
        self._known.update(shapes)
        note = _note(opened.saved, self._arrays)
        if note is not None:
            self._store.keep(self.key, run, note, self.program)


def find_cached(reading: Reading, backend: Chosen | None) -> CachedProgram | None:
    """The program of the graph of a file that is being read; None where none is kept."""
    store = find_backend(backend).programs if reading.kind == "graph" else None
    if store is None or store.key(()) is None:
        return None
    parts = _key(reading, store)
    key = None if parts is None else store.key(parts)
    return None if key is None else CachedProgram(store, key)


def _key(reading: Reading, store: ProgramStore) -> Key | None:
    """What a program depends on in a file; None if the file is not as weft writes it."""
    with suppress(KeyError, TypeError, ValueError, AttributeError, RecursionError):
        graph, program = reading.metadata["weft.graph"], reading.metadata["weft.program"]
        types = [f"{name!r} {dtype.name} {shape}" for name, (dtype, shape) in sorted(reading.types.items())]
        notes = json.loads(program)["constants"].values()
        arrays = reading.contents().arrays if notes else {}
        values = [store.digest(_bytes(arrays[note.get("data", note["array"])])) for note in notes]
        return (graph, program, "\n".join(types), *values)
    return None


def _bytes(array: Any) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


# Which graphs are simple


def _note(saved: Saved, arrays: Mapping[str, Any]) -> Note | None:
    """What a call of a graph needs besides its program, as JSON; None if the graph is not a simple one."""
    words = {mark.word for mark in saved.sources}
    arguments = list(saved.arguments.values())
    places = [getattr(mark, "word", "") for mark in arguments]
    if saved.graph.updates or not words <= {"input", "weight"} or set(places) - {"input"}:
        return None
    parameters = list(saved.signature.parameters.values())[: len(arguments)]
    positional = all(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    if not positional or [p.name for p in parameters] != list(saved.arguments):
        return None
    numbers = [mark.value for mark in arguments]
    if numbers != list(range(len(numbers))):  # one tensor given twice, or another order
        return None
    names = {id(array): name for name, array in arrays.items()}
    try:
        return {
            "name": saved.graph.name,
            "arguments": len(numbers),
            "sources": [mark.value for mark in saved.sources],
            "weights": {name: names[id(array)] for name, array in saved.weights.items()},
            "returned": _described(saved.returned),
        }
    except (KeyError, ValueError):  # a weight that is no array of the file as it is; another result
        return None


def _described(tree: Any) -> Any:
    """A tree of outputs as JSON: a number for an output, a list whose first item tells a container."""
    from weft.io.trees import Mark

    if isinstance(tree, Mark):
        if tree.word != "output":
            raise ValueError(tree.word)
        return tree.value
    if type(tree) in (list, tuple):
        return [type(tree).__name__, *map(_described, tree)]
    if type(tree) is dict and all(type(name) is str for name in tree):
        return ["dict", *[[name, _described(part)] for name, part in tree.items()]]
    if tree is None:
        return None
    raise ValueError(type(tree).__name__)


def _tree(described: Any, results: Sequence[Any]) -> Any:
    """The tree of results that is described so."""
    if type(described) is int:
        return wrap(results[described])
    if described is None:
        return None
    kind, *parts = described
    if kind == "dict":
        return {name: _tree(part, results) for name, part in parts}
    items = [_tree(part, results) for part in parts]
    return items if kind == "list" else tuple(items)

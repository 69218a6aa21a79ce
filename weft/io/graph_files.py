"""The lines of the user's source that nodes of a graph come from; graph files, written, and read and checked.

Errors of a loaded graph, its picture and its profile show these lines where the source does not exist. Of a
source file there are its name and the lines that nodes name: none of its folders, and no other line. When a
file is read, each part and how they fit is checked before any is used.
"""

from __future__ import annotations

import inspect
import json
import linecache
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, overload

import numpy as np

from weft.errors import ArgumentError, FileError, WeftError
from weft.io.calls import marks_in
from weft.io.layout import Array, Contents, Problem, parse_json, write_file
from weft.io.saved import Saved
from weft.io.trees import Decoder, Encoder, Mark
from weft.ir.graph import Graph
from weft.ir.parse import parse_graph
from weft.ir.types import TensorType

Lines = dict[int, str]

_LONGEST = 1_000_000  # no source file has more lines; a file that says so gets no long list
_NAME = re.compile(r"<source [0-9a-f]{8}>/[^/\\]*")
_WRONG = "the lines of its source must be text by number and file, got others"


def used_lines(graph: Graph) -> dict[str, Lines]:
    """By file the lines that nodes come from, as far as they can be read."""
    found: dict[str, Lines] = {}
    for node in graph.walk():
        if node.location is not None:
            file, line = node.location.place
            found.setdefault(file, {})[line] = linecache.getline(file, line).rstrip()
    return {file: dict(sorted(lines.items())) for file, lines in found.items()}


def kept_name(file: str, lines: Lines) -> str:
    """What a source file is called in a file of ours; two of the same name are told apart by their lines."""
    if _NAME.fullmatch(file):
        return file
    name = os.path.basename(file)
    return f"<source {zlib.crc32(json.dumps([name, lines]).encode()):08x}>/{name}"


def write_lines(found: Mapping[str, Lines]) -> str:
    """Lines by file as they are in a file; those that could not be read are left out."""
    kept = {file: {n: text for n, text in lines.items() if text} for file, lines in found.items()}
    return json.dumps(kept, separators=(",", ":"), ensure_ascii=False)


def read_lines(text: str, problem: Problem) -> None:
    """Have errors and pictures find the lines of a file, under names that no other source has."""
    found = parse_json(text, "the lines of its source", problem)
    if not isinstance(found, dict) or not all(isinstance(lines, dict) for lines in found.values()):
        raise problem(_WRONG)
    for file, lines in found.items():
        if not _NAME.fullmatch(file) or not all(map(_is_line, lines.items())):
            raise problem(_WRONG)
        kept = _Lines({int(number): text for number, text in lines.items()})
        linecache.cache[file] = (0, None, kept, file)  # type: ignore[assignment]  # it asks for any sequence


def _is_line(item: tuple[str, Any]) -> bool:
    number, text = item
    known = number.isascii() and number.isdigit() and len(number) < 8 and 0 < int(number) <= _LONGEST
    return known and isinstance(text, str) and "\n" not in text


class _Lines(Sequence[str]):
    """The lines of a source file, of which only some are known; the others are empty."""

    def __init__(self, known: Lines) -> None:
        self._known = known

    def __len__(self) -> int:
        return max(self._known, default=0)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self._known.get(index % len(self) + 1, "") + "\n"


# Writing


def write_saved(saved: Saved, path: str) -> None:
    """Write what a graph file holds."""
    encoder = Encoder("save")
    constants = saved.graph.constant_data(expand=True)
    described = {
        "parameters": [_parameter(p) for p in saved.signature.parameters.values()],
        "arguments": saved.arguments,
        "returned": saved.returned,
        "sources": list(saved.sources),
        "weights": saved.weights,
        "constants": {f"constant.{name}": array for name, array in constants.items()},
    }
    described["weights"] = encoder.encode(described["weights"])["dict"]
    described["constants"] = encoder.encode(described["constants"])["dict"]
    for name in ("parameters", "arguments", "returned", "sources"):
        described[name] = encoder.encode(described[name], name)
    lines = used_lines(saved.graph)
    names = {file: kept_name(file, found) for file, found in lines.items()}
    metadata = {
        "weft.graph": saved.graph.to_text(expand=True, names=names),
        "weft.program": json.dumps(described, separators=(",", ":")),
        "weft.source": write_lines({names[file]: found for file, found in lines.items()}),
    }
    write_file(path, encoder.arrays, "graph", metadata)


def _parameter(p: inspect.Parameter) -> list[Any]:
    """A parameter; of a default that cannot be written only that there is one."""
    if p.default is p.empty:
        return [p.name, p.kind.name]
    try:
        Encoder("save").encode(p.default)
    except ArgumentError:
        return [p.name, p.kind.name, None]
    return [p.name, p.kind.name, p.default]


# Reading

_NAMES = "POSITIONAL_ONLY POSITIONAL_OR_KEYWORD VAR_POSITIONAL KEYWORD_ONLY VAR_KEYWORD"
_KINDS = {name: getattr(inspect.Parameter, name) for name in _NAMES.split()}
_WORDS = ("input", "float_input", "output", "number", "weight", "generator")


def read_saved(contents: Contents, problem: Problem) -> Saved:
    """What a file holds, each part checked."""
    arrays, metadata, kind = contents
    if kind != "graph" or not metadata.keys() >= {"weft.graph", "weft.program"}:
        hint = "load it with weft.load"
        raise problem(f"the file must hold a graph, got {f'a {kind}' if kind else 'only tensors'}", hint)
    found = parse_json(metadata["weft.program"], "the description of the program", problem)
    names = {"parameters", "arguments", "returned", "sources", "weights", "constants"}
    if not isinstance(found, dict) or found.keys() != names:
        raise problem(f"the description of the program must have {', '.join(sorted(names))}, got others")
    decoder = Decoder(arrays, problem, {word: partial(Mark, word) for word in _WORDS})
    data = {name: _arrays(found[name], arrays, problem) for name in ("weights", "constants")}
    constants = {name.removeprefix("constant."): array for name, array in data["constants"].items()}
    if "weft.source" in metadata:
        read_lines(metadata["weft.source"], problem)
    try:
        graph = parse_graph(metadata["weft.graph"], constants)
    except WeftError as error:
        raise problem(f"the graph must be one that weft writes, got an error: {error.message}") from error
    try:
        saved = Saved(
            graph=graph,
            sources=tuple(decoder.decode(found["sources"])),
            weights=data["weights"],
            signature=_signature(decoder.decode(found["parameters"])),
            arguments=decoder.decode(found["arguments"]),
            returned=decoder.decode(found["returned"]),
        )
        _check(saved)
    except FileError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        message = f"the description of the program must fit its graph, got one that does not ({error})"
        raise problem(message) from None
    return saved


def _arrays(found: Any, arrays: Mapping[str, Array], problem: Problem) -> dict[str, Array]:
    decoder = Decoder(arrays, problem)
    if not isinstance(found, dict):
        raise problem("weights and constants must be arrays by name, got others")
    out = {name: decoder.decode(note) for name, note in found.items()}
    if not all(isinstance(array, np.ndarray) for array in out.values()):
        raise problem("weights and constants must be arrays, got others")
    return out


def _signature(parameters: Any) -> inspect.Signature:
    return inspect.Signature(
        [
            inspect.Parameter(name, _KINDS[kind], default=rest[0] if rest else inspect.Parameter.empty)
            for name, kind, *rest in parameters
        ]
    )


def _check(saved: Saved) -> None:
    """Raise a ValueError unless all parts of what a file holds fit each other."""
    graph, inputs = saved.graph, [m.value for m in saved.sources if m.word == "input"]
    if sorted(inputs) != list(range(len(inputs))) or len(saved.sources) != len(graph.inputs):
        raise ValueError("sources are not those of the inputs")
    for mark, value in zip(saved.sources, graph.inputs, strict=True):
        _check_source(mark, value.type, saved)
    taken = [m.value for m in marks_in(saved.arguments)]
    if set(taken) != set(inputs) or not isinstance(saved.arguments, dict):
        raise ValueError("arguments are not those of the graph")
    if not saved.arguments.keys() <= saved.signature.parameters.keys():
        raise ValueError("arguments are not those of the signature")
    for mark in marks_in(saved.returned):
        _check_result(mark, saved, inputs)


def _check_source(mark: Mark, kind: TensorType, saved: Saved) -> None:
    if mark.word == "weight":
        array = saved.weights[mark.value]
        if array.shape != kind.shape or array.dtype != kind.dtype:
            raise ValueError(f"{mark.value} is no {kind}")
    elif mark.word == "generator":
        state = [0, 0] if mark.value == "global" else mark.value
        if len(state) != 2 or not all(type(n) is int and 0 <= n < 2**64 for n in state):
            raise ValueError(f"{mark.value!r} is no state of a generator")
        if str(kind) != "u64[2]":
            raise ValueError(f"{kind} is not the type of a state of a generator")
    elif mark.word != "input":
        raise ValueError(f"{mark.word} is no source")


def _check_result(mark: Mark, saved: Saved, inputs: list[int]) -> None:
    if mark.word in ("output", "number"):
        number = mark.value if mark.word == "output" else mark.value[0]
        if type(number) is not int or not 0 <= number < len(saved.graph.outputs):
            raise ValueError("there is no such output")
        if mark.word == "number" and mark.value[1] not in ("float", "int", "bool", "complex"):
            raise ValueError("there is no such number")
    elif mark.word == "input" and mark.value in inputs:
        return
    elif mark.word != "weight" or mark.value not in saved.weights:
        raise ValueError(f"{mark.word} {mark.value!r} cannot be returned")

"""Programs for devices on disk, so that a later process need not lower a graph nor write PTX.

They are kept as the host's programs are (``weft.backends.llvm.programs``): in weft's own cache, under all
that they depend on, by the same rules of trust. What is kept is data; the tables that errors are made of are
found by building the program again, if there is an error at all. What has no text of its own (an op of the
user, a call of the host) is not kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from weft.backends.cuda import program as records
from weft.backends.cuda.program import CudaProgram
from weft.backends.llvm.cache import default_cache
from weft.backends.llvm.fingerprint import versions
from weft.base.digest import digest
from weft.base.dtypes import DTYPES
from weft.base.size_text import parse_size
from weft.base.sizes import Size
from weft.config import settings
from weft.errors import WeftError
from weft.ir.graph import Graph

_KIND = "cuda-program-1"
_DTYPES = {d.name: d for d in DTYPES}
_RECORDS = {name: cls for name, cls in vars(records).items() if hasattr(cls, "__match_args__")}
_ELSEWHERE = ("constants", "failures", "hosts")  # fields that are no plain data
_HERE = ("cache_directory", "num_threads", "full_tracebacks", "tuning")  # settings that no program depends on

Build = Callable[[], CudaProgram]


def stored_program(graph: Graph, architecture: str, build: Build) -> CudaProgram:
    """The program of a graph from disk, or what ``build`` makes, which is then kept."""
    key = _key(graph, architecture)
    if key is None:
        return build()
    cache = default_cache()
    data = cache.get(key)
    found = None if data is None else _read(data, build)
    if found is not None:
        return found
    made = build()
    text = _written(made)
    if text is not None:
        cache.put(key, text)
    return made


def _key(graph: Graph, architecture: str) -> tuple[str, ...] | None:
    """All that a program depends on; None where none is kept."""
    if default_cache().directory is None or settings.debug:
        return None
    text = graph.to_text(locations=False, expand=True)
    if "::" in text:  # an op of the user, of which only the name is there
        return None
    known: dict[int, str] = {}  # layers share large ones
    numbers = [known.get(id(a)) or known.setdefault(id(a), _named(a)) for a in _constants_of(graph)]
    chosen = [f"{s.name}={s.value!r}" for s in settings.described() if s.name not in _HERE]
    return (_KIND, *versions(), architecture, text, " ".join(numbers), " ".join(chosen))


def _named(array: Any) -> str:
    """What stands for a constant in a key; of one number everywhere, which takes no memory, the number."""
    told = f"{array.dtype}{array.shape}"
    if array.size and not any(array.strides):
        return f"{told}={array[(0,) * array.ndim].tobytes().hex()}"
    return told + digest(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).hex()


def _constants_of(graph: Graph) -> Iterator[Any]:
    yield from graph.constants.values()
    for node in graph.nodes:
        for region in node.regions:
            yield from _constants_of(region)


# To bytes: a length, JSON, constants


def _written(program: CudaProgram) -> bytes | None:
    """A program as bytes; None if it has something that is no data."""
    if program.hosts:
        return None
    constants = [np.ascontiguousarray(c) for c in program.constants]
    plain = {name: getattr(program, name) for name in _fields(CudaProgram) if name not in _ELSEWHERE}
    try:
        told = {
            "program": {name: _as_json(value) for name, value in plain.items()},
            "constants": [
                [c.dtype.name, np.shape(o)] for c, o in zip(constants, program.constants, strict=True)
            ],
            "failures": len(program.failures),
        }
        head = json.dumps(told, separators=(",", ":")).encode()
        same = {name: _from_json(x) for name, x in json.loads(head)["program"].items()} == plain
    except (TypeError, WeftError):
        return None
    data = [len(head).to_bytes(8, "little"), head, *[c.tobytes() for c in constants]]
    return b"".join(data) if same else None


def _fields(kind: type) -> tuple[str, ...]:
    return kind.__match_args__  # type: ignore[attr-defined, no-any-return]


def _as_json(x: Any) -> Any:
    """Data as lists whose first item says what they are; plain values as they are."""
    if x is None or type(x) in (bool, int, str):
        return x
    if isinstance(x, Size):
        return ["size", str(x)]
    if isinstance(x, np.dtype):
        return ["dtype", x.name]
    if isinstance(x, tuple):
        return ["tuple", *map(_as_json, x)]
    if isinstance(x, Mapping):
        return ["dict", *[[name, _as_json(value)] for name, value in x.items()]]
    if _RECORDS.get(type(x).__name__) is type(x):
        return [type(x).__name__, *[_as_json(getattr(x, name)) for name in _fields(type(x))]]
    raise TypeError(type(x).__name__)


# From bytes


def _read(data: bytes, build: Build) -> CudaProgram | None:
    try:
        end = 8 + int.from_bytes(data[:8], "little")
        told = json.loads(data[8:end])
        plain = {name: _from_json(value) for name, value in told["program"].items()}
        constants = tuple(_arrays(told["constants"], data, end))
        return CudaProgram(
            **plain, constants=constants, failures=_Failures(told["failures"], build), hosts=()
        )
    except (ValueError, TypeError, KeyError, IndexError, WeftError):  # other content
        return None


def _from_json(x: Any) -> Any:
    if not isinstance(x, list):
        return x
    kind, *items = x
    if kind == "size":
        return parse_size(items[0])
    if kind == "dtype":
        return _DTYPES[items[0]]
    if kind == "tuple":
        return tuple(map(_from_json, items))
    if kind == "dict":
        return {name: _from_json(value) for name, value in items}
    return _RECORDS[kind](*map(_from_json, items))


def _arrays(described: Sequence[Any], data: bytes, at: int) -> Iterator[Any]:
    for name, shape in described:
        dtype = _DTYPES[name]
        size = prod(shape) * dtype.itemsize
        yield np.frombuffer(data[at : at + size], dtype).reshape(shape).copy()
        at += size


class _Failures(Sequence[Any]):
    """The failures of a program from disk: what they say is found when one happens."""

    def __init__(self, count: int, build: Build) -> None:
        self._count = count
        self._build = build
        self._found: Sequence[Any] | None = None

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:
        if self._found is None:
            self._found = self._build().failures
        return self._found[number]

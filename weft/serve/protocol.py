"""The Open Inference Protocol, version 2: from the bytes of a request to arrays, and back.

A request is JSON. With the binary extension the JSON is followed by the bytes of tensors, and a header says
where it ends; answers likewise. JSON has no NaN and no infinities. They are the strings "NaN", "Infinity" and
"-Infinity", in both directions, as in the JSON of protocol buffers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from weft.base import dtypes
from weft.base.dtypes import DType, kind
from weft.errors import ArgumentError
from weft.io.interface import Port
from weft.serve.settings import RefusedError

# Tensors: their datatypes, as JSON and as bytes

Array = np.ndarray[Any, Any]

_WIDTHS = {"uint": (8, 16, 32, 64), "int": (8, 16, 32, 64), "float": (16, 32, 64)}
DTYPES: dict[str, DType] = {"BOOL": dtypes.bool_}
for _name, _widths in _WIDTHS.items():
    _word = _name.upper().replace("FLOAT", "FP")
    DTYPES |= {f"{_word}{bits}": dtypes.as_dtype(f"{_name}{bits}") for bits in _widths}
DTYPES["BF16"] = dtypes.bfloat16
DATATYPES = {dtype: name for name, dtype in DTYPES.items()}

_HIGHEST_RANK = 32
_WORDS = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
_TYPES: dict[str, frozenset[type]] = {  # by kind, what JSON may have
    "b": frozenset({bool}),
    "i": frozenset({int}),
    "u": frozenset({int}),
    "f": frozenset({int, float}),
}


def checked_shape(name: str, shape: Any, most: int) -> tuple[int, ...]:
    """A shape of a request, or an error; nothing is allocated for it.

    Args:
        name: of the input.
        shape: that a request gives.
        most: elements that it may stand for, where a size of 0 counts as 1: no size may be larger than what
            could be sent.
    """
    if not isinstance(shape, list) or len(shape) > _HIGHEST_RANK:
        raise RefusedError(400, f"input {name!r}: shape must be a list of at most {_HIGHEST_RANK} sizes")
    count = 1
    for size in shape:
        if type(size) is not int or size < 0:
            raise RefusedError(400, f"input {name!r}: shape must be made of sizes, got {_told(size)}")
        count *= size or 1
    if count > most:
        raise RefusedError(413, f"input {name!r}: must have at most {most} elements, got {_told(shape)}")
    return tuple(shape)


def array_of_bytes(name: str, data: memoryview, dtype: DType, shape: tuple[int, ...]) -> Array:
    """The array that bytes are, row after row, little-endian; it shares their memory."""
    wanted = _count(shape) * dtype.itemsize
    if len(data) != wanted:
        raise RefusedError(
            400, f"input {name!r}: {list(shape)} must have {wanted} bytes of data, got {len(data)}"
        )
    array = np.frombuffer(data, dtype)
    if dtype == dtypes.bool_ and array.size and array.view(np.uint8).max() > 1:
        raise RefusedError(400, f"input {name!r}: bytes of BOOL must be 0 or 1, got others")
    return _shaped(name, array, shape)


def array_of_json(name: str, data: Any, dtype: DType, shape: tuple[int, ...]) -> Array:
    """The array that numbers in JSON are, in one row or nested as the shape says."""
    if not isinstance(data, list):
        raise RefusedError(400, f"input {name!r}: data must be a list, got {_told(data)}")
    flat = _flat(name, data, shape) if data and type(data[0]) is list else data
    if len(flat) != _count(shape):
        raise RefusedError(
            400, f"input {name!r}: data must be of shape {list(shape)}, got {len(flat)} numbers"
        )
    letter = kind(dtype)
    if not _TYPES[letter].issuperset(map(type, flat)):
        flat = _without_words(name, flat, dtype)
    try:
        if letter != "f":
            return _shaped(name, np.array(flat, dtype), shape)
        return _shaped(name, _rounded(np.array(flat, np.float64), dtype), shape)
    except (OverflowError, FloatingPointError):
        message = f"input {name!r}: data must be numbers that {DATATYPES[dtype]} holds, got others"
        raise RefusedError(400, message) from None


def _flat(name: str, data: list[Any], shape: tuple[int, ...]) -> list[Any]:
    """Nested lists as one, if they are nested as the shape says."""
    fits = len(data) == shape[0] if shape else False
    for size in shape[1:]:
        fits = fits and all(type(row) is list and len(row) == size for row in data)
        data = list(chain.from_iterable(data)) if fits else data
    if not fits:
        raise RefusedError(400, f"input {name!r}: lists must be nested like {list(shape)}, got others")
    return data


def _without_words(name: str, data: list[Any], dtype: DType) -> list[Any]:
    """The items with NaN and infinities for their names; an error where others are of another kind."""
    letter = kind(dtype)
    if letter == "f":
        data = [_WORDS.get(x, x) if type(x) is str else x for x in data]
    for x in data:
        if type(x) not in _TYPES[letter]:
            raise RefusedError(400, f"input {name!r}: data must be {DATATYPES[dtype]}, got {_told(x)}")
    return data


def _rounded(array: Array, dtype: DType) -> Array:
    """Floats in another dtype; a FloatingPointError where one becomes infinite."""
    if dtype == dtypes.float64:
        return array
    with np.errstate(over="raise"):
        out: Array = array.astype(dtype)
    if dtype == dtypes.bfloat16 and (np.isinf(out) & np.isfinite(array)).any():  # its casts raise nothing
        raise FloatingPointError
    return out


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _shaped(name: str, array: Array, shape: tuple[int, ...]) -> Array:
    try:
        return array.reshape(shape)
    except ValueError:  # an empty array whose other sizes are too large
        raise RefusedError(400, f"input {name!r}: shape must be possible, got {list(shape)}") from None


def _told(x: Any) -> str:
    text = repr(x)
    return text if len(text) <= 40 else f"{text[:40]}..."


def json_of_array(array: Array) -> Any:
    """What becomes the JSON of an array, in one row."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype == dtypes.bfloat16:
        flat = flat.astype(np.float32)
    if flat.dtype.kind == "f" and not np.isfinite(flat).all():
        return [_worded(x) for x in flat.tolist()]
    return flat


def _worded(x: float) -> Any:
    if x != x:
        return "NaN"
    return x if np.isfinite(x) else "Infinity" if x > 0 else "-Infinity"


# Requests and answers

JSON_LENGTH = "inference-header-content-length"


def load_orjson() -> Any:
    """The JSON library, or an error that says how to install it."""
    try:
        return import_module("orjson")
    except ModuleNotFoundError:
        raise ArgumentError("serve", "needs orjson, got none", hint="pip install 'weft[serve]'") from None


class Wanted(NamedTuple):
    """An output that a request asks for: its number, and whether as bytes."""

    number: int
    binary: bool


class Request(NamedTuple):
    """What a request says: the arrays of the inputs in order, the outputs it wants, its id."""

    arrays: list[Array]
    wanted: list[Wanted]
    id: str | None


class Codec:
    """Reads requests for a model and writes their answers.

    Args:
        name, version: of the model.
        inputs, outputs: of it.
        max_shape: bytes that a shape may stand for.
    """

    def __init__(
        self, name: str, version: str, inputs: Sequence[Port], outputs: Sequence[Port], max_shape: int
    ) -> None:
        self.name = name
        self.version = version
        self.inputs = {port.name: (i, port) for i, port in enumerate(inputs)}
        self.outputs = {port.name: i for i, port in enumerate(outputs)}
        self.output_names = [port.name for port in outputs]
        self.datatypes = [DATATYPES[port.type.dtype] for port in outputs]
        self.max_shape = max_shape
        self._all_outputs = [[Wanted(i, b) for i in range(len(outputs))] for b in (False, True)]
        self._orjson = load_orjson()

    # Requests

    def read(self, body: bytes, json_length: str | None) -> Request:
        """What the bytes of a request say; the length of the JSON is that of a header, if there is one."""
        length = self._json_length(body, json_length)
        text = body if length == len(body) else body[:length]
        try:
            found = self._orjson.loads(text)
        except ValueError as error:
            raise RefusedError(400, f"the request must be JSON: {error}") from None
        if not isinstance(found, dict):
            raise RefusedError(400, "the request must be a JSON object, got something else")
        _check_keys(text, found)
        rest = _Rest(memoryview(body), length)
        arrays = self._arrays(found.get("inputs"), rest)
        if rest.at != len(body):
            raise RefusedError(400, f"the inputs must tell of all data, got {len(body) - rest.at} more bytes")
        name = found.get("id")
        if name is not None and not isinstance(name, str):
            raise RefusedError(400, "id must be a string, got something else")
        return Request(arrays, self._wanted(found), name)

    def _json_length(self, body: bytes, told: str | None) -> int:
        if told is None:
            return len(body)
        if not (told.isascii() and told.isdigit() and len(told) < 20 and int(told) <= len(body)):
            message = f"{JSON_LENGTH} must be a number of bytes of the body ({len(body)}), got {told[:40]!r}"
            raise RefusedError(400, message)
        return int(told)

    def _arrays(self, inputs: Any, rest: _Rest) -> list[Array]:
        if not isinstance(inputs, list):
            raise RefusedError(400, "inputs must be a list of tensors, got something else")
        arrays: list[Any] = [None] * len(self.inputs)
        for item in inputs:
            place, array = self._array(item, rest)
            if arrays[place] is not None:
                raise RefusedError(400, f"inputs must come once each, got {item['name']!r} twice")
            arrays[place] = array
        for name, (place, _) in self.inputs.items():
            if arrays[place] is None:
                raise RefusedError(400, f"every input of the model must be given, got none for {name!r}")
        return arrays

    def _array(self, item: Any, rest: _Rest) -> tuple[int, Array]:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise RefusedError(400, "an input must be an object with a name, got something else")
        name = item["name"]
        if name not in self.inputs:
            known = ", ".join(self.inputs)
            raise RefusedError(400, f"inputs of {self.name} must be among {known}, got {name[:100]!r}")
        place, port = self.inputs[name]
        datatype = item.get("datatype")
        dtype = port.type.dtype
        if not isinstance(datatype, str) or DTYPES.get(datatype) != dtype:
            got = repr(datatype)[:40]
            raise RefusedError(400, f"input {name!r}: datatype must be {DATATYPES[dtype]}, got {got}")
        shape = checked_shape(name, item.get("shape"), self.max_shape // dtype.itemsize)
        size = _parameters(item, name).get("binary_data_size") if "parameters" in item else None
        if size is not None and "data" in item:
            raise RefusedError(400, f"input {name!r}: must have data or binary_data_size, got both")
        if size is None:
            return place, array_of_json(name, item.get("data"), dtype, shape)
        return place, array_of_bytes(name, rest.take(name, size), dtype, shape)

    def _wanted(self, found: Mapping[str, Any]) -> list[Wanted]:
        binary = _flag(_parameters(found), "binary_data_output", False)
        asked = found.get("outputs")
        if asked is None:
            return self._all_outputs[binary]
        if not isinstance(asked, list):
            raise RefusedError(400, "outputs must be a list, got something else")
        wanted = [self._one_wanted(item, binary) for item in asked]
        if len({w.number for w in wanted}) != len(wanted):
            raise RefusedError(400, "outputs must be asked for once each, got one twice")
        return wanted

    def _one_wanted(self, item: Any, binary: bool) -> Wanted:
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(name, str) or name not in self.outputs:
            known = ", ".join(self.output_names)
            raise RefusedError(400, f"outputs of {self.name} must be among {known}, got {repr(name)[:100]}")
        return Wanted(self.outputs[name], _flag(_parameters(item, name), "binary_data", binary))

    # Answers

    def write(self, request: Request, arrays: Sequence[Array]) -> tuple[bytes, int | None]:
        """The bytes of an answer, and how many of them are JSON if others follow."""
        outputs: list[dict[str, Any]] = []
        blocks: list[bytes] = []
        for number, binary in request.wanted:
            array = arrays[number]
            item: dict[str, Any] = {
                "name": self.output_names[number],
                "shape": list(array.shape),
                "datatype": self.datatypes[number],
            }
            if binary:
                blocks.append(array.tobytes())
                item["parameters"] = {"binary_data_size": len(blocks[-1])}
            else:
                item["data"] = json_of_array(array)
            outputs.append(item)
        answer: dict[str, Any] = {"model_name": self.name, "model_version": self.version}
        if request.id is not None:
            answer["id"] = request.id
        answer["outputs"] = outputs
        text: bytes = self._orjson.dumps(answer, option=self._orjson.OPT_SERIALIZE_NUMPY)
        return (b"".join((text, *blocks)), len(text)) if blocks else (text, None)


def _check_keys(text: bytes, found: Any) -> None:
    """Raise if a key of an object came twice, of which the fast reader tells nothing."""
    try:
        if text.count(b":") != _colons(found):
            json.loads(text, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError):
        raise RefusedError(400, "the request must be JSON of a few levels, got other text") from None


def _colons(found: Any) -> int:
    """How many colons the JSON of something has, but for data; more if one of its keys came twice."""
    if isinstance(found, str):
        return found.count(":")
    if isinstance(found, list):
        return sum(map(_colons, found))
    if not isinstance(found, dict):
        return 0
    return sum(1 + key.count(":") + (0 if key == "data" else _colons(x)) for key, x in found.items())


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        double = next(key for key, _ in pairs if [k for k, _ in pairs].count(key) > 1)
        raise RefusedError(400, f"keys of an object must come once each, got {double[:100]!r} twice")
    return found


class _Rest:
    """The bytes of tensors that follow the JSON of a request, taken one after the other."""

    def __init__(self, body: memoryview, at: int) -> None:
        self.body = body
        self.at = at

    def take(self, name: str, size: Any) -> memoryview:
        if type(size) is not int or not 0 <= size <= len(self.body) - self.at:
            left = len(self.body) - self.at
            raise RefusedError(
                400, f"input {name!r}: binary_data_size must be in 0..{left}, got {repr(size)[:40]}"
            )
        self.at += size
        return self.body[self.at - size : self.at]


def _parameters(item: Mapping[str, Any], what: str = "the request") -> Mapping[str, Any]:
    found = item.get("parameters")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise RefusedError(400, f"{what}: parameters must be an object, got something else")
    return found


def _flag(parameters: Mapping[str, Any], name: str, default: bool) -> bool:
    value = parameters.get(name, default)
    if type(value) is not bool:
        raise RefusedError(400, f"{name} must be true or false, got {repr(value)[:40]}")
    return value

"""The Open Inference Protocol, version 2: from the bytes of a request to arrays, and back.

A request is JSON. With the binary extension the JSON is followed by the bytes of tensors, and a header says
where it ends; answers likewise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from weft.errors import ArgumentError
from weft.io.interface import Port
from weft.serve.settings import RefusedError
from weft.serve.tensors import (
    DATATYPES,
    DTYPES,
    Array,
    array_of_bytes,
    array_of_json,
    checked_shape,
    json_of_array,
)

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
        rest = _Rest(memoryview(body), length)
        arrays = self._arrays(found.get("inputs"), rest)
        if rest.at != len(body):
            raise RefusedError(400, f"the inputs must tell of all data, got {len(body) - rest.at} more bytes")
        return Request(arrays, self._wanted(found), self._id(found))

    def _json_length(self, body: bytes, told: str | None) -> int:
        if told is None:
            return len(body)
        if not (told.isascii() and told.isdigit() and len(told) < 20 and int(told) <= len(body)):
            message = f"{JSON_LENGTH} must be a number of bytes of the body ({len(body)}), got {told[:40]!r}"
            raise RefusedError(400, message)
        return int(told)

    def _id(self, found: Mapping[str, Any]) -> str | None:
        told = found.get("id")
        if told is not None and not isinstance(told, str):
            raise RefusedError(400, "id must be a string, got something else")
        return told

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

"""Changes of files that a fuzzer makes: of bytes, of the JSON in them, and of graph text.

Those of JSON and text put right checksums over what they changed, so that they get past the first checks.
"""

from __future__ import annotations

import json
import random
import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

NUMBERS = (0, 1, -1, 2, 7, 255, 2**31, 2**32, 2**53, 2**62, 2**63, 2**64, -(2**63), 10**30, 0.5, -0.0, 1e308)
TOKENS = """
%0 %1 %7 %x %w f32 i64 bool c64 bf16 [2] [n] [n//2] [-1] [0] () ( ) { } , = : @ " return graph update call
cond add matmul reshape iota slice gather while_loop scan axes=(0,) shape=(2,) dtype=f32 1 -1 99999999999 nan
inf 1e400 body branches[0] constants files guard
"""
WORDS = (
    "",
    "x",
    "w",
    "input",
    "output",
    "weight",
    "array",
    "tensor",
    "dict",
    "é",
    "\0",
    "../x",
    "F32",
    "i64",
)


def mutated(data: bytes, others: list[bytes], draw: random.Random) -> bytes:
    """A file after one to four changes."""
    for _ in range(draw.choice((1, 1, 2, 4))):
        change = draw.choice((_bytes, _header, _inner, _inner, _text, _text))
        data = change(data, others, draw)
    return data


# Bytes


def _bytes(data: bytes, others: list[bytes], draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    size = draw.choice((1, 1, 2, 4, 8, 64))
    match draw.randrange(5):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + draw.randbytes(size) + data[at:]
        case 2:
            return data[:at] + draw.randbytes(size) + data[at + size :]
        case 3:
            return data[:at] + data[at + size :]
        case _:
            other = draw.choice(others)
            return data[:at] + other[draw.randrange(len(other) + 1) :]


# The header


def _parts(data: bytes) -> tuple[dict[str, Any], bytes] | None:
    """The header as JSON and the data, of a file where both are there."""
    length = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + length])
    except (ValueError, RecursionError):
        return None
    return (header, data[8 + length :]) if isinstance(header, dict) else None


def assembled(header: dict[str, Any], data: bytes) -> bytes:
    """A file with a header whose own checksum is right."""
    metadata = header.get("__metadata__")
    if isinstance(metadata, dict) and "weft.checksum" in metadata:
        metadata["weft.checksum"] = "0" * 8
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)
    mark = b'"weft.checksum":"'
    text = text.replace(mark + b"0" * 8, mark + f"{zlib.crc32(text):08x}".encode(), 1)
    return len(text).to_bytes(8, "little") + text + data


def _header(data: bytes, others: list[bytes], draw: random.Random) -> bytes:
    found = _parts(data)
    if found is None:
        return _bytes(data, others, draw)
    header, rest = found
    changed = _changed(header, draw)
    return assembled(changed, rest) if isinstance(changed, dict) else data


def _changed(x: Any, draw: random.Random) -> Any:
    """JSON with one place in it changed."""
    if isinstance(x, dict) and x and draw.random() < 0.85:
        key = draw.choice(list(x))
        match draw.randrange(6):
            case 0:
                return {k: v for k, v in x.items() if k != key}
            case 1:
                return {**x, draw.choice(WORDS): x[key]}
            case _:
                return {**x, key: _changed(x[key], draw)}
    if isinstance(x, list) and x and draw.random() < 0.85:
        at = draw.randrange(len(x))
        match draw.randrange(6):
            case 0:
                return x[:at] + x[at + 1 :]
            case 1:
                return [*x[:at], x[at], *x[at:]]
            case _:
                return [*x[:at], _changed(x[at], draw), *x[at + 1 :]]
    return _other(x, draw)


def _other(x: Any, draw: random.Random) -> Any:
    return draw.choice(
        (*NUMBERS, *WORDS, None, True, [], {}, [x], {"tuple": [x]}, [[x] * 3], {"int": "0x" + "f" * 40})
    )


# JSON and text inside of the header


def _metadata(change: Callable[[str, str, random.Random], str]) -> Callable[..., bytes]:
    """A change of one text of the metadata."""

    def apply(data: bytes, others: list[bytes], draw: random.Random) -> bytes:
        found = _parts(data)
        metadata = found[0].get("__metadata__") if found else None
        if found is None or not isinstance(metadata, dict) or not metadata:
            return _bytes(data, others, draw)
        name = draw.choice(list(metadata))
        if isinstance(metadata[name], str):
            metadata[name] = change(name, metadata[name], draw)
        return assembled(*found)

    return apply


def _change_json(name: str, text: str, draw: random.Random) -> str:
    try:
        return json.dumps(_changed(json.loads(text), draw))
    except (ValueError, RecursionError):
        return change_text(text, draw)


_inner = _metadata(_change_json)
_text = _metadata(lambda name, text, draw: change_text(text, draw))


def change_text(text: str, draw: random.Random) -> str:
    """Graph text with tokens or lines changed."""
    if draw.random() < 0.3:
        lines = text.splitlines(keepends=True) or [""]
        at, other = draw.randrange(len(lines)), draw.randrange(len(lines))
        lines[at : at + draw.randrange(2)] = [lines[other]] * draw.randrange(3)
        return "".join(lines)
    pieces = re.findall(r"%?\w+|\s+|[^\w\s]", text) or [""]
    at = draw.randrange(len(pieces))
    pieces[at : at + draw.randrange(3)] = draw.choices((*TOKENS.split(), *pieces[:200]), k=draw.randrange(3))
    return "".join(pieces)


# Requests: the length of the JSON, a line, the JSON, the bytes of tensors


def changed_request(data: bytes, draw: random.Random) -> bytes:
    """A request with something in its JSON changed; mostly it says how long that is."""
    told, _, body = data.partition(b"\n")
    length = int(told)
    text = body[:length]
    for _ in range(draw.choice((1, 1, 2))):
        text = json.dumps(_changed(json.loads(text), draw)).encode()
    rest = body[length:]
    if draw.random() < 0.2:
        rest = _bytes(rest, [rest], draw)
    said = draw.choice((str(len(text)),) * 8 + ("", "-1", str(len(text) + 1), "0", "9" * 30, "1e3", " 5"))
    return said.encode() + b"\n" + text + rest


# Messages of protocol buffers


def change_message(message: Any, draw: random.Random) -> None:
    """Change one place in a message, or in one inside of it; what the field cannot hold is left as it is."""
    fields = message.ListFields()
    if not fields:
        return
    field, value = draw.choice(fields)
    if field.type == field.TYPE_MESSAGE:
        _change_inner(message, field, value, draw)
        return
    with suppress(ValueError):  # such as a number that an enumeration has not
        _change_field(message, field, value, draw)


def _change_field(message: Any, field: Any, value: Any, draw: random.Random) -> None:
    if field.is_repeated:
        at = draw.randrange(len(value))
        match draw.randrange(4):
            case 0:
                del value[at]
            case 1:
                value.append(value[at])
            case _:
                value[at] = _other_scalar(value[at], draw)
    elif draw.random() < 0.2:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, _other_scalar(value, draw))


def _change_inner(message: Any, field: Any, value: Any, draw: random.Random) -> None:
    if not field.is_repeated:
        change_message(value, draw)
        return
    at = draw.randrange(len(value))
    match draw.randrange(8):
        case 0:
            del value[at]
        case 1:
            value.add().CopyFrom(value[at])
        case 2:
            value[at].CopyFrom(value[draw.randrange(len(value))])
        case _:
            change_message(value[at], draw)


def _other_scalar(value: Any, draw: random.Random) -> Any:
    """Another value that the field of a message may hold."""
    if isinstance(value, bytes):
        return _bytes(value, [value], draw)
    if isinstance(value, str):
        return draw.choice((value + "x", value[1:], *WORDS, "Add", "Loop", "If", "Reshape", "axis", "perm"))
    if isinstance(value, float):
        return draw.choice((0.0, -1.0, float("nan"), float("inf"), 1e30))
    whole = (0, 1, 2, 3, 5, 7, 11, 16, 127, 255, 2**31 - 1)
    return draw.choice((*whole, -1, -2, -(2**31)) if draw.random() < 0.8 else (value + 1, value // 2))

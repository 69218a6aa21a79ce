"""Why a version does not hold for a call, in words."""

from __future__ import annotations

from typing import Any

from weft.base.dtypes import short_name
from weft.capture.arguments import Arguments, TensorKey
from weft.capture.guards import first_violated
from weft.capture.version import Version
from weft.errors import TraceGuardError

_SHOWN = 60


def other_call(version: Version, arguments: Arguments, key: tuple[Any, ...]) -> TraceGuardError:
    """The error of a traced function that is called in a way it was not traced for."""
    return TraceGuardError(
        "trace",
        f"a call must be like the one that was traced, got {_difference(version, arguments, key)}",
        hint="trace it again, or use weft.compile, which captures what has changed anew",
    )


def describe_growth(newest: Version | None, arguments: Arguments, key: tuple[Any, ...]) -> str:
    """Why another version is captured, after a comma."""
    return "" if newest is None else f"lately because of {_difference(newest, arguments, key)}"


def _difference(version: Version, arguments: Arguments, key: tuple[Any, ...]) -> str:
    program = version.program
    if version.key and version.key[0] != key[0]:
        return "arguments of another structure"
    for i, (was, now) in enumerate(zip(version.key[1:-2], key[1:-2], strict=True)):
        if was != now:
            return f"{version.names[i]}: {_text(was)} before, {_text(now)} now"
    if version.key[-2:] != key[-2:]:
        return "another default dtype, or another grad mode"
    found = first_violated(program.guards, program.tensors, program.arguments, arguments.tensors)
    if found is None:
        return "a value that the graph relies on"
    what, was, now = found
    return f"{what}: {_shorten(was)} before, {_shorten(now)} now"


def _text(key: Any) -> str:
    """A part of a key of arguments."""
    if isinstance(key, TensorKey):
        shape, dtype = key.type if isinstance(key.type, tuple) else (key.type.shape, key.type.dtype)
        return _type(shape, dtype, key.requires_grad)
    if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], type):
        return _shorten(key[1])
    return _shorten(getattr(key, "obj", key))


def _type(shape: tuple[int, ...], dtype: Any, needs: bool) -> str:
    sizes = ",".join(map(str, shape))
    return f"{short_name(dtype)}[{sizes}]{' that requires grad' if needs else ''}"


def _shorten(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."

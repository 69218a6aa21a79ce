"""Why a version does not hold for a call, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.base.dtypes import short_name
from weft.base.notebook import place_text
from weft.base.records import NamedTuple
from weft.base.sizes import Size
from weft.capture.call.version import Version
from weft.capture.program.arguments import Arguments
from weft.capture.program.call_keys import CallKey, TensorKey
from weft.capture.program.guards import OUTSIDE, Frame, Like, Members, TensorGuard, first_violated
from weft.capture.program.sizes import shape_and_dtype
from weft.capture.program.sources import Fixed
from weft.errors import TraceGuardError
from weft.tensor.form import Form
from weft.tensor.tensor import Tensor

_SHOWN = 60


class _Difference(NamedTuple):
    """What differs; before and now are "" where that says it all."""

    what: str
    before: str = ""
    now: str = ""

    def of_call(self) -> str:
        return f"{self.what}: {self.before} before, {self.now} now" if self.before else self.what

    def as_reason(self) -> str:
        return (
            f"{self.what} was {self.before} and is {self.now}" if self.before else f"because of {self.what}"
        )


UNKNOWN = _Difference("a value that its graph relies on")


def other_call(version: Version, arguments: Arguments, key: CallKey) -> TraceGuardError:
    """The error of a traced function that is called in a way it was not traced for."""
    return TraceGuardError(
        "trace",
        f"a call must be like the one that was traced, got {_difference(version, arguments, key).of_call()}",
        hint="trace it again, or use weft.compile, which captures what has changed anew",
    )


def describe_growth(
    versions: Sequence[Version],
    arguments: Arguments,
    key: CallKey,
    fixed: bool,
    names: Sequence[str],
    failed: Mapping[Version, Exception],
) -> str:
    """Why another version is captured: how the call differs from that of the most similar one.

    Args:
        versions: that there are.
        arguments: of the call.
        key: of the version.
        fixed: whether sizes had to stay numbers.
        names: of the leaves of its arguments.
        failed: the versions that were run in vain, with their errors.
    """
    by_distance = sorted(versions, key=lambda version: _distance(version.key, key))
    nearest = by_distance[0]
    sizes = _sizes(nearest, key, arguments)
    if sizes is not None:
        return f"{sizes}, which the code needs as a number" if fixed else sizes
    if nearest.key.shape != key.shape:
        was, now = ("(" + ", ".join(each) + ")" for each in (nearest.names, names))
        return f"the arguments were {was} and are {now}"
    near = [version for version in by_distance if _distance(version.key, key) == _distance(nearest.key, key)]
    found = (_difference(version, arguments, key) for version in near)
    return next((each for each in found if each is not UNKNOWN), _asked_for(near, failed)).as_reason()


def _asked_for(versions: Sequence[Version], failed: Mapping[Version, Exception]) -> _Difference:
    """The value by which versions did not hold for a call: that which code has asked for, by its line."""
    errors = (failed.get(version) for version in versions)
    places = [e.location for e in errors if isinstance(e, TraceGuardError) and e.location is not None]
    return _Difference(f"a value that is asked for at {place_text(*places[0])}") if places else UNKNOWN


def _distance(was: CallKey, now: CallKey) -> float:
    if was.shape != now.shape:
        return float("inf")
    pairs = (*zip(was.leaves, now.leaves, strict=True), *zip(was.settings, now.settings, strict=True))
    return float(sum(a != b for a, b in pairs))


def _sizes(version: Version, key: CallKey, arguments: Arguments) -> str | None:
    """The sizes by which a call differs from that of a version, if nothing else does."""
    if _distance(version.key, key) == float("inf") or version.key.settings != key.settings:
        return None
    told: dict[Any, str] = {}  # by name of the size, or by where it is
    renamed: dict[Any, str] = {}
    shapes = iter(arguments.shapes)
    for name, was, now in zip(version.names, version.key.leaves, key.leaves, strict=True):
        shape = next(shapes) if isinstance(now, TensorKey) else ()
        if was != now:
            if not _differ_by_sizes(was, now):
                return None
            before, after = shape_and_dtype(was)[0], shape_and_dtype(now)[0]
            for axis, (old, new, number) in enumerate(zip(before, after, shape, strict=True)):
                if str(old) != str(new):
                    (renamed if isinstance(old, Size) and isinstance(new, Size) else told).setdefault(
                        str(new) if isinstance(new, Size) else (name, axis),
                        f"{name}.shape[{axis}] was {_any(old)} and is {number}"
                        + (f" -> now {_any(new)}" if isinstance(new, Size) else ""),
                    )
    return ", ".join((told or renamed).values()) or None


def _any(size: Any) -> str:
    return f"any size {size}" if isinstance(size, Size) else str(size)


def _differ_by_sizes(was: Any, now: Any) -> bool:
    if not isinstance(was, TensorKey) or not isinstance(now, TensorKey):
        return False
    (before, dtype), (after, other) = shape_and_dtype(was), shape_and_dtype(now)
    alike = (dtype, len(before), was.requires_grad) == (other, len(after), now.requires_grad)
    return alike and not _are_apart(was, now)


def _device_of(x: Any) -> Any:
    """Where a tensor is, or one that a key or a guard is of; None where that does not matter."""
    if isinstance(x, TensorKey):
        x = x.type
    elif isinstance(x, TensorGuard):
        x = x.form
    return x.device if isinstance(x, Form | Tensor) else None


def _are_apart(was: Any, now: Any) -> bool:
    places = _device_of(was), _device_of(now)
    return None not in places and places[0] != places[1]


def _both(tell: Callable[[Any], str], was: Any, now: Any) -> tuple[str, str]:
    """What was, and what is, in words; with their devices if these differ."""
    if _are_apart(was, now):
        return f"{tell(was)} on {_device_of(was)}", f"{tell(now)} on {_device_of(now)}"
    return tell(was), tell(now)


def _difference(version: Version, arguments: Arguments, key: CallKey) -> _Difference:
    program = version.program
    was, now = version.key, key
    if was.shape != now.shape:
        return _Difference("arguments of another structure")
    for name, before, after in zip(version.names, was.leaves, now.leaves, strict=True):
        if before != after:
            return _Difference(name, *_both(describe_leaf, before, after))
    if was.autocast != now.autocast:
        return _Difference(
            "autocast", *["off" if k.autocast is None else k.autocast.name for k in (was, now)]
        )
    if was.recording != now.recording:
        return _Difference("grad mode", *["on" if k.recording else "off" for k in (was, now)])
    if was.floating != now.floating:
        return _Difference("the default dtype", was.floating.name, now.floating.name)
    found = first_violated(program.guards, program.tensors, program.arguments, arguments.tensors)
    if found is None:
        return UNKNOWN
    what, expected, there = found
    if what == OUTSIDE:
        what = _outside(program, there)
    wanted, held = _both(_told, expected, there)
    return _Difference(what, wanted, held if held != wanted else f"another {_kind(there)}")


def _outside(program: Any, tensor: Any) -> str:
    """What the graph calls a tensor that no argument holds."""
    for source, value in zip(program.sources, program.graph.inputs, strict=False):
        if isinstance(source, Fixed) and source.held is tensor and value.name:
            return f"the tensor {value.name}"
    return OUTSIDE


def _kind(there: Any) -> str:
    return "tensor of that type" if isinstance(there, Tensor) else type(there).__name__


def _told(x: Any) -> str:
    """What a guard expects, or what is there, as people say it."""
    if isinstance(x, Tensor):
        return _type(tuple(x.shape), x.dtype, bool(x.requires_grad))
    if isinstance(x, Like | TensorGuard):
        return _type(x.shape, x.dtype, x.requires_grad)
    if isinstance(x, Frame):
        inside = f"{x.items} items" if isinstance(x.items, int) else f"the keys {_shorten(list(x.items))}"
        return f"a {x.kind.__name__} of {inside}"
    if isinstance(x, Members):
        return _told(x.values)
    if isinstance(x, tuple | list) and any(isinstance(each, Tensor) for each in x):
        return _cut(f"({', '.join(map(_told, x))})")
    if repr(x).startswith(f"<{type(x).__module__}."):  # what Python says of an object without words
        return f"a {type(x).__name__}"
    return _shorten(x)


def describe_leaf(key: Any) -> str:
    """A part of a key of arguments."""
    if isinstance(key, TensorKey):
        return _type(*shape_and_dtype(key), key.requires_grad)
    if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], type):
        return _shorten(key[1])
    return "any float" if key is float else _shorten(getattr(key, "obj", key))


def _type(shape: tuple[int, ...], dtype: Any, needs: bool) -> str:
    sizes = ",".join(map(str, shape))
    return f"{short_name(dtype)}[{sizes}]{' that requires grad' if needs else ''}"


def _shorten(value: Any) -> str:
    return _cut(" ".join(repr(value).split()))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."

"""How tensors print: the elements, aligned and shortened, then what is not obvious from them.

The look is the usual one: ``tensor([5.])``, four digits after the point, scientific notation where the
range of values needs it, long tensors shown by their edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft.base.concrete import is_concrete
from weft.base.device import Device
from weft.base.dtypes import DEFAULT_INT, DType, bool_, default_complex, default_float, kind
from weft.base.parts import Parts
from weft.base.public import public
from weft.base.records import NamedTuple
from weft.errors import ArgumentError, DomainError
from weft.ops.op import Tensor, type_of

Array = np.ndarray[Any, Any]
Format = Callable[[Any], str]

_PREFIX = "tensor("


class PrintOptions(NamedTuple):
    """How tensors print; see ``set_printoptions``."""

    precision: int = 4
    threshold: int = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_PROFILES = {
    "default": PrintOptions(),
    "short": PrintOptions(precision=2, edgeitems=2),
    "full": PrintOptions(threshold=2**63 - 1),
}
_options: list[PrintOptions] = [_PROFILES["default"]]


@public
def set_printoptions(
    precision: int | None = None,
    threshold: int | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors print; an argument left out keeps what it was, but ``sci_mode`` becomes automatic.

    Args:
        precision: digits after the decimal point.
        threshold: more elements than this are shown by their edges.
        edgeitems: how many elements of each edge are shown then.
        linewidth: characters in a line.
        profile: a set of values to start from: "default", "short" or "full".
        sci_mode: True for scientific notation always, False for never, None where the range needs it.

    >>> import weft
    >>> weft.set_printoptions(precision=2)
    >>> weft.tensor([3.14159])
    tensor([3.14])
    >>> weft.set_printoptions(profile="default")
    """
    if profile is not None and profile not in _PROFILES:
        raise ArgumentError(
            "set_printoptions", f"profile must be one of {', '.join(_PROFILES)}, got {profile!r}"
        )
    counts = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    given = {name: _count(name, value) for name, value in counts.items() if value is not None}
    start = _options[0] if profile is None else _PROFILES[profile]
    _options[0] = start._replace(**given, sci_mode=None if sci_mode is None else bool(sci_mode))


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentError("set_printoptions", f"{name} must be an int, got {value!r}")
    if value < 0:
        raise DomainError("set_printoptions", f"{name} must not be negative, got {value}")
    return value


@contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """Set how tensors print inside a ``with`` block, and put it back at the end.

    >>> import weft
    >>> with weft.printoptions(sci_mode=True):
    ...     print(weft.tensor([0.5]))
    tensor([5.0000e-01])
    """
    before = _options[0]
    set_printoptions(**options)
    try:
        yield
    finally:
        _options[0] = before


def format_tensor(t: Tensor) -> str:
    """The text of a tensor, as ``repr`` gives it."""
    data = t._data
    notes = [device_note(t.device)], [gradient_note(t)]
    if not is_concrete(data):
        return _with_notes(f"{_PREFIX}<{type_of(data)} inside {data.place}>", notes[1], _options[0])
    if type(data) is Parts:  # to see the elements takes all ranks
        return _with_notes(f"{_PREFIX}{data!r}", notes[1], _options[0])
    return format_array(data if type(data) is np.ndarray else data.to_host(), *notes)


def format_array(data: Array, before: Sequence[str] = (), after: Sequence[str] = ()) -> str:
    """The text of a tensor of an array, with notes before and after that of its dtype."""
    options = _options[0]
    if data.size == 0:
        size = f"size={data.shape}" if len(data.shape) != 1 else ""
        notes = [size, *before, _dtype_note(data, (default_float(),)), *after]
        return _with_notes(_PREFIX + "[]", notes, options)
    text = _format_array(data, options, len(_PREFIX))
    obvious = (default_float(), DEFAULT_INT, default_complex(), bool_)
    return _with_notes(_PREFIX + text, [*before, _dtype_note(data, obvious), *after], options)


# What is not obvious from the elements


def _dtype_note(data: Array, obvious: tuple[DType, ...]) -> str:
    return "" if data.dtype in obvious else f"dtype=weft.{data.dtype.name}"


def device_note(device: Device | str) -> str:
    """What the text of a tensor says of where it is."""
    return "" if device == "cpu" else f"device='{device}'"


def gradient_note(t: Tensor) -> str:
    """What the text of a tensor says of its place in the graph."""
    if not t.requires_grad:
        return ""
    return "requires_grad=True" if t.is_leaf else f"grad_fn={t.grad_fn!r}"


def _with_notes(text: str, notes: Sequence[str], options: PrintOptions) -> str:
    """Append notes, each on a line of its own where it does not fit the line."""
    column = len(text) - (text.rfind("\n") + 1)
    for note in filter(None, notes):
        if column + len(note) + 3 > options.linewidth:
            text += ",\n" + " " * len(_PREFIX) + note
            column = len(_PREFIX) + len(note)
        else:
            text += f", {note}"
            column += len(note) + 2
    return text + ")"


# The elements


def _format_array(data: Array, options: PrintOptions, indent: int) -> str:
    shown, cut = _edges(data, options) if data.size > options.threshold else (data, (False,) * data.ndim)
    text = _element_format(shown, options)
    if shown.ndim == 0:
        return text(shown[()])
    return _format_axis(shown, cut, text, options, indent)


def _edges(data: Array, options: PrintOptions) -> tuple[Array, tuple[bool, ...]]:
    """The edges of a long array, and along which axes its middle was left out."""
    edge = options.edgeitems
    cut = tuple(size > 2 * edge for size in data.shape)
    for axis, along in enumerate(cut):
        if along:
            kept = [*range(edge), *range(data.shape[axis] - edge, data.shape[axis])]
            data = data.take(kept, axis)
    return data, cut


def _format_axis(data: Array, cut: tuple[bool, ...], text: Format, options: PrintOptions, indent: int) -> str:
    """Nested brackets; ``indent`` is the column of the opening one."""
    if data.ndim == 1:
        items = _with_gap([text(x) for x in data.flat], " ..." if cut[0] else "")
        return "[" + _wrap_lines(items, options.linewidth, indent + 1) + "]"
    rows = [_format_axis(row, cut[1:], text, options, indent + 1) for row in data]
    separator = "," + "\n" * (data.ndim - 1) + " " * (indent + 1)
    return "[" + separator.join(_with_gap(rows, "..." if cut[0] else "")) + "]"


def _with_gap(items: list[str], gap: str) -> list[str]:
    half = len(items) // 2
    return [*items[:half], gap, *items[half:]] if gap else items


def _wrap_lines(items: list[str], linewidth: int, indent: int) -> str:
    """Items in lines of equal count, so that columns align."""
    width = max(map(len, items), default=0)
    count = max(1, (linewidth - indent + 1) // (width + 2))
    lines = [", ".join(items[i : i + count]) for i in range(0, len(items), count)]
    return (",\n" + " " * indent).join(lines)


def _element_format(shown: Array, options: PrintOptions) -> Format:
    """A function that writes one element, as wide as the widest of those shown."""
    match kind(shown.dtype):
        case "f":
            return _aligned(_real_format(shown.astype(np.float64), options), shown)
        case "c":
            real, imag = _real_format(shown.real, options), _real_format(shown.imag, options)
            return _aligned(lambda z: real(z.real) + _signed(imag(z.imag)) + "j", shown)
        case _:
            return _aligned(str, shown)


def _signed(text: str) -> str:
    return text if text.startswith("-") else "+" + text


def _aligned(text: Format, shown: Array) -> Format:
    if shown.ndim == 0:
        return text
    width = max((len(text(x)) for x in shown.flat), default=0)
    return lambda x: text(x).rjust(width)


def _real_format(shown: Array, options: PrintOptions) -> Format:
    """How to write real numbers: whole (``5.``), fixed (``0.5000``) or scientific (``5.0000e-01``)."""
    magnitudes = np.abs(shown[np.isfinite(shown) & (shown != 0)])
    whole = bool(np.all(magnitudes == np.floor(magnitudes)))
    scientific = _is_wide(magnitudes, whole) if options.sci_mode is None else options.sci_mode
    places = options.precision

    def text(x: Tensor) -> str:
        value = float(x)
        if value - value != 0:  # infinite or not a number
            return str(value)
        if scientific:
            return f"{value:.{places}e}"
        return f"{value:.0f}." if whole else f"{value:.{places}f}"

    return text


def _is_wide(magnitudes: Array, whole: bool) -> bool:
    """Whether numbers differ so much, or are so large or small, that digits would be lost or wasted."""
    if magnitudes.size == 0:
        return False
    low, high = float(magnitudes.min()), float(magnitudes.max())
    return high > 1e8 or high > 1000 * low or (not whole and low < 1e-4)

"""Text with values that only a run tells: what captured code prints, and the messages of its assertions.

A tensor or Number in an f-string becomes a mark such as ``<f32[] #3>``. Where the text is printed, or is
the message of an assertion, the marks are found again, and the graph gets a node that writes the values in
their place. Until then the text is ``Marked``: it can be put together with other text, and who looks at it
(by ``len``, ``==``, ``in``, ``int``, a method, as a key) gets the text with the values, which are guarded.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft.base.frames import user_location
from weft.base.trees import tree_map
from weft.capture.runtime.number import Number
from weft.errors import ArgumentError, CaptureError
from weft.ops.effects import Place, compose_text, copied_from, print_text, register_error
from weft.ops.op import TensorLike, type_of
from weft.tensor import dispatch
from weft.tensor.mode import thread
from weft.tensor.printing import gradient_note
from weft.transform.staging import Unstaged

Operand = tuple[Any, tuple[str, str]]  # a tensor, and the place it is written at: see weft.ops.effects.Place

_MARK = re.compile(r"<\w+\[[^\]]*\] #\d+>")


_PADDED = re.compile(
    r"%(\(.*?\))?[-+ #0]*(\d|\*|\.)[^a-zA-Z]*[sra]"
)  # %6s, whose width is that of the values


class Marked(str):
    """Text with marks in it."""

    __slots__ = ()

    @property  # type: ignore[override]
    def __class__(self) -> type[str]:  # what code gets that asks
        return str

    @__class__.setter
    def __class__(self, kind: type) -> None:
        raise TypeError("the class of text cannot be set")

    def __str__(self) -> str:
        return str.__str__(self)

    def __repr__(self) -> str:
        return repr(str(self))

    def __format__(self, spec: str) -> str:
        return format(resolve_text(self), spec) if spec else str(self)

    def __add__(self, other: str) -> str:
        return _marked(str(self) + other) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> str:
        return _marked(other + str(self)) if isinstance(other, str) else NotImplemented

    def __mul__(self, times: Any) -> str:
        return _marked(str(self) * times)

    __rmul__ = __mul__

    def __mod__(self, values: Any) -> str:
        return percent(str(self), values)

    def __rmod__(self, text: Any) -> str:
        return percent(text, self) if isinstance(text, str) else NotImplemented

    def join(self, parts: Any) -> str:  # noqa: D102 - of str
        return _marked(str(self).join(parts))

    def format(self, *args: Any, **kwargs: Any) -> str:  # noqa: D102 - of str
        return _marked(str(self).format(*args, **kwargs))


def _of_values(name: str) -> Callable[..., Any]:
    """A method of strings, on the text with the values."""

    def method(self: Marked, *args: Any, **kwargs: Any) -> Any:
        return getattr(resolve_text(self), name)(*map(looked_at, args), **kwargs)

    method.__name__ = name
    return method


_OTHERS = {
    "__new__",
    "__class__",
    "__init__",
    "__doc__",
    "__getattribute__",
    "__getnewargs__",
    "__sizeof__",
    "maketrans",
}
for _name in vars(str).keys() - vars(Marked).keys() - _OTHERS | {"__hash__", "__eq__", "__ne__"}:
    setattr(Marked, _name, _of_values(_name))


def marked(text: Any) -> Any:
    """Text that Python has put together: ``Marked``, if there are marks in it. Anything else as it is."""
    return _marked(text) if type(text) is str else text


def _marked(text: str) -> str:
    known = {} if thread.capture is None else thread.capture.root.notes.marks
    return Marked(text) if known and any(m[0] in known for m in _MARK.finditer(text)) else text


def looked_at(x: Any) -> Any:
    """Text as code gets it that looks at its letters; anything else as it is."""
    return resolve_text(x) if type(x) is Marked else x


def _known(x: Any) -> Any:
    """Text, a number or a tensor that only a run tells, as it is in this version."""
    if isinstance(x, Number):
        return x.value()
    return resolve_text(str(x)) if isinstance(x, TensorLike) else looked_at(x)


def percent(text: str, values: Any) -> str:
    """``text % values``."""
    if _PADDED.search(text):
        values = tree_map(_known, values)
    return _marked(text % (str(values) if type(values) is Marked else values))


def _mark(tensor: Any, place: tuple[str, str]) -> str:
    """A text that stands for a tensor, written in a way."""
    known = thread.capture.root.notes.marks
    text = f"<{type_of(tensor)} #{len(known)}>"
    known[text] = (tensor, place)
    for region in _regions():
        region.notes.unwritten.add(text)
    return Marked(text)


def _regions() -> Iterator[Any]:
    """The running region and those around it."""
    capture = thread.capture
    while capture is not None and capture.region:
        yield capture
        capture = capture.parent


def check_written(error: Exception | None = None) -> None:
    """Raise if text with values of the running region went elsewhere than into a print or an assertion."""
    if thread.capture.notes.unwritten:
        raise CaptureError(
            "format",
            "text of a value that only a run tells must be printed or be the message of an assertion, "
            "got another use",
            hint="use a number that Python knows for keys and names",
        ) from error


def resolve_text(text: str) -> str:
    """Text with the values themselves, from the root of the capture, which guards them."""
    if thread.capture is None:
        return str(text)
    pieces, operands = split_marks(text)
    if not operands:
        return str(text)
    if thread.capture.region:
        raise Unstaged(
            "format",
            "text that code looks at must be known while it is captured, got a value that only a run tells",
            hint="use a number that Python knows for keys and names",
        )
    out = pieces[0]
    for piece, (tensor, place) in zip(pieces[1:], operands, strict=True):
        with copied_from(tensor.device):
            out += compose_text(("", piece), [Place(*place)], [tensor._array("format")])
    return out


def mark_number(number: Number, spec: str) -> str:
    """The text of a Number in a format."""
    return _mark(number.tensor, ("number", spec)) if thread.capture is not None else repr(number.tensor)


def mark_tensor(tensor: Any, spec: str | None) -> str:
    """The text of a tensor of a capture: in a format that of the number, if it is 0-d."""
    if tensor.ndim == 0 and spec is not None:
        return _mark(tensor, ("number", spec))
    if spec:
        raise ArgumentError("format", f"a format applies to a 0-d tensor, got {type_of(tensor)}")
    return _mark(tensor, ("tensor", gradient_note(tensor)))


def split_marks(text: str) -> tuple[list[str], list[Operand]]:
    """The literal pieces of a text, and the operands that stand between them."""
    text, known = str(text), thread.capture.root.notes.marks
    pieces, operands, start = [], [], 0
    for found in _MARK.finditer(text):
        if found[0] in known:
            pieces.append(text[start : found.start()])
            operands.append(known[found[0]])
            for region in _regions():
                region.notes.unwritten.discard(found[0])
            start = found.end()
    return [*pieces, text[start:]], operands


def text_attributes(text: str) -> tuple[list[Any], dict[str, Any]]:
    """The operands of a node that writes a text, and its attributes."""
    pieces, operands = split_marks(text)
    places = tuple(place for _, place in operands)
    return [tensor for tensor, _ in operands], {"pieces": tuple(pieces), "places": places}


def emit_print(args: Sequence[Any], sep: Any, end: Any) -> None:
    """Put a print into the graph: it writes when the graph runs."""
    text = (" " if sep is None else sep).join(map(str, args)) + ("\n" if end is None else end)
    operands, attrs = text_attributes(text)
    print_text.on_tensors(*[t._value() for t in operands], **attrs)


def emit_warning(message: Any, category: Any) -> None:
    """Put a warning into the graph: it warns when the graph runs, as of the line of the user's code."""
    filters = thread.capture.root.filters
    if filters is not None and filters is not warnings.filters:
        raise CaptureError(
            "warn",
            "captured code must not warn where it catches or filters warnings itself, as the run warns later",
            hint="catch warnings around the call of the captured function",
        )
    if isinstance(message, Warning):
        category, message = type(message), str(message)
    file, line = user_location(2) or ("<unknown>", 1)
    operands, attrs = text_attributes(message)
    told = register_error(category or UserWarning), file, line
    print_text.on_tensors(*[t._value() for t in operands], **attrs, warning=told)


dispatch.FORMAT = mark_tensor

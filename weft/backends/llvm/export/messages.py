"""What a run says when it fails: the text of the error that Python would raise, with places for numbers.

Compiled code notes which failure it met and up to four numbers. The error is made once with numbers that
stand for those, and where they are in its text the library writes what was noted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from weft.base.dtypes import DType, float32, float64, kind
from weft.base.records import NamedTuple
from weft.errors import CheckError, DeviceError, NonFiniteError, WeftError
from weft.ir.interpret import placed
from weft.ir.naming import explain_error
from weft.loop.ir import Program
from weft.ops.linalg.common import singular_error
from weft.schedule.nan_checks import NanReport

_STAND_INS = (918_273_601, 918_274_603, 918_275_607, 918_276_611)  # for what is noted
MOST_NUMBERS = 6  # in one text


class Number(NamedTuple):
    """A number in a text: which of those noted, and how much more."""

    noted: int
    more: int = 0


class Operand(NamedTuple):
    """An operand of an ``assert`` that its text shows: which one, and of which dtype."""

    number: int
    dtype: DType


class Message(NamedTuple):
    """A text in the form of ``printf``, and what it takes: numbers that were noted, or operands."""

    text: str
    numbers: tuple[Number, ...] = ()
    operands: tuple[Operand, ...] = ()


def failure_messages(program: Program) -> list[Message]:
    """The message of each failure of a program, then of each call back; an error if one needs Python.

    >>> import weft
    >>> from weft.backends.llvm.export.messages import failure_messages
    >>> from weft.schedule.program import lower_graph
    >>> graph = weft.make_graph(lambda x, i: x[i])(weft.ones(3), weft.tensor(0))
    >>> print(failure_messages(lower_graph(graph))[0].text.splitlines()[0])
    gather: index must be in -%lld..%lld for axis %lld of size %lld, got %lld
    """
    found = [_message(_failure_error(entry), program) for entry in program.failures]
    return found + [_host_message(entry, program) for entry in program.hosts]


def _failure_error(entry: Any) -> WeftError:
    if entry.kind == "singular" and entry.node.inputs[0].type.ndim > 2:
        where = f"matrix {_STAND_INS[0]} of {entry.node.inputs[0].type}"
        return placed(singular_error(entry.node.op.name, where), entry.node)
    error: WeftError = entry.error(_STAND_INS)
    return error


def _host_error(entry: Any) -> WeftError:
    """The error that a call back raises; all others need Python."""
    node = entry.node
    if isinstance(entry, NanReport):
        return placed(NonFiniteError(node.op.name, "the result must have no NaN, got some"), node)
    if node.op.name == "check":
        pieces = node.attrs["pieces"]
        text = pieces[0] + "".join([f"{_mark(i)}{piece}" for i, piece in enumerate(pieces[1:], 1)])
        return placed(CheckError("assert", text or "the condition must hold"), node)
    if node.op.name == "guard" and node.attrs["asked"] != "value" and node.inputs[0].type.dtype.kind in "biu":
        return placed(CheckError("guard", "a value must be as it was when the function was traced"), node)
    raise placed(
        DeviceError(
            "export_library",
            f"every op must have machine code, got {node.op.name}, which runs in Python",
            hint="leave it out of the function, and do it where the library is called",
        ),
        node,
    )


def _host_message(entry: Any, program: Program) -> Message:
    message = _message(_host_error(entry), program)
    if entry.node.op.name != "check":
        return message
    text, operands = message.text, []
    for i, (place, type_) in enumerate(zip(entry.node.attrs["places"], entry.inputs[1:], strict=True), 1):
        style, detail = place
        written = _conversion(style, detail, type_.dtype)
        text = text.replace(_mark(i), written or "...")
        operands += [Operand(i, type_.dtype)] if written else []
    return Message(text, (), tuple(operands))


def _mark(number: int) -> str:
    """What stands for an operand until it is known how it is written."""
    return f"\x01{number}\x01"


def _conversion(style: str, detail: str, dtype: DType) -> str:
    """How ``printf`` writes an operand as Python's format does; "" where it cannot."""
    letter = kind(dtype)
    if style != "number":
        return ""
    if letter == "b":
        return "" if detail else "%s"
    if letter in "iu":
        length = "lld" if letter == "i" else "llu"
        return f"%{detail.removesuffix('d')}{length}" if re.fullmatch(r"\d*d?", detail) else ""
    if dtype not in (float32, float64) or not re.fullmatch(r"(\d*(\.\d+)?[feg])?", detail):
        return ""
    return f"%{detail or 'g'}"


def _message(error: WeftError, program: Program) -> Message:
    if program.origins is not None:
        error = explain_error(error, program.origins.graph)
    return as_message(str(error))


def as_message(text: str) -> Message:
    """A text with stand-ins as a message.

    >>> from weft.backends.llvm.export.messages import as_message
    >>> as_message("100 % of 918273600").text
    '100 %% of %lld'
    """
    numbers = {str(n + more): Number(i, more) for i, n in enumerate(_STAND_INS) for more in (0, -1)}
    pattern = re.compile("|".join(numbers))
    found = [numbers[match] for match in pattern.findall(text)]
    return Message(pattern.sub("%lld", text.replace("%", "%%")), tuple(found[:MOST_NUMBERS]))


def numbers_row(message: Message) -> Sequence[int]:
    """The numbers of a message as a row of a table: which of those noted, then how much more each is."""
    rest = [Number(0)] * (MOST_NUMBERS - len(message.numbers))
    padded = [*message.numbers, *rest]
    return [*[n.noted for n in padded], *[n.more for n in padded]]

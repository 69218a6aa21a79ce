"""Variables without a value: a local that code has not set yet, or has set on one way through it only.

Converted code hands these around in place of the value. Reading one is an error that says which lines set
the variable and what to do; so is any use of one that slipped through.
"""

from __future__ import annotations

from typing import Any, NoReturn

from weft.capture.runtime.deciding import decide
from weft.errors import CaptureError
from weft.tensor.mode import thread
from weft.transform.staging import Unstaged


class Undefined:
    """Stands for the value of a variable that has none.

    Attributes:
        name: of the variable.
        why: what happened to it, "" if nothing set it so far.
        hint: what to do about it.
        where: the statement that must be decided by Python for it to have a value, if that helps.
    """

    __slots__ = ("hint", "name", "where", "why")

    def __init__(
        self, name: str, why: str = "", hint: str = "", where: tuple[str, int] | None = None
    ) -> None:
        self.name = name
        self.why = why
        self.hint = hint
        self.where = where

    def error(self) -> BaseException:
        """The error where it is read."""
        capture = thread.capture
        if not self.why and capture is not None and capture.region:
            why = "is read inside a loop or branch of the graph where it may have no value"
            return CaptureError("capture", f"{self.name} {why}", hint=f"give {self.name} a value before")
        if not self.why:
            return UnboundLocalError(
                f"cannot access local variable {self.name!r} where it is not associated with a value"
            )
        kind = CaptureError if self.where is None else Unstaged
        error = kind("capture", f"{self.name} {self.why}", hint=self.hint or None)
        return decide(self.where, error) if isinstance(error, Unstaged) else error

    def __repr__(self) -> str:
        return f"<{self.name}, undefined>"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # which Python itself asks for, such as to print it
            raise AttributeError(name)
        raise self.error()


def _refuse(self: Undefined, *_: Any) -> NoReturn:
    raise self.error()


_USES = (
    "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow matmul rmatmul "
    "and rand or ror xor rxor lshift rlshift rshift rrshift neg pos abs invert lt le gt ge eq ne "
    "getitem setitem call iter len bool int float index hash contains format str"
)
for _use in _USES.split():
    setattr(Undefined, f"__{_use}__", _refuse)


def undefined(name: str) -> Undefined:
    """The value of a local that has none yet.

    >>> from weft.capture.runtime.undefined import undefined
    >>> undefined("y")
    <y, undefined>
    """
    return Undefined(name)


def is_undefined(value: Any) -> bool:
    """Whether a value stands for none."""
    return type(value) is Undefined


def check_defined(*values: Any) -> None:
    """Raise where one of some values stands for none: whoever looks at it would see what stands for it."""
    for value in values:
        if type(value) is Undefined:
            raise value.error()


def load(value: Any, name: str) -> Any:
    """A local that may be undefined, where it is read.

    >>> from weft.capture.runtime.undefined import load, undefined
    >>> load(3, "y")
    3
    >>> load(undefined("y"), "y")
    Traceback (most recent call last):
    UnboundLocalError: cannot access local variable 'y' where it is not associated with a value
    """
    if type(value) is Undefined:
        raise value.error()
    return value

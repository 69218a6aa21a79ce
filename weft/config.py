"""Settings of a process, in one typed object: what code set, else what the environment says, else a default.

``weft doctor`` prints them. What a function of users sets (``weft.set_num_threads``) is set here, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Generic, Self, TypeVar, cast, overload

from weft.base.records import NamedTuple

T = TypeVar("T")


class Setting(Generic[T]):
    """A field of ``Settings``.

    Attributes:
        variable: the environment variable that mirrors it.
        parse: from its text to a value; None where the text says nothing.
        default: without either.
        meaning: in a few words, for people.
    """

    __slots__ = ("_name", "default", "meaning", "parse", "variable")

    def __init__(self, variable: str, parse: Callable[[str], T | None], default: T, meaning: str) -> None:
        self.variable, self.parse, self.default, self.meaning = variable, parse, default, meaning

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, settings: None, owner: type) -> Self: ...
    @overload
    def __get__(self, settings: Settings, owner: type) -> T: ...
    def __get__(self, settings: Settings | None, owner: type) -> Self | T:
        return self if settings is None else self.told(settings)[0]

    def __set__(self, settings: Settings, value: T) -> None:
        settings.chosen[self._name] = value

    def __delete__(self, settings: Settings) -> None:
        settings.chosen.pop(self._name, None)

    def told(self, settings: Settings) -> tuple[T, str]:
        """The value, and who says so."""
        if self._name in settings.chosen:
            return cast(T, settings.chosen[self._name]), "set by the program"
        text = os.environ.get(self.variable)
        found = None if text is None else self.parse(text)
        return (self.default, "default") if found is None else (found, self.variable)


def _flag(text: str) -> bool:
    return text not in ("", "0")


def positive(text: str) -> int | None:
    """The positive number that a text stands for, if it is one.

    >>> positive(" 4 "), positive("0"), positive("many")
    (4, None, None)
    """
    return (int(text) or None) if text.strip().isdecimal() else None


def _precision(text: str) -> str | None:
    return text if text in ("float32", "tf32") else None


class Described(NamedTuple):
    """A setting as it stands."""

    name: str
    value: object
    source: str
    variable: str
    meaning: str


class Settings:
    """The settings of a process; assign to one to set it, delete it to ask the environment again.

    >>> from weft.config import settings
    >>> settings.full_tracebacks = True
    >>> settings.full_tracebacks
    True
    >>> del settings.full_tracebacks
    """

    __slots__ = ("chosen",)

    num_threads = Setting[int | None](
        "WEFT_NUM_THREADS", positive, None, "threads, at most; else as many as there are processors"
    )
    debug = Setting("WEFT_DEBUG", _flag, False, "check every index, and all memory, in compiled code")
    full_tracebacks = Setting("WEFT_FULL_TRACEBACKS", _flag, False, "weft's own lines in tracebacks")
    eager_kernels = Setting("WEFT_EAGER_KERNELS", _flag, True, "compiled kernels for large eager arrays")
    cache_directory = Setting[str | None](
        "WEFT_CACHE_DIR", lambda text: text, None, "where compiled code is kept; empty for nowhere"
    )
    matmul_precision = Setting(
        "WEFT_MATMUL_PRECISION", _precision, "float32", "of products of float32 on GPUs: float32 or tf32"
    )
    nccl = Setting("WEFT_NCCL", _flag, True, "NCCL for collectives of tensors on GPUs, where it is there")
    tuning = Setting[str | None](
        "WEFT_TUNING", lambda text: text, None, "the file of what `weft tune` measured; empty for none"
    )
    vector_bytes = Setting[int | None](
        "WEFT_VECTOR_BYTES", positive, None, "narrower vectors than the processor has"
    )

    def __init__(self) -> None:
        self.chosen: dict[str, object] = {}

    def described(self) -> Iterator[Described]:
        """Each setting as it stands, and who says so."""
        for name, setting in vars(Settings).items():
            if isinstance(setting, Setting):
                yield Described(name, *setting.told(self), setting.variable, setting.meaning)


settings = Settings()
"""The settings of this process."""

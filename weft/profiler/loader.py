"""Stages of data pipelines, and waiting for what they make.

Each stage that makes elements is an entry, inside that of the stage that asked for them. A worker process is
watched from outside: the thread that asks it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from weft.data import access, stream
from weft.data.ahead import Ahead
from weft.data.process import ProcessWorker
from weft.data.text import describe_stage
from weft.profiler.log import _Switch, here, now, take_down, user_place


def install(switch: _Switch) -> None:
    """Begin to watch."""
    for kind, name in _methods():
        switch.replace(kind, name, _timed(vars(kind)[name], _stage_of, "stage"))
    switch.replace(Ahead, "next", _timed(Ahead.next, lambda x: ("next batch", None), "wait"))
    switch.replace(
        ProcessWorker, "__call__", _timed(ProcessWorker.__call__, lambda x: ("worker process", None), "wait")
    )


_OTHERS: tuple[type, ...] = (Ahead, stream.Steps, access.Window)  # which are no stages


def _methods() -> Iterator[tuple[type, str]]:
    """The methods by which stages make elements."""
    ways: dict[type, tuple[str, ...]] = {access.Access: ("get", "many", "gather"), stream.Stream: ("next",)}
    for base, names in ways.items():
        for kind in set(_subclasses(base)).difference(_OTHERS):
            yield from ((kind, name) for name in names if name in vars(kind))


def _subclasses(base: type) -> Iterator[type]:
    kinds: list[type] = base.__subclasses__()
    for kind in kinds:
        yield kind
        yield from _subclasses(kind)


def _timed(
    method: Callable[..., Any], describe: Callable[[Any], tuple[str, Any]], what: str
) -> Callable[..., Any]:
    asks = method.__name__ == "gather"  # which gives None if it cannot

    def timed(self: Any, *args: Any) -> Any:
        if here.stages and here.stages[-1] is self:  # one of its methods calls another
            return method(self, *args)
        here.stages.append(self)
        out: Any = None
        begin = now()
        try:
            out = method(self, *args)
            return out
        finally:
            end = now()
            here.stages.pop()
            if not asks or out is not None:
                name, place = describe(self)
                take_down(what, name, begin, end, place or (user_place(2) if not here.stages else None))

    return timed


def _stage_of(made: Any) -> tuple[str, Any]:
    """The text of the stage that something runs, and where the user made it."""
    stage = getattr(getattr(made, "_transform", made), "stage", None) or getattr(made, "_stage", None)
    if stage is None:
        return type(made).__name__.removesuffix("Access").removesuffix("Stream").lower(), None
    place = stage.location
    return describe_stage(stage), None if place is None else (*place, "")

"""Calls of programs with loops: they can be ended, by another thread (``weft.base.stopping``) or a signal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.backends.backend import Array, Arrays
from weft.backends.llvm.entry import CONTEXT, FAILED, Enter
from weft.base.frames import format_location
from weft.base.stopping import stopped_error, ticker
from weft.errors import StoppedError

Place = tuple[str, int]
StopPlaces = Mapping[int, tuple[str, Place]]  # by number of a failure, the op that is stopped, and its line

_NOWHERE = ("", 0)


def stop_places(program: Any) -> StopPlaces:
    """Where a program may be stopped."""
    stops = {i: f.node for i, f in enumerate(program.failures) if getattr(f, "kind", "") == "stopped"}
    return {i: (n.op.name, n.location.place if n.location else _NOWHERE) for i, n in stops.items()}


def stoppable(enter: Enter, stops: StopPlaces) -> Enter:
    """The entry of a program that may be stopped."""

    def run(inputs: Arrays, outputs: list[Any], frame: Array, recipe: Array) -> int:
        if not ticker.is_there:
            ticker.start()
        try:
            return enter(inputs, outputs, frame, recipe)
        except BaseException as error:  # of a signal, which was raised in the middle of a loop
            _tell(error, stops.get(int(frame[CONTEXT + FAILED]) - 1))
            raise

    return run


def _tell(error: BaseException, told: tuple[str, Place] | None) -> None:
    """Let an error say in which loop it came."""
    if told is not None and told[1] != _NOWHERE:
        error.add_note(f"  in the loop at {format_location(told[1])}")


def stored_error(op: str, place: Place) -> StoppedError:
    """The error of a program from disk that was stopped."""
    error = stopped_error(op)
    error.location = error.location if place == _NOWHERE else place
    return error

"""Calls of compiled graphs as a profile sees them: by way of a watcher, and of code that takes down times.

A method of the class is put in the place of another while somebody watches, so that calls which nobody
watches need not ask.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from weft.backends.backend import Array, Arrays
from weft.backends.capabilities import Call, Timed, Watcher, watching
from weft.backends.llvm.checked import CheckedExecutable
from weft.backends.llvm.emit.launches import RECORD
from weft.backends.llvm.plan import Plan, Recipe
from weft.backends.llvm.programs import NativeProgram
from weft.backends.llvm.run import NativeExecutable
from weft.base.concrete import any_on_device

_Run = Callable[..., list[Array]]
_RUNS: dict[type[NativeExecutable], _Run] = {
    kind: kind.__dict__["_run"] for kind in (NativeExecutable, CheckedExecutable)
}
_run_stored = NativeProgram.run


def watch_calls(watcher: Watcher) -> Callable[[], None]:
    """Have all calls go by way of a watcher; gives what ends that."""

    def watched(run: _Run) -> _Run:
        def call(
            self: NativeExecutable, plan: Plan, recipe: Recipe, arrays: Arrays, flags: Sequence[bool] = ()
        ) -> list[Array]:
            if any_on_device(arrays):
                from weft.backends.cuda.calls import watched_call

                return self._given_back(arrays, watched_call(self.graph, arrays, watcher), flags)
            plain = partial(run, self, plan, recipe, arrays, flags)
            timed = partial(_timed, self, recipe, arrays, flags)
            return watcher.call(Call(self, arrays, plan.sizes, plan.arena, plain, timed))

        return call

    _set({kind: watched(run) for kind, run in _RUNS.items()}, _run_nothing, [watcher])
    return lambda: _set(_RUNS, _run_stored, [])


def _set(
    runs: Mapping[type[NativeExecutable], _Run],
    stored: Callable[..., list[Array] | None],
    watchers: list[Watcher],
) -> None:
    for kind, run in runs.items():
        kind._run = run  # type: ignore[method-assign]
    NativeProgram.run = stored  # type: ignore[method-assign]
    watching[:] = watchers
    if (
        placed := sys.modules.get("weft.backends.cuda.placed")
    ) is not None:  # else it looks when it is loaded
        placed.watch_calls()


def _timed(self: NativeExecutable, recipe: Recipe, arrays: Arrays, flags: Sequence[bool]) -> Timed:
    recording = self.recording()
    outputs, words, ended = recording.timed(arrays, recording.records.size, flags, recipe)
    return Timed(outputs, words.reshape(-1, len(RECORD)), ended)


def _run_nothing(self: NativeProgram, arrays: Arrays, plan: Plan) -> None:
    """Programs from disk take down no times: a call under a profile is compiled like any other."""

"""Compiled functions whose tensors are on a device: graphs are compiled for it, and not for the host first.

The same function may be called with tensors of the host later, such as when its model has moved: then the
backend that was asked for makes its code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from weft.backends.backend import Executable, placed_by
from weft.backends.capabilities import watching
from weft.backends.cuda.array import DeviceArray
from weft.backends.cuda.calls import run_on_device, watched_run
from weft.backends.cuda.card import Card
from weft.backends.cuda.compiling import compile_for_device, machine_of, program_for
from weft.backends.cuda.eager import current_build
from weft.backends.cuda.execute import CudaExecutable
from weft.backends.cuda.forms import form_for
from weft.backends.cuda.holders import sole_arrays, spare_gradients
from weft.backends.cuda.meeting import shared_graph
from weft.base.concrete import any_on_device
from weft.errors import DeviceError, ParallelError, WeftError
from weft.ir.graph import Graph
from weft.ir.types import TensorType

Build = Callable[[Graph], Executable]
_OPTIONS = {"check_nan", "fast_math", "disable", "lowering"}  # that programs for devices take


def placed_build(build: Build, data: DeviceArray) -> Build:
    """What makes executables by a backend, for the device of some data if the backend leaves it to us."""
    on = data.card

    def make(graph: Graph, options: Mapping[str, Any], host: Callable[[], Executable]) -> Executable:
        if current_build() is not compile_for_device or not options.keys() <= _OPTIONS:
            return host()
        try:
            return PlacedExecutable(graph, on, host, options)
        except (DeviceError, ParallelError):  # of the device itself, or of other ranks
            raise
        except WeftError:  # something in it has no kernel: each op finds its own way
            return host()

    def placed(graph: Graph) -> Executable:
        with placed_by(make):
            return build(graph)

    return placed


def arena_on_device(graph: Graph, data: DeviceArray) -> Any:
    """The bytes that a program of an optimised graph needs in between on the device of some data.

    They may be an expression in named sizes; None where there is no program for it.
    """
    if current_build() is not compile_for_device:
        return None
    from weft.backends.cuda.build import loops_of

    try:
        return loops_of(shared_graph(graph, data.card), machine_of(data.card)).arena_size
    except (DeviceError, ParallelError):
        raise
    except WeftError:
        return None


class PlacedExecutable(CudaExecutable):
    """A graph on a device; where all its arrays are on the host, that runs it."""

    def __init__(
        self, graph: Graph, on: Card, host: Callable[[], Executable], options: Mapping[str, Any]
    ) -> None:
        super().__init__(on, program_for(graph, on, **options), graph, options)
        self._build_host = host
        self._host: Executable | None = None

    def sole_arrays(self, places: Sequence[int]) -> Callable[[list[Any]], bool]:
        """What tells of the inputs of a call whether only their tensors hold those at places."""
        return sole_arrays(places)

    def spare_gradients(self, results: Sequence[int]) -> Callable[[Sequence[Any]], list[Any]]:
        """What gives the old gradients of tensors as memory for late results, which become their new ones.

        It gives arrays, to be handed to calls after the inputs; or none, where somebody needs the old ones.
        """
        self.spare(results)
        return spare_gradients([self.program.outputs[r] for r in results], self.card)

    def form_of(self, kind: TensorType) -> Any:
        """The form of results of a type."""
        return form_for(self.card, kind)

    def _run(self, arrays: Sequence[Any], flags: Sequence[bool], stream: Any) -> list[Any]:
        cards = {a.card for a in arrays if type(a) is DeviceArray}
        if cards == {self.card} or not arrays:
            return super()._run(arrays, flags, stream)
        arrays = arrays[: len(self.program.inputs)]
        if cards:  # all has moved to another one
            return run_on_device(self.graph, arrays)
        return list(self._on_host()(arrays))

    def _on_host(self) -> Executable:
        if self._host is None:
            self._host = self._build_host()
        return self._host

    def explain(self, arrays: Sequence[Any] | None = None) -> object:
        """What it does where the arrays are, and how long that takes; without any, on the device."""
        if arrays and not any(type(a) is DeviceArray for a in arrays):
            return self._on_host().explain(arrays)
        return super().explain(arrays)


def watch_calls() -> None:
    """Have calls go by way of the watcher that there is, or by none."""
    if not watching:
        if "_enter" in vars(PlacedExecutable):
            del PlacedExecutable._enter
        return
    [watcher], enter = watching, CudaExecutable._enter

    def watched(self: PlacedExecutable, arrays: Sequence[Any], flags: tuple[bool, ...]) -> list[Any]:
        arrays = arrays[: len(self.program.inputs)]  # what is given for results is not needed
        plain = partial(enter, self, arrays, flags[: len(arrays)])
        here = {a.card for a in arrays if type(a) is DeviceArray} <= {self.card}
        if not here or self.card.current().capture is not None or not any_on_device(arrays):
            return plain()
        return watched_run(self, arrays, plain, watcher)

    PlacedExecutable._enter = watched  # type: ignore[method-assign, assignment]


watch_calls()

"""A graph from a file with all that compiles it and finds out what is wrong with a call."""

from __future__ import annotations

from typing import Any

from weft.backends import builder
from weft.base.concrete import is_concrete
from weft.capture.version import Version
from weft.io.calls import Binder, program_of
from weft.io.saved import Saved, tensors_of
from weft.passes.pipeline import optimize
from weft.tensor.dispatch import recording
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor


class Opened:
    """A graph that is compiled at its first call.

    Attributes:
        saved: what the file holds.
        weights: a tensor for each weight.
        binder: finds the tensors among the arguments of a call.
        version: what runs it; None before the first call.
    """

    def __init__(self, saved: Saved, backend: Any = None, weights: dict[str, Any] | None = None) -> None:
        self.saved = saved
        build = builder("load_graph", backend, hints={"keep": True})
        self._build = lambda graph: build(optimize(graph))
        self.weights: dict[str, Tensor] = tensors_of(saved) if weights is None else weights
        self.binder = Binder(saved.graph.name, saved)
        self._program = program_of(saved, self.weights)
        self.version: Version | None = None

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a call gives."""
        tensors = self.binder.tensors(args, kwargs)
        if self.version is None:
            self.version = Version(self._program, self._build)
        if thread.capture is not None or any(map(_is_followed, (*tensors, *self.weights.values()))):
            return self.version.replay(tensors)
        return self.version(tensors)


def _is_followed(x: Tensor) -> bool:
    """Whether something follows what is computed from a tensor: the tape, or a transform."""
    return not is_concrete(x._data) or (x._node is not None and recording())

"""A graph run by a backend, as one node of the tape.

What runs it is a function from arrays to arrays. Its gradient is the backward graph of its ``Derivative``,
run the same way. Where tensors are wanted (a gradient of a gradient, a transform, another capture) both
graphs are replayed op by op instead, so that everything composes as if there had been no capture.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.concrete import is_concrete
from weft.base.dtypes import kind
from weft.errors import GradientError
from weft.ir.graph import Array, Graph
from weft.ir.interpret import interpret
from weft.ops.op import intercepted, type_of
from weft.ops.select import select
from weft.tensor.dispatch import recording
from weft.tensor.mode import no_grad, thread
from weft.tensor.node import Output, make_node
from weft.tensor.rules import Backward
from weft.tensor.tensor import Tensor, wrap
from weft.transform.joint import Derivative
from weft.transform.tracing import replay

Run = Callable[[Sequence[Array]], Sequence[Array]]
ndarray = np.ndarray


def interpreted(graph: Graph) -> Run:
    """The reference way to run a graph."""
    return lambda arrays: interpret(graph, arrays)


class Recorder:
    """Runs the two graphs of a derivative on tensors.

    Args:
        derivative: of the graph.
        wrt: positions of the inputs whose gradients it gives.
        build: what runs a graph on arrays.
        pointwise: whether each element of the only result depends on one of the only input alone.
        untold_gradient: whether the gradient is not that of the graph's ops: see ``CaptureRoot``.
        untold_tangent: whether tangents are not.
    """

    __slots__ = (
        "_backward",
        "_forward",
        "_outputs",
        "_rule",
        "_seeded",
        "_updates",
        "_wanted",
        "derivative",
        "untold_gradient",
        "untold_tangent",
        "wrt",
    )

    def __init__(
        self,
        derivative: Derivative,
        wrt: Sequence[int],
        build: Callable[[Graph], Run] = interpreted,
        *,
        pointwise: bool = False,
        untold_gradient: bool = False,
        untold_tangent: bool = False,
    ) -> None:
        forward = derivative.forward
        self.untold_gradient = untold_gradient
        self.untold_tangent = untold_tangent
        self.derivative = derivative
        self.wrt = tuple(wrt)
        self._forward = build(forward)
        self._backward = build(derivative.backward)
        self._outputs = len(forward.outputs) - derivative.saved
        self._updates = len(forward.updates)
        self._wanted = [i in self.wrt for i in range(len(forward.inputs))]
        self._seeded = [kind(v.type.dtype) in "fc" for v in forward.outputs[: self._outputs]]
        slots = (None, None, *range(len(forward.inputs)))  # the recorder, residuals, inputs; then types
        careful = _pull_unless_zero if pointwise else None
        name = forward.name.strip("<>")
        self._rule = Backward(name, _pull, slots, self._outputs, careful=careful, keeps_zeros=pointwise)

    def __call__(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """The outputs of the graph on tensors, recorded, and the new values of its updated inputs."""
        arrays = [t._data for t in tensors]
        captures = bool(intercepted.threads) and thread.capture is not None
        if captures or any(type(a) is not ndarray for a in arrays):
            return self._by_ops(tensors, arrays, captures)
        found = self._forward(arrays)
        if not self._updates:
            return self._record(tensors, arrays, found), []
        news = [wrap(a) for a in found[len(found) - self._updates :]]
        return self._record(tensors, arrays, found[: len(found) - self._updates]), news

    def _by_ops(
        self, tensors: Sequence[Tensor], arrays: list[Array], captures: bool
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The same where the graph's ops run one by one."""
        is_concrete_call = all(map(is_concrete, arrays))
        if self.untold_tangent and not captures and not is_concrete_call:
            raise self._untold()
        if not self.untold_gradient or not recording():
            results = replay(self.derivative.forward, tensors)
            return results[: self._outputs], results[len(results) - self._updates :]
        if captures or not is_concrete_call:
            raise self._untold()
        with no_grad():
            results = replay(self.derivative.forward, tensors)
        last = len(results) - self._updates
        return self._record(tensors, arrays, [t._data for t in results[:last]]), results[last:]

    def _untold(self) -> GradientError:
        return GradientError(
            self.derivative.forward.name.strip("<>"),
            "what weft.aot makes of code with a weft.Function, hooks, or changes that gradients ignore must "
            "not be called inside of transforms and other captures: its ops do not tell its gradient",
            hint="call the function itself there",
        )

    def _record(self, tensors: Sequence[Tensor], arrays: list[Array], found: Sequence[Array]) -> list[Tensor]:
        outs, residuals = found[: self._outputs], found[self._outputs :]
        edges = tuple([t._node if wanted else None for t, wanted in zip(tensors, self._wanted, strict=True)])
        if edges.count(None) == len(edges) or not recording():
            return [wrap(out) for out in outs]
        if self._outputs == 1:
            node = make_node(self._rule, edges, (self, residuals, *arrays))
            return [wrap(outs[0], node if self._seeded[0] else None)]
        node = make_node(self._rule, edges, (self, residuals, *arrays, tuple(map(type_of, outs))))
        return [
            wrap(out, Output(node, k) if seeded else None)
            for k, (out, seeded) in enumerate(zip(outs, self._seeded, strict=True))
        ]

    def pull(self, gradients: Sequence[Any], inputs: Sequence[Any], residuals: Sequence[Array]) -> list[Any]:
        """The gradients of the inputs, from arrays by running the backward graph, from tensors by its ops."""
        forward, backward, kept, _, saved = self.derivative
        seeds = [g for g, seeded in zip(gradients, self._seeded, strict=True) if seeded]
        if not isinstance(seeds[0], Tensor):
            return list(self._backward([*residuals, *[inputs[i] for i in kept], *seeds]))
        given = [wrap(r) for r in residuals]
        if saved and any(x._node is not None for x in inputs):  # residuals depend on these
            given = replay(forward, inputs)[self._outputs : len(forward.outputs)]
        found = replay(backward, [*given, *[inputs[i] for i in kept], *seeds])
        return list(map(once, found)) if self.untold_gradient else found


def once(x: Any) -> Any:
    """A gradient that must not be differentiated: in graphs, values of a custom function are behind stops."""
    return x if x._node is None else wrap(x._data, make_node(_ONCE, (x._node,), ()))


def _refuse(g: object, saved: object, edges: object) -> Sequence[Any]:
    raise GradientError(
        "backward",
        "compiled code with a weft.Function, hooks, or changes that gradients ignore must be differentiated "
        "once, got twice",
        hint="call the function itself, not what was compiled of it",
    )


_ONCE = Backward("once", _refuse, ())


def _pull(g: object, saved: tuple[Any, ...], edges: tuple[Any, ...]) -> list[Any]:
    """The backward rule of all recorders."""
    recorder: Recorder = saved[0]
    found = recorder.pull(g if isinstance(g, list) else [g], saved[2 : 2 + len(edges)], saved[1])
    grads: list[Any] = [None] * len(edges)
    for i, gradient, reached in zip(recorder.wrt, found, recorder.derivative.reached, strict=True):
        if reached and edges[i] is not None:
            grads[i] = gradient
    return grads


def _pull_unless_zero(g: object, saved: tuple[Any, ...], edges: tuple[Any, ...]) -> list[Any]:
    """The same, but 0 where g is 0, even if the slope is infinite or NaN there."""
    return [None if x is None else select(g == 0, g, x) for x in _pull(g, saved, edges)]

"""A ``weft.Function`` applied in a region becomes one node, which holds the backward that the user wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.dtypes import kind
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.ir.types import TensorType
from weft.ops.function import function as function_op
from weft.ops.op import TensorLike, type_of
from weft.tensor.call import Call, run_forward
from weft.tensor.tensor import Tensor, wrap
from weft.transform.control.regions import split_groups, zeros
from weft.transform.tracing import replay, trace_graph


def apply_in_region(function: Any, args: Sequence[Any]) -> tuple[Any, Call]:
    """Apply a function as a node of the region that is traced."""
    arguments = [a for a in args if isinstance(a, Tensor)]
    traced = _Traced(function, args, arguments)
    operands = [*arguments, *traced.imports]
    seeded = tuple(k for k, constant in enumerate(traced.made.constant) if not constant)
    backward, more = traced.backward([type_of(t) for t in operands], seeded)
    outs = function_op.on_tensors(
        *operands,
        *more,
        name=function.__name__,
        body=traced.body,
        backward=backward,
        arguments=len(arguments),
        used=len(operands),
        seeded=seeded,
    )
    results = [o if k in seeded else wrap(o._data) for k, o in enumerate(outs[: traced.count])]
    made = traced.with_kept([o._data for o in outs[traced.count :]])
    return made.results(results, traced.results), made


class _Traced:
    """The forward of a function as a graph, from tensors and what it uses from around it.

    Attributes:
        made: the call, as backward needs it.
        results: what forward returned.
        count: how many tensors these are: the first outputs of the graph. The others are what backward keeps.
        body: the graph.
        imports: what it uses from around.
    """

    made: Call
    results: Sequence[Any]
    count: int

    def __init__(self, function: Any, args: Sequence[Any], arguments: Sequence[Tensor]) -> None:
        def forward(*given: Tensor) -> list[Any]:
            rest = iter(given)
            full = [next(rest) if isinstance(a, Tensor) else a for a in args]
            self.made, datas, self.results = run_forward(function, full)
            self.count = len(datas)
            return [wrap(d) for d in (*datas, *[d for d in self.made.kept if d is not None])]

        self.body, self.imports = trace_graph(forward, [type_of(t) for t in arguments], function.__name__)

    def with_kept(self, datas: Sequence[Any]) -> Call:
        """The call with data for what it kept."""
        rest = iter(datas)
        return self.made.with_kept([None if d is None else next(rest) for d in self.made.kept])

    def backward(self, operands: Sequence[TensorType], seeded: Sequence[int]) -> tuple[Graph, list[Tensor]]:
        """The user's backward as a graph, and what it uses from around."""
        made, outs = self.made, [v.type for v in self.body.outputs]
        arguments = operands[: len(made.places)]
        smooth = [kind(t.dtype) in "fc" for t in arguments]
        groups = [operands, outs[: self.count], outs[self.count :], [outs[k] for k in seeded]]

        def function(*given: Tensor) -> list[Any]:
            xs, results, kept, gradients = split_groups(given, groups)
            by_output = dict(zip(seeded, gradients, strict=True))
            grads = [by_output.get(k) for k in range(self.count)]
            call = self.with_kept([t._data for t in kept])
            found = call.backward(grads, call.tensors_at(xs[: len(arguments)], results), smooth)
            wanted = [(g, t) for g, t, s in zip(found, arguments, smooth, strict=True) if s]
            return [zeros(t) if g is None else g for g, t in wanted]

        return trace_graph(function, [t for group in groups for t in group], f"{made.name}_backward")


def function_vjp(
    g: Any,
    xs: Sequence[Any],
    outs: Sequence[Any],
    backward: Graph,
    arguments: int,
    used: int,
    seeded: Sequence[int],
) -> list[Any]:
    """The gradients of the operands, by the user's backward."""
    gradients = [g] if len(outs) == 1 and not isinstance(g, list | tuple) else g
    given = [zeros(type_of(outs[k])) if gradients[k] is None else gradients[k] for k in seeded]
    items = [*xs[:used], *outs, *given, *xs[used:]]
    run = replay if any(isinstance(x, TensorLike) for x in items) else interpret
    found = iter(run(backward, items))
    grads = [next(found) if kind(x.dtype) in "fc" else None for x in xs[:arguments]]
    return [*grads, *[None] * (len(xs) - arguments)]

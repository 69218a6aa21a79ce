"""How a ``weft.Function`` runs inside ``jvp`` and ``vmap``: by its own derivative, at every level.

In ``jvp`` the tangents come from the function's ``jvp``, or from transposing its backward, which is linear in
the gradient. In ``vmap`` forward and backward each run on a whole batch, as a function of the level below;
so whatever happens there, a gradient or another transform, meets the user's backward, not the ops of forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.concrete import is_concrete
from weft.errors import ArgumentError, GradientError
from weft.ops.batching import move_axis, to_front
from weft.ops.op import type_of
from weft.tensor.call import INSIDE, Call, call, read_method, run_forward, run_on_tensors
from weft.tensor.dispatch import filled_like
from weft.tensor.engine import node_of, run_backward, useful_edges
from weft.tensor.function import Function, once_differentiable
from weft.tensor.mode import call_user, enable_grad
from weft.tensor.node import Leaf
from weft.tensor.tensor import Tensor, wrap
from weft.transform.batch import Batched
from weft.transform.forward import Dual
from weft.transform.levels import Traced, new_level


def _tensors(items: Sequence[Any]) -> list[Tensor]:
    return [x for x in items if isinstance(x, Tensor)]


def _part(top: Traced, argument: object) -> Any:
    """The data of an argument if it belongs to the same transform as ``top``, else None."""
    data = getattr(argument, "_data", None)
    return data if type(data) is type(top) and data.level == top.level else None


def _listed(made: Call, results: Any) -> Sequence[Any]:
    return (results,) if made.single else results


# Forward mode


def apply_dual(top: Dual, function: type[Function], args: Sequence[Any]) -> tuple[Any, Call]:
    """Apply a function to values with tangents."""
    parts = [_part(top, a) for a in args]
    primals = [a if p is None else p.primal for a, p in zip(args, parts, strict=True)]
    results, made = call(function, primals)
    outs = _tensors(_listed(made, results))
    tangents = [p and p.tangent for a, p in zip(args, parts, strict=True) if isinstance(a, Tensor)]
    pushed = _push(made, _tensors(primals), tangents, outs)
    datas = [
        o._data if c else Dual(top.level, o, t) for o, c, t in zip(outs, made.constant, pushed, strict=True)
    ]
    return made.results(made.record(_tensors(args), datas), _listed(made, results)), made


def _push(made: Call, primals: list[Tensor], tangents: list[Any], outs: list[Tensor]) -> list[Any]:
    """The tangents of the outputs."""
    if all(t is None for t in tangents):
        return [None] * len(outs)
    if made.function.jvp is None:
        return _transposed(made, primals, tangents, outs)
    ctx = made.context(made.tensors_at(primals, outs), [t is not None for t in tangents])
    given: list[Any] = [None] * made.count
    for place, t, x in zip(made.places, tangents, primals, strict=True):
        given[place] = filled_like(x, 0) if t is None and made.materialize else t
    pushed = call_user(read_method(made.function, "jvp"), ctx, *given)
    listed = list(pushed) if isinstance(pushed, tuple | list) else [pushed]
    if len(listed) != len(made.outs):
        message = f"jvp must return one tangent for each of {len(made.outs)} outputs, got {len(listed)}"
        raise ArgumentError(made.name, message)
    tensors = [t for t, k in zip(listed, made.outs, strict=True) if k is not None]
    for t, out in zip(tensors, outs, strict=True):
        if t is not None and (not isinstance(t, Tensor) or type_of(t) != type_of(out)):
            got = type_of(t) if isinstance(t, Tensor) else type(t).__name__
            raise ArgumentError(made.name, f"jvp must return a tangent of type {type_of(out)}, got {got}")
    return tensors


def _transposed(made: Call, primals: list[Tensor], tangents: list[Any], outs: list[Tensor]) -> list[Any]:
    """Tangents by differentiating backward, a linear function of the gradients, by these."""
    seeds = [filled_like(o, 1) for o in outs]
    leaves: list[Any] = [None if c else Leaf(s) for s, c in zip(seeds, made.constant, strict=True)]
    for seed, leaf in zip(seeds, leaves, strict=True):
        seed._node = leaf
    needs = [t is not None for t in tangents]
    with enable_grad():
        grads = run_on_tensors(made, seeds, made.tensors_at(primals, outs), needs)
        roots = [(g, t) for g, t in zip(grads, tangents, strict=True) if t is not None and g is not None]
        targets = [leaf for leaf in leaves if leaf is not None]
        for g, _ in roots:
            _check_linked(made, g, set(targets))
        found = run_backward(
            [(g._node, t) for g, t in roots if g._node is not None],
            retain_graph=True,
            create_graph=True,
            targets=targets,
        )
    pushed = iter(found)
    return [None if leaf is None else next(pushed) for leaf in leaves]


def _check_linked(made: Call, grad: Tensor, leaves: set[Any]) -> None:
    """Raise if a gradient does not come from the output's gradient by weft's functions, nor is it zero."""
    edge = grad._node
    if edge is not None:
        useful = useful_edges([edge], leaves)
        if useful is None or node_of(edge) in useful:
            return
    if not is_concrete(grad._data) or grad._data.any():
        message = "forward mode needs a backward written in weft's functions, got one that leaves the graph"
        hint = "write it so, or define a static method jvp(ctx, *tangents)"
        raise GradientError(made.name, message, hint=hint)


# Batches


def apply_batched(top: Batched, function: type[Function], args: Sequence[Any]) -> tuple[Any, Call]:
    """Apply a function to all examples, as one function of the level below."""
    parts = [_part(top, a) for a in args]
    values = [a if p is None else p.value for a, p in zip(args, parts, strict=True)]
    mapped = _mapped(function, top.value.shape[top.axis], [p and p.axis for p in parts])
    outs, below = call(mapped, values)
    batch = below.attributes
    kept = below.tensors_at(_tensors(values), outs)[len(batch["made"].places) + len(outs) :]
    datas = [_at(top.level, v, a)._data for v, a in zip(outs, batch["out_axes"], strict=True)]
    at_level = [_at(top.level, v, a) for v, a in zip(kept, batch["kept_axes"], strict=True)]
    made: Call = batch["made"].with_kept([None if t is None else t._data for t in at_level])
    return made.results(made.record(_tensors(args), datas), batch["others"]), made


def _mapped(function: type[Function], size: int, axes: list[int | None]) -> type[Function]:
    """The function that runs ``function`` on batches of some size, along these axes of its arguments."""

    def forward(ctx: Any, *values: Any) -> tuple[Any, ...]:
        with new_level() as level:
            examples = [_at(level, v, a) for v, a in zip(values, axes, strict=True)]
            made, datas, results = run_forward(function, examples)
            outs = [
                _value_and_axis(level, wrap(d), None if c else size)
                for d, c in zip(datas, made.constant, strict=True)
            ]
            kept = [(None, None) if d is None else _value_and_axis(level, wrap(d)) for d in made.kept]
        ctx.made = made.with_kept([None] * len(kept))  # the call on one example
        ctx.out_axes, ctx.kept_axes = [axis for _, axis in outs], [axis for _, axis in kept]
        ctx.others = [None if isinstance(r, Tensor) else r for r in results]
        ctx.save_for_backward(*_tensors(values), *[v for v, _ in outs], *[v for v, _ in kept])
        ctx.set_materialize_grads(made.materialize)
        ctx.mark_non_differentiable(*[v for (v, _), c in zip(outs, made.constant, strict=True) if c])
        return tuple(v for v, _ in outs)

    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        made = ctx.made
        results: list[Any] = [None] * len(axes)
        with new_level() as level:
            given = [_at(level, g, a) for g, a in zip(grads, ctx.out_axes, strict=True)]
            needs = _at_places(made, ctx.needs_input_grad)
            found = run_on_tensors(made, given, _kept_at(level, ctx, axes), needs)
            for place, g in zip(made.places, found, strict=True):
                results[place] = None if g is None else _summed(level, g, axes[place], size)
        return tuple(results)

    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        made = ctx.made
        with new_level() as level:
            needs = [t is not None for t in _at_places(made, tangents)]
            inner = made.context(_kept_at(level, ctx, axes), needs)
            given = [_at(level, t, a) for t, a in zip(tangents, axes, strict=True)]
            pushed = call_user(read_method(made.function, "jvp"), inner, *given)
            tensors = [t for t, k in zip(_listed(made, pushed), made.outs, strict=True) if k is not None]
            return tuple(
                t if t is None or a is None else _stacked(level, t, a, size)
                for t, a in zip(tensors, ctx.out_axes, strict=True)
            )

    if getattr(function.backward, "once_differentiable", False):
        backward = once_differentiable(backward)
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    if function.jvp is not None:
        members["jvp"] = staticmethod(jvp)
    return type(function.__name__, (Function,), members)


def _kept_at(level: int, ctx: Any, axes: list[int | None]) -> list[Any]:
    """What the call on one example kept, at another level."""
    made = ctx.made
    places = [*[axes[p] for p in made.places], *ctx.out_axes, *ctx.kept_axes]
    tensors = [_at(level, v, a) for v, a in zip(ctx.saved_tensors, places, strict=True)]
    inputs, outs = len(made.places), len(ctx.out_axes)
    return [
        tensors[inputs + outs + i] if slot is None else tensors[slot if slot >= 0 else inputs + ~slot]
        for i, slot in enumerate(made.slots)
    ]


def _at_places(made: Call, items: Sequence[Any]) -> list[Any]:
    return [items[place] for place in made.places]


def _at(level: int, value: Any, axis: int | None) -> Any:
    """A value of the level below as one example of it; None stays None, and what all share stays as it is."""
    return value if value is None or axis is None else wrap(Batched(level, value, axis))


def _value_and_axis(level: int, tensor: Tensor, size: int | None = None) -> tuple[Tensor, int | None]:
    """The value below of one example, and its batch axis; what all share is repeated if a size is given."""
    data = tensor._data
    if type(data) is Batched and data.level == level:
        return data.value, data.axis
    return (tensor, None) if size is None else (to_front(tensor, None, size), 0)


def _stacked(level: int, tensor: Tensor, axis: int, size: int) -> Tensor:
    """The value below of one example, with its batch axis at a place."""
    value, found = _value_and_axis(level, tensor, size)
    return move_axis(value, found or 0, axis)


def _summed(level: int, grad: Tensor, axis: int | None, size: int) -> Tensor:
    """The gradient of an argument from that of one example: stacked, or summed where examples share it."""
    if axis is not None:
        return _stacked(level, grad, axis, size)
    out: Tensor = _stacked(level, grad, 0, size).sum(axis=0)
    return out


INSIDE[Dual] = apply_dual
INSIDE[Batched] = apply_batched

"""Backward rules: from an op's declared derivative to a function the engine can call.

A rule is bound once for each op. It knows which data to save when the op runs, and how to turn the
gradient of the outputs into gradients of the inputs. It runs on arrays or on tensors alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from operator import itemgetter
from typing import Any

import numpy as np

from weft.base.public import parameters
from weft.ops.broadcast import unbroadcast
from weft.ops.compare import isfinite
from weft.ops.op import NoGradient, Op, Tensor, type_of
from weft.ops.select import keep_where, select

Saved = tuple[Any, ...]
Edges = tuple[Any, ...]
Run = Callable[[Any, Saved, Edges], Sequence[Any]]

REST = "rest"  # the slot of a tuple of the variadic inputs
NEEDED = "needed"  # the last parameter of a rule that asks which inputs need a gradient


class Backward:
    """A bound backward rule.

    Attributes:
        name: of the op, as shown by ``grad_fn``.
        run: ``(gradient, saved, edges) -> gradients of the inputs``; an input whose edge is None needs none.
        slots: for each saved value the input it is (i >= 0), the output it is (~k), REST, or None.
        outputs: number of outputs.
        materialize: whether outputs to which no gradient came get one of zeros, if there are several.
        plain: whether the engine may run it on the fast path.
        masks: whether zeros in its gradients mean that an input was not chosen.
        careful: the same as run, but where the gradient is 0 its product with any slope is 0; None if run
            is so already, or if there is no slope for each element.
        keeps_zeros: whether elements whose gradient is 0 have inputs whose gradient is 0.
        keeps_device: whether gradients of inputs are where that of the output is.
        takes_devices: whether ``run`` takes arrays of devices as they are; else it is traced for them.
        is_flat: whether it works element by element on arrays of one shape, and numbers, whatever their axes.
        is_users: whether a function of the user gives it, which runs where a gradient comes and nowhere else.
        piece: ``(gradient, saved) -> `` the gradient of the only input as a part of a sum, see
            ``weft.tensor.pieces``, or None; None if it never is one.
        ways: ``(rows, saved, edges) -> rows`` of whether a gradient reaches each input, from whether one
            came to each output: see ``Op.ways``.
        pull: ``(gradient, saved) -> gradients of the inputs`` on a device, or None where something is
            unusual: the short way of a rule that was made for one kind of call; None for others.
    """

    __slots__ = (
        "careful",
        "is_flat",
        "is_users",
        "keeps_device",
        "keeps_zeros",
        "masks",
        "materialize",
        "name",
        "outputs",
        "piece",
        "plain",
        "pull",
        "run",
        "slots",
        "takes_devices",
        "ways",
    )

    def __init__(
        self,
        name: str,
        run: Run,
        slots: tuple[Any, ...],
        outputs: int = 1,
        materialize: bool = True,
        *,
        masks: bool = False,
        careful: Run | None = None,
        keeps_zeros: bool = False,
        keeps_device: bool = True,
        takes_devices: bool = False,
        is_flat: bool = False,
        is_users: bool = False,
        piece: Callable[[Any, Saved], Any] | None = None,
        ways: Run | None = None,
    ) -> None:
        self.name = name
        self.run = run
        self.slots = slots
        self.outputs = outputs
        self.materialize = materialize
        self.plain = outputs == 1 and not masks and piece is None
        self.masks = masks
        self.careful = careful
        self.keeps_zeros = keeps_zeros
        self.keeps_device = keeps_device
        self.takes_devices = takes_devices
        self.is_flat = is_flat
        self.is_users = is_users
        self.piece = piece
        self.ways = ways
        self.pull: Callable[[Any, Saved], Sequence[Any] | None] | None = None

    def parts(self) -> dict[str, Any]:
        """What it is made of, by the parameters of the constructor."""
        names = ("name", "run", "slots", "outputs", "materialize", "masks", "careful", "keeps_zeros")
        further = ("keeps_device", "takes_devices", "is_flat", "is_users", "piece", "ways")
        return {name: getattr(self, name) for name in (*names, *further)}

    def replace(self, **changes: object) -> Backward:
        """The same rule with other parts: ``rule.replace(outputs=2)``."""
        return Backward(**{**self.parts(), **changes})


def multiply_unless_zero(g: Tensor, partial: Any) -> Tensor:
    """``g * partial``, but 0 where g is 0, even if partial is infinite or NaN there."""
    if isinstance(g, np.ndarray | np.generic):
        return select(g == 0, g, g * partial)
    # The slope by g must stay the partial where that is finite: at a minimum of a loss every g is 0.
    lost = (g == 0) & ~isfinite(partial)
    return g * select(lost, np.zeros((), partial.dtype), partial)


def multiply_gated(g: Tensor, gate: tuple[Any, Any]) -> Any:
    """g times the factor of a gate where it is open, else 0, even if g is infinite there."""
    is_open, factor = gate
    return keep_where(is_open, g if factor is None else g * factor)


def _multiply_gated_unless_zero(g: Tensor, gate: tuple[Any, Any]) -> Any:
    is_open, factor = gate
    return multiply_gated(g if factor is None else multiply_unless_zero(g, factor), (is_open, None))


def _vjp_of_partial(
    op: Op, partial: Any, conjugate: bool, *, careful: bool = False
) -> Callable[[Any, Saved], Any]:
    """A function of (gradient, saved) that multiplies by a partial; saved is (x, y, ..., out, shapes)."""
    if isinstance(partial, int | float):
        return _scaled_by(partial)
    names = (*op.inputs, "out")
    positions = [names.index(p) for p in parameters(partial)[0]]
    pick = itemgetter(*positions) if positions else None
    single = positions[0] if len(positions) == 1 else None
    if op.singular or op.gated or conjugate or careful:
        multiply = _multiplier(op, careful)

        def product(g: Tensor, saved: Saved) -> Any:
            args = [saved[i] for i in positions]
            p = partial(*args)
            if conjugate and not isinstance(p, int | float):
                p = p.conj()
            return multiply(g, p) if multiply else g * p

        return product
    if single is not None:
        return lambda g, saved: g * partial(saved[single])
    if pick is None:
        return lambda g, saved: g * partial()
    return lambda g, saved: g * partial(*pick(saved))


def _multiplier(op: Op, careful: bool) -> Callable[[Any, Any], Any] | None:
    """How a gradient is multiplied with a partial, None for plainly."""
    if op.gated:
        return _multiply_gated_unless_zero if careful else multiply_gated
    return multiply_unless_zero if op.singular or careful else None


def _scaled_by(factor: float) -> Callable[[Any, Saved], Any]:
    if factor == 1:
        return lambda g, saved: g
    if factor == -1:
        return lambda g, saved: -g
    return lambda g, saved: g * factor


@cache
def saved_by_partials(op: Op, differentiated: tuple[bool, ...]) -> tuple[bool, ...]:
    """For each input and then the output of an elementwise op, whether backward needs its data.

    Only the partials by inputs that are differentiated count: ``x * mask`` need not keep x.
    """
    names: set[str] = set()
    for partial, counts in zip(op.partials or (), differentiated, strict=True):
        if counts and callable(partial):
            names.update(parameters(partial)[0])
    return tuple(name in names for name in (*op.inputs, "out"))


def bind_elementwise(op: Op, *, conjugate: bool = False) -> Backward:
    """The rule of an elementwise op; saved is (*inputs, out, shapes), shapes None if nothing broadcast."""
    run = _elementwise_run(op, conjugate, careful=False)
    careful = None if op.singular else _elementwise_run(op, conjugate, careful=True)
    slots = (*range(len(op.inputs)), ~0, None)
    return Backward(op.name, run, slots, careful=careful, keeps_zeros=True)


def _elementwise_run(op: Op, conjugate: bool, *, careful: bool) -> Run:
    assert op.partials is not None
    vjps = [_vjp_of_partial(op, p, conjugate, careful=careful) for p in op.partials]
    run: Run

    if len(vjps) == 1:
        first = vjps[0]

        def run(g: Tensor, saved: Saved, edges: Edges) -> Sequence[Any]:
            return (first(g, saved),)

    elif len(vjps) == 2:
        first, second = vjps
        passes_first, passes_second = (p == 1 for p in op.partials)

        def run(g: Tensor, saved: Saved, edges: Edges) -> Sequence[Any]:
            gx = None if edges[0] is None else g if passes_first else first(g, saved)
            gy = None if edges[1] is None else g if passes_second else second(g, saved)
            shapes = saved[3]
            if shapes is None:
                return gx, gy
            return (
                None if gx is None else unbroadcast(gx, shapes[0]),
                None if gy is None else unbroadcast(gy, shapes[1]),
            )

    else:

        def run(g: Tensor, saved: Saved, edges: Edges) -> Sequence[Any]:
            grads = [None if e is None else vjp(g, saved) for vjp, e in zip(vjps, edges, strict=True)]
            shapes = saved[-1]
            if shapes is None:
                return grads
            return [None if gi is None else unbroadcast(gi, s) for gi, s in zip(grads, shapes, strict=True)]

    return run


class Plan:
    """Which values a declared vjp asks for by name, and how to find them when the op runs."""

    __slots__ = ("getters", "op", "slots", "sources")

    def __init__(self, op: Op) -> None:
        self.op = op
        self.sources: list[tuple[str, Any]] = []
        self.slots: list[Any] = []
        self.getters: list[Callable[..., Any]] = []

    def position(self, name: str) -> int:
        """The place in ``saved`` of the value called ``name``, added if it is new."""
        source, slot = self._source(name)
        if source not in self.sources:
            self.sources.append(source)
            self.slots.append(slot)
            self.getters.append(_getter(*source, len(self.op.inputs)))
        return self.sources.index(source)

    def _source(self, name: str) -> tuple[tuple[str, Any], Any]:
        op = self.op
        if name in op.inputs:
            i = op.inputs.index(name)
            return ("input", i), i
        if name == op.variadic and name:
            return ("rest", None), REST
        if name == "out":
            return ("output", 0), ~0
        if name == "outs":
            return ("outputs", None), "outs"
        if name in op.attrs:
            return ("attr", name), None
        if name.endswith("_type"):
            base = name[:-5]
            if base in op.inputs:
                return ("type", op.inputs.index(base)), None
            if base == op.variadic:
                return ("rest_types", None), None
        raise TypeError(f"a rule of op {op.name} asks for {name!r}, which it does not have")

    def save(self, datas: Sequence[Any], outs: Sequence[Any], attrs: dict[str, Any]) -> Saved:
        """What backward needs of one call."""
        return tuple([get(datas, outs, attrs) for get in self.getters])


def _getter(kind: str, key: object, fixed: int) -> Callable[..., Any]:
    """How one saved value is found among the inputs' data, the outputs' and the attributes of a call."""
    match kind:
        case "input":
            return lambda datas, outs, attrs: datas[key]
        case "output":
            return lambda datas, outs, attrs: outs[key]
        case "attr":
            return lambda datas, outs, attrs: attrs[key]
        case "type":
            return lambda datas, outs, attrs: type_of(datas[key])
        case "rest":
            return lambda datas, outs, attrs: tuple(datas[fixed:])
        case "outputs":
            return lambda datas, outs, attrs: tuple(outs)
        case _:
            return lambda datas, outs, attrs: tuple(map(type_of, datas[fixed:]))


def _bound(rule: Callable[..., Any], plan: Plan) -> Run:
    """A declared rule as a function of what comes in, what was saved, and the edges."""
    names = parameters(rule)[0][1:]
    where = [plan.position(n) for n in names if n != NEEDED]
    asks = NEEDED in names

    def run(g: Tensor, saved: Saved, edges: Edges) -> Sequence[Any]:
        values = [saved[i] for i in where]
        if asks:
            values.append(tuple([e is not None for e in edges]))
        found: Sequence[Any] = rule(g, *values)
        return found

    return run


def bind_declared(op: Op) -> tuple[Backward, Plan]:
    """The rule of an op whose vjp is declared, and the plan of what it saves."""
    plan = Plan(op)
    keeps = op.linear == "joint" or (op.linear == "each" and len(op.inputs) == 1 and not op.variadic)
    if callable(op.vjp):
        materialize = op.outputs != 0  # a rule for any number of outputs gets None where no gradient came
        run, ways = _bound(op.vjp, plan), None if op.ways is None else _bound(op.ways, plan)
        slots = tuple(plan.slots)
        return Backward(op.name, run, slots, op.outputs, materialize, keeps_zeros=keeps, ways=ways), plan

    rules = [
        None if isinstance(rule, NoGradient) else (rule, [plan.position(n) for n in parameters(rule)[0][1:]])
        for rule in op.vjp
    ]

    def run_each(g: Tensor, saved: Saved, edges: Edges) -> Sequence[Any]:
        return [
            None if edge is None or rule is None else rule[0](g, *[saved[i] for i in rule[1]])
            for rule, edge in zip(rules, edges, strict=True)
        ]

    ways = None if op.ways is None else _bound(op.ways, plan)
    slots = tuple(plan.slots)
    return Backward(op.name, run_each, slots, op.outputs, masks=op.masks, keeps_zeros=keeps, ways=ways), plan

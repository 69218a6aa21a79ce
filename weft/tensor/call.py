"""One application of a ``weft.Function``, as the graph keeps it.

``Context`` is what forward hands to backward. ``Call`` holds data and where each kept tensor hung, never
the tensors, so that it makes no reference cycle and no later change reaches it. How a call runs inside
``jvp`` and ``vmap`` is entered into ``INSIDE`` by the layer above.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from weft.base.concrete import is_concrete
from weft.base.dtypes import kind
from weft.base.hooks import hooks
from weft.errors import ArgumentError, DtypeError, GradientError, ShapeError
from weft.ir.types import TensorType
from weft.ops.op import intercepted, type_of
from weft.tensor.dispatch import recording, stage, wrap
from weft.tensor.mode import call_user, no_grad, thread
from weft.tensor.node import Output, make_node
from weft.tensor.rules import Backward
from weft.tensor.tensor import Tensor


class Context:
    """What forward hands to backward: saved tensors, and any attributes the user sets."""

    needs_input_grad: tuple[bool, ...]

    def __init__(self) -> None:
        self._saved: tuple[Any, ...] = ()
        self._constant: tuple[Any, ...] = ()
        self._materialize = True

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Keep tensors for backward; inputs and outputs stay differentiable there."""
        for i, t in enumerate(tensors):
            if t is not None and not isinstance(t, Tensor):
                raise ArgumentError(
                    "save_for_backward",
                    f"takes tensors and None, got {type(t).__name__} at {i}",
                    hint="keep other things as attributes of ctx",
                )
        self._saved = tensors

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]:
        """What ``save_for_backward`` kept."""
        return self._saved

    def mark_non_differentiable(self, *outputs: Tensor) -> None:
        """Say that outputs have no gradient."""
        self._constant = outputs

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros, or else None, for outputs to which no gradient came."""
        self._materialize = bool(value)


def read_method(function: object, name: str) -> Any:
    """A method of a Function, on which a capture that runs relies."""
    found = getattr(function, name)
    if intercepted.threads and thread.capture is not None:
        thread.capture.root.read_attr(function, name, found)
    return found


def _new_context() -> Context:
    """An empty context, which a capture that runs knows to be its own."""
    ctx = Context()
    if intercepted.threads and thread.capture is not None:
        thread.capture.note_made(ctx)
    return ctx


class Call:
    """One application of a Function.

    Attributes:
        function: the class.
        places: of each tensor among the arguments, its position.
        count: number of arguments.
        types: of the tensors among the arguments.
        outs: of each result its number among the tensors, or None if it is something else.
        single: whether forward returned one result rather than a tuple.
        constant: of each tensor among the results, whether it has no gradient.
        names: of each kept tensor the attribute it was, or "" if it was saved; None stands for no tensor.
        slots: of each kept tensor the input it is (i >= 0), the output it is (~k), or None.
        kept: of each kept tensor that is neither, its data.
        attributes: that the user set, other than tensors.
        materialize: whether missing gradients become zeros.
    """

    function: Any
    places: tuple[int, ...]
    count: int
    types: tuple[TensorType, ...]
    outs: tuple[int | None, ...]
    single: bool
    constant: tuple[bool, ...]
    names: tuple[str | None, ...]
    slots: tuple[int | None, ...]
    kept: tuple[Any, ...]
    attributes: dict[str, Any]
    materialize: bool

    def __init__(self, **parts: object) -> None:
        self.__dict__.update(parts)

    def with_kept(self, kept: Sequence[Any]) -> Call:
        """The same call with other data for the tensors that are neither inputs nor outputs."""
        return Call(**{**self.__dict__, "kept": tuple(kept)})

    @property
    def name(self) -> str:
        """Of the class, for errors."""
        name: str = self.function.__name__
        return name

    def context(self, tensors: Sequence[Any], needs: Sequence[bool]) -> Context:
        """A context as forward left it, with the kept tensors as given."""
        ctx = _new_context()
        ctx.__dict__.update(self.attributes)
        ctx._saved = tuple(t for t, name in zip(tensors, self.names, strict=True) if not name)
        for t, name in zip(tensors, self.names, strict=True):
            if name:
                setattr(ctx, name, t)
        wanted = [False] * self.count
        for place, needed in zip(self.places, needs, strict=True):
            wanted[place] = needed
        ctx.needs_input_grad = tuple(wanted)
        return ctx

    def tensors_at(self, inputs: Sequence[Any], outs: Sequence[Any]) -> Any:
        """The kept tensors, where inputs and outputs are these."""
        found = []
        for name, slot, data in zip(self.names, self.slots, self.kept, strict=True):
            if slot is None:
                found.append(None if name is None else wrap(data))
            else:
                found.append(inputs[slot] if slot >= 0 else outs[~slot])
        return found

    def record(self, inputs: Sequence[Any], datas: Sequence[Any]) -> list[Tensor]:
        """The output tensors of this call on inputs, recorded if something among these requires grad."""
        edges = tuple([t._node for t in inputs])
        if not recording() or all(e is None for e in edges) or all(self.constant):
            return [wrap(d) for d in datas]
        kept = [
            data if slot is None else inputs[slot]._data if slot >= 0 else datas[~slot]
            for slot, data in zip(self.slots, self.kept, strict=True)
        ]
        slots = (None, *self.slots)
        rule = Backward(self.name, _run, slots, len(datas), self.materialize, is_users=True)
        node = make_node(rule, edges, (self, *kept, tuple(map(type_of, datas))))
        return [
            wrap(d, None if self.constant[k] else node if len(datas) == 1 else Output(node, k))
            for k, d in enumerate(datas)
        ]

    def results(self, outs: Sequence[Any], others: Sequence[Any]) -> Any:
        """What apply returns: output tensors, and what else forward returned, in its order."""
        full = tuple(other if k is None else outs[k] for k, other in zip(self.outs, others, strict=True))
        return full[0] if self.single else full

    def backward(
        self, grads: Sequence[Any], kept: Sequence[Any], needs: Sequence[bool]
    ) -> list[Tensor | None]:
        """The gradient of each tensor among the arguments, from tensors; None where there is none."""
        if self.function.backward is None:
            raise GradientError(self.name, "backward must be defined, got a Function without")
        ctx = self.context(kept, needs)
        given = call_user(
            read_method(self.function, "backward"), ctx, *[None if k is None else grads[k] for k in self.outs]
        )
        listed = tuple(given) if isinstance(given, tuple | list) else (given,)
        if len(listed) != self.count:
            raise GradientError(
                self.name,
                f"backward must return one gradient for each of {self.count} arguments, got {len(listed)}",
                hint="return None for arguments that are no tensors",
            )
        for i, g in enumerate(listed):
            if g is not None and i not in self.places:
                raise GradientError(
                    self.name,
                    f"backward must return None for what is no tensor, got a gradient of argument {i}",
                )
        return [
            self._checked(listed[place], expected, place) if needed else None
            for place, expected, needed in zip(self.places, self.types, needs, strict=True)
        ]

    def _checked(self, grad: Tensor, expected: TensorType, place: int) -> Tensor | None:
        what = f"backward must return a gradient of type {expected} for argument {place}"
        if grad is None:
            return None
        if not isinstance(grad, Tensor):
            raise ArgumentError(self.name, f"{what}, got {type(grad).__name__}")
        if type_of(grad).shape != expected.shape:
            raise ShapeError(self.name, f"{what}, got {type_of(grad)}")
        if type_of(grad).dtype == expected.dtype:
            return grad
        if kind(type_of(grad).dtype) == "c" or kind(expected.dtype) not in "fc":
            raise DtypeError(self.name, f"{what}, got {type_of(grad)}")
        return grad.astype(expected.dtype)


Inside = Callable[[Any, Any, Sequence[Any]], tuple[Any, Call]]
INSIDE: dict[type, Inside] = {}  # how a call runs where the data are of some kind other than arrays


def call(function: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, Call]:
    """Apply a function; gives what it returns, and the call as backward at this level needs it."""
    if intercepted.threads:
        for a in args:
            if isinstance(a, Tensor):
                stage(a)  # one from outside is an input: what holds its array alone is a constant
    traced = [a._data for a in args if isinstance(a, Tensor) and not is_concrete(a._data)]
    if traced:
        top = max(traced, key=lambda data: data.level)
        if inside := INSIDE.get(type(top)):
            return inside(top, function, args)
    if intercepted.threads and thread.capture is not None and thread.capture.region and recording():
        return hooks.apply_in_region(function, args)
    made, datas, others = run_forward(function, args)
    return made.results(made.record([a for a in args if isinstance(a, Tensor)], datas), others), made


def run_forward(function: Any, args: Sequence[Any]) -> tuple[Call, list[Any], Sequence[Any]]:
    """Run forward; gives the call, the data of the tensors it returned, and all it returned."""
    inputs = [wrap(a._data, a._node) if isinstance(a, Tensor) else a for a in args]
    datas = [a._data for a in inputs if isinstance(a, Tensor)]
    if function.forward is None:
        raise GradientError(function.__name__, "forward must be defined, got a Function without")
    ctx = _new_context()
    ctx.needs_input_grad = tuple([isinstance(a, Tensor) and a.requires_grad for a in inputs])
    with no_grad():
        if function.setup_context is not None:
            result = call_user(read_method(function, "forward"), *inputs)
            call_user(read_method(function, "setup_context"), ctx, tuple(inputs), result)
        else:
            result = call_user(read_method(function, "forward"), ctx, *inputs)
    single = not isinstance(result, tuple | list)
    results = (result,) if single else tuple(result)
    made = _describe(function, ctx, inputs, datas, results, single)
    return made, [r._data for r in results if isinstance(r, Tensor)], results


def _describe(
    function: Callable[..., Any],
    ctx: Context,
    args: Sequence[Any],
    datas: Sequence[Any],
    results: Sequence[Any],
    single: bool,
) -> Call:
    """The call that a run of forward makes."""
    inputs = [a for a in args if isinstance(a, Tensor)]
    outputs = [r for r in results if isinstance(r, Tensor)]
    _check_results(function, results, outputs)
    numbers = iter(range(len(outputs)))
    attributes = {k: v for k, v in vars(ctx).items() if k not in _OWN and not isinstance(v, Tensor)}
    kept = [("" if t is not None else None, t) for t in ctx._saved]
    kept += [(k, v) for k, v in vars(ctx).items() if k not in _OWN and isinstance(v, Tensor)]
    slots = tuple(_slot(t, inputs, datas, outputs) for _, t in kept)
    return Call(
        function=function,
        places=tuple(i for i, a in enumerate(args) if isinstance(a, Tensor)),
        count=len(args),
        types=tuple(map(type_of, datas)),
        outs=tuple(next(numbers) if isinstance(r, Tensor) else None for r in results),
        single=single,
        constant=tuple(_is_among(t, ctx._constant) or kind(type_of(t).dtype) not in "fc" for t in outputs),
        names=tuple(name for name, _ in kept),
        slots=slots,
        kept=tuple(
            None if t is None or s is not None else t._data for (_, t), s in zip(kept, slots, strict=True)
        ),
        attributes=attributes,
        materialize=ctx._materialize,
    )


_OWN = {"_saved", "_constant", "_materialize", "needs_input_grad"}


def _check_results(function: Callable[..., Any], results: Sequence[Any], outputs: Sequence[Any]) -> None:
    for r in results:
        if isinstance(r, np.ndarray | np.generic):
            raise ArgumentError(
                function.__name__,
                "forward must return tensors, got an array",
                hint="make it one with weft.tensor(...)",
            )
    if not outputs:
        got = ", ".join(type(r).__name__ for r in results) or "nothing"
        raise ArgumentError(function.__name__, f"forward must return a tensor, got {got}")


def _is_among(tensor: Tensor, others: Sequence[Any]) -> bool:
    return any(tensor is other for other in others)


def _slot(tensor: Tensor, inputs: Sequence[Any], datas: Sequence[Any], outputs: Sequence[Any]) -> int | None:
    """Which input or output a kept tensor is; an input that forward changed in place is none any more."""
    for i, (x, data) in enumerate(zip(inputs, datas, strict=True)):
        if tensor is x and x._data is data:
            return i
    return next((~k for k, out in enumerate(outputs) if tensor is out), None)


def _run(g: Tensor, saved: tuple[Any, ...], edges: tuple[Any, ...]) -> list[Any]:
    """The backward rule of all calls; saved is the call and the kept data, or tensors."""
    made: Call = saved[0]
    grads = g if isinstance(g, list) else [g]
    needs = [e is not None for e in edges]
    values = saved[1 : 1 + len(made.names)]
    kept = [v if v is None or isinstance(v, Tensor) else wrap(v) for v in values]
    if any(isinstance(x, Tensor) for x in grads):
        return run_on_tensors(made, grads, kept, needs, edges)
    with no_grad():
        found = made.backward([None if x is None else wrap(np.asarray(x)) for x in grads], kept, needs)
    return [None if f is None else f._data for f in found]


def run_on_tensors(
    made: Call, grads: Sequence[Any], kept: Sequence[Any], needs: Sequence[bool], edges: Sequence[Any] = ()
) -> list[Any]:
    """Backward on tensors, recorded unless it says that it can be differentiated only once.

    Then what it gives may depend on all it was given and on the inputs, whose edges are these, in ways
    that the graph does not know.
    """
    if not getattr(made.function.backward, "once_differentiable", False) or not thread.recording:
        return made.backward(grads, kept, needs)
    with no_grad():
        found = made.backward(grads, kept, needs)
    links = (*[None if t is None else t._node for t in grads], *edges)
    if all(e is None for e in links):
        return found
    rule = Backward(f"{made.name}_backward", _refuse, (None,))
    return [None if f is None else wrap(f._data, make_node(rule, links, (made,))) for f in found]


def _refuse(g: Tensor, saved: tuple[Any, ...], edges: tuple[Any, ...]) -> NoReturn:
    raise GradientError(
        saved[0].name,
        "backward must be differentiable to be differentiated, got one marked once_differentiable",
        hint="write it in weft's functions and take the mark off",
    )

"""What an op is: one declaration from which every subsystem derives what it needs.

An Op dispatches on what flows through it. On arrays it evaluates. On tensors it hands itself to the
tensor layer, which evaluates and records. Derivatives are functions of ops, so the same rule serves
arrays (fast backward), tensors (higher order) and values of a graph.

Rules take what they need by name: a derivative ``lambda g, x, axis: ...`` of an op with an input ``x``
and an attribute ``axis`` gets just these, and only what is named is kept alive for backward. A name
``x_type`` asks for the type of ``x`` alone, so that its data can be freed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar

import numpy as np

from weft.base.device import DeviceLike
from weft.base.dtypes import DType, bfloat16, float16
from weft.base.hooks import hooks
from weft.base.public import public
from weft.base.records import NamedTuple, dataclass, field
from weft.base.shapes import Shape
from weft.errors import ArgumentError
from weft.ir.types import TensorType
from weft.ops.public import Public

if TYPE_CHECKING:  # the one name of a higher layer: what a user gives an op, and gets from it
    from weft.tensor.tensor import Tensor as Tensor

Array = np.ndarray[Any, Any]
Number = bool | int | float | complex
Attrs = dict[str, Any]
F = TypeVar("F", bound=Callable[..., Any])
ndarray = np.ndarray


class TensorLike:
    """Marks what the tensor layer flows through ops; the Tensor class derives from it."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def shape(self) -> Shape:  # noqa: D102
            ...

        @property
        def dtype(self) -> DType:  # noqa: D102
            ...


if not TYPE_CHECKING:
    Tensor = TensorLike  # in annotations; rules are written for tensors, and arrays answer to the same names

Operand: TypeAlias = Tensor | Array | Number
Typed: TypeAlias = TensorLike | Array | TensorType  # what has a shape and a dtype


class WeakNumber:
    """Marks a number whose value only a run tells; next to tensors it is weak, as Python's numbers are."""

    __slots__ = ()

    example: Number  # a Python number of its kind

    def in_dtype(self, dtype: DType) -> Tensor:
        """Its value as a tensor of a dtype."""
        raise NotImplementedError  # the layer that makes such numbers says it

    def value(self) -> bool | int | float:
        """The Python number, which a capture then relies on; an error where there is none."""
        raise NotImplementedError


def plain_number(x: object) -> Any:
    """Something where Python must have a number itself: one that only a run tells is looked at."""
    return x.value() if isinstance(x, WeakNumber) else x


class Container(TensorLike):
    """A tensor that is made of others, such as a sparse one: it says itself what an op does to it."""

    __slots__ = ()

    def apply_op(self, op: Op, inputs: tuple[Any, ...], attrs: Attrs) -> Any:
        """The result of op on inputs, of which self is the first container."""
        raise ArgumentError(op.name, f"inputs must be dense tensors, got {type(self).__name__}")

    def parts(self) -> tuple[tuple[Any, ...], Any]:
        """The tensors that it is made of, and what else ``from_parts`` takes, to be compared."""
        raise NotImplementedError

    @classmethod
    def from_parts(cls, tensors: tuple[Any, ...], rest: Any) -> Any:
        """The container of such parts."""
        raise NotImplementedError

    def to(self, device: DeviceLike) -> Self:
        """The same on another device; itself if it is there. In another dtype, if that is given."""
        if isinstance(device, np.dtype | type):
            cast_self: Any = self
            changed: Self = cast_self.astype(device)
            return changed
        tensors, rest = self.parts()
        moved = tuple([t.to_device(device) for t in tensors])
        there = all(a is b for a, b in zip(moved, tensors, strict=True))
        made: Self = self if there else self.from_parts(moved, rest)
        return made

    def cuda(self) -> Self:
        """The same on the first GPU."""
        return self.to("cuda")

    def cpu(self) -> Self:
        """The same on the cpu."""
        return self.to("cpu")

    def __int__(self) -> int:
        raise self._no_number("int")

    def __float__(self) -> float:
        raise self._no_number("float")

    def _no_number(self, op: str) -> ArgumentError:
        """The error of a container where one number is needed."""
        hint = "reduce it to one number first, such as x.sum().item()"
        got = f"got a {type(self).__name__}"
        return ArgumentError(op, f"the tensor must be dense, with one element, {got}", hint=hint)


class NoGradient:
    """States that an input has no gradient, and why."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


def no_gradient(reason: str) -> NoGradient:
    """Declare that there is no derivative: ``vjp=no_gradient("returns indices")``.

    >>> import weft
    >>> none = weft.no_gradient("counts steps")
    >>> @weft.custom_op("docs::steps", gradient=none, type_rule=lambda x: x)
    ... def steps(x):
    ...     return (x > 0).astype(x.dtype)
    >>> steps(weft.tensor([-1.0, 3.0], requires_grad=True)).requires_grad
    False
    >>> weft.remove_custom_op("docs::steps")
    """
    return NoGradient(reason)


class Sample(NamedTuple):
    """One call that the generated tests make.

    Attributes:
        inputs: arrays.
        attrs: attributes of a primitive, or keyword arguments of a composite.
        smooth: whether finite differences hold here; False at kinks, poles and values that are not finite.
    """

    inputs: tuple[Array, ...]
    attrs: Attrs = {}  # noqa: RUF012 - nobody changes it
    smooth: bool = True


Samples = Callable[[], Iterable[Sample]]
Rule = Callable[..., Any]
Defaults = Mapping[str, Any] | Callable[[Mapping[str, Any]], Mapping[str, Any]]
View = Callable[..., Sequence[Any]] | Literal["flat"]
FOLDS = ("add", "mul", "max", "min", "and_", "or_")  # instructions that make one element of two


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Op:
    """A primitive operation. Make one with ``elementwise``, ``linear`` or ``primitive``.

    Attributes:
        name: as printed in graphs and errors.
        inputs: names of the tensor inputs that are always there.
        variadic: name of the further inputs of an op that takes any number, else "".
        eval: reference kernel on arrays; keyword arguments are the attributes.
        type_rule: from types and attributes to the output's type (a tuple for several outputs).
        vjp: a rule per input, or one rule that returns the gradients of all, or NoGradient.
        jvp: a rule ``(primals, tangents, outs, **attrs) -> tangents`` where one is declared.
        ways: of control flow, a rule like ``vjp`` that tells whether a gradient reaches each input in this
            run, from truth values of the outputs: rows of these, of several gradients that are asked for at
            once, and so what it gives; None where each input is behind each output.
        linear: "each" if linear in each input alone, "joint" if in all together, "" if not linear.
        batch: a rule ``(op, size, inputs, axes, attrs) -> (output, its batch axis)``, where axes tells
            the batch axis of each input (None: not batched); tuples of both for several outputs.
            None where the op is run for each example in a loop.
        partials: derivatives of an elementwise op by each input, or None.
        scalar: scalar code of an elementwise op for the code generators, or None.
        accepts: kinds of dtype an elementwise op takes ("biufc"); integers outside it become floats.
        result: how an elementwise op's output dtype follows: "same", "bool", "real" or "complex".
        samples: calls for the generated tests.
        gated: whether partials that are functions give a truth value, and a factor or None: where it does not
            hold the gradient is 0, whatever comes in; a factor of 0 would make NaN of an infinite one.
        outputs: number of outputs; 0 for an op that gives as many as its type rule says, in a tuple.
        effect: whether it does something besides giving its outputs, such as print; it is then never
            left out, merged with another, or moved across one like it.
        sequence: of an op with an effect, the attribute that names the sequences of effects it belongs to,
            with commas between: it is kept in order with those of one of them, and with effects of none.
        ambient: whether what it gives depends on where it runs, such as the rank, so that nobody computes it
            ahead.
        masks: whether its gradient is 0 where an input was not chosen, as that of ``where`` is: what comes
            before then keeps these zeros, even times an infinite slope.
        cheap_again: whether a gradient rather runs it again than keeps what it gives, though its elements
            depend on many.
        moves: whether it only moves elements: each of its output is one of an input, or a fixed value.
        commutative: "bits" if its two inputs may be swapped, "value" if a zero may then have the other
            sign, else "".
        total: whether it has a result for all values of inputs of the right types, so that it may run though
            nobody knows yet whether it is needed.
        defaults: values of attributes that text leaves out, or a function that gives them by the other
            attributes; nodes have them all.
        decomposition: the op as a function of other ops, of an op that is several loops; else None.
        precision: what ``weft.autocast`` makes of floating inputs: half precision if "low", single if "high",
            nothing if "".
        fold: the instruction of ``FOLDS`` that makes one element of many, two at a time, or "".
        fold_over: which elements: "axes" (a reduction: its attributes are ``axes`` and ``keepdims``),
            "windows", "prefix" (a running result), "place" (where the result is); "" without a fold.
        view: of an op that gives elements of its one input in another order, where one lies: a function
            ``(index, x_type, **attrs) -> index`` of sums and multiples of the output's indices; or "flat" if
            all elements stay and keep their order, as in ``reshape``. None for other ops.
        declared_cost: about how many simple instructions one element takes (see ``cost``); where nobody says
            it, they are counted in the scalar code of an elementwise op when it is first asked for.
        products: of an op that adds up products, how many for one element, by the shapes of its inputs.
        fallible: whether it fails for some values, such as an index out of range; it is then not total.
        raises: the class of what it raises for some values; None where it raises nothing.
        host: whether compiled programs have Python run it, as a library does it best.
        into: of an op that Python runs, a kernel that is given the array of its one result first, and keeps
            nothing of its inputs, so that nothing is copied; None where there is none.
        cuda: of an op that a user declared, what runs it on a GPU (``weft.cuda.kernel``), or None.
        when: "early" or "late" for an op that is best run as soon, or as late, as can be; "" for others.
        in_place: whether it gives its first input with some elements changed, best in the same memory.
        large_eval: whether a compiled kernel replaces ``eval`` on large arrays, outside of graphs.
        large_vjp: likewise ``vjp``.
        factors: which dimensions go together (``weft.ops.factors``): a function of the types of inputs and
            outputs, and of attributes; None where that follows from the other fields, or all must be whole.
        resize: what its attributes become on parts of its inputs; None where only ``shape`` changes, if it
            has one.
        public: the text, example and names of its public function; None if it is not one.
    """

    name: str = field(kw_only=False)
    inputs: tuple[str, ...]
    attrs: tuple[str, ...]
    eval: Callable[..., Any]
    type_rule: Callable[..., Any]
    vjp: Any
    samples: Samples | None
    jvp: Rule | None = None
    ways: Rule | None = None
    linear: str = ""
    batch: Rule | None = None
    partials: tuple[Any, ...] | None = None
    scalar: Rule | None = None
    accepts: str = ""
    result: str = "same"
    singular: bool = False
    gated: bool = False
    outputs: int = 1
    variadic: str = ""
    effect: bool = False
    sequence: str = ""
    ambient: bool = False
    masks: bool = False
    cheap_again: bool = False
    moves: bool = False
    commutative: str = ""
    total: bool = False
    defaults: Defaults | None = None
    precision: str = ""
    decomposition: Rule | None = None
    fold: str = ""
    fold_over: str = "axes"
    view: View | None = None
    declared_cost: int | None = None
    products: Callable[..., Any] | None = None
    fallible: bool = False
    raises: type[Exception] | None = None
    host: bool = False
    into: Rule | None = None
    cuda: object = None
    when: str = ""
    in_place: bool = False
    large_eval: bool = False
    large_vjp: bool = False
    factors: Rule | None = None
    resize: Rule | None = None
    public: Public | None = None
    on_tensors: Callable[..., Any] = field(init=False)

    def __post_init__(self) -> None:
        self.moves = self.moves or self.view is not None
        self.total = self.total and not self.fallible
        self.fold_over = self.fold_over if self.fold else ""
        self.on_tensors = _first_use(self)

    def __call__(self, *inputs: object, **attrs: object) -> Tensor:
        """Run on tensors, recording, if any input is one; else evaluate on arrays and numbers.

        An op of several outputs gives a tuple of them.
        """
        for x in inputs:
            if isinstance(x, TensorLike):
                return self.on_tensors(*inputs, **attrs)  # type: ignore[no-any-return]
        return self.eval(*inputs, **attrs)  # type: ignore[no-any-return]

    @property
    def cost(self) -> int:
        """About how many simple instructions one element takes."""
        if self.declared_cost is None:
            from weft.ops.cost import count_instructions  # nobody who only declares ops needs it

            self.declared_cost = count_instructions(self)
        return self.declared_cost

    def usual(self, attrs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The values of attributes that text leaves out, beside others."""
        return self.defaults(attrs) if callable(self.defaults) else self.defaults or {}

    def __repr__(self) -> str:
        return f"<op {self.name}>"


OPS: dict[str, Op] = {}
COMPOSITES: dict[str, Composite] = {}


def register(op: Op) -> Op:
    """Enter an op into the table; a name is taken once."""
    if op.name in OPS or op.name in COMPOSITES:
        raise ValueError(f"op {op.name!r} is declared twice")
    OPS[op.name] = op
    if op.public is not None and (publish := hooks.publish) is not None:
        publish(op)
    return op


def _first_use(op: Op) -> Callable[..., Any]:
    def on_tensors(*inputs: object, **attrs: object) -> Any:
        op.on_tensors = hooks.tensor_function(op)
        return op.on_tensors(*inputs, **attrs)

    return on_tensors


class _Intercepted:
    """Which threads have ops run the general way, where a graph takes them down, a profile or a search for
    anomalies watches them: the flat paths of small ops look here first, and stand aside.
    """

    __slots__ = ("threads",)

    def __init__(self) -> None:
        self.threads: set[int] = set()


intercepted = _Intercepted()
casting: dict[int, Any] = {}  # threads inside ``weft.autocast``, with the dtype that products get there


class Composite(NamedTuple):
    """A named function of other ops; everything about it is derived from them.

    Attributes:
        name: as printed in graphs.
        function: as users call it.
        samples: calls for the generated tests.
        sampled: how these call it, where its tensors are not its first arguments.
        whole: arguments whose first axes may have any size in a kernel that runs it all; without, none does.
        precision: that of an op.
    """

    name: str
    function: Callable[..., Any]
    samples: Samples | None
    sampled: Callable[..., Any]
    whole: tuple[str, ...] = ()
    precision: str = ""


def composite(
    name: str | None = None,
    *,
    samples: Samples | None = None,
    sampled: Callable[..., Any] | None = None,
    whole: tuple[str, ...] = (),
    precision: str = "",
    single: bool = False,
) -> Callable[[F], F]:
    """Make a plain function of ops public, and register it with samples of its tests, and how these call it.

    A graph keeps a call of it as one named call, which a pass expands. Outside of graphs its ops run one by
    one; or, where arrays are large, one kernel runs the whole of it, if ``whole`` names arguments: a kernel
    serves any size of their first axes. ``precision`` is that of an op. With ``single``, half precision is
    computed in float32 all the way, and only the results are rounded: what lies between may not fit.
    """

    def enter(function: F) -> F:
        key = name or function.__name__
        if key in COMPOSITES or key in OPS:
            raise ValueError(f"composite {key!r} is declared twice")
        body: Callable[..., Any] = _in_single(function) if single else function

        @functools.wraps(function)
        def call(*args: object, **kwargs: object) -> Any:
            if precision and casting and get_ident() in casting:
                return hooks.run_in_precision(precision, call, args, kwargs)
            if intercepted.threads:
                return hooks.run_composite(entry, args, kwargs)
            if whole and (out := hooks.call_large(entry, args, kwargs)) is not None:
                return out
            return body(*args, **kwargs)

        COMPOSITES[key] = entry = Composite(key, body, samples, sampled or body, whole, precision)
        return public(call)  # type: ignore[return-value]

    return enter


def _in_single(function: F) -> F:
    """A function of ops that computes in float32 where all floats that it is given are of one half dtype."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for x in (*args, *kwargs.values()) if kwargs else args:
            dtype = getattr(x, "dtype", None)
            if dtype is float16 or dtype is bfloat16:
                from weft.ops.select import run_in_single  # which builds on this module

                return run_in_single(function, args, kwargs)
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def whole(*names: str) -> Callable[[F], F]:
    """Let one kernel run a function of ops where arrays are large; in graphs it is just its ops.

    The names are those of ``composite``.
    """

    def enter(function: F) -> F:
        entry = Composite(function.__name__.strip("_"), function, None, function, names)

        @functools.wraps(function)
        def call(*args: object, **kwargs: object) -> Any:
            captures = intercepted.threads and get_ident() in intercepted.threads
            out = None if captures else hooks.call_large(entry, args, kwargs)
            return function(*args, **kwargs) if out is None else out

        return call  # type: ignore[return-value]

    return enter


def type_of(x: Typed) -> TensorType:
    """The type of an array or a tensor."""
    return TensorType(x.shape, x.dtype)

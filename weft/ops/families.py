"""The families of primitive ops: what is written for an op, and what is derived from it.

elementwise   eval, partials, scalar  ->  type rule, vjp, jvp, batching
linear        type rule, eval, transpose  ->  vjp is the transpose, jvp is the op itself
primitive     everything is written
lowered       type rule, eval  ->  a graph has it only after derivatives and batching

Of linear and primitive ops, batching is derived where a batch may simply be a first axis more.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np

from weft.base.dtypes import bool_, complex_dtype, kind, real_dtype
from weft.base.public import parameters
from weft.base.shapes import broadcast_shapes
from weft.errors import DtypeError
from weft.ir.types import TensorType
from weft.ops.batching import batch_leading, shifted_axes
from weft.ops.op import Defaults, NoGradient, Op, Rule, Samples, View, no_gradient, register
from weft.ops.public import Public

_NAMES = ("x", "y", "z")
_KIND_WORDS = {"b": "bool", "iu": "integer", "f": "floating", "c": "complex"}
LEADING = batch_leading(shifted_axes)  # a batch as a first axis more


def elementwise(
    name: str,
    *,
    eval: Callable[..., Any],
    partials: tuple[Any, ...] | NoGradient | None,
    samples: Samples | None,
    public: Public | None = None,
    arity: int | None = None,
    scalar: Rule | None = None,
    accepts: str = "iufc",
    result: str = "same",
    singular: bool = False,
    gated: bool = False,
    jvp: Rule | None = None,
    vjp: Any = None,
    commutative: str = "",
    total: bool = True,
) -> Op:
    """Declare an op that works element by element, with broadcasting.

    Args:
        name: as printed in graphs and errors.
        eval: a NumPy ufunc or a function of arrays of one common dtype.
        partials: the derivative by each input: a number, or a function that names what it uses among
            the inputs x, y, z and ``out``.
        samples: calls for the generated tests.
        public: the text, example and names that make it a public function, and a method of tensors.
        arity: number of inputs where eval does not tell.
        scalar: scalar code for the code generators.
        accepts: kinds of dtype ("b", "i", "u", "f", "c") taken as they are.
        result: "same" dtype as the inputs, "bool", "real" (of a complex) or "complex" (of a real).
        singular: a partial may be infinite; where the incoming gradient is 0 the result is then 0,
            so that a branch that ``where`` did not take leaks no NaN.
        gated: partials give a truth value and a factor (None for 1); where it does not hold, the gradient is
            0 even if an infinite one comes in.
        jvp: written out for complex inputs where partials do not hold (functions that are not
            holomorphic), and for all inputs where partials are None.
        vjp: likewise.
        commutative: "bits" if x and y may be swapped, "value" if a zero may then have the other sign.
        total: whether there is a result for all inputs.
    """
    count = eval.nin if isinstance(eval, np.ufunc) else arity or len(parameters(eval)[0])
    return register(
        Op(
            name,
            inputs=_NAMES[:count],
            attrs=(),
            eval=eval,
            type_rule=_broadcasting(name, accepts, result),
            vjp=partials if isinstance(partials, NoGradient) else vjp,
            jvp=jvp,
            partials=None if isinstance(partials, NoGradient) else partials,
            scalar=scalar,
            accepts=accepts,
            result=result,
            singular=singular,
            gated=gated,
            samples=samples,
            commutative=commutative,
            total=total,
            public=public,
        )
    )


def _broadcasting(name: str, accepts: str, result: str) -> Callable[..., TensorType]:
    """The type rule of an elementwise op."""

    def type_rule(*types: TensorType) -> TensorType:
        shape = broadcast_shapes(name, [t.shape for t in types], types)
        dtype = types[0].dtype
        for t in types:
            if kind(t.dtype) not in accepts:
                raise DtypeError(name, f"dtype must be {describe_kinds(accepts)}, got {t.dtype.name}")
            if t.dtype != dtype:
                raise DtypeError(name, f"dtypes must be equal, got {dtype.name} and {t.dtype.name}")
        return TensorType(shape, _result_dtype(dtype, result))

    return type_rule


def _result_dtype(dtype: Any, result: str) -> Any:
    if result == "bool":
        return bool_
    if result == "complex":
        return complex_dtype(dtype)
    return real_dtype(dtype) if result == "real" else dtype


def describe_kinds(kinds: str) -> str:
    """``"biu"`` in words: bool or integer."""
    words = [word for letters, word in _KIND_WORDS.items() if any(letter in kinds for letter in letters)]
    return " or ".join(words)


if TYPE_CHECKING:  # nothing but annotations needs it

    class Properties(TypedDict, total=False):
        """Fields of ``Op`` that a declaration may set, whatever its family."""

        jvp: Rule | None
        ways: Rule | None
        scalar: Rule | None
        outputs: int
        effect: bool
        sequence: str
        ambient: bool
        masks: bool
        cheap_again: bool
        moves: bool
        total: bool
        defaults: Defaults | None
        precision: str
        decomposition: Rule | None
        fold: str
        fold_over: str
        view: View | None
        declared_cost: int
        products: Callable[..., Any]
        fallible: bool
        raises: type[Exception]
        host: bool
        into: Rule | None
        when: str
        in_place: bool
        large_eval: bool
        large_vjp: bool
        factors: Rule | None
        resize: Rule | None


def linear(
    name: str,
    *,
    type_rule: Callable[..., Any],
    eval: Callable[..., Any],
    transpose: Any,
    batch: Rule | None = LEADING,
    samples: Samples,
    over: str = "each",
    **properties: Unpack[Properties],
) -> Op:
    """Declare an op that is linear in its inputs: its vjp is the transpose, its jvp the op itself.

    Args:
        name: as printed in graphs and errors.
        type_rule: from input types and attributes to the output's type.
        eval: kernel on arrays; positional parameters are inputs (``*xs`` for a variadic op),
            keyword-only ones attributes.
        transpose: a rule per input, or one that returns all gradients; of a complex op, the adjoint.
        batch: the batching rule, or None for a loop over the batch. By default the batch axis goes first, and
            what is called ``axis`` or ``axes`` among the attributes moves by one.
        samples: calls for the generated tests.
        over: "each" if linear in each input for fixed others, "joint" if in all inputs together.
        properties: further fields of ``Op``; it is total unless one says otherwise.
    """
    properties.setdefault("total", True)
    return _declare(name, type_rule, eval, transpose, batch, samples, linear=over, **properties)


def primitive(
    name: str,
    *,
    type_rule: Callable[..., Any],
    eval: Callable[..., Any] | None = None,
    vjp: Any,
    batch: Rule | None = LEADING,
    samples: Samples | None,
    **properties: Unpack[Properties],
) -> Op:
    """Declare an op in full. Without ``jvp`` the forward derivative is the transpose of the vjp.

    An op with a ``decomposition`` needs no kernel: on arrays the ops that it is made of evaluate.
    """
    if eval is None:
        decomposition = properties.get("decomposition")
        assert isinstance(decomposition, FunctionType), f"{name} must have a kernel or a decomposition"
        eval = _kernel_of(decomposition)
    return _declare(name, type_rule, eval, vjp, batch, samples, **properties)


def lowered(
    name: str,
    *,
    type_rule: Callable[..., Any],
    eval: Callable[..., Any],
    samples: Samples | None = None,
    **properties: Unpack[Properties],
) -> Op:
    """Declare an op that passes put into graphs which were differentiated and batched before."""
    vjp = no_gradient("a graph has it only after it was differentiated")
    return _declare(name, type_rule, eval, vjp, None, samples, **properties)


def _kernel_of(function: FunctionType) -> Callable[..., Any]:
    """What a function of ops does to arrays: its code, with the kernels of ops in place of the ops.

    An op looks for tensors among its inputs first, which takes as long as the kernel of a small array.
    """
    scope = dict(function.__globals__)
    for name in function.__code__.co_names:
        value = scope.get(name)
        if isinstance(value, Op):
            scope[name] = value.eval
        elif isinstance(value, FunctionType) and value.__module__ == function.__module__:
            scope[name] = _kernel_of(value)
    made = FunctionType(function.__code__, scope, function.__name__, function.__defaults__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _declare(
    name: str,
    type_rule: Callable[..., Any],
    eval: Callable[..., Any],
    vjp: Any,
    batch: Rule | None,
    samples: Samples | None,
    linear: str = "",
    **properties: Unpack[Properties],
) -> Op:
    inputs, attrs, variadic = parameters(getattr(eval, "steps", eval))
    return register(
        Op(
            name,
            inputs=inputs,
            attrs=attrs,
            variadic=variadic,
            eval=eval,
            type_rule=type_rule,
            vjp=vjp,
            batch=batch,
            samples=samples,
            linear=linear,
            **properties,
        )
    )

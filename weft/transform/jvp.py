"""``jvp`` and ``linearize``: the derivative of a function along a direction, or as a function of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, overload

from weft.base.dtypes import kind
from weft.base.public import public
from weft.base.trees import Structure, flatten_like, tree_map, tree_unflatten
from weft.errors import ArgumentError, ShapeError
from weft.ops.op import type_of
from weft.tensor.autograd import seed_gradient
from weft.tensor.dispatch import filled_like, recording
from weft.tensor.mode import call_user, enable_grad
from weft.tensor.tensor import Tensor, wrap
from weft.transform.arguments import (
    Places,
    argument_names,
    check_function,
    flatten_differentiable,
    flatten_outputs,
    split_aux,
    to_tensor,
)
from weft.transform.forward import Dual
from weft.transform.levels import new_level
from weft.transform.reverse import Tape, record

R = TypeVar("R")


@overload
def jvp(
    f: Callable[..., R], primals: Sequence[Any], tangents: Sequence[Any], has_aux: Literal[False] = False
) -> tuple[R, R]: ...
@overload
def jvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool) -> Any: ...
@public
def jvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """The value of f, and the derivative of its outputs along tangents of its arguments.

    Args:
        f: from trees of tensors to a tree of tensors.
        primals: a tuple of the arguments of f.
        tangents: a tuple of the directions, like primals.
        has_aux: f returns ``(output, aux)``; then the result is ``(output, tangent, aux)``.

    >>> import weft
    >>> weft.jvp(lambda x: x * x, (weft.tensor(3.0),), (weft.tensor(1.0),))
    (tensor(9.), tensor(6.))
    """
    check_function("jvp", f)
    inputs, structure, directions = check_tangents("jvp", primals, tangents)
    settle = _keep if recording() else Tensor._value
    with new_level() as level, enable_grad():
        duals = [wrap(Dual(level, x, t)) for x, t in zip(inputs, directions, strict=True)]
        out, aux = split_aux("jvp", call_user(f, *tree_unflatten(structure, duals)), has_aux)
        outputs, out_structure = flatten_outputs("jvp", out)
        pairs = [_split(level, o) for o in outputs]
        aux = tree_map(lambda x: settle(_split(level, x)[0]) if isinstance(x, Tensor) else x, aux)
    value = tree_unflatten(out_structure, [settle(p) for p, _ in pairs])
    tangent = tree_unflatten(out_structure, [settle(t) for _, t in pairs])
    return (value, tangent, aux) if has_aux else (value, tangent)


def _keep(tensor: Tensor) -> Tensor:
    return tensor


def _split(level: int, output: Tensor) -> tuple[Tensor, Tensor]:
    """Value and tangent of what a function returned at a level."""
    data = output._data
    if type(data) is not Dual or data.level != level:
        return output, _zeros(output)
    return data.primal, _zeros(output) if data.tangent is None else data.tangent


def _zeros(like: Tensor) -> Tensor:
    return filled_like(like, 0)  # type: ignore[no-any-return]


def check_tangents(op: str, primals: Any, tangents: Any) -> tuple[list[Tensor], Structure, list[Tensor]]:
    """The tensors in primals, the structure of these, and the tensors in tangents, which must be alike."""
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, tuple | list):
            told = f"{name} must be a tuple with one item an argument, got {type(given).__name__}"
            raise ArgumentError(op, told, hint="write jvp(f, (x,), (v,)) for a function of one argument")
    if len(primals) != len(tangents):
        message = f"there must be as many tangents as primals, got {len(tangents)} and {len(primals)}"
        raise ArgumentError(op, message)
    names = argument_names(len(primals))
    inputs, structure = flatten_differentiable(op, primals, names)
    given = flatten_like(op, structure, tuple(tangents), "tangents")
    places = Places(primals, names)
    directions = [
        t if isinstance(t, Tensor) and type_of(t) == type_of(x) else _direction(op, x, t, places[i])
        for i, (x, t) in enumerate(zip(inputs, given, strict=True))
    ]
    return inputs, structure, directions


def _direction(op: str, primal: Tensor, tangent: object, place: str) -> Tensor:
    out = to_tensor(op, tangent, f"the tangent of {place}")
    if out.shape != primal.shape:
        raise ShapeError(op, f"the tangent of {place} must be of type {type_of(primal)}, got {type_of(out)}")
    return out if out.dtype == primal.dtype else out.astype(primal.dtype)


@public
def linearize(f: Callable[..., Any], *primals: object, has_aux: bool = False) -> Any:
    """The value of f, and the function from tangents of its arguments to tangents of its outputs.

    f runs once; the function can be called for many directions, each at the cost of a backward.

    >>> import weft
    >>> y, push = weft.linearize(lambda x: x * x, weft.tensor([1.0, 2.0]))
    >>> push(weft.tensor([1.0, 0.0])), push(weft.tensor([0.0, 1.0]))
    (tensor([2., 0.]), tensor([0., 4.]))
    """
    check_function("linearize", f)
    tape, _, out, aux = record("linearize", f, primals, has_aux=has_aux)
    outputs, out_structure = flatten_outputs("linearize", out)
    # A vjp is linear in the gradients it is given, so its own vjp, by these, is the jvp.
    smooth = [o for o in outputs if kind(o.dtype) in "fc"]
    transposed = Tape(
        "linearize", [seed_gradient("linearize", o, filled_like(o, 1)) for o in smooth], known=tape
    )
    with enable_grad():
        grads = tape.pull(smooth, transposed.aliases, again=True)

    def jvp_function(*tangents: object) -> Any:
        _, _, directions = check_tangents("linearize", primals, tangents)
        found = iter(transposed.pull(grads, directions, again=True))
        pushed = [next(found) if kind(o.dtype) in "fc" else filled_like(o, 0) for o in outputs]
        return tree_unflatten(out_structure, pushed)

    value = tree_unflatten(out_structure, [tape.settle(o) for o in outputs])
    return (value, jvp_function, aux) if has_aux else (value, jvp_function)

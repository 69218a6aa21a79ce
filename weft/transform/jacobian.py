"""Whole derivatives: ``jacrev``, ``jacfwd``, ``jacobian`` and ``hessian``, each one batched sweep."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import kind
from weft.base.public import public
from weft.base.shapes import size_of
from weft.base.trees import Structure, tree_flatten, tree_unflatten
from weft.errors import DtypeError
from weft.ops.op import type_of
from weft.ops.view.primitives import reshape
from weft.ops.view.slices import slice_axis
from weft.tensor.dispatch import as_constant
from weft.tensor.moving import moved_like
from weft.tensor.tensor import Tensor
from weft.transform.arguments import (
    check_function,
    fixing_others,
    flatten_differentiable,
    flatten_outputs,
    normalize_argnums,
)
from weft.transform.jvp import jvp
from weft.transform.reverse import vjp
from weft.transform.vmap import vmap


@public
def jacrev(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """A function that gives the Jacobian of f by reverse mode: best for fewer outputs than inputs.

    Args:
        f: from trees of tensors to a tree of tensors.
        argnums: the argument, or the arguments, to differentiate.
        has_aux: f returns ``(output, aux)``; then the result is ``(jacobian, aux)``.
        chunk_size: how many rows to compute at once; all of them if None.

    The result is the output's tree, with the argument's tree in place of each tensor, of tensors of
    shape ``(*output.shape, *argument.shape)``.

    >>> import weft
    >>> weft.jacrev(lambda x: x * x)(weft.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    check_function("jacrev", f)

    @functools.wraps(f, updated=())
    def function(*args: object, **kwargs: object) -> Any:
        call = _Call("jacrev", f, argnums, args, kwargs)
        out, pull, *aux = vjp(call.function, *call.primals, has_aux=has_aux)
        outputs, out_structure = flatten_outputs("jacrev", out)
        _check_complex("jacrev", call.inputs, outputs, real_arguments=False)
        rows = _rows(pull, outputs, out_structure, chunk_size)
        conjugate = any(kind(o.dtype) == "c" for o in outputs)  # the engine gives the adjoint
        columns = [_split(r.conj() if conjugate else r, outputs, 0) for r in rows]
        blocks = [
            [
                reshape(column[i], shape=(*o.shape, *x.shape))
                for column, x in zip(columns, call.inputs, strict=True)
            ]
            for i, o in enumerate(outputs)
        ]
        result = tree_unflatten(out_structure, [call.like_arguments(row) for row in blocks])
        return (result, aux[0]) if has_aux else result

    return function


@public
def jacfwd(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """A function that gives the Jacobian of f by forward mode: best for fewer inputs than outputs.

    Arguments and result are those of ``jacrev``; ``chunk_size`` counts columns.

    >>> import weft
    >>> weft.jacfwd(lambda x: x * x)(weft.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    check_function("jacfwd", f)

    @functools.wraps(f, updated=())
    def function(*args: object, **kwargs: object) -> Any:
        call = _Call("jacfwd", f, argnums, args, kwargs)
        kept: list[Any] = []

        def push(*directions: object) -> Any:
            out, tangent, *aux = jvp(call.function, call.primals, directions, has_aux=has_aux)
            kept[:] = [out, *aux]
            return tangent

        columns = vmap(push, out_axes=-1, chunk_size=chunk_size)(*call.like(_basis(call.inputs)))
        outputs, out_structure = flatten_outputs("jacfwd", columns)
        _check_complex("jacfwd", call.inputs, outputs, real_arguments=True)
        blocks = [
            call.like_arguments(
                [
                    reshape(part, shape=(*o.shape[:-1], *x.shape))
                    for part, x in zip(_split(o, call.inputs, o.ndim - 1), call.inputs, strict=True)
                ]
            )
            for o in outputs
        ]
        result = tree_unflatten(out_structure, blocks)
        return (result, kept[1]) if has_aux else result

    return function


@public
def jacobian(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """A function that gives the Jacobian of f, by reverse mode; see ``jacrev`` and ``jacfwd``.

    >>> import weft
    >>> weft.jacobian(lambda x: {"double": x + x, "sum": x.sum()})(weft.tensor([1.0, 2.0]))
    {'double': tensor([[2., 0.],
            [0., 2.]]), 'sum': tensor([1., 1.])}
    """
    return jacrev(f, argnums, has_aux, chunk_size)


@public
def hessian(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the second derivatives of f: forward mode over reverse mode.

    The result is the output's tree, with the argument's tree twice in place of each tensor.

    >>> import weft
    >>> weft.hessian(lambda x: (x * x * x).sum())(weft.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacfwd(jacrev(f, argnums, has_aux), argnums, has_aux)


class _Call:
    """One call of a function to differentiate: the chosen arguments, and f as a function of these alone."""

    __slots__ = ("_several", "_structure", "function", "inputs", "primals")

    def __init__(self, op: str, f: Callable[..., Any], argnums: Any, args: Any, kwargs: Any) -> None:
        positions = normalize_argnums(op, argnums, len(args))
        chosen = [args[i] for i in positions]
        self._several = isinstance(argnums, tuple | list)
        self.inputs, self._structure = flatten_differentiable(
            op, chosen, [f"argument {i}" for i in positions]
        )
        self.primals = self.like(self.inputs)
        self.function = fixing_others(f, positions, args, kwargs)

    def like(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """A tuple like the chosen arguments."""
        out: tuple[Any, ...] = tree_unflatten(self._structure, tensors)
        return out

    def like_arguments(self, tensors: Sequence[Any]) -> Any:
        """What the result has in place of the chosen arguments: one tree, or a tuple of them."""
        trees = self.like(tensors)
        return trees if self._several else trees[0]


def _check_complex(
    op: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], real_arguments: bool
) -> None:
    """A complex Jacobian exists for functions of complex numbers to complex numbers that are holomorphic."""
    ins = {kind(x.dtype) for x in inputs}
    outs = {kind(o.dtype) for o in outputs}
    if ins | outs <= {"f"} or ins == outs == {"c"} or (real_arguments and ins == {"f"}):
        return
    raise DtypeError(
        op,
        f"arguments and results must be all real or all complex, got {_types(inputs)} to {_types(outputs)}",
        hint="take derivatives by real and imaginary parts apart, or use weft.vjp and weft.jvp",
    )


def _types(tensors: Sequence[Tensor]) -> str:
    return ", ".join(str(type_of(t)) for t in tensors)


def _basis(tensors: Sequence[Tensor]) -> list[Tensor]:
    """All unit vectors of the space that tensors span together, along a new first axis."""
    total = sum(t.size for t in tensors)
    out, start = [], 0
    for t in tensors:
        block = np.zeros((total, t.size), t.dtype)
        block[np.arange(start, start + t.size), np.arange(t.size)] = 1
        out.append(moved_like(as_constant(block.reshape((total, *t.shape))), None, t))
        start += t.size
    return out


def _rows(
    pull: Callable[..., Any], outputs: Sequence[Tensor], structure: Structure, chunk_size: Any
) -> list[Any]:
    """The gradient of each output element, along a first axis, by each input."""
    if sum(o.size for o in outputs) == 1:
        ones = [moved_like(as_constant(np.ones(o.shape, o.dtype)), None, o) for o in outputs]
        grads, _ = tree_flatten(pull(tree_unflatten(structure, ones)))
        return [reshape(g, shape=(1, *g.shape)) for g in grads]
    rows = vmap(pull, chunk_size=chunk_size)(tree_unflatten(structure, _basis(outputs)))
    return tree_flatten(rows)[0]


def _split(x: Tensor, parts: Sequence[Tensor], axis: int) -> list[Tensor]:
    """x cut along an axis into as many elements as each part has."""
    if len(parts) == 1:
        return [x]
    out, start = [], 0
    for part in parts:
        size = size_of(part.shape)
        out.append(slice_axis(x, axis, start, start + size))
        start += size
    return out

"""Reverse mode: ``vjp``, ``grad`` and ``value_and_grad``, on the one tape and its engine.

A function is recorded on aliases of its arguments: nodes of their own, so that nested transforms never
mistake each other's derivatives. An alias hangs in the caller's graph if its argument does, so gradients
of gradients flow. Results stay in the graph only if something outside could be differentiated through them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from weft.base.concrete import is_concrete
from weft.base.dtypes import kind
from weft.base.public import public
from weft.base.tracebacks import edge
from weft.base.trees import Structure, flatten_like, tree_map, tree_unflatten
from weft.errors import GradientError
from weft.ops.op import type_of
from weft.tensor.autograd import seed_gradient
from weft.tensor.dispatch import filled_like, recording, stage
from weft.tensor.engine import node_of, run_backward
from weft.tensor.mode import call_user, enable_grad
from weft.tensor.node import Leaf, Node, make_node
from weft.tensor.rules import Backward
from weft.tensor.tensor import Tensor, wrap
from weft.transform.arguments import (
    argument_names,
    check_function,
    fixing_others,
    flatten_differentiable,
    flatten_outputs,
    normalize_argnums,
    split_aux,
)
from weft.transform.captured import Captured

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")

_ALIAS = Backward("alias", lambda g, saved, edges: [g] * len(edges), ())
_open: set[Node] = set()  # aliases of calls that are running: their gradients are still to be asked for


def _alias(x: Tensor, linked: bool) -> Tensor:
    """A tensor of the same data with a node of its own, behind which is the graph of x if it is linked."""
    stage(x)  # in a capture both are its value there, else the alias would be a tensor from outside
    edges = (x._node,) if linked and x._node is not None else ()
    return wrap(x._data, make_node(_ALIAS, edges, ()))


class Tape:
    """A recorded call: the aliases it ran on, and what backward through it gives.

    The aliases of another tape may be ``known``: then they are not outside this one.
    """

    __slots__ = ("_inputs", "_known", "_linked", "_op", "_outer", "aliases", "nodes")

    def __init__(self, op: str, inputs: Sequence[Tensor], known: Tape | None = None) -> None:
        self._op = op
        self._outer = recording()
        self._inputs = inputs
        self.aliases = [_alias(x, linked=self._outer) for x in inputs]
        self.nodes = [a._node for a in self.aliases]
        self._known: frozenset[Node] = frozenset(self.nodes)
        if known is not None:
            self._known |= known._known
        self._linked = any(node.edges for node in self._known)

    def settle(self, tensor: Tensor) -> Tensor:
        """A result of the call as the caller may have it: in the graph only if it leads outside."""
        node, plain = tensor._node, isinstance(tensor._data, Captured) or is_concrete(tensor._data)
        if type(node) is Leaf or (node is None and plain):
            return tensor
        if not self._outer:
            return tensor._value()
        outside = self._leads_outside([tensor])
        return tensor if outside and plain else wrap(self._settled(tensor), node if outside else None)

    def _settled(self, tensor: Tensor) -> Any:
        """The data of a tensor; inside a transform around, its own tensors may be in our graph too."""
        data = tensor._data
        return data if is_concrete(data) else data.map(self.settle)

    def _leads_outside(self, tensors: Iterable[Tensor]) -> bool:
        """Whether the graph of some tensor ends where a gradient may be asked for: a leaf, a call around."""
        waiting = [t._node for t in tensors if t._node is not None]
        if self._linked and waiting:
            return True
        seen = set(self._known)
        while waiting:
            node = node_of(waiting.pop())
            if node in seen:
                continue
            if type(node) is Leaf or node in _open:
                return True
            edges = [e for e in node.edges if e is not None]
            if not edges and node.rule is not _ALIAS:  # what stands for the graph of an argument
                return True
            seen.add(node)
            waiting.extend(edges)
        return False

    def pull(self, outputs: Sequence[Tensor], gradients: Sequence[Any], *, again: bool) -> list[Tensor]:
        """The gradients of the inputs from those of the outputs; ``again`` if there may be another call."""
        roots = [
            (o._node, seed_gradient(self._op, o, g))
            for o, g in zip(outputs, gradients, strict=True)
            if o._node is not None
        ]
        connected = recording() and (
            any(g._node is not None for _, g in roots) or (self._outer and self._leads_outside(outputs))
        )
        found = run_backward(
            roots, retain_graph=again or connected, create_graph=connected, targets=self.nodes
        )
        return [
            filled_like(x, 0) if g is None else self._result(g, connected)
            for g, x in zip(found, self._inputs, strict=True)
        ]

    def _result(self, gradient: Tensor, connected: bool) -> Tensor:
        if connected:
            return gradient
        return wrap(self._settled(gradient)) if recording() else gradient._value()


def record(
    op: str, f: Callable[..., Any], trees: Sequence[Any], *, names: Sequence[str] | None = None, has_aux: bool
) -> tuple[Tape, Structure, Any, Any]:
    """Run f on aliases of trees of tensors; gives tape, structure of the trees, output and aux."""
    inputs, structure = flatten_differentiable(op, trees, names or argument_names(len(trees)))
    tape = Tape(op, inputs)
    try:
        _open.update(tape.nodes)
        with enable_grad():
            result = call_user(f, *tree_unflatten(structure, tape.aliases))
    finally:
        _open.difference_update(tape.nodes)
    out, aux = split_aux(op, result, has_aux)
    return tape, structure, out, tree_map(lambda x: tape.settle(x) if isinstance(x, Tensor) else x, aux)


@overload
def vjp(
    f: Callable[..., R], *primals: object, has_aux: Literal[False] = False
) -> tuple[R, Callable[..., Any]]: ...
@overload
def vjp(f: Callable[..., Any], *primals: object, has_aux: bool) -> Any: ...
@public
def vjp(f: Callable[..., Any], *primals: object, has_aux: bool = False) -> Any:
    """The value of f, and the function from gradients of its outputs to gradients of its arguments.

    Args:
        f: from trees of tensors to a tree of tensors.
        primals: the arguments of f. The function gives a tuple of gradients, one for each; it may be
            called many times, with a tree like the output, in which None stands for zero.
        has_aux: f returns ``(output, aux)``; then the result is ``(output, vjp_function, aux)``.

    >>> import weft
    >>> y, pull = weft.vjp(lambda x: x * x, weft.tensor([1.0, 2.0]))
    >>> y, pull(weft.tensor([1.0, 1.0]))
    (tensor([1., 4.]), (tensor([2., 4.]),))
    """
    check_function("vjp", f)
    tape, structure, out, aux = record("vjp", f, primals, has_aux=has_aux)
    results, out_structure = flatten_outputs("vjp", out)
    outputs = [wrap(o._data, o._node) for o in results]  # the user may change the tensors in place

    def vjp_function(gradient: object, /) -> tuple[Any, ...]:
        given = flatten_like("vjp", out_structure, gradient, "the gradient")
        pairs = [(o, g) for o, g in zip(outputs, given, strict=True) if g is not None]
        grads = tape.pull([o for o, _ in pairs], [g for _, g in pairs], again=True)
        result: tuple[Any, ...] = tree_unflatten(structure, grads)
        return result

    value = tree_unflatten(out_structure, [tape.settle(o) for o in results])
    return (value, vjp_function, aux) if has_aux else (value, vjp_function)


@public
def value_and_grad(
    f: Callable[P, R], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[P, tuple[R, Any]]:
    """A function that gives the value of f and its gradient.

    Args:
        f: from trees of tensors to one real number.
        argnums: the argument, or the arguments, to differentiate; the gradient is like them.
        has_aux: f returns ``(value, aux)``; then the result is ``((value, aux), gradient)``.

    >>> import weft
    >>> weft.value_and_grad(lambda w, x: (w * x).sum())(weft.tensor(2.0), weft.tensor([1.0, 3.0]))
    (tensor(8.), tensor(4.))
    """
    return _value_and_grad("value_and_grad", f, argnums, has_aux)


def _value_and_grad(op: str, f: Callable[..., Any], argnums: object, has_aux: bool) -> Callable[..., Any]:
    check_function(op, f)

    @functools.wraps(f, updated=())
    def function(*args: object, **kwargs: object) -> Any:
        positions = normalize_argnums(op, argnums, len(args))
        names = [f"argument {i}" for i in positions]
        chosen = [args[i] for i in positions]
        fixed = fixing_others(f, positions, args, kwargs)
        tape, structure, out, aux = record(op, fixed, chosen, names=names, has_aux=has_aux)
        value = _scalar_output(op, out)
        grads = tree_unflatten(structure, tape.pull([value], [None], again=False))
        gradient = grads if isinstance(argnums, tuple | list) else grads[0]
        settled = tape.settle(value)
        return ((settled, aux) if has_aux else settled), gradient

    return function


def _scalar_output(op: str, out: object) -> Tensor:
    hint = "to differentiate several outputs use weft.jacobian or weft.vjp"
    if not isinstance(out, Tensor):
        raise GradientError(op, f"the function must return a tensor, got {type(out).__name__}", hint=hint)
    if out.shape != () or kind(out.dtype) != "f":
        raise GradientError(op, f"the function must return one real number, got {type_of(out)}", hint=hint)
    return out


@overload
def grad(f: Callable[Concatenate[A, P], Any]) -> Callable[Concatenate[A, P], A]: ...
@overload
def grad(
    f: Callable[P, Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[P, Any]: ...
@public
def grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the gradient of f.

    Args:
        f: from trees of tensors to one real number.
        argnums: the argument, or the arguments, to differentiate; the gradient is like them.
        has_aux: f returns ``(value, aux)``; then the result is ``(gradient, aux)``.

    >>> import weft
    >>> weft.grad(lambda x: x * x * x)(weft.tensor(2.0))
    tensor(12.)
    >>> weft.grad(weft.grad(lambda x: x * x * x))(weft.tensor(2.0))
    tensor(12.)
    """
    both = _value_and_grad("grad", f, argnums, has_aux)

    @functools.wraps(f, updated=())
    def function(*args: object, **kwargs: object) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return edge(function)

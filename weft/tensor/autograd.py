"""Gradients of tensors by tensors, on the graph that was recorded; public in ``weft.autograd``."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from weft.base.concrete import is_concrete
from weft.base.device import CPU
from weft.base.dtypes import kind
from weft.base.hooks import hooks
from weft.base.public import public
from weft.errors import ArgumentError, DtypeError, GradientError, ShapeError
from weft.ops.op import Array, Tensor, TensorLike, intercepted, type_of
from weft.tensor.accumulate import add_to_gradients
from weft.tensor.dispatch import as_constant, filled_like, wrap
from weft.tensor.mode import thread
from weft.tensor.moving import move
from weft.tensor.node import Leaf

ndarray = np.ndarray
T = TypeVar("T")


@public
def grad(
    outputs: object,
    inputs: object,
    grad_outputs: object = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor, ...]:
    """The gradients of outputs by inputs, a tuple with one for each input; no tensor's ``grad`` changes.

    Args:
        outputs: a tensor or several, whose gradients are summed.
        inputs: a tensor or several, leaves or not.
        grad_outputs: the gradient of each output, None for an output of one element.
        retain_graph: keep what the graph saved, so that it can be differentiated again; by default
            only if ``create_graph``.
        create_graph: record the gradients too, so that they can be differentiated.
        allow_unused: give None for an input that the outputs do not depend on, instead of an error.
        materialize_grads: give zeros for such an input.

    >>> import weft
    >>> x = weft.tensor(3.0, requires_grad=True)
    >>> y = x * x * x
    >>> first, = weft.autograd.grad(y, x, create_graph=True)
    >>> weft.autograd.grad(first, x)
    (tensor(18.),)
    """
    roots = _roots("grad", _tensors("grad", "outputs", outputs), grad_outputs, "grad_outputs")
    variables = _tensors("grad", "inputs", inputs)
    for i, x in enumerate(variables):
        if x._node is None:
            hint = "ask for it with requires_grad_() before the outputs are computed"
            raise GradientError(
                "grad", f"every input must require grad, got input {i} that does not", hint=hint
            )
    ways = _asked_ways()
    found = hooks.run_backward(
        roots,
        retain_graph=create_graph if retain_graph is None else bool(retain_graph),
        create_graph=bool(create_graph),
        targets=[x._node for x in variables],
        ways=ways,
    )
    if materialize_grads:
        return tuple(filled_like(x, 0) if g is None else g for g, x in zip(found, variables, strict=True))
    for i, (g, x) in enumerate(zip(found, variables, strict=True)):
        if g is None and not allow_unused:
            raise _unused(i, x)
    if ways is not None:
        edges = [x._node for g, x in zip(found, variables, strict=True) if g is not None]
        thread.capture.rely_on_ways(ways.truths([edge for edge, _ in roots], edges), allow_unused)
    return tuple(found)


def _asked_ways() -> Any:
    """What tells which gradients a run has, in a capture."""
    if not intercepted.threads or thread.capture is None:
        return None
    from weft.tensor.ways import Ways  # captures alone ask

    return Ways()


def _unused(i: int, x: Tensor) -> GradientError:
    return GradientError(
        "grad",
        f"the outputs must depend on every input, got input {i} of type {type_of(x)}, which they do not use",
        hint="pass allow_unused=True to get None for it, or materialize_grads=True to get zeros",
    )


@public
def backward(
    tensors: object,
    grad_tensors: object = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: object = None,
) -> None:
    """Compute the gradient of the sum of tensors and add it to the ``grad`` of the leaves.

    Args:
        tensors: a tensor or several.
        grad_tensors: the gradient of each, None for a tensor of one element.
        retain_graph: keep what the graph saved, so that backward can run again; by default only
            if ``create_graph``.
        create_graph: record the gradients too, so that they can be differentiated.
        inputs: add to the ``grad`` of these tensors only, leaves or not.

    >>> import weft
    >>> x = weft.tensor(3.0, requires_grad=True)
    >>> weft.autograd.backward([x * x, x * 10.0])
    >>> x.grad
    tensor(16.)
    """
    roots = _roots("backward", _tensors("backward", "tensors", tensors), grad_tensors, "grad_tensors")
    start_backward(roots, retain_graph, create_graph, inputs)


def start_backward(roots: Any, retain_graph: bool | None, create_graph: bool, inputs: object) -> None:
    """Run backward from roots and accumulate, into all leaves or into inputs."""
    retain = bool(create_graph if retain_graph is None else retain_graph)
    if inputs is None:
        hooks.run_backward(roots, retain_graph=retain, create_graph=bool(create_graph))
        return
    variables = list({id(x): x for x in _tensors("backward", "inputs", inputs)}.values())
    for i, x in enumerate(variables):
        if x._node is None:
            raise GradientError("backward", f"every input must require grad, got input {i} that does not")
    ways = _asked_ways()
    found = hooks.run_backward(
        roots,
        retain_graph=retain,
        create_graph=bool(create_graph),
        targets=[x._node for x in variables],
        ways=ways,
    )
    from weft.tensor.hooks import Hooks  # what only computes does without

    reached = [(x, g) for x, g in zip(variables, found, strict=True) if g is not None]
    truths = None
    if ways is not None:
        truths = ways.truths([edge for edge, _ in roots], [x._node for x, _ in reached])
    add_to_gradients(reached, create_graph=bool(create_graph), truths=truths)
    told = zip(reached, truths or [True] * len(reached), strict=True)
    leaves = {x._node: truth for (x, _), truth in told if type(x._node) is Leaf}
    Hooks(bool(create_graph), bool(create_graph)).after_accumulation(leaves)


@public
def stop_gradient(x: T, /) -> T:
    """The same values as constants, for a tensor or all tensors in a tree of them: no gradient flows through.

    >>> import weft
    >>> x = weft.tensor(3.0, requires_grad=True)
    >>> (x * weft.stop_gradient(x)).backward()
    >>> x.grad
    tensor(3.)
    """
    from weft.base.trees import tree_map  # imported at first use

    out: T = tree_map(lambda leaf: leaf.detach() if hasattr(leaf, "detach") else leaf, x)
    return out


def _tensors(op: str, name: str, given: object) -> list[Tensor]:
    """One tensor or a sequence of them as a list; an error for anything else."""
    items = [given] if isinstance(given, TensorLike) else given
    if not isinstance(items, tuple | list):
        raise ArgumentError(op, f"{name} must be a tensor or a list of tensors, got {type(given).__name__}")
    if not items:
        raise ArgumentError(op, f"{name} must not be empty")
    for i, x in enumerate(items):
        if not isinstance(x, TensorLike):
            raise ArgumentError(op, f"{name} must be tensors, got {type(x).__name__} at {i}")
    return list(items)


def _roots(op: str, outputs: list[Any], gradients: object, name: str) -> list[tuple[Any, Any]]:
    """Edges that backward starts from, each with its gradient."""
    if gradients is None:
        gradients = [None] * len(outputs)
    elif not isinstance(gradients, tuple | list):
        gradients = [gradients]
    if len(gradients) != len(outputs):
        raise ArgumentError(
            op,
            f"there must be one gradient for each of {len(outputs)} tensors, got {len(gradients)} in {name}",
        )
    for i, x in enumerate(outputs):
        if x._node is None:
            which = "" if len(outputs) == 1 else f" at {i}"
            raise no_graph(op, which)
    return [(x._node, seed_gradient(op, x, g)) for x, g in zip(outputs, gradients, strict=True)]


def no_graph(op: str, which: str = "") -> GradientError:
    """The error for a tensor from which no backward can start."""
    return GradientError(
        op,
        f"the tensor must have a graph, got one that does not require grad{which}",
        hint="make a leaf with requires_grad=True, and mind no_grad() and detach()",
    )


def seed_gradient(op: str, output: Any, gradient: Tensor | None) -> Tensor:
    """The gradient that backward starts from, checked against its output."""
    if gradient is None:
        ones = _implicit_gradient(op, output)
        if output.device is not CPU and is_concrete(output._data):
            return wrap(hooks.new_filled(ones.shape, 1, ones.dtype, output.device))
        gradient = as_constant(ones)
    elif not isinstance(gradient, TensorLike):
        gradient = as_constant(_as_array(op, gradient))
    if gradient.shape != output.shape:
        raise ShapeError(op, f"the gradient must be of type {type_of(output)}, got {type_of(gradient)}")
    if gradient.dtype != output.dtype:
        if kind(gradient.dtype) == "c":
            raise DtypeError(op, f"the gradient must be of type {type_of(output)}, got {type_of(gradient)}")
        gradient = gradient.astype(output.dtype)
    if output.device is not CPU:
        gradient = move(gradient, output.device)
    if is_concrete(gradient._data) and not is_concrete(output._data):
        gradient = output._data.lift(gradient)  # of the output's kind, which tells the engine what flows
    return gradient


def _as_array(op: str, gradient: Tensor) -> Array:
    """A copy, so that nothing the user does to the original reaches the gradients."""
    try:
        array = np.array(gradient)
        kind(array.dtype)
    except (ValueError, TypeError, KeyError):
        raise ArgumentError(
            op, f"a gradient must be a tensor or None, got {type(gradient).__name__}"
        ) from None
    return array


def _implicit_gradient(op: str, output: Tensor) -> Array:
    if output.size != 1:
        raise GradientError(
            op,
            f"a gradient must be given for a tensor of more than one element, got {type_of(output)}",
            hint="reduce it first (y.sum().backward()), or pass gradient=",
        )
    if kind(output.dtype) == "c":
        raise GradientError(op, "a gradient must be given for a complex tensor", hint="pass gradient=")
    return np.ones(output.shape, output.dtype)

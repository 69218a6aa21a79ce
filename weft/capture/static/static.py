"""What stands in the block of a graph: placeholders, gradients, and updates of parameters.

``weft.capture.static.block`` is the block itself, ``weft.capture.static.session`` runs the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import as_dtype, default_float
from weft.base.public import public
from weft.base.size_text import parse_size
from weft.base.sizes import Size, named_size, size_names
from weft.capture.static.block import Static, check_name, static_capture
from weft.errors import ArgumentError, CaptureError, GraphError, ShapeError
from weft.ir.types import TensorType
from weft.ops.op import TensorLike, type_of
from weft.tensor.autograd import seed_gradient
from weft.tensor.dispatch import filled_like
from weft.tensor.engine import run_backward
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor, wrap


@public
def placeholder(name: str, shape: Any = (), dtype: Any = None) -> Tensor:
    """An input of the graph that is being written, which each run feeds.

    Args:
        name: by which it is shown, and can be fed.
        shape: sizes; a string is the name of one that each run may choose, or an expression such as
            ``"2*batch"``, and None a size that has no name of its own.
        dtype: float32 by default.

    >>> import weft
    >>> with weft.Graph("double") as g:
    ...     x = weft.placeholder("x", ("batch", 3))
    ...     y = x * 2.0
    >>> y.shape
    (batch, 3)
    >>> weft.Session(g).run(y, {x: [[1.0, 2.0, 3.0]]})
    tensor([[2., 4., 6.]])
    """
    capture = static_capture("placeholder")
    if thread.capture is not capture:
        raise CaptureError(
            "placeholder", "must not be called inside control flow, got a call in a branch or loop"
        )
    check_name("placeholder", capture, name)
    target = default_float() if dtype is None else as_dtype(dtype)
    out: Tensor = capture.placeholder(TensorType(_shape_of(capture, name, shape), target), name)
    return out


def _shape_of(capture: Static, name: str, shape: Any) -> tuple[Any, ...]:
    items = shape if isinstance(shape, tuple | list) else (shape,)
    taken = {n for value in capture.inputs for n in size_names(value.type.shape)}
    out = []
    for axis, size in enumerate(items):
        if size is None:
            fresh = f"{name.replace('.', '_')}_{axis}"
            while fresh in taken:
                fresh += "_"
            size = named_size(fresh)
        elif isinstance(size, str):
            size = parse_size(size)
        if not isinstance(size, Size):
            if isinstance(size, bool) or not isinstance(size, int | np.integer):
                raise ArgumentError("placeholder", f"a size must be an int, a name or None, got {size!r}")
            if size < 0:
                raise ShapeError("placeholder", f"sizes must not be negative, got {tuple(items)}")
            size = int(size)
        out.append(size)
    return tuple(out)


@public
def gradients(ys: Any, xs: Any, grad_ys: Any = None) -> list[Any]:
    """The gradients of the sum of tensors by others, as tensors of the graph that is being written.

    Args:
        ys: a tensor or a list of them.
        xs: a tensor or a list: placeholders, parameters and results in any mixture.
        grad_ys: for each of ys the gradient to start from, None for ones.

    Returns:
        A list with a tensor for each of xs, None where ys do not depend on it.

    >>> import weft
    >>> w = weft.tensor([1.0, 2.0])
    >>> with weft.Graph("cube") as g:
    ...     (first,) = weft.gradients(w * w * w, w)
    ...     (second,) = weft.gradients(first, w)
    >>> weft.Session(g).run([first, second])
    [tensor([ 3., 12.]), tensor([ 6., 12.])]
    """
    capture = static_capture("gradients")
    outputs, inputs = _listed("gradients", "ys", ys), _listed("gradients", "xs", xs)
    seeds = [None] * len(outputs) if grad_ys is None else _seeds(grad_ys)
    if len(seeds) != len(outputs):
        raise ArgumentError(
            "gradients", f"grad_ys must be as many as ys, got {len(seeds)} for {len(outputs)}"
        )
    for tensor in (*outputs, *inputs):
        capture.value_of(tensor)
    roots = [
        (y._node, seed_gradient("gradients", y, filled_like(y, 1) if seed is None else seed))
        for y, seed in zip(outputs, seeds, strict=True)
        if y._node is not None
    ]
    targets = [x._node for x in inputs if x._node is not None]
    found = iter(run_backward(roots, retain_graph=True, create_graph=True, targets=targets) if roots else ())
    return [None if x._node is None else next(found, None) for x in inputs]


def _listed(op: str, name: str, tensors: Any) -> list[Tensor]:
    single = isinstance(tensors, TensorLike) or not isinstance(tensors, Iterable)
    items: list[Any] = [tensors] if single else list(tensors)
    for item in items:
        if not isinstance(item, Tensor):
            raise ArgumentError(op, f"{name} must be tensors, got {type(item).__name__}")
    return items


def _seeds(grad_ys: Any) -> list[Any]:
    return list(grad_ys) if isinstance(grad_ys, tuple | list) else [grad_ys]


class Update:
    """New values of parameters: fetching it in a run gives them these values, when all else is computed.

    Attributes:
        changes: pairs of a parameter and the tensor of the graph that is its new value.
        is_group: whether it stands for several, and a run gives None for it instead of the new value.
    """

    __slots__ = ("changes", "is_group")

    def __init__(self, changes: Sequence[tuple[Tensor, Tensor]], *, is_group: bool) -> None:
        self.changes = tuple(changes)
        self.is_group = is_group

    def __repr__(self) -> str:
        return f"<update of {', '.join(str(type_of(new)) for _, new in self.changes) or 'nothing'}>"


@public
def assign(parameter: Tensor, value: Any) -> Update:
    """A new value of a parameter, to be fetched: a run that fetches it changes the parameter.

    All updates of a run are computed from the values before it, and applied together at its end.

    >>> import weft
    >>> w = weft.tensor(1.0)
    >>> with weft.Graph("grow") as g:
    ...     double = weft.assign(w, w * 2.0)
    >>> session = weft.Session(g)
    >>> session.run(double), session.run(double), w
    (tensor(2.), tensor(4.), tensor(4.))
    """
    capture = static_capture("assign")
    if not isinstance(parameter, Tensor):
        raise ArgumentError("assign", f"the parameter must be a tensor, got {type(parameter).__name__}")
    capture.value_of(parameter)
    if not any(e.reference() is parameter for e in capture.externals):
        raise GraphError(
            "assign",
            f"the parameter must be a tensor from outside the graph, got {type_of(parameter)}, made inside",
            hint="make it before the block begins",
        )
    new = value if isinstance(value, Tensor) else filled_like(parameter, 0) + value
    if type_of(new) != type_of(parameter):
        raise ShapeError("assign", f"the new value must be of type {type_of(parameter)}, got {type_of(new)}")
    kept = wrap(capture.as_captured(new))
    capture.updates[id(parameter)] = (parameter, kept)
    return Update([(parameter, kept)], is_group=False)


@public
def group(*updates: Update) -> Update:
    """Several updates as one; without any, all that the block has changed in place so far.

    >>> import weft
    >>> w = weft.tensor(1.0)
    >>> with weft.Graph("count") as g:
    ...     w += 1.0
    ...     step = weft.group()
    >>> weft.Session(g).run(step)
    >>> w
    tensor(2.)
    """
    capture = static_capture("group")
    for update in updates:
        if not isinstance(update, Update):
            raise ArgumentError(
                "group", f"takes updates, got {type(update).__name__}", hint="make one by weft.assign"
            )
    if not updates:
        changes = [(tensor, wrap(capture.as_captured(new))) for tensor, new in capture.in_place()]
        return Update(changes, is_group=True)
    return Update([change for update in updates for change in update.changes], is_group=True)

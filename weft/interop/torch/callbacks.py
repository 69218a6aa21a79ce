"""Functions of PyTorch that weft differentiates: ``from_function``.

On data a call is a ``weft.Function`` that keeps PyTorch's graph for backward. In a graph it is an op of its
own, which calls Python at each run; its gradient is such an op too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

import weft
from weft.base.concrete import is_concrete
from weft.base.dtypes import kind
from weft.base.public import public
from weft.base.sizes import Size, bind
from weft.base.sizes import size_names as names_in
from weft.base.trees import Structure, tree_flatten, tree_unflatten
from weft.errors import ArgumentError, CaptureError
from weft.interop.optional import need
from weft.interop.torch.tensors import from_torch, to_torch, torch_dtype, weft_dtype
from weft.ir.types import TensorType
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor, wrap

_numbers = itertools.count(1)
_TRIALS = ((5, 7, 11, 13, 17, 19), (23, 29, 31, 37, 41, 43))  # what named sizes are, to see what follows


@public
def from_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of PyTorch as one on tensors of weft, with PyTorch's gradient.

    Tensors in the arguments, in trees too, become tensors of PyTorch that share their memory, and likewise
    for results; anything else is passed as it is. The function must not change its arguments in place. Inside
    ``weft.compile`` and other captures it is one node, which calls Python at each run; the shapes of results
    must then not depend on the values of tensors.

    Args:
        function: of tensors; a ``torch.nn.Module`` too, whose own parameters then are constants.

    Example::

        f = weft.interop.torch.from_function(torch.special.entr)
        weft.grad(lambda x: f(x).sum())(weft.ones(2))  # tensor([-1., -1.])
    """
    torch = need("from_function", "torch", "torch")
    if not callable(function):
        raise ArgumentError("from_function", f"must be given a function, got {type(function).__name__}")
    known: dict[Any, _Flat] = {}

    def run(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree_flatten((args, kwargs))
        flat = _remembered(known, _Flat(torch, function, leaves, structure))
        tensors = [x for x in leaves if isinstance(x, Tensor)]
        outs = iter(_applied(flat, tensors))
        results = [next(outs) if is_tensor else x for x, is_tensor in flat.returned]
        assert flat.returned_structure is not None
        return tree_unflatten(flat.returned_structure, results)

    return wraps(function, updated=())(run) if hasattr(function, "__name__") else run


def _remembered(known: dict[Any, _Flat], flat: _Flat) -> _Flat:
    """The same function with the same plain arguments from an earlier call, so that graphs share its op."""
    try:
        return known.setdefault((flat.structure, tuple(flat.leaves)), flat)
    except TypeError:  # an argument cannot be a key
        return flat


class _Flat:
    """A function of PyTorch on the tensors among its arguments, which returns a list of tensors."""

    def __init__(self, torch: Any, function: Any, leaves: Sequence[Any], structure: Structure) -> None:
        self.torch = torch
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        self.places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]
        self.leaves = [None if i in self.places else x for i, x in enumerate(leaves)]
        self.structure = structure
        self.returned: list[tuple[Any, bool]] = []
        self.returned_structure: Structure | None = None
        self.ops: dict[int, Any] = {}
        self.derived: dict[type, Any] = {}

    def __call__(self, *tensors: Any) -> list[Any]:
        leaves = list(self.leaves)
        for place, x in zip(self.places, tensors, strict=True):
            leaves[place] = x
        versions = [x._version for x in tensors]
        args, kwargs = tree_unflatten(self.structure, leaves)
        out = self.function(*args, **kwargs)
        if versions != [x._version for x in tensors]:
            raise ArgumentError(
                "from_function", f"{self.name} must not change its arguments in place, got one changed"
            )
        found, self.returned_structure = tree_flatten(out)
        self.returned = [(None, True) if isinstance(x, self.torch.Tensor) else (x, False) for x in found]
        return [x for x in found if isinstance(x, self.torch.Tensor)]


class _Pull:
    """The gradient of a flat function: from its tensors and gradients of results to gradients of tensors."""

    def __init__(self, flat: Any, count: int) -> None:
        self.torch = flat.torch
        self.flat = flat
        self.count = count
        self.name = f"{flat.name}_backward"
        self.ops: dict[int, Any] = {}
        self.derived: dict[type, Any] = {}

    def __call__(self, *tensors: Any) -> list[Any]:
        follow = self.torch.is_grad_enabled()
        with self.torch.enable_grad():
            given = tensors[: self.count]
            xs = [x if x.requires_grad or not _is_smooth(x) else x._value().requires_grad_() for x in given]
            return self._derivatives(xs, _smooth(self.flat(*xs)), tensors[self.count :], follow)

    def _derivatives(self, xs: list[Any], ys: list[Any], given: Sequence[Any], follow: bool) -> list[Any]:
        return _torch_gradients(self.torch, ys, xs, given, follow)


class _Push(_Pull):
    """The tangents of results, from the tensors of a flat function and tangents of the floating ones.

    The gradient is a linear function of the gradients of results; its own gradient by these is the tangent.
    """

    def _derivatives(self, xs: list[Any], ys: list[Any], given: Sequence[Any], follow: bool) -> list[Any]:
        seeds = [self.torch.zeros_like(y).requires_grad_() for y in ys]
        grads = _torch_gradients(self.torch, ys, xs, seeds, True)
        return _torch_gradients(self.torch, grads, seeds, given, follow)


def _is_smooth(x: Any) -> bool:
    """Whether a tensor of PyTorch has gradients."""
    return bool(x.is_floating_point() or x.is_complex())


def _smooth(tensors: Sequence[Any]) -> list[Any]:
    return [x for x in tensors if _is_smooth(x)]


def _derived(kind: type[_Pull], flat: Any, count: int) -> Any:
    """The gradient or the tangents of a flat function, made once, so that graphs share its op."""
    return flat.derived.setdefault(kind, kind(flat, count))


def _torch_gradients(torch: Any, ys: Any, xs: Any, grads: Any, follow: bool) -> list[Any]:
    """The gradients of the floating ones among xs, zeros where there is none."""
    wanted = [x for x in xs if x.requires_grad]
    pairs = [(y, g) for y, g in zip(ys, grads, strict=True) if y.requires_grad]
    if not pairs:
        return [torch.zeros_like(x) for x in wanted]
    outs, given = zip(*pairs, strict=True)
    unused = {"allow_unused": True, "materialize_grads": True}
    return list(torch.autograd.grad(outs, wanted, given, create_graph=follow, retain_graph=True, **unused))


def _applied(flat: Any, tensors: Sequence[Tensor]) -> Sequence[Any]:
    """The results as tensors of weft."""
    if thread.capture is not None or any(not is_concrete(x._data) for x in tensors):
        return _as_node(flat, tensors)
    out = _TorchFunction.apply(flat, *tensors)
    return out if isinstance(out, tuple) else (out,)


class _TorchFunction(weft.Function):
    """A call of a function of PyTorch on data."""

    @staticmethod
    def forward(ctx: Any, flat: Any, *tensors: Tensor) -> Any:
        """Run in PyTorch, recorded if a gradient is asked for."""
        needs = ctx.needs_input_grad[1:]
        xs = [to_torch(x._value()).requires_grad_(needed) for x, needed in zip(tensors, needs, strict=True)]
        with flat.torch.set_grad_enabled(any(needs)):
            ys = flat(*xs)
        ctx.flat, ctx.xs, ctx.ys = flat, xs, ys
        ctx.save_for_backward(*tensors)
        return tuple(from_torch(y.detach()) for y in ys)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """Run PyTorch's gradient; where that is to be differentiated too, as a function of its own."""
        smooth = [g for g, y in zip(grads, ctx.ys, strict=True) if _is_smooth(y)]
        if weft.is_grad_enabled() or thread.capture is not None:
            pull = _derived(_Pull, ctx.flat, len(ctx.xs))
            found = iter(_applied(pull, [*ctx.saved_tensors, *smooth]))
            return (None, *[next(found) if kind(x.dtype) in "fc" else None for x in ctx.saved_tensors])
        seeds = [to_torch(g._value()) for g in smooth]
        given = iter(_torch_gradients(ctx.flat.torch, _smooth(ctx.ys), ctx.xs, seeds, False))
        return (None, *[from_torch(next(given)) if x.requires_grad else None for x in ctx.xs])


# In graphs


def _as_node(flat: Any, tensors: Sequence[Tensor]) -> Sequence[Any]:
    """The results as one node."""
    types = _result_types(flat, [TensorType(x.shape, x.dtype) for x in tensors])
    if len(types) not in flat.ops:
        flat.ops[len(types)] = _declare(flat, len(types))
    out = flat.ops[len(types)](*tensors)
    return out if isinstance(out, tuple | list) else (out,)


def _declare(flat: Any, outputs: int) -> Any:
    """The op of a function with a number of results."""

    def kernel(*xs: Any) -> Any:
        tensors = [to_torch(wrap(np.ascontiguousarray(x))) for x in xs]
        with flat.torch.no_grad():
            out = [from_torch(y.detach().contiguous()).numpy() for y in flat(*tensors)]
        return tuple(out) if outputs > 1 else out[0]

    def type_rule(*types: TensorType) -> Any:
        found = _result_types(flat, types)
        return tuple(found) if outputs > 1 else found[0]

    def gradient(g: Any, xs: Any, outs: Any) -> Any:
        grads = g if isinstance(g, list | tuple) else [g]
        return tuple(_node_derivatives(_Pull, flat, xs, grads, outs, xs))

    def jvp(primals: Any, tangents: Any, outs: Any) -> Any:
        wanted = [outs] if outputs == 1 else outs
        found = _node_derivatives(_Push, flat, primals, tangents, primals, wanted)
        return found[0] if outputs == 1 else found

    name = "".join(c if c.isalnum() else "_" for c in flat.name)
    return weft.custom_op(
        f"torch::{name}_{next(_numbers)}", type_rule=type_rule, gradient=gradient, jvp=jvp, outputs=outputs
    )(kernel)


def _node_derivatives(
    kind_of: type[_Pull],
    flat: Any,
    xs: Sequence[Any],
    given: Sequence[Any],
    likes: Sequence[Any],
    wanted: Sequence[Any],
) -> list[Any]:
    """Gradients or tangents of what is wanted, from those of ``likes`` that are given; None for integers."""
    smooth = [
        weft.zeros(x.shape, dtype=x.dtype) if d is None else d
        for d, x in zip(given, likes, strict=True)
        if kind(x.dtype) in "fc"
    ]
    operands = [x if isinstance(x, Tensor) else wrap(np.asarray(x)) for x in (*xs, *smooth)]
    found = iter(_applied(_derived(kind_of, flat, len(xs)), operands))
    return [next(found) if kind(x.dtype) in "fc" else None for x in wanted]


def _result_types(flat: Any, types: Sequence[TensorType]) -> list[TensorType]:
    """The types of results, by a run of the function on tensors without data."""
    names = sorted(names_in([s for t in types for s in t.shape]))
    if not names:
        return [TensorType(shape, dtype) for shape, dtype in _shapes(flat, types, {})]
    if len(names) > len(_TRIALS[0]):
        raise CaptureError(
            "from_function", f"there must be at most {len(_TRIALS[0])} open sizes, got {names}"
        )
    trials = [dict(zip(names, numbers, strict=False)) for numbers in _TRIALS]
    runs = [_shapes(flat, types, sizes) for sizes in trials]
    known: list[Any] = list(dict.fromkeys(s for t in types for s in t.shape if isinstance(s, Size)))
    return [
        TensorType(
            tuple(_size(flat, pair, trials, known) for pair in zip(*[r[i][0] for r in runs], strict=True)),
            dtype,
        )
        for i, (_, dtype) in enumerate(runs[0])
    ]


def _size(flat: Any, numbers: tuple[int, ...], trials: Sequence[Any], known: Sequence[Size]) -> Any:
    """The size that is these numbers in these trials: a constant, or one that an argument has."""
    if len(set(numbers)) == 1:
        return numbers[0]
    for size in known:
        if tuple(bind(size, sizes) for sizes in trials) == numbers:
            return size
    raise CaptureError(
        "from_function",
        f"sizes of what {flat.name} returns must be fixed, or those of its arguments, got another one",
        hint="call it outside of the graph, or give all its arguments fixed shapes",
    )


def _shapes(flat: Any, types: Sequence[TensorType], sizes: Any) -> list[tuple[tuple[int, ...], Any]]:
    torch = flat.torch
    with torch._subclasses.fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
        given = [torch.empty(bind(t.shape, sizes), dtype=torch_dtype(torch, t.dtype)) for t in types]
        try:
            found = flat(*given)
        except Exception as error:
            if isinstance(error, weft.errors.WeftError):
                raise
            raise CaptureError(
                "from_function",
                f"{flat.name} must run on tensors without data to be part of a graph, got: {error}",
                hint="call it outside of the captured function",
            ) from error
        return [(tuple(y.shape), weft_dtype("from_function", y.dtype)) for y in found]

"""Gradients against finite differences, in double precision; and batches against loops.

A function is seen as a map between real vectors: a complex number is two of their elements. So its
derivative is one real matrix, whatever mixes real and complex, and need not be holomorphic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import complex128, float64, kind
from weft.base.trees import tree_flatten, tree_map, tree_unflatten
from weft.errors import ArgumentError, DtypeError, GradientError
from weft.ops.op import type_of
from weft.tensor.tensor import Tensor, wrap
from weft.testing.compare import as_array, assert_close
from weft.transform.arguments import flatten_outputs
from weft.transform.jvp import jvp
from weft.transform.reverse import vjp
from weft.transform.vmap import input_axes, vmap

Array = Any


def gradcheck(
    f: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    reverse: bool = True,
    forward: bool = True,
    batched: bool = False,
    raise_exception: bool = True,
) -> bool:
    """Whether the derivatives of f, in both modes, agree with finite differences.

    Args:
        f: from trees of tensors to a tree of tensors.
        inputs: a tuple of arguments, or the only one. Floating and complex tensors in them are taken as
            float64 and complex128 and are differentiated; the rest is passed on.
        eps: step of the central differences.
        atol: absolute tolerance.
        rtol: relative tolerance.
        reverse: check ``vjp``.
        forward: check ``jvp``.
        batched: check also that ``vmap`` of these gives the same.
        raise_exception: raise a GradientError that shows where they differ, instead of returning False.

    >>> import weft
    >>> weft.testing.gradcheck(lambda x: x * x, weft.tensor([1.0, 2.0]))
    True
    """
    try:
        check = _Check("gradcheck", f, inputs)
        expected = check.numerical(eps)
        for name, actual in check.analytical(reverse, forward, batched):
            check.compare(name, actual, expected, atol, rtol)
    except GradientError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(f: Callable[..., Any], inputs: Any, **options: Any) -> bool:
    """Whether the derivatives of the gradient of f agree with finite differences; options as in gradcheck.

    >>> import weft
    >>> weft.testing.gradgradcheck(lambda x: x * x * x, weft.tensor([1.0, 2.0]))
    True
    """
    check = _Check("gradgradcheck", f, inputs)
    seeds = [wrap(_numbers(o.shape, o.dtype, seed=i)) for i, o in enumerate(check.outputs)]

    def gradients(points: Sequence[Tensor], seeds: Sequence[Tensor]) -> Any:
        return vjp(lambda *xs: check.run(xs), *points)[1](seeds)

    return gradcheck(gradients, (check.points, seeds), **options)


def _numbers(shape: tuple[int, ...], dtype: Any, seed: int) -> Array:
    """Numbers of no particular pattern in (0.5, 1.5), without the cost of importing numpy.random."""
    n = int(np.prod(shape))
    values = 0.5 + np.modf(np.arange(1, n + 1) * 0.618034 + seed * 0.41421)[0]
    if kind(dtype) == "c":
        values = values + 1j * values[::-1]
    out: Array = values.astype(dtype).reshape(shape)
    return out


class _Check:
    """A function at one point, its real derivative by several ways."""

    def __init__(self, op: str, f: Callable[..., Any], inputs: Any) -> None:
        self.op = op
        self._function = f
        args = inputs if isinstance(inputs, tuple) else (inputs,)
        self._leaves, self._structure = tree_flatten(args)
        paths = self._structure.paths()
        smooth = [i for i, x in enumerate(self._leaves) if _is_smooth(x)]
        if not smooth:
            raise DtypeError(op, "there must be a floating or complex tensor among the inputs, got none")
        self._smooth = smooth
        self.points = [_double(self._leaves[i]) for i in smooth]
        self._input_names = [f"inputs{paths[i]}" for i in smooth]
        self.outputs = self.run(self.points)
        self._output_names = [f"output {i}" for i in range(len(self.outputs))]
        self._check_outputs()

    def run(self, points: Sequence[Tensor]) -> list[Tensor]:
        """The floating and complex outputs at a point."""
        leaves = list(self._leaves)
        for i, x in zip(self._smooth, points, strict=True):
            leaves[i] = x
        out = self._function(*tree_unflatten(self._structure, leaves))
        return [o for o in flatten_outputs(self.op, out)[0] if kind(o.dtype) in "fc"]

    def _check_outputs(self) -> None:
        for o, name in zip(self.outputs, self._output_names, strict=True):
            if o.dtype not in (float64, complex128):
                raise DtypeError(
                    self.op, f"the function must compute in double precision, got {name} {type_of(o)}"
                )
        again = _flat(self.run(self.points))
        if not np.array_equal(_flat(self.outputs), again, equal_nan=True):
            raise GradientError(self.op, "the function must give the same outputs again, got different ones")

    def numerical(self, eps: float) -> Array:
        """The derivative by central differences: a row an output element, a column an input element."""
        columns = [
            (self._at(i, step) - self._at(i, -step)) / (2 * eps)
            for i, x in enumerate(self.points)
            for step in _units(x, eps)
        ]
        return _columns(columns, _flat(self.outputs).size)

    def _at(self, i: int, step: Array) -> Array:
        moved = list(self.points)
        moved[i] = wrap(np.asarray(self.points[i].numpy() + step))
        return _flat(self.run(moved))

    def analytical(self, reverse: bool, forward: bool, batched: bool) -> Iterator[tuple[str, Array]]:
        """The derivative by each way that is asked for, with its name."""
        if reverse:
            _, pull = vjp(lambda *xs: self.run(xs), *self.points)
            rows = [_flat(pull(seeds)) for seeds in _directions(self.outputs)]
            yield "the reverse-mode derivative", _columns(rows, _flat(self.points).size).T
            if batched:
                batch = self._batched(lambda seeds: pull(seeds), self.outputs)
                yield "the batched reverse-mode derivative", batch.T
        if forward:
            columns = [_flat(self._push(tangents)) for tangents in _directions(self.points)]
            yield "the forward-mode derivative", _columns(columns, _flat(self.outputs).size)
            if batched:
                yield "the batched forward-mode derivative", self._batched(self._push, self.points)

    def _push(self, tangents: Sequence[Tensor]) -> Any:
        return jvp(lambda *xs: self.run(xs), self.points, tangents)[1]

    def _batched(self, function: Callable[[Any], Any], like: Sequence[Tensor]) -> Array:
        directions = list(_directions(like))
        if not directions:
            return np.zeros((_flat(function(list(like))).size, 0))
        stacked = [wrap(np.stack([d[i].numpy() for d in directions])) for i in range(len(like))]
        results = tree_flatten(vmap(function, out_axes=-1)(stacked))[0]
        return np.concatenate([_real_rows(r.detach().numpy()) for r in results])

    def compare(self, name: str, actual: Array, expected: Array, atol: float, rtol: float) -> None:
        """Raise if a derivative differs from the expected one."""
        wrong = ~np.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
        if not wrong.any():
            return
        error = np.where(wrong, np.nan_to_num(np.abs(actual - expected), nan=np.inf), -1.0)
        row, column = (int(i) for i in np.unravel_index(int(np.argmax(error)), error.shape))
        output = _element(self._output_names, self.outputs, row)
        point = _element(self._input_names, self.points, column)
        raise GradientError(
            self.op,
            f"{name} must agree with finite differences, got {actual[row, column]:.8g} and "
            f"{expected[row, column]:.8g} for {output} by {point}; "
            f"{int(wrong.sum())} of {wrong.size} elements differ" + _listing(actual, expected),
        )


def _listing(actual: Array, expected: Array) -> str:
    """Both matrices, if they are small enough to be read."""
    if actual.size > 64:
        return ""
    with np.printoptions(precision=5, suppress=True):
        return f"\n  analytical:\n{actual}\n  numerical:\n{expected}"


def _is_smooth(x: Any) -> bool:
    if isinstance(x, float | complex) and not isinstance(x, np.generic):
        return True
    return isinstance(x, Tensor | np.ndarray | np.generic) and kind(np.dtype(x.dtype)) in "fc"


def _double(x: Any) -> Tensor:
    array = x.detach().numpy() if isinstance(x, Tensor) else np.asarray(x)
    return wrap(array.astype(complex128 if kind(array.dtype) == "c" else float64))


def _units(x: Tensor, size: float) -> Iterator[Array]:
    """A step along each real direction of a tensor."""
    for factor in (1, 1j) if kind(x.dtype) == "c" else (1,):
        for i in range(x.size):
            step = np.zeros(x.size, x.dtype)
            step[i] = size * factor
            yield step.reshape(x.shape)


def _directions(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """For each real direction of several tensors, the unit step in all of them."""
    for i, x in enumerate(tensors):
        for step in _units(x, 1.0):
            yield [wrap(step if k == i else np.zeros(t.shape, t.dtype)) for k, t in enumerate(tensors)]


def _flat(tensors: Any) -> Array:
    """Tensors as one real vector, in the order of ``_directions``."""
    parts = [_real_rows(t.detach().numpy().reshape(*t.shape, 1))[:, 0] for t in tree_flatten(tensors)[0]]
    return np.concatenate(parts) if parts else np.zeros(0)


def _real_rows(a: Array) -> Array:
    """All axes but the last as rows, real parts before imaginary ones."""
    rows = a.reshape(-1, a.shape[-1]) if a.shape[-1] else np.zeros((int(np.prod(a.shape[:-1])), 0), a.dtype)
    return np.concatenate([rows.real, rows.imag]) if a.dtype.kind == "c" else rows


def _columns(columns: Sequence[Array], height: int) -> Array:
    return np.stack(columns, axis=1) if columns else np.zeros((height, 0))


def _element(names: Sequence[str], tensors: Sequence[Tensor], k: int) -> str:
    """The name of the k-th element of the real vector that tensors make."""
    for name, t in zip(names, tensors, strict=True):
        width = t.size * (2 if kind(t.dtype) == "c" else 1)
        if k < width:
            part = ("real part of ", "imaginary part of ")[k // t.size] if kind(t.dtype) == "c" else ""
            index = tuple(int(i) for i in np.unravel_index(k % t.size, t.shape))
            return f"{part}{name} at {index}" if t.shape else f"{part}{name}"
        k -= width
    raise IndexError(k)


def check_vmap(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    in_axes: Any = 0,
    *,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """Raise an AssertionError unless ``vmap(f, in_axes)(*args)`` equals f run on each example.

    >>> import weft
    >>> weft.testing.check_vmap(lambda x: x.sum(), (weft.tensor([[1.0, 2.0], [3.0, 4.0]]),))
    """
    if not isinstance(args, tuple):
        raise ArgumentError("check_vmap", f"args must be a tuple of arguments, got {type(args).__name__}")
    leaves, structure = tree_flatten(args)
    axes = input_axes(in_axes, args)
    batched = vmap(f, in_axes)(*args)
    size = next(x.shape[a] for x, a in zip(leaves, axes, strict=True) if a is not None)
    runs = []
    for i in range(size):
        example = [
            x if a is None else wrap(np.asarray(np.take(as_array(x), i, axis=a)))
            for x, a in zip(leaves, axes, strict=True)
        ]
        runs.append(f(*tree_unflatten(structure, example)))
    if runs:
        looped = tree_map(lambda *xs: np.stack([as_array(x) for x in xs]), *runs)
        assert_close(batched, looped, rtol=rtol, atol=atol)

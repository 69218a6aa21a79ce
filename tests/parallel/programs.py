"""Random programs with random notes of how their values are cut, for tests of the sharding passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
import weft.nn.functional as F
from weft import parallel as par
from weft.base.ranks import mesh_axes

Array = np.ndarray[Any, Any]
SIZES = (1, 3, 4, 8, 16)
BINS = np.array([-1.0, 0.0, 0.5])


class Program:
    """A random function of three tensors, made of choices; the same choices give the same function."""

    def __init__(self, choices: list[int], mesh: str, *, stripes: bool = False) -> None:
        self.choices, self.mesh, self.stripes = choices, mesh, stripes
        rng = np.random.default_rng(choices[0] if choices else 0)
        shapes = [tuple(int(s) for s in rng.choice(SIZES, size=rng.integers(1, 4))) for _ in range(3)]
        self.arrays: list[Array] = [rng.standard_normal(s) for s in shapes]

    def __call__(self, *inputs: Any) -> Any:
        """Run it."""
        values = list(inputs)
        for number, choice in enumerate(self.choices):
            rng = np.random.default_rng([choice, number])
            step = STEPS[choice % len(STEPS)]
            picked = values[int(rng.integers(len(values)))]
            made = step(picked, rng, values)
            if made is not None and made.size <= 1 << 12:
                values.append(self._noted(made, rng))
        return tuple(values[3:][-4:]) or tuple(values)

    def _noted(self, x: Any, rng: Any) -> Any:
        """x, with a note how it is cut, every now and then."""
        if rng.integers(3) or x.ndim == 0:
            return x
        names = [name for name, _ in mesh_axes(self.mesh)]
        rng.shuffle(names)
        sizes, cut = dict(mesh_axes(self.mesh)), []
        for size in x.shape:
            name = names.pop() if names and rng.integers(2) else None
            pieces = int(rng.choice([1, 2, 4])) if self.stripes else 1
            if name and pieces > 1 and size % (pieces * sizes[name]) == 0:
                cut.append(f"{pieces}*{name}")
            else:
                cut.append(name if name and size % sizes[name] == 0 else None)
        return par.shard(x, *cut)


def _pair(x: Any, rng: Any, values: list[Any]) -> Any:
    """Another value that broadcasts against x, made of one that does not where it must be."""
    for other in values[::-1]:
        pairs = zip(reversed(other.shape), reversed(x.shape), strict=False)
        if other is not x and all(a == b or 1 in (a, b) for a, b in pairs):
            return other
    return x[..., :1] if x.ndim else x


def _product(x: Any, rng: Any, values: list[Any]) -> Any:
    if x.ndim < 2:
        return None
    for y in values[::-1]:
        if y.ndim == 2 and y.shape[0] == x.shape[-1]:
            return x @ y * 0.25
    return x @ x.mT * 0.25


def _reshaped(x: Any, rng: Any, values: list[Any]) -> Any:
    if x.ndim > 1 and rng.integers(2):
        return x.reshape(-1, *x.shape[2:])
    even = [d for d, s in enumerate(x.shape) if s % 4 == 0]
    if not even:
        return x.reshape(1, *x.shape)
    d = even[int(rng.integers(len(even)))]
    return x.reshape(*x.shape[:d], x.shape[d] // 4, 4, *x.shape[d + 1 :])


def _axis(x: Any, rng: Any) -> int:
    return int(rng.integers(x.ndim))


def _rows(x: Any, rng: Any) -> Any:
    return weft.tensor(rng.integers(0, x.shape[0], size=(8, 2)))


def _class_loss(x: Any, rng: Any, values: list[Any]) -> Any:
    if x.ndim != 2:
        return None
    return F.cross_entropy(x, weft.tensor(rng.integers(0, x.shape[1], size=x.shape[0])))


def _gradient(x: Any, rng: Any, values: list[Any]) -> Any:
    """A gradient through a product, a normalisation and a lookup: what backward passes are made of."""
    if x.ndim < 2:
        return None
    index = _rows(x, rng)
    return weft.grad(lambda t: (F.softmax(t[index], axis=-1) ** 2).sum() + weft.tanh(t @ t.mT).sum())(x)


Step = Callable[[Any, Any, list[Any]], Any]
STEPS: tuple[Step, ...] = (
    lambda x, rng, values: weft.tanh(x),
    lambda x, rng, values: x * _pair(x, rng, values) + 0.5,
    lambda x, rng, values: weft.where(x > 0, x, _pair(x, rng, values)),
    _product,
    lambda x, rng, values: x.sum(axis=_axis(x, rng)) * 0.25 if x.ndim else x,
    lambda x, rng, values: x.amax(axis=_axis(x, rng), keepdims=True) if x.ndim else x,
    lambda x, rng, values: weft.permute_dims(x, tuple(rng.permutation(x.ndim).tolist())),
    _reshaped,
    lambda x, rng, values: weft.broadcast_to(x, (4, *x.shape)),
    lambda x, rng, values: weft.concat([x, x * 2], axis=_axis(x, rng)) if x.ndim else None,
    lambda x, rng, values: x[..., : max(1, x.shape[-1] // 2)] if x.ndim else None,
    lambda x, rng, values: x[::-1] if x.ndim else None,
    lambda x, rng, values: F.softmax(x, axis=_axis(x, rng)) if x.ndim else None,
    lambda x, rng, values: F.layer_norm(x, (x.shape[-1],)) if x.ndim and x.shape[-1] > 1 else None,
    lambda x, rng, values: x[_rows(x, rng)] if x.ndim else None,
    lambda x, rng, values: weft.sort(x, axis=_axis(x, rng)) if x.ndim else None,
    lambda x, rng, values: weft.searchsorted(weft.tensor(BINS), x).to(x.dtype) * 0.25,  # has no rule
    lambda x, rng, values: weft.cumsum(x, axis=0) * 0.25 if x.ndim else None,
    _class_loss,
    _gradient,
)

"""Rows that are one kernel or a few: softmax, layer norm, a chain, and single ops outside of any graph."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bench.gpu.row import COMPILED, DEVICE, JAX, TORCH, WEFT, Row, Step

ROWS, COLUMNS, COUNT = 16384, 4096, 1 << 26


def _arrays(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]


def _in_weft(function: Any, *shapes: tuple[int, ...]) -> Step:
    import weft

    given = [weft.tensor(a).to(DEVICE) for a in _arrays(*shapes)]
    return partial(weft.compile(function), *given)


def _in_torch(function: Any, *shapes: tuple[int, ...], compiled: bool, grads: int = 0) -> Step:
    import torch

    given = [torch.from_numpy(a).cuda() for a in _arrays(*shapes)]
    for x in given[:grads]:
        x.requires_grad_()
    run = torch.compile(function) if compiled else function
    if not grads:
        return partial(run, *given)

    def step() -> Any:
        *inputs, along = given
        out = run(*inputs)
        return out, *torch.autograd.grad(out, inputs[:grads], along)

    return step


def _in_jax(function: Any, *shapes: tuple[int, ...]) -> Step:
    import jax

    return partial(jax.jit(function), *[jax.device_put(a) for a in _arrays(*shapes)])


# Softmax


def _softmax_weft() -> Step:
    import weft

    return _in_weft(lambda x: weft.softmax(x, axis=-1), (ROWS, COLUMNS))


def _softmax_torch(compiled: bool) -> Step:
    import torch

    return _in_torch(lambda x: torch.softmax(x, -1), (ROWS, COLUMNS), compiled=compiled)


def _softmax_jax() -> Step:
    import jax

    return _in_jax(lambda x: jax.nn.softmax(x, -1), (ROWS, COLUMNS))


# Layer norm, with gradients by x, w and b

_NORM = ((ROWS, COLUMNS), (COLUMNS,), (COLUMNS,), (ROWS, COLUMNS))


def _norm_weft() -> Step:
    import weft
    import weft.nn.functional as F

    def both(x: Any, w: Any, b: Any, g: Any) -> Any:
        out, pull = weft.vjp(lambda x, w, b: F.layer_norm(x, (COLUMNS,), w, b), x, w, b)
        return (out, *pull(g))

    return _in_weft(both, *_NORM)


def _norm_torch(compiled: bool) -> Step:
    import torch.nn.functional as F

    return _in_torch(lambda x, w, b: F.layer_norm(x, (COLUMNS,), w, b), *_NORM, compiled=compiled, grads=3)


def _norm_jax() -> Step:
    import jax

    def norm(x: Any, w: Any, b: Any) -> Any:
        shifted = x - x.mean(-1, keepdims=True)
        return shifted * jax.lax.rsqrt((shifted * shifted).mean(-1, keepdims=True) + 1e-5) * w + b

    def both(x: Any, w: Any, b: Any, g: Any) -> Any:
        out, pull = jax.vjp(norm, x, w, b)
        return out, pull(g)

    return _in_jax(both, *_NORM)


# A chain, with its gradient


def _chain(tanh: Any, exp: Any, x: Any) -> Any:
    return tanh(2.0 * x + 1.0) * exp(-x * x) + x


def _chain_weft() -> Step:
    import weft

    def both(x: Any, g: Any) -> Any:
        out, pull = weft.vjp(partial(_chain, weft.tanh, weft.exp), x)
        return out, pull(g)[0]

    return _in_weft(both, (COUNT,), (COUNT,))


def _chain_torch(compiled: bool) -> Step:
    import torch

    chain = partial(_chain, torch.tanh, torch.exp)
    return _in_torch(chain, (COUNT,), (COUNT,), compiled=compiled, grads=1)


def _chain_jax() -> Step:
    import jax
    import jax.numpy as jnp

    def both(x: Any, g: Any) -> Any:
        out, pull = jax.vjp(partial(_chain, jnp.tanh, jnp.exp), x)
        return out, pull(g)[0]

    return _in_jax(both, (COUNT,), (COUNT,))


# Small ops: one by itself, and chains as in ``bench.eager``

OPS = 1000  # of a chain


def _op_weft(gradient: bool) -> Step:
    import weft

    x, y = (weft.ones(100, device=DEVICE, requires_grad=gradient) for _ in range(2))
    return _small(x, y, gradient)


def _op_torch(gradient: bool) -> Step:
    import torch

    x, y = (torch.ones(100, device="cuda", requires_grad=gradient) for _ in range(2))
    return _small(x, y, gradient)


def _small(x: Any, y: Any, gradient: bool) -> Step:
    if not gradient:
        return lambda: x * y
    along = (x * y).detach()

    def step() -> Any:
        x.grad = y.grad = None
        (x * y).backward(along)
        return x.grad

    return step


def _ops_weft(gradient: bool) -> Step:
    import weft

    return _small_chain(lambda a: weft.tensor(a, device=DEVICE), gradient)


def _ops_torch(gradient: bool) -> Step:
    import torch

    return _small_chain(lambda a: torch.from_numpy(a).cuda(), gradient)


def _small_chain(tensor: Any, gradient: bool) -> Step:
    """``add_mul`` of ``bench.eager``: its graph is built, and run backward if the gradient is asked for."""
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.9, 1.1, 100).astype(np.float32) for _ in range(3)]
    x, w, b = (tensor(a) for a in (*arrays[:2], arrays[2] - 1))
    along = x * w
    x.requires_grad_()

    def forward() -> Any:
        out = x
        for _ in range(OPS // 2):
            out = out * w + b
        return out

    def both() -> Any:
        x.grad = None
        forward().backward(along)
        return x.grad

    return both if gradient else forward


def _both(make: Any) -> dict[str, Any]:
    return {TORCH: partial(make, compiled=False), COMPILED: partial(make, compiled=True)}


KERNELS = [
    Row(
        "softmax", "softmax 16,384 × 4,096", 141,
        {WEFT: _softmax_weft, **_both(_softmax_torch), JAX: _softmax_jax},
    ),
    Row(
        "norm", "layer norm of that size, all gradients", 300,
        {WEFT: _norm_weft, **_both(_norm_torch), JAX: _norm_jax},
    ),
    Row(
        "chain", "64M elements, chain with gradient", 330,
        {WEFT: _chain_weft, **_both(_chain_torch), JAX: _chain_jax},
    ),
    Row(
        "ops", "eager small op of a chain of 1,000, with the graph", 6,
        {WEFT: partial(_ops_weft, False), TORCH: partial(_ops_torch, False)}, turns=10, ops=OPS,
    ),
    Row(
        "ops-gradient", "eager small op of that chain, forward and backward", 12,
        {WEFT: partial(_ops_weft, True), TORCH: partial(_ops_torch, True)}, turns=10, ops=OPS,
    ),
    Row(
        "op", "one eager small op by itself, no gradient", 6,
        {WEFT: partial(_op_weft, False), TORCH: partial(_op_torch, False)}, turns=2000,
    ),
    Row(
        "op-gradient", "one eager small op and a whole call of backward()", None,
        {WEFT: partial(_op_weft, True), TORCH: partial(_op_torch, True)}, turns=1000,
    ),
]  # fmt: skip

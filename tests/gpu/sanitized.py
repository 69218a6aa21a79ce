"""Programs for NVIDIA's checks of memory and races: all kinds of kernels, at sizes where they differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
import weft.nn.functional as F
from tests.backends.cuda.programs import PROGRAMS as SMALL
from tests.backends.cuda.programs import layer_norm_gradients, network, normal
from weft import optim


def half(*shape: int, seed: int = 0) -> Any:
    """A tensor of random numbers in bfloat16."""
    return normal(*shape, seed=seed).astype(weft.bfloat16)


def with_gradients(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """What a function gives, and the gradients of a sum of it by its first arguments."""

    def both(*given: Any) -> Any:
        out, pull = weft.vjp(lambda *first: function(*first, *given[count:]), *given[:count])
        return out, pull(weft.ones_like(out))

    return both


def labels(count: int, classes: int) -> Any:
    """Which of some classes each of a batch has."""
    return weft.tensor(np.random.default_rng(3).integers(0, classes, count))


softmax = with_gradients(lambda x: F.softmax(x, axis=-1) * x, 1)
log_softmax = with_gradients(lambda x: F.log_softmax(x, axis=-1) * x, 1)
loss = with_gradients(F.cross_entropy, 1)
bias_relu = with_gradients(lambda x, w, b: weft.relu(x @ w + b), 3)
rms = with_gradients(lambda x, w: x * weft.rsqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5) * w, 2)


def lstm(xs: Any, wx: Any, wh: Any, b: Any) -> Any:
    """A recurrent layer by a loop, its result squared."""
    h = c = weft.zeros(xs.shape[1], wh.shape[0], device=xs.device)
    for x in xs:
        i, f, g, o = (x @ wx + h @ wh + b).chunk(4, 1)
        c = weft.sigmoid(f) * c + weft.sigmoid(i) * weft.tanh(g)
        h = weft.sigmoid(o) * weft.tanh(c)
    return (h * h).sum()


KERNELS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    **{f"softmax {a}x{b}": (softmax, [normal(a, b)]) for a, b in ((5, 40), (9, 777), (6, 4096), (3, 30000))},
    **{f"bf16 log softmax {b}": (log_softmax, [half(4, b)]) for b in (100, 1024, 5001)},
    **{
        f"layer norm {a}x{b}": (layer_norm_gradients, [normal(a, b), normal(b), normal(b), normal(a, b)])
        for a, b in ((40, 128), (65, 768), (33, 1000), (7, 4096))
    },
    "bf16 layer norm": (layer_norm_gradients, [half(48, 768), half(768), half(768), half(48, 768)]),
    "rms norm": (rms, [normal(64, 512), normal(512)]),
    **{f"loss {a}x{b}": (loss, [normal(a, b), labels(a, b)]) for a, b in ((64, 10), (33, 1000), (12, 5003))},
    "bf16 loss": (loss, [half(16, 4096), labels(16, 4096)]),
    **{
        f"sums of columns {a}x{b}": (lambda x: (x.sum(axis=0), (x * x).mean(axis=0)), [normal(a, b)])
        for a, b in ((4096, 64), (1000, 777), (128, 10), (64, 1), (300, 4096))
    },
    "sums of the middle": (lambda x: x.sum(axis=1), [normal(17, 300, 33)]),
    "sum of all": (lambda x: (weft.tanh(x) ** 2).sum(), [normal(300, 1000)]),
    "variances": (lambda x: (x.var(axis=0), x.std(axis=1)), [normal(200, 130)]),
    "largest of columns": (lambda x: (x.max(axis=0), weft.argmax(x, axis=0)), [normal(500, 70)]),
    "running sums": (lambda x: (weft.cumsum(x, axis=1), weft.cumsum(x, axis=0)), [normal(70, 900)]),
    **{
        f"product {m}x{k}x{n}": (bias_relu, [normal(m, k), normal(k, n), normal(n)])
        for m, k, n in ((33, 65, 17), (64, 784, 128), (128, 10, 1), (7, 1000, 130), (200, 64, 300))
    },
    "product in float64": (bias_relu, [normal(*s, dtype=np.float64) for s in ((50, 70), (70, 90), (90,))]),
    "batch of products": (lambda x, y: weft.relu(x @ y), [normal(5, 33, 20), normal(5, 20, 41)]),
    "bf16 product of a row": (
        lambda x, w, b: F.gelu(x @ w.T + b), [half(1, 768), half(3072, 768), half(3072)],
    ),
    "sorted rows": (lambda x: (weft.sort(x, axis=1), weft.argsort(x, axis=0)), [normal(6, 500)]),
    "scattered rows": (
        lambda x, i: weft.zeros(40, 33).index_add(0, i, x), [normal(300, 33), labels(300, 40)],
    ),
    "convolution": (with_gradients(F.conv2d, 2), [normal(4, 3, 16, 16), normal(8, 3, 3, 3)]),
    "lstm": (
        weft.grad(lstm, argnums=(0, 1, 2, 3)),
        [normal(6, 16, 24) * 0.1, normal(24, 128) * 0.1, normal(32, 128) * 0.1, normal(128)],
    ),
    **{f"small: {name}": entry for name, entry in SMALL.items()},
}  # fmt: skip


def halves() -> tuple[Callable[..., Any], list[Any]]:
    """Products, attention and a convolution of half precision, with gradients: libraries compute them."""

    def mixed(x: Any, v: Any, c: Any, w: Any, b: Any, u: Any, k: Any) -> Any:
        h = F.gelu(F.linear(x, w, b)) @ u
        q, p, r = v.reshape(2, 128, 3, 2, 64).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, p, r, is_causal=True)
        return (h * h).sum() + (mixed * mixed).sum() + weft.relu(F.conv2d(c, k, padding=1)).sum()

    sizes = [(1024, 768), (2, 128, 384), (4, 16, 16, 16), (3072, 768), (3072,), (3072, 768), (32, 16, 3, 3)]
    slopes = weft.value_and_grad(mixed, argnums=tuple(range(len(sizes))))
    return slopes, [(half(*size, seed=i) * 0.1).cuda() for i, size in enumerate(sizes)]


def train(device: str, sizes: tuple[int, ...], adam: bool) -> list[float]:
    """The losses of some steps of a small network."""
    weft.manual_seed(0)
    model = network(sizes).to(device)
    parameters = model.parameters()
    optimizer: Any = (
        optim.AdamW(parameters, lr=1e-3) if adam else optim.SGD(parameters, lr=1e-2, momentum=0.9)
    )
    x, y = normal(64, sizes[0]).to(device), labels(64, sizes[-1]).to(device)

    @weft.compile
    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return [step(x, y).item() for _ in range(5)]


STEPS = {
    f"{name} step, {'AdamW' if adam else 'SGD'}": (sizes, adam)
    for name, sizes in (("tiny", (8, 32, 32, 2)), ("MNIST", (784, 128, 64, 10)))
    for adam in (True, False)
}

"""Compiled steps and loops on a card, beside PyTorch (a CUDA graph made by hand) and jax.jit in the same run.

``python -m tests.gpu.card_steps``: values against the host first, then times of a call.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.programs import network
from tests.gpu.card import device_us, host_us, note, part, run_all
from tests.gpu.card_peers import MNIST, TINY, jax_us, torch_us
from weft import optim
from weft.backends.cuda.card import card
from weft.backends.cuda.order import dependencies
from weft.errors import BoundsError
from weft.nn import functional as F

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
HIDDEN, INPUT, TURNS, BATCH = 512, 256, 100, 64


def times(name: str, call: Callable[[], object], count: int = 300) -> None:
    alone = device_us(call)
    note(
        name,
        f"{row_us(call, count):.1f} us in a row, {host_us(call, count):.1f} us host, {alone:.1f} us alone",
    )


def row_us(function: Callable[[], object], count: int = 300) -> float:
    """Microseconds that a call takes among many, with what the device does."""
    for _ in range(20):
        function()
    weft.cuda.synchronize()
    found = []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(count):
            function()
        weft.cuda.synchronize()
        found.append((time.perf_counter() - begin) / count * 1e6)
    return sorted(found)[2]


def run_of(function: Any) -> Any:
    return function.versions[0].run


def replayed(function: Any) -> str:
    plans = run_of(function)._plans.values()
    return f"graphs {[len(r.ring) for p in plans for r in p.replays.values()]}"


# Values


@part
def loops_and_branches() -> None:
    warnings.simplefilter("ignore")

    def newton(a: Any) -> Any:
        x = 0.5 * (a + 1.0)
        while abs(x * x - a).max() > 1e-3:
            x = 0.5 * (x + a / x)
        return x

    def branch(a: Any) -> Any:
        return weft.cond(a.sum() > 0.0, lambda a: a * 2.0, lambda a: weft.exp(a).cumsum(axis=0), a)

    def nested(a: Any) -> Any:
        x = a
        for _ in range(3):
            while (x > 1.0).any():
                if x.sum() > 50.0:
                    x = x / 4.0
                else:
                    x = x / 2.0
            x = x * 5.0
        return x

    for function in (newton, branch, nested):
        compiled, here = weft.compile(function), weft.compile(function)
        for turn in range(8):
            x = weft.rand(1000) * (1 + turn) - (turn % 2) * 20.0 * (function is branch) + 0.01
            expected = here(x).numpy()
            np.testing.assert_allclose(compiled(x.cuda()).cpu().numpy(), expected, rtol=1e-5, atol=1e-6)
        print(f"      {function.__name__}: {replayed(compiled)}")


@part
def failures() -> None:
    table = weft.zeros(10, 4, device="cuda")

    @weft.compile
    def step(rows: Any) -> Any:
        picked = table[rows]
        table.add_(1.0)
        return picked.sum()

    good, bad = weft.tensor([1, 2], device="cuda"), weft.tensor([1, 77], device="cuda")
    count = 0
    for turn in range(10):
        if turn % 3 == 2:
            with pytest.raises(BoundsError):
                step(bad)
        else:
            step(good)
            count += 1
        np.testing.assert_array_equal(table.cpu().numpy(), np.full((10, 4), count))
    print(f"      {replayed(step)}")


def _step(sizes: tuple[int, ...], batch: int, device: str, adam: bool = True) -> tuple[Any, list[Any]]:
    weft.manual_seed(0)
    model = network(sizes).to(device)
    parameters = model.parameters()
    optimizer: Any = optim.Adam(parameters, lr=1e-3) if adam else optim.SGD(parameters, lr=1e-3)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch, sizes[0]), dtype=np.float32)
    y = np.sin(x.sum(1, keepdims=True)) if sizes[-1] == 1 else rng.integers(0, sizes[-1], batch)
    data = [weft.tensor(a).to(device) for a in (x, y)]

    @weft.compile
    def step(x: Any, y: Any) -> Any:
        out = model(x)
        loss = F.mse_loss(out, y) if sizes[-1] == 1 else F.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step, data


@part
def training_steps() -> None:
    warnings.simplefilter("ignore")
    for sizes, batch in (TINY, MNIST):
        for adam in (True, False):
            losses = []
            for device in ("cuda", "cpu"):
                step, data = _step(sizes, batch, device, adam)
                losses.append([step(*data).item() for _ in range(12)])
            np.testing.assert_allclose(losses[0], losses[1], rtol=2e-3)


# Times


@part
def steps_in_a_row_times() -> None:
    warnings.simplefilter("ignore")
    for name, (sizes, batch) in (("tiny", TINY), ("MNIST", MNIST)):
        for adam in (True, False):
            step, data = _step(sizes, batch, "cuda", adam)
            begin = time.perf_counter()
            step(*data).item()
            first = time.perf_counter() - begin
            for _ in range(6):
                step(*data)
            label = f"{name} step, {'Adam' if adam else 'SGD'}"
            times(label, lambda step=step, data=data: step(*data))
            other = [[d.clone() for d in data] for _ in range(3)]
            turn = iter(range(10**9))
            moving = row_us(lambda step=step, o=other, t=turn: step(*o[next(t) % 3]), 300)
            kinds = [type(e).__name__ for p in run_of(step)._plans.values() for r in p.replays.values()
                     for e in r._bound.entries]  # fmt: skip
            note(
                f"{label}, other inputs",
                f"{moving:.1f} us, {len(kinds)} nodes, {replayed(step)}, first {first:.2f} s",
            )


@part
def parts_of_a_call_times() -> None:
    """Where the host's time of a tiny step goes."""
    warnings.simplefilter("ignore")
    step, data = _step(*TINY, "cuda")
    for _ in range(6):
        step(*data)
    version, stream = step.versions[0], card().current()
    (replay,) = [r for p in version.run._plans.values() for r in p.replays.values()]
    graph = replay.ring[0].graph
    note("  tiny step: launch of its graph", f"{host_us(lambda: graph.run(stream), 100):.2f} us")
    note("  tiny step: guards", f"{host_us(lambda: version.check(data), 500):.2f} us")
    note("  tiny step: version without entry", f"{host_us(lambda: version(data), 100):.2f} us")
    arrays = [a._data for a in data]
    note("  tiny step: pointers of two inputs", f"{host_us(lambda: [a.pointer for a in arrays], 500):.2f} us")


@part
def in_a_row_or_side_by_side_times() -> None:
    """What it gives that entries which do not meet are not ordered."""
    warnings.simplefilter("ignore")
    for name, (sizes, batch) in (("tiny", TINY), ("MNIST", MNIST)):
        for label, order in (("side by side", dependencies), ("in a row", _in_a_row)):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("weft.backends.cuda.graphs.dependencies", order)
                step, data = _step(sizes, batch, "cuda")
                for _ in range(6):
                    step(*data)
                times(f"{name} step, Adam, nodes {label}", lambda step=step, data=data: step(*data))


def _in_a_row(entries: Any, alias: Any) -> list[list[int]]:
    return [[i - 1] if i else [] for i in range(len(entries))]


FIRST_CALL = """
import time, weft
from tests.gpu.card_steps import MNIST, _step
weft.zeros(1, device="cuda").item()
step, data = _step(*MNIST, "cuda")
begin = time.perf_counter()
step(*data).item()
print(f"{time.perf_counter() - begin:.2f}")
"""


@part
def first_call_times() -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o700)
        for label in ("cold", "from disk"):
            environment = {**os.environ, "WEFT_CACHE_DIR": directory}
            done = subprocess.run(
                [sys.executable, "-c", FIRST_CALL],
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
            )
            note(f"MNIST step, first call, {label}", f"{(done.stdout or done.stderr[-300:]).strip()} s")


@part
def eager_gradient_times() -> None:
    small = weft.rand(256, device="cuda")
    leaf = weft.rand(256, device="cuda").requires_grad_()
    note("eager x + x", f"{host_us(lambda: small + small):.2f} us")
    note("eager x * x with gradient", f"{row_us(lambda: (leaf * leaf).backward(small), 500):.2f} us")
    note(
        "eager tanh(x * x) + x with gradient",
        f"{host_us(lambda: (weft.tanh(leaf * leaf) + leaf).backward(small), 300):.2f} us",
    )
    note("eager (x * x).sum() with gradient", f"{row_us(lambda: (leaf * leaf).sum().backward(), 300):.2f} us")
    import torch

    theirs = torch.rand(256, device="cuda", requires_grad=True)
    seed = torch.rand(256, device="cuda")
    note("PyTorch x * x with gradient", f"{torch_us(lambda: (theirs * theirs).backward(seed)):.2f} us")


@part
def newton_times() -> None:
    a = weft.rand(1000, generator=weft.Generator().manual_seed(0)) * 99.0 + 1.0
    there = a.cuda()

    @weft.compile
    def newton(a: Any) -> Any:
        x = 0.5 * (a + 1.0)
        while abs(x * x - a).max() > 1e-3:
            x = 0.5 * (x + a / x)
        return x

    for _ in range(6):
        found = newton(there)
    np.testing.assert_allclose(found.cpu().numpy(), np.sqrt(a.numpy()), rtol=1e-4)
    times("Newton, while on the device", lambda: newton(there))
    waited = host_us(lambda: (newton(there), weft.cuda.synchronize()), 100)
    note("Newton, waited for each", f"{waited:.1f} us, {replayed(newton)}")
    import jax
    import jax.numpy as jnp

    @jax.jit
    def theirs(a: Any) -> Any:
        test: Any = lambda x: abs(x * x - a).max() > 1e-3  # noqa: E731
        return jax.lax.while_loop(test, lambda x: 0.5 * (x + a / x), 0.5 * (a + 1.0))

    b, cell = jnp.asarray(a.numpy()), [None]

    def call() -> None:
        cell[0] = theirs(b)

    note("Newton, jax.jit", f"{jax_us(call, cell, 100):.1f} us")


@part
def lstm_times() -> None:
    warnings.simplefilter("ignore")
    _lstm("LSTM with gradients")
    import torch

    layer = torch.nn.LSTM(INPUT, HIDDEN).cuda()
    data = torch.randn(TURNS, BATCH, INPUT, device="cuda", requires_grad=True)

    def cudnn() -> None:
        (layer(data)[0][-1] ** 2).sum().backward()

    note("LSTM, PyTorch's nn.LSTM (cuDNN)", f"{torch_us(cudnn, 10) / 1e3:.2f} ms")


def _lstm(label: str) -> None:
    def lstm(xs: Any, wx: Any, wh: Any, b: Any) -> Any:
        h = c = weft.zeros(xs.shape[1], wh.shape[0], device=xs.device)
        for x in xs:
            gates = x @ wx + h @ wh + b
            i, f, g, o = gates.chunk(4, 1)
            c = weft.sigmoid(f) * c + weft.sigmoid(i) * weft.tanh(g)
            h = weft.sigmoid(o) * weft.tanh(c)
        return (h * h).sum()

    step = weft.compile(weft.grad(lstm, argnums=(0, 1, 2, 3)))
    rng = np.random.default_rng(0)
    shapes = ((TURNS, BATCH, INPUT), (INPUT, 4 * HIDDEN), (HIDDEN, 4 * HIDDEN), (4 * HIDDEN,))
    arrays = [rng.standard_normal(s, np.float32) * 0.05 for s in shapes]
    there = [weft.tensor(a, device="cuda") for a in arrays]
    begin = time.perf_counter()
    found = step(*there)
    weft.cuda.synchronize()
    first = time.perf_counter() - begin
    begin = time.perf_counter()
    for _ in range(4):
        found = step(*there)
    weft.cuda.synchronize()
    built = time.perf_counter() - begin
    note(
        label,
        f"{device_us(lambda: step(*there), 10) / 1e3:.2f} ms on the device, {replayed(step)}",
    )
    took = row_us(lambda: step(*there), 5)
    note(f"{label}, in a row", f"{took / 1e3:.2f} ms; first {first:.2f} s, next four {built:.2f} s")
    import torch

    theirs = [torch.tensor(a, device="cuda", requires_grad=True) for a in arrays]
    h = c = torch.zeros(BATCH, HIDDEN, device="cuda")
    for x in theirs[0]:
        i, f, g, o = (x @ theirs[1] + h @ theirs[2] + theirs[3]).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    (h * h).sum().backward()
    for ours, t in zip(found, theirs, strict=True):
        np.testing.assert_allclose(ours.cpu().numpy(), t.grad.cpu().numpy(), rtol=2e-3, atol=2e-4)


if __name__ == "__main__":
    print(f"      {card().name}")
    sys.exit(run_all())

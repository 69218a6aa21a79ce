"""Autocast: which dtypes come out, eager, captured and compiled, and what it leaves alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft import nn
from weft.errors import ArgumentError, DtypeError
from weft.ops.op import OPS, casting

HALVES = [weft.bfloat16, weft.float16]


def normal(*shape: int, seed: int = 0) -> Any:
    return weft.tensor(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


X, W, IMAGE, KERNEL = normal(4, 6), normal(6, 6, seed=1), normal(2, 3, 8, 8), normal(4, 3, 3, 3, seed=1)
CLASSES = weft.tensor([0, 1, 2, 3])

LOW: dict[str, Callable[[], Any]] = {
    "operator": lambda: X @ W,
    "vectors": lambda: X @ W[0],
    "linear": lambda: weft.linear(X, W, W[0]),
    "bmm": lambda: weft.bmm(X[None], W[None]),
    "einsum": lambda: weft.einsum("ij,jk->ik", X, W),
    "tensordot": lambda: weft.tensordot(X, W, axes=1),
    "conv": lambda: weft.conv2d(IMAGE, KERNEL, KERNEL[:, 0, 0, 0]),
    "conv_transpose": lambda: weft.conv_transpose2d(IMAGE, KERNEL.swapaxes(0, 1)),
    "attention": lambda: weft.scaled_dot_product_attention(X[None], X[None], X[None], is_causal=True),
    "mixed inputs": lambda: weft.linear(X.bfloat16(), W, W[0]),
}
HIGH: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(axis=0),
    "var": lambda x: x.var(),
    "prod": lambda x: x.prod(axis=1),
    "cumsum": lambda x: weft.cumsum(x, axis=0),
    "logsumexp": lambda x: weft.logsumexp(x, axis=1),
    "softmax": lambda x: weft.softmax(x, axis=1),
    "log_softmax": lambda x: weft.log_softmax(x, axis=1),
    "layer_norm": lambda x: weft.layer_norm(x, (6,), W[0], W[1]),
    "rms_norm": lambda x: weft.rms_norm(x, (6,)),
    "batch_norm": lambda x: weft.batch_norm(x, weft.zeros(6), weft.ones(6), training=True),
    "batch_norm in use": lambda x: weft.batch_norm(x, weft.zeros(6), weft.ones(6)),
    "cross_entropy": lambda x: weft.cross_entropy(x, CLASSES),
    "mse_loss": lambda x: weft.mse_loss(x, x * 0.5),
    "norm": lambda x: weft.linalg.vector_norm(x),
}


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", LOW)
def test_products_are_in_half_precision_and_accumulate_in_single(name: str, half: Any) -> None:
    exact = LOW[name]().float()
    with weft.autocast(half):
        found = LOW[name]()
    assert found.dtype == half
    step = 2.0**-7 if half == weft.bfloat16 else 2.0**-10
    np.testing.assert_allclose(found.float().numpy(), exact.numpy(), atol=step * float(exact.abs().max()) * 2)


@pytest.mark.parametrize("name", HIGH)
def test_sums_norms_and_losses_are_in_single_precision(name: str) -> None:
    x = X.bfloat16()
    with weft.autocast(weft.bfloat16):
        found = HIGH[name](x)
    assert found.dtype == weft.float32
    np.testing.assert_allclose(found.numpy(), HIGH[name](x.float()).numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", [*LOW, *HIGH])
def test_compiled_functions_do_the_same(name: str) -> None:
    x = X.bfloat16()
    run = LOW[name] if name in LOW else lambda: HIGH[name](x)
    with weft.autocast(weft.bfloat16):
        expected = run()
        found = weft.compile(run)()
    assert found.dtype == expected.dtype
    tolerance = 2e-2 if found.dtype == weft.bfloat16 else 2e-6
    np.testing.assert_allclose(
        found.float().numpy(), expected.float().numpy(), rtol=tolerance, atol=tolerance
    )


def test_large_arrays_for_which_there_are_kernels() -> None:
    x, w = normal(300, 256), normal(256, 256, seed=1).requires_grad_()

    def run() -> Any:
        normed = weft.layer_norm(x @ w, (256,))
        return weft.gelu(weft.linear(x, w)).square().mean() + normed.abs().sum() * 1e-6

    for _ in range(2):  # what was kept of one mode must not serve the other
        exact = run()
        assert weft.linear(x, w).dtype == weft.layer_norm(x, (256,)).dtype == weft.float32
        with weft.autocast(weft.bfloat16):
            low = run()
            assert weft.linear(x, w).dtype == weft.bfloat16
            assert weft.softmax(x.bfloat16(), axis=1).dtype == weft.float32
        np.testing.assert_allclose(low.item(), exact.item(), rtol=2e-2)
        w.grad = None
        low.backward()
        assert w.grad.dtype == weft.float32


def test_other_ops_follow_their_inputs() -> None:
    with weft.autocast(weft.bfloat16):
        assert (X * 2.0 + X.tanh()).dtype == weft.float32
        assert (X.bfloat16().relu() * 2.0).dtype == weft.bfloat16
        assert (X.bfloat16() + X).dtype == weft.float32
        assert X.bfloat16().max().dtype == weft.bfloat16
        assert weft.tensor([1, 2]).sum().dtype == weft.int64


def test_double_precision_and_integers_are_left_alone() -> None:
    with weft.autocast(weft.bfloat16):
        assert (X.double() @ W.double()).dtype == weft.float64
        assert (X @ W.double()).dtype == weft.float64
        assert (weft.ones((2, 2), dtype=weft.int64) @ weft.ones((2, 2), dtype=weft.int64)).dtype == weft.int64
        assert X.double().sum().dtype == weft.float64


def test_gradients_have_the_dtype_of_parameters() -> None:
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 4))
    exact = [g.numpy() for g in gradients(model)]
    with weft.autocast(weft.bfloat16):
        inside = gradients(model)
    for g, h in zip(inside, exact, strict=True):
        assert g.dtype == weft.float32
        np.testing.assert_allclose(g.numpy(), h, atol=0.02 + 0.02 * np.abs(h).max())


def gradients(model: Any) -> list[Any]:
    model.zero_grad()
    weft.cross_entropy(model(X), CLASSES).backward()
    return [p.grad for p in model.parameters()]


def test_backward_inside_and_outside_are_the_same() -> None:
    found = []
    for inside in (False, True):
        w = W.detach().requires_grad_()
        with weft.autocast(weft.bfloat16):
            loss = (weft.linear(X, w).tanh() * X.sum()).mean()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        found.append(w.grad.numpy())
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("capture", ["source", "trace"])
def test_a_mode_inside_a_compiled_function_is_part_of_its_graph(capture: str) -> None:
    @weft.compile(capture=capture)
    def f(x: Any) -> Any:
        with weft.autocast(weft.bfloat16):
            h = x @ W
        return h, h @ W.bfloat16(), x @ W

    for _ in range(2):
        assert [y.dtype for y in f(X)] == [weft.bfloat16, weft.bfloat16, weft.float32]
    assert len(f.versions) == 1
    assert not casting


def test_a_changed_mode_captures_again_and_both_graphs_are_kept() -> None:
    f = weft.compile(lambda x: x @ W)
    for _ in range(2):
        assert f(X).dtype == weft.float32
        with weft.autocast(weft.bfloat16):
            assert f(X).dtype == weft.bfloat16
            with weft.autocast(weft.float16):
                assert f(X).dtype == weft.float16
            with weft.autocast(enabled=False):
                assert f(X).dtype == weft.float32
            assert f(X).dtype == weft.bfloat16
    assert len(f.versions) == 3


def test_compiling_passes_do_not_cast() -> None:
    def f(x: Any) -> Any:
        return weft.softmax(x.bfloat16(), axis=1).sum(axis=1)

    plain = weft.make_graph(f)(X)
    with weft.autocast(weft.bfloat16):
        assert plain.optimize().outputs[0].type.dtype == weft.bfloat16
        assert weft.parse_graph(plain.to_text()).same(plain)
        captured = weft.make_graph(f)(X)
    assert captured.outputs[0].type.dtype == weft.float32
    assert weft.parse_graph(captured.to_text()).same(captured)


def test_a_trace_stays_as_it_was_traced() -> None:
    with weft.autocast(weft.bfloat16):
        low = weft.jit.trace(lambda x: x @ W, X)
    high = weft.jit.trace(lambda x: x @ W, X)
    with weft.autocast(weft.bfloat16):
        assert high(X).dtype == weft.float32
    assert low(X).dtype == weft.bfloat16


def test_transforms() -> None:
    @weft.autocast(weft.bfloat16)
    def f(w: Any) -> Any:
        return ((X @ w).tanh() ** 2).sum()

    assert weft.grad(f)(W).dtype == weft.float32
    batch = weft.stack([W, W * 0.5])
    expected = weft.stack([f(W), f(W * 0.5)])
    np.testing.assert_allclose(weft.vmap(f)(batch).numpy(), expected.numpy(), rtol=1e-6)
    value, tangent = weft.jvp(f, (W,), (weft.ones_like(W),))
    assert value.dtype == tangent.dtype == weft.float32
    exact = (weft.grad(lambda w: ((X @ w).tanh() ** 2).sum())(W)).sum()
    assert tangent.item() == pytest.approx(exact.item(), rel=0.1)


def test_checkpoints_run_again_in_the_mode_of_the_first_time() -> None:
    found = []
    for checkpointed in (False, True):
        w = W.detach().requires_grad_()
        f = lambda x, w=w: (x @ w).tanh() @ w  # noqa: E731 - short
        with weft.autocast(weft.bfloat16):
            y = weft.checkpoint(f, X) if checkpointed else f(X)
        y.float().sum().backward()
        found.append(w.grad.numpy())
    np.testing.assert_array_equal(*found)


def test_decorated_functions_and_errors_leave_no_mode_behind() -> None:
    @weft.autocast(weft.bfloat16)
    def product(x: Any) -> Any:
        return x @ W

    assert product(X).dtype == weft.bfloat16
    with pytest.raises(weft.errors.ShapeError), weft.autocast():
        X @ X
    assert not casting
    assert (X @ W).dtype == weft.float32


def test_threads_have_modes_of_their_own() -> None:
    found = []
    with weft.autocast(weft.bfloat16):
        worker = threading.Thread(target=lambda: found.append((X @ W).dtype))
        worker.start()
        worker.join()
        found.append((X @ W).dtype)
    assert found == [weft.float32, weft.bfloat16]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([None, *HALVES]), max_size=5))
def test_nested_modes_end_in_turn(modes: list[Any]) -> None:
    def enter(rest: list[Any], expected: Any) -> None:
        assert (X @ W).dtype == expected
        if rest:
            scope = weft.autocast(enabled=False) if rest[0] is None else weft.autocast(rest[0])
            with scope:
                enter(rest[1:], rest[0] or weft.float32)
            assert (X @ W).dtype == expected

    enter(modes, weft.float32)
    assert not casting


def test_precisions_are_declared_as_words_that_mean_something() -> None:
    assert {op.precision for op in OPS.values()} == {"", "low", "high"}
    assert {name for name, op in OPS.items() if op.precision == "low"} == {"matmul", "conv"}
    assert all(OPS[name].accepts == "" for name in OPS if OPS[name].precision)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: weft.autocast(weft.float32), DtypeError, "dtype must be bfloat16 or float16, got float32"),
        (lambda: weft.autocast("half precision"), ArgumentError, "must be one of"),
    ],
)
def test_wrong_dtypes_are_named(make: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make()


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.read, self.out = nn.Embedding(9, 6), nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return self.out(self.read(self.embed(x))[0][:, -1])


def convolutional() -> Any:
    first = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(first, nn.Conv2d(4, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(16, 4))


@pytest.mark.rotating(2)
@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("kind", ["convolutional", "recurrent"])
def test_networks_train_the_same_way_eager_and_compiled(kind: str, half: Any) -> None:
    make = convolutional if kind == "convolutional" else Reader
    x = normal(4, 3, 8, 8) if kind == "convolutional" else weft.tensor(np.arange(20).reshape(4, 5) % 9)
    found = []
    for mode in ("exact", "eager", "compiled"):
        weft.manual_seed(0)
        model = make()
        optimizer = weft.optim.SGD(model.parameters(), lr=0.1)

        def step(model: Any = model, optimizer: Any = optimizer, mode: str = mode) -> Any:
            optimizer.zero_grad()
            with weft.autocast(half, enabled=mode != "exact"):
                loss = weft.cross_entropy(model(x), CLASSES)
            loss.backward()
            optimizer.step()
            return loss

        run = weft.compile(step) if mode == "compiled" else step
        found.append([run().item() for _ in range(4)])
        assert all(p.grad.dtype == weft.float32 for p in model.parameters())
    np.testing.assert_allclose(found[1], found[0], rtol=2e-2)
    np.testing.assert_allclose(found[2], found[1], rtol=1e-2)


def test_a_network_learns_in_half_precision() -> None:
    weft.manual_seed(0)
    x = weft.randn(64, 2)
    target = (x[:, 0] * x[:, 1] > 0).astype(weft.int64)
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = weft.optim.Adam(model.parameters(), lr=0.05)

    @weft.compile
    def step(x: Any, target: Any) -> Any:
        optimizer.zero_grad()
        with weft.autocast(weft.bfloat16):
            loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(200):
        loss = step(x, target)
    assert loss.item() < 0.1
    assert len(step.versions) == 1

"""Ops on large arrays outside of graphs: their kernels against NumPy, and when they are used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import weft
from weft.backends.eager.kernels import evaluate_large
from weft.backends.llvm.run import NativeExecutable
from weft.base.dtypes import kind
from weft.base.hooks import hooks
from weft.ops.op import OPS, Op
from weft.tensor import large
from weft.tensor.large import LARGE, LARGE_FOR_UFUNC

for _name in weft.__all__:
    getattr(weft, _name)  # imported at first use, and with it its ops

ELEMENTWISE = sorted(
    op.name for op in OPS.values() if op.scalar and op.partials is not None and len(op.inputs) <= 2
)
SIZE = LARGE_FOR_UFUNC + 37


@pytest.fixture(autouse=True)
def kernels_are_on() -> Iterator[None]:
    weft.set_eager_kernels(True)
    yield
    weft.set_eager_kernels(True)


def random_array(*shape: int, dtype: Any = "f4") -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def sample_arrays(op: Op, dtype: Any) -> list[Any]:
    """Large arrays of the numbers in an op's samples."""
    assert op.samples is not None
    samples = [[np.asarray(x) for x in s.inputs] for s in op.samples()]
    real = [s for s in samples if all(kind(x.dtype) in "biuf" and x.shape == s[0].shape for x in s)]
    joined = [np.concatenate([s[i].reshape(-1) for s in real]) for i in range(len(op.inputs))]
    return [np.resize(x, SIZE).astype(dtype) for x in joined]


def assert_near(got: Any, expected: Any, ulps: float) -> None:
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    step = np.finfo(expected.dtype).eps
    np.testing.assert_allclose(got, expected, rtol=ulps * step, atol=float(np.finfo(expected.dtype).tiny))


@pytest.mark.rotating(4)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_kernels_give_what_numpy_gives(name: str, dtype: str) -> None:
    op = OPS[name]
    if "f" not in op.accepts:
        assert evaluate_large(op, [np.ones(SIZE, bool)] * len(op.inputs), {}) is None
        return
    arrays = sample_arrays(op, dtype)
    with np.errstate(all="ignore"):
        expected = np.asarray(op.eval(*arrays))
    assert_near(evaluate_large(op, arrays, {}), expected, 16 if dtype == "f4" else 64)


SHAPES = [
    ((300, 256), (300, 256)),
    ((300, 256), ()),
    ((300, 256), (1, 1)),
    ((300, 256), (256,)),
    ((300, 256), (1, 256)),
    ((300, 256), (300, 1)),
    ((10, 30, 256), (30, 256)),
    ((10, 30, 256), (10, 1, 1)),
    ((10, 30, 256), (10, 30, 1)),
    ((1, SIZE), (SIZE,)),
    ((SIZE, 1), (1, 1)),
]


@pytest.mark.parametrize(("x", "y"), SHAPES)
def test_shapes_broadcast_either_way(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    a, b = random_array(*x), random_array(*y)
    for left, right in ((a, b), (b, a)):
        got = evaluate_large(OPS["sub"], [left, right], {})
        np.testing.assert_array_equal(got, left - right)


@pytest.mark.parametrize(
    ("x", "y"), [((10, 30, 256), (10, 1, 256)), ((300, 1), (300,)), ((256,), (1, 1, 300, 1))]
)
def test_other_ways_to_broadcast_are_left_to_numpy(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    assert evaluate_large(OPS["sub"], [random_array(*x), random_array(*y)], {}) is None
    got = weft.tensor(random_array(*x)) - weft.tensor(random_array(*y))
    np.testing.assert_array_equal(got.numpy(), random_array(*x) - random_array(*y))


@pytest.mark.rotating(4)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axes", [(0,), (2,), (0, 1), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("name", ["sum", "max", "min", "logsumexp"])
def test_reductions_give_what_numpy_gives(name: str, axes: tuple[int, ...], keepdims: bool) -> None:
    op, x = OPS[name], np.abs(random_array(20, 30, 130))
    got = evaluate_large(op, [x], {"axes": axes, "keepdims": keepdims})
    assert_near(got, np.asarray(op.eval(x, axes=axes, keepdims=keepdims)), 40)


@pytest.mark.parametrize("shape", [(300, 256), (7, 3, 4096), (SIZE,)])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_gives_what_numpy_gives(name: str, shape: tuple[int, ...]) -> None:
    op, x = OPS[name], random_array(*shape)
    attrs = {"axis": len(shape) - 1}
    got, expected = evaluate_large(op, [x], attrs), op.eval(x, **attrs)
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_standardize_gives_what_numpy_gives() -> None:
    op, x = OPS["standardize"], random_array(20, 30, 130)
    for axes in ((2,), (1, 2)):
        attrs = {"axes": axes, "eps": 1e-5, "center": True}
        for got, expected in zip(evaluate_large(op, [x], attrs), op.eval(x, **attrs), strict=True):
            assert got.shape == expected.shape
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


def test_axes_in_the_middle_other_dtypes_and_gaps_are_left_to_numpy() -> None:
    x = random_array(300, 300)
    assert evaluate_large(OPS["sum"], [x.reshape(10, 30, 300)], {"axes": (1,), "keepdims": False}) is None
    assert evaluate_large(OPS["sum"], [x], {"axes": (), "keepdims": False}) is None
    assert evaluate_large(OPS["softmax"], [x], {"axis": 0}) is None
    assert evaluate_large(OPS["exp"], [x.T], {}) is None
    assert evaluate_large(OPS["exp"], [x.astype("f2")], {}) is None
    assert evaluate_large(OPS["add"], [x, x.astype("f8")], {}) is None


# On tensors


def count_calls(function: Any) -> int:
    """How many kernels a function runs."""
    calls: list[Any] = []
    run = NativeExecutable.__call__

    def counted(self: NativeExecutable, arrays: Any) -> Any:
        calls.append(self)
        return run(self, arrays)

    with patch.object(NativeExecutable, "__call__", counted):
        function()
    return len(calls)


def test_large_tensors_use_kernels_and_small_ones_do_not() -> None:
    weft.ones(LARGE_FOR_UFUNC).exp()  # names the layer of kernels
    cases = [(f, LARGE_FOR_UFUNC) for f in (weft.exp, lambda x: x + x, lambda x: 2.0 * x)]
    cases += [(f, LARGE) for f in (weft.erf, weft.sum, weft.softmax)]
    for function, least in cases:
        large, small = weft.ones(least), weft.ones(least - 1)
        assert count_calls(lambda f=function, x=large: f(x)) == 1
        assert count_calls(lambda f=function, x=small: f(x)) == 0


def test_the_setting_turns_kernels_off() -> None:
    x = weft.tensor(random_array(SIZE))
    weft.set_eager_kernels(False)
    assert not weft.get_eager_kernels()
    assert count_calls(lambda: x.exp().sum()) == 0
    np.testing.assert_array_equal(x.exp().numpy(), np.exp(x.numpy()))
    with pytest.raises(TypeError, match="set_eager_kernels: the setting must be a bool, got 1"):
        weft.set_eager_kernels(1)  # type: ignore[arg-type]


def test_without_a_compiler_numpy_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "load_kernels", lambda: None)
    monkeypatch.setattr(large, "_kernels", large._Kernels())
    x = random_array(SIZE)
    np.testing.assert_array_equal(weft.tensor(x).exp().numpy(), np.exp(x))
    np.testing.assert_allclose(weft.layer_norm(weft.tensor(x), SIZE).numpy().std(), 1.0, rtol=1e-3)


def test_gradients_are_the_same_with_and_without_kernels() -> None:
    x, w, b = random_array(300, 256), random_array(256), random_array(256)

    def gradients() -> list[Any]:
        leaves = [weft.tensor(a, requires_grad=True) for a in (x, w, b)]
        y = weft.gelu(weft.layer_norm(leaves[0], 256, leaves[1], leaves[2]))
        (weft.softmax(y) * y).sum().backward()
        return [leaf.grad.numpy() for leaf in leaves]

    with_kernels = gradients()
    weft.set_eager_kernels(False)
    for got, expected in zip(with_kernels, gradients(), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)


def test_captures_take_ops_as_nodes() -> None:
    x = weft.ones(SIZE)
    x.exp()

    def capture() -> None:
        graph = weft.make_graph(lambda x: x.exp().sum())(x)
        assert [node.op.name for node in graph.nodes] == ["exp", "sum"]

    assert count_calls(capture) == 0


def test_results_do_not_depend_on_the_number_of_threads_or_the_call() -> None:
    x = weft.tensor(random_array(700, 900))
    before = weft.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 2):
            weft.set_num_threads(threads)
            found.append([t.numpy() for t in (x.tanh(), x.sum(), x.sum(0), weft.softmax(x))])
    finally:
        weft.set_num_threads(before)
    for first, *others in zip(*found, strict=True):
        for other in others:
            np.testing.assert_array_equal(first, other)


def test_results_can_be_changed_in_place() -> None:
    x = weft.ones(SIZE)
    y = x + x
    y += 1.0
    assert float(y.sum()) == 3.0 * SIZE
    assert float(x.sum()) == SIZE

"""Linear layers of half precision are rounded once, after the bias is added, wherever they are computed.

Numbers are small integers and fractions whose sums are exact in float32 in any order, so that there is one
right answer to the last bit: the sum in float64, rounded to half precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from tests.schedule.lowered import shaped
from tests.schedule.test_units import with_units
from weft import nn
from weft.backends.cuda.build import loops_of
from weft.errors import DtypeError, ShapeError
from weft.loop.verify import verify_program
from weft.ops.affine import matmul_add
from weft.schedule.gpu.machine import Gpu

HALVES = [weft.float16, weft.bfloat16]
SHAPES = [(3, 5, 2), (1, 64, 96), (5, 33, 17), (64, 256, 64), (2, 3000, 24), (40, 600, 1), (16, 0, 4)]


def layer(dtype: Any, rows: int, depth: int, columns: int) -> tuple[Any, Any, Any]:
    """x, weight and bias: products are integers, biases eighths, of which a rounded product loses most."""
    rng = np.random.default_rng(rows + depth + columns)
    x, w = (rng.integers(-16, 17, shape).astype(dtype) for shape in ((rows, depth), (columns, depth)))
    return x, w, (rng.integers(-39, 40, columns) / 8).astype(dtype)


def exact(x: Any, w: Any, b: Any) -> Any:
    return x.astype(np.float64) @ w.astype(np.float64).T + b.astype(np.float64)


def same(actual: Any, expected: Any) -> None:
    found = np.asarray(actual.detach().numpy() if isinstance(actual, weft.Tensor) else actual)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    bits = [a.view(np.uint16) for a in (found, np.ascontiguousarray(expected))]
    np.testing.assert_array_equal(*bits)


def tensors(*arrays: Any) -> list[Any]:
    return [weft.tensor(a) for a in arrays]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("shape", SHAPES)
def test_linear_is_rounded_once(dtype: Any, shape: tuple[int, int, int]) -> None:
    arrays = layer(dtype, *shape)
    expected = exact(*arrays).astype(dtype)
    same(weft.linear(*tensors(*arrays)), expected)
    for backend in ("llvm", "interpret"):
        same(weft.compile(weft.linear, backend=backend)(*tensors(*arrays)), expected)
    activated = weft.compile(lambda x, w, b: weft.relu(weft.linear(x, w, b)))(*tensors(*arrays))
    same(activated, np.maximum(expected, 0).astype(dtype))


def test_cases_show_what_rounding_twice_loses() -> None:
    for dtype in HALVES:
        x, w, b = layer(dtype, 64, 3000, 64)
        twice = (exact(x, w, 0 * b).astype(dtype) + b).astype(dtype)
        assert (twice != exact(x, w, b).astype(dtype)).mean() > 0.1


@pytest.mark.parametrize("shape", [(64, 256, 64), (17, 35, 40)])
def test_units_for_bfloat16_round_once(shape: tuple[int, int, int]) -> None:
    arrays = layer(weft.bfloat16, *shape)
    with with_units("dot_bf16"):
        same(weft.compile(weft.linear)(*tensors(*arrays)), exact(*arrays).astype(weft.bfloat16))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("libraries", [False, True])
@pytest.mark.parametrize("shape", [(5, 33, 17), (1, 64, 24), (16, 24, 40), (16, 24, 1)])
def test_on_the_grid_of_a_gpu(dtype: Any, libraries: bool, shape: tuple[int, int, int]) -> None:
    arrays, machine = layer(dtype, *shape), Gpu(libraries=libraries, least_product=0)
    expected = exact(*arrays).astype(dtype)

    def f(x: Any, w: Any, b: Any) -> Any:
        y = weft.linear(x, w, b)
        return y, weft.relu(y) * 2

    graph = weft.make_graph(f)(*tensors(*arrays)).optimize()
    program = verify_program(loops_of(graph, machine))
    first, second = shaped(program, graph, arrays, {})
    same(first, expected)
    same(second, (2 * np.maximum(expected, 0)).astype(dtype))


def test_a_vector_a_batch_and_examples_are_rounded_once() -> None:
    x, w, b = layer(weft.bfloat16, 6, 300, 4)
    expected = exact(x, w, b).astype(weft.bfloat16)
    xt, wt, bt = tensors(x, w, b)
    same(weft.linear(xt[0], wt, bt), expected[0])
    same(weft.linear(xt.reshape(2, 3, 300), wt, bt), expected.reshape(2, 3, 4))
    same(weft.vmap(weft.linear, in_axes=(0, None, None))(xt, wt, bt), expected)
    same(
        weft.vmap(weft.linear, in_axes=(None, 0, 0))(xt, wt.reshape(4, 1, 300), bt.reshape(4, 1)),
        expected.T[..., None],
    )
    same(
        weft.vmap(weft.linear, in_axes=(None, None, 0))(xt, wt, weft.stack([bt, bt])),
        np.stack([expected] * 2),
    )
    same(weft.linear(xt, wt[0], bt[0]), expected[:, 0])  # a weight that is a vector
    same(weft.linear(xt, wt, bt[:1]), exact(x, w, b[:1]).astype(weft.bfloat16))


def test_a_result_overflows_only_if_it_is_too_large() -> None:
    x, w = weft.full((2, 4), 200.0, dtype=weft.float16), weft.full((3, 4), 100.0, dtype=weft.float16)
    for f in (weft.linear, weft.compile(weft.linear)):
        assert f(x, w, weft.full((3,), -29984.0, dtype=weft.float16)).tolist() == [[50016.0] * 3] * 2
        assert f(x, w, weft.zeros(3, dtype=weft.float16)).tolist() == [[np.inf] * 3] * 2


@pytest.mark.parametrize("dtype", HALVES)
def test_special_values_and_cancellation(dtype: Any) -> None:
    one = np.ones((1, 1), dtype)
    product = np.array([[4097.0 / 64]]).astype(np.float32)  # 63 + 65 / 64: more bits than halves have
    x, w = np.array([[63.0, 65.0]]).astype(dtype), np.array([[1.0, 1.0 / 64]]).astype(dtype)
    rounded = product.astype(dtype)
    cases = [
        (one, one, np.array([np.nan])), (one, one, np.array([np.inf])),
        (one * np.inf, one, np.array([-np.inf])),
        (-one * 0, one, np.array([-0.0])), (one, -one * 0, np.array([-0.0])),
        (one * 2.0**-12, one * 2.0**-12, np.array([2.0**-24])),  # subnormal in float16
        (x, w, -rounded[0].astype(np.float64)),  # what rounding took is all that is left
    ]  # fmt: skip
    for x, w, b in cases:
        arrays = x.astype(dtype), w.astype(dtype), b.astype(dtype)
        with np.errstate(all="ignore"):
            expected = exact(*arrays).astype(dtype)
        for f in (weft.linear, weft.compile(weft.linear), weft.compile(weft.linear, backend="interpret")):
            found = f(*tensors(*arrays)).numpy()
            np.testing.assert_array_equal(found.astype(float), expected.astype(float))
            np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))
    assert expected[0, 0] != 0


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("backend", [None, "llvm", "interpret"])
def test_gradients_are_sums_that_are_rounded_once(dtype: Any, backend: str | None) -> None:
    x, w, b = layer(dtype, 300, 20, 6)
    g = np.random.default_rng(1).integers(-8, 9, (300, 6)).astype(dtype)

    def gradients(x: Any, w: Any, b: Any, g: Any) -> Any:
        return weft.vjp(weft.linear, x, w, b)[1](g)

    run = gradients if backend is None else weft.compile(gradients, backend=backend)
    wide = [a.astype(np.float64) for a in (x, w, g)]
    expected = [wide[2] @ wide[1], wide[2].T @ wide[0], wide[2].sum(0)]
    for found, e in zip(run(*tensors(x, w, b, g)), expected, strict=True):
        same(found, e.astype(dtype))


def test_forward_derivatives_are_those_of_a_linear_layer() -> None:
    x, w, b = tensors(*layer(weft.bfloat16, 4, 40, 3))
    out, tangent = weft.jvp(weft.linear, (x, w, b), (x, w * 0, b))
    same(tangent, out.numpy())  # it is linear in x and the bias together
    assert tangent.dtype == weft.bfloat16


def test_autocast_keeps_small_biases_and_the_dtypes_of_parameters() -> None:
    rng = np.random.default_rng(0)
    x = weft.tensor(rng.normal(size=(2048, 256)).astype("f4"))
    weight = (rng.normal(size=(64, 256)) * 0.02).astype("f4")
    w: Any = weft.tensor(weight, requires_grad=True)
    b: Any = weft.full((64,), 3e-4, requires_grad=True)
    products = exact(x.numpy().astype(weft.bfloat16), weight.astype(weft.bfloat16), np.zeros(64))

    def f(x: Any) -> Any:
        with weft.autocast(weft.bfloat16):
            return F.linear(x, w, b)

    for run in (f, weft.compile(f), weft.compile(f, backend="interpret")):
        y = run(x)
        assert y.dtype == weft.bfloat16
        assert (
            abs((y.detach().numpy().astype(float) - products).mean() - 3e-4) < 3e-5
        )  # 1.1e-4 where rounded twice
        w.grad = b.grad = None
        y.sum().backward()
        assert w.grad.dtype == b.grad.dtype == weft.float32
        np.testing.assert_array_equal(b.grad.numpy(), np.full(64, 2048.0, np.float32))


def test_layers_round_once() -> None:
    x, w, b = layer(weft.float16, 8, 700, 12)
    model = nn.Linear(700, 12).to(weft.float16)
    model.load_state_dict({"weight": weft.tensor(w), "bias": weft.tensor(b)})
    same(model(weft.tensor(x)), exact(x, w, b).astype(weft.float16))


def test_a_loop_over_rows_takes_products_with_their_bias_at_once() -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-4, 5, s).astype(weft.bfloat16) for s in ((8, 8, 128), (128, 128)))
    b = (rng.integers(-39, 40, 128) / 8).astype(weft.bfloat16)

    def f(x: Any, w: Any, b: Any) -> Any:
        return weft.scan(
            lambda s, row: (s, weft.maximum(weft.linear(row, w, b), s)), weft.zeros(8, 128, dtype=x.dtype), x
        )[1]

    graph = weft.make_graph(f)(*tensors(x, w, b)).optimize()
    taken = weft.passes.take_products(graph)
    assert [n.op.name for n in taken.nodes].count("matmul_add") == 1
    expected = np.maximum(exact(x, w, b).astype(weft.bfloat16), 0).astype(weft.bfloat16)
    same(weft.compile(f)(*tensors(x, w, b)), expected)


def test_a_bias_of_another_dtype_gives_the_common_one() -> None:
    x, w, b = tensors(*layer(weft.bfloat16, 4, 8, 3))
    assert weft.linear(x, w, b.astype(weft.float32)).dtype == weft.float32
    assert weft.linear(x.astype(weft.float32), w, b).dtype == weft.float32
    assert weft.linear(x, w).dtype == weft.bfloat16


def test_what_does_not_fit_is_told() -> None:
    x, w, b = tensors(*layer(weft.bfloat16, 4, 8, 3))
    with pytest.raises(ShapeError, match="add: shapes"):
        weft.linear(x, w, weft.zeros(5, dtype=weft.bfloat16))
    with pytest.raises(ShapeError, match="linear: the last axis must have 8 features"):
        weft.linear(x[:, :7], w, b)
    with pytest.raises(ShapeError, match="matmul_add: what is added must broadcast to the product"):
        weft.make_graph(matmul_add)(x[:1], w.T, weft.zeros(4, 3, dtype=weft.bfloat16))
    with pytest.raises(DtypeError, match="matmul_add: dtypes must be equal"):
        weft.make_graph(matmul_add)(x, w.T, b.astype(weft.float32))


@pytest.mark.parametrize("dtype", HALVES)
def test_gradients_of_what_is_broadcast_are_summed_in_single(dtype: Any) -> None:
    x = weft.ones((5000, 4), dtype=dtype)
    for f in (weft.add, weft.mul, lambda x, b: weft.linear(x, weft.ones((4, 4), dtype=dtype), b)):
        b = weft.ones(4, dtype=dtype, requires_grad=True)
        f(x, b).backward(weft.ones((5000, 4), dtype=dtype))
        same(b.grad, np.full(4, 5000.0).astype(dtype))  # halves added one by one stop at 256, or 2,048


@pytest.mark.parametrize("dtype", HALVES)
def test_products_that_are_added_to_something_round_once(dtype: Any) -> None:
    x, w, b = layer(dtype, 8, 700, 12)
    z = np.random.default_rng(0).integers(-39, 40, (8, 12)).astype(np.float64) / 8
    xt, wt, bt, zt = tensors(x, w.T.copy(), b, z.astype(dtype))
    product = exact(x, w, np.zeros(12))
    same(weft.addmm(bt, xt, wt), (product + b.astype(float)).astype(dtype))
    same(weft.addmm(zt, xt, wt), (product + z).astype(dtype))
    same(weft.addmm(bt, xt, wt, beta=2, alpha=0.5), (product / 2 + 2 * b.astype(float)).astype(dtype))
    same(weft.baddbmm(zt[None], xt[None], wt[None]), (product + z).astype(dtype)[None])
    (node,) = weft.make_graph(weft.addmm)(bt, xt, wt).optimize().nodes
    assert node.op is matmul_add  # no copies in float32
    with pytest.raises(ShapeError, match="addmm: x must broadcast to the product"):
        weft.addmm(weft.zeros((3, 8, 12), dtype=dtype), xt, wt)
    with pytest.raises(ShapeError, match="inner dimensions must agree"):
        weft.addmm(bt, xt[:, :5], wt)

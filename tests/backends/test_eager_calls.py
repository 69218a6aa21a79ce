"""Composites on large arrays outside of graphs: a kernel each way, against their ops one by one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
from weft.backends.eager import calls as eager_calls
from weft.backends.eager.graphs import EXACT_KERNELS

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def kernels_are_on() -> Iterator[None]:
    weft.set_eager_kernels(True)
    yield
    weft.set_eager_kernels(True)


def normal(*shape: int, seed: int = 0, dtype: Any = "f4") -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


LABELS = np.random.default_rng(0).integers(0, 64, 512)
MASK = np.random.default_rng(1).random((64, 64)) > 0.3
X, IMAGE = (8, 64, 64), (4, 8, 24, 24)

CASES: dict[str, tuple[Function, list[tuple[int, ...]]]] = {
    "layer_norm": (lambda x, w, b: weft.layer_norm(x, 64, w, b), [X, (64,), (64,)]),
    "rms_norm": (lambda x, w: weft.rms_norm(x, 64, w), [X, (64,)]),
    "group_norm": (lambda x, w, b: weft.group_norm(x, 2, w, b), [IMAGE, (8,), (8,)]),
    "linear": (weft.linear, [X, (48, 64), (48,)]),
    "gelu": (weft.gelu, [X]),
    "silu": (weft.silu, [X]),
    "mish": (weft.mish, [X]),
    "cross_entropy": (lambda x: weft.cross_entropy(x, weft.tensor(LABELS)), [(512, 64)]),
    "nll_loss": (lambda x: weft.nll_loss(x, weft.tensor(LABELS), reduction="sum"), [(512, 64)]),
    "scaled_dot_product_attention": (
        lambda q, k, v: weft.scaled_dot_product_attention(q, k, v, is_causal=True),
        [(2, 4, 64, 32), (2, 4, 64, 32), (2, 4, 64, 16)],
    ),
    "conv1d": (lambda x, w, b: weft.conv1d(x, w, b, padding=1), [(4, 8, 600), (6, 8, 3), (6,)]),
    "conv2d": (lambda x, w, b: weft.conv2d(x, w, b, stride=2), [IMAGE, (6, 8, 3, 3), (6,)]),
    "conv3d": (lambda x, w: weft.conv3d(x, w), [(2, 4, 10, 16, 16), (3, 4, 2, 3, 3)]),
    "conv_transpose2d": (lambda x, w: weft.conv_transpose2d(x, w, stride=2), [IMAGE, (8, 4, 2, 2)]),
    "max_pool2d": (lambda x: weft.max_pool2d(x, 2), [IMAGE]),
    "avg_pool2d": (lambda x: weft.avg_pool2d(x, 3, stride=2, padding=1), [IMAGE]),
}


def results(function: Function, arrays: list[Any]) -> list[Any]:
    """The value of a function, and the gradients of a sum of its squares, weighted."""
    leaves = [weft.tensor(a, requires_grad=True) for a in arrays]
    out = function(*leaves)
    (out * out * weft.tensor(normal(*out.shape, seed=9))).sum().backward()
    return [out.detach().numpy(), *[leaf.grad.numpy() for leaf in leaves]]


def assert_same(got: list[Any], expected: list[Any], tolerance: float = 2e-4) -> None:
    for g, e in zip(got, expected, strict=True):
        assert g.shape == e.shape
        assert g.dtype == e.dtype
        np.testing.assert_allclose(g, e, rtol=tolerance, atol=tolerance * max(np.abs(e).max(), 1e-3))


def one_by_one(function: Function, *args: Any) -> Any:
    weft.set_eager_kernels(False)
    try:
        return function(*args)
    finally:
        weft.set_eager_kernels(True)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", CASES)
def test_a_kernel_gives_what_ops_give_one_by_one(name: str) -> None:
    function, shapes = CASES[name]
    arrays = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]
    made = function(*[weft.tensor(a, requires_grad=True) for a in arrays]).grad_fn
    assert made.rule.name == name
    assert_same(results(function, arrays), one_by_one(results, function, arrays))


@pytest.mark.parametrize("name", ["layer_norm", "linear", "cross_entropy", "conv2d", "max_pool2d"])
def test_double_precision_agrees_closely(name: str) -> None:
    function, shapes = CASES[name]
    arrays = [normal(*shape, seed=i, dtype="f8") for i, shape in enumerate(shapes)]
    assert_same(results(function, arrays), one_by_one(results, function, arrays), 1e-11)


def test_equal_calls_give_equal_bits_recorded_or_not() -> None:
    function, shapes = CASES["layer_norm"]
    leaves = [weft.tensor(normal(*shape, seed=i), requires_grad=True) for i, shape in enumerate(shapes)]
    first, again = function(*leaves), function(*leaves)
    with weft.no_grad():
        silent = function(*leaves)
    assert silent.grad_fn is None
    for other in (again, silent):
        np.testing.assert_array_equal(first.detach().numpy(), other.detach().numpy())


def test_only_what_requires_grad_gets_one() -> None:
    x, w = weft.tensor(normal(*IMAGE)), weft.tensor(normal(6, 8, 3, 3), requires_grad=True)
    out = weft.conv2d(x, w)
    assert [node is None for node, _ in out.grad_fn.next_functions] == [True, False]
    out.sum().backward()
    assert x.grad is None
    assert w.grad.shape == w.shape


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_moves_its_statistics_and_gives_what_ops_give(training: bool) -> None:
    def normalise(x: Any, w: Any, b: Any) -> Any:
        return weft.batch_norm(x, mean, variance, w, b, training, 0.5)

    arrays = [normal(*IMAGE), normal(8, seed=1), normal(8, seed=2)]
    found = []
    for run in (results, lambda *args: one_by_one(results, *args)):
        mean, variance = weft.zeros(8), weft.ones(8)
        found.append([*run(normalise, arrays), mean.numpy(), variance.numpy()])
    assert_same(found[0], found[1])
    leaves = [weft.tensor(a, requires_grad=True) for a in arrays]
    assert normalise(*leaves).grad_fn.rule.name == ("normalised" if training else "scaled")


def test_small_arrays_run_op_by_op() -> None:
    out = weft.layer_norm(weft.ones((4, 8), requires_grad=True), 8)
    assert out.grad_fn.rule.name != "layer_norm"


# Sizes


def test_one_kernel_serves_batches_of_any_size() -> None:
    weft.rms_norm(weft.tensor(normal(20, 33, 65), requires_grad=True), 65)
    before = eager_calls._counts["rms_norm"]
    for batch in (9, 31, 100):
        x = normal(batch, 33, 65)
        got = weft.rms_norm(weft.tensor(x, requires_grad=True), 65)
        assert got.grad_fn.rule.name == "rms_norm"
        np.testing.assert_allclose(
            got.detach().numpy(),
            one_by_one(lambda a: weft.rms_norm(weft.tensor(a), 65).numpy(), x),
            rtol=1e-5,
        )
    assert eager_calls._counts["rms_norm"] == before


def test_the_first_sizes_of_a_product_have_kernels_of_their_own_and_the_rest_share_one() -> None:
    w = weft.tensor(normal(7, 130))
    before = eager_calls._counts["linear"]
    for batch in range(200, 200 + EXACT_KERNELS + 3):
        x = normal(batch, 130)
        np.testing.assert_allclose(
            weft.linear(weft.tensor(x), w).numpy(), x @ w.numpy().T, rtol=1e-3, atol=1e-3
        )
    assert eager_calls._counts["linear"] == before + EXACT_KERNELS + 1


def test_a_batch_of_one_is_right() -> None:
    x, w = normal(1, 40000), normal(3, 40000)
    got = weft.linear(weft.tensor(x), weft.tensor(w)).numpy()
    np.testing.assert_allclose(got, x @ w.T, rtol=1e-3, atol=1e-2)


# Arrays that lie in memory in other ways


def attend(x: Any) -> Any:
    """Attention as networks write it: heads are cut out of one product, and turned."""
    q, k, v = (a.reshape(8, 32, 4, 16).transpose(1, 2) for a in x.chunk(3, -1))
    mixed = weft.scaled_dot_product_attention(q, k, v)
    return mixed.transpose(1, 2).reshape(8, 32, 64)


def test_views_give_what_ops_give_one_by_one() -> None:
    x = normal(8, 32, 192)
    assert_same(results(attend, [x]), one_by_one(results, attend, [x]))
    cases: list[Function] = [
        lambda x: weft.layer_norm(x[:, ::2], 192),
        lambda x: weft.gelu(x.transpose(1, 2)),
        lambda x: weft.gelu(weft.permute_dims(x, (2, 1, 0))),
        lambda x: weft.linear(weft.flip(x, axis=1), weft.ones((3, 192))),
        lambda x: weft.silu(weft.broadcast_to(x[:1], (8, 32, 192))),
    ]
    for function in cases:
        assert_same(results(function, [x]), one_by_one(results, function, [x]))


def test_a_result_lies_in_memory_as_its_argument_does() -> None:
    x = weft.tensor(normal(8, 32, 4, 16)).transpose(1, 2)
    out = weft.scaled_dot_product_attention(x, x, x)
    assert out.shape == (8, 4, 32, 16)
    assert np.shares_memory(out.transpose(1, 2).reshape(8, 32, 64).numpy(), out.numpy())


@pytest.mark.parametrize("cut", [lambda x: x.chunk(3, -1), lambda x: weft.split(x, (5, 20, 39), 2)])
def test_cutting_gives_views(cut: Function) -> None:
    x = weft.tensor(normal(16, 64, 64), requires_grad=True)
    parts = cut(x)
    assert all(part.is_view for part in parts)
    with weft.no_grad():
        views = cut(x)
    for part, view in zip(parts, views, strict=True):
        assert np.shares_memory(view.numpy(), x.detach().numpy())
        np.testing.assert_array_equal(part.detach().numpy(), view.numpy())
    sum((p * (i + 1.0)).sum() for i, p in enumerate(parts)).backward()
    expected = np.concatenate([np.full(p.shape, i + 1.0) for i, p in enumerate(parts)], axis=2)
    np.testing.assert_array_equal(x.grad.numpy(), expected)


def test_a_part_that_nobody_uses_has_a_gradient_of_zeros() -> None:
    x = weft.tensor(normal(16, 64, 64), requires_grad=True)
    x.chunk(2, 1)[1].sum().backward()
    assert x.grad.numpy().sum(axis=(0, 2)).tolist() == [0.0] * 32 + [1024.0] * 32


# Beside everything else


def test_second_derivatives_go_through_the_ops() -> None:
    def second(a: Any) -> Any:
        x = weft.tensor(a, requires_grad=True)
        (g,) = weft.autograd.grad((weft.gelu(weft.layer_norm(x, 64)) ** 2).sum(), [x], create_graph=True)
        (g * g).sum().backward()
        return [x.grad.numpy()]

    x = normal(300, 64)
    assert_same(second(x), one_by_one(second, x), 1e-3)


def test_transforms_go_through_the_ops() -> None:
    x, v = weft.tensor(normal(300, 64)), weft.tensor(normal(300, 64, seed=1))
    out, tangent = weft.jvp(lambda x: weft.layer_norm(x, 64), (x,), (v,))
    expected, expected_tangent = one_by_one(lambda: weft.jvp(lambda x: weft.layer_norm(x, 64), (x,), (v,)))
    assert_same([out.numpy(), tangent.numpy()], [expected.numpy(), expected_tangent.numpy()])
    mapped = weft.vmap(lambda row: weft.gelu(row))(x)
    np.testing.assert_allclose(mapped.numpy(), weft.gelu(x).numpy(), rtol=1e-5, atol=1e-6)


def test_checkpoints_and_compiled_code_give_the_same_gradients() -> None:
    def loss(x: Any, w: Any) -> Any:
        return (weft.gelu(weft.linear(weft.layer_norm(x, 64), w)) ** 2).mean()

    x, w = normal(300, 64), normal(64, 64)
    expected = results(lambda a, b: loss(a, b).reshape(1), [x, w])
    checkpointed = results(lambda a, b: weft.checkpoint(loss, a, b).reshape(1), [x, w])
    compiled = results(lambda a, b: weft.compile(loss)(a, b).reshape(1), [x, w])
    assert_same(checkpointed, expected)
    assert_same(compiled, expected)


@pytest.mark.parametrize("function", [weft.gelu, weft.silu, weft.mish])
def test_zeros_that_mean_not_chosen_stay_zeros(function: Function) -> None:
    a = normal(300, 64)
    a[::3] = np.inf
    x = weft.tensor(a, requires_grad=True)
    weft.where(weft.isfinite(x), function(x), 0.0).sum().backward()
    assert np.isfinite(x.grad.numpy()).all()
    assert (x.grad.numpy()[::3] == 0).all()


def test_hooks_see_the_gradient_of_a_whole_call() -> None:
    x = weft.tensor(normal(300, 64), requires_grad=True)
    y = weft.gelu(x)
    seen: list[Any] = []

    def double(g: Any) -> Any:
        seen.append(g)
        return g * 2.0

    y.register_hook(double)
    y.retain_grad()
    y.sum().backward()
    assert seen[0].numpy().sum() == 300 * 64
    np.testing.assert_array_equal(y.grad.numpy(), 2.0)


def test_autocast_is_followed() -> None:
    x, w = weft.tensor(normal(300, 64)), weft.tensor(normal(64, 64))
    with weft.autocast(weft.bfloat16):
        assert weft.linear(x, w).dtype == weft.bfloat16
    assert weft.linear(x, w).dtype == weft.float32


# What does not fit


def test_errors_are_those_of_the_ops_and_name_the_line() -> None:
    x = weft.tensor(normal(300, 64), requires_grad=True)
    calls: list[Function] = [
        lambda: weft.linear(x, weft.ones((3, 65))),
        lambda: weft.layer_norm(x, 65),
        lambda: weft.cross_entropy(x, weft.zeros(299, dtype=weft.int64)),
        lambda: weft.max_pool2d(x, 2, bogus=1),
    ]
    for call in calls:
        with pytest.raises(weft.errors.WeftError) as got:
            call()
        with pytest.raises(weft.errors.WeftError) as expected:
            one_by_one(call)
        assert str(got.value) == str(expected.value)
        assert type(got.value) is type(expected.value)


def test_class_numbers_out_of_range_are_reported_as_ever() -> None:
    x, labels = weft.tensor(normal(512, 64), requires_grad=True), weft.tensor(LABELS.copy())
    weft.cross_entropy(x, labels)
    labels[3] = 64
    outcomes = []
    for run in (lambda f: f(), one_by_one):
        try:
            outcomes.append(str(run(lambda: weft.cross_entropy(x, labels).item())))
        except weft.errors.WeftError as error:
            outcomes.append(re.sub(r"0x\w+", "", str(error)))
    assert outcomes[0] == outcomes[1]


def test_other_dtypes_and_arguments_run_op_by_op() -> None:
    x = weft.tensor(normal(300, 64).astype("f2"), requires_grad=True)
    assert weft.layer_norm(x, 64).grad_fn.rule.name != "layer_norm"
    q = weft.tensor(normal(2, 4, 64, 32), requires_grad=True)
    dropped = weft.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
    assert dropped.grad_fn.rule.name != "scaled_dot_product_attention"
    assert weft.scaled_dot_product_attention(q, q, q, weft.tensor(MASK)).shape == q.shape

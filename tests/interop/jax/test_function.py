"""Whole functions and models of JAX, their gradients, open sizes, names and lines; arrays that cross."""

from __future__ import annotations

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import weft
from tests.interop.jax.tools import check_function
from weft.interop.jax import from_jax, import_function, import_jaxpr, to_jax


def real(*shape: int, seed: int = 0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


# Models, as parameters in trees and plain functions


def dense(p, x):
    return x @ p["w"] + p["b"]


def mlp(params, x):
    for p in params[:-1]:
        x = jax.nn.gelu(dense(p, x))
    return jax.nn.log_softmax(dense(params[-1], x))


MLP = [{"w": real(3, 5, seed=1), "b": real(5, seed=2)}, {"w": real(5, 4, seed=3), "b": real(4, seed=4)}]


def cnn(p, x):
    x = lax.conv_general_dilated(x, p["conv"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    x = jax.nn.relu(x)
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
    x = (x - mean) * lax.rsqrt(var + 1e-5) * p["scale"]
    return x.reshape(x.shape[0], -1) @ p["out"]


CNN = {"conv": real(3, 3, 2, 4), "scale": real(4), "out": real(36, 5)}


def attention(p, x):
    q, k, v = (jnp.einsum("btc,chd->bthd", x, p[n]) for n in "qkv")
    scores = jnp.einsum("bthd,bshd->bhts", q, k) / np.sqrt(q.shape[-1])
    mask = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e9))
    return jnp.einsum("bhts,bshd,hdc->btc", weights, v, p["o"])


ATTENTION = {n: real(6, 2, 3, seed=i) for i, n in enumerate("qkv")} | {"o": real(2, 3, 6)}


def rnn(p, xs):
    def step(h, x):
        h = jnp.tanh(x @ p["x"] + h @ p["h"])
        return h, h

    return lax.scan(step, jnp.zeros((xs.shape[1], 4)), xs)


RNN = {"x": real(3, 4), "h": real(4, 4, seed=1)}

MODELS = {
    "mlp": (mlp, MLP, real(6, 3)),
    "cnn": (cnn, CNN, real(2, 6, 6, 2)),
    "attention": (attention, ATTENTION, real(2, 5, 6)),
    "rnn": (rnn, RNN, real(7, 2, 3)),
}


@pytest.mark.parametrize("name", MODELS)
def test_model_gives_what_jax_gives(name) -> None:
    check_function(*MODELS[name])


@pytest.mark.parametrize("name", MODELS)
def test_gradient_of_a_model_gives_what_jax_gives(name) -> None:
    model, params, x = MODELS[name]
    loss = lambda p, x: sum((y**2).mean() for y in jax.tree.leaves(model(p, x)))  # noqa: E731
    check_function(jax.value_and_grad(loss), params, x)


def test_training_step_gives_what_jax_gives() -> None:
    def step(params, x, y):
        loss, grads = jax.value_and_grad(lambda p: -(mlp(p, x) * y).sum(1).mean())(params)
        return loss, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    check_function(step, MLP, real(6, 3), jax.nn.one_hot(jnp.arange(6) % 4, 4))


ACTIVATIONS = [
    "relu",
    "silu",
    "gelu",
    "elu",
    "selu",
    "celu",
    "softplus",
    "soft_sign",
    "log_sigmoid",
    "relu6",
    "hard_swish",
    "leaky_relu",
]
FUNCTIONS = {
    "layer_norm": (lambda x: jax.nn.standardize(x, axis=-1), (real(3, 4),)),
    "activations": (lambda x: [getattr(jax.nn, name)(x) for name in ACTIVATIONS], (real(3, 4),)),
    "one_hot": (lambda i: jax.nn.one_hot(i, 5), (jnp.array([0, 3, 1]),)),
    "logsumexp": (lambda x: jax.scipy.special.logsumexp(x, axis=1), (real(3, 4),)),
    "hessian": (jax.hessian(lambda x: jnp.prod(jnp.sin(x))), (real(4),)),
    "jacfwd": (jax.jacfwd(lambda x: jnp.cumsum(x**2)), (real(4),)),
    "vmap": (jax.vmap(lambda a, b: jnp.linalg.solve(a @ a.T + jnp.eye(3), b)), (real(2, 3, 3), real(2, 3))),
    "interpolate": (lambda x: jax.image.resize(x, (6, 8), "bilinear"), (real(3, 4),)),
    "median": (lambda x: jnp.median(x, axis=1), (real(3, 5),)),
    "searchsorted": (lambda x, v: jnp.searchsorted(x, v), (jnp.sort(real(9)), real(4))),
    "bincount": (lambda i: jnp.bincount(i, length=5), (jnp.array([0, 3, 3, 1]),)),
    "segment_sum": (
        lambda x, i: jax.ops.segment_sum(x, i, num_segments=3),
        (real(4, 2), jnp.array([0, 2, 2, 1])),
    ),
    "histogram": (lambda x: jnp.histogram(x, bins=4, range=(-2, 2))[0], (real(20),)),
    "polyval": (lambda x: jnp.polyval(jnp.array([1.0, -2.0, 3.0]), x), (real(5),)),
    "convolve": (lambda a, b: jnp.convolve(a, b, mode="same"), (real(7), real(3))),
    "percentile": (lambda x: jnp.percentile(x, 30), (real(9),)),
    "dropout": (
        lambda k, x: jnp.where(jax.random.bernoulli(k, 0.5, x.shape), x * 2, 0),
        (jax.random.PRNGKey(1), real(3, 4)),
    ),
    "categorical": (lambda k, x: jax.random.categorical(k, x), (jax.random.PRNGKey(1), real(3, 4))),
    "newton": (
        lambda x: lax.while_loop(lambda y: jnp.abs(y * y - x) > 1e-4, lambda y: (y + x / y) / 2, x),
        (jnp.float32(7.0),),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_gives_what_jax_gives(name) -> None:
    function, inputs = FUNCTIONS[name]
    check_function(function, *inputs)


# What a graph keeps


def test_arguments_are_named_by_their_path_and_parameters_hold_values() -> None:
    graph = import_function(mlp, MLP, real(6, 3), parameters=0)
    assert [v.name for v, role in zip(graph.inputs, graph.roles, strict=True) if role == "arg"] == ["x"]
    assert sorted(weft.interop.weights(graph)) == ["params.0.b", "params.0.w", "params.1.b", "params.1.w"]
    x = real(6, 3, seed=9)
    np.testing.assert_allclose(graph(from_jax(x)).numpy(), mlp(MLP, x), rtol=1e-4, atol=1e-5)
    whole = import_function(mlp, MLP, x)
    assert whole.inputs[0].name == "params.0.b"


def test_arrays_that_a_function_closes_over_are_parameters() -> None:
    table = real(4, 3)
    graph = import_jaxpr(jax.make_jaxpr(lambda x: x @ table + 2.0)(real(2, 4)), name="affine", names=["x"])
    assert (graph.name, list(weft.interop.weights(graph))) == ("affine", ["const.0"])
    np.testing.assert_allclose(graph(weft.ones((2, 4))).numpy(), jnp.ones((2, 4)) @ table + 2.0, rtol=1e-5)


def test_nodes_know_the_line_of_the_users_code() -> None:
    def f(x):
        return jnp.sin(x) * 2.0  # the line that nodes name

    graph = import_function(f, real(3))
    lines = Path(__file__).read_text().splitlines()
    line = next(i for i, text in enumerate(lines, 1) if "the line that nodes name" in text)
    assert {
        (os.path.basename(n.location.file), n.location.line, n.location.function) for n in graph.nodes
    } == {(os.path.basename(__file__), line, "f")}
    backward = import_function(jax.grad(lambda x: f(x).sum()), real(3))
    assert "backward" in {n.location.phase for n in backward.nodes}


def test_sizes_may_be_left_open() -> None:
    def f(p, x):
        h = jax.nn.softmax(x @ p) - x.mean(axis=1, keepdims=True)
        return h.reshape(-1), jnp.concatenate([x, x])[1:], x.sum() / x.shape[0]

    p = real(3, 3)
    graph = import_function(f, p, weft.TensorType(("batch", 3), weft.float32), parameters=0)
    assert [str(v.type) for v in graph.outputs] == ["f32[3*batch]", "f32[2*batch-1,3]", "f32[]"]
    for n in (1, 2, 5):
        x = real(n, 3, seed=n)
        for one, other in zip(graph(from_jax(x)), f(p, x), strict=True):
            np.testing.assert_allclose(one.numpy(), other, rtol=1e-5, atol=1e-6)


def test_gradients_of_weft_flow_through_an_imported_graph() -> None:
    graph = import_function(mlp, MLP, real(6, 3), parameters=0)
    x = real(6, 3)
    given = from_jax(x, requires_grad=True)
    graph(given).sum().backward()
    np.testing.assert_allclose(
        given.grad.numpy(), jax.grad(lambda x: mlp(MLP, x).sum())(x), rtol=1e-4, atol=1e-5
    )


def test_imported_graph_is_saved_and_loaded(tmp_path) -> None:
    x = real(6, 3)
    weft.save_graph(import_function(mlp, MLP, x, parameters=0), tmp_path / "mlp.weft")
    np.testing.assert_allclose(
        weft.load_graph(tmp_path / "mlp.weft")(from_jax(x)).numpy(), mlp(MLP, x), rtol=1e-4, atol=1e-5
    )


def test_what_is_no_jaxpr_or_function_is_an_error() -> None:
    with pytest.raises(weft.errors.ArgumentError, match="must be a closed jaxpr, got function") as caught:
        import_jaxpr(mlp)
    assert "jax.make_jaxpr" in str(caught.value)
    with pytest.raises(weft.errors.ArgumentError, match="must be given a function, got int"):
        import_function(3)


def test_keys_of_another_generator_are_an_error() -> None:
    with pytest.raises(weft.errors.CaptureError, match="threefry"):
        import_function(lambda s: jax.random.bits(jax.random.key(s, impl="rbg")), jnp.array(1))


# Arrays


DTYPES = ["bool", "uint8", "int8", "int16", "int32", "float16", "bfloat16", "float32", "complex64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_cross_both_ways(dtype) -> None:
    theirs = jnp.arange(32).reshape(4, 8).astype(dtype)
    ours = from_jax(theirs)
    assert (ours.dtype.name, ours.shape) == (dtype, (4, 8))
    assert ours._array("test").__array_interface__["data"][0] == theirs.unsafe_buffer_pointer()
    back = to_jax(ours)
    assert back.dtype == theirs.dtype
    assert bool((back == theirs).all())


def test_memory_is_shared_where_jax_takes_it() -> None:
    memory = np.zeros(80, np.float32)
    start = -memory.__array_interface__["data"][0] % 64 // 4
    ours = weft.from_numpy(memory[start : start + 64])
    assert to_jax(ours).unsafe_buffer_pointer() == ours._array("test").__array_interface__["data"][0]
    assert to_jax(weft.arange(6.0).reshape(2, 3).mT).tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert to_jax(weft.tensor([1, 2])).tolist() == [1, 2]


def test_gradient_state_and_wrong_arguments() -> None:
    assert from_jax(jnp.ones(2), requires_grad=True).requires_grad
    assert to_jax(weft.ones(2, requires_grad=True)).tolist() == [1.0, 1.0]
    with pytest.raises(weft.errors.ArgumentError, match=r"must be given a jax\.Array, got list"):
        from_jax([1.0])
    with pytest.raises(weft.errors.ArgumentError, match="must be given a tensor of weft"):
        to_jax(jnp.ones(1))
    with pytest.raises(weft.errors.ArgumentError, match="got one that JAX traces"):
        jax.jit(lambda x: from_jax(x) and x)(jnp.ones(1))

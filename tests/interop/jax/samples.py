"""For each lax primitive, functions that use it and the arrays they are called on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name

Sample = tuple[Callable[..., Any], tuple[Any, ...]]
SAMPLES: dict[str, list[Sample]] = {}
_random = np.random.default_rng(0)


def _real(*shape: int) -> Any:
    return jnp.asarray(_random.normal(size=shape), jnp.float32)


def _add(name: str, *samples: Sample) -> None:
    SAMPLES.setdefault(name, []).extend(samples)


X, Y = _real(3, 4), _real(3, 4)
POSITIVE, UNIT = jnp.abs(X) + 0.1, jnp.tanh(X) * 0.9
WHOLE = jnp.array([[3, -2, 0, 7], [1, 5, -4, 2], [-7, 9, 8, 6]], jnp.int32)
WORDS = WHOLE.astype(jnp.uint32)
MASK = X > 0
COMPLEX = X + 1j * Y
IMAGE = _real(2, 3, 6, 8)

# Element by element

for _name in [
    "abs",
    "asinh",
    "atan",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "is_finite",
    "logistic",
    "neg",
    "sign",
    "sin",
    "sinh",
    "square",
    "tan",
    "tanh",
]:
    _add(_name, (getattr(lax, _name), (X * 2,)))
for _name in ["cbrt", "digamma", "lgamma", "log", "log1p", "rsqrt", "sqrt"]:
    _add(_name, (getattr(lax, _name), (POSITIVE,)))
for _name in ["acos", "asin", "atanh", "erf_inv"]:
    _add(_name, (getattr(lax, _name), (UNIT,)))
_add("acosh", (lax.acosh, (POSITIVE + 1,)))
_add("cbrt", (lax.cbrt, (jnp.array([-8.0, 0.0, 27.0, jnp.inf, -jnp.inf, 1e-30, 1e30]),)))
for _name in ["add", "sub", "mul", "max", "min", "atan2", "nextafter", "eq", "ne", "lt", "le", "gt", "ge"]:
    _add(_name, (getattr(lax, _name), (X, Y)))
for _name in ["add", "mul", "max", "and", "or", "xor", "sub", "eq", "lt"]:
    _function = {"and": lax.bitwise_and, "or": lax.bitwise_or, "xor": lax.bitwise_xor}.get(_name) or getattr(
        lax, _name
    )
    _add(_name, (_function, (WHOLE, WHOLE[::-1])))
_add("and", (lax.bitwise_and, (MASK, ~MASK)))
_add("not", (lax.bitwise_not, (WHOLE,)), (lax.bitwise_not, (MASK,)))
_add(
    "div",
    (lax.div, (X, POSITIVE)),
    (lax.div, (WHOLE, jnp.array(-3))),
    (lax.div, (WORDS, jnp.array(3, jnp.uint32))),
)
_add("rem", (lax.rem, (X * 5, Y)), (lax.rem, (WHOLE, jnp.array(-3))))
_add("pow", (lax.pow, (POSITIVE, Y)), (lambda x: x ** WHOLE[:3], (X,)))
_add("integer_pow", *[(lambda x, p=p: lax.integer_pow(x, p), (X,)) for p in (0, 1, 2, 3, -2)])
_add(
    "round",
    (lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO), (jnp.arange(-3, 3, 0.5),)),
    (lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), (jnp.arange(-3, 3, 0.5),)),
)
_add("clamp", (lambda x: lax.clamp(-0.5, x, 0.5), (X,)))
_add("select_n", (lax.select_n, (MASK, X, Y)), (lax.select_n, (jnp.abs(WHOLE) % 3, X, Y, X + Y)))
_add("shift_left", (lax.shift_left, (WORDS, jnp.full((3, 4), 3, jnp.uint32))))
_add(
    "shift_right_logical",
    (lax.shift_right_logical, (WHOLE, jnp.full((3, 4), 3))),
    (lax.shift_right_logical, (WORDS, jnp.full((3, 4), 3, jnp.uint32))),
)
_add(
    "shift_right_arithmetic",
    (lax.shift_right_arithmetic, (WHOLE, jnp.full((3, 4), 2))),
    (lax.shift_right_arithmetic, (WORDS, jnp.full((3, 4), 2, jnp.uint32))),
)
_add("population_count", (lax.population_count, (WHOLE,)), (lax.population_count, (WORDS,)))
_add("clz", (lax.clz, (WHOLE,)), (lax.clz, (WORDS.astype(jnp.uint8),)))
_add(
    "bitcast_convert_type",
    (lambda x: lax.bitcast_convert_type(x, jnp.int32), (X,)),
    (lambda x: lax.bitcast_convert_type(x, jnp.float32), (WHOLE,)),
)
_add(
    "convert_element_type",
    (lambda x: x.astype(jnp.int32), (X * 3,)),
    (lambda x: x.astype(jnp.bfloat16), (X,)),
    (lambda x: x.astype(bool), (WHOLE,)),
)
_add("complex", (lax.complex, (X, Y)))
for _name in ["real", "imag", "conj", "abs", "exp"]:
    _add(_name, (getattr(lax, _name), (COMPLEX,)))
_add("polygamma", (lambda x: jax.scipy.special.polygamma(2, x), (POSITIVE,)))
_add("bessel_i0e", (lax.bessel_i0e, (X * 10,)), (lax.bessel_i0e, (X * 500,)))
_add("bessel_i1e", (lax.bessel_i1e, (X * 10,)), (lax.bessel_i1e, (X * 500,)))
_add("stop_gradient", (jax.grad(lambda x: (x * lax.stop_gradient(x)).sum()), (X,)))
_add("copy", (lambda x: jnp.array(x, copy=True), (X,)))
_add("add_any", (jax.grad(lambda x: (x * jnp.sin(x)).sum()), (X,)))
_add("reduce_precision", (lambda x: lax.reduce_precision(x, 8, 23), (X,)))
_add("optimization_barrier", (lambda x, y: lax.optimization_barrier((x, y)), (X, Y)))
_add("name", (lambda x: checkpoint_name(x, "x") * 2, (X,)))
_add("device_put", (lambda x: jax.device_put(x) + 1, (X,)))

# Shapes

_add(
    "broadcast_in_dim",
    (lambda x: lax.broadcast_in_dim(x, (2, 3, 5, 4), (1, 3)), (X,)),
    (lambda x: jnp.broadcast_to(x, (2, 3, 4)), (X,)),
)
_add("reshape", (lambda x: x.reshape(2, 6), (X,)))
_add("transpose", (lambda x: lax.transpose(x, (1, 0)), (X,)))
_add("squeeze", (lambda x: lax.squeeze(x, (0,)), (X[:1],)))
_add("concatenate", (lambda x, y: lax.concatenate([x, y], 1), (X, Y)))
_add("rev", (lambda x: lax.rev(x, (0, 1)), (X,)))
_add("iota", (lambda x: x + lax.broadcasted_iota(jnp.int32, (3, 4), 1), (X,)))
_add("slice", (lambda x: lax.slice(x, (1, 0), (3, 4), (1, 2)), (X,)))
_add(
    "pad",
    (lambda x: lax.pad(x, 7.0, ((1, 2, 0), (0, 1, 2))), (X,)),
    (lambda x: lax.pad(x, 0.0, ((-1, 2, 0), (1, -2, 0))), (X,)),
    (lambda x, v: lax.pad(x, v, ((1, 2, 1), (0, 0, 0))), (X, jnp.float32(3.0))),
)
_add("split", (lambda x: lax.split(x, (1, 3), 1), (X,)))
_add("tile", (lambda x: jnp.tile(x, (2, 3)), (X,)))
_add(
    "dynamic_slice",
    (lambda x, i: lax.dynamic_slice(x, (i, 1), (2, 2)), (X, jnp.array(2))),
    (lambda x, i: lax.dynamic_slice(x, (i, 0), (2, 4)), (X, jnp.array(-1))),
    (lambda x: lax.dynamic_slice(x, (2, 9), (2, 2)), (X,)),
)
_add(
    "dynamic_update_slice",
    (lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 1)), (X, Y[:2, :3], jnp.array(2))),
    (lambda x, u, i: lax.dynamic_update_slice(x, u, (0, i)), (X, Y[:, :2], jnp.array(1))),
)

# Reductions, order, products

for _name in ["reduce_sum", "reduce_prod", "reduce_max", "reduce_min"]:
    _op = {"reduce_sum": jnp.sum, "reduce_prod": jnp.prod, "reduce_max": jnp.max, "reduce_min": jnp.min}[
        _name
    ]
    _add(_name, (_op, (X,)), (lambda x, f=_op: f(x, axis=1), (WHOLE,)))
_add("reduce_and", (lambda x: jnp.all(x, axis=0), (MASK,)), (lambda x: lax.reduce_and(x, (1,)), (WHOLE,)))
_add("reduce_or", (jnp.any, (MASK,)), (lambda x: lax.reduce_or(x, (0, 1)), (WHOLE,)))
_add(
    "reduce_xor", (lambda x: lax.reduce_xor(x, (0,)), (MASK,)), (lambda x: lax.reduce_xor(x, (1,)), (WHOLE,))
)
_add("reduce", (lambda x: lax.reduce(x, 2.0, lax.mul, (0,)), (X,)))
_add("argmax", (lambda x: jnp.argmax(x, axis=1), (X,)))
_add("argmin", (jnp.argmin, (X,)))
for _name in ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"]:
    _op = getattr(lax, _name)
    _add(_name, (lambda x, f=_op: f(x, axis=1), (X,)), (lambda x, f=_op: f(x, axis=0, reverse=True), (X,)))
_add(
    "sort",
    (lambda x: jnp.sort(x, axis=0), (X,)),
    (jnp.argsort, (X,)),
    (lambda x, y, z: lax.sort((x, y, z), num_keys=2), (WHOLE // 4, WHOLE[::-1], X)),
)
_add("top_k", (lambda x: lax.top_k(x, 2), (X,)))
_add("approx_top_k", (lambda x: lax.approx_max_k(x, 2), (X,)), (lambda x: lax.approx_min_k(x, 2), (X,)))
_add(
    "dot_general",
    (jnp.matmul, (X, Y.T)),
    (lambda x, y: lax.dot_general(x, y, (((1,), (2,)), ((0,), (1,)))), (_real(3, 4, 2), _real(5, 3, 4))),
    (lambda x, y: jnp.einsum("bij,bjk->bik", x, y), (_real(2, 3, 4), _real(2, 4, 5))),
    (jnp.dot, (X[0], Y[0])),
    (
        lambda x, y: lax.dot(x, y, preferred_element_type=jnp.int32),
        (WHOLE.astype(jnp.int8), WHOLE.T.astype(jnp.int8)),
    ),
)
_conv = lax.conv_general_dilated
_add(
    "conv_general_dilated",
    (lambda x, w: _conv(x, w, (2, 1), "SAME"), (IMAGE, _real(4, 3, 3, 3))),
    (lambda x, w: _conv(x, w, (1, 1), ((1, 2), (0, -1)), (2, 1), (1, 2)), (IMAGE, _real(4, 3, 2, 2))),
    (
        lambda x, w: _conv(
            x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=2
        ),
        (_real(2, 5, 5, 4), _real(3, 3, 2, 6)),
    ),
    (lambda x, w: _conv(x, w, (1,), "VALID", batch_group_count=2), (_real(4, 3, 6), _real(2, 3, 2))),
)
_add(
    "fft",
    (jnp.fft.fft, (COMPLEX,)),
    (jnp.fft.rfft, (X,)),
    (lambda x: jnp.fft.irfft(x, n=6), (COMPLEX,)),
    (jnp.fft.ifft2, (COMPLEX,)),
)

# Places

_at = jnp.array([0, 2, -1])
_add(
    "gather",
    (lambda x, i: x[i], (X, _at)),
    (lambda x, i: x[:, i], (X, _at)),
    (lambda x, i: x[i, i], (X, _at)),
    (lambda x, i: jnp.take(x, i, axis=1, mode="clip"), (X, jnp.array([9, 0]))),
    (lambda x, i: x.at[i].get(mode="fill", fill_value=5.0), (X, jnp.array([9, 0]))),
    (lambda x, i: jnp.take_along_axis(x, i, axis=1), (X, WHOLE % 4)),
    (lambda x, i: jax.vmap(lambda r, j: lax.dynamic_slice(r, (j,), (2,)))(x, i), (X, jnp.array([0, 3, 1]))),
    (lambda x, i: x[i], (WHOLE, jnp.array([7]))),
)
for _name, _method in (
    ("scatter", "set"),
    ("scatter-add", "add"),
    ("scatter-mul", "multiply"),
    ("scatter-max", "max"),
    ("scatter-min", "min"),
):
    _add(
        _name,
        (lambda x, i, u, m=_method: getattr(x.at[i], m)(u), (X, jnp.array([2, 0]), Y[:2])),
        (lambda x, i, u, m=_method: getattr(x.at[:, i], m)(u), (X, jnp.array([1, 3]), Y[:, :2])),
        (lambda x, i, u, m=_method: getattr(x.at[i, i + 1], m)(u), (X, jnp.array([1, 2]), Y[0, :2])),
        (lambda x, i, u, m=_method: getattr(x.at[i], m)(u, mode="drop"), (X, jnp.array([7, 1]), Y[:2])),
    )
for _name, _method in (("scatter-add", "add"), ("scatter-mul", "multiply"), ("scatter-max", "max")):
    _add(
        _name,
        (lambda x, i, u, m=_method: getattr(x.at[i], m)(u), (X, jnp.array([1, 1, 0]), Y)),
        (lambda x, i, u, m=_method: getattr(x.at[i], m)(u), (WHOLE, jnp.array([1, 1, 0]), WHOLE)),
    )
_add(
    "scatter",
    (
        lambda x, i, u: jax.vmap(lambda r, j, v: lax.dynamic_update_slice(r, v, (j,)))(x, i, u),
        (X, jnp.array([0, 2, 1]), Y[:, :2]),
    ),
)
_add("scatter-sub", (lambda x, i, u: x.at[i].subtract(u), (X, jnp.array([1, 1, 0]), Y)))

# Windows

_pool = {"window_dimensions": (1, 1, 2, 3), "window_strides": (1, 1, 2, 2)}
_add("reduce_window_sum", (lambda x: lax.reduce_window(x, 0.0, lax.add, padding="SAME", **_pool), (IMAGE,)))
_add(
    "reduce_window_max",
    (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, padding="SAME", **_pool), (IMAGE,)),
    (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 1), "VALID", (1, 2), (2, 1)), (X,)),
)
_add(
    "reduce_window_min",
    (lambda x: lax.reduce_window(x, jnp.inf, lax.min, padding="VALID", **_pool), (IMAGE,)),
)
_add("reduce_window", (lambda x: lax.reduce_window(x, 2.0, lax.mul, (2, 2), (1, 1), "VALID"), (X,)))
_max_pool = lambda x: lax.reduce_window(x, -jnp.inf, lax.max, padding="SAME", **_pool)  # noqa: E731
_add("select_and_scatter_add", (jax.grad(lambda x: (_max_pool(x) ** 2).sum()), (IMAGE,)))
_add("select_and_gather_add", (lambda x: jax.jvp(_max_pool, (x,), (jnp.sin(x),))[1], (IMAGE,)))

# Control flow

_add(
    "cond",
    (lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), (X,)),
    (lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, lambda x: x * 2], x), (jnp.array(2), X)),
)
_add(
    "while",
    (lambda x: lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 1.5 + x), (0, x)), (X,)),
    (lambda n, x: lax.fori_loop(0, n, lambda i, s: s + i * x, x), (jnp.array(4), X)),
)
_add(
    "scan",
    (lambda c, xs: lax.scan(lambda c, x: (c + x, c * x), c, xs), (X[0], X)),
    (lambda xs: lax.scan(lambda c, x: (c * 0.5 + x, c), jnp.zeros(4), xs, reverse=True), (X,)),
    (lambda x: lax.fori_loop(0, 3, lambda i, s: s * 2 + i, x), (X,)),
    (jax.grad(lambda x: lax.scan(lambda c, x: (jnp.tanh(c + x), c), x[0], x)[0].sum()), (X,)),
)
_add("jit", (lambda x: jax.jit(jnp.tanh)(x), (X,)))
_add("closed_call", (lambda x: jax.checkpoint(jnp.tanh)(x), (X,)))
_add("remat2", (jax.grad(lambda x: jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)))(x).sum()), (X,)))
_add("custom_jvp_call", (jax.nn.relu, (X,)), (jax.nn.silu, (X,)))


@jax.custom_vjp
def _clipped(x: Any) -> Any:
    return x * 2


_clipped.defvjp(lambda x: (x * 2, x), lambda x, g: (jnp.clip(g, -1, 1),))
_add("custom_vjp_call", (_clipped, (X,)), (jax.grad(lambda x: (_clipped(x) ** 2).sum()), (X,)))

# Random numbers

KEY = jax.random.PRNGKey(42)
_add("random_wrap", (lambda k: jax.random.bits(k, (5,)), (KEY,)))
_add("random_unwrap", (lambda k: jax.random.split(k, 3), (KEY,)))
_add(
    "random_bits",
    (lambda k: jax.random.uniform(k, (3, 4)), (jax.random.key(7),)),
    (lambda k: jax.random.bits(k, (3,), jnp.uint8), (KEY,)),
    (lambda k: jax.random.normal(k, (3, 4)), (KEY,)),
    (lambda k: jax.random.randint(k, (6,), 0, 100), (KEY,)),
    (lambda k: jax.random.permutation(k, 7), (KEY,)),
    (lambda k: jax.random.bernoulli(k, 0.3, (9,)), (KEY,)),
)
_add(
    "random_split",
    (lambda k: jax.random.split(k, (2, 3)), (jax.random.key(7),)),
    (lambda k: [jax.random.normal(a) for a in jax.random.split(k)], (jax.random.key(7),)),
)
_add("random_fold_in", (lambda k: jax.random.fold_in(k, 9), (KEY,)))
_add("random_seed", (lambda s: jax.random.key_data(jax.random.key(s)), (jnp.array(5),)))
_add("threefry2x32", (lambda k: jax.extend.random.threefry_2x32(k, jnp.arange(8, dtype=jnp.uint32)), (KEY,)))

# Linear algebra

_matrix = _real(4, 4)
SYMMETRIC = _matrix @ _matrix.T + 4 * jnp.eye(4)
_add("cholesky", (jnp.linalg.cholesky, (SYMMETRIC,)))
_add(
    "triangular_solve",
    (lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True), (jnp.tril(SYMMETRIC), X.T)),
    (
        lambda a, b: lax.linalg.triangular_solve(a, b, left_side=False, lower=False, transpose_a=True),
        (jnp.triu(SYMMETRIC), X),
    ),
)
_add("eigh", (lambda a: jnp.linalg.eigh(a)[0], (SYMMETRIC,)))
_add(
    "svd",
    (lambda a: jnp.linalg.svd(a, compute_uv=False), (X,)),
    (lambda a: (lambda u, s, v: (u * s) @ v)(*jnp.linalg.svd(a, full_matrices=False)), (X,)),
)
_add("qr", (lambda a: (lambda q, r: q @ r)(*lax.linalg.qr(a, full_matrices=False)), (X,)))
_add(
    "lu",
    (lambda a: lax.linalg.lu(a), (_matrix,)),
    (jnp.linalg.inv, (_matrix,)),
    (jnp.linalg.slogdet, (_real(2, 3, 3),)),
)
_add(
    "lu_pivots_to_permutation",
    (lambda a: lax.linalg.lu_pivots_to_permutation(lax.linalg.lu(a)[1], 4), (_matrix,)),
)
_add("custom_linear_solve", (jnp.linalg.solve, (_matrix, X.T)))

_add("eig", (lambda a: jnp.sort(jnp.abs(jnp.linalg.eigvals(a))), (_matrix,)))
_add(
    "tridiagonal_solve",
    (lax.linalg.tridiagonal_solve, (Y[0], jnp.abs(X[0]) + 3, Y[1].at[3].set(0.0), _real(4, 2))),
    (lax.linalg.tridiagonal_solve, (Y, jnp.abs(X) + 3, X.at[:, 3].set(0.0), _real(3, 4, 2))),
)

# Of which only types can be compared
UNCERTAIN: dict[str, Sample] = {
    "empty2": (lambda x: lax.empty((3,), jnp.float32), (X,)),
    "rng_uniform": (lambda x: lax.rng_uniform(1.0, 2.0, (3,)), (X,)),
}

# What is about devices, references and tokens, and has no place in a graph of one device
ELSEWHERE = frozenset(
    [
        "all_gather",
        "all_to_all",
        "axis_index",
        "pmax",
        "pmin",
        "ppermute",
        "psum",
        "ragged_all_to_all",
        "get",
        "swap",
        "create_token",
        "after_all",
        "sharding_constraint",
    ]
)

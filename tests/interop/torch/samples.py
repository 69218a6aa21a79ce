"""For each core ATen operator, functions that call it and the tensors they are called on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Sample = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]
SAMPLES: dict[str, list[Sample]] = {}
a = torch.ops.aten


def _add(name: str, *samples: Sample) -> None:
    SAMPLES.setdefault(name, []).extend(samples)


def _with(function: Any, *rest: Any, **options: Any) -> Callable[..., Any]:
    """A function of tensors alone, which gives another one these arguments too."""
    return lambda *xs: function(*xs, *rest, **options)


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


X, Y = _random(3, 4), _random(3, 4, seed=1)
POSITIVE = X.abs() + 0.1
UNIT = torch.tanh(X) * 0.9
WHOLE = torch.tensor([[3, -2, 0, 7], [1, 5, -4, 2], [-7, 9, 8, 6]])
MASK = X > 0
IMAGE = _random(2, 3, 6, 8)
VOLUME = _random(2, 3, 4, 6, 6)

# Element by element

for _name in [
    "abs",
    "asinh",
    "atan",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "exp",
    "expm1",
    "floor",
    "neg",
    "relu",
    "round",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "tan",
    "tanh",
    "trunc",
]:
    _op = getattr(a, _name).default
    _add(_name, (_op, (X * 2,)))
for _name in ["log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sqrt"]:
    _add(_name, (getattr(a, _name).default, (POSITIVE,)))
for _name in ["acos", "asin", "atanh"]:
    _add(_name, (getattr(a, _name).default, (UNIT,)))
_add("acosh", (a.acosh, (POSITIVE + 1,)))
for _name in ["sin", "sqrt", "reciprocal", "sigmoid", "exp"]:
    _add(_name, (getattr(a, _name).default, (WHOLE.abs() + 1,)))
for _name in ["isnan", "isinf"]:
    _add(
        _name, (getattr(a, _name).default, (torch.tensor([1.0, float("nan"), float("inf"), -float("inf")]),))
    )
_add("add.Tensor", (lambda x, y: a.add.Tensor(x, y, alpha=2), (X, Y)), (a.add.Tensor, (WHOLE, X)))
_add("add.Scalar", (lambda x: a.add.Scalar(x, 2.5, 2), (WHOLE,)))
_add("sub.Tensor", (lambda x, y: a.sub.Tensor(x, y, alpha=0.5), (X, Y)))
_add("sub.Scalar", (lambda x: a.sub.Scalar(x, 3), (WHOLE,)))
_add("mul.Tensor", (a.mul.Tensor, (X, Y)), (a.mul.Tensor, (MASK, X)))
_add("mul.Scalar", (lambda x: a.mul.Scalar(x, 1.5), (WHOLE,)))
_add("div.Tensor", (a.div.Tensor, (X, POSITIVE)), (a.div.Tensor, (WHOLE, WHOLE.abs() + 1)))
_add("div.Scalar", (lambda x: a.div.Scalar(x, 4), (WHOLE,)))
for _mode in ("floor", "trunc", None):
    _add(
        "div.Tensor_mode",
        (_with(a.div.Tensor_mode, rounding_mode=_mode), (X * 5, Y)),
        (_with(a.div.Tensor_mode, rounding_mode=_mode), (WHOLE, WHOLE.flip(0) * 2 + 1)),
    )
    _add("div.Scalar_mode", (_with(a.div.Scalar_mode, -3, rounding_mode=_mode), (WHOLE,)))
_add("fmod.Tensor", (a.fmod.Tensor, (X * 5, Y)))
_add("fmod.Scalar", (lambda x: a.fmod.Scalar(x, 3), (WHOLE,)))
_add("remainder.Tensor", (a.remainder.Tensor, (X * 5, Y)))
_add("remainder.Scalar", (lambda x: a.remainder.Scalar(x, 3), (WHOLE,)))
_add("pow.Tensor_Tensor", (a.pow.Tensor_Tensor, (POSITIVE, Y)))
_add(
    "pow.Tensor_Scalar",
    (lambda x: a.pow.Tensor_Scalar(x, 3), (X,)),
    (lambda x: a.pow.Tensor_Scalar(x, 0.5), (POSITIVE,)),
    (lambda x: a.pow.Tensor_Scalar(x, 2), (WHOLE,)),
)
_add("pow.Scalar", (lambda x: a.pow.Scalar(2, x), (X,)))
_add("atan2", (a.atan2, (X, Y)))
_add("maximum", (a.maximum, (X, Y)))
_add("minimum", (a.minimum, (X, Y)))
for _name in ["bitwise_and", "bitwise_or", "bitwise_xor"]:
    _add(
        f"{_name}.Tensor",
        (getattr(a, _name).Tensor, (WHOLE, WHOLE.flip(0))),
        (getattr(a, _name).Tensor, (MASK, MASK.flip(0))),
    )
    _add(f"{_name}.Scalar", (_with(getattr(a, _name).Scalar, 5), (WHOLE,)))
_add("bitwise_not", (a.bitwise_not, (WHOLE,)), (a.bitwise_not, (MASK,)))
for _name in ["logical_and", "logical_or", "logical_xor"]:
    _add(_name, (getattr(a, _name), (MASK, MASK.flip(0))), (getattr(a, _name), (WHOLE, X)))
_add("logical_not", (a.logical_not, (WHOLE,)))
for _name in ["eq", "ne", "lt", "le", "gt", "ge"]:
    _add(
        f"{_name}.Tensor",
        (getattr(a, _name).Tensor, (WHOLE, WHOLE.flip(0))),
        (getattr(a, _name).Tensor, (WHOLE, X)),
    )
    _add(
        f"{_name}.Scalar",
        (_with(getattr(a, _name).Scalar, 2), (WHOLE,)),
        (_with(getattr(a, _name).Scalar, 0.5), (WHOLE,)),
    )
_add(
    "clamp",
    (lambda x: a.clamp(x, -0.5, 0.5), (X,)),
    (lambda x: a.clamp(x, None, 0.5), (X,)),
    (lambda x: a.clamp(x, 2), (WHOLE,)),
)
_add(
    "clamp.Tensor",
    (lambda x, y: a.clamp.Tensor(x, y), (X, Y)),
    (lambda x, y: a.clamp.Tensor(x, None, y), (X, Y)),
)
_add("where.self", (a.where.self, (MASK, X, Y)), (a.where.self, (MASK, WHOLE, Y)))
_add("elu", (a.elu, (X,)), (lambda x: a.elu(x, 1.5, 1.1, 0.7), (X,)))
_add("gelu", (a.gelu, (X,)), (lambda x: a.gelu(x, approximate="tanh"), (X,)))
_add("leaky_relu", (lambda x: a.leaky_relu(x, 0.2), (X,)))
_add("hardtanh", (lambda x: a.hardtanh(x, -0.3, 0.7), (X,)))
_add(
    "_to_copy",
    (lambda x: a._to_copy(x, dtype=torch.int32), (X * 3,)),
    (lambda x: a._to_copy(x, dtype=torch.bfloat16), (X,)),
)
_add("clone", (a.clone, (X,)))
_add("alias", (a.alias, (X,)))
_add("copy", (lambda x, y: a.copy(x, y), (X, WHOLE[0])))
_add("fill.Scalar", (lambda x: a.fill.Scalar(x, 2.5), (X,)))

# Reductions, order, products

_add(
    "sum.dim_IntList",
    (lambda x: a.sum.dim_IntList(x, [0]), (X,)),
    (lambda x: a.sum.dim_IntList(x, [0, -1], True), (MASK,)),
    (lambda x: a.sum.dim_IntList(x, None, dtype=torch.float64), (X,)),
)
_add("mean", (a.mean, (X,)))
_add(
    "mean.dim",
    (lambda x: a.mean.dim(x, [1], True), (X,)),
    (lambda x: a.mean.dim(x, None, dtype=torch.float32), (WHOLE,)),
)
_add("prod", (a.prod, (X,)), (a.prod, (WHOLE,)))
_add("prod.dim_int", (lambda x: a.prod.dim_int(x, 1, True), (X,)))
_add("amax", (lambda x: a.amax(x, [1]), (X,)), (a.amax, (WHOLE,)))
_add("amin", (lambda x: a.amin(x, [0, 1], True), (X,)))
_add("any", (a.any, (MASK,)), (a.any, (WHOLE,)))
_add("any.dim", (lambda x: a.any.dim(x, 1), (MASK,)))
_add("any.dims", (lambda x: a.any.dims(x, [0, 1]), (MASK,)))
_add("argmax", (a.argmax, (X,)), (lambda x: a.argmax(x, 1, True), (X,)))
_add("argmin", (a.argmin, (X,)), (lambda x: a.argmin(x, 0), (X,)))
_add("max.dim", (lambda x: a.max.dim(x, 1), (X,)))
_add("min.dim", (lambda x: a.min.dim(x, 0, True), (X,)))
_add("var.dim", (lambda x: a.var.dim(x, [1]), (X,)), (lambda x: a.var.dim(x, None, False), (X,)))
_add(
    "var.correction",
    (lambda x: a.var.correction(x, [1], correction=0, keepdim=True), (X,)),
    (lambda x: a.var.correction(x), (X,)),
)
_add("histc", (lambda x: a.histc(x, 5, -1.0, 2.0), (X,)), (lambda x: a.histc(x, 4), (X,)))
_add("cumsum", (lambda x: a.cumsum(x, 1), (X,)), (lambda x: a.cumsum(x, 0), (MASK,)))
_add("sort", (lambda x: a.sort(x, 1), (X,)), (lambda x: a.sort(x, 0, True), (X,)))
_add("topk", (lambda x: a.topk(x, 2), (X,)), (lambda x: a.topk(x, 2, 0, False), (X,)))
_add("_softmax", (lambda x: a._softmax(x, 1, False), (X,)))
_add("_log_softmax", (lambda x: a._log_softmax(x, 0, False), (X,)))
_add("mm", (a.mm, (X, Y.T.contiguous())))
_add("bmm", (a.bmm, (_random(2, 3, 4), _random(2, 4, 5))))
_add("addmm", (lambda b, x, y: a.addmm(b, x, y, beta=0.5, alpha=2), (_random(3), X, Y.T.contiguous())))
_add(
    "_cdist_forward",
    (lambda x, y: a._cdist_forward(x, y, 2.0, None), (X, Y)),
    (lambda x, y: a._cdist_forward(x, y, 1.0, None), (X, Y)),
)
_add("_pdist_forward", (lambda x: a._pdist_forward(x, 2.0), (X,)))
_add(
    "_fft_r2c",
    (lambda x: a._fft_r2c(x, [1], 0, True), (_random(3, 8),)),
    (lambda x: a._fft_r2c(x, [1], 1, False), (_random(3, 8),)),
)
_add("_fft_c2r", (lambda x: a._fft_c2r(x, [1], 2, 8), (torch.fft.rfft(_random(3, 8)),)))

# Making and arranging

_add(
    "arange.start_step",
    (lambda x: x + a.arange.start_step(1, 9, 2), (X,)),
    (lambda x: x + a.arange.start_step(0.0, 2.0, 0.5), (X,)),
)
_add("full", (lambda x: x + a.full([3, 4], 2.5), (X,)))
_add("full_like", (lambda x: a.full_like(x, 2.5), (X,)))
_add("scalar_tensor", (lambda x: x + a.scalar_tensor(3.0), (X,)))
_add("view", (lambda x: a.view(x, [2, -1]), (X,)))
_add("permute", (lambda x: a.permute(x, [1, 0]), (X,)))
_add("expand", (lambda x: a.expand(x, [5, -1, 4]), (X[:, :1],)))
_add("unsqueeze", (lambda x: a.unsqueeze(x, -1), (X,)))
_add("squeeze.dim", (lambda x: a.squeeze.dim(x, 0), (X[:1],)), (lambda x: a.squeeze.dim(x, 0), (X,)))
_add("squeeze.dims", (lambda x: a.squeeze.dims(x, [0, 2]), (X[None, :, None],)))
_add("select.int", (lambda x: a.select.int(x, 1, -1), (X,)))
_add(
    "slice.Tensor",
    (lambda x: a.slice.Tensor(x, 1, 1, 4, 2), (X,)),
    (lambda x: a.slice.Tensor(x, 0, -2), (X,)),
)
_add("select_scatter", (lambda x, y: a.select_scatter(x, y, 1, 2), (X, Y[:, 0])))
_add("slice_scatter", (lambda x, y: a.slice_scatter(x, y, 1, 0, 4, 2), (X, Y[:, :2])))
_add("diagonal", (a.diagonal, (X,)), (lambda x: a.diagonal(x, 1, 2, 1), (_random(2, 3, 4),)))
_add("as_strided", (lambda x: a.as_strided(x, [2, 3], [4, 1], 1), (X,)))
_add("cat", (lambda x, y: a.cat([x, y], 1), (X, Y)), (lambda x, y: a.cat([x, y]), (WHOLE, Y)))
_add("split_with_sizes", (lambda x: a.split_with_sizes(x, [1, 3], 1), (X,)))
_add("flip", (lambda x: a.flip(x, [0, 1]), (X,)))
_add("repeat", (lambda x: a.repeat(x, [2, 1, 3]), (X,)))
_add(
    "constant_pad_nd",
    (lambda x: a.constant_pad_nd(x, [1, 2, 0, 1], 7.0), (X,)),
    (lambda x: a.constant_pad_nd(x, [-1, 2]), (X,)),
)
_add("reflection_pad1d", (lambda x: a.reflection_pad1d(x, [2, 1]), (_random(2, 3, 5),)))
_add("reflection_pad2d", (lambda x: a.reflection_pad2d(x, [2, 1, 1, 0]), (IMAGE,)))
_add("reflection_pad3d", (lambda x: a.reflection_pad3d(x, [2, 1, 1, 0, 1, 1]), (VOLUME,)))
_add("replication_pad2d", (lambda x: a.replication_pad2d(x, [2, 1, 1, 0]), (IMAGE,)))
_add("replication_pad3d", (lambda x: a.replication_pad3d(x, [2, 1, 1, 0, 1, 1]), (VOLUME,)))
_add("col2im", (lambda x: a.col2im(x, [4, 5], [2, 3], [1, 1], [0, 0], [1, 1]), (_random(2, 12, 9),)))
_add("sym_size.int", (lambda x: x * a.sym_size.int(x, 1), (X,)))
_add("sym_numel", (lambda x: x * a.sym_numel(x), (X,)))
_add("sym_stride.int", (lambda x: x * a.sym_stride.int(x, 0), (X,)))
_add("sym_is_contiguous", (lambda x: x * 2 if a.sym_is_contiguous(x) else x, (X,)))
_add("sym_storage_offset", (lambda x: x + a.sym_storage_offset(x), (X,)))

# Places that tensors tell

_rows, _cols = torch.tensor([0, 2, -1]), torch.tensor([[1], [3]])
_add(
    "index.Tensor",
    (lambda x, i: a.index.Tensor(x, [i]), (X, _rows)),
    (lambda x, i, j: a.index.Tensor(x, [i, j]), (X, _rows, _cols)),
    (lambda x, i: a.index.Tensor(x, [None, i]), (X, _cols)),
    (lambda x, i, j: a.index.Tensor(x, [i, None, j]), (_random(3, 2, 4), _rows, _rows)),
)
_add(
    "index_put",
    (lambda x, i, y: a.index_put(x, [i], y), (X, torch.tensor([2, 0]), Y[:2])),
    (lambda x, i, y: a.index_put(x, [i], y, True), (X, torch.tensor([1, 1, 0]), Y)),
    (lambda x, i, y: a.index_put(x, [i], y, True), (WHOLE, torch.tensor([1, 1, 0]), WHOLE)),
    (lambda x, m: a.index_put(x, [m], torch.tensor(5.0)), (X, MASK)),
)
_add("index_select", (lambda x, i: a.index_select(x, 1, i), (X, torch.tensor([3, 0, 3]))))
_add("gather", (lambda x, i: a.gather(x, 1, i), (X, torch.tensor([[0, 3], [1, 1], [2, 0]]))))


def _scatter_reduce(x: Any, i: Any, y: Any, how: str, include_self: bool) -> Any:
    return a.scatter_reduce.two(x, 0, i, y, how, include_self=include_self)


def _bags(w: Any, i: Any, o: Any, mode: int) -> Any:
    return a._embedding_bag(w, i, o, False, mode)[0]


_places = torch.tensor([[0, 2, 1, 0], [2, 2, 0, 1]])
_add(
    "scatter.src", (lambda x, i, y: a.scatter.src(x, 0, i[:, :2], y), (X, torch.tensor([[0, 2], [1, 0]]), Y))
)
_add("scatter.value", (lambda x, i: a.scatter.value(x, 0, i, 9.0), (X, _places)))
_add("scatter_add", (lambda x, i, y: a.scatter_add(x, 0, i, y), (X, _places, Y)))
for _how in ("sum", "prod", "mean", "amax", "amin"):
    for _self in (True, False):
        _add("scatter_reduce.two", (_with(_scatter_reduce, _how, _self), (X, _places, Y)))
_add("masked_scatter", (a.masked_scatter, (X, MASK, _random(20))))
_add("embedding", (a.embedding, (_random(5, 3), torch.tensor([[0, 4], [2, 2]]))))
_add(
    "_embedding_bag",
    *[
        (_with(_bags, m), (_random(5, 3), torch.tensor([0, 4, 2, 2]), torch.tensor([0, 3])))
        for m in (0, 1, 2)
    ],
)

# Networks

_add(
    "convolution",
    (
        lambda x, w, b: a.convolution(x, w, b, [2, 1], [1, 2], [1, 2], False, [0, 0], 1),
        (IMAGE, _random(4, 3, 3, 3), _random(4)),
    ),
    (
        lambda x, w: a.convolution(x, w, None, [1], [1], [1], False, [0], 2),
        (_random(2, 4, 7), _random(6, 2, 3)),
    ),
    (
        lambda x, w, b: a.convolution(x, w, b, [2, 2], [1, 1], [1, 1], True, [1, 0], 1),
        (IMAGE, _random(3, 4, 3, 3), _random(4)),
    ),
    (
        lambda x, w: a.convolution(x, w, None, [1] * 3, [1] * 3, [1] * 3, False, [0] * 3, 1),
        (VOLUME, _random(2, 3, 3, 3, 3)),
    ),
)
_add(
    "max_pool2d_with_indices",
    (lambda x: a.max_pool2d_with_indices(x, [2, 2]), (IMAGE,)),
    (lambda x: a.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1], [1, 1], True), (IMAGE,)),
)
_add("max_pool3d_with_indices", (lambda x: a.max_pool3d_with_indices(x, [2, 2, 2]), (VOLUME,)))
_add(
    "avg_pool2d",
    (lambda x: a.avg_pool2d(x, [3, 2], [2, 2], [1, 0], True, False), (IMAGE,)),
    (lambda x: a.avg_pool2d(x, [2, 2], [], [0, 0], False, True, 3), (IMAGE,)),
)
_add("avg_pool3d", (lambda x: a.avg_pool3d(x, [2, 2, 2]), (VOLUME,)))
_add("avg_pool1d", (lambda x: a.avg_pool1d(x, [3], [2], [1]), (_random(2, 3, 8),)))
_add("adaptive_avg_pool1d", (lambda x: a.adaptive_avg_pool1d(x, [3]), (_random(2, 3, 8),)))
_add("_adaptive_avg_pool2d", (lambda x: a._adaptive_avg_pool2d(x, [4, 3]), (IMAGE,)))
_add("_adaptive_avg_pool3d", (lambda x: a._adaptive_avg_pool3d(x, [3, 2, 4]), (VOLUME,)))
_w, _b = _random(3) + 1, _random(3, seed=2)
_add(
    "_native_batch_norm_legit_no_training",
    (
        lambda x, w, b, m, v: a._native_batch_norm_legit_no_training(x, w, b, m, v, 0.1, 1e-5)[0],
        (IMAGE, _w, _b, _random(3, seed=3), _random(3, seed=4).abs() + 0.5),
    ),
)
_add(
    "_native_batch_norm_legit.no_stats",
    (lambda x, w, b: a._native_batch_norm_legit.no_stats(x, w, b, True, 0.1, 1e-5), (IMAGE, _w, _b)),
)
_add(
    "_native_batch_norm_legit",
    (
        lambda x, w, b, m, v: a._native_batch_norm_legit_functional(x, w, b, m, v, True, 0.1, 1e-5),
        (IMAGE, _w, _b, _random(3, seed=3), _random(3, seed=4).abs() + 0.5),
    ),
)
_add("native_layer_norm", (lambda x, w, b: a.native_layer_norm(x, [4], w, b, 1e-5), (X, Y[0], Y[1])))
_add(
    "native_group_norm",
    (
        lambda x, w, b: a.native_group_norm(x, w, b, 2, 4, 6, 2, 1e-5),
        (_random(2, 4, 6), _random(4), _random(4)),
    ),
)
_add("native_dropout", (lambda x: a.native_dropout(x, 0.5, False), (X,)))
_add(
    "upsample_nearest2d.vec",
    (lambda x: a.upsample_nearest2d.vec(x, None, [2.0, 1.5]), (IMAGE,)),
    (lambda x: a.upsample_nearest2d.vec(x, [9, 5], None), (IMAGE,)),
)
_add(
    "upsample_bilinear2d.vec",
    (lambda x: a.upsample_bilinear2d.vec(x, None, False, [2.0, 1.5]), (IMAGE,)),
    (lambda x: a.upsample_bilinear2d.vec(x, [9, 5], True, None), (IMAGE,)),
)
_grid = torch.tanh(_random(2, 5, 4, 2)) * 1.2
_add(
    "grid_sampler_2d",
    *[
        (_with(a.grid_sampler_2d, m, p, c), (IMAGE, _grid))
        for m, p, c in ((0, 0, False), (1, 1, True), (0, 2, True))
    ],
)

# Gradients

_add(
    "convolution_backward",
    (
        lambda g, x, w: a.convolution_backward(
            g, x, w, [4], [2, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True]
        ),
        (_random(2, 4, 3, 8), IMAGE, _random(4, 3, 3, 3)),
    ),
)
_add(
    "avg_pool2d_backward",
    (
        lambda g, x: a.avg_pool2d_backward(g, x, [2, 2], [2, 2], [0, 0], False, True, None),
        (_random(2, 3, 3, 4), IMAGE),
    ),
)
_add("_adaptive_avg_pool2d_backward", (a._adaptive_avg_pool2d_backward, (_random(2, 3, 4, 3), IMAGE)))
_add(
    "max_pool2d_with_indices_backward",
    (
        lambda g, x, i: a.max_pool2d_with_indices_backward(g, x, [3, 3], [2, 2], [1, 1], [1, 1], False, i),
        (_random(2, 3, 3, 4), IMAGE, a.max_pool2d_with_indices(IMAGE, [3, 3], [2, 2], [1, 1])[1]),
    ),
)
_add(
    "embedding_dense_backward",
    (
        lambda g, i: a.embedding_dense_backward(g, i, 5, 2, False),
        (_random(2, 2, 3), torch.tensor([[0, 4], [2, 0]])),
    ),
)
_ln = a.native_layer_norm(X, [4], Y[0], Y[1], 1e-5)
_add(
    "native_layer_norm_backward",
    (
        lambda g, x, m, r, w, b: a.native_layer_norm_backward(g, x, [4], m, r, w, b, [True, True, True]),
        (_random(3, 4, seed=5), X, _ln[1], _ln[2], Y[0], Y[1]),
    ),
)
_gn = a.native_group_norm(_random(2, 4, 6), _random(4), _random(4), 2, 4, 6, 2, 1e-5)
_add(
    "native_group_norm_backward",
    (
        lambda g, x, m, r, w: a.native_group_norm_backward(g, x, m, r, w, 2, 4, 6, 2, [True, True, True]),
        (_random(2, 4, 6, seed=5), _random(2, 4, 6), _gn[1], _gn[2], _random(4)),
    ),
)

# What a run draws or leaves open, of which only types can be compared

UNCERTAIN: dict[str, Sample] = {
    "rand": (lambda x: a.rand([3, 4]), (X,)),
    "randn": (lambda x: a.randn([3, 4]), (X,)),
    "randperm": (lambda x: a.randperm(6), (X,)),
    "empty.memory_format": (lambda x: a.empty.memory_format([3, 4]), (X,)),
    "empty_strided": (lambda x: a.empty_strided([3, 4], [4, 1]), (X,)),
    "native_dropout": (lambda x: a.native_dropout(x, 0.5, True), (X,)),
}

# What no graph of fixed shapes can hold, and what is no function
IMPOSSIBLE = ("nonzero", "atan2.out", "resize_")

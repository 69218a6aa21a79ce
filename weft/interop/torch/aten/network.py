"""ATen operators of neural networks: convolution, pooling, normalisation, attention, resizing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import weft
from weft.base.shapes import size_of
from weft.interop.forms.elements import astype, dropped
from weft.interop.forms.loops import State, product, steps_along
from weft.interop.forms.reduce import moments
from weft.interop.forms.window import of_rank
from weft.interop.rules import Rule, plain
from weft.interop.torch.calls import Call, as_tuple, aten
from weft.nn.recurrent_cells import gru_step, lstm_step, rnn_step
from weft.tensor.tensor import Tensor

# Convolution


@aten("convolution", "_convolution")
def convolution(call: Call, x: Any, weight: Any, bias: Any, *settings: Any) -> Any:
    """A convolution, or its transpose, over one to three axes."""
    stride, padding, dilation, transposed, extra, groups, *_ = map(as_tuple, settings)
    if transposed:
        function = of_rank("conv_transpose", weight.ndim - 2)
        return function(x, weight, bias, stride, padding, extra, groups, dilation)
    return of_rank("conv", weight.ndim - 2)(x, weight, bias, stride, padding, dilation, groups)


# Pooling


def _pool(name: str, rank: int, **more: Any) -> Rule:
    def rule(call: Call, x: Any, kernel: Any, stride: Any = (), *settings: Any) -> Any:
        given = [as_tuple(v) for v in (kernel, stride or kernel, *settings)]
        return of_rank(name, rank)(x, *given, **more)

    return rule


def _adaptive(name: str, rank: int, **more: Any) -> Rule:
    return lambda call, x, output_size: of_rank(f"adaptive_{name}", rank)(x, tuple(output_size), **more)


for _rank in (1, 2, 3):
    aten(f"max_pool{_rank}d_with_indices")(_pool("max_pool", _rank, return_indices=True))
    aten(f"avg_pool{_rank}d")(_pool("avg_pool", _rank))
    aten(f"adaptive_max_pool{_rank}d")(_adaptive("max_pool", _rank, return_indices=True))
    aten(f"adaptive_avg_pool{_rank}d", f"_adaptive_avg_pool{_rank}d")(_adaptive("avg_pool", _rank))

# Normalisation


def _channels(x: Any, values: Any) -> Any:
    """One value for each channel, so that it meets the axis of channels."""
    return weft.reshape(values, (1, values.shape[0], *[1] * (x.ndim - 2)))


@aten("_native_batch_norm_legit_no_training")
def batch_norm_inference(
    call: Call, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
) -> Any:
    """Normalised by running statistics."""
    empty = weft.zeros((0,), dtype=x.dtype)
    return weft.batch_norm(x, mean, variance, weight, bias, False, momentum, eps), empty, empty


@aten("_native_batch_norm_legit_functional", "native_batch_norm", "_native_batch_norm_legit")
def batch_norm(
    call: Call, x: Any, weight: Any, bias: Any, means: Any, variances: Any, training: bool, *settings: float
) -> Any:
    """Normalised by the statistics of the batch; the last two results are the new running ones."""
    momentum, eps = settings
    if not training:
        return *batch_norm_inference(call, x, weight, bias, means, variances, *settings), means, variances
    out, mean, rstd, variance = _by_batch(x, weight, bias, eps)
    if means is None:
        return out, mean, rstd
    count = weft.zeros((), dtype=x.dtype) + size_of((x.shape[0], *x.shape[2:]))
    unbiased = variance * (count / (count - 1.0))
    moved = [
        astype(old * (1.0 - momentum) + new * momentum, old.dtype)
        for old, new in ((means, mean), (variances, unbiased))
    ]
    return out, mean, rstd, *moved


def _by_batch(x: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any, Any]:
    axes = (0, *range(2, x.ndim))
    mean, variance = weft.mean(x, axis=axes), weft.var(x, axis=axes)
    rstd = weft.rsqrt(variance + eps)
    scale = rstd if weight is None else rstd * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    return x * _channels(x, scale) + _channels(x, shift), mean, rstd, variance


aten.enter(  # the native ones give the means and the reciprocal deviations, too
    {
        "native_layer_norm": lambda call, x, shape, weight, bias, eps: (
            weft.layer_norm(x, tuple(shape), weight, bias, eps),
            *moments(x, tuple(range(x.ndim - len(shape), x.ndim)), eps),
        ),
        "native_group_norm": lambda call, x, weight, bias, n, c, hw, group, eps: (
            weft.group_norm(x, group, weight, bias, eps),
            *moments(weft.reshape(x, (x.shape[0], group, -1)), 2, eps, keepdims=False),
        ),
        "_native_batch_norm_legit.no_stats": lambda call, x, weight, bias, training, momentum, eps: _by_batch(
            x, weight, bias, eps
        )[:3],
        "layer_norm": lambda call, x, shape, weight=None, bias=None, eps=1e-5, cudnn=False: weft.layer_norm(
            x, tuple(shape), weight, bias, eps
        ),
        "rms_norm": lambda call, x, shape, weight=None, eps=None: weft.rms_norm(x, tuple(shape), weight, eps),
        "group_norm": lambda call, x, groups, weight=None, bias=None, eps=1e-5, cudnn=False: weft.group_norm(
            x, groups, weight, bias, eps
        ),
    }
)

# Attention and dropout


aten.enter(
    {
        "native_dropout": lambda call, x, p, train: (
            dropped(x, p) if train is not False and p else (x, weft.ones(x.shape, dtype=weft.bool))
        ),
        "scaled_dot_product_attention": plain(weft.scaled_dot_product_attention),
        "dropout": plain(weft.dropout),
        "feature_dropout": lambda call, x, p, train: weft.dropout2d(x, p, train) if train else x,
    }
)

# Resizing


def _resized(mode: str) -> Rule:
    def rule(call: Call, x: Any, output_size: Any, *rest: Any) -> Any:
        align = bool(rest[0]) if rest and isinstance(rest[0], bool) else False
        factors = next((r for r in rest if isinstance(r, list | tuple)), None)
        smooth = {} if mode == "nearest" else {"align_corners": align}
        if output_size is not None:
            return weft.interpolate(x, size=tuple(output_size), mode=mode, **smooth)
        return weft.interpolate(x, scale_factor=tuple(factors or ()), mode=mode, **smooth)

    return rule


for _name in ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "trilinear3d", "bicubic2d"):
    aten(f"upsample_{_name}", f"upsample_{_name}.vec")(_resized(_name[:-2]))


_BETWEEN, _OUTSIDE = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
aten("grid_sampler_2d", "grid_sampler_3d", "grid_sampler")(
    lambda call, x, grid, between, outside, align_corners: weft.grid_sample(
        x, grid, _BETWEEN[between], _OUTSIDE[outside], align_corners
    )
)


# Recurrent networks: layers of loops along time, forwards or both ways

Cell = Callable[[Tensor, State, Callable[[Tensor], Any]], State]


def _layers(
    cell: Cell, x: Any, states: Sequence[Any], weights: Any, biased: bool, count: int, both: bool
) -> Any:
    """Layers of cells on (time, batch, features): the outputs of the last, and the last states of all."""
    ways, each = (2 if both else 1), (4 if biased else 2)
    last = []
    for layer in range(count):
        outputs = []
        for way in range(ways):
            place = layer * ways + way
            to_gates, from_state, *biases = weights[place * each : (place + 1) * each]
            bias_in, bias_state = biases or (None, None)
            step = partial(_step, cell, product(from_state, bias_state))
            state, ys = steps_along(
                step, tuple(s[place] for s in states), weft.linear(x, to_gates, bias_in), backwards=way == 1
            )
            last.append(tuple(state))
            outputs.append(ys)
        x = weft.concat(outputs, axis=-1) if both else outputs[0]
    return (x, *[weft.stack(list(column), axis=0) for column in zip(*last, strict=True)])


def _step(cell: Cell, again: Callable[[Tensor], Any], x: Tensor, state: State) -> State:
    return cell(x, state, again)


def _recurrent(cell: Cell) -> Rule:
    def rule(call: Call, x: Any, states: Any, weights: Any, biased: bool, count: int, *settings: Any) -> Any:
        dropout, train, both, batch_first = settings
        if dropout and train:
            hint = "export the model after .eval()"
            raise call.error("must have no dropout between layers in training", hint)
        swapped = batch_first and x.ndim == 3
        given = states if isinstance(states, list) else [states]
        out, *last = _layers(
            cell, weft.swapaxes(x, 0, 1) if swapped else x, given, weights, biased, count, both
        )
        return (weft.swapaxes(out, 0, 1) if swapped else out, *last)

    return rule


def _alone(step: Callable[[Any, Any, Any], Any]) -> Cell:
    """A cell whose state is one tensor."""
    return lambda x, state, again: (step(x, state[0], again),)


aten.enter(
    {
        "lstm.input": _recurrent(lstm_step),
        "gru.input": _recurrent(_alone(gru_step)),
        "rnn_tanh.input": _recurrent(_alone(partial(rnn_step, nonlinearity="tanh"))),
        "rnn_relu.input": _recurrent(_alone(partial(rnn_step, nonlinearity="relu"))),
    }
)

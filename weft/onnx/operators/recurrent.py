"""Recurrent layers: RNN, GRU and LSTM, as one loop along time for each direction.

What x adds to all steps is one product before the loop. Sequences that are shorter than others keep their
state once they have ended, and give zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import weft
from weft import Tensor
from weft.interop.forms.loops import State, Step, product, steps_along
from weft.onnx.operators.registry import Call, all_inputs, operator

Activation = Callable[[Any], Any]
Layer = tuple[Callable[[Tensor], Any], Step]

# Activations, with the defaults of their settings alpha and beta

_ACTIVATIONS: dict[str, tuple[tuple[float, ...], Callable[..., Any]]] = {
    "relu": ((), weft.relu),
    "tanh": ((), weft.tanh),
    "sigmoid": ((), weft.sigmoid),
    "softsign": ((), weft.softsign),
    "softplus": ((), weft.softplus),
    "leakyrelu": ((0.01,), lambda x, a: weft.leaky_relu(x, a)),
    "thresholdedrelu": ((1.0,), lambda x, a: weft.where(x >= a, x, 0.0)),
    "elu": ((1.0,), lambda x, a: weft.elu(x, a)),
    "affine": ((1.0, 0.0), lambda x, a, b: x * a + b),
    "scaledtanh": ((1.0, 1.0), lambda x, a, b: weft.tanh(x * b) * a),
    "hardsigmoid": ((0.2, 0.5), lambda x, a, b: weft.clip(x * a + b, 0.0, 1.0)),
}


def _activations(call: Call, defaults: Sequence[str], directions: int) -> list[list[Activation]]:
    """For each direction its activations; those of gates clip what they are given, if asked."""
    names = call.attribute("activations", tuple(defaults) * directions)
    given = [iter(call.attribute(f"activation_{name}", ())) for name in ("alpha", "beta")]
    count, gates = len(defaults), 2  # a third one is of the cell
    all_of_them = [_activation(call, name, given, i % count < gates) for i, name in enumerate(names)]
    return [all_of_them[d * count : (d + 1) * count] for d in range(directions)]


def _activation(call: Call, name: str, given: list[Iterator[float]], clipped: bool) -> Activation:
    if name.lower() not in _ACTIVATIONS:
        raise call.error(f"activations must be among {', '.join(_ACTIVATIONS)}, got {name!r}")
    defaults, function = _ACTIVATIONS[name.lower()]
    settings = [next(values, default) for values, default in zip(given, defaults, strict=False)]
    limit = call.attribute("clip", 0.0) if clipped else 0.0
    if not limit:
        return lambda x: function(x, *settings)
    return lambda x: function(weft.clip(x, -limit, limit), *settings)


# The loop


def _recur(
    call: Call,
    x: Tensor,
    lengths: Tensor | None,
    starts: Sequence[Tensor | None],
    hidden: int,
    steps: Sequence[Layer],
) -> tuple[Tensor, ...]:
    """The outputs of all steps, and the last states; ``steps`` has what x adds and the step, by direction."""
    batch_first = bool(call.attribute("layout", 0))
    if batch_first:
        x = weft.swapaxes(x, 0, 1)
        starts = [None if s is None else weft.swapaxes(s, 0, 1) for s in starts]
    mask = None if lengths is None else (weft.arange(x.shape[0])[:, None] < lengths)[:, :, None]
    outs, lasts = [], []
    ways = {
        "forward": (False,),
        "reverse": (True,),
        "bidirectional": (False, True),
    }  # backwards?
    way = ways[call.attribute("direction", "forward")]
    for d, (backwards, (from_x, step)) in enumerate(zip(way, steps, strict=True)):
        zeros = weft.zeros((x.shape[1], hidden), dtype=x.dtype)
        state = tuple(zeros if s is None else s[d] for s in starts)
        last, out = steps_along(step, state, from_x(x), backwards=backwards, mask=mask)
        outs.append(out)
        lasts.append(last)
    states = [weft.stack(parts, axis=1 if batch_first else 0) for parts in zip(*lasts, strict=True)]
    stacked = weft.stack(outs, axis=1)  # time, direction, batch, hidden
    return weft.permute_dims(stacked, (2, 0, 1, 3)) if batch_first else stacked, *states


# The networks: for each direction what x adds, and the step


class Weights(NamedTuple):
    """What one direction has for x and the state, and for the looks of gates at the cell."""

    x: Tensor
    state: Tensor
    bias_x: Tensor | None
    bias_state: Tensor | None
    looks: Sequence[Tensor] | None

    def from_x(self, *, summed: bool) -> Callable[[Tensor], Any]:
        """What x adds to all steps; with both biases if what the state adds is not changed before."""
        if self.bias_x is None or self.bias_state is None or not summed:
            return product(self.x, self.bias_x)
        return product(self.x, self.bias_x + self.bias_state)


@operator("RNN", "GRU", "LSTM")
def recurrent(call: Call, *given: Any) -> tuple[Tensor, ...]:
    """A layer of a recurrent network."""
    x, w, r, b, lengths, h, c, peepholes = all_inputs(given, 8)
    defaults, layer = _LAYERS[call.op]
    rows, steps = w.shape[1], []
    for d, activations in enumerate(_activations(call, defaults, r.shape[0])):
        bias_x, bias_state = (None, None) if b is None else (b[d, :rows], b[d, rows:])
        looks = None if peepholes is None else weft.chunk(peepholes[d], 3)
        steps.append(layer(call, Weights(w[d], r[d], bias_x, bias_state, looks), *activations))
    return _recur(call, x, lengths, [h, c] if call.op == "LSTM" else [h], r.shape[-1], steps)


def _rnn(call: Call, weights: Weights, f: Activation) -> Layer:
    """A simple network."""
    return weights.from_x(summed=True), lambda x, state: (f(x + weft.linear(state[0], weights.state)),)


def _gru(call: Call, weights: Weights, f: Activation, g: Activation) -> Layer:
    """Gated recurrent units; the gates are update, reset, hidden."""
    reset_after = bool(call.attribute("linear_before_reset", 0))
    hidden = weights.state.shape[-1]
    from_h = product(weights.state, weights.bias_state)
    gates, own = weights.state[: 2 * hidden], weights.state[2 * hidden :]

    def step(x: Tensor, state: State) -> State:
        (h,) = state
        xz, xr, xn = weft.chunk(x, 3, axis=-1)
        if reset_after:
            hz, hr, hn = weft.chunk(from_h(h), 3, axis=-1)
            new = g(xn + f(xr + hr) * hn)
        else:
            hz, hr = weft.chunk(weft.linear(h, gates), 2, axis=-1)
            new = g(xn + weft.linear(f(xr + hr) * h, own))
        return (new + f(xz + hz) * (h - new),)

    return weights.from_x(summed=not reset_after), step


def _lstm(call: Call, weights: Weights, f: Activation, g: Activation, at_end: Activation) -> Layer:
    """Long short-term memory; the gates are input, output, forget, cell."""
    coupled, looks = bool(call.attribute("input_forget", 0)), weights.looks

    def step(x: Tensor, state: State) -> State:
        h, c = state
        i, o, forget, cell = weft.chunk(x + weft.linear(h, weights.state), 4, axis=-1)
        if looks is not None:
            i, forget = i + looks[0] * c, forget + looks[2] * c
        entering = f(i)
        kept = 1 - entering if coupled else f(forget)
        c = kept * c + entering * g(cell)
        if looks is not None:
            o = o + looks[1] * c
        return f(o) * at_end(c), c

    return weights.from_x(summed=True), step


_LAYERS: dict[str, tuple[tuple[str, ...], Callable[..., Layer]]] = {
    "RNN": (("Tanh",), _rnn),
    "GRU": (("Sigmoid", "Tanh"), _gru),
    "LSTM": (("Sigmoid", "Tanh", "Tanh"), _lstm),
}

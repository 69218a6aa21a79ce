"""Recurrent layers: RNN, GRU and LSTM, as one loop along time for each direction.

What x adds to all steps is one product before the loop. Sequences that are shorter than others keep their
state once they have ended, and give zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import weft
from weft import Tensor
from weft.onnx.operators.registry import Call, operator

Activation = Callable[[Any], Any]
State = tuple[Tensor, ...]
Step = Callable[
    [Tensor, State], State
]  # from what x adds and the state to the next state; its first is the output

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


def _directions(call: Call) -> tuple[bool, ...]:
    """For each direction whether it goes backwards."""
    directions = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    return directions[call.attribute("direction", "forward")]


def _recur(
    call: Call,
    x: Tensor,
    lengths: Tensor | None,
    starts: Sequence[Tensor | None],
    hidden: int,
    steps: Sequence[tuple[Callable[[Tensor], Tensor], Step]],
) -> tuple[Tensor, ...]:
    """The outputs of all steps, and the last states; ``steps`` has what x adds and the step, by direction."""
    batch_first = bool(call.attribute("layout", 0))
    if batch_first:
        x = weft.swapaxes(x, 0, 1)
        starts = [None if s is None else weft.swapaxes(s, 0, 1) for s in starts]
    mask = None if lengths is None else (weft.arange(x.shape[0])[:, None] < lengths)[:, :, None]
    outs, lasts = [], []
    for d, (backwards, (from_x, step)) in enumerate(zip(_directions(call), steps, strict=True)):
        zeros = weft.zeros((x.shape[1], hidden), dtype=x.dtype)
        state = tuple(zeros if s is None else s[d] for s in starts)
        last, out = _loop(step, state, from_x(x), mask, backwards)
        outs.append(out)
        lasts.append(last)
    states = [weft.stack(parts, axis=1 if batch_first else 0) for parts in zip(*lasts, strict=True)]
    stacked = weft.stack(outs, axis=1)  # time, direction, batch, hidden
    return weft.permute_dims(stacked, (2, 0, 1, 3)) if batch_first else stacked, *states


def _loop(step: Step, state: State, xs: Tensor, mask: Tensor | None, backwards: bool) -> tuple[State, Tensor]:
    if mask is None:

        def body(state: State, x: Tensor) -> tuple[State, Tensor]:
            state = step(x, state)
            return state, state[0]

        return weft.scan(body, state, xs, reverse=backwards)

    def masked(state: State, row: tuple[Tensor, Tensor]) -> tuple[State, Tensor]:
        x, inside = row
        new = tuple(weft.where(inside, n, o) for n, o in zip(step(x, state), state, strict=True))
        return new, weft.where(inside, new[0], 0.0)

    return weft.scan(masked, state, (xs, mask), reverse=backwards)


def _bias(b: Tensor | None, d: int, rows: int) -> tuple[Tensor | None, Tensor | None]:
    """The biases of one direction: what is added to the products of x, and of the state."""
    return (None, None) if b is None else (b[d, :rows], b[d, rows:])


def _added(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return None if a is None or b is None else a + b


def _product(w: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    return lambda x: weft.linear(x, w, bias)


# The networks


@operator("RNN")
def rnn(
    call: Call,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """A layer of a simple recurrent network."""
    hidden, directions = r.shape[-1], r.shape[0]
    steps = []
    for d, (f,) in enumerate(_activations(call, ("Tanh",), directions)):
        bias = _added(*_bias(b, d, hidden))
        steps.append((_product(w[d], bias), _rnn_step(r[d], f)))
    return _recur(call, x, lengths, [h], hidden, steps)


def _rnn_step(r: Tensor, f: Activation) -> Step:
    return lambda x, state: (f(x + weft.linear(state[0], r)),)


@operator("GRU")
def gru(
    call: Call,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """A layer of gated recurrent units; the gates are update, reset, hidden."""
    hidden, directions = r.shape[-1], r.shape[0]
    reset_after = bool(call.attribute("linear_before_reset", 0))
    steps = []
    for d, (f, g) in enumerate(_activations(call, ("Sigmoid", "Tanh"), directions)):
        bias_x, bias_h = _bias(b, d, 3 * hidden)
        if reset_after:
            steps.append((_product(w[d], bias_x), _gru_step(_product(r[d], bias_h), f, g)))
        else:
            product = _product(w[d], _added(bias_x, bias_h))
            steps.append((product, _gru_step_reset_first(r[d], f, g, hidden)))
    return _recur(call, x, lengths, [h], hidden, steps)


def _gru_step(from_h: Callable[[Tensor], Tensor], f: Activation, g: Activation) -> Step:
    def step(x: Tensor, state: State) -> State:
        (h,) = state
        xz, xr, xn = weft.chunk(x, 3, axis=-1)
        hz, hr, hn = weft.chunk(from_h(h), 3, axis=-1)
        new = g(xn + f(xr + hr) * hn)
        return (new + f(xz + hz) * (h - new),)

    return step


def _gru_step_reset_first(r: Tensor, f: Activation, g: Activation, hidden: int) -> Step:
    gates, own = r[: 2 * hidden], r[2 * hidden :]

    def step(x: Tensor, state: State) -> State:
        (h,) = state
        xz, xr, xn = weft.chunk(x, 3, axis=-1)
        hz, hr = weft.chunk(weft.linear(h, gates), 2, axis=-1)
        new = g(xn + weft.linear(f(xr + hr) * h, own))
        return (new + f(xz + hz) * (h - new),)

    return step


@operator("LSTM")
def lstm(
    call: Call,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
    c: Tensor | None = None,
    peepholes: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """A layer of long short-term memory; the gates are input, output, forget, cell."""
    hidden, directions = r.shape[-1], r.shape[0]
    coupled, steps = bool(call.attribute("input_forget", 0)), []
    for d, activations in enumerate(_activations(call, ("Sigmoid", "Tanh", "Tanh"), directions)):
        bias = _added(*_bias(b, d, 4 * hidden))
        looks = None if peepholes is None else weft.chunk(peepholes[d], 3)
        steps.append((_product(w[d], bias), _lstm_step(r[d], activations, looks, coupled)))
    return _recur(call, x, lengths, [h, c], hidden, steps)


def _lstm_step(r: Tensor, activations: list[Activation], looks: Any, coupled: bool) -> Step:
    f, g, at_end = activations

    def step(x: Tensor, state: State) -> State:
        h, c = state
        i, o, forget, cell = weft.chunk(x + weft.linear(h, r), 4, axis=-1)
        if looks is not None:
            i, forget = i + looks[0] * c, forget + looks[2] * c
        entering = f(i)
        kept = 1 - entering if coupled else f(forget)
        c = kept * c + entering * g(cell)
        if looks is not None:
            o = o + looks[1] * c
        return f(o) * at_end(c), c

    return step

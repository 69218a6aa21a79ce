"""ATen operators of recurrent networks: a scan along time, so that its length may be open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft
from weft.interop.torch.calls import Call, aten


def _layers(weights: Sequence[Any], has_biases: bool, count: int) -> list[list[Any]]:
    per = 4 if has_biases else 2
    return [[*weights[i * per : (i + 1) * per], *[None] * (4 - per)] for i in range(count)]


def _lstm_cell(gates: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
    i, f, g, o = weft.chunk(gates[0] + gates[1], 4, axis=-1)
    c = weft.sigmoid(f) * state[1] + weft.sigmoid(i) * weft.tanh(g)
    return weft.sigmoid(o) * weft.tanh(c), c


def _gru_cell(gates: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
    (r1, z1, n1), (r2, z2, n2) = (weft.chunk(g, 3, axis=-1) for g in gates)
    r, z = weft.sigmoid(r1 + r2), weft.sigmoid(z1 + z2)
    return (((1.0 - z) * weft.tanh(n1 + r * n2) + z * state[0]),)


def _rnn_cell(activation: Any) -> Any:
    return lambda gates, state: (activation(gates[0] + gates[1]),)


def _recurrent(
    cell: Any,
    x: Any,
    states: Sequence[Any],
    weights: Any,
    has_biases: bool,
    layers: int,
    both: bool,
    first: bool,
) -> tuple[Any, ...]:
    """Layers of cells along time, forwards or both ways; gives the outputs and the last states."""
    seen = weft.swapaxes(x, 0, 1) if first and x.ndim == 3 else x
    ways = 2 if both else 1
    table = _layers(weights, has_biases, layers * ways)
    last: list[tuple[Any, ...]] = []
    for layer in range(layers):
        outputs = []
        for way in range(ways):
            place = layer * ways + way
            initial = tuple(s[place] for s in states)
            state, ys = _along(cell, seen, initial, table[place], backwards=way == 1)
            last.append(state)
            outputs.append(ys)
        seen = outputs[0] if ways == 1 else weft.concat(outputs, axis=-1)
    out = weft.swapaxes(seen, 0, 1) if first and x.ndim == 3 else seen
    return (out, *[weft.stack(list(column), axis=0) for column in zip(*last, strict=True)])


def _along(
    cell: Any, xs: Any, initial: tuple[Any, ...], weights: Sequence[Any], *, backwards: bool
) -> tuple[tuple[Any, ...], Any]:
    to_gates, from_state, bias_in, bias_state = weights
    inputs = weft.linear(xs, to_gates, bias_in)

    def step(state: tuple[Any, ...], row: Any) -> Any:
        new = cell((row, weft.linear(state[0], from_state, bias_state)), state)
        return new, new[0]

    state, ys = weft.scan(step, initial, inputs, reverse=backwards)
    return tuple(state), ys


@aten("lstm.input")
def lstm(
    call: Call,
    x: Any,
    states: Any,
    weights: Any,
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    both: bool,
    batch_first: bool,
) -> Any:
    """Long short-term memory."""
    _check_dropout(call, dropout, train)
    return _recurrent(_lstm_cell, x, states, weights, has_biases, layers, both, batch_first)


def _single_state(cell: Any) -> Any:
    def rule(
        call: Call,
        x: Any,
        state: Any,
        weights: Any,
        has_biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        both: bool,
        batch_first: bool,
    ) -> Any:
        _check_dropout(call, dropout, train)
        return _recurrent(cell, x, [state], weights, has_biases, layers, both, batch_first)

    return rule


def _check_dropout(call: Call, dropout: float, train: bool) -> None:
    if dropout and train:
        raise call.error("must have no dropout between layers in training", "export the model after .eval()")


aten("gru.input")(_single_state(_gru_cell))
aten("rnn_tanh.input")(_single_state(_rnn_cell(weft.tanh)))
aten("rnn_relu.input")(_single_state(_rnn_cell(weft.relu)))

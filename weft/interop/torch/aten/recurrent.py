"""ATen operators of recurrent networks: layers of loops along time, forwards or both ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import weft
from weft.interop.forms.recurrent import State, product, steps_along
from weft.interop.rules import Rule
from weft.interop.torch.calls import Call, aten
from weft.nn.recurrent_cells import gru_step, lstm_step, rnn_step
from weft.tensor.tensor import Tensor

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
                step,
                tuple(s[place] for s in states),
                weft.linear(x, to_gates, bias_in),
                backwards=way == 1,
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

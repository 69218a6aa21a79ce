"""Recurrent networks: cells that take one step, and layers that take all steps of a sequence.

Weights are stacked by gate: (gates * hidden, input) and (gates * hidden, hidden). The gates of an LSTM are
input, forget, cell, output; those of a GRU reset, update, new.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import weft
from weft.errors import DomainError, ShapeError
from weft.nn import init
from weft.nn.module import Module
from weft.nn.parameter import Parameter


def _rnn_step(x: Any, h: Any, from_x: Any, from_h: Any, function: Callable[[Any], Any]) -> Any:
    return function(from_x(x) + from_h(h))


def _gru_step(x: Any, h: Any, from_x: Any, from_h: Any) -> Any:
    xr, xz, xn = weft.chunk(from_x(x), 3, axis=-1)
    hr, hz, hn = weft.chunk(from_h(h), 3, axis=-1)
    reset, update = weft.sigmoid(xr + hr), weft.sigmoid(xz + hz)
    new = weft.tanh(xn + reset * hn)
    return new + update * (h - new)


def _lstm_step(x: Any, state: Any, from_x: Any, from_h: Any) -> Any:
    h, c = state
    i, f, g, o = weft.chunk(from_x(x) + from_h(h), 4, axis=-1)
    c = weft.sigmoid(f) * c + weft.sigmoid(i) * weft.tanh(g)
    return weft.sigmoid(o) * weft.tanh(c), c


def _nonlinearity(op: str, name: str) -> Callable[[Any], Any]:
    if name not in ("tanh", "relu"):
        raise DomainError(op, f"nonlinearity must be 'tanh' or 'relu', got {name!r}")
    found: Callable[[Any], Any] = weft.tanh if name == "tanh" else weft.relu
    return found


class _Recurrent(Module):
    """What cells and layers share: their sizes, and how their weights are made and start."""

    gates = 1
    has_cell = False
    hidden_size: int

    def _add_weights(self, suffix: str, inputs: int, bias: bool, dtype: Any) -> None:
        rows = self.gates * self.hidden_size
        setattr(self, f"weight_ih{suffix}", Parameter(weft.empty((rows, inputs), dtype=dtype)))
        setattr(self, f"weight_hh{suffix}", Parameter(weft.empty((rows, self.hidden_size), dtype=dtype)))
        for name in (f"bias_ih{suffix}", f"bias_hh{suffix}"):
            self.register_parameter(name, Parameter(weft.empty(rows, dtype=dtype)) if bias else None)

    def reset_parameters(self) -> None:
        """Start again: uniform in ±1/sqrt(hidden_size)."""
        bound = 1 / sqrt(self.hidden_size) if self.hidden_size > 0 else 0.0
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def _step(self, x: Any, state: Any, suffix: str) -> Any:
        """The next state."""

        def from_x(x: Any) -> Any:
            return weft.linear(x, getattr(self, f"weight_ih{suffix}"), getattr(self, f"bias_ih{suffix}"))

        def from_h(h: Any) -> Any:
            return weft.linear(h, getattr(self, f"weight_hh{suffix}"), getattr(self, f"bias_hh{suffix}"))

        return self._next(x, state, from_x, from_h)

    def _next(self, x: Any, state: Any, from_x: Any, from_h: Any) -> Any:
        raise NotImplementedError  # each kind of network says it

    def _zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        zeros = weft.zeros(shape, dtype=dtype)
        return (zeros, zeros) if self.has_cell else zeros


class _Cell(_Recurrent):
    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, dtype: Any = None) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self._add_weights("", input_size, bias, dtype)
        self.reset_parameters()

    def forward(self, x: Any, state: Any = None) -> Any:
        """The next state, of x (N, input) or (input,) and a state of that form, zeros by default."""
        if x.ndim not in (1, 2):
            raise ShapeError(type(self).__name__, f"x must have 1 or 2 axes, got shape {x.shape}")
        if state is None:
            state = self._zeros((*x.shape[:-1], self.hidden_size), x.dtype)
        return self._step(x, state, "")

    def extra_repr(self) -> str:
        """Its sizes."""
        return f"{self.input_size}, {self.hidden_size}"


class RNNCell(_Cell):
    """One step of a simple recurrent network: ``tanh(W x + b + U h + c)``.

    >>> import weft
    >>> weft.nn.RNNCell(3, 4)(weft.ones((2, 3))).shape
    (2, 4)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, dtype)
        self.nonlinearity = nonlinearity
        _nonlinearity("RNNCell", nonlinearity)

    def _next(self, x: Any, state: Any, from_x: Any, from_h: Any) -> Any:
        return _rnn_step(x, state, from_x, from_h, _nonlinearity("RNNCell", self.nonlinearity))


class GRUCell(_Cell):
    """One step of a gated recurrent unit.

    >>> import weft
    >>> weft.nn.GRUCell(3, 4)(weft.ones((2, 3))).shape
    (2, 4)
    """

    gates = 3

    def _next(self, x: Any, state: Any, from_x: Any, from_h: Any) -> Any:
        return _gru_step(x, state, from_x, from_h)


class LSTMCell(_Cell):
    """One step of a long short-term memory; its state is a pair (h, c).

    >>> import weft
    >>> h, c = weft.nn.LSTMCell(3, 4)(weft.ones((2, 3)))
    >>> h.shape, c.shape
    ((2, 4), (2, 4))
    """

    gates = 4
    has_cell = True

    def _next(self, x: Any, state: Any, from_x: Any, from_h: Any) -> Any:
        return _lstm_step(x, state, from_x, from_h)


class _Layers(_Recurrent):
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.batch_first = batch_first
        self.dropout = dropout
        self.bidirectional = bidirectional
        ways = ("", "_reverse") if bidirectional else ("",)
        self._suffixes = tuple(tuple(f"_l{layer}{way}" for way in ways) for layer in range(num_layers))
        for suffixes in self._suffixes:
            for suffix in suffixes:
                self._add_weights(suffix, input_size, bias, dtype)
            input_size = hidden_size * len(ways)
        self.reset_parameters()

    def forward(self, x: Any, state: Any = None) -> tuple[Any, Any]:
        """The outputs of the last layer at every step, and the last states of all layers.

        Args:
            x: (L, N, input), or (N, L, input) with ``batch_first``, or (L, input) without a batch.
            state: (layers * directions, N, hidden), zeros by default; a pair of these for an LSTM.
        """
        if x.ndim not in (2, 3):
            raise ShapeError(type(self).__name__, f"x must have 2 or 3 axes, got shape {x.shape}")
        batched = x.ndim == 3
        steps = x.swapaxes(0, 1) if batched and self.batch_first else x
        if state is None:
            rows = self.num_layers * len(self._suffixes[0])
            state = self._zeros((rows, *steps.shape[1:-1], self.hidden_size), x.dtype)
        lasts: list[Any] = []
        for suffixes in self._suffixes:
            if lasts and self.dropout:
                steps = weft.dropout(steps, self.dropout, self.training)
            outs = []
            for suffix in suffixes:
                row = len(lasts)
                first = (state[0][row], state[1][row]) if self.has_cell else state[row]
                out, last = self._run(steps, first, suffix, suffix.endswith("_reverse"))
                outs.append(out)
                lasts.append(last)
            steps = outs[0] if len(outs) == 1 else weft.concat(outs, axis=-1)
        if self.has_cell:
            final: Any = (weft.stack([h for h, _ in lasts]), weft.stack([c for _, c in lasts]))
        else:
            final = weft.stack(lasts)
        return steps.swapaxes(0, 1) if batched and self.batch_first else steps, final

    def _run(self, x: Any, state: Any, suffix: str, backwards: bool) -> tuple[Any, Any]:
        """All steps of one layer in one direction: the outputs stacked, and the last state."""
        outs = []
        for t in range(x.shape[0]):
            state = self._step(x[x.shape[0] - 1 - t if backwards else t], state, suffix)
            outs.append(state[0] if self.has_cell else state)
        return weft.stack(outs[::-1] if backwards else outs), state

    def extra_repr(self) -> str:
        """Its sizes."""
        layers = "" if self.num_layers == 1 else f", num_layers={self.num_layers}"
        return f"{self.input_size}, {self.hidden_size}{layers}"


class RNN(_Layers):
    """Layers of a simple recurrent network over a sequence.

    >>> import weft
    >>> outs, last = weft.nn.RNN(3, 4)(weft.ones((5, 2, 3)))
    >>> outs.shape, last.shape
    ((5, 2, 4), (1, 2, 4))
    """

    def __init__(self, *args: Any, nonlinearity: str = "tanh", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.nonlinearity = nonlinearity
        _nonlinearity("RNN", nonlinearity)

    def _next(self, x: Any, state: Any, from_x: Any, from_h: Any) -> Any:
        return _rnn_step(x, state, from_x, from_h, _nonlinearity("RNN", self.nonlinearity))


class GRU(_Layers):
    """Layers of gated recurrent units over a sequence.

    >>> import weft
    >>> outs, last = weft.nn.GRU(3, 4, num_layers=2, bidirectional=True)(weft.ones((5, 2, 3)))
    >>> outs.shape, last.shape
    ((5, 2, 8), (4, 2, 4))
    """

    gates = 3

    def _next(self, x: Any, state: Any, from_x: Any, from_h: Any) -> Any:
        return _gru_step(x, state, from_x, from_h)


class LSTM(_Layers):
    """Layers of long short-term memory over a sequence; its state is a pair (h, c).

    >>> import weft
    >>> outs, (h, c) = weft.nn.LSTM(3, 4, batch_first=True)(weft.ones((2, 5, 3)))
    >>> outs.shape, h.shape, c.shape
    ((2, 5, 4), (1, 2, 4), (1, 2, 4))
    """

    gates = 4
    has_cell = True

    def _next(self, x: Any, state: Any, from_x: Any, from_h: Any) -> Any:
        return _lstm_step(x, state, from_x, from_h)

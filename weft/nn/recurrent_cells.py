"""Recurrent cells, which take one step of a sequence, and what they share with layers.

Weights are stacked by gate: (gates * hidden, input) and (gates * hidden, hidden). The gates of an LSTM are
input, forget, cell, output; those of a GRU reset, update, new.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import weft
from weft import Tensor
from weft.base.device import DeviceLike
from weft.base.dtypes import DTypeLike
from weft.errors import DomainError, ShapeError
from weft.nn import init
from weft.nn.module import Module
from weft.nn.parameter import new_parameter


def rnn_step(from_x: Tensor, h: Tensor, from_h: Callable[[Any], Any], nonlinearity: str) -> Tensor:
    """The next state of a simple network: x has been multiplied by its weight, h is yet to be."""
    summed = from_x + from_h(h)
    return weft.tanh(summed) if nonlinearity == "tanh" else weft.relu(summed)


def gru_step(from_x: Tensor, h: Tensor, from_h: Callable[[Any], Any]) -> Tensor:
    """The next state of gated recurrent units."""
    xr, xz, xn = weft.chunk(from_x, 3, axis=-1)
    hr, hz, hn = weft.chunk(from_h(h), 3, axis=-1)
    reset, update = weft.sigmoid(xr + hr), weft.sigmoid(xz + hz)
    new = weft.tanh(xn + reset * hn)
    return new + update * (h - new)


def lstm_step(from_x: Tensor, state: Any, from_h: Callable[[Any], Any]) -> tuple[Tensor, Tensor]:
    """The next state (h, c) of a long short-term memory."""
    h, c = state
    i, f, g, o = weft.chunk(from_x + from_h(h), 4, axis=-1)
    c = weft.sigmoid(f) * c + weft.sigmoid(i) * weft.tanh(g)
    return weft.sigmoid(o) * weft.tanh(c), c


def check_nonlinearity(op: str, name: str) -> None:
    """Raise unless a simple network can have this nonlinearity."""
    if name not in ("tanh", "relu"):
        raise DomainError(op, f"nonlinearity must be 'tanh' or 'relu', got {name!r}")


class Recurrent(Module):
    """What cells and layers share: their sizes, and how their weights are made and start."""

    gates = 1
    has_cell = False
    input_size: int
    hidden_size: int

    def _add_weights(
        self,
        suffix: str,
        inputs: int,
        outputs: int,
        bias: bool,
        device: DeviceLike | None,
        dtype: DTypeLike | None,
    ) -> None:
        rows = self.gates * self.hidden_size
        setattr(self, f"weight_ih{suffix}", new_parameter((rows, inputs), device, dtype))
        setattr(self, f"weight_hh{suffix}", new_parameter((rows, outputs), device, dtype))
        for name in (f"bias_ih{suffix}", f"bias_hh{suffix}"):
            self.register_parameter(name, new_parameter(rows, device, dtype, bias))

    def reset_parameters(self) -> None:
        """Start again: uniform in ±1/sqrt(hidden_size)."""
        bound = 1 / sqrt(self.hidden_size) if self.hidden_size > 0 else 0.0
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def _check_input(self, x: Tensor, ranks: tuple[int, int]) -> None:
        if x.ndim not in ranks:
            allowed = " or ".join(str(r) for r in ranks)
            raise ShapeError(type(self).__name__, f"x must have {allowed} axes, got shape {x.shape}")
        if x.shape[-1] != self.input_size:
            got = f"shape {x.shape}"
            raise ShapeError(type(self).__name__, f"the last axis of x must be {self.input_size}, got {got}")

    def _from_x(self, x: Tensor, suffix: str) -> Tensor:
        """x times its weight, of all steps at once."""
        return weft.linear(x, getattr(self, f"weight_ih{suffix}"), getattr(self, f"bias_ih{suffix}"))

    def _from_h(self, suffix: str) -> Callable[[Any], Any]:
        """The function that multiplies a state by its weight."""
        weight, bias = getattr(self, f"weight_hh{suffix}"), getattr(self, f"bias_hh{suffix}")
        return lambda h: weft.linear(h, weight, bias)

    def _next(self, from_x: Tensor, state: Any, from_h: Callable[[Any], Any]) -> Any:
        raise NotImplementedError  # each kind of network says it


class _Cell(Recurrent):
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        self._add_weights("", input_size, hidden_size, bias, device, dtype)
        self.reset_parameters()

    def forward(self, x: Tensor, state: Any = None) -> Any:
        """The next state, of x (N, input) or (input,) and a state of that form, zeros by default."""
        self._check_input(x, (1, 2))
        if state is None:
            zeros = weft.zeros((*x.shape[:-1], self.hidden_size), dtype=x.dtype, device=x.device)
            state = (zeros, zeros) if self.has_cell else zeros
        return self._next(self._from_x(x, ""), state, self._from_h(""))

    def extra_repr(self) -> str:
        """Its sizes."""
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(_Cell):
    """One step of a simple recurrent network: ``tanh(W x + b + U h + c)``.

    Args:
        input_size: features of x.
        hidden_size: features of the state.
        bias: whether there are b and c.
        nonlinearity: "tanh" or "relu".
        device: of the parameters.
        dtype: of the parameters.

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
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, device, dtype)
        check_nonlinearity("RNNCell", nonlinearity)
        self.nonlinearity = nonlinearity

    def _next(self, from_x: Tensor, state: Any, from_h: Callable[[Any], Any]) -> Tensor:
        return rnn_step(from_x, state, from_h, self.nonlinearity)


class GRUCell(_Cell):
    """One step of a gated recurrent unit.

    >>> import weft
    >>> weft.nn.GRUCell(3, 4)(weft.ones((2, 3))).shape
    (2, 4)
    """

    gates = 3

    def _next(self, from_x: Tensor, state: Any, from_h: Callable[[Any], Any]) -> Tensor:
        return gru_step(from_x, state, from_h)


class LSTMCell(_Cell):
    """One step of a long short-term memory; its state is a pair (h, c).

    >>> import weft
    >>> h, c = weft.nn.LSTMCell(3, 4)(weft.ones((2, 3)))
    >>> h.shape, c.shape
    ((2, 4), (2, 4))
    """

    gates = 4
    has_cell = True

    def _next(self, from_x: Tensor, state: Any, from_h: Callable[[Any], Any]) -> Any:
        return lstm_step(from_x, state, from_h)

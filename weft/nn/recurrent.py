"""Recurrent layers, which take all steps of a sequence; the steps themselves are in ``recurrent_cells``.

What x adds to all steps is one product, made before the first; only the state waits for the step before. In a
graph the steps are one loop, whatever their number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft import Tensor
from weft.base.device import DeviceLike
from weft.base.dtypes import DTypeLike
from weft.errors import DomainError, ShapeError
from weft.nn.parameter import new_parameter
from weft.nn.recurrent_cells import Recurrent, check_nonlinearity, gru_step, lstm_step, rnn_step
from weft.nn.utils.rnn import PackedSequence


class _Layers(Recurrent):
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if hidden_size < 1 or num_layers < 1:
            got = f"{hidden_size} and {num_layers}"
            raise DomainError(name, f"hidden_size and num_layers must be positive, got {got}")
        if not 0 <= dropout <= 1:
            raise DomainError(name, f"dropout must be in 0..1, got {dropout}")
        if not 0 <= proj_size < hidden_size:
            raise DomainError(name, f"proj_size must be less than hidden_size, got {proj_size}")
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = dropout
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        ways = ("", "_reverse") if bidirectional else ("",)
        self._suffixes = tuple(tuple(f"_l{layer}{way}" for way in ways) for layer in range(num_layers))
        outputs = proj_size or hidden_size
        for suffixes in self._suffixes:
            for suffix in suffixes:
                self._add_weights(suffix, input_size, outputs, bias, device, dtype)
                if proj_size:
                    projection = new_parameter((proj_size, hidden_size), device, dtype)
                    setattr(self, f"weight_hr{suffix}", projection)
            input_size = outputs * len(ways)
        self.reset_parameters()

    def forward(self, x: Tensor, state: Any = None) -> Any:
        """The outputs of the last layer at every step, and the last states of all layers.

        Args:
            x: (L, N, input), or (N, L, input) with ``batch_first``, or (L, input) without a batch, or a
                ``PackedSequence``; the outputs have the same form.
            state: (layers * directions, N, hidden), zeros by default; a pair of these for an LSTM.
        """
        packed = x if isinstance(x, PackedSequence) else None
        steps = x.padded if isinstance(x, PackedSequence) else x
        self._check_input(steps, (2, 3))
        turned = packed is None and steps.ndim == 3 and self.batch_first
        if turned:
            steps = steps.swapaxes(0, 1)
        state = self._start(steps) if state is None else self._checked(state, steps)
        mask = None if packed is None else packed.mask.unsqueeze(2)
        steps, last = self._through(steps, state, mask)
        if packed is not None:
            steps = weft.where(mask, steps, 0.0)  # type: ignore[arg-type]
            return PackedSequence(steps, packed.lengths, packed.is_sorted), last
        return steps.swapaxes(0, 1) if turned else steps, last

    def _sizes(self, steps: Any) -> list[tuple[int, ...]]:
        """The shapes of the states: of h, and of c if there is one."""
        rows = (self.num_layers * len(self._suffixes[0]), *steps.shape[1:-1])
        own = (*rows, self.proj_size or self.hidden_size)
        return [own, (*rows, self.hidden_size)] if self.has_cell else [own]

    def _start(self, steps: Any) -> Any:
        zeros = tuple(weft.zeros(size, dtype=steps.dtype, device=steps.device) for size in self._sizes(steps))
        return zeros if self.has_cell else zeros[0]

    def _checked(self, state: Any, steps: Any) -> Any:
        given = tuple(state) if self.has_cell else (state,)
        shapes = [tuple(s.shape) for s in given]
        if shapes != self._sizes(steps):
            wanted = " and ".join(map(str, self._sizes(steps)))
            got = " and ".join(map(str, shapes))
            raise ShapeError(type(self).__name__, f"the state must have the shape {wanted}, got {got}")
        return state

    def _through(self, steps: Any, state: Any, mask: Tensor | None) -> Any:
        """All layers: the outputs of the last, and the last states of all."""
        lasts: list[Any] = []
        for suffixes in self._suffixes:
            if lasts and self.dropout:
                steps = weft.dropout(steps, self.dropout, self.training)
            outs = []
            for suffix in suffixes:
                row = len(lasts)
                first = (state[0][row], state[1][row]) if self.has_cell else state[row]
                out, last = self._run(steps, first, suffix, mask)
                outs.append(out)
                lasts.append(last)
            steps = outs[0] if len(outs) == 1 else weft.concat(outs, axis=-1)
        if self.has_cell:
            return steps, (weft.stack([h for h, _ in lasts]), weft.stack([c for _, c in lasts]))
        return steps, weft.stack(lasts)

    def _run(self, x: Tensor, state: Any, suffix: str, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """All steps of one layer in one direction: the outputs stacked, and the last state."""
        given, from_h = self._from_x(x, suffix), self._from_h(suffix)
        backwards, length = suffix.endswith("_reverse"), x.shape[0]
        outs = []
        for t in range(length):
            at = length - 1 - t if backwards else t
            new = self._projected(self._next(given[at], state, from_h), suffix)
            if mask is not None:
                new = self._kept(mask[at], new, state)
            state = new
            outs.append(state[0] if self.has_cell else state)
        return weft.stack(outs[::-1] if backwards else outs), state

    def _projected(self, state: Any, suffix: str) -> Any:
        if not self.proj_size:
            return state
        return weft.linear(state[0], getattr(self, f"weight_hr{suffix}")), state[1]

    def _kept(self, inside: Any, new: Any, old: Any) -> Any:
        """The new state of sequences that have this step, the old one of those that do not."""
        if self.has_cell:
            return weft.where(inside, new[0], old[0]), weft.where(inside, new[1], old[1])
        return weft.where(inside, new, old)

    def extra_repr(self) -> str:
        """Its sizes, and settings that are not the default."""
        parts = [f"{self.input_size}, {self.hidden_size}"]
        defaults = {
            "proj_size": 0,
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0.0,
            "bidirectional": False,
        }
        parts += [f"{n}={getattr(self, n)}" for n, d in defaults.items() if getattr(self, n) != d]
        return ", ".join(parts)


class RNN(_Layers):
    """Layers of a simple recurrent network over a sequence.

    Args:
        input_size: features of x.
        hidden_size: features of the state.
        num_layers: each on the outputs of the one before.
        nonlinearity: "tanh" or "relu".
        bias: whether there are biases.
        batch_first: whether x is (N, L, input) rather than (L, N, input).
        dropout: probability between layers, in training.
        bidirectional: whether each layer also runs from the end, its outputs beside the others.
        device: of the parameters.
        dtype: of the parameters.

    >>> import weft
    >>> outs, last = weft.nn.RNN(3, 4)(weft.ones((5, 2, 3)))
    >>> outs.shape, last.shape
    ((5, 2, 4), (1, 2, 4))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        check_nonlinearity("RNN", nonlinearity)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )
        self.nonlinearity = nonlinearity

    def _next(self, from_x: Tensor, state: Any, from_h: Callable[[Any], Any]) -> Tensor:
        return rnn_step(from_x, state, from_h, self.nonlinearity)


class GRU(_Layers):
    """Layers of gated recurrent units over a sequence.

    Args:
        input_size: features of x.
        hidden_size: features of the state.
        num_layers: each on the outputs of the one before.
        bias: whether there are biases.
        batch_first: whether x is (N, L, input) rather than (L, N, input).
        dropout: probability between layers, in training.
        bidirectional: whether each layer also runs from the end, its outputs beside the others.
        device: of the parameters.
        dtype: of the parameters.

    >>> import weft
    >>> outs, last = weft.nn.GRU(3, 4, num_layers=2, bidirectional=True)(weft.ones((5, 2, 3)))
    >>> outs.shape, last.shape
    ((5, 2, 8), (4, 2, 4))
    """

    gates = 3

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )

    def _next(self, from_x: Tensor, state: Any, from_h: Callable[[Any], Any]) -> Tensor:
        return gru_step(from_x, state, from_h)


class LSTM(_Layers):
    """Layers of long short-term memory over a sequence; its state is a pair (h, c).

    Args:
        input_size: features of x.
        hidden_size: features of the cell.
        num_layers: each on the outputs of the one before.
        bias: whether there are biases.
        batch_first: whether x is (N, L, input) rather than (L, N, input).
        dropout: probability between layers, in training.
        bidirectional: whether each layer also runs from the end, its outputs beside the others.
        proj_size: features of h, if it is projected to fewer than the cell has.
        device: of the parameters.
        dtype: of the parameters.

    >>> import weft
    >>> outs, (h, c) = weft.nn.LSTM(3, 4, batch_first=True)(weft.ones((2, 5, 3)))
    >>> outs.shape, h.shape, c.shape
    ((2, 5, 4), (1, 2, 4), (1, 2, 4))
    """

    gates = 4
    has_cell = True

    def _next(self, from_x: Tensor, state: Any, from_h: Callable[[Any], Any]) -> Any:
        return lstm_step(from_x, state, from_h)

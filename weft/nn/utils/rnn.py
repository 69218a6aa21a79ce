"""Sequences of different lengths for recurrent layers: padded to one length, or packed.

A packed batch keeps its padded tensor and the lengths; layers leave out the steps beyond each length. The
flat form that other programs know, all first steps, then all second ones, is made when it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.capture.runtime.modules import is_capturing
from weft.errors import DomainError, ShapeError
from weft.ops.op import Array


@dataclass(frozen=True)
class PackedSequence:
    """Sequences of different lengths, as ``pack_padded_sequence`` makes them.

    Attributes:
        padded: all steps, (T, N, *), T the longest length.
        lengths: of the sequences, (N,).
        is_sorted: whether the longest come first.

    >>> import weft
    >>> from weft.nn.utils.rnn import pack_sequence
    >>> packed = pack_sequence([weft.tensor([1.0, 2.0, 3.0]), weft.tensor([10.0])])
    >>> packed.data, packed.batch_sizes
    (tensor([ 1., 10.,  2.,  3.]), tensor([2, 1, 1]))
    """

    padded: Any
    lengths: Any
    is_sorted: bool = True

    @property
    def mask(self) -> Any:
        """Which steps are in each sequence, (T, N)."""
        return weft.arange(self.padded.shape[0]).unsqueeze(1) < self.lengths

    @property
    def batch_sizes(self) -> Any:
        """How many sequences have a step, for each step."""
        return self.mask.sum(axis=1)

    @property
    def sorted_indices(self) -> Any:
        """The numbers of the sequences, the longest first; None if they are in this order."""
        return None if self.is_sorted else weft.argsort(-self.lengths, stable=True)

    @property
    def unsorted_indices(self) -> Any:
        """Where in that order each sequence is; None if they are in this order."""
        return None if self.is_sorted else weft.argsort(self.sorted_indices)

    @property
    def data(self) -> Any:
        """All steps without padding: the first of all sequences, the longest first, then the second ones."""
        steps, count = self.padded.shape[:2]
        return self.padded.reshape((steps * count, *self.padded.shape[2:]))[self._places()]

    def with_data(self, data: Any) -> PackedSequence:
        """The same lengths with other steps, in the order of ``data``.

        >>> import weft
        >>> from weft.nn.utils.rnn import pack_sequence
        >>> packed = pack_sequence([weft.tensor([1.0, 2.0]), weft.tensor([10.0])])
        >>> packed.with_data(packed.data * 2.0).padded
        tensor([[ 2., 20.],
                [ 4.,  0.]])
        """
        places = self._places()
        if data.shape[0] != len(places):
            raise ShapeError("with_data", f"there must be {len(places)} steps, got {data.shape[0]}")
        steps, count = self.padded.shape[:2]
        numbers = np.full(steps * count, len(places))
        numbers[places] = np.arange(len(places))
        zero = weft.zeros((1, *data.shape[1:]), dtype=data.dtype, device=data.device)
        padded = weft.concat([data, zero])[weft.tensor(numbers)].reshape((steps, count, *data.shape[1:]))
        return PackedSequence(padded, self.lengths, self.is_sorted)

    def _places(self) -> Array:
        """Where in the flattened padded tensor each step of ``data`` is."""
        lengths = np.asarray(self.lengths.tolist())
        order = np.argsort(-lengths, kind="stable")
        count = len(lengths)
        return np.concatenate(
            [t * count + order[lengths[order] > t] for t in range(self.padded.shape[0])]
        ).astype(np.int64)


def pack_padded_sequence(
    input: Any, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Sequences that are padded to one length, as a packed batch.

    Args:
        input: (T, N, *), or (N, T, *) with ``batch_first``.
        lengths: of the sequences, a tensor or a list.
        batch_first: the order of the axes.
        enforce_sorted: raise unless the longest sequences come first.

    >>> import weft
    >>> from weft import nn
    >>> from weft.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
    >>> packed = pack_padded_sequence(weft.randn(2, 5, 3), [5, 2], batch_first=True)
    >>> out, last = nn.GRU(3, 4)(packed)
    >>> padded, lengths = pad_packed_sequence(out, batch_first=True)
    >>> padded.shape, lengths, last.shape
    ((2, 5, 4), tensor([5, 2]), (1, 2, 4))
    """
    lengths = weft.as_tensor(lengths)
    padded = input.swapaxes(0, 1) if batch_first else input
    if lengths.shape != padded.shape[1:2]:
        got = f"{lengths.shape} for {padded.shape[1]} sequences"
        raise ShapeError("pack_padded_sequence", f"there must be one length for each sequence, got {got}")
    if not is_capturing():  # their values are not known there
        _check_lengths(lengths.tolist(), padded.shape[0], enforce_sorted)
    return PackedSequence(padded[: int(lengths.max())], lengths, enforce_sorted)


def _check_lengths(lengths: list[int], steps: int, enforce_sorted: bool) -> None:
    op = "pack_padded_sequence"
    if min(lengths) < 1 or max(lengths) > steps:
        raise DomainError(op, f"lengths must be in 1..{steps}, got {lengths}")
    if enforce_sorted and sorted(lengths, reverse=True) != lengths:
        hint = "pass enforce_sorted=False"
        raise DomainError(op, f"the longest sequences must come first, got lengths {lengths}", hint=hint)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The padded tensor of a packed batch, and the lengths.

    Args:
        sequence: the packed batch.
        batch_first: give (N, T, *) rather than (T, N, *).
        padding_value: what comes after the end of each sequence.
        total_length: pad to this length rather than to that of the longest.

    >>> import weft
    >>> from weft.nn.utils.rnn import pack_sequence, pad_packed_sequence
    >>> packed = pack_sequence([weft.tensor([1.0, 2.0]), weft.tensor([10.0])])
    >>> pad_packed_sequence(packed, batch_first=True, padding_value=-1.0)
    (tensor([[ 1.,  2.],
            [10., -1.]]), tensor([2, 1]))
    """
    padded = sequence.padded
    rest = (1,) * (padded.ndim - 2)
    padded = weft.where(sequence.mask.reshape((*padded.shape[:2], *rest)), padded, padding_value)
    if total_length is not None:
        missing = total_length - padded.shape[0]
        if missing < 0:
            needed = f"total_length must be at least {padded.shape[0]}"
            raise DomainError("pad_packed_sequence", f"{needed}, got {total_length}")
        padded = weft.pad(padded, ((0, missing), *((0, 0),) * (padded.ndim - 1)), value=padding_value)
    return padded.swapaxes(0, 1) if batch_first else padded, sequence.lengths


def pad_sequence(
    sequences: Sequence[Any],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Tensors of different lengths in one, (T, N, *) or (N, T, *), T the longest length.

    >>> import weft
    >>> from weft.nn.utils.rnn import pad_sequence
    >>> pad_sequence([weft.tensor([1.0, 2.0]), weft.tensor([10.0])], batch_first=True)
    tensor([[ 1.,  2.],
            [10.,  0.]])
    """
    if padding_side not in ("left", "right"):
        raise DomainError("pad_sequence", f"padding_side must be 'left' or 'right', got {padding_side!r}")
    if not sequences:
        raise ShapeError("pad_sequence", "there must be at least one sequence, got none")
    longest = max(s.shape[0] for s in sequences)
    rows = []
    for s in sequences:
        sides = (0, longest - s.shape[0]) if padding_side == "right" else (longest - s.shape[0], 0)
        rows.append(weft.pad(s, (sides, *((0, 0),) * (s.ndim - 1)), value=padding_value))
    return weft.stack(rows, axis=0 if batch_first else 1)


def unpad_sequence(padded_sequences: Any, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """The tensors of different lengths that one was padded from.

    >>> import weft
    >>> from weft.nn.utils.rnn import unpad_sequence
    >>> unpad_sequence(weft.tensor([[1.0, 2.0], [10.0, 0.0]]), weft.tensor([2, 1]), batch_first=True)
    [tensor([1., 2.]), tensor([10.])]
    """
    rows = padded_sequences if batch_first else padded_sequences.swapaxes(0, 1)
    return [row[: int(n)] for row, n in zip(rows, weft.as_tensor(lengths), strict=True)]


def pack_sequence(sequences: Sequence[Any], enforce_sorted: bool = True) -> PackedSequence:
    """Tensors of different lengths as a packed batch.

    >>> import weft
    >>> from weft.nn.utils.rnn import pack_sequence
    >>> pack_sequence([weft.ones((3, 4)), weft.ones((1, 4))]).data.shape
    (4, 4)
    """
    lengths = weft.tensor([s.shape[0] for s in sequences])
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The tensors of different lengths that are in a packed batch.

    >>> import weft
    >>> from weft.nn.utils.rnn import pack_sequence, unpack_sequence
    >>> unpack_sequence(pack_sequence([weft.tensor([1.0, 2.0]), weft.tensor([10.0])]))
    [tensor([1., 2.]), tensor([10.])]
    """
    return unpad_sequence(*pad_packed_sequence(packed_sequences, batch_first=True), batch_first=True)

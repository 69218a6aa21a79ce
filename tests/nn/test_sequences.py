"""Sequences of different lengths: packed, padded, and through recurrent layers as if each were alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft import nn
from weft.nn.utils.rnn import (
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
    unpack_sequence,
    unpad_sequence,
)


def rows(lengths: list[int], features: int = 2) -> list[Any]:
    rng = np.random.default_rng(sum(lengths))
    return [weft.tensor(rng.normal(size=(n, features))) for n in lengths]


def same(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-12)


LENGTHS = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@settings(max_examples=30, deadline=None)
@given(LENGTHS)
def test_packing_is_undone(lengths: list[int]) -> None:
    sequences = rows(lengths)
    packed = pack_sequence(sequences, enforce_sorted=False)
    for a, b in zip(unpack_sequence(packed), sequences, strict=True):
        same(a, b)
    same(packed.with_data(packed.data).padded, packed.padded)
    assert packed.data.shape[0] == sum(lengths)


@settings(max_examples=30, deadline=None)
@given(LENGTHS)
def test_flat_form_is_step_after_step_with_the_longest_first(lengths: list[int]) -> None:
    sequences = rows(lengths)
    packed = pack_sequence(sequences, enforce_sorted=False)
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    expected = [sequences[i][t].numpy() for t in range(max(lengths)) for i in order if lengths[i] > t]
    np.testing.assert_array_equal(packed.data.numpy(), np.stack(expected))
    assert packed.batch_sizes.tolist() == [sum(n > t for n in lengths) for t in range(max(lengths))]
    assert packed.sorted_indices.tolist() == order
    assert [packed.sorted_indices.tolist()[i] for i in packed.unsorted_indices.tolist()] == list(
        range(len(lengths))
    )


@settings(max_examples=12, deadline=None)
@given(LENGTHS, st.sampled_from(["RNN", "GRU", "LSTM"]), st.booleans())
def test_packed_sequences_run_as_if_each_were_alone(lengths: list[int], kind: str, both: bool) -> None:
    layer = getattr(nn, kind)(2, 3, num_layers=2, bidirectional=both, dtype=weft.float64)
    sequences = rows(lengths)
    out, last = layer(pack_sequence(sequences, enforce_sorted=False))
    for i, (own, x) in enumerate(zip(unpack_sequence(out), sequences, strict=True)):
        alone, alone_last = layer(x)
        same(own, alone)
        for a, b in zip(weft.tree_leaves(last), weft.tree_leaves(alone_last), strict=True):
            same(a[:, i], b)


def test_gradients_of_packed_sequences_leave_padding_out() -> None:
    layer = nn.GRU(2, 3, bidirectional=True)
    x = weft.randn(4, 2, 2).requires_grad_()
    out, _ = layer(pack_padded_sequence(x, [4, 2]))
    pad_packed_sequence(out)[0].sum().backward()
    assert (x.grad[2:, 1] == 0).all()
    assert (x.grad[:2, 1] != 0).all()


def test_states_go_in_and_out_in_the_order_of_the_batch() -> None:
    layer = nn.LSTM(2, 3, dtype=weft.float64)
    sequences = rows([1, 3, 2])
    start = (weft.randn(1, 3, 3, dtype=weft.float64), weft.randn(1, 3, 3, dtype=weft.float64))
    _, (h, c) = layer(pack_sequence(sequences, enforce_sorted=False), start)
    for i, x in enumerate(sequences):
        _, (own_h, own_c) = layer(x, (start[0][:, i], start[1][:, i]))
        same(h[:, i], own_h)
        same(c[:, i], own_c)


def test_padding() -> None:
    padded = pad_sequence([weft.tensor([1, 2, 3]), weft.tensor([4])], padding_value=-1)
    assert padded.tolist() == [[1, 4], [2, -1], [3, -1]]
    left = pad_sequence([weft.tensor([1, 2]), weft.tensor([4])], batch_first=True, padding_side="left")
    assert left.tolist() == [[1, 2], [0, 4]]
    assert [x.tolist() for x in unpad_sequence(padded, [3, 1])] == [[1, 2, 3], [4]]
    packed = pack_padded_sequence(weft.arange(8.0).reshape(4, 2), weft.tensor([3, 1]))
    assert packed.padded.shape == (3, 2)
    whole, lengths = pad_packed_sequence(packed, total_length=5, padding_value=9.0)
    assert whole[:, 1].tolist() == [1.0, 9.0, 9.0, 9.0, 9.0]
    assert lengths.tolist() == [3, 1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: pack_padded_sequence(weft.ones((3, 2)), [1, 3]),
            "the longest sequences must come first, got lengths [1, 3]",
        ),
        (lambda: pack_padded_sequence(weft.ones((3, 2)), [4, 1]), "lengths must be in 1..3, got [4, 1]"),
        (lambda: pack_padded_sequence(weft.ones((3, 2)), [2, 0]), "lengths must be in 1..3, got [2, 0]"),
        (
            lambda: pack_padded_sequence(weft.ones((3, 2)), [2]),
            "one length for each sequence, got (1,) for 2",
        ),
        (lambda: pad_packed_sequence(pack_sequence(rows([3])), total_length=2), "must be at least 3, got 2"),
        (lambda: pad_sequence([]), "at least one sequence"),
        (lambda: pad_sequence(rows([1]), padding_side="top"), "padding_side must be 'left' or 'right'"),
        (lambda: pack_sequence(rows([3])).with_data(weft.ones((2, 2))), "there must be 3 steps, got 2"),
        (lambda: nn.LSTM(2, 3)(weft.ones((4, 5))), "the last axis of x must be 2, got shape (4, 5)"),
        (
            lambda: nn.GRU(2, 3)(weft.ones((4, 1, 2)), weft.ones((2, 1, 3))),
            "the state must have the shape (1, 1, 3)",
        ),
        (lambda: nn.GRU(2, 3, dropout=1.5), "dropout must be in 0..1, got 1.5"),
        (lambda: nn.LSTM(2, 3, proj_size=3), "proj_size must be less than hidden_size, got 3"),
        (lambda: nn.RNN(2, 0), "hidden_size and num_layers must be positive, got 0 and 1"),
    ],
)
def test_wrong_sequences_are_named(make: Any, message: str) -> None:
    with pytest.raises(weft.errors.WeftError) as error:
        make()
    assert message in str(error.value)


def test_compiled_layer_takes_packed_sequences_of_other_lengths_with_one_graph() -> None:
    layer = nn.GRU(2, 3)
    compiled = weft.compile(lambda x, n: layer(pack_padded_sequence(x, n))[1], backend="interpret")
    x = weft.randn(4, 3, 2)
    for lengths in ([4, 3, 1], [4, 4, 2], [4, 1, 1]):
        n = weft.tensor(lengths)
        expected = layer(pack_padded_sequence(x, n))[1]
        np.testing.assert_allclose(compiled(x, n).detach().numpy(), expected.detach().numpy(), atol=1e-6)
    assert len(compiled.versions) == 1


def test_dropout_between_layers_is_for_training() -> None:
    layer = nn.LSTM(2, 8, 2, dropout=0.5)
    x = weft.randn(3, 1, 2)
    a, b = layer(x)[0], layer(x)[0]
    assert not weft.allclose(a, b)
    layer.eval()
    assert weft.allclose(layer(x)[0], layer(x)[0])

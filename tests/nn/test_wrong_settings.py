"""What layers say to settings and inputs that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft
from weft import nn

WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: nn.Conv1d(4, 4, 3, padding_mode="mirror"), "padding_mode must be one of zeros, reflect"),
    (lambda: nn.ConvTranspose1d(4, 4, 3, padding_mode="reflect"), "padding_mode must be one of"),
    (
        lambda: nn.ConvTranspose2d(1, 1, 3, stride=2)(weft.ones((1, 1, 4, 4)), output_size=[13, 9]),
        "output_size must be in (9, 9)..(10, 10), got (13, 9)",
    ),
    (lambda: nn.GroupNorm(3, 4), "num_channels must be divisible by num_groups, got 4 and 3"),
    (lambda: nn.InstanceNorm2d(3)(weft.ones((2, 3))), "x must have 3 or 4 axes, got shape (2, 3)"),
    (lambda: nn.BatchNorm3d(3)(weft.ones((2, 3))), "x must have 5 axes, got shape (2, 3)"),
    (lambda: nn.Embedding(4, 2, padding_idx=4), "padding_idx must be in -4..3, got 4"),
    (lambda: nn.Embedding.from_pretrained(weft.ones(3)), "must have two axes, got shape (3,)"),
    (lambda: nn.EmbeddingBag(4, 2, mode="median"), "mode must be 'mean', 'sum' or 'max', got 'median'"),
    (lambda: nn.EmbeddingBag(4, 2)(weft.tensor([1])), "indices must be (bags, length) without offsets"),
    (
        lambda: nn.EmbeddingBag(4, 2)(weft.tensor([[1]]), weft.tensor([0])),
        "indices must be (all,) with offsets, got i64[1,1]",
    ),
    (
        lambda: nn.EmbeddingBag(4, 2)(weft.tensor([[1]]), None, weft.ones((1, 1))),
        "mode must be 'sum' with per_sample_weights, got 'mean'",
    ),
    (
        lambda: nn.EmbeddingBag(4, 2, mode="sum")(weft.tensor([[1]]), None, weft.ones(3)),
        "per_sample_weights must be of the shape of indices, got f32[3] for i64[1,1]",
    ),
    (lambda: nn.Hardtanh(1.0, 1.0), "min_val must be below max_val, got 1.0 and 1.0"),
    (lambda: nn.ZeroPad2d((1, 2)), "padding must be a number or 4 numbers, got (1, 2)"),
    (lambda: nn.ZeroPad2d(1)(weft.ones(3)), "x must have at least 2 axes, got 1"),
    (lambda: nn.MSELoss(reduction="median"), "reduction must be one of none, mean, sum, got 'median'"),
    (lambda: nn.CrossEntropyLoss(label_smoothing=2.0), "label_smoothing must be in 0..1, got 2.0"),
    (
        lambda: nn.functional.ctc_loss(weft.ones(3), weft.tensor([1]), [1], [1]),
        "log_probs must have 2 or 3 axes, got shape (3,)",
    ),
    (
        lambda: nn.functional.ctc_loss(weft.ones((3, 2)), weft.tensor([1]), [3], [1], blank=2),
        "blank must be a class, got 2 of 2",
    ),
    (
        lambda: nn.functional.ctc_loss(weft.ones((3, 2, 2)), weft.tensor([[1]]), [3], [1]),
        "all arguments must have as many sequences, got 2, 1, 1 and 1",
    ),
    (
        lambda: weft.max_unpool1d(weft.ones((1, 2)), weft.zeros((1, 2)), 2),
        "indices must be integers, got float32",
    ),
    (
        lambda: weft.max_unpool1d(weft.ones((1, 2)), weft.zeros((1, 3), dtype=weft.int64), 2),
        "indices must have the shape of x, got i64[1,3] for f32[1,2]",
    ),
    (
        lambda: weft.max_unpool1d(
            weft.ones((1, 2)), weft.zeros((1, 2), dtype=weft.int64), 2, output_size=(9,)
        ),
        "output_size must be within a stride of (4,), got (9,)",
    ),
    (lambda: weft.rrelu(weft.ones(2), 0.5, 0.1), "lower must not be above upper, got 0.5 and 0.1"),
    (lambda: weft.feature_alpha_dropout(weft.ones(2)), "the tensor must have channels, got f32[2]"),
    (lambda: weft.pdist(weft.ones(2)), "needs (N, M), got f32[2]"),
    (
        lambda: weft.multilabel_margin_loss(weft.ones((2, 3)), weft.zeros((2, 2), dtype=weft.int64)),
        "needs (N, C) twice, got f32[2,3] and i64[2,2]",
    ),
]


@pytest.mark.parametrize(("make", "message"), WRONG, ids=range(len(WRONG)))
def test_wrong_settings_are_named(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(weft.errors.WeftError) as error:
        make()
    assert message in str(error.value)


def test_pretrained_rows_are_frozen_unless_asked_otherwise() -> None:
    rows = weft.randn(5, 3)
    assert not nn.Embedding.from_pretrained(rows).weight.requires_grad
    assert nn.EmbeddingBag.from_pretrained(rows, freeze=False, mode="max").weight.requires_grad
    assert (nn.Embedding.from_pretrained(rows, padding_idx=1).weight == rows).all()


def test_empty_bag_is_zero_in_every_mode() -> None:
    for mode in ("mean", "sum", "max"):
        bags = nn.EmbeddingBag(4, 2, mode=mode)(weft.tensor([1, 2]), weft.tensor([0, 0, 2]))
        assert (bags[0] == 0).all()
        assert (bags[2] == 0).all()
        assert (bags[1] != 0).all()

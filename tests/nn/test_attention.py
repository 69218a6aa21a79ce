"""Attention: masks together, and decoding token by token with a cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import nn


def same(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), atol=2e-6)


def decoder(**settings: Any) -> Any:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, **settings)
    return nn.TransformerEncoder(layer, 2).eval()


@pytest.mark.parametrize("need_weights", [True, False])
def test_causal_and_padding_hold_together(need_weights: bool) -> None:
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    x = weft.randn(2, 4, 8)
    padding = weft.tensor([[False, True, False, False], [False, False, False, False]])
    future = weft.ones((4, 4), dtype=weft.bool).triu(1)
    settings = {"key_padding_mask": padding, "need_weights": need_weights}
    causal, weights = layer(x, x, x, is_causal=True, **settings)
    masked, _ = layer(x, x, x, attn_mask=future, **settings)
    same(causal, masked)
    if need_weights:
        assert (weights[0, :, 1] == 0).all()
        assert (weights[:, 0, 1:] == 0).all()


@pytest.mark.parametrize("need_weights", [True, False])
def test_query_that_may_look_at_nothing_gets_zeros_and_finite_gradients(need_weights: bool) -> None:
    layer = nn.MultiheadAttention(4, 1, batch_first=True, bias=False)
    x = weft.randn(2, 3, 4).requires_grad_()
    padding = weft.tensor([[True, True, True], [False, False, True]])
    out, _ = layer(x, x, x, key_padding_mask=padding, need_weights=need_weights)
    assert (out[0] == 0).all()
    out.sum().backward()
    assert weft.isfinite(x.grad).all()


@pytest.mark.parametrize("sizes", [[1] * 6, [4, 1, 1], [2, 3, 1]])
@pytest.mark.parametrize("norm_first", [False, True])
def test_decoding_with_a_cache_is_causal_attention(sizes: list[int], norm_first: bool) -> None:
    model = decoder(norm_first=norm_first)
    x = weft.randn(3, 6, 8)
    cache = model.make_cache(3, 9)
    parts = [model(part, cache=cache) for part in weft.split(x, sizes, axis=1)]
    same(weft.concat(parts, axis=1), model(x, is_causal=True))
    assert [c.length.item() for c in cache] == [6, 6]


def test_compiled_decoding_is_one_graph_for_all_tokens() -> None:
    model = decoder()
    x = weft.randn(1, 5, 8)
    cache = model.make_cache(1, 5)
    step = weft.compile(lambda token: model(token, cache=cache), backend="interpret")
    parts = [step(part) for part in weft.split(x, 1, axis=1)]
    same(weft.concat(parts, axis=1), model(x, is_causal=True))
    assert len(step.versions) == 1
    with pytest.raises(weft.errors.CheckError, match="a KeyValueCache is full"):
        step(x[:, :1])
    assert cache[0].length.item() == 5


def test_cache_can_be_used_again_and_says_when_it_is_full() -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    x = weft.randn(1, 3, 8)
    cache = attention.make_cache(1, 4)
    first, _ = attention(x, x, x, cache=cache)
    with pytest.raises(weft.errors.BoundsError, match="got 3 more after 3 in 4"):
        attention(x, x, x, cache=cache)
    cache.reset()
    again, weights = attention(x, x, x, cache=cache)
    same(again, first)
    assert weights.shape == (1, 3, 4)
    assert list(cache.state_dict()) == []


def test_cache_of_a_decoder_with_memory() -> None:
    layer = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = nn.TransformerDecoder(layer, 2)
    x, memory = weft.randn(2, 4, 8), weft.randn(2, 3, 8)
    cache = model.make_cache(2, 4)
    parts = [model(part, memory, cache=cache) for part in weft.split(x, 1, axis=1)]
    same(weft.concat(parts, axis=1), model(x, memory, tgt_is_causal=True))


def test_cache_of_keys_without_batch_axis_first() -> None:
    attention = nn.MultiheadAttention(8, 2)
    x = weft.randn(4, 2, 8)
    cache = attention.make_cache(2, 4)
    parts = [attention(t, t, t, cache=cache, need_weights=False)[0] for t in weft.split(x, 1, axis=0)]
    same(weft.concat(parts), attention(x, x, x, is_causal=True)[0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, x: m(x[..., :7], x, x), "features must be (8, 8, 8), got (7, 8, 8)"),
        (lambda m, x: m(x[0, 0], x, x), "query, key and value must have 2 or 3 axes, got 1, 3 and 3"),
        (lambda m, x: m(x, x, x, attn_mask=weft.ones(3)), "attn_mask must have 2 or 3 axes, got 1"),
        (
            lambda m, x: m(x, x, x, attn_mask=weft.ones((3, 3)), cache=m.make_cache(2, 5)),
            "a cache allows neither attn_mask nor added keys",
        ),
        (
            lambda m, x: m(x, x, x, cache=m.make_cache(1, 5)),
            "keys must have (N, heads, features) of (1, 2, 4)",
        ),
    ],
)
def test_wrong_calls_are_named(call: Any, message: str) -> None:
    with pytest.raises(weft.errors.WeftError) as error:
        call(nn.MultiheadAttention(8, 2, batch_first=True), weft.ones((2, 3, 8)))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: nn.TransformerEncoderLayer(8, 2, activation="sine"),
            "activation must be 'relu', 'gelu' or a function",
        ),
        (
            lambda: nn.Transformer(8, 2, 1, 1, 8)(weft.ones((2, 1, 4)), weft.ones((2, 1, 8))),
            "must have 8 features",
        ),
        (
            lambda: nn.Transformer(8, 2, 1, 1, 8)(weft.ones((2, 1, 8)), weft.ones((2, 3, 8))),
            "as many sequences, got 1 and 3",
        ),
        (lambda: decoder()(weft.ones((1, 1, 8)), cache=[]), "one cache for each layer, got 0 for 2 layers"),
    ],
)
def test_wrong_transformers_are_named(call: Any, message: str) -> None:
    with pytest.raises(weft.errors.WeftError) as error:
        call()
    assert message in str(error.value)


def test_dropped_weights_differ_in_training_alone() -> None:
    attention = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)
    x = weft.randn(2, 6, 8)
    assert not weft.allclose(attention(x, x, x)[0], attention(x, x, x)[0])
    attention.eval()
    same(attention(x, x, x)[0], attention(x, x, x, need_weights=False)[0])

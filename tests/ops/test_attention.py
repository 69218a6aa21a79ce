"""Attention: masks, queries that may look at nothing, dropout, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.ops import size


def _inputs(*lead: int, grad: bool = False) -> list[Any]:
    shapes = [(*lead, 3, 4), (*lead, 5, 4), (*lead, 5, 2)]
    return [weft.randn(*s, dtype=weft.float64).requires_grad_(grad) for s in shapes]


@pytest.mark.parametrize("additive", [False, True])
def test_query_without_keys_gets_zeros_and_clean_gradients(additive: bool) -> None:
    q, k, v = _inputs(2, grad=True)
    allowed = np.ones((3, 5), bool)
    allowed[1] = False
    mask = weft.tensor(np.where(allowed, 0.0, -np.inf)) if additive else weft.tensor(allowed)
    out = weft.scaled_dot_product_attention(q, k, v, mask)
    out.sum().backward()
    assert (out.detach().numpy()[:, 1] == 0).all()
    for x in (q, k, v):
        assert np.isfinite(x.grad.numpy()).all()
    assert (q.grad.numpy()[:, 1] == 0).all()


def test_masked_keys_get_no_gradient() -> None:
    q, k, v = _inputs(grad=True)
    mask = weft.tensor([True, True, False, True, False])
    weft.scaled_dot_product_attention(q, k, v, mask).sum().backward()
    assert (v.grad.numpy()[[2, 4]] == 0).all()
    assert (k.grad.numpy()[[2, 4]] == 0).all()


def test_causal_is_the_lower_triangle() -> None:
    q, k, v = _inputs(2)
    mask = weft.tensor(np.tri(3, 5, dtype=bool))
    causal = weft.scaled_dot_product_attention(q, k, v, is_causal=True)
    np.testing.assert_allclose(causal.numpy(), weft.scaled_dot_product_attention(q, k, v, mask).numpy())


def test_additive_mask_is_differentiable() -> None:
    q, k, v = _inputs()
    bias = weft.zeros((3, 5), dtype=weft.float64, requires_grad=True)
    weft.scaled_dot_product_attention(q, k, v, bias).sum().backward()
    np.testing.assert_allclose(bias.grad.numpy().sum(axis=1), np.zeros(3), atol=1e-12)


def test_leading_axes_broadcast() -> None:
    q, k, v = weft.randn(2, 4, 3, 8), weft.randn(1, 4, 5, 8), weft.randn(5, 6)
    assert weft.scaled_dot_product_attention(q, k, v).shape == (2, 4, 3, 6)


def test_dropout_is_drawn_from_the_generator() -> None:
    q, k, v = _inputs(4)
    runs = []
    for seed in (0, 0, 1):
        weft.manual_seed(seed)
        runs.append(weft.scaled_dot_product_attention(q, k, v, dropout_p=0.5).numpy())
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


ERRORS = [
    ({"attn_mask": weft.ones((3, 5)), "is_causal": True}, "attn_mask must be None if is_causal"),
    ({"attn_mask": weft.ones((4, 5))}, "shapes must broadcast"),
    ({"attn_mask": weft.ones((2, 3, 5))}, "attn_mask must broadcast to"),
    ({"attn_mask": weft.ones((3, 5), dtype=weft.int64)}, "attn_mask must be bool or floating"),
    ({"dropout_p": 1.5}, "p must be in 0..1"),
    ({"enable_gqa": True}, "grouped queries need an axis of heads"),
    ({"key": weft.ones((5, 3))}, "as many features"),
    ({"value": weft.ones((4, 2))}, "the same length"),
    ({"query": weft.ones(4)}, "at least two axes"),
]


@pytest.mark.parametrize(("settings", "text"), ERRORS, ids=[text for _, text in ERRORS])
def test_bad_arguments_are_named(settings: dict[str, Any], text: str) -> None:
    call = {"query": weft.ones((3, 4)), "key": weft.ones((5, 4)), "value": weft.ones((5, 2))} | settings
    with pytest.raises(weft.errors.WeftError, match=text):
        weft.scaled_dot_product_attention(**call)


def test_causal_layers_have_one_mask_in_a_graph() -> None:
    def layer(x: Any) -> Any:
        return weft.scaled_dot_product_attention(x, x, x, is_causal=True)

    step = weft.grad(lambda x: layer(layer(layer(x))).sum())
    graph = weft.make_graph(step)(weft.ones(2, 300, 8)).optimize()
    masks = [a for a in graph.constants.values() if a.shape == (300, 300)]
    assert len(masks) == 1
    assert not masks[0].flags.writeable
    other = weft.make_graph(step)(weft.ones(2, 300, 8, dtype=weft.float64)).optimize()
    assert [a.dtype for a in other.constants.values() if a.shape == (300, 300)] == [np.float64]


def test_masks_are_bounded_in_number() -> None:
    for length in range(1, 12):
        x = weft.arange(2.0 * length).reshape(1, length, 2)
        out = weft.scaled_dot_product_attention(x, x, x, is_causal=True)
        np.testing.assert_array_equal(out[0, 0].numpy(), x[0, 0].numpy())
    assert len(size._shared) <= size._FEW

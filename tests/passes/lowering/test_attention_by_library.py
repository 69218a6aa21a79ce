"""Attention in half precision as nodes of a library: what is found, what is not, and what it computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from weft.backends import backend_named
from weft.ir.graph import Graph
from weft.passes import LOWERING, lower
from weft.passes.lowering.attention_by_library import attention_by_library
from weft.passes.lowering.fuse_attention import fuse_attention
from weft.passes.lowering.gpu import GPU_LOWERING
from weft.schedule.gpu.machine import Gpu as Machine

PASSES = [attention_by_library if p is fuse_attention else p for p in LOWERING]
BOTH = {"library_attention", "library_attention_gradient"}


def lowered(graph: Graph) -> Graph:
    return lower(graph.optimize(), PASSES)


def names(graph: Graph) -> set[str]:
    return {node.op.name for node in graph.nodes}


def half(*shape: int, dtype: Any = weft.bfloat16, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return weft.tensor(rng.standard_normal(shape).astype(np.float32)).astype(dtype)


def both_ways(attend: Any) -> Any:
    def run(q: Any, k: Any, v: Any, g: Any) -> Any:
        out, pull = weft.vjp(attend, q, k, v)
        return (out, *pull(g))

    return run


def reference(q: Any, k: Any, v: Any, g: Any, scale: float, causal: bool) -> list[Any]:
    """Attention and its gradients in float64, by their formulas."""
    q, k, v, g = (t.astype(np.float64) for t in (q, k, v, g))
    scores = q @ k.swapaxes(-1, -2) * scale
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    by_weights = g @ v.swapaxes(-1, -2)
    slopes = weights * (by_weights - (by_weights * weights).sum(-1, keepdims=True)) * scale
    turned = [x.swapaxes(-1, -2) for x in (slopes, weights)]
    return [weights @ v, slopes @ k, turned[0] @ q, turned[1] @ g]


@pytest.mark.parametrize("dtype", [weft.bfloat16, weft.float16])
@pytest.mark.parametrize(("scale", "causal"), [(None, True), (0.3, False), (1.0, True)])
def test_both_ways_against_formulas(dtype: Any, scale: float | None, causal: bool) -> None:
    shape = (2, 2, 160, 16)
    given = [half(*shape, dtype=dtype, seed=i) for i in range(4)]
    attend = both_ways(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale))
    made = lowered(weft.make_graph(attend)(*given))
    assert names(made) >= BOTH
    assert not any(node.op.name == "cast" for node in made.nodes)  # nothing is made single on the way
    arrays = [t.numpy() for t in given]
    wanted = reference(*arrays, 0.25 if scale is None else scale, causal)
    for got, exact in zip(backend_named("interpret")(made)(arrays), wanted, strict=True):
        np.testing.assert_allclose(got.astype(np.float64), exact, atol=2e-2 * np.abs(exact).max())


def test_gradients_of_one_projection_are_computed_side_by_side() -> None:
    def mix(x: Any) -> Any:
        split = [a.reshape(2, 128, 2, 16).transpose(1, 2) for a in x.chunk(3, -1)]
        mixed = F.scaled_dot_product_attention(*split, is_causal=True)
        return mixed.transpose(1, 2).reshape(2, 128, 32)

    def both(x: Any, g: Any) -> Any:
        out, pull = weft.vjp(mix, x)
        return out, pull(g)[0]

    x, g = half(2, 128, 96), half(2, 128, 32, seed=1)
    graph = weft.make_graph(both)(x, g).optimize()
    made = lower(graph, GPU_LOWERING)
    assert "library_attention_packed" in names(made)
    assert names(made).isdisjoint({"concat", "pad", "add", "library_attention_gradient"})
    apart = [a.reshape(2, 128, 2, 16).swapaxes(1, 2) for a in np.split(x.numpy(), 3, 2)]
    turned = g.numpy().reshape(2, 128, 2, 16).swapaxes(1, 2)
    wanted = [a.swapaxes(1, 2).reshape(2, 128, 32) for a in reference(*apart, turned, 0.25, True)]
    exact = wanted[0], np.concatenate(wanted[1:], 2)
    for got, right in zip(backend_named("interpret")(made)([x.numpy(), g.numpy()]), exact, strict=True):
        np.testing.assert_allclose(got.astype(np.float64), right, atol=2e-2 * np.abs(right).max())


def test_what_the_library_does_not_take_stays_as_it_is() -> None:
    x, mask = half(1, 2, 128, 16), half(128, 128)
    odd, single = half(1, 2, 128, 12), half(1, 2, 128, 16).astype(weft.float32)
    for attend, given in (
        (lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m), (x, mask)),
        (lambda q: F.scaled_dot_product_attention(q, q, q), (odd,)),
        (lambda q: F.scaled_dot_product_attention(q, q, q), (single,)),
        (lambda q: F.scaled_dot_product_attention(q, q, q), (half(1, 2, 16, 16),)),
        (lambda q: F.scaled_dot_product_attention(q, q, q), (half(2, 128, 16),)),
    ):
        made = lowered(weft.make_graph(attend)(*given))
        assert names(made).isdisjoint({*BOTH, "attention", "attention_gradient"})


def test_projections_are_read_as_they_lie() -> None:
    """Query, keys and values out of one array: a program for a card copies none of them."""
    from weft.backends.cuda.build import build_program

    def mix(x: Any) -> Any:
        split = [a.reshape(2, 128, 2, 16).transpose(1, 2) for a in x.chunk(3, -1)]
        mixed = F.scaled_dot_product_attention(*split, is_causal=True)
        return mixed.transpose(1, 2).reshape(2, 128, 32)

    graph = weft.make_graph(mix)(half(2, 128, 96)).optimize()
    program = build_program(graph, machine=Machine(cudnn=True))
    assert [line.strip() for line in str(program).splitlines()[4:-1]] == [
        "call library_attention(input0 by (12288, 96, 16, 1), input0+64 by (12288, 96, 16, 1), "
        "input0+128 by (12288, 96, 16, 1)) -> (output0, arena)"
    ]

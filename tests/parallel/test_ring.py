"""Ring attention: on any number of ranks it is attention, and no rank holds all keys or a row of scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from weft import parallel as par
from weft.errors import DomainError, DtypeError, ShapeError
from weft.ir.stats import node_flops

RNG = np.random.default_rng(0)
SIZE = 16
Q, K, V = (RNG.standard_normal((4, 2, SIZE, d)) for d in (6, 6, 5))


def attention(q: Any, k: Any, v: Any, causal: bool, scale: float | None = None) -> Any:
    """By NumPy, in float64."""
    found = np.einsum("...md,...nd->...mn", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        found = np.where(np.tri(SIZE, dtype=bool), found, -np.inf)
    p = np.exp(found - found.max(axis=-1, keepdims=True))
    return np.einsum("...mn,...nd->...md", p / p.sum(axis=-1, keepdims=True), v)


def loss(q: Any, k: Any, v: Any, causal: bool) -> Any:
    return weft.sin(par.ring_attention(q, k, v, "seq", is_causal=causal)).sum()


def expected(causal: bool) -> list[Any]:
    """The loss and its gradients, by attention of whole tensors."""

    def whole(q: Any, k: Any, v: Any) -> Any:
        return weft.sin(F.scaled_dot_product_attention(q, k, v, is_causal=causal)).sum()

    found = weft.value_and_grad(whole, argnums=(0, 1, 2))(*map(weft.tensor, (Q, K, V)))
    return [x.numpy() for x in weft.tree_leaves(found)]


@pytest.mark.rotating(4)
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("sizes", [{"seq": 1}, {"seq": 2}, {"seq": 8}, {"data": 2, "seq": 2, "model": 2}])
def test_values_and_gradients_are_those_of_attention(sizes: dict[str, int], causal: bool) -> None:
    def program() -> tuple[list[Any], str]:
        mesh = par.mesh(**sizes, shards=4)

        def step(q: Any, k: Any, v: Any) -> Any:
            if "data" in sizes:
                q, k, v = (par.shard(x, "data", "model", "seq", None) for x in (q, k, v))
            return weft.value_and_grad(loss, argnums=(0, 1, 2))(q, k, v, causal)

        run = weft.compile(step, mesh=mesh)
        found = weft.tree_leaves(run(*map(weft.tensor, (Q, K, V))))
        return [x.numpy() for x in found], str(run.lowered)

    whole = expected(causal)
    for found, text in par.simulate(program, int(np.prod([*sizes.values()]))):
        for a, b in zip(found, whole, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
        if sizes["seq"] > 1:
            assert "permute_ranks(" in text
            assert "ring_attention" not in text


def test_no_rank_holds_all_keys_or_whole_rows_of_scores() -> None:
    def graph(count: int) -> Any:
        par.mesh(seq=1)
        made = weft.make_graph(weft.grad(loss, argnums=(0, 1, 2)), name="f")
        whole = made(*map(weft.tensor, (Q, K, V)), True).optimize()
        cut = [("", "", "seq", "")] * 3
        return par.partition(whole, mesh=f"seq={count}", inputs=cut, outputs=cut)

    (found,) = par.simulate(lambda: graph(4), 1)
    found.verify()
    part = SIZE // 4
    assert {v.type.shape[2] for v in found.inputs} == {part}
    shapes = [v.type.shape for n in found.nodes for v in n.outputs if v.type.ndim == 4]
    assert max(max(s[2:]) for s in shapes) == 6  # the features; all keys, or a row of scores, would be 16
    moved = [n.op.name for n in found.nodes if n.op.sequence]
    round_ = 2 * 3 + 2 * 3 + 2 * 4  # keys and values, again, and their gradients
    spread = 2 * (3 + 2 + 6 + 3)  # two blocks of all that comes to another rank, and of what goes back
    assert moved == ["permute_ranks"] * (round_ + spread)


@pytest.mark.parametrize("count", [2, 4, 8])
def test_what_is_hidden_is_not_computed(count: int) -> None:
    """Half of the scores, on every rank: the first turn whole, then two of four pairs of blocks."""

    def flops(causal: bool) -> float:
        par.mesh(seq=1)
        whole = weft.make_graph(lambda *a: par.ring_attention(*a, "seq", is_causal=causal), name="f")
        graph = whole(*map(weft.tensor, (Q, K, V))).optimize()
        parts = par.partition(graph, mesh=f"seq={count}", inputs=[("", "", "seq", "")] * 3)
        return sum(float(node_flops(n)) for n in parts.nodes if n.op.name == "matmul")

    found = {causal: par.simulate(lambda c=causal: flops(c), 1)[0] for causal in (False, True)}
    assert found[True] / found[False] == (1 + (count - 1) / 2) / count


def test_an_odd_number_of_positions_a_rank() -> None:
    """There are no two equal blocks then; all are computed, and the result is the same."""
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((2, 9, 4)) for _ in range(3))

    def program() -> Any:
        mesh = par.mesh(seq=3)
        run = weft.compile(lambda *a: par.ring_attention(*a, "seq", is_causal=True), mesh=mesh)
        return run(*map(weft.tensor, (q, k, v))).numpy()

    whole = F.scaled_dot_product_attention(*map(weft.tensor, (q, k, v)), is_causal=True).numpy()
    for found in par.simulate(program, 3):
        np.testing.assert_allclose(found, whole, rtol=1e-10)


def test_positions_that_ranks_do_not_divide_are_refused_with_the_size_to_pad_to() -> None:
    def program() -> None:
        mesh = par.mesh(seq=3)
        weft.compile(lambda *a: par.ring_attention(*a, "seq"), mesh=mesh)(*map(weft.tensor, (Q, K, V)))

    with pytest.raises(ShapeError, match="divide by the 3 ranks along 'seq', got 16") as caught:
        par.simulate(program, 3)
    assert "pad them to 18" in str(caught.value)


def test_outside_of_meshes_it_is_attention() -> None:
    def program() -> None:
        q, k, v = (weft.tensor(x, requires_grad=True) for x in (Q, K, V))
        for causal, scale in ((False, None), (True, 0.3)):
            out = par.ring_attention(q, k, v, "anything", is_causal=causal, scale=scale)
            np.testing.assert_allclose(out.detach().numpy(), attention(Q, K, V, causal, scale), rtol=1e-10)
        out.sum().backward()
        assert q.grad is not None
        compiled = weft.compile(lambda *a: par.ring_attention(*a, "anything", is_causal=True))
        np.testing.assert_allclose(compiled(q, k, v).detach().numpy(), attention(Q, K, V, True), rtol=1e-10)
        rows = weft.vmap(lambda *a: par.ring_attention(*a, "anything"))(q, k, v)
        np.testing.assert_allclose(rows.detach().numpy(), attention(Q, K, V, False), rtol=1e-10)

    par.simulate(program, 1)  # a world without a mesh


@pytest.mark.rotating(2)
@pytest.mark.parametrize("dtype", [weft.float16, weft.bfloat16, weft.float32])
def test_narrow_dtypes_are_summed_in_single_precision(dtype: Any) -> None:
    q, k, v = (weft.tensor(x).astype(dtype) for x in (Q * 8, K * 8, V))

    def program() -> Any:
        mesh = par.mesh(seq=4)
        run = weft.compile(lambda *a: par.ring_attention(*a, "seq", is_causal=True), mesh=mesh)
        return run(q, k, v)

    exact = attention(*[x.astype(weft.float64).numpy() for x in (q, k, v)], True)
    bound = {weft.float16: 1e-3, weft.bfloat16: 8e-3, weft.float32: 2e-5}[dtype]  # scores are up to 200
    for found in par.simulate(program, 4):
        assert found.dtype == dtype
        np.testing.assert_allclose(found.astype(weft.float64).numpy(), exact, rtol=bound, atol=bound)


def test_wrong_arguments_are_errors_at_their_line() -> None:
    q, k, v = map(weft.tensor, (Q, K, V))
    with pytest.raises(ShapeError, match="one shape"):
        par.ring_attention(q, k[:, :, :8], v, "seq")
    with pytest.raises(DtypeError, match="one floating dtype"):
        par.ring_attention(*(x.astype(weft.int32) for x in (q, k, v)), "seq")
    with pytest.raises(ShapeError, match="one shape"):
        par.ring_attention(q[0, 0, 0], k, v, "seq")

    def program() -> None:
        mesh = par.mesh(seq=2)
        weft.compile(lambda *a: par.ring_attention(*a, "sequence"), mesh=mesh)(q, k, v)

    with pytest.raises(DomainError, match="sequence") as caught:
        par.simulate(program, 2)
    assert "par.ring_attention" in str(caught.value)

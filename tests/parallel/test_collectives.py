"""Every collective in worlds of several ranks, against NumPy on what all of them hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import parallel as par
from weft.base.ranks import tree_fold
from weft.errors import DivergenceError, DomainError, ShapeError

Array = np.ndarray[Any, Any]
WORLDS = (1, 2, 3, 4, 8)


def given(rank: int, shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    return np.random.default_rng(rank).standard_normal(shape).astype(dtype) * 4


# By name: what a rank calls, and what it should get of what all have: functions of (n, rank, arrays).
CASES: dict[str, tuple[Callable[[Any], Any], Callable[[int, int, list[Array]], Array]]] = {
    "all_reduce": (lambda x: par.all_reduce(x, "data"), lambda n, r, xs: tree_fold(xs, np.add)),
    "max": (lambda x: par.all_reduce(x, "data", op="max"), lambda n, r, xs: np.max(xs, axis=0)),
    "min": (lambda x: par.all_reduce(x, "data", op="min"), lambda n, r, xs: np.min(xs, axis=0)),
    "all_gather": (lambda x: par.all_gather(x, "data", dim=1), lambda n, r, xs: np.concatenate(xs, 1)),
    "reduce_scatter": (
        lambda x: par.reduce_scatter(x, "data"),
        lambda n, r, xs: np.split(tree_fold(xs, np.add), n)[r],
    ),
    "all_to_all": (
        lambda x: par.all_to_all(x, "data", split=0, join=-1),
        lambda n, r, xs: np.concatenate([np.split(x, n)[r] for x in xs], 1),
    ),
    "ring": (lambda x: par.permute_ranks(x, "data", 1), lambda n, r, xs: xs[(r - 1) % n]),
    "shift": (
        lambda x: par.permute_ranks(x, "data", [*range(1, par.size()), -1]),
        lambda n, r, xs: xs[r - 1] if r else xs[0] * 0,
    ),
    "broadcast": (
        lambda x: par.broadcast(x, "data", root=par.size() - 1),
        lambda n, r, xs: xs[-1],
    ),
    "copy_to_ranks": (lambda x: par.copy_to_ranks(x, "data"), lambda n, r, xs: xs[r]),
    "take_shard": (lambda x: par.take_shard(x, "data"), lambda n, r, xs: np.split(xs[r], n)[r]),
    "axis_index": (lambda x: par.axis_index("data") + x * 0, lambda n, r, xs: xs[r] * 0 + r),
}
WAYS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "eager": lambda f: f,
    "compiled": weft.compile,
    "interpreted": lambda f: weft.compile(f, backend="interpret"),
}


def in_world(
    n: int, call: Callable[[Any], Any], shape: tuple[int, ...], dtype: Any = np.float32
) -> list[Any]:
    def program() -> Any:
        par.mesh(data=-1)
        return call(weft.tensor(given(par.rank(), shape, dtype))).numpy()

    return par.simulate(program, n)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_collective_equals_numpy_on_all_ranks(name: str, way: str) -> None:
    call, expected = CASES[name]
    for n in WORLDS if way == "eager" else (1, 3, 4):
        shape = (n * 2, 3)
        found = in_world(n, lambda x: WAYS[way](call)(x), shape)
        xs = [given(r, shape) for r in range(n)]
        for rank, out in enumerate(found):
            np.testing.assert_array_equal(out, expected(n, rank, xs))


def test_sum_is_one_tree_for_every_size_of_message_and_dtype() -> None:
    for n, size in ((3, 5), (4, 4099), (8, 2051), (5, 0)):
        xs = [given(r, (size,)) for r in range(n)]
        for out in in_world(n, lambda x: par.all_reduce(x, "data"), (size,)):
            assert out.tobytes() == tree_fold(xs, np.add).tobytes()
    for dtype in (np.float64, np.int32, np.complex64, np.float16):
        xs = [given(r, (3,), dtype) for r in range(4)]
        for out in in_world(4, lambda x: par.all_reduce(x, "data"), (3,), dtype):
            assert out.tobytes() == tree_fold(xs, np.add).tobytes()
    loose = in_world(4, lambda x: par.all_reduce(x, "data", reproducible=False), (7,))
    np.testing.assert_allclose(loose[2], sum(given(r, (7,)) for r in range(4)), rtol=1e-5)


def test_axes_of_a_mesh_have_groups_of_their_own() -> None:
    def program() -> list[float]:
        par.mesh(data=2, model=3)
        x = weft.tensor(float(par.rank()))
        return [float(par.all_reduce(x, axis)) for axis in ("data", "model", ("data", "model"), "model,data")]

    for rank, (data, model, both, again) in enumerate(par.simulate(program, 6)):
        assert data == rank % 3 + rank % 3 + 3
        assert model == sum(range(rank // 3 * 3, rank // 3 * 3 + 3))
        assert both == again == 15


# Derivatives. Of what is replicated one copy counts: u and x below are the same on all ranks then.

REPLICATED_OUT = {"all_reduce"}
REPLICATED_IN = {"copy_to_ranks", "take_shard"}
LINEAR = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "ring", "shift", "broadcast",
          "copy_to_ranks", "take_shard")  # fmt: skip


def _linear_parts(name: str, n: int) -> tuple[Array, Array, Array, Array]:
    """On a rank: what a collective is given and gives, what is pulled back, and what comes of it."""
    par.mesh(data=-1)
    seed = 0 if name in REPLICATED_IN else par.rank()
    x = weft.tensor(given(seed, (n * 2, 3), np.float64), requires_grad=True)
    y = CASES[name][0](x)
    u = given(50 if name in REPLICATED_OUT else 50 + par.rank(), y.shape, np.float64)
    y.backward(weft.tensor(u))
    assert x.grad is not None
    return x.detach().numpy(), y.detach().numpy(), u, x.grad.numpy()


@pytest.mark.parametrize("name", LINEAR)
def test_gradient_is_the_transpose_over_all_ranks(name: str) -> None:
    for n in (1, 2, 4):
        found = par.simulate(_linear_parts, n, name, n)
        outs = found[:1] if name in REPLICATED_OUT else found
        ins = found[:1] if name in REPLICATED_IN else found
        forward = sum(float((u * y).sum()) for _, y, u, _ in outs)
        backward = sum(float((x * g).sum()) for x, _, _, g in ins)
        assert abs(forward - backward) <= 1e-9 * abs(forward)
        if name in REPLICATED_IN:
            assert all((g == found[0][3]).all() for *_, g in found)


def test_second_order_and_compiled_gradients_go_through_ranks() -> None:
    """Sum of squares of what all ranks hold: H v = 2 sum of v, with v on each rank."""

    def program() -> tuple[Array, Array]:
        par.mesh(data=-1)
        x = weft.tensor(given(par.rank(), (3,), np.float64))

        def loss(x: Any) -> Any:
            return (par.all_reduce(x, "data") ** 2).sum()

        first = weft.compile(weft.grad(loss))(x)
        second = weft.grad(lambda x: (weft.grad(loss)(x) * 3.0).sum())(x)
        return first.numpy(), second.numpy()

    n = 4
    total = np.sum([given(r, (3,), np.float64) for r in range(n)], axis=0)
    for first, second in par.simulate(program, n):
        np.testing.assert_allclose(first, 2 * total, rtol=1e-12)
        np.testing.assert_allclose(second, np.full(3, 2 * 3.0 * n), rtol=1e-12)


def test_gradient_of_an_extreme_goes_to_the_ranks_that_hold_it() -> None:
    rows = np.array([[1.0, 5.0, 2.0], [3.0, 5.0, 0.0], [3.0, 4.0, -1.0]])

    def program(op: str) -> Array:
        par.mesh(data=-1)
        x = weft.tensor(rows[par.rank()], requires_grad=True)
        (par.all_reduce(x, "data", op=op) * weft.tensor([1.0, 10.0, 100.0], dtype=x.dtype)).sum().backward()
        assert x.grad is not None
        return x.grad.numpy()

    for op, extreme in (("max", rows.max(0)), ("min", rows.min(0))):
        holds = rows == extreme
        expected = holds / holds.sum(0) * [1.0, 10.0, 100.0]
        np.testing.assert_array_equal(np.stack(par.simulate(program, 3, op)), expected)


@pytest.mark.parametrize("name", [n for n in CASES if n != "axis_index"])
def test_vmap_of_a_collective_equals_a_loop(name: str) -> None:
    call = CASES[name][0]

    def program() -> tuple[Array, Array]:
        par.mesh(data=-1)
        xs = weft.tensor(given(par.rank(), (3, 4, 2)))
        return weft.vmap(call)(xs).numpy(), weft.stack([call(x) for x in xs]).numpy()

    for batched, looped in par.simulate(program, 2):
        np.testing.assert_array_equal(batched, looped)


# Graphs


def test_collectives_stay_in_graphs_in_order_and_with_their_line() -> None:
    par.mesh(data=1, model=1)

    def f(x: Any) -> Any:
        par.all_reduce(x * 2, "data")  # what nobody uses stays: other ranks take part in it
        return par.all_reduce(x, "data") + par.all_reduce(x, "data") + par.all_gather(x, "model")

    graph = weft.make_graph(f)(weft.ones(2)).optimize()
    names = [node.op.name for node in graph.nodes if node.op.effect]
    assert names == ["all_reduce", "all_reduce", "all_reduce", "all_gather"]
    assert all("test_collectives.py" in str(node.location.file) for node in graph.nodes if node.location)
    assert weft.parse_graph(graph.to_text(), constants=graph.constant_data()).same(graph)
    assert 'axis="data", mesh="data=1,model=1"' in str(graph)


def test_what_depends_on_the_rank_is_not_folded() -> None:
    par.mesh(data=1)
    graph = weft.make_graph(lambda: par.axis_index("data") * 2)().optimize()
    assert [node.op.name for node in graph.nodes] == ["axis_index", "mul"]


def test_order_is_kept_along_an_axis_and_free_across() -> None:
    from weft.schedule.order import order_units
    from weft.schedule.use_def import UseDef

    text = """
    graph f(%x: f32[2]) {
      %0: f32[2] = all_reduce(%x, axis="data", mesh="data=1,model=1")
      %1: f32[2] = all_reduce(%x, axis="model", mesh="data=1,model=1")
      %2: f32[2] = all_reduce(%x, axis="data", mesh="data=1,model=1")
      %3: f32[2] = all_reduce(%x, axis="model,data", mesh="data=1,model=1")
      return %0, %1, %2, %3
    }"""
    use_def = UseDef(weft.parse_graph(text))
    order = [unit for unit in order_units(use_def, {}) if isinstance(unit, int)]
    assert order.index(0) < order.index(2) < order.index(3)
    assert order.index(1) < order.index(3)


def test_shapes_and_numbers_that_do_not_fit_are_refused() -> None:
    par.mesh(data=1)
    with pytest.raises(DomainError, match="op must be among"):
        par.all_reduce(weft.ones(2), "data", op="mean")
    with pytest.raises(DomainError, match=r"root must be in 0\.\.0"):
        par.broadcast(weft.ones(2), "data", root=1)
    with pytest.raises(DomainError, match="each once"):
        par.permute_ranks(weft.ones(2), "data", [0, 0])
    for name in ("reduce_scatter", "take_shard", "all_to_all"):
        for way in WAYS.values():
            with pytest.raises(ShapeError, match='must divide by the 2 ranks of "data"'):
                in_world(2, way(CASES[name][0]), (3, 2))


# Ranks that do different things


def test_ranks_in_different_collectives_are_named_with_their_lines() -> None:
    def program() -> None:
        par.mesh(data=-1)
        if par.rank() == 1:
            par.all_gather(weft.ones(2), "data")
        else:
            par.all_reduce(weft.ones(2), "data")

    with pytest.raises(DivergenceError) as found:
        par.simulate(program, 2)
    text = str(found.value)
    assert "rank 0: all_reduce of f32[2]" in text
    assert "rank 1: all_gather of f32[2]" in text
    assert text.count("test_collectives.py") >= 2


def test_ranks_that_wait_for_each_other_are_found() -> None:
    def crossed() -> None:
        par.mesh(a=2, b=2)
        order = ("a", "b") if par.rank() in (0, 3) else ("b", "a")
        for axis in order:
            par.all_reduce(weft.ones(2), axis)

    with pytest.raises(DivergenceError, match="rank 3: all_reduce"):
        par.simulate(crossed, 4)

    def leaves() -> None:
        if par.rank():
            par.barrier()

    with pytest.raises(DivergenceError, match="rank 0: has ended"):
        par.simulate(leaves, 3)


def test_error_of_one_rank_ends_all_and_is_raised() -> None:
    def program() -> None:
        par.mesh(data=-1)
        if par.rank() == 2:
            raise KeyError("mine")
        par.barrier()

    with pytest.raises(KeyError) as found:
        par.simulate(program, 4)
    assert found.value.__notes__ == ["  on rank 2"]
    with pytest.raises(DomainError, match="positive int"):
        par.simulate(program, 0)

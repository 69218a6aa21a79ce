"""Loops and branches on parts: what ranks compute equals the interpreter on the whole graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
import weft.nn.functional as F
from tests.of_code import examples
from tests.parallel.test_partition import check_equal, graph_of, names, run_parts, with_mesh
from weft import nn
from weft import parallel as par
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.transform.tracing import trace_graph

RNG = np.random.default_rng(0)
X, Y, W, H = (RNG.standard_normal(s) for s in ((8, 6, 4), (8, 5), (4, 5), (5, 5)))


def shapes_inside(graph: Graph) -> set[tuple[Any, ...]]:
    return {v.type.shape for n in graph.nodes for r in n.regions for m in r.walk() for v in m.outputs}


def recurrent(x: Any, w: Any, h: Any) -> Any:
    """All states of a recurrent layer, by a loop over the steps of a sequence."""
    states, state = [], weft.zeros(8, 5, dtype=weft.float64)
    for t in range(x.shape[1]):
        state = weft.tanh(x[:, t] @ w + state @ h)
        states.append(state)
    return weft.stack(states, axis=1)


def test_loop_over_a_sequence_goes_through_a_part_of_the_batch() -> None:
    graph = graph_of(lambda x, w, h: recurrent(par.shard(x, "data"), w, h), "data=4", X, W, H)
    assert "scan" in [node.op.name for node in graph.nodes]
    parts = check_equal(graph, "data=4", [X, W, H])
    assert names(parts) == ["take_shard", "all_gather"]
    inside = shapes_inside(parts)
    assert (2, 5) in inside
    assert (8, 5) not in inside


def test_gradients_that_a_loop_adds_up_are_summed_once_after_it() -> None:
    def loss(x: Any, w: Any, h: Any) -> Any:
        return recurrent(par.shard(x, "data"), w, h).square().sum()

    graph = graph_of(weft.value_and_grad(loss, argnums=(1, 2)), "data=4", X, W, H)
    parts = check_equal(graph, "data=4", [X, W, H])
    found = names(parts)
    assert found.count("all_reduce") == 3
    assert set(found) <= {"take_shard", "all_reduce", "axis_index"}
    assert (8, 5) not in shapes_inside(parts)
    assert not [n for node in parts.nodes for r in node.regions for n in r.walk() if n.op.sequence]


def test_what_a_loop_adds_to_counts_once() -> None:
    """A sum that begins with a number of its own, and is used after the loop."""

    def f(x: Any, start: Any) -> Any:
        total = start
        for t in range(x.shape[1]):
            total = total + par.shard(x, "data")[:, t].sum(axis=0)
        return total * 2.0

    start = RNG.standard_normal(4)
    graph = graph_of(lambda x, s: f(par.shard(x, "data"), s), "data=4", X, start)
    check_equal(graph, "data=4", [X, start])


def test_sum_that_a_turn_needs_is_written_out() -> None:
    """Each turn divides by a sum over the batch, for which ranks must meet."""

    def f(x: Any) -> Any:
        x, state = par.shard(x, "data"), weft.ones(8, 4, dtype=weft.float64)
        for t in range(x.shape[1]):
            state = state * x[:, t] / (1 + state.square().sum())
        return state

    graph = graph_of(f, "data=4", X)
    parts = check_equal(graph, "data=4", [X])
    assert not [node for node in parts.nodes if node.regions]
    assert names(parts).count("all_reduce") == 5  # the first is known


def test_branches_and_loops_in_loops() -> None:
    def f(x: Any, flag: Any) -> Any:
        x = par.shard(x, "data")
        total, count = weft.zeros(4, dtype=weft.float64), weft.zeros(8, dtype=weft.float64)
        for t in range(x.shape[1]):
            row = x[:, t]
            for _ in range(3):
                row = weft.tanh(row * 1.5)
                total = total + row.sum(axis=0)
            if flag[t] > 0:
                count = count + row.sum(axis=1)
            else:
                count = count * 0.5
        return total, count

    flag = np.array([1.0, -1, 1, 1, -1, -1])
    graph = graph_of(f, "data=2,model=2", X, flag)
    parts = check_equal(graph, "data=2,model=2", [X, flag])
    assert (8, 4) not in shapes_inside(parts)
    assert names(parts).count("all_reduce") == 1


def test_branch_that_adds_a_sum_on_one_way_alone() -> None:
    def f(x: Any, flag: Any) -> Any:
        x = par.shard(x, "data")
        return weft.cond(flag > 0, lambda x: x.sum(), lambda x: weft.zeros((), dtype=weft.float64), x) * 2.0

    for flag in (1.0, -1.0):
        arrays = [X, np.array(flag)]
        check_equal(graph_of(f, "data=4", *arrays), "data=4", arrays)


def test_while_loop_goes_on_by_what_all_ranks_hold() -> None:
    def f(x: Any, limit: Any) -> Any:
        x, count = par.shard(x, "data"), weft.zeros((), dtype=weft.float64)
        while count < limit:
            x = weft.tanh(x) * 1.25
            count = count + 1.0
        return x.sum(axis=0), count

    arrays = [X, np.array(3.5)]
    parts = check_equal(graph_of(f, "data=4", *arrays), "data=4", arrays)
    assert (8, 6, 4) not in shapes_inside(parts)

    def until(x: Any, limit: Any) -> Any:
        x = par.shard(x, "data")
        while x.square().sum() > limit:  # ranks would have to meet
            x = x * 0.5
        return x

    check_equal(graph_of(until, "data=4", *arrays), "data=4", arrays)


@examples(30, 10)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=6),
    st.sampled_from(["data=2", "data=8", "data=4,model=2", "data=8,model=4"]),
    st.booleans(),
)
def test_random_bodies_on_random_meshes(choices: list[int], mesh: str, gradients: bool) -> None:
    def f(x: Any, y: Any, w: Any, h: Any) -> Any:
        x, y = par.shard(x, "data"), par.shard(y, "data")
        if "model" in mesh:
            w = par.shard(w, "model", None)
        state, total = y, weft.zeros(5, dtype=weft.float64)
        weight = weft.zeros(4, 5, dtype=weft.float64)
        for t in range(3):
            row = x[:, t]
            for choice in choices:
                state, total, weight = BODIES[choice](row, state, total, weight, w, h)
        return state, total, weight

    def loss(*arrays: Any) -> Any:
        return sum([(v * (k + 1.0)).sum() for k, v in enumerate(f(*arrays))], weft.zeros(()))

    arrays = [X, Y, W, H]
    function = weft.grad(loss, argnums=(0, 1, 2, 3)) if gradients else f
    types = [weft.TensorType(a.shape, a.dtype) for a in arrays]
    graph, _ = with_mesh(mesh, lambda: trace_graph(function, types, "f", closed=True))
    check_equal(graph.optimize(), mesh, arrays)


# Of a row of the sequence, a state of each example, a sum over them and one of products, and two weights.
BODIES: Any = (
    lambda x, s, t, g, w, h: (weft.tanh(x @ w + s @ h), t, g),
    lambda x, s, t, g, w, h: (s, t + s.sum(axis=0), g),
    lambda x, s, t, g, w, h: (s, t, g + x.mT @ s),
    lambda x, s, t, g, w, h: (s * 0.5, t * 0.5, g),
    lambda x, s, t, g, w, h: (s, t, g - (s.mT @ x).mT * 0.25),
    lambda x, s, t, g, w, h: (weft.where(s > 0, s, -s), t, g),
    lambda x, s, t, g, w, h: (s + t, t, g),  # the sum goes into the next turn
    lambda x, s, t, g, w, h: (s, weft.tanh(t), g),
    lambda x, s, t, g, w, h: (F.softmax(s, axis=1), t, g),
    lambda x, s, t, g, w, h: (weft.sort(s, axis=0), t, g),  # across the batch
)


# Steps


class Tagger(nn.Module):
    """A recurrent network over the steps of a sequence, written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.state, self.head = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        """Scores after the last step."""
        h = weft.tanh(self.inner(x[:, 0]))
        for t in range(1, x.shape[1]):
            h = weft.tanh(self.inner(x[:, t]) + self.state(h))
        return self.head(h)


class Recurrent(nn.Module):
    """A recurrent layer and one that tells classes."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer, self.head = getattr(nn, kind)(4, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        """Scores after the last step."""
        return self.head(self.layer(x)[0][:, -1])


def step_of(model: nn.Module, turns: int) -> Any:
    optimizer = weft.optim.Adam(model.parameters(), lr=0.05)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        total: Any = 0.0
        rows = x.shape[0] // turns
        for i in range(turns):  # gradients of microbatches are added up
            xs, ys = x[i * rows : (i + 1) * rows], y[i * rows : (i + 1) * rows]
            loss = F.cross_entropy(model(par.shard(xs, "data")), par.shard(ys, "data")) / turns
            loss.backward()
            total = total + loss
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return total

    return step


MODELS: Any = {"by hand": Tagger, "lstm": lambda: Recurrent("LSTM"), "gru": lambda: Recurrent("GRU")}


def train(name: str, count: int | None, turns: int = 1, **settings: Any) -> tuple[list[float], bytes]:
    weft.manual_seed(0)
    model = MODELS[name]()
    step = step_of(model, turns)
    run = step if count is None else weft.compile(step, mesh=par.mesh(data=count), **settings)
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((32, 5, 4)).astype(np.float32), rng.integers(0, 3, 32)
    losses = [float(run(weft.tensor(x), weft.tensor(y))) for _ in range(3)]
    return losses, b"".join(p.detach().full().numpy().tobytes() for p in model.parameters())


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", MODELS)
def test_recurrent_models_have_the_same_bits_on_every_number_of_ranks(name: str) -> None:
    one = par.simulate(train, 1, name, 1)[0]
    np.testing.assert_allclose(one[0], train(name, None)[0], rtol=1e-4)
    for n, settings in ((2, {}), (4, {"zero": 2})):
        assert par.simulate(lambda n=n, s=settings: train(name, n, **s), n) == [one] * n
    loose = par.simulate(lambda: train(name, 4, reproducible=False), 4)
    assert loose == [loose[0]] * 4
    np.testing.assert_allclose(loose[0][0], one[0], rtol=1e-4)


@pytest.mark.rotating(2)
def test_gradients_of_microbatches_that_a_loop_adds_up() -> None:
    """``for i in range(4): x[i * 8 : (i + 1) * 8]`` in a step: each microbatch is cut over the ranks."""
    one = par.simulate(train, 1, "by hand", 1, 4)[0]
    np.testing.assert_allclose(one[0], train("by hand", None, 4)[0], rtol=1e-4)
    for n, settings in ((2, {}), (4, {"zero": 3})):
        assert par.simulate(lambda n=n, s=settings: train("by hand", n, 4, **s), n) == [one] * n


def test_recurrent_layer_moves_gradients_and_nothing_else() -> None:
    """The batch was gathered before a loop: an error above 1 MB, and the work of all on every rank."""

    def program() -> Any:
        weft.manual_seed(0)
        run = weft.compile(step_of(Recurrent("LSTM"), 1), mesh=par.mesh(data=2), reproducible=False)
        _ = run(weft.ones(2048, 4, 4), weft.zeros(2048, dtype=weft.int64))
        return {node.op.name for node in run.lowered.walk() if node.op.sequence}

    assert par.simulate(program, 2)[0] <= {"all_reduce", "start_all_reduce", "wait_all_reduce", "commit"}


def test_interpreter_of_parts_keeps_what_every_turn_collects() -> None:
    """Stacks of a loop are cut behind their first dimension."""

    def f(x: Any) -> Any:
        def turn(total: Any, row: Any) -> Any:
            return total + row.sum(axis=0), row * 2.0

        return weft.scan(turn, weft.zeros(4, dtype=weft.float64), par.shard(x, None, "data"))

    stacked = np.ascontiguousarray(X.swapaxes(0, 1))
    graph = graph_of(f, "data=4", stacked)
    parts = par.partition(graph, mesh="data=4", outputs=[("",), ("", "data", "")])
    whole = interpret(graph, [stacked])
    for rank, (total, rows) in enumerate(run_parts(parts, "data=4", [stacked])):
        np.testing.assert_allclose(total, whole[0], rtol=1e-12)
        np.testing.assert_array_equal(rows, whole[1][:, 2 * rank : 2 * rank + 2])


@pytest.mark.rotating(2)
def test_recurrent_layer_in_a_stage_of_a_pipeline() -> None:
    """Zeros that a state and a sum of gradients begin with are one constant, cut for each by itself."""

    def program(**axes: int) -> list[float]:
        weft.manual_seed(0)
        mesh = par.mesh(**axes)
        run = weft.compile(step_of(Recurrent("LSTM"), 1), mesh=mesh, microbatches=4 // axes["data"])
        rng = np.random.default_rng(1)
        x, y = rng.standard_normal((32, 5, 4)).astype(np.float32), rng.integers(0, 3, 32)
        return [float(run(weft.tensor(x), weft.tensor(y))) for _ in range(3)]

    wanted = train("lstm", None)[0]
    for axes in ({"data": 1, "pipe": 2}, {"data": 2, "pipe": 2}):
        for found in par.simulate(lambda a=axes: program(**a), 2 * axes["data"]):
            np.testing.assert_allclose(found, wanted, rtol=1e-4)


@pytest.mark.rotating(2)
def test_loss_of_each_step_of_a_sequence() -> None:
    """What each turn sums over the batch takes a message in each: the loop is written out."""

    def program(count: int | None, **settings: Any) -> list[float]:
        weft.manual_seed(0)
        cell, table, head = nn.LSTMCell(4, 8), nn.Embedding(5, 4), nn.Linear(8, 5)
        optimizer = weft.optim.Adam(nn.ModuleList([cell, table, head]).parameters(), lr=0.05)

        def step(t: Any) -> Any:
            optimizer.zero_grad()
            t, loss = par.shard(t, "data"), weft.zeros(())
            h = c = weft.zeros(t.shape[0], 8)
            for i in range(t.shape[1] - 1):
                h, c = cell(table(t[:, i]), (h, c))
                loss = loss + F.cross_entropy(head(h), t[:, i + 1])
            loss.backward()
            optimizer.step()
            return loss

        run = step if count is None else weft.compile(step, mesh=par.mesh(data=count), **settings)
        t = weft.tensor(np.random.default_rng(0).integers(0, 5, (16, 5)))
        return [float(run(t)) for _ in range(3)]

    one = par.simulate(program, 1, 1)[0]
    np.testing.assert_allclose(one, program(None), rtol=1e-4)
    assert par.simulate(program, 2, 2) == [one] * 2
    loose = par.simulate(lambda: program(4, reproducible=False), 4)
    np.testing.assert_allclose(loose[3], one, rtol=1e-4)


def test_loop_that_cuts_a_batch_and_is_too_long_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """It runs as it is, on all of the batch, on every rank."""

    def f(x: Any) -> Any:
        total = weft.zeros(())
        for i in range(9000):
            total = total + par.shard(x * (i * 0.0 + 1.0), "data").mean()
        return total

    def program() -> float:
        return float(weft.compile(f, mesh=par.mesh(data=2))(weft.ones(8)))

    assert par.simulate(program, 2) == [9000.0] * 2
    (told, *_) = [record.getMessage() for record in caplog.records if "all the work" in record.getMessage()]
    assert "f: all ranks do all the work of the scan at" in told
    assert "test_regions.py" in told

"""Pipelines: values and bits, where they are cut, and what ranks hold and keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
import weft.nn.functional as F
from tests.of_code import examples
from tests.parallel.pipelines import KINDS, PLAIN, quick, same, train, world
from weft import nn
from weft import parallel as par
from weft.parallel.schedules import TABLES

MESHES = [{"data": 1, "pipe": 2}, {"data": 2, "pipe": 2}, {"data": 1, "pipe": 3}, {"pipe": 2, "data": 2}]


@pytest.mark.rotating(2)
@examples(60, 5)
@given(
    st.lists(st.integers(0, 4), min_size=2, max_size=5),
    st.sampled_from(MESHES),
    st.sampled_from(sorted(TABLES)),
    st.sampled_from([1, 2, 3, 4, 6]),
    st.integers(1, 2),
    st.booleans(),
    st.booleans(),
)
def test_random_models_are_as_without_ranks(
    kinds: list[int],
    axes: dict[str, int],
    schedule: str,
    microbatches: int,
    chunks: int,
    tied: bool,
    marks: bool,
) -> None:
    """Equal to eager training, and to the last bit to one process with the same stages and microbatches."""
    stages = axes["pipe"] * chunks
    if schedule == "interleaved" and microbatches > axes["pipe"]:
        microbatches = 6
    model = {"tied": tied, "marks": len(kinds) if marks and len(kinds) >= stages else 0, "dropout": 0.2}
    options = {"stages": stages, "schedule": schedule, "microbatches": microbatches}
    found = par.simulate(lambda: quick(axes, kinds, model=model, **options), world(axes))
    assert len({one["digest"] for one in found}) == 1
    assert all(one["losses"] == found[0]["losses"] for one in found)
    same(found[0], train(None, kinds, model={**model, "marks": 0}))
    options["microbatches"] = microbatches * axes["data"]
    options["schedule"] = "1f1b"
    if not microbatches & (microbatches - 1):
        alone = quick({"data": 1, "pipe": 1}, kinds, model=model, **options)
        assert alone["digest"] == found[0]["digest"]


@pytest.mark.rotating(2)
def test_bits_depend_on_neither_ranks_nor_schedule() -> None:
    """With dropout, clipping by the norm of all gradients and an optimizer with state."""
    settings = {"adam": True, "model": {"dropout": 0.3}, "stages": 4}
    runs: list[tuple[dict[str, int], str]] = [
        ({"data": 1, "pipe": 1}, "gpipe"),
        ({"data": 1, "pipe": 2}, "1f1b"),
        ({"data": 2, "pipe": 2}, "zero-bubble"),
    ]
    digests = {
        one["digest"]
        for axes, name in runs
        for one in par.simulate(lambda a=axes, s=name: train(a, KINDS, schedule=s, **settings), world(axes))
    }
    assert len(digests) == 1


def test_every_tensor_is_on_one_stage() -> None:
    """Parameters and the optimizer's state of them; together the ranks hold each of them once."""
    whole = train(None, PLAIN, adam=True)
    found = par.simulate(lambda: quick({"data": 1, "pipe": 4}, PLAIN, adam=True), 4)
    for name, size in whole["held"].items():
        assert sorted(one["held"][name] for one in found) == [0, 0, 0, size]
    assert sum(one["state"] for one in found) == whole["state"] == 2 * sum(whole["held"].values())
    assert all(one["state"] == 2 * sum(one["held"].values()) for one in found)
    assert all(sum(one["held"].values()) for one in found)


@pytest.mark.rotating(2)
def test_marks_say_where_each_layer_is() -> None:
    """Weights and biases are with their layer, also those of the first layer behind a mark."""
    found = par.simulate(lambda: quick({"data": 1, "pipe": 4}, PLAIN, model={"marks": 4}), 4)
    for name in found[0]["held"]:
        at = [bool(one["held"][name]) for one in found].index(True)
        first, last = ("table", 0), ("head", 3)
        stage = next((k for n, k in (first, last) if name.startswith(n)), None)
        if name.startswith("inner"):
            stage = int(name.split(".")[1])
        assert name.startswith("norm") or at == stage, name
    halves = par.simulate(lambda: quick({"data": 1, "pipe": 2}, PLAIN, model={"marks": 4}), 2)
    assert [bool(halves[0]["held"][f"inner.{i}.weight"]) for i in range(4)] == [True, True, False, False]


def test_a_function_without_modules_can_be_cut() -> None:
    """One line for all layers, weights in a list."""

    def program(mesh: Any = None) -> Any:
        weft.manual_seed(0)
        weights = [weft.randn(4, 4).requires_grad_() for _ in range(4)]
        biases = [weft.randn(4).requires_grad_() for _ in range(4)]

        def step(x: Any) -> Any:
            x = par.shard(x, "data")
            for w, b in zip(weights, biases, strict=True):
                x = weft.tanh(x @ w + b)
            loss = x.square().sum()
            loss.backward()
            with weft.no_grad():
                for p in (*weights, *biases):
                    p -= 0.1 * p.grad
                    p.grad = None
            return loss

        run: Any = step if mesh is None else weft.compile(step, mesh=mesh, backend="interpret")
        losses = [float(run(weft.ones(8, 4))) for _ in range(2)]
        return losses, [p.detach().full().numpy() for p in (*weights, *biases)], par.held_bytes(weights)

    expected = program()
    found = par.simulate(lambda: program(par.mesh(data=1, pipe=2)), 2)
    for losses, arrays, _ in found:
        np.testing.assert_allclose(losses, expected[0], rtol=1e-5)
        for a, b in zip(arrays, expected[1], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    assert sum(one[2] for one in found) == expected[2]


@pytest.mark.rotating(2)
def test_a_tied_weight_is_on_its_first_stage() -> None:
    found = par.simulate(lambda: train({"data": 1, "pipe": 2}, [1] * 4, model={"tied": True}), 2)
    # Small ones would be on all ranks; this one is: its gradient is smaller than what is worth a message.
    same(found[0], train(None, [1] * 4, model={"tied": True}))

    def program() -> Any:
        mesh = par.mesh(data=1, pipe=2)
        weft.manual_seed(0)
        table, head = nn.Embedding(64, 8), nn.Linear(8, 64, bias=False)
        head.weight = table.weight
        model = nn.Sequential(table, nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), head)
        optimizer = weft.optim.SGD(model.parameters(), lr=0.5)

        def step(x: Any) -> Any:
            x = par.shard(x, "data")
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), x)
            loss.backward()
            optimizer.step()
            return loss

        run = weft.compile(step, mesh=mesh, backend="interpret")
        loss = [float(run(weft.arange(16))) for _ in range(2)]
        return loss, table.weight.detach().full().numpy(), par.held_bytes([table.weight])

    first, second = par.simulate(program, 2)
    assert (first[2], second[2]) == (64 * 8 * 4, 0)
    assert first[0] == second[0]
    weft.manual_seed(0)
    table = nn.Embedding(64, 8)
    layers = [nn.Linear(8, 64, bias=False), nn.Linear(8, 8), nn.Linear(8, 8)]
    parameters = [table.weight, *[p for layer in layers[1:] for p in layer.parameters()]]
    for _ in range(2):
        for p in parameters:
            p.grad = None
        x = weft.tanh(layers[2](weft.tanh(layers[1](table(weft.arange(16))))))
        F.cross_entropy(x @ table.weight.mT, weft.arange(16)).backward()
        for p in parameters:
            p.data -= 0.5 * p.grad
    np.testing.assert_allclose(first[1], table.weight.detach().numpy(), rtol=1e-5, atol=1e-7)


def kept_in(graph: Any, later: tuple[str, ...] = ("backward", "weights")) -> int:
    """From the program of a rank alone: the most bytes of forward passes that later parts still need."""
    kinds = [n.attrs.get("function", "") for n in graph.nodes]
    forward = [i for i, k in enumerate(kinds) if k.startswith("forward")]
    backward = {i for i, k in enumerate(kinds) if k.startswith(later)}
    born = {v: i for i in forward for v in graph.nodes[i].outputs}
    for i in forward:  # what was received for it
        for v in graph.nodes[i].inputs:
            if any(n.op.name.endswith("receive") and v in n.outputs for n in graph.nodes):
                born.setdefault(v, i)
    last = {v: max([i for i in backward if v in graph.nodes[i].inputs], default=-1) for v in born}
    at = [
        sum(int(np.prod(v.type.shape)) * v.type.dtype.itemsize for v in born if born[v] <= i <= last[v])
        for i in range(len(kinds))
    ]
    return max(at)


@pytest.mark.rotating(2)
def test_what_is_kept_for_backward_is_as_said() -> None:
    """What a table promises for stages of so many bytes is what compiled steps say, and what they do."""
    axes, kinds = {"data": 1, "pipe": 2}, [0] * 6
    once = par.simulate(lambda: quick(axes, kinds, schedule="gpipe", microbatches=1), 2)
    each, late = ([kept_in(one["run"].lowered, *w) // 4 for one in once] for w in ((), (("weights",),)))
    for name in sorted(TABLES):
        found = par.simulate(lambda s=name: quick(axes, kinds, schedule=s, microbatches=4, explained=True), 2)
        kept = tuple(kept_in(one["run"].lowered) for one in found)
        table = par.schedule(name, ranks=2, microbatches=4)
        assert table.stages > 2 or kept == table.alive(each, late)
        assert f"bytes kept for backward: {kept[0]:,}, {kept[1]:,}" in found[1]["text"]
    assert each[1] > late[1] > 0


@pytest.mark.rotating(2)
def test_the_pass_is_named_and_can_be_left_out() -> None:
    axes = {"data": 2, "pipe": 2}
    names = [r.name for r in par.simulate(lambda: quick(axes, PLAIN), 4)[0]["run"].lowered.history()]
    assert [n for n in names if n in ("partition", "stage", "bucket", "commit")] == [
        "partition", "stage", "bucket", "commit",
    ]  # fmt: skip
    without = par.simulate(lambda: quick(axes, PLAIN, disable=["stage"]), 4)[0]
    assert "stage" not in [r.name for r in without["run"].lowered.history()]
    same(without, train(None, PLAIN))


@pytest.mark.rotating(2)
def test_data_operators_and_stages_in_one_mesh() -> None:
    """A GPT of two blocks, placed as usual, on eight ranks."""
    from tests.parallel.test_auto import example

    def program(axes: dict[str, int] | None) -> Any:
        mesh = None if axes is None else par.mesh(**axes)
        weft.manual_seed(0)
        model = example().GPT(16, 4, 8, 2, 2)
        text = ""
        if mesh is not None:
            placement = par.auto(model, mesh)
            text = str(placement)
            par.place(model, placement, mesh)
        optimizer = weft.optim.SGD(model.parameters(), lr=0.1)

        def step(x: Any, y: Any) -> Any:
            x, y = par.shard(x, "data"), par.shard(y, "data")
            optimizer.zero_grad()
            loss = example().loss_of(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss

        run: Any = (
            step if mesh is None else weft.compile(step, mesh=mesh, microbatches=2, backend="interpret")
        )
        rng = np.random.default_rng(0)
        x, y = (weft.tensor(rng.integers(0, 16, (4, 4))) for _ in range(2))
        losses = [float(run(x, y)) for _ in range(2)]
        weights = [p.detach().full().numpy() for p in model.parameters()]
        return losses, weights, {n: par.held_bytes([p]) for n, p in model.named_parameters()}, text

    expected = program(None)
    found = par.simulate(program, 8, {"data": 2, "model": 2, "pipe": 2})
    for losses, weights, _, text in found:
        np.testing.assert_allclose(losses, expected[0], rtol=1e-5)
        for a, b in zip(weights, expected[1], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)
        assert text.endswith("stage 1 begins with blocks.1")
    for name, size in expected[2].items():
        cut = 2 if found[0][2][name] not in (0, size) or found[1][2][name] not in (0, size) else 1
        assert [one[2][name] for one in found] in [[size // cut, 0] * 4, [0, size // cut] * 4], name

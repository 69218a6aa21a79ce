"""Pipelines: values, bits, what ranks hold and keep, what is refused, and what is saved."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
import weft.nn.functional as F
from tests.of_code import examples
from tests.parallel.launching import launch, needs_mpi
from tests.parallel.pipelines import KINDS, Layers, train, world
from weft import nn
from weft import parallel as par
from weft.errors import BoundsError, DivergenceError, DomainError, ParallelError
from weft.parallel.schedules import TABLES

PLAIN = [0, 1, 2, 0]
PROGRAM = Path(__file__).parent / "pipeline_program.py"


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Losses, weights and gradients are those of a program without ranks."""
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=2e-5)
    for what in ("weights", "gradients"):
        for name, array in expected[what].items():
            np.testing.assert_allclose(found[what][name], array, rtol=1e-3, atol=2e-6, err_msg=name)


def quick(*args: Any, **settings: Any) -> dict[str, Any]:
    """As ``train``, by the interpreter, which has nothing to compile."""
    return train(*args, backend="interpret", **settings)


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
            if any(n.op.name == "receive" and v in n.outputs for n in graph.nodes):
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


def test_statistics_of_a_batch() -> None:
    """Of what comes in they are right, running ones, too; behind weights they are refused with the line."""

    def program(at: int, mesh: Any = None) -> Any:
        weft.manual_seed(0)
        layers = [nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)]
        layers.insert(at, nn.BatchNorm1d(4))
        model = nn.Sequential(*layers)
        optimizer = weft.optim.SGD(model.parameters(), lr=0.1)

        def step(x: Any) -> Any:
            x = par.shard(x, "data")
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        run: Any = step if mesh is None else weft.compile(step, mesh=mesh, backend="interpret")
        x = weft.tensor(np.random.default_rng(0).standard_normal((16, 4)).astype(np.float32))
        losses = [float(run(x)) for _ in range(2)]
        return losses, [t.detach().full().numpy() for t in (*model.parameters(), *model.buffers())]

    expected = program(0)
    found = par.simulate(lambda: program(0, par.mesh(data=1, pipe=2)), 2)
    for losses, tensors in found:
        np.testing.assert_allclose(losses, expected[0], rtol=1e-5)
        for a, b in zip(tensors, expected[1], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    with pytest.raises(ParallelError, match="one microbatch after another") as error:
        par.simulate(lambda: program(2, par.mesh(data=1, pipe=2)), 2)
    assert "loss = model(x).square().mean()" in str(error.value)
    assert "batch normalisation" in str(error.value)


REFUSED: dict[str, tuple[dict[str, int], dict[str, Any], type[Exception], list[str]]] = {
    "no batch": ({"pipe": 2}, {}, ParallelError, ["must have 'data', too", "par.mesh(data=1, pipe=...)"]),
    "no axis": ({"data": 2}, {"stages": 2}, ParallelError, ["stages need a mesh with the axis 'pipe'"]),
    "stages": ({"data": 1, "pipe": 2}, {"stages": 3}, DomainError, ["a multiple of the 2 ranks, got 3"]),
    "name": ({"data": 1, "pipe": 2}, {"schedule": "2f2b"}, DomainError, ["must be one of gpipe", "'2f2b'"]),
    "kind": (
        {"data": 1, "pipe": 2},
        {"schedule": 3},
        DomainError,
        ["must be a name or made by par.schedule"],
    ),
    "count": (
        {"data": 1, "pipe": 2},
        {"microbatches": 0},
        DomainError,
        ["microbatches must be a positive int"],
    ),
    "batch": (
        {"data": 1, "pipe": 2},
        {"microbatches": 5},
        ParallelError,
        ["must divide by the 5 microbatches of 1 rank, got 24", 'par.shard(x, "data")', "that divide 24"],
    ),
    "nodes": (
        {"data": 1, "pipe": 2},
        {"stages": 400},
        ParallelError,
        ["each of the 400 stages", "fewer stages"],
    ),
    "marks": (
        {"data": 1, "pipe": 2},
        {"stages": 4, "model": {"marks": 2}},
        ParallelError,
        ["4 stages need 3 marks one behind the other, got 1", "par.next_stage(x)"],
    ),
    "table": (
        {"data": 1, "pipe": 2},
        {"schedule": par.schedule("gpipe", ranks=2, microbatches=3), "microbatches": 4},
        ParallelError,
        ["2 ranks, 4 microbatches and 2 stages", "2 ranks, 3 microbatches"],
    ),
}


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused(name: str) -> None:
    axes, settings, kind, words = REFUSED[name]
    with pytest.raises(kind) as error:
        par.simulate(lambda: quick(axes, PLAIN, **settings), 2)
    assert all(word in str(error.value) for word in words), str(error.value)
    assert "train" in str(error.value) or "pipelines.py" in str(error.value) or "stages" in name


def test_tables_by_hand_run_and_deadlocks_do_not() -> None:
    axes = {"data": 1, "pipe": 2}
    first = [("F", 0, 1), ("F", 0, 0), ("B", 0, 1), ("B", 0, 0)]
    second = [("F", 1, 1), ("F", 1, 0), ("B", 1, 1), ("B", 1, 0)]
    mine = par.Schedule("mine", [first, second])
    usual = par.simulate(lambda: quick(axes, PLAIN, microbatches=2), 2)[0]
    assert par.simulate(lambda: quick(axes, PLAIN, schedule=mine), 2)[0]["digest"] == usual["digest"]
    late = [("F", 1, 1), ("B", 1, 1), ("F", 1, 0), ("B", 1, 0)]
    stuck = par.Schedule("stuck", [[first[1], first[3], first[0], first[2]], late])
    with pytest.raises(ParallelError, match="rank 1: F1 of stage 1 waits for F1 of stage 0 on rank 0"):
        par.simulate(lambda: quick(axes, PLAIN, schedule=stuck), 2)


def test_an_error_of_one_stage_is_raised() -> None:
    def program() -> Any:
        mesh = par.mesh(data=1, pipe=2)
        model = Layers(PLAIN)
        run = weft.compile(lambda x: model(par.shard(x, "data")).sum(), mesh=mesh)
        good = float(run(weft.zeros(8, dtype=weft.int64)))
        run(weft.tensor([0, 0, 0, 0, 0, 0, 0, 9]))
        return good

    with pytest.raises(BoundsError, match="for axis 0 of size 4, got 9"):
        par.simulate(program, 2)


def test_ranks_with_other_schedules_are_told() -> None:
    def program() -> Any:
        return quick({"data": 1, "pipe": 2}, PLAIN, schedule="gpipe" if par.rank() else "1f1b")

    with pytest.raises(DivergenceError, match=r"stages, version [0-9a-f]{8}"):
        par.simulate(program, 2)


def test_a_step_without_gradients() -> None:
    def program(mesh: Any = None) -> Any:
        weft.manual_seed(0)
        model = Layers([1, 2, 3])

        def scores(x: Any) -> Any:
            logits = model(par.shard(x, "data"))
            return logits, logits.mean()

        run: Any = scores if mesh is None else weft.compile(scores, mesh=mesh)
        logits, mean = run(weft.arange(16) % 4)
        return logits.detach().numpy(), float(mean)

    expected = program()
    for logits, mean in par.simulate(lambda: program(par.mesh(data=2, pipe=2)), 4):
        np.testing.assert_allclose(logits, expected[0], rtol=1e-5, atol=1e-6)
        assert mean == pytest.approx(expected[1], rel=1e-5)


@pytest.mark.rotating(2)
def test_microbatches_without_stages() -> None:
    """They are the virtual shards of a rank; any number of them."""
    usual = par.simulate(lambda: quick({"data": 2}, PLAIN), 2)[0]
    given = par.simulate(lambda: quick({"data": 2}, PLAIN, microbatches=4), 2)[0]
    assert given["digest"] == usual["digest"]
    for settings in ({"microbatches": 3}, {"microbatches": 6, "reproducible": False}):
        same(par.simulate(lambda s=settings: quick({"data": 2}, PLAIN, **s), 2)[0], train(None, PLAIN))


def resumed(path: str, axes: dict[str, int], steps: range, *, load: bool, zero: int = 0) -> bytes:
    """Weights after some of four steps, begun from a file or saved to it."""
    mesh = par.mesh(**axes)
    weft.manual_seed(1 if load else 0)
    model = Layers(PLAIN)
    optimizer = weft.optim.Adam(model.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        x = par.shard(x, "data")
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), x)
        loss.backward()
        optimizer.step()
        return loss

    if load:
        state = par.load(path, mesh)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    more: dict[str, Any] = {"stages": 2} if "pipe" in axes else {}
    run = weft.compile(step, mesh=mesh, backend="interpret", zero=zero, **more)
    for k in steps:
        run((weft.arange(16) * (k + 1)) % 4)
    if not load:
        weft.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    return b"".join(p.detach().full().numpy().tobytes() for p in model.parameters())


@pytest.mark.rotating(2)
def test_checkpoints_go_from_mesh_to_mesh(tmp_path: Path) -> None:
    path = os.fspath(tmp_path / "state.safetensors")
    whole = par.simulate(lambda: resumed(path, {"data": 1, "pipe": 1}, range(3), load=False), 1)[0]
    half = par.simulate(lambda: resumed(path, {"data": 1, "pipe": 2}, range(2), load=False), 2)[0]
    found = weft.load(path)["model"]
    assert b"".join(found[n].numpy().tobytes() for n, _ in Layers(PLAIN).named_parameters()) == half
    for axes in ({"data": 1, "pipe": 1}, {"data": 2, "pipe": 2}):
        again = par.simulate(lambda a=axes: resumed(path, a, range(2, 3), load=True), world(axes))
        assert set(again) == {whole}
    plain = par.simulate(lambda: resumed(path, {"data": 2}, range(2, 3), load=True), 2)[0]
    np.testing.assert_allclose(np.frombuffer(plain, "f4"), np.frombuffer(whole, "f4"), rtol=1e-3, atol=1e-5)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_trainer_passes_it_on(accumulate: int) -> None:
    """With validation, and a last batch that microbatches do not divide, which all ranks work on whole."""

    def program(axes: dict[str, int] | None) -> Any:
        mesh = None if axes is None else par.mesh(**axes)
        weft.manual_seed(0)
        model = Layers(PLAIN)
        x = weft.arange(19) % 4
        batches = [(x[i : i + 8], x[i : i + 8]) for i in range(0, 19, 8)]
        more = {} if mesh is None else {"mesh": mesh, "microbatches": 2, "schedule": "zero-bubble"}
        trainer = weft.Trainer(
            model, F.cross_entropy, weft.optim.SGD(model.parameters(), lr=0.1), batches, batches[:2],
            progress=False, clip_norm=1.0, accumulate=accumulate, **more,
        )  # fmt: skip
        history = trainer.fit(epochs=1)
        weights = [p.detach().full().numpy() for p in model.parameters()]
        return history[-1]["val_loss"], weights, par.held_bytes(model.parameters())

    expected = program(None)
    axes = {"data": 1, "pipe": 2}
    found = par.simulate(program, world(axes), axes)
    for loss, weights, held in found:
        assert loss == pytest.approx(expected[0], rel=1e-5)
        for a, b in zip(weights, expected[1], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)
        assert held < expected[2]


def test_messages_go_to_ranks_that_are_there() -> None:
    from weft.ops.pipeline import receive, send

    attrs = {"number": 0, "axis": "pipe", "mesh": "pipe=2"}
    with pytest.raises(DomainError, match=r"send: the other rank must be in 0..1, got 2"):
        send.type_rule(weft.TensorType((2,), weft.float32), to=2, **attrs)
    with pytest.raises(DomainError, match=r"receive: the other rank must be in 0..1, got -1"):
        receive.type_rule(shape=(2,), dtype="float32", source=-1, **attrs)


def test_a_message_that_nobody_sends_is_told() -> None:
    def program() -> Any:
        par.mesh(pipe=-1)
        from weft.ops.pipeline import receive

        attrs = {"axis": "pipe", "mesh": "pipe=2", "number": 3}
        return receive.eval(shape=(2,), dtype="float32", source=1 - par.rank(), **attrs)

    with pytest.raises(DivergenceError, match="receive of f32"):
        par.simulate(program, 2)


@pytest.mark.rotating(2)
@needs_mpi
@pytest.mark.parametrize("n", [2, 4])
def test_between_processes(n: int) -> None:
    """All checks of the program; weights have the bits of one process."""
    found = launch(n, PROGRAM)
    assert found.returncode == 0, found.stderr
    alone = train({"data": 1, "pipe": 1}, KINDS, model={"dropout": 0.2}, stages=4, adam=True)
    lines = sorted(filter(None, found.stdout.split("\n")))
    assert lines == [f"rank {r} {alone['digest']}" for r in range(n)]

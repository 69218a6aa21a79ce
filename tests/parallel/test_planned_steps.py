"""Plans of compiled steps: their memory and messages are those of real ranks, which threads play here."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import weft
from tests.parallel.training import shrink
from weft import nn, optim
from weft import parallel as par
from weft.cli import main
from weft.errors import ArgumentError, CaptureError, DomainError
from weft.parallel.planner.clusters import Cluster, find_cluster
from weft.parallel.planner.follow import follow
from weft.parallel.planner.works import Work, companions
from weft.schedule.memory_report import report_memory

F = nn.functional
LAPTOP = find_cluster("laptop")


def training(
    mesh: Any, placed: bool = False, **settings: Any
) -> tuple[Any, tuple[Any, ...], Callable[[], float]]:
    """A step, its arguments, and what tells the bytes that a rank holds."""
    weft.manual_seed(0)
    model = nn.ModuleDict({"fc1": nn.Linear(16, 32), "fc2": nn.Linear(32, 8)})
    if placed:
        par.place(model, par.auto(model, mesh), mesh)
    optimizer = optim.Adam(model.parameters(), lr=1e-2)

    def step(x: Any, y: Any) -> Any:
        x, y = par.shard(x, "data"), par.shard(y, "data")
        optimizer.zero_grad()
        loss = F.cross_entropy(model["fc2"](weft.tanh(model["fc1"](x))), y)
        loss.backward()
        optimizer.step()
        return loss

    run = weft.compile(step, mesh=mesh, **settings)
    args = weft.ones(16, 16), weft.tensor([0, 1] * 8)

    def held() -> float:
        tensors = [*model.parameters(), *[p.grad for p in model.parameters()]]
        for state in optimizer.state_dict()["state"].values():
            tensors += [t for t in state.values() if weft.is_tensor(t)]
        backend: Any = run.versions[0].run
        executable = backend.run
        report = report_memory(executable.graph, executable.program)
        rest = report.outputs - report.donated - par.held_bytes([p.grad for p in model.parameters()])
        return float(
            par.held_bytes(tensors) + sum(a.nbytes for a in args) + report.arena + report.constants + rest
        )

    return run, args, held


def on_ranks(axes: dict[str, int], **settings: Any) -> tuple[float, list[tuple[str, str]]]:
    """What each rank holds after a step, and the collectives that it ran."""
    mesh = par.mesh(**axes)
    run, args, held = training(mesh, **settings)
    run(*args)
    graph = run.versions[0].run.graph
    return held(), [(n.op.name, n.attrs.get("axis", "")) for n in graph.nodes if n.op.effect]


@pytest.mark.rotating(3)
@pytest.mark.parametrize(
    ("axes", "settings"),
    [
        ({"data": 2}, {}),
        ({"data": 2}, {"reproducible": False}),
        ({"data": 4}, {"reproducible": False, "zero": 1}),
        ({"data": 2}, {"reproducible": False, "zero": 2}),
        ({"data": 4}, {"reproducible": False, "zero": 3}),
        ({"data": 2, "model": 2}, {"placed": True, "reproducible": False}),
    ],
    ids=str,
)
def test_memory_is_that_of_a_rank(axes: dict[str, int], settings: dict[str, Any]) -> None:
    ranks = par.Mesh(",".join(f"{k}={v}" for k, v in axes.items())).size
    (real, _), *_ = par.simulate(partial(on_ranks, axes, **settings), ranks)
    with par.planned(ranks):
        run, args, _ = training(par.mesh(**axes), **settings)
        plan = run.plan(*args, measure=False)
    assert plan.memory_bytes == pytest.approx(real, abs=16)  # a number that the optimizer's text holds


@pytest.mark.rotating(2)
def test_a_plan_sends_what_ranks_send() -> None:
    (_, collectives), *_ = par.simulate(partial(on_ranks, {"data": 4}, reproducible=False, zero=3), 4)
    with par.planned(4):
        run, args, _ = training(par.mesh(data=4), reproducible=False, zero=3)
        plan = run.plan(*args, cluster="dgx-h100")
    names = {re.sub("start_|wait_", "", name) for name, axis in collectives if axis}
    assert {row.what.removesuffix(" over data") for row in plan.traffic} - {"agree", "commit"} == names
    weights = 4 * (16 * 32 + 32 + 32 * 8 + 8)
    sent = plan.link_bytes["NVLink 4"]
    assert sent > 2 * 0.75 * weights  # gathered, and gradients scattered, by a ring of four


@pytest.mark.rotating(2)
def test_a_step_of_one_process_is_planned_for_any_mesh() -> None:
    run, args, _ = training(par.mesh(data=1), reproducible=False)
    before = float(run(*args))
    plans = [run.plan(*args, mesh=f"data={n}", cluster="dgx-a100") for n in (1, 4, 16)]
    assert [p.ranks for p in plans] == [1, 4, 16]
    assert plans[0].traffic == []
    assert plans[0].seconds < plans[1].seconds  # messages cost more than so little work
    assert plans[1].memory["arguments"] == plans[0].memory["arguments"]
    assert run.plan(mesh="data=16", cluster="dgx-a100").memory == plans[2].memory  # with zeros for arguments
    again = training(par.mesh(data=1), reproducible=False)[0]
    again(*args)
    assert float(run(*args)) == float(again(*args)) < before  # planning changed nothing


def test_times_are_measured_where_ranks_share_processors() -> None:
    run, args, _ = training(par.mesh(data=1), reproducible=False)
    run(*args)
    few = run.plan(*args, mesh="data=2", cluster=LAPTOP)
    many = run.plan(*args, mesh="data=4", cluster=LAPTOP._replace(processors=2))
    assert few.parts["compute"] > 0
    assert many.parts["all_reduce over data"] > few.parts["all_reduce over data"]
    assert sum(few.parts.values()) == few.seconds


OVERLAPPED = """
graph f(%x: f32[1000000], %y: f32[3]) {
  %0: f32[1000000] = start_all_reduce(%x, axis="data", mesh="data=16", number=0)
  %1: f32[3] = exp(%y)
  %2: f32[1000000] = wait_all_reduce(%0, %x, axis="data", mesh="data=16", number=0)
  return %2, %1
}"""


@pytest.mark.parametrize("seconds", [0.0, 1e-4, 1.0])
def test_sums_are_hidden_behind_what_is_computed(seconds: float) -> None:
    start, other, wait = weft.parse_graph(OVERLAPPED).nodes
    works = [Work("start", 0.0, 1, start), Work("exp", seconds, 1), Work("wait", 0.0, 1, wait)]
    dgx, mesh = find_cluster("dgx-a100"), par.Mesh("data=16")
    _, parts, traffic = follow(works, mesh, dgx)
    row = next(r for r in traffic if r.what == "all_reduce over data")
    assert row.seconds == pytest.approx(7.5e6 / (8 * 20e9) + 2 * (3 * 5e-6 + 10e-6))
    assert row.exposed == pytest.approx(max(0.0, row.seconds - seconds))
    assert parts.get("compute", 0.0) == seconds
    assert sum(row.bytes.values()) == pytest.approx(7.5e6)
    busy = Cluster("busy", dgx.device, dgx.links, processors=16)  # no processor is left to move data
    _, _, traffic = follow(works, mesh, busy)
    assert next(r for r in traffic if r.what == "all_reduce over data").exposed == row.seconds
    assert other.op.name == "exp"


def test_virtual_shards_that_do_not_divide_are_noted() -> None:
    run, args, _ = training(par.mesh(data=1))
    plan = run.plan(*args, mesh="data=16", cluster="dgx-a100")
    assert "reproducible=False" in plan.notes[0]


def test_wrong_plans_are_told() -> None:
    run, args, _ = training(par.mesh(data=1))
    with pytest.raises(CaptureError, match="call it"):
        run.plan()
    with pytest.raises(DomainError, match="a mesh must be text such as"):
        run.plan(*args, mesh="data:2")
    with pytest.raises(DomainError, match="the axes must be those of the compiled mesh"):
        run.plan(*args, mesh="rows=2")
    with pytest.raises(ArgumentError, match="must be compiled with a mesh, got one without"):
        weft.compile(lambda x: x * 2.0).plan(weft.ones(3))
    with pytest.raises(DomainError, match="must be a positive int, got 0"), par.planned(0):
        pass


# Pipelines


def pipeline(mesh: Any, **settings: Any) -> tuple[Any, Any]:
    """A step of four equal layers, and its model."""
    weft.manual_seed(0)
    model = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.Tanh())])
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    return weft.compile(shrink(model, optimizer), mesh=mesh, **settings), model


def weights_of_rank() -> int:
    run, model = pipeline(par.mesh(pipe=4, data=1))
    run(weft.ones(64, 64))
    return par.held_bytes(model.parameters())


@pytest.mark.rotating(2)
def test_a_rank_of_a_pipeline_holds_the_weights_of_its_stage() -> None:
    with par.planned(4):
        plan = pipeline(par.mesh(pipe=4, data=1))[0].plan(weft.ones(64, 64), cluster="dgx-a100")
    assert plan.memory["weights"] == max(par.simulate(weights_of_rank, 4)) == 4 * (64 * 64 + 64)


@pytest.mark.rotating(2)
def test_more_microbatches_leave_less_bubble() -> None:
    shares = []
    for count in (2, 8, 32):
        with par.planned(4):
            run, _ = pipeline(par.mesh(pipe=4, data=1), microbatches=count)
            plan = run.plan(weft.ones(64, 64), cluster="dgx-a100")
        assert sum(plan.parts.values()) == pytest.approx(max(e.end for e in plan.events), rel=0.1)
        assert {e.rank for e in plan.events} == {0, 1, 2, 3}
        shares.append(plan.bubble)
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.3 > shares[2] > 0.0


# The command


SCRIPT = """
import sys
import weft
from weft import parallel as par
mesh = par.mesh(data=-1)
w = weft.ones(8, 8)
step = weft.compile(lambda x: weft.tanh(par.shard(x, "data") @ w).sum(), mesh=mesh)
step(weft.ones(64 * int(sys.argv[1]), 8))
raise RuntimeError("the step was run")
"""


def test_command_plans_a_script_and_writes_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, page, trace = tmp_path / "train.py", tmp_path / "p.html", tmp_path / "t.json"
    script.write_text(SCRIPT)
    words = ["plan", str(script), "--mesh", "data=64", "--cluster", "dgx-a100", "--args", "2"]
    assert main([*words, "--page", str(page), "--trace", str(trace)]) == 0
    out = capsys.readouterr().out
    assert "on dgx-a100: data=64" in out
    assert "all_reduce over data" in out
    assert page.stat().st_size > 2000
    assert trace.stat().st_size > 200


PIPELINE = """
import weft
from weft import nn, optim
from weft import parallel as par
mesh = par.mesh(data=-1, pipe=1)
model = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.Tanh())])
optimizer = optim.Adam(model.parameters(), lr=0.1)
def step(x):
    optimizer.zero_grad()
    loss = model(par.shard(x, "data")).square().mean()
    loss.backward()
    optimizer.step()
    return loss
run = weft.compile(step, mesh=mesh, zero=ZERO)
run(weft.ones(512, 64))
raise RuntimeError("the step was run")
"""


@pytest.mark.parametrize(
    ("mesh", "zero"), [("data=2,pipe=4", 0), ("data=32,pipe=4", 1), ("pipe=2,data=1", 0)]
)
def test_command_plans_a_script_with_a_pipeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mesh: str, zero: int
) -> None:
    """As ``step.plan`` does; with more ranks than virtual shards there are as many microbatches as stages."""
    script, page, trace = tmp_path / "train.py", tmp_path / "p.html", tmp_path / "t.json"
    script.write_text(PIPELINE.replace("ZERO", str(zero)))
    words = ["plan", str(script), "--mesh", mesh, "--cluster", "dgx-a100"]
    assert main([*words, "--page", str(page), "--trace", str(trace)]) == 0
    out = capsys.readouterr().out
    assert f"on dgx-a100: {mesh}, 1f1b, {8 if mesh.endswith('data=1') else 4} microbatches" in out
    assert ("zero=1" in out) == bool(zero)
    assert "send over pipe" in out
    stages = int(mesh.split("pipe=")[1][0])
    layer = 4 * (64 * 64 + 64)
    held = next(line for line in out.splitlines() if line.split()[:1] == ["weights"])
    whole = layer * 4 / stages
    state = 2 * whole / (32 if zero else 1)  # of Adam; counted with the weights
    assert float(held.split()[1]) == pytest.approx((whole + state) / 1e3, rel=0.02), held
    assert page.stat().st_size > 2000
    assert trace.stat().st_size > 200


def test_command_plans_a_saved_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    par.mesh(data=1)
    traced = weft.jit.trace(lambda x: weft.tanh(par.shard(x, "data")).sum(), weft.ones(64, 8))
    traced.save(tmp_path / "g.weft")
    assert main(["plan", str(tmp_path / "g.weft"), "--mesh", "data=8", "--cluster", "dgx-a100"]) == 0
    assert "data=8" in capsys.readouterr().out


def test_command_searches_meshes_of_a_transformer(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = "layers=8,width=1024,heads=16,context=1024,vocab=32000"
    assert main(["plan", "--gpt", sizes, "--batch", "64", "--gpus", "16", "--most", "2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("1. data=16")
    assert "\n2. " in out
    assert "transformer of 0.135 G parameters" in out
    assert main(["plan", "--gpt", sizes, "--batch", "64", "--mesh", "data=4,pipe=4", "--micro", "2"]) == 0
    assert "8 microbatches of 2, 1f1b" in capsys.readouterr().out


def test_command_lists_clusters(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--clusters"]) == 0
    assert "dgx-h100   H100 80 GB, 989.0 TFLOP/s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "takes a file or --gpt, got none"),
        (["--gpt", "layers=2,width=8,heads=2,context=4,vocab=5"], "must have a batch, got none"),
        (
            ["--gpt", "layers=2,width=8,heads=2,context=4,vocab=5", "--batch", "8"],
            "needs a mesh, or a number of devices",
        ),
        (
            ["--gpt", "layers=2,width=8,heads=2,context=4,vocab=5", "--batch", "8", "--mesh", "rows=2"],
            "got rows",
        ),
        (["missing.py", "--mesh", "data=2"], "No such file"),
    ],
)
def test_command_tells_what_is_wrong(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *words]) == 1
    assert told in capsys.readouterr().err


def test_what_runs_beside_a_measured_call_is_another_process_and_ends_with_it() -> None:
    def work() -> None:
        with told.open("a") as file:
            file.write(f"{os.getpid()}\n")

    with TemporaryDirectory() as folder:
        told = Path(folder) / "told"
        with companions(work, 2):
            seen = {int(line) for line in told.read_text().split()}
            assert len(seen) == 2
            assert os.getpid() not in seen
        for process in seen:
            with pytest.raises(ProcessLookupError):
                os.kill(process, 0)


def test_a_measured_call_whose_companion_fails_goes_on() -> None:
    def work() -> None:
        if os.getpid() != here:
            raise ValueError("a copy that fails")

    here = os.getpid()
    with companions(work, 1):
        work()

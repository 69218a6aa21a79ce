"""Plans beside runs: training steps on 2 and 4 ranks of this machine, planned by one process.

    python -m bench.planned 3             # rounds; each plans and runs every configuration, in turn
    python -m bench.planned 3 "GPT, data=2"  # some of them

Others may use the machine, and 4 ranks share its processors; so both take the time that a tenth of the steps
stay below, and of the rounds the best.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import weft
from weft import nn, optim
from weft import parallel as par
from weft.base.ranks import world
from weft.parallel.launch import find_launcher
from weft.parallel.planner.measuring import cluster_text, measure_cluster
from weft.parallel.planner.works import processors_here

_QUIET = 0.1
_STEPS = 150
F = nn.functional


class Case(NamedTuple):
    """A training step on a mesh.

    Attributes:
        mesh: as text.
        model: "mlp" or "gpt".
        settings: of ``weft.compile``.
    """

    mesh: str
    model: str
    settings: dict[str, Any]

    @property
    def ranks(self) -> int:
        """How many there are."""
        return par.Mesh(self.mesh).size


CASES = {
    "MLP, data=2": Case("data=2", "mlp", {"reproducible": False}),
    "MLP, data=2, equal bits": Case("data=2", "mlp", {}),
    "GPT, data=2": Case("data=2", "gpt", {"reproducible": False}),
    "GPT, data=2, zero=1": Case("data=2", "gpt", {"reproducible": False, "zero": 1}),
    "GPT, data=2, zero=3": Case("data=2", "gpt", {"reproducible": False, "zero": 3}),
    "GPT, model=2": Case("data=1,model=2", "gpt", {"reproducible": False}),
    "GPT, data=4": Case("data=4", "gpt", {"reproducible": False}),
    "GPT, data=2, model=2": Case("data=2,model=2", "gpt", {"reproducible": False}),
}


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        """The tokens after this block."""
        batch, length, width = x.shape
        h = self.norm1(x)
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (part(h).reshape(*shape).transpose(1, 2) for part in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class _GPT(nn.Module):
    def __init__(self, vocabulary: int, length: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([_Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, x: Any) -> Any:
        """The logits."""
        x = self.tokens(x) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def step_of(case: Case, mesh: Any) -> tuple[Any, tuple[Any, ...], Callable[[], float]]:
    """The compiled step of a case on a mesh, its arguments, and what tells how many bytes a rank holds."""
    weft.manual_seed(0)
    rng = np.random.default_rng(0)
    if case.model == "mlp":
        model: Any = nn.Sequential(
            nn.Linear(784, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 10)
        )
        x, y = weft.tensor(rng.standard_normal((128, 784), np.float32)), weft.tensor(rng.integers(0, 10, 128))
        classes = 10
    else:
        classes = 256
        model = _GPT(classes, 64, 64, 4, 2)
        tokens = rng.integers(0, classes, (8, 65))
        x, y = weft.tensor(tokens[:, :-1].copy()), weft.tensor(tokens[:, 1:].copy())
        if "model" in mesh.sizes:
            par.place(model, par.auto(model, mesh), mesh)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)

    def step(x: Any, y: Any) -> Any:
        x, y = par.shard(x, "data"), par.shard(y, "data")
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).reshape(-1, classes), y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    run = weft.compile(step, mesh=mesh, **case.settings)

    def held() -> float:
        """Weights, gradients and state as tensors hold them; the rest as the program that ran has it."""
        from weft.schedule.memory_report import report_memory

        tensors = [*model.parameters(), *[p.grad for p in model.parameters()]]
        for state in optimizer.state_dict()["state"].values():
            tensors += [t for t in state.values() if weft.is_tensor(t)]
        executable = run.versions[0].run.run
        report = report_memory(executable.graph, executable.program)
        given = sum(t.nbytes for t in (x, y))
        kept = par.held_bytes([p.grad for p in model.parameters()])
        rest = report.outputs - report.donated - kept
        return float(par.held_bytes(tensors) + given + report.arena + report.constants + rest)

    return run, (x, y), held


def measure(name: str) -> None:
    """What each rank runs: rank 0 writes the seconds of a step, and the bytes of a rank."""
    case = CASES[name]
    mesh = par.mesh(**par.Mesh(case.mesh).sizes)
    run, args, held = step_of(case, mesh)
    for _ in range(3):
        run(*args)
    waited = _count_waits()
    rows = []
    for _ in range(_STEPS):
        par.barrier()
        start = time.perf_counter(), time.thread_time(), waited[0]
        run(*args)
        end = time.perf_counter(), time.thread_time(), waited[0]
        wall, busy, idle = (b - a for a, b in zip(start, end, strict=True))
        rows.append((wall, busy - idle))
    if par.rank() == 0:
        least = np.quantile(rows, _QUIET, axis=0)
        sys.stdout.write(json.dumps([min(r[0] for r in rows), float(least[1]), held()]) + "\n")


def _count_waits() -> list[float]:
    """The processor time that this rank spends on waiting for others, in the place that is given."""
    here: Any = world()
    usual, spent = here.wait, [0.0]

    def wait(request: Any, own: Any) -> None:
        start = time.thread_time()
        try:
            usual(request, own)
        finally:
            spent[0] += time.thread_time() - start

    here.wait = wait
    return spent


def plan(name: str, cluster: str) -> None:
    """What one process plans."""
    case = CASES[name]
    with par.planned(case.ranks):
        run, args, _ = step_of(case, par.mesh(**par.Mesh(case.mesh).sizes))
        found = run.plan(*args, cluster=cluster)
    sys.stdout.write(json.dumps([found.seconds, found.parts["compute"], found.memory_bytes]) + "\n")


def _child(ranks: int, *words: str) -> list[float]:
    share = str(max(1, processors_here() // max(ranks, 1)))
    env = {**os.environ, "WEFT_NUM_THREADS": share, "OMP_NUM_THREADS": share} if ranks else dict(os.environ)
    begin = find_launcher().command(ranks) if ranks else []
    command = [*begin, sys.executable, "-m", "bench.planned", *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    if done.returncode or not lines:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr[-400:]}")
    return [float(x) for x in json.loads(lines[-1])]


def main(rounds: int, names: list[str]) -> None:
    """All cases, or those that are named, in turn; a table."""
    cases = {name: CASES[name] for name in names or CASES}
    found: dict[str, list[list[float]]] = {name: [] for name in cases}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            clusters = {}
            for ranks in sorted({case.ranks for case in cases.values()}):
                path = Path(folder) / f"here{ranks}.toml"
                path.write_text(cluster_text(measure_cluster(ranks)), "utf-8")
                clusters[ranks] = str(path)
            for name, case in cases.items():
                planned = _child(0, "plan", name, clusters[case.ranks])
                measured = _child(case.ranks, "measure", name)
                found[name].append([*planned, *measured])
                times = [f"{1e3 * x:.1f}" for x in (*planned[:2], *measured[:2])]
                sys.stdout.write(f"{name:<26} {' '.join(times)} ms\n")
                sys.stdout.flush()
    for name, rows in found.items():
        seconds, compute, held, real, busy, bytes_ = (min(row[i] for row in rows) for i in range(6))
        waits = max(1.0, CASES[name].ranks / processors_here())
        sys.stdout.write(
            f"| {name} | {seconds * 1e3:.1f} ms | {real * 1e3:.1f} ms | {compute / waits * 1e3:.2f} ms "
            f"| {busy * 1e3:.2f} ms | {100 * (compute / waits / busy - 1):+.0f} % "
            f"| {held / 1e6:.2f} MB | {bytes_ / 1e6:.2f} MB | {100 * abs(held / bytes_ - 1):.1f} % |\n"
        )


if __name__ == "__main__":
    if sys.argv[1] == "measure":
        measure(sys.argv[2])
    elif sys.argv[1] == "plan":
        plan(sys.argv[2], sys.argv[3])
    else:
        main(int(sys.argv[1]), sys.argv[2:])

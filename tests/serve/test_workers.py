"""``weft serve --workers``: processes that share an address, count together, and are started again."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.serve.client import Process, run, serving
from tests.serve.common import arrays_of, request
from weft.errors import ArgumentError

X = np.arange(6, dtype="f4").reshape(2, 3)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "twice.weft"
    weft.compile(lambda x: x * 2.0).save(path, weft.TensorType(("batch", 3), weft.float32))
    return path


def children(process: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == process:
            found.append(int(path.parent.name))
    return sorted(found)


def infer(server: Process, count: int) -> int:
    async def main() -> int:
        path = "/v2/models/twice/infer"
        replies = await asyncio.gather(*[server.ask("POST", path, request({"x": X})) for _ in range(count)])
        return sum(r.status == 200 and np.array_equal(arrays_of(r)["output"], X * 2.0) for r in replies)

    return run(main())


def answers(server: Process) -> float:
    """How many inferences all processes together have answered."""
    text = run(server.ask("GET", "/metrics")).body.decode()
    lines = [x for x in text.splitlines() if x.startswith('weft_requests_total{model="twice",code="200"}')]
    return float(lines[0].split()[1]) if lines else 0.0


def until(holds: Any) -> None:
    end = time.monotonic() + 60.0
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_workers_answer_count_together_and_end(model: Path) -> None:
    with serving(model, "--workers", 2) as server:
        assert len(children(server.process.pid)) == 2
        assert infer(server, 40) == 40
        until(lambda: answers(server) == 40)
        server.signal(signal.SIGTERM)
        assert server.end() == (0, "")


@pytest.mark.rotating(2)
def test_a_worker_that_dies_is_replaced_and_what_it_counted_stays(model: Path) -> None:
    with serving(model, "--workers", 2) as server:
        assert infer(server, 10) == 10
        until(lambda: answers(server) == 10)
        time.sleep(0.7)  # until both have told
        (first, second) = children(server.process.pid)
        os.kill(first, signal.SIGKILL)
        until(lambda: len(set(children(server.process.pid)) - {first, second}) == 1)
        assert infer(server, 10) == 10
        until(lambda: answers(server) == 20)
        server.signal(signal.SIGTERM)
        code, told = server.end()
        assert code == 0
        assert told == f"weft: worker {first} ended with -9, another one is started\n"


@pytest.mark.rotating(2)
def test_workers_whose_parent_is_gone_end(model: Path) -> None:
    with serving(model, "--workers", 2) as server:
        found = children(server.process.pid)
        server.process.kill()
        until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in found))


@pytest.mark.rotating(2)
def test_a_worker_that_cannot_start_ends_all(tmp_path: Path) -> None:
    (tmp_path / "none.weft").write_bytes(b"nothing")
    with pytest.raises(AssertionError, match="all workers must start"):
        Process([str(tmp_path / "none.weft"), "--workers", "2"])


def test_several_workers_must_be_given_files() -> None:
    graph = weft.make_graph(lambda x: x * 2.0)(weft.ones(3))
    with pytest.raises(ArgumentError, match="several workers must be given files, got a Graph for f"):
        weft.serve.run({"f": graph}, workers=2, port=0)
    with pytest.raises(ArgumentError, match="workers must be a number from 1 on, got 0"):
        weft.serve.run([], workers=0)

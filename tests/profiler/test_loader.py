"""Profiles of data pipelines: the time of each stage, and waiting for batches."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import data
from weft.data import access


def line_of(text: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    return f"{Path(__file__).name}:{next(i for i, line in enumerate(lines, 1) if text in line)}"


def slow(x: Any) -> Any:
    time.sleep(0.002)
    return x


def fast(x: Any) -> Any:
    return x + 1


def test_a_stage_that_sleeps_gets_the_time() -> None:
    pipeline = data.from_arrays(np.arange(20))
    pipeline = pipeline.map(slow)  # the stage that sleeps
    pipeline = pipeline.map(fast).batch(5)
    with weft.profile() as p:
        assert len(list(pipeline)) == 4
    rows = {row.name: row for row in p.rows()}
    assert rows["map(slow)"].seconds >= 20 * 0.002
    assert rows["map(fast)"].seconds < rows["map(slow)"].seconds
    assert rows["map(slow)"].text == "stage"
    assert p.rows("line")[0].name == line_of("# the stage that sleeps")


def test_waiting_for_a_worker_is_seen_in_the_loop_and_its_work_in_its_thread() -> None:
    pipeline = data.from_arrays(np.arange(10)).map(slow).batch(2).prefetch(2)
    with weft.profile() as p:
        list(pipeline)
    waits = [e for e in p.events if e.kind == "wait"]
    stages = [e for e in p.events if e.name == "map(slow)"]
    assert len(waits) == 6  # five batches and the end
    assert sum(e.duration for e in waits) >= 8e6
    assert {e.thread for e in waits}.isdisjoint({e.thread for e in stages})
    assert any("weft-data" in row.name for row in p.rows("thread"))


def test_streams_are_stages_too() -> None:
    def generate() -> Any:
        for i in range(6):
            time.sleep(0.002)
            yield i

    pipeline = data.from_generator(generate).filter(lambda x: x % 2 == 0).batch(3)
    with weft.profile() as p:
        [batch] = list(pipeline)
    assert batch.tolist() == [0, 2, 4]
    longest = p.rows()[0]
    assert longest.name.startswith("generator")
    assert longest.seconds >= 6 * 0.002


def test_a_worker_process_is_waited_for() -> None:
    pipeline = data.from_arrays(np.arange(4)).map(slow).batch(2).prefetch(2, mode="process")
    with weft.profile() as p:
        found = [batch.tolist() for batch in pipeline]
    assert found == [[0, 1], [2, 3]]
    waits = [e for e in p.events if e.name == "worker process"]
    assert len(waits) == 2
    assert all(e.duration >= 4e6 for e in waits)


def test_a_pipeline_that_was_opened_before_the_block() -> None:
    epoch = iter(data.from_arrays(np.arange(6)).map(slow).batch(2))
    next(epoch)
    with weft.profile() as p:
        next(epoch)
    next(epoch)
    assert [e.name for e in p.events if "slow" in e.name] == ["map(slow)"]


def test_stages_are_as_before_after_the_block_and_after_an_error() -> None:
    before = access.TransformAccess.many

    def fail(x: Any) -> Any:
        raise KeyError("no")

    with pytest.raises(weft.errors.PipelineError), weft.profile() as p:
        list(data.from_arrays(np.arange(4)).map(fail).batch(2))
    assert access.TransformAccess.many is before
    assert "map(fail)" in {e.name for e in p.events}

"""Requests that are put together: fewer runs, the same results, and a failing one fails alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from tests.serve.common import Reply, arrays_of, ask, gather, infer, metric, request
from weft.serve.batching import Batcher
from weft.serve.metrics import ModelMetrics
from weft.serve.settings import Settings

GENERATOR = np.random.default_rng(0)


def rows(count: int, width: int = 3) -> np.ndarray:
    return GENERATOR.random((count, width)).astype(np.float32)


def runs(app: Any, model: str) -> tuple[float, float]:
    """How many runs there were, and of how many rows."""
    count = metric(app, f'weft_batch_rows_count{{model="{model}"}}')
    return count, metric(app, f'weft_batch_rows_sum{{model="{model}"}}')


def test_requests_at_the_same_time_are_one_run(models: Path) -> None:
    app = weft.serve.app(models / "affine.weft")
    infer(app, "affine", {"x": rows(1)})
    graph = weft.load_graph(models / "affine.weft")
    for _ in range(30):  # until runs are known to be short
        infer(app, "affine", {"x": rows(1)})
    before = runs(app, "affine")
    given = [rows(1 + i % 3) for i in range(20)]
    replies = gather(app, "affine", [{"x": x} for x in given])
    after = runs(app, "affine")
    assert after[1] - before[1] == sum(len(x) for x in given)
    assert after[0] - before[0] <= 3
    for x, reply in zip(given, replies, strict=True):
        assert (arrays_of(reply)["output"] == graph(x).numpy()).all()


def test_no_run_has_more_rows_than_allowed(models: Path) -> None:
    app = weft.serve.app(models / "affine.weft", max_batch=4)
    replies = gather(app, "affine", [{"x": rows(3)} for _ in range(6)])
    assert [reply.status for reply in replies] == [200] * 6
    assert metric(app, 'weft_batch_rows_bucket{model="affine",le="4"}') == runs(app, "affine")[0] == 6


def test_a_batch_of_one_puts_none_together(models: Path) -> None:
    app = weft.serve.app(models / "affine.weft", max_batch=1)
    replies = gather(app, "affine", [{"x": rows(2)} for _ in range(5)])
    assert [reply.status for reply in replies] == [200] * 5
    assert runs(app, "affine")[0] == 5


@pytest.mark.parametrize("model", ["coupled", "scaled"])
def test_rows_that_depend_on_each_other_are_not_put_together(models: Path, model: str) -> None:
    app = weft.serve.app(models / f"{model}.weft")
    given = [rows(1 + i % 3) for i in range(6)]
    graph = weft.load_graph(models / f"{model}.weft")
    for x, reply in zip(given, gather(app, model, [{"x": x} for x in given]), strict=True):
        assert (arrays_of(reply)["output"] == graph(x).numpy()).all()
    assert runs(app, model)[0] == 6


def test_a_request_that_fails_fails_alone(models: Path) -> None:
    app = weft.serve.app(models / "lookup.weft")
    table = np.arange(12.0).reshape(4, 3)
    given = [np.array([i % 4, 3]) for i in range(8)]
    given[5] = np.array([0, 99])
    replies = gather(app, "lookup", [{"i": i} for i in given])
    assert [reply.status for reply in replies] == [200] * 5 + [400] + [200] * 2
    for i, reply in zip(given, replies, strict=True):
        if reply.status == 200:
            assert (arrays_of(reply)["output"] == table[i]).all()


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=12),
    st.integers(5, 9),
    st.sampled_from([0.0, 0.002]),
)
def test_any_mix_of_requests_gets_its_own_results(
    models: Path, shapes: list[tuple[int, int]], max_batch: int, delay: float
) -> None:
    app = weft.serve.app(models / "pair.weft", max_batch=max_batch, max_delay=delay)
    given = [{"x": rows(*shape), "y": rows(*shape)} for shape in shapes]
    for inputs, reply in zip(given, gather(app, "pair", given), strict=True):
        assert reply.status == 200
        found = arrays_of(reply)
        np.testing.assert_array_equal(found["sum"], inputs["x"] + inputs["y"])
        np.testing.assert_allclose(found["total"], (inputs["x"] * inputs["y"]).sum(1), rtol=1e-5, atol=1e-7)
    assert runs(app, "pair")[1] == sum(count for count, _ in shapes)


def test_with_a_delay_requests_wait_for_others(models: Path) -> None:
    app = weft.serve.app(models / "affine.weft", max_delay=0.2, max_batch=3)

    async def some() -> list[Reply]:
        path = "/v2/models/affine/infer"
        tasks = []
        for _ in range(3):
            tasks.append(asyncio.create_task(ask(app, "POST", path, request({"x": rows(1)}))))
            await asyncio.sleep(0.005)
        return list(await asyncio.gather(*tasks))

    assert [reply.status for reply in asyncio.run(some())] == [200] * 3
    assert runs(app, "affine") == (1, 3)


def test_with_a_delay_a_request_does_not_wait_for_ever(models: Path) -> None:
    app = weft.serve.app(models / "affine.weft", max_delay=0.01)
    assert infer(app, "affine", {"x": rows(1)}).status == 200


def test_a_full_queue_refuses(models: Path) -> None:
    app = weft.serve.app(models / "slow.weft", max_queue=2, max_batch=1)
    replies = gather(app, "slow", [{"x": rows(1)[0, :1]} for _ in range(8)])
    assert sorted({reply.status for reply in replies}) == [200, 503]
    refused = [reply for reply in replies if reply.status == 503]
    assert all(reply.headers["retry-after"] == "1" for reply in refused)
    assert metric(app, 'weft_requests_total{model="slow",code="503"}') == len(refused)
    assert infer(app, "slow", {"x": rows(1)[0, :1]}).status == 200


def test_an_answer_that_takes_too_long_is_not_waited_for(models: Path) -> None:
    app = weft.serve.app(models / "slow.weft", timeout=0.001)
    assert infer(app, "slow", {"x": rows(1)[0]}).status == 504
    assert metric(app, 'weft_queue_length{model="slow"}') == 0


def test_the_loop_lives_while_a_model_runs(models: Path) -> None:
    app = weft.serve.app(models / "slow.weft")

    async def both() -> list[str]:
        done: list[str] = []

        async def one(name: str, *what: Any) -> None:
            assert (await ask(app, *what)).status == 200
            done.append(name)

        slow = asyncio.create_task(one("slow", "POST", "/v2/models/slow/infer", request({"x": rows(1)[0]})))
        await asyncio.sleep(0.001)
        await one("live", "GET", "/v2/health/live")
        await slow
        return done

    assert asyncio.run(both()) == ["live", "slow"]


def test_short_runs_stay_in_the_thread_of_the_loop() -> None:
    import threading

    threads = set()

    def run(arrays: Any) -> Any:
        threads.add(threading.current_thread())
        return list(arrays)

    async def many() -> None:
        for _ in range(60):
            await batcher.submit([np.ones((1, 1))])
        threads.clear()
        await batcher.submit([np.ones((1, 1))])

    batcher = Batcher(run, Settings(), True, ModelMetrics("m"))
    asyncio.run(many())
    assert threads == {threading.main_thread()}


def test_an_error_that_is_none_of_weft_is_500_and_logged(
    models: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = weft.serve.app(models / "affine.weft")

    def fail(arrays: Any) -> Any:
        raise KeyError("a mistake")

    app.models["affine"].batcher._run = fail
    reply = infer(app, "affine", {"x": rows(1)})
    assert (reply.status, "a mistake" in reply.json["error"]) == (500, False)
    assert "KeyError: 'a mistake'" in caplog.text

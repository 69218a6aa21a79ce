"""Requests whose loops do not end: they are answered, the model serves on, and the server ends when told."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.serve.client import run, serving
from tests.serve.common import arrays_of, ask, asked, request

PATH = "/v2/models/endless/infer"
X = np.ones(2, np.float32)


def body(limit: float) -> bytes:
    data = {"x": X, "limit": np.array([limit], np.float32)}
    text = request(data)
    return text.replace(b"Infinity", b'"Infinity"')


ENDS, NEVER = body(10.0), body(float("inf"))


def right(reply: object) -> bool:
    return arrays_of(reply)["output"].tolist() == [5.0, 5.0]  # type: ignore[arg-type]


@pytest.mark.rotating(2)
def test_a_request_that_loops_for_ever_is_answered_and_the_model_goes_on(models: Path) -> None:
    with serving(models / "endless.weft", "--timeout", "1") as server:

        async def main() -> None:
            start = time.perf_counter()
            assert right(await server.ask("POST", PATH, ENDS))
            first = asyncio.create_task(server.ask("POST", PATH, NEVER))
            await asyncio.sleep(0.3)
            assert (await server.ask("GET", "/v2/health/ready")).status == 200
            reply = await first
            assert (reply.status, reply.json["error"]) == (504, "the answer took too long")
            assert right(await server.ask("POST", PATH, ENDS))
            replies = await asyncio.gather(*[server.ask("POST", PATH, NEVER) for _ in range(3)])
            assert {r.status for r in replies} == {504}
            assert right(await server.ask("POST", PATH, ENDS))
            assert (await server.ask("GET", "/v2/models/endless/ready")).status == 200
            assert time.perf_counter() - start < 10.0

        run(main())
        server.signal()
        assert server.end() == (0, "")


@pytest.mark.rotating(2)
def test_sigterm_ends_a_server_whose_request_does_not_end(models: Path) -> None:
    with serving(models / "endless.weft", "--grace", "0.5", "--drain", "0.1") as server:

        async def main() -> tuple[int, float]:
            request = asyncio.create_task(server.ask("POST", PATH, NEVER))
            await asyncio.sleep(0.5)
            server.signal()
            start = time.perf_counter()
            reply = await request
            assert "the server ends" in reply.json["error"]
            return reply.status, time.perf_counter() - start

        status, seconds = run(main())
        assert (status, seconds < 5.0) == (503, True)
        assert server.end() == (0, "")


@pytest.mark.rotating(2)
def test_a_model_whose_trial_does_not_end_is_told_and_served(models: Path) -> None:
    start = time.perf_counter()
    with serving(models / "forever.weft", "--timeout", "0.5") as server:
        assert time.perf_counter() - start < 20.0
        path = "/v2/models/forever/infer"
        assert run(server.ask("POST", path, request({"x": np.ones((1, 2), np.float32)}))).status == 504
        big = np.full((1, 2), 1e30, np.float32)
        found = run(server.ask("POST", path, request({"x": big})))
        np.testing.assert_array_equal(arrays_of(found)["output"], big)
        server.signal()
        code, told = server.end()
    assert code == 0
    assert "forever: with random inputs it does not end" in told
    assert "while x.sum() < 1e30" in told


@pytest.mark.rotating(2)
def test_readiness_is_false_while_a_run_cannot_be_stopped(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = weft.serve.app(models / "fixed.weft", timeout=0.2)
    model = app.models["fixed"]
    plain = model.batcher._run

    def slow(arrays: object) -> object:
        time.sleep(1.0)
        return plain(arrays)  # type: ignore[arg-type]

    monkeypatch.setattr(model.batcher, "_run", slow)
    monkeypatch.setattr(model.batcher, "_inline", 0.0)

    async def main() -> list[int]:
        found = request({"x": np.ones((2, 2), np.float32)})
        codes = [(await ask(app, "POST", "/v2/models/fixed/infer", found)).status]
        codes.append((await ask(app, "GET", "/v2/health/ready")).status)
        codes.append((await ask(app, "GET", "/v2/models/fixed/ready")).status)
        await asyncio.sleep(1.2)
        codes.append((await ask(app, "GET", "/v2/health/ready")).status)
        return codes

    assert asyncio.run(main()) == [504, 503, 503, 200]
    app.close()


def test_loops_never_run_where_requests_are_read(models: Path) -> None:
    app = weft.serve.app({"endless": models / "endless.weft", "fixed": models / "fixed.weft"})
    assert app.models["endless"].batcher._inline == 0.0
    assert app.models["fixed"].batcher._inline > 0.0
    for _ in range(30):
        assert right(asked(app, "POST", PATH, ENDS))

"""The server in a process of its own: under load, at its limits, and at its end."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from tests.serve.client import Load, Process, message, run, serving
from tests.serve.common import arrays_of, request

ROW = np.array([[1.0, 2.0, 3.0]], np.float32)
BODY = request({"x": ROW})
PATH = "/v2/models/affine/infer"
SLOW = "/v2/models/slow/infer"
SLOW_BODY = request({"x": ROW[0, :1]})


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[Process]:
    arguments = ["--max-body-mb", "1", "--threads", "1"]
    with serving(models / "affine.weft", models / "slow.weft", *arguments) as found:
        yield found


def test_load_from_many_connections_is_answered(server: Process, models: Path) -> None:
    load = Load(server, PATH, BODY)

    async def main() -> list[float]:
        running = asyncio.create_task(load.run(16, 1.0))
        waits = []
        while not running.done():
            start = time.perf_counter()
            assert (await server.ask("GET", "/v2/health/ready")).status == 200
            waits.append(time.perf_counter() - start)
            await asyncio.sleep(0.1)
        await running
        return waits

    waits = run(main())
    assert load.lost == []
    assert set(load.codes) == {200}
    assert load.codes[200] > 100
    assert max(waits) < 5.0
    expected = weft.load_graph(models / "affine.weft")(ROW).numpy()
    for reply in load.replies[::50]:
        np.testing.assert_allclose(arrays_of(reply)["output"], expected, rtol=1e-6)
    text = run(server.ask("GET", "/metrics")).body.decode()
    (runs,) = [
        line for line in text.splitlines() if line.startswith('weft_batch_requests_count{model="affine"')
    ]
    assert float(runs.rpartition(" ")[2]) < 0.7 * load.codes[200]  # they were put together


def test_clients_that_go_away_are_no_harm(server: Process) -> None:
    async def main() -> str:
        for sent in (message("POST", PATH, BODY)[:-20], message("POST", SLOW, SLOW_BODY), b"POST /v2/mod"):
            for _ in range(5):
                connection = await server.connect()
                connection.writer.write(sent)
                await connection.writer.drain()
                connection.writer.transport.abort()
        assert (await server.ask("POST", PATH, BODY)).status == 200
        for _ in range(100):
            text = (await server.ask("GET", "/metrics")).body.decode()
            in_flight = [line for line in text.splitlines() if line.startswith("weft_requests_in_flight{")]
            if all(line.endswith(" 0") for line in in_flight):
                return "all ended"
            await asyncio.sleep(0.05)
        return text

    assert run(main()) == "all ended"


def test_requests_that_follow_each_other_at_once_are_answered_in_order(server: Process) -> None:
    async def main() -> list[int]:
        connection = await server.connect()
        connection.writer.write(message("GET", "/v2") + message("POST", PATH, BODY) + message("GET", "/no"))
        replies = [await connection.read() for _ in range(3)]
        connection.close()
        return [reply.status for reply in replies]

    assert run(main()) == [200, 200, 404]


def test_a_body_that_is_too_long_is_answered_and_not_reset(server: Process) -> None:
    async def main() -> list[int]:
        connection = await server.connect()
        replies = [await connection.ask("POST", PATH, b" " * 3_000_000)]
        replies.append(await connection.ask("POST", PATH, BODY))  # on the same connection
        connection.close()
        return [reply.status for reply in replies]

    assert run(main()) == [413, 200]


def test_a_body_in_chunks_is_a_body(server: Process) -> None:
    async def main() -> int:
        connection = await server.connect()
        head = b"POST " + PATH.encode() + b" HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
        half = len(BODY) // 2
        connection.writer.write(head + b"%x\r\n%s\r\n" % (half, BODY[:half]))
        await asyncio.sleep(0.02)
        rest = BODY[half:]
        connection.writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(rest), rest))
        return (await connection.read()).status

    assert run(main()) == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v2 HTTP/1.1\r\ncontent-length: -3\r\n\r\n",
        b"POST /v2 HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\n" + b"x: " + b"a" * 300_000,
        b"GET /" + b"a" * 300_000,
    ],
)
def test_hostile_heads_are_refused(server: Process, sent: bytes) -> None:
    async def main() -> int:
        connection = await server.connect()
        connection.writer.write(sent)
        return (await connection.read()).status

    assert run(main()) == 400
    assert run(server.ask("GET", "/v2")).status == 200


@settings(max_examples=60)
@given(st.data())
def test_any_bytes_are_no_mistake_of_the_server(server: Process, data: st.DataObject) -> None:
    whole = message("POST", PATH, BODY)
    sent = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(sent) - 1))
        sent[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))

    async def main() -> bytes:
        connection = await server.connect()
        connection.writer.write(bytes(sent))
        try:
            async with asyncio.timeout(0.03):  # it may be that the server waits for more
                return await connection.reader.read(100)
        except (TimeoutError, ConnectionError):
            return b""

    assert not run(main()).startswith(b"HTTP/1.1 5")
    assert server.process.poll() is None


@pytest.mark.rotating(2)
def test_a_full_queue_refuses_cleanly_and_goes_on(models: Path) -> None:
    arguments = ["--max-queue", "4", "--max-batch", "1", "--threads", "1"]
    with serving(models / "slow.weft", *arguments) as server:
        load = Load(server, SLOW, SLOW_BODY)
        run(load.run(24, 1.0))
        assert load.lost == []
        assert set(load.codes) == {200, 503}
        assert run(server.ask("POST", SLOW, SLOW_BODY)).status == 200


@pytest.mark.rotating(2)
@pytest.mark.parametrize("model", ["affine", "slow"])
def test_sigterm_under_load_loses_no_request(models: Path, model: str) -> None:
    with serving(models / f"{model}.weft", "--threads", "1") as server:
        body = BODY if model == "affine" else SLOW_BODY
        load = Load(server, f"/v2/models/{model}/infer", body)

        async def main() -> None:
            running = asyncio.create_task(load.run(16, 3.0))
            await asyncio.sleep(0.5)
            server.signal()
            await running

        run(main())
        assert server.end() == (0, "")
        assert load.lost == []
        assert set(load.codes) == {200}
        assert any(reply.headers.get("connection") == "close" for reply in load.replies)


@pytest.mark.rotating(2)
def test_readiness_is_false_while_the_server_ends(models: Path) -> None:
    with serving(models / "affine.weft", "--drain", "1") as server:

        async def main() -> None:
            idle = await server.connect()
            assert (await idle.ask("GET", "/v2/health/ready")).status == 200
            server.signal(signal.SIGINT)
            await asyncio.sleep(0.3)
            assert (await server.ask("GET", "/v2/health/ready")).status == 503
            assert (await server.ask("GET", "/v2/health/live")).status == 200
            assert (await idle.ask("POST", PATH, BODY)).status == 200
            assert await idle.is_closed()

        run(main())
        assert server.end() == (0, "")


@pytest.mark.rotating(2)
def test_a_second_signal_ends_at_once(models: Path) -> None:
    with serving(models / "slow.weft", "--max-batch", "1", "--threads", "1", "--drain", "0") as server:

        async def main() -> float:
            for _ in range(200):
                connection = await server.connect()
                connection.writer.write(message("POST", SLOW, SLOW_BODY))
            await asyncio.sleep(0.2)
            server.signal()
            await asyncio.sleep(0.3)
            server.signal()
            return time.perf_counter()

        start = run(main())
        assert server.end()[0] == 1
        assert time.perf_counter() - start < 2.0


@pytest.mark.rotating(2)
def test_requests_that_arrive_too_slowly_are_not_waited_for(models: Path) -> None:
    with serving(models / "affine.weft", "--read-timeout", "0.4") as server:

        async def closed(sent: bytes) -> bool:
            connection = await server.connect()
            connection.writer.write(sent)
            for _ in range(20):  # a byte now and then keeps nothing open
                if connection.reader.at_eof():
                    break
                await asyncio.sleep(0.1)
                connection.writer.write(b"a")
            return await connection.is_closed()

        async def main() -> list[bool]:
            heads = [b"", b"GET /v2 HTTP/1.1\r\nx: ", message("POST", PATH, BODY)[:-30]]
            return list(await asyncio.gather(*map(closed, heads)))

        assert run(main()) == [True, True, True]
        assert run(server.ask("POST", PATH, BODY)).status == 200


def test_a_port_that_is_taken_is_told(models: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [sys.executable, "-m", "weft.cli", "serve", str(models / "affine.weft"), "--port"]
        port = str(taken.getsockname()[1])
        done = subprocess.run([*command, port], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert f"weft serve: 127.0.0.1:{port}: Address already in use" in done.stderr
    assert done.stderr.count("\n") == 1

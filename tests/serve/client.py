"""A server in a process of its own, and a client that notices every answer that does not come."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.serve.common import Reply

ROOT = Path(__file__).parent.parent.parent
T = TypeVar("T")
PATIENCE = 30.0  # seconds; what takes longer hangs


_open: list[Connection] = []


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a test, and end the connections that it leaves."""

    async def whole() -> T:
        try:
            return await main
        finally:
            for connection in _open:
                connection.writer.transport.abort()
            _open.clear()
            await asyncio.sleep(0.01)

    return asyncio.run(whole())


class Process:
    """``weft serve`` with some arguments, on a port that the system chose."""

    def __init__(self, arguments: Sequence[str]) -> None:
        command = [sys.executable, "-m", "weft.cli", "serve", *arguments, "--port", "0"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "serving on http://127.0.0.1:" in line, self.process.communicate()
        self.port = int(line.split("127.0.0.1:")[1].split()[0])

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Its exit code, and what it wrote to its standard error."""
        _, error = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, error

    async def connect(self) -> Connection:
        connection = Connection(*await asyncio.open_connection("127.0.0.1", self.port))
        _open.append(connection)
        return connection

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Reply:
        """Ask on a connection of its own."""
        connection = await self.connect()
        try:
            return await connection.ask(method, path, body, **headers)
        finally:
            connection.close()


@contextmanager
def serving(*arguments: Any) -> Iterator[Process]:
    """A server that is there as long as a block."""
    server = Process([str(a) for a in arguments])
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.communicate()


class Connection:
    """One connection, which is kept."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Reply:
        """Send a request, and read the answer; an OSError or EOFError if there is none."""
        self.writer.write(message(method, path, body, **headers))
        return await self.read()

    async def read(self) -> Reply:
        """The next answer."""
        async with asyncio.timeout(PATIENCE):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = dict(line.split(": ", 1) for line in head[1:] if line)
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return Reply(int(head[0].split()[1]), headers, body)

    async def is_closed(self) -> bool:
        """Whether the other side ends the connection, which is waited for."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True

    def close(self) -> None:
        self.writer.close()


def message(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    given = {"host": "test", "content-length": str(len(body))}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


class Load:
    """Clients that each ask again as soon as they have an answer.

    Attributes:
        codes: how many answers had which status.
        lost: requests that were sent on a connection and got no answer.
    """

    def __init__(self, server: Process, path: str, body: bytes) -> None:
        self.server = server
        self.path = path
        self.body = body
        self.codes: Counter[int] = Counter()
        self.lost: list[BaseException] = []
        self.replies: list[Reply] = []
        self.stopped = False

    async def run(self, clients: int, seconds: float) -> None:
        """Ask for some time, or until the server takes no more."""
        tasks = [asyncio.create_task(self._client()) for _ in range(clients)]
        await asyncio.wait(tasks, timeout=seconds)
        self.stopped = True
        await asyncio.gather(*tasks)

    async def _client(self) -> None:
        connection: Connection | None = None
        while not self.stopped:
            if connection is None:
                try:
                    connection = await self.server.connect()
                except OSError:  # the server takes no more: nothing was sent
                    return
            try:
                reply = await connection.ask("POST", self.path, self.body)
            except (OSError, EOFError) as error:
                self.lost.append(error)
                connection = None
                continue
            self.codes[reply.status] += 1
            self.replies.append(reply)
            if reply.headers.get("connection") == "close":
                connection.close()
                connection = None
        if connection is not None:
            connection.close()

"""Several processes behind one address: they share the socket, and a parent that starts them and ends them.

The parent serves nothing. It hands signals on, starts a worker again that ends without being told, and gives
up where one cannot start. A worker whose parent is gone ends as if it was told.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import weft
from weft.errors import ArgumentError
from weft.serve.board import Board

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_GOOD = (0, *(-number for number in _SIGNALS))  # a signal ends one that has not begun to serve
_POLL = 0.05  # seconds
_YOUNG = 5.0  # seconds that a worker must have lived for its end to be no sign of a mistake
_MOST = 5  # workers in a row that end young


class Supervisor:
    """The parent of the workers."""

    def __init__(self, sock: socket.socket, count: int, given: Mapping[str, Any]) -> None:
        self._sock = sock
        self._count = count
        self._given = dict(given)
        self._workers: dict[subprocess.Popen[bytes], float] = {}  # with the time each was started
        self._asked = False
        self._young = 0

    def run(self, told: Callable[[], None]) -> bool:
        """Serve until a signal comes; whether all workers ended well then."""
        before = {number: signal.signal(number, self._hand_on) for number in _SIGNALS}
        try:
            with tempfile.TemporaryDirectory(prefix="weft-serve-") as folder:
                self._given["folder"] = folder
                first = [self._start() for _ in range(self._count)]
                self._await(first, told)
                return self._watch()
        finally:
            for worker in self._workers:
                worker.kill()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _hand_on(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        for worker in self._workers:
            worker.send_signal(number)

    def _start(self) -> int:
        """Start a worker; gives the pipe that tells when it listens."""
        reads, writes = os.pipe()
        handle = self._sock.fileno()
        given = json.dumps({**self._given, "socket": handle, "listens": writes})
        root = str(Path(weft.__file__).parents[1])
        paths = os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH", "")) if p)
        worker = subprocess.Popen(
            [sys.executable, "-m", "weft.serve.workers", given],
            env={**os.environ, "PYTHONPATH": paths},
            pass_fds=(handle, writes),
            start_new_session=True,  # a terminal's Ctrl-C comes from here, once
        )
        os.close(writes)
        self._workers[worker] = time.monotonic()
        return reads

    def _await(self, pipes: list[int], told: Callable[[], None]) -> None:
        listening = [os.read(reads, 1) for reads in pipes]
        for reads in pipes:
            os.close(reads)
        if all(listening):
            told()
        elif not self._asked:
            raise ArgumentError("serve", "all workers must start, got one that ended; its error is above")

    def _watch(self) -> bool:
        good = True
        while self._workers:
            time.sleep(_POLL)
            for worker in [w for w in self._workers if w.poll() is not None]:
                began = self._workers.pop(worker)
                if self._asked:
                    good = good and worker.returncode in _GOOD
                else:
                    self._replace(worker, time.monotonic() - began)
        return good

    def _replace(self, worker: subprocess.Popen[bytes], lived: float) -> None:
        self._young = self._young + 1 if lived < _YOUNG else 0
        if self._young >= _MOST:
            raise ArgumentError("serve", f"workers must not end by themselves, got {_MOST} in a row that did")
        sys.stderr.write(
            f"weft: worker {worker.pid} ended with {worker.returncode}, another one is started\n"
        )
        os.close(self._start())


def main() -> int:
    """What a worker runs."""
    from weft.serve.server import serve_socket
    from weft.serve.serving import app

    given = json.loads(sys.argv[1])
    if given["threads"] is not None:
        weft.set_num_threads(given["threads"])
    application = app(given["models"], backend=given["backend"], device=given["device"], **given["limits"])
    application.share(Board(given["folder"]), lambda: os.kill(os.getpid(), signal.SIGTERM))

    def told() -> None:
        with contextlib.suppress(BrokenPipeError):  # who replaced another one is not waited for
            os.write(given["listens"], b"!")
        os.close(given["listens"])

    with socket.socket(fileno=given["socket"]) as sock:
        answered = serve_socket(application, sock, told)
    application.tell()
    if not answered:
        os._exit(1)
    return 0


if __name__ == "__main__":
    sys.exit(main())

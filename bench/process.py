"""The driver's side of a worker: one process, asked over pipes, held still while others are measured."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import frameworks

ROOT = Path(__file__).parent.parent


class FailedError(Exception):
    """A worker could not do what it was asked; the text says why."""


def python_settings(label: str) -> dict[str, str]:
    """What the interpreter of a label is told."""
    found = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    if frameworks.environment_of(label) == "weft":  # pip leaves bytecode of what it installs, too
        found |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(ROOT / ".bench" / "bytecode")}
    return found


class Worker:
    """A process that runs one label. Outside of ``ask`` it is stopped, so that its threads take no core."""

    def __init__(self, label: str, python: str, cache: str | None = None) -> None:
        self.label = label
        self.scratch = tempfile.TemporaryDirectory(prefix="bench-")
        given = frameworks.settings(label, cache or self.scratch.name, cached=cache is not None)
        with self._said.open("w") as said:
            self.process = subprocess.Popen(
                [python, "-m", "bench.serve", label],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                env={**os.environ, **given, **python_settings(label)},
                cwd=self.scratch.name,
                start_new_session=True,
            )

    @property
    def _said(self) -> Path:
        """What it writes to its standard error."""
        return Path(self.scratch.name) / "stderr"

    def ask(self, do: str, limit: float, **request: Any) -> dict[str, Any]:
        """The answer to a request; ``FailedError`` if there is none within so many seconds."""
        pipe, out = self.process.stdin, self.process.stdout
        assert pipe is not None
        assert out is not None
        self._signal(signal.SIGCONT)
        try:
            pipe.write(json.dumps({"do": do, **request}).encode() + b"\n")
            pipe.flush()
        except BrokenPipeError:
            raise FailedError(f"{do}: the process ended; {self._last_words()}") from None
        ready, _, _ = select.select([out], [], [], limit)
        if not ready:
            self.close()
            raise FailedError(f"{do}: took over {limit:.0f} s")
        line = out.readline()
        if not line:
            raise FailedError(f"{do}: the process ended; {self._last_words()}")
        self._signal(signal.SIGSTOP)
        answer = json.loads(line)
        if "error" in answer:
            raise FailedError(f"{do}: {answer['error']}")
        return dict(answer)

    @contextmanager
    def first_of_all(self, wanted: bool) -> Iterator[None]:
        """If that is wanted, let its threads run before those of other programs; only root may."""
        if not wanted:
            yield
            return
        self._set_niceness(-20)
        try:
            yield
        finally:
            if self.process.poll() is None:
                self._set_niceness(0)

    def _set_niceness(self, value: int) -> None:
        """Of its threads, and of its session beside other sessions where Linux weighs those."""
        os.setpriority(os.PRIO_PGRP, self.process.pid, value)
        session = Path(f"/proc/{self.process.pid}/autogroup")
        if session.exists():
            session.write_text(str(value))

    def close(self) -> None:
        """End the process and its children."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()
        self.scratch.cleanup()

    def _signal(self, number: int) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)

    def _last_words(self) -> str:
        lines = self._said.read_text().strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"

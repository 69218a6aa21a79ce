"""A plugin of pytest that runs existing tests with a GPU as the default device:

    python -m pytest --noconftest -p tests.gpu.on_device --device cuda tests/capture/test_corpus.py

``--device emulated`` takes the card in NumPy of ``tests/backends/cuda``, for machines without a GPU. Tests
that are not about devices look at results by ``x.numpy()``, which is for tensors of the host; it copies here.
A test that takes longer than ``--seconds`` fails, and after ``--budget`` seconds the rest is skipped.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

import weft

_begin = time.monotonic()
_failed: Counter[str] = Counter()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    parser.addoption("--device", default="cuda", help="cuda, cuda:1, or emulated")
    parser.addoption("--seconds", type=int, default=20, help="the most that one test may take")
    parser.addoption("--budget", type=float, default=1e9, help="after so many seconds the rest is skipped")


def _copied(self: Any) -> Any:
    """What ``x.numpy()`` gives, of a tensor anywhere."""
    return _numpy(self.detach().cpu() if self.device != "cpu" else self)


_numpy = weft.Tensor.numpy


@pytest.fixture(autouse=True)
def on_device(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test with the device as the default one."""
    if time.monotonic() - _begin > request.config.getoption("--budget"):
        pytest.skip("the time for these tests is over")
    name = request.config.getoption("--device")
    around: Any = nullcontext()
    if name == "emulated":
        from tests.backends.cuda.emulated import emulated

        around, name = emulated(), "cuda"
    signal.signal(signal.SIGALRM, _late)
    with around:
        weft.Tensor.numpy = _copied  # type: ignore[method-assign, assignment]
        signal.alarm(request.config.getoption("--seconds"))
        try:
            with weft.default_device(name):
                yield
        finally:
            signal.alarm(0)
            weft.Tensor.numpy = _numpy  # type: ignore[method-assign]


def _late(*_: object) -> None:
    raise TimeoutError("the test takes too long")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count failures by what they say, so that the end of a run tells what to mend first."""
    if report.failed:
        text = getattr(report.longrepr, "reprcrash", None)
        _failed[str(getattr(text, "message", report.longrepr)).splitlines()[0][:150]] += 1


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The kinds of failure, the most frequent first."""
    for message, count in _failed.most_common(25):
        terminalreporter.write_line(f"{count:5}  {message}")

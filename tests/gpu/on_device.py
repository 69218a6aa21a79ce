"""A plugin of pytest that runs existing tests with a GPU as the default device:

    python -m pytest --noconftest -p tests.gpu.on_device --device cuda tests/capture/test_corpus.py

For machines without a GPU, ``--device emulated`` takes the card in NumPy of ``tests/backends/cuda``, and
``--device standin``, which is fast, a driver with memory of the host, where the host computes all ops. Tests
that are not about devices look at results by ``x.numpy()``, which is for tensors of the host; it copies here.
A test that takes longer than ``--seconds`` fails, and after ``--budget`` seconds the rest is skipped.
``--part 2/8`` takes the third of eight parts, for processes side by side.
"""

from __future__ import annotations

import gc
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from random import Random
from typing import Any

import pytest

import weft
from weft.backends.cuda import eager

_begin = time.monotonic()
_failed: Counter[str] = Counter()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    parser.addoption("--device", default="cuda", help="cuda, cuda:1, emulated, or standin")
    parser.addoption("--seconds", type=int, default=20, help="the most that one test may take")
    parser.addoption("--budget", type=float, default=1e9, help="after so many seconds the rest is skipped")
    parser.addoption("--part", default="0/1", help="which of how many parts of the tests")


_around = ExitStack()


def pytest_configure(config: pytest.Config) -> None:
    """Have the device from here on, so that modules of tests make their tensors there, too.

    Ops that the host computes for the device are told of at the end, and are no errors.
    """
    config.addinivalue_line("filterwarnings", "ignore:.* has no kernel for cuda:RuntimeWarning")
    name = config.getoption("--device")
    if name in ("emulated", "standin"):
        _around.enter_context(made(name))
        name = "cuda"
    _around.enter_context(weft.default_device(name))
    weft.Tensor.numpy = _copied  # type: ignore[method-assign, assignment]


def pytest_unconfigure() -> None:
    """Leave all as it was."""
    weft.Tensor.numpy = _numpy  # type: ignore[method-assign]
    _around.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is about the host, and take one of several parts: every n-th of the other tests.

    Where the time may not be enough, they come in another order, so that something of every file is met.
    """
    which, parts = map(int, config.getoption("--part").split("/"))
    items[:] = [item for item in items if item.get_closest_marker("host") is None][which::parts]
    if config.getoption("--budget") < 1e9:
        Random(0).shuffle(items)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from going through all tests whenever a stand-in begins and ends."""
    gc.collect()
    gc.freeze()


def _copied(self: Any) -> Any:
    """What ``x.numpy()`` gives, of a tensor anywhere."""
    return _numpy(self.detach().cpu() if self.device != "cpu" else self)


_numpy = weft.Tensor.numpy


@pytest.fixture(autouse=True)
def in_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test for as long as one may take."""
    if time.monotonic() - _begin > request.config.getoption("--budget"):
        pytest.skip("the time for these tests is over")
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(request.config.getoption("--seconds"))
    yield
    signal.alarm(0)


def made(name: str) -> Any:
    """A device that is none."""
    from tests.backends.cuda.emulated import emulated
    from tests.backends.cuda.standin import standing_in

    return emulated() if name == "emulated" else standing_in()


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
    if eager._said and terminalreporter.config.getoption("--device") != "standin":
        terminalreporter.write_line(f"ops computed by the host: {' '.join(sorted(eager._said))}")

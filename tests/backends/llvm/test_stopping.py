"""Runs that are ended from outside, by another thread or by a signal: at a loop, and without a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.io.kept import is_kept
from weft.backends.llvm.cache import default_cache, set_cache_directory
from weft.backends.llvm.code import Source
from weft.backends.llvm.compiler import Compiler
from weft.backends.llvm.fingerprint import fingerprint
from weft.backends.llvm.target import host_target
from weft.base import stopping
from weft.base.stopping import Stoppable
from weft.errors import StoppedError
from weft.loop.ir import Leave
from weft.loop.walk import statements
from weft.schedule.program import lower_graph

ROOT = Path(__file__).parents[3]
PATIENCE = 30.0  # seconds; what takes longer hangs
BACKENDS = ("llvm", "interpret")


def stopped_after(seconds: float, function: Callable[..., Any], *args: Any) -> tuple[StoppedError, float]:
    """The error of a call that is stopped, and how long it took."""
    start = time.perf_counter()
    with Stoppable() as runs, pytest.raises(StoppedError) as caught:
        timer = threading.Timer(seconds, runs.stop, ["a stop by the test"])
        timer.start()
        function(*args)
    timer.join()
    return caught.value, time.perf_counter() - start


def forever(x: Any) -> Any:
    while x.sum() > 0.0:
        x = x + 1.0
    return x


def forever_by_numbers(x: Any) -> Any:
    k = x * 0.0
    while k >= 0.0:
        k = k + x
    return k


def forever_inside(x: Any) -> Any:
    for _ in range(3):
        y = x.sum()
        while y > 0.0:
            y = y + 1.0
        x = x + y
    return x


def for_long(x: Any) -> Any:
    for _ in range(1_000_000):
        x = weft.sin(x) + x.sum()
    return x


def forever_collecting(x: Any) -> Any:
    found = []
    while x.sum() > 0.0:
        found.append(x)
        x = x * 1.0
        if len(found) > 100_000_000:
            break
    return weft.stack(found)


LINES = {
    forever: "while x.sum() > 0.0:",
    forever_by_numbers: "while k >= 0.0:",
    forever_inside: "while y > 0.0:",
    for_long: "for _ in range(1_000_000):",
}


@pytest.mark.rotating(3)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", LINES, ids=lambda f: f.__name__)
def test_a_loop_ends_where_it_is_and_says_so(function: Any, backend: str) -> None:
    run = weft.compile(function, backend=backend)
    x = weft.tensor(1.0) if function is forever_by_numbers else weft.ones((64, 64))
    error, seconds = stopped_after(0.3, run, x)
    assert LINES[function] in str(error)
    assert "must end by itself, got a stop by the test" in str(error)
    assert "test_stopping.py" in str(error)
    assert seconds < 5.0
    again, _ = stopped_after(0.1, run, x)  # once more, with the same words
    assert type(again) is StoppedError


def test_functions_that_were_stopped_give_right_results_later() -> None:
    @weft.compile
    def halve(x: Any, least: Any) -> Any:
        while x.sum() > least:
            x = x / 2.0
        return x

    x = weft.full((4,), 64.0)
    error, _ = stopped_after(0.2, halve, x, weft.tensor(-1.0))  # a sum of 0 is more
    assert "while x.sum() > least" in str(error)
    np.testing.assert_array_equal(halve(x, weft.tensor(10.0)).numpy(), np.full(4, 2.0, np.float32))


def test_loops_of_transforms_can_be_stopped() -> None:
    error, seconds = stopped_after(0.3, weft.compile(weft.vmap(forever)), weft.ones((2, 3)))
    assert seconds < 10.0
    assert "got a stop by the test" in str(error)


def test_what_a_loop_has_collected_is_given_back() -> None:
    error, _ = stopped_after(0.2, weft.compile(forever_collecting), weft.ones(1))
    assert "while x.sum() > 0.0:" in str(error)


def test_one_thread_is_stopped_and_the_others_go_on() -> None:
    run = weft.compile(forever)
    run_until = weft.compile(lambda x, end: weft.while_loop(lambda k: k < end, lambda k: k + x, 0.0))
    found: dict[str, Any] = {}
    blocks: dict[str, Stoppable] = {}

    def work(name: str) -> None:
        try:
            with Stoppable() as blocks[name]:
                run(weft.ones(2))
        except StoppedError as error:
            found[name] = str(error)

    threads = {name: threading.Thread(target=work, args=(name,)) for name in ("a", "b")}
    for thread in threads.values():
        thread.start()
    time.sleep(0.3)
    blocks["a"].stop("a stop of a")
    threads["a"].join(PATIENCE)
    assert "got a stop of a" in found["a"]
    expected = float(run_until(weft.tensor(0.5), weft.tensor(1000.0)))  # in this thread nobody asked
    assert expected == 1000.0
    time.sleep(0.2)
    assert "b" not in found
    assert threads["b"].is_alive()
    blocks["b"].stop("a stop of b")
    threads["b"].join(PATIENCE)
    assert "got a stop of b" in found["b"]


def test_a_stop_after_the_block_is_no_stop() -> None:
    with Stoppable() as runs:
        pass
    runs.stop("too late")
    assert stopping.asked == {}
    count = weft.compile(lambda n: weft.while_loop(lambda k: k < n, lambda k: k + 1, 0))
    assert int(count(weft.tensor(100_000))) == 100_000


def test_words_of_a_run_that_another_thread_has_by_then_do_not_stop_it() -> None:
    """The number of the thread tells whose run was meant."""

    @weft.compile
    def count(n: Any) -> Any:
        k = n * 0.0
        while k < n:
            k = k + 1.0
        return k

    count(weft.tensor(3.0))
    for wanted in (12345, stopping.LOOK):
        for run in list(stopping.runs):
            run.words[stopping.WANTED] = wanted
        assert int(count(weft.tensor(1000.0))) == 1000


# Nothing is changed


@pytest.mark.parametrize("backend", BACKENDS)
def test_state_is_as_before(backend: str) -> None:
    total, other = weft.zeros(3), weft.ones(2)
    address = other.numpy()

    def step(x: Any) -> Any:
        other.data = other * 2.0
        y = x
        while y.sum() > 0.0:
            total.data = total + y
            y = y + 1.0
        return y

    run = weft.compile(step, backend=backend)
    stopped_after(0.3, run, weft.ones(3))
    np.testing.assert_array_equal(total.numpy(), np.zeros(3))
    np.testing.assert_array_equal(other.numpy(), np.ones(2))
    np.testing.assert_array_equal(address, np.ones(2))
    run(-weft.ones(3))
    np.testing.assert_array_equal(other.numpy(), np.full(2, 2.0))


def test_a_loop_that_counts_over_its_state_ends_or_changes_nothing() -> None:
    state = weft.ones(64)

    @weft.compile
    def train(x: Any) -> Any:
        for _ in range(300_000):
            state.data = state + x
        return x.sum()

    train(weft.zeros(64))
    before = state.numpy().copy()
    try:
        with Stoppable() as runs:
            threading.Timer(0.02, runs.stop, ["a stop by the test"]).start()
            train(weft.ones(64))
        expected = before + 300_000
    except StoppedError:
        expected = before
    np.testing.assert_array_equal(state.numpy(), expected)


def test_only_loops_that_may_take_long_are_asked() -> None:
    def stops(function: Any, *args: Any, **options: Any) -> int:
        program = lower_graph(weft.make_graph(function)(*args), **options)
        return sum(isinstance(s, Leave) and s.loop is not None for s in statements(program.main.body))

    loop = weft.compile(forever)
    loop(weft.zeros(2))
    assert stops(lambda x: weft.while_loop(lambda x: x > 0.0, lambda x: x - 1.0, x), weft.tensor(1.0)) == 1
    no = {"stops": False}
    assert (
        stops(lambda x: weft.while_loop(lambda x: x > 0.0, lambda x: x - 1.0, x), weft.tensor(1.0), **no) == 0
    )
    assert stops(lambda x: x * 2.0, weft.ones(2)) == 0
    numbers = lambda x: weft.scan(lambda c, _: (c * 0.5, None), x, length=1000)[0]  # noqa: E731
    assert stops(numbers, weft.tensor(1.0)) == 0
    assert stops(lambda x: weft.scan(lambda c, _: (c @ c, None), x, length=9)[0], weft.ones((64, 64))) == 1


# Programs from disk


@pytest.mark.skipif(fingerprint() is None, reason="programs are not kept on this machine")
def test_a_program_from_disk_is_stopped_without_being_compiled(tmp_path: Path) -> None:
    before = default_cache().directory
    set_cache_directory(tmp_path / "cache")
    try:
        file = str(tmp_path / "model.weft")
        weft.compile(forever).save(file, weft.ones(2))
        weft.load_graph(file)(-np.ones(2, np.float32))
        loaded = weft.load_graph(file)
        assert loaded(-np.ones(2, np.float32)).tolist() == [-1.0, -1.0]
        error, _ = stopped_after(0.2, loaded, np.ones(2, np.float32))
        assert is_kept(loaded)
    finally:
        set_cache_directory(before)
    assert str(error).startswith("while_loop: must end by itself")
    assert "test_stopping.py" in str(error)


# Signals, in a process of their own

HEAD = """
import os, signal, sys, threading, time
import numpy as np
import weft

def later(seconds, number=signal.SIGINT):
    threading.Timer(seconds, os.kill, [os.getpid(), number]).start()

@weft.compile
def count(n):
    k = n * 0.0
    while k < n:
        k = k + 1.0
    return k

many = weft.tensor(1e9)  # from 2 ** 24 on another 1.0 changes nothing
count(weft.tensor(3.0))
"""


def run_python(code: str, before: str = "") -> str:
    """What a program prints; it is a file, whose source can be captured."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(before + HEAD + code)
        command = [sys.executable, "-W", "ignore", str(path)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ctrl_c_ends_a_compiled_loop_again_and_again() -> None:
    told = run_python("""
for _ in range(3):
    later(0.2)
    start = time.perf_counter()
    try:
        count(many)
    except KeyboardInterrupt as error:
        print("ended", time.perf_counter() - start < 2.0, error.__notes__)
assert int(count(weft.tensor(1000.0))) == 1000
""")
    assert told.count("ended True") == 3
    assert told.count("in the loop at program.py:12: while k < n:") == 3


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals that a clock sends")
def test_ctrl_c_while_llvm_works_is_not_lost() -> None:
    lines = "\n".join(
        f"define i64 @f{i}(i64 %n) {{\nentry:\n  br label %on\non:\n"
        f"  %k = phi i64 [ 0, %entry ], [ %k1, %on ]\n  %s = phi i64 [ 0, %entry ], [ %s1, %on ]\n"
        f"  %t = mul i64 %k, {i + 3}\n  %u = xor i64 %t, %s\n  %s1 = add i64 %u, %k\n"
        f"  %k1 = add i64 %k, 1\n  %c = icmp slt i64 %k1, %n\n  br i1 %c, label %on, label %end\n"
        f"end:\n  ret i64 %s1\n}}"
        for i in range(60)
    )
    compiler, source = Compiler(host_target()), Source(lines, optimise=True)
    start = time.perf_counter()
    compiler.compile(source, False)
    whole = time.perf_counter() - start

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for k in range(1, 10):
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.08 * k * whole)
                compiler.compile(source, False)
                time.sleep(PATIENCE)  # on a machine that has become faster
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals that a clock sends")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of destructors, see below
def test_ctrl_c_while_threads_compile_raises_nothing_else() -> None:
    def interrupt(*_: object) -> None:
        # Again: Python loses what is raised in a destructor, of which llvmlite has some.
        signal.setitimer(signal.ITIMER_REAL, 5.0)
        came.append(None)
        raise KeyboardInterrupt

    before, came, lost = signal.signal(signal.SIGALRM, interrupt), list[None](), 0
    try:
        for k in range(25):
            scale = 1.0 + k / 64

            @weft.compile
            def run(x: Any, scale: float = scale) -> Any:
                while x.sum() > 0.0:
                    x = x + scale + weft.softmax(x, axis=0).exp()
                return x

            came.clear()
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.002 + 0.008 * k)
                run(weft.ones(3))
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            lost += len(came) - 1
        assert lost <= 2
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.rotating(2)
def test_a_handler_that_raises_nothing_does_not_end_the_loop() -> None:
    told = run_python("""
seen = []
signal.signal(signal.SIGUSR1, lambda *_: seen.append(time.perf_counter()))
later(0.2, signal.SIGUSR1)
later(0.5, signal.SIGALRM)
def alarm(*_):
    raise TimeoutError("too long")
signal.signal(signal.SIGALRM, alarm)
start = time.perf_counter()
try:
    count(many)
except TimeoutError as error:
    print(error, len(seen), 0.1 < seen[0] - start < 0.45, 0.4 < time.perf_counter() - start < 2.0)
""")
    assert told == "too long 1 True True\n"


def test_ctrl_c_changes_no_state_and_leaves_the_process_whole() -> None:
    told = run_python("""
total = weft.zeros(4)
@weft.compile
def add(x):
    y = x
    while y.sum() > 0.0:
        total.data = total + y
        y = y + 1.0
    return y
later(0.3)
try:
    add(weft.ones(4))
except KeyboardInterrupt:
    print(total.tolist())
signal.alarm(20)
add(-weft.ones(4))
print(total.tolist(), weft.compile(lambda x: x * 2.0)(weft.ones(2)).tolist())
""")
    assert told == "[0.0, 0.0, 0.0, 0.0]\n[0.0, 0.0, 0.0, 0.0] [2.0, 2.0]\n"


@pytest.mark.rotating(2)
def test_ctrl_c_works_in_the_child_of_a_fork_and_in_asyncio() -> None:
    told = run_python("""
import asyncio
child = os.fork()
if child == 0:
    later(0.2)
    try:
        count(many)
    except KeyboardInterrupt:
        os._exit(7)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
async def main():
    count(many)
later(0.3)
later(0.6)  # the first one only cancels the task, which cannot be while it runs
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("ended")
""")
    assert told == "7\nended\n"


@pytest.mark.rotating(2)
def test_an_interrupted_main_thread_leaves_the_others_alone() -> None:
    told = run_python("""
found = []
thread = threading.Thread(target=lambda: found.append(int(count(weft.tensor(16e6)))))
thread.start()
later(0.2)
try:
    count(many)
except KeyboardInterrupt:
    thread.join()
    print(found)
""")
    assert told == "[16000000]\n"


@pytest.mark.rotating(2)
def test_nobody_ticks_when_nothing_runs() -> None:
    told = run_python("""
def ticking():
    return sum(t.name == "weft-stopping" for t in threading.enumerate())
print(ticking())
end = time.monotonic() + 20
while ticking() and time.monotonic() < end:
    time.sleep(0.05)
print(ticking())
later(0.2)
try:
    count(many)
except KeyboardInterrupt:
    print("ended", ticking())
""")
    assert told == "1\n0\nended 1\n"


def test_signal_is_not_lost_where_nothing_can_be_asked() -> None:
    """Straight code ends by itself; the signal is handled then."""
    told = run_python("""
f = weft.compile(lambda x: weft.tanh(x @ x).sum())
y = weft.ones((64, 64))
later(0.2)
try:
    while True:
        f(y)
except KeyboardInterrupt:
    print("ended")
""")
    assert told == "ended\n"


def test_slow_entry_is_stopped_too() -> None:
    before = """
from weft.backends.llvm import entry
entry.arrays_look_as_expected = lambda: False
"""
    told = run_python(
        """
from weft.base.stopping import Stoppable
from weft.errors import StoppedError
try:
    with Stoppable() as runs:
        threading.Timer(0.2, runs.stop, ["a stop by the test"]).start()
        count(many)
except StoppedError as error:
    print(error.message, int(count(weft.tensor(5.0))))
""",
        before,
    )
    assert told == "must end by itself, got a stop by the test 5\n"

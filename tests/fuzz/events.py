"""Forks, threads and signals beside compiling and running: ``python -m tests.fuzz.events 10000 --seed 1``.

Events happen in processes of their own, a few hundred in each, while threads compile, run loops and change
tensors. Each event has a time limit; whoever takes longer writes where all of its threads are, and is ended.
What was found is written to files: what happened, the seed, and where the threads were.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.found import Found

LIMIT = 60.0  # seconds that an event may take on a machine that has other work
ROOT = Path(__file__).parents[2]
EACH = 40  # events of a process


def _wrong(what: str, got: Any) -> None:
    raise AssertionError(f"{what}, got {got!r}")


class Events:
    """What may happen in a process, and the threads beside it."""

    def __init__(self, seed: int) -> None:
        import weft
        from weft.base.stopping import Stoppable

        self.weft, self.stoppable = weft, Stoppable
        self.random = random.Random(seed)
        self.ended = threading.Event()
        self.table = weft.zeros((4, 8))
        self.number = 0

        @weft.compile
        def forever(x: Any) -> Any:
            while x.sum() > 0.0:
                x = x + 1.0
            return x

        @weft.compile
        def count(n: Any) -> Any:
            k = n * 0.0
            while k < n:
                k = k + 1.0
            return k

        self.forever, self.count = forever, count
        count(weft.tensor(3.0))
        self.kinds: list[Callable[[], None]] = [
            self.fork, self.fork_that_compiles, self.stop, self.interrupt, self.ignored_signal,
            self.compile_one, self.run_large, self.fork_in_thread,
        ]  # fmt: skip

    def check(self) -> None:
        """Compile, run, loop: all must be right."""
        weft = self.weft
        self.number += 1
        factor = float(self.number % 97)
        found = weft.compile(lambda x: weft.tanh(x * 0.0).sum() + factor)(weft.ones(5)).item()
        if found != factor:
            _wrong(f"a compiled function must give {factor}", found)
        n = self.random.randrange(1000)
        if float(self.count(weft.tensor(float(n)))) != n:
            _wrong(f"a loop must count to {n}", n)

    # Beside the events

    def beside(self, number: int) -> None:
        """Compile, run or change rows until all has ended."""
        weft = self.weft
        while not self.ended.is_set():
            if number == 0:
                factor = random.random()
                weft.compile(lambda x, f=factor: (x * f).sum())(weft.ones(4))
            elif number == 1:
                self.count(weft.tensor(1e6))
            else:
                self.table[number % 4] += 1.0
            time.sleep(0.001)

    # Events

    def _in_child(self, work: Callable[[], None]) -> None:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.alarm(int(LIMIT))  # not faulthandler: it waits for a thread that is not here
                work()
                code = 0
            except BaseException:
                sys.stderr.write(traceback.format_exc())
            finally:
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code:
            _wrong("a child must end with 0", code)

    def _use_tensors(self) -> None:
        before = self.table.numpy().copy()
        self.table[0] += 1.0
        if not np.array_equal(self.table.numpy()[0], before[0] + 1.0):
            _wrong("a row must be what it was, plus 1", self.table.numpy()[0] - before[0])

    def fork(self) -> None:
        """A child that uses tensors."""
        self._in_child(self._use_tensors)

    def fork_that_compiles(self) -> None:
        """A child that compiles and loops."""
        self._in_child(self.check)

    def fork_in_thread(self) -> None:
        """A child of another thread, whose signals are handled there."""
        failed: list[BaseException] = []

        def work() -> None:
            try:
                self._in_child(self.interrupt)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]

    def stop(self) -> None:
        """An endless loop in another thread, which is stopped."""
        from weft.errors import StoppedError

        block, ends = self.stoppable(), []

        def work() -> None:
            try:
                with block:
                    self.forever(self.weft.ones(2))
            except StoppedError:
                ends.append(True)

        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive():
            time.sleep(0.01 * self.random.random())
            block.stop("a stop of the fuzzer")
        if not ends:
            _wrong("a loop must end by its stop", "another end")

    def interrupt(self) -> None:
        """An endless loop in the main thread, which Ctrl-C ends."""
        timer = threading.Timer(0.02 * self.random.random(), os.kill, [os.getpid(), signal.SIGINT])
        try:
            timer.start()
            self.forever(self.weft.ones(3))
            _wrong("Ctrl-C must end a loop", "results")
        except KeyboardInterrupt:
            pass

    def ignored_signal(self) -> None:
        """A signal whose handler raises nothing, in the middle of a loop."""
        seen: list[int] = []
        before = signal.signal(signal.SIGUSR1, lambda number, _: seen.append(number))
        timer = threading.Timer(0.003 * self.random.random(), os.kill, [os.getpid(), signal.SIGUSR1])
        timer.start()
        found = float(self.count(self.weft.tensor(4e6)))
        timer.join()
        time.sleep(0.0)
        signal.signal(signal.SIGUSR1, before)
        if found != 4e6 or not seen:
            _wrong("a loop must count to 4e6 and its signal be seen", (found, seen))

    def compile_one(self) -> None:
        """A new function."""
        self.check()

    def run_large(self) -> None:
        """Kernels on the threads of the pool."""
        x = self.weft.ones((128, 128))
        found = self.weft.compile(lambda x: (x @ x).sum())(x).item()
        if found != 128.0**3:
            _wrong(f"a product must be {128.0**3}", found)


def run_events(count: int, seed: int) -> None:
    """Events in this process; tells of each kind how many there were."""
    events = Events(seed)
    threads = [threading.Thread(target=events.beside, args=(i,), daemon=True) for i in range(4)]
    for thread in threads:
        thread.start()
    counts: Counter[str] = Counter()
    for _ in range(count):
        kind = events.random.choice(events.kinds)
        sys.stderr.write(f"{kind.__name__}\n")
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        kind()
        counts[kind.__name__] += 1
    faulthandler.cancel_dump_traceback_later()
    events.ended.set()
    for thread in threads:
        thread.join(LIMIT)
    sys.stdout.write(" ".join(f"{name}={n}" for name, n in sorted(counts.items())) + "\n")


def run_process(count: int, seed: int) -> tuple[Counter[str], str]:
    """Events in a process of their own: how many of each kind, and what went wrong."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.fuzz.events",
        "--inside",
        str(count),
        "--seed",
        str(seed),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryFile("w+") as told:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=told, text=True
        )
        try:
            out, _ = process.communicate(timeout=LIMIT * 4 + count * 2.0)
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
        told.seek(0)
        text = told.read()
    counts = Counter({k: int(n) for k, _, n in (part.partition("=") for part in out.split())})
    return counts, "" if process.returncode == 0 else f"exit status {process.returncode}\n{text[-20_000:]}"


def replay(case: bytes) -> str:
    """What is wrong with a case."""
    row = json.loads(case)
    return run_process(row["count"], row["seed"])[1]


def main(arguments: list[str] | None = None) -> int:
    """Run events; 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=10_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="how long to go on at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--found", type=Path, help="a folder for what was found")
    parser.add_argument("--inside", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.inside is not None:
        run_events(options.inside, options.seed)
        return 0
    end = time.monotonic() + options.seconds
    total: Counter[str] = Counter()
    found, seed = 0, options.seed
    while total.total() < options.count and time.monotonic() < end:
        count = min(EACH, options.count - total.total())
        counts, wrong = run_process(count, seed)
        total += counts
        if wrong:
            found += 1
            total["ended early"] += count
            sys.stderr.write(f"seed {seed}: {wrong}\n")
            if options.found is not None:
                case = json.dumps({"seed": seed, "count": count}).encode()
                Found("events", seed, case, "all events end", wrong).write(options.found, f"hang-{seed}")
        seed += 1
    sys.stdout.write(f"{total.total()} events, {found} found: {dict(sorted(total.items()))}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

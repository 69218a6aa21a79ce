"""All that a card can tell in a few minutes, most of it side by side, and a table of it last.

    python -m tests.gpu.card_all [--seconds 400] [--log log.txt] [--only matrix face]

First what must be alone, as it fills the card's memory or takes times, then all else at once, and in the end
a GPT-2 step with what is left of the time. What takes too long is ended, and told as late. A folder with
packages that a machine lacks goes into ``PYTHONPATH``.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, NamedTuple

_TOLD = re.compile(
    r"^(matrix:|FAIL |NOT |skip |kernels \d|ops \d|halves \d|corpus:|state:|slices:|part 0:|all passed)"
    r"|^\d+ (failed|to look at)|^\w*Error: |^  peak|SUMMARY: |bytes that libraries count in"
    r"|, losses from those|layers, a step|layers, first call|overlap of uploads|10,000 times"
    r"|compiled training step, tiny|eager x \+ x, 256"
)
_WRONG = re.compile(
    r"^FAIL |^NOT |[1-9]\d* do not|SUMMARY: [1-9]|, not: (?!none)|[1-9]\d* to look at|^\d+ failed"
    r"|out of time at",
    re.MULTILINE,
)
_MOST_LINES = 5  # of a job, in the table


class Job(NamedTuple):
    """A script with what it is given, the seconds that it may take, and the tool that it runs under."""

    name: str
    arguments: str
    limit: float
    tool: str = ""

    def command(self) -> list[str]:
        """The command line."""
        own = [sys.executable, "-m", *f"tests.gpu.{self.arguments}".split()]
        if not self.tool:
            return own
        program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        return [program, "--tool", self.tool, "--print-limit", "5", *own]


_TIMES = (  # parts of card_face that fill the memory, or tell times
    "captured_graph", "training_in_a_graph", "overlap_of_uploads", "ten_thousand_steps_leave_nothing",
    "out_of_memory_in_a_step",
)  # fmt: skip
ALONE = (
    Job("face", f"card_face {' '.join(_TIMES)}", 70),
    Job("runtime", "card_runtime", 70),
)
TOGETHER = (
    Job("face, the rest", f"card_face {' '.join(f'-{part}' for part in _TIMES)}", 190),
    *[Job(f"matrix {k}", f"card_kernels matrix:{k}/7", 200) for k in range(7)],
    Job("memcheck halves", "card_sanitize halves 0/1 150", 200, "memcheck"),
    *[Job(f"memcheck {k}", f"card_sanitize kernels {k}/3 110", 180, "memcheck") for k in range(3)],
    *[Job(f"racecheck {k}", f"card_sanitize kernels {k}/2 90", 180, "racecheck") for k in range(2)],
    Job("libraries", "card_libraries products_in_programs odd_products eager_ops_of_libraries", 150),
    Job("rounding", "card_libraries linears_round_once convolutions_round_once precision_of_float32", 180),
    Job("cudnn", "card_libraries attention convolutions small_gpt", 150),
    Job("steps", "card_steps loops_and_branches failures training_steps", 120),
    Job("collectives", "card_collectives", 120),
    Job("capture", "card_capture --jobs 4 --seconds 130", 200),
)
LAST = (Job("gpt2", "card_libraries gpt_step", 120),)


class Running:
    """A job that was started."""

    def __init__(self, job: Job, end: float) -> None:
        self.job, self.begin = job, time.monotonic()
        self._end = min(self.begin + job.limit, end)
        self._file: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - read when all have ended
        self._process = subprocess.Popen(
            job.command(), stdout=self._file, stderr=subprocess.STDOUT, start_new_session=True
        )
        self.late = False
        self.took = 0.0

    def is_done(self) -> bool:
        """Whether it has ended; it is made to where its time is over."""
        if self._process.poll() is None:
            if time.monotonic() < self._end:
                return False
            self.late = True
            os.killpg(self._process.pid, signal.SIGKILL)  # with the processes that it has begun
            self._process.wait()
        self.took = self.took or time.monotonic() - self.begin
        return True

    def text(self) -> str:
        """What it has printed."""
        self._file.seek(0)
        return self._file.read()

    def outcome(self) -> str:
        """One word."""
        if self.late:
            return "late"
        return "WRONG" if self._process.returncode or _WRONG.search(self.text()) else "right"


def run(jobs: tuple[Job, ...], end: float, *, together: bool) -> list[Running]:
    """Run jobs, one after the other or all at once."""
    done: list[Running] = []
    groups = [jobs] if together else [(job,) for job in jobs]
    for group in groups:
        if time.monotonic() > end - 5:
            break
        running = [Running(job, end) for job in group]
        while not min([r.is_done() for r in running]):  # each of them is asked
            time.sleep(0.2)
        for r in running:
            print(f"{r.job.name}: {r.outcome()}, {r.took:.0f} s", flush=True)
        done += running
    return done


def table(done: list[Running]) -> None:
    """Each job, how it went, and the lines that tell most."""
    print()
    for r in done:
        print(f"{r.outcome():6} {r.job.name:18} {r.took:4.0f} s")
        lines = [" ".join(line.split()) for line in r.text().splitlines() if _TOLD.search(line)]
        shown = (
            lines
            if len(lines) <= _MOST_LINES
            else [*lines[:_MOST_LINES], f"and {len(lines) - _MOST_LINES} more"]
        )
        if not lines:
            shown = r.text().splitlines()[-2:]
        for line in shown:
            print(f"         {line[:170]}")
    wrong = [r.job.name for r in done if r.outcome() != "right"]
    print(f"\n{len(done) - len(wrong)} right" + (f", not: {', '.join(wrong)}" if wrong else ""))


def main() -> int:
    """Run all, or what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--seconds", type=float, default=400.0, help="that all may take")
    parser.add_argument("--log", type=Path, help="where all that was printed goes")
    parser.add_argument("--only", nargs="+", default=[], help="the first words of names of jobs")
    given = parser.parse_args()
    end, done = time.monotonic() + given.seconds, list[Running]()
    for jobs, together in ((ALONE, False), (TOGETHER, True), (LAST, False)):
        chosen = tuple(j for j in jobs if not given.only or j.name.split()[0] in given.only)
        done += run(chosen, end, together=together)
        if given.log:
            parts = [f"==== {r.job.name}: {r.outcome()}\n{r.text()}" for r in done]
            given.log.write_text("\n".join(parts))
    table(done)
    return int(any(r.outcome() != "right" for r in done))


if __name__ == "__main__":
    sys.exit(main())

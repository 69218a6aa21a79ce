"""Captured programs on a card, as users write them: those of ``tests/capture`` with their tensors there.

    python -m tests.gpu.card_capture [--jobs 12] [--seconds 120] [--only corpus state slices tests]
    python -m tests.gpu.card_capture --only tests --files tests/capture/test_entry.py tests/train

- corpus: the programs of ``tests/capture/programs``, values and gradients, called until a call is a replay.
- state, slices: random programs of ``state_programs`` and ``slice_programs``, as many as there is time for.
- tests: the tests of capture, the trainer and the examples, unchanged, by the plugin ``on_device``.

What eager code gives on the processor is right; eager code and compiled code on the device must give the
same, or be refused. ``--device standin`` tries the script where there is no card. Jobs are processes.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import pkgutil
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import Any

import numpy as np

import weft
from tests.capture import programs, slice_programs, state_programs
from tests.capture.programs.registry import PROGRAMS
from tests.gpu.on_device import made
from weft.backends.cuda import eager
from weft.errors import CaptureError

PARTS = ("corpus", "state", "slices", "tests")
TESTS = ("tests/capture", "tests/train", "tests/examples")
SHARES = {"corpus": 0.3, "state": 0.12, "slices": 0.05}  # of the time, at most; the tests have the rest
# Tests that fail for what they ask, and not for what a device does; they run all the same, and are told.
KNOWN = {
    "test_state.py::test_step_written_by_hand_is_the_eager_one": "wants eager code to have the bits of the "
    "interpreter, which computes on the processor: sums of a device have another order",
    "test_compile.py::test_eager_code_of_other_threads_goes_on_while_one_captures": "makes tensors in "
    "threads of its own, and the default device is that of a thread",
    "test_static_sizes.py::test_a_named_size_gives_what_eager_gives[searchsorted]": "repeats the elements of "
    "its sample, which are not in order then: any place is right",
    "test_resume.py::test_a_run_that_is_killed_at_any_moment_leaves_a_checkpoint_that_loads": "compares its "
    "bits with those of a process without this plugin, which trains on the processor",
    "test_resume.py::test_ctrl_c_ends_the_step_saves_and_stops": "likewise",
    "test_convert.py::test_converted_function_does_what_the_original_does[asserts]": "fails on the "
    "processor, too, where pytest rewrites the assertions of modules beside a plugin's",
    "test_compared.py::test_print_shows_values_at_each_run": "expects the text of tensors of the processor",
    "test_examples.py::test_demo_trains_saves_loads_and_draws": "needs Graphviz or igraph for its picture",
}
LIMIT = 30  # seconds that one program may take
CALLS = 4  # from the third on a call may be a replay


class LateError(BaseException):
    """A program takes too long; nothing between here and there must catch it."""


def values_and_slopes(function: Callable[..., Any], run: Any, device: str, *, grad: bool) -> list[Any]:
    """The results of a program, and the gradients of a weighted sum of them by its inputs."""
    with weft.default_device(device):
        inputs: Any = [weft.tensor(a, requires_grad=grad and a.dtype.kind == "f") for a in run]
        leaves = weft.tree_leaves(function(*inputs))
        linked = [x for x in leaves if isinstance(x, weft.Tensor) and x.requires_grad]
        if linked:
            sum(((x * (k + 1.5)).sum() for k, x in enumerate(linked)), weft.zeros(())).backward()
    slopes = [x.grad for x in inputs] if grad else []
    return [x.detach().cpu().numpy() if isinstance(x, weft.Tensor) else x for x in (*leaves, *slopes)]


def difference(found: list[Any], expected: list[Any]) -> str:
    """Where two lists of arrays and plain values differ, if they do; no gradient is one of zeros."""
    if len(found) != len(expected):
        return f"{len(found)} results and not {len(expected)}"
    for k, (a, b) in enumerate(zip(found, expected, strict=True)):
        if a is None or b is None:
            if np.any(a if b is None else b):
                return f"result {k}: {a} and not {b}"
        elif np.shape(a) != np.shape(b) or np.asarray(a).dtype != np.asarray(b).dtype:
            return f"result {k}: {np.asarray(a).dtype}{np.shape(a)}, not {np.asarray(b).dtype}{np.shape(b)}"
        elif not np.allclose(a, b, rtol=2e-5, atol=2e-6, equal_nan=True):
            return f"result {k}: {a} and not {b}"
    return ""


def check_program(name: str, device: str) -> str:
    """ "same", "refused: ..." or "wrong: ...", of a program of the corpus."""
    program = PROGRAMS[name]
    for grad in (False, True) if program.differentiable else (False,):
        ways = ("eager", program.function, 1), ("compiled", weft.compile(program.function), CALLS)
        for run in program.inputs:
            expected = values_and_slopes(program.function, run, "cpu", grad=grad)
            for label, way, times in ways:
                for call in range(times):
                    try:
                        found = values_and_slopes(way, run, device, grad=grad)
                    except CaptureError as error:
                        return refusal(program, run, str(error).splitlines()[0], grad=grad)
                    if other := difference(found, expected):
                        return f"wrong: {label}, call {call}: {other}"
    return "same"


def refusal(program: Any, run: Any, said: str, *, grad: bool) -> str:
    """What it is that a program is refused on a device: the processor must refuse it by the same words."""
    try:
        values_and_slopes(weft.compile(program.function), run, "cpu", grad=grad)
    except CaptureError as error:
        if str(error).splitlines()[0] == said:
            return f"refused: {said}"
    return f"wrong: refused there alone: {said}"


def cases(what: str, part: int, parts: int, device: str) -> Iterator[tuple[str, Callable[[], str]]]:
    """Programs by name, with what tells how they went."""
    if what == "corpus":
        for module in pkgutil.iter_modules(programs.__path__):
            importlib.import_module(f"{programs.__name__}.{module.name}")
        for name in sorted(PROGRAMS)[part::parts]:
            yield name, partial(check_program, name, device)
    else:
        check = (state_programs if what == "state" else slice_programs).check
        for seed in count(10_000 + part, parts):
            yield f"{what} {seed}", partial(check, seed, device=device)


def run_programs(what: str, part: int, parts: int, seconds: float, device: str) -> None:
    """Programs of one kind, for some seconds; prints what is not right, and how many are."""
    end, outcomes = time.monotonic() + seconds, Counter[str]()

    def late(*_: object) -> None:
        raise LateError

    signal.signal(signal.SIGALRM, late)
    for name, check in cases(what, part, parts, device):
        if time.monotonic() > end:
            if what != "corpus":  # there are always more
                break
            outcomes["left out"] += 1
            continue
        signal.alarm(LIMIT)
        try:
            outcome = check()
        except LateError:
            outcome = f"late: more than {LIMIT} s"
        except Exception as error:
            outcome = f"wrong: {type(error).__name__}: {error}"
        finally:
            signal.alarm(0)
        kind = outcome.partition(":")[0]
        outcomes[kind] += 1
        if kind not in ("same", "refused"):
            print(f"NOT {name} {outcome[:300]!r}", flush=True)
    print(f"COUNT {what} {dict(outcomes)}", flush=True)


def run_tests(part: int, parts: int, seconds: float, device: str, files: Sequence[str]) -> None:
    """A part of the tests, unchanged, in what is left of the time."""
    plugin = ["-p", "tests.gpu.on_device", "--device", device, "--part", f"{part}/{parts}"]
    limits = ["--budget", str(seconds), "--seconds", str(LIMIT)]
    told = ["-q", "-rfE", "--tb=short"]
    sys.stdout.flush()
    subprocess.run(
        [sys.executable, "-m", "pytest", "--noconftest", *plugin, *limits, *told, *files], check=False
    )


def run_part(given: argparse.Namespace) -> int:
    """What one process does."""
    warnings.simplefilter("ignore")
    logging.getLogger("weft.compile").setLevel(logging.ERROR)
    part, parts = map(int, given.part.split("/"))
    begin = time.monotonic()
    with ExitStack() as around:
        made_here = given.device in ("emulated", "standin")
        if made_here:
            around.enter_context(made(given.device))
        for what, share in SHARES.items():
            if what in given.only:
                run_programs(what, part, parts, share * given.seconds, "cuda" if made_here else given.device)
        print(f"HOST {' '.join(sorted(eager._said))}", flush=True)
    if "tests" in given.only:
        run_tests(
            part, parts, max(given.seconds - (time.monotonic() - begin), 1.0), given.device, given.files
        )
    return 0


def reason_of(line: str) -> str | None:
    """Why a test that failed does not count; None of all others."""
    name = line.split()[1] if line.startswith("FAILED ") else ""
    return next((reason for test, reason in KNOWN.items() if name.endswith(f"/{test}")), None)


def run_all(given: argparse.Namespace) -> int:
    """All parts side by side; what was found, put together."""
    own = [sys.executable, "-m", "tests.gpu.card_capture", "--device", given.device]
    own += ["--only", *given.only, "--files", *given.files]
    environment = {**os.environ, "COLUMNS": "220", "PYTHONHASHSEED": "0"}
    running = [
        subprocess.Popen(
            [*own, "--seconds", str(given.seconds), "--part", f"{part}/{given.jobs}"],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for part in range(given.jobs)
    ]  # fmt: skip
    counts: dict[str, Counter[str]] = {}
    found, known, hosts = 0, list[str](), set[str]()
    for part, process in enumerate(running):
        text, _ = process.communicate()
        lines = text.splitlines()
        for line in lines:
            if line.startswith("COUNT "):
                _, what, rest = line.split(" ", 2)
                counts.setdefault(what, Counter()).update(eval(rest))  # noqa: S307 - we wrote it
            elif (reason := reason_of(line)) is not None:
                known.append(f"{line.split()[1]}: {reason}")
            elif line.startswith(("NOT ", "FAILED ", "ERROR ")):
                found += 1
                print(line[:400])
            elif line.startswith("HOST "):
                hosts |= set(line.split()[1:])
        print(f"part {part}: {lines[-1] if lines else 'nothing'}")
        if process.returncode or given.show:
            print(text[-max(given.show, 2000) :])
    for what, outcomes in counts.items():
        print(f"{what}: {dict(outcomes)}")
    print(f"ops computed by the host: {' '.join(sorted(hosts))}")
    print(f"{len(known)} that do not count")
    for line in known:
        print(f"  {line}")
    print(f"{found} to look at")
    return int(found > 0)


def main() -> int:
    """Run all, or one part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, emulated, or standin")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--files", nargs="+", default=list(TESTS), help="of tests")
    parser.add_argument("--show", type=int, default=0, help="so many characters of what each process said")
    parser.add_argument("--part", help="which of how many, for one process")
    given = parser.parse_args()
    return run_part(given) if given.part else run_all(given)


if __name__ == "__main__":
    sys.exit(main())

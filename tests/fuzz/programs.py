"""Random programs in plain Python: compiled as eager, in what they return, change and what gradients are.

Those of ``tests.capture.state_source`` are about state: attributes, lists, buffers, views, who sees a change
of whom. Those of ``tests.capture.random_source`` are about values and gradients through branches and loops. A
case is JSON: which of both, the way it is compiled, and the source.
"""

from __future__ import annotations

import json
import random
import sys
import warnings
from collections.abc import Sequence

import weft
from tests.capture.random_source import write_program
from tests.capture.state_programs import check_source
from tests.capture.state_source import program
from tests.capture.test_random_programs import REFUSED, RUNS, assert_close, load, run
from tests.fuzz.campaign import TooLong, Watch, campaign, place, told
from weft.errors import CaptureError, GradientError

EACH = 60  # programs in a batch


def replay(case: bytes) -> str:
    """What is wrong with a case."""
    return judged(case)[1]


def judged(case: bytes) -> tuple[str, str]:
    """How a case ended, and what is wrong with it."""
    row = json.loads(case)
    source = "\n".join(row["source"]) + "\n"
    if row["kind"] == "state":
        outcome = check_source(source, "<state program>", gradients=row["gradients"])
        how, _, what = outcome.partition(": ")
        return how, what if how in ("wrong", "bad") else ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _values(source, row["passes"])


def _values(source: str, passes: list[str] | None) -> tuple[str, str]:
    function = load(source)
    try:
        expected = [run(function, given) for given in RUNS]
    except GradientError:
        return "without gradient", ""
    compiled = weft.compile(function, passes=passes)
    for given, (value, slopes) in zip(RUNS, expected, strict=True):
        try:
            found, found_slopes = run(compiled, given)
        except CaptureError as error:
            if any(text in str(error) for text in REFUSED):
                return "refused", ""
            raise
        try:
            for a, b in zip([found, *found_slopes], [value, *slopes], strict=True):
                assert_close(a, b)
        except AssertionError as error:
            return "wrong", f"on {given}: {error}"
    return "same", ""


def made(draw: random.Random) -> bytes:
    """A case."""
    if draw.random() < 0.5:
        source, kind = program(draw.randrange(2**40)), "state"
    else:
        source, kind = write_program(draw.randrange), "values"
    row = {
        "kind": kind,
        "passes": draw.choice((None, [])),
        "gradients": draw.random() < 0.5,
        "source": source.splitlines(),
    }
    return json.dumps(row, indent=1).encode()


def shortened(case: bytes, wrong: str) -> bytes:
    """A case without the lines that it takes not to go wrong in the same way."""
    row = json.loads(case)
    begin = wrong[:20]
    at = 0
    while at < len(row["source"]):
        less = {**row, "source": row["source"][:at] + row["source"][at + 1 :]}
        try:
            same = judged(json.dumps(less).encode())[1].startswith(begin)
        except (Exception, TooLong):
            same = False
        row, at = (less, at) if same else (row, at + 1)
    return json.dumps(row, indent=1).encode()


def batch(watch: Watch) -> None:
    """Many programs."""
    draw = random.Random(watch.seed)
    for _ in range(EACH):
        if watch.over():
            return
        case = made(draw)
        watch.begin(case, "programs", 30)
        try:
            how, wrong = judged(case)
            watch.counts[how] += 1
            if wrong:
                watch.begin(case, "programs made short", 120)
                watch.found(f"wrong-{watch.seed}", "what eager code does", wrong, shortened(case, wrong))
        except (Exception, TooLong) as error:
            watch.found(f"{place(error)}", "a result or a CaptureError", told(error))
        watch.done()


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz."""
    return campaign("programs", batch, arguments)


if __name__ == "__main__":
    sys.exit(main())

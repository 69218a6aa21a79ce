"""What scripts for a card share: parts that run whatever became of the others, times, a table at the end."""

# ruff: noqa: T201 - it talks to people
from __future__ import annotations

import statistics
import sys
import time
import traceback
from collections.abc import Callable

import weft

PARTS: list[Callable[[], None]] = []
rows: list[tuple[str, str]] = []


def part(check: Callable[[], None]) -> Callable[[], None]:
    """Enter a check, to be run in its order."""
    PARTS.append(check)
    return check


def run_part(check: Callable[[], None]) -> bool:
    """Run a check; whether it passed, or what it needs is not there."""
    name = check.__name__
    begin = time.perf_counter()
    try:
        check()
        print(f"pass  {name}  ({time.perf_counter() - begin:.2f} s)", flush=True)
    except ImportError as error:
        print(f"skip  {name}: {error}", flush=True)
    except Exception:
        print(f"FAIL  {name}", flush=True)
        traceback.print_exc(limit=8, file=sys.stdout)
        return False
    return True


def run_all() -> int:
    """Run all parts, those that the command line names, or all but -those; 1 if one failed."""
    named = sys.argv[1:]
    without = {name[1:] for name in named if name.startswith("-")}
    chosen = [p for p in PARTS if p.__name__ not in without and (without or not named or p.__name__ in named)]
    chosen.sort(key=lambda check: check.__module__.endswith("times"))  # what is right comes before how fast
    failed = [check.__name__ for check in chosen if not run_part(check)]
    print()
    for name, value in rows:
        print(f"  {name:<44}{value}")
    print(f"\n{len(failed)} failed: {', '.join(failed)}" if failed else "\nall passed")
    return int(bool(failed))


def host_us(function: Callable[[], object], count: int = 2000) -> float:
    """Microseconds of host time a call takes, the median of five rounds."""
    for _ in range(50):
        function()
    weft.cuda.synchronize()
    rounds = []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(count):
            function()
        rounds.append((time.perf_counter() - begin) / count * 1e6)
        weft.cuda.synchronize()
    return statistics.median(rounds)


def device_us(function: Callable[[], object], count: int = 30) -> float:
    """Microseconds that a call takes on the device, by events, the median."""
    for _ in range(5):
        function()
    found = []
    for _ in range(count):
        start, end = weft.cuda.Event(), weft.cuda.Event()
        start.record()
        function()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) * 1e3)
    return statistics.median(found)


def note(name: str, value: str) -> None:
    rows.append((name, value))

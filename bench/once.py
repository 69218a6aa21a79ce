"""What is measured once in each process: the first call, and the peak of memory."""

from __future__ import annotations

import tempfile

from bench.case import Case
from bench.line import Line, Settings
from bench.measure import stored_arrays
from bench.process import FailedError, Worker
from bench.rows import COMPILE_GOAL


def measure_first_call(case: Case, settings: Settings, repeats: int = 3) -> Line:
    """Seconds of the first step in a new process without caches; for weft also with a filled one."""
    line = Line(f"compile {case.name}", COMPILE_GOAL, beside=("torch",))
    wanted = settings.wanted(case.builders)
    with stored_arrays(case) as arrays, tempfile.TemporaryDirectory(prefix="bench-") as cache:
        for label in wanted:
            for _ in range(repeats):
                seconds = _first_call(label, case, arrays, settings, line)
                if seconds is None or seconds > 10:
                    break
        if "weft" in wanted:
            for turn in range(1 + repeats):
                seconds = _first_call("weft", case, arrays, settings, line, "weft cached", cache)
                if turn == 0 and seconds is not None:
                    line.samples.pop("weft cached")  # this one filled the cache
    return line


def _first_call(
    label: str,
    case: Case,
    arrays: str,
    settings: Settings,
    line: Line,
    name: str | None = None,
    cache: str | None = None,
) -> float | None:
    name = name or label
    worker = Worker(label, settings.python(label), cache)
    try:
        line.versions[label] = worker.ask("start", settings.limit)["version"]
        worker.ask("build", settings.limit, case=case.name, arrays=arrays)
        with worker.first_of_all(settings.urgent):
            seconds = float(worker.ask("first", settings.compile_limit)["seconds"])
        line.samples.setdefault(name, []).append(seconds)
        return seconds
    except FailedError as error:
        line.failed[name] = str(error)
        return None
    finally:
        worker.close()


def measure_memory(case: Case, settings: Settings, steps: int = 5) -> list[Line]:
    """Peaks of a few steps, above a process that imported, and above one that ran the smallest program."""
    lines = [Line("memory", None, unit="B"), Line("memory above first program", None, unit="B")]
    with stored_arrays(case) as arrays:
        for label in settings.wanted(case.builders):
            worker = Worker(label, settings.python(label))
            try:
                found = _peaks(worker, case, arrays, settings, steps)
                for line, above in zip(lines, found, strict=True):
                    line.samples[label] = [above]
            except FailedError as error:
                lines[0].failed[label] = str(error)
            finally:
                worker.close()
    return lines


def _peaks(worker: Worker, case: Case, arrays: str, settings: Settings, steps: int) -> tuple[float, float]:
    limit = settings.compile_limit
    worker.ask("start", limit)
    imported = worker.ask("memory", limit, reset=True)["now"]
    worker.ask("warm", limit)
    warmed = worker.ask("memory", limit, reset=True)["now"]
    worker.ask("build", limit, case=case.name, arrays=arrays)
    worker.ask("first", limit)
    worker.ask("burst", limit, steps=steps)
    peak = worker.ask("memory", limit)["peak"]
    return float(peak - imported), float(peak - warmed)

"""The rows ``npbench`` and ``npbench_m`` as a table of their own: a line for each kernel, and sums."""

from __future__ import annotations

from math import exp, log

from bench.line import Line
from bench.report import amount

ROWS = ("npbench", "npbench_m")
FIRST_GOAL = 3.0  # seconds of a first call


def kernel_table(lines: list[Line]) -> str:
    """Markdown: every kernel of the rows, the slowest beside NumPy first, then the sums of it."""
    head = ("kernel", "NumPy", "weft", "Numba", "NumPy / weft", "Numba / weft", "weft's first call")
    done = sorted((line for line in lines if line.ratio() is not None), key=lambda line: line.ratio() or 0.0)
    rows = [head, tuple("---" for _ in head), *map(_row, done)]
    text = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    failed = [f"- {_name(x)}, {label}: {why}" for x in lines for label, why in x.failed.items()]
    return "\n\n".join(
        [text, summary(lines), *(["Without a result:\n\n" + "\n".join(failed)] if failed else [])]
    )


def summary(lines: list[Line]) -> str:
    """How many there are, how fast they are together, and which are behind."""
    ratios = {_name(line): ratio for line in lines if (ratio := line.ratio()) is not None}
    if not ratios:
        return "No kernel has a result."
    mean = exp(sum(map(log, ratios.values())) / len(ratios))
    behind = [name for name, ratio in ratios.items() if ratio < 1.0]
    slow = [_name(line) for line in lines if line.first.get("weft", 0.0) > FIRST_GOAL]
    told = [
        f"{len(ratios)} of {len(lines)} kernels have a result; "
        f"the geometric mean of NumPy's time over weft's is {mean:.2f}.",
        f"Slower than NumPy: {len(behind)}{_listed(behind)}.",
        f"First call over {FIRST_GOAL:g} s: {len(slow)}{_listed(slow)}.",
    ]
    beside = [
        line.median("numba") / line.median("weft")
        for line in lines
        if {"numba", "weft"} <= line.samples.keys()
    ]
    if beside:
        ahead = sum(ratio >= 1.0 for ratio in beside)
        told.append(f"At least as fast as Numba: {ahead} of the {len(beside)} that Numba runs.")
    return " ".join(told)


def _row(line: Line) -> tuple[str, ...]:
    times = [amount(line.median(n), "s") if n in line.samples else "" for n in ("numpy", "weft", "numba")]
    numba = f"{line.median('numba') / line.median('weft'):.2f}" if "numba" in line.samples else ""
    first = line.first.get("weft")
    return (_name(line), *times, f"{line.ratio():.2f}", numba, amount(first, "s") if first else "")


def _name(line: Line) -> str:
    return line.name.split()[1]


def _listed(names: list[str]) -> str:
    return f" ({', '.join(names)})" if names else ""

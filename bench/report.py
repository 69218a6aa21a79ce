"""The table of ratios, and the same with all details as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.line import Line
from bench.rows import C_GOAL, MEMORY_GOAL

COLUMNS = ("weft", "torch", "torch compile", "jax")


def amount(value: float, unit: str) -> str:
    """A time or a size for people."""
    if unit == "B":
        return f"{value / 1e6:.0f} MB"
    for scale, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= scale:
            return f"{value / scale:.3g} {name}"
    return f"{value / 1e-9:.3g} ns"


def limit_of(line: Line, machine: dict[str, Any]) -> float | None:
    """Seconds that the machine needs at least for a step: by its arithmetic or by its memory."""
    if not line.flops and not line.bytes:
        return None
    return float(max(line.flops / machine["flops"], line.bytes / machine["bandwidth"]))


def verdict(line: Line) -> str:
    """The ratio, the goal, and whether it is reached."""
    if line.unit == "B":
        if "weft" not in line.samples or line.name != "memory":
            return ""
        return f"goal ≤ {amount(MEMORY_GOAL, 'B')}: " + _mark(line.median("weft") <= MEMORY_GOAL)
    if line.most is not None and "weft" in line.samples:
        return f"goal ≤ {amount(line.most, line.unit)}: " + _mark(line.median("weft") <= line.most)
    ratio = line.ratio()
    if ratio is None:
        return "weft: no result" if line.goal and "weft" not in line.samples else _beside_c(line)
    text = f"{ratio:.2f}"
    if line.goal is not None:
        text += f" (goal {line.goal:g}): {_mark(ratio >= line.goal)}"
    return "; ".join(filter(None, [text, _beside_c(line)]))


def _beside_c(line: Line) -> str:
    """How often the time of hand-written C weft takes."""
    if not {"c", "weft"} <= line.samples.keys():
        return ""
    times = line.median("weft") / line.median("c")
    return f"{times:.2f} × C (goal ≤ {C_GOAL:g}): {_mark(times <= C_GOAL)}"


def _mark(reached: bool) -> str:
    return "reached" if reached else "MISSED"


def table(lines: list[Line], machine: dict[str, Any]) -> str:
    """The table, in Markdown."""
    head = ("row", *COLUMNS, "others", "limit", "best peer / weft")
    rows = [head, tuple("---" for _ in head)]
    for line in lines:
        known = [_cell(line, label) for label in COLUMNS]
        others = [f"{n} {_cell(line, n)}" for n in (*line.samples, *line.failed) if n not in COLUMNS]
        limit = limit_of(line, machine)
        shown = amount(limit, "s") if limit else ""
        rows.append((line.name, *known, ", ".join(others), shown, verdict(line)))
    text = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    notes = [f"- {x.name}, {label}: {why}" for x in lines for label, why in x.failed.items()]
    return "\n\n".join([text, *(["Without a result:\n" + "\n".join(notes)] if notes else [])])


def _cell(line: Line, label: str) -> str:
    if label in line.samples:
        return amount(line.median(label), line.unit)
    return "failed" if label in line.failed else ""


def as_json(lines: list[Line], machine: dict[str, Any]) -> dict[str, Any]:
    """Everything that was measured."""
    return {"machine": machine, "rows": [_line_as_json(line, machine) for line in lines]}


def _line_as_json(line: Line, machine: dict[str, Any]) -> dict[str, Any]:
    found = {
        label: {
            "median": line.median(label),
            "quartiles": line.quartiles(label),
            "best": line.best(label),
            "samples": len(samples),
        }
        for label, samples in line.samples.items()
    }
    return {
        "name": line.name,
        "unit": line.unit,
        "goal": line.goal,
        "most": line.most,
        "ratio": line.ratio(),
        "best_peer": line.best_peer(),
        "limit": limit_of(line, machine),
        "flops": line.flops,
        "bytes": line.bytes,
        "measured": found,
        "first": line.first,
        "failed": line.failed,
        "versions": line.versions,
    }


def write(path: Path, lines: list[Line], machine: dict[str, Any]) -> None:
    """Store the JSON, and the table beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(as_json(lines, machine), indent=1) + "\n")
    path.with_suffix(".md").write_text(describe(machine) + "\n\n" + table(lines, machine) + "\n")


def describe(machine: dict[str, Any]) -> str:
    """The machine in a line or two."""
    return (
        f"{machine['processor']}, {machine['system']}, Python {machine['python']}; 2 threads reach "
        f"{machine['flops'] / 1e9:.1f} GFLOP/s (f32 matrix product) and "
        f"{machine['bandwidth'] / 1e9:.1f} GB/s (copy, read and written); load {machine['load']}"
    )

"""Run rows on the GPU of this machine: ``python -m bench.gpu [--seconds N] [--only weft,PyTorch] [row ...]``.

Each framework runs each row in a process of its own, which has a limit of time. The table goes to
``bench/results/gpu.md``, all figures to ``gpu.json``, with the date and the machine; rows that were not run
keep what is there.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.gpu.row import WEFT, Row
from bench.gpu.rows import ROWS

RESULTS = Path(__file__).parent.parent / "results"


def main() -> None:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", choices=[*(row.name for row in ROWS), []])
    parser.add_argument("--seconds", type=float, default=3600.0, help="of all rows together, at most")
    parser.add_argument("--only", default="", help="frameworks, with commas between them")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    only = options.only.split(",") if options.only else None
    chosen = [row for row in ROWS if not options.rows or row.name in options.rows]
    found = {row.name: run_row(row, only, end) for row in chosen}
    write(found)


def run_row(row: Row, only: list[str] | None, end: float) -> dict[str, Any]:
    """The figures of a row by framework; a text where there are none."""
    found: dict[str, Any] = {}
    for framework in row.makers:
        left = min(row.limit, end - time.monotonic())
        if (only is None or framework in only) and left > 0:
            found[framework] = run_one(row.name, framework, left)
            print(f"{row.name:<12} {framework:<18} {_cell(found[framework])}", flush=True)
    return found


def run_one(name: str, framework: str, limit: float) -> dict[str, Any] | str:
    """What a process of its own finds, or why it finds nothing."""
    command = [sys.executable, "-m", "bench.gpu.worker", name, framework]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return f"more than {limit:.0f} s"
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no word"]
        return f"failed: {next((x for x in reversed(lines) if x.strip()), '')[:150]}"
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def write(found: dict[str, dict[str, Any]]) -> None:
    """Put figures beside those that are there."""
    place = RESULTS / "gpu.json"
    known = json.loads(place.read_text()) if place.exists() else {"rows": {}}
    for name, figures in found.items():
        known["rows"].setdefault(name, {}).update(figures)
    known |= {"date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"), "machine": machine()}
    place.write_text(json.dumps(known, indent=1) + "\n")
    (RESULTS / "gpu.md").write_text(table(known))
    print(table(known))


def machine() -> dict[str, str]:
    """What the figures depend on."""
    ask = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        card = subprocess.run(ask, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        card = "unknown"
    versions = {name: _version(name) for name in ("torch", "jax", "numpy")}
    return {"card": card, "python": platform.python_version(), **versions}


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def table(known: dict[str, Any]) -> str:
    """The figures for people."""
    about = ", ".join(f"{k} {v}" for k, v in known["machine"].items())
    labels = list(dict.fromkeys(f for row in ROWS for f in row.makers))
    lines = [
        f"{known['date']}; {about}",
        "",
        f"| row | goal | {' | '.join(labels)} |",
        "|---" * (len(labels) + 2) + "|",
    ]
    for row in ROWS:
        figures = known["rows"].get(row.name, {})
        cells = [_cell(figures.get(label, "")) if label in row.makers else "" for label in labels]
        lines.append(f"| {row.title} | {_time(row.goal)} | {' | '.join(cells)} |")
        apart = _losses_apart(figures)
        if apart is not None:
            lines.append(
                f"| its losses beside PyTorch's, at most apart | | {apart:.1e} |" + " |" * (len(labels) - 1)
            )
    return "\n".join(lines) + "\n"


def _losses_apart(figures: dict[str, Any]) -> float | None:
    losses = [figures.get(name) for name in (WEFT, "PyTorch")]
    ours, theirs = (x.get("losses") if isinstance(x, dict) else None for x in losses)
    if not ours or not theirs:
        return None
    return float(max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True)))


def _cell(figure: Any) -> str:
    if not isinstance(figure, dict):
        return str(figure).replace("|", "/")
    peak = figure.get("peak")
    held = f", {peak / 1e9:.1f} GB" if peak and peak > 1e9 else ""
    return _time(figure["us"]) + held


def _time(us: float | None) -> str:
    if us is None:
        return ""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{us / size:.3g} {unit}"
    return f"{us:.3g} µs"


if __name__ == "__main__":
    main()

"""The benchmark: ``python -m bench [ROW ...] [--quick] [--peers weft,jax] [--venv torch=PATH]``.

Runs the rows of the table (all without a name) in weft and its peers, prints the ratios, and writes them to
``bench/results``.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench import environments, machine, report
from bench.case import Case
from bench.compile_scaling import ROW as SCALING
from bench.compile_scaling import measure_scaling
from bench.frameworks import environment_of
from bench.kernels import ROWS, kernel_table
from bench.line import Line, Settings
from bench.measure import measure_case
from bench.once import measure_first_call, measure_memory
from bench.process import Worker
from bench.ranks import NAMES, PEER, ROW, is_asked, measure_ranks
from bench.rows import COMPILED, MEMORY, all_cases, case_named, row_names
from bench.startup import measure_startup

RESULTS = Path(__file__).parent / "results"


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="weft beside its peers")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"some of {', '.join(row_names())}")
    parser.add_argument("--quick", action="store_true", help="few and short bursts")
    parser.add_argument("--peers", default="", help="only these labels, e.g. 'weft,jax*'")
    parser.add_argument("--venv", action="append", default=[], metavar="NAME=PATH", help="an environment")
    parser.add_argument("--rounds", type=int, help="how often every framework is asked (default: 15)")
    parser.add_argument("--urgent", action="store_true", help="before all other programs (as root)")
    parser.add_argument("--backend", help="weft's backend, instead of the usual one")
    parser.add_argument("--output", type=Path, help="where to write (default: bench/results)")
    options = parser.parse_args(arguments)
    unknown = set(options.rows) - set(row_names()) - {case.name for case in all_cases()} - NAMES
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    return options


def settings_of(options: argparse.Namespace) -> Settings:
    """Environments and lengths."""
    labels = frozenset(filter(None, options.peers.split(",")))
    cases = [case for case in all_cases() if _asked(case, options.rows)]
    if not cases and not {ROW, *NAMES}.issuperset(options.rows):
        cases = list(all_cases())
    used = {environment_of(label) for case in cases for label in case.builders}
    if is_asked(options.rows):
        used.add(PEER)
    if labels:
        used &= {environment_of(label.rstrip("*")) for label in labels}
    given = dict(text.split("=", 1) for text in options.venv)
    pythons = environments.pythons(given, used)
    found = Settings(pythons, labels, rounds=options.rounds or 15, urgent=options.urgent)
    return replace(found, rounds=options.rounds or 5, burst=0.03, limit=30.0) if options.quick else found


def _asked(case: Case, rows: list[str]) -> bool:
    """Whether a case belongs to the rows that were named, or to all of them."""
    return case.row in rows or case.name in rows if rows else not case.on_request


def measure(rows: list[str], settings: Settings) -> Iterator[Line]:
    """The lines of the rows, one after the other."""
    for case in all_cases():
        if _asked(case, rows):
            yield measure_case(case, settings)
    if not rows or "startup" in rows:
        yield from measure_startup(settings)
    if is_asked(rows):
        yield from measure_ranks(settings, rows)
    if not rows or "compile" in rows:
        for name in COMPILED:
            yield measure_first_call(case_named(name), settings)
    if not rows or SCALING in rows:
        yield from measure_scaling(settings)
    if not rows or "memory" in rows:
        yield from measure_memory(case_named(MEMORY), settings)


def limits(settings: Settings) -> dict[str, float]:
    """What the machine can do at most, found by a worker."""
    worker = Worker("weft", settings.pythons["weft"])
    try:
        with worker.first_of_all(settings.urgent):
            worker.ask("start", settings.limit)
            return worker.ask("limits", settings.limit)
    finally:
        worker.close()


def main(arguments: list[str]) -> None:
    """Measure, print, write."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # so that workers end, too
    options = parse(arguments)
    if options.backend:
        os.environ["BENCH_BACKEND"] = options.backend
    settings = settings_of(options)
    found = machine.describe() | limits(settings)
    lines = []
    for line in measure(options.rows, settings):
        lines.append(line)
        medians = ", ".join(f"{n} {report.amount(line.median(n), line.unit)}" for n in line.samples)
        print(f"{line.name}: {medians or 'no result'}  {report.verdict(line)}", file=sys.stderr, flush=True)
    kernels = [line for line in lines if line.name.split()[0] in ROWS]
    others = [line for line in lines if line not in kernels]
    tables = [
        *([report.table(others, found)] if others else []),
        *([kernel_table(kernels)] if kernels else []),
    ]
    print("\n\n".join([report.describe(found), *tables]))
    path = options.output or RESULTS / f"{_file(options)}.json"
    report.write(path, lines, found)
    if kernels:
        path.with_suffix(".md").write_text("\n\n".join([report.describe(found), *tables]) + "\n")


def _file(options: argparse.Namespace) -> str:
    """What results are called: those of a part are not kept, but for a table of kernels."""
    if options.peers or options.quick:
        return "some"
    return "table" if not options.rows else options.rows[0] if options.rows[0] in ROWS else "some"


if __name__ == "__main__":
    main(sys.argv[1:])

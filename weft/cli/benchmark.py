"""``weft bench``: how long a saved graph takes, on random inputs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

import weft
from weft.cli.arguments import Commands, add_command, add_sizes, chosen_sizes, not_negative, several

_SHORTEST = 5  # calls


def add(commands: Commands) -> None:
    """Describe the command."""
    parser = add_command(commands, "bench", "measure how long a saved graph takes, on random inputs", run)
    parser.add_argument("--threads", type=several, metavar="N,...", help="numbers of threads to measure with")
    parser.add_argument("--seconds", type=not_negative, default=3.0, help="how long to measure each")
    parser.add_argument("--backend", help="what runs the graph (llvm, interpret)")
    parser.add_argument("--device", help="where it runs: cpu, cuda, cuda:1 (cpu)")
    parser.add_argument("--json", action="store_true", help="as JSON")
    add_sizes(parser, "values of named sizes, 1 by default")


def run(options: argparse.Namespace) -> int:
    """Measure, and tell."""
    from weft.io.interface import Interface, open_model, random_inputs

    start = perf_counter()
    interface = Interface(open_model(options.file, options.backend, options.device))
    loaded = perf_counter() - start
    sizes = dict.fromkeys(interface.sizes, 1) | chosen_sizes(options.sizes, interface.sizes)
    arrays = random_inputs(interface, sizes, np.random.default_rng(0))
    counts = options.threads or [weft.get_num_threads()]
    weft.set_num_threads(counts[0])
    start = perf_counter()
    interface.run(arrays)
    found: dict[str, Any] = {
        "name": interface.loaded.__name__,
        "sizes": sizes,
        "load_seconds": loaded,
        "compile_seconds": perf_counter() - start,
    }
    found["first_answer_seconds"] = found["load_seconds"] + found["compile_seconds"]
    found["runs"] = [_measure(interface, arrays, n, options.seconds, sizes) for n in counts]
    found["peak_memory_bytes"] = _peak_memory()
    sys.stdout.write(json.dumps(found, indent=2) + "\n" if options.json else _text(found))
    return 0


def _measure(
    interface: Any, arrays: Sequence[Any], threads: int, seconds: float, sizes: dict[str, int]
) -> dict[str, Any]:
    """Times of calls, one after the other, with so many threads."""
    weft.set_num_threads(threads)
    interface.run(arrays)
    times: list[float] = []
    last = begin = perf_counter()
    while last < begin + seconds or len(times) < _SHORTEST:
        interface.run(arrays)
        now = perf_counter()
        times.append(now - last)
        last = now
    rate = len(times) / (last - begin)
    found: dict[str, Any] = {"threads": threads, "calls": len(times)}
    found |= {f"p{share}": float(np.quantile(times, share / 100)) for share in (50, 90, 99)}
    found["calls_per_second"] = rate
    rows = [size for name, size in sizes.items() if name.startswith("batch")]
    return found | ({"rows_per_second": rate * rows[0]} if rows else {})


def _peak_memory() -> int | None:
    """The most memory that the process has had; None where the system does not tell."""
    try:
        import resource
    except ModuleNotFoundError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def _text(found: dict[str, Any]) -> str:
    sizes = ", ".join(f"{name}={size}" for name, size in found["sizes"].items())
    lines = [
        f"{found['name']}{f' with {sizes}' if sizes else ''}",
        f"load          {_time(found['load_seconds'])}",
        f"compile       {_time(found['compile_seconds'])}, with the first call",
        f"first answer  {_time(found['first_answer_seconds'])} after the start of loading",
    ]
    if found["peak_memory_bytes"]:
        lines.append(f"memory        {found['peak_memory_bytes'] / 1e6:.0f} MB at most, of the whole process")
    for run in found["runs"]:
        rows = f", {run['rows_per_second']:,.0f} rows/s" if "rows_per_second" in run else ""
        times = ", ".join(f"{name} {_time(run[name])}" for name in ("p50", "p90", "p99"))
        lines.append(f"{run['threads']} threads:    {times}; {run['calls_per_second']:,.0f} calls/s{rows}")
    return "\n".join(lines) + "\n"


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"

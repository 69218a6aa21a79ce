"""All generators, with new seeds, two processes at once: ``python -m tests.fuzz --minutes 10``.

What they find is written to tests/fuzz/found, where the ordinary suite replays it.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz.found import FOLDER

ROOT = Path(__file__).parents[2]
AT_ONCE = 2

# By name, which share of the time each takes.
GENERATORS = {
    "graphs": 5,  # compiled as interpreted, values and gradients
    "programs": 3,  # plain Python, compiled as eager
    "emulated": 3,  # graphs as code of the other architecture, by qemu
    "damage": 4,  # files and requests
    "functions": 4,  # float32, by their bits
    "kills": 2,  # of savers and trainers
    "events": 2,  # forks, threads and signals beside compiling and running
    "leaks": 2,  # memory that stays
}


def known() -> dict[str, int]:
    """The generators that are there."""
    return {name: share for name, share in GENERATORS.items() if find_spec(f"tests.fuzz.{name}")}


def run(name: str, seconds: float, seed: int, found: Path) -> int:
    """Run one generator in a process of its own; what it says goes where ours does."""
    command = [sys.executable, "-m", f"tests.fuzz.{name}", "--seconds", f"{seconds:.1f}"]
    command += ["--seed", str(seed), "--found", str(found)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def main() -> int:
    """Run all generators; gives 1 if one of them found something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--found", type=Path, default=FOLDER)
    parser.add_argument("names", nargs="*", help="of generators; all by default")
    options = parser.parse_args()
    shares = {name: share for name, share in known().items() if not options.names or name in options.names}
    unit = options.minutes * 60 * AT_ONCE / sum(shares.values())
    seed = random.SystemRandom().randrange(2**31)
    order = sorted(shares, key=lambda name: -shares[name])  # the longest first, so that both end together
    with ThreadPoolExecutor(AT_ONCE) as pool:
        ended = list(pool.map(lambda name: run(name, unit * shares[name], seed, options.found), order))
    failed = [name for name, status in zip(order, ended, strict=True) if status]
    sys.stdout.write(f"seed {seed}: {f'{failed} found something' if failed else 'nothing found'}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""``weft tune``: measure what pays on this processor, and keep it for all programs."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from weft.backends import find_backend
from weft.cli.arguments import Commands, not_negative


def add(commands: Commands) -> None:
    """Describe the command."""
    parser = commands.add_parser("tune", help="measure what pays on this processor, for all programs")
    parser.add_argument("--seconds", type=not_negative, default=60.0, help="how long to measure, about (60)")
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument("--show", action="store_true", help="only tell the figures in force")
    kept.add_argument("--dry-run", action="store_true", help="measure, and keep nothing")
    kept.add_argument("--forget", action="store_true", help="forget what was measured on this processor")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure, tell, and keep."""
    tuner = find_backend(None).tuner()
    write = sys.stdout.write
    if options.forget:
        write(f"forgotten: {tuner.write(None)}\n")
    if options.show or options.forget:
        write(_told(tuner))
        return 0
    if not options.dry_run:
        tuner.writable()  # said now, and not after a minute
    write(f"{tuner.processor}, from {tuner.told.source}\n")
    found = tuner.search(options.seconds, lambda m: _tell_one(m))
    if options.dry_run:
        return 0
    write(f"kept in {tuner.write(found)}\n")
    return 0


def _told(tuner: Any) -> str:
    told = tuner.told
    figures = "".join(f"  {name:<14}{value:>12,}\n" for name, value in told.tuning._asdict().items())
    return f"figures for {tuner.processor}: {told.source}\n{figures}"


def _tell_one(measured: Any) -> None:
    """A figure, as soon as it is known."""
    changed = {name: (old, new) for name, old, new in measured.changes}
    if not changed:
        sys.stdout.write(f"  {measured.name:<14} stays\n")
    for name, (old, new) in changed.items():
        sys.stdout.write(f"  {name:<14} {old:,} -> {new:,}: {measured.gain:.2f} times as fast\n")
    sys.stdout.flush()

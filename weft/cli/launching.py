"""``weft launch``: a script on several processes."""

from __future__ import annotations

import argparse

from weft.cli.arguments import Commands, count, positive
from weft.parallel.launch import launch


def add(commands: Commands) -> None:
    """Describe the command."""
    parser = commands.add_parser("launch", help="run a Python script on several ranks, by srun or mpiexec")
    parser.add_argument("-n", type=positive, required=True, metavar="N", help="number of ranks")
    parser.add_argument("--hosts", type=_names, default=[], metavar="A,B", help="where they run (here)")
    parser.add_argument("--threads", type=positive, help="of each rank (its share of the processors)")
    parser.add_argument(
        "--restarts", type=count, default=0, metavar="N", help="start again on the ranks that are left (0)"
    )
    parser.add_argument("--no-pin", action="store_true", help="let ranks run on all processors")
    parser.add_argument("script", help="a Python file")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="for the script")
    parser.set_defaults(run=run)


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def run(options: argparse.Namespace) -> int:
    """Run the script; ends with what the launcher ends with."""
    return launch(
        options.script,
        options.args,
        n=options.n,
        hosts=options.hosts,
        threads=options.threads,
        restarts=options.restarts,
        pin=not options.no_pin,
    )

"""``weft view``: the page of a saved graph."""

from __future__ import annotations

import argparse
import sys

import weft
from weft.cli.arguments import Commands


def add(commands: Commands) -> None:
    """Describe the command."""
    parser = commands.add_parser("view", help="write the page of a saved graph, and open it in the browser")
    parser.add_argument("file", help="that fn.save wrote, usually ending in .weft")
    parser.add_argument("-o", "--output", help="the page; by default a temporary file")
    parser.add_argument("--no-open", action="store_true", help="only write the page")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the page."""
    path = weft.view(options.file, options.output, open=not options.no_open)
    sys.stdout.write(f"{path}\n")
    return 0

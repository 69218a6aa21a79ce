"""The command ``weft``: ``weft view FILE.weft`` opens the page of a saved graph."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import weft
from weft.errors import WeftError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with its arguments; gives what the process ends with.

    >>> main(["view", "no-such-file.weft"])
    1
    """
    options = _parser().parse_args(arguments)
    try:
        path = weft.view(options.file, options.output, open=not options.no_open)
    except (WeftError, OSError) as error:
        sys.stderr.write(f"weft: {error}\n")
        return 1
    sys.stdout.write(f"{path}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="weft", description="Computation graphs: look at them.")
    commands = parser.add_subparsers(required=True)
    view = commands.add_parser("view", help="write the page of a saved graph, and open it in the browser")
    view.add_argument("file", help="that fn.save wrote, usually ending in .weft")
    view.add_argument("-o", "--output", help="the page; by default a temporary file")
    view.add_argument("--no-open", action="store_true", help="only write the page")
    return parser


if __name__ == "__main__":
    sys.exit(main())

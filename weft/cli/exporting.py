"""``weft library``: a saved graph as a shared library for C programs, in a folder."""

from __future__ import annotations

import argparse
import os
import sys

from weft.cli.arguments import Commands


def add(commands: Commands) -> None:
    """Describe the command."""
    parser = commands.add_parser("library", help="write a saved graph as a shared library for C programs")
    parser.add_argument("file", help="a graph (.weft), or an ONNX model (.onnx)")
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="the folder to write")
    parser.add_argument("--name", help="what the library and its functions are called")
    parser.add_argument(
        "--cpu", default="host", help="host, generic, x86-64-v2, x86-64-v3, x86-64-v4, armv8-a"
    )
    parser.add_argument(
        "--weights", default="auto", help="inside the library or beside it; auto, inside, beside"
    )
    parser.add_argument(
        "--fast-math", action="store_true", help="allow what changes results in the last bits"
    )
    parser.add_argument("--check-nan", action="store_true", help="runs fail where a result becomes NaN")
    parser.add_argument("--linker", help="the program that links; by default one that is found")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the folder."""
    from weft.io.interface import open_model
    from weft.library import export_library

    names = ("name", "cpu", "weights", "fast_math", "check_nan", "linker")
    chosen = {name: getattr(options, name) for name in names}
    export_library(open_model(options.file, "interpret"), options.output, **chosen)
    for file in sorted(os.listdir(options.output)):
        size = os.path.getsize(os.path.join(options.output, file))
        sys.stdout.write(f"{os.path.join(options.output, file)}: {size:,} bytes\n")
    return 0

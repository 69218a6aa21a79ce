"""``weft optimize``: the passes over a saved graph, written as another file."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from weft.cli.arguments import Commands, add_sizes, chosen_sizes


def add(commands: Commands) -> None:
    """Describe the command."""
    parser = commands.add_parser("optimize", help="run passes over a saved graph, and write the result")
    parser.add_argument("file", help="a graph (.weft), or an ONNX model (.onnx)")
    parser.add_argument("-o", "--output", required=True, help="the file to write")
    parser.add_argument(
        "--passes", type=_names, metavar="NAMES", help="in order: inline,fold,cse; by default all"
    )
    parser.add_argument("--disable", type=_names, default=[], metavar="NAMES", help="passes to leave out")
    parser.add_argument(
        "--fast-math", action="store_true", help="allow what changes results in the last bits"
    )
    add_sizes(parser, "values that named sizes get for good")
    parser.set_defaults(run=run)


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def run(options: argparse.Namespace) -> int:
    """Optimise and write."""
    from weft.io.interface import Interface, open_model
    from weft.io.saved import with_weights
    from weft.io.writing import write_saved
    from weft.ir.graph import substitute_sizes
    from weft.passes.pipeline import optimize_in_steps
    from weft.passes.simplify import load_rules

    load_rules()
    interface = Interface(open_model(options.file, "interpret"))
    saved = with_weights(interface.loaded._saved, interface.loaded.weights)
    sizes = chosen_sizes(options.sizes, interface.sizes)
    graph = substitute_sizes(saved.graph, sizes) if sizes else saved.graph
    before = graph
    steps = optimize_in_steps(
        graph, options.passes, disable=options.disable, fast_math=options.fast_math, debug=True
    )
    for name, old, graph in steps:
        _tell(name, old, graph)
    write_saved(saved._replace(graph=graph), options.output)
    _tell("all", before, graph)
    sys.stdout.write(f"{options.output}: {os.path.getsize(options.output):,} bytes\n")
    return 0


def _tell(name: str, before: Any, after: Any) -> None:
    old, new = before.stats(), after.stats()
    counts = f"{_nodes(old):>6} to {_nodes(new):>6} nodes"
    constants = f"{old.constant_bytes:>9,} to {new.constant_bytes:>9,} bytes of constants"
    sys.stdout.write(f"{name:<12} {counts}, {constants}\n")


def _nodes(stats: Any) -> int:
    return int(stats.nodes + stats.inner_nodes)

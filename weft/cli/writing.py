"""What is written of a saved graph: ``weft optimize``, ``weft library`` and ``weft view``."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import weft
from weft.cli.arguments import FAST_MATH, Commands, add_command, add_sizes, chosen_sizes
from weft.errors import ArgumentError


def add_optimize(commands: Commands) -> None:
    """Describe the command that runs passes over a graph."""
    told = "run passes over a saved graph, and write the result"
    parser = add_command(commands, "optimize", told, optimize)
    parser.add_argument("-o", "--output", required=True, help="the file to write")
    order = "in order: inline,fold,cse; by default all"
    parser.add_argument("--passes", type=_names, metavar="NAMES", help=order)
    parser.add_argument("--disable", type=_names, default=[], metavar="NAMES", help="passes to leave out")
    parser.add_argument("--fast-math", action="store_true", help=FAST_MATH)
    add_sizes(parser, "values that named sizes get for good")


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def optimize(options: argparse.Namespace) -> int:
    """Optimise and write."""
    from weft.io.graph_files import write_saved
    from weft.io.interface import Interface, open_model
    from weft.io.saved import with_weights
    from weft.ir.graph import substitute_sizes
    from weft.passes.pipeline import optimize_in_steps
    from weft.passes.simplify import load_rules

    _check_ending(options.output)
    load_rules()
    interface = Interface(open_model(options.file, "interpret"))
    saved = with_weights(interface.loaded._saved, interface.loaded.weights)
    sizes = chosen_sizes(options.sizes, interface.sizes)
    graph = before = substitute_sizes(saved.graph, sizes) if sizes else saved.graph
    chosen = {"disable": options.disable, "fast_math": options.fast_math}
    for name, old, graph in optimize_in_steps(before, options.passes, **chosen, debug=True):
        _tell(name, old, graph)
    if options.passes is None and _nodes(graph.stats()) > _nodes(before.stats()):
        sys.stdout.write("passes made more nodes of it: it is written as it was\n")
        graph = before
    write_saved(saved._replace(graph=graph), options.output)
    _tell("all", before, graph)
    _tell_file(options.output)
    return 0


def _check_ending(path: str) -> None:
    ending = os.path.splitext(path)[1]
    if ending not in ("", ".weft"):
        message = f"the path must end in .weft, got {path!r}"
        raise ArgumentError("output", message, hint="weft info MODEL --graph prints its text")


def _tell(name: str, before: Any, after: Any) -> None:
    old, new = before.stats(), after.stats()
    counts = f"{_nodes(old):>6} to {_nodes(new):>6} nodes"
    constants = f"{old.constant_bytes:>9,} to {new.constant_bytes:>9,} bytes of constants"
    sys.stdout.write(f"{name:<12} {counts}, {constants}\n")


def _nodes(stats: Any) -> int:
    return int(stats.nodes + stats.inner_nodes)


def _tell_file(path: str) -> None:
    sys.stdout.write(f"{path}: {os.path.getsize(path):,} bytes\n")


_CPUS = "host, generic, x86-64-v2, x86-64-v3, x86-64-v4, x86-64-v4-bf16, armv8-a, armv8.6-a"
_PLACES = "inside the library or beside it; auto, inside, beside"


def add_library(commands: Commands) -> None:
    """Describe the command that writes a shared library."""
    told = "write a saved graph as a shared library for C programs"
    parser = add_command(commands, "library", told, library)
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="the folder to write")
    parser.add_argument("--name", help="what the library and its functions are called")
    parser.add_argument("--cpu", default="host", help=_CPUS)
    parser.add_argument("--weights", default="auto", help=_PLACES)
    parser.add_argument("--fast-math", action="store_true", help=FAST_MATH)
    parser.add_argument("--check-nan", action="store_true", help="runs fail where a result becomes NaN")
    parser.add_argument("--linker", help="the program that links; by default one that is found")


def library(options: argparse.Namespace) -> int:
    """Write the folder."""
    from weft.io.interface import open_model
    from weft.library import export_library

    names = ("name", "cpu", "weights", "fast_math", "check_nan", "linker")
    chosen = {name: getattr(options, name) for name in names}
    export_library(open_model(options.file, "interpret"), options.output, **chosen)
    for file in sorted(os.listdir(options.output)):
        _tell_file(os.path.join(options.output, file))
    return 0


def add_view(commands: Commands) -> None:
    """Describe the command that writes a page."""
    told = "write the page of a saved graph, and open it in the browser"
    parser = add_command(
        commands, "view", told, view, "that fn.save wrote, usually ending in .weft, or one of ONNX"
    )
    parser.add_argument("-o", "--output", help="the page; by default a temporary file")
    parser.add_argument("--no-open", action="store_true", help="only write the page")


def view(options: argparse.Namespace) -> int:
    """Write the page."""
    subject: Any = options.file
    if subject.endswith(".onnx"):
        from weft.io.interface import open_model

        subject = open_model(subject, "interpret").graph
    path = weft.view(subject, options.output, open=not options.no_open)
    sys.stdout.write(f"{path}\n")
    return 0

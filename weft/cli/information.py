"""``weft info``: what a file holds. The data of weights is not read, unless their checksums are asked for."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from weft.cli.arguments import Commands, add_command, add_sizes, chosen_sizes, signature
from weft.cli.kinds import weights_in


def add(commands: Commands) -> None:
    """Describe the command."""
    parser = add_command(commands, "info", "tell what a file holds", run)
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--graph", action="store_true", help="print the text of the graph")
    parser.add_argument("--verify", action="store_true", help="read all data, and compare its checksums")
    add_sizes(parser, "values of named sizes, for bytes and operations")


def run(options: argparse.Namespace) -> int:
    """Tell it."""
    from weft.io.interface import Interface

    if (tensors := weights_in(options.file)) is not None:
        return _tell_weights(options, tensors)
    interface = Interface(_open(options.file, options.verify))
    if options.graph:
        sys.stdout.write(interface.loaded.text.rstrip() + "\n")
        return 0
    sizes = chosen_sizes(options.sizes, interface.sizes)
    found = describe(interface, options.file, sizes)
    found["checksums"] = "that of the header agrees; --verify compares those of the data"
    if options.verify or options.file.endswith(".onnx"):
        found["checksums"] = "none in this format" if options.file.endswith(".onnx") else "all agree"
    if options.json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in _lines(found))
    return 0


def _tell_weights(options: argparse.Namespace, tensors: Mapping[str, str]) -> int:
    """Tell what is in a file of tensors without a graph."""
    found = {"file": os.path.basename(options.file), "file_bytes": os.path.getsize(options.file)}
    if options.json:
        sys.stdout.write(json.dumps({**found, "weights": tensors}, indent=2) + "\n")
        return 0
    sys.stdout.write(f"file     {found['file']}, {_bytes(found['file_bytes'])}\nweights  {len(tensors)}\n")
    sys.stdout.writelines(f"  {name}: {kind}\n" for name, kind in tensors.items())
    return 0


def _open(path: str, verify: bool) -> Any:
    from weft.io.interface import open_model
    from weft.io.model import load_graph

    if path.endswith(".onnx"):
        return open_model(path, "interpret")
    return load_graph(path, backend="interpret", mmap=True, verify=verify)


def describe(interface: Any, path: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    """What there is to tell; numbers with named sizes in them are text."""
    from weft.base.sizes import bind
    from weft.ir.graph import substitute_sizes
    from weft.ir.types import TensorType

    graph = interface.loaded.graph
    stats = graph.stats()
    optimized = substitute_sizes(graph, sizes).optimize() if sizes else graph.optimize()
    memory = optimized.memory()
    tensors = interface.loaded.weights
    weights = {name: str(TensorType(tuple(t.shape), t.dtype)) for name, t in tensors.items()}
    return {
        "name": graph.name,
        "file": os.path.basename(path),
        "file_bytes": os.path.getsize(path),
        "version": _version(path),
        "inputs": signature(interface.inputs),
        "outputs": signature(interface.outputs),
        "sizes": interface.sizes,
        "changes": len(graph.updates),
        "weights": weights,
        "parameters": sum(t.size for t in tensors.values()),
        "weight_bytes": sum(t.size * t.dtype.itemsize for t in tensors.values()),
        "constant_bytes": stats.constant_bytes,
        "nodes": stats.nodes,
        "inner_nodes": stats.inner_nodes,
        "ops": dict(stats.ops),
        "flops": _plain(bind(stats.flops, sizes)),
        "value_bytes": _plain(bind(stats.value_bytes, sizes)),
        "arena_bytes": _plain(memory.arena),
        "peak_bytes": _plain(memory.peak),
    }


def _version(path: str) -> str:
    """The version of the layout of a file of weft."""
    from weft.io.layout import read_file

    if path.endswith(".onnx"):
        return "onnx"
    return read_file("info", path, mmap=True, verify=False).metadata.get("weft.version", "")


def _plain(x: Any) -> Any:
    return x if isinstance(x, int) else str(x)


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The same for people."""
    rows = [
        ("graph", found["name"]),
        ("file", f"{found['file']}, {_bytes(found['file_bytes'])}, version {found['version']}"),
        ("checksums", found["checksums"]),
        *_many("inputs", found["inputs"]),
        *_many("outputs", found["outputs"]),
        ("open sizes", ", ".join(found["sizes"]) or "none"),
        (
            "weights",
            f"{len(found['weights'])}: {found['parameters']:,} numbers, {_bytes(found['weight_bytes'])}",
        ),
        ("constants", _bytes(found["constant_bytes"])),
        ("nodes", f"{found['nodes']}" + (f" and {n} in regions" if (n := found["inner_nodes"]) else "")),
        ("ops", ", ".join(f"{count} {op}" for op, count in found["ops"].items()) or "none"),
        ("operations", f"{n:,}" if isinstance(n := found["flops"], int) else str(n)),
        ("values", f"{_bytes(found['value_bytes'])}, if none shared memory"),
        ("memory", f"{_bytes(found['arena_bytes'])} of plan, {_bytes(found['peak_bytes'])} in use at most"),
    ]
    if found["changes"]:
        rows.append(("changes", f"{found['changes']} of its weights and states at each run"))
    width = max(len(name) for name, _ in rows)
    yield from (f"{name:<{width}}  {text}" for name, text in rows)


def _many(title: str, ports: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    texts = [f"{name}: {kind}" for name, kind in ports.items()] or ["none"]
    yield from zip((title, *[""] * (len(texts) - 1)), texts, strict=True)


def _bytes(x: Any) -> str:
    if not isinstance(x, int):
        return f"({x}) bytes"
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if x >= factor:
            return f"{x / factor:.3g} {unit}"
    return f"{x} bytes"

"""Graph files, written."""

from __future__ import annotations

import inspect
import json
from typing import Any

from weft.errors import ArgumentError
from weft.io.layout import write_file
from weft.io.lines import kept_name, used_lines, write_lines
from weft.io.saved import Saved
from weft.io.trees import Encoder


def write_saved(saved: Saved, path: str) -> None:
    """Write what a graph file holds."""
    encoder = Encoder("save")
    constants = saved.graph.constant_data(expand=True)
    described = {
        "parameters": [_parameter(p) for p in saved.signature.parameters.values()],
        "arguments": saved.arguments,
        "returned": saved.returned,
        "sources": list(saved.sources),
        "weights": saved.weights,
        "constants": {f"constant.{name}": array for name, array in constants.items()},
    }
    described["weights"] = encoder.encode(described["weights"])["dict"]
    described["constants"] = encoder.encode(described["constants"])["dict"]
    for name in ("parameters", "arguments", "returned", "sources"):
        described[name] = encoder.encode(described[name], name)
    lines = used_lines(saved.graph)
    names = {file: kept_name(file, found) for file, found in lines.items()}
    metadata = {
        "weft.graph": saved.graph.to_text(expand=True, names=names),
        "weft.program": json.dumps(described, separators=(",", ":")),
        "weft.source": write_lines({names[file]: found for file, found in lines.items()}),
    }
    write_file(path, encoder.arrays, "graph", metadata)


def _parameter(p: inspect.Parameter) -> list[Any]:
    """A parameter; of a default that cannot be written only that there is one."""
    if p.default is p.empty:
        return [p.name, p.kind.name]
    try:
        Encoder("save").encode(p.default)
    except ArgumentError:
        return [p.name, p.kind.name, None]
    return [p.name, p.kind.name, p.default]

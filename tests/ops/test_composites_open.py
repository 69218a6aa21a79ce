"""Composites of tensors whose sizes are open: one call in the graph, without checks of Python's numbers."""

from __future__ import annotations

from typing import Any

import pytest

import weft
from tests.ops import checks
from weft.errors import WeftError
from weft.ir.types import TensorType
from weft.ops.op import Composite, Sample

ENTRIES = [e for e in checks.entries() if isinstance(e.op, Composite) and e.differentiable]


def _open_type(x: Any) -> TensorType:
    return TensorType(tuple(f"s{n}" if n > 1 else n for n in x.shape), x.dtype)


def _captured(op: Composite, sample: Sample) -> Any:
    def call(*args: Any) -> Any:
        return op.sampled(*args, **sample.attrs)

    try:
        return weft.make_graph(call)(*map(_open_type, sample.inputs))
    except WeftError:  # this call needs sizes that are known
        return None


@pytest.mark.parametrize("name", sorted({e.op.name for e in ENTRIES}))
def test_composite_of_open_sizes_has_no_checks(name: str) -> None:
    graphs = [_captured(e.op, e.sample) for e in ENTRIES if e.op.name == name]  # type: ignore[arg-type]
    for graph in graphs:
        assert graph is None or [n.op.name for n in graph.nodes if n.op.effect] == []

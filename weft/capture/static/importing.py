"""Graphs made from programs of other formats, whose nodes are run one by one on tensors of the graph.

An ``Importer`` is the block in which that happens: it gives arguments and parameters their names, and nodes
the places they have in the program that they come from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from weft.base.dtypes import as_dtype
from weft.base.size_text import parse_size
from weft.capture.static.block import captures
from weft.capture.static.static import assign
from weft.errors import WeftError
from weft.ir.graph import Array, Graph, Value
from weft.ir.location import Location
from weft.ir.types import TensorType
from weft.passes.dce import dce
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor, wrap
from weft.transform.captured import name_value

_OTHER = re.compile(r"[^0-9A-Za-z_.]")


class Importer:
    """Builds a graph while a program of another format is run on its tensors.

    >>> import numpy as np, weft
    >>> from weft.capture.static.importing import Importer
    >>> importer = Importer("line")
    >>> with importer:
    ...     x = importer.argument("x", ("batch", 2), weft.float32)
    ...     w = importer.parameter("fc.w", np.array([2.0, 3.0], np.float32))
    ...     importer.finish([x @ w])
    >>> importer.graph(weft.ones((1, 2)))
    tensor([5.])
    """

    def __init__(self, name: str) -> None:
        self._block = Graph(clean_name(name))
        self._made = self._block
        self._taken: set[str] = set()
        self._kept: list[Tensor] = []  # a parameter that nobody holds would become a constant
        self._outputs: list[Value] = []

    def __enter__(self) -> Importer:
        self._block.__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._block.__exit__(*reason)
        if reason[1] is None:
            known = captures[self._block].constants
            constants = {v: known[v] for v in self._outputs if v in known}
            whole = self._block.replace(
                outputs=self._outputs, constants={**self._block.constants, **constants}
            )
            self._made = _used(dce(whole))

    @property
    def graph(self) -> Graph:
        """The graph, when the block has ended."""
        return self._made

    def argument(self, name: str, shape: Sequence[Any], dtype: Any) -> Tensor:
        """A new argument; sizes may be names."""
        sizes = tuple(parse_size(s) if isinstance(s, str) else s for s in shape)
        return captures[self._block].placeholder(TensorType(sizes, as_dtype(dtype)), self._own(name))

    def parameter(self, name: str, data: Tensor | Array) -> Tensor:
        """A tensor from outside, or a new one of an array, that each run reads, under a name."""
        tensor: Tensor = data if isinstance(data, Tensor) else wrap(data)
        captures[self._block].value_of(tensor)
        name_value(tensor, self._own(name))  # which is free: no need to look at all others, as a rename does
        self._kept.append(tensor)
        return tensor

    def update(self, parameter: Tensor, value: Tensor) -> None:
        """Let each call give a parameter a new value."""
        assign(parameter, value)

    def finish(self, outputs: Sequence[Tensor], names: Sequence[str] = ()) -> None:
        """Say what the graph gives; results may have names."""
        capture = captures[self._block]
        self._outputs = [capture.value_of(x) for x in outputs]
        for i, (value, name) in enumerate(zip(self._outputs, names, strict=False)):
            if not value.name and name not in self._taken:
                name_value(outputs[i], self._own(name))

    def _own(self, name: str) -> str:
        """A name that no other value has."""
        own = base = clean_name(name)
        count = 1
        while own in self._taken:
            count += 1
            own = f"{base}_{count}"
        self._taken.add(own)
        return own


@contextmanager
def placed(location: Location | None) -> Iterator[None]:
    """Give the nodes and the errors of a block a place in the program that is imported."""
    capture = thread.capture
    if location is None or capture is None:
        yield
        return
    before, capture.placement = capture.placement, location
    try:
        yield
    except WeftError as error:
        error.location = location.place
        raise
    finally:
        capture.placement = before


def clean_name(name: str) -> str:
    """A name as graphs have them, from one of any kind; a number stays one, which text shows in quotes."""
    text = _OTHER.sub("_", name)
    return f"v{text}" if not text or text.startswith(".") else text


def _used(graph: Graph) -> Graph:
    """The graph without parameters that nothing needs."""
    used = {v for node in graph.nodes for v in node.inputs}.union(graph.results)
    used |= {old for old, _ in graph.updates}
    kept = [i for i, v in enumerate(graph.inputs) if v in used or graph.roles[i] == "arg"]
    return graph.replace(inputs=[graph.inputs[i] for i in kept], roles=[graph.roles[i] for i in kept])

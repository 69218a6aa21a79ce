"""``weft.onnx.load``: the Graph of an ONNX model."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NamedTuple

import weft
from weft.base.public import public
from weft.base.sizes import bind
from weft.capture.static.importing import Importer
from weft.errors import FileError
from weft.ir.graph import Graph
from weft.onnx import operators
from weft.onnx.bound_sizes import ToldSizeError
from weft.onnx.importer import Runner
from weft.onnx.inputs import Given, arguments
from weft.onnx.model import check_names, onnx_package, read_model, versions_of
from weft.onnx.scope import Functions, Scope
from weft.tensor.tensor import Tensor


class Imported(NamedTuple):
    """An imported model.

    Attributes:
        graph: the graph; the tensors of sequences are arguments and results of their own.
        outputs: by name of each output of the model a tree of numbers of outputs of the graph: an int, a
            list (a sequence) or None (an empty optional).
        narrow: by number of an output of the graph its ONNX element type, where weft has no dtype for it.
        inputs: by name of each input of the model that is an argument, likewise, the names of arguments.
    """

    graph: Graph
    outputs: dict[str, Any]
    narrow: dict[int, str]
    inputs: dict[str, Any]


@public
def load(
    model: Any, *, known: Mapping[str, Any] | None = None, sizes: Mapping[str, Any] | None = None
) -> Graph:
    """The graph of an ONNX model.

    Its initializers are the parameters, by their names; its inputs are the arguments. Sizes that the model
    leaves open are named sizes.

    Args:
        model: a path, the bytes of a file, or a ``ModelProto``. Data in files beside the model is read too.
        known: values of inputs that decide shapes, by name: they become part of the graph.
        sizes: numbers for named sizes (``{"batch": 8}``), shapes for inputs of which the model does not tell
            any, and lengths for inputs that are sequences.

    >>> import onnx, weft
    >>> text = "f (float[batch, 2] x) => (float[batch, 2] y) { y = Relu (x) }"
    >>> model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 18]>' + text)
    >>> graph = weft.onnx.load(model)
    >>> print(graph.to_text(locations=False), end="")
    graph f(%x: f32[batch,2]) {
      %y: f32[batch,2] = relu(%x)
      return %y
    }
    >>> graph(weft.tensor([[-1.0, 2.0]]))
    tensor([[0., 2.]])
    """
    return import_model(model, known=known, sizes=sizes).graph


def import_model(
    source: Any, *, known: Mapping[str, Any] | None = None, sizes: Mapping[str, Any] | None = None
) -> Imported:
    """The graph of an ONNX model, and what of it the inputs and outputs of the model are."""
    model, name = read_model(source)
    check_names(model, name)
    _load_operators()
    given = Given(known or {}, sizes or {}, {})
    while True:
        try:
            return _imported(model, name, given)
        except ToldSizeError as told:  # of an open size: each time one is less
            bound = {n: bind(size, {told.name: told.value}) for n, size in given.bound.items()}
            given = given._replace(bound={**bound, told.name: told.value})


def _imported(model: Any, name: str, given: Given) -> Imported:
    """One try, which ends early where a node tells what an open size must be."""
    newest = onnx_package("onnx.load").defs.onnx_opset_version()
    versions = versions_of(model.opset_import, newest, name)
    block = Importer(model.graph.name or "model")
    runner = Runner(block, Functions(model, newest), name)
    with runner.blaming_numbers(), block, weft.enable_grad():  # no gradient is cut, whatever is recorded
        inputs = arguments(model.graph, given, runner)
        scope = Scope({**runner.initializers(model.graph, name), **inputs}, versions)
        names = [item.name for item in model.graph.output]
        results = runner.run_nodes(model.graph.node, names, scope, name)
        ends = _Ends(runner)
        outputs = {n: ends.add(x, n) for n, x in zip(names, results, strict=True)}
        block.finish(ends.tensors, ends.names)
    told = {n: _names(x) for n, x in inputs.items()}
    return Imported(block.graph, outputs, ends.narrow, {n: x for n, x in told.items() if x is not None})


@functools.cache
def _load_operators() -> None:
    """Import all handlers, which register themselves."""
    for module in iter_modules(operators.__path__):
        import_module(f"{operators.__name__}.{module.name}")


class _Ends:
    """The outputs of the graph, as those of the model become known."""

    def __init__(self, runner: Runner) -> None:
        self.tensors: list[Tensor] = []
        self.names: list[str] = []
        self.narrow: dict[int, str] = {}
        self._runner = runner

    def add(self, x: Any, name: str) -> Any:
        """Add an output of the model; gives the tree of numbers of its outputs in the graph."""
        if x is None:
            return None
        if isinstance(x, list):
            return [self.add(item, f"{name}.{i}") for i, item in enumerate(x)]
        tensor = self._runner.tensor(x)
        if not isinstance(tensor, Tensor):
            raise FileError("onnx.load", f"output {name!r} must be of numbers, got text")
        number = len(self.tensors)
        self.tensors.append(tensor)
        self.names.append(name)
        narrow = self._runner.facts.of(tensor).narrow
        if narrow is not None:
            self.narrow[number] = narrow
        return number


def _names(x: Any) -> Any:
    """What the arguments for an input of the model are called; None for one whose value is known."""
    if isinstance(x, list):
        names = [_names(item) for item in x]
        return names if all(names) else None
    return x._data.value.name if isinstance(x, Tensor) else None

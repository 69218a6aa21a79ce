"""Programs of ``torch.export`` as graphs of weft: ``import_program``."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import weft
from weft.base.public import public
from weft.base.sizes import Size
from weft.capture.static.importing import Importer
from weft.errors import ArgumentError, CaptureError
from weft.interop.optional import need
from weft.interop.torch.aten.shape import as_scalar
from weft.interop.torch.calls import aten, rule_name
from weft.interop.torch.nodes import Runner, as_size, size_names
from weft.interop.torch.tensors import from_torch, weft_dtype
from weft.ir.graph import Graph
from weft.tensor.tensor import Tensor


@public
def import_program(program: Any, *, name: str | None = None, sizes: Mapping[str, str] | None = None) -> Graph:
    """The graph of a program that ``torch.export`` made: weft can then draw, optimise, run and save it.

    Tensors among the arguments of the program, in their order, are those of the graph. Parameters and buffers
    are its parameters, under the names they have in the module; they share memory with the program. Buffers
    that the program changes are updates. Sizes that were left open have the names of their ``Dim``. Each node
    knows the line of the user's PyTorch code.

    Args:
        program: a ``torch.export.ExportedProgram``, or the path of a ``.pt2`` file.
        name: of the graph.
        sizes: other names of sizes, by the name or symbol that the program has for them.

    Example::

        program = torch.export.export(torch.nn.Linear(3, 2), (torch.ones(1, 3),))
        graph = weft.interop.torch.import_program(program)
        graph(weft.ones((1, 3)))
    """
    torch = need("import_program", "torch", "torch")
    exported, title = _loaded(torch, program)
    told, wanted = size_names(exported), dict(sizes or {})
    names = wanted | {symbol: wanted.get(symbol, wanted.get(own, own)) for symbol, own in told.items()}
    return _Import(torch, _kept_whole(torch, exported), names, name or title).graph()


def supported_operators() -> list[str]:
    """The names of the ATen operators that ``import_program`` knows.

    >>> import weft
    >>> "convolution" in weft.interop.torch.supported_operators()
    True
    """
    return sorted(aten)


def _loaded(torch: Any, program: Any) -> tuple[Any, str]:
    """The program, and what to call it."""
    if isinstance(program, str | os.PathLike):
        path = os.fspath(program)
        with _quietly():
            return torch.export.load(path), os.path.basename(path).partition(".")[0] or "program"
    if not isinstance(program, torch.export.ExportedProgram):
        hint = "make one by torch.export.export(module, examples)"
        raise ArgumentError(
            "import_program", f"must be an exported program, got {type(program).__name__}", hint=hint
        )
    return program, _title(program)


def _title(program: Any) -> str:
    """The class of the module that was exported."""
    for node in program.graph.nodes:
        for path, kind in (node.meta.get("nn_module_stack") or {}).values():
            if path == "" and kind:
                text = kind if isinstance(kind, str) else kind.__name__
                return text.rpartition(".")[2]
    return "program"


def _kept_whole(torch: Any, program: Any) -> Any:
    """The program in core operators, but for those that weft has as a whole, such as attention."""
    table = torch.export.default_decompositions()
    for target in list(table):
        if rule_name(target) in aten:
            table.pop(target)
    with _quietly():
        return program.run_decompositions(table)


@contextmanager
def _quietly() -> Iterator[None]:
    """Without warnings about PyTorch's own code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class _Import:
    """One program on its way to a graph."""

    def __init__(self, torch: Any, program: Any, names: Mapping[str, str], title: str) -> None:
        self.torch = torch
        self.program = program
        self.names = names
        self.importer = Importer(title)
        self.parameters: dict[str, Tensor] = {}

    def graph(self) -> Graph:
        """The graph."""
        signature = self.program.graph_signature
        changed = {
            *signature.buffers_to_mutate.values(),
            *getattr(signature, "parameters_to_mutate", {}).values(),
        }
        held = {**self.program.constants, **self.program.state_dict}
        kinds = self.torch.export.graph_signature.InputKind
        placeholders = [n for n in self.program.graph.nodes if n.op == "placeholder"]
        with self.importer as importer:
            inputs = []
            for spec, node in zip(signature.input_specs, placeholders, strict=True):
                if spec.kind == kinds.USER_INPUT:
                    inputs.append(self._argument(spec, node))
                elif spec.kind == kinds.CONSTANT_TENSOR:
                    inputs.append(weft.tensor(from_torch(held[spec.target].detach())))
                else:
                    inputs.append(self._parameter(spec, held[spec.target], spec.target in changed))
            outputs = Runner(self.torch, self.program.graph_module)(inputs)
            results = self._sorted(signature.output_specs, outputs)
            importer.finish(results)
        return importer.graph

    def _argument(self, spec: Any, node: Any) -> Any:
        val = node.meta.get("val")
        if not isinstance(val, self.torch.Tensor):
            if isinstance(val, self.torch.SymInt | self.torch.SymFloat):
                raise CaptureError(
                    "import_program", f"numbers among the arguments must be fixed, got {node.name} open"
                )
            return getattr(spec.arg, "value", val)
        shape = [as_size(s, self.names) for s in val.shape]
        return self.importer.argument(node.name, shape, weft_dtype("import_program", val.dtype))

    def _parameter(self, spec: Any, data: Any, changed: bool) -> Any:
        """A parameter or buffer; one that is changed is a copy, so that the program keeps its own."""
        plain = data.detach().clone() if changed else data.detach()
        tensor = self.importer.parameter(spec.target, from_torch(plain))
        self.parameters[spec.target] = tensor
        return tensor

    def _sorted(self, specs: Any, outputs: Any) -> list[Tensor]:
        """The results; what else the program gives are new values of its buffers."""
        kinds = self.torch.export.graph_signature.OutputKind
        results = []
        for spec, value in zip(specs, outputs, strict=True):
            if spec.kind in (kinds.BUFFER_MUTATION, getattr(kinds, "PARAMETER_MUTATION", None)):
                self.importer.update(self.parameters[spec.target], value)
            elif spec.kind == kinds.USER_INPUT_MUTATION:
                raise CaptureError(
                    "import_program",
                    f"arguments must not be changed in place, got {spec.target}, which the program changes",
                    hint="return the new value, or make the argument a buffer",
                )
            elif spec.kind in (kinds.USER_OUTPUT, kinds.LOSS_OUTPUT) and value is not None:
                results.append(_as_result(value))
        return results


def _as_result(value: Any) -> Tensor:
    """A result of the program as a tensor: numbers and sizes too."""
    if isinstance(value, Tensor):
        return value
    dtype = weft.int64 if isinstance(value, int | Size) else weft.float64
    out: Tensor = as_scalar(value, dtype)
    return out

"""The test suite of the onnx package, run through weft: its cases, how one is run, and those left out.

Each case is a model with inputs and expected outputs. It is imported once and run by several backends.
Inputs that decide shapes are given to the import when it asks for them.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

import weft
from weft.onnx.loading import Imported, import_model
from weft.onnx.operators.registry import UnknownValueError
from weft.onnx.types import from_carried, to_carried

NODE = "onnx.backend.test.case.node"
KINDS = ("simple", "pytorch-operator", "pytorch-converted")
BFLOAT16_TOLERANCE = 2**-6  # as the suite's own runner has it

EXCLUDED: dict[str, str] = {  # by pattern of names, why
    r"test_(str|regex|equal_string|ai_onnx_ml_label_encoder_).*": "weft has no tensors of text",
    r"test_image_decoder_.*": "weft does not decode JPEG and other formats of pictures",
    r"test_(bernoulli|training_dropout)(?!_zero).*": "the numbers of another random generator are expected",
    r"test_attention_4d_causal_fp16(_expanded)?": "what is expected was rounded to float16 at each step: it "
    "is further from the exact result than ours, and the two are further apart than the tolerance",
    r"test_gradient_of_.*": "weft writes gradients itself; an operator for them is not imported",
}


class Case(NamedTuple):
    name: str
    model: onnx.ModelProto
    sets: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    rtol: float
    atol: float


def excluded(name: str) -> str | None:
    """Why a case is left out, or None."""
    return next((why for pattern, why in EXCLUDED.items() if re.fullmatch(pattern, name)), None)


# Cases

_imported: set[str] = set()  # modules that were imported here


@cache
def node_modules() -> tuple[str, ...]:
    """The modules that make cases of single operators."""
    return tuple(_modules(NODE))


def _modules(package: str) -> Iterator[str]:
    with _quiet():
        path = import_module(package).__path__
    for module in iter_modules(path):
        name = f"{package}.{module.name}"
        yield from _modules(name) if module.ispkg else [name]


def node_cases(module: str) -> list[Case]:
    """The cases that a module makes when it is imported, with those of modules that it imports."""
    made: list[Any] = import_module(NODE)._NodeTestCases
    before, modules = len(made), set(sys.modules)
    assert module not in modules or module in _imported, f"{module} was imported, and its cases are lost"
    np.random.seed(len(module))  # the makers of cases draw from it
    with _quiet():
        import_module(module)
    _imported.update(set(sys.modules) - modules)
    return [
        Case(c.name, c.model, [tuple(map(_listed, s)) for s in c.data_sets], c.rtol, c.atol)
        for c in made[before:]
    ]


def _quiet() -> Any:
    """NumPy warns of what the makers of cases compute on purpose, such as the logarithm of 0."""
    return warnings.catch_warnings(action="ignore")


def _listed(items: Sequence[Any]) -> list[Any]:
    return [numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x for x in items]


@cache
def stored_cases(kind: str) -> tuple[str, ...]:
    """The folders of the cases of a kind that come as files."""
    folder = Path(import_module("onnx.backend.test").__path__[0], "data", kind)
    return tuple(sorted(str(p) for p in folder.iterdir() if (p / "model.onnx").exists()))


def stored_case(folder: str) -> Case:
    """A case that comes as files."""
    path = Path(folder)
    model = onnx.load(path / "model.onnx")
    names = [i.name for i in model.graph.initializer]
    inputs = [i for i in model.graph.input if i.name not in names] or list(model.graph.input)
    sets = [
        (_read(part, "input", inputs), _read(part, "output", model.graph.output))
        for part in sorted(path.glob("test_data_set_*"))
    ]
    return Case(path.name, model, sets, 1e-3, 1e-7)


def _read(folder: Path, word: str, infos: Sequence[Any]) -> list[Any]:
    files = sorted(folder.glob(f"{word}_*.pb"), key=lambda p: int(re.findall(r"\d+", p.name)[0]))
    return [_value(file.read_bytes(), info.type) for file, info in zip(files, infos, strict=False)]


def _value(data: bytes, kind: onnx.TypeProto) -> Any:
    which = kind.WhichOneof("value")
    if which == "sequence_type":
        sequence = onnx.SequenceProto()
        sequence.ParseFromString(data)
        return numpy_helper.to_list(sequence)
    if which == "optional_type":
        optional = onnx.OptionalProto()
        optional.ParseFromString(data)
        return numpy_helper.to_optional(optional)
    tensor = onnx.TensorProto()
    tensor.ParseFromString(data)
    return numpy_helper.to_array(tensor)


# Running


def run_case(case: Case, backends: Sequence[str]) -> None:
    """Import the model of a case and compare what each backend gives with what the suite expects."""
    for given, expected in case.sets:
        stored = {i.name for i in case.model.graph.initializer}
        names = [i.name for i in case.model.graph.input if i.name not in stored or len(given) > len(stored)]
        inputs = dict(zip(names, given, strict=False))
        imported = imported_with(case.model, inputs)
        for backend in backends:
            outputs = run(imported, inputs, backend)
            check(case, list(outputs.values()), expected, backend)


def imported_with(model: onnx.ModelProto, inputs: dict[str, Any]) -> Imported:
    """The model, with the values of those inputs that decide shapes."""
    sizes: dict[str, Any] = {}
    known: dict[str, Any] = {}
    fixed = any("Sequence" in node.op_type for node in model.graph.node)  # as long as sizes of tensors say
    for info in model.graph.input:
        value = inputs.get(info.name)
        if value is None:
            known |= {info.name: None} if info.name in inputs else {}
        elif isinstance(value, list):
            sizes[info.name] = len(value)
            sizes |= {f"{info.name}.{i}": np.shape(x) for i, x in enumerate(value)}
        elif fixed or not _tensor_type(info.type).HasField("shape"):
            sizes[info.name] = np.shape(value)
    while True:
        try:
            return import_model(model, known=known, sizes=sizes)
        except UnknownValueError as error:
            fresh = {name: inputs[name] for name in error.sources if name not in known}
            if not fresh:
                raise
            known |= fresh


def _tensor_type(kind: onnx.TypeProto) -> Any:
    if kind.WhichOneof("value") == "optional_type":
        return _tensor_type(kind.optional_type.elem_type)
    return kind.tensor_type


def run(imported: Imported, inputs: dict[str, Any], backend: str) -> dict[str, Any]:
    """The outputs of an imported model by name."""
    feeds: dict[str, Any] = {}
    for name, argument in imported.inputs.items():
        several = isinstance(argument, list)
        pairs = zip(argument, inputs[name], strict=True) if several else [(argument, inputs[name])]
        feeds |= {own: to_carried(np.asarray(x))[0] for own, x in pairs}
    graph = imported.graph
    found = weft.Session(graph, backend=backend).run(list(graph.outputs), feeds)

    def result(place: Any) -> Any:
        if isinstance(place, list):
            return [result(p) for p in place]
        if place is None:
            return None
        array = found[place].numpy()
        return from_carried(array, imported.narrow[place]) if place in imported.narrow else array

    return {name: result(place) for name, place in imported.outputs.items()}


def check(case: Case, outputs: Sequence[Any], expected: Sequence[Any], backend: str) -> None:
    """Compare as the suite's own runner does."""
    assert len(outputs) == len(expected), f"{len(outputs)} outputs, expected {len(expected)}"
    for output, wanted in zip(outputs, expected, strict=True):
        if isinstance(wanted, list | tuple):
            check(case, output, wanted, backend)
            continue
        if wanted is None:
            assert output is None
            continue
        wanted = np.asarray(wanted)
        assert output.shape == wanted.shape, f"{backend}: shape {output.shape}, expected {wanted.shape}"
        assert output.dtype == wanted.dtype, f"{backend}: dtype {output.dtype}, expected {wanted.dtype}"
        rtol = max(case.rtol, BFLOAT16_TOLERANCE) if output.dtype.name == "bfloat16" else case.rtol
        if output.dtype.name not in np.sctypeDict:
            output, wanted = output.astype(np.float32), wanted.astype(np.float32)
        np.testing.assert_allclose(output, wanted, rtol=rtol, atol=case.atol, err_msg=backend)


def all_of_it() -> bool:
    """Whether every case is to go through every backend."""
    return os.environ.get("WEFT_ONNX_ALL", "") == "1"

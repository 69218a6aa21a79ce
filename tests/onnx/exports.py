"""Exported models run elsewhere: by onnxruntime, or by the reference evaluator where it has no kernel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

import weft
from weft.base.dtypes import kind
from weft.base.trees import tree_flatten
from weft.capture.static.block import parameters
from weft.ir.interpret import interpret

onnxruntime.set_default_logger_severity(4)


class Exported:
    """A model in a file, and how it is run."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self.model = onnx.load(self.path)
        self._session: Any = None
        self._read: Any = None

    @property
    def operators(self) -> list[str]:
        """The operators of its nodes, in order, without constants."""
        return [node.op_type for node in self.model.graph.node if node.op_type != "Constant"]

    @property
    def constants(self) -> list[Any]:
        """What its constants hold."""
        nodes = [node for node in self.model.graph.node if node.op_type == "Constant"]
        return [onnx.numpy_helper.to_array(node.attribute[0].t) for node in nodes]

    @property
    def inputs(self) -> dict[str, str]:
        """The types of its inputs, as text."""
        return {value.name: _type(value) for value in self.model.graph.input}

    @property
    def outputs(self) -> dict[str, str]:
        """The types of its outputs, as text."""
        return {value.name: _type(value) for value in self.model.graph.output}

    @property
    def weights(self) -> dict[str, Any]:
        """Its initializers."""
        return {t.name: onnx.numpy_helper.to_array(t) for t in self.model.graph.initializer}

    def run(self, *arrays: Any, **named: Any) -> list[Any]:
        """What onnxruntime computes."""
        if self._session is None:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            options.log_severity_level = 4
            self._session = onnxruntime.InferenceSession(
                self.path, options, providers=["CPUExecutionProvider"]
            )
        feeds = self._feeds(arrays, named)
        results: list[Any] = self._session.run(None, feeds)
        self._check_read_back(feeds, results)
        return results

    def _check_read_back(self, feeds: dict[str, Any], results: list[Any]) -> None:
        """weft reads its own model, and gives what onnxruntime does."""
        if self._read is None:
            self._read = weft.onnx.load(self.path)
        graph = self._read
        arrays = [feeds[value.name] for value in graph.inputs if value not in parameters]
        weights = [parameters[value].numpy() for value in graph.inputs if value in parameters]
        found = interpret(graph, [*arrays, *weights])
        for i, (a, b) in enumerate(zip(found, results, strict=True)):
            if (
                kind(a.dtype) == "f" and np.isnan(a).all() and not b.any()
            ):  # onnxruntime's mean of nothing is 0
                found[i] = b
        assert_same(found, results, 1e-4)

    def evaluate(self, *arrays: Any) -> list[Any]:
        """What the standard's reference computes."""
        with np.errstate(all="ignore"):
            results: list[Any] = ReferenceEvaluator(self.model).run(None, self._feeds(arrays, {}))  # type: ignore[assignment]
        return results

    def _feeds(self, arrays: Sequence[Any], named: dict[str, Any]) -> dict[str, Any]:
        names = [value.name for value in self.model.graph.input]
        given = dict(zip(names, arrays, strict=False)) | named
        return {name: np.asarray(given[name]) for name in names}


def _type(value: Any) -> str:
    tensor = value.type.tensor_type
    dims = [d.dim_param or str(d.dim_value) for d in tensor.shape.dim]
    return f"{onnx.TensorProto.DataType.Name(tensor.elem_type).lower()}[{','.join(dims)}]"


def export(target: Any, path: Path, *examples: Any, **settings: Any) -> Exported:
    """Export to a file in a directory."""
    return Exported(weft.onnx.export(target, path / "model.onnx", *examples, **settings))


def leaves(result: Any) -> list[Any]:
    """The tensors of a result as arrays."""
    found = tree_flatten(result)[0]
    return [np.asarray(x.detach().numpy() if hasattr(x, "detach") else x) for x in found if x is not None]


def assert_same(actual: Sequence[Any], expected: Sequence[Any], tolerance: float = 1e-5) -> None:
    """Types are the same, and values to a tolerance; half precision to its own."""
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        assert (np.asarray(a).dtype, np.shape(a)) == (e.dtype, e.shape)
        if kind(e.dtype) != "f":
            np.testing.assert_array_equal(a, e)
            continue
        close = tolerance if e.dtype.itemsize > 2 else 4e-3
        np.testing.assert_allclose(
            np.asarray(a).astype(np.float64), e.astype(np.float64), rtol=close, atol=close
        )


def assert_agrees(model: Exported, function: Any, *arguments: Any, tolerance: float = 1e-5) -> None:
    """onnxruntime gives what a function of weft does."""
    expected = leaves(function(*arguments))
    assert_same(model.run(*leaves(arguments)), expected, tolerance)

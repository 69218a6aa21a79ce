"""Every op and composite on its samples: exported, run by onnxruntime, compared with weft's interpreter.

Samples of one op are one model: in a run the first, and a third of the others, another third whenever weft's
code is another; ``WEFT_ALL=1`` takes all. Those in double precision are taken in single precision too, since
onnxruntime has kernels of few functions in double.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import weft
from tests.of_code import turn_of
from tests.onnx.exports import Exported, assert_same
from tests.ops import checks
from weft.base.dtypes import bfloat16, kind
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.onnx.writers.registry import COMPOSITES as WRITTEN_COMPOSITES
from weft.onnx.writers.registry import HINTS, load_writers
from weft.onnx.writers.registry import OPS as WRITTEN
from weft.ops import rows as _rows  # noqa: F401 - weft itself does not import it
from weft.ops.bits import bitcast
from weft.ops.op import COMPOSITES, OPS, Op

load_writers()
ENTRIES: dict[str, list[checks.Entry]] = {}
for _entry in checks.entries():
    ENTRIES.setdefault(_entry.name, []).append(_entry)

# What onnxruntime and the standard do otherwise, by sample.
DIFFERENT = {
    ("sort", 5): "NaN has no place in the order",
    ("sort", 11): "NaN has no place in the order",
    ("argsort", 5): "NaN has no place in the order",
    ("argsort", 11): "NaN has no place in the order",
    ("max_pool", 8): "onnxruntime gives the lowest finite number for a window of -inf",
    ("conv", 10): "onnxruntime gives what was in its memory where there are no channels",
    ("conv", 14): "onnxruntime has no convolution of integers",
    ("log_ndtr", 3): "normal_cdf is by Erf, so in its tail it is exact to 1e-7, not to its size",
}
LATER = {  # operators that came after opset 13
    "bitwise_and": "BitwiseAnd",
    "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor",
    "scatter_add": "add at indices",
}


def single(array: Any) -> Any:
    """Double precision as single precision."""
    array = np.asarray(array)
    with np.errstate(over="ignore"):
        return array.astype(np.float32) if array.dtype == np.float64 else array


def joined(entries: list[checks.Entry]) -> tuple[Graph, list[Any]]:
    """All samples of an op as one graph, and its inputs."""
    # Bits are of one size: what is looked at as int64 stays float64.
    arrays = [[a if e.name == "bitcast" else single(a) for a in e.sample.inputs] for e in entries]

    def together(samples: Any) -> Any:
        return [entry.outputs(*xs) for entry, xs in zip(entries, samples, strict=True)]

    graph = weft.make_graph(together)([[weft.tensor(a) for a in xs] for xs in arrays])
    return graph, [a for xs in arrays for a in xs]


def is_complex(entry: checks.Entry) -> bool:
    dtypes = [np.asarray(a).dtype for a in entry.sample.inputs]
    dtypes += [v for v in entry.sample.attrs.values() if isinstance(v, np.dtype)]
    return any(kind(dtype) == "c" for dtype in dtypes)


def is_taken(entry: checks.Entry) -> bool:
    """Whether onnxruntime takes the inputs of a sample from NumPy: not those of bfloat16."""
    return all(np.asarray(a).dtype != bfloat16 for a in entry.sample.inputs)


def refused_by(graph: Graph, opset: int) -> set[str]:
    """The ops of a graph that ONNX cannot say."""
    names = {node.op.name for node in graph.walk()}
    later = set() if opset >= 18 else {n for n in LATER if n in names}
    return {n for n in names if n in HINTS} | later | ({"erfinv", "nextafter", "bitcast"} & names)


@pytest.mark.rotating(4)
@pytest.mark.parametrize("name", [*ENTRIES])
def test_op_gives_the_same_in_onnxruntime(name: str, tmp_path: Path) -> None:
    entries = [e for i, e in enumerate(ENTRIES[name], 1) if (name, i) not in DIFFERENT and not is_complex(e)]
    entries = [e for e in entries if is_taken(e)]
    entries = turn_of(entries, 3, name=lambda entry: entry.name)
    if not entries:
        return  # refused by test_complex_numbers_are_refused, or in a dtype that is not taken
    graph, arrays = joined(entries)
    if refused_by(graph, 20):
        with pytest.raises(weft.errors.GraphError, match=r"ONNX can say|must have"):
            weft.onnx.export(graph, tmp_path / "m.onnx")
        return
    model = Exported(weft.onnx.export(graph, tmp_path / "m.onnx"))
    assert_same(model.run(*arrays), interpret(graph, arrays))


OLD = ["sum", "max", "mean", "softmax", "layer_norm", "gelu", "reshape", "pad", "slice", "scatter", "cumsum"]
OLD += ["any", "remainder", "standardize", "conv2d", "avg_pool2d", "tril", "relu", "mish", "hardswish"]


@pytest.mark.parametrize("name", OLD)
def test_op_gives_the_same_in_opset_13(name: str, tmp_path: Path) -> None:
    entries = [e for e in ENTRIES[name] if not is_complex(e)]
    graph, arrays = joined(entries)
    model = Exported(weft.onnx.export(graph, tmp_path / "m.onnx", opset=13))
    assert model.model.opset_import[0].version == 13
    assert_same(model.run(*arrays), interpret(graph, arrays))


SIZED = [
    "reshape",
    "slice",
    "pad",
    "broadcast_to",
    "concat",
    "windows",
    "window_sum",
    "overlap_add",
    "conv2d",
]
SIZED += [
    "max_pool2d",
    "avg_pool2d",
    "gather",
    "scatter",
    "scatter_add",
    "take_class",
    "put_class",
    "layer_norm",
]
SIZED += ["group_norm", "standardize", "stack", "tile", "flip", "roll", "diagonal", "einsum", "cross_entropy"]
SIZED += [
    "scaled_dot_product_attention",
    "repeat",
    "unfold",
    "sort",
    "cumsum",
    "mean",
    "var",
    "softmax",
    "trace",
]


def with_names(array: Any) -> Any:
    """The type of an array whose first size is open; equal sizes have one name."""
    first = [f"size{n}" if n > 1 else n for n in array.shape[:1]]
    return weft.TensorType((*first, *array.shape[1:]), array.dtype)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", SIZED)
def test_op_gives_the_same_where_sizes_are_open(name: str, tmp_path: Path) -> None:
    tried = 0
    for entry in [e for e in ENTRIES[name] if not is_complex(e)]:
        arrays = [single(a) for a in entry.sample.inputs]
        try:
            graph = weft.make_graph(entry.outputs)(*map(with_names, arrays))
        except weft.errors.WeftError:
            continue  # what this sample asks for needs a number
        model = Exported(weft.onnx.export(graph, tmp_path / "m.onnx", opset=16 + 2 * tried))
        assert_same(model.run(*arrays), interpret(graph, arrays))
        tried += 1
        if tried == 3:
            return
    assert tried


LATEST = {"rms_norm": "RMSNormalization", "group_norm": "GroupNormalization", "cumprod": "CumProd"}


@pytest.mark.parametrize("name", [*LATEST])
def test_op_is_one_operator_in_a_later_opset(name: str, tmp_path: Path) -> None:
    graph, arrays = joined([ENTRIES[name][0]])
    opset = 26 if name == "cumprod" else 23
    model = Exported(weft.onnx.export(graph, tmp_path / "m.onnx", opset=opset))
    assert model.operators == [LATEST[name]]
    assert_same(model.run(*arrays), interpret(graph, arrays))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_one_operator_from_opset_23_on(causal: bool, tmp_path: Path) -> None:
    q, k = weft.randn(2, 3, 4, 8), weft.randn(2, 3, 6, 8)
    graph = weft.make_graph(lambda q, k: weft.scaled_dot_product_attention(q, k, k, is_causal=causal))(q, k)
    model = Exported(weft.onnx.export(graph, tmp_path / "m.onnx", opset=23))
    assert model.operators == ["Attention"]
    assert_same(model.run(q.numpy(), k.numpy()), interpret(graph, [q.numpy(), k.numpy()]))


@pytest.mark.parametrize("name", [n for n in ENTRIES if any(map(is_complex, ENTRIES[n]))][::8])
def test_complex_numbers_are_refused(name: str, tmp_path: Path) -> None:
    graph, _ = joined([e for e in ENTRIES[name] if is_complex(e)])
    with pytest.raises(weft.errors.GraphError, match=r"must be real|ONNX can say"):
        weft.onnx.export(graph, tmp_path / "m.onnx")


def test_every_op_has_a_writer_or_a_reason() -> None:
    holding = {"call", "function", "print", "check"}  # written by their bodies, or left out
    missing = [
        name
        for name, op in OPS.items()
        if name not in WRITTEN and name not in HINTS and name not in holding and op.scalar is None
        if "::" not in name and not name.startswith("library_")  # of programs for GPUs alone
    ]
    assert missing == []


def test_writers_are_of_ops_that_exist() -> None:
    assert [n for n in WRITTEN if n not in OPS and "::" not in n] == []
    assert [n for n in WRITTEN_COMPOSITES if n not in COMPOSITES] == []
    assert all(isinstance(OPS[n], Op) for n in HINTS)


def test_double_precision_is_kept(tmp_path: Path) -> None:
    graph = weft.make_graph(lambda x: weft.tanh(x @ x.mT) + weft.softmax(x, axis=1).sum())(
        weft.randn(3, 3, dtype=weft.float64)
    )
    x = np.random.default_rng(0).normal(size=(3, 3))
    model = Exported(weft.onnx.export(graph, tmp_path / "m.onnx"))
    assert_same(model.run(x), interpret(graph, [x]), 1e-12)


def test_bits_are_read_as_another_dtype_from_opset_26_on(tmp_path: Path) -> None:
    x = np.asarray([1.0, -2.5, 0.0, np.inf], np.float32)
    graph = weft.make_graph(lambda x: bitcast.on_tensors(x, dtype=weft.int32))(weft.tensor(x))
    with pytest.raises(weft.errors.GraphError, match="opset=26"):
        weft.onnx.export(graph, tmp_path / "m.onnx")
    loaded = weft.onnx.load(weft.onnx.export(graph, tmp_path / "m.onnx", opset=26))
    np.testing.assert_array_equal(loaded(weft.tensor(x)).numpy(), x.view(np.int32))


def test_functions_that_onnxruntime_lacks_in_double_agree_by_the_reference(tmp_path: Path) -> None:
    def functions(x: Any) -> Any:
        return (
            weft.erf(x),
            weft.softplus(x),
            weft.asinh(x),
            weft.gelu(x),
            weft.conv1d(x[None, None], x[None, None, :2]),
        )

    x = np.linspace(-2, 2, 9)
    graph = weft.make_graph(functions)(weft.tensor(x))
    model = Exported(weft.onnx.export(graph, tmp_path / "m.onnx"))
    assert_same(model.evaluate(x), interpret(graph, [x]), 1e-6)
    assert isinstance(model.model, onnx.ModelProto)

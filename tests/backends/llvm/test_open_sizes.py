"""Named sizes in machine code, 0 among them: reductions and whatever folds, in every way that a graph runs.

All memory begins as rubbish here, so that what nobody writes is seen.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.agreement import assert_agree, build_quickly
from tests.capture import sizes_matrix as matrix
from tests.capture.test_static_sizes import GROUPS
from tests.of_code import is_turn
from weft.errors import WeftError
from weft.ir.graph import Graph
from weft.ir.interpret import interpret

ORACLES: dict[str, Any] = {
    "sum": np.sum, "prod": np.prod, "mean": np.mean, "any": np.any, "all": np.all,
    "count_nonzero": np.count_nonzero, "var": np.var, "std": np.std, "nansum": np.nansum,
    "logsumexp": lambda x, axis: np.log(np.sum(np.exp(x.astype(np.float64)), axis=axis)),
}  # fmt: skip
SIZES = ((0, 0), (0, 5), (5, 0), (0, 300), (3, 4), (150, 130))


def reductions(x: Any) -> list[Any]:
    found = []
    for name, axis in product(ORACLES, (0, 1, None)):
        found += [getattr(weft, name)(x, axis=axis), getattr(weft, name)(weft.tanh(x) * 2.0, axis=axis)]
    return found


def wanted(x: Any) -> list[Any]:
    with np.errstate(all="ignore"):
        pairs = [(f, axis) for f in ORACLES.values() for axis in (0, 1, None)]
        return [np.asarray(f(y, axis=axis)) for f, axis in pairs for y in (x, np.tanh(x) * 2.0)]


def assert_close(got: list[Any], x: Any) -> None:
    for a, b in zip(got, wanted(x), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=2e-4, atol=2e-4)


def matrices() -> list[Any]:
    return [np.random.default_rng(1).standard_normal(shape).astype(np.float32) for shape in SIZES]


@pytest.mark.rotating(2)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_reductions_of_nothing_in_a_graph() -> None:
    graph = weft.make_graph(reductions)(weft.TensorType(("n", "m"), weft.float32))
    run = build_quickly(graph.optimize())
    for x in matrices():
        assert_close(run([x]), x)


@pytest.mark.rotating(2)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_reductions_of_nothing_in_a_session() -> None:
    with weft.Graph() as graph:
        x = weft.placeholder("x", ("n", "m"), weft.float32)
        fetched = [t.astype(weft.float64) for t in reductions(x)]
    session = weft.Session(graph)
    for array in matrices():
        assert_close([t.numpy() for t in session.run(fetched, {x: array})], array)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_reductions_of_nothing_in_an_imported_model(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from onnx import parser, save

    names = ("ReduceSum", "ReduceProd", "ReduceMean", "ReduceLogSumExp", "ReduceL2", "ReduceSumSquare")
    lines = "\n".join(f"{name.lower()} = {name} <keepdims=0> (t)" for name in names)
    outs = ", ".join(f"float {name.lower()}" for name in names)
    text = f"g (float[N,M] x) => ({outs}) {{ t = Tanh (x)\n{lines} }}"
    save(parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17]> {text}'), str(tmp_path / "m.onnx"))
    model = weft.onnx.load(str(tmp_path / "m.onnx"))
    for x in matrices():
        t = np.tanh(x.astype(np.float64))
        with np.errstate(all="ignore"):
            total = np.log(np.exp(t).sum())
        right = [
            t.sum(),
            t.prod(),
            t.mean() if t.size else np.nan,
            total,
            np.sqrt((t * t).sum()),
            (t * t).sum(),
        ]
        got = weft.tree_leaves(model(weft.tensor(x)))
        np.testing.assert_allclose([g.item() for g in got], right, rtol=1e-4, atol=1e-4)


def folds(graph: Graph) -> bool:
    return any(node.op.fold for node in graph.walk())


@pytest.mark.rotating(4)
@pytest.mark.parametrize("first", range(0, len(GROUPS), 40))
def test_ops_that_fold_give_what_the_interpreter_gives(first: int) -> None:
    """A run takes a third of the ops, another third whenever weft's code is another; all with WEFT_ALL=1."""
    for name, entries in GROUPS[first : first + 40]:
        if not is_turn(name, 3):
            continue
        found = matrix.traced(entries[0])
        if isinstance(found, list) or not folds(found[1]):
            continue
        naming, graph = found
        run = build_quickly(graph)
        for n in (0, 3):
            arrays = naming.resized(entries[0].sample.inputs, n)
            try:
                right = interpret(graph, arrays)
            except WeftError as error:
                with pytest.raises(type(error)):
                    run(arrays)
                continue
            assert_agree(run(arrays), right, 256)

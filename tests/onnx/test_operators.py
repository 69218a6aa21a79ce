"""Operators whose rules have many cases, on random arguments, against onnx's own evaluator or NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator

import weft
from tests.of_code import examples

Array = np.ndarray[Any, Any]
few = examples(40, 13)
NAMES = "abcdefgh"


def model_of(op: str, inputs: list[Any], outputs: int = 1, **attributes: Any) -> onnx.ModelProto:
    """A model of one node; inputs that are None are left out."""
    names = ["" if x is None else n for n, x in zip(NAMES, inputs, strict=False)]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, **attributes)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in zip(NAMES, inputs, strict=False)
        if x is not None
    ]
    ends = [helper.make_empty_tensor_value_info(name) for name in results]
    graph = helper.make_graph([node], "f", infos, ends)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def results(op: str, inputs: list[Any], known: str = "", outputs: int = 1, **attributes: Any) -> list[Array]:
    """What weft's interpreter gives for a node, some of whose inputs are known."""
    model = model_of(op, inputs, outputs, **attributes)
    feeds = {n: x for n, x in zip(NAMES, inputs, strict=False) if x is not None}
    graph = weft.onnx.load(model, known={n: feeds[n] for n in known if n in feeds})
    given = {v.name: feeds[v.name] for v in graph.inputs}
    return [y.numpy() for y in weft.Session(graph, backend="interpret").run(list(graph.outputs), given)]


def reference(op: str, inputs: list[Any], outputs: int = 1, **attributes: Any) -> list[Array]:
    feeds = {n: x for n, x in zip(NAMES, inputs, strict=False) if x is not None}
    return ReferenceEvaluator(model_of(op, inputs, outputs, **attributes)).run(None, feeds)  # type: ignore[return-value]


def agree(op: str, inputs: list[Any], known: str = "", outputs: int = 1, **attributes: Any) -> None:
    found = results(op, inputs, known, outputs, **attributes)
    for a, b in zip(found, reference(op, inputs, outputs, **attributes), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def numbers(shape: Any, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


shapes = st.lists(st.integers(1, 4), min_size=1, max_size=3)
ends = st.one_of(st.integers(-7, 7), st.sampled_from([2**31 - 1, 2**63 - 1, -(2**31), -(2**63)]))


@few
@given(shapes, st.data())
def test_slice(shape: list[int], data: st.DataObject) -> None:
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    many = {"min_size": len(axes), "max_size": len(axes)}
    starts = data.draw(st.lists(st.integers(-7, 7), **many))
    stops = data.draw(st.lists(ends, **many))
    steps = data.draw(st.lists(st.sampled_from([-2, -1, 1, 3]), **many))
    x = wanted = numbers(shape)
    for axis, start, stop, step in zip(axes, starts, stops, steps, strict=True):
        wanted = wanted.take(_places(shape[axis], start, stop, step), axis=axis)
    found = results("Slice", [x, ints(*starts), ints(*stops), ints(*axes), ints(*steps)], "bcde")
    np.testing.assert_array_equal(found[0], wanted)


def _places(size: int, start: int, stop: int, step: int) -> list[int]:
    """The definition, written out; for a start before the begin it differs from Python's."""
    start, stop = (v + size if v < 0 else v for v in (start, stop))
    if step > 0:
        return list(range(min(max(start, 0), size), min(max(stop, 0), size), step))
    return list(range(min(max(start, 0), size - 1), min(max(stop, -1), size - 1), step))


@few
@given(shapes, st.data())
def test_pad_with_a_constant_grows_and_cuts(shape: list[int], data: st.DataObject) -> None:
    widths = data.draw(st.lists(st.integers(-1, 3), min_size=2 * len(shape), max_size=2 * len(shape)))
    rank = len(shape)
    if any(widths[i] + widths[i + rank] + shape[i] < 0 for i in range(rank)):
        return
    x, value = numbers(shape), np.array(7, np.float32)
    cut = x[tuple([slice(max(-widths[i], 0), shape[i] + min(widths[i + rank], 0)) for i in range(rank)])]
    grown = [(max(widths[i], 0), max(widths[i + rank], 0)) for i in range(rank)]
    found = results("Pad", [x, ints(*widths), value], "bc")
    np.testing.assert_array_equal(found[0], np.pad(cut, grown, constant_values=7))


@few
@given(shapes, st.sampled_from(["none", "add", "mul", "max", "min"]), st.data())
def test_scatter_elements(shape: list[int], how: str, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    n = shape[axis]
    count = data.draw(st.integers(1, n if how == "none" else 6))
    sizes = [count if a == axis else s for a, s in enumerate(shape)]
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    if how == "none":  # ONNX leaves open which of several updates of one place counts
        index = np.argsort(rng.normal(size=shape), axis=axis).take(range(count), axis=axis)
    else:
        index = rng.integers(0, n, sizes)
    index = np.where(rng.normal(size=sizes) > 0, index, index - n).astype(np.int64)
    x, updates = numbers(shape), numbers(sizes, 1)
    wanted = x.copy()
    for place in np.ndindex(*sizes):
        at = (*place[:axis], index[place], *place[axis + 1 :])
        old, new = wanted[at], updates[place]
        combined = {
            "none": new,
            "add": old + new,
            "mul": old * new,
            "max": max(old, new),
            "min": min(old, new),
        }
        wanted[at] = combined[how]
    found = results("ScatterElements", [x, index, updates], axis=axis, reduction=how)
    np.testing.assert_allclose(found[0], wanted, rtol=1e-5, atol=1e-6)


@few
@given(shapes, st.sampled_from(["none", "add", "mul", "max", "min"]), st.integers(0, 9))
def test_scatter_nd(shape: list[int], how: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    depth = int(rng.integers(1, len(shape) + 1))
    places = list(np.ndindex(*shape[:depth]))
    count = int(rng.integers(1, len(places) + 1))
    chosen = rng.permutation(len(places))[:count] if how == "none" else rng.integers(0, len(places), count)
    index = np.array([places[i] for i in chosen], np.int64)
    agree("ScatterND", [numbers(shape), index, numbers([count, *shape[depth:]], 1)], reduction=how)


@few
@given(shapes, st.data())
def test_gather_nd(shape: list[int], data: st.DataObject) -> None:
    depth = data.draw(st.integers(1, len(shape)))
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    index = np.stack([rng.integers(-n, n, (2, 3)) for n in shape[:depth]], axis=-1)
    agree("GatherND", [numbers(shape), index.astype(np.int64)])


@few
@given(shapes, st.data())
def test_gather(shape: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    n = shape[axis]
    index = np.random.default_rng(0).integers(-n, n, data.draw(st.sampled_from([(), (3,), (2, 2)])))
    agree("Gather", [numbers(shape), np.asarray(index, np.int64)], axis=axis)


@few
@given(shapes, st.booleans(), st.booleans(), st.data())
def test_top_k(shape: list[int], largest: bool, repeated: bool, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = numbers(shape) if not repeated else np.round(numbers(shape))
    k = ints(data.draw(st.integers(0, shape[axis])))
    order = np.argsort(-x if largest else x, axis=axis, kind="stable").take(range(int(k[0])), axis=axis)
    values, places = results("TopK", [x, k], "b", 2, axis=axis, largest=int(largest))
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis))


@few
@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.booleans())
def test_unique(items: list[int], ordered: bool) -> None:
    x = np.array(items, np.float32)
    agree("Unique", [x], "", 4, sorted=int(ordered))


@few
@given(st.integers(1, 5), st.booleans(), st.integers(0, 9))
def test_unique_rows(rows: int, ordered: bool, seed: int) -> None:
    x = np.random.default_rng(seed).integers(0, 2, (rows, 2)).astype(np.float32)
    values, first, inverse, counts = results("Unique", [x], "", 4, axis=0, sorted=int(ordered))
    np.testing.assert_array_equal(values[inverse], x)
    np.testing.assert_array_equal(values, x[first])
    np.testing.assert_array_equal(counts, np.bincount(inverse))
    assert [int(np.flatnonzero(inverse == i)[0]) for i in range(len(values))] == first.tolist()
    if ordered:
        assert values.tolist() == sorted(values.tolist())
    else:
        assert first.tolist() == sorted(first.tolist())


@few
@given(st.integers(0, 9), st.floats(0.0, 0.9), st.integers(0, 4))
def test_non_max_suppression(seed: int, overlap: float, most: int) -> None:
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, 1, (2, 6, 2, 2))
    boxes = np.concatenate([corners.min(2), corners.max(2)], axis=-1).astype(np.float32)
    scores = rng.uniform(0, 1, (2, 3, 6)).astype(np.float32)
    threshold = np.float32(overlap)
    found = results(
        "NonMaxSuppression", [boxes, scores, ints(most), np.array([threshold]), np.array([0.2], np.float32)]
    )
    wanted = [
        (b, c, i)
        for b in range(2)
        for c in range(3)
        for i in _kept(boxes[b].astype(np.float64), scores[b, c], most, float(threshold))
    ]
    assert found[0].tolist() == [list(row) for row in wanted]


def _kept(boxes: Array, scores: Array, most: int, overlap: float) -> list[int]:
    """The definition, written out."""
    kept: list[int] = []
    for i in np.argsort(-scores, kind="stable"):
        if (
            scores[i] > np.float32(0.2)
            and len(kept) < most
            and all(_shared(boxes[i], boxes[j]) <= overlap for j in kept)
        ):
            kept.append(int(i))
    return kept


def _shared(a: Array, b: Array) -> float:
    both = np.prod(np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0))
    return float(both / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - both))


@few
@given(
    st.lists(st.sampled_from([-7, -3, -1, 0, 1, 2, 5]), min_size=1, max_size=6),
    st.sampled_from([-3, -2, 2, 3]),
)
def test_division_of_integers_is_towards_zero(items: list[int], by: int) -> None:
    x = np.array(items, np.int32)
    found = results("Div", [x, np.array(by, np.int32)])[0]
    assert found.tolist() == [int(i / by) for i in items]


@few
@given(
    shapes,
    st.sampled_from(["ReduceSum", "ReduceMax", "ReduceL2", "ReduceLogSumExp", "ReduceMean"]),
    st.data(),
)
def test_reductions(shape: list[int], op: str, data: st.DataObject) -> None:
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True))
    keep, noop = data.draw(st.integers(0, 1)), data.draw(st.integers(0, 1)) if op == "ReduceSum" else 0
    agree(op, [numbers(shape), ints(*axes)], "b", keepdims=keep, noop_with_empty_axes=noop)


_FAR = (2**31 - 1, -(2**31), 2**63 - 1, -(2**63) + 1)


def _cut(size: int, start: int, end: int, step: int) -> list[int]:
    """The places of a slice as ONNX clamps them."""
    low, high = (0, size) if step > 0 else (-1, size - 1)
    start, end = (i + size if i < 0 else i for i in (start, end))
    first = min(max(start, 0), high)
    return list(range(first, min(max(end, low), high), step))


@pytest.mark.rotating(2)
@pytest.mark.parametrize("step", [1, 2, -1, -3])
def test_slice_of_open_sizes_clamps_its_ends(step: int) -> None:
    ends = (0, 2, -1, -7, 7)
    for start, end in [(a, b) for a in (*ends, *_FAR) for b in ends] + [(a, b) for a in ends for b in _FAR]:
        fixed = [np.array([v]) for v in (start, end, 0, step)]
        x = np.arange(5.0, dtype=np.float32)
        model = model_of("Slice", [x, *fixed])
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
        graph = weft.onnx.load(model, known=dict(zip("bcde", fixed, strict=True)))
        for size in (5, 1):
            (got,) = weft.Session(graph).run(list(graph.outputs), {"a": x[:size]})
            assert got.tolist() == _cut(size, start, end, step), (size, start, end, step)

"""Every op of the table has a lowering, and gives what its reference kernel gives: as loops and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from tests.of_code import is_turn, one_of, turn_of
from tests.schedule.lowered import assert_same, compiled, lowered, sized, variants
from weft.base.dtypes import DTYPES, kind
from weft.ir.types import TensorType
from weft.ops.op import OPS
from weft.schedule.control import is_control
from weft.schedule.pointwise.rules import POINTWISE, has_pointwise_rule
from weft.schedule.target import default_target, find_lowering

OWN = (
    "again", "all", "any", "argmax", "argmin", "argsort", "broadcast_to", "concat", "cross", "cummax_index",
    "cumprod", "cumsum", "derive_key", "gather", "iota", "max", "min", "pad", "permute", "prod", "put_class",
    "random_bits", "reshape", "scatter", "scatter_add", "searchsorted", "size", "slice", "solve_triangular",
    "sort", "sum", "take_class", "topk_index", "update_slice",
)  # fmt: skip
REAL = frozenset({"argsort", "cummax_index", "searchsorted", "sort", "topk_index"})
SORTED = frozenset({"searchsorted"})  # its first input is sorted, which a conversion may spoil


def random_array(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


# Every op


class _Named:
    """What the tables ask of a node: its op."""

    def __init__(self, op: Any) -> None:
        self.op = op
        self.inputs = ()


def test_no_op_falls_back_to_python_but_those_that_say_so() -> None:
    has_pointwise_rule(_Named(OPS["add"]))  # type: ignore[arg-type]
    cpu = default_target()
    for name, op in OPS.items():
        if name.startswith("library_"):  # calls that programs for GPUs have, and no others
            continue
        node: Any = _Named(op)
        has_rule = op.scalar is not None or name in POINTWISE or find_lowering(op, cpu.name) or op.view
        assert has_rule or op.host or is_control(node) or op.decomposition or name == "rows", name


def fitting(name: str, arrays: list[Any], attrs: Any) -> bool:
    """Whether an op takes arrays of these dtypes."""
    op = OPS[name]
    if name in REAL and any(kind(a.dtype) == "c" for a in arrays):
        return False
    try:
        op.type_rule(*[TensorType(a.shape, a.dtype) for a in arrays], **attrs)
        out = op.eval(*arrays, **attrs)
    except (TypeError, ValueError, IndexError, np.exceptions.ComplexWarning):
        return False
    return np.asarray(out).dtype in DTYPES and not (name in SORTED and arrays[0].dtype == bool)


@pytest.mark.parametrize("name", OWN)
def test_every_sample_in_every_dtype_gives_what_the_kernel_gives(name: str) -> None:
    """A run takes the first sample as it is, and a third of the dtypes, others for another code of weft."""
    with np.errstate(all="ignore"):
        for number, sample in enumerate(OPS[name].samples()):
            for arrays in variants(sample.inputs):
                dtypes = [a.dtype for a in arrays]
                own = number == 0 and dtypes == [np.asarray(a).dtype for a in sample.inputs]
                if not own and not is_turn(f"{name} {number} {dtypes}", 3):
                    continue
                dense = [np.array(a, order="C") for a in arrays]
                if fitting(name, dense, sample.attrs):
                    expected = OPS[name].eval(*dense, **sample.attrs)
                    assert_same(lowered(name, dense, sample.attrs, alone=True), expected)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", OWN)
def test_fused_or_not_and_with_any_strides(name: str, turned: bool) -> None:
    for sample in OPS[name].samples():
        dense = [np.array(a, order="C") for a in sample.inputs]
        expected = OPS[name].eval(*dense, **sample.attrs)
        assert_same(lowered(name, dense, sample.attrs, turned=turned, alone=turned), expected)


# Reductions

SHAPES = [
    ((40000,), (0,)),
    ((3, 20000), (1,)),
    ((20000, 3), (0,)),
    ((2000, 40), (0,)),
    ((2000, 17), (0,)),
    ((5, 7000, 2), (1,)),
    ((4, 300, 70), (1,)),
    ((500, 3), (1,)),
    ((9, 5, 7, 11), (0, 2)),
    ((9, 5, 7, 11), (1, 3)),
    ((2, 200, 200), (0, 1, 2)),
    ((33, 1, 40), (0,)),
]


@pytest.mark.parametrize(
    ("shape", "axes", "dtype"),
    [
        (shape, axes, dtype)
        for shape, axes in SHAPES
        for dtype in one_of(["float64", "float16", "int32", "complex64"], f"sum {shape} {axes}")
    ],
)
def test_compiled_sum_of_any_layout(shape: Any, axes: Any, dtype: str) -> None:
    """A run takes one dtype of each layout, another one whenever weft's code is another; WEFT_ALL=1 all."""
    x = (random_array(*shape) * 4).astype(dtype)
    attrs = {"axes": axes, "keepdims": False}
    wide = np.complex128 if dtype == "complex64" else np.float64
    exact = x.astype(wide).sum(axes)
    limit = {"float64": 1e-12, "float16": 1e-3, "int32": 0, "complex64": 1e-6}[dtype]
    for alone in (False, True):
        out = compiled("sum", [x], attrs, alone=alone).astype(wide)
        np.testing.assert_allclose(
            out, exact, rtol=limit, atol=limit * np.abs(x.astype(wide)).sum(axes).max()
        )


@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_maximum_is_nan_where_an_element_is(shape: Any, axes: Any) -> None:
    x = random_array(*shape)
    x[(1,) * x.ndim if min(shape) > 1 else (0,) * x.ndim] = np.nan
    attrs = {"axes": axes, "keepdims": True}
    assert_same(compiled("max", [x], attrs, alone=True), OPS["max"].eval(x, **attrs))


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.data())
@settings(max_examples=30, deadline=None)
def test_any_axes_may_be_reduced(shape: list[int], data: Any) -> None:
    axes = tuple(sorted(data.draw(st.sets(st.integers(0, len(shape) - 1)))))
    x = random_array(*shape)
    attrs = {"axes": axes, "keepdims": data.draw(st.booleans())}
    turned = data.draw(st.booleans())
    assert_same(lowered("sum", [x], attrs, turned=turned, alone=True), OPS["sum"].eval(x, **attrs))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize(
    ("shape", "axis"), [((40000,), 0), ((3, 20000), 1), ((2000, 40), 0), ((4, 90, 70), 1)]
)
def test_place_is_the_first_of_equal_ones_and_that_of_a_nan(name: str, shape: Any, axis: int) -> None:
    x = np.round(random_array(*shape) * 3)
    attrs = {"axis": axis, "keepdims": False}
    assert_same(compiled(name, [x], attrs), OPS[name].eval(x, **attrs))
    x[x == 2] = np.nan
    assert_same(compiled(name, [x], attrs), OPS[name].eval(x, **attrs))


# Order


ORDERED = ("bool", "int8", "uint16", "int64", "float16", "float32", "float64")


@pytest.mark.rotating(3)
@pytest.mark.parametrize(
    ("shape", "axis", "dtype"),
    [
        (shape, axis, dtype)
        for shape, axis in [((300, 2), 0), ((3, 400), 1), ((20, 100), 1), ((70,), 0), ((9, 5), 0)]
        for dtype in turn_of(ORDERED[::-1], 3, name=lambda d, shape=shape: f"{shape} {d}")  # type: ignore[misc]
    ],
)
def test_order_is_stable_with_nan_last(shape: Any, axis: int, dtype: str) -> None:
    """A run takes float64 and a third of the other dtypes, others whenever weft's code is another."""
    x = np.round(random_array(*shape) * 4).astype("int64").astype(dtype)
    if x.dtype.kind == "f":
        x[random_array(*shape, seed=1) > 1] = np.nan
        x[random_array(*shape, seed=2) > 1] = -0.0
        x[random_array(*shape, seed=3) > 1] = np.inf
    for descending in (False, True):
        attrs = {"axis": axis, "descending": descending}
        assert_same(compiled("argsort", [x], attrs), OPS["argsort"].eval(x, **attrs))
        assert_same(compiled("sort", [x], attrs), OPS["sort"].eval(x, **attrs))
    for k in (1, 5, min(65, shape[axis])):
        attrs = {"axis": axis, "k": k, "largest": dtype != "int8"}
        assert_same(compiled("topk_index", [x], attrs), OPS["topk_index"].eval(x, **attrs))


@given(
    st.lists(st.integers(-5, 5), max_size=40), st.lists(st.integers(-6, 6), min_size=1, max_size=5), st.data()
)
@settings(max_examples=30, deadline=None)
def test_search_counts_what_is_smaller(table: list[int], wanted: list[int], data: Any) -> None:
    side = data.draw(st.sampled_from(["left", "right"]))
    rows, keys = np.sort(np.array(table, "f4")), np.array(wanted, "f4")
    assert_same(lowered("searchsorted", [rows, keys], {"side": side}), np.searchsorted(rows, keys, side))


# Scans


@pytest.mark.parametrize(("shape", "axis"), [((300, 2), 0), ((2, 300), 1), ((3, 70, 50), 1), ((50, 600), 0)])
def test_scans_of_any_axis(shape: Any, axis: int) -> None:
    x = np.round(random_array(*shape) * 3)
    for reverse in (False, True):
        attrs = {"axis": axis, "reverse": reverse}
        assert_same(compiled("cumsum", [x], attrs), OPS["cumsum"].eval(x, **attrs))
    x[x == 5] = np.nan
    for largest in (False, True):
        extreme = {"axis": axis, "largest": largest}
        assert_same(compiled("cummax_index", [x], extreme), OPS["cummax_index"].eval(x, **extreme))


# Scattering


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "complex128"])
@pytest.mark.parametrize("name", ["scatter", "scatter_add"])
def test_duplicate_indices(name: str, dtype: str) -> None:
    index = np.random.default_rng(0).integers(-50, 50, 500)
    x, v = (np.round(random_array(n, 300) * 9).astype(dtype) for n in (50, 500))
    assert_same(compiled(name, [x, v, index], {}), OPS[name].eval(x, v, index))


def test_scatter_of_one_element_in_a_loop_changes_it_in_place() -> None:
    @weft.compile
    def squares(x: Any) -> Any:
        for i in range(x.shape[0]):
            x[i] = x[i] * x[i]
        return x

    x = random_array(50).astype("f4")
    np.testing.assert_allclose(squares(weft.tensor(x)).numpy(), x * x)


def test_many_parts_are_joined_by_copies() -> None:
    parts = [random_array(3, n, 2) for n in range(9)]
    assert_same(compiled("concat", parts, {"axis": 1}), np.concatenate(parts, 1))


# Random bits


@pytest.mark.rotating(4)
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("count", [1, 31, 4096, 70001])
def test_random_bits_are_exact(count: int, dtype: str) -> None:
    key = np.array([2**63 + 11, 2**64 - 3], np.uint64)
    attrs = {"shape": (count,), "dtype": np.dtype(dtype)}
    assert_same(compiled("random_bits", [key], attrs), OPS["random_bits"].eval(key, **attrs))


# Triangular systems


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("columns", [1, 7, 90])
def test_triangular_systems(upper: bool, columns: int) -> None:
    a, b = random_array(3, 70, 70) + 20 * np.eye(70), random_array(70, columns)
    for unit in (False, True):
        attrs = {"upper": upper, "unit": unit}
        a = a / 20 if unit else a
        expected = OPS["solve_triangular"].eval(a, b, **attrs)
        np.testing.assert_allclose(
            compiled("solve_triangular", [a, b], attrs), expected, rtol=1e-7, atol=1e-9
        )


# Named sizes


@pytest.mark.rotating(3)
@pytest.mark.parametrize("names", [{23: "n"}, {9: "m"}, {23: "n", 9: "m"}])
def test_named_sizes(names: dict[int, str]) -> None:
    x = random_array(23, 9)
    index = np.random.default_rng(0).integers(-9, 9, 23)
    cases: list[tuple[str, list[Any], dict[str, Any]]] = [
        *[("sum", [x], {"axes": axes, "keepdims": False}) for axes in ((0,), (1,), (0, 1))],
        ("argmax", [x], {"axis": 0, "keepdims": False}),
        ("cumsum", [x], {"axis": 1, "reverse": True}),
        ("cumsum", [x], {"axis": 0, "reverse": False}),
        ("argsort", [x], {"axis": 0, "descending": True}),
        ("sort", [x], {"axis": 1, "descending": False}),
        ("topk_index", [x], {"axis": 0, "k": 3, "largest": True}),
        ("concat", [x, x], {"axis": 0}),
        ("gather", [x.T, index], {}),
        ("scatter_add", [x.T, random_array(23, 23), index], {}),
        ("take_class", [x, abs(index) % 9], {"axis": 1, "ignore": 3}),
        ("searchsorted", [np.sort(x[:, 0]), x[0]], {"side": "left"}),
        ("pad", [x], {"low": (1, 0), "high": (2, 0), "interior": (2, 0), "value": 1.0}),
    ]
    for name, arrays, attrs in cases:
        dense = [np.ascontiguousarray(a) for a in arrays]
        assert_same(sized(name, dense, attrs, names, alone=True), OPS[name].eval(*dense, **attrs))

"""Windows and pools by way of loops, against the kernels of the ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.of_code import examples
from tests.schedule.lowered import assert_same, lowered, sized
from weft.ops.op import OPS
from weft.ops.pool.maximum import max_indices, max_values
from weft.ops.windows import overlap_add, window_attrs, window_positions, window_spread, window_sum, windows

POOLS = [windows, window_sum, max_values, max_indices]
TRANSPOSES = [overlap_add, window_spread]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("op", [*POOLS, *TRANSPOSES], ids=lambda op: op.name)
def test_samples_give_what_the_kernel_gives(op: Any, turned: bool) -> None:
    for sample in op.samples():
        arrays = [np.asarray(a) for a in sample.inputs]
        expected = op.eval(*arrays, **sample.attrs)
        assert_same(lowered(op, arrays, sample.attrs, turned=turned), expected)


def random_array(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).integers(-9, 9, shape).astype("f8")


@st.composite
def pools(draw: Any) -> tuple[Any, dict[str, Any]]:
    """A small array and attributes of windows of any kind."""
    rank = draw(st.integers(1, 3))
    sizes = [draw(st.integers(2, 6)) for _ in range(rank)]
    few = st.integers(1, 3)
    pads = st.integers(-1, 2)
    each = [(draw(st.integers(1, 5)), draw(few), draw(pads), draw(pads), draw(few)) for _ in range(rank)]
    kernel, stride, low, high, dilation = zip(*each, strict=True)
    attrs = window_attrs(kernel, stride, tuple(zip(low, high, strict=True)), dilation)
    return random_array(2, *sizes), attrs


@given(pools())
@examples(60, 6)
def test_any_windows_give_what_the_kernels_give(case: tuple[Any, dict[str, Any]]) -> None:
    x, attrs = case
    sizes = x.shape[1:]
    for op in POOLS:
        assert_same(lowered(op, [x], attrs), op.eval(x, **attrs))
    counts = window_positions(sizes, **attrs)
    for op, shape in ((window_spread, counts), (overlap_add, (*counts, *attrs["kernel"]))):
        g = random_array(2, *shape)
        assert_same(lowered(op, [g], {"sizes": sizes, **attrs}), op.eval(g, sizes=sizes, **attrs))


def test_nan_is_the_largest() -> None:
    x = np.array([[1.0, np.nan, 3.0, 2.0, np.nan, np.nan]])
    attrs = window_attrs((2,), (1,), ((1, 1),), (1,))
    for op in (max_values, max_indices):
        assert_same(lowered(op, [x], attrs), op.eval(x, **attrs))


@pytest.mark.parametrize("op", POOLS, ids=lambda op: op.name)
def test_named_sizes_may_be_of_the_batch_and_of_the_image(op: Any) -> None:
    x = random_array(3, 7, 8)
    attrs = window_attrs((2, 3), (2, 1), ((0, 1), (1, 1)), (1, 2))
    for names in ({3: "batch"}, {7: "height", 8: "width"}):
        assert_same(sized(op, [x], attrs, names), op.eval(x, **attrs))


def test_every_op_on_windows_is_lowered() -> None:
    assert {"windows", "window_sum", "window_spread", "overlap_add", "max_pool", "max_pool_indices"} <= set(
        OPS
    )

"""``x.at[key]``: what its modes do with integers that are out of bounds, against loops over elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.of_code import examples
from weft.errors import ArgumentError, BoundsError

CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "set": lambda old, new: new,
    "add": lambda old, new: old + new,
    "subtract": lambda old, new: old - new,
    "multiply": lambda old, new: old * new,
    "divide": lambda old, new: old / new,
    "min": min,
    "max": max,
}


def _meant(index: int, size: int, mode: str) -> int | None:
    """The element that an integer means, None for none."""
    index = index + size if index < 0 else index
    if mode == "clip":
        return min(max(index, 0), size - 1)
    return index if 0 <= index < size else None


def _looped(x: Any, rows: list[int], column: int | None, values: Any, mode: str, change: Any) -> Any:
    out = x.copy()
    for k, row in enumerate(rows):
        for c in range(x.shape[1]) if column is None else (column,):
            i, j = _meant(row, x.shape[0], mode), _meant(c, x.shape[1], mode)
            if i is not None and j is not None:
                out[i, j] = change(out[i, j], values[k, c] if column is None else values[k])
    return out


@given(
    rows=st.lists(st.integers(-6, 6), min_size=1, max_size=4),
    column=st.none() | st.integers(-6, 6),
    mode=st.sampled_from(["drop", "fill", "clip"]),
    name=st.sampled_from(sorted(CHANGES)),
)
@examples(120, 40)
def test_changes_out_of_bounds_are_those_of_a_loop(
    rows: list[int], column: int | None, mode: str, name: str
) -> None:
    x = np.arange(1.0, 13.0, dtype=np.float32).reshape(3, 4)
    shape = (len(rows), 4) if column is None else (len(rows),)
    values = np.float32(2.0) ** np.arange(np.prod(shape)).reshape(shape) * np.float32(0.5)  # exact products
    key = (weft.tensor(rows),) if column is None else (weft.tensor(rows), column)
    found = getattr(weft.tensor(x).at[key], name)(weft.tensor(values), mode=mode)
    np.testing.assert_allclose(
        found.numpy(), _looped(x, rows, column, values, mode, CHANGES[name]), rtol=1e-6
    )


@pytest.mark.parametrize("key", [7, (0, 9), (slice(None), 9), (Ellipsis, -9), (None, 9)])
def test_a_change_that_is_out_of_bounds_is_dropped(key: Any) -> None:
    x = weft.arange(6.0).reshape(2, 3)
    assert x.at[key].set(-1.0, mode="drop").tolist() == x.tolist()
    assert x.at[key].power(3.0, mode="drop").tolist() == x.tolist()
    assert x.at[key].apply(weft.exp, mode="drop").tolist() == x.tolist()
    with pytest.raises(BoundsError):
        x.at[key].set(-1.0)


def test_get_fills_in_what_is_not_there() -> None:
    places = weft.tensor([1, -1, 9])
    assert weft.tensor([1.0, 2.0, 3.0]).at[places].get(mode="fill", fill_value=-5.0).tolist() == [2, 3, -5]
    assert weft.isnan(weft.ones(3).at[places].get(mode="fill")).tolist() == [False, False, True]
    assert weft.arange(3, dtype=weft.int8).at[places].get(mode="fill").tolist() == [1, 2, -128]
    assert weft.arange(3, dtype=weft.uint8).at[places].get(mode="fill").tolist() == [1, 2, 255]
    assert weft.zeros(3, dtype=weft.bool).at[places].get(mode="fill").tolist() == [False, False, True]


def test_negative_zero_and_nan_beside_the_place_stay() -> None:
    x = weft.tensor([-0.0, float("nan"), float("inf"), 1.0])
    found = x.at[weft.tensor([3, 9])].add(1.0, mode="drop").numpy()
    assert np.signbit(found[0])
    np.testing.assert_array_equal(found[1:], np.float32([np.nan, np.inf, 2.0]))


def test_small_dtypes_of_indices_do_not_wrap() -> None:
    x = weft.zeros(300)
    places = weft.tensor([-1, 100], dtype=weft.int8)
    assert x.at[places].set(1.0, mode="drop").nonzero()[:, 0].tolist() == [100, 299]
    assert x.at[weft.tensor([2**64 - 1], dtype=weft.uint64)].set(1.0, mode="drop").sum().item() == 0


def test_empty_tensor_drops_everything() -> None:
    assert weft.zeros(0, 2).at[weft.tensor([0, 1])].set(1.0, mode="drop").shape == (0, 2)


def test_compiled_and_batched_calls_drop_too() -> None:
    x, places = weft.arange(4.0), weft.tensor([1, 9])
    compiled = weft.compile(lambda x, i: x.at[i].add(10.0, mode="drop"))
    assert compiled(x, places).tolist() == [0, 11, 2, 3]
    batched = weft.vmap(lambda x, i: x.at[i].set(10.0, mode="clip"))
    assert batched(weft.zeros(2, 2), places).tolist() == [[0, 10], [0, 10]]


def test_gradients_do_not_flow_to_dropped_values() -> None:
    x = weft.ones(3, requires_grad=True)
    values = weft.ones(2, requires_grad=True)
    (x.at[weft.tensor([0, 9])].set(values, mode="drop") * weft.arange(1.0, 4.0)).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0, 2, 3]
    assert values.grad is not None
    assert values.grad.tolist() == [1, 0]


def test_wrong_modes_and_keywords_are_named() -> None:
    place = weft.ones(3).at[0]
    with pytest.raises(ArgumentError, match=r"add: mode must be one of None, 'clip'.* got 'wrap'"):
        place.add(1.0, mode="wrap")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="set: unknown keyword 'wrap_negative_indices'"):
        place.set(1.0, wrap_negative_indices=False)  # type: ignore[call-arg]
    with pytest.raises(BoundsError, match=r"at most 1 indices for shape \(3,\)"):
        weft.ones(3).at[0, 0].set(1.0, mode="drop")

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.base.dtypes import int64
from weft.loop.builder import Builder
from weft.loop.index import Index, Variable, divided
from weft.loop.interpret import run_function


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 12)), max_size=3),
    st.integers(0, 9),
    st.integers(1, 12),
)
def test_quotient_and_remainder_are_those_of_the_numbers(
    loops: list[tuple[int, int]], offset: int, by: int
) -> None:
    variables = [Variable(f"i{k}", stop) for k, (stop, _) in enumerate(loops)]
    index = Index({v: stride for v, (_, stride) in zip(variables, loops, strict=True)}, offset)
    parts = divided(index, by)
    if parts is None:
        return
    for point in itertools.product(*[range(stop) for stop, _ in loops]):
        at = dict(zip(variables, point, strict=True))
        whole, left, right = (x.offset + sum(at[v] * s for v, s in x.terms.items()) for x in (index, *parts))
        assert divmod(whole, by) == (left, right)


def test_division_by_an_empty_axis_is_any_index() -> None:
    assert divided(Index.of(Variable("i", 0)) * 3, 0) is not None


@pytest.mark.parametrize("by", [1, 3, 4, 5, 20])
def test_code_of_quotient_and_remainder(by: int) -> None:
    b = Builder()
    y = b.buffer("y", int64, 40)
    with b.loop(5) as i, b.loop(4) as j:
        at = i * 4 + j
        b.store(y, at, b.cast(b.quotient(at, by), int64))
        b.store(y, at + 20, b.remainder(at, by))
    out = np.zeros(40, int64)
    run_function(b.function("f", written=[y]), [out])
    np.testing.assert_array_equal(out, [*(np.arange(20) // by), *(np.arange(20) % by)])


def test_product_of_two_variables_is_no_index() -> None:
    i = Index.of(Variable("i", 2))
    with pytest.raises(TypeError, match="a product of two indices is no index"):
        i * i

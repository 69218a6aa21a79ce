"""How tensors print. The expected texts are PyTorch's for the same values, but infinities align."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, DomainError

INF, NAN = float("inf"), float("nan")


@pytest.fixture(autouse=True)
def default_options() -> Iterator[None]:
    yield
    weft.set_printoptions(profile="default")


def lines(*text: str) -> str:
    return "\n".join(text)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([5.0], "tensor([5.])"),
        ([1, 2], "tensor([1, 2])"),
        ([1, -20, 300], "tensor([  1, -20, 300])"),
        ([True, False], "tensor([ True, False])"),
        (5.0, "tensor(5.)"),
        (-0.5, "tensor(-0.5000)"),
        (7, "tensor(7)"),
        (True, "tensor(True)"),
        (1 + 2j, "tensor(1.+2.j)"),
        ([1 + 2j, 3.5 - 1j], "tensor([1.0000+2.j, 3.5000-1.j])"),
        ([1 + 2j, 2 - 10.5j], "tensor([ 1.+2.0000j, 2.-10.5000j])"),
        (NAN, "tensor(nan)"),
        ([1.0, NAN], "tensor([ 1., nan])"),
        ([0.5, INF, -INF], "tensor([0.5000,    inf,   -inf])"),
        ([0.0, -0.0], "tensor([ 0., -0.])"),
        ([0.1234567, 10.0], "tensor([ 0.1235, 10.0000])"),
    ],
)
def test_elements_of_default_dtypes_print_alone(data: Any, text: str) -> None:
    assert repr(weft.tensor(data)) == text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([1.0, 1000.0], "tensor([   1., 1000.])"),
        ([1.0, 1001.0], "tensor([1.0000e+00, 1.0010e+03])"),
        ([0.1, 200.0], "tensor([1.0000e-01, 2.0000e+02])"),
        ([1e-5, 0.0], "tensor([1.0000e-05, 0.0000e+00])"),
        ([3e38], "tensor([3.0000e+38])"),
        ([99999999.0], "tensor([100000000.])"),
        ([123456789.0], "tensor([1.2346e+08])"),
    ],
)
def test_scientific_notation_is_used_where_the_range_needs_it(data: Any, text: str) -> None:
    assert repr(weft.tensor(data)) == text


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        (weft.float64, "tensor([1., 2.], dtype=weft.float64)"),
        (weft.float16, "tensor([1., 2.], dtype=weft.float16)"),
        (weft.bfloat16, "tensor([1., 2.], dtype=weft.bfloat16)"),
        (weft.int32, "tensor([1, 2], dtype=weft.int32)"),
        (weft.uint8, "tensor([1, 2], dtype=weft.uint8)"),
        (weft.complex128, "tensor([1.+0.j, 2.+0.j], dtype=weft.complex128)"),
        (weft.float32, "tensor([1., 2.])"),
        (weft.int64, "tensor([1, 2])"),
        (weft.complex64, "tensor([1.+0.j, 2.+0.j])"),
    ],
)
def test_dtype_is_shown_where_it_is_not_the_default(dtype: Any, text: str) -> None:
    assert repr(weft.tensor([1, 2], dtype=dtype)) == text


def test_dtype_shown_follows_the_default_float() -> None:
    weft.set_default_dtype(weft.float64)
    try:
        assert repr(weft.tensor([1.0])) == "tensor([1.])"
        assert repr(weft.tensor([1.0], dtype=weft.float32)) == "tensor([1.], dtype=weft.float32)"
    finally:
        weft.set_default_dtype(weft.float32)


def test_leaf_shows_that_it_requires_grad() -> None:
    assert repr(weft.tensor([1.0], requires_grad=True)) == "tensor([1.], requires_grad=True)"


def test_result_shows_its_grad_fn() -> None:
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    assert repr(x * x) == "tensor([1., 4.], grad_fn=<MulBackward>)"
    assert repr((x * x).detach()) == "tensor([1., 4.])"


@pytest.mark.parametrize(
    ("shape", "dtype", "text"),
    [
        ((0,), weft.float32, "tensor([])"),
        ((0, 3), weft.float32, "tensor([], size=(0, 3))"),
        ((0,), weft.int64, "tensor([], dtype=weft.int64)"),
        ((2, 0), weft.int32, "tensor([], size=(2, 0), dtype=weft.int32)"),
    ],
)
def test_empty_tensor_shows_what_its_brackets_do_not_say(shape: Any, dtype: Any, text: str) -> None:
    assert repr(weft.tensor(np.zeros(shape), dtype=dtype)) == text


def test_rows_align_under_the_opening_bracket() -> None:
    assert repr(weft.tensor([[1.0, 2.0], [3.0, -4.5]])) == lines(
        "tensor([[ 1.0000,  2.0000],",
        "        [ 3.0000, -4.5000]])",
    )


def test_matrices_are_set_apart_by_an_empty_line() -> None:
    assert repr(weft.tensor([[[1, 2]], [[3, 4]]])) == lines(
        "tensor([[[1, 2]],",
        "",
        "        [[3, 4]]])",
    )


def test_long_rows_wrap_in_aligned_columns() -> None:
    assert repr(weft.tensor(np.arange(30, dtype=np.float32))) == lines(
        "tensor([ 0.,  1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9., 10., 11., 12., 13.,",
        "        14., 15., 16., 17., 18., 19., 20., 21., 22., 23., 24., 25., 26., 27.,",
        "        28., 29.])",
    )


def test_a_thousand_elements_print_in_full() -> None:
    assert "..." not in repr(weft.tensor(np.zeros(1000)))


def test_more_elements_are_shown_by_their_edges() -> None:
    assert repr(weft.tensor(np.arange(1200))) == "tensor([   0,    1,    2,  ..., 1197, 1198, 1199])"
    assert repr(weft.tensor(np.arange(4000).reshape(40, 2, 50))) == lines(
        "tensor([[[   0,    1,    2,  ...,   47,   48,   49],",
        "         [  50,   51,   52,  ...,   97,   98,   99]],",
        "",
        "        [[ 100,  101,  102,  ...,  147,  148,  149],",
        "         [ 150,  151,  152,  ...,  197,  198,  199]],",
        "",
        "        [[ 200,  201,  202,  ...,  247,  248,  249],",
        "         [ 250,  251,  252,  ...,  297,  298,  299]],",
        "",
        "        ...,",
        "",
        "        [[3700, 3701, 3702,  ..., 3747, 3748, 3749],",
        "         [3750, 3751, 3752,  ..., 3797, 3798, 3799]],",
        "",
        "        [[3800, 3801, 3802,  ..., 3847, 3848, 3849],",
        "         [3850, 3851, 3852,  ..., 3897, 3898, 3899]],",
        "",
        "        [[3900, 3901, 3902,  ..., 3947, 3948, 3949],",
        "         [3950, 3951, 3952,  ..., 3997, 3998, 3999]]])",
    )


def test_format_of_a_summary_is_chosen_from_what_is_shown() -> None:
    values = np.ones(2000, np.float32)
    values[1000] = 1e-9
    assert repr(weft.tensor(values)) == "tensor([1., 1., 1.,  ..., 1., 1., 1.])"


def test_note_that_does_not_fit_goes_to_a_new_line() -> None:
    x = weft.tensor(np.linspace(0.0, 1.0, 8), dtype=weft.float64, requires_grad=True)
    assert repr(x) == lines(
        "tensor([0.0000, 0.1429, 0.2857, 0.4286, 0.5714, 0.7143, 0.8571, 1.0000],",
        "       dtype=weft.float64, requires_grad=True)",
    )


def test_non_contiguous_tensor_prints_like_its_copy() -> None:
    values = np.arange(6.0).reshape(2, 3).T
    assert repr(weft.tensor(values)) == repr(weft.tensor(values.copy()))


def test_traced_value_prints_its_type_and_place() -> None:
    seen: list[str] = []

    def f(x: Any) -> Any:
        seen.append(repr(x))
        return x * 2

    weft.vmap(f)(weft.ones((4, 3)))
    assert seen == ["tensor(<f32[3] inside vmap>)"]


def test_precision_threshold_edgeitems_and_linewidth_are_obeyed() -> None:
    weft.set_printoptions(precision=2, threshold=4, edgeitems=1)
    assert repr(weft.tensor([0.123, 2.0, 3.0, 4.0, 5.567])) == "tensor([0.12,  ..., 5.57])"
    weft.set_printoptions(profile="default", linewidth=20)
    assert repr(weft.tensor([1, 2, 3, 4, 5, 6])) == lines("tensor([1, 2, 3, 4,", "        5, 6])")


def test_sci_mode_forces_or_forbids_scientific_notation() -> None:
    weft.set_printoptions(sci_mode=True)
    assert repr(weft.tensor([0.5])) == "tensor([5.0000e-01])"
    weft.set_printoptions(sci_mode=False)
    assert repr(weft.tensor([0.5, 1e-5])) == "tensor([0.5000, 0.0000])"
    weft.set_printoptions()
    assert repr(weft.tensor([0.5])) == "tensor([0.5000])"


def test_full_profile_never_summarises() -> None:
    weft.set_printoptions(profile="full")
    assert "..." not in repr(weft.tensor(np.zeros(5000)))


def test_printoptions_puts_back_what_was_set_before_also_after_an_error() -> None:
    weft.set_printoptions(precision=1)
    with pytest.raises(KeyError), weft.printoptions(precision=3):
        assert repr(weft.tensor([0.5])) == "tensor([0.500])"
        raise KeyError
    assert repr(weft.tensor([0.5])) == "tensor([0.5])"


def test_bad_options_are_refused_and_change_nothing() -> None:
    with pytest.raises(ArgumentError, match=r"set_printoptions: precision must be an int, got 'x'"):
        weft.set_printoptions(precision="x")  # type: ignore[arg-type]
    with pytest.raises(DomainError, match=r"set_printoptions: edgeitems must not be negative, got -1"):
        weft.set_printoptions(precision=1, edgeitems=-1)
    with pytest.raises(ArgumentError, match=r"profile must be one of default, short, full, got 'tiny'"):
        weft.set_printoptions(profile="tiny")
    assert repr(weft.tensor([0.5])) == "tensor([0.5000])"

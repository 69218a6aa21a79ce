"""The cases of docs/compared.md: what other frameworks refuse or get wrong works here, or names the line."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from weft.errors import BoundsError, CaptureError, ShapeError, TraceGuardError

CASES_FOLDER = Path(__file__).parents[2] / "bench" / "compared"


@pytest.fixture(scope="module")
def cases() -> Any:
    sys.path.insert(0, str(CASES_FOLDER))
    try:
        importlib.import_module("with_weft")
        yield importlib.import_module("runner").CASES
    finally:
        sys.path.remove(str(CASES_FOLDER))


def rounded(x: Any) -> Any:
    if isinstance(x, float):
        return round(x, 4)
    return type(x)(map(rounded, x)) if isinstance(x, tuple | list) else x


RESULTS: dict[str, Any] = {
    "branch_on_a_tensor": ([2.0, 2.0], [-3.0, -3.0]),
    "newton_until_convergence": 1.4142,
    "early_returns": [[2.0, 2.0], [3.0, -3.0], [-4.0, 4.0]],
    "mask_as_an_index": ([2.0, 6.0], [2.0]),
    "item_assignment": [0.0, 1.0, 2.0],
    "list_grown_until_a_condition": ([[2.0, 2.0], [4.0, 4.0], [8.0, 8.0]], 4),
    "break_on_a_tensor": [8.0, 8.0],
    "loop_over_a_tensors_range": ([8.0, 8.0], [1.0, 1.0]),
}

# Cases that give (results..., "right: ..."), by the results.
TOLD: dict[str, tuple[Any, ...]] = {
    "counter_outside": (3,),
    "global_changed": (2.0, 5.0),
    "array_changed": ([1.0, 1.0], [7.0, 7.0]),
    "attribute_changed": (2.0, 1.0),
    "gradient_of_where": ([0.0, 1.0],),
    "vmap_of_a_branch": ([0.0, 0.5],),
    "value_as_a_number": ([3.0, 3.0, 3.0], [12.0, 12.0, 12.0]),
    "whole_training_step_as_one_graph": (3.0, 1.92),
    "double_backward": ([12.0],),
    "large_whole_numbers": ((2**31 - 1) * 1000,),
    "parameter_replaced": ([1.0, 1.0], [5.0, 5.0]),
    "while_loop_in_reverse_with_vmap": ([0.3536, 0.1667],),
}

ERRORS: dict[str, tuple[type[Exception], str]] = {
    "trace_takes_the_other_branch": (TraceGuardError, "if x.sum() > 0:"),
    "tensor_kept_outside": (CaptureError, "kept.append(x * 2)"),
    "assertion_on_a_tensor": (AssertionError, "must be positive"),
    "index_out_of_bounds": (BoundsError, "lambda x, i: x[i]"),
    "numpy_random_inside": (CaptureError, "np.random.rand()"),
    "shape_error_inside": (ShapeError, "return h @ w"),
}


@pytest.mark.parametrize("name", sorted(RESULTS))
def test_case_gives(cases: dict[str, Callable[[], Any]], name: str) -> None:
    assert rounded(cases[name]()) == RESULTS[name]


@pytest.mark.parametrize("name", sorted(TOLD))
def test_case_gives_what_is_right(cases: dict[str, Callable[[], Any]], name: str) -> None:
    assert rounded(cases[name]())[:-1] == TOLD[name]


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_case_raises_and_names_the_line(cases: dict[str, Callable[[], Any]], name: str) -> None:
    kind, text = ERRORS[name]
    with pytest.raises(kind) as caught:
        cases[name]()
    assert text in str(caught.value)


def test_twenty_settings_are_all_captured_with_one_warning(cases: dict[str, Callable[[], Any]]) -> None:
    with pytest.warns(UserWarning, match="captured 9 times") as caught:
        assert cases["twenty_settings_of_one_function"]() == "20 of 20 right"
    assert len(caught) == 1


def test_gradient_of_a_while_loop(cases: dict[str, Callable[[], Any]]) -> None:
    assert abs(cases["gradient_of_a_while_loop"]()[0] - 0.3536) < 2e-3


def test_print_shows_values_at_each_run(
    cases: dict[str, Callable[[], Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    cases["print_inside"]()
    assert capsys.readouterr().out == "value tensor([1.])\nvalue tensor([3.])\n"


def test_compile_time_does_not_grow_with_the_loop(cases: dict[str, Callable[[], Any]]) -> None:
    words = cases["compile_time_of_loops"]().replace(",", "").split()
    short, long = float(words[2]), float(words[10])
    assert long < 3 * short + 0.05

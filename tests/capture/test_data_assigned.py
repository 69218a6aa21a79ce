"""``x.data = y`` in captured code: what eager code leaves, or an error where tensors would come apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft
from weft.errors import CaptureError


def left_by(function: Callable[..., Any]) -> list[Any]:
    """All that two calls leave and give, and what others see when each of them is changed after a call."""
    x, y = weft.tensor([1.0, 2.0]), weft.tensor([3.0, 4.0])
    seen = []
    for _ in range(2):
        out = function(x, y)
        reached = [x, y, *([] if out is None else [out])]
        seen += [t.numpy().tolist() for t in reached]
        for k, t in enumerate(reached):
            t.detach().mul_(0.5).add_(k)
        seen += [t.numpy().tolist() for t in reached]
    return seen


def new_values(x: Any, y: Any) -> None:
    x.data = y * 2.0


def swapped(x: Any, y: Any) -> None:
    x.data, y.data = y.data, x.data


def twice(x: Any, y: Any) -> None:
    x.data = y
    x.data = y.clone()


def in_a_branch(x: Any, y: Any) -> None:
    if y.sum() > 6.0:
        x.data = y * 3.0


def in_a_loop(x: Any, y: Any) -> None:
    for _ in range((x.sum() * 0.0).int() + 3):
        x.data = x.data - 0.1 * y


def beside_a_view(x: Any, y: Any) -> Any:
    before = x.data
    x.data = y * 2.0
    before.add_(1.0)
    return before


def of_one_that_dies(x: Any, y: Any) -> Any:
    z = weft.zeros(2)
    z.data = y
    return z + 1.0


@pytest.mark.parametrize(
    "function", [new_values, swapped, twice, in_a_branch, in_a_loop, beside_a_view, of_one_that_dies]
)
def test_assigned_data_are_those_of_eager_code(function: Callable[..., Any]) -> None:
    assert left_by(weft.compile(function)) == left_by(function)


def both_outside(x: Any, y: Any) -> None:
    x.data = y


def through_detach(x: Any, y: Any) -> None:
    x.data = y.data


def source_returned(x: Any, y: Any) -> Any:
    z = y * 2.0
    x.data = z
    return z


def taker_returned(x: Any, y: Any) -> Any:
    z = weft.zeros(2)
    z.data = y
    return z


def on_one_way(x: Any, y: Any) -> None:
    if y.sum() > 6.0:
        x.data = y


def one_of_several_in_a_branch(x: Any, y: Any) -> None:
    z = y
    if y.sum() > 6.0:
        z = y[:]
    x.data = z


@pytest.mark.parametrize(
    "function",
    [
        both_outside,
        through_detach,
        source_returned,
        taker_returned,
        on_one_way,
        one_of_several_in_a_branch,
    ],
)
def test_two_that_share_elements_after_a_call_are_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(CaptureError, match=r"(?s)data.*test_data_assigned\.py.*\.data = .*hint: .*clone\(\)"):
        left_by(weft.compile(function))


@pytest.mark.parametrize("view", [False, True])
@pytest.mark.parametrize("tensor", ["an argument", "from outside"])
def test_one_of_several_outside_that_is_taken_over_is_refused(tensor: str, view: bool) -> None:
    items, kept = [weft.tensor([5.0, 6.0]), weft.tensor([7.0, 8.0])], weft.tensor([0.0, 0.0])

    def f(x: Any, y: Any) -> None:
        taker = x if tensor == "an argument" else kept
        item = items[int(y.sum()) % 2]
        taker.data = item[:] if view else item

    with pytest.raises(CaptureError, match=r"(?s)data.*taker\.data = item.*hint: .*clone\(\)"):
        weft.compile(f)(weft.tensor([1.0, 2.0]), weft.tensor([3.0, 4.0]))


def source_changed(x: Any, y: Any) -> None:
    z = y * 2.0
    x.data = z
    z.add_(1.0)


def taker_changed(x: Any, y: Any) -> Any:
    z = weft.zeros(2)
    z.data = y.data
    for _ in range((x.sum() * 0.0).int() + 3):
        z += 1.0
    return z * 1.0


@pytest.mark.parametrize("function", [source_changed, taker_changed])
def test_a_change_that_both_would_see_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(
        CaptureError, match=r"(?s)must not be one with others, got one of the assignment of data"
    ):
        left_by(weft.compile(function))


def test_views_from_outside_keep_what_they_show() -> None:
    compiled = weft.compile(new_values)
    x, y = weft.tensor([1.0, 2.0]), weft.tensor([3.0, 4.0])
    compiled(x, y)  # captured while there is no view
    view, base = x[0], weft.zeros(2, 2)
    with pytest.raises(CaptureError, match="has views"):
        compiled(x, y)
    with pytest.raises(CaptureError, match="is a view"):
        compiled(base[0], y)
    assert view.item() == 6.0
    assert base.numpy().tolist() == [[0.0, 0.0], [0.0, 0.0]]
    del view
    compiled(x, y * 2.0)
    assert x.numpy().tolist() == [12.0, 16.0]


def test_views_that_a_way_would_leave_behind_are_refused() -> None:
    def left_on_one_way(x: Any, y: Any) -> None:
        before = x.detach()
        if y.sum() > 6.0:
            x.data = y * 2.0
        before.add_(1.0)

    with pytest.raises(CaptureError, match="in a branch or loop while views live"):
        left_by(weft.compile(left_on_one_way))


def test_a_tensor_that_a_variable_may_be_is_not_replaced() -> None:
    def of_one_way(x: Any, y: Any) -> Any:
        z = y
        if y.sum() > 6.0:
            z = x
        x.data = y * 2.0
        return z * 1.0

    with pytest.raises(CaptureError, match="a variable may be this tensor or another one"):
        left_by(weft.compile(of_one_way))


def test_a_change_that_reaches_a_result_late_begins_the_capture_again() -> None:
    def called(compiled: bool) -> list[Any]:
        base = weft.tensor([[0.4, -0.1, 0.2], [0.6, 0.2, -0.6]])
        first, items = base[0], [weft.tensor([0.3, 0.1, -0.2]), base.view(-1)[2:5]]

        def f(at: Any, n: Any) -> Any:
            items[1][at].mul_(0.5)
            return first, items[int(n) % 2] - 0.25

        function = weft.compile(f) if compiled else f
        return [
            [x.tolist() for x in (*function(weft.tensor(at), weft.tensor(n)), base)]
            for at, n in ((0, 1), (1, 0))
        ]

    assert called(True) == called(False)


def test_views_from_outside_that_the_code_has_met_keep_what_they_show() -> None:
    t = weft.tensor([1.0, 2.0, 3.0])
    view = t[:2]

    @weft.compile
    def step(x: weft.Tensor) -> weft.Tensor:
        total = view.sum()
        t.data = x * 2.0
        return total + t.sum()

    with pytest.raises(CaptureError, match="must not be replaced while others show the old elements"):
        step(weft.ones(3))
    view.add_(1.0)
    assert t.tolist() == [2.0, 3.0, 3.0]

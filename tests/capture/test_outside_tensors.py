"""Tensors from outside, in every form in which code reads them: each call sees what they hold by then."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.nn import functional

Form = Callable[[Any, Any, Any], Any]  # of eight elements, a position and a number


def assigned(k: Any, at: Any, x: Any) -> Any:
    k[at] = x
    return k.sum()


def assigned_in_a_row(k: Any, at: Any, x: Any) -> Any:
    k.reshape(2, 4)[1, at] = x
    return k


def assigned_beside_dots(k: Any, at: Any, x: Any) -> Any:
    k[at, ...] = x
    return k


def assigned_to_data(k: Any, at: Any, x: Any) -> Any:
    k.data[at] = x
    return k


def assigned_a_slice(k: Any, at: Any, x: Any) -> Any:
    k[at : at + 2] = x
    return k


def assigned_at_several(k: Any, at: Any, x: Any) -> Any:
    k[[at, at + 1]] = x
    return k


def assigned_where(k: Any, at: Any, x: Any) -> Any:
    k[k > x] = at
    return k


def added(k: Any, at: Any, x: Any) -> Any:
    k[at] += x
    return k


def view_changed(k: Any, at: Any, x: Any) -> Any:
    view = k[at]
    view.add_(x)
    return view


FORMS: dict[str, Form] = {
    "an index": lambda k, at, x: k[at] + x,
    "an index of a row": lambda k, at, x: k.view(2, 4)[at % 2][at] + x,
    "an index beside dots": lambda k, at, x: k[..., at] + k[None, at] + x,
    "bounds": lambda k, at, x: k[at : at + 2].sum() + x,
    "an assignment": assigned,
    "an assignment in a row of a view": assigned_in_a_row,
    "an assignment beside dots": assigned_beside_dots,
    "an assignment to data": assigned_to_data,
    "an assignment of a slice": assigned_a_slice,
    "an assignment at several": assigned_at_several,
    "an assignment where": assigned_where,
    "an addition": added,
    "a change of a view": view_changed,
    "an item of a list": lambda k, at, x: [k, k * 2.0, k * 3.0, k * 4.0, k * 5.0][at] + x,
    "a part": lambda k, at, x: k.unbind()[at] + k.split(4)[at % 2] + x,
    "a length": lambda k, at, x: k.narrow(0, at, 2) + weft.arange(2) + x,
    "a size": lambda k, at, x: weft.zeros(at + 1) + x,
    "a shift": lambda k, at, x: weft.roll(k, int(at)) + x,
    "a class": lambda k, at, x: functional.one_hot(at, 8) + x,
    "a key": lambda k, at, x: {0: k, 1: k * 2.0, 2: k * 3.0, 3: k * 4.0}[int(at)] + x,
    "a number": lambda k, at, x: k * at.item() + float(x) + round(float(x)),
    "a test": lambda k, at, x: k if at > 1 else k * x,
    "a power": lambda k, at, x: k**at + x,
    "a bound of values": lambda k, at, x: weft.clip(k, min=at, max=x),
    "a fill": lambda k, at, x: weft.full_like(k, x) + weft.zeros(8).fill_(x) + at,
    "a deep copy": lambda k, at, x: copy.deepcopy(k) * copy.deepcopy(x),
    "a deep copy that changes": lambda k, at, x: copy.deepcopy([k, k])[0].add_(x) + k,
    "a copy": lambda k, at, x: copy.copy(k) * x,
    "a tensor of a tensor": lambda k, at, x: weft.asarray(k) + weft.tensor(x.tolist()),
    "NumPy": lambda k, at, x: weft.tensor(k.numpy() + 1.0) * x,
    "membership": lambda k, at, x: k if 10.0 in x.reshape(1) else -k,
    "comparison": lambda k, at, x: k if x.equal(weft.tensor(10.0)) else -k,
    "a sum of items": lambda k, at, x: sum(list(k)) + x,
    "the largest": lambda k, at, x: max(k[0], x) + sorted([k[1], x])[0],
}


def results(form: Form, change: str, wrap: Callable[[Any], Any]) -> list[Any]:
    """What four calls give and leave; the tensors change in the function, or between calls."""
    k, at, x = weft.arange(8).astype(weft.float32), weft.tensor(0), weft.tensor(10.0)

    def in_place() -> Any:
        out = form(k, at, x)
        at.add_(1)
        x.sub_(2.0)
        return out

    def rebound() -> Any:
        nonlocal at, x
        out = form(k, at, x)
        at, x = at + 1, x - 2.0
        return out

    function = wrap({"in place": in_place, "rebound": rebound, "between": lambda: form(k, at, x)}[change])
    seen = []
    for _ in range(4):
        seen.append(function().tolist())
        if change == "between":
            at.add_(1)
            x.sub_(2.0)
    return [*seen, k.tolist(), at.tolist(), x.tolist()]


@pytest.mark.rotating(4)
@pytest.mark.parametrize("change", ["in place", "rebound", "between"])
@pytest.mark.parametrize("name", FORMS)
def test_each_call_sees_what_tensors_from_outside_hold(name: str, change: str) -> None:
    expected = results(FORMS[name], change, lambda f: f)
    assert results(FORMS[name], change, lambda f: weft.compile(f, backend="interpret")) == expected


@pytest.mark.parametrize("name", ["an index", "an assignment", "a change of a view", "a deep copy"])
def test_traced_and_compiled_calls_see_it_too(name: str) -> None:
    expected = results(FORMS[name], "in place", lambda f: f)
    assert results(FORMS[name], "in place", lambda f: weft.compile(f, capture="trace")) == expected
    assert results(FORMS[name], "in place", weft.compile) == expected


def test_a_module_may_be_copied_in_captured_code() -> None:
    layer = weft.nn.Linear(2, 2)

    def copied(x: Any) -> Any:
        return copy.deepcopy(layer)(x)

    compiled = weft.compile(copied)
    for _ in range(2):
        assert weft.allclose(compiled(weft.ones(2)), layer(weft.ones(2)))
        with weft.no_grad():
            layer.weight.mul_(2.0)


def test_running_statistics_change_in_place_so_that_views_see_it() -> None:
    both = weft.zeros(2, 3)
    for function in (functional.batch_norm, weft.compile(functional.batch_norm)):
        both.zero_()
        mean, variance = both[0], both[1]
        function(weft.ones(4, 3), mean, variance, training=True)
        assert both.tolist() == [mean.tolist(), variance.tolist()]
        assert mean.tolist() == pytest.approx([0.1] * 3)


def test_lists_of_positions_may_hold_tensors() -> None:
    def solve(a: Any, b: Any) -> Any:
        """Gauss with pivots, which swaps rows."""
        a, b = a.clone(), b.clone()
        size = a.shape[0]
        for i in range(size):
            p = a[i:, i].abs().argmax() + i
            if p != i:
                a[[i, p]] = a[[p, i]]
                b[[i, p]] = b[[p, i]]
            for j in range(i + 1, size):
                m = a[j, i] / a[i, i]
                a[j] -= m * a[i]
                b[j] -= m * b[i]
        x = weft.zeros(size)
        for i in range(size - 1, -1, -1):
            x[i] = (b[i] - (a[i, i + 1 :] * x[i + 1 :]).sum()) / a[i, i]
        return x

    a = weft.tensor([[0.0, 2.0, 1.0], [1.0, 1.0, 1.0], [2.0, 0.0, 3.0]])
    found = weft.compile(solve)(a, weft.tensor([3.0, 3.0, 5.0]))
    assert weft.allclose(found, weft.ones(3), atol=1e-5)


def test_broadcast_array_in_a_graph_is_its_number_at_the_capture() -> None:
    number = np.ones((1, 1), np.float32)
    wide = np.broadcast_to(number, (50, 40))
    graph = weft.make_graph(lambda x: x * wide)(weft.ones(50, 40))
    number[:] = 7.0
    (kept,) = graph.constants.values()
    assert kept.strides == (0, 0)
    assert (kept == 1.0).all()
    rows = np.broadcast_to(np.arange(40, dtype=np.float32), (50, 40))
    graph = weft.make_graph(lambda x: x * rows)(weft.ones(50, 40))
    (kept,) = graph.constants.values()
    np.testing.assert_array_equal(kept, rows)

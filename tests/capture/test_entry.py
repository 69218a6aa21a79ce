"""The quick way into a version: it takes the calls that the general way takes, in few microseconds."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import weft
from tests.timing import least_seconds
from weft import nn
from weft.capture.record.entry import MISS


def entered(f: Any, *args: Any) -> bool:
    """Whether the newest version takes a call at once."""
    return f._kept.newest.enter(args) is not MISS


def add(x: Any, y: Any) -> Any:
    return x + y


def test_calls_of_the_same_types_are_taken() -> None:
    f = weft.compile(add)
    f(weft.ones(2), weft.ones(2))
    x, y = weft.zeros(2), weft.tensor([3.0, 4.0])
    assert f._kept.newest.enter((x, y)).tolist() == [3.0, 4.0]
    assert entered(f, weft.tensor(np.ones(2, np.float32)), y)  # whose form nobody has asked for yet


OTHERS: dict[str, tuple[Any, ...]] = {
    "shape": (weft.ones(3), weft.ones(3)),
    "dtype": (weft.ones(2, dtype=weft.float64), weft.ones(2)),
    "int": (weft.ones(2, dtype=weft.int32), weft.ones(2)),
    "number": (weft.ones(2), 1.0),
    "array": (weft.ones(2), np.ones(2, np.float32)),
    "fewer": (weft.ones(2),),
    "more": (weft.ones(2), weft.ones(2), weft.ones(2)),
    "gradient": (weft.ones(2, requires_grad=True), weft.ones(2)),
    "list": ([weft.ones(2)], weft.ones(2)),
    "none": (None, weft.ones(2)),
}


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_other_calls_are_not_taken(name: str) -> None:
    f = weft.compile(add)
    f(weft.ones(2), weft.ones(2))
    assert not entered(f, *OTHERS[name])


def test_one_tensor_twice_is_another_call() -> None:
    f = weft.compile(add)
    x, y = weft.ones(2), weft.ones(2)
    f(x, y)
    assert entered(f, y, x)
    assert not entered(f, x, x)
    f(x, x)
    assert entered(f, y, y)
    assert not entered(f, x, y)
    many = weft.compile(lambda *xs: sum(xs[1:], xs[0]))
    xs = [weft.ones(1) for _ in range(6)]
    many(*xs)
    assert entered(many, *reversed(xs))
    assert not entered(many, *xs[:5], xs[0])


def test_tensors_without_a_form_are_taken_by_shape_and_dtype() -> None:
    f = weft.compile(lambda x, i: x[i])
    f(weft.ones(4), weft.tensor([1, 2]))
    assert f._kept.newest.enter((weft.arange(4.0), weft.tensor([3, 0]))).tolist() == [3.0, 0.0]
    assert not entered(f, weft.ones(4), weft.tensor([1]))
    assert not entered(f, weft.ones(4), weft.tensor([1, 2], dtype=weft.int32))


def test_plain_values_are_compared_by_type_and_value() -> None:
    f = weft.compile(lambda x, n, name, flag, other: x * n if flag else x)
    x, something = weft.ones(2), object()
    f(x, 2, "a", True, something)
    assert entered(f, x, 2, "a", True, something)
    for others in (
        (3, "a", True, something),
        (2.0, "a", True, something),
        (True, "a", True, something),
        (2, "b", True, something),
        (2, "a", 1, something),
        (2, "a", True, object()),
        (2, "a", True, None),
    ):
        assert not entered(f, x, *others)


def test_floats_that_are_inputs_are_taken() -> None:
    f = weft.compile(lambda x, a, y, b: x * a + y * b)
    x, y = weft.ones(1), weft.ones(1)
    f(x, 0.5, y, 0.25)
    f(x, 1.5, y, 0.75)
    assert f._kept.newest.enter((x, 2.0, y, 3.0)).item() == 5.0
    assert not entered(f, x, 2, y, 3.0)


def test_zero_and_nan_are_told_apart() -> None:
    f = weft.compile(lambda x, a: weft.copysign(x, weft.tensor(a)))
    assert f(weft.ones(1), 0.0).item() == 1.0
    assert f(weft.ones(1), -0.0).item() == -1.0
    assert f(weft.ones(1), 0.0).item() == 1.0


def test_named_sizes_are_bound_once_for_all_arguments() -> None:
    f = weft.compile(add)
    for n in (2, 3):
        f(weft.ones(n, 2), weft.ones(n, 2))
    assert entered(f, weft.ones(9, 2), weft.ones(9, 2))
    for shapes in (
        ((9, 2), (8, 2)),
        ((9, 3), (9, 3)),
        ((1, 2), (1, 2)),
        ((0, 2), (0, 2)),
        ((9, 2, 1), (9, 2)),
    ):
        assert not entered(f, *map(weft.ones, shapes))


def test_modes_are_part_of_the_call() -> None:
    w = weft.ones(2, requires_grad=True)
    f = weft.compile(lambda x: x * w)
    x = weft.ones(2)
    f(x)
    assert entered(f, x)
    with weft.no_grad():
        assert not entered(f, x)
        assert not f(x).requires_grad
        assert entered(f, x)
    assert not entered(f, x)
    assert f(x).requires_grad
    weft.set_default_dtype(weft.float64)
    try:
        assert not any(version.enter((x,)) is not MISS for version in f.versions)
    finally:
        weft.set_default_dtype(weft.float32)


def test_tensor_that_the_function_changes_is_no_argument() -> None:
    state = weft.zeros(2)

    @weft.compile
    def f(x: Any) -> Any:
        nonlocal state
        state += x
        return state * x

    f(weft.ones(2))
    assert entered(f, weft.ones(2))
    assert not entered(f, state)


def test_inside_a_capture_a_compiled_function_is_a_part_of_the_graph() -> None:
    inner = weft.compile(lambda x: x * 2.0)
    inner(weft.ones(2))
    outer = weft.compile(lambda x: inner(x) + 1.0)
    assert outer(weft.ones(2)).tolist() == [3.0, 3.0]
    assert [node.op.name for node in outer.graph.optimize().nodes] == ["mul", "add"]


def test_calls_go_on_while_another_thread_captures() -> None:
    w = weft.ones(2)
    f = weft.compile(lambda x: x * w)
    x = weft.ones(2)
    f(x)
    inside, busy = threading.Event(), threading.Lock()
    busy.acquire()

    def slow(y: Any) -> Any:
        inside.set()
        busy.acquire(timeout=5)
        return y * 2.0

    other = threading.Thread(target=lambda: weft.compile(slow)(weft.ones(3)))
    other.start()
    inside.wait(5)
    assert f(x).tolist() == [1.0, 1.0]
    busy.release()
    other.join()


def test_version_used_last_comes_first() -> None:
    f = weft.compile(add)
    a, b = (weft.ones(2), weft.ones(2)), (weft.ones(2, dtype=weft.int32), weft.ones(2, dtype=weft.int32))
    f(*a), f(*b)
    first = f.versions[0]
    f(*a)
    assert f.versions[1] is first
    f(*b)
    assert f.versions[0] is first


def test_function_that_nobody_needs_is_gone_at_once_with_what_it_holds() -> None:
    class Net:
        def __init__(self) -> None:
            self.w = weft.ones(3, requires_grad=True)

        def __call__(self, x: Any) -> Any:
            return (x * self.w).sum()

    net = Net()
    f = weft.compile(net)
    for n in (3, 3):
        f(weft.ones(n)).backward()
    held = weakref.ref(net.w)
    gc.disable()
    try:
        del f, net
        assert held() is None
    finally:
        gc.enable()


def microseconds(run: Any, enough: float) -> float:
    def many() -> None:
        for _ in range(300):
            run()

    return least_seconds(many, enough * 300e-6) / 300e-6


def nothing(graph: Any) -> Any:
    """A backend that computes nothing."""
    results = [np.zeros(v.type.shape, v.type.dtype) for v in graph.results]
    return lambda arrays: results


def test_call_of_four_tensors_costs_few_microseconds() -> None:
    f = weft.compile(lambda a, b, c, d: a * b + c * d, backend=nothing)
    xs = [weft.ones(8) for _ in range(4)]
    f(*xs)
    assert microseconds(lambda: f(*xs), 10) < 10  # about 1 on a quiet machine


def test_call_of_a_module_costs_few_microseconds() -> None:
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    model.requires_grad_(False)
    f = weft.compile(model, backend=nothing)
    x = weft.ones(1, 8)
    f(x)
    assert microseconds(lambda: f(x), 10) < 10  # about 1.2 on a quiet machine

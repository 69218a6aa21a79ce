"""Calls in captured code: what is converted, transforms, recursion, attributes and objects."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import weft
from tests.capture.agree import check_agrees, compiled, row
from weft.errors import CaptureError

UP, DOWN = (row(4, 2, 3),), (row(-4, -2, -3),)
scale = 2.0
settings: dict[str, Any] = {"factor": 2.0}


def helper(x: Any, k: float = 2.0) -> Any:
    if x.sum() > k:
        return x * k
    return x / k


def doubled(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        out = function(*args, **kwargs)
        return out * 2 if out.sum() > 0 else out

    return wrapper


@doubled
def decorated(x: Any) -> Any:
    return x if x[0] > 0 else x * 3


class Layer:
    def __init__(self, weight: Any) -> None:
        self.weight = weight
        self.calls = 0
        self.mode = "a"

    def __call__(self, x: Any) -> Any:
        return self.forward(x)

    def forward(self, x: Any) -> Any:
        if self.mode == "a":
            return helper(x * self.weight)
        return x + self.weight

    @staticmethod
    def plain(x: Any) -> Any:
        return x if x.sum() > 0 else -x

    @classmethod
    def made(cls, x: Any) -> Any:
        return cls(x)(x)


class Deeper(Layer):
    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        return y if y[0] > 0 else -y


def test_functions_methods_and_callable_objects_are_converted() -> None:
    layer = Deeper(weft.ones(3) * 2)

    def f(x: Any) -> Any:
        return layer(x) + Layer.plain(x) + layer.forward(-x) + Layer.made(x) + decorated(x)

    check_agrees(f, UP, DOWN)


def test_lambdas_partials_and_nested_functions() -> None:
    def f(x: Any) -> Any:
        k = 3.0

        def inner(t: Any, *more: Any, extra: float = 1.0, **kw: Any) -> Any:
            return t * k if t[0] > 0 else t * extra + kw["b"] + more[0]

        small = functools.partial(helper, k=5.0)
        choose: Any = lambda t: t * 2 if t[0] > 0 else t * 3  # noqa: E731
        return small(x) + choose(x) + inner(x, 1.0, extra=4.0, b=2.0)

    check_agrees(f, UP, DOWN)


def test_map_and_functions_from_containers() -> None:
    def f(x: Any) -> Any:
        a = list(map(helper, [x, -x]))
        b = [g(x) for g in (helper, weft.sin, decorated)]
        return a[0] + a[1] + sum(b)

    check_agrees(f, UP, DOWN)


def test_recursion_of_known_depth() -> None:
    def power(x: Any, n: int) -> Any:
        return x if n == 0 else x * power(x, n - 1)

    check_agrees(lambda x: power(x, 4), UP)


def test_recursion_that_a_tensor_ends_is_an_error() -> None:
    def grow(x: Any) -> Any:
        if x.sum() > 100:
            return x
        return grow(x * 2)

    with pytest.raises(CaptureError, match="must not call itself without end while it is captured") as caught:
        compiled(grow)(weft.tensor(UP[0]))
    assert "return grow(x * 2)" in str(caught.value)
    assert "`while` loop" in str(caught.value)


def test_functions_given_to_transforms_are_converted() -> None:
    def f(x: Any) -> Any:
        slope = weft.grad(lambda t: (t**3).sum() if t.sum() > 0 else t.sum())(x)
        value, tangent = weft.jvp(lambda t: t * t if t[0] > 0 else -t, (x,), (weft.ones(3),))
        again = weft.checkpoint(lambda t: helper(t), x)
        return slope + value + tangent + again

    check_agrees(f, UP, DOWN)


def test_vmap_of_a_choice() -> None:
    def f(x: Any) -> Any:
        return weft.vmap(lambda t: t * 2 if t > 2.5 else t * 3)(x)

    found = compiled(f)(weft.tensor(UP[0]))
    np.testing.assert_array_equal(found.numpy(), np.where(UP[0] > 2.5, UP[0] * 2, UP[0] * 3))


def test_cond_and_scan_with_converted_functions() -> None:
    def f(x: Any) -> Any:
        y = weft.cond(x.sum() > 0, lambda t: t * 2 if t[0] > 1 else t, lambda t: -t, x)
        carry, ys = weft.scan(lambda c, t: (c + t if c > 0 else t, c), x[0], x)
        return y + carry + ys

    found = compiled(f)(weft.tensor(UP[0])).numpy()
    np.testing.assert_allclose(found, UP[0] * 2 + 13 + np.array([4, 8, 10]))


def test_globals_and_items_are_guarded() -> None:
    def f(x: Any) -> Any:
        return x * scale * settings["factor"]

    captured, x = compiled(f), weft.tensor(UP[0])
    global scale
    try:
        np.testing.assert_allclose(captured(x).numpy(), UP[0] * 4)
        scale = 3.0
        np.testing.assert_allclose(captured(x).numpy(), UP[0] * 6)
        settings["factor"] = 1.0
        np.testing.assert_allclose(captured(x).numpy(), UP[0] * 3)
    finally:
        scale, settings["factor"] = 2.0, 2.0


def test_attributes_are_guarded() -> None:
    layer = Layer(weft.ones(3))
    captured, x = compiled(lambda x: layer(x)), weft.tensor(UP[0])
    np.testing.assert_allclose(captured(x).numpy(), helper(x).numpy())
    layer.mode = "b"
    np.testing.assert_allclose(captured(x).numpy(), UP[0] + 1)
    layer.weight = weft.ones(3) * 5
    np.testing.assert_allclose(captured(x).numpy(), UP[0] + 5)


def test_tensors_in_attributes_and_dicts_are_changed_at_each_call() -> None:
    layer, store = Layer(weft.zeros(3)), {"sum": weft.zeros(3)}

    def f(x: Any) -> Any:
        layer.weight = layer.weight + x
        if x.sum() > 0:
            store["sum"] = store["sum"] + 1
        for _ in range(2):
            store["sum"] = store["sum"] * 2
        return layer.weight * 1

    captured = compiled(f)
    for _ in range(3):
        captured(weft.tensor(UP[0]))
    np.testing.assert_allclose(layer.weight.numpy(), UP[0] * 3)
    np.testing.assert_allclose(store["sum"].numpy(), [84.0] * 3)


def test_objects_made_inside_may_change_freely() -> None:
    def f(x: Any) -> Any:
        layer = Layer(x * 0)
        items = [0] * 3
        for i in range(3):
            layer.weight = layer.weight + x * i
            layer.calls += 1
        if x.sum() > 0:
            layer.weight = layer.weight * 2
            items[0] = 5
        items.append(1)
        return layer.weight * layer.calls + items[0], len(items)

    check_agrees(f, UP, DOWN)


@weft.no_grad()  # type: ignore[untyped-decorator]
def without_gradient(x: Any) -> Any:
    return x * 2 if x.sum() > 0 else x * 3


@functools.cache
def cached(k: int) -> Any:
    return [k * 2 if k > 1 else k]


by_row = weft.vmap(lambda t: t * 2 if t > 2.5 else t * 3)
slope = weft.grad(lambda x: (x * x).sum() if x.sum() > 0 else x.sum())


def test_wrappers_made_outside_are_made_again_around_converted_functions() -> None:
    def f(x: Any) -> Any:
        return without_gradient(x) * x + slope(x) + cached(2)[0]

    check_agrees(f, UP, DOWN)
    found = compiled(lambda x: by_row(x))(weft.tensor(UP[0]))
    np.testing.assert_array_equal(found.numpy(), np.where(UP[0] > 2.5, UP[0] * 2, UP[0] * 3))


def test_generators_and_unconverted_code_run_as_they_are() -> None:
    def pairs(x: Any) -> Any:
        for i in range(3):
            yield x * i

    def f(x: Any) -> Any:
        total = x * 0
        for part in pairs(x):
            total = total + part if total.sum() < 100 else total
        return total + np.float32(2.0) + sorted([3, 1, 2])[0]

    check_agrees(f, UP)


def test_converted_function_runs_outside_of_captures() -> None:
    from weft.capture.convert.functions import convert

    converted, x = convert(helper), weft.tensor(UP[0])
    np.testing.assert_array_equal(converted(x).numpy(), helper(x).numpy())
    np.testing.assert_array_equal(converted(-x, k=3.0).numpy(), helper(-x, k=3.0).numpy())

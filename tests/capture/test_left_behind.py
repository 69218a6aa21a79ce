"""What a call leaves behind: no tensor of a capture that has ended, and graphs like those of eager code."""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft


class Box:
    """Something that keeps what it is given."""

    last: Any = None


def object_array(x: Any) -> Any:
    made = np.empty(1, object)
    made[0] = x * 2
    return made


def with_class(x: Any) -> Any:
    class Made:
        """A class that holds a tensor."""

        value = x * 2

    return Made


HIDING: dict[str, Callable[[Any], Any]] = {
    "a class": with_class,
    "a class by type()": lambda x: type("Made", (), {"value": x * 2}),
    "a class in a list": lambda x: [{"a": (with_class(x), 1)}],
    "an object array": object_array,
    "a view of a dict": lambda x: types.MappingProxyType({"a": x * 2}),
    "a slice": lambda x: slice(0, x.sum() * 2),
    "a slice of an argument": lambda x: slice(x, None),
    "a slice of a number": lambda x: slice(0, int(x.sum())),
    "a set in a partial": lambda x: functools.partial(operator.add, [x * 2]),
}


@pytest.mark.parametrize("function", HIDING.values(), ids=HIDING)
def test_a_tensor_of_the_call_in_something_that_calls_do_not_make_is_an_error(function: Any) -> None:
    compiled = weft.compile(function)
    with pytest.raises(weft.errors.CaptureError, match=r"escaped|that holds a tensor"):
        compiled(weft.ones(2))


@pytest.mark.parametrize("function", HIDING.values(), ids=HIDING)
def test_a_tensor_of_the_call_that_is_stored_in_such_a_thing_is_an_error(function: Any) -> None:
    box = Box()

    @weft.compile
    def store(x: Any) -> Any:
        box.last = function(x)
        return x

    with pytest.raises(weft.errors.CaptureError, match=r"escaped|that holds a tensor"):
        store(weft.ones(2))
    assert box.last is None


def test_the_error_names_the_line_that_made_the_tensor() -> None:
    with pytest.raises(weft.errors.CaptureError, match=r"made at .*: value = x \* 2"):
        weft.compile(with_class)(weft.ones(2))


def test_things_from_outside_that_hold_tensors_from_outside_are_given_as_they_are() -> None:
    kept = (functools.partial(operator.add, weft.ones(2)), slice(0, 2), with_class(weft.ones(2)))
    f = weft.compile(lambda x: (x * 2, kept))
    assert f(weft.ones(2))[1][2] is kept[2]
    assert f(weft.ones(2))[1][0] is kept[0]


# Graphs that end in a transform


@pytest.mark.parametrize(
    "transform",
    [
        lambda f, x: weft.grad(f)(x),
        lambda f, x: weft.value_and_grad(f)(x)[1],
        lambda f, x: weft.vjp(f, x)[0],
        lambda f, x: weft.grad(lambda y: weft.grad(f)(y).sum())(x),
    ],
)
def test_what_the_function_of_a_gradient_stores_requires_grad(transform: Callable[..., Any]) -> None:
    found = []
    for wrap in (lambda f: f, weft.compile):
        box = Box()

        def loss(x: Any, box: Any = box) -> Any:
            box.last = [x * 2, x.detach() * 3]
            return (x * x * x).sum()

        run: Any = wrap(lambda x, loss=loss: transform(loss, x))
        for values in ([1.0, 2.0], [3.0, 4.0]):
            slope = run(weft.tensor(values))
            one, other = box.last
            found.append((slope.tolist(), one.tolist(), one.requires_grad, one.is_leaf, other.requires_grad))
    assert found[2:] == found[:2]
    assert found[0][2]


def test_what_hangs_on_a_leaf_that_is_gone_requires_grad() -> None:
    def f(x: Any) -> Any:
        return x.detach().requires_grad_() * 2

    for run in (f, weft.compile(f)):
        out = run(weft.ones(2))
        assert (out.requires_grad, out.is_leaf) == (True, False)
        out.sum().backward()


def test_a_leaf_that_leaves_with_what_hangs_on_it_is_refused() -> None:
    def pair(x: Any) -> Any:
        leaf = x.detach().requires_grad_()
        return leaf, leaf * 2

    with pytest.raises(weft.errors.CaptureError, match="must not leave it with what was computed from it"):
        weft.compile(pair)(weft.ones(2))
    leaf = weft.compile(lambda x: x.detach().requires_grad_())(weft.ones(2))
    assert (leaf.requires_grad, leaf.is_leaf) == (True, True)


# Functions that libraries call


def test_a_comparison_as_a_key_is_followed() -> None:
    sign = [1.0]

    def compare(a: float, b: float) -> float:
        return (a - b) * sign[0]

    def f(x: Any) -> Any:
        items = [3.0, 1.0, 2.0]
        items.sort(key=functools.cmp_to_key(compare))
        first = max([1.0, 2.0], key=functools.cmp_to_key(compare))
        return sorted([3.0, 1.0, 2.0], key=functools.cmp_to_key(compare)), items, x * first

    compiled = weft.compile(f)
    for way in (1.0, -1.0, 1.0):
        sign[0] = way
        found, expected = compiled(weft.tensor(1.0)), f(weft.tensor(1.0))
        assert (*found[:2], found[2].item()) == (*expected[:2], expected[2].item())


def test_a_comparison_of_tensors_as_a_key_is_guarded() -> None:
    def f(x: Any) -> Any:
        return sorted([x, 3 - x], key=functools.cmp_to_key(lambda a, b: int(float(a - b))))

    compiled = weft.compile(f)
    for value in (1.0, 2.0, 1.0):
        assert [t.item() for t in compiled(weft.tensor(value))] == [1.0, 2.0]


def test_a_key_from_outside_that_compares_by_a_function_is_refused() -> None:
    key = functools.cmp_to_key(lambda a, b: a - b)
    with pytest.raises(weft.errors.CaptureError, match="must be made in captured code"):
        weft.compile(lambda x: sorted([x, x * 2], key=key))(weft.tensor(1.0))


class Tagged:
    """A class whose subclasses have a tag."""

    tag = 1.0

    def __init_subclass__(cls, tag: float = 1.0) -> None:
        super().__init_subclass__()
        cls.tag = tag


def test_classes_that_captured_code_makes_with_keywords() -> None:
    def f(x: Any) -> Any:
        made: Any = type("Made", (Tagged,), {}, tag=2.0)

        class Other(Tagged, tag=3.0):
            """Made by a statement."""

        return x * made.tag + Other.tag

    assert weft.compile(f)(weft.tensor(5.0)).item() == f(weft.tensor(5.0)).item() == 13.0

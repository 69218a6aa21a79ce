"""Methods that Python calls by itself run converted: effects on a way that is not taken do not happen.

Each form is run in a branch, in a loop and by itself, eager and compiled, over several calls; what the
methods change is compared, too. The methods decide by tensors themselves.
"""

from __future__ import annotations

from typing import Any

import pytest

import weft
from tests.capture.special_methods import attributes, containers, objects, operators  # noqa: F401 - enter forms
from tests.capture.special_methods.forms import FORMS, Form

# How they are run


def alone(function: Form, o: Any) -> Any:
    return lambda x: function(o, x)


def under_if(function: Form, o: Any) -> Any:
    def run(x: Any) -> Any:
        y = x * 1.0
        if x > 0.5:
            y = function(o, x)
        return y

    return run


def in_else(function: Form, o: Any) -> Any:
    def run(x: Any) -> Any:
        if x < 0.5:
            return x - 1.0
        else:
            return function(o, x) * 1.0

    return run


def in_loop(function: Form, o: Any) -> Any:
    def run(x: Any) -> Any:
        i = weft.tensor(0)
        y = x * 0.0
        while i < x:
            y = y + function(o, x)
            i = i + 1
        return y

    return run


def state_of(o: Any) -> list[Any]:
    names = ("n", "held", "z", "w", "other")
    found = [object.__getattribute__(o, k).tolist() for k in names if k in _names_of(o)]
    if isinstance(o, dict):
        found += [dict.get(o, "v").tolist()]
    if isinstance(o, list):
        found += [t.tolist() for t in list.__iter__(o)]
    return found


def _names_of(o: Any) -> Any:
    return o.__slots__ if isinstance(o, attributes.Slotted) else object.__getattribute__(o, "__dict__")


def record(kind: type, function: Form, way: Any, *, compiled: bool) -> list[Any]:
    o = kind()
    run = way(function, o)
    if compiled:
        run = weft.compile(run)
    found = []
    for value in (1.0, 0.0, 2.0, -1.0, 3.0, 1.0):
        y = run(weft.tensor(value))
        found.append((y.tolist(), state_of(o)))
    return found


@pytest.mark.rotating(6)
@pytest.mark.parametrize("way", [alone, under_if, in_else, in_loop], ids=lambda w: w.__name__)
@pytest.mark.parametrize("name", FORMS)
def test_a_method_that_python_calls_does_what_it_does_eagerly(name: str, way: Any) -> None:
    kind, function = FORMS[name]
    expected = record(kind, function, way, compiled=False)
    found = record(kind, function, way, compiled=True)
    for got, wanted in zip(found, expected, strict=True):
        assert weft.tree_leaves(got) == pytest.approx(weft.tree_leaves(wanted), nan_ok=True)

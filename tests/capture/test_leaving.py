"""What captured code makes and gives away: each call gives new ones, and what was one stays one."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, CaptureError

Place: Any = type("Place", (), {"__doc__": "Somewhere outside, with attributes."})


class Node:
    """An object that may hold others, which hold it."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.children: list[Node] = []
        self.parent: Node | None = None

    def add(self, child: Node) -> None:
        self.children.append(child)
        child.parent = self

    def get(self) -> Any:
        return self.value


class Slotted:
    """One without a dict of attributes."""

    __slots__ = ("left", "value")

    def __init__(self, value: Any) -> None:
        self.value = value


class Stack(list):  # type: ignore[type-arg]
    """A list with more to it."""

    top = 0


class Table(dict):  # type: ignore[type-arg]
    """A dict with more to it."""


@dataclass
class Pair:
    """A container of trees that can be changed."""

    a: Any
    b: Any


def _change(x: Any) -> None:
    """Change something in place, so that whoever has it again sees that."""
    if isinstance(x, set):
        x.add(7)
    elif isinstance(x, dict):
        x["new"] = 7
    elif isinstance(x, list | collections.deque | bytearray):
        x.append(7)
    elif isinstance(x, np.ndarray):
        x[0] = 7
    else:
        x.a = 7


MADE: dict[str, Callable[[Any], Any]] = {
    "list": lambda x: [x * 2.0],
    "empty list": lambda x: [],
    "dict": lambda x: {"a": x * 2.0, "n": [x]},
    "default dict": lambda x: collections.defaultdict(list, {"a": x * 2.0}),
    "dataclass": lambda x: Pair(x * 2.0, [x]),
    "list of plain numbers": lambda x: [1, 2],
    "set": lambda x: {1, 2},
    "deque": lambda x: collections.deque([1, 2]),
    "bytes": lambda x: bytearray(b"ab"),
    "array": lambda x: np.zeros(2),
    "namespace": lambda x: types.SimpleNamespace(value=x * 2.0, n=[x]),
    "subclass of list": lambda x: Stack([x * 2.0, x]),
    "subclass of dict": lambda x: Table(a=x * 2.0),
    "object": lambda x: Node(x * 2.0),
    "object of plain numbers": lambda x: Node(3),
}


def _shown(x: Any) -> Any:
    """What something holds, as plain values that can be compared."""
    if isinstance(x, weft.Tensor):
        return x.tolist()
    if isinstance(x, dict):
        return type(x), {k: _shown(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return type(x), [_shown(v) for v in x]
    if isinstance(x, np.ndarray):
        return x.tolist()
    return (type(x), _shown(vars(x))) if hasattr(x, "__dict__") else x


@pytest.mark.parametrize("name", MADE)
def test_what_leaves_in_several_places_is_one_and_new_in_each_call(name: str) -> None:
    make = MADE[name]

    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        place = Place()

        def step(x: Any) -> Any:
            made = make(x)
            place.first = made
            place.second = [made, x]
            return {"made": made, "both": (made, made)}

        call, told = wrap(step), list[Any]()
        earlier: list[Any] = []
        for i in range(4):
            out = call(weft.tensor(float(i)))
            made = out["made"]
            ways = [place.first, place.second[0], *out["both"]]
            told.append((_shown(made), [way is made for way in ways], [made is x for x in earlier]))
            earlier.append(made)
            _change(made)
        return told

    told = run(lambda f: f)
    assert told[0][1] == [True] * 4
    assert not any(told[-1][2])
    assert run(lambda f: weft.compile(f, backend="interpret")) == told


@pytest.mark.parametrize("name", MADE)
def test_what_leaves_in_one_place_is_new_in_each_call(name: str) -> None:
    make, place = MADE[name], Place()

    @weft.compile(backend="interpret")
    def store(x: Any) -> Any:
        place.held = make(x)
        return x * 1.0

    @weft.compile(backend="interpret")
    def give(x: Any) -> Any:
        return make(x)

    for i in range(4):
        x = weft.tensor(float(i))
        store(x)
        out = give(x)
        assert _shown(place.held) == _shown(out) == _shown(make(x))
        _change(place.held)
        _change(out)


def test_objects_that_hold_each_other() -> None:
    @weft.compile(backend="interpret")
    def family(x: Any) -> Any:
        top = Node(x * 2.0)
        top.add(Node(x * 3.0))
        top.add(Node([top, x]))
        return top

    for i in range(3):
        top = family(weft.tensor(float(i)))
        one, two = top.children
        assert [top.value.item(), one.value.item(), two.value[1].item()] == [2.0 * i, 3.0 * i, i]
        assert one.parent is two.parent is two.value[0] is top


def test_an_object_with_slots_has_those_that_it_had() -> None:
    made = weft.compile(lambda x: Slotted(x * 2.0), backend="interpret")(weft.tensor(3.0))
    assert type(made) is Slotted
    assert made.value.item() == 6.0
    assert not hasattr(made, "left")


def test_no_constructor_runs_when_a_call_makes_an_object_anew() -> None:
    class Counted:
        made = 0

        def __init__(self, value: Any) -> None:
            type(self).made += 1
            self.value = value

    def step(x: Any) -> Any:
        return Counted(x * 2.0)

    call = weft.compile(step, backend="interpret")
    values = [call(weft.tensor(float(i))).value.item() for i in range(4)]
    assert values == [0.0, 2.0, 4.0, 6.0]


def test_what_was_found_outside_is_itself() -> None:
    table, seen, place = np.arange(3.0), {1}, Place()

    @weft.compile(backend="interpret")
    def step(x: Any) -> Any:
        place.seen = seen
        return table, seen, x * 2.0

    for _ in range(3):
        out = step(weft.tensor(1.0))
        assert out[0] is table
        assert out[1] is seen is place.seen


def test_gradients_flow_through_what_leaves_twice_and_in_objects() -> None:
    @weft.compile(backend="interpret")
    def step(x: Any) -> Any:
        row = [x * x]
        return Node(row), row

    x = weft.tensor(3.0, requires_grad=True)
    node, row = step(x)
    assert node.value is row
    row[0].backward()
    assert x.grad.item() == 6.0


def test_an_object_holds_the_very_item_that_a_run_picks() -> None:
    rows = [weft.tensor([1.0, 2.0]), weft.tensor([3.0, 4.0])]

    @weft.compile(backend="interpret")
    def step(n: Any) -> Any:
        node = Node(n)
        node.value = rows[int(n) % 2]
        return node

    for n in range(3):
        assert step(weft.tensor(n)).value is rows[n % 2]


def test_inside_of_vmap() -> None:
    def step(x: Any) -> Any:
        row = [x * 2.0]
        return {"a": row, "b": row}

    out = weft.vmap(weft.compile(step))(weft.tensor([1.0, 2.0]))
    assert out["a"][0].tolist() == out["b"][0].tolist() == [2.0, 4.0]


def test_lists_that_hold_the_same_lists_are_gone_through_once() -> None:
    @weft.compile(backend="interpret")
    def step(x: Any) -> Any:
        at = [x]
        for _ in range(40):
            at = [at, at]
        return at

    at = step(weft.tensor(2.0))
    for _ in range(40):
        assert at[0] is at[1]
        at = at[0]
    assert at[0].item() == 2.0


def test_a_list_that_holds_itself_is_refused() -> None:
    def step(x: Any) -> Any:
        row = [x]
        row.append(row)
        return row

    with pytest.raises(CaptureError, match="must not hold itself"):
        weft.compile(step, backend="interpret")(weft.tensor(1.0))


def add(x: Any, y: Any) -> Any:
    return x + y


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a function of a tensor": (lambda x: lambda: x * 2.0, "function that holds a tensor"),
    "one with a default": (lambda x: lambda y=x: y * 2.0, "function that holds a tensor"),
    "one of a tensor that is made": (
        lambda x: (lambda y: lambda: y)(x * 2.0),
        "function that holds a tensor",
    ),
    "a partial": (lambda x: partial(add, x), "partial that holds a tensor"),
    "a method": (lambda x: Node(x).get, "method that holds a tensor"),
    "a generator": (lambda x: (x * i for i in range(3)), "iterator"),
    "a map": (lambda x: map(abs, [x]), "iterator"),
    "an error": (lambda x: ValueError(x), "ValueError that holds a tensor"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_each_call_would_have_to_make_and_cannot_is_refused(name: str) -> None:
    make, said = REFUSED[name]
    place = Place()

    def store(x: Any) -> Any:
        place.held = make(x)
        return x * 1.0

    for function in (make, store):
        with pytest.raises(CaptureError, match=said):
            weft.compile(function, backend="interpret")(weft.tensor(1.0))
    assert not hasattr(place, "held")


def test_functions_of_what_stays_the_same_may_leave() -> None:
    weight = weft.tensor(3.0)

    @weft.compile(backend="interpret")
    def step(x: Any) -> Any:
        def scaled(y: Any) -> Any:
            return y * weight

        return scaled, x * 1.0

    assert [step(weft.tensor(1.0))[0](weft.tensor(2.0)).item() for _ in range(3)] == [6.0] * 3


def test_files_have_lists_that_leave_twice_and_no_objects(tmp_path: Any) -> None:
    def lists(x: Any) -> Any:
        row = [x * 2.0]
        return row, row

    x = weft.tensor(3.0)
    call = weft.compile(lists)
    call(x)
    call.save(tmp_path / "lists.weft")
    one, other = weft.load_graph(tmp_path / "lists.weft")(x)
    assert one[0].item() == other[0].item() == 6.0
    call = weft.compile(lambda x: Node(x * 2.0))
    call(x)
    with pytest.raises(ArgumentError, match="got a Node"):
        call.save(tmp_path / "object.weft")


def test_a_list_that_a_place_and_a_variable_may_be_is_one_in_both() -> None:
    def made() -> tuple[Any, Callable[..., Any]]:
        kept = Place()
        kept.one, kept.other = [weft.tensor(1.0)], [weft.tensor(2.0)]

        def f(c: Any, x: Any) -> Any:
            a, b = [x * 1.0], [x * 2.0]
            if c > 0.3:
                kept.one, kept.other = a, b
            else:
                b = [x * 3.0]
            return a, b

        return kept, f

    def left(kept: Any, f: Callable[..., Any]) -> list[Any]:
        log = []
        for c in (1.0, 0.0, 1.0, 0.0):
            before = kept.one, kept.other
            a, b = f(weft.tensor(c), weft.tensor(5.0))
            held = [*before, kept.one, kept.other, a, b]
            log.append([[x is y for y in held].index(True) for x in held])
            log.append([float(x[0]) for x in held])
        return log

    kept, f = made()
    assert left(kept, weft.compile(f)) == left(*made())

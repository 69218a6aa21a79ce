"""Nothing that captured code read is stale: a function runs plain and compiled while its world changes.

Each row is a world from outside, a function of a tensor and of that world, and changes of it, as statements.
"""

from __future__ import annotations

import array
import collections
import copy
import enum
import functools
import gc
import itertools
import logging
import operator
import os
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import weft

Point = collections.namedtuple("Point", "a b")
Space = types.SimpleNamespace


class Mode(enum.Enum):
    """A setting."""

    UP = 1
    DOWN = 2


@dataclass
class Pair:
    """Two numbers."""

    a: float
    b: float


class Scale:
    """An object with everything that Python calls by itself."""

    __slots__ = ("k", "parts")

    def __init__(self) -> None:
        self.k = 2.0
        self.parts = [1.0, 2.0]

    @property
    def twice(self) -> float:
        return self.k * 2

    def method(self, x: Any) -> Any:
        return x * self.k

    def __call__(self, x: Any) -> Any:
        return x + self.k

    def __mul__(self, x: Any) -> Any:
        return x * self.k

    def __getitem__(self, i: int) -> float:
        return self.parts[i]

    def __len__(self) -> int:
        return len(self.parts)

    def __contains__(self, x: float) -> bool:
        return x in self.parts

    def __iter__(self) -> Any:
        return iter(self.parts)

    def __eq__(self, other: object) -> bool:
        return self.k == other

    def __hash__(self) -> int:
        return id(self)

    def __enter__(self) -> float:
        return self.k

    def __exit__(self, *error: object) -> None:
        pass

    def __float__(self) -> float:
        return self.k

    def __index__(self) -> int:
        return int(self.k) % 3

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.parts, dtype)


class At:
    """A position alone."""

    def __init__(self, k: int) -> None:
        self.k = k

    def __index__(self) -> int:
        return self.k


class Falls:
    """An object whose attributes are in a dict."""

    def __init__(self) -> None:
        self.values = {"k": 1.0}

    def __getattr__(self, name: str) -> Any:
        return self.__dict__["values"][name]


class Base:
    """A class with an attribute."""

    k = 1.0


class Derived(Base):
    """One that inherits it."""


def first_of(x: Any, *rest: float) -> Any:
    return x * rest[0] + len(rest)


def named(x: Any, a: float = 1.0, b: float = 0.0) -> Any:
    return x * a + b


def loop(x: Any, items: Any) -> Any:
    for item in items:
        x = x * item + 1.0
    return x


def pairs(x: Any, rows: Any) -> Any:
    for a, b in rows:
        x = x * a + b
    return x


def unpacked(x: Any, w: Any) -> Any:
    a, *rest = w
    return x * a + len(rest)


def placed(x: Any, w: Any) -> Any:
    y, items = x * 1.0, [1.0, 2.0, 3.0]
    y[w] = 7.0
    items[w] = 9.0
    del items[w]
    return y * sum(items)


def attempt(x: Any, read: Callable[[], Any]) -> Any:
    try:
        return x * read()
    except (LookupError, AttributeError):
        return -x


def matched(x: Any, w: Any) -> Any:
    match w:
        case {"z": z}:
            return x * z
        case {"k": k} | Pair(a=k):
            return x + k
        case [a, b]:
            return x * a + b
        case [a, *_]:
            return x - a
    return x


def entered(x: Any, w: Any) -> Any:
    with w as k:
        return x * k


def with_default(x: Any, *, scale: Any = (1.0,)) -> Any:
    return x * scale[0]


ROWS: dict[str, tuple[Any, ...]] = {
    # lists
    "sum": (lambda: [1.0, 2.0], lambda x, w: x * sum(w), "w.append(5.0)", "w[0] = 9.0"),
    "max and sorted": (lambda: [1.0, 2.0], lambda x, w: x * max(w) + sorted(w)[0], "w[0] = 9.0"),
    "any and all": (lambda: [True, False], lambda x, w: x if any(w) and not all(w) else -x, "w[1] = True"),
    "star": (lambda: [1.0, 2.0], lambda x, w: first_of(x, *w), "w.append(3.0)", "w[0] = 5.0"),
    "star in a display": (lambda: [1.0, 2.0], lambda x, w: loop(x, [*w, 3.0]), "w[0] = 5.0"),
    "unpacking": (lambda: [1.0, 2.0], unpacked, "w[0] = 5.0", "w.append(1.0)"),
    "rows": (lambda: [[1.0, 2.0], [3.0, 4.0]], pairs, "w[0][1] = 9.0", "w.append([5.0, 6.0])"),
    "slice": (lambda: [1.0, 2.0, 3.0], lambda x, w: x * w[1:2][0], "w[1] = 5.0"),
    "generator": (lambda: [1.0, 2.0], lambda x, w: sum(x * a for a in w if a > 1), "w[0] = 5.0"),
    "comprehension": (lambda: [1.0, 2.0], lambda x, w: sum([x * a for a in w if a > 1]), "w[0] = 5.0"),
    "copies": (
        lambda: [1.0, [2.0]],
        lambda x, w: x * sum(list(w)[:1]) + copy.deepcopy(w)[1][0],
        "w[1][0] = 5.0",
    ),
    "sum of lists": (lambda: [1.0], lambda x, w: x * (w + [2.0])[0], "w[0] = 5.0"),  # noqa: RUF005
    "equality": (lambda: [1.0], lambda x, w: x if w == [1.0] else -x, "w[0] = 5.0"),
    "order": (lambda: [1.0], lambda x, w: x if w < [2.0] else -x, "w[0] = 5.0"),
    "index and count": (
        lambda: [1.0, 2.0],
        lambda x, w: x * w.index(2.0) + w.count(1.0),
        "w[:] = [2.0, 1.0]",
    ),
    "truth": (list, lambda x, w: x if w else -x, "w.append(1)"),
    "not": (list, lambda x, w: x if not w else -x, "w.append(1)"),
    "and": (list, lambda x, w: x * len(w and [1, 2]), "w.append(1)"),
    "index error": (list, lambda x, w: attempt(x, lambda: w[0]), "w.append(4.0)"),
    "text": (lambda: [1], lambda x, w: x * len(f"{w}") + len(str(w)) + len("{}".format(w)), "w[0] = 100"),  # noqa: UP032
    "join": (lambda: ["a"], lambda x, w: x * len("-".join(w)), "w[0] = 'abc'"),
    "zip and enumerate": (
        lambda: [1.0, 2.0],
        lambda x, w: pairs(x, zip(w, reversed(w), strict=True)),
        "w[0] = 5.0",
    ),
    "map and filter": (lambda: [1.0, 2.0], lambda x, w: loop(x, map(abs, filter(None, w))), "w[0] = 5.0"),
    "itertools": (lambda: [1.0, 2.0], lambda x, w: loop(x, itertools.chain(w, w)), "w[0] = 5.0"),
    "reduce": (lambda: [1.0, 2.0], lambda x, w: x * functools.reduce(operator.mul, w), "w[0] = 5.0"),
    "tensor of a list": (lambda: [1.0, 2.0, 3.0], lambda x, w: x * weft.tensor(w), "w[0] = 5.0"),
    "array of a list": (lambda: [1.0, 2.0, 3.0], lambda x, w: x * float(np.array(w).sum()), "w[0] = 5.0"),
    "shape": (lambda: [1, 3], lambda x, w: x.reshape(w), "w[:] = [3, 1]"),
    "stack": (lambda: [weft.ones(3)], lambda x, w: weft.stack(w) * x, "w[0] = w[0] * 2.0", "w.append(w[0])"),
    "long list": (lambda: [1.0] * 3000, lambda x, w: x * sum(w), "w[5] = 0.0"),
    "list in a tuple": (lambda: ([1.0], 2.0), lambda x, w: x * w[0][0], "w[0][0] = 5.0"),
    "getters": (lambda: [1.0], lambda x, w: x * operator.itemgetter(0)(w), "w[0] = 5.0"),
    # dicts, sets and others
    "double star": (lambda: {"a": 2.0}, lambda x, w: named(x, **w), "w['b'] = 5.0", "w['a'] = 3.0"),
    "get": (dict, lambda x, w: x * w.get("k", 2.0), "w['k'] = 4.0", "w['k'] = 5.0"),
    "setdefault": (dict, lambda x, w: x * w.setdefault("k", 2.0), "pass", "w['k'] = 5.0"),
    "key error": (dict, lambda x, w: attempt(x, lambda: w["k"]), "w['k'] = 4.0"),
    "membership of an object": (dict, lambda x, w: x if Mode.UP in w else -x, "w[Mode.UP] = 1"),
    "merge": (lambda: {"k": 1.0}, lambda x, w: x * {**w, "b": 2.0}["k"] + (w | {})["k"], "w['k'] = 5.0"),
    "copy of a dict": (lambda: {"k": 1.0}, lambda x, w: x * dict(w)["k"] + w.copy()["k"], "w['k'] = 5.0"),
    "bool of a dict": (dict, lambda x, w: x if bool(w) else -x, "w['k'] = 5.0"),
    "order of keys": (lambda: {"a": 2.0, "b": 3.0}, lambda x, w: loop(x, w.values()), "w['a'] = w.pop('a')"),
    "set": (lambda: {2.0}, lambda x, w: x * sum(w | {1.0}) + len(w), "w.add(5.0)"),
    "deque": (
        lambda: collections.deque([1.0]),
        lambda x, w: loop(x, w) + w[0] + len(w),
        "w.append(5.0)",
        "w[0] = 3.0",
    ),
    "proxy": (lambda: {"k": 1.0}, lambda x, w: x * types.MappingProxyType(w)["k"], "w['k'] = 5.0"),
    "user dict": (lambda: collections.UserDict(k=1.0), lambda x, w: x * w["k"], "w['k'] = 5.0"),
    "bytes": (lambda: bytearray([1, 2]), lambda x, w: x * w[0], "w[0] = 5"),
    "array of numbers": (lambda: array.array("d", [1.0]), lambda x, w: x * w[0], "w[0] = 5.0"),
    "match a mapping": (lambda: {"k": 1.0}, matched, "w['k'] = 5.0", "w['z'] = 7.0"),
    "match a sequence": (lambda: [1.0, 2.0], matched, "w[0] = 5.0", "w.append(1.0)"),
    "match an object": (lambda: Pair(1.0, 2.0), matched, "w.a = 5.0"),
    "environment": (
        lambda: os.environ,
        lambda x, w: x * float(w.get("WEFT_ROW", "2")),
        "w['WEFT_ROW'] = '3'",
    ),
    "getenv": (lambda: os.environ, lambda x, w: x if os.getenv("WEFT_ROW2") else -x, "w['WEFT_ROW2'] = '3'"),
    # objects, classes, functions
    "property": (Scale, lambda x, w: x * w.twice, "w.k = 5.0"),
    "method": (Scale, lambda x, w: w.method(x) + w(x), "w.k = 5.0"),
    "operator of an object": (Scale, lambda x, w: w * x, "w.k = 5.0"),
    "item of an object": (Scale, lambda x, w: x * w[0], "w.parts[0] = 5.0"),
    "length and truth of an object": (
        Scale,
        lambda x, w: x * len(w) if w else -x,
        "w.parts.pop()",
        "w.parts.clear()",
    ),
    "membership in an object": (Scale, lambda x, w: x if 5.0 in w else -x, "w.parts[0] = 5.0"),
    "iteration over an object": (Scale, loop, "w.parts[0] = 5.0"),
    "equality of an object": (Scale, lambda x, w: x if w == 5.0 else -x, "w.k = 5.0"),
    "context": (Scale, entered, "w.k = 5.0"),
    "float of an object": (Scale, lambda x, w: x * float(w), "w.k = 5.0"),
    "position of a row by an object": (Scale, lambda x, w: x[w] * 2.0, "w.k = 1.0"),
    "position of an item by an object": (
        Scale,
        lambda x, w: x * [1.0, 2.0, 3.0][w] + len(range(w)) + [4.0, 5.0, 6.0].pop(w),
        "w.k = 1.0",
    ),
    "slice by an object": (Scale, lambda x, w: x[w:] * len([1.0, 2.0, 3.0][:w]), "w.k = 1.0"),
    "item set by an object": (Scale, placed, "w.k = 1.0"),
    "size of an object": (Scale, lambda x, w: x.sum() + weft.ones(w), "w.k = 4.0"),
    "axis of an object": (Scale, lambda x, w: x.expand(2, 2, 3).sum(axis=w), "w.k = 3.0"),
    "number of an object by its position": (
        lambda: Space(at=At(1)),
        lambda x, w: x * float(w.at),
        "w.at.k = 2",
    ),
    "array of an object": (Scale, lambda x, w: x.sum() * weft.tensor(w), "w.parts[0] = 5.0"),
    "fallback of attributes": (Falls, lambda x, w: x * w.k, "w.values['k'] = 5.0", "w.k = 7.0"),
    "missing attribute": (Space, lambda x, w: attempt(x, lambda: w.k), "w.k = 5.0", "del w.k"),
    "getattr and hasattr": (
        Space,
        lambda x, w: x * getattr(w, "k", 2.0) if hasattr(w, "z") else x,
        "w.z = 1",
        "w.k = 3.0",
    ),
    "vars": (lambda: Space(k=1.0), lambda x, w: x * vars(w)["k"] + w.__dict__["k"], "w.k = 5.0"),
    "inherited": (Derived, lambda x, w: x * w.k, "w.k = 4.0", "del w.k"),
    "class of an object": (Base, lambda x, w: x if isinstance(w, Derived) else -x, "w.__class__ = Derived"),
    "type of an object": (Base, lambda x, w: x if type(w) is Base else -x, "w.__class__ = Derived"),
    "equal dataclasses": (lambda: Pair(1.0, 2.0), lambda x, w: x if w == Pair(1.0, 2.0) else -x, "w.b = 3.0"),
    "enum": (lambda: Space(m=Mode.UP), lambda x, w: x * w.m.value, "w.m = Mode.DOWN"),
    "named tuple": (lambda: Space(p=Point(1.0, 2.0)), lambda x, w: x * w.p.a, "w.p = w.p._replace(a=5.0)"),
    "text of a name": (
        lambda: Space(n="a", d={"a1": 1.0, "b1": 2.0}),
        lambda x, w: x * w.d[f"{w.n}1"],
        "w.n = 'b'",
    ),
    "partial": (lambda: functools.partial(named, a=2.0), lambda x, w: w(x), "w.keywords['a'] = 5.0"),
    "function of an object": (lambda: Space(f=named), lambda x, w: w.f(x), "w.f = operator.neg"),
    "list of functions": (lambda: [abs], lambda x, w: w[0](x), "w[0] = operator.neg"),
    "keyword default": (lambda: with_default, lambda x, w: w(x), "w.__kwdefaults__['scale'] = [5.0]"),
    "cached": (lambda: Space(k=1.0), lambda x, w: x * functools.lru_cache(lambda: w.k)(), "w.k = 5.0"),
    # arrays
    "array": (lambda: np.ones(3, np.float32), lambda x, w: x * w + float(w.max()), "w[0] = 5.0"),
    "view of an array": (lambda: np.ones(3, np.float32), lambda x, w: x * w[:1], "w[0] = 5.0"),
    "array in an object": (
        lambda: Space(a=np.ones(3)),
        lambda x, w: x * float(np.sum(w.a)),
        "w.a *= 2",
        "w.a = w.a + 1",
    ),
    "array scalar": (lambda: Space(k=np.float32(2.0)), lambda x, w: x * w.k, "w.k = np.float64(5.0)"),
}


def outcomes(row: tuple[Any, ...], wrap: Callable[[Any], Any]) -> list[Any]:
    """What a function gives before and after each change."""
    make, body, *changes = row
    world = make()
    f = wrap(lambda x: body(x, world))
    x = weft.tensor([1.0, 2.0, 3.0])
    found = [f(x)]
    for change in changes:
        exec(change, {**globals(), "w": world})  # noqa: S102 - the rows are above
        found.append(f(x))
    return [(t.dtype, t.tolist()) for t in found]


@pytest.mark.rotating(4)
@pytest.mark.parametrize("capture", ["source", "trace"])
@pytest.mark.parametrize("name", ROWS)
def test_change_is_noticed(name: str, capture: str) -> None:
    kept = dict(os.environ), dict(with_default.__kwdefaults__ or {})
    try:
        expected = outcomes(ROWS[name], lambda f: f)
        assert len({repr(x) for x in expected}) > 1  # the changes matter
        os.environ.clear()
        os.environ.update(kept[0])
        with_default.__kwdefaults__ = dict(kept[1])
        assert outcomes(ROWS[name], weft.compile(capture=capture)) == expected
    finally:
        os.environ.clear()
        os.environ.update(kept[0])
        with_default.__kwdefaults__ = dict(kept[1])


def test_functions_that_are_replaced_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    x = weft.ones(1)
    f = weft.compile(lambda x: max(named(x, a=2.0), -x) if isinstance(x, weft.Tensor) else x)
    assert f(x).item() == 2.0
    monkeypatch.setitem(globals(), "max", lambda a, b: b)  # a global hides the builtin
    assert f(x).item() == -1.0
    monkeypatch.delitem(globals(), "max")
    monkeypatch.setattr(named, "__code__", (lambda x, a=1.0, b=0.0: x * a * 10.0).__code__)
    assert f(x).item() == 20.0


def test_call_of_a_class_that_is_replaced_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    scale = Scale()
    f = weft.compile(lambda x: scale(x) + scale.twice)
    assert f(weft.ones(1)).item() == 7.0
    monkeypatch.setattr(Scale, "__call__", lambda self, x: x * 10.0)
    assert f(weft.ones(1)).item() == 14.0
    monkeypatch.setattr(Scale, "twice", property(lambda self: 0.0))
    assert f(weft.ones(1)).item() == 10.0


def test_item_that_is_not_read_may_change() -> None:
    settings = {"lr": 0.5}
    f = weft.compile(lambda x: x * settings["lr"])
    for step in range(4):
        settings["step"] = step
        assert f(weft.ones(1)).item() == 0.5
    assert len(f.versions) == 1


def test_container_from_outside_is_returned_itself() -> None:
    kept = [1, 2]
    f = weft.compile(lambda x: (x, kept, {1}))
    assert f(weft.ones(1))[1] is kept
    kept.append(3)
    _, found, made = f(weft.ones(1))
    assert found == [1, 2, 3]
    made.add(2)  # a set that the function makes is another one at each call
    assert f(weft.ones(1))[2] == {1}


def test_text_of_a_value_is_that_of_each_call() -> None:
    f = weft.compile(lambda x: f"loss {x.sum():.1f}")
    assert [f(weft.ones(n)) for n in (1, 2)] == ["loss 1.0", "loss 2.0"]
    assert f(weft.ones(1) * 5.0) == "loss 5.0"


@pytest.mark.parametrize(
    "change",
    [
        lambda: weft.set_default_dtype(weft.float64),
        lambda: np.seterr(all="ignore"),
        lambda: gc.disable(),
        lambda: os.chdir("."),
        lambda: logging.getLogger("weft.none").setLevel(10),
    ],
    ids=["default dtype", "NumPy", "garbage", "folder", "logger"],
)
def test_settings_of_the_process_are_not_changed(change: Any) -> None:
    def f(x: Any) -> Any:
        change()
        return x * 2.0

    with pytest.raises(weft.errors.CaptureError, match="must not change a setting of the process"):
        weft.compile(f)(weft.ones(1))
    assert weft.ones(1).dtype == weft.float32
    assert gc.isenabled()

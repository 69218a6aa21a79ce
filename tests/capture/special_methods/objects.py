"""Forms of truth, ``with``, text, numbers, subclasses of dict and list, and objects that are made."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from typing import Any

import weft
from tests.capture.special_methods.forms import Counts, form


class Decides(Counts):
    def __bool__(self) -> bool:
        self.note()
        return bool(self.n > 1.5)


@form(Decides)
def truth(o: Any, x: Any) -> Any:
    if o:
        x = x + 10.0
    return x * 1.0


@form(Decides)
def truth_of_not(o: Any, x: Any) -> Any:
    return x if not o else x * 2.0


@form(Decides)
def truth_of_and(o: Any, x: Any) -> Any:
    return -x if x > 0 and o else x


@form(Decides)
def truth_in_while(o: Any, x: Any) -> Any:
    while not o:
        x = x + 1.0
    return x


@form(Decides)
def truth_in_any(o: Any, x: Any) -> Any:
    return x + 1.0 if any([False, o]) else x


class Managed(Counts):
    def __enter__(self) -> Any:
        self.note()
        return self

    def __exit__(self, *_: Any) -> bool | None:
        self.note(10.0)
        return None


class Handles(Managed):
    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        self.note(10.0)
        return kind is KeyError


@form(Managed)
def with_(o: Any, x: Any) -> Any:
    with o as p:
        y = x * p.n
    return y


@form(Managed)
def with_two(o: Any, x: Any) -> Any:
    with o, contextlib.nullcontext(), o as p:
        if x > 1.0:
            p.note()
        y = x * 2.0
    return y


@form(Handles)
def with_that_handles(o: Any, x: Any) -> Any:
    y = x
    with o:
        y = x * 2.0
        raise KeyError("x")
    return y


@form(Managed)
def with_and_return(o: Any, x: Any) -> Any:
    with o:
        return x * 2.0


class Shown(Counts):
    def __format__(self, spec: str) -> str:
        self.note()
        return "a" * len(spec)

    def __str__(self) -> str:
        self.note(2.0)
        return "bb"

    def __repr__(self) -> str:
        self.note(3.0)
        return "ccc"


@form(Shown)
def formatted(o: Any, x: Any) -> Any:
    return x * len(f"{o:>3}")


@form(Shown)
def as_text(o: Any, x: Any) -> Any:
    return x * len(f"{o!s}") * len(str(o))


@form(Shown)
def as_repr(o: Any, x: Any) -> Any:
    return x * len(f"{o!r:>9}") * len(repr(o)) + len(format(o, "xx"))


class Numeric(Counts):
    def __int__(self) -> int:
        self.note()
        return 3

    def __float__(self) -> float:
        self.note(2.0)
        return 1.5

    def __round__(self, digits: int = 0) -> Any:
        self.note()
        return self.n

    def __divmod__(self, other: Any) -> Any:
        self.note()
        return self.n, other

    def __hash__(self) -> int:
        self.note()
        return 5


@form(Numeric)
def conversions(o: Any, x: Any) -> Any:
    a, b = divmod(o, x)
    return int(o) + float(o) + round(o) + a + b * hash(o)


class Less(Counts):
    def __init__(self) -> None:
        super().__init__()
        self.items = [Item(self, k) for k in (3, 1, 2)]


class Item:
    def __init__(self, of: Any, k: int) -> None:
        self.of = of
        self.k = k

    def __lt__(self, other: Any) -> bool:
        self.of.note()
        return bool(self.k < other.k)

    def __gt__(self, other: Any) -> bool:
        self.of.note(2.0)
        return bool(self.k > other.k)


@form(Less)
def sorted_(o: Any, x: Any) -> Any:
    return x * sorted(o.items)[0].k + min(o.items).k + max(*o.items).k


class Dict(dict[str, Any]):
    def __init__(self) -> None:
        super().__init__()
        dict.__setitem__(self, "v", weft.tensor(0.0))
        self.n = weft.tensor(0.0)

    def __getitem__(self, key: str) -> Any:
        self.n = self.n + 1.0
        return super().__getitem__(key)

    def __setitem__(self, key: str, value: Any) -> None:
        self.n = self.n + 10.0
        super().__setitem__(key, value)


@form(Dict)
def dict_of_the_user(o: Any, x: Any) -> Any:
    o["v"] = x * 2.0
    return o["v"] + 0.0


@form(Dict)
def dict_of_the_user_augmented(o: Any, x: Any) -> Any:
    o["v"] += x
    return o["v"] + 0.0


class Made:
    total: Any

    def __init__(self, of: Any, v: Any) -> None:
        of.note(v)
        self.v = v
        if v > 2.0:
            self.v = v * 2.0


class Kept:
    def __new__(cls, of: Any) -> Any:
        of.note()
        return object.__new__(cls)


@dataclasses.dataclass
class Data:
    of: Any
    v: Any
    more: list[Any] = dataclasses.field(default_factory=list)
    late: dataclasses.InitVar[float] = 1.0

    def __post_init__(self, late: float) -> None:
        self.of.note(late)
        if self.v > 1.0:
            self.v = self.v * 3.0
        self.more.append(self.v)


@form(Counts)
def constructed(o: Any, x: Any) -> Any:
    return Made(o, x).v + 1.0


@form(Counts)
def constructed_by_new(o: Any, x: Any) -> Any:
    return x if isinstance(Kept(o), Kept) else x * 2.0


@form(Counts)
def constructed_dataclass(o: Any, x: Any) -> Any:
    d = Data(o, x, late=0.5)
    return d.v + d.more[0]


class Cached(Counts):
    @functools.cached_property
    def twice(self) -> Any:
        self.note()
        return weft.tensor(2.0)


class ByDecorator(Counts):
    @weft.no_grad()
    def __call__(self, x: Any) -> Any:
        self.note()
        return x * 2.0


@form(ByDecorator)
def decorated_call(o: Any, x: Any) -> Any:
    return o(x)


class Stack(list[Any]):
    def __init__(self) -> None:
        super().__init__([weft.tensor(1.0)])
        self.n = weft.tensor(0.0)

    def __getitem__(self, index: Any) -> Any:
        self.n = self.n + 1.0
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.n = self.n + 10.0
        super().__setitem__(index, value)


@form(Stack)
def list_of_the_user(o: Any, x: Any) -> Any:
    o[0] = o[0] + x
    return o[0] * 1.0

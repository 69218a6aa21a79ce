"""Functions that Python calls by itself are captured: reads are guarded, writes are done by each call."""

from __future__ import annotations

import collections.abc
import functools
import itertools
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

import weft
from weft.errors import CaptureError

SCALE = 1.0
Run = Callable[[Any], Any]


class Scaled:
    """What methods of the user read and write here: an attribute of one object, a global, and a count."""

    def __init__(self, o: Any) -> None:
        self.o = o

    def value(self) -> float:
        self.o.n += 1
        return float(self.o.k * SCALE)


class Sized(Scaled):
    def __len__(self) -> int:
        self.o.n += 10
        return 3

    def __getitem__(self, i: int) -> float:
        if i > 2:
            raise IndexError
        return i * self.value()


class Keyed(Scaled):
    def keys(self) -> list[str]:
        self.o.n += 10
        return ["a", "b"]

    def __getitem__(self, key: str) -> float:
        return self.value() + ord(key)


class Mapped(collections.abc.MutableMapping[str, float]):
    def __init__(self, o: Any) -> None:
        self.o, self.held = o, {"a": 1.0, "b": 2.0}

    def __getitem__(self, key: str) -> float:
        self.o.n += 1
        return self.held[key] * self.o.k * SCALE

    def __setitem__(self, key: str, value: float) -> None:
        self.o.n += 100
        self.held[key] = value

    def __delitem__(self, key: str) -> None:
        del self.held[key]

    def __iter__(self) -> Iterator[str]:
        self.o.n += 10
        yield from self.held

    def __len__(self) -> int:
        return len(self.held)


class Listed(Sized, collections.abc.Sequence[float]):  # type: ignore[misc]
    pass


class Iterated(Scaled):
    def __iter__(self) -> Iterator[float]:
        yield self.value()
        yield 7.0


class Written(Scaled):
    @property
    def size(self) -> float:
        return self.value()

    def __str__(self) -> str:
        return str(self.value())

    def __repr__(self) -> str:
        self.o.n += 10
        return str(self.value())

    def __format__(self, spec: str) -> str:
        self.o.n += 100
        return format(self.value(), spec)

    def __getitem__(self, key: int) -> float:
        return key * self.value()

    def __int__(self) -> int:
        return int(self.value())

    __index__ = __int__


class Compared(Scaled):
    def __init__(self, o: Any, place: float) -> None:
        super().__init__(o)
        self.place = place

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Compared) and self.place + other.place == self.value()

    __hash__ = None  # type: ignore[assignment]


def dispatched(o: Any) -> Run:
    @functools.singledispatch
    def f(a: Any, x: Any) -> Any:
        return x

    @f.register
    def _(a: int, x: Any) -> Any:
        o.n += 1
        return x * a * o.k * SCALE

    @f.register
    def _(a: weft.Tensor, x: Any) -> Any:
        o.n += 10
        if a > 0.0:
            x = x * 2.0
        return x * o.k

    return lambda x: f(2, x) + f(x, x) + f("a", x)


def called_by_name(o: Any) -> Run:
    class Layer(Scaled):
        def scaled(self, x: Any, by: float = 1.0) -> Any:
            return x * by * self.value()

    layer = Layer(o)
    plain, outside = operator.methodcaller("value"), operator.methodcaller("scaled", 3.0, by=2.0)
    return lambda x: x * plain(layer) + outside(layer) + operator.methodcaller("scaled", x)(layer)


def got_by_name(o: Any) -> Run:
    inner = Written(o)
    outer, get = SimpleNamespace(inner=inner), operator.attrgetter("inner.size", "inner.o.k")
    return lambda x: x * get(outer)[0] + get(outer)[1] + operator.attrgetter("size")(inner)


def got_by_key(o: Any) -> Run:
    sized, get = Sized(o), operator.itemgetter(1, 2)
    return lambda x: x * get(sized)[0] + operator.itemgetter(2)(sized)


def backwards(o: Any) -> Run:
    sized = Sized(o)

    def run(x: Any) -> Any:
        for v in reversed(sized):
            x = x * 2.0 + v
        return x

    return run


def taken_apart(o: Any) -> Run:
    keyed = Keyed(o)

    def run(x: Any) -> Any:
        made = dict(keyed, c=1.0)
        made.update(keyed)
        made |= keyed  # type: ignore[arg-type]
        more = {**keyed, "c": x}
        return x * _sum_of(**keyed) + made["a"] + more["b"]

    return run


def _sum_of(a: float, b: float) -> float:
    return a + 2.0 * b


def abstract_mapping(o: Any) -> Run:
    mapped = Mapped(o)

    def run(x: Any) -> Any:
        for key, v in mapped.items():
            x = x + v * len(key)
        for v in mapped.values():
            x = x * v
        mapped["a"] = mapped.get("b", 0.0) + mapped.setdefault("a", 5.0)
        made = dict(mapped)
        same = mapped == made
        mapped["a"] = 1.0
        return x + made["a"] + mapped.get("z", 3.0) + ("b" in mapped) + same + _sum_of(**mapped)

    return run


def abstract_sequence(o: Any) -> Run:
    listed = Listed(o)

    def run(x: Any) -> Any:
        for v in listed:
            x = x + v
        for v in reversed(listed):
            x = x * 2.0 + v
        return x + listed.count(2.0) + listed.index(0.0) + (4.0 in listed)

    return run


def iterated(o: Any) -> Run:
    some = Iterated(o)

    def each() -> Iterator[float]:
        yield from some

    def run(x: Any) -> Any:
        rows = [x]
        rows.extend(some)
        rows += some
        found = {1.0}.union(some)
        found.update(some)
        found |= set(some)
        total = sum(itertools.chain(some, some)) + sum(frozenset(some)) + sum(each())
        return rows[1] * rows[3] * x + sum(found) + total + _sum_of(*some)

    return run


def ordered(o: Any) -> Run:
    @functools.total_ordering
    class Placed(Scaled):
        def __init__(self, place: float) -> None:
            super().__init__(o)
            self.place = place

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Placed) and self.place == other.place

        def __lt__(self, other: Placed) -> bool:
            return self.place * (2.5 - self.value()) < other.place

        __hash__ = None  # type: ignore[assignment]

    a, b = Placed(1.0), Placed(0.9)
    return lambda x: x * (1.0 + (a >= b) + 2.0 * (a > b) + 4.0 * (a <= b))


def compared_by_a_function(o: Any) -> Run:
    def compare(a: float, b: float) -> float:
        o.n += 1
        return (a - b) * (2.5 - o.k) * SCALE

    return lambda x: x * sorted([2.0, 1.0, 3.0], key=functools.cmp_to_key(compare))[0]


def found_in_a_list(o: Any) -> Run:
    rows, one = [Compared(o, p) for p in (0.0, 1.0, 2.0)], Compared(o, 1.0)

    def run(x: Any) -> Any:
        copy = [*rows]
        at = (*rows,).index(one) if one in rows else -1
        if one in rows:
            copy.remove(one)
        return x * rows.count(one) + at + copy[0].place + (rows == [one, *rows[1:]])

    return run


def written(o: Any) -> Run:
    w = Written(o)

    def run(x: Any) -> Any:
        words = ["{:.1f}".format(w), "{0.size}".format(w), "{0[1]}".format(w), "{!r}".format(w)]  # noqa: UP030, UP032
        words += ["%s" % w, "%r" % (w,), "%d" % w, "%(w)s" % {"w": w}]  # noqa: UP031
        words += [str([w])[1:-1], repr((w,))[1:-2], f"{[w]}"[1:-1], f"{w}", "{size}".format_map({"size": w})]
        for word in words:
            x = x * 2.0 + float(word)
        return x

    return run


PROGRAMS = [
    dispatched,
    called_by_name,
    got_by_name,
    got_by_key,
    backwards,
    taken_apart,
    abstract_mapping,
    abstract_sequence,
    iterated,
    ordered,
    compared_by_a_function,
    found_in_a_list,
    written,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_what_they_read_is_guarded_and_what_they_write_is_written(
    program: Callable[[Any], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    eager = _record(program, monkeypatch, lambda f: f)
    assert _record(program, monkeypatch, lambda f: weft.compile(f, backend="interpret")) == eager


def _record(program: Callable[[Any], Run], monkeypatch: pytest.MonkeyPatch, way: Any) -> list[Any]:
    o = SimpleNamespace(n=0, k=2.0)
    monkeypatch.setitem(globals(), "SCALE", 1.0)
    run, found = way(program(o)), []
    for i, value in enumerate((1.0, -2.0, 0.5, 2.0, -1.0)):
        if i == 2:
            o.k = 3.0
        if i == 4:
            monkeypatch.setitem(globals(), "SCALE", 4.0)
        found.append((run(weft.tensor(value)).item(), o.n))
    return found


def test_a_function_that_is_registered_later_is_found() -> None:
    @functools.singledispatch
    def f(a: Any, x: Any) -> Any:
        return x

    run = weft.compile(lambda x: f(2, x))
    assert run(weft.tensor(1.0)).item() == 1.0
    f.register(int, lambda a, x: x * 7.0)
    assert run(weft.tensor(1.0)).item() == 7.0


class Key:
    def __init__(self, place: int) -> None:
        self.place = place

    def __hash__(self) -> int:
        return hash(self.place)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.place == other.place


@dataclass(frozen=True)
class Frozen:
    place: int


KEYED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "item": lambda d, k, x: x * d[k],
    "get": lambda d, k, x: x * d.get(k, 9.0),
    "in a dict": lambda d, k, x: x if k in d else -x,
    "in a set": lambda d, k, x: x if k in set(d) else -x,
    "in a display": lambda d, k, x: x * len({k: 1.0, **d}) + len({k, *d}),
    "in a tuple": lambda d, k, x: x * len({(k, 1), *[(q, 1) for q in d]}),
    "union": lambda d, k, x: x * len({*d} | {k}) + len({*d}.union([k])),
    "set": lambda d, k, x: x * len(set(itertools.chain(d, [k]))) + len(dict([(k, 1.0), *d.items()])),
    "pop": lambda d, k, x: x * {**d}.pop(k, 5.0),
}


@pytest.mark.parametrize("form", KEYED)
def test_what_keys_read_is_guarded(form: str) -> None:
    def record(way: Any) -> list[float]:
        key, table = Key(1), {Key(1): 2.0, Key(2): 3.0}
        run, found = way(lambda x: KEYED[form](table, key, x)), []
        for place in (1, 2, 1) if form == "item" else (1, 2, 3, 1):
            key.place = place
            found.append(run(weft.tensor(2.0)).item())
        return found

    assert record(weft.compile) == record(lambda f: f)


def test_keys_that_dataclasses_compare() -> None:
    def record(way: Any) -> list[float]:
        o, table = SimpleNamespace(key=Frozen(1)), {Frozen(1): 2.0, Frozen(2): 3.0}
        run, found = way(lambda x: x * table[o.key] * [Frozen(0), Frozen(1), Frozen(2)].index(o.key)), []
        for place in (1, 2, 1):
            o.key = Frozen(place)
            found.append(run(weft.tensor(1.0)).item())
        return found

    assert record(weft.compile) == record(lambda f: f)


def test_a_key_that_counts_how_often_it_is_asked_is_refused() -> None:
    class Counting(Key):
        count = 0

        def __hash__(self) -> int:
            self.count += 1
            return super().__hash__()

    key, table = Counting(1), {Key(1): 2.0}
    key.count = 0

    def run(x: Any) -> Any:
        return x * table[key]  # here

    with pytest.raises(CaptureError, match=r"hash and compare keys .* without changing anything") as caught:
        weft.compile(run)(weft.tensor(1.0))
    assert "# here" in str(caught.value)
    assert key.count == 0


BY_DIFFERENCE = functools.cmp_to_key(lambda a, b: a - b)


def test_a_key_function_of_a_comparison_from_outside_is_refused() -> None:
    def run(x: Any) -> Any:
        return x * sorted([2.0, 1.0], key=BY_DIFFERENCE)[0]  # here

    with pytest.raises(CaptureError, match="must be made in captured code") as caught:
        weft.compile(run)(weft.tensor(1.0))
    assert "# here" in str(caught.value)

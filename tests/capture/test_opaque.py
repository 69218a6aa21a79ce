"""Objects of libraries that captured code makes: deques, arrays, heaps, generators of numbers, contexts.

A loop that changes one is run by Python; a branch that changes one from around it is refused, or picks what a
list or dict holds. Nothing of it is done on all ways, twice, or by the capture alone.
"""

from __future__ import annotations

import array
import bisect
import collections
import contextlib
import ctypes
import hashlib
import heapq
import io
import itertools
import operator
import queue
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
from tests.capture.both_ways import check
from weft.errors import CaptureError

Form = Callable[..., Any]
LOG: dict[str, Any] = {}


@contextlib.contextmanager
def noted(v: Any) -> Iterator[Any]:
    LOG["sum"] = LOG["sum"] + v
    yield v
    LOG["sum"] = LOG["sum"] * 2.0


def note(v: Any) -> None:
    LOG["sum"] = LOG["sum"] * 2.0 + v
    LOG["count"] += 1


# Loops


def deque(x: Any) -> Any:
    d = collections.deque([1.0], maxlen=3)
    for _ in x:
        d.append(d[-1] * 2.0)
    return x * sum(d)


def own_deque(x: Any) -> Any:
    class Window(collections.deque[Any]):
        def push(self, v: Any) -> None:
            super().append(v)

    d = Window()
    for v in x:
        d.push(v)
    return sum(d) * len(d)


def queue_of_rows(x: Any) -> Any:
    d, total = collections.deque(x), x[0] * 0.0
    while d:
        total = total * 2.0 + d.popleft()
    return total


def heap(x: Any) -> Any:
    h: list[Any] = []
    for i in range(5):
        heapq.heappush(h, (5 - i, i))
    total = x * 0.0
    while h:
        total = total * 2.0 + heapq.heappop(h)[1]
    return total


def sorted_list(x: Any) -> Any:
    found: list[int] = []
    for _ in x:
        bisect.insort(found, 3)
    return x * len(found)


def elements(x: Any) -> Any:
    a = np.zeros(3, np.float32)
    for _ in x:
        a[0] += 1.0
        np.add(a, 1.0, out=a)
        a += 1.0
    return x * a


def array_of_python(x: Any) -> Any:
    a = array.array("d", [0.0])
    for _ in x:
        a.append(1.0)
        a[0] += 2.0
    return x * sum(a)


def bytes_in_a_loop(x: Any) -> Any:
    b = bytearray(b"a")
    for _ in x:
        b += b"b"
        b[0] += 1
    return x * b[0] * len(b)


def random_numbers(x: Any) -> Any:
    r, total = random.Random(0), x * 0.0
    for v in x:
        total = total + v * r.random()
    return total


def random_numbers_of_numpy(x: Any) -> Any:
    r, total = np.random.RandomState(0), x * 0.0
    for v in x:
        total = total + v * float(r.rand())
    return total


def list_of_a_library(x: Any) -> Any:
    rows: Any = collections.UserList()
    for v in x:
        rows.append(v)
    return sum(rows) * len(rows)


def contexts(x: Any) -> Any:
    with contextlib.ExitStack() as stack:
        for v in x:
            stack.enter_context(noted(v))
        total = x.sum()
    return total


def callbacks(x: Any) -> Any:
    with contextlib.ExitStack() as stack:
        for v in x:
            stack.callback(note, v)
    return x * 1.0


def callback_of_a_library(x: Any) -> Any:
    re.sub("a", lambda m: (note(x.sum()), "b")[1], "aaa")
    heapq.nlargest(1, [1, 2], key=lambda k: (note(x.sum()), k)[1])
    return x * 1.0


def lines(x: Any) -> Any:
    text = io.StringIO()
    for _ in x:
        text.write("ab")
    return x * len(text.getvalue())


def counted(x: Any) -> Any:
    c = collections.Counter("aab")
    for _ in x:
        c.subtract("b")
        c["a"] += 1
    return x * c["a"] + c["b"]


LOOPS = [deque, own_deque, queue_of_rows, heap, sorted_list, elements, array_of_python, bytes_in_a_loop]
LOOPS += [random_numbers, random_numbers_of_numpy, list_of_a_library, contexts, callbacks]
LOOPS += [callback_of_a_library, lines, counted]


def _outcomes(form: Form, wrap: Callable[[Form], Form]) -> list[Any]:
    LOG.update(sum=weft.tensor(0.0), count=0)
    f, found = wrap(form), []
    for values in ([1.0, 2.0, 3.0], [-1.0, -2.0, 1.0], [2.0, 2.0, 2.0]):
        out = f(weft.tensor(values))
        found.append((out.tolist(), LOG["sum"].tolist(), LOG["count"]))
    return found


@pytest.mark.parametrize("form", LOOPS, ids=lambda form: form.__name__)
def test_loops_change_objects_of_libraries_once_a_turn(form: Form) -> None:
    expected, found = _outcomes(form, lambda f: f), _outcomes(form, weft.compile)
    for ours, theirs in zip(expected, found, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert np.allclose(a, b)


# Branches: what is made, what changes it, and what is seen of it

BRANCHES: dict[str, tuple[Form, Form, Form]] = {
    "deque": (lambda: collections.deque([1]), lambda d: d.append(2), len),
    "rotated deque": (lambda: collections.deque([1, 2]), lambda d: d.rotate(1), lambda d: d[0]),
    "deque +=": (lambda: collections.deque([1]), lambda d: operator.iadd(d, [2]), len),
    "element": (lambda: np.zeros(2), lambda a: a.__setitem__(0, 3.0), lambda a: float(a[0])),
    "fill": (lambda: np.zeros(2), lambda a: a.fill(3.0), lambda a: float(a[0])),
    "out": (lambda: np.ones(2), lambda a: np.add(a, 1.0, out=a), lambda a: float(a[0])),
    "view": (lambda: np.zeros(2), lambda a: operator.setitem(a[1:], 0, 3.0), lambda a: float(a.sum())),
    "flat": (lambda: np.zeros(2), lambda a: operator.setitem(a.flat, 0, 3.0), lambda a: float(a.sum())),
    "shape": (lambda: np.zeros(4), lambda a: a.resize(2, 2), lambda a: a.ndim),
    "array": (lambda: array.array("d", [0.0]), lambda a: a.append(1.0), len),
    "bytearray": (lambda: bytearray(b"a"), lambda b: b.extend(b"b"), len),
    "memoryview": (lambda: bytearray(b"a"), lambda b: operator.setitem(memoryview(b), 0, 9), lambda b: b[0]),
    "ctypes": (lambda: (ctypes.c_int * 2)(1, 2), lambda a: operator.setitem(a, 0, 9), lambda a: a[0]),
    "hash": (hashlib.md5, lambda h: h.update(b"a"), lambda h: h.digest()[0]),
    "random": (lambda: random.Random(1), lambda r: r.random(), lambda r: r.random()),
    "StringIO": (io.StringIO, lambda s: s.write("ab"), lambda s: len(s.getvalue())),
    "UserList": (lambda: collections.UserList([1]), lambda u: u.append(2), len),
    "UserList +=": (lambda: collections.UserList([1]), lambda u: operator.iadd(u, [2]), len),
    "SimpleQueue": (queue.SimpleQueue, lambda q: q.put(2), lambda q: q.qsize()),
    "OrderedDict": (
        lambda: collections.OrderedDict(a=1, b=2),
        lambda d: d.move_to_end("a"),
        lambda d: next(iter(d)) == "a",
    ),
    "Counter": (lambda: collections.Counter("ab"), lambda c: c.subtract("a"), lambda c: c["a"]),
    "heap": (lambda: [3], lambda h: heapq.heappush(h, 1), len),
    "insort": (lambda: [1, 3], lambda h: bisect.insort(h, 2), lambda h: h[1]),
    "methodcaller": (lambda: [1], operator.methodcaller("append", 2), len),
    "__imul__": (lambda: [1], lambda h: h.__imul__(2), len),
    "intersection": (lambda: {1, 2}, lambda s: s.intersection_update({1}), len),
    "symmetric difference": (lambda: {1, 2}, lambda s: s.symmetric_difference_update({1}), len),
    "generator of NumPy": (
        lambda: np.random.RandomState(1),
        lambda r: r.rand(),
        lambda r: float(r.rand()),
    ),
    "callbacks": (contextlib.ExitStack, lambda e: e.callback(note, 1.0), lambda e: len(e._exit_callbacks)),
}


_KNOWN = frozenset(
    {
        *("UserList", "UserList +=", "heap", "insort", "methodcaller", "__imul__"),
        *("OrderedDict", "intersection", "symmetric difference"),
    }
)


def _branch(name: str) -> Callable[[Any], Any]:
    make, change, seen = BRANCHES[name]

    def step(x: Any) -> Any:
        made = make()
        if x.sum() > 0:
            change(made)
        return x * seen(made)

    return step


@pytest.mark.parametrize("name", [name for name in BRANCHES if name not in _KNOWN])
def test_branches_that_change_objects_of_libraries_are_refused(name: str) -> None:
    with pytest.raises(CaptureError) as found:
        weft.compile(_branch(name))(weft.ones(3))
    assert f"{__name__.rsplit('.', 1)[-1]}.py" in str(found.value)


@pytest.mark.parametrize("name", sorted(_KNOWN))
def test_branches_that_change_lists_dicts_and_sets_are_decided_by_python(name: str) -> None:
    check(lambda: _branch(name), (1.0,), (-1.0,), (2.0,))


@pytest.mark.parametrize("name", [n for n in BRANCHES if n not in ("random", "generator of NumPy")])
def test_branches_may_change_what_they_make(name: str) -> None:
    make, change, seen = BRANCHES[name]

    def step(x: Any) -> Any:
        k = 0
        if x.sum() > 0:
            made = make()
            change(made)
            k = seen(made)
        return x * k

    LOG.update(sum=weft.tensor(0.0), count=0)
    compiled = weft.compile(step)
    for values in ([1.0, 2.0], [-1.0, -2.0]):
        assert compiled(weft.tensor(values)).tolist() == step(weft.tensor(values)).tolist()


def test_a_list_of_a_library_grows_once_a_turn() -> None:
    def step(x: Any) -> Any:
        items = collections.UserList([x])
        for i in range(3):
            items += [x * i]
        return items[0] + items[-1]

    x = weft.tensor([1.0, 2.0])
    assert weft.compile(step)(x).tolist() == step(x).tolist() == [3.0, 6.0]


ITEMS = collections.UserList([1])


def test_a_list_of_a_library_from_outside_does_not_grow() -> None:
    def step(x: Any) -> Any:
        global ITEMS
        ITEMS += [2]
        return x * len(ITEMS)

    with pytest.raises(CaptureError, match="must not change a list from outside"):
        weft.compile(step)(weft.ones(2))
    assert ITEMS == [1]


def test_what_a_list_of_a_library_holds_is_picked_where_its_length_stays() -> None:
    def step(x: Any) -> Any:
        table: Any = collections.UserDict(a=x)
        if x.sum() > 0:
            table["a"] = x * 3.0
        return table["a"] + 1.0

    compiled = weft.compile(step)
    for values in ([1.0, 2.0], [-1.0, -2.0]):
        assert compiled(weft.tensor(values)).tolist() == step(weft.tensor(values)).tolist()


# From outside

A, VIEWED = np.zeros(3, np.float32), bytearray(b"abc")
VIEW = memoryview(VIEWED)


def _element(x: Any) -> None:
    A[0] = 5.0


def _added(x: Any) -> None:
    global A
    A += 1.0


def _of_a_view(x: Any) -> None:
    part = A[1:]
    part += 1.0


def _filled(x: Any) -> None:
    A.fill(5.0)


def _by_a_function(x: Any) -> None:
    np.add(A, 1.0, out=A)


def _bytes(x: Any) -> None:
    VIEW[0] = 9


@pytest.mark.parametrize("change", [_element, _added, _of_a_view, _filled, _by_a_function, _bytes])
def test_changes_of_arrays_from_outside_are_undone_and_refused(change: Form) -> None:
    with pytest.raises(CaptureError, match="from outside"):
        weft.compile(lambda x: (change(x), x)[1])(weft.ones(3))
    assert A.tolist() == [0.0, 0.0, 0.0]
    assert bytes(VIEWED) == b"abc"


def test_changes_of_arrays_that_are_arguments_are_refused() -> None:
    def step(x: Any, a: Any) -> Any:
        a[0] = 3.0
        return x + 1.0

    with pytest.raises(CaptureError, match="array that is an argument must not be changed"):
        weft.compile(step)(weft.ones(3), np.zeros(3, np.float32))


@pytest.mark.parametrize("hold", [collections.deque, set, frozenset])
def test_tensors_do_not_leave_in_what_is_no_tree(hold: Form) -> None:
    with pytest.raises(CaptureError, match="that holds a tensor"):
        weft.compile(lambda x: hold([x * 2.0]))(weft.ones(3))


# Where a capture goes back


def test_an_iterator_that_a_tried_turn_has_moved_is_not_used_again() -> None:
    def step(x: Any) -> Any:
        it, total = iter([1.0, 2.0, 3.0]), x * 0.0
        while True:
            total = total + next(it)
            if total.sum() > x.sum():
                break
        return total

    with pytest.raises(CaptureError, match="next"):
        weft.compile(step)(weft.ones(3))


def test_what_a_tried_turn_has_changed_is_put_back() -> None:
    def step(x: Any) -> Any:
        d, total, k = collections.deque([1.0, 2.0, 3.0, 4.0]), x * 0.0, 0
        while k < 3:
            k += 1
            total = total + d.popleft()
            if k == 2:
                total = total.reshape(1, -1)
        return total * len(d)

    for values in ([1.0, 2.0], [-1.0, -2.0]):
        expected = step(weft.tensor(values))
        assert weft.compile(step)(weft.tensor(values)).tolist() == expected.tolist()


def test_a_list_of_a_library_of_a_branch_stays_in_it() -> None:
    def step(x: Any, n: Any) -> Any:
        one, other = x * 1.0, x * 2.0
        if x.sum() > 0:
            for _ in range(n):
                one, other = other, one
            items = collections.UserList([one, other])
            if n > 1:
                items[1] = x
            x = items[0] + items[1]
        return x

    compiled = weft.compile(step)
    for values, n in itertools.product(([1.0, 2.0], [-1.0, -2.0]), (0, 1, 2)):
        given = weft.tensor(values), weft.tensor(n)
        assert compiled(*given).tolist() == step(*given).tolist()

"""Forms of Python in captured code: walrus, lists, dicts, keywords, generators, iterators, huge lists."""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
from typing import Any

import pytest

import weft
from tests.capture.both_ways import check
from weft.errors import ArgumentError, CaptureError


class Holder:
    def __init__(self) -> None:
        self.n = weft.tensor(0.0)

    @contextlib.contextmanager
    def scope(self) -> Any:
        self.n = self.n + 1.0
        yield self
        self.n = self.n + 10.0

    def steps(self, count: int) -> Any:
        for i in range(count):
            self.n = self.n + 1.0
            got = yield self.n * i
            if got is not None:
                self.n = self.n * 1.0

    def all_steps(self) -> Any:
        yield from self.steps(2)
        while True:
            self.n = self.n + 2.0
            yield self.n
            break

    def __iter__(self) -> Any:
        return self.all_steps()

    @functools.cached_property
    def kept(self) -> Any:
        self.n = self.n + 7.0
        return weft.tensor(2.0)


def walrus(o: Any, x: Any) -> Any:
    n = 0
    while (y := x * 2.0) < 10:
        x = x + 1.0
        n += 1
    return x, y, n


def walrus_and_else(o: Any, x: Any) -> Any:
    while (y := x * 2.0) < 10:
        x = x * 2.0 + 3.0
    else:
        y = y + 1.0
    return x, y


def walrus_and_break(o: Any, x: Any) -> Any:
    while (y := x * 2.0) < 100:
        x = x + 3.0
        if y > 20:
            break
    return x, y


def walrus_under_if(o: Any, x: Any) -> Any:
    if (y := x * 2.0) > 3:
        return y
    return y * 0.0


def walrus_of_state(o: Any, x: Any) -> Any:
    while (x := x + 1.0) < 5:
        o.n = o.n + x
    return x


def effect_in_a_test(o: Any, x: Any) -> Any:
    def going() -> Any:
        o.n = o.n + 1.0
        return x + o.n < 6.0

    while going():
        x = x + 1.0
    return x


def effect_behind_or(o: Any, x: Any) -> Any:
    def bump() -> Any:
        o.n = o.n + 1.0
        return o.n > 2.0

    return x + 1.0 if bump() or bump() else x - 1.0


def repeated_list(o: Any, x: Any) -> Any:
    items = [x, x + 1.0]
    items *= 2
    items += [x]
    return items, items * 2, 2 * items


def repeated_under_if(o: Any, x: Any) -> Any:
    items = [x]
    if x > 0:
        items *= 1
        items[0] = items[0] + 1.0
    return items


def default_dict(o: Any, x: Any) -> Any:
    d: Any = collections.defaultdict(list)
    d["a"].append(x)
    d["b"].append(x * 2.0)
    d["a"].append(x * 3.0)
    counts: Any = collections.defaultdict(int)
    for k in "abca":
        counts[k] += 1
    return d["a"], d["b"], x * counts["a"]


def default_dict_of_tensors(o: Any, x: Any) -> Any:
    d: Any = collections.defaultdict(lambda: x * 0.0)
    for _ in range(3):
        d["k"] = d["k"] + x
    if x > 0:
        d["k"] = d["k"] * 2.0
    return d["k"]


def counter(o: Any, x: Any) -> Any:
    return x * collections.Counter("aab")["a"] + collections.Counter("aab")["z"]


def ordered_dict(o: Any, x: Any) -> Any:
    d = collections.OrderedDict(a=x, b=x * 2.0)
    d["c"] = x * 3.0
    if x > 0:
        d["a"] = x * 10.0
    d.move_to_end("a")
    return list(d.values())


def keywords(o: Any, x: Any) -> Any:
    def inner(x: Any, **options: Any) -> Any:
        s = options.pop("s", 2.0)
        options["t"] = x * s
        options.setdefault("u", x)
        if x > 0:
            options["t"] = options["t"] + 1.0
        del options["u"]
        return sum(options.values())

    return inner(x, s=3.0, v=x) + inner(x)


def keys_of_a_comprehension(o: Any, x: Any) -> Any:
    d = {i: x * i for i in [j * 2 for j in range(3)]}
    return d[4] + sum(d[k] for k in [i for i in d if i < 4])


def one_element_tests(o: Any, x: Any) -> Any:
    y = x.reshape(1)
    for _ in range(6):
        if y > 5 and y < 100:
            break
        y = y + 1.0
        if y and not y < 0:
            y = y + 0.5
    if y or y > 3:
        return y
    return y * 0.0


def untouched_numbers(o: Any, x: Any) -> Any:
    k, f, s, b = 3, 2.5, "a", True
    while x < 5:
        x = x + 1.0
    return k, f, s, b, x


def context_manager(o: Any, x: Any) -> Any:
    y = x
    if x > 0:
        with o.scope() as p:
            y = x * p.n
    return y * 1.0


def generator(o: Any, x: Any) -> Any:
    y = x
    if x > 0:
        for v in o.steps(3):
            y = y + v
    return y * 1.0


def generator_of_generators(o: Any, x: Any) -> Any:
    if x > 0:
        x = x + sum(o)
    return x * 1.0


def generator_by_hand(o: Any, x: Any) -> Any:
    steps = o.steps(3)
    return x + next(steps) + steps.send(None)


def inner_generator(o: Any, x: Any) -> Any:
    def steps() -> Any:
        o.n = o.n + 5.0
        yield 1.0

    if x > 0:
        for k in steps():
            x = x + k
    return x * 1.0


def generator_expression(o: Any, x: Any) -> Any:
    def bump(k: float) -> float:
        o.n = o.n + k
        return k

    y = x
    if x > 0:
        y = x + sum(bump(k) for k in (1.0, 2.0))
    return y * 1.0


def callbacks(o: Any, x: Any) -> Any:
    def bump(k: float) -> float:
        o.n = o.n + k
        return k

    y = x
    if x > 0:
        y = y + functools.reduce(lambda a, b: a + bump(b), [1.0, 2.0, 3.0])
        y = y + sorted([2.0, 1.0], key=bump)[0] + max([1.0, 2.0], key=bump)
        y = y + sum(itertools.starmap(lambda a, b: bump(a) * b, [(1.0, 2.0)]))
    return y * 1.0


def cached(o: Any, x: Any) -> Any:
    return o.kept * x + o.kept


FORMS = [
    walrus,
    walrus_and_else,
    walrus_and_break,
    walrus_under_if,
    walrus_of_state,
    effect_in_a_test,
    effect_behind_or,
    repeated_list,
    repeated_under_if,
    default_dict,
    default_dict_of_tensors,
    counter,
    ordered_dict,
    keywords,
    keys_of_a_comprehension,
    one_element_tests,
    untouched_numbers,
    context_manager,
    generator,
    generator_of_generators,
    generator_by_hand,
    inner_generator,
    generator_expression,
    callbacks,
    cached,
]


def record(form: Any, *, compiled: bool) -> list[Any]:
    o = Holder()

    def run(x: Any) -> Any:
        return form(o, x)

    f = weft.compile(run) if compiled else run
    found = []
    for value in (1.0, -1.0, 2.0, 30.0, 0.5):
        leaves = weft.tree_leaves(f(weft.tensor(value)))
        found += [x.tolist() if isinstance(x, weft.Tensor) else x for x in leaves] + [o.n.tolist()]
        found += [type(x) for x in leaves]
    return found


@pytest.mark.rotating(3)
@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
def test_compiled_does_what_eager_does(form: Any) -> None:
    assert record(form, compiled=True) == record(form, compiled=False)


def test_an_iterator_is_moved_on_where_it_was_made() -> None:
    def f(x: Any) -> Any:
        steps = iter([1.0, 2.0])
        if x > 0:
            x = x + next(steps)
        return x + next(steps)

    with pytest.raises(CaptureError, match="an iterator must be made in the branch or loop") as caught:
        weft.compile(f)(weft.tensor(1.0))
    assert "x = x + next(steps)" in str(caught.value)


def test_a_generator_is_moved_on_where_it_was_made() -> None:
    def f(x: Any) -> Any:
        steps = (k * 2.0 for k in [1.0, 2.0])
        walked = iter(steps)
        if x > 0:
            x = x + next(walked)
        return x

    with pytest.raises(CaptureError, match="an iterator must be made in the branch or loop"):
        weft.compile(f)(weft.tensor(1.0))


def test_a_stack_of_nothing_is_an_error_of_the_run() -> None:
    @weft.compile
    def f(x: Any, n: Any) -> Any:
        out = []
        for i in range(n):
            out.append(x * i)  # noqa: PERF401 - as users write it
        return weft.stack(out)

    assert f(weft.tensor(1.0), weft.tensor(3)).tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(ArgumentError, match="stack: at least one tensor is needed, got none"):
        f(weft.tensor(1.0), weft.tensor(0))
    assert f(weft.tensor(1.0), weft.tensor(2)).tolist() == [0.0, 1.0]


HUGE: list[Any] = [[float(i)] if i % 2 else None for i in range(200_000)]


def test_a_slice_of_a_huge_list_guards_what_it_takes() -> None:
    f = weft.compile(lambda x: x + HUGE[3:6][0][0] + len(HUGE[-2:]))
    assert f(weft.tensor(1.0)).item() == 6.0
    HUGE[1] = None
    assert f(weft.tensor(1.0)).item() == 6.0
    assert len(f.versions) == 1
    HUGE[3] = [10.0]
    assert f(weft.tensor(1.0)).item() == 13.0


def test_a_huge_list_has_one_guard() -> None:
    items: list[Any] = [None] * 100_000
    f = weft.compile(lambda x: x + sum(1.0 for y in items[:] if y is not None))
    assert f(weft.tensor(1.0)).item() == 1.0
    assert f(weft.tensor(1.0)).item() == 1.0
    assert len(f.versions) == 1
    items[77_777] = "x"
    assert f(weft.tensor(1.0)).item() == 2.0


def negated(x: Any) -> Any:
    return not x > 0, [not x], {"n": (not x > 0) + 1}


def negated_until(x: Any) -> Any:
    n, done = 0, not x < 5
    while not done:
        x, n = x + 1, n + 1
        done = not x < 5
    return x, n, done


@pytest.mark.parametrize("program", [negated, negated_until], ids=lambda f: f.__name__)
def test_not_gives_a_truth_value_of_python(program: Any) -> None:
    check(lambda: program, (1.0,), (-1.0,), (0.0,), (7.0,))

"""Lists of a length that only a run tells, where library code looks into them; lists that Python makes."""

from __future__ import annotations

import bisect
import contextlib
import heapq
import operator
import runpy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from tests.capture.agree import assert_same

UP, DOWN = [1.0, 2.0, 3.0], [-1.0, 2.0, -3.0]


def by_branch(x: Any) -> Any:
    items = [x * 1.0]
    if x.sum() > 0:
        items.append(x * 2.0)
    return items


def by_loop(x: Any, n: Any) -> Any:
    items: list[Any] = []
    for i in range(n):
        items.append(x * i)  # noqa: PERF401 - what is tested
    return items


def run_agrees(function: Callable[..., Any], *runs: Any) -> None:
    """A compiled function gives what the eager one gives, call after call."""
    compiled = weft.compile(function)
    for run in (*runs, *runs):
        assert_same(compiled(*map(weft.tensor, run)), function(*map(weft.tensor, run)))


LOOKS: dict[str, Callable[[Any], Any]] = {
    "np.array": np.array,
    "np.stack": np.stack,
    "np.mean": np.mean,
    "np.max": np.max,
    "np.sum": np.sum,
    "tree_leaves": weft.tree_leaves,
    "tree_flatten": weft.tree_flatten,
    "tree_structure": weft.tree_structure,
    "tree_map": lambda items: weft.tree_map(lambda t: t.sum(), items),
    "tree_map of two": lambda items: weft.tree_map(operator.add, items, items),
    "scan": lambda items: weft.scan(lambda c, row: (c + row[0], c), weft.zeros(3), items),
    "vmap": lambda items: weft.vmap(lambda row: row[0] * 2)(items),
    "a tree around": lambda items: weft.tree_leaves({"a": items}),
    "gt": lambda items: items > [1],
    "lt from the right": lambda items: operator.lt([0], items),
    "__gt__": lambda items: items.__gt__([1]),
    "+ from the right": lambda items: [1.0] + items,  # noqa: RUF005 - what is tested
    "list.__len__": lambda items: list.__len__(items),
    "list.pop": lambda items: list.pop(items),
    "list.sort": lambda items: list.sort(items),
    "list.insert": lambda items: list.insert(items, 0, items[0]),
    "__setitem__": lambda items: items.__setitem__(0, 1.0),
    "operator.setitem": lambda items: operator.setitem(items, -1, 1.0),
    "__imul__": lambda items: items.__imul__(2),
    "__reversed__": lambda items: items.__reversed__(),
    "heapq": heapq.heapify,
    "bisect": lambda items: bisect.insort(items, 1.0),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_who_would_see_how_such_a_list_is_held_is_refused(look: Callable[[Any], Any]) -> None:
    with pytest.raises(weft.errors.CaptureError, match="needs a list of known length"):
        weft.compile(lambda x: look(by_branch(x)))(weft.tensor(UP))
    with pytest.raises(weft.errors.CaptureError, match="needs a list of known length"):
        weft.compile(lambda x, n: look(by_loop(x, n)))(weft.tensor(UP), weft.tensor(2))


@pytest.mark.parametrize(
    "more", [lambda x: [x, x * 2], lambda x: (x,), lambda x: [], lambda x: (a for a in (x, x))]
)
def test_such_a_list_is_extended_by_tensors(more: Callable[[Any], Any]) -> None:
    def branch(x: Any) -> Any:
        items = by_branch(x)
        items.extend(more(x * 3))
        items += more(x * 5)
        return items

    def loop(x: Any, n: Any) -> Any:
        items = by_loop(x, n)
        items.extend(more(x * 3))
        items.__iadd__(list(more(x * 7)))
        return items, len(items)

    run_agrees(branch, (UP,), (DOWN,))
    run_agrees(loop, (UP, 2), (UP, 0), (DOWN, 3))


def test_numbers_among_the_tensors_of_such_a_list_are_refused() -> None:
    def after(x: Any) -> Any:
        items = by_branch(x)
        items.extend([1, 2])
        return items

    def inside(x: Any) -> Any:
        items = [x]
        if x > 0:
            items.extend([1, 2])
        return items

    for f in (after, inside):
        with pytest.raises(
            weft.errors.CaptureError, match="must be tensors of one shape and dtype, or numbers"
        ):
            weft.compile(f)(weft.tensor(1.0))


def test_lists_of_known_length_are_changed_by_special_methods() -> None:
    def f(x: Any) -> Any:
        items = [x, x * 2, x * 3]
        if x.sum() > 0:
            items.__setitem__(0, x * 5)
        items.__iadd__([x])
        items.__delitem__(1)
        return items, items.__len__()

    run_agrees(f, (UP,), (DOWN,))


@pytest.mark.parametrize(
    ("read", "change"),
    [
        (lambda d, x: d.__getitem__(0) * x, lambda d: d.__setitem__(0, 7.0)),
        (lambda d, x: d.__contains__(1) * x, lambda d: d.__setitem__(1, 7.0)),
        (lambda d, x: d.__len__() * x, lambda d: d.__setitem__(1, 7.0)),
        (lambda d, x: (d.__eq__({0: 1.0})) * x, lambda d: d.__setitem__(0, 7.0)),
        (lambda d, x: [*d.__reversed__()], lambda d: d.__setitem__(1, 7.0)),
    ],
)
def test_special_methods_of_a_dict_from_outside_are_guarded(read: Any, change: Any) -> None:
    held = {0: 1.0}
    f = weft.compile(lambda x: read(held, x))
    assert_same(f(weft.tensor(2.0)), read(held, weft.tensor(2.0)))
    change(held)
    assert_same(f(weft.tensor(2.0)), read(held, weft.tensor(2.0)))


def test_special_methods_that_make_a_list_from_outside_longer_are_refused() -> None:
    held = [weft.tensor(1.0)]
    for use in (lambda x: held.__iadd__([x]), lambda x: held.__delitem__(0), lambda x: held.__imul__(2)):
        with pytest.raises(
            weft.errors.CaptureError, match="must not change the length of a list from outside"
        ):
            weft.compile(use)(weft.tensor(1.0))
    assert len(held) == 1


def test_sizes_that_only_a_run_tells_leave_as_numbers() -> None:
    held: dict[str, Any] = {}

    @weft.compile
    def f(x: Any) -> Any:
        flat = weft.nn.utils.parameters_to_vector(by_branch(x))
        held["n"] = flat.shape[0]
        return flat.shape, flat.size

    for values, count in ((UP, 6), (DOWN, 3), (UP, 6)):
        assert f(weft.tensor(values)) == ((count,), count)
        assert (held["n"], type(held["n"])) == (count, int)


# Lists that Python makes


@contextlib.contextmanager
def three(x: Any) -> Any:
    yield x, x * 2, x * 3


def kept(*args: Any, **kwargs: Any) -> Any:
    return [*args], kwargs


STARS: dict[str, str] = {
    "assigned": "a, *b = Y",
    "at the end": "*b, a = Y",
    "in the middle": "a, *b, c = Y",
    "of a tuple": "a, *b = Y, Y * 2, Y * 3",
    "nested": "(a, *b), c = Y, 3.0",
    "lists inside": "a, *b = [Y, [Y * 2, Y * 3]]",
    "to places": "b = [Y, Y, Y, Y]\nb[0], *b[1:3] = Y, Y * 2, Y * 3",
    "match": "match [Y, Y * 2, Y * 3]:\n  case [a, *b]: pass",
    "match of a mapping": "match {'a': Y, 'b': Y * 2}:\n  case {'a': a, **b}: pass",
    "with": "with three(Y) as (a, *b): pass",
    "of a loop": "for a, *b in [(Y, Y * 2), (Y * 3, Y * 4)]: pass",
    "of a comprehension": "b = [q for _, *q in [(Y, Y * 2), (Y * 3, Y * 4)]]",
    "keywords": "b = kept(Y, k=Y * 2)",
    "keywords of a lambda": "b = (lambda **k: k)(a=Y, b=Y * 2)",
    "concat": "b = operator.concat([Y], [Y * 2])",
    "cond": "b = weft.cond(Y.sum() > 0, lambda: [Y], lambda: [Y * 2])",
    "leaves": "b = weft.tree_flatten([Y, Y * 2])[0]",
    "fromkeys": "b = dict.fromkeys(['a', 'b'], Y)",
}


def program(source: str, tmp_path: Any) -> Callable[..., Any]:
    ways = [source.replace("Y", "(x * 2.0)"), source.replace("Y", "(x * 5.0)")]
    lines = [["    " * 2 + line for line in way.split("\n")] for way in ways]
    text = "\n".join(["def f(x):", "    if x.sum() > 0:", *lines[0], "    else:", *lines[1], "    return b"])
    path = tmp_path / "program.py"
    path.write_text(text)
    scope = {"weft": weft, "operator": operator, "three": three, "kept": kept}
    return runpy.run_path(str(path), scope)["f"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("source", STARS.values(), ids=STARS)
def test_lists_and_dicts_that_python_makes_in_a_branch(source: str, tmp_path: Any) -> None:
    run_agrees(program(source, tmp_path), (UP,), (DOWN,))


def test_stars_in_loops_of_the_graph() -> None:
    def f(x: Any, n: Any) -> Any:
        y, total = x, x[0]
        for _ in range(n):
            a, *b = y
            y = weft.stack([b[0], b[1], a])
            total = total * 2 + b[1]
        return y, total

    run_agrees(f, (UP, 2), (UP, 0), (DOWN, 3))


def test_a_star_in_an_attribute_is_stored_on_one_way() -> None:
    class Box:
        """Something that keeps a list."""

    for wrap in (lambda f: f, weft.compile):
        box: Any = Box()
        box.rest = [weft.tensor(9.0), weft.tensor(9.0)]

        def store(x: Any, box: Any = box) -> Any:
            if x.sum() > 0:
                _, *box.rest = x
            return x * 2

        f: Any = wrap(store)
        f(weft.tensor(DOWN))
        assert [t.item() for t in box.rest] == [9.0, 9.0]
        f(weft.tensor(UP))
        assert [t.item() for t in box.rest] == [2.0, 3.0]

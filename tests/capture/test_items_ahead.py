"""Items that a run may not come to: the capture takes them, which must change nothing that stays."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import weft
from tests.capture.state_programs import check_source
from tests.capture.state_source import PREAMBLE
from weft.errors import CaptureError

BEFORE = """
class Taken:
    def __init__(self, o, tensors):
        self.o, self.tensors, self.at = o, tensors, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at == len(self.tensors):
            raise StopIteration
        self.at += 1
        return self.tensors[self.at - 1]


class Counting(Taken):
    def __next__(self):
        self.o.p = self.o.p + 1.0
        return super().__next__()


def pure(x, y):
    for k in range(3):
        z = x * k
        z.add_(1.0)
        yield z + y


def nested(x, y):
    yield from pure(x, y)
    yield y


def halving(x, y):
    yield x
    y.mul_(0.5)
    yield y


def storing(o, y):
    yield y
    o.q = y * 2.0
    yield y + 1.0


def counting(o, y):
    yield y
    o.count += 1
    yield y + 1.0


def filling(box, y):
    for k in range(3):
        box[0] = y * k
        yield y


def drawing(y):
    yield y
    yield y + weft.rand(3)


"""

ALIKE = {
    "a generator that changes nothing": """
        s = a
        for x in pure(a, m[0]):
            if x.sum() > c: break
            s = s + x
        return s, a
    """,
    "that another hands on": """
        s = a
        for x in nested(a, m[0]):
            if x.sum() > c: break
            s = s + x
        return s, a
    """,
    "in another function of iterators": """
        s = a
        for k, (x, y) in enumerate(zip(pure(a, m[0]), map(weft.sin, pure(m[1], a)))):
            if x.sum() > c: break
            s = s + x * y + k
        return s, a
    """,
    "an expression": """
        s = a
        for x in (row * 2.0 for row in m):
            if x.sum() > c: break
            s = s + x
        return s, a
    """,
    "an object": """
        s = a
        for x in Taken(o, [m[0], m[1], a]):
            if x.sum() > c: break
            s = s + x
        return s, a
    """,
    "rows that the body changes": """
        for x in walk(a, m[0]):
            x.add_(0.25)
            if x.sum() > c: break
        return a, m[0]
    """,
    "a change after the loop that no tensor ends": """
        s = a
        for x in halving(a, m[0]):
            s = s + x
        return s, m[0]
    """,
    "a number ends it": """
        s = a
        for k, x in enumerate(halving(a, m[0])):
            if k == 0: break
            s = s + x
        return s, m[0]
    """,
    "any": "return a * any(x.sum() > c for x in pure(a, m[0])), m[0]",
    "all": "return a * all(x.sum() > c for x in nested(a, m[0])), m[0]",
    "a while that takes items": """
        it, s = pure(a, m[0]), a
        s = s + next(it)
        for x in it:
            if x.sum() > c: break
            s = s + x
        return s, a
    """,
}

REFUSED = {
    "a generator that changes an argument": ("halving(a, m[0])", "a change of"),
    "that sets an attribute": ("storing(o, m[0])", "the attribute 'q'"),
    "that counts": ("counting(o, m[0])", "the attribute 'count'"),
    "that sets an item": ("filling(o.box, m[0])", "the item 0 of a list"),
    "that draws random numbers": ("drawing(m[0])", "the state of a random generator"),
    "in a function of iterators": ("map(weft.sin, halving(a, m[0]))", "a change of"),
    "in an expression": ("(x * 2.0 for x in storing(o, m[0]))", "the attribute 'q'"),
    "a function that changes": ("map(lambda x: x.mul_(0.5), [a, m[0]])", "a change of"),
    "an object": ("Counting(o, [a, m[0]])", "the attribute 'p'"),
}
FORMS = {
    "for": """
        s = m[1]
        for x in {}:
            if x.sum() > c: break
            s = s + x
        return s, a
    """,
    "any": "return a * any(x.sum() > c for x in {}), m[0]",
    "all": "return a * all(x.sum() > c for x in {}), m[0]",
}
LATER = {
    "next": "y = next(it)",
    "another loop": "y = sum([x for x in it], m[1])",
    "a list of the rest": "y = sum(list(it), m[1])",
    "what it takes items from": "y = next(inner)",
    "a return": "o.kept = it; y = m[1]",
}


def _source(program: str) -> str:
    body = textwrap.indent(textwrap.dedent(program).strip("\n"), " " * 8)
    return f"{BEFORE}{PREAMBLE}{body}\n\n    return f\n"


def _told(name: str, program: str) -> set[str]:
    return {check_source(_source(program), f"<{name}>", gradients=g, shared=g) for g in (False, True)}


@pytest.mark.parametrize("name", ALIKE)
def test_items_that_change_nothing_are_taken(name: str) -> None:
    assert _told(name, ALIKE[name]) == {"same"}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", REFUSED)
def test_items_that_change_something_are_refused(form: str, name: str) -> None:
    items, what = REFUSED[name]
    for told in _told(f"{form} {name}", FORMS[form].format(items)):
        assert told.startswith("refused: iter: to take an item for"), told
        assert what in told, told


@pytest.mark.parametrize("name", LATER)
def test_nobody_asks_for_more_of_an_iterator_whose_loop_a_tensor_may_end(name: str) -> None:
    program = f"""
        inner = pure(a, m[0])
        it, s = map(weft.sin, inner), a
        for x in it:
            if x.sum() > c: break
            s = s + x
        {LATER[name]}
        return s, y
    """
    told = _told(name, program)
    assert all(x.startswith("refused: ") for x in told), told


def test_a_list_that_a_branch_appends_to_while_a_loop_goes_along_it_is_refused_with_the_line() -> None:
    @weft.compile
    def grown(x: Any) -> Any:
        rows = [x, x * 2.0]
        s = x
        for row in rows:
            if row.sum() > 1 and len(rows) < 4:
                rows.append(row * 0.5)
            s = s + row
        return s

    with pytest.raises(CaptureError, match="must not grow") as found:
        grown(weft.tensor([1.0, 2.0]))
    assert f"{__name__.rsplit('.', 1)[-1]}.py" in str(found.value)


@pytest.mark.parametrize("many", [any, all])
def test_any_and_all_of_a_generator_from_outside_are_refused(many: Callable[..., Any]) -> None:
    def rows() -> Iterator[Any]:
        yield weft.tensor(1.0)
        yield weft.tensor(-1.0)

    it = rows()
    with pytest.raises(CaptureError, match="outside"):
        weft.compile(lambda x: x * many(y > x for y in it))(weft.tensor(0.5))

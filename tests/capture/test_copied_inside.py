"""What captured code copies is its own: objects of `copy`, `dataclasses.replace`, defaults and partials."""

from __future__ import annotations

import copy
import dataclasses
import functools
import textwrap
from typing import Any, ClassVar

import pytest

import weft
from tests.capture.state_programs import check_source
from tests.capture.state_source import PREAMBLE
from weft.errors import CaptureError

ALIKE = {
    "a deep copy that changes": """
        b = copy.deepcopy(o.rows)
        b[0][0].mul_(0.5)
        b[1] = [a]
        z = b[0][0] + b[1][0]
    """,
    "a deep copy of a tensor": """
        b = copy.deepcopy(L[0])
        b.add_(1.0)
        z = b * L[0]
    """,
    "a flat copy of a list": """
        b = copy.copy(o.rows)
        b[0] = [a]
        b[1][0] = m[0]
        z = b[0][0] + b[1][0]
    """,
    "a flat copy of a dict": """
        b = copy.copy(D)
        b["x"] = a
        b["in"]["v"] = m[0] * 1.0
        z = b["x"] + D["in"]["v"]
    """,
    "a method of a list": """
        b = o.rows.copy()
        b[0] = [a]
        b[1][0] = m[0]
        z = b[0][0]
    """,
    "an object in a branch": """
        k = copy.copy(Node(a))
        if c > 0:
            k.row = m[0]
        z = k.row * 2.0
    """,
    "an object in a loop": """
        k = copy.deepcopy(Node([a]))
        for i in range(n):
            k.row[0] = k.row[0] * 0.5 + m[0]
        z = k.row[0]
    """,
}


@pytest.mark.parametrize("name", ALIKE)
def test_copies_are_objects_of_the_call(name: str) -> None:
    body = textwrap.indent(textwrap.dedent(ALIKE[name]).strip("\n"), " " * 8)
    source = f"{PREAMBLE}{body}\n        return a * 1.0, z\n\n    return f\n"
    told = {check_source(source, f"<{name}>", gradients=g, shared=g) for g in (False, True)}
    assert told == {"same"}


class Settings:
    """An object with a number and a list."""

    def __init__(self) -> None:
        self.n, self.parts = 1, [1.0]


@dataclasses.dataclass
class Pair:
    """A number, and a list of numbers."""

    n: int
    parts: list[float]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, dataclasses.replace])
def test_a_number_of_a_copy_counts_from_that_of_each_call(copied: Any) -> None:
    def told(wrap: Any) -> list[Any]:
        known: Any = Pair(1, [1.0]) if copied is dataclasses.replace else Settings()

        def step(x: Any) -> Any:
            other = copied(known)
            other.n += 5
            return x * other.n

        step, found = wrap(step), []
        for n in (1, 1, 3):
            known.n = n
            found.append((step(weft.tensor(2.0)).item(), known.n))
        return found

    assert told(weft.compile) == told(lambda f: f) == [(12.0, 1), (12.0, 1), (16.0, 3)]


def appends_to_default(x: Any, kept: list[Any] = []) -> Any:  # noqa: B006 - this is what is tested
    kept.append(x)
    return x * len(kept)


def appends_to_keyword(x: Any, *, kept: list[Any] = []) -> Any:  # noqa: B006 - likewise
    kept.append(x)
    return x * len(kept)


def appends(kept: list[Any], x: Any) -> Any:
    kept.append(x)
    return x * len(kept)


def of_an_inner_function(x: Any) -> Any:
    return appends_to_default(x) + 1.0


@pytest.mark.parametrize(
    "function",
    [appends_to_default, appends_to_keyword, of_an_inner_function, functools.partial(appends, [])],
    ids=["a default", "of a keyword", "of an inner function", "of a partial"],
)
def test_what_stays_with_a_function_from_call_to_call_is_from_outside(function: Any) -> None:
    with pytest.raises(CaptureError, match="append"):
        weft.compile(lambda x: function(x))(weft.tensor(1.0))


def test_items_of_a_default_may_change() -> None:
    def step(x: Any, kept: list[Any] = [weft.tensor(0.0)]) -> Any:  # noqa: B006, B008 - what is tested
        kept[0] = kept[0] + x
        return kept[0]

    compiled = weft.compile(lambda x: step(x))
    assert [compiled(weft.tensor(float(x))).item() for x in (1, 2, 3)] == [1.0, 3.0, 6.0]


def test_a_list_that_a_call_makes_as_default_is_its_own() -> None:
    @weft.compile
    def step(x: Any) -> Any:
        def inner(y: Any, kept: list[Any] = [x]) -> Any:  # noqa: B006 - what is tested
            kept.append(y)
            return sum(kept)

        return inner(x * 2.0) + inner(x)

    assert [step(weft.tensor(x)).item() for x in (1.0, 1.0, 2.0)] == [7.0, 7.0, 14.0]


def test_rows_that_sorted_gives_are_views_of_the_tensor() -> None:
    def step(x: Any, back: bool) -> Any:
        rows = sorted(x, reverse=back)
        rows[0].mul_(10.0)
        rows[-1].add_(1.0)
        return rows[1] + rows[0]

    for back in (False, True):
        for values in ([3.0, 1.0, 2.0], [1.0, 1.0, 0.0], [2.0, 5.0, 2.0]):
            ours, theirs = weft.tensor(values), weft.tensor(values)
            assert weft.compile(step)(ours, back).item() == step(theirs, back).item()
            assert ours.tolist() == theirs.tolist()


class Counting:
    """Counts its copies."""

    copies = 0

    def __init__(self, x: Any) -> None:
        self.x = x

    def __copy__(self) -> Any:
        Counting.copies += 1
        return Counting(self.x * 2.0)

    def __deepcopy__(self, memo: Any) -> Any:
        Counting.copies += 10
        return Counting(self.x * 3.0)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_methods_of_the_user_that_copy_run_in_each_call(copied: Any) -> None:
    def told(wrap: Any) -> list[Any]:
        Counting.copies = 0
        step = wrap(lambda x: copied(Counting(x)).x * Counting.copies)
        return [step(weft.tensor(x)).item() for x in (1.0, 1.0, 2.0)]

    assert told(weft.compile) == told(lambda f: f)


class Ending:
    """Does something when it ends."""

    ended = 0

    def __del__(self) -> None:
        Ending.ended += 1


class Borg:
    """Objects that have one dict of attributes."""

    shared: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        self.__dict__ = Borg.shared


def test_objects_whose_end_or_attributes_others_see_are_refused() -> None:
    with pytest.raises(CaptureError, match="__del__"):
        weft.compile(lambda x: (Ending(), x)[1])(weft.tensor(1.0))
    assert Ending.ended == 0
    with pytest.raises(CaptureError, match="attributes of one from outside"):
        weft.compile(lambda x: (Borg(), x)[1])(weft.tensor(1.0))


class Setting:
    """A number that the class has, until an object gets its own."""

    k = 2.0


def test_a_number_of_a_class_stays_one_of_the_class_where_a_way_does_not_set_it() -> None:
    def told(wrap: Any) -> list[Any]:
        own = Setting()

        def step(x: Any) -> Any:
            if x > 0:
                own.k = own.k + 1.0
            return x * own.k

        step, found = wrap(step), []
        for x, of_class in ((-1.0, 2.0), (-1.0, 7.0), (1.0, 7.0), (-1.0, 9.0)):
            Setting.k = of_class
            found.append((step(weft.tensor(x)).item(), vars(own).copy()))
        return found

    assert told(weft.compile) == told(lambda f: f)

"""Which part of a large table of tests a run takes: another one whenever weft's code is another.

Where every op meets every dtype, a run takes the first case of each op and some of the others. Which ones is
told by a hash of weft's source: two runs of the same code are the same, every change of weft meets other
cases, and in time all are met. ``WEFT_ALL=1`` takes everything, as ``make test-all`` does.

``@pytest.mark.rotating(n)`` does that for a table of parameters: of its cases a run takes one of n parts, and
of a product of tables every value of each. A test without parameters that is marked so, because it is dear
and others look at the same, is run in one of n runs. What the command line names has all its cases.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, seed, settings

import weft

T = TypeVar("T")

ALL = os.environ.get("WEFT_ALL", "") == "1"


@functools.cache
def seed_of_code() -> int:
    """A seed that is another one whenever weft is."""
    found = hashlib.sha256()
    for path in sorted(Path(weft.__file__).parent.rglob("*.py")):
        found.update(path.read_bytes())
    return int(found.hexdigest()[:8], 16)


def _number(name: str) -> int:
    return int(hashlib.sha256(f"{seed_of_code()} {name}".encode()).hexdigest()[:8], 16)


def is_turn(name: str, parts: int) -> bool:
    """Whether what has this name is in the part of this code, which is one of so many."""
    return ALL or _number(name) % parts == 0


def one_of(items: Sequence[T], name: str) -> list[T]:
    """One of several ways to check what has this name, or all ways."""
    return list(items) if ALL else [items[_number(name) % len(items)]]


def turn_of(items: Iterable[T], parts: int, *, first: int = 1, name: Callable[[T], str] = str) -> list[T]:
    """The first of some items, and of the others those whose turn it is."""
    return [x for i, x in enumerate(items) if i < first or is_turn(f"{i} {name(x)}", parts)]


def part_of(items: Sequence[T], parts: int) -> list[T]:
    """Every n-th of some items, beginning with another one for another code."""
    return list(items) if ALL else list(items)[seed_of_code() % parts :: parts]


def examples(everything: int, some: int, **options: Any) -> Callable[[T], T]:
    """Settings of a test on random examples: a run draws some, others whenever weft's code is another.

    ``pytest --hypothesis-profile=explore`` draws everything, others each time.
    """
    told = settings.default is not None and settings.default.derandomize
    count = some if told and not ALL else everything
    options.setdefault("suppress_health_check", [HealthCheck.too_slow])  # others have the machine, too
    limits = settings(max_examples=count, deadline=None, database=None, **options)

    def decorate(test: T) -> T:
        out: T = limits(seed(seed_of_code())(test) if told else test)  # type: ignore[type-var]
        return out

    return decorate


def rotating(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Of collected tests those that a run takes: of the tests that are marked so, a part of the cases."""
    tables: dict[str, dict[str, Mapping[str, int]]] = {}
    parts: dict[str, int] = {}
    for item in items:
        if (mark := item.get_closest_marker("rotating")) is not None:
            name, case = item.nodeid.partition("[")[0], getattr(item, "callspec", None)
            tables.setdefault(name, {})[item.nodeid] = case.indices if case else {}
            parts[name] = mark.args[0]
    left_out: set[str] = set()
    for name, cases in tables.items():
        if len(cases) > 1:
            left_out |= cases.keys() - part_of_product(cases, parts[name])
        elif not is_turn(name, parts[name]):
            left_out |= cases.keys()
    return list(items) if ALL else [item for item in items if item.nodeid not in left_out]


def part_of_product(cases: Mapping[str, Mapping[str, int]], parts: int) -> set[str]:
    """One of n parts of some cases, by their names; each says which value of which parameter it has.

    Parameters that go together are one table, of whose rows there is a part. Where several tables are
    multiplied, every row of each is met at least once.
    """
    order = sorted(cases, key=_number)
    taken = order[: -(-len(order) // parts)]
    tables = {tuple(cases[name][parameter] for name in order) for parameter in cases[order[0]]}
    if len(tables) > 1:
        for rows in sorted(tables):
            row_of = dict(zip(order, rows, strict=True))
            met = {row_of[name] for name in taken}
            for name in order:
                if row_of[name] not in met:
                    met.add(row_of[name])
                    taken.append(name)
    return set(taken)

"""What random programs about state found and nobody has mended yet: captured code that differs.

Each is as small as it gets; ``docs/reliability.md`` has the seeds. Whoever mends one is told, and moves it to
the tests of what holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft

unmended = pytest.mark.xfail(strict=True, raises=AssertionError, reason="found, and not mended yet")


@unmended
def test_a_list_that_two_ifs_may_have_replaced_is_one_that_was_there() -> None:
    """What the second `if` joins may be what the first one joined, whose ways are not looked through."""

    def run(wrap: Callable[[Any], Any]) -> list[bool]:
        lists = [[weft.tensor(1.0)], [weft.tensor(2.0)]]
        rows = [*lists]

        def step(x: Any) -> Any:
            if x > 0:
                rows[0], rows[1] = rows[1], rows[1]
            if x > 1:
                rows[0], rows[1] = rows[1], rows[1]
            return x * 1.0

        wrap(step)(weft.tensor(0.5))
        return [row is lists[1] for row in rows]

    assert run(lambda f: weft.compile(f, backend="interpret")) == run(lambda f: f) == [True, True]

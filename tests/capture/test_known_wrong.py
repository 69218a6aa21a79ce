"""What 20,000 random programs about state found and nobody has mended yet: captured code that differs.

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
@pytest.mark.parametrize("c", [1.0, -1.0])
def test_a_tensor_that_an_if_picks_and_a_loop_appends_is_the_item(c: float) -> None:
    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        kept = {"q": weft.zeros(2)}
        p, other = weft.tensor([1.0, 2.0]), weft.tensor([7.0, 8.0])

        def step(c: Any) -> Any:
            v = p
            if c > 0:
                v = other
            items = []
            for _ in range(2):
                v = v  # which makes it a variable of the loop
                items.append(v)
            kept["q"] = items[-1]
            return c * 1

        wrap(step)(weft.tensor(c))
        kept["q"].add_(100.0)
        return [p.tolist(), other.tolist()]

    assert run(lambda f: weft.compile(f, backend="interpret")) == run(lambda f: f)

"""Random generators in compiled functions: draws come from the generator that each call finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft

H = weft.Generator(3)


class Named:
    generator: Any = None


def plain(x: Any) -> Any:
    return x + weft.rand(2)


def named_and_current(x: Any) -> Any:
    return x + weft.rand(2, generator=Named.generator) + weft.rand(2)


def own(x: Any) -> Any:
    g = weft.Generator(3)
    return x + weft.rand(2, generator=g) + weft.rand(2, generator=g)


def own_in_branch(x: Any) -> Any:
    g = weft.Generator(4)
    a = x
    if x.sum() > 1:
        a = a + weft.rand(2, generator=g)
    return a + weft.rand(2, generator=g)


def made_in_branch(x: Any) -> Any:
    a = x
    if x.sum() > 1:
        g = weft.Generator(4)
        a = a + weft.rand(2, generator=g)
    return a


def own_in_loop(x: Any) -> Any:
    g = weft.Generator(4)
    for _ in range(3):
        x = x + weft.rand(2, generator=g)
    return x + weft.rand(2)


def seeded_in_branch(x: Any) -> Any:
    if x.sum() > 5:
        H.manual_seed(7)
    return x + weft.rand(2, generator=H)


def fork_inside(x: Any) -> Any:
    with weft.fork_rng():
        a = weft.rand(2)
    return x + a + weft.rand(2)


def fork_in_branch(x: Any) -> Any:
    if x.sum() > 0:
        with weft.fork_rng():
            a = weft.rand(2)
    else:
        a = weft.rand(2)
    return a + weft.rand(2)


def seeded(x: Any) -> Any:
    weft.manual_seed(7)
    return x + weft.rand(2)


def set_back(x: Any) -> Any:
    state = weft.get_rng_state()
    a = weft.rand(2)
    weft.set_rng_state(state)
    return x + a - weft.rand(2) + weft.rand(2)


def dropped(x: Any) -> Any:
    return weft.dropout(x + 1, 0.5)


def in_loop(x: Any) -> Any:
    for _ in range(3):
        x = x + weft.rand(2)
    return x


FUNCTIONS = [
    plain,
    named_and_current,
    own,
    own_in_branch,
    made_in_branch,
    own_in_loop,
    seeded_in_branch,
    fork_inside,
    fork_in_branch,
    seeded,
    set_back,
    dropped,
    in_loop,
]


def _drive(f: Callable[[Any], Any]) -> list[Any]:
    Named.generator = weft.manual_seed(3)
    H.manual_seed(2)
    x = weft.ones(2)
    found = [f(x).tolist()]
    with weft.fork_rng():
        found += [f(x).tolist(), f(x).tolist(), weft.get_rng_state().tolist()]
        with weft.fork_rng(weft.random.key(5)):
            found.append(f(x).tolist())
    found.append(f(x * 4).tolist())
    weft.manual_seed(9)
    return [*found, f(x).tolist(), weft.get_rng_state().tolist()]


@pytest.mark.rotating(4)
@pytest.mark.parametrize("capture", ["source", "trace"])
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_draws_come_from_the_generator_of_the_call(f: Callable[[Any], Any], capture: str) -> None:
    expected = _drive(f)
    for one, other in zip(_drive(weft.compile(f, capture=capture)), expected, strict=True):
        assert one == pytest.approx(other, rel=1e-6)


def test_a_fork_entered_later_needs_no_version_of_its_own() -> None:
    f = weft.compile(plain)
    f(weft.ones(2))
    with weft.fork_rng():
        f(weft.ones(2))
    assert len(f.versions) == 1


def test_a_loop_may_start_from_numbers_at_even_distances() -> None:
    def f(x: Any) -> Any:
        h = weft.tensor([4, 0])
        for _ in range(3):
            h = h * h + weft.tensor([0, 1])
            x = x + h.astype(weft.float32)
        return x

    assert weft.compile(f)(weft.ones(2)).tolist() == f(weft.ones(2)).tolist()

"""Which tensor one is, asked by captured code: the answer is Python's at each call, or there is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft
from weft.errors import CaptureError


class Holder:
    """An object with two tensors."""

    def __init__(self) -> None:
        self.p, self.q = weft.ones(3), weft.zeros(3)


def _asks_is(o: Holder, x: Any) -> Any:
    return x + 1.0 if o.p is x else x + 2.0


def _asks_is_not(o: Holder, x: Any) -> Any:
    return x + 1.0 if x is not o.p else x + 2.0


def _asks_in_a_chain(o: Holder, x: Any) -> Any:
    return x + 1.0 if o.p is x is not o.q else x + 2.0


def _asks_for_the_id(o: Holder, x: Any) -> Any:
    return x + 1.0 if id(o.p) == id(x) else x + 2.0


def _looks_into_a_set(o: Holder, x: Any) -> Any:
    return x + 1.0 if x in {o.p} else x + 2.0


def _looks_into_a_list(o: Holder, x: Any) -> Any:
    return x + 1.0 if any(x is y for y in [o.p, o.q]) else x + 2.0


def _looks_into_a_dict(o: Holder, x: Any) -> Any:
    return x + {o.p: 1.0, o.q: 3.0}.get(x, 2.0)


def _compares_two_outside(o: Holder, x: Any) -> Any:
    return x + 1.0 if o.p is o.q else x + 2.0


def _compares_and_replaces(o: Holder, x: Any) -> Any:
    out = x + 1.0 if o.p is o.q else x + 2.0
    o.p = x * 2.0
    return out


ASK = [
    _asks_is,
    _asks_is_not,
    _asks_in_a_chain,
    _asks_for_the_id,
    _looks_into_a_set,
    _looks_into_a_list,
    _looks_into_a_dict,
    _compares_two_outside,
    _compares_and_replaces,
]


@pytest.mark.filterwarnings("ignore:.*captured .* times")
@pytest.mark.parametrize("ask", ASK)
def test_the_answer_is_that_of_the_call(ask: Callable[[Holder, Any], Any]) -> None:
    eager, compiled = Holder(), Holder()
    function = weft.compile(lambda x: ask(compiled, x), backend="interpret")

    def both(choose: Callable[[Holder], Any]) -> None:
        assert function(choose(compiled)).tolist() == ask(eager, choose(eager)).tolist()

    def rebind(change: Callable[[Holder], None]) -> None:
        change(eager)
        change(compiled)

    for _ in range(2):
        both(lambda o: weft.ones(3))
        both(lambda o: o.p)
        both(lambda o: o.q)
        rebind(lambda o: setattr(o, "p", weft.ones(3) * 5.0))
        both(lambda o: weft.ones(3))
        both(lambda o: o.p)
        rebind(lambda o: setattr(o, "p", o.q))
        both(lambda o: weft.ones(3))
        both(lambda o: o.q)
        rebind(lambda o: setattr(o, "p", weft.ones(3)))


def test_tensors_as_keys_of_a_dict_from_outside() -> None:
    p, q = weft.ones(2), weft.full((2,), 3.0)
    state = {p: 10.0, q: 20.0}
    f = weft.compile(lambda x: x * state[x], backend="interpret")
    assert [f(x).tolist() for x in (p, q, p)] == [[10.0, 10.0], [60.0, 60.0], [10.0, 10.0]]
    with pytest.raises(KeyError):
        f(weft.ones(2))


def _in_a_loop(x: Any, n: Any) -> Any:
    v, count = x, x * 0.0
    for i in range(n):
        if v is x:
            count = count + 1.0
        v = x + i
    return count


def _after_a_branch(x: Any, n: Any) -> Any:
    v = x + 1.0
    if n > 1:
        v = x
    return x * (5.0 if v is x else 7.0)


def _after_a_loop(x: Any, n: Any) -> Any:
    v = x + 1.0
    for _ in range(n):
        v = x
    return x * (5.0 if v is x else 7.0)


def _as_a_key_after_a_branch(x: Any, n: Any) -> Any:
    v = x + 1.0
    if n > 1:
        v = x
    return x * {x: 5.0}.get(v, 7.0)


@pytest.mark.parametrize("asks", [_in_a_loop, _after_a_branch, _after_a_loop, _as_a_key_after_a_branch])
def test_what_only_a_run_tells_is_refused(asks: Callable[..., Any]) -> None:
    with pytest.raises(CaptureError, match=r"which tensor a variable holds must(.|\n)*test_identity"):
        weft.compile(asks, backend="interpret")(weft.ones(3), weft.tensor(2))


def _made_on_both_ways(x: Any, n: Any) -> Any:
    v = x + 1.0
    if n > 1:
        v = x + 2.0
    return x * (5.0 if v is x else 7.0)


def test_what_no_run_can_be_is_known() -> None:
    for f in (_made_on_both_ways, weft.compile(_made_on_both_ways, backend="interpret")):
        assert f(weft.ones(2), weft.tensor(2)).tolist() == [7.0, 7.0]

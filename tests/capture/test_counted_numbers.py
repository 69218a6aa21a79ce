"""Plain numbers of Python that captured code changes: each call finds them, and goes on from them."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import pytest

import weft
from weft.errors import CaptureError


class Space:
    at: Any
    mean: Any


CALLS = ((2, 0.5), (0, 1.0), (3, -0.5), (0, 2.0), (-1, 0.25), (4, 1.5))

PLACES = {
    "an attribute": ("s = Space(); s.at = 1", "s.at"),
    "an attribute of the class": ("class S:\n    at = 1\ns = S()", "s.at"),
    "a slot": ("class S:\n    __slots__ = ('at',)\ns = S(); s.at = 1", "s.at"),
    "an item of a dict": ("d = {'at': 1, 'o': 7}", "d['at']"),
    "an item of a list": ("d = [1, 5]", "d[0]"),
    "an outer variable": ("at = 1", "at"),
    "an item of a dict in a dict": ("d = {'g': {'at': 1}}", "d['g']['at']"),
    "an attribute of an item": ("d = [Space()]; d[0].at = 1", "d[0].at"),
}

# Statements with AT, the place, n, which decides ways and is a whole number, and x.
FORMS = {
    "counts": "AT += 1\nreturn x * AT",
    "is read before it is changed": "y = x * AT\nAT = AT * 2 + 1\nreturn y",
    "is a float": "AT = AT * 0.5 + 1\nreturn x + AT",
    "becomes a float": "AT = float(x)\nreturn x",
    "is set anew": "AT += 1\nif AT > 2: AT = 0\nreturn x + AT",
    "decides a way": "AT += 1\nif AT % 2 == 0: x = x * 3\nreturn x",
    "decides how many turns": "for _ in range(AT): x = x + 1\nAT = (AT + 1) % 4\nreturn x",
    "counts where a way is taken": "if n > 1: AT += 1\nreturn x * AT",
    "is replaced where a way is taken": "if n > 1: AT = int(n) * 2\nreturn x",
    "is replaced by a plain number there": "if n > 1: AT = 5\nreturn x",
    "is replaced on both ways": "if n > 1: AT = 5\nelse: AT = 6\nreturn x",
    "is replaced in an inner branch": "if n > 1:\n    if x > 1: AT = int(n)\n    else: AT = 9\nreturn x",
    "is replaced before a return": "if n > 1:\n    AT = int(n)\n    return x * 2\nreturn x",
    "is replaced in turns": "for i in range(int(n)): AT = i\nreturn x",
    "is replaced in turns of a while": "while n > 0:\n    AT = int(n)\n    n = n - 1\nreturn x",
    "is replaced in some turns": "for i in range(int(n)):\n    if i > 1: AT = i\nreturn x",
    "is replaced until a break": "for i in range(5):\n    if n < i: break\n    AT = i\nreturn x",
    "is one of two kinds of truth": "AT = bool(n > 1)\nreturn x",
    "becomes a tensor": "if n > 1: AT = AT + x * 0 + 1.0\nelse: AT = AT + x * 0\nreturn x",
}


def made(place: str, form: str) -> tuple[Callable[..., Any], Callable[[], Any]]:
    """A function about a place, and one that reads it."""
    make, at = PLACES[place]
    body = FORMS[form].replace("AT", at)
    head = ["    " + line for line in make.splitlines()]
    outer = ["        nonlocal at"] if at == "at" else []
    text = ["def make():", *head, f"    def get(): return {at}", "    def form(n, x):", *outer]
    text += ["        " + line for line in body.splitlines()]
    source = "\n".join([*text, "    return form, get"]) + "\n"
    name = f"<counted {place} {form}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {"Space": Space}
    exec(compile(source, name, "exec"), space)  # noqa: S102 - the text is ours
    function, get = space["make"]()
    return function, get


def results(place: str, form: str, wrap: Callable[[Any], Any]) -> list[Any]:
    function, get = made(place, form)
    run = wrap(function)
    log = []
    for n, x in CALLS:
        value = run(weft.tensor(n), weft.tensor(x)).item()
        found = get()
        log.append((round(value, 6), type(found), found.item() if weft.is_tensor(found) else found))
    return log


@pytest.mark.rotating(4)
@pytest.mark.parametrize("place", sorted(PLACES))
@pytest.mark.parametrize("form", sorted(FORMS))
def test_numbers_go_on_from_call_to_call(place: str, form: str) -> None:
    expected = results(place, form, lambda f: f)
    assert results(place, form, lambda f: weft.compile(f, backend="interpret")) == expected


@pytest.mark.parametrize("form", sorted(FORMS))
def test_compiled_code_counts(form: str) -> None:
    expected = results("an attribute", form, lambda f: f)
    assert results("an attribute", form, weft.compile) == expected


def test_a_counter_needs_one_version() -> None:
    class Net(weft.nn.Module):
        steps = 0

        def forward(self, x: Any) -> Any:
            self.steps += 1
            return x / self.steps

    net = Net()
    run = weft.compile(net)
    assert [run(weft.tensor(12.0)).item() for _ in range(4)] == [12.0, 6.0, 4.0, 3.0]
    assert net.steps == 4
    assert type(net.steps) is int
    assert len(run.versions) == 1
    net.steps = 11
    assert run(weft.tensor(12.0)).item() == 1.0
    assert len(run.versions) == 1


def test_another_kind_of_value_in_the_place_is_noticed() -> None:
    space = Space()
    space.at = 1

    @weft.compile
    def f(x: Any) -> Any:
        space.at = space.at + 1
        return x * space.at

    values = []
    for start in (1, 1, 0.5, 2, weft.tensor(3.0)):
        space.at = start
        values.append(f(weft.tensor(1.0)).item())
    assert values == [2.0, 2.0, 1.5, 3.0, 4.0]


def test_two_functions_share_a_counter() -> None:
    count = {"n": 0}

    @weft.compile
    def one(x: Any) -> Any:
        count["n"] += 1
        return x * count["n"]

    @weft.compile
    def ten(x: Any) -> Any:
        count["n"] += 10
        return x * count["n"]

    x = weft.tensor(1.0)
    assert [f(x).item() for f in (one, ten, one, one, ten)] == [1.0, 11.0, 12.0, 13.0, 23.0]
    assert count == {"n": 23}


def test_gradients_flow_beside_a_counter() -> None:
    space = Space()
    space.at = 0
    w: Any = weft.tensor(2.0, requires_grad=True)

    @weft.compile
    def loss(x: Any) -> Any:
        space.at += 1
        return w * x * space.at

    for k in (1, 2, 3):
        w.grad = None
        loss(weft.tensor(5.0)).backward()
        assert w.grad.item() == 5.0 * k


def test_state_that_a_first_call_makes() -> None:
    space = Space()
    space.at, space.mean = 0, None

    def f(x: Any) -> Any:
        if space.at == 0:
            space.mean = x * 1.0
        else:
            space.mean = 0.5 * space.mean + 0.5 * x
        space.at += 1
        return space.mean

    run = weft.compile(f)
    assert [run(weft.tensor(x)).item() for x in (4.0, 0.0, 2.0, 3.0)] == [4.0, 2.0, 2.0, 2.5]
    assert space.at == 4
    assert len(run.versions) == 2


def test_a_failed_call_counts_nothing() -> None:
    space = Space()
    space.at = 0

    @weft.compile
    def f(x: Any) -> Any:
        space.at += 1
        assert x.sum() > 0, "must be positive"
        return x * space.at

    assert f(weft.ones(1)).item() == 1.0
    with pytest.raises(AssertionError, match="must be positive"):
        f(-weft.ones(1))
    assert space.at == 1
    assert f(weft.ones(1)).item() == 2.0


def test_a_count_that_leaves_64_bits_is_an_error_of_the_run() -> None:
    space = Space()
    space.at = 2**62

    @weft.compile
    def f(x: Any) -> Any:
        space.at = space.at + space.at // 2
        return x

    f(weft.ones(1))
    with pytest.raises(OverflowError, match="64 bits"):
        f(weft.ones(1))
    assert space.at == 2**62 + 2**61


def test_what_must_be_known_when_it_is_captured_is_refused_with_the_line() -> None:
    kept, space = {}, Space()
    space.at = 0

    @weft.compile
    def f(x: Any) -> Any:
        kept[space.at] = x * 2.0
        space.at += 1
        return x

    f(weft.ones(1))
    with pytest.raises(CaptureError, match=r"must stay the same from call to call, got 1, then 2") as caught:
        f(weft.ones(1))
    assert "space.at += 1" in str(caught.value)
    assert space.at == 1
    assert list(kept) == [0]


@pytest.mark.parametrize(
    ("first", "then"), [(False, True), ("a", "b"), (None, "a")], ids=["flags", "words", "nothing"]
)
def test_few_states_have_a_version_each(first: Any, then: Any) -> None:
    space = Space()
    space.at = first

    def f(x: Any) -> Any:
        y = x * (1.0 if space.at == first else 2.0)
        space.at = then if space.at == first else first
        return y

    run = weft.compile(f)
    assert [run(weft.tensor(1.0)).item() for _ in range(5)] == [1.0, 2.0, 1.0, 2.0, 1.0]
    assert space.at == then
    assert len(run.versions) == 2

"""What is a number of Python on one way and a tensor on the other is, in value, that of the way taken."""

from __future__ import annotations

import itertools
import linecache
import types
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import weft
from weft.errors import CaptureError

# What a variable may be: ``x`` is an argument, ``w`` is from outside, ``m`` has rows, ``n`` decides
TENSORS = ("x", "w", "x * 1", "m[0]", "w.view(1)[0]")
NUMBERS = ("3.5", "2", "True", "float(n)", "int(n)", "x.item()")
FORMS = {
    "if": "y = {a}\nif n > 1: y = {b}",
    "else": "if n > 1: y = {b}\nelse: y = {a}",
    "expression": "y = ({b}) if n > 1 else ({a})",
    "for": "y = {a}\nfor i in range(n - 1): y = {b}",
    "while": "y = {a}\ni = 1\nwhile i < n:\n    y = {b}\n    i += 1",
    "attribute": "o.y = {a}\nif n > 1: o.y = {b}\ny = o.y",
    "item": "o.d['y'] = {a}\nif n > 1: o.d['y'] = {b}\ny = o.d['y']",
    "list": "l = [{a}, 0]\nif n > 1: l[0] = {b}\ny = l[0]",
    "two": "y = {a}\nif n > 1: y = {b}\nif n > 2: y = {a}",
    "nested": "y = {a}\nif n > 1:\n    if x > 0: y = {b}",
    "in a loop": "y = {a}\nfor i in range(3):\n    if i + 1 < n: y = {b}",
    "break": "y = {a}\nfor i in range(4):\n    if i >= n: break\n    y = {b}",
    "swap": "y, z = {a}, {b}\nif n > 1: y, z = z, y",
    "return": "def pick():\n    if n > 1: return {b}\n    return {a}\ny = pick()",
}
TAILS = ("return y * 2 + 1", "return y", "w.add_(1); x.mul_(2)\nreturn y * 2 + 1")
CALLS = ((0.5, 3), (0.25, 1), (-1.5, 2), (0.5, 3))
PAIRS = [p for a in TENSORS for b in NUMBERS for p in ((a, b), (b, a))]
PAIRS += [*itertools.permutations(TENSORS, 2)]
CASES = [*itertools.product(FORMS, PAIRS)]


def made_of(form: str, a: str, b: str, tail: str) -> tuple[Any, Any, Callable[..., Any]]:
    """A tensor and an object from outside, and a function."""
    lines = [*FORMS[form].format(a=a, b=b).splitlines(), *tail.splitlines()]
    source = "def make(w, o):\n    def f(x, n, m):\n" + "".join(f"        {line}\n" for line in lines)
    source += "    return f\n"
    name = f"<{form} {a} {b} {tail}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {}
    exec(compile(source, name, "exec"), space)  # noqa: S102 - the text is ours
    w, o = weft.tensor(0.7), types.SimpleNamespace(y=None, d={})
    return w, o, space["make"](w, o)


def left(w: Any, o: Any, f: Callable[..., Any]) -> list[float]:
    """The numbers that calls give and leave."""
    found = []
    for number, turns in CALLS:
        x, m = weft.tensor(number), weft.tensor([0.1, 0.2])
        found += [f(x, weft.tensor(turns), m), x, w, m[0], *[y for y in (o.y, o.d.get("y")) if y is not None]]
        found = [*map(float, found)]
    return found


@pytest.mark.rotating(12)
@pytest.mark.parametrize(("form", "pair"), CASES, ids=lambda x: x if isinstance(x, str) else " or ".join(x))
def test_the_value_is_that_of_the_way_taken(form: str, pair: tuple[str, str]) -> None:
    for tail in TAILS:
        expected = left(*made_of(form, *pair, tail))
        w, o, f = made_of(form, *pair, tail)
        try:
            found = left(w, o, weft.compile(f, backend="interpret"))
        except CaptureError:  # a number of one kind on one way and of another on the other
            assert not {*pair} <= {*TENSORS, "3.5", "float(n)"}, tail
        else:
            assert found == pytest.approx(expected), tail


def test_a_best_number_that_becomes_a_tensor() -> None:
    @weft.compile
    def f(x: Any, n: Any) -> Any:
        best = 0.0
        if n > 1:
            best = x
        return best + 1

    for x, n in ((5.0, 1), (5.0, 2), (7.0, 0)):
        assert float(f(weft.tensor(x), weft.tensor(n))) == (x if n > 1 else 0.0) + 1


def test_gradients_flow_where_it_is_the_tensor() -> None:
    def f(x: Any, n: Any) -> Any:
        y = 2.0
        if n > 1:
            y = x
        for _ in range(n - 2):
            y = x
        return y * x

    for n in (0, 1, 2, 3):
        slope = weft.grad(weft.compile(f))(weft.tensor(5.0), weft.tensor(n))
        assert float(slope) == float(weft.grad(f)(weft.tensor(5.0), weft.tensor(n)))


def test_a_change_reaches_the_tensor_only_where_it_was_taken() -> None:
    @weft.compile
    def f(x: Any, n: Any) -> Any:
        y = weft.tensor(9.0) * 1.0 if n > 1 else x
        z = 4.0
        if n > 2:
            z = x
        y += 1
        return y, z * 1.0

    for n in (1, 2, 3):
        x = weft.tensor(5.0)
        y, z = f(x, weft.tensor(n))
        assert (float(y), float(x)) == ((6.0, 6.0) if n < 2 else (10.0, 5.0))
        assert float(z) == (4.0 if n < 3 else float(x))


@pytest.mark.parametrize("kind", [weft.Tensor, float, (int, float)])
def test_its_type_is_not_told(kind: Any) -> None:
    def f(x: Any, n: Any) -> Any:
        y = 3.5
        if n > 1:
            y = x
        if isinstance(y, kind):
            y = y * 2
        return y

    with pytest.raises(CaptureError, match=r"only the run knows[^$]*test_number_or_tensor.py"):
        weft.compile(f)(weft.tensor(1.0), weft.tensor(2))


def test_other_questions_about_its_type_are_answered() -> None:
    @weft.compile
    def f(x: Any, n: Any) -> Any:
        y = 3.5
        if n > 1:
            y = x
        return y * (2 if isinstance(y, list | str) else 3)

    assert [float(f(weft.tensor(1.0), weft.tensor(n))) for n in (1, 2)] == [10.5, 3.0]


GROWN = (
    "f'{l}'",
    "str(l)",
    "repr((l,))",
    "'%s' % l",
    "x * len([x] + l)",
    "x * len(l + [x])",
    "x * len([x, *l])",
)


@pytest.mark.parametrize("use", GROWN)
def test_a_list_of_unknown_length_is_no_text_and_no_part_of_a_sum(use: str) -> None:
    source = f"def f(x, n):\n    l = []\n    for i in range(n): l.append(x * i)\n    return {use}\n"
    name = f"<grown {use}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {}
    exec(compile(source, name, "exec"), space)  # noqa: S102 - the text is ours
    with pytest.raises(CaptureError, match="needs a list of known length"):
        weft.compile(space["f"])(weft.tensor(0.5), weft.tensor(3))


SHARED = {
    "a variable": "s, t = 0.5, 0.0\nif n > 1: s = x\nt = s\ns += 1.0\nreturn t",
    "a list": "s = 0.5\nif n > 1: s = x\nt = [s]\ns += 1.0\nreturn t[0]",
    "an attribute": "s = 0.5\nif n > 1: s = x\no.t = s\ns += 1.0\nreturn o.t",
    "a turn before": "s = t = 0.5\nfor i in range(n):\n  t = s\n  if n > 1: s = x\n  s += 1.0\nreturn t",
    "after a loop": "s = t = 0.5\nwhile n > 1:\n  t = s\n  n = n - 1\n  if n > 1: s = x\ns += 1.0\nreturn t",
}
ALONE = {
    "it alone": "s = 0.5\nif n > 1: s = x\ns += 1.0\nreturn s",
    "in a loop": "s = 0.0\nfor v in (x, x * 2.0):\n  if v > n: s += v\nreturn s",
    "in a loop of a run": "s = 0.0\nfor i in range(n):\n  if x > i: s += x\nreturn s",
    "in a while": "s = t = 0.0\nwhile n > 0:\n  n = n - 1\n  if x > n: s += x\n  t += s\nreturn s + t",
    "the tensor has another name": "s = 0.5\nif n > 1: s = x\ns += 1.0\nreturn s + x",
    "out of place": "s = 0.5\nif n > 1: s = x\nt = s\ns = s + 1.0\nreturn t + s",
}


def _function(text: str) -> Any:
    lines = "".join(f"    {line}\n" for line in text.split("\n"))
    source, name = f"def f(x, n, o):\n{lines}", f"<{text}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {}
    exec(compile(source, name, "exec"), space)  # noqa: S102 - the text is ours
    return space["f"]


@pytest.mark.parametrize("name", SHARED)
def test_what_may_be_a_number_does_not_change_in_place_if_others_have_it(name: str) -> None:
    with pytest.raises(CaptureError, match="a number does not change"):
        weft.compile(_function(SHARED[name]))(weft.tensor(2.0), weft.tensor(1), SimpleNamespace())


@pytest.mark.parametrize("name", ALONE)
def test_what_may_be_a_number_changes_in_place_if_nobody_else_has_it(name: str) -> None:
    f = _function(ALONE[name])
    compiled = weft.compile(f)
    for n in (0, 1, 2, 3):
        ours, theirs = weft.tensor(2.0), weft.tensor(2.0)
        found, expected = compiled(ours, weft.tensor(n), None), f(theirs, weft.tensor(n), None)
        assert (float(found), ours.item()) == (float(expected), theirs.item())

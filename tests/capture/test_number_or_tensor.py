"""What is a number of Python on one way and a tensor on the other is, in value, that of the way taken."""

from __future__ import annotations

import itertools
import linecache
import types
from collections.abc import Callable
from pathlib import Path
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
    "changed": "z = {a}\nif n > 1: z = {b}\ny = 0.25\ny -= z",
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
def test_its_class_is_told_by_the_run(kind: Any) -> None:
    def f(x: Any, n: Any) -> Any:
        y = 3.5
        if n > 1:
            y = x
        if isinstance(y, kind):
            y = y * 2
        return y, not isinstance(y, kind)

    compiled = weft.compile(f)
    for n in (1, 2, 3, 0):
        given = weft.tensor(1.0), weft.tensor(n)
        (found, answer), (expected, truth) = compiled(*given), f(*given)
        assert type(found) is type(expected)
        assert float(found) == float(expected)
        assert answer is truth
    assert len(compiled.versions) == 1


@pytest.mark.parametrize("ask", [type, lambda y: isinstance(y, int)])
def test_what_is_not_told_of_its_class_is_refused(ask: Any) -> None:
    def f(x: Any, n: Any) -> Any:
        y = 3.5
        if n > 1:
            y = x
        if n > 2:
            y = 4
        return y if ask(y) else x

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


CHANGED = {
    "a variable": "s, t = 0.5, 0.0\nif n > 1: s = x\nt = s\ns += 1.0\nreturn t, s",
    "a list": "s = 0.5\nif n > 1: s = x\nt = [s]\ns += 1.0\nreturn t, s",
    "a tuple": "s = 0.5\nif n > 1: s = x\nt = (s,)\ns += 1.0\nreturn t, s",
    "an attribute": "s = 0.5\nif n > 1: s = x\no.t = s\ns += 1.0\nreturn s",
    "in an attribute": "if n > 1: o.s = x\no.t = o.s\no.s += 1.0",
    "a best number": "if x * n > o.s: o.s = x * n\no.t = (o.s,)\nreturn o.s * 2",
    "a last number": "d = x - o.s\nif n > 2: o.s = x * 2\nreturn d",
    "its function": (
        "def g(v):\n  v += 1.0\n  return v\ns = 0.5\nif n > 1: s = x\nu = s\nw = g(s)\nreturn u, w, s"
    ),
    "a turn before": "s = t = 0.5\nfor i in range(n):\n  t = s\n  if n > 1: s = x\n  s += 1.0\nreturn t, s",
    "after a loop": "s = t = 0.5\nfor i in range(n):\n  t = s\n  if i > 0: s = x\ns += 1.0\nreturn t, s",
    "a number at the end": (
        "s, t = x * 1, x * 0\nfor i in range(n):\n  t = s\n  s += 1.0\n  s = 0.5\nreturn t, s"
    ),
    "sums": "s = t = 0.0\nfor i in range(n):\n  t = s\n  s += x * i\nreturn t, s",
    "swaps": (
        "a, b = 0.0, x * 1\nfor i in range(n):\n  a, b = b, a\n  a += 1.0\nc = b\nb += 2.0\nreturn a, b, c"
    ),
    "a nonlocal": (
        "s = r = 0.0\ndef g(v):\n  nonlocal s\n  old = s\n  s += v\n  return old\n"
        "for i in range(n): r = g(x * i)\nreturn r, s"
    ),
    "in a branch": ("s = 0.5\nif n > 1: s = x\nt = s\nif n > 2: s += 1.0\nelse: s *= x\nreturn t, s"),
    "of a branch": (
        "s, t = 0.5, 0.0\nif n > 0:\n  if n > 1: s = x\n  t = s\n  s += 1.0\nelse: s = x * 3\n"
        "u = s\ns += x\nreturn t, s, u"
    ),
    "an extreme": "s = max(2.5, x * n)\nt = (s,)\ns += 1.0\nreturn s, t",
    "computed": (
        "s = 0.5\nif n > 1: s = x\ns = -s * 2 + 1\nt = s\ns -= 1.0\nu = abs(s)\nv = u\nu *= 3\n"
        "return s, t, u, v"
    ),
    "summed": "s = 0.5\nif n > 1: s = x\ns = sum([s, 2.0])\nt = s\ns += 1.0\nreturn s, t",
    "divided": "s = 7.5\nif n > 1: s = x\nq, r = divmod(s, 2.0)\nt = q\nq += r\nr -= 1\nreturn q, r, t",
    "copied": (
        "import copy\ns = 0.5\nif n > 1: s = x\nl = copy.deepcopy([s, s])\nt = (l[0],)\nl[0] += 1.0\n"
        "u = v = copy.copy(s)\nu += 1\nreturn l, t, u, v, s"
    ),
    "from around": (
        "s, t = x, 0.25\nif n > 1: s = t if x > 0 else t\nif n > 2:\n  for i in range(2): t = s\n"
        "else: s = max(s, t)\nreturn s, t"
    ),
    "an int": "s = 1\nif n > 1: s = x\nt = s\ns += 1\ns *= 3\nreturn t, s",
    "which becomes a float": "s = 1\nif n > 1: s = x\nt = s\ns /= 4\nreturn s",
    "a truth": "s = False\nif n > 1: s = x > 1\nt = s\ns |= x > 3\nreturn s, t",
    "returned": "if n > 3: return x * 2\nif n > 2: return x\nreturn 0.5",
    "in two places": "s = 0.0\nfor i in range(n): s += x\no.s = o.t = s\nreturn s",
    "it alone": "s = 0.5\nif n > 1: s = x\ns += 1.0\nreturn s",
    "in a loop": "s = 0.0\nfor v in (x, x * 2.0):\n  if v > n: s += v\nreturn s",
    "in a loop of a run": "s = 0.0\nfor i in range(n):\n  if x > i: s += x\nreturn s",
    "in a while": "s = t = 0.0\nwhile n > 0:\n  n = n - 1\n  if x > n: s += x\n  t += s\nreturn s + t",
    "the tensor has another name": "s = 0.5\nif n > 1: s = x\ns += 1.0\nreturn s + x",
    "out of place": "s = 0.5\nif n > 1: s = x\nt = s\ns = s + 1.0\nreturn t + s",
}
REFUSED = {
    "another dtype": (
        "s = 0.5\nif n > 1: s = x\ns += x.to(weft.float64)\nreturn s",
        r"must be f32\[\] on both ways[^$]*got f64",
    ),
    "an item of a list": (
        "l, s = [], 0.5\nfor i in range(n):\n  l.append(s)\n  s = s + x\nv = l[0]\nv += 1.0\nreturn v",
        "an item of a list of which nothing tells",
    ),
    "an item of a comprehension": (
        "s = 0.5\nif n > 1: s = x\nl = [s * i for i in range(3)]\nm = [v for v in l]\nm[2] *= 2\nreturn l",
        "an item of a list of which nothing tells",
    ),
    "of two kinds": (
        "s = 1\nfor i in range(n): s = x if i > 2 else 0.5\nreturn s",
        "must be a number of one kind",
    ),
}


def _function(text: str) -> Any:
    lines = "".join(f"    {line}\n" for line in text.split("\n"))
    source, name = f"def f(x, n, o):\n{lines}", f"<{text}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {"weft": weft}
    exec(compile(source, name, "exec"), space)  # noqa: S102 - the text is ours
    return space["f"]


def _seen(x: Any) -> Any:
    """What a result or a state is, with the types of numbers, and which tensors are one."""
    known: dict[int, int] = {}

    def seen(x: Any) -> Any:
        if isinstance(x, weft.Tensor):
            return "tensor", known.setdefault(id(x), len(known)), x.item()
        return [*map(seen, x)] if isinstance(x, list | tuple) else (type(x), x)

    return seen(x)


@pytest.mark.parametrize("name", CHANGED)
def test_what_may_be_a_number_changes_as_in_eager_code(name: str) -> None:
    f = _function(CHANGED[name])
    compiled = weft.compile(f, backend="interpret")
    ours, theirs = (SimpleNamespace(s=0.0, t=0.0) for _ in range(2))
    for number in (2, 1, 0, 3, 1, 4):
        calls = [(g, weft.tensor(2.0), o) for g, o in ((compiled, ours), (f, theirs))]
        found, expected = [_seen([g(x, weft.tensor(number), o), x, o.s, o.t]) for g, x, o in calls]
        assert found == expected


@pytest.mark.parametrize("name", REFUSED)
def test_what_nothing_tells_of_numbers_is_an_error(name: str) -> None:
    text, match = REFUSED[name]
    with pytest.raises(CaptureError, match=match):
        weft.compile(_function(text))(weft.tensor(2.0), weft.tensor(2), SimpleNamespace())


def test_gradients_flow_through_what_changed() -> None:
    def f(x: Any, n: Any) -> Any:
        s, before = 0.0, 1.0
        for i in range(n):
            if i != 1:
                s += x * x
            before = s
            s *= 1.5
        return (s + before) * x

    compiled = weft.compile(f)
    for n in (0, 1, 2, 3, 4):
        x, turns = weft.tensor(1.25), weft.tensor(n)
        assert float(weft.grad(compiled)(x, turns)) == pytest.approx(float(weft.grad(f)(x, turns)))


def test_an_exported_graph_gives_a_tensor(tmp_path: Path) -> None:
    def f(x: Any, n: Any) -> Any:
        return x if n > 1 else 0.5

    saved = tmp_path / "f.weft"
    weft.compile(f).save(saved, weft.tensor(2.0), weft.tensor(1))
    loaded = weft.load_graph(saved)
    assert [float(loaded(weft.tensor(2.0), weft.tensor(n))) for n in (1, 2)] == [0.5, 2.0]

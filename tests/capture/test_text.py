"""Text with values that only a run tells: printed it waits for the run, looked at it is as in eager code."""

from __future__ import annotations

import collections
import functools
import json
import linecache
import pathlib
import statistics
import types
from collections.abc import Callable
from typing import Any

import pytest

import weft
from tests.capture.both_ways import check
from weft.errors import CaptureError

NUMBERS = (0.5, -0.5, 2.0, -1.0)

# ``s`` is the text of a number with three digits, such as "006", and ``o.n`` a counter
LOOKS = (
    "len(s)",
    "2 if s == '002' else 3",
    "2 if s != '002' else 3",
    "2 if s < '002' else 3",
    "2 if s in ('001', '003') else 3",
    "2 if s in {'001', '003'} else 3",
    "2 if s in {'002': 1} else 3",
    "2 if '2' in s else 3",
    "2 if [s] == ['002'] else 3",
    "2 if (s, 1) == ('002', 1) else 3",
    "2 if hash(s) == hash('002') else 3",
    "2 if type(s) is str and isinstance(s, str) and s.__class__ is str else 3",
    "2 if any(c == '2' for c in s) else 3",
    "2 if json.dumps({'a': s}) == '{\"a\": \"002\"}' else 3",
    "2 if __import__('re').match('00[12]$', s) else 3",
    "int(s)",
    "float(s)",
    "int(s, 10)",
    "int(s[-1])",
    "len(s[1:])",
    "ord(s[2])",
    "sum(int(c) for c in s)",
    "sum(map(int, s))",
    "sum(i for i, c in enumerate(s) if c == '0')",
    "int(''.join(reversed(s)))",
    "len(list(s)) + len(tuple(s)) + len([*s]) + len([1 for a, b in zip(s, 'abcdef')])",
    "len(s.upper()) + len(s.encode()) + len(bytes(s, 'ascii')) + len(s.center(9)) + len(s.ljust(7, '.'))",
    "len(s.replace('0', '')) + len(s.lstrip('0')) + len((s + ' ').strip())",
    "2 if s.startswith('00') and s.isdigit() and 'x00200'.find(s) else 3",
    "int(('a ' + s).split()[1]) + len(('a=' + s).partition('=')[2])",
    "len('-'.join([s, s])) + len(s.join(['a', 'b'])) + len(s + 'ab') + len('ab' + s)",
    "len(s * 2) + len(2 * s)",
    "len(f'{s:>8}') + len(f'{s!r}') + len(f'{s}{s}') + len(f'{s!r:>12}')",
    "len('%6s' % s) + len('%s' % s) + len('%(a)5s|%(b)s' % {'a': s, 'b': s}) + len('%-7s%d' % (s, 3))",
    "len('{:>7}'.format(s)) + len('{}'.format(s)) + len('{a:>6}|{b!r}'.format(a=s, b=s))",
    "len(format(s, '>9')) + len(format(s)) + len(str(s)) + len(repr(s)) + len(ascii(s))",
    "len(str(o.n)) + len(repr(o.n)) + len(str(o.n).zfill(5)) + len(format(o.n, '04d')) + len('%04d' % o.n)",
    "len(f'{3.14159:.{o.n}f}')",
    "int(f'{o.n}' + '0')",
    "json.loads(str(o.n))",
    "{'001': 5, '002': 6}.get(s, 7)",
    "{s: 5}.get('002', 7)",
    "{k: 5 for k in (s,)}.get('002', 7)",
    "dict([(s, 5)]).get('002', 7)",
    "{(s, 1): 5}.get(('002', 1), 7)",
    "len({s: 1, '002': 2}) + len({s, '002'}) + len(dict.fromkeys([s, '002'])) + len(set([s, '002']))",
    "2 if '002' in {s} or '003' in frozenset([s]) else 3",
    "{}.setdefault(s, 3)",
    "collections.Counter([s, '002'])['002'] + len(collections.Counter(s))",
    "2 if '002' in [s] else [s, '002'].index('002') + [s].count('003')",
    "int(sorted([s, '002x'])[0][:3]) + int(min([s, '002'])) + len(max(s, '00'))",
    "getattr(o, 'k' + s, 4)",
    "len(pathlib.PurePath('a', 'x' + s).name)",
    "measured(s)",
    "len(q) if (q := s) else 1",
    "(lambda v: len(v))(s)",
)


@functools.lru_cache
def measured(text: str) -> int:
    return len(text)


def made_of(look: str, *, counter: bool) -> tuple[Any, Callable[[Any], Any]]:
    """An object with a counter, and a function that looks at the text of a number."""
    number = "o.n" if counter else "int(x * 2 + 5)"
    source = f"def make(o):\n    def f(x):\n        o.n += 1\n        s = f'{{{number}:03d}}'\n"
    source += f"        return x * ({look})\n    return f\n"
    name = f"<look {counter} {look}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space = {"json": json, "collections": collections, "pathlib": pathlib, "measured": measured}
    exec(compile(source, name, "exec"), space)  # noqa: S102 - the text is ours
    o = types.SimpleNamespace(n=0)
    return o, space["make"](o)  # type: ignore[operator]


@pytest.mark.parametrize("counter", [True, False], ids=("counter", "tensor"))
@pytest.mark.parametrize("look", LOOKS)
def test_text_that_is_looked_at_is_that_of_the_call(look: str, counter: bool) -> None:
    o, f = made_of(look, counter=counter)
    p, g = made_of(look, counter=counter)
    compiled = weft.compile(g, backend="interpret")
    for x in NUMBERS:
        assert float(compiled(weft.tensor(x))) == float(f(weft.tensor(x)))
        assert o.n == p.n


def unpacked(x: Any) -> Any:
    a, _, b = iter(f"{x.item():.1f}"[-3:])
    return x * int(a) + int(b)


def walked(x: Any) -> Any:
    k = 0
    for c in f"{x.item():.2f}":
        k += c.isdigit()
    return x * k


def matched(x: Any) -> Any:
    match f"{x:.0f}":
        case "2":
            return x * 5
        case "-1":
            return x * 7
    return x


def added(x: Any) -> Any:
    s = ""
    for i in range(3):
        s += f"{i}:{x:.1f},"
    return x * len(s) * s.count(",")


def of_an_error(x: Any) -> Any:
    try:
        raise KeyError(f"{x:.1f}")
    except KeyError as error:
        return x * (2 if error.args[0] == "0.5" else len(str(error)))


def raised(x: Any) -> Any:
    s = f"bad {x:.1f}"
    if x.item() < 0:
        raise ValueError(s)
    return x


class Named:
    def __init__(self, x: Any) -> None:
        self.name = f"a{x:.1f}"

    def __repr__(self) -> str:
        return f"Named({self.name})"

    def __format__(self, spec: str) -> str:
        return f"<{self.name}|{spec}>"


def of_objects(x: Any) -> Any:
    a = Named(x)
    return x * len(repr(a)) * len(f"{a:q}") * len(f"{a!r:>20}") * len(a.name)


class Missing(dict[str, int]):
    def __missing__(self, key: str) -> int:
        return len(key)


MISSING = Missing(a=1)


def of_missing(x: Any) -> Any:
    return x * MISSING[f"{x:.3f}"]


FUNCTIONS = (unpacked, walked, matched, added, of_an_error, raised, of_objects, of_missing)


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_functions_that_look_at_text(f: Callable[[Any], Any]) -> None:
    compiled = weft.compile(f, backend="interpret")
    for x in map(weft.tensor, NUMBERS):
        try:
            expected = f(x)
        except ValueError as error:
            with pytest.raises(ValueError, match=f"^{error}"):
                compiled(x)
        else:
            assert float(compiled(x)) == float(expected)


def test_text_that_leaves() -> None:
    kept = types.SimpleNamespace(d=None)

    def f(x: Any) -> Any:
        s = f"k{x:.0f}"
        kept.d = {s: x, "b": s, s + "!": [s]}
        return {s}, frozenset([s]), (s,), [s], s

    compiled = weft.compile(f, backend="interpret")
    for x in map(weft.tensor, NUMBERS):
        expected, held = f(x), kept.d
        found = compiled(x)
        assert found == expected
        assert [*map(type, kept.d)] == [str] * 3
        assert [*kept.d] == [*held]
        assert kept.d["b"] == held["b"]
        assert all(
            type(s) is str for s in (*found[0], *found[1], *found[2], *found[3], found[4], kept.d["b"])
        )


def test_text_that_is_printed_is_no_reason_to_capture_again(capsys: pytest.CaptureFixture[str]) -> None:
    @weft.compile(backend="interpret")
    def f(x: Any) -> Any:
        line = f"loss {x:.1f}"
        texts = (line + "!", "; ".join([line, str(x.item())]), "%s" % line, f"{line}")  # noqa: UP031
        print(*texts)  # noqa: T201 - what is tested
        return x

    for x in NUMBERS:
        f(weft.tensor(x))
        assert capsys.readouterr().out == f"loss {x:.1f}! loss {x:.1f}; {x} loss {x:.1f} loss {x:.1f}\n"
    assert len(f.versions) == 1


def looked_at_in_a_branch(x: Any) -> Any:
    if x > 0:
        x = x * len(f"{x * 2:.1f}")
    return x


def printed_and_looked_at(x: Any) -> Any:
    if x > 0:
        s = f"{x * 2:.1f}"
        print(s)  # noqa: T201 - what is tested
        x = x * len(s)
    return x


@pytest.mark.parametrize("f", [looked_at_in_a_branch, printed_and_looked_at])
def test_text_of_a_branch_that_code_looks_at_is_decided_by_python(f: Callable[[Any], Any]) -> None:
    check(lambda: f, (1.0,), (-1.0,), (50.0,))
    with pytest.raises(CaptureError, match=r"a value that only a run tells[^$]*test_text.py"):
        weft.make_graph(f)(weft.tensor(1.0))


def test_objects_of_the_user_are_sorted_beside_plain_ones() -> None:
    @functools.total_ordering
    class Rank:
        def __init__(self, k: int) -> None:
            self.k = k

        def __lt__(self, other: Any) -> bool:
            return self.k < getattr(other, "k", other)

    def f(x: Any) -> Any:
        ranks: list[Any] = [Rank(3), 1, Rank(2)]
        return x * next(getattr(r, "k", r) for r in sorted(ranks))

    assert float(weft.compile(f)(weft.tensor(2.0))) == 2.0


PADDED = {
    "%5s": lambda i, v, x: "%5s|%-6s|%d" % (i, v, i),  # noqa: UP031
    "%r": lambda i, v, x: "%8r|%.3s" % (v, i),  # noqa: UP031
    "%s of a tensor": lambda i, v, x: "%15s|" % x,  # noqa: UP031
    "%(name)s": lambda i, v, x: "%(i)4s %(v)s" % {"i": i, "v": v},  # noqa: UP031
    "format": lambda i, v, x: "{0:>4}{1!r}|{0}".format(i, v),  # noqa: UP032
    "format by name": lambda i, v, x: "{i:>4}{v:.2f}".format(i=i, v=v),  # noqa: UP032
    "json": lambda i, v, x: json.dumps({"i": i, "vs": [v, {"inner": i}]}),
    "mean": lambda i, v, x: str(statistics.mean([i, v, 1])),
}


@pytest.mark.parametrize("how", PADDED)
def test_the_first_text_of_a_call_shows_values(how: str) -> None:
    def program(x: weft.Tensor) -> str:
        return PADDED[how](int(x), float(x) * 1.25, x)

    compiled = weft.compile(program)
    for value in (1.0, -3.0, 22.0):
        assert compiled(weft.tensor(value)) == program(weft.tensor(value))


@pytest.mark.parametrize(
    "ask",
    [
        lambda n: list(range(n)[1:]),
        lambda n: range(n)[-1],
        lambda n: 3 in range(n),
        lambda n: range(n).index(2),
        lambda n: range(n) == range(4),
        lambda n: repr(range(1, n)),
    ],
)
def test_ranges_that_a_run_bounds_are_asked(ask: Any) -> None:
    compiled = weft.compile(lambda x: ask(int(x)))
    for value in (4.0, 6.0, 4.0):
        assert compiled(weft.tensor(value)) == ask(int(value))

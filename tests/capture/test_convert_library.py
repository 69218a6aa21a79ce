"""Functions of Python's own library, converted with all that they call, against the originals."""

from __future__ import annotations

import argparse
import calendar
import csv
import difflib
import heapq
import importlib
import io
import json
import json.decoder
import json.encoder
import json.scanner
import pprint
import random
import shlex
import statistics
import string
import textwrap
import types
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import pytest

from tests.capture import plain_runtime
from weft.capture.convert.functions import convert_function

TEXT = (
    "The quick brown fox, having jumped over the lazy dog (twice!), went home.\n\n  It slept well-earned.\n"
)


@pytest.fixture(autouse=True)
def _follow_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_runtime, "follow", True)


MODULES = (
    "textwrap fractions statistics random difflib json.decoder json.encoder json.scanner shlex calendar "
    "string pprint csv heapq argparse"
)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("prog", description=TEXT)
    made.add_argument("--size", type=int, default=3, choices=[1, 2, 3])
    made.add_argument("-v", action="count")
    commands = made.add_subparsers(dest="command")
    commands.add_parser("run").add_argument("names", nargs="*")
    return made


def scanner(text: str) -> Any:
    decoder = json.decoder.JSONDecoder()
    decoder.scan_once = json.scanner.py_make_scanner(decoder)  # type: ignore[attr-defined]
    decoder.parse_object, decoder.parse_string = json.decoder.JSONObject, json.decoder.py_scanstring  # type: ignore[attr-defined]
    return decoder.decode(text)


def seeded(seed: int) -> random.Random:
    return random.Random(seed)


def heap(items: list[int]) -> list[int]:
    module: Any = importlib.import_module("heapq")
    out = list(items)
    module.heapify(out)
    module.heappush(out, 3)
    return [module.heappop(out) for _ in range(len(out))]


CALLS: dict[str, Callable[[], Any]] = {
    "wrap": lambda: textwrap.wrap(TEXT, 20, initial_indent="* ", max_lines=4),
    "fill": lambda: textwrap.fill(TEXT, 13, break_long_words=True, drop_whitespace=False),
    "dedent": lambda: textwrap.dedent("  a\n    b\n\n  c"),
    "indent": lambda: textwrap.indent(TEXT, "> "),
    "shorten": lambda: textwrap.shorten(TEXT, 30),
    "fraction": lambda: Fraction("3.25e-1") + Fraction(2, 7) ** 3 - Fraction(1.5) // Fraction(1, 3),
    "limit_denominator": lambda: Fraction("3.14159265358979").limit_denominator(1000),
    "fraction order": lambda: sorted([Fraction(1, 3), 0.3, Fraction(-1, 2), 2]),
    "mean": lambda: (statistics.mean([1, 2, Fraction(1, 2)]), statistics.fmean([1.5, 2.5])),  # type: ignore[type-var]
    "median": lambda: [statistics.median_grouped([1, 3, 3, 5], 2), statistics.multimode("aabbc")],
    "stdev": lambda: (statistics.stdev([1.0, 2.5, 7.0]), statistics.quantiles([1, 2, 3, 9], n=5)),
    "regression": lambda: statistics.linear_regression([1, 2, 3], [2.0, 4.5, 6.0]),
    "normal": lambda: statistics.NormalDist(1, 2).overlap(statistics.NormalDist(0, 1)),
    "no data": lambda: statistics.mean([]),
    "random": lambda: (seeded(1).sample(range(100), 7), seeded(2).choices("abc", [1, 5, 1], k=6)),
    "shuffle": lambda: [seeded(3).gauss(0, 1), seeded(4).betavariate(2, 3), seeded(5).triangular(1, 2, 1.5)],
    "gamma": lambda: [seeded(6).gammavariate(a, 2.0) for a in (0.5, 1.0, 3.0)],
    "encode": lambda: json.dumps({"a": [1, None, {"b": 2.5}], "c": "\u00e9\n"}, indent=2, sort_keys=True),
    "decode": lambda: scanner('{"a": [1, -2.5e3, true, null], "b": "x\\u00e9\\n", "c": {}}'),
    "bad json": lambda: scanner('{"a": [1, }'),
    "matcher": lambda: difflib.SequenceMatcher(None, TEXT, TEXT[::-1]).get_opcodes(),
    "unified": lambda: list(difflib.unified_diff(TEXT.split(), TEXT.upper().split(), "a", "b", n=1)),
    "differ": lambda: list(difflib.ndiff(["one\n", "two\n"], ["ore\n", "tree\n", "emu\n"])),
    "close": lambda: difflib.get_close_matches("appel", ["ape", "apple", "peach", "puppy"]),
    "shlex": lambda: shlex.split('a \'b c\' "d\\"e" f#g', comments=False),
    "calendar": lambda: calendar.TextCalendar().formatmonth(2024, 2),
    "template": lambda: string.Template("$a and ${b} $$").substitute(a=1, b=2),
    "formatter": lambda: string.Formatter().format("{0[1]:>{w}} {x.real!r}", [1, 2], w=5, x=3),
    "pprint": lambda: pprint.pformat({"k" * i: list(range(i * 5)) for i in range(6)}, width=40),
    "csv": lambda: list(csv.DictReader(io.StringIO("a,b\n1,2\n3\n4,5,6\n"))),
    "sniff": lambda: csv.Sniffer().sniff("a;b;c\n1;2;3\n").delimiter,
    "merge": lambda: (list(heapq.merge([1, 4], [2, 3])), heapq.nsmallest(2, [3, 1, 2]), heap([5, 2, 9])),
    "help": lambda: parser().format_help(),
    "arguments": lambda: vars(parser().parse_args(["--size", "2", "-vv", "run", "x", "y"])),
}


def functions_of(owner: Any, module: str) -> Iterator[tuple[Any, str, types.FunctionType]]:
    """The functions of a module and of its classes that are to be replaced, with where they are held."""
    for name, held in list(vars(owner).items()):
        if isinstance(held, types.FunctionType) and held.__module__ == module:
            yield owner, name, held
        elif isinstance(held, type) and held.__module__ == module and not isinstance(owner, type):
            yield from functions_of(held, module)


@pytest.fixture
def converted_library(monkeypatch: pytest.MonkeyPatch) -> int:
    """Python's modules with converted functions in them."""
    replaced = 0
    for name in MODULES.split():
        module = importlib.import_module(name)
        for owner, held, function in list(functions_of(module, name)):
            made = convert_function(function, plain_runtime.runtime)
            if made is not None:
                monkeypatch.setattr(owner, held, made)
                replaced += 1
    return replaced


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return repr(call())
    except Exception as error:
        return type(error), str(error)


@pytest.mark.rotating(2)
def test_converted_library_gives_what_the_original_gives(request: pytest.FixtureRequest) -> None:
    expected = {name: outcome(call) for name, call in CALLS.items()}
    plain_runtime.asked.clear()
    replaced = request.getfixturevalue("converted_library")
    got = {name: outcome(call) for name, call in CALLS.items()}
    assert replaced > 400
    assert plain_runtime.asked["if"] > 1000
    assert got == expected

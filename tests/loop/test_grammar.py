"""The grammar at the top of weft/loop/ir.py is run: it accepts what is printed, and names every statement."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, get_args

import pytest

import weft
from tests.loop.everything import kernel, program
from tests.loop.test_library_calls import biased, product
from tests.loop.test_threads import halving_sum, tree_sum
from weft.loop import ir
from weft.loop.dots import DOTS
from weft.loop.text import format_function, format_program
from weft.ops.scalar import INSTRUCTIONS
from weft.schedule.program import lower_graph

TERMINALS = {
    "INT": r"\d+",
    "NAME": r"[A-Za-z_][\w.]*",
    "VALUE": r"%\d+",
    "DTYPE": r"(bool|[iufc]\d+|bf16)\b",
    "NUMBER": r"(True|False|nan|[-+\d.einfj]+)",
    "INSTRUCTION": rf"({'|'.join((*INSTRUCTIONS, *DOTS))})\b",
    "REST": r"[^\n]*",
}
Match = Callable[[str, int], Iterator[int]]  # the places where a text that begins at a place may end


def grammar_lines() -> list[str]:
    assert ir.__doc__ is not None
    lines = ir.__doc__.splitlines()
    return [line[4:] for line in lines if re.match(r"    (\w+ +=|  +\|) ", line)]


def rules_and_classes() -> tuple[dict[str, str], list[str]]:
    rules: dict[str, str] = {}
    classes: list[str] = []
    name = ""
    for line in grammar_lines():
        found = re.search(r"  ([A-Z][a-z]+)$", line)
        if found:
            classes.append(found.group(1))
            line = line[: found.start()]
        if not line.startswith(" "):
            name, line = (part.strip() for part in line.split("=", 1))
            rules[name] = ""
        rules[name] += " " + line.strip()
    return rules, classes


class Grammar:
    """Recognises text, with all ways to go on kept open."""

    def __init__(self) -> None:
        self.rules = rules_and_classes()[0]
        self.made: dict[str, Match] = {}

    def accepts(self, rule: str, text: str) -> bool:
        return any(not text[end:].strip() for end in self.rule(rule)(text, 0))

    def rule(self, name: str) -> Match:
        if name not in self.made:
            if name in TERMINALS:
                self.made[name] = terminal(TERMINALS[name])
            else:
                self.made[name] = lambda text, at: self.made[name + "'"](text, at)  # a rule may name itself
                tokens = re.findall(r'"[^"]*"|\w+|[\[\]()|*]', self.rules[name])
                self.made[name + "'"] = self.choice(tokens)
                assert not tokens, tokens
        return self.made[name]

    def choice(self, tokens: list[str]) -> Match:
        options = [self.sequence(tokens)]
        while tokens and tokens[0] == "|":
            tokens.pop(0)
            options.append(self.sequence(tokens))
        return lambda text, at: (end for option in options for end in option(text, at))

    def sequence(self, tokens: list[str]) -> Match:
        parts: list[Match] = []
        while tokens and tokens[0] not in ("|", ")", "]"):
            parts.append(self.part(tokens))
        return in_order(parts)

    def part(self, tokens: list[str]) -> Match:
        token = tokens.pop(0)
        if token in ("(", "["):
            made = self.choice(tokens)
            tokens.pop(0)
            if token == "[":
                made = optional(made)
        elif token.startswith('"'):
            made = terminal(r"\s*".join(map(re.escape, token[1:-1].split())))
        else:
            made = self.rule(token)
        if tokens and tokens[0] == "*":
            tokens.pop(0)
            return repeated(made)
        return made


def terminal(pattern: str) -> Match:
    compiled = re.compile(r"\s*" + pattern)

    def match(text: str, at: int) -> Iterator[int]:
        found = compiled.match(text, at)
        if found:
            yield found.end()

    return match


def in_order(parts: list[Match]) -> Match:
    def match(text: str, at: int, number: int = 0) -> Iterator[int]:
        if number == len(parts):
            yield at
            return
        for end in parts[number](text, at):
            yield from match(text, end, number + 1)

    return match


def optional(part: Match) -> Match:
    def match(text: str, at: int) -> Iterator[int]:
        yield from part(text, at)
        yield at

    return match


def repeated(part: Match) -> Match:
    """As often as possible: one way to go on, or a long text would have too many."""

    def match(text: str, at: int) -> Iterator[int]:
        ends = [at]
        while (end := next(part(text, ends[-1]), None)) is not None:
            ends.append(end)
        yield from reversed(ends)

    return match


def test_every_statement_is_in_the_grammar_once() -> None:
    assert sorted(rules_and_classes()[1]) == sorted(cls.__name__ for cls in get_args(ir.Statement))


def test_the_grammar_accepts_every_statement_as_printed() -> None:
    grammar = Grammar()
    for function in (kernel(), tree_sum(), halving_sum(), product(), biased()):
        assert grammar.accepts("function", format_function(function)), function.name
    assert grammar.accepts("program", format_program(program()))


def rows(x: Any) -> Any:
    return weft.softmax(weft.tanh(x @ x.T) * 2, axis=1)


def order(x: Any) -> Any:
    return weft.sort(x, axis=1), weft.cumsum(x, axis=0)[1:, ::2]


def choice(x: Any) -> Any:
    return weft.where(x > 0, x, -x).sum()


@pytest.mark.parametrize("f", [rows, order, choice])
def test_the_grammar_accepts_programs_of_graphs(f: Callable[[Any], Any]) -> None:
    graph = weft.make_graph(f)(weft.ones(4, 6)).optimize()
    assert Grammar().accepts("program", format_program(lower_graph(graph)))


@pytest.mark.parametrize(
    "text",
    [
        "function f() { barriers }",
        "function f() { store x[0] }",
        "function f() { for lanes i in 0..8 { } }",
        "function f() { %0: f32 = unknown(%1) }",
        "function f() { scratch local x: f32[4] }",
        "function f() {",
    ],
)
def test_the_grammar_refuses_other_text(text: str) -> None:
    assert not Grammar().accepts("function", text)

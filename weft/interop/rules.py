"""Tables of rules: for each operator of another framework a function that does the same with tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rule = Callable[..., Any]


def registrar(rules: dict[str, Rule]) -> Callable[..., Callable[[Rule], Rule]]:
    """A decorator that enters a function into a table under some names.

    >>> rules = {}
    >>> @registrar(rules)("add", "plus")
    ... def add(call, x, y):
    ...     return x + y
    >>> sorted(rules)
    ['add', 'plus']
    """

    def named(*names: str) -> Callable[[Rule], Rule]:
        def register(rule: Rule) -> Rule:
            for name in names:
                assert name not in rules, f"{name} has two rules"
                rules[name] = rule
            return rule

        return register

    return named

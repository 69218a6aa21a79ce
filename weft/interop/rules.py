"""Tables of rules: for each operator of another framework a function that does the same with tensors."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from weft.errors import CaptureError

Rule = Callable[..., Any]


class Rules(dict[str, Rule]):
    """Rules by the names of operators, each of which has one.

    >>> rules = Rules()
    >>> @rules("add", "plus")
    ... def add(call, x, y):
    ...     return x + y
    >>> rules.enter({"neg minus": lambda call, x: -x})
    >>> sorted(rules)
    ['add', 'minus', 'neg', 'plus']
    """

    def __call__(self, *names: str) -> Callable[[Rule], Rule]:
        """A decorator that enters a function under some names."""

        def register(rule: Rule) -> Rule:
            for name in names:
                assert name not in self, f"{name} has two rules"
                self[name] = rule
            return rule

        return register

    def enter(self, table: Mapping[str, Rule]) -> None:
        """Enter rules that are one line each; a key is one name, or several with blanks between."""
        for names, rule in table.items():
            self(*names.split())(rule)

    def unknown(self, op: str, what: str, name: str, told: str, listed: str) -> CaptureError:
        """The error where an operator has no rule, to be raised; it tells the nearest name.

        Args:
            op: in whose name.
            what: the framework calls an operator.
            name: as the table has it.
            told: as the program has it.
            listed: the function that lists all names.
        """
        close = difflib.get_close_matches(name, list(self), 1)
        hint = f"see {listed}() for those it knows" + (f"; the nearest is {close[0]}" if close else "")
        return CaptureError(op, f"the {what} must be one weft knows, got {told}", hint=hint)


def plain(function: Callable[..., Any]) -> Rule:
    """The rule of an operator that is a function of weft, with its arguments as they are."""
    return lambda call, *args, **kwargs: function(*args, **kwargs)

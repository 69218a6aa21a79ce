"""The table of docs/distributions.md: what it says that distributions have is what they have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from weft import distributions as d
from weft.distributions.base import Distribution
from weft.distributions.divergence import RULES

PAGE = Path(__file__).parents[2] / "docs" / "distributions.md"
ROW = re.compile(r"^\| `(\w+)\((.*)\)` \|(.*)\|(.*)\|(.*)\|(.*)\|$")
ROWS = {m[1]: m.groups()[1:] for line in PAGE.read_text().splitlines() if (m := ROW.match(line))}


def defines(kind: type, what: str) -> bool:
    return any(what in c.__dict__ for c in kind.__mro__ if c is not Distribution)


@pytest.mark.parametrize("name", ROWS)
def test_row_holds(name: str) -> None:
    arguments, rsample, cdf, entropy, divergences = (text.strip() for text in ROWS[name])
    kind: Any = getattr(d, name)
    code = getattr(kind.__init__, "__wrapped__", kind.__init__).__code__
    assert arguments.split(", ") == list(code.co_varnames[1 : code.co_argcount])
    assert bool(rsample) == kind.has_rsample
    assert bool(cdf) == defines(kind, "cdf")
    assert bool(entropy) == defines(kind, "entropy")
    known = [q for q in ROWS if any((a, b) in RULES for a in kind.__mro__ for b in getattr(d, q).__mro__)]
    listed = re.findall(r"`(\w+)`", divergences)
    assert set(listed) <= set(known)
    assert bool(listed) == (name in known)


def test_those_with_quantiles_are_named() -> None:
    sentence = re.search(r"`Cauchy`,[^.]* have quantiles", PAGE.read_text())
    assert sentence is not None
    kinds = {n for n in d.__all__ if isinstance(getattr(d, n), type)}
    assert set(re.findall(r"`(\w+)`", sentence[0])) == {n for n in kinds if defines(getattr(d, n), "icdf")}


def test_all_distributions_are_there() -> None:
    kinds = {n for n in d.__all__ if isinstance(getattr(d, n), type)}
    assert set(ROWS) == kinds - {"Distribution", "Independent", "MixtureSameFamily"}

"""Branches find what they take, whichever of them runs: also what has to be written out for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.backends.llvm.driver import build_executable
from weft.passes.pipeline import PIPELINE
from weft.schedule.choices import CHOICES

COND = """
graph f(%x: i64[], %which: i64[]) {
  %1: i64[] = while_loop(%x, carries=1) {
    test(%0: i64[]) {
      %1: bool[] = less(%0, i64(3))
      return %1
    }
    body(%0: i64[]) {
      %1: i64[] = add(%0, i64(1))
      return %1
    }
  }
  %2: i64[2] = broadcast_to(%1, shape=(2,))
  %3: bool[] = greater(%which, i64(0))
  %4: i64[2] = cond(%3, %2) {
    branches[0](%0: i64[2]) {
      return %0
    }
    branches[1](%0: i64[2]) {
      SECOND
      return %1
    }
  }
  return %4, %2
}
"""
SWITCH = COND.replace("cond(%3, %2)", "switch(%which, %2)")
KEPT = {"inline", "decompose"}
ALL = sorted({*CHOICES, *(p.name for p in PIPELINE)} - KEPT)


def changed(text: str, second: str) -> str:
    """The text with a second branch that computes something, or nothing."""
    return text.replace("SECOND\n      return %1", f"{second}\n      return %1" if second else "return %0")


@pytest.mark.parametrize("disable", [(), ("simplify", "turn_products", "vectorisation"), ALL])
@pytest.mark.parametrize("second", ["", "%1: i64[2] = neg(%0)"])
@pytest.mark.parametrize("text", [COND, SWITCH], ids=["cond", "switch"])
def test_every_branch_has_what_the_first_one_wrote_out(text: str, second: str, disable: Any) -> None:
    graph = weft.parse_graph(changed(text, second))
    passes = [name for name in disable if name not in CHOICES]
    run = build_executable(graph.optimize(disable=passes), disable=disable)
    first = 1 if "cond" in text else 0
    for x in (0, 7):
        for which in (0, 1):
            counted = max(x, 3)
            expected = counted if which == first or not second else -counted
            found, beside = run([np.array(x), np.array(which)])
            assert found.tolist() == [expected] * 2
            assert beside.tolist() == [counted] * 2

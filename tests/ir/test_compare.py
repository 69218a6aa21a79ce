"""When two graphs are the same, and how a difference is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.ir.compare import same_literal
from weft.ir.graph import Graph

TEXT = """
graph f(%x: f32[2], state %m: f32[2]) {
  %0: f32[2] = add(%x, f32(1.0))                    @ a.py:1
  %1: f32[] = sum(%0, axes=(0,), keepdims=False)
  %2: f32[2] = cond(bool(True), %0) {
    branches[0](%0: f32[2]) {
      return %0
    }
    branches[1](%0: f32[2]) {
      %1: f32[2] = neg(%0)
      return %1
    }
  }
  update %m = %0
  return %1, %2
}
"""

CHANGES = [
    ("graph f(", "graph g(", "names 'f' and 'g'"),
    ("state", "param", "roles ('arg', 'state') and ('arg', 'param')"),
    ("%x", "%z", "inputs %x: f32[2] and %z: f32[2]"),
    (", state %m: f32[2]", ", state %m: f32[2], %n: f32[]", "roles"),
    ("add(%x, f32(1.0))", "sub(%x, f32(1.0))", "node 0, add: ops add and sub"),
    ("add(%x, f32(1.0))", "add(%x, f32(2.0))", "node 0, add: operands"),
    ("add(%x, f32(1.0))", "add(f32(1.0), %x)", "node 0, add: operands"),
    ("@ a.py:1", "@ a.py:2", "node 0, add: locations"),
    ("%1: f32[] = sum(%0", "%s: f32[] = sum(%0", "node 1, sum: outputs"),
    ("neg(%0)", "exp(%0)", "node 2, cond: attribute branches: node 0, neg: ops neg and exp"),
    ("return %1, %2", "return %2, %1", "outputs or updates"),
    ("return %1, %2", "return %1", "numbers of outputs or updates"),
    ("update %m = %0", "update %m = %2", "outputs or updates"),
]


def parsed(text: str) -> Graph:
    text = text.replace("return %1, %2", "return %s, %2") if "%s:" in text else text
    text = text.replace("update %m = %0\n", "") if "param" in text else text
    return weft.parse_graph(text)


@pytest.mark.parametrize(("old", "new", "expected"), CHANGES, ids=map(str, range(len(CHANGES))))
def test_change_is_told(old: str, new: str, expected: str) -> None:
    found = parsed(TEXT).difference(parsed(TEXT.replace(old, new)))
    assert found is not None
    assert expected in found


def test_equal_texts_are_the_same_graph() -> None:
    assert parsed(TEXT).same(parsed(TEXT))
    assert parsed(TEXT).same(parsed(TEXT.replace("@ a.py:1", "")), locations=False)


def test_attribute_is_told() -> None:
    text = "graph f(%x: f32[2,2]) { %0: f32[2] = sum(%x, axes=(0,), keepdims=False)\n return %0 }"
    found = parsed(text).difference(parsed(text.replace("(0,)", "(1,)")))
    assert found == "node 0, sum: attribute axes: (0,) and (1,)"


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (1, 1, True),
        (1, 1.0, False),
        (1, True, False),
        (0.0, -0.0, False),
        (float("nan"), float("nan"), True),
        ((1, "a"), (1, "a"), True),
        ((1,), (1, 1), False),
        (np.dtype("f4"), np.dtype("f4"), True),
        (np.dtype("f4"), np.dtype("f8"), False),
        (complex(0.0, -0.0), 0j, False),
    ],
)
def test_literals_compare_by_type_and_bits(a: Any, b: Any, expected: bool) -> None:
    assert same_literal(a, b) is expected

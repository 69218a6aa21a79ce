"""Nodes without outputs (print, assert, guards) among those that become one kernel, in random programs.

Each program runs as captured and optimised, all graphs verified; results and what it prints are those of
eager code.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

import weft
from tests.capture.test_random_programs import load
from weft.errors import GraphError

STEPS = (
    "{o} = weft.exp({a} - {a}.max(axis=-1, keepdims=True))",
    "{o} = {a} / (weft.abs({b}).sum(axis=-1, keepdims=True) + 1.0)",
    "{o} = weft.softmax({a}, axis=-1)",
    "{o} = weft.tanh({a}) * {b}",
    "{o} = {a} - {b}.mean(axis=0, keepdims=True)",
    "{o} = weft.where({a} > 0, {a}, {b})",
    "{o} = {a}[::-1] + {b}",
)
EFFECTS = (
    "print({a}.shape, {b}.sum() > 1e9)",
    "print({a}.max() > 1e9)",
    "assert {a}.sum() < 1e9, 'too much'",
    "assert ({a} == {a}).all()",
    "if {a}[0][0] > 1e9:\n        print('never')",
    "if not {a}[0][0] > 1e9:\n        {a} = {a} * 2.0",
    "print(({a}.sum() * 0.0).item() if False else 'x')",
)


def program(seed: int) -> str:
    """A function of two matrices as source."""
    draw = random.Random(seed)
    names, lines = ["x", "y"], []
    for k in range(draw.randint(3, 8)):
        a, b = draw.choice(names), draw.choice(names)
        lines.append(draw.choice(STEPS).format(o=f"v{k}", a=a, b=b))
        names.append(f"v{k}")
        if draw.random() < 0.7:
            lines.append(draw.choice(EFFECTS).format(a=draw.choice(names), b=draw.choice(names)))
    body = "\n    ".join([*lines, f"return {names[-1]}, {draw.choice(names)}.sum(axis=-1)"])
    return f"import weft\n\n\ndef f(x, y):\n    {body}\n"


X, Y = np.random.default_rng(0).standard_normal((2, 4, 6)).astype(np.float32)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("first", range(0, 24, 8))
def test_programs_with_effects_do_what_eager_code_does(
    first: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(first, first + 8):
        f = load(program(seed))
        wanted = [t.numpy() for t in f(weft.tensor(X), weft.tensor(Y))]
        said = capsys.readouterr().out
        for options in ({"debug": True}, {"debug": True, "capture": "trace"}):
            got = weft.compile(f, **options)(weft.tensor(X), weft.tensor(Y))
            assert capsys.readouterr().out == said, program(seed)
            for a, b in zip(got, wanted, strict=True):
                np.testing.assert_allclose(a.numpy(), b, rtol=2e-5, atol=1e-5, err_msg=program(seed))


def test_a_value_from_outside_is_named_with_its_node() -> None:
    graph = weft.make_graph(lambda x: weft.tanh(x) + 1.0)(weft.ones(3))
    with pytest.raises(GraphError, match=r"node 0, .*add.*: operand 0 must be made in the graph"):
        graph.replace(nodes=graph.nodes[1:]).verify()

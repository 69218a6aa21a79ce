"""Random loops that read and change slices, and their gradients, against eager code."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.of_code import turn_of

SLICES = {
    "i": (":i", "n - i:", "1:i + 1"),
    "n-i": ("i:", ":n - i", "i:n"),
    "n-i-1": ("i + 1:", ":n - i - 1", "i:n - 1", "1:n - i"),
    "n-2": ("1:-1", ":-2", "2:"),
    "n": (":", "::-1"),
}
SQUASHED = "".join(f"        {x}[:] = {x} / (1.0 + abs({x}))\n" for x in "xyab")  # so that nothing overflows


class Source:
    """Writes one random program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def one(self, *choices: str) -> str:
        return self.random.choice(choices)

    def program(self) -> str:
        body = "".join(self.statement(2) for _ in range(self.random.randint(1, 4)))
        turns = self.one("range(n)", "range(1, n - 1)", "range(n - 2, 0, -1)", "range(n - 1, -1, -1)")
        return (
            f"def f(x, y, a, b):\n    n = x.shape[0]\n    for i in {turns}:\n{body}{SQUASHED}"
            "    return x, y, a, b\n"
        )

    def vector(self, length: str) -> str:
        part = self.one(*SLICES[length])
        return self.one(*[f"{x}{part}]" for x in ("x[", "y[", "a[i, ", "a[n - 1 - i, ")], f"a[{part}, i]")

    def matrix(self, rows: str, columns: str) -> str:
        return f"{self.one('a', 'b')}[{self.one(*SLICES[rows])}, {self.one(*SLICES[columns])}]"

    def scalar(self) -> str:
        length = self.one(*SLICES)
        dot = f"0.1 * ({self.vector(length)} @ {self.vector(length)})"
        return self.one("x[i]", "a[i, i]", f"{self.vector(length)}.sum() * 0.1", dot)

    def expression(self, length: str, depth: int = 0) -> str:
        if depth > 1 or self.random.random() < 0.5:
            return self.vector(length)
        first, second = (self.expression(length, depth + 1) for _ in range(2))
        return self.one(f"({first} + 0.5 * {second})", f"0.3 * {first} * {self.scalar()}")

    def statement(self, depth: int) -> str:
        indent, kind = "    " * depth, self.random.random()
        rows, columns = self.one(*SLICES), self.one(*SLICES)
        if kind < 0.5:
            return f"{indent}{self.vector(rows)} {self.one('=', '+=')} {self.expression(rows)}\n"
        if kind < 0.7:
            halves = f"0.5 * ({self.matrix(rows, columns)} + {self.matrix(rows, columns)})"
            outer = f"0.1 * {self.vector(rows)}[:, None] * {self.vector(columns)}"
            return f"{indent}{self.matrix(rows, columns)} {self.one(f'= {halves}', f'+= {outer}')}\n"
        if kind < 0.85:
            ways = [self.statement(depth + 1) for _ in range(2)]
            return f"{indent}if {self.scalar()} > 0:\n{ways[0]}{indent}else:\n{ways[1]}"
        return f"{indent}x[i] = 0.5 * {self.scalar()}\n"


def function_of(seed: int, folder: Path) -> Any:
    path = folder / f"program{seed}.py"
    path.write_text(Source(seed).program())
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.f


def tensors(n: int) -> list[Any]:
    rng = np.random.default_rng(n)
    return [weft.tensor(rng.normal(size=shape)) for shape in ((n,), (n,), (n, n), (n, n))]


def assert_close(got: Any, want: Any) -> None:
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-9)


SEEDS = turn_of(range(40), 6)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("seed", SEEDS)
def test_values_are_those_of_eager_code(seed: int, tmp_path: Path) -> None:
    """Takes a part of forty programs."""
    f = function_of(seed, tmp_path)
    for n, backend in ((2, "interpret"), (7, "interpret"), (19, "llvm")):
        compiled = weft.compile(f, backend=backend)
        assert_close(compiled(*tensors(n)), f(*tensors(n)))
    assert [node.op.name for node in compiled.versions[0].graph.nodes if node.regions] == ["scan"]


@pytest.mark.rotating(2)
@pytest.mark.parametrize("seed", SEEDS[::2])
def test_gradients_are_those_of_eager_code(seed: int, tmp_path: Path) -> None:
    """Takes a part of forty programs."""
    f = function_of(seed, tmp_path)

    def loss(*given: Any) -> Any:
        return sum((x * x).sum() for x in f(*[t.clone() for t in given]))

    gradient = weft.grad(loss, argnums=(0, 1, 2, 3))
    assert_close(weft.compile(gradient, backend="interpret")(*tensors(4)), gradient(*tensors(4)))

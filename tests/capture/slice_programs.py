"""Random loops that read and change slices which their indices bound: compiled as eager, with gradients.

``python -m tests.capture.slice_programs 500 --seed 1000`` runs as many, from a seed on.
"""

from __future__ import annotations

import argparse
import linecache
import random
from functools import partial
from typing import Any

import numpy as np

import weft
from weft.errors import CaptureError

_BOUNDS = ("{v}", "{v} + 1", "{v} - 1", "n - {v}", "{v} + 2", "2 * {v}", "-{v}", "{v} // 2", "-{v} - 1")
_STENCILS = (
    "x[1:-1] = 0.3 * (x[:-2] + x[1:-1] + x[2:])",
    "A[1:-1, 1:-1] = 0.2 * (A[1:-1, 1:-1] + A[:-2, 1:-1] + A[2:, 1:-1] + A[1:-1, :-2] + A[1:-1, 2:])",
)


class Writer:
    """Writes the body of a loop.

    Attributes:
        random: what makes the choices.
        names: the indices of the loops around, the innermost last.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names: list[str] = []

    def one_of(self, *options: str) -> str:
        """One of some texts."""
        return self.random.choice(options)

    def bound(self) -> str:
        """A bound of a slice."""
        if not self.random.randrange(7):
            return self.one_of("", "0", "1", "3", "-1", "-2")
        return self.one_of(*_BOUNDS).format(v=self.one_of(*self.names))

    def slice(self) -> str:
        """A slice."""
        return f"{self.bound()}:{self.bound()}{self.one_of('', '', '', '', ':2', ':-1', ':-2')}"

    def index(self) -> str:
        """An index that is in range."""
        return self.one_of(*self.names, *self.names, "0", "-1")

    def vector(self, depth: int = 0) -> str:
        """A part of a tensor, of some length."""
        kind = self.random.randrange(8) if depth < 2 else 0
        if kind in (3, 4):
            parts = (self.index(), self.slice())
            return f"A[{', '.join(parts if kind == 3 else parts[::-1])}]"
        if kind in (5, 6):
            return f"({'1.5 * ' if kind == 5 else 'weft.tanh'}({self.vector(depth + 1)}))"
        return f"{'y' if kind == 7 else 'x'}[{self.slice()}]"

    def scalar(self) -> str:
        """A number."""
        part = self.slice()
        return self.one_of(
            f"({self.vector()}).sum()",
            f"x[{self.index()}]",
            f"A[{self.index()}, {self.index()}]",
            f"(x[{part}] @ y[{part}])",
            f"(A[{self.index()}, {part}] @ x[{part}])",
            "0.5",
        )

    def statements(self, count: int, indent: int) -> list[str]:
        """Some statements, each of one line or more."""
        return [line for _ in range(count) for line in self.statement(indent)]

    def statement(self, indent: int) -> list[str]:
        """A statement: an assignment to a part, a branch, a loop in the loop."""
        margin, part, other = "    " * indent, self.slice(), self.slice()
        i, k = self.index(), self.index()
        kind = self.random.randrange(11)
        if kind == 0 and len(self.names) < 3:
            return self.loop(indent)
        if kind == 1:
            ways = f"{margin}    x[{part}] = 0.25", f"{margin}else:", f"{margin}    t = t * 0.9"
            return [f"{margin}if {self.scalar()} > 0.1:", *ways]
        text = (
            f"x[{part}] = 0.5 * y[{part}] + {self.scalar()}",
            f"x[{part}] = x[{part}] * 0.5 + 0.1",
            f"A[{i}, {part}] = {self.one_of(f'A[{k}, {part}] * 0.5 - 0.2', f'x[{part}]', self.scalar())}",
            f"A[{part}, {i}] = {self.one_of(f'A[{part}, {k}] * 0.5 - 0.2', f'x[{part}]', self.scalar())}",
            f"x[{i}] = 0.3 * {self.scalar()}",
            f"A[{part}, {other}] = A[{part}, {other}] * 0.5 + {self.scalar()} * 0.1",
            f"t = t + 0.1 * {self.scalar()}",
            f"y[{part}] += 0.1 * x[{part}]",
            self.one_of(*_STENCILS),
        )[kind - 2]
        return [margin + text]

    def loop(self, indent: int) -> list[str]:
        """A loop."""
        ranges = ["n", "1, n", "n - 1, -1, -1", "n - 1", "0, n, 2"]
        if self.names:
            last = self.names[-1]
            ranges += [last, f"{last} + 1, n", f"{last}, -1, -1"]
        name, span = f"i{len(self.names)}", self.one_of(*ranges)
        self.names.append(name)
        body = self.statements(self.random.randrange(1, 4), indent + 1)
        self.names.pop()
        return [f"{'    ' * indent}for {name} in range({span}):", *body]


def program(seed: int) -> tuple[str, int]:
    """The text of a function, and the size of its tensors."""
    writer = Writer(seed)
    size = writer.random.choice([1, 2, 5, 6, 7])
    head = ["def f(x, y, A, n):", "    x, y, A = x.clone(), y.clone(), A.clone()", "    t = x.sum() * 0"]
    return "\n".join([*head, *writer.loop(1), "    return x, y, A, t"]), size


def check(seed: int, *, device: str = "cpu") -> str:
    """ "same", "refused: ..." or "wrong: ...": a program compiled beside the same one run at once.

    On another device it is run at once there, too; what the processor gives is right.
    """
    source, n = program(seed)
    name = f"<slice program {seed}>"
    linecache.cache[name] = len(source), None, source.splitlines(True), name
    scope: dict[str, Any] = {"weft": weft}
    exec(compile(source, name, "exec"), scope)  # noqa: S102 - it is ours
    rng = np.random.default_rng(seed)
    given = [rng.normal(size=s) * 0.5 for s in ((n,), (n,), (n, n))]

    def run(x: Any, y: Any, a: Any) -> Any:
        return scope["f"](x, y, a, n)

    def loss(x: Any, y: Any, a: Any) -> Any:
        return sum([(out * out).sum() for out in run(x, y, a)], weft.zeros((), dtype=weft.float64))

    def results(function: Any, where: str) -> list[Any]:
        with weft.default_device(where):
            return [x.cpu().numpy() for x in function(*map(weft.tensor, given))]

    ways: dict[str, Any] = {"llvm": partial(weft.compile, backend="llvm")}
    if seed % 2:
        ways["interpret"] = partial(weft.compile, backend="interpret")
    if device != "cpu":
        ways = {f"eager code on {device}": lambda f: f, device: weft.compile}
    for function in [run] if seed % 3 else [run, weft.grad(loss, argnums=(0, 1, 2))]:
        expected = results(function, "cpu")
        for label, way in ways.items():
            try:
                found = results(way(function), device)
            except CaptureError as error:
                return f"refused: {error}"
            for k, (a, b) in enumerate(zip(found, expected, strict=True)):
                if a.shape != b.shape or not np.allclose(a, b, rtol=1e-8, atol=1e-10):
                    return f"wrong: result {k} by {label}: {a} and not {b} of\n{source}"
    return "same"


def main() -> int:
    """Run some, and tell how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found = {seed: check(seed) for seed in range(given.seed, given.seed + given.count)}
    for seed, outcome in found.items():
        if outcome != "same":
            print(seed, outcome)  # noqa: T201 - for who runs it
    wrong, refused = (sum([o.startswith(how) for o in found.values()]) for how in ("wrong", "refused"))
    print(f"{len(found)} programs, {wrong} wrong, {refused} refused")  # noqa: T201
    return wrong > 0


if __name__ == "__main__":
    raise SystemExit(main())

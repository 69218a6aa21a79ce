"""Runs random programs about state, eager and compiled, and compares all that they leave.

``python -m tests.capture.state_programs 20000 --seed 7`` runs many and prints those that differ.
"""

from __future__ import annotations

import argparse
import linecache
import sys
import time
import warnings
from collections import Counter
from typing import Any

import numpy as np

import weft
from tests.capture.state_source import program
from weft.errors import CaptureError

CALLS = ((0.5, 1), (-0.5, 2), (0.2, 0), (-1.0, 1))  # what decides branches, and the number of turns


class Outside:
    """An object that programs change, with a property and an operator of its own."""

    def __init__(self) -> None:
        self.p = weft.tensor([0.1, 0.2, 0.3])
        self.q = weft.tensor([-0.4, 0.5, 0.6])
        self._kept = weft.tensor([0.7, -0.8, 0.9])
        self.writes = weft.tensor(0)

    @property
    def prop(self) -> Any:
        return self._kept

    @prop.setter
    def prop(self, value: Any) -> None:
        self._kept = value
        self.writes = self.writes + 1

    def __iadd__(self, other: Any) -> Outside:
        self.q = self.q + other
        return self


class Net(weft.nn.Module):
    """A module with a buffer."""

    buf: Any

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("buf", weft.tensor([0.15, 0.25, -0.35]))


class World:
    """What a program finds outside, and its function."""

    def __init__(self, source: str, name: str) -> None:
        self.o, self.net = Outside(), Net()
        self.L = [weft.tensor([0.3, 0.1, -0.2]), weft.tensor([0.4, -0.1, 0.2])]
        self.D = {"x": weft.tensor([0.6, 0.2, -0.6])}
        space: dict[str, Any] = {"__name__": "state_program"}
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        exec(compile(source, name, "exec"), space)  # noqa: S102 - the text is ours
        self.function = space["make"](self.o, self.L, self.D, self.net, weft.tensor([0.05, 0.5, -0.5]))

    def tensors(self) -> list[Any]:
        """All tensors that can be reached, always in the same order."""
        cells = dict(zip(self.function.__code__.co_freevars, self.function.__closure__, strict=True))
        kept = [cells["z"].cell_contents] if "z" in cells else []
        return [self.o.p, self.o.q, self.o._kept, self.o.writes, *self.L, self.D["x"], self.net.buf, *kept]


def run(world: World, function: Any) -> list[Any]:
    """What each call returns, and what all that can be reached holds after it, and after changes of it."""
    log = []
    for number, turns in CALLS:
        a = weft.tensor([0.2, -0.3, 0.4])
        m = weft.tensor([[0.5, -0.5, 0.25], [0.75, -0.25, 0.1]])
        returned = function(a, m, weft.tensor(number), weft.tensor(turns))
        reached = [*returned, a, m, *world.tensors()]
        log.append([x.detach().numpy().copy() for x in reached])
        for k, x in enumerate(reached[:-1]):  # who sees the change of whom
            if x.dtype == weft.float32:
                x.mul_(0.9).add_(0.01 * k)
        log.append([x.detach().numpy().copy() for x in reached])
    return log


def check(seed: int) -> str:
    """ "same", "refused: ...", or "wrong: ..."."""
    return checked(program(seed), f"<state program {seed}>")


def checked(source: str, name: str) -> str:
    """The same of a program that is given."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        world = World(source, name)
        try:
            expected = run(world, world.function)
        except weft.errors.WeftError as error:  # which the program must not do: an error of the generator
            return f"bad: {error}"
        world = World(source, name)
        try:
            found = run(world, weft.compile(world.function, backend="interpret"))
        except CaptureError as error:
            return f"refused: {error}" if "\n  at " in str(error) else f"wrong: no line in {error}"
        except Exception as error:
            return f"wrong: {type(error).__name__}: {error}"
    for call, (ours, theirs) in enumerate(zip(expected, found, strict=True)):
        for k, (x, y) in enumerate(zip(ours, theirs, strict=True)):
            if not np.allclose(x, y, rtol=1e-4, atol=1e-5):
                return f"wrong: call {call // 2}, tensor {k}{' after changes' * (call % 2)}: {x} and {y}"
    return "same"


def main() -> int:
    """Run many, and say how many are right, refused and wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    parser.add_argument("--show", type=int, default=5)
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    for seed in range(given.seed, given.seed + given.count):
        outcome = check(seed)
        kind, _, what = outcome.partition(": ")
        counts[kind] += 1
        if kind == "refused":
            counts[f"  {what.splitlines()[0][:90]}"] += 1
        if kind in ("wrong", "bad") and counts[kind] <= given.show:
            sys.stdout.write(f"seed {seed} {outcome}\n{program(seed)}\n")
    for kind, count in counts.most_common(30):
        sys.stdout.write(f"{count} {kind}\n")
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())

"""Runs random programs about state, eager and compiled, and compares all that they leave.

``python -m tests.capture.state_programs 20000 --seed 7`` runs many and prints those that differ; ``make
test-state`` runs some that were never run before whenever weft has changed.
"""

from __future__ import annotations

import argparse
import linecache
import logging
import multiprocessing
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import weft
from tests.capture.state_source import program
from tests.of_code import seed_of_code
from weft.errors import CaptureError

CALLS = ((0.5, 1), (-0.5, 2), (0.2, 0), (-1.0, 1))  # what decides branches, and the number of turns


ARGUMENTS = ([0.2, -0.3, 0.4], [[0.5, -0.5, 0.25], [0.75, -0.25, 0.1]])


class Told:
    """A descriptor that counts what is set."""

    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        return obj._told

    def __set__(self, obj: Any, value: Any) -> None:
        obj._told = value
        obj.writes = obj.writes + 1


class Scaled:
    """Doubles a tensor in place, for the time of a block."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __enter__(self) -> Any:
        self.x.mul_(2.0)
        return self.x

    def __exit__(self, *_: object) -> None:
        self.x.mul_(0.5)


class Outside:
    """An object that programs change, with special methods of its own."""

    told = Told()

    def __init__(self) -> None:
        self.p = weft.tensor([0.1, 0.2, 0.3])
        self.q = weft.tensor([-0.4, 0.5, 0.6])
        self.writes = weft.tensor(0)
        self.at = weft.tensor(1)
        self._kept = weft.tensor([0.7, -0.8, 0.9])
        self._told = weft.tensor([-0.9, 0.35, 0.45])
        self._items = {"k": weft.tensor([0.55, 0.65, -0.75])}
        self.rows = [[weft.tensor([0.15, -0.65, 0.2])], [weft.tensor([-0.25, 0.85, 0.7])]]
        self.box, self.node = [weft.tensor([0.35, -0.45, 0.1])], None
        self.count, self.best = 0, 0.5
        self.duo, self.last = (0.75, 0.25), 0.5

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

    def __matmul__(self, other: Any) -> Any:
        self.p.add_(other * 0.25)
        return other

    def __call__(self, x: Any) -> Any:
        self.q = x
        return x.mul_(0.5)

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._items[key] = value
        self.writes = self.writes + 1

    def __len__(self) -> int:
        return len(self._items) + 2

    def __bool__(self) -> bool:
        return bool(self.p.sum() > 0)

    def scaled(self, x: Any) -> Scaled:
        return Scaled(x)


class Net(weft.nn.Module):
    """A module with a weight, a buffer, and a tensor that is neither."""

    buf: Any

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("buf", weft.tensor([0.15, 0.25, -0.35]))
        self.weight = weft.nn.Parameter(weft.tensor([0.5, -0.6, 0.8]))
        self.kept = weft.tensor([0.1, -0.2, 0.4])

    def forward(self, x: Any) -> Any:
        return x * self.weight + self.buf


class World:
    """What a program finds outside, and its function; if shared, some of it are views of one tensor."""

    def __init__(self, source: str, name: str, *, shared: bool = False) -> None:
        self.o, self.net = Outside(), Net()
        self.L = [weft.tensor([0.3, 0.1, -0.2]), weft.tensor([0.4, -0.1, 0.2])]
        self.inner: dict[str, Any] = {"v": weft.tensor([0.2, 0.45, -0.15]), "n": 1}
        self.D: dict[str, Any] = {"x": weft.tensor([0.6, 0.2, -0.6]), "in": self.inner, "n": 0}
        self.D["box"] = [weft.tensor([-0.05, 0.3, 0.95])]
        self.rows, self.boxes = [*self.o.rows], [self.o.box, self.D["box"]]
        self.kept: list[Any] = []  # what calls have returned
        if shared:
            base = weft.tensor([[0.4, -0.1, 0.2], [0.6, 0.2, -0.6]])
            self.o.q, self.L[1], self.D["x"] = base[0], base.view(-1)[2:5], base[1]
        space: dict[str, Any] = {"__name__": "state_program"}
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        exec(compile(source, name, "exec"), space)  # noqa: S102 - the text is ours
        self.function = space["make"](self.o, self.L, self.D, self.net, weft.tensor([0.05, 0.5, -0.5]), 1)

    def tensors(self) -> list[Any]:
        """All tensors that can be reached, always in the same order."""
        kept = [self.cells()["z"].cell_contents] if "z" in self.cells() else []
        o, net = self.o, self.net
        own = [o.p, o.q, o._kept, o._told, o._items["k"], o.writes, o.at]
        inner = [self.inner["v"], *[row[0] for row in (*self.rows, *self.boxes, self.o.box, self.D["box"])]]
        return [*own, *self.L, self.D["x"], net.buf, net.kept, *inner, *kept]

    def cells(self) -> dict[str, Any]:
        """The variables around the function."""
        return dict(zip(self.function.__code__.co_freevars, self.function.__closure__, strict=True))

    def numbers(self) -> list[Any]:
        """All plain numbers that can be reached, and which containers are where.

        A number that is an int on one way and a float on another is a float.
        """
        found = [self.o.count, self.o.best, self.D["n"], self.inner["n"]]
        found += [self.cells()["turn"].cell_contents] if "turn" in self.cells() else []
        plain = all(type(x) in (int, float) for x in found)
        held = [*self.rows, *self.boxes, *self.o.rows, self.o.box, self.D["box"], self.inner, self.D["in"]]
        held += [x for x in (self.o.node, *self.kept) if x is not None]
        held += [x.box for x in held if hasattr(x, "box")]
        same = [[x is y for y in held].index(True) for x in held]  # of each, the first that is the same one
        return [np.asarray(x) for x in (found, plain, same)]

    def count_on(self) -> None:
        """Change some numbers, as others may between calls."""
        self.o.count += 1
        self.D["n"] = self.D["n"] + 0.5

    def cut(self) -> None:
        """Cut all that lives on from the graph, as who trains does between steps."""
        o, net = self.o, self.net
        o.p, o.q, o._kept, o._told = (x.detach() for x in (o.p, o.q, o._kept, o._told))
        o._items["k"], self.D["x"] = o._items["k"].detach(), self.D["x"].detach()
        self.L[:] = [x.detach() for x in self.L]
        self.inner["v"] = self.inner["v"].detach()
        for row in (*self.rows, *self.boxes, self.o.box, self.D["box"]):
            row[0] = row[0].detach()
        net.buf, net.kept = net.buf.detach(), net.kept.detach()
        o.duo, o.last = (_cut(o.duo[0]), _cut(o.duo[1])), _cut(o.last)
        if "z" in self.cells():
            self.cells()["z"].cell_contents = self.cells()["z"].cell_contents.detach()


def run(world: World, function: Any, *, gradients: bool) -> list[Any]:
    """What each call returns, and what all that can be reached holds after it, and after changes of it."""
    log = []
    for number, turns in CALLS:
        leaves = [weft.tensor(x, requires_grad=gradients) for x in ARGUMENTS]
        a, m = (x * 1.0 for x in leaves)
        with weft.set_grad_enabled(gradients):
            found = function(a, m, weft.tensor(number), weft.tensor(turns))
        returned = [*found[:2]]
        scalars = _scalars(found[-1]) if isinstance(found[-1], tuple) else []
        if len(found) > 4:
            one, other, node = found[2:5]
            returned += [one[0], other[0], node.row, node.box[0]]
            world.kept += found[2:5]
        returned += [x for x in scalars if isinstance(x, weft.Tensor)]
        log.append([*map(_array, map(weft.asarray, scalars)), *_who_is_who(scalars)])
        reached = [*returned, a, m, *world.tensors()]
        log.append([*map(_array, reached), *world.numbers()])
        world.count_on()
        if gradients:
            log[-1] += [np.asarray([(x.requires_grad, x.is_leaf) for x in reached])]
            log[-1] += _gradients(reached, [*leaves, world.net.weight])
            world.cut()
            reached = [*[x.detach() for x in (*returned, a, m)], *world.tensors()]
        for k, x in enumerate(reached[:-1]):  # who sees the change of whom
            if x.dtype == weft.float32:
                with weft.no_grad():
                    x.mul_(0.9).add_(0.01 * k)
        log.append([*map(_array, reached)])
    return log


def _scalars(x: Any) -> list[Any]:
    """The numbers and tensors in tuples."""
    return [y for item in x for y in _scalars(item)] if isinstance(x, tuple) else [x]


def _who_is_who(found: list[Any]) -> list[Any]:
    """Which are tensors, and which of these are one."""
    are_tensors = [isinstance(x, weft.Tensor) for x in found]
    first = [[x is y for y in found].index(True) if isinstance(x, weft.Tensor) else -1 for x in found]
    return [np.asarray(are_tensors), np.asarray(first)]


def _cut(x: Any) -> Any:
    return x.detach() if isinstance(x, weft.Tensor) else x


def _array(tensor: Any) -> Any:
    """What a tensor holds now, from whatever device."""
    return tensor.detach().cpu().numpy().copy()


def _gradients(reached: list[Any], leaves: list[Any]) -> list[Any]:
    """The gradients of a sum of all that can be reached, each with a weight of its own."""
    sums = [(k + 1.0) * x.sum() for k, x in enumerate(reached) if x.requires_grad]
    found = weft.autograd.grad(sum(sums[1:], sums[0]), leaves, allow_unused=True) if sums else ()
    return [np.asarray([g is None for g in found]), *[_array(g) for g in found if g is not None]]


def check(seed: int, *, device: str = "cpu") -> str:
    """ "same", "refused: ...", or "wrong: ..."."""
    name = f"<state program {seed}>"
    return check_source(program(seed), name, gradients=seed % 2 == 0, shared=seed % 3 == 0, device=device)


def check_source(
    source: str, name: str, *, gradients: bool, shared: bool = False, device: str = "cpu"
) -> str:
    """Likewise, of the text of a program.

    What it leaves when it runs on the processor at once is right. On another device it runs at once, too, and
    compiled for it; on the processor it is compiled for the interpreter, which is quick about it.
    """

    def left_by(way: Callable[[Any], Any], where: str) -> list[Any]:
        with weft.default_device(where):
            world = World(source, name, shared=shared)
            return run(world, way(world.function), gradients=gradients)

    ways: dict[str, Callable[[Any], Any]] = {"": partial(weft.compile, backend="interpret")}
    if device != "cpu":
        ways = {f"eager on {device}: ": lambda f: f, f"compiled on {device}: ": weft.compile}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected: list[Any] | None
        try:
            expected = left_by(lambda f: f, "cpu")
        except weft.errors.GradientError:  # of a view that was taken under no_grad: an error in any way
            expected = None
        except weft.errors.WeftError as error:  # which the program must not do: an error of the generator
            return f"bad: {error}"
        for label, way in ways.items():
            try:
                found = left_by(way, device)
            except weft.errors.GradientError as error:
                if expected is not None:
                    return f"wrong: {label}{error}"
                continue
            except CaptureError as error:
                return f"refused: {error}" if "\n  at " in str(error) else f"wrong: no line in {error}"
            except (KeyboardInterrupt, Late):
                raise
            except BaseException as error:  # of the capture's own, too, which nobody is to see
                return f"wrong: {label}{type(error).__name__}: {error}"
            if expected is None:
                return f"wrong: {label}no error where eager code has one"
            if other := _difference(expected, found):
                return f"wrong: {label}{other}"
    return "same"


def _difference(expected: list[Any], found: list[Any]) -> str:
    """Where what two runs left differs, if it does."""
    for call, (ours, theirs) in enumerate(zip(expected, found, strict=True)):
        for k, (x, y) in enumerate(zip(ours, theirs, strict=True)):
            if not np.allclose(x, y, rtol=1e-4, atol=1e-5):
                part = ("number", "tensor", "after changes, tensor")[call % 3]
                return f"call {call // 3}, {part} {k}: {x} and {y}"
    return ""


def _judged(seed: int, check: Callable[[int], str], limit: int) -> tuple[int, str]:
    """A seed with its outcome, which is late after so many seconds; in a process of its own."""
    logging.getLogger("weft.compile").setLevel(logging.ERROR)

    def stop(*_: object) -> None:
        raise Late

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(limit)
    try:
        return seed, check(seed)
    except Late:
        return seed, "late: loops in loops in loops, each with many references"
    finally:
        signal.alarm(0)


class Late(BaseException):
    """A program takes too long; nothing between here and there must catch it."""


def run_many(check: Callable[[int], str], program: Callable[[int], str]) -> int:
    """Run many programs, each a check of a seed, and say how many are right, refused and wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    parser.add_argument("--of-code", action="store_true", help="begin with a seed that weft's code tells")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--show", type=int, default=5)
    parser.add_argument("--limit", type=int, default=180, help="seconds after which a program is late")
    given = parser.parse_args()
    first = seed_of_code() if given.of_code else given.seed
    counts: Counter[str] = Counter()
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        judged = partial(_judged, check=check, limit=given.limit)
        for seed, outcome in pool.imap_unordered(judged, range(first, first + given.count)):
            kind, _, what = outcome.partition(": ")
            counts[kind] += 1
            if kind == "refused":
                counts[f"  {what.splitlines()[0][:90]}"] += 1
            if kind in ("wrong", "bad") and counts[kind] <= given.show:
                sys.stdout.write(f"seed {seed} {outcome}\n{program(seed)}\n")
            elif kind == "late":
                sys.stdout.write(f"seed {seed} {outcome}\n")
            sys.stdout.flush()
    sys.stdout.write(f"seeds {first} to {first + given.count - 1}\n")
    for kind, count in counts.most_common(30):
        sys.stdout.write(f"{count} {kind}\n")
    most = given.count // 10
    return int(counts["wrong"] + counts["bad"] > 0 or counts["refused"] > most or counts["late"] > most // 20)


if __name__ == "__main__":
    sys.exit(run_many(check, program))

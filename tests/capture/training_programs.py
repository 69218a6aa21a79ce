"""Runs random training steps, eager and compiled, and compares all that they leave.

``python -m tests.capture.training_programs 1000 --seed 7`` runs many and prints those that differ.
"""

from __future__ import annotations

import linecache
import sys
import warnings
from random import Random
from typing import Any

import numpy as np

import weft
from tests.capture.state_programs import Late, run_many
from tests.capture.training_source import program
from weft import nn
from weft.errors import CaptureError, CheckError, GradientError

CALLS = ((0.5, 1), (-0.5, 2), (0.2, 0), (1.0, 3), (-1.0, 1))  # what decides branches, and the number of turns
OPTIMIZERS = (
    lambda ps: weft.optim.SGD(ps, lr=0.1),
    lambda ps: weft.optim.SGD(ps, lr=0.1, momentum=0.9),
    lambda ps: weft.optim.SGD(ps, lr=0.05, weight_decay=0.1),
    lambda ps: weft.optim.Adam(ps, lr=0.01),
    lambda ps: weft.optim.AdamW(ps, lr=0.01),
    lambda ps: weft.optim.RMSprop(ps, lr=0.01),
    lambda ps: weft.optim.Adagrad(ps, lr=0.05),
)
SCHEDULES = (
    lambda opt: weft.optim.lr_scheduler.StepLR(opt, 2, 0.5),
    lambda opt: weft.optim.lr_scheduler.ExponentialLR(opt, 0.9),
    lambda opt: weft.optim.lr_scheduler.CosineAnnealingLR(opt, 5),
)


class Net(nn.Module):
    """Two layers, maybe with a normalisation between them, and a count of its calls."""

    seen: Any

    def __init__(self, normalised: bool) -> None:
        super().__init__()
        self.a = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4) if normalised else None
        self.b = nn.Linear(4, 2)
        self.register_buffer("seen", weft.tensor(0.0))
        self.last = weft.tensor(0.0)

    def forward(self, x: Any) -> Any:
        h = weft.tanh(self.a(x))
        if self.norm is not None:
            h = self.norm(h)
        self.seen += 1
        return self.b(h)


class Notes:
    """What a step notes outside."""

    def __init__(self, net: Net) -> None:
        self.count, self.best = 0, 1.0
        self.t, self.g = weft.tensor(1.0), weft.ones((4, 3))
        self.kept = [p.detach() for p in net.parameters()]
        self.held = tuple(p.detach() for p in net.parameters())
        self.velocity = [p.detach() * 0.1 for p in net.parameters()]
        self.saved, self.total = weft.ones(4), 0.0


class World:
    """What a step finds, and the step."""

    def __init__(self, seed: int, source: str) -> None:
        random = Random(seed + 1)
        weft.manual_seed(seed)
        normalised = random.random() < 0.3
        self.net, self.ema = Net(normalised), Net(normalised)
        self.ps = list(self.net.parameters())
        self.opt = random.choice(OPTIMIZERS)(self.net.parameters())
        self.other = random.choice(OPTIMIZERS)(self.net.b.parameters())
        self.schedule = random.choice(SCHEDULES)(self.opt)
        self.o = Notes(self.net)
        name = f"<training program {seed}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        space: dict[str, Any] = {"__name__": "training_program"}
        exec(compile(source, name, "exec"), space)  # noqa: S102 - the text is ours
        self.step = space["make"](self.net, self.ema, self.opt, self.other, self.schedule, self.o, self.ps)

    def left(self) -> dict[str, Any]:
        """All that the step may have changed, by names."""
        net, ema, o = self.net, self.ema, self.o
        tensors = {"p": [*self.ps], "ema": [*ema.parameters()], "buffers": [*net.buffers(), *ema.buffers()]}
        found = {f"{k} {i}": x for k, xs in tensors.items() for i, x in enumerate([*xs])}
        found |= {f"grad {i}": p.grad for i, p in enumerate([*self.ps, *ema.parameters()])}
        found |= {
            "saved": o.saved,
            "total": o.total,
            "count": o.count,
            "best": o.best,
            "t": o.t,
            "g": o.g,
            "last": net.last,
        }
        found |= {f"kept {i}": x for i, x in enumerate((*o.kept, *o.held, *o.velocity))}
        found |= {"training": net.training, "lr": self.opt.param_groups[0]["lr"]}
        for name, opt in (("opt", self.opt), ("other", self.other)):
            for i, p in enumerate(self.ps):
                found |= {f"{name} {i} {key}": x for key, x in opt.state.get(p, {}).items()}
        return {name: _array(x) for name, x in found.items()}


def _array(x: Any) -> Any:
    """A copy of a tensor with whether it has a graph, or a plain value; None stays None."""
    if not isinstance(x, weft.Tensor):
        return x
    return x.detach().numpy().copy(), x.requires_grad


def run(world: World, step: Any, seed: int) -> list[dict[str, Any]]:
    """What each call returns and leaves."""
    numbers = np.random.default_rng(seed)
    log = []
    for number, turns in CALLS:
        x, y = (weft.tensor(numbers.normal(size=(4, k)).astype(np.float32)) for k in (3, 2))
        found = step(x, y, weft.tensor(number), weft.tensor(turns))
        returned = found if isinstance(found, tuple) else (found,)
        values = [x.item() if isinstance(x, weft.Tensor) else x for x in returned]
        log.append({**world.left(), **{f"returned {i}": v for i, v in enumerate(values)}})
    return log


def check(seed: int) -> str:
    """ "same", "refused: ...", "bad: ..." of a step that is an error in eager code, or "wrong: ..."."""
    return check_source(program(seed), seed)


def check_source(source: str, seed: int) -> str:
    """Likewise, of the text of a program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        world = World(seed, source)
        try:
            expected = run(world, world.step, seed)
        except (GradientError, TypeError) as error:  # backward() under no_grad(), a gradient that is None
            return f"void: {error}"
        if _diverges(expected):
            return "void: its values grow until rounding is all that is left"
        world = World(seed, source)
        try:
            found = run(world, weft.compile(world.step, backend="interpret"), seed)
        except (CaptureError, CheckError, GradientError) as error:
            return f"refused: {error}" if "\n  at " in str(error) else f"wrong: no line in {error}"
        except (KeyboardInterrupt, Late):
            raise
        except BaseException as error:  # of the capture's own, too, which nobody is to see
            return f"wrong: {type(error).__name__}: {error}"
    for call, (theirs, ours) in enumerate(zip(expected, found, strict=True)):
        if not theirs.keys() <= ours.keys():
            return f"wrong: call {call} does not leave {sorted(theirs.keys() - ours.keys())}"
        for name, x in ours.items():
            if not (_agree(theirs[name], x) if name in theirs else _is_fresh(x)):
                return f"wrong: call {call}, {name}: {theirs.get(name)} and {x}"
    return "same"


def _diverges(log: list[dict[str, Any]]) -> bool:
    values = [x[0] if isinstance(x, tuple) else x for left in log for x in left.values() if x is not None]
    return bool(max(np.max(np.abs(np.asarray(x, float))) for x in values) > 1e5)


def _agree(x: Any, y: Any) -> bool:
    if not isinstance(x, tuple):
        return type(x) is type(y) and (x is None or _close(x, y))
    return x[1] == y[1] and _close(x[0], y[0])


def _close(x: Any, y: Any) -> bool:
    return np.allclose(x, y, rtol=2e-3, atol=2e-4, equal_nan=True)


def _is_fresh(x: Any) -> bool:
    """Whether state of an optimizer is as at first: a graph has it also where its way was not taken yet."""
    return not np.any(x[0] if isinstance(x, tuple) else x)


if __name__ == "__main__":
    sys.exit(run_many(check, program))

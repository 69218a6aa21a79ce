"""Compiled float32 functions of one argument, over all 2**32 inputs if there is time for it.

``python -m tests.fuzz.functions --seconds 30`` takes samples of all functions, again and again;
``python -m tests.fuzz.functions --once --only exp tanh --every 1`` takes all inputs of two of them, and
prints the worst; with ``--emulated`` the code is the other architecture's, run by qemu. Oracles are NumPy's
and SciPy's functions of float64. More than 2 units in the last place, a NaN, an infinity or a zero's sign
that the exact result has not, are wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy import special

import weft
from tests.fuzz.campaign import Watch, campaign
from tests.fuzz.emulator import Emulator, export_for, other
from weft.backends.llvm.driver import build_executable
from weft.base.dtypes import float32
from weft.ir.graph import Graph
from weft.ops.op import OPS
from weft.ops.table import import_all

Array = np.ndarray[Any, Any]
BLOCK = 1 << 16  # inputs that are worked on together, so that they stay in the cache
MOST = 2.0  # units in the last place
SAMPLE = 1 << 22  # inputs of a function in one batch of a campaign


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _erfinv(x: Array) -> Array:
    """SciPy takes 20 us to refuse a number, and loses the sign of a zero."""
    return np.copysign(special.erfinv(np.where(np.abs(x) <= 1, x, np.nan)), x)


ORACLES: dict[str, Callable[[Array], Array]] = {
    "abs": np.abs, "acos": np.arccos, "acosh": np.arccosh, "angle": np.angle, "asin": np.arcsin,
    "asinh": np.arcsinh, "atan": np.arctan, "atanh": np.arctanh, "ceil": np.ceil, "cos": np.cos,
    "cosh": np.cosh, "digamma": special.digamma, "erf": special.erf, "erfc": special.erfc,
    "erfinv": _erfinv, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "floor": np.floor,
    "lgamma": special.gammaln, "log": np.log, "log10": np.log10, "log1p": np.log1p, "log2": np.log2,
    "neg": np.negative, "normal_cdf": special.ndtr, "positive": np.positive, "reciprocal": np.reciprocal,
    "relu": lambda x: np.maximum(x, 0), "root": np.sqrt, "round": np.rint, "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": special.expit, "sign": np.sign, "sin": np.sin, "sinh": np.sinh, "softplus": _softplus,
    "sqrt": np.sqrt, "square": np.square, "stop_gradient": np.positive, "tan": np.tan, "tanh": np.tanh,
    "trunc": np.trunc,
}  # fmt: skip


def names() -> list[str]:
    """Every op with scalar code from one float32 to one."""
    import_all()
    found = [op for op in OPS.values() if op.scalar and len(op.inputs) == 1 and not op.attrs]
    return sorted(op.name for op in found if "f" in op.accepts and op.result != "bool")


Function = Callable[[Array], Array]


def compiled(name: str) -> Function:
    """A function of a block, as machine code."""
    run = build_executable(_graph(name))
    return lambda x: run([x])[0]


def _graph(name: str) -> Graph:
    import_all()
    return weft.make_graph(OPS[name])(weft.zeros(BLOCK, dtype=float32))


def _compiled_for_other(run: Emulator, folder: Path, name: str) -> Function:
    export_for(run.machine, _graph(name).optimize(), folder / name)
    return lambda x: run(folder / name, [x], {})[1][0]


@contextmanager
def compiler(emulated: bool) -> Iterator[Callable[[str], Function]]:
    """What makes machine code of a function: this machine's, or the other architecture's."""
    if not emulated:
        yield compiled
        return
    with TemporaryDirectory() as name, Emulator(other(), Path(name)) as run:
        yield partial(_compiled_for_other, run, Path(name))


def inputs(first: int, stride: int, count: int) -> Array:
    """Floats by their bits."""
    words = np.arange(count, dtype=np.uint64) * np.uint64(stride) + np.uint64(first)
    return words.astype(np.uint32).view(np.float32)


def worst(run: Function, oracle: Function, x: Array, least: float = 0.0) -> tuple[float, int]:
    """The largest error of a block, and the bits of its input; 0 if it is not above the least one."""
    with np.errstate(all="ignore"):
        actual, exact = run(x), oracle(x.astype(np.float64))
        nearest = exact.astype(np.float32)
        steps = np.abs(actual.view(np.int32) - nearest.view(np.int32))  # of one sign: floats in between
        most = int(steps.max())
        if most == 0 or (most == 1 and least > 1.5):
            return 0.0, 0
        places = np.flatnonzero(steps if most == 1 else (steps > 1) | (steps < 0))
        error = _errors(actual[places], nearest[places], exact[places])
    at = int(np.argmax(error))
    return float(error[at]), int(x.view(np.uint32)[places[at]])


def _errors(actual: Array, nearest: Array, exact: Array) -> Array:
    """Errors in units of the last place; infinite for another kind, or a zero of the other sign."""
    power = (nearest.view(np.int32) & 0x7F800000).view(np.float32)
    unit = np.clip(power, 2.0**-126, 2.0**127) * 2.0**-23  # which NumPy's spacing gives more slowly
    bounded = np.where(np.isinf(actual), np.copysign(2.0**128, actual), actual).astype(np.float64)
    error = np.abs(bounded - exact) / unit
    swapped = (actual == 0) & (nearest == 0) & (np.signbit(actual) != np.signbit(nearest))
    error = np.where(swapped | np.isnan(error), np.inf, error)
    return np.where(np.isnan(actual) & np.isnan(nearest), 0, error)


def replay(case: bytes) -> str:
    """What is wrong with a function at one input, in whole vectors and alone."""
    row = json.loads(case)
    x = inputs(row["bits"], 0, BLOCK)
    with compiler(row.get("emulated", False)) as make:
        error, _ = worst(make(row["function"]), ORACLES[row["function"]], x)
    return f"{row['function']} is {error:.2f} units off at {float(x[0])!r}" if error > MOST else ""


# The campaign


def _blocks(first: int, stride: int, count: int) -> Iterator[Array]:
    for start in range(0, count, BLOCK):
        yield inputs(first + start * stride, stride, BLOCK)


def batch(watch: Watch) -> None:
    """All functions, on a sample whose first input the seed tells; or on all inputs."""
    every = watch.options.every
    stride = every or 2**32 // SAMPLE
    first = 0 if every else random.Random(watch.seed).randrange(stride)
    with compiler(watch.options.emulated) as make:
        for name in watch.options.only or names():
            if watch.over() and not every:
                return
            _sweep(watch, name, make(name), first, stride)


def _sweep(watch: Watch, name: str, run: Function, first: int, stride: int) -> None:
    oracle = ORACLES[name]
    most, where, done = 0.0, 0, 0
    for x in _blocks(first, stride, 2**32 // stride):
        error, bits = worst(run, oracle, x, most)
        done += x.size
        if error > most:
            most, where = error, bits
    watch.counts["inputs"] += done
    if watch.options.every:
        value = float(inputs(where, 0, 1)[0])
        sys.stdout.write(f"{name:14} {done:13,} inputs: {most:6.3f} units at {value!r} (0x{where:08x})\n")
        sys.stdout.flush()
    if most > MOST:
        how = {"emulated": True} if watch.options.emulated else {}
        case = json.dumps({"function": name, "bits": where, **how}).encode()
        watch.found(f"{name}", f"at most {MOST} units", f"{most:.3f} at {inputs(where, 0, 1)[0]!r}", case)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="*", help="names of functions")
    parser.add_argument("--emulated", action="store_true", help="code of the other architecture, by qemu")
    parser.add_argument("--every", type=int, default=0, help="take each input of so many, in one batch")


def main(arguments: Sequence[str] | None = None) -> int:
    """Sweep."""
    import_all()
    return campaign("functions", batch, arguments, _options)


if __name__ == "__main__":
    sys.exit(main())

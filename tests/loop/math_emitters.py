"""Emitters that the tests of mathematical functions run code on, and how errors are measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.ops.scalar import INSTRUCTIONS, NUMPY, NumpyEmitter

_FUNCTIONS = ("exp", "log", "sin", "cos", "tan", "tanh", "sigmoid", "atan2", "pow", "rem")
BASIC = frozenset(INSTRUCTIONS).difference(_FUNCTIONS)


class Product(np.ndarray):
    """A product that remembers its factors, for a sum to be fused with."""

    factors: tuple[Any, Any] | None = None


def fused(a: Any, b: Any, c: Any) -> Any:
    """a b + c rounded once, but for an error far below the last place."""
    if c.dtype == np.float32:
        return (a.astype(np.float64) * b + c).astype(np.float32)
    product = a * b
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    rest = ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2
    out = product + c
    part = out - product
    rest = rest + ((product - (out - part)) + (c - part))
    return np.where(np.isfinite(rest) & (rest != 0), out + rest, out)


def _halves(x: Any) -> tuple[Any, Any]:
    big = x * 134217729.0
    high = big - (big - x)
    return high, x - high


class FusingEmitter(NumpyEmitter):
    """Every product that is added to something, or from which something is taken, is fused into the sum."""

    def mul(self, x: Any, y: Any) -> Any:
        like = (x if isinstance(x, np.ndarray) else y).dtype
        x, y = _plain(np.asarray(x, like)), _plain(np.asarray(y, like))
        out: Any = np.asarray(np.multiply(x, y))
        if like.kind == "f":
            out = out.view(Product)
            out.factors = (x, y)
        return out

    def add(self, x: Any, y: Any) -> Any:
        if _is_product(x):
            return fused(*x.factors, _constant(y, x))
        if _is_product(y):
            return fused(*y.factors, _constant(x, y))
        return NUMPY.add(_plain(x), _plain(y))

    def sub(self, x: Any, y: Any) -> Any:
        if _is_product(x):
            return fused(*x.factors, -_constant(y, x))
        if _is_product(y):
            return fused(-y.factors[0], y.factors[1], _constant(x, y))
        return NUMPY.sub(_plain(x), _plain(y))


def _is_product(x: Any) -> bool:
    return isinstance(x, Product) and x.factors is not None


def _plain(x: Any) -> Any:
    return x.view(np.ndarray) if isinstance(x, Product) else x


def _constant(x: Any, like: Any) -> Any:
    return np.asarray(_plain(x), like.dtype)


def _on_plain(name: str) -> Callable[..., Any]:
    code = getattr(NumpyEmitter, name)
    return lambda self, *operands: code(self, *[_plain(x) for x in operands])


for _name in INSTRUCTIONS:
    if _name not in vars(FusingEmitter) and _name != "constant":
        setattr(FusingEmitter, _name, _on_plain(_name))

FUSED: Any = FusingEmitter()
EMITTERS = {"plain": NUMPY, "fused": FUSED}


class Sparing(NumpyEmitter):
    """Runs what is rarely needed on those elements alone that need it."""

    def __init__(self) -> None:
        self.ran = 0

    def rarely(self, condition: Any, code: Callable[..., Any], x: Any, usual: Any) -> Any:
        out = usual.copy()
        if condition.any():
            self.ran += 1
            out[condition] = code(self, x[condition])
        return out


class Scaling(NumpyEmitter):
    """Has an instruction for products with powers of two."""

    def scale(self, x: Any, n: Any, lowest: int) -> Any:
        whole = np.nan_to_num(np.clip(n, -3000, 3000)).astype(np.int32)
        out = np.where(np.isnan(n), n, np.ldexp(x, whole))
        return np.where(n < lowest, 0, out).astype(x.dtype)


class Signed:
    """An emitter that tells one sign of all numbers."""

    def __init__(self, emitter: Any, sign: int) -> None:
        self._emitter = emitter
        self._sign = sign

    def __getattr__(self, name: str) -> Any:
        return getattr(self._emitter, name)

    def sign(self, x: Any) -> int:
        return self._sign


class Node:
    """A value that knows only how it came about."""

    def __init__(self, instruction: str, operands: tuple[Any, ...], dtype: np.dtype[Any]) -> None:
        self.instruction = instruction
        self.operands = operands
        self.dtype = dtype
        self.uses = 0


class Recorder:
    """Writes code down instead of running it."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.rare: list[Node] = []

    def dtype(self, x: Node) -> np.dtype[Any]:
        return x.dtype

    def constant(self, value: Any, dtype: np.dtype[Any]) -> Node:
        return Node("constant", (), np.dtype(dtype))

    def rarely(self, condition: Node, code: Callable[..., Node], x: Node, usual: Node) -> Node:
        nodes, self.nodes = self.nodes, []
        code(self, x)
        self.rare, self.nodes = self.nodes, nodes
        return self.write("select", (condition, usual, usual), usual.dtype)

    def write(self, name: str, operands: tuple[Any, ...], dtype: np.dtype[Any]) -> Node:
        for x in operands:
            if isinstance(x, Node):
                x.uses += 1
        self.nodes.append(Node(name, operands, dtype))
        return self.nodes[-1]


def _record(name: str) -> Callable[..., Node]:
    def method(self: Recorder, *operands: Any) -> Node:
        values = [x.dtype for x in operands if isinstance(x, Node)]
        dtype = values[-1]
        if name in ("eq", "lt", "le"):
            dtype = np.dtype(bool)
        if name in ("cast", "bitcast"):
            dtype = np.dtype(operands[1])
        return self.write(name, operands, dtype)

    return method


for _name in INSTRUCTIONS:
    if _name != "constant":
        setattr(Recorder, _name, _record(_name))


def instructions(code: Callable[..., Any], *dtypes: Any) -> tuple[Counter[str], Counter[str]]:
    """How many instructions code has, and how many more that are rarely run; a fused product counts none."""
    recorder: Any = Recorder()
    code(recorder, *[Node("input", (), np.dtype(d)) for d in dtypes])
    return _counted(recorder.nodes), _counted(recorder.rare)


def _counted(nodes: list[Node]) -> Counter[str]:
    free = {id(product) for node in nodes for product in _products(node)[:1]}
    return Counter(n.instruction for n in nodes if n.instruction != "bitcast" and id(n) not in free)


def _products(node: Node) -> list[Node]:
    if node.instruction not in ("add", "sub"):
        return []
    found = [x for x in node.operands if isinstance(x, Node)]
    return [x for x in found if x.instruction == "mul" and x.uses == 1]


def units(actual: Any, exact: Any) -> Any:
    """Errors in units of the last place of the exact results as they would be stored."""
    with np.errstate(all="ignore"):
        nearest = exact.astype(actual.dtype)
        unit = np.spacing(np.abs(np.where(np.isfinite(nearest), nearest, np.finfo(actual.dtype).max)))
        error = np.abs(actual.astype(exact.dtype) - exact) / unit.astype(exact.dtype)
        right = (actual == nearest) | (np.isnan(actual) & np.isnan(nearest))
    return np.where(right, 0, np.where(np.isnan(error), np.inf, error))

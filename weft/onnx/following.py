"""Sizes followed through the operators that models compute shapes with.

``Shape`` of a tensor with open sizes gives ints and named sizes; what models do with them (take one, add,
concatenate) is done on arrays of these, so that ``Reshape(x, Concat(Shape(x)[0], -1))`` stays open. A rule
gives None where the result is no array of ints and sizes: then a run computes it.
"""

from __future__ import annotations

import operator as operators
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from weft.base.dtypes import bool_
from weft.base.size_bounds import lower_bound, size_max, size_min
from weft.base.sizes import Size
from weft.onnx.facts import Array, Constant, constant_of_sizes
from weft.onnx.operators.registry import Call
from weft.onnx.types import dtype_of

Rule = Callable[..., Any]  # of the call and the arrays; gives an array, a list of them, or None
_rules: dict[str, Rule] = {}


def follow(call: Call, inputs: Sequence[Constant | None]) -> list[Constant] | None:
    """The outputs of an operator on known sizes; None where no rule tells them."""
    first = next((c for c in inputs if c is not None), None)
    name = "exact Div" if call.op == "Div" and first is not None and first.dtype.kind == "f" else call.op
    rule = None if call.domain else _rules.get(name)
    if rule is None or first is None:
        return None
    try:
        out = rule(call, *[None if c is None else c.array.astype(object) for c in inputs])
    except (ValueError, IndexError, TypeError, ZeroDivisionError):
        return None  # the handler tells what is wrong
    if out is None:
        return None
    dtype = _dtype(call, inputs)
    return [constant_of_sizes(a, dtype) for a in (out if isinstance(out, list) else [out])]


def _dtype(call: Call, inputs: Sequence[Constant | None]) -> Any:
    """The dtype of the outputs of an operator that has a rule."""
    if call.op in _COMPARISONS:
        return bool_
    if call.op == "Cast":
        return dtype_of(call.attribute("to"))
    of = inputs[1 if call.op == "Where" else 0]
    return None if of is None else of.dtype


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        _rules.update(dict.fromkeys(names, rule))
        return rule

    return register


def _each(function: Callable[..., Any], *arrays: Array) -> Array | None:
    """A function of ints and sizes on the elements of arrays; None if it gives None for one."""
    together = np.broadcast_arrays(*arrays)
    flat = [function(*items) for items in zip(*[a.reshape(-1) for a in together], strict=True)]
    if any(item is None for item in flat):
        return None
    out = np.empty(len(flat), object)
    out[:] = flat
    return out.reshape(together[0].shape)


# Arithmetic


def _integral(x: Any) -> bool:
    return isinstance(x, Size) or float(x).is_integer()


def _whole(x: Any) -> Any:
    return x if isinstance(x, Size) else int(x)


def _divided(x: Any, y: Any) -> Any:
    """A quotient: of whole numbers from 0 on, where ONNX's and Python's agree."""
    low = lower_bound(x)
    if isinstance(y, Size) or y <= 0 or low is None or low < 0:
        return None
    return x // y


def _arithmetic(function: Callable[[Any, Any], Any]) -> Rule:
    def compute(x: Any, y: Any) -> Any:
        return function(_whole(x), _whole(y)) if _integral(x) and _integral(y) else None

    return lambda call, a, b: _each(compute, a, b)


def _extreme(choose: Callable[[Any, Any], Any]) -> Rule:
    return lambda call, *arrays: _each(lambda *items: reduce(choose, map(_whole, items)), *arrays)


_rules |= {
    "Add": _arithmetic(operators.add),
    "Sub": _arithmetic(operators.sub),
    "Mul": _arithmetic(operators.mul),
    "Mod": _arithmetic(lambda x, y: None if isinstance(y, Size) or y <= 0 else x % y),
    "Div": _arithmetic(_divided),
    "exact Div": _arithmetic(
        lambda x, y: out if (out := _divided(x, y)) is not None and out * y == x else None
    ),
    "Max": _extreme(size_max),
    "Min": _extreme(size_min),
    "Neg": lambda call, a: _each(operators.neg, a),
    "Where": lambda call, test, a, b: _each(
        lambda t, x, y: None if isinstance(t, Size) else x if t else y, test, a, b
    ),
}


@_rule("Identity", "Floor", "Ceil", "Round", "Abs")
def _same(call: Call, a: Array) -> Array | None:
    return a if all(isinstance(x, Size) or (_integral(x) and x >= 0) for x in a.reshape(-1)) else None


@_rule("Cast")
def _cast(call: Call, a: Array) -> Array | None:
    dtype = dtype_of(call.attribute("to"))
    return a if dtype is not None and dtype.kind in "iuf" and dtype.itemsize > 1 else None


# Comparison


def _compared(x: Any, y: Any) -> int | None:
    """The sign of x - y, where it is the same for all values of the names."""
    difference = _whole(x) - _whole(y)
    if not isinstance(difference, Size):
        return int(difference > 0) - int(difference < 0)
    low, high = lower_bound(difference), lower_bound(-difference)
    if low is not None and low > 0:
        return 1
    return -1 if high is not None and high > 0 else None


_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "Equal": operators.eq,
    "Less": operators.lt,
    "LessOrEqual": operators.le,
    "Greater": operators.gt,
    "GreaterOrEqual": operators.ge,
}


@_rule(*_COMPARISONS)
def _compare(call: Call, a: Array, b: Array) -> Array | None:
    def compute(x: Any, y: Any) -> Any:
        sign = _compared(x, y)
        return None if sign is None else _COMPARISONS[call.op](sign, 0)

    return _each(compute, a, b)


# Sums and moves


@_rule("ReduceProd", "ReduceSum")
def _reduce(call: Call, a: Array, axes: Array | None = None) -> Array | None:
    given = call.attribute("axes") if axes is None else axes.reshape(-1)
    if a.ndim != 1 or (given is not None and len(given) != 1):
        return None
    combine, start = (operators.mul, 1) if call.op == "ReduceProd" else (operators.add, 0)
    out = np.empty(1, object)
    out[0] = reduce(combine, map(_whole, a), start)
    return out if call.attribute("keepdims", 1) else out.reshape(())


_MOVING = "Concat Expand Flatten Gather Reshape Slice Split Squeeze Tile Transpose Unsqueeze"


def follow_moves(
    call: Call, inputs: Sequence[Constant | None], run: Callable[[list[Constant | None]], list[Any]]
) -> list[Constant] | None:
    """The outputs of an operator that merely moves sizes; None where it does more.

    ``run`` runs its handler on constants: it moves the numbers of the elements, which then stand for these.
    """
    count = len(inputs) if call.op == "Concat" else 1
    data = [c for c in inputs[:count] if c is not None]
    if call.domain or call.op not in _MOVING.split() or any(c and c.holds_sizes for c in inputs[count:]):
        return None
    items = np.concatenate([c.array.astype(object).reshape(-1) for c in data])
    ends = np.cumsum([c.array.size for c in data]).tolist()
    numbers = [
        np.arange(end - c.array.size, end).reshape(c.array.shape) for c, end in zip(data, ends, strict=True)
    ]
    moved = run([*[Constant(n, n.dtype) for n in numbers], *inputs[count:]])
    return [constant_of_sizes(items[c.array], data[0].dtype) for c in moved]

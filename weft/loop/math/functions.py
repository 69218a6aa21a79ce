"""Mathematical functions as expansions into basic scalar instructions, for backends to inline.

``EXPANSIONS`` maps the name of an instruction to code written against ``ScalarEmitter``. That of reals uses
basic instructions alone, and takes float32 or float64: a backend computes narrower floats in float32.
That of complex numbers uses functions of their parts. Errors are at most 2 units in the last place in float32
and 1 in float64 (2 of ``sigmoid``), for any argument; ``tests/loop/test_math.py`` measures them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.dtypes import kind
from weft.loop.math import complex as math_complex
from weft.loop.math.power import pow
from weft.loop.math.trigonometric import atan2, cos, sin, tan
from weft.ops.exponent import exp, sigmoid, tanh
from weft.ops.logarithm import log
from weft.ops.scalar import ScalarEmitter, Value

Code = Callable[..., Any]  # of an emitter and as many of its values as the instruction has operands


def _by_kind(real: Code, complex: Code) -> Code:
    def code(e: ScalarEmitter[Value], *operands: Value) -> Value:
        out: Value = (complex if kind(e.dtype(operands[0])) == "c" else real)(e, *operands)
        return out

    return code


EXPANSIONS: dict[str, Code] = {
    "exp": _by_kind(exp, math_complex.exp),
    "log": _by_kind(log, math_complex.log),
    "sin": _by_kind(sin, math_complex.sin),
    "cos": _by_kind(cos, math_complex.cos),
    "tan": tan,
    "tanh": _by_kind(tanh, math_complex.tanh),
    "sigmoid": sigmoid,
    "atan2": atan2,
    "pow": _by_kind(pow, math_complex.pow),
    "sqrt": _by_kind(lambda e, x: e.sqrt(x), math_complex.sqrt),
}

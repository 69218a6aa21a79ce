"""Elementwise ops without a writer of their own, by their scalar code: those of users, special functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.dtypes import DType
from weft.onnx.types import code_of
from weft.onnx.writers.registry import OPS
from weft.onnx.writers.writer import Ref, Writer, is_float
from weft.ops.op import Op

_SAME = "add sub mul abs min max sqrt floor round exp log sin cos tanh pow"
_OPERATORS = {name: name.capitalize() for name in _SAME.split()}
_OPERATORS |= {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "select": "Where"}
_WRITERS = {
    "rem": "fmod",
    "neg": "neg",
    "trunc": "trunc",
    "atan2": "atan2",
    "and_": "bitwise_and",
    "or_": "bitwise_or",
    "xor": "bitwise_xor",
    "not_": "bitwise_invert",
    "shl": "left_shift",
    "shr": "right_shift",
}


def write_scalar(w: Writer, op: Op, inputs: Sequence[Ref]) -> Any:
    """The scalar code of an op as nodes; a result that is a number is spread over the inputs."""
    assert op.scalar is not None
    out = op.scalar(Emitter(w), *inputs)
    if not isinstance(out, Ref):
        out = w.constant(out, w.type.dtype)
    if w.known(out) is not None:
        out = w.emit("Expand", out, w.ints(w.type.shape))
    return out


class Emitter:
    """The scalar instructions as nodes."""

    def __init__(self, w: Writer) -> None:
        self.w = w

    def __getattr__(self, name: str) -> Any:
        if name in ("constant", "cast"):
            return getattr(self.w, name)
        if name in _OPERATORS:
            return lambda *xs: self.w.emit(_OPERATORS[name], *xs)
        if name in _WRITERS:
            return lambda *xs: OPS[_WRITERS[name]](self.w, *self._refs(xs))
        self.w.fail(f"must be made of what ONNX can say, got the instruction {name}")

    def bitcast(self, x: Ref, dtype: DType) -> Any:
        """The bits of x read as another dtype."""
        return self.w.emit("BitCast", x, to=code_of(dtype), dtype=dtype)

    def _refs(self, xs: Sequence[Any]) -> list[Ref]:
        """Operands, with constants for numbers."""
        dtype = next(x.dtype for x in xs if isinstance(x, Ref))
        return [x if isinstance(x, Ref) else self.w.constant(x, dtype) for x in xs]

    def dtype(self, x: Ref) -> DType:
        """The dtype of a value."""
        return x.dtype

    def div(self, x: Any, y: Any) -> Any:
        """x / y; of integers towards zero."""
        x, y = self._refs((x, y))
        if is_float(x):
            return self.w.emit("Div", x, y)
        return OPS["floor_divide"](self.w, self.w.emit("Sub", x, OPS["fmod"](self.w, x, y)), y)

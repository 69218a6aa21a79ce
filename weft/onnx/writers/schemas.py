"""What the ONNX standard says of its operators in an opset: types of inputs and outputs, by variable."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import onnx

from weft.base.dtypes import (
    DTYPES,
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)

_OTHER_NAMES = {float32: "float", float64: "double"}
_DTYPES = {f"tensor({_OTHER_NAMES.get(d, d.name)})": d for d in DTYPES if d.kind != "c"}

_SMALL = (int32, int64, float32, float64)
WIDER: dict[DType, tuple[DType, ...]] = {  # where an operator does not take a dtype, those to compute in
    bool_: (uint8, *_SMALL),
    int8: _SMALL,
    int16: _SMALL,
    uint8: _SMALL,
    uint16: _SMALL,
    int32: (int64, float64),
    uint32: (int64, float64),
    uint64: (int64, float64),
    int64: (float64,),
    float16: (float32,),
    bfloat16: (float32,),
}
_SHORT = frozenset((int16, uint16))
_LONG = frozenset((uint32, uint64))
RARE: dict[str, frozenset[DType]] = {  # dtypes that the standard allows, and runtimes have no kernels for
    "Max": _SHORT,
    "Min": _SHORT,
    "Pad": _SHORT,
    "Where": _SHORT | {uint64, bool_},
    "ReduceSum": _LONG,
    "ReduceProd": _LONG,
    "ReduceMax": frozenset((uint32,)),
    "ReduceMin": frozenset((uint32,)),
    "CumSum": _LONG,
    "TopK": frozenset((uint16, uint32)),
    "ArgMax": _SHORT | {uint32},
    "ArgMin": _SHORT | {uint32},
    "Trilu": _SHORT | _LONG | {int8, uint8},
}


class Schema(NamedTuple):
    """The types of an operator.

    Attributes:
        inputs: the type variable of each input; the last one is also that of further ones.
        outputs: likewise.
        allowed: the dtypes of weft that a type variable may stand for, where runtimes have kernels.
        since: the opset in which the operator became this.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    allowed: dict[str, frozenset[DType]]
    since: int


@lru_cache(maxsize=512)
def schema_of(operator: str, opset: int) -> Schema | None:
    """What an operator is in an opset; None where it does not exist yet."""
    if not onnx.defs.has(operator, max_inclusive_version=opset):
        return None
    found = onnx.defs.get_schema(operator, opset, "")
    rare = RARE.get(operator, frozenset())
    allowed = {}
    for constraint in found.type_constraints:
        dtypes = frozenset(_DTYPES[t] for t in constraint.allowed_type_strs if t in _DTYPES)
        allowed[constraint.type_param_str] = dtypes - rare or dtypes
    inputs, outputs = ([_variable(p, allowed) for p in ps] for ps in (found.inputs, found.outputs))
    return Schema(tuple(inputs), tuple(outputs), allowed, found.since_version)


def _variable(parameter: onnx.defs.OpSchema.FormalParameter, allowed: dict[str, frozenset[DType]]) -> str:
    """The type variable of an input or output; one that has a fixed type is a variable with one choice."""
    name = parameter.type_str
    if name not in allowed:
        allowed[name] = frozenset([_DTYPES[name]] if name in _DTYPES else ())
    return name


def first_opset(operator: str) -> int:
    """The opset that an operator came with."""
    schemas = (s for s in onnx.defs.get_all_schemas_with_history() if s.name == operator and not s.domain)
    return min(s.since_version for s in schemas)

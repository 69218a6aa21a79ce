"""What the ONNX standard says of its operators in an opset: types of inputs and outputs, by variable."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import onnx

from weft.base.dtypes import DTYPES, DType, as_dtype, float32, float64

_OTHER_NAMES = {float32: "float", float64: "double"}
_DTYPES = {f"tensor({_OTHER_NAMES.get(d, d.name)})": d for d in DTYPES if d.kind != "c"}


def _listed(table: dict[str, str]) -> dict[str, tuple[DType, ...]]:
    """By name the dtypes of a table, whose keys and values are names with blanks between."""
    return {key: tuple(map(as_dtype, names.split())) for keys, names in table.items() for key in keys.split()}


_WIDER = {  # where an operator does not take a dtype, those to compute in
    "bool": "uint8 int32 int64 float32 float64",
    "int8 int16 uint8 uint16": "int32 int64 float32 float64",
    "int32 uint32 uint64": "int64 float64",
    "int64": "float64",
    "float16 bfloat16": "float32",
}
_RARE = {  # dtypes that the standard allows, and runtimes have no kernels for
    "Max Min Pad": "int16 uint16",
    "Where": "int16 uint16 uint64 bool",
    "ReduceSum ReduceProd CumSum": "uint32 uint64",
    "ReduceMax ReduceMin": "uint32",
    "TopK": "uint16 uint32",
    "ArgMax ArgMin": "int16 uint16 uint32",
    "Trilu": "int16 uint16 uint32 uint64 int8 uint8",
}
WIDER = {as_dtype(name): wider for name, wider in _listed(_WIDER).items()}
RARE = {name: frozenset(dtypes) for name, dtypes in _listed(_RARE).items()}


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

"""The dtypes that the scalar instructions take and give."""

from __future__ import annotations

from collections.abc import Callable

from weft.base.dtypes import (
    DTYPES,
    DType,
    bool_,
    complex64,
    complex128,
    float32,
    float64,
    kind,
    real_dtype,
    short_name,
    uint32,
)
from weft.loop.dots import DOTS
from weft.loop.ir import Scalar

ACCUMULATES = ("add", "mul", "min", "max", "and_", "or_")  # the instructions of ``Accumulate``
_WHOLES = {float32: complex64, float64: complex128}
_DTYPES = frozenset(DTYPES)

# By instruction: how many operands, the kinds of their dtype, and the result: same, bool, or the real part's
SIGNATURES: dict[str, tuple[int, str, str]] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "pow"), (2, "iufc", "same")),
    **dict.fromkeys(("rem", "min", "max"), (2, "iuf", "same")),
    "neg": (1, "iufc", "same"),
    "abs": (1, "iufc", "real"),
    **dict.fromkeys(("sqrt", "exp", "log", "sin", "cos", "tanh"), (1, "fc", "same")),
    **dict.fromkeys(("tan", "sigmoid"), (1, "f", "same")),
    **dict.fromkeys(("floor", "trunc", "round"), (1, "iuf", "same")),
    "atan2": (2, "f", "same"),
    "eq": (2, "biufc", "bool"),
    **dict.fromkeys(("lt", "le"), (2, "biuf", "bool")),
    **dict.fromkeys(("and_", "or_", "xor"), (2, "biu", "same")),
    "not_": (1, "biu", "same"),
    **dict.fromkeys(("shl", "shr"), (2, "iu", "same")),
    **dict.fromkeys(("real", "imag"), (1, "c", "real")),
}


def dtype_names(*dtypes: DType) -> str:
    """Names of dtypes, with commas.

    >>> from weft.base.dtypes import float32, int64
    >>> from weft.loop.signatures import dtype_names
    >>> dtype_names(float32, int64)
    'f32, i64'
    """
    return ", ".join(short_name(d) if d in _DTYPES else str(d) for d in dtypes)


def signature_problem(s: Scalar) -> str | None:
    """What is wrong with the dtypes of an instruction, if anything.

    >>> from weft.base.dtypes import bool_, float32
    >>> from weft.loop.ir import Const, Scalar
    >>> from weft.loop.signatures import signature_problem
    >>> signature_problem(Scalar("lt", (Const(1.0, float32), Const(2.0, float32)), float32))
    'the result must be bool, got f32'
    """
    dtypes = tuple(x.dtype for x in s.args)
    special = _SPECIAL.get(s.instruction)
    if special is not None:
        holds, told = special
        got = f"got {dtype_names(*dtypes)} to {dtype_names(s.dtype)}"
        return None if holds(dtypes, s.dtype) else f"{told}, {got}"
    if s.instruction not in SIGNATURES:
        return f"an instruction must be one of weft.ops.scalar, got {s.instruction!r}"
    count, kinds, result = SIGNATURES[s.instruction]
    if len(dtypes) != count:
        return f"{s.instruction} must have {count} operands, got {len(dtypes)}"
    if len({*dtypes}) > 1 or kind(dtypes[0]) not in kinds:
        return f"operands must have one dtype of a kind in {kinds!r}, got {dtype_names(*dtypes)}"
    expected = {"same": dtypes[0], "bool": bool_, "real": real_dtype(dtypes[0])}[result]
    if s.dtype == expected:
        return None
    return f"the result must be {dtype_names(expected)}, got {dtype_names(s.dtype)}"


Dtypes = tuple[DType, ...]


def _is_select(operands: Dtypes, result: DType) -> bool:
    return len(operands) == 3 and operands[0] == bool_ and operands[1] == operands[2] == result


def _is_cast(operands: Dtypes, result: DType) -> bool:
    return len(operands) == 1 and result in _DTYPES


def _is_bitcast(operands: Dtypes, result: DType) -> bool:
    real = _is_cast(operands, result) and not {kind(operands[0]), kind(result)} & {"b", "c"}
    return real and operands[0].itemsize == result.itemsize


def _is_complex(operands: Dtypes, result: DType) -> bool:
    return len(operands) == 2 and operands[0] == operands[1] and _WHOLES.get(operands[0]) == result


def _is_dot(total: DType) -> Callable[[Dtypes, DType], bool]:
    return lambda operands, result: operands == (total, uint32, uint32) and result == total


_SPECIAL: dict[str, tuple[Callable[[Dtypes, DType], bool], str]] = {
    "select": (_is_select, "select must be of a bool and two operands of its dtype"),
    "cast": (_is_cast, "cast must be of one operand"),
    "bitcast": (_is_bitcast, "bitcast must be between real numbers of one size"),
    "complex": (_is_complex, "complex must be of two f32 or two f64"),
    **{
        name: (_is_dot(dot.total), f"{name} must be of {dtype_names(dot.total)} and two words of u32")
        for name, dot in DOTS.items()
    },
}

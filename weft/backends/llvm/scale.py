"""Numbers times powers of two by AVX-512's instruction for it, which other machines take several for.

LLVM knows it for one register at a time: wider values are taken apart, and put together again.
"""

from __future__ import annotations

from weft.backends.llvm.target import Target
from weft.backends.llvm.types import REGISTER, Value, vector
from weft.backends.llvm.writer import Writer

_REGISTER_BYTES = 64


def has_scale(target: Target, x: Value) -> bool:
    """Whether there is such an instruction, and x fills registers.

    >>> import weft
    >>> from weft.backends.llvm.scale import has_scale
    >>> from weft.backends.llvm.target import Target
    >>> from weft.backends.llvm.types import Value
    >>> x = Value(weft.float32, ("%x",), lanes=32, scope=0)
    >>> has_scale(Target("x86_64-linux", "", "", 64, 32), x), has_scale(Target("aarch64", "", "", 16, 32), x)
    (True, False)
    """
    wide = target.vector_bytes == _REGISTER_BYTES and target.triple.startswith("x86_64")
    return wide and x.lanes * x.dtype.itemsize in (_REGISTER_BYTES, 2 * _REGISTER_BYTES, 4 * _REGISTER_BYTES)


def scaled(writer: Writer, x: Value, n: Value, keep: Value) -> Value:
    """x 2**n, and 0 where ``keep`` is not set, at no cost: nothing is computed there that could underflow."""
    lanes = _REGISTER_BYTES // x.dtype.itemsize
    scope = max(x.scope, n.scope)
    pieces = []
    for i in range(x.lanes // lanes):
        operands = [_piece(writer, v, i * lanes, lanes, scope) for v in (x, n, keep)]
        pieces.append(_call(writer, REGISTER[x.dtype], lanes, operands, scope))
    while len(pieces) > 1:
        pieces = [
            _joined(writer, vector(lanes, REGISTER[x.dtype]), lanes, pieces[i : i + 2], scope)
            for i in range(0, len(pieces), 2)
        ]
        lanes *= 2
    return Value(x.dtype, (pieces[0],), x.lanes, writer.home(scope))


def _call(writer: Writer, scalar: str, lanes: int, operands: list[str], scope: int) -> str:
    type_ = vector(lanes, scalar)
    name = f"@llvm.x86.avx512.mask.scalef.p{'s' if scalar == 'float' else 'd'}.512"
    writer.declare(f"{type_} {name}({type_}, {type_}, {type_}, i{lanes}, i32)")
    x, n, keep = operands
    mask = writer.pure(f"bitcast <{lanes} x i1> {keep} to i{lanes}", scope)
    nearest = 4  # rounding as the mode says
    arguments = f"{type_} {x}, {type_} {n}, {type_} zeroinitializer, i{lanes} {mask}, i32 {nearest}"
    return writer.pure(f"call {type_} {name}({arguments})", scope)


def _piece(writer: Writer, x: Value, first: int, lanes: int, scope: int) -> str:
    if x.lanes == lanes:
        return x.parts[0]
    type_ = vector(x.lanes, REGISTER[x.dtype])
    order = ", ".join([f"i32 {first + i}" for i in range(lanes)])
    text = f"shufflevector {type_} {x.parts[0]}, {type_} poison, <{lanes} x i32> <{order}>"
    return writer.pure(text, scope)


def _joined(writer: Writer, type_: str, lanes: int, pair: list[str], scope: int) -> str:
    order = ", ".join([f"i32 {i}" for i in range(2 * lanes)])
    text = f"shufflevector {type_} {pair[0]}, {type_} {pair[1]}, <{2 * lanes} x i32> <{order}>"
    return writer.pure(text, scope)

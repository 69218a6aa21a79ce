"""Sums of two 16-bit numbers at a time, taken apart in PTX.

``ptxas`` of CUDA 13.0 takes the lower sum for the upper one where only that is read and one side is a
constant: of ``add.s16x2 d, {x, x}, {0, 1}`` it gives x, and not x + 1. LLVM writes such sums from sm_90 on,
where indices that a few threads compute fit into 16 bits. Sums of one number each are right, and no slower.
"""

from __future__ import annotations

import re

_PAIRED = re.compile(r"\t(add|sub|min|max)\.([su])16x2[ \t]+(%\w+), (%\w+), (%\w+|-?\d+);")
_BODY = re.compile(r"^\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)


def parted_halves(ptx: str) -> str:
    r"""PTX without instructions on two whole numbers of 16 bits.

    >>> from weft.backends.cuda.emit.halves import parted_halves
    >>> found = parted_halves("{\n\tadd.s16x2 \t%r3, %r1, %r2;\n}")
    >>> [line.split()[0] for line in found.splitlines()[2:-1]]
    ['mov.b32', 'mov.b32', 'add.s16', 'add.s16', 'mov.b32']
    """
    return _BODY.sub(_in_body, ptx) if "16x2" in ptx else ptx


def _in_body(match: re.Match[str]) -> str:
    count = 0

    def parted(found: re.Match[str]) -> str:
        nonlocal count
        name, sign, out, x, y = found.groups()
        a, b, c, d = (f"%half{count + i}" for i in range(1, 5))
        count += 4
        lines = [f"mov.b32 \t{{{a}, {b}}}, {x};"]
        if y.startswith("%"):
            lines.append(f"mov.b32 \t{{{c}, {d}}}, {y};")
        else:
            lines += [f"mov.b16 \t{c}, {int(y) & 0xFFFF};", f"mov.b16 \t{d}, {int(y) >> 16 & 0xFFFF};"]
        lines += [f"{name}.{sign}16 \t{a}, {a}, {c};", f"{name}.{sign}16 \t{b}, {b}, {d};"]
        return "".join(f"\t{line}\n" for line in (*lines, f"mov.b32 \t{out}, {{{a}, {b}}};"))[:-1]

    body = _PAIRED.sub(parted, match[1])
    return f"{{\n\t.reg .b16 \t%half<{count + 1}>;\n{body}}}" if count else match[0]

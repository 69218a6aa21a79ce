"""From kernels in LLVM assembly to PTX: one module of many, optimised and written by LLVM."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm

from weft.backends.cuda.emit.halves import parted_halves
from weft.backends.cuda.emit.kernel import TRIPLE
from weft.backends.llvm.code import early
from weft.backends.llvm.target import Target

_OPTIMISATION = 3
_FUNCTION = re.compile(r"^define .*?^\}$", re.S | re.M)


def merged(texts: Iterable[str]) -> str:
    """The texts of kernels as one: what each declares stands in it once."""
    heads: dict[str, None] = {}
    bodies: dict[str, None] = {}
    for text in texts:
        rest = text
        while (match := _FUNCTION.search(rest)) is not None:
            bodies[match[0]] = None
            rest = rest[: match.start()] + rest[match.end() :]
        heads |= dict.fromkeys(line for line in rest.splitlines() if line)
    return "\n".join([*heads, *bodies, ""])


@lru_cache
def _machine(target: Target) -> Any:
    with early:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        made = llvm.Target.from_triple(TRIPLE)
        return made.create_target_machine(cpu=target.cpu, features=target.features, opt=_OPTIMISATION)


def to_ptx(text: str, target: Target) -> str:
    """The PTX of a module in LLVM assembly.

    >>> from weft.backends.cuda.emit.kernel import nvptx_target
    >>> from weft.backends.cuda.emit.module import to_ptx
    >>> ".entry nothing" in to_ptx("define ptx_kernel void @nothing() { ret void }", nvptx_target())
    True
    """
    with early:
        machine = _machine(target)
        module = llvm.parse_assembly(f'target triple = "{TRIPLE}"\n{text}')
        module.verify()
        options = llvm.create_pipeline_tuning_options(speed_level=_OPTIMISATION)
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
        return parted_halves(_readable(machine.emit_assembly(module)))


def _readable(ptx: str) -> str:
    """PTX without the comments that name LLVM's passes."""
    return re.sub(r"\n{3,}", "\n\n", ptx)

"""Steps of a program that launch a kernel of the user's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.backends.cuda.card import Card
from weft.backends.cuda.kernels import Kernel, Prepared
from weft.backends.cuda.program import CudaProgram, HostCall
from weft.base.sizes import bind
from weft.ir.types import TensorType
from weft.ops.op import Op


def kernel_of(program: CudaProgram, step: Any) -> Kernel | None:
    """The user's own kernel that a step launches, if it is one."""
    op = program.hosts[step.number].op if isinstance(step, HostCall) else None
    return op.cuda if isinstance(op, Op) and isinstance(op.cuda, Kernel) else None


def types_of(
    program: CudaProgram, step: HostCall, number: Callable[[Any], int]
) -> tuple[Sequence[TensorType], Sequence[TensorType]]:
    """The types of inputs and outputs for the sizes that a run has."""
    entry, sizes = program.hosts[step.number], sizes_of(program, step, number)
    inputs, outputs = (
        [TensorType(bind(tuple(t.shape), sizes), t.dtype) for t in of] for of in (entry.inputs, entry.outputs)
    )
    return inputs, outputs


def sizes_of(program: CudaProgram, step: HostCall, number: Callable[[Any], int]) -> dict[str, int]:
    """The named sizes of a call, with the values that a run has."""
    entry = program.hosts[step.number]
    return {str(n): number(s) for n, s in zip(entry.sizes, step.sizes, strict=True)}


def prepare_users(
    card: Card, program: CudaProgram, step: HostCall, number: Callable[[Any], int]
) -> Prepared | None:
    """The launch of a user's kernel for the sizes that a run has; None where there is nothing to launch."""
    entry, kernel = program.hosts[step.number], kernel_of(program, step)
    assert kernel is not None
    sizes = sizes_of(program, step, number)
    attrs = {name: bind(value, sizes) for name, value in entry.attrs.items()}
    return kernel.prepare(card, *types_of(program, step, number), attrs)

"""Another target of LLVM: an instruction set, loops and a kernel of its own are all that it needs.

A parallel loop is a grid of blocks here, a vector loop the threads of a block: enough to show that a subclass
says how loops run, where the parameters come from, and that nothing else has to change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from weft.backends.llvm.emit.instructions import InstructionSet
from weft.backends.llvm.emit.kernel import Kernel
from weft.backends.llvm.emit.lanes import Varying, assigned
from weft.backends.llvm.emit.loops import Loops
from weft.backends.llvm.emit.places import element_type
from weft.backends.llvm.emit.scalars import Scalars
from weft.backends.llvm.emit.types import Value
from weft.backends.llvm.emit.writer import Writer
from weft.backends.llvm.target import Target
from weft.base.dtypes import float32, int64
from weft.loop.builder import Builder
from weft.loop.ir import Function, Loop
from weft.ops.scalar import ScalarEmitter

TRIPLE = "nvptx64-nvidia-cuda"
GPU = Target(TRIPLE, "sm_80", "+ptx70", vector_bytes=16, registers=32)
THREADS = 64


class GpuInstructions(InstructionSet):
    """Everything by LLVM's own expansions, but for float16."""

    converts_half = True
    attributes = 'nounwind "nvvm.maxntid"="64"'


class GridLoops(Loops):
    """A block of threads for each iteration of the parallel loop, a thread for each of a vector loop."""

    def parallel(self, s: Loop) -> None:
        self.indices.variables[s.variable] = self.indices.sum(
            self.value(s.start), Value(int64, ("%block",), 0, 0)
        )
        self.block(s.body)

    def vector(self, s: Loop, varying: Varying) -> None:
        assert not varying.reductions
        first = self.indices.sum(self.value(s.start), Value(int64, ("%thread",), 0, 0))
        self.counted(
            s.variable, first, self.value(s.stop), THREADS, lambda: self.block(s.body), assigned(s.body)
        )


class GpuKernel(Kernel):
    """A kernel whose buffers are parameters, and whose scratch memory the threads of a block share."""

    loops = GridLoops

    def head(self, symbol: str) -> str:
        params = ["ptr %context", *[f"ptr %buffer{i}" for i in range(len(self.function.buffers))]]
        return f"define ptx_kernel void @{symbol}({', '.join(params)})"

    def parameters(self) -> None:
        for i, buffer in enumerate(self.function.buffers):
            self.pointers[buffer] = Value(int64, (f"%buffer{i}",), 0, 0)
        for i, buffer in enumerate(self.function.scratch):
            type_ = f"[{buffer.size} x {element_type(buffer.dtype)}]"
            self.writer.declarations.add(f"@scratch{i} = internal addrspace(3) global {type_} undef")
            at = self.writer.here(f"addrspacecast ptr addrspace(3) @scratch{i} to ptr")
            self.pointers[buffer] = Value(int64, (at,), 0, 0)
        for name, register in (("thread", "tid"), ("block", "ctaid")):
            self.writer.declare(f"i32 @llvm.nvvm.read.ptx.sreg.{register}.x()")
            self.writer.line(f"%{name}32 = call i32 @llvm.nvvm.read.ptx.sreg.{register}.x()")
            self.writer.line(f"%{name} = zext i32 %{name}32 to i64")


def written(write: Callable[[Builder], Function]) -> str:
    return GpuKernel(write(Builder()), GpuInstructions(GPU), debug=False).text("kernel")


def scaled_exponentials(b: Any) -> Function:
    x, y = b.buffer("x", np.dtype("f4"), 16 * 256), b.buffer("y", np.dtype("f4"), 16 * 256)
    with b.parallel(16) as i, b.vector(256) as j:
        b.store(y, i * 256 + j, b.mul(b.exp(b.load(x, i * 256 + j)), 2.0))
    function: Function = b.function("scaled", written=[y])
    return function


def assembly(text: str) -> str:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target = llvm.Target.from_triple(TRIPLE)
    except RuntimeError:
        pytest.skip("this LLVM has no such target")
    module = llvm.parse_assembly(f'target triple = "{TRIPLE}"\n{text}')
    module.verify()
    machine = target.create_target_machine(cpu=GPU.cpu, features=GPU.features, opt=2)
    return str(machine.emit_assembly(module))


def test_kernel_of_another_target_is_written_by_subclasses() -> None:
    text = written(scaled_exponentials)
    assert "define ptx_kernel void @kernel(ptr %context, ptr %buffer0, ptr %buffer1)" in text
    assert "<" not in text.split("define")[1].split("{", 1)[1].replace("!{", "")  # no vectors
    assert "%args" not in text


def test_kernel_of_another_target_becomes_its_assembly() -> None:
    found = assembly(written(scaled_exponentials))
    assert ".visible .entry kernel(" in found
    assert "%tid.x" in found
    assert "%ctaid.x" in found


def test_scalars_have_every_instruction() -> None:
    scalars = Scalars(Writer(), GpuInstructions(GPU))
    names = [name for name in vars(ScalarEmitter) if not name.startswith("_")]
    assert len(names) > 30
    assert [name for name in names if not callable(getattr(scalars, name, None))] == []


def test_machine_without_instructions_of_its_own_computes_all_the_same() -> None:
    x = Value(float32, ("%x",), 4, 0)
    writer = Writer()
    scalars = Scalars(writer, InstructionSet(GPU))
    scalars.exp(x)
    scalars.max(x, 0.0)
    assert "scalef" not in writer.text()
    assert "llvm.maximum" not in "\n".join(writer.declarations)

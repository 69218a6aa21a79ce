"""LLVM's code generator: from text to object code, by several threads at the same time.

Functions of llvmlite's library are called without the lock that llvmlite puts around its calls: LLVM lets
threads work side by side on what belongs to different contexts and target machines.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from weft.backends.llvm.code import Source
from weft.backends.llvm.target import Target
from weft.errors import GraphError

__all__ = ["PIPELINE", "Compiler", "Source", "machine_for"]

PIPELINE = "O2 slp"  # what optimising means; stands in the keys of the cache


class Compiler:
    """A code generator, for one thread at a time."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._machines: dict[int, llvm.TargetMachine] = {}

    def compile(self, source: Source, verify: bool) -> bytes:
        """The object code of a text."""
        machine = self._machine(0 if source.quick else 2)
        module = _parse(source.text, llvm.create_context())
        if verify:
            module.verify()
        if source.optimise:
            _optimise(machine, module)
        return _emit(machine, module)

    def _machine(self, level: int) -> llvm.TargetMachine:
        if level not in self._machines:
            self._machines[level] = machine_for(self._target, level)
        return self._machines[level]


def machine_for(target: Target, level: int = 2) -> llvm.TargetMachine:
    """LLVM's code generator; small code with relative addresses, so that constants need none computed."""
    kind = llvm.Target.from_triple(target.triple)
    return kind.create_target_machine(
        target.cpu, target.features, opt=level, reloc="pic", codemodel="small", jit=True
    )


@cache
def _function(name: str, *, keeps_turn: bool = False) -> Any:
    """A function of llvmlite's library, without the lock that llvmlite puts around its calls.

    Other threads run Python meanwhile, unless it keeps the turn, because it takes no time.
    """
    library = (ctypes.PyDLL if keeps_turn else ctypes.CDLL)(ffi.lib._name)
    wrapped, function = getattr(ffi.lib, name), library[name]
    function.argtypes, function.restype = wrapped.argtypes, wrapped.restype
    return function


def _parse(text: str, context: llvm.ContextRef) -> llvm.ModuleRef:
    message = ctypes.c_char_p()
    pointer = _function("LLVMPY_ParseAssembly")(context, text.encode(), ctypes.byref(message))
    if message:
        raise GraphError("llvm", f"the text must be LLVM's, got {_taken(message)}")
    return llvm.ModuleRef(pointer, context)


def _emit(machine: llvm.TargetMachine, module: llvm.ModuleRef) -> bytes:
    message = ctypes.c_char_p()
    emit = _function("LLVMPY_TargetMachineEmitToMemory")
    buffer = emit(machine, module, 1, ctypes.byref(message))
    if not buffer:
        raise GraphError("llvm", f"the text must have machine code, got {_taken(message)}")
    start = _function("LLVMPY_GetBufferStart", keeps_turn=True)(buffer)
    size = _function("LLVMPY_GetBufferSize", keeps_turn=True)(buffer)
    try:
        return ctypes.string_at(start, size)
    finally:
        _function("LLVMPY_DisposeMemoryBuffer", keeps_turn=True)(buffer)


def _taken(message: ctypes.c_char_p) -> str:
    """What LLVM says; it is freed."""
    text = (message.value or b"").decode(errors="replace")
    ffi.lib.LLVMPY_DisposeString(message)
    return text


def _optimise(machine: llvm.TargetMachine, module: llvm.ModuleRef) -> None:
    """Everything LLVM has, its vectorisers among it."""
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.slp_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    _function("LLVMPY_RunNewModulePassManager")(builder.getModulePassManager(), module, builder)

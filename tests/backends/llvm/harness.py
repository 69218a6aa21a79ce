"""Runs single kernels, and main functions, without what is around them in the product."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from weft.backends.llvm.blas import NAMES as BLAS
from weft.backends.llvm.blas import blas_address
from weft.backends.llvm.compiler import Source
from weft.backends.llvm.emit.kernel import emit_kernel
from weft.backends.llvm.emit.main import emit_main
from weft.backends.llvm.engine import default_engine
from weft.backends.llvm.pool import FUNCTIONS as POOL
from weft.backends.llvm.pool import pool_address
from weft.backends.llvm.target import Target, host_target
from weft.base.sizes import Size, bind
from weft.loop.ir import Function, Loop, Program
from weft.loop.walk import launched_functions

Array = np.ndarray[Any, Any]
_MAIN = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 4)
_HOST = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * 3)
_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class Kernel:
    """A function as machine code."""

    def __init__(self, function: Function, target: Target | None = None, *, debug: bool = False) -> None:
        target = target or host_target()
        self.function = function
        self.text = emit_kernel(function, "kernel", target, debug=debug)
        engine = default_engine(target)
        engine.provide(BLAS, blas_address)
        self.code = engine.load([Source(self.text)], verify=True)["kernel"]
        self.native = _KERNEL(self.code.address)

    def __call__(
        self, arrays: Sequence[Array], sizes: Mapping[str, int] | None = None, parts: int = 1
    ) -> Array:
        """Run on arrays, in so many parts of the parallel loop; gives the context."""
        context = np.zeros(16, np.int64)
        words = [context.ctypes.data, *[a.ctypes.data for a in arrays]]
        args = np.array([*words, *[(sizes or {})[name] for name in self.function.sizes]], np.int64)
        last = self.function.body.statements[-1] if self.function.body.statements else None
        count = 1
        if isinstance(last, Loop) and last.kind == "parallel":
            extent = (last.stop - last.start).offset
            count = int(extent if isinstance(extent, int) else extent.substitute(sizes or {}))
        edges = np.linspace(0, count, parts + 1).astype(int)
        for begin, end in pairwise(edges):
            if begin < end:
                self.native(args.ctypes.data, int(begin), int(end))
        return context


def symbol_of(function: Function) -> str:
    """A name for a kernel."""
    return f"kernel_{id(function)}"


class Main:
    """A program as machine code.

    Attributes:
        calls: what the host was called with: numbers, and the addresses of inputs, outputs and sizes.
        context, buffers, sizes: as the last run left them.
    """

    def __init__(
        self, program: Program, target: Target | None = None, *, debug: bool = False, profile: bool = False,
        optimise: bool = True, host: Callable[..., None] | None = None,
    ) -> None:  # fmt: skip
        engine = default_engine(target)
        engine.provide(POOL, pool_address)
        engine.provide(BLAS, blas_address)
        self.program = program
        self.text = emit_main(program, "main", symbol_of, engine.target, debug=debug, profile=profile)
        kernels = launched_functions(program.main.body)
        texts = [emit_kernel(f, symbol_of(f), engine.target, debug=debug) for f in kernels]
        sources = [Source(self.text, optimise), *[Source(text) for text in texts]]
        self.codes = engine.load(sources, verify=True)
        self.native = _MAIN(self.codes["main"].address)
        self._host = _HOST(host or (lambda *args: None))
        self.context = self.buffers = self.sizes = np.zeros(0, np.int64)

    def __call__(
        self, inputs: Sequence[Array], sizes: Mapping[str, int] | None = None, records: Array | None = None
    ) -> list[Array]:
        """Run on arrays; gives the outputs, flat, those of unknown size empty."""
        program, sizes = self.program, dict(sizes or {})
        first = program.inputs
        made = program.main.buffers[first : first + program.outputs]
        outputs = [np.zeros(_bound(b.size, sizes) or 0, b.dtype) for b in made]
        arrays = [*inputs, *outputs, *program.constants]
        self.context = np.zeros(16, np.int64)
        self.context[5] = ctypes.cast(self._host, ctypes.c_void_p).value  # type: ignore[assignment]
        self.context[6] = 77
        self.context[7] = 0 if records is None else records.ctypes.data
        self.buffers = np.array([a.ctypes.data for a in arrays] or [0], np.int64)
        self.sizes = np.array([sizes.get(name, 0) for name in program.main.sizes] or [0], np.int64)
        arena = np.full(_bound(program.arena_size, sizes) or 0, 0xA5, np.uint8)
        args = [a.ctypes.data for a in (self.context, self.buffers, arena, self.sizes)]
        code = self.native(*args)
        assert code == self.context[0]
        return outputs


def _bound(size: Any, sizes: Mapping[str, int]) -> int | None:
    """The value of a size, or None where only the run tells it."""
    found = bind(size, sizes)
    return None if isinstance(found, Size) else int(found)

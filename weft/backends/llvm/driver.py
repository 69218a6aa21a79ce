"""The driver of the backend: lower, write text, compile what is not known yet, link."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, cast

from weft.backends.backend import Option
from weft.backends.llvm.blas import NAMES as BLAS
from weft.backends.llvm.blas import blas_address
from weft.backends.llvm.code import MAIN
from weft.backends.llvm.compiler import Compilation, Source
from weft.backends.llvm.emit.kernel import emit_kernel
from weft.backends.llvm.emit.lanes import statements
from weft.backends.llvm.emit.launches import RECORD, recorded_statements
from weft.backends.llvm.emit.main import emit_main
from weft.backends.llvm.engine import Code, Engine, default_engine
from weft.backends.llvm.entry import enter_source, make_enter
from weft.backends.llvm.pool import FUNCTIONS as POOL
from weft.backends.llvm.pool import default_pool, pool_address, pool_source
from weft.backends.llvm.prepared import PreparedExecutable
from weft.backends.llvm.run import NativeExecutable
from weft.backends.llvm.tuned import machine_like
from weft.base.threads import get_num_threads
from weft.config import settings
from weft.errors import WeftError
from weft.ir.graph import Graph
from weft.loop.capabilities import check_supported
from weft.loop.ir import Block, Function, Host, Launch, Loop, Matmul, Program, Wave, While
from weft.loop.text import code_key, function_key
from weft.loop.verify import verify_program
from weft.loop.walk import blocks_of, launched_functions
from weft.passes.inline import inline
from weft.passes.pipeline import Step, lower, note_step
from weft.schedule.cpu.prepared import split_prepared
from weft.schedule.cpu.target import Cpu
from weft.schedule.cpu.units import idle_passes
from weft.schedule.program import lower_graph

_LONG = 10_000  # characters of a main function from which on code that comes soon is better than good code

_begun: list[threading.Thread] = []
Cpu().load()  # with this module, so that the first graph need not wait for it


def prepare() -> None:
    """Begin, in a thread of its own, with what every graph needs; see ``weft.backends.builder``."""
    if not _begun and get_num_threads() > 1:
        thread = threading.Thread(target=_prepare)
        _begun.append(thread)
        if _begun[0] is thread:  # and none that came at the same time
            thread.start()


def _prepare() -> None:
    with suppress(WeftError):  # the first graph will say what is wrong
        default_engine().prepare_early([enter_source(), pool_source()])
        make_enter()
        default_pool()


def build_executable(
    graph: Graph,
    *,
    debug: Option = False,
    check_nan: Option = False,
    profile: Option = False,
    fast_math: Option = False,
    keep: Option = False,
    lowering: Sequence[Step] | None = None,
    disable: Collection[str] = (),
) -> NativeExecutable | PreparedExecutable:
    """Compile a graph; see ``weft.backends.llvm.Llvm``."""
    debug = bool(debug) or settings.debug
    engine = default_engine()
    machine = machine_like(engine.target)
    passes = [inline] if check_nan and lowering is None else lowering  # checks are of each op by itself
    with engine.lock, engine.compilation(verify=debug) as compilation:
        engine.prepare(enter_source(), compilation)
        kernels = Kernels(engine, compilation, debug, alone=bool(keep))
        lowered = lower(graph, passes, disable=[*disable, *idle_passes(machine.units)], debug=debug)
        plainly = debug or check_nan or profile or "prepared" in disable
        split = None if plainly else split_prepared(lowered, machine)
        program = lower_graph(
            lowered if split is None else note_step("prepared", lowered, split.main),
            debug=debug,
            check_nan=check_nan,
            fast_math=bool(fast_math),
            target=Cpu(machine),
            written=kernels.add,
            disable=disable,
        )
        if debug:
            verify_program(program)
        codes = kernels.link(program, bool(profile))
    records = len(recorded_statements(program)) * len(RECORD) if profile else 0
    plain = keep and not (debug or check_nan or profile)
    objects = compilation.objects if plain else ()
    if debug:
        from weft.backends.llvm.checked import CheckedExecutable

        return CheckedExecutable(graph, program, codes, engine.target, records)
    if split is None or split.prepare is None:
        return NativeExecutable(graph, program, codes, engine.target, records, objects)
    options: dict[str, Any] = {
        "fast_math": fast_math,
        "lowering": lowering,
        "disable": [*disable, "prepared"],
    }
    return PreparedExecutable(
        graph,
        NativeExecutable(split.main, program, codes, engine.target, records, objects),
        cast("NativeExecutable", build_executable(split.prepare, keep=keep, lowering=[], disable=disable)),
        split.numbers,
        lambda: cast("NativeExecutable", build_executable(graph, **options)),
    )


def compile_program(
    program: Program, engine: Engine | None = None, *, debug: bool = False, profile: bool = False
) -> list[Code]:
    """The machine code of a program: its main function, then the kernels that it launches.

    >>> from weft.backends.llvm.driver import compile_program
    >>> from weft.loop.ir import Block, Function, Program
    >>> [main] = compile_program(Program(Function("f", (), (), Block()), 0, 0, (), {}, 0, (), (), ()))
    >>> main.symbol
    'weft_main'
    """
    engine = engine or default_engine()
    with engine.lock, engine.compilation(verify=debug) as compilation:
        return Kernels(engine, compilation, debug).link(program, profile)


class Kernels:
    """The kernels of a program: each is compiled from when it is written, unless it is known.

    To be used under the lock of the engine, so that what is known stays so.
    """

    def __init__(self, engine: Engine, compilation: Compilation, debug: bool, *, alone: bool = False) -> None:
        engine.provide(POOL, pool_address)
        engine.provide(BLAS, blas_address)
        self._engine = engine
        self._compilation = compilation
        self._debug = debug
        self._alone = alone  # whether all of the code is to be made, known or not
        self._symbols: dict[Block, str] = {}
        self._known: dict[str, Code] = {}
        self._new: dict[str, None] = {}

    def add(self, function: Function) -> str:
        """The symbol of a kernel, which is compiled if it is new."""
        symbol = self._symbols.get(function.body)  # several functions may be copies of one
        if symbol is None:
            symbol = self._symbols[function.body] = kernel_symbol(function, self._debug)
            if symbol not in self._known and symbol not in self._new:
                self._find(function, symbol)
        return symbol

    def _find(self, function: Function, symbol: str) -> None:
        code = None if self._alone else self._engine.known(symbol)
        if code is not None:
            self._known[symbol] = code
            return
        self._new[symbol] = None
        check_supported(function, "llvm")
        text = emit_kernel(function, symbol, self._engine.target, debug=self._debug)
        self._compilation.add(Source(text))

    def link(self, program: Program, profile: bool) -> list[Code]:
        """The machine code of the main function, then of the kernels."""
        for function in launched_functions(program.main.body):
            self.add(function)
        check_supported(program.main, "llvm")
        main = emit_main(program, MAIN, self.add, self._engine.target, debug=self._debug, profile=profile)
        body = program.main.body
        computes = _computes_in_loops(body)
        self._compilation.add(Source(main, optimise=computes, quick=len(main) > _LONG and not computes))
        codes = self._engine.link(self._compilation, known=self._known.values())
        return [codes[MAIN], *[codes[symbol] for symbol in self._new], *self._known.values()]


def _computes_in_loops(block: Block) -> bool:
    """Whether a main function has loops that only compute; those around launches wait for kernels anyway."""
    for s in statements(block):
        if isinstance(s, Loop | While) and not (isinstance(s, Loop) and s.kind == "vector"):
            inside = [inner for part in blocks_of(s) for inner in statements(part)]
            if not any(isinstance(inner, Launch | Wave | Host | Matmul) for inner in inside):
                return True
    return False


def kernel_symbol(function: Function, debug: bool = False) -> str:
    """The name of a kernel in machine code: equal for equal code."""
    return f"weft_checked_{function_key(function)}" if debug else f"weft_kernel_{code_key(function)}"

"""The driver of the backend: lower, write text, compile what is not known yet, link."""

from __future__ import annotations

from weft.backends.llvm.blas import provide_blas
from weft.backends.llvm.emit import emit_kernel
from weft.backends.llvm.engine import Code, Engine, Source, default_engine
from weft.backends.llvm.lanes import statements
from weft.backends.llvm.main import RECORD, emit_main, recorded_statements
from weft.backends.llvm.pool import provide_pool
from weft.backends.llvm.run import Executable
from weft.ir.graph import Graph
from weft.loop.ir import Function, Loop, Program, While
from weft.loop.text import function_key
from weft.loop.walk import launched_functions
from weft.schedule.machine import Machine
from weft.schedule.program import lower_graph

_MAIN = "weft_main"


def build_executable(
    graph: Graph, *, debug: bool = False, check_nan: bool = False, profile: bool = False
) -> Executable:
    """Compile a graph; see ``weft.backends.llvm.build``."""
    engine = default_engine()
    machine = Machine(engine.target.vector_bytes, engine.target.registers)
    program = lower_graph(graph, debug=debug, check_nan=check_nan, machine=machine)
    codes = compile_program(program, engine, debug=debug, profile=profile)
    records = len(recorded_statements(program)) * len(RECORD) if profile else 0
    return Executable(graph, program, codes, engine.target, records)


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
    provide_pool(engine)
    provide_blas(engine)
    symbols = {f: kernel_symbol(f, debug) for f in launched_functions(program.main.body)}
    with engine.lock:  # so that what is known stays so, and nobody compiles the same meanwhile
        known = {symbol: code for symbol in symbols.values() if (code := engine.known(symbol)) is not None}
        new = {symbol: f for f, symbol in symbols.items() if symbol not in known}
        sources = [Source(emit_kernel(f, symbol, engine.target, debug=debug)) for symbol, f in new.items()]
        main = emit_main(program, _MAIN, symbols.__getitem__, engine.target, debug=debug, profile=profile)
        sources.append(Source(main, optimise=_loops(program)))
        codes = engine.load(sources, known=known.values(), verify=debug)
    return [codes[_MAIN], *[codes[symbol] for symbol in new], *known.values()]


def _loops(program: Program) -> bool:
    """Whether the main function itself has loops."""
    return any(isinstance(s, Loop | While) for s in statements(program.main.body))


def kernel_symbol(function: Function, debug: bool = False) -> str:
    """The name of a kernel in machine code: equal for equal code."""
    return f"weft_{'checked' if debug else 'kernel'}_{function_key(function)}"

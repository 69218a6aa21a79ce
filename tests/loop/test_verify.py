from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.loop.everything import kernel, program
from weft.base.dtypes import bool_, complex64, float32, float64, int32, int64
from weft.base.sizes import named_size
from weft.errors import GraphError
from weft.loop import ir
from weft.loop.builder import Builder
from weft.loop.index import Index, Variable
from weft.loop.ir import Block, Buffer, Const, Function, Load, Local, Program, Scalar, Store
from weft.loop.verify import verify_function, verify_program

ONE = Const(np.float32(1), float32)
TRUE = Const(np.bool_(True), bool_)
ZERO = Index.of(0)


class Writer(Builder):
    """A builder with an input and an output, that verifies what it wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.x = self.buffer("x", float32, 8)
        self.y = self.buffer("y", float32, 8)

    def verify(self) -> None:
        verify_function(self.function("f", written=[self.y]))

    def put(self, *statements: Any) -> None:
        for statement in statements:
            self.add_statement(statement)


def test_what_is_well_formed_passes() -> None:
    function, whole = kernel(), program()
    assert verify_function(function) is function
    assert verify_program(whole) is whole


# Scalars


def use_before(b: Writer) -> None:
    scalar = Scalar("neg", (ONE,), float32)
    b.put(Store(b.y, ZERO, scalar), scalar)


def use_outside_of_its_block(b: Writer) -> None:
    with b.loop(2):
        scalar = b.neg(b.load(b.x, 0))
    b.store(b.y, 0, scalar)


def use_of_a_test_in_the_body(b: Writer) -> None:
    scalar = Scalar("eq", (ONE, ONE), bool_)
    b.put(ir.While(Block([scalar]), scalar, Block([Store(b.y, ZERO, ONE, scalar)])))


def compute_twice(b: Writer) -> None:
    scalar = Scalar("neg", (ONE,), float32)
    b.put(scalar, scalar)


def variable_outside_of_its_loop(b: Writer) -> None:
    with b.loop(2) as i:
        pass
    b.store(b.y, i, 1.0)


def variable_of_two_loops(b: Writer) -> None:
    v = Variable("i", 2)
    inner = ir.Loop(v, ZERO, Index.of(2), Block())
    b.put(ir.Loop(v, ZERO, Index.of(2), Block([inner])))


def term_of_a_float(b: Writer) -> None:
    b.store(b.y, Index.of(Variable("t", 2, ONE)), 1.0)


def unknown_size(b: Writer) -> None:
    b.store(b.y, named_size("n"), 1.0)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (use_before, "`store y[0] = %?`: what is stored must be computed before, in a block around"),
        (use_outside_of_its_block, "`store y[0] = %1`: what is stored must be computed before"),
        (use_of_a_test_in_the_body, "a mask must be computed before, in a block around"),
        (compute_twice, "a scalar must be computed once"),
        (
            variable_outside_of_its_loop,
            "`store y[i1] = f32(1.0)`: a variable must be of a loop around, got i1",
        ),
        (variable_of_two_loops, "a variable must be of one loop, got i again"),
        (term_of_a_float, "a term of an index must be i64, got f32"),
        (unknown_size, "a size must be given or bound before, got n"),
    ],
)
def test_scope_is_checked(write: Callable[[Writer], None], message: str) -> None:
    check(write, message)


def check(write: Callable[[Writer], None], message: str) -> None:
    b = Writer()
    write(b)
    with pytest.raises(GraphError) as caught:
        b.verify()
    assert message in caught.value.message
    assert caught.value.message.startswith("f: ")


def instruction(name: str, dtypes: list[Any], out: Any) -> Callable[[Writer], None]:
    args = tuple(Const(np.zeros((), d)[()], d) for d in dtypes)
    return lambda b: b.put(Scalar(name, args, out))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (instruction("add", [float32, float64], float32), "operands must have one dtype"),
        (instruction("add", [bool_, bool_], bool_), "of a kind in 'iufc', got bool, bool"),
        (instruction("add", [float32], float32), "add must have 2 operands, got 1"),
        (instruction("lt", [float32, float32], float32), "the result must be bool, got f32"),
        (instruction("lt", [complex64, complex64], bool_), "of a kind in 'biuf', got c64, c64"),
        (instruction("abs", [complex64], complex64), "the result must be f32, got c64"),
        (instruction("select", [int64, float32, float32], float32), "select must be of a bool"),
        (instruction("cast", [int64, int64], float32), "cast must be of one operand"),
        (instruction("bitcast", [int64], float32), "bitcast must be between real numbers of one size"),
        (instruction("complex", [float32, float64], complex64), "complex must be of two f32 or two f64"),
        (instruction("sinh", [float32], float32), "must be one of weft.ops.scalar, got 'sinh'"),
        (lambda b: b.store(b.y, 0, Const(np.int32(1), int32)), "what is stored must be f32, got i32"),
        (lambda b: b.store(b.y, 0, ONE, ONE), "a mask must be bool, got f32"),
        (lambda b: b.put(Load(b.x, ZERO, float64)), "a load must have the dtype of its buffer"),
        (lambda b: b.put(ir.If(ONE, Block(), Block())), "a condition must be bool, got f32"),
        (lambda b: b.put(ir.Fail(ONE, 0)), "a condition must be bool, got f32"),
        (lambda b: b.put(ir.Fail(TRUE, 0, (ONE,))), "a value of a failure must be i64, got f32"),
        (lambda b: b.put(ir.Fail(TRUE, 0, (ZERO,) * 5)), "a failure must have up to 4 values, got 5"),
        (lambda b: b.put(ir.Set(Local(float32, "v"), ONE)), "a local must be declared before, got v"),
        (lambda b: b.put(ir.Declare(Local(float64), ONE)), "the value of a local must be f64, got f32"),
        (lambda b: b.put(Store(b.y, 0, ONE)), "an index must be an Index, got int"),  # type: ignore[arg-type]
        (lambda b: b.put(Store(b.y, ZERO, 1.0)), "what is stored must be a scalar, got float"),  # type: ignore[arg-type]
        (lambda b: b.put(ir.Measure(3, int32)), "a size must be i64, got i32"),
    ],
)
def test_dtypes_are_checked(write: Callable[[Writer], None], message: str) -> None:
    check(write, message)


def test_operands_of_an_accumulation_are_checked() -> None:
    def write(b: Writer, name: str, value: Any) -> None:
        b.put(ir.Accumulate(b.local(0.0, float32), name, value))

    check(lambda b: write(b, "sub", ONE), "must be one of add, mul, min, max, and_, or_, got 'sub'")
    check(lambda b: write(b, "or_", ONE), "or_ must not be of f32")
    check(lambda b: write(b, "add", ZERO), "what is accumulated must be f32, got i64")


# Buffers


def matmul(b: Writer, *buffers: Buffer) -> ir.Matmul:
    places = [(buffer, ZERO) for buffer in buffers]
    one = Index.of(1)
    return ir.Matmul(*places, one, one, one, (one, one, one), (False, False))  # type: ignore[call-arg, arg-type]


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda b: b.store(b.x, 0, 1.0), "a buffer must be in written, got x"),
        (lambda b: b.load(Buffer("z", float32, 8), 0), "a buffer must belong to the function, got z"),
        (lambda b: b.copy(b.x, 0, b.y, 0, 1), "a buffer must be in written, got x"),
        (lambda b: b.copy(b.y, 0, b.scratch("s", float64, 8), 0, 1), "a copy must keep the dtype"),
        (lambda b: b.put(matmul(b, b.x, b.x, b.x)), "a buffer must be in written, got x"),
        (
            lambda b: b.put(matmul(b, b.x, b.x, b.scratch("s", int64, 8))),
            "matrices must be of one dtype of f16, bf16, f32, f64, c64, c128, got f32, f32, i64",
        ),
        (lambda b: b.scratch("s", float64, named_size("n")), "scratch must be the function's own"),
    ],
)
def test_buffers_are_checked(write: Callable[[Writer], None], message: str) -> None:
    check(write, message)


def test_reuses_are_checked() -> None:
    b = Writer()
    for pair in ((1, 0), (0, 0), (0, 2)):
        with pytest.raises(GraphError, match="no two parameters can be one memory"):
            verify_function(b.function("f", written=[b.y], reuses=[pair]))
    verify_function(b.function("f", written=[b.y], reuses=[(0, 1)]))


def test_parameters_are_checked() -> None:
    x = Buffer("x", float32, named_size("n"))
    with pytest.raises(GraphError, match="a size must be given or bound before, got n"):
        verify_function(Function("f", (x,), (), Block()))
    with pytest.raises(GraphError, match="buffers must be distinct"):
        verify_function(Function("f", (x, x), ("n",), Block()))
    with pytest.raises(GraphError, match="what is written must be a parameter, got x"):
        verify_function(Function("f", (), (), Block(), frozenset({x})))


# Loops


def in_vector(write: Callable[[Writer, Index], Any]) -> Callable[[Writer], None]:
    def written(b: Writer) -> None:
        b.outer = b.local(0.0, float32)  # type: ignore[attr-defined]
        with b.vector(8) as i:
            write(b, i)

    return written


def nested_vectors(b: Writer, i: Index) -> None:
    with b.vector(2):
        pass


def varying_bound(b: Writer, i: Index) -> None:
    with b.loop(i):
        pass


def varying_branch(b: Writer, i: Index) -> None:
    with b.if_(b.lt(b.load(b.x, i), 0.0)):
        pass


def varying_while(b: Writer, i: Index) -> None:
    own = b.local(0, int64)
    with b.while_(lambda: b.lt(b.get(own), 3)):
        pass


def two_instructions(b: Any, i: Index) -> None:
    b.accumulate(b.outer, "add", b.load(b.x, i))
    b.accumulate(b.outer, "max", b.load(b.x, i))


def read_of_what_is_accumulated(b: Any, i: Index) -> None:
    b.get(b.outer)
    with b.loop(2):
        b.accumulate(b.outer, "add", b.load(b.x, i))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (nested_vectors, "a vector loop must not stand in another one"),
        (varying_bound, "bounds of a loop must be the same for all lanes"),
        (varying_branch, "a condition must be the same for all lanes"),
        (varying_while, "a condition must be the same for all lanes"),
        (two_instructions, "v1 must be accumulated by one instruction, got add and max"),
        (
            read_of_what_is_accumulated,
            "a local that a vector loop accumulates must not be read in it, got v1",
        ),
        (lambda b, i: b.set(b.outer, 1.0), "a vector loop must set locals of its own alone, got v1"),
        (lambda b, i: b.copy(b.y, 0, b.x, 0, 1), "Copy must not stand in a vector loop"),
        (lambda b, i: b.put(ir.Leave()), "Leave must not stand in a vector loop"),
    ],
)
def test_vector_loops_are_checked(write: Callable[[Writer, Index], Any], message: str) -> None:
    check(in_vector(write), message)


def test_vector_loop_may_branch_where_all_lanes_agree() -> None:
    b = Writer()
    with b.loop(2) as row, b.vector(4) as i:
        own = b.local(0.0, float32)
        with b.if_(b.lt(b.load(b.x, row), 0.0)), b.loop(row + 1):
            b.accumulate(own, "add", b.load(b.x, i))
            b.set(own, b.get(own))
        b.store(b.y, row * 4 + i, b.get(own))
    b.verify()


def parallel_first(b: Writer) -> None:
    with b.parallel(2):
        pass
    b.load(b.x, 0)


def parallel_inside(b: Writer) -> None:
    with b.loop(2), b.parallel(2):
        pass


def parallel_after_store(b: Writer) -> None:
    with b.loop(2):
        b.store(b.y, 0, 1.0)
    with b.parallel(2):
        pass


def parallel_sum(b: Writer) -> None:
    total = b.local(0.0, float32)
    with b.parallel(2), b.vector(2) as i:
        b.accumulate(total, "add", b.load(b.x, i))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (parallel_first, "a parallel loop must be the last statement of its function"),
        (parallel_inside, "a parallel loop must be the last statement of its function"),
        (parallel_after_store, "`store y[0] = f32(1.0)`: what stands before a parallel loop must not write"),
        (parallel_sum, "a parallel loop must change locals of its own alone, got v1"),
        (lambda b: b.put(ir.Loop(Variable("i"), ZERO, ZERO, Block(), "wide")), "got 'wide'"),
        (
            lambda b: b.put(ir.Loop(Variable("i"), ZERO, ZERO, Block(), "serial", 4)),
            "no loop of its kind has 4 lanes",
        ),
        (lambda b: b.put(ir.Loop(Variable("i", 1, ONE), ZERO, ZERO, Block())), "must have no value, got i"),
        (lambda b: b.put(ONE), "a statement must be one of weft.loop.ir, got Const"),
    ],
)
def test_other_loops_are_checked(write: Callable[[Writer], None], message: str) -> None:
    check(write, message)


def test_scratch_may_be_filled_before_a_parallel_loop() -> None:
    b = Writer()
    own = b.scratch("own", float32, 4)
    b.store(own, 0, 1.0)
    with b.parallel(2) as i:
        b.store(b.y, i, b.load(own, 0))
    b.verify()


# Programs


def with_main(whole: Program, *statements: Any) -> Program:
    main = whole.main
    return replace(whole, main=replace(main, body=Block([*main.body.statements, *statements])))


def launch(whole: Program, n: int = 4, **changes: Any) -> ir.Launch:
    first = whole.main.body.statements[0]
    assert isinstance(first, ir.Launch)
    return replace(first, **{"buffers": first.buffers[:n], **changes})


X = Buffer("p", float32, 4)
CALLS_BACK = Function("g", (), (), Block([ir.Leave()]))
SIZED = Function("g", (), ("k",), Block())
LARGE = Function("g", (Buffer("p", complex64, 9),), (), Block())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: replace(p, inputs=2), "buffers must be 2 inputs, 2 outputs and 3 constants, got 6"),
        (lambda p: replace(p, constants=(np.zeros(8), *p.constants[1:])), "a constant must be as its buffer"),
        (lambda p: replace(p, arena={X: 2}), "a buffer must be aligned in the arena"),
        (lambda p: replace(p, arena={X: 64}, arena_size=68), "a buffer must be inside the arena"),
        (lambda p: replace(p, arena={p.main.buffers[0]: 0}), "a buffer must be in one place"),
        (
            lambda p: replace(p, arena_size=named_size("k")),
            "sizes in the arena must be given to the program, got k",
        ),
        (lambda p: replace(p, donated=((0, 5),)), "donated must be pairs of an input and an output"),
        (lambda p: replace(p, donated=((0, 1),)), "a donated input must be as its output"),
        (lambda p: replace(p, failures=()), "the number of a failure must be in the table"),
        (lambda p: replace(p, hosts=()), "the number of a host call must be in the table, got 0"),
        (lambda p: replace(p, heap=()), "a buffer must be in the heap of the program"),
        (
            lambda p: with_main(p, ir.Free(p.main.buffers[1])),
            "a buffer must be in the heap of the program, got y",
        ),
        (lambda p: with_main(p, launch(p, 3)), "kernel must be given 4 buffers, got 3"),
        (
            lambda p: with_main(p, launch(p, buffers=((p.main.buffers[2], ZERO),) * 4)),
            "a buffer of its dtype",
        ),
        (lambda p: with_main(p, ir.Launch(SIZED, ())), "sizes of g must be known, got k"),
        (
            lambda p: with_main(p, ir.Launch(LARGE, ((p.main.buffers[2], ZERO),))),
            "must be inside what it is given",
        ),
        (
            lambda p: with_main(p, ir.Launch(CALLS_BACK, ())),
            "g: `leave`: Leave must stand in the main function",
        ),
        (lambda p: with_main(p, ir.Bind("k", ONE)), "the value of a size must be i64, got f32"),
        (
            lambda p: with_main(p, ir.Host(0, ((p.main.buffers[2], ZERO),), ((p.main.buffers[1], ZERO),))),
            "a host call must be given f32, got c64",
        ),
        (
            lambda p: with_main(p, ir.Loop(Variable("i"), ZERO, ZERO, Block(), "parallel")),
            "a parallel loop must be in a launched function",
        ),
    ],
)
def test_programs_are_checked(change: Callable[[Program], Program], message: str) -> None:
    with pytest.raises(GraphError) as caught:
        verify_program(change(program()))
    assert message in caught.value.message


def test_launched_functions_are_verified_too() -> None:
    whole = program()
    wrong = Function("wrong", (), (), Block([Load(Buffer("z", float32, 1), ZERO, float32)]))
    with pytest.raises(GraphError, match=r"wrong: .*a buffer must belong to the function, got z"):
        verify_program(with_main(whole, ir.Launch(wrong, ())))

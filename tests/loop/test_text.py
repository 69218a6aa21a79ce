from __future__ import annotations

import numpy as np
import pytest

from tests.loop.everything import Copier, changed_copies, kernel, program
from weft.base.dtypes import float32, float64
from weft.base.sizes import named_size
from weft.errors import GraphError
from weft.loop.builder import Builder
from weft.loop.index import Index, Variable
from weft.loop.ir import Block, Buffer, Const, Declare, Function, If, Launch, Local, Loop, Scalar, Set, Store
from weft.loop.text import code_key, format_function, format_program, function_key

KERNEL = """\
function kernel(x: f32[8*n], written y: f32[8*n], flags: bool[8], at: i64[8]; n) {
  scratch work: f32[8]
  x may be y
  %0: i64 = measure 2*n
  for parallel i1 in 0..n {
    local v2: f32 = f32(0.0)
    for vector(4) i3 in 1..8 {
      %1: bool = load flags[i3]
      %2: f32 = load x[8*i1 + i3] if %1
      accumulate v2 = add(v2, %2)
      %3: f32 = mul(%2, f32(2.5))
      %4: bool = lt(i3, i64(7))
      store work[i3] = %3 if %4
    }
    %5: f32 = get v2
    %6: bool = lt(%5, f32(0.0))
    if %6 {
      store y[8*i1] = f32(0.0)
    } else {
      copy y[8*i1] = work[0] for 8
    }
    local v4: i64 = i64(0)
    while {
      %7: i64 = get v4
      %8: bool = lt(%7, i64(3))
      test %8
    } do {
      %9: i64 = get v4
      %10: i64 = load at[%9]
      %11: bool = lt(%0, %10)
      fail 1 if %11 with %10, i1
      %12: i64 = get v4
      %13: f32 = cast(%12)
      store y[8*i1 + %10] = %13
      %14: i64 = get v4
      %15: i64 = add(%14, i64(1))
      set v4 = %15
    }
  }
}"""

PROGRAM = """\
program of 1 inputs, 2 outputs, 3 constants {
  arena of 32*n+64 bytes
  at 64: t: f32[8*n]
  heap: heap: f32[m]
  input 0 may be output 0
  host 0: sort(f32[8*n], axis=0, descending=True) -> f32[8*n]
}

function main(x: f32[8*n], written y: f32[8*n], written z: c64[4], flags: bool[8], at: i64[8], w: c64[4]; n) {
  launch kernel(x, t, flags, at) cost 2.5
  wave {
    launch kernel(x, y, flags, at)
  }
  leave
  host 0(t) -> (y) sizes n
  host 0(t) -> (y) sizes n strides (1)
  bind m = 2*n
  allocate heap[m]
  copy heap[1] = t[0] for 3
  %0: f32 = load heap[2]
  store y[0] = %0
  free heap
  matmul z[0] += w[0] @ w[0].T, m=2, n=2, k=2, rows=(2, 2, 2)
  matmul z[0] = w[0].T @ w[0], m=2, n=2, k=2, rows=(2, 2, 2), batch=1, strides=(4, 4, 4)
}"""


def test_text_of_every_statement_of_a_kernel() -> None:
    assert format_function(kernel()) == KERNEL


def test_text_of_a_program_shows_memory_main_and_each_launched_function_once() -> None:
    text = format_program(program())
    assert text.startswith(PROGRAM + "\n\nfunction kernel(")
    assert text.count("function kernel(") == 1


def test_text_shows_where_arrays_begin_in_a_launch() -> None:
    b = Builder()
    x = b.buffer("x", float32, 64)
    f = Function("f", (Buffer("p", float32, 4),), (), Block())
    with b.loop(4) as i:
        b.add_statement(Launch(f, ((x, Index.of(16)),)))
        b.add_statement(Launch(f, ((x, i * 4 + 1),)))
    text = format_function(b.function("g", written=[]))
    assert "launch f(x+16)" in text
    assert "launch f(x+(4*i1 + 1))" in text


def test_text_keeps_two_objects_of_one_name_apart() -> None:
    b = Builder()
    x, other = b.buffer("x", float32, 1), b.buffer("x", float32, 1)
    b.store(x, 0, b.load(other, 0))
    text = format_function(b.function("f", written=[x]))
    assert "load x_2[0]" in text
    assert "store x[0]" in text


def test_text_shows_a_scalar_that_is_not_computed_as_unknown() -> None:
    y = Buffer("y", float32, 1)
    missing = Scalar("neg", (Const(np.float32(1), float32),), float32)
    function = Function("f", (y,), (), Block([Store(y, Index.of(0), missing)]), frozenset({y}))
    assert "store y[0] = %?" in format_function(function)
    with pytest.raises(GraphError, match="a value must be computed before it is used, got Scalar"):
        format_function(function, canonical=True)


@pytest.mark.parametrize(
    "statement",
    [
        Set(Local(float32, "v"), Const(np.float32(1), float32)),
        Store(Buffer("y", float32, 1), Index.of(Variable("i")), Const(np.float32(1), float32)),
    ],
)
def test_canonical_text_refuses_locals_and_variables_from_nowhere(statement: Set | Store) -> None:
    with pytest.raises(GraphError, match=r"computed before it is used, got [vi]"):
        format_function(Function("f", (), (), Block([statement])), canonical=True)


# Canonical text


def test_canonical_text_does_not_depend_on_names_or_the_order_of_terms() -> None:
    function = kernel()
    assert format_function(Copier().copy(function), canonical=True) == format_function(
        function, canonical=True
    )
    assert function_key(Copier().copy(function)) == function_key(function)
    whole = program()
    assert format_program(Copier().copy(whole), canonical=True) == format_program(whole, canonical=True)


def test_canonical_text_differs_under_each_single_change_of_a_function() -> None:
    function = kernel()
    text = format_function(function, canonical=True)
    texts = [(format_function(other, canonical=True), was) for other, was in changed_copies(function)]
    assert len(texts) > 80
    assert [was for other, was in texts if other == text] == []


def test_canonical_text_differs_under_each_single_change_of_a_program() -> None:
    whole = program()
    text = format_program(whole, canonical=True)
    texts = [(format_program(other, canonical=True), was) for other, was in changed_copies(whole)]
    assert [was for other, was in texts if other == text] == []


def test_canonical_text_tells_which_buffers_are_written() -> None:
    function = kernel()
    less = Function("f", function.buffers, function.sizes, function.body, frozenset(), function.scratch)
    more = Function("f", function.buffers, function.sizes, function.body, function.written, function.scratch)
    assert format_function(less, canonical=True) != format_function(more, canonical=True)


def sized(first: str, second: str, *, swap: bool = False) -> Function:
    b = Builder()
    n, m = named_size(first), named_size(second)
    y = b.buffer("y", float32, n * m + 1)
    with b.loop(n) as i, b.loop(m) as j:
        b.store(y, i * m + j, 1.0)
    return b.function("f", written=[y], sizes=(second, first) if swap else (first, second))


def test_canonical_text_numbers_sizes_by_their_place_among_the_parameters() -> None:
    text = format_function(sized("n", "m"), canonical=True)
    assert format_function(sized("a", "z"), canonical=True) == text
    assert format_function(sized("n1", "n0"), canonical=True) == text
    assert format_function(sized("n", "m", swap=True), canonical=True) != text


@pytest.mark.parametrize(
    ("x", "y"), [(0.0, -0.0), (1.0, np.nextafter(np.float32(1), np.float32(2))), (np.nan, np.inf)]
)
def test_canonical_text_keeps_constants_to_the_bit(x: float, y: float) -> None:
    def text(value: float) -> str:
        b = Builder()
        out = b.buffer("y", float32, 1)
        b.store(out, 0, value)
        return format_function(b.function("f", written=[out]), canonical=True)

    assert text(x) == text(x)
    assert text(x) != text(y)


def test_canonical_text_keeps_blocks_apart() -> None:
    y = Buffer("y", float32, 1)
    store = Store(y, Index.of(0), Const(np.float32(1), float32))
    condition = Const(np.bool_(True), np.dtype(bool))

    def text(*statements: If | Store | Loop) -> str:
        return format_function(Function("f", (y,), (), Block([*statements])), canonical=True)

    texts = [
        text(If(condition, Block([store]), Block())),
        text(If(condition, Block(), Block([store]))),
        text(If(condition, Block(), Block()), store),
        text(store, If(condition, Block(), Block())),
    ]
    assert len({*texts}) == len(texts)


def test_canonical_text_tells_two_locals_from_one() -> None:
    def text(same: bool) -> str:
        a = Local(float64, "a")
        b = a if same else Local(float64, "a")
        zero = Const(np.float64(0), float64)
        declares = [Declare(a, zero), Declare(Local(float64), zero) if same else Declare(b, zero)]
        return format_function(Function("f", (), (), Block([*declares, Set(b, zero)])), canonical=True)

    assert text(True) != text(False)


# The key of code


def blocks(count: int, size: int = 32, *, scratch: int = 8, computes: bool = False) -> Function:
    """A kernel that works on so many blocks."""
    b = Builder()
    x = b.buffer("x", float32, count * size)
    t = b.scratch("t", float32, scratch)
    with b.parallel(count) as k, b.vector(size) as i:
        b.store(t, 0, 1.0)
        b.store(x, k * size + i, b.cast(k * size + i, float32) if computes else 1.0)
    return b.function("f", written=[x])


def test_code_has_one_key_however_often_its_parallel_loop_runs() -> None:
    assert code_key(blocks(2)) == code_key(blocks(5))
    assert function_key(blocks(2)) != function_key(blocks(5))


def test_code_has_another_key_for_all_that_it_depends_on() -> None:
    assert code_key(blocks(2)) != code_key(blocks(2, 64))
    assert code_key(blocks(2)) != code_key(blocks(2, scratch=16))
    assert code_key(blocks(2, computes=True)) != code_key(blocks(5, computes=True))
    assert code_key(blocks(2, computes=True)) == code_key(blocks(2, computes=True))

"""Reading graph text: what people may write, and what is refused, with line and column."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.ir.random_graphs import graphs
from tests.of_code import examples
from weft.errors import ParseError
from weft.ir.interpret import interpret


def run(text: str, *arrays: Any) -> list[Any]:
    return interpret(weft.parse_graph(text), [np.asarray(a, np.float32) for a in arrays])


# What people may write


def test_text_written_by_hand_runs() -> None:
    text = """
    # a comment
    graph f(
        %x: f32[2],   # another
        param %w: f32[2],
    ) {

      %y: f32[2] = mul(
          %x,
          %w,
      )
      %z: f32[2] = add(%y, f32(1.0)); %0: f32[] = sum(%z, axes=(0,), keepdims=False)
      return %0, %y
    }
    """
    total, y = run(text, [1, 2], [3, 4])
    assert (float(total), y.tolist()) == (13.0, [3.0, 8.0])


def test_names_of_values_are_kept() -> None:
    graph = weft.parse_graph("graph f(%x: f32[2]) { %h: f32[2] = tanh(%x)\n return %h }")
    assert [v.name for v in (*graph.inputs, *graph.outputs)] == ["x", "h"]


def test_ops_of_modules_not_yet_imported_are_found() -> None:
    import subprocess
    import sys

    code = (
        "import weft\n"
        "g = weft.parse_graph('graph f(%x: f64[2,2]) { %0: f64[2,2] = matrix_exp(%x)\\n return %0 }')\n"
        "h = weft.parse_graph('graph f(%x: f32[2,2]) { %0: f32[2,2] = gelu(%x)\\n return %0 }')\n"
        "print(g.nodes[0].op.name, h.nodes[0].op.name)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["matrix_exp", "call"]


def test_equal_literals_are_one_constant() -> None:
    graph = weft.parse_graph("graph f() { %0: f32[] = add(f32(1.0), f32(1.0))\n return %0, f64(1.0) }")
    assert len(graph.constants) == 2


# What is refused


def wrong(text: str, constants: Any = None) -> str:
    with pytest.raises(ParseError) as caught:
        weft.parse_graph(text, constants=constants)
    assert caught.value.op == "parse_graph"
    return caught.value.message


def body(*lines: str, inputs: str = "%x: f32[2], %y: f32[3]") -> str:
    return "\n".join([f"graph f({inputs}) {{", *[f"  {line}" for line in lines], "}"])


SYNTAX = [
    ("", "line 1, column 1: expected 'graph', got the end of the text"),
    ("grph f()", "line 1, column 1: expected 'graph', got grph"),
    ("graph f(", "line 1, column 9: expected an input, such as %x: f32[2], got the end of the text"),
    ("graph f(x: f32[])", "line 1, column 9: expected one of the roles arg, param, weight, state, got x"),
    ("graph f(%x f32[])", "line 1, column 12: expected ':', got f32"),
    ("graph f(%x: g32[])", "line 1, column 13: expected a dtype, one of bool"),
    ("graph f(%x: f32[2)", "line 1, column 18: expected ',' or ']', got )"),
    ("graph f() { return", "line 1, column 19: expected the end of the line, got the end of the text"),
    ("graph f() { return } x", "line 1, column 22: expected the end of the text, got x"),
    ("graph f() { return\n return }", "line 2, column 2: expected '}' after return, got return"),
    ("graph f() { }", "line 1, column 13: f must end with return"),
    (body("%0: f32[2] = tanh(%x"), "line 3, column 1: expected ',' or ')', got }"),
    (body("%0: f32[2] tanh(%x)"), "line 2, column 14: expected '=', got tanh"),
    (body("%0: f32[2] = (%x)"), "line 2, column 16: expected the name of an op, got ("),
    (body('%0: f32[2] = tanh(%x, a="b)'), "line 2, column 27: a string must end on its line"),
    (
        body(r'%0: f32[2] = tanh(%x, a="\q")'),
        "line 2, column 27: a string must be written with JSON's escapes",
    ),
    (body("%0: f32[2] = tanh(%x, a=(1))"), "line 2, column 29: a tuple of one item needs a comma after it"),
    (body("%0: f32[2] = tanh(%x, a=)"), "line 2, column 27: expected a literal or a value, got )"),
    (body("%0: f32[2] = tanh(%x, a=1, a=1)", "return"), "line 2, column 30: an attribute must be given once"),
    (body("%0: f32[2] = tanh(%x) @ model"), "line 2, column 32: expected ':', got the end of the line"),
    (body("%0: f32[2] = tanh(%x) extra"), "line 2, column 25: expected the end of the line, got extra"),
    (body("const x"), "line 2, column 9: expected the name of a constant, such as $c0, got x"),
    (body("return f32[2](1.0)"), "an array of the shape [2] must have 2 elements, got 1"),
    (body("return i8(300)"), "line 2, column 13: expected a number of int8, got 300"),
    (body("return i8(1.5)"), "expected a number of int8, got 1.5"),
    (body("return f32(1.0+2.0j)"), "expected a number of float32, got 1.0+2.0j"),
    (body("return f32(nan(0x1))"), "expected a number of float32, got nan(0x1)"),
    (body("return bool(1)"), "expected True or False, got 1"),
    (body("return f32[n](1.0)"), "an array must have known sizes"),
    (
        body("return f32[9999999](1.0, ...)"),
        "an array that is written out must have at most 1048576 elements",
    ),
    (body("return f32[3](1.0, 2.0, ...)"), "'...' must follow one element, which then is every element"),
    (body("return f32[3](..., 2.0)"), "'...' must follow one element, which then is every element"),
    (body("return 1.0"), "expected a value, such as %0 or f32(1.0)"),
]


@pytest.mark.parametrize(("text", "message"), SYNTAX, ids=map(str, range(len(SYNTAX))))
def test_wrong_text_is_named_by_line_and_column(text: str, message: str) -> None:
    assert message in wrong(text)


MEANING = [
    (body("%0: f32[2] = tnh(%x)", "return %0"), "line 2, column 16: the op must be known, got tnh"),
    (body("%0: f32[2] = tanh(%z)", "return %0"), "line 2, column 21: %z is not made in f"),
    (body("%0: f32[2] = tanh($c0)", "return %0"), "line 2, column 21: $c0 is not made in f"),
    (body("%0: f32[2] = tanh(%x, %x)", "return %0"), "line 2, column 16: tanh takes 1 operands, got 2"),
    (
        body("%0: f32[2] = tanh(%x, 1)", "return %0"),
        "expected operands first, then attributes as name=literal",
    ),
    (body("%0: f32[2] = tanh(%x, a=%x)", "return %0"), "an attribute must be a literal, got a value"),
    (body("%0: f32[2] = add(%x, %y)", "return %0"), "line 2, column 3: add: shapes must broadcast together"),
    (body("%0: f32[3] = tanh(%x)", "return %0"), "tanh: types must be f32[2], got f32[3]"),
    (body("%0: f64[2] = tanh(%x)", "return %0"), "tanh: types must be f32[2], got f64[2]"),
    (body("%0: f32[2], %1: f32[2] = tanh(%x)", "return"), "tanh: types must be f32[2], got f32[2], f32[2]"),
    (body("%0: f32[2] = tanh(%x, a=1)", "return"), "unexpected keyword argument 'a'"),
    (
        body("%0: f32[] = sum(%x, keepdims=True)", "return"),
        "sum: attributes must be complete, got none for axes",
    ),
    (body("%0: f32[] = sum(%x, axes=(7,), keepdims=False)", "return"), "line 2, column 3: sum:"),
    (body("%0: f32[] = sum(%x, axes=None, keepdims=3.5)", "return"), "line 2, column 3: sum:"),
    (
        body("%0: f32[2] = tanh(%x)", "%0: f32[2] = tanh(%x)", "return"),
        "a value must be made once, got %0 again",
    ),
    (body("%x: f32[2] = tanh(%x)", "return"), "line 2, column 3: a value must be made once, got %x again"),
    (body("return", inputs="%x: f32[], %x: f32[]"), "a value must be made once, got %x again"),
    (body("return", inputs="%x: f32[], %x~2: f32[]"), "names of inputs must be unique, got 'x' twice"),
    (body("%0: f32[2] = tanh(%1)", "%1: f32[2] = tanh(%x)", "return"), "must be made before it is used"),
    (
        body("update %x = %y", "return"),
        "only inputs that are state can be updated, got %x: f32[2], which is arg",
    ),
    (
        body("update %x = %y", "return", inputs="state %x: f32[2], %y: f32[3]"),
        "an update must be of the type of",
    ),
    (body("update %x = %y", "update %x = %y", "return", inputs="state %x: f32[], %y: f32[]"), "updated once"),
    (body("%0: f32[2] = gelu(%x, approximate=3)", "return"), "gelu: arguments must fit it"),
    (body("%0: f32[2] = gelu(%x, nothing=3)", "return"), "gelu: arguments must fit it"),
    (body("%0: f32[2] = gelu()", "return"), "gelu: arguments must fit it, got operands of the types none"),
    (body("%0: f32[3] = gelu(%x)", "return"), "line 2, column 3: call: types must be f32[2], got f32[3]"),
    (body("%0: f32[2] = gelu(%x) keep (99,)", "return"), "gelu: arguments must fit it"),
    (body("%0: f32[2] = gelu(%x) keep (-1,)", "return"), "gelu: arguments must fit it"),
    (body("%0: f32[2] = tanh(%x) keep (0,)", "return"), "only calls have 'uses', 'only' and 'keep'"),
    (body("%0: f32[2] = call f(%x)", "return"), "a call must have one region, its body, got f without"),
    (body("const $c0: f32[9]", "return"), "line 2, column 9: no data for the constant c0"),
    (
        body("%0: f32[2] = cond(bool(True), %x)", "return"),
        "attributes must be complete, got none for branches",
    ),
    (
        body("%0: f32[2] = cond(bool(True), %x) {", "branches[1](%0: f32[2]) { return %0 }", "}", "return"),
        "regions must be numbered from 0 on, got branches[1]",
    ),
    (
        body("%0: f32[2] = call f(%x) { body(%0: f32[2]) { return %x } }", "return"),
        "line 2, column 55: %x is not made in f",
    ),
    (
        body("%0: f32[2] = call f(%x) { body(%0: f32[3]) { return %0 } }", "return"),
        "operands must be of the types f32[3], got f32[2]",
    ),
]


@pytest.mark.parametrize(("text", "message"), MEANING, ids=map(str, range(len(MEANING))))
def test_text_that_is_no_graph_is_refused(text: str, message: str) -> None:
    assert message in wrong(text)


def test_cycle_is_named_with_its_nodes() -> None:
    text = body("%0: f32[2] = add(%x, %1)", "%1: f32[2] = tanh(%0)", "return %1")
    assert "nodes must not form a cycle, got add (node 0) <- tanh (node 1) <- add (node 0)" in wrong(text)


def test_close_name_of_an_op_is_suggested() -> None:
    with pytest.raises(ParseError) as caught:
        weft.parse_graph(body("%0: f32[2] = matmull(%x)", "return"))
    assert caught.value.hint == "did you mean matmul?"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([1.0] * 9, "the constant c0 must be an array, got list"),
        (np.zeros(9), "the constant c0 must be of the type f32[9], got float64[9]"),
        (np.zeros(8, np.float32), "the constant c0 must be of the type f32[9], got float32[8]"),
    ],
)
def test_data_of_a_constant_must_fit(data: Any, message: str) -> None:
    assert message in wrong(body("const $c0: f32[9]", "return"), {"c0": data})


def test_only_text_is_read() -> None:
    with pytest.raises(ParseError, match="takes text, got bytes"):
        weft.parse_graph(b"graph f() { return }")  # type: ignore[arg-type]


# Hostile text


HOSTILE = [
    "(" * 100_000,
    body("%0: f32[2] = tanh(%x, a=" + "(" * 10_000 + ")" * 10_000 + ")", "return"),
    body("%0: f32[2] = tanh(%x, a=" + "9" * 100_000 + ")", "return"),
    body("%0: f32[2] = tanh(%x, a=1e" + "9" * 1000 + ")", "return"),
    "graph f(%x: f32[" + "(" * 10_000 + "]",
    "graph f(%x: f32[" + "*".join(["(a+b+c+d+e+f+g+h)"] * 5_000) + "]) { return }",
    "graph f(%x: f32[" + ",".join(["2"] * 10_000) + "]) { return }",
    "graph f(%x: f32[1//0]) { return }",
    "graph f(%x: f32[-5]) { return }",
    "graph f(%x: f32[" + "-" * 5_000 + "n]) { return }",
    "graph f() { " * 50_000,
    body("%0: f32[2] = call f() { body() { " * 5_000, "return"),
    body("return f32[99999999999999]()"),
    body("%0: f32[2] = gelu(%x) keep (" + "9" * 300 + ",)", "return"),
    body("%0: f32[2] = tanh(%x) @ model.py:" + "9" * 5_000, "return"),
    body("%0: f32[2] = tanh(%x)\x00", "return"),
    body("%0: f32[2] = __import__(%x)", "return"),
    body("%0: f32[2] = os.system(%x)", "return"),
    body("%0: f32[2] = tanh(%x, a=__import__('os'))", "return"),
    "graph f(%x: f32[100000000,100000000]) { %0: f32[100000000,100000000] = tril(%x)\n return }",
    "graph f(%x: i64[3]) { %0: f32[3,99999999999] = one_hot(%x, num_classes=99999999999)\n return }",
    "graph f(%x: f32[3,3]) { %0: f32[3,3] = matrix_power(%x, n=99999999999999)\n return }",
    "graph f(%x: f32[3]) { %0: f32[3] = operand(9)\n return }",
    "graph f(%x: f32[3]) { %0: f32[3] = gelu(operand(9))\n return }",
    "graph f(%x: f32[3]) { %0: f32[3] = call(%x, function=1, arguments=2, body=3)\n return %0 }",
    "graph f() { call(function=1, arguments=()) { body() { return } }\n return }",
    "graph f() { call(function=\"f\", arguments=((\"x\", operand(5)),)) { body() { return } }\n return }",
    "graph f() { call(function=\"f\", arguments=(3,)) { body() { return } }\n return }",
    "graph f(%x: f32[3]) { %0: f32[3] = cond(%x, branches=3)\n return %0 }",
    "graph f(%x: f32[3]) { %0: f32[3] = scan(%x, body=1, carries=99, mapped=-1, length=None) }",
    "files {",
    "files {\n",
    "graph f() { return }\nfiles {\n  a = 3\n}",
    "graph f() { return }\nfiles { a = \"b\" } more",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=map(str, range(len(HOSTILE))))
def test_hostile_text_is_refused_at_once(text: str) -> None:
    start = time.perf_counter()
    wrong(text)
    assert time.perf_counter() - start < 2.0


@given(graphs(max_nodes=6), st.data())
@examples(150, 50)
def test_damaged_text_is_a_graph_or_a_parse_error(graph: Any, data: Any) -> None:
    text, constants = graph.to_text(), graph.constant_data()
    at = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(at, min(len(text), at + 8)))
    insert = data.draw(st.sampled_from([*'%(){},0-n"\n@=', "", "f32[2]"]))
    with suppress(ParseError):  # any other error fails the test
        weft.parse_graph(text[:at] + insert + text[end:], constants=constants)

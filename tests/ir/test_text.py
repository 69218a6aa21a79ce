"""Graph text: what it looks like, and that nothing is lost in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from tests.ir.random_graphs import F32, F64, I64, Builder
from weft.base.dtypes import DTYPES, bfloat16
from weft.base.sizes import named_size
from weft.ir.compare import same_literal
from weft.ir.graph import Graph, Node, Operand, Value
from weft.ir.literals import format_array, format_literal
from weft.ir.location import Location
from weft.ir.reader import Reader
from weft.ir.text import format_graph
from weft.ir.types import TensorType
from weft.ops.effects import Place
from weft.ops.table import find_op
from weft.transform.tracing import trace_graph

X = TensorType((2, 3), F32)


def read_back(graph: Graph, **options: Any) -> Graph:
    again = weft.parse_graph(graph.to_text(**options), constants=graph.constant_data(**options))
    assert graph.difference(again) is None
    return again


def traced(function: Any, *types: TensorType) -> Graph:
    return trace_graph(function, types, "f", [f"x{i}" for i in range(len(types))])[0]


# What it looks like


def test_text_is_typed_and_densely_numbered() -> None:
    b = Builder()
    x, w = b.input(X, "x"), b.input(TensorType((3, 4), F32), "w", "param")
    h = b.emit("tanh", b.emit("matmul", x, w))
    out = b.emit("sum", b.emit("mul", h, b.constant(np.float32(2.0)[...])), axes=(1,), keepdims=False)
    assert format_graph(b.graph([out])) == (
        "graph f(%x: f32[2,3], param %w: f32[3,4]) {\n"
        "  %0: f32[2,4] = matmul(%x, %w)\n"
        "  %1: f32[2,4] = tanh(%0)\n"
        "  %2: f32[2,4] = mul(%1, f32(2.0))\n"
        "  %3: f32[2] = sum(%2, axes=(1,))\n"
        "  return %3\n"
        "}"
    )


def test_state_shows_its_update() -> None:
    b = Builder("step")
    m, x = b.input(X, "m", "state"), b.input(X, "x")
    graph = b.graph([], [(m, b.emit("add", m, x))])
    assert format_graph(graph) == (
        "graph step(state %m: f32[2,3], %x: f32[2,3]) {\n"
        "  %0: f32[2,3] = add(%m, %x)\n"
        "  update %m = %0\n"
        "  return\n"
        "}"
    )
    read_back(graph)


def test_many_inputs_stand_on_lines_of_their_own() -> None:
    b = Builder()
    values = [b.input(X, f"a_rather_long_name_{i}") for i in range(5)]
    graph = b.graph([values[0]])
    assert str(graph).splitlines()[:3] == [
        "graph f(",
        "    %a_rather_long_name_0: f32[2,3],",
        "    %a_rather_long_name_1: f32[2,3],",
    ]
    read_back(graph)


def test_small_constants_are_written_out_and_large_ones_named() -> None:
    b = Builder()
    x = b.input(TensorType((9,), F32), "x")
    b.emit("add", x, b.constant(np.arange(9, dtype=np.float32)))
    b.emit("add", x, b.constant(np.arange(9, dtype=np.float32), "table"))
    y = b.emit("add", b.constant(np.arange(2)), b.constant(np.asarray(3), "three"))
    graph = b.graph([y])
    assert str(graph) == (
        "graph f(%x: f32[9]) {\n"
        "  const $c0: f32[9]\n"
        "  const $table: f32[9]\n"
        "  const $three = i64(3)\n"
        "  %0: f32[9] = add(%x, $c0)\n"
        "  %1: f32[9] = add(%x, $table)\n"
        "  %2: i64[2] = add(i64[2](0, 1), $three)\n"
        "  return %2\n"
        "}"
    )
    assert list(graph.constant_data()) == ["c0", "table"]
    read_back(graph)


def test_constants_of_one_number_are_written_out() -> None:
    b = Builder()
    x = b.input(TensorType((3, 4), F32), "x")
    for array in (np.ones((3, 4)), np.full(12, np.nan), np.broadcast_to(2.0, (3, 4)), np.zeros((3, 4))):
        b.emit("add", x, b.constant(array.astype(np.float32).reshape(3, 4)))
    signs = np.zeros((3, 4), np.float32)
    signs[1, 1] = -0.0
    graph = b.graph([b.emit("add", x, b.constant(signs))])
    assert "add(%x, f32[3,4](1.0, ...))" in str(graph)
    assert list(graph.constant_data()) == ["c0"]
    read_back(graph)


def test_regions_are_nested_blocks_named_by_their_attributes() -> None:
    b = Builder()
    p, x = b.input(TensorType((), np.dtype(bool)), "p"), b.input(X, "x")
    yes, no = Builder("branches"), Builder("double")
    outs = [no.emit("add", v, v) for v in [no.input(X)]]
    graph = b.graph(b.emit("cond", p, x, branches=(yes.graph([yes.input(X, "y")]), no.graph(outs))))
    assert str(graph) == (
        "graph f(%p: bool[], %x: f32[2,3]) {\n"
        "  %0: f32[2,3] = cond(%p, %x) {\n"
        "    branches[0](%y: f32[2,3]) {\n"
        "      return %y\n"
        "    }\n"
        "    branches[1] double(%0: f32[2,3]) {\n"
        "      %1: f32[2,3] = add(%0, %0)\n"
        "      return %1\n"
        "    }\n"
        "  }\n"
        "  return %0\n"
        "}"
    )
    read_back(graph)


def test_named_sizes_stand_in_types_and_attributes() -> None:
    n = named_size("batch")
    b = Builder()
    x = b.input(TensorType((n, 4), F32), "x")
    y = b.emit("reshape", b.emit("concat", x, x, axis=0), shape=(8 * n,))
    z = b.emit("slice", y, starts=(0,), stops=(n // 2,), steps=(1,))
    w = b.emit("broadcast_to", b.emit("sum", z, axes=(0,), keepdims=False), shape=(2 * n + 1,))
    graph = b.graph([y, z, w])
    text = str(graph)
    assert "%0: f32[2*batch,4] = concat(%x, %x, axis=0)" in text
    assert "reshape(%0, shape=(8*batch,))" in text
    assert "f32[2*batch+1] = broadcast_to(%3, shape=(2*batch+1,))" in text
    read_back(graph)


# Locations


def test_locations_are_aligned_and_show_the_base_name() -> None:
    b = Builder()
    x = b.input(X, "x")
    here = Location("/home/me/model.py", 12, "forward", "encoder.layers.3")
    y = b.emit("tanh", x, location=here)
    b.emit("reshape", y, shape=(6,), location=here._replace(line=13, module="", phase="backward"))
    graph = b.graph([y])
    assert str(graph).splitlines()[1:3] == [
        "  %0: f32[2,3] = tanh(%x)               @ model.py:12 (encoder.layers.3)",
        "  %1: f32[6] = reshape(%0, shape=(6,))  @ model.py:13 backward",
    ]
    assert "@" not in format_graph(graph, locations=False)
    assert weft.parse_graph(graph.to_text(locations=False)).nodes[0].location is None


PLACES = [
    Location("/a/model.py", 1, "forward", "encoder.layers.3.attn", "backward"),
    Location("/b/model.py", 2, "<lambda>"),
    Location("/b/my model.py", 3, "f", "", "backward"),
    Location("<stdin>", 4, "<module>"),
    Location("<doctest graphs.md[3]>", 5, "f", 'a "quoted" path'),
    Location('C:\\code\\"odd"\n.py', 6, "f g", "m", "a phase"),
    Location("", 7),
    Location("/b/model.py~2", 8, "in"),
    Location("model.py", 9, "größe", "käse.0"),
]


def test_every_part_of_a_location_is_kept() -> None:
    b = Builder()
    x = b.input(X, "x")
    for place in PLACES:
        b.emit("tanh", x, location=place)
    graph = read_back(b.graph([x]))
    assert [node.location for node in graph.nodes] == PLACES


def test_location_of_a_node_with_regions_is_kept() -> None:
    b = Builder()
    p, x = b.input(TensorType((), np.dtype(bool))), b.input(X)
    region = Builder("branches")
    same = region.graph([region.input(X)])
    graph = b.graph(b.emit("cond", p, x, branches=(same, same), location=PLACES[0]))
    assert read_back(graph).nodes[0].location == PLACES[0]


# Names


def test_odd_and_repeated_names_are_kept() -> None:
    b = Builder("a graph, (odd) name")
    names = ["x", "layers.0.weight", "a b", '"', "%", "3", "$c0", "größe", "x:f32", "~", "x~2"]
    values = [b.input(X, name) for name in names]
    node = Node(find_op("tanh"), [values[0]], {}, [Value(X, "x")])
    again = Value(X, "x")
    b.nodes += [node, Node(find_op("tanh"), [node.outputs[0]], {}, [again])]
    for name in ("c0", "table", "a b", "x"):
        b.emit("add", again, b.constant(np.zeros((2, 3), np.float32), name))
        b.emit("add", again, b.constant(np.zeros((9, 2, 3), np.float32), name))
    graph = read_back(b.graph([again, *values]))
    assert [v.name for v in graph.inputs] == names
    assert graph.name == "a graph, (odd) name"


# Literals


LITERALS = [
    0, -1, 2**70, True, False, None, 0.0, -0.0, 1.5, 1e300, 5e-324, float("inf"), float("-inf"), float("nan"),
    0j, 1 + 2j, complex(-0.0, -0.0), complex(float("nan"), float("-inf")), complex(1e-30, 2e30),
    "", "tanh", 'a "b"\n\\ é \u2028 \U0001f600', "\ud800", b"", b"\x00\xff\"",
    (), (1,), (1, (2.0, "x"), ((),)),
    np.dtype("float32"), bfloat16, np.dtype(bool), Operand(3),
    named_size("n"), 2 * named_size("n") + 1, -named_size("n") + 7, (named_size("n") + 1) // 2,
    named_size("f32"), named_size("inf"), named_size("size"),
    named_size("n") * named_size("m") - 3, (named_size("n") * 3,),
]  # fmt: skip


@pytest.mark.parametrize("literal", LITERALS, ids=map(str, range(len(LITERALS))))
def test_attributes_are_kept_exactly(literal: Any) -> None:
    for written in (literal, (literal, 1)):
        reader = Reader(format_literal(written) + ")")
        assert same_literal(reader.literal(), written)
        assert reader.peek(")")


@given(st.sampled_from(DTYPES), st.lists(st.integers(0, 2**128 - 1), min_size=1, max_size=5))
@settings(max_examples=300)
def test_numbers_of_every_dtype_are_kept_bit_by_bit(dtype: Any, bits: list[int]) -> None:
    data = b"".join((b % 2 ** (8 * dtype.itemsize)).to_bytes(dtype.itemsize, "little") for b in bits)
    array = np.frombuffer(data, dtype) if dtype.kind != "b" else np.asarray([b % 2 == 1 for b in bits])
    again = weft.parse_graph(f"graph f() {{\n  return {format_array(array)}\n}}")
    (kept,) = again.constants.values()
    assert kept.dtype == dtype
    assert kept.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.float32(0.1), "f32(0.1)"),
        (np.float32(1e10), "f32(1e+10)"),
        (np.asarray(3.0, bfloat16), "bf16(3.0)"),
        (np.asarray([np.nan, -np.inf, -0.0]), "f64[3](nan, -inf, -0.0)"),
        (np.complex64(complex(-0.0, np.nan)), "c64(-0.0+nanj)"),
        (np.asarray([2**64 - 1, 1], np.uint64), "u64[2](18446744073709551615, 1)"),
        (np.zeros((0, 3)), "f64[0,3]()"),
        (np.asarray([[True, False]]), "bool[1,2](True, False)"),
        (np.full((3, 4), -0.0, np.float16), "f16[3,4](-0.0, ...)"),
    ],
)
def test_arrays_are_written_like_this(array: Any, text: str) -> None:
    assert format_array(np.asarray(array)) == text


# Calls


def test_composite_is_one_line_until_expanded() -> None:
    graph = traced(lambda x: weft.gelu(x, approximate="tanh"), X)
    assert graph.to_text(locations=False) == (
        "graph f(%x0: f32[2,3]) {\n"
        '  %0: f32[2,3] = gelu(%x0, approximate="tanh")\n'
        "  return %0\n"
        "}\n"
    )  # fmt: skip
    assert "call gelu(x=%x0" in graph.to_text(expand=True)
    read_back(graph)
    read_back(graph, expand=True)


def test_tensors_in_keywords_are_shown_by_name() -> None:
    y = TensorType((2,), I64)
    graph = traced(lambda x, t, w: weft.cross_entropy(x, t, weight=w), X, y, TensorType((3,), F32))
    assert "cross_entropy(%x0, %x1, weight=%x2)" in str(graph)
    read_back(graph)


def test_tensors_in_a_list_are_shown_in_a_tuple() -> None:
    graph = traced(lambda x, y: weft.stack([x, y], axis=1) + weft.einsum("ij,ik->ijk", x, y)[:, :2], X, X)
    assert "stack((%x0, %x1), axis=1)" in str(graph)
    assert 'einsum("ij,ik->ijk", %x0, %x1)' in str(graph)
    read_back(graph)


def test_arguments_as_by_default_are_not_shown() -> None:
    w = TensorType((3,), F32)
    graph = traced(lambda x, w: weft.layer_norm(x, (3,), w, None, eps=1e-5), X, w)
    assert "layer_norm(%x0, normalized_shape=(3,), weight=%x1)" in str(graph)
    read_back(graph)


def test_attention_is_one_line() -> None:
    q = TensorType((2, 4, 8), F32)
    graph = traced(lambda q, k, v: weft.scaled_dot_product_attention(q, k, v, is_causal=True), q, q, q)
    assert "scaled_dot_product_attention(%x0, %x1, %x2, is_causal=True)" in str(graph)
    read_back(graph)


def test_one_tensor_given_twice_is_one_operand() -> None:
    graph = traced(lambda x: weft.functional.cosine_similarity(x, x), X)
    assert "cosine_similarity(%x0, %x0)" in str(graph)
    read_back(graph)


def test_what_the_gradient_needs_from_inside_is_kept() -> None:
    def step(x: Any) -> Any:
        return weft.value_and_grad(lambda x: weft.gelu(x).sum())(x)

    graph = traced(step, X)
    assert "= gelu(%x0) keep (0,)" in str(graph)
    read_back(graph)


def test_only_the_results_that_are_used_are_given() -> None:
    graph = traced(lambda x: weft.linalg.slogdet(x)[1] + weft.std(x), TensorType((3, 3), F64))
    read_back(graph)
    both = traced(lambda x: weft.unstack(weft.softmin(x), axis=0)[1], X)
    read_back(both)


def test_changed_body_of_a_composite_is_shown() -> None:
    graph = traced(lambda x: weft.gelu(x), X)
    (node,) = graph.nodes
    body = node.attrs["body"]
    swapped = [Node(find_op("maximum"), n.inputs, n.attrs, n.outputs, n.location) if n.op.name == "mul" else n
               for n in body.nodes]  # fmt: skip
    attrs = {**node.attrs, "body": body.replace(nodes=swapped)}
    changed = graph.replace(nodes=[Node(node.op, node.inputs, attrs, node.outputs, node.location)])
    assert "call gelu(x=%x0) {" in str(changed)
    assert "maximum" in str(changed)
    read_back(changed)


def test_call_of_a_captured_function_shows_its_body() -> None:
    inner, outer = Builder("helper"), Builder()
    x, k = inner.input(X), inner.input(X)
    body = inner.graph([inner.emit("add", x, k)])
    y, z = outer.input(X, "y"), outer.input(X, "z")
    attrs = {"function": "helper", "arguments": (("x", Operand(0)), ("scale", 2.0)), "body": body}
    graph = outer.graph(outer.emit("call", y, z, **attrs))
    assert "%0: f32[2,3] = call helper(x=%y, scale=2.0) uses (%z) {\n    body(" in str(graph)
    read_back(graph)


def test_operands_in_another_order_than_arguments_are_kept() -> None:
    inner, outer = Builder("<lambda>"), Builder()
    x, k = inner.input(X), inner.input(X)
    body = inner.graph([inner.emit("sub", x, k)])
    y = outer.input(X, "y")
    for arguments in [(("a", Operand(1)), ("b", Operand(0))), (("a", Operand(1)),), ()]:
        outer.emit("call", y, y, function="<lambda>", arguments=arguments, body=body)
    read_back(outer.graph([y]))


def test_custom_op_is_read_back() -> None:
    @weft.custom_op(
        "texttest::scale", type_rule=lambda x, *, factor: x, gradient=lambda g, factor: g * factor
    )
    def scale(x: Any, *, factor: float = 2.0) -> Any:
        return x * factor

    try:
        graph = traced(lambda x: scale(x, factor=3.0), X)
        assert "texttest::scale(%x0, factor=3.0)" in str(graph)
        read_back(graph)
        text = graph.to_text()
    finally:
        weft.remove_custom_op("texttest::scale")
    with pytest.raises(weft.errors.ParseError, match="the op must be known, got texttest::scale"):
        weft.parse_graph(text)


def test_nodes_without_outputs_are_lines_of_their_own() -> None:
    b = Builder()
    x = b.input(X, "x")
    b.nodes.append(Node(find_op("print"), [x], {"pieces": ("x is ", ""), "places": (Place("tensor"),)}, []))
    graph = b.graph([x])
    assert '  print(%x, pieces=("x is ", ""), places=(("tensor", ""),))\n' in str(graph)
    read_back(graph)


def test_composite_on_a_tensor_from_around_a_region_is_one_line() -> None:
    def f(x: Any, y: Any) -> Any:
        return weft.cond(x.sum() > 0, lambda: weft.gelu(x), lambda: weft.gelu(y))

    graph = weft.make_graph(f)(weft.ones(3), weft.ones(3))
    assert str(graph).count("= gelu(%") == 2
    read_back(graph)


def test_graph_is_printed_and_read_while_another_is_captured() -> None:
    inner = traced(lambda x: weft.gelu(x) * weft.arange(3.0), X)
    expected = inner.to_text()

    def f(x: Any) -> Any:
        text = inner.to_text()
        assert text == expected
        assert weft.parse_graph(text, constants=inner.constant_data()).same(inner)
        return x + 1.0

    assert len(traced(f, X).nodes) == 1


def test_wrong_graph_is_printed_for_people_and_refused_as_text() -> None:
    x = Value(X)
    graph = Graph("f", [x], [Node(find_op("tanh"), [Value(X)], {"a": [1]}, [x])], [Value(X)], roles=[])
    assert str(graph) == ("graph f(? %0: f32[2,3]) {\n  %0: f32[2,3] = tanh(%?, a=<list>)\n  return %?\n}")
    with pytest.raises(weft.errors.GraphError, match="an attribute must be a literal, got list"):
        graph.to_text()


def test_inputs_of_regions_have_the_names_of_what_they_hold() -> None:
    def decay(x: weft.Tensor, rate: weft.Tensor) -> weft.Tensor:
        level = x
        while level.sum() > 1.0:
            level = level * rate if rate < 1.0 else level
        return level

    graph = weft.make_graph(decay)(weft.ones(2), weft.tensor(0.5))
    (loop,) = graph.nodes
    assert [v.name for v in loop.attrs["body"].inputs] == ["level", "rate"]
    (branch,) = [n for n in loop.attrs["body"].nodes if n.op.name == "cond"]
    assert [{v.name for v in g.inputs} for g in branch.regions] == [{"level", "rate"}] * 2
    read_back(graph)


def test_two_inputs_of_a_region_may_have_one_name() -> None:
    def f(x: weft.Tensor) -> weft.Tensor:
        return weft.while_loop(lambda s: s.sum() < 3.0, lambda s: s + x, x)

    graph = weft.make_graph(f)(weft.ones(2))
    (loop,) = graph.nodes
    body = loop.attrs["body"]
    twice = body.replace(inputs=[Value(v.type, "x") for v in body.inputs], nodes=(), outputs=())
    twice = twice.replace(outputs=twice.inputs[:1])
    attrs = {**loop.attrs, "body": twice}
    node = Node(loop.op, loop.inputs, attrs, loop.outputs)
    again = read_back(graph.replace(nodes=[node]).verify())
    assert "body(%x: f32[2], %x~2: f32[2])" in again.to_text()


def test_attributes_with_their_default_value_are_left_out_and_read_back() -> None:
    graph = weft.make_graph(lambda x: weft.cumsum(x.sum(axis=1)) + x.sum(axis=1, keepdims=True))(
        weft.ones((2, 2))
    )
    text = graph.to_text(locations=False)
    assert "sum(%x, axes=(1,))" in text
    assert "sum(%x, axes=(1,), keepdims=True)" in text
    assert "cumsum(%0, axis=0)" in text
    assert read_back(graph).nodes[0].attrs == {"axes": (1,), "keepdims": False}

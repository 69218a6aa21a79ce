"""Rewriting by plain functions: ``graph.rewrite`` and ``weft.passes.rewrite``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.passes.helpers import assert_becomes, count_op, graph_of, op_names, parse
from weft.errors import ArgumentError, GraphError
from weft.ir.interpret import interpret
from weft.passes import any_attr, rewrite


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.mT
    weights = weft.exp(scores - weft.max(scores, axis=-1, keepdims=True))
    return (weights / weft.sum(weights, axis=-1, keepdims=True)) @ v


def fused(q: Any, k: Any, v: Any) -> Any:
    return weft.softmax(q @ k.mT, axis=-1) @ v


# Patterns hold for all types


@pytest.mark.parametrize("shape", [(5, 8), (2, 5, 8), (2, 3, 5, 8)])
@pytest.mark.parametrize("dtype", [weft.float32, weft.float64])
def test_subgraph_is_replaced_whatever_its_rank_and_dtype(shape: tuple[int, ...], dtype: Any) -> None:
    x = weft.ones(shape, dtype=dtype) * 0.1
    graph = graph_of(lambda q, k, v: attention(q, k, v) + 1.0, x, x, x)
    after = graph.rewrite(attention, fused)
    after.verify()
    assert op_names(weft.passes.inline(after)) == ["permute", "matmul", "softmax", "matmul", "add"]
    arrays = [np.random.default_rng(i).normal(size=shape).astype(dtype) for i in range(3)]
    np.testing.assert_allclose(interpret(after, arrays)[0], interpret(graph, arrays)[0], rtol=1e-5)


def test_named_sizes_match() -> None:
    graph = weft.make_graph(lambda x: x * 2.0 + x)(weft.TensorType(("batch", 3), weft.float32))
    after = graph.rewrite(lambda x: x * 2.0 + x, lambda x: x * 3.0)
    assert op_names(after) == ["mul"]
    assert str(after.outputs[0].type) == "f32[batch,3]"


def test_attributes_must_be_equal() -> None:
    graph = graph_of(lambda x: weft.sum(x, axis=0), weft.ones((3, 3)))
    assert graph.rewrite(lambda x: weft.sum(x, axis=1), lambda x: weft.max(x, axis=1)) is graph
    after = graph.rewrite(lambda x: weft.sum(x, axis=0), lambda x: weft.max(x, axis=0))
    assert op_names(after) == ["max"]


def test_numbers_match_by_their_bits() -> None:
    graph = graph_of(lambda x: x + 0.0, weft.ones(3))
    assert graph.rewrite(lambda x: x + -0.0, lambda x: x) is graph
    assert op_names(graph.rewrite(lambda x: x + 0.0, lambda x: x)) == []


def test_commutative_ops_match_both_ways() -> None:
    for function in (lambda x, y: x * weft.exp(y), lambda x, y: weft.exp(y) * x):
        graph = graph_of(function, weft.ones(3), weft.ones(3))
        after = graph.rewrite(lambda a, b: weft.exp(a) * b, lambda a, b: a - b)
        assert op_names(after) == ["sub"]
        assert after.nodes[0].inputs == (graph.inputs[1], graph.inputs[0])


def test_maximum_matches_both_ways_where_the_user_says_so() -> None:
    graph = graph_of(lambda x: weft.maximum(0.0, x), weft.ones(3))
    assert op_names(graph.rewrite(lambda x: weft.maximum(x, 0.0), weft.relu)) == ["relu"]


def test_subtraction_matches_one_way_alone() -> None:
    graph = graph_of(lambda x: 1.0 - x, weft.ones(3))
    assert graph.rewrite(lambda x: x - 1.0, lambda x: x) is graph


def test_parameter_that_occurs_twice_must_be_one_value() -> None:
    graph = graph_of(lambda x, y: x * y, weft.ones(3), weft.ones(3))
    assert graph.rewrite(lambda x: x * x, weft.square) is graph
    graph = graph_of(lambda x: x * x, weft.ones(3))
    assert op_names(graph.rewrite(lambda x: x * x, weft.square)) == ["square"]


def test_predicate_is_asked_with_the_types() -> None:
    asked: list[Any] = []

    def where(x: weft.TensorType) -> bool:
        asked.append(x)
        return x.ndim == 2

    graph = graph_of(lambda x, y: (weft.exp(x), weft.exp(y)), weft.ones(3), weft.ones((3, 3)))
    after = graph.rewrite(weft_exp, weft_sin, where=where)
    assert op_names(after) == ["exp", "sin"]
    assert [str(t) for t in asked] == ["f32[3]", "f32[3,3]"]


def weft_exp(x: Any) -> Any:
    return weft.exp(x)


def weft_sin(x: Any) -> Any:
    return weft.sin(x)


# What may not be replaced


def test_inner_value_that_is_used_elsewhere_prevents_a_match_unless_it_may_be_computed_twice() -> None:
    def function(x: weft.Tensor) -> Any:
        e = weft.exp(x)
        return weft.log(e + 1.0), e

    def pattern(x: Any) -> Any:
        return weft.log(weft.exp(x) + 1.0)

    graph = graph_of(function, weft.ones(3))
    assert graph.rewrite(pattern, weft.softplus) is graph
    after = graph.rewrite(pattern, weft.softplus, shared=True)
    assert count_op(after, "exp") >= 1
    assert after.outputs[1] is graph.outputs[1]


def test_replacement_of_another_type_is_an_error_that_names_the_rule() -> None:
    graph = graph_of(weft_exp, weft.ones(3))
    with pytest.raises(
        GraphError, match=r"weft_exp: the replacement must be of type f32\[3\], got bool\[3\]"
    ):
        graph.rewrite(weft_exp, lambda x: x > 0)


def test_replacement_of_another_shape_is_an_error_that_names_the_rule() -> None:
    graph = graph_of(weft_exp, weft.ones(3))
    with pytest.raises(GraphError, match=r"weft_exp: the replacement must be of type f32\[3\], got f32\[2\]"):
        graph.rewrite(weft_exp, lambda x: x[:2])


def test_replacement_that_does_not_work_on_what_was_found_says_so() -> None:
    graph = graph_of(weft_exp, weft.ones(3))
    with pytest.raises(GraphError, match="weft_exp: the replacement must work on the types that were found"):
        graph.rewrite(weft_exp, lambda x: x @ weft.ones((7, 7)))
    assert graph.rewrite(weft_exp, lambda x: x @ weft.ones((7, 7)), where=lambda x: x.ndim == 2) is graph


def test_rule_that_never_ends_is_an_error_that_names_it() -> None:
    @rewrite
    def endless(x: Any) -> Any:
        return weft.sin(x), weft.sin(x) * 1.0

    with pytest.raises(GraphError, match="endless: a rule must come to an end"):
        endless(graph_of(weft_sin, weft.ones(3)))


def test_rules_that_undo_each_other_are_an_error() -> None:
    @rewrite
    def forth(x: Any) -> Any:
        return weft.sin(x), weft.cos(x)

    @rewrite
    def back(x: Any) -> Any:
        return weft.cos(x), weft.sin(x)

    from weft.passes.rules import rules_pass

    with pytest.raises(GraphError, match=r"(forth|back): a rule must come to an end"):
        rules_pass([forth, back], "both")(graph_of(weft_sin, weft.ones(3)))


def test_what_is_put_in_place_is_not_searched_again() -> None:
    graph = graph_of(lambda x: weft.sin(weft.sin(x)), weft.ones(3))
    after = graph.rewrite(weft_sin, lambda x: weft.sin(x) * 2.0)
    assert op_names(after) == ["sin", "mul", "sin", "mul"]


def test_pattern_that_is_a_parameter_alone_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="the pattern must apply an op"):
        graph_of(weft_sin, weft.ones(3)).rewrite(lambda x: x, lambda x: x)


def test_parameter_that_the_pattern_does_not_use_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="the pattern must use all of its parameters"):
        graph_of(weft_sin, weft.ones(3)).rewrite(lambda x, y: weft.sin(x), lambda x, y: y)


def test_sides_with_different_numbers_of_results_are_an_error() -> None:
    with pytest.raises(ArgumentError, match="both sides must give as many tensors, got 1 and 2"):
        graph_of(weft_sin, weft.ones(3)).rewrite(weft_sin, lambda x: (x, x))


def test_pattern_that_fits_no_type_that_is_tried_says_why() -> None:
    def pattern(x: Any) -> Any:
        return x.reshape(7, 11)

    with pytest.raises(GraphError, match="pattern: the pattern must be a function of tensors"):
        graph_of(weft_sin, weft.ones(3)).rewrite(pattern, weft_sin)
    graph = graph_of(lambda x: x.reshape(7, 11), weft.ones(77))
    example = weft.TensorType((77,), weft.float32)
    after = graph.rewrite(pattern, lambda x: weft.sin(x).reshape(7, 11), examples=[example])
    assert op_names(after) == ["sin", "reshape"]


# Attributes of any value


def test_named_wildcard_is_given_to_the_replacement() -> None:
    from weft.ops.reduce import reduce_sum

    def pattern(x: Any, axes: Any = any_attr) -> Any:
        return reduce_sum(-x, axes=axes, keepdims=False)

    def replacement(x: Any, axes: Any) -> Any:
        return -reduce_sum(x, axes=axes, keepdims=False)

    graph = graph_of(lambda x: weft.sum(-x, axis=(0, 2)), weft.ones((2, 3, 4)))
    after = graph.rewrite(pattern, replacement)
    assert op_names(after) == ["sum", "neg"]
    assert after.nodes[0].attrs["axes"] == (0, 2)


def test_one_name_must_stand_for_one_value() -> None:
    from weft.ops.view.primitives import permute

    def pattern(x: Any, axes: Any = any_attr) -> Any:
        return permute(permute(x, axes=axes), axes=axes)

    graph = graph_of(lambda x: x.permute(1, 0, 2).permute(0, 2, 1), weft.ones((2, 3, 4)))
    assert graph.rewrite(pattern, lambda x, axes: x) is graph
    graph = graph_of(lambda x: x.permute(1, 0, 2).permute(1, 0, 2), weft.ones((2, 3, 4)))
    assert op_names(graph.rewrite(pattern, lambda x, axes: x)) == []


def test_wildcard_without_a_name_matches_anything() -> None:
    from weft.ops.reduce import reduce_max, reduce_sum

    def pattern(x: Any) -> Any:
        return reduce_sum(weft.exp(x), axes=any_attr, keepdims=any_attr)

    graph = graph_of(lambda x: weft.sum(weft.exp(x), axis=1, keepdims=True), weft.ones((2, 3)))
    after = graph.rewrite(pattern, lambda x: reduce_max(x, axes=(1,), keepdims=True))
    assert op_names(after) == ["max"]


# Several results, shared values


def test_pattern_with_two_results_is_replaced_as_one() -> None:
    def function(x: weft.Tensor) -> Any:
        return weft.sin(x) + 1.0, weft.cos(x) * 2.0

    def pattern(x: Any) -> Any:
        return weft.sin(x), weft.cos(x)

    def replacement(x: Any) -> Any:
        both = weft.exp(x)
        return both + 3.0, both - 3.0

    graph = graph_of(function, weft.ones(3))
    after = graph.rewrite(pattern, replacement)
    after.verify()
    assert sorted(op_names(after)) == ["add", "add", "exp", "mul", "sub"]
    (a, b) = interpret(after, [np.ones(3, np.float32)])
    np.testing.assert_allclose(a, np.e + 4.0, rtol=1e-6)
    np.testing.assert_allclose(b, (np.e - 3.0) * 2.0, rtol=1e-5)


def test_two_results_are_not_replaced_if_one_is_computed_from_the_other() -> None:
    def function(x: weft.Tensor) -> weft.Tensor:
        s = weft.sin(x)
        return weft.cos(s) + s

    graph = graph_of(function, weft.ones(3))

    def pattern(x: Any, y: Any) -> Any:
        return weft.sin(x), weft.cos(y)

    after = graph.rewrite(pattern, lambda x, y: (x + y, x - y))
    after.verify()
    assert after is graph


def test_users_of_a_result_move_behind_the_replacement() -> None:
    graph = parse(
        """
        graph f(%x: f32[]) {
          %0: f32[] = sin(%x)
          %1: f32[] = exp(%0)
          %2: f32[] = neg(%1)
          %3: f32[] = cos(%x)
          %4: f32[] = add(%2, %3)
          return %4
        }"""
    )
    after = graph.rewrite(lambda x: (weft.sin(x), weft.cos(x)), lambda x: (x * 2.0, x * 3.0))
    after.verify()
    assert op_names(after) == ["mul", "mul", "exp", "neg", "add"]


def test_prints_between_two_results_stay_where_they_are() -> None:
    graph = parse(
        """
        graph f(%x: f32[]) {
          %0: f32[] = sin(%x)
          print(%0, pieces=("", ""), places=(("tensor", ""),))
          %1: f32[] = cos(%x)
          return %1
        }"""
    )
    assert graph.rewrite(lambda x: (weft.sin(x), weft.cos(x)), lambda x: (x * 2.0, x * 3.0)) is graph


# Composites


def test_composite_matches_its_call_and_its_ops() -> None:
    graph = graph_of(lambda x: weft.gelu(x) * 2.0, weft.ones(3))
    expanded = weft.passes.inline(graph)
    assert op_names(graph) == ["call", "mul"]
    assert "call" not in op_names(expanded)
    for each in (graph, expanded):
        assert op_names(each.rewrite(weft.gelu, weft_sin)) == ["sin", "mul"]


def test_composite_with_another_argument_does_not_match() -> None:
    graph = graph_of(lambda x: weft.gelu(x, approximate="tanh"), weft.ones(3))
    assert graph.rewrite(lambda x: weft.gelu(x), weft_sin) is graph
    after = graph.rewrite(lambda x: weft.gelu(x, approximate="tanh"), weft_sin)
    assert op_names(after) == ["sin"]


# Where it looks, and what it keeps


def test_regions_are_searched() -> None:
    graph = graph_of(lambda x: weft.fori_loop(0, 3, lambda i, y: weft.sin(y) + 1.0, x), weft.ones(3))
    after = graph.rewrite(weft_sin, weft_exp)
    assert [n.op.name for n in after.walk()] == ["exp", "add", "scan"]


def test_line_of_what_is_replaced_is_kept() -> None:
    graph = graph_of(lambda x: weft.log(weft.exp(x)), weft.ones(3))
    after = graph.rewrite(lambda x: weft.log(weft.exp(x)), lambda x: weft.sin(weft.cos(x)))
    line = graph.nodes[-1].location
    assert line is not None
    assert [n.location for n in after.nodes] == [line, line]


def test_tensor_around_the_replacement_becomes_a_constant() -> None:
    table = weft.tensor([1.0, 2.0, 3.0])
    after = graph_of(weft_sin, weft.ones(3)).rewrite(weft_sin, lambda x: x * table)
    (array,) = after.constants.values()
    np.testing.assert_array_equal(array, [1.0, 2.0, 3.0])


def test_replacement_may_be_a_number() -> None:
    @rewrite
    def nothing(x: Any) -> Any:
        return x - x, 0

    assert_becomes(
        nothing,
        """
        graph f(%x: f32[2]) {
          %0: f32[2] = sub(%x, %x)
          return %0
        }""",
        """
        graph f(%x: f32[2]) {
          %0: f32[2] = broadcast_to(f32(0.0), shape=(2,))
          return %0
        }""",
    )


def test_original_graph_is_untouched() -> None:
    graph = graph_of(weft_sin, weft.ones(3))
    before = graph.to_text()
    graph.rewrite(weft_sin, weft_exp)
    assert graph.to_text() == before


def test_composite_put_into_a_graph_is_one_line() -> None:
    graph = weft.make_graph(lambda x: weft.relu(x) * 2.0)(weft.ones(3))
    after = graph.rewrite(lambda x: weft.relu(x), lambda x: weft.gelu(x))
    assert "%0: f32[3] = gelu(%x)" in after.to_text()
    assert {n.location for n in after.walk() if n.op.name == "normal_cdf"} == {graph.nodes[0].location}


def test_replacement_with_other_parameters_is_refused() -> None:
    graph = weft.make_graph(lambda x: weft.exp(x))(weft.ones(3))
    with pytest.raises(ArgumentError, match=r"parameters of the pattern, \(x\), got \(y, z\)"):
        graph.rewrite(lambda x: weft.exp(x), lambda y, z: y)


def test_wildcard_that_code_computes_with_is_refused_with_advice() -> None:
    graph = weft.make_graph(lambda x: weft.sum(x, axis=0))(weft.ones(3))
    with pytest.raises(GraphError, match="any_attr is an attribute of an op"):
        graph.rewrite(lambda x, p=weft.passes.any_attr: x * (p + 1.0), lambda x, p: x)


def test_rule_whose_number_depends_on_the_shape_holds_on_other_shapes() -> None:
    @weft.passes.rewrite
    def by_length(x: Any) -> Any:
        return x * float(x.shape[0]), weft.neg(x)

    graph = weft.make_graph(lambda x: x * 7.0)(weft.ones(7))
    assert [n.op.name for n in by_length(graph).nodes] == ["neg"]
    graph = weft.make_graph(lambda x: x * 6.0)(weft.ones(7))
    assert by_length(graph) is graph

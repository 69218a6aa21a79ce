from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from tests.passes.helpers import assert_becomes, graph_of, op_names
from weft.base.dtypes import DTYPES, integer_range, kind
from weft.ir.interpret import interpret
from weft.passes import simplify
from weft.passes.algebra import holds_all
from weft.passes.check import same_elements

SPECIAL = np.array([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1e-45, 3e38], np.float32)
X = weft.tensor(SPECIAL)
M = weft.tensor(np.resize(SPECIAL, (3, 4)))
N = weft.tensor(np.array([-3, 0, 2**62, 7]))
P = weft.tensor(np.array([True, False]))

# (what, function, argument, ops after; None where only the values matter)
EXACT: list[tuple[str, Callable[..., Any], weft.Tensor, list[str] | None]] = [
    ("x * 1", lambda x: x * 1.0, X, []),
    ("1 * x", lambda x: 1.0 * x, X, []),
    ("x / 1", lambda x: x / 1.0, X, []),
    ("x - 0", lambda x: x - 0.0, X, []),
    ("x + -0", lambda x: x + -0.0, X, []),
    ("integer x + 0", lambda x: x + 0, N, []),
    ("integer x * 0", lambda x: x * 0, N, ["broadcast_to"]),
    ("integer x - x", lambda x: x - x, N, ["broadcast_to"]),
    ("-(-x)", lambda x: weft.negative(-x), X, []),
    ("x + -y", lambda x: x + -weft.exp(x), X, ["exp", "sub"]),
    ("x - -y", lambda x: x - -weft.exp(x), X, ["exp", "add"]),
    ("-x * -y", lambda x: -x * -weft.exp(x), X, ["exp", "mul"]),
    ("square(-x)", lambda x: weft.square(-x), X, ["square"]),
    ("abs(-x)", lambda x: abs(-x), X, ["abs"]),
    ("abs(abs(x))", lambda x: abs(abs(x)), X, ["abs"]),
    ("maximum(x, x)", lambda x: weft.maximum(x, x), X, []),
    ("not not p", lambda p: ~~p, P, []),
    ("p and True", lambda p: weft.logical_and(p, True), P, []),
    ("p or True", lambda p: weft.logical_or(p, True), P, ["broadcast_to"]),
    ("where(p, x, x)", lambda p: weft.where(p, p, p), P, []),
    ("where(not p, x, y)", lambda x: weft.where(~(x > 0), x, -x), X, ["greater", "neg", "where"]),
    ("where(True, x, y)", lambda x: weft.where(weft.tensor(True), x, -x), X, []),
    ("where(p, where(p, x, y), z)", lambda x: weft.where(x > 0, weft.where(x > 0, x, -x), x * 2.0), X, None),
    ("x / 8", lambda x: x / 8.0, X, ["mul"]),
    ("cast to the same", lambda x: x.astype(weft.float32), X, []),
    ("f32 to f64 to f32", lambda x: x.astype(weft.float64).astype(weft.float32), X, []),
    ("f32 to f64 to f16", lambda x: x.astype(weft.float64).astype(weft.float16), X, ["cast"]),
    ("transposed twice", lambda x: x.T.T, M, []),
    ("permuted twice", lambda x: x[None].permute(1, 0, 2).permute(0, 2, 1), M, ["reshape", "permute"]),
    ("reshaped twice", lambda x: x.reshape(2, 6).reshape(4, 3), M, ["reshape"]),
    ("reshaped and back", lambda x: x.reshape(2, 6).reshape(3, 4), M, []),
    ("broadcast twice", lambda x: x.broadcast_to((2, 3, 4)).broadcast_to((5, 2, 3, 4)), M, ["broadcast_to"]),
    ("broadcast before an op that does", lambda x: x + weft.broadcast_to(weft.exp(x)[0], (3, 4)), M, None),
    ("slice of everything", lambda x: x[0:3, 0:4], M, []),
    ("slice of a slice", lambda x: x[1:, ::2][1:, 1:], M, ["slice"]),
    ("reversed twice", lambda x: x[::-1][::-1], M, []),
    ("join of one", lambda x: weft.concat([x]), M, []),
    ("join with nothing", lambda x: weft.concat([x[:0], x]), M, []),
    ("join of joins", lambda x: weft.concat([weft.concat([x, -x]), x]), M, ["neg", "concat"]),
    ("slice of a join", lambda x: weft.concat([x, weft.exp(x)])[3:], M, ["exp"]),
    ("sum over nothing", lambda x: weft.sum(x, axis=()), M, ["add"]),
    ("sum over an axis of size 1", lambda x: weft.sum(x[None], axis=0), M, ["add"]),
    ("product over nothing", lambda x: weft.prod(x, axis=()), M, []),
    ("pad by nothing", lambda x: weft.pad(x, ((0, 0), (0, 0))), M, []),
]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "x", "after"), [row[1:] for row in EXACT], ids=[row[0] for row in EXACT]
)
def test_identity_keeps_every_bit(function: Any, x: weft.Tensor, after: list[str] | None) -> None:
    graph = weft.passes.cse(graph_of(function, x))
    simple = simplify(graph)
    simple.verify()
    if after is not None:
        assert op_names(weft.passes.dce(simple)) == after
    (expected,), (actual,) = interpret(graph, [x.numpy()]), interpret(simple, [x.numpy()])
    assert expected.shape == actual.shape
    assert expected.dtype == actual.dtype
    assert same_elements(expected, actual).all()


NOT_EXACT: list[tuple[str, Callable[..., Any], weft.Tensor]] = [
    ("x + 0", lambda x: x + 0.0, X),
    ("x * 0", lambda x: x * 0.0, X),
    ("x - x", lambda x: x - x, X),
    ("x / x", lambda x: x / x, X),
    ("log(exp(x))", lambda x: weft.log(weft.exp(x)), X),
    ("x ** 2", lambda x: x**2.0, X),
    ("complex x * 1", lambda x: x * 1.0, weft.tensor([1j, 2.0])),
    ("f64 to f32 to f64", lambda x: x.astype(weft.float32).astype(weft.float64), weft.tensor(np.ones(1))),
    ("i64 to f64 to i64", lambda x: x.astype(weft.float64).astype(weft.int64), N),
    ("x / 3", lambda x: x / 3.0, X),
    ("x / 2**-140", lambda x: x / 2.0**-140, X),
    ("abs of an unsigned -x", lambda x: abs(-x), weft.tensor(np.array([1, 2], np.uint8))),
]  # fmt: skip


@pytest.mark.parametrize(("function", "x"), [row[1:] for row in NOT_EXACT], ids=[row[0] for row in NOT_EXACT])
def test_what_is_not_exact_is_left_alone(function: Any, x: weft.Tensor) -> None:
    graph = graph_of(function, x)
    assert simplify(graph) is graph


@pytest.mark.parametrize(
    ("function", "after"),
    [
        (lambda x: x + 0.0, []),
        (lambda x: x - x, ["broadcast_to"]),
        (lambda x: x / x, ["broadcast_to"]),
        (lambda x: -(x - weft.exp(x)), ["exp", "sub"]),
        (lambda x: weft.log(weft.exp(x)), []),
        (lambda x: x**2.0, ["square"]),
        (lambda x: weft.sqrt(x * x * 1.0), ["mul", "sqrt"]),
        (lambda x: weft.sqrt(weft.square(x)), ["abs"]),
        (lambda x: x * weft.exp(x) + x * weft.sin(x), ["exp", "sin", "add", "mul"]),
        (
            lambda x: weft.sum(weft.sum(x.reshape(2, 1, 2) * x.reshape(2, 2, 1), axis=1), axis=0),
            ["reshape", "reshape", "mul", "sum"],
        ),
    ],
)
def test_fast_math_adds_identities_of_real_numbers(function: Any, after: list[str]) -> None:
    graph = simplify(graph_of(function, weft.ones(4)), fast_math=True)
    assert op_names(weft.passes.dce(graph)) == after


def test_multiplying_by_a_tensor_of_ones_broadcasts() -> None:
    assert_becomes(
        simplify,
        """
        graph f(%x: f32[3]) {
          %0: f32[2,3] = mul(%x, f32[2,1](1.0, 1.0))
          return %0
        }""",
        """
        graph f(%x: f32[3]) {
          %0: f32[2,3] = broadcast_to(%x, shape=(2, 3))
          return %0
        }""",
    )


def test_lines_of_replaced_nodes_are_kept() -> None:
    graph = graph_of(lambda x: x + -weft.exp(x), weft.ones(3))
    line = graph.nodes[-1].location
    after = simplify(graph).nodes[-1]
    assert line is not None
    assert after.op.name == "sub"
    assert after.location == line


def test_named_sizes_are_simplified_too() -> None:
    assert_becomes(
        simplify,
        """
        graph f(%x: f32[n,3]) {
          %0: f32[3,n] = permute(%x, axes=(1, 0))
          %1: f32[n,3] = permute(%0, axes=(1, 0))
          %2: f32[3*n] = reshape(%1, shape=(size(3*n),))
          %3: f32[n,3] = reshape(%2, shape=(size(n), 3))
          return %3
        }""",
        """
        graph f(%x: f32[n,3]) {
          return %x
        }""",
    )


def test_rules_hold_inside_regions() -> None:
    graph = graph_of(lambda x: weft.fori_loop(0, 3, lambda i, y: weft.sin(y * 1.0), x), weft.ones(3))
    assert [n.op.name for n in simplify(graph).walk()] == ["sin", "scan"]


@pytest.mark.parametrize(
    ("narrow", "wide", "holds"),
    [
        ("float32", "float64", True),
        ("float64", "float32", False),
        ("int32", "float64", True),
        ("int32", "float32", False),
        ("int64", "float64", False),
        ("uint8", "int16", True),
        ("uint8", "int8", False),
        ("int8", "uint8", False),
        ("bool", "float16", True),
        ("float16", "float32", True),
        ("complex64", "float64", False),
        ("float32", "complex64", True),
    ],
)
def test_dtype_that_holds_all_values_of_another(narrow: str, wide: str, holds: bool) -> None:
    assert holds_all(np.dtype(narrow), np.dtype(wide)) is holds


def test_bfloat16_and_float16_hold_each_others_values_in_neither_direction() -> None:
    bfloat16, float16 = weft.bfloat16, weft.float16
    assert not holds_all(bfloat16, float16)
    assert not holds_all(float16, bfloat16)


def extremes(dtype: Any) -> Any:
    """Numbers of a dtype: the least, the most, and what lies around the ends of the others."""
    if kind(dtype) in "iu":
        low, high = integer_range(dtype)
        some = [0, 1, 5, -1, -3, 127, 128, 255, 256, -129, 2**15, 2**16, 2**31, 2**32, low, high, high - 1]
        return np.array([n for n in some if low <= n <= high], dtype)
    if dtype == np.dtype(bool):
        return np.array([False, True])
    return np.array([0.0, -0.0, 0.5, -1.0, 300.0, np.inf, -np.inf, np.nan, 7.25]).astype(dtype)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("source", [d for d in DTYPES if kind(d) != "c"], ids=str)
def test_casts_of_casts_give_the_same_for_all_dtypes_out_of_range_too(source: Any) -> None:
    x = weft.tensor(extremes(source))
    ways = [(middle, to) for middle in DTYPES for to in DTYPES if kind(middle) != "c" or kind(to) == "c"]
    graph = graph_of(lambda x: [x.astype(middle).astype(to) for middle, to in ways], x)
    with np.errstate(all="ignore"):
        before, after = (interpret(g, [x.numpy()]) for g in (graph, simplify(graph)))
    for way, a, b in zip(ways, before, after, strict=True):
        assert same_elements(a, b).all(), f"{source} by {way}: {a}, not {b}"


def test_integers_become_floats_become_integers_of_the_nearest_value() -> None:
    graph = simplify(graph_of(lambda x: x.astype(weft.float64).astype(weft.uint8), weft.tensor([-3, 300, 7])))
    assert interpret(graph, [np.array([-3, 300, 7])])[0].tolist() == [0, 255, 7]
    narrow = weft.tensor(np.array([1, 200], np.uint8))
    assert op_names(simplify(graph_of(lambda x: x.astype(weft.float32).astype(weft.int16), narrow)))[-1:] == [
        "cast"
    ]

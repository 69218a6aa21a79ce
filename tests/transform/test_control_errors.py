"""What ``cond``, ``switch``, ``while_loop``, ``fori_loop``, ``scan`` and their nodes refuse, and how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.base.sizes import named_size
from weft.errors import ArgumentError, CaptureError, DomainError, DtypeError, GraphError, ShapeError
from weft.ir.graph import Graph, Value
from weft.ir.types import TensorType
from weft.ops import control
from weft.transform.tracing import trace_graph

VECTOR = TensorType((3,), weft.float64)
NUMBER = TensorType((), weft.float64)


def in_both(f: Callable[[Any], Any], kind: type[Exception], text: str) -> None:
    """Python and a graph refuse it in the same words."""
    for run in (lambda: f(weft.ones(3, dtype=weft.float64)), lambda: trace_graph(f, [VECTOR])):
        with pytest.raises(kind) as error:
            run()
        assert text in str(error.value)


def test_predicate_must_be_one_bool() -> None:
    in_both(lambda x: weft.cond(x.sum(), weft.sin, weft.cos, x), DtypeError,
            "cond: the predicate must be one bool, got f64[]")  # fmt: skip
    in_both(lambda x: weft.cond(x > 0.0, weft.sin, weft.cos, x), ShapeError,
            "cond: the predicate must be one bool, got bool[3]")  # fmt: skip
    in_both(lambda x: weft.while_loop(lambda x: x.sum(), lambda x: x, x), DtypeError,
            "while_loop: the predicate must be one bool, got f64[]")  # fmt: skip
    in_both(lambda x: weft.cond(1.5, weft.sin, weft.cos, x), ArgumentError,
            "cond: the predicate must be a tensor, got float")  # fmt: skip
    with pytest.raises(DtypeError, match=r"hint: compare it, as in x > 0"):
        weft.cond(weft.tensor(1.0), weft.sin, weft.cos, weft.tensor(1.0))


def test_index_must_be_one_integer() -> None:
    in_both(lambda x: weft.switch(x[0], [weft.sin], x), DtypeError,
            "switch: the index must be one integer, got f64[]")  # fmt: skip
    in_both(
        lambda x: weft.switch(0, [], x),
        ArgumentError,
        "switch: branches must be a list of at least one function",
    )


def test_branches_must_agree() -> None:
    def graph(true: Any, false: Any) -> None:
        trace_graph(lambda x: weft.cond(x.sum() > 0.0, true, false, x), [VECTOR])

    with pytest.raises(
        CaptureError, match=r"cond: the result must be f64\[3\] as from branch 0, got f64\[\] from branch 1"
    ):
        graph(lambda x: x, lambda x: x.sum())
    with pytest.raises(
        CaptureError, match=r"the result\['b'\] must be f64\[\] as from branch 0, got f32\[\]"
    ):
        graph(lambda x: {"a": x, "b": x[0]}, lambda x: {"a": x, "b": x[0].astype(weft.float32)})
    with pytest.raises(
        CaptureError, match=r"branches must return the same structure, got Structure\(\*\) and"
    ):
        graph(lambda x: x, lambda x: (x, x))


def test_carries_keep_their_types() -> None:
    in_both(lambda x: weft.while_loop(lambda s: s["n"] < 3, lambda s: {"n": s["n"] + 1, "x": s["x"].sum()},
                                      {"n": 0, "x": x}), CaptureError,
            "while_loop: carry['x'] must be f64[3], got f64[] from the body")  # fmt: skip
    in_both(lambda x: weft.fori_loop(0, 3, lambda i, v: v + i * 0.5, 0), CaptureError,
            "fori_loop: carry must be i64[], got f32[] from the body")  # fmt: skip
    in_both(lambda x: weft.scan(lambda c, r: ((c[0], r), None), (x, 0), x), CaptureError,
            "scan: carry[1] must be i64[], got f64[] from the body")  # fmt: skip


def test_structure_of_a_carry_stays() -> None:
    in_both(
        lambda x: weft.while_loop(lambda s: s[0].sum() > 0.0, lambda s: s[0], (x, x)),
        ArgumentError,
        "while_loop: trees must have the same structure, got tuple of 2 and Tensor at carry from the body",
    )


def test_scan_needs_rows() -> None:
    in_both(lambda x: weft.scan(lambda c, r: (c, r), 0, {"a": x, "b": x[:2]}), ShapeError,
            "scan: xs['b'] must have 3 rows, got f64[2]")  # fmt: skip
    in_both(lambda x: weft.scan(lambda c, r: (c, r), 0, x[0]), ShapeError,
            "scan: xs must have an axis to go along, got f64[]")  # fmt: skip
    in_both(lambda x: weft.scan(lambda c, r: (c, r), 0), ArgumentError, "scan: there must be xs or a length")
    in_both(lambda x: weft.scan(lambda c, r: c, 0, x), ArgumentError,
            "scan: the function must return (carry, y), got Tensor")  # fmt: skip
    in_both(
        lambda x: weft.scan(lambda c, r: (c, r), 0, length=-1),
        DomainError,
        "length must be at least 0, got -1",
    )


def test_counts_must_be_sensible() -> None:
    loop = lambda **options: weft.while_loop(lambda x: x > 0.0, lambda x: x - 1.0, 3.0, **options)  # noqa: E731
    with pytest.raises(DomainError, match="checkpoint_every must be at least 1, got 0"):
        loop(checkpoint_every=0)
    with pytest.raises(ArgumentError, match=r"max_iterations must be an int or None, got 2\.5"):
        loop(max_iterations=2.5)
    with pytest.raises(ArgumentError, match="unknown keyword 'max_iter'"):
        loop(max_iter=3)


# Type rules, for graphs made by hand


def region(inputs: list[TensorType], outputs: list[TensorType]) -> Graph:
    values = [Value(t) for t in outputs]
    constants = {v: np.zeros(v.type.shape, v.type.dtype) for v in values}
    return Graph("region", [Value(t) for t in inputs], (), values, constants=constants)


BOOL, INT = TensorType((), weft.bool), TensorType((), weft.int64)


def test_type_rules_refuse_regions_that_do_not_fit() -> None:
    good, bad = region([VECTOR], [VECTOR]), region([VECTOR], [NUMBER])
    with pytest.raises(
        ShapeError, match=r"branches must agree in output 0, got f64\[3\] from branch 0 and f64\[\] from 1"
    ):
        control.cond.type_rule(BOOL, VECTOR, branches=(good, bad))
    with pytest.raises(GraphError, match="branch 1 must take 1 inputs, got 0"):
        control.switch.type_rule(INT, VECTOR, branches=(good, region([], [VECTOR])))
    with pytest.raises(ShapeError, match=r"input 0 of branch 0 must be f64\[\], got f64\[3\]"):
        control.cond.type_rule(BOOL, NUMBER, branches=(good, good))
    loop = {"carries": 1, "trips": None, "checkpoint_every": None}
    with pytest.raises(
        ShapeError, match=r"carry 0 must keep its type, got f64\[3\] before and f64\[\] after"
    ):
        control.while_loop.type_rule(VECTOR, test=region([VECTOR], [BOOL]), body=bad, **loop)
    with pytest.raises(DtypeError, match=r"while_loop: the predicate must be one bool, got f64\[3\]"):
        control.while_loop.type_rule(VECTOR, test=good, body=good, **loop)
    with pytest.raises(GraphError, match="a body that collects needs a size"):
        both = region([VECTOR], [VECTOR, NUMBER])
        control.while_loop.type_rule(VECTOR, test=region([VECTOR], [BOOL]), body=both, **loop)
    with pytest.raises(ShapeError, match=r"xs must have 4 items along axis 0, got f64\[3\] for 0"):
        control.scan.type_rule(
            VECTOR, body=good, carries=0, mapped=1, length=4, reverse=False, counted=False,
            checkpoint_every=None,
        )  # fmt: skip


def test_collected_values_come_out_along_a_size_that_a_run_tells() -> None:
    body = region([NUMBER], [NUMBER, VECTOR])
    n = named_size("n")
    types = control.while_loop.type_rule(
        NUMBER, test=region([NUMBER], [BOOL]), body=body, carries=1, trips=n, checkpoint_every=None
    )
    assert [str(t) for t in types] == ["f64[]", "f64[n,3]", "i64[]"]

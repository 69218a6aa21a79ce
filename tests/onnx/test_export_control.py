"""Control flow in exported models: If, Loop and Scan, with what they use from around."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.onnx.exports import assert_agrees, export

f32, i64 = weft.float32, weft.int64
VECTOR = weft.TensorType(("n",), f32)
ROWS = weft.TensorType(("rows", 3), f32)


def either(x: Any) -> Any:
    scale = x.mean()
    if x.sum() > 0:
        y = x * scale
        if x.max() > 2.0:
            y = y - 1.0
    else:
        y = -x
    return y, scale


@pytest.mark.parametrize("opset", [13, 20])
def test_branches_of_source_become_if(tmp_path: Path, opset: int) -> None:
    exported = export(either, tmp_path, VECTOR, opset=opset)
    assert "If" in exported.operators
    for values in ([1.0, 3.0], [0.5, 0.5, 0.5], [-1.0]):
        assert_agrees(exported, either, weft.tensor(values))


def test_switch_clamps_its_index(tmp_path: Path) -> None:
    def choose(i: Any, x: Any) -> Any:
        return weft.switch(i, [lambda x: x + 1.0, lambda x: x * 2.0, lambda x: x.flip(0)], x)

    exported = export(choose, tmp_path, weft.TensorType((), i64), VECTOR)
    for i in (-1, 0, 1, 2, 7):
        assert_agrees(exported, choose, weft.tensor(i), weft.tensor([1.0, 2.0, 3.0]))


def collatz(n: Any) -> Any:
    steps = weft.tensor(0)
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps = steps + 1
    return steps


def test_while_loop_runs_as_often_as_values_tell(tmp_path: Path) -> None:
    exported = export(collatz, tmp_path, weft.TensorType((), i64))
    assert "Loop" in exported.operators
    for n in (1, 6, 27):
        assert_agrees(exported, collatz, weft.tensor(n))


def test_while_loop_collects_what_a_list_gets(tmp_path: Path) -> None:
    def halves(x: Any) -> Any:
        seen = []
        while x.abs().max() > 1.0:
            seen.append(x)
            x = x / 2.0
        return weft.stack(seen), x

    exported = export(halves, tmp_path, VECTOR)
    for values in ([9.0, 1.0], [3.0, -70.0, 1.0]):
        assert_agrees(exported, halves, weft.tensor(values))


@pytest.mark.parametrize("opset", [13, 20])
def test_loop_over_a_number_uses_what_is_around(tmp_path: Path, opset: int) -> None:
    def power(x: Any, w: Any, n: Any) -> Any:
        shift = w.sum()
        return weft.fori_loop(0, n, lambda i, x: weft.tanh(x @ w) + shift * i, x)

    types = ROWS, weft.TensorType((3, 3), f32), weft.TensorType((), i64)
    exported = export(power, tmp_path, *types, opset=opset)
    for n in (0, 1, 4):
        assert_agrees(exported, power, weft.ones((2, 3)), weft.eye(3) * 0.5, weft.tensor(n))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 5])
def test_scan_over_rows(tmp_path: Path, reverse: bool, length: int) -> None:
    def smooth(start: Any, xs: Any) -> Any:
        decay = weft.sigmoid(start.sum())
        return weft.scan(
            lambda carry, x: (carry * decay + x, (carry.sum(), x * 2.0)), start, xs, reverse=reverse
        )

    exported = export(smooth, tmp_path, weft.TensorType((3,), f32), ROWS)
    assert exported.operators.count("Scan") == 1
    assert_agrees(exported, smooth, weft.ones(3), weft.randn(length, 3))


def test_gradient_through_a_loop(tmp_path: Path) -> None:
    def root(a: Any) -> Any:
        x = a
        while (x * x - a).abs().max() > 1e-4:
            x = 0.5 * (x + a / x)
        return x.sum()

    slope = weft.value_and_grad(root)
    exported = export(slope, tmp_path, VECTOR)
    assert exported.operators.count("Loop") == 2
    assert_agrees(exported, slope, weft.tensor([2.0, 9.0]))


def test_gradient_through_a_scan_and_a_branch(tmp_path: Path) -> None:
    def loss(w: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = weft.tanh(h @ w + x)
            return h, weft.cond(h.sum() > 0, lambda h: h * 2.0, lambda h: h, h)

        return weft.scan(step, weft.zeros(3), xs)[1].sum()

    slope = weft.value_and_grad(loss)
    exported = export(slope, tmp_path, weft.TensorType((3, 3), f32), ROWS)
    assert_agrees(exported, slope, weft.randn(3, 3) * 0.3, weft.randn(4, 3))


def test_vmap_of_a_loop_with_a_length_for_each(tmp_path: Path) -> None:
    def count(x: Any, n: Any) -> Any:
        return weft.fori_loop(0, n, lambda i, x: x * 1.5 + i, x)

    many = weft.vmap(count)
    exported = export(many, tmp_path, VECTOR, weft.TensorType(("n",), i64))
    assert_agrees(exported, many, weft.tensor([1.0, 2.0, 3.0]), weft.tensor([0, 4, 2]))


def test_sizes_of_regions_come_from_outside(tmp_path: Path) -> None:
    def spread(x: Any, p: Any) -> Any:
        return weft.cond(p, lambda x: x / x.shape[0], lambda x: weft.arange(x.shape[0]) + x, x)

    exported = export(spread, tmp_path, VECTOR, weft.TensorType((), weft.bool))
    for p in (True, False):
        assert_agrees(exported, spread, weft.tensor([1.0, 2.0, 3.0, 4.0]), weft.tensor(p))


def test_branch_that_gives_its_operand_or_a_constant(tmp_path: Path) -> None:
    def pick(x: Any, p: Any) -> Any:
        return weft.cond(p, lambda x: (x, x), lambda x: (weft.zeros(2), x + 1.0), x)

    exported = export(pick, tmp_path, weft.TensorType((2,), f32), weft.TensorType((), weft.bool))
    for p in (True, False):
        assert_agrees(exported, pick, weft.tensor([1.0, 2.0]), weft.tensor(p))


def test_lstm_over_packed_and_bidirectional_layers(tmp_path: Path) -> None:
    model = weft.nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)
    exported = export(model, tmp_path, weft.TensorType(("batch", "time", 3), f32))
    assert_agrees(exported, model, weft.randn(2, 5, 3))
    gru = weft.nn.GRU(3, 4)
    assert_agrees(export(gru, tmp_path, weft.TensorType((5, "batch", 3), f32)), gru, weft.randn(5, 2, 3))


def test_layers_in_a_branch_are_one_operator_too(tmp_path: Path) -> None:
    nn = weft.nn
    model = nn.Sequential(nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.GELU()).eval()

    def sometimes(x: Any) -> Any:
        return weft.cond(x.sum() > 0, lambda x: model(x), lambda x: x[:, :1, 2:] * weft.ones((1, 3, 1)), x)

    exported = export(sometimes, tmp_path, weft.TensorType(("batch", 2, 8), f32))
    choice = next(node for node in exported.model.graph.node if node.op_type == "If")
    then = next(a.g for a in choice.attribute if a.name == "then_branch")
    assert [n.op_type for n in then.node] == ["Conv", "BatchNormalization", "Gelu"]
    for sign in (1.0, -1.0):
        assert_agrees(exported, sometimes, weft.rand(2, 2, 8) * sign)


def test_names_are_unique_in_all_bodies(tmp_path: Path) -> None:
    exported = export(either, tmp_path, VECTOR)
    names: list[str] = []

    def visit(graph: Any) -> None:
        for node in graph.node:
            names.extend(node.output)
            names.append(f"node {node.name}")
            for attribute in node.attribute:
                visit(attribute.g)

    visit(exported.model.graph)
    assert len(names) == len(set(names))
    assert np.all([len(n) > 0 for n in names])

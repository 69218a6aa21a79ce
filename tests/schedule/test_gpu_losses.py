"""Losses over many classes for a GPU: one kernel has the loss and the gradient, and keeps no array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from tests.backends.agreement import assert_agree, interpreted
from tests.backends.cuda.emulator import EmulatedCard
from tests.gpu.plain_driver import run_on_card
from weft.backends.cuda.build import build_program
from weft.passes.lowering.falling_powers import falling_powers
from weft.passes.lowering.pick_classes import pick_classes
from weft.schedule.gpu.machine import Gpu as Machine

CLASSES = 300


def _logits(rows: int) -> Any:
    return np.random.default_rng(rows).standard_normal((rows, CLASSES)).astype(np.float32) * 3


def _loss(x: Any, t: Any) -> Any:
    return weft.value_and_grad(lambda x: F.cross_entropy(x, t))(x)


@pytest.mark.parametrize("half", [False, True])
def test_cross_entropy_and_its_gradient_are_one_kernel(half: bool) -> None:
    x, t = _logits(5), np.array([0, 299, -100, 7, 7])

    def f(x: Any, t: Any) -> Any:
        return _loss(x.astype(weft.bfloat16) if half else x, t)

    graph = weft.make_graph(f)(weft.tensor(x), weft.tensor(t)).optimize()
    program = build_program(graph)
    assert program.arena < x.nbytes / 4  # type: ignore[operator]
    found = run_on_card(EmulatedCard(), program, [x, t])
    assert_agree(found, interpreted(graph, [x, t]))
    if not half:
        p = np.exp(x - x.max(1, keepdims=True), dtype=np.float64)
        p /= p.sum(1, keepdims=True)
        kept = t != -100
        np.testing.assert_allclose(found[0], -np.log(p[kept, t[kept]]).mean(), rtol=1e-5)
        p[kept, t[kept]] -= 1
        np.testing.assert_allclose(found[1], np.where(kept[:, None], p, 0) / kept.sum(), atol=1e-6)


def test_a_class_that_is_none_is_noted() -> None:
    x, t = _logits(3), np.array([1, 300, 2])
    graph = weft.make_graph(_loss)(weft.tensor(x), weft.tensor(t)).optimize()
    with pytest.raises(AssertionError, match="failure"):
        run_on_card(EmulatedCard(), build_program(graph), [x, t])


def test_elements_are_taken_before_they_are_computed_with_the_same_bits() -> None:
    """Rows that do not count give 0, whatever the ops would make of it."""

    def f(x: Any, y: Any, t: Any) -> Any:
        whole = weft.exp((x - x.max(axis=1, keepdims=True)) * 0.5) + 3.0
        return weft.nn.functional.nll_loss(whole, t, reduction="none"), F.nll_loss(x * y, t, reduction="none")

    x, t = _logits(4)[:, :9], np.array([8, -100, 0, 3])
    graph = weft.make_graph(f)(weft.tensor(x), weft.tensor(x), weft.tensor(t)).optimize()
    taken = pick_classes(graph)
    assert "pick_class(%x" in taken.to_text()
    for a, b in zip(interpreted(taken, [x, x, t]), interpreted(graph, [x, x, t]), strict=True):
        np.testing.assert_array_equal(a, b)
    assert pick_classes(taken) is taken


@pytest.mark.parametrize("columns", [33000, 33001])
def test_rows_too_long_for_registers_are_read_once(columns: int) -> None:
    """They lie in shared memory between the sweeps, more of it than a kernel may declare."""
    dtype = weft.bfloat16
    x = np.random.default_rng(1).standard_normal((3, columns)).astype(np.float32) * 4
    x[1, 7], x[2, :9] = -np.inf, 80
    graph = weft.make_graph(lambda x: F.log_softmax(x, axis=-1))(weft.tensor(x).astype(dtype)).optimize()
    program = build_program(graph)
    (kernel,) = program.kernels.values()
    assert kernel.shared == -(-columns * dtype.itemsize // 16) * 16 > 48 << 10
    assert f"shared {kernel.shared}" in str(program)
    given = interpreted(weft.make_graph(lambda x: x.astype(dtype))(weft.tensor(x)).optimize(), [x])
    card = EmulatedCard()
    assert_agree(run_on_card(card, program, given), interpreted(graph, given))
    before = program.ptx.index("bar.sync")
    assert "ld.global" not in program.ptx[before:]


def test_rows_too_long_for_shared_memory_are_read_again() -> None:
    x = weft.zeros((2, 70000), dtype=weft.bfloat16)
    graph = weft.make_graph(lambda x: F.softmax(x, axis=-1))(x).optimize()
    assert [k.shared for k in build_program(graph).kernels.values()] == [0]
    small = Machine(shared_bytes=99 << 10)  # two rows do not fit
    graph = weft.make_graph(lambda x: F.softmax(x, axis=-1))(x[:, :50000]).optimize()
    assert [k.shared for k in build_program(graph, "sm_80", small).kernels.values()] == [0]


def test_exponents_of_a_softmax_are_known_not_to_be_positive() -> None:
    def f(x: Any, y: Any) -> Any:
        return weft.softmax(x, axis=1), weft.exp(F.log_softmax(x, axis=1)), weft.exp(x - y.max())

    x = weft.tensor(_logits(2))
    made = falling_powers(weft.make_graph(f)(x, x).optimize(passes=["inline", "decompose", "cse"]))
    assert [node.op.name for node in made.nodes].count("abs") == 2
    assert falling_powers(made) is made


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, -0.0, 1e-45])
def test_softmax_of_special_values(special: float) -> None:
    x = _logits(3)
    x[1, 5], x[2, :] = special, special
    x[0, :4] = [-104.5, -90, -103.9, 100]
    functions = (weft.softmax, weft.log_softmax, lambda x, axis: weft.exp(weft.log_softmax(x, axis=axis)))
    for function in functions:
        graph = weft.make_graph(lambda x: function(x, axis=1))(weft.tensor(x)).optimize()  # noqa: B023
        assert_agree(run_on_card(EmulatedCard(), build_program(graph), [x]), interpreted(graph, [x]))

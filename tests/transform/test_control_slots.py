"""Code in branches and loops of a capture that changes tensors, gradients and other state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import CaptureError
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.ir.types import TensorType
from weft.tensor.mode import thread
from weft.transform.building import Capture, capturing
from weft.transform.control.flat import CarryMismatch, attempt, run_cond, run_scan, run_while
from weft.transform.slots import Slot

f64 = weft.float64


class Captured:
    """A function captured as a root does it: what it changed are further outputs.

    Attributes:
        graph: the graph.
        outside: tensors that it read, its inputs after the arguments.
        changed: the slots it changed.
    """

    def __init__(self, function: Callable[..., Any], *arrays: Any) -> None:
        with capturing("program") as capture:
            given = [capture.input(TensorType(a.shape, a.dtype)) for a in arrays]
            values = [capture.value_of(t) for t in function(*given)]
            del given
            changes = capture.take_changes()
            contents = [capture.value_of(held) for _, held in changes]
            self.changed = [slot for slot, _ in changes]
            del changes
        alive = capture.settle()
        self.outside = [t for _, t in alive]
        self.results = len(values)
        inputs = [*capture.inputs, *[e.value for e, _ in alive]]
        self.graph: Graph = capture.graph(inputs, [*values, *contents])

    def __call__(self, *arrays: Any) -> list[Any]:
        outs = interpret(self.graph, [*arrays, *[t.detach().numpy() for t in self.outside]])
        self.after = dict(zip([s.describe() for s in self.changed], outs[self.results :], strict=True))
        return outs[: self.results]


def number(x: float) -> Any:
    return np.asarray(x, np.float64)


def test_loop_fills_a_tensor() -> None:
    def f(x: Any) -> Any:
        y = weft.zeros(4, dtype=f64)

        def body(given: list[Any]) -> list[Any]:
            (i,) = given
            y[i] = x * i.astype(f64)
            return [i + 1]

        run_while(lambda given: given[0] < 3, body, [weft.tensor(0)])
        return [y]

    assert Captured(f, number(2.0))(number(2.0))[0].tolist() == [0.0, 2.0, 4.0, 0.0]


def test_gradient_flows_through_a_tensor_that_a_loop_fills() -> None:
    def fill(x: Any, loop: Callable[..., Any]) -> Any:
        y = weft.zeros(3, dtype=f64)

        def put(i: Any) -> None:
            y[i] = weft.sin(x[i]) * y.sum() + x[i]

        loop(put)
        return (y * y).sum()

    def python(x: Any) -> Any:
        return fill(x, lambda put: [put(i) for i in range(3)])

    def graph(x: Any) -> Any:
        def body(given: list[Any], rows: list[Any]) -> Any:
            function[0](rows[0])
            return [], []

        function: list[Any] = []

        def loop(one: Any) -> None:
            function.append(one)
            run_scan(body, [], [weft.arange(3)])

        return fill(x, loop)

    x = np.array([0.3, 0.8, 0.5])
    assert Captured(lambda x: [graph(x)], x)(x)[0] == pytest.approx(float(python(weft.tensor(x))))
    found = Captured(lambda x: [weft.grad(graph)(x)], x)(x)[0]
    np.testing.assert_allclose(found, weft.grad(python)(weft.tensor(x)).numpy(), rtol=1e-10)


def test_branch_changes_a_tensor_from_outside() -> None:
    buffer = weft.zeros(2, dtype=f64)

    def true(_: list[Any]) -> list[Any]:
        buffer[0] = 5.0
        return []

    def f(x: Any) -> Any:
        run_cond(x > 0.0, [true, lambda _: []], [])
        return [buffer.sum()]

    program = Captured(f, number(1.0))
    assert buffer.tolist() == [0.0, 0.0]  # as before the capture
    assert program(number(1.0))[0] == 5.0
    assert program.after["a tensor"].tolist() == [5.0, 0.0]
    assert program(number(-1.0))[0] == 0.0
    assert program.after["a tensor"].tolist() == [0.0, 0.0]


def test_tensor_that_both_branches_change_is_one_output() -> None:
    def f(x: Any) -> Any:
        y = x * 1.0

        def add(amount: float) -> Callable[[list[Any]], list[Any]]:
            def branch(_: list[Any]) -> list[Any]:
                y.__iadd__(amount)
                return []

            return branch

        run_cond(x > 0.0, [add(1.0), add(-1.0)], [])
        return [y]

    program = Captured(f, number(1.0))
    assert [float(program(number(v))[0]) for v in (2.0, -2.0)] == [3.0, -3.0]
    assert len(program.graph.nodes[-1].outputs) == 1


def training(steps: Callable[[Callable[[], None]], None], w: Any, x: Any) -> None:
    """Steps of gradient descent, the gradients of which add up."""

    def step() -> None:
        ((w * x - 1.0) ** 2).sum().backward()
        with weft.no_grad():
            w.data = w.data - 0.1 * w.grad

    steps(step)


def python_loop(step: Callable[[], None]) -> None:
    for _ in range(3):
        step()


def while_node(step: Callable[[], None]) -> None:
    def body(given: list[Any]) -> list[Any]:
        step()
        return [given[0] + 1]

    run_while(lambda given: given[0] < 3, body, [weft.tensor(0)])


def test_backward_and_updates_inside_a_loop() -> None:
    x = np.array([0.5, 0.3])
    w = weft.tensor([1.0, 2.0], dtype=f64, requires_grad=True)

    def f(x: Any) -> Any:
        training(while_node, w, x)
        return [w * 1.0]

    program = Captured(f, x)
    assert w.grad is None
    assert w.tolist() == [1.0, 2.0]
    (found,) = program(x)
    training(python_loop, w, weft.tensor(x))
    np.testing.assert_allclose(found, w.detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(program.after["the gradient of a tensor"], w.grad.numpy(), rtol=1e-12)  # type: ignore[attr-defined]


def test_backward_inside_a_branch_leaves_zeros_where_it_did_not_run() -> None:
    w = weft.tensor([1.0, 2.0], dtype=f64, requires_grad=True)

    def true(_: list[Any]) -> list[Any]:
        (w * w).sum().backward()
        return []

    program = Captured(lambda x: run_cond(x > 0.0, [true, lambda _: []], []), number(1.0))
    program(number(1.0))
    assert program.after["the gradient of a tensor"].tolist() == [2.0, 4.0]
    program(number(-1.0))
    assert program.after["the gradient of a tensor"].tolist() == [0.0, 0.0]


def test_gradient_of_a_tensor_made_inside_stays_inside() -> None:
    def body(given: list[Any], rows: list[Any]) -> Any:
        leaf = given[0].detach().requires_grad_()
        (leaf * leaf * rows[0]).backward()
        return [given[0] - 0.1 * leaf.grad], []

    def f(x: Any) -> Any:
        return run_scan(body, [x.sum()], [x])[0]

    x = np.array([0.3, 0.8, 0.5])
    c = x.sum()
    for row in x:
        c = c - 0.1 * 2.0 * c * row
    assert Captured(f, x)(x)[0] == pytest.approx(c)


def test_statistics_that_a_branch_updates_have_no_gradient() -> None:
    mean = weft.zeros(2, dtype=f64)

    def true(given: list[Any]) -> list[Any]:
        with weft.no_grad():
            mean.data = 0.9 * mean + 0.1 * given[0]
        return [given[0] * 2.0]

    def f(x: Any) -> Any:
        w = (x * 1.0).requires_grad_()
        (out,) = run_cond(x.sum() > 0.0, [true, lambda given: [given[0]]], [w])
        assert out.requires_grad
        assert not mean.requires_grad
        return [out]

    x = np.array([1.0, 2.0])
    program = Captured(f, x)
    assert program(x)[0].tolist() == [2.0, 4.0]
    np.testing.assert_allclose(program.after["a tensor"], 0.1 * x)


def test_test_of_a_loop_may_change_state() -> None:
    def f(x: Any) -> Any:
        calls = weft.zeros((), dtype=f64)

        def test(given: list[Any]) -> Any:
            calls.__iadd__(1.0)
            return given[0] < 10.0

        (out,) = run_while(test, lambda given: [given[0] * 2.0], [x])
        return [out, calls]

    program = Captured(f, number(1.0))
    assert [float(a) for a in program(number(1.0))] == [16.0, 5.0]
    assert [float(a) for a in program(number(50.0))] == [50.0, 1.0]


def test_loop_collects_as_many_values_as_it_ran() -> None:
    def f(x: Any) -> Any:
        return run_while(
            lambda given: given[0] < 10.0,
            lambda given: [given[0] * 2.0],
            [x],
            collect=lambda after: [after[0] + 0.5],
        )

    program = Captured(f, number(1.0))
    assert program(number(1.0))[1].tolist() == [2.5, 4.5, 8.5, 16.5]
    assert program(number(6.0))[1].tolist() == [12.5]
    assert program(number(60.0))[1].shape == (0,)


def test_gradient_flows_through_collected_values() -> None:
    def total(x: Any) -> Any:
        _, stack = run_while(
            lambda given: given[0] < 10.0,
            lambda given: [given[0] * x],
            [x],
            collect=lambda after: [weft.sin(after[0])],
        )
        return stack.sum()

    def python(x: Any) -> Any:
        c, out = x, x * 0.0
        while c < 10.0:
            c = c * x
            out = out + weft.sin(c)
        return out

    for order in (weft.grad, lambda f: weft.grad(weft.grad(f))):
        program = Captured(lambda x, order=order: [order(total)(x)], number(1.5))
        expected = float(order(python)(weft.tensor(1.5, dtype=f64)))
        assert program(number(1.5))[0] == pytest.approx(expected, rel=1e-10)


def test_tensor_and_its_detached_value_are_told_apart() -> None:
    def f(x: Any) -> Any:
        w = (x * 1.0).requires_grad_()
        fixed = w.detach()
        (out,) = run_cond(x > 0.0, [lambda _: [w * fixed], lambda _: [w + fixed]], [])
        return [weft.autograd.grad(out, w)[0]]

    program = Captured(f, number(3.0))
    assert program(number(3.0))[0] == 3.0
    assert program(number(-3.0))[0] == 1.0


class Attribute(Slot):
    """A place that is no tensor's."""

    def __init__(self, content: Any) -> None:
        self.key = ("attribute", id(self))
        self.content = content

    def get(self) -> Any:
        return self.content

    def put(self, content: Any) -> None:
        self.content = content

    def describe(self) -> str:
        return "the attribute"

    def set(self, content: Any) -> list[Any]:
        thread.capture.before_write(self)
        self.content = content
        return []


def test_what_branches_set_alike_is_set() -> None:
    slot = Attribute("old")

    def f(x: Any) -> Any:
        run_cond(x > 0.0, [lambda _: slot.set("new"), lambda _: slot.set("new")], [])
        assert slot.content == "new"
        return [x]

    with capturing("program") as capture:
        f(capture.input(TensorType((), f64)))
        capture.take_changes()
    assert slot.content == "old"


def test_what_branches_set_differently_must_be_a_tensor() -> None:
    slot = Attribute("old")
    with (
        pytest.raises(
            CaptureError, match="cond: what differs between branches must be a tensor, got the attribute"
        ),
        capturing("program") as capture,
    ):
        x = capture.input(TensorType((), f64))
        run_cond(x > 0.0, [lambda _: slot.set("a"), lambda _: slot.set("b")], [])
    assert slot.content == "old"


def test_what_a_loop_sets_must_be_a_tensor() -> None:
    slot = Attribute("old")
    with (
        pytest.raises(
            CaptureError, match="while_loop: what a loop changes must be a tensor, got the attribute"
        ),
        capturing("program") as capture,
    ):
        x = capture.input(TensorType((), f64))
        run_while(lambda given: given[0] < 3.0, lambda given: slot.set("new") or [given[0] + 1.0], [x])


def test_hook_on_what_leaves_a_region_is_refused() -> None:
    w = weft.tensor(2.0, dtype=f64, requires_grad=True)

    def hooked(_: list[Any]) -> list[Any]:
        y = w * w
        y.register_hook(lambda g: g * 10.0)
        return [y * 3.0]

    def inside(_: list[Any]) -> list[Any]:
        y = w * w
        y.register_hook(lambda g: g * 10.0)
        return [weft.autograd.grad(y, w)[0]]

    def f(branch: Any) -> Callable[[Any], Any]:
        return lambda x: run_cond(x > 0.0, [branch, lambda _: [w * 1.0]], [])

    with pytest.raises(
        CaptureError, match="a hook in a branch or loop of a graph must be for a backward in it"
    ):
        Captured(f(hooked), number(1.0))
    assert Captured(f(inside), number(1.0))(number(1.0))[0] == 40.0


# Attempts


def summary(capture: Capture) -> tuple[int, ...]:
    parts: tuple[Any, ...] = (
        capture.nodes,
        capture.journal,
        capture.externals,
        capture.constants,
        capture.inputs,
    )
    return tuple(len(part) for part in parts)


def test_failed_attempt_leaves_the_capture_as_it_was() -> None:
    outside, other = weft.ones(2, dtype=f64), weft.ones(2, dtype=f64)
    with capturing("program") as capture:
        x = capture.input(TensorType((), f64))
        local = x * 1.0
        outside.sum()
        before = summary(capture)
        with pytest.raises(CarryMismatch) as error, attempt(capture):
            local[...] = 7.0
            outside.__iadd__(x)
            other.sum()
            run_while(lambda given: given[0] < 3.0, lambda given: [given[0] + other], [x])
        assert (error.value.index, str(error.value.expected), str(error.value.got)) == (0, "f64[]", "f64[2]")
        assert error.value.where == "the body"
        assert summary(capture) == before
        assert type(other._data) is np.ndarray
        (out,) = run_while(lambda given: given[0] < 3.0, lambda given: [given[0] + local], [x])
        value = capture.value_of(out + outside.sum())
        del out
    alive = capture.settle()
    graph = capture.graph([*capture.inputs, *[e.value for e, _ in alive]], [value])
    assert interpret(graph, [number(2.0), *[t.numpy() for _, t in alive]])[0] == 6.0


def test_attempt_inside_a_region_undoes_imports() -> None:
    outside = weft.ones(2, dtype=f64)

    def body(given: list[Any]) -> list[Any]:
        region = thread.capture
        before = summary(region)
        with pytest.raises(KeyError), attempt(region):
            (outside * 3.0).sum()
            raise KeyError
        assert summary(region) == before
        return [given[0] + 1.0]

    program = Captured(lambda x: run_while(lambda given: given[0] < 3.0, body, [x]), number(0.5))
    assert program(number(0.5))[0] == 3.5
    assert program.outside == []

"""What compiled code changes outside at each call: attributes, items and tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft


def test_attribute_that_holds_a_tensor_is_replaced_at_each_call() -> None:
    class Average:
        def __init__(self) -> None:
            self.mean = weft.zeros(2)
            self.count = weft.tensor(0.0)

        def __call__(self, x: Any) -> Any:
            self.count = self.count + 1.0
            self.mean = self.mean + (x - self.mean) / self.count
            return self.mean

    eager, other = Average(), Average()
    compiled = weft.compile(other)
    for k in range(4):
        x = weft.tensor([float(k), k * k / 2.0])
        a, b = eager(x), compiled(x)
        assert a.tolist() == b.tolist() == other.mean.tolist()
        assert b is other.mean
    assert (other.count.item(), len(compiled.versions)) == (4.0, 1)


def test_recurrent_state_that_is_none_at_first() -> None:
    class Cell:
        state: Any = None

        def __call__(self, x: Any) -> Any:
            self.state = x if self.state is None else weft.tanh(self.state + x)
            return self.state

    eager, other = Cell(), Cell()
    compiled = weft.compile(other)
    for k in range(4):
        x = weft.full((2,), 0.5 * k)
        np.testing.assert_allclose(compiled(x).numpy(), eager(x).numpy(), rtol=1e-6)
    assert len(compiled.versions) == 2


def test_state_with_a_graph_is_differentiated_through_calls() -> None:
    def run(wrap: Callable[[Any], Any]) -> Any:
        w = weft.tensor([0.5], requires_grad=True)
        held = {"h": weft.ones(1)}

        def step(x: Any) -> Any:
            held["h"] = held["h"] * w + x
            return held["h"]

        step = wrap(step)
        for k in range(3):
            out = step(weft.full((1,), float(k)))
        out.sum().backward()
        return out.item(), w.grad.item()

    assert run(weft.compile) == run(lambda f: f)


def test_tensor_read_through_two_names_of_which_one_is_replaced() -> None:
    class Two:
        def __init__(self) -> None:
            self.a = self.b = weft.ones(1)

        def __call__(self) -> Any:
            out = self.a + 10.0 * self.b
            self.a = self.a + 1.0
            return out

    eager, other = Two(), Two()
    compiled = weft.compile(other)
    assert [compiled().item() for _ in range(4)] == [eager().item() for _ in range(4)]


def test_data_of_arguments_and_outside_tensors_changes_in_place() -> None:
    buffer = weft.zeros(2)

    @weft.compile
    def f(x: Any) -> None:
        buffer[0] = x.sum()
        x[1] = 7.0

    for k in range(3):
        x = weft.full((2,), float(k))
        f(x)
        assert buffer.tolist() == [2.0 * k, 0.0]
        assert x.tolist() == [float(k), 7.0]
    assert len(f.versions) == 1


def test_requires_grad_is_set_at_each_call() -> None:
    w = weft.ones(2)
    f = weft.compile(lambda x: (w.requires_grad_(), x * 2.0)[1])
    for _ in range(2):
        f(weft.ones(2))
        assert w.requires_grad
        w.requires_grad_(False)
    assert len(f.versions) == 1


def test_gradient_of_an_argument_accumulates_in_the_argument() -> None:
    @weft.compile
    def f(x: Any) -> None:
        (x * x).sum().backward()

    for k in range(1, 4):
        x = weft.tensor([float(k)], requires_grad=True)
        f(x)
        f(x)
        assert x.grad.item() == 4.0 * k


def test_backward_into_a_graph_made_outside_is_an_error() -> None:
    x = weft.tensor([1.0], requires_grad=True)
    with pytest.raises(weft.errors.CaptureError, match="got a tensor that was computed outside"):
        weft.compile(lambda y: y.sum().backward())(x * 2.0)


def test_plain_value_that_is_written_and_not_read_is_set_at_each_call() -> None:
    class Model:
        mode = "start"

        def __call__(self, x: Any) -> Any:
            self.mode = "run"
            return x * 2.0

    model = Model()
    f = weft.compile(model)
    for _ in range(2):
        f(weft.ones(1))
        assert model.mode == "run"
        model.mode = "start"
    assert len(f.versions) == 1


def test_changing_a_dict_that_is_an_argument_is_an_error() -> None:
    @weft.compile
    def f(params: Any) -> None:
        params["w"] = params["w"] * 2.0

    with pytest.raises(weft.errors.CaptureError, match="that is an argument must not be changed"):
        f({"w": weft.ones(1)})


def test_an_attribute_that_an_object_has_since_a_call_and_its_class_too() -> None:
    def left(way: Callable[[Any], Any]) -> list[Any]:
        class Counter:
            n: Any = 0
            t: Any = weft.tensor(1.0)

        o, log = Counter(), list[Any]()

        def step(c: Any) -> Any:
            if c > 0:
                o.n, o.t = o.n + 1, o.t * 2.0
                Counter.n += 1
            elif c < -1:
                Counter.t = Counter.t + 1.0
            return c * 1.0

        run = way(step)
        for c in (1.0, -1.0, 1.0, -2.0, -1.0, 1.0):
            run(weft.tensor(c))
            log.append(sorted((k, float(v)) for k, v in vars(o).items()))
            log.append([int(Counter.n), float(Counter.t)])
        return log

    assert left(weft.compile) == left(lambda f: f)

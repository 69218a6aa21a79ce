"""State that changes inside branches and loops of the graph, and in globals, lists, other functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft

TOTAL: Any = None
Wrap = Callable[[Any], Any]


def plain(function: Any) -> Any:
    return function


def batch_norm(wrap: Wrap) -> Any:
    weft.manual_seed(0)
    x, mean, var = weft.randn(8, 3), weft.zeros(3), weft.ones(3)
    scale, shift = weft.ones(3, requires_grad=True), weft.zeros(3, requires_grad=True)
    f = wrap(lambda x: weft.batch_norm(x, mean, var, scale, shift, training=True))
    for _ in range(3):
        y = f(x)
    (y**2).sum().backward()
    return [mean.tolist(), var.tolist(), scale.grad.tolist(), shift.grad.tolist()]


def attributes_in_loops(wrap: Wrap) -> Any:
    class Model:
        def __init__(self) -> None:
            self.count = weft.tensor(0.0)
            self.sums = weft.zeros(2)

        def __call__(self, x: Any) -> Any:
            while x.sum() < 10:
                self.count = self.count + 1.0
                self.sums += x
                x = x * 2.0
            if x.sum() > 15:
                self.sums = self.sums * 10.0
            return x

    model = Model()
    f = wrap(model)
    found = []
    for k in (1.0, 2.0, 0.1):
        found += [*f(weft.full((2,), k)).tolist(), model.count.item(), *model.sums.tolist()]
    return found


def random_numbers_in_loops(wrap: Wrap) -> Any:
    def f(x: Any) -> Any:
        steps = weft.tensor(0.0)
        while x.sum() < 5:
            x = x + weft.rand(2)
            steps = steps + 1.0
        return weft.concat([x, steps.reshape(1)])

    weft.manual_seed(0)
    f = wrap(f)
    return [f(weft.zeros(2)).tolist() for _ in range(3)] + [[*weft.get_rng_state().tolist(), 0]]


def micro_batches(wrap: Wrap) -> Any:
    w = weft.ones(3, requires_grad=True)

    def step(xs: Any) -> Any:
        w.zero_grad()
        for x in xs:
            ((w * x).sum() ** 2).backward()
        with weft.no_grad():
            w.data = w - 0.01 * w.grad
        return w.grad

    step = wrap(step)
    weft.manual_seed(0)
    xs = weft.randn(4, 3)
    return [step(xs).tolist() for _ in range(3)] + [w.tolist()]


def update_in_a_branch(wrap: Wrap) -> Any:
    w = weft.ones(2, requires_grad=True)

    def step(x: Any) -> Any:
        w.zero_grad()
        loss = (w * x).sum()
        if loss > 0:
            loss = loss * 2.0
        loss.backward()
        if w.grad.sum() > 3:
            with weft.no_grad():
                w.data = w - w.grad
        return loss

    step = wrap(step)
    losses = [step(weft.full((2,), k)).item() for k in (1.0, 2.0, -1.0, 3.0)]
    return losses + w.tolist() + w.grad.tolist()


def items_of_a_list(wrap: Wrap) -> Any:
    held = [weft.zeros(1), weft.zeros(1)]

    def f(x: Any) -> Any:
        for i in range(2):
            held[i] = held[i] + x * (i + 1)
        return held[0] + held[1]

    f = wrap(f)
    return [f(weft.ones(1)).item() for _ in range(3)] + [h.item() for h in held]


def globals_and_enclosing_variables(wrap: Wrap) -> Any:
    global TOTAL
    TOTAL = weft.zeros(1)
    last = weft.zeros(1)

    def f(x: Any) -> Any:
        global TOTAL
        nonlocal last
        TOTAL = TOTAL + x
        last = TOTAL * 2.0 + last
        return last

    f = wrap(f)
    return [f(weft.ones(1)).item() for _ in range(3)] + [TOTAL.item(), last.item()]


def numbers_that_a_run_tells(wrap: Wrap) -> Any:
    f = wrap(lambda x: (x.sum().item(), x.shape[0], float(x[0]), int(x[1])))
    return [f(weft.full((2,), k)) for k in (1.0, 3.5)]


def one_compiled_function_in_another(wrap: Wrap) -> Any:
    double = wrap(lambda x: x * 2.0)

    class Model:
        offset = 1.0

        def forward(self, x: Any) -> Any:
            return double(x) + self.offset

    model = Model()
    outer = wrap(lambda x: model.forward(x) * model.offset)
    before = outer(weft.ones(1)).item()
    model.offset = 3.0
    return [before, outer(weft.ones(1)).item()]


def gradients_switched_inside(wrap: Wrap) -> Any:
    w = weft.ones(2, requires_grad=True)

    def f(x: Any) -> Any:
        with weft.no_grad():
            y = w * x
            with weft.enable_grad():
                z = w * y
        return y, z

    y, z = wrap(f)(weft.full((2,), 3.0))
    z.sum().backward()
    return [y.requires_grad, z.requires_grad, *w.grad.tolist()]


PROGRAMS = [
    batch_norm,
    attributes_in_loops,
    random_numbers_in_loops,
    micro_batches,
    update_in_a_branch,
    items_of_a_list,
    globals_and_enclosing_variables,
    numbers_that_a_run_tells,
    one_compiled_function_in_another,
    gradients_switched_inside,
]


@pytest.mark.rotating(3)
@pytest.mark.parametrize("capture", ["source", "trace"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_compiled_program_leaves_what_the_eager_one_leaves(program: Any, capture: str) -> None:
    compiled = program(lambda f: weft.compile(f, capture=capture))
    np.testing.assert_allclose(compiled, program(plain), rtol=1e-5, atol=1e-6)


def test_vmap_of_a_compiled_branch_selects() -> None:
    @weft.compile
    def f(x: Any) -> Any:
        if x.sum() > 0:
            return x * 2.0
        return -x

    xs = weft.tensor([[1.0, 2.0], [-1.0, -2.0]])
    assert weft.vmap(f)(xs).tolist() == [[2.0, 4.0], [1.0, 2.0]]


def test_state_of_a_loop_needs_one_version() -> None:
    functions = []

    def compiled(f: Any) -> Any:
        functions.append(weft.compile(f))
        return functions[-1]

    attributes_in_loops(compiled)
    random_numbers_in_loops(compiled)
    assert [len(f.versions) for f in functions] == [1, 1]

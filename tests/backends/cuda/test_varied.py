"""Ops on a device whose sizes vary from call to call: few programs, and what the host gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.standin import StandIn
from tests.backends.cuda.test_programs import Compiler
from weft.backends.cuda.eager import set_build
from weft.backends.cuda.varied import FEW, Varied

SHAPES = [(2, 3), (3, 3), (4, 3), (5, 3), (6, 3), (7, 3), (8, 3), (9, 3)]


@pytest.fixture
def compiler(api: StandIn) -> Compiler:
    found = Compiler(api)
    set_build(found)
    return found


FUNCTIONS: dict[str, Any] = {
    "a product": lambda t: t @ weft.ones((3, 2), device=t.device),
    "a product with its own transpose": lambda t: t @ t.T,
    "rows added": lambda t: t + weft.arange(3.0, device=t.device),
    "sums along columns": lambda t: t.sum(axis=0),
    "sums along rows": lambda t: t.sum(axis=1),
    "the largest": lambda t: t.max(axis=0),
    "softmax": lambda t: weft.softmax(t, axis=0),
    "sorted": lambda t: weft.sort(t, axis=0),
    "running sums": lambda t: weft.cumsum(t, axis=0),
    "joined": lambda t: weft.concat([t, t * 2.0]),
    "rows by numbers": lambda t: t[weft.tensor([1, 0, 1], device=t.device)],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sizes_that_vary_take_few_programs(name: str, compiler: Compiler) -> None:
    function, counts = FUNCTIONS[name], []
    for shape in SHAPES:
        x = weft.rand(*shape, generator=weft.Generator().manual_seed(1))
        found = function(x.cuda())
        np.testing.assert_allclose(found.cpu().numpy(), function(x).numpy(), rtol=2e-5, atol=1e-6)
        counts.append(len(compiler.built))
    assert counts[-1] == counts[FEW], f"{name} goes on compiling: {counts}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_sizes_that_vary_are_those_of_the_host(name: str, compiler: Compiler) -> None:
    function = FUNCTIONS[name]
    for shape in SHAPES:
        x: Any = weft.rand(*shape, generator=weft.Generator().manual_seed(1)).requires_grad_()
        there = x.detach().cuda().requires_grad_()
        for t in (x, there):
            out = function(t)
            (out * out).sum().backward()
        np.testing.assert_allclose(there.grad.cpu().numpy(), x.grad.numpy(), rtol=2e-5, atol=1e-6)


def test_gradients_of_sizes_that_vary_without_end_stop_compiling(compiler: Compiler) -> None:
    w, counts = weft.rand(3, 2, generator=weft.Generator().manual_seed(1)), []
    for n in range(2, 90):
        x: Any = weft.ones((n, 3))
        grads = []
        for device in ("cpu", "cuda"):
            t = x.detach().to(device).requires_grad_()
            weft.softmax(t @ w.to(device), axis=1)[:, 0].sum().backward()
            grads.append(t.grad.cpu().numpy())
        np.testing.assert_allclose(grads[1], grads[0], rtol=2e-5, atol=1e-6)
        counts.append(len(compiler.built))
    assert counts[-1] == counts[-10], counts


def test_sizes_of_one_are_not_those_of_more(compiler: Compiler) -> None:
    x = weft.rand(9, 9, generator=weft.Generator().manual_seed(1))
    for n, m in [(2, 2), (3, 3), (4, 4), (5, 5), (6, 6), (6, 1), (1, 6), (7, 1), (1, 1), (5, 7), (7, 5)]:
        a, b = x[:n, :m], x[:n, :1]
        there = a.cuda() - b.cuda()
        np.testing.assert_array_equal(there.cpu().numpy(), (a - b).numpy())
        there = a.cuda() - x[:1, :m].cuda()
        np.testing.assert_array_equal(there.cpu().numpy(), (a - x[:1, :m]).numpy())


def test_errors_of_sizes_are_those_of_the_host(compiler: Compiler) -> None:
    w = weft.ones((3, 2))
    for n in range(2, 9):
        assert (weft.ones((n, 3)).cuda() @ w.cuda()).shape == (n, 2)
        with pytest.raises(weft.errors.ShapeError) as there:
            weft.ones((n, 4)).cuda() @ w.cuda()
        with pytest.raises(weft.errors.ShapeError) as here:
            weft.ones((n, 4)) @ w
        assert str(there.value).splitlines()[0] == str(here.value).splitlines()[0]


def test_what_needs_numbers_gets_them() -> None:
    varied, asked = Varied(), list[Any]()

    def make(shapes: Any) -> Any:
        asked.append(shapes)
        if not all(isinstance(s, int) for shape in shapes for s in shape):
            raise weft.errors.ShapeError("test", "sizes must be known, got open ones")
        return str(shapes)

    for n in range(2, 9):
        assert varied.find([(n, 2)], make) == f"[({n}, 2)]"
    assert len(asked) == 8  # it was tried once

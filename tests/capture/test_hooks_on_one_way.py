"""Hooks and ``weft.Function.backward`` run where a gradient comes, on the way that a run takes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import weft
from weft import nn

Program = tuple[Callable[[Any], Any], Callable[[], Any]]


def on_what_it_makes(o: Any) -> Program:
    def hook(g: Any) -> Any:
        o.n += 1
        o.last = g * 2.0
        return g + 10.0

    def run(x: Any) -> Any:
        w = x.detach().requires_grad_()
        h = w * 1.0
        h.register_hook(hook)
        loss = w * 3.0
        if x > 0.0:
            loss = loss * h
        loss.backward()
        return w.grad

    return run, lambda: (o.n, o.last)


def of_no_state(o: Any) -> Program:
    def run(x: Any) -> Any:
        w = x.detach().requires_grad_()
        h = w * 1.0
        h.register_hook(lambda g: g + 10.0)
        y = w * h if x > 0.0 else w * 2.0
        (y * 1.0).backward()
        return w.grad

    return run, lambda: None


def in_a_loop_without_turns(o: Any) -> Program:
    def hook(g: Any) -> Any:
        o.n += 1
        return g + 10.0

    def run(x: Any) -> Any:
        w = x.detach().requires_grad_()
        h = w * 1.0
        h.register_hook(hook)
        loss, i = w * 3.0, x * 0.0
        while i < x:
            loss, i = loss * h, i + 1.0
        loss.backward()
        return w.grad

    return run, lambda: o.n


def on_parameters(o: Any) -> Program:
    p, w = (weft.tensor(v, requires_grad=True) for v in (2.0, 3.0))

    def hook(g: Any) -> Any:
        o.n += 1
        o.last = g * 2.0
        return g + 10.0

    def after(q: Any) -> None:
        o.n += 100
        q.grad.add_(5.0)

    p.register_hook(hook)
    p.register_post_accumulate_grad_hook(after)

    def run(x: Any) -> Any:
        if x > 1.5:
            p.grad = w.grad = None
        loss = w * 3.0
        if x > 0.0:
            loss = loss * p
        loss.backward()

    return run, lambda: (o.n, o.last, p.grad, w.grad)


def where_gradients_are_asked_for(o: Any) -> Program:
    p, w = (weft.tensor(v, requires_grad=True) for v in (2.0, 3.0))

    def hook(g: Any) -> Any:
        o.n += 1
        return g + 10.0

    p.register_hook(hook)

    def run(x: Any) -> Any:
        h = w * 2.0
        h.register_hook(hook)
        loss = w * 3.0
        if x > 0.0:
            loss = loss * p
        if x > 1.5:
            loss = loss * h
        return weft.autograd.grad(loss, [p, w], materialize_grads=True)

    return run, lambda: o.n


def on_nodes(o: Any) -> Program:
    def after(into: Any, out: Any) -> Any:
        o.n += 1
        return (into[0] + 5.0, *into[1:])

    def before(out: Any) -> Any:
        o.n += 100
        return (out[0] + 7.0,)

    def run(x: Any) -> Any:
        w = x.detach().requires_grad_()
        y = w * 2.0
        y.grad_fn.register_hook(after)
        y.grad_fn.register_prehook(before)
        loss = w * 3.0
        if x > 0.0:
            loss = loss * y
        loss.backward()
        return w.grad

    return run, lambda: o.n


def on_modules(o: Any) -> Program:
    layer = nn.Linear(1, 1)
    with weft.no_grad():
        for p in layer.parameters():
            p.fill_(0.5)
    o.last = weft.zeros((1, 1))

    def hook(module: Any, into: Any, out: Any) -> Any:
        o.n += 1
        o.last = out[0] * 1.0
        return (into[0] + 3.0,)

    def before(module: Any, out: Any) -> Any:
        o.n += 100
        return (out[0] + 2.0,)

    layer.register_full_backward_hook(hook)
    layer.register_full_backward_pre_hook(before)

    def run(x: Any) -> Any:
        layer.zero_grad()
        w = x.detach().reshape(1, 1).requires_grad_()
        y, loss = layer(w), w.sum() * 3.0
        if x > 0.0:
            loss = loss * y.sum()
        loss.backward()
        return w.grad

    return run, lambda: (o.n, o.last, layer.weight.grad)


def backward_of_a_function(o: Any) -> Program:
    class Product(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            return x * y, x * 3.0

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            o.n += 1
            o.last = g * 1.0
            x, y = ctx.saved_tensors
            if x > 1.5:
                o.n += 10
            return g * y + h * 3.0 + 1.0, None

    def run(x: Any) -> Any:
        w, v = (x.detach().requires_grad_() for _ in range(2))
        y, z = Product.apply(w, v)
        loss = w * 3.0
        if x > 0.0:
            loss = loss * y
        if x > 1.5:
            loss = loss * z
        loss.backward()
        return w.grad

    return run, lambda: (o.n, o.last)


def of_gradients_of_gradients(o: Any) -> Program:
    def hook(g: Any) -> Any:
        o.n += 1
        return g * g + 1.0

    def run(x: Any) -> Any:
        w = x.detach().requires_grad_()
        h = w * w
        h.register_hook(hook)
        loss = w * w * 3.0
        if x > 0.0:
            loss = loss * h
        (g,) = weft.autograd.grad(loss, [w], create_graph=True)
        g.backward()
        return g.detach(), w.grad

    return run, lambda: o.n


PROGRAMS = [
    on_what_it_makes,
    of_no_state,
    in_a_loop_without_turns,
    on_parameters,
    where_gradients_are_asked_for,
    on_nodes,
    on_modules,
    backward_of_a_function,
    of_gradients_of_gradients,
]


@pytest.mark.parametrize("capture", ["source", "trace"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_they_run_where_a_gradient_comes(program: Callable[[Any], Program], capture: str) -> None:
    eager = _record(program, lambda f: f)
    assert _record(program, lambda f: weft.compile(f, backend="interpret", capture=capture)) == eager


def _record(program: Callable[[Any], Program], way: Any) -> list[Any]:
    o = SimpleNamespace(n=0, last=weft.tensor(0.0))
    run, observe = program(o)
    run, values = way(run), (-1.0, 1.0, -2.0, 3.0, 0.5, -1.0, 2.0)
    return [(_plain(run(weft.tensor(value))), _plain(observe())) for value in values]


def _plain(tree: Any) -> list[Any]:
    return [x.tolist() if isinstance(x, weft.Tensor) else x for x in weft.tree_leaves(tree)]

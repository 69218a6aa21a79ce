"""Bodies of hooks and of ``weft.Function`` are captured: reads are guarded, writes are done by each call."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import weft
from weft import nn
from weft.errors import CaptureError

SCALE = 1.0
Program = tuple[Callable[[Any], Any], Callable[[], Any]]


def state(**more: Any) -> Any:
    return SimpleNamespace(**{"n": 0, "k": 2.0, "last": None, **more})


def forward_hook(o: Any) -> Program:
    layer = nn.Tanh()

    def hook(module: Any, args: Any, out: Any) -> Any:
        o.n += 1
        o.last = out.detach()
        return out * o.k * SCALE

    layer.register_forward_hook(hook)
    return lambda x: layer(x), lambda: (o.n, o.last)


def hooks_with_keywords(o: Any) -> Program:
    class Scaled(nn.Module):
        def forward(self, x: Any, by: Any) -> Any:
            return x * by

    layer = Scaled()

    def before(module: Any, args: Any, kwargs: Any) -> Any:
        o.n += 1
        return args, {"by": kwargs["by"] * SCALE + o.n}

    def after(module: Any, args: Any, kwargs: Any, out: Any) -> Any:
        if out > 3.0:
            o.n += 10
        o.last = out * o.k
        return out + 1.0

    layer.register_forward_pre_hook(before, with_kwargs=True)
    layer.register_forward_hook(after, with_kwargs=True)
    return lambda x: layer(x, by=x), lambda: (o.n, o.last)


def callable_object(o: Any) -> Program:
    class Counter:
        def __call__(self, module: Any, args: Any, out: Any) -> Any:
            o.n += 1
            return out * o.k * SCALE

        def before(self, module: Any, args: Any) -> None:
            o.n += 10

    layer, counter = nn.ReLU(), Counter()
    layer.register_forward_hook(counter)
    layer.register_forward_pre_hook(counter.before)
    return lambda x: layer(x), lambda: o.n


def hook_in_a_branch(o: Any) -> Program:
    layer = nn.ReLU()
    o.last = weft.zeros(())

    def hook(module: Any, args: Any, out: Any) -> None:
        o.n += 1
        o.last = out * SCALE

    layer.register_forward_hook(hook)

    def run(x: Any) -> Any:
        if x > 0.0:
            x = layer(x)
        return x * o.k

    return run, lambda: (o.n, o.last)


def hook_in_a_loop(o: Any) -> Program:
    layer = nn.ReLU()
    o.last = weft.zeros(())

    def hook(module: Any, args: Any, out: Any) -> None:
        o.n += 1
        o.last = out * 2.0

    layer.register_forward_hook(hook)

    def run(x: Any) -> Any:
        i = x * 0.0
        while i < x:
            i += layer(x) * 0.0 + 1.0
        return i * o.k * SCALE

    return run, lambda: (o.n, o.last)


def backward_hooks(o: Any) -> Program:
    layer = nn.ReLU()

    def hook(module: Any, into: Any, out: Any) -> Any:
        o.n += 1
        o.last = out[0]
        return (into[0] * o.k,)

    def before(module: Any, out: Any) -> Any:
        o.n += 100
        return (out[0] * SCALE,)

    layer.register_full_backward_hook(hook)
    layer.register_full_backward_pre_hook(before)

    def run(x: Any) -> Any:
        w = x.detach().requires_grad_()
        (layer(w) ** 2).backward()
        return w.grad

    return run, lambda: (o.n, o.last)


def hook_on_a_tensor(o: Any) -> Program:
    def hook(g: Any) -> Any:
        o.n += 1
        o.last = g
        return g * o.k * SCALE

    def run(x: Any) -> Any:
        w = x.detach().requires_grad_()
        y = w * 2.0
        y.register_hook(hook)
        (y * y).backward()
        return w.grad

    return run, lambda: (o.n, o.last)


def hooks_on_a_parameter(o: Any) -> Program:
    w = weft.tensor(2.0, requires_grad=True)

    def hook(g: Any) -> Any:
        o.n += 1
        o.last = g
        if g > 0.0:
            o.n += 5
        return g * o.k

    def after(p: Any) -> None:
        o.n += 100
        p.grad.mul_(SCALE)

    w.register_hook(hook)
    w.register_post_accumulate_grad_hook(after)

    def run(x: Any) -> Any:
        w.grad = None
        (w * x).backward()

    return run, lambda: (o.n, o.last, w.grad)


def hook_where_gradients_are_asked_for(o: Any) -> Program:
    w = weft.tensor(2.0, requires_grad=True)

    def hook(g: Any) -> Any:
        o.n += 1
        return g * o.k * SCALE

    w.register_hook(hook)
    return lambda x: weft.autograd.grad(w * x * w, w), lambda: o.n


def hooks_on_a_node(o: Any) -> Program:
    def hook(into: Any, out: Any) -> Any:
        o.n += 1
        return (into[0] * o.k, *into[1:])

    def before(out: Any) -> Any:
        o.n += 100
        return (out[0] * SCALE,)

    def run(x: Any) -> Any:
        w = x.detach().requires_grad_()
        y = w * 2.0
        y.grad_fn.register_hook(hook)
        y.grad_fn.register_prehook(before)
        (y * y).backward()
        return w.grad

    return run, lambda: o.n


def function(o: Any) -> Program:
    class Square(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            o.n += 1
            ctx.save_for_backward(x)
            ctx.double, ctx.k = x * 2.0, o.k
            o.last = x * x * o.k
            return o.last

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            o.n += 100
            o.g = g
            (x,) = ctx.saved_tensors
            if x > 1.0:
                o.n += 10
            return g * ctx.double * ctx.k * SCALE + x * 0.0

    def run(x: Any) -> Any:
        w = x.detach().requires_grad_()
        Square.apply(w).backward()
        return w.grad

    return run, lambda: (o.n, o.last, o.g)


def function_with_setup(o: Any) -> Program:
    class Scaled(weft.Function):
        @staticmethod
        def forward(x: Any, k: Any) -> Any:
            o.n += 1
            return x * x * k * SCALE

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            o.n += 10
            ctx.k = inputs[1] * o.k
            ctx.save_for_backward(inputs[0])

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * x * 2.0 * ctx.k, None

    def run(x: Any) -> Any:
        w = x.detach().requires_grad_()
        y = Scaled.apply(w, o.n + 1)
        y.backward()
        return y.detach(), w.grad

    return run, lambda: o.n


def function_in_transforms(o: Any) -> Program:
    class Square(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            o.n += 1
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            o.n += 10
            (x,) = ctx.saved_tensors
            return g * x * 2.0 * o.k

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            o.n += 100
            (x,) = ctx.saved_tensors
            return t * x * 2.0 * SCALE

    def run(x: Any) -> Any:
        xs = weft.stack([x, x + 1.0])
        slopes = weft.vmap(weft.grad(lambda v: Square.apply(v)))(xs)
        return slopes, weft.jvp(lambda v: Square.apply(v), (x,), (x * 0.0 + 1.0,))

    return run, lambda: o.n


PROGRAMS = [
    forward_hook,
    hooks_with_keywords,
    callable_object,
    hook_in_a_branch,
    hook_in_a_loop,
    backward_hooks,
    hook_on_a_tensor,
    hooks_on_a_parameter,
    hook_where_gradients_are_asked_for,
    hooks_on_a_node,
    function,
    function_with_setup,
    function_in_transforms,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_what_they_read_is_guarded_and_what_they_write_is_written(
    program: Callable[[Any], Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    eager = _record(program, monkeypatch, lambda f: f)
    assert _record(program, monkeypatch, lambda f: weft.compile(f, backend="interpret")) == eager


def _record(program: Callable[[Any], Program], monkeypatch: pytest.MonkeyPatch, way: Any) -> list[Any]:
    o = state()
    monkeypatch.setitem(globals(), "SCALE", 1.0)
    run, observe = program(o)
    run = way(run)
    found = []
    for i, value in enumerate((1.0, -2.0, 3.0, 0.5, 2.0, -1.0, 4.0)):
        if i == 3:
            o.k = 3.0
        if i == 5:
            monkeypatch.setitem(globals(), "SCALE", 4.0)
        found.append((_plain(run(weft.tensor(value))), _plain(observe())))
    return found


def _plain(tree: Any) -> list[Any]:
    return [x.tolist() if isinstance(x, weft.Tensor) else x for x in weft.tree_leaves(tree)]


def _scaled(x: Any) -> Any:
    return x * SCALE


@pytest.mark.parametrize(
    "run",
    [
        lambda x: weft.vmap(_scaled)(weft.stack([x, x])),
        lambda x: weft.grad(_scaled)(x),
        lambda x: weft.cond(x > 0.0, _scaled, lambda v: v, x),
        lambda x: weft.switch(x.astype("int32"), [_scaled, _scaled], x),
        lambda x: weft.while_loop(lambda v: v < 5.0, lambda v: _scaled(v) + 1.0, x),
        lambda x: weft.scan(lambda c, r: (_scaled(c) + r, c), x, weft.ones(3)),
        weft.grad(_scaled),
        weft.no_grad()(_scaled),
    ],
)
def test_functions_that_weft_calls_are_guarded(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = weft.compile(lambda x: run(x))
    for scale in (1.0, 1.0, 3.0, 1.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        x = weft.tensor(2.0)
        assert _plain(compiled(x)) == _plain(run(x))


def test_hooks_that_come_and_go_are_noticed() -> None:
    def record(way: Any) -> list[Any]:
        w = weft.tensor(2.0, requires_grad=True)
        handle = w.register_hook(lambda g: g * 7.0)
        run = way(lambda x: weft.autograd.grad(w * x, w))
        found = [_plain(run(weft.tensor(1.0)))]
        handle.remove()
        found.append(_plain(run(weft.tensor(1.0))))
        w.register_hook(lambda g: g * 3.0)
        return [*found, _plain(run(weft.tensor(1.0)))]

    assert record(weft.compile) == record(lambda f: f) == [[7.0], [1.0], [3.0]]


def test_methods_of_a_function_that_are_replaced_are_noticed() -> None:
    class Scaled(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2.0

    @weft.compile
    def run(x: Any) -> Any:
        w = x.detach().requires_grad_()
        y = Scaled.apply(w)
        y.backward()
        return y.detach(), w.grad

    x = weft.tensor(1.0)
    assert _plain(run(x)) == [2.0, 2.0]
    setattr(Scaled, "forward", staticmethod(lambda ctx, x: x * 3.0))  # noqa: B010
    assert _plain(run(x)) == [3.0, 2.0]
    setattr(Scaled, "backward", staticmethod(lambda ctx, g: g * 4.0))  # noqa: B010
    assert _plain(run(x)) == [3.0, 4.0]


def test_a_hook_that_lengthens_a_list_is_refused() -> None:
    log: list[Any] = []
    w = weft.tensor(2.0, requires_grad=True)
    w.register_hook(lambda g: log.append(g))  # here

    def run(x: Any) -> None:
        (w * x).backward()

    with pytest.raises(CaptureError, match="length of a list") as caught:
        weft.compile(run)(weft.tensor(1.0))
    assert "# here" in str(caught.value)
    assert log == []


def test_changes_in_a_backward_outside_are_refused() -> None:
    o, layer = state(), nn.ReLU()

    def hook(module: Any, into: Any, out: Any) -> None:
        o.n += 1

    layer.register_full_backward_hook(hook)
    w = weft.tensor(1.0, requires_grad=True)

    def run(x: Any) -> Any:
        return layer(w * x)

    with pytest.raises(CaptureError, match=r"a backward outside comes .* a change of the attribute 'n'"):
        weft.compile(run)(weft.tensor(1.0))
    assert o.n == 0


def test_a_backward_outside_runs_hooks_that_change_nothing() -> None:
    def record(way: Any) -> list[Any]:
        o, layer = state(), nn.ReLU()
        layer.register_full_backward_hook(lambda module, into, out: (into[0] * o.k,))
        w = weft.tensor(1.0, requires_grad=True)
        run, found = way(lambda x: layer(w * x)), []
        for k in (2.0, 3.0, 2.0):
            o.k, w.grad = k, None
            run(weft.tensor(5.0)).backward()
            found.append(w.grad.item())  # type: ignore[attr-defined]
        return found

    assert record(weft.compile) == record(lambda f: f) == [10.0, 15.0, 10.0]


def test_state_that_branches_of_a_switch_set_is_that_of_the_branch_taken() -> None:
    def left(way: Any) -> list[Any]:
        o = state()

        def first(x: Any) -> Any:
            o.n = 3
            return x * 2.0

        run = way(lambda i, x: weft.switch(i, [first, lambda v: v], x))
        return [(float(run(weft.tensor(i), weft.tensor(1.0))), int(o.n)) for i in (1, 0, 1)]

    assert left(weft.compile) == left(lambda f: f) == [(1.0, 0), (2.0, 3), (1.0, 3)]

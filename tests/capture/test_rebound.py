"""Tensors from outside that somebody replaces between calls: then each call looks them up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft


class Holder:
    """An object with tensors."""

    def __init__(self) -> None:
        self.p: Any = weft.ones(3)
        self.q: Any = weft.full((3,), 2.0)


class Net(weft.nn.Module):
    """A module with a weight and a state that nobody registered."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = weft.nn.Parameter(weft.ones(3))
        self.hidden = weft.zeros(3)

    def forward(self, x: Any) -> Any:
        return x * self.weight + self.hidden


def _versions(f: Any) -> int:
    return len(f.versions)


def _cases() -> dict[str, tuple[Callable[[Any], Any], Callable[[Any], None]]]:
    o, items, table, net = Holder(), [weft.ones(3)], {"k": weft.ones(3)}, Net()
    z = weft.ones(3)

    def read_cell(x: Any) -> Any:
        return x * z

    def put_cell(new: Any) -> None:
        nonlocal z
        z = new

    def set_hidden(new: Any) -> None:
        net.hidden = new

    return {
        "cell": (read_cell, put_cell),
        "attribute": (lambda x: x * o.p, lambda new: setattr(o, "p", new)),
        "item of a list": (lambda x: x * items[0], lambda new: items.__setitem__(0, new)),
        "item of a dict": (lambda x: x * table["k"], lambda new: table.__setitem__("k", new)),
        "attribute of a module": (lambda x: net(x), set_hidden),
        "changed in place, too": (lambda x: o.q.mul_(2.0) * x, lambda new: setattr(o, "q", new)),
        "beside one that stays": (lambda x: x * o.p + net.weight, lambda new: setattr(o, "p", new)),
        "a view of it": (lambda x: x * o.p[:2].sum(), lambda new: setattr(o, "p", new)),
        "in a loop": (lambda x: sum([x * o.p for _ in range(3)]), lambda new: setattr(o, "p", new)),
    }


@pytest.mark.parametrize("name", list(_cases()))
def test_two_versions_serve_all_tensors(name: str) -> None:
    read, put = _cases()[name]
    eager_read, eager_put = _cases()[name]
    f = weft.compile(read, backend="interpret")
    for k in range(6):
        x = weft.full((3,), float(k))
        assert f(x).tolist() == eager_read(x).tolist()
        assert f(x).tolist() == eager_read(x).tolist()
        put(weft.full((3,), k + 0.5))
        eager_put(weft.full((3,), k + 0.5))
    assert _versions(f) == 2


def test_another_type_is_captured_anew_and_right() -> None:
    o = Holder()
    f = weft.compile(lambda x: (x * o.p).sum(), backend="interpret")
    news = [weft.ones(3), weft.ones(3) * 2.0, weft.ones(1) * 3.0, weft.ones(3) * 4.0, weft.ones(3, 3)]
    for new in news:
        o.p = new
        assert f(weft.ones(3)).item() == (weft.ones(3) * new).sum().item()
    o.p = 2.5
    assert f(weft.ones(3)).item() == 7.5


def test_gradients_reach_the_tensor_that_is_there() -> None:
    o = Holder()
    f = weft.compile(lambda x: (x * o.p * o.p).sum(), backend="interpret")
    for k in range(4):
        o.p = weft.full((3,), k + 1.0, requires_grad=True)
        f(weft.ones(3)).backward()
        assert o.p.grad.tolist() == [2.0 * (k + 1.0)] * 3
    assert _versions(f) == 2


def test_gradients_taken_inside_reach_the_tensor_that_is_there() -> None:
    o = Holder()

    def step(x: Any) -> Any:
        loss = (x * o.p * o.p).sum()
        loss.backward()
        return loss

    f = weft.compile(step, backend="interpret")
    for k in range(4):
        o.p = weft.full((3,), k + 1.0, requires_grad=True)
        f(weft.ones(3))
        assert o.p.grad.tolist() == [2.0 * (k + 1.0)] * 3


def test_a_tensor_that_begins_to_require_grad_is_noticed() -> None:
    net = Net()
    f = weft.compile(net, backend="interpret")
    for _ in range(3):
        f(weft.ones(3))
        net.hidden = weft.ones(3)
    net.hidden.requires_grad_()
    f(weft.ones(3)).sum().backward()
    assert net.hidden.grad.tolist() == [1.0, 1.0, 1.0]


def test_truncated_backpropagation_compiles_twice_at_most() -> None:
    class Cell:
        hidden: Any = weft.zeros(3)

    cell, weight = Cell(), weft.full((3,), 0.5, requires_grad=True)

    def loss_of(x: Any) -> Any:
        return (weft.tanh(cell.hidden * weight + x)).sum()

    f = weft.compile(loss_of, backend="interpret")
    for k in range(5):
        x = weft.full((3,), 0.1 * k)
        f(x).backward()
        expected = weft.autograd.grad(loss_of(x), [weight])[0]
        assert weight.grad.tolist() == pytest.approx(expected.tolist())
        weight.grad = None
        cell.hidden = weft.tanh(cell.hidden * weight + x).detach()
    assert _versions(f) == 2


def test_two_places_that_come_to_hold_one_tensor() -> None:
    def program(o: Holder) -> Callable[[Any], Any]:
        def f(x: Any) -> Any:
            o.p.add_(x)
            return o.p + o.q

        return f

    eager, compiled = Holder(), Holder()
    f = weft.compile(program(compiled), backend="interpret")
    for k in range(4):
        for o, function in ((eager, program(eager)), (compiled, f)):
            o.p = weft.full((3,), float(k))
            o.q = o.p if k == 3 else weft.full((3,), 2.0)
            o.out = function(weft.ones(3))  # type: ignore[attr-defined]
        assert compiled.out.tolist() == eager.out.tolist()  # type: ignore[attr-defined]
        assert compiled.q.tolist() == eager.q.tolist()

"""Gradients through branches and loops go only to what the differentiated result hangs on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft


def _keeps_a_loss_on_one_way(p: Any, kept: dict[str, Any], x: Any) -> None:
    loss = (p * x).sum()
    if loss > 0.5:
        loss = loss * 0.5
    else:
        kept["loss"] = loss
    loss.backward()


def _keeps_the_best(p: Any, kept: dict[str, Any], x: Any) -> None:
    loss = (p * x).sum()
    if loss < kept["loss"]:
        kept["loss"] = loss
    loss.backward()


def _keeps_one_of_a_loop(p: Any, kept: dict[str, Any], x: Any) -> None:
    loss, i = (p * x).sum(), weft.tensor(0)
    while i < 3:
        i = i + 1
        loss = loss * 2
        if loss > 3:
            kept["loss"] = loss
    loss.backward()


def _keeps_one_of_loops_in_branches(p: Any, kept: dict[str, Any], x: Any) -> None:
    loss = (p * x).sum()
    if loss > 1:
        for _ in range(int(abs(x[0]))):
            if loss > 3:
                kept["loss"] = loss
            loss = loss * 2
    loss.backward()


@pytest.mark.parametrize("backend", ["interpret", None])
@pytest.mark.parametrize(
    "step",
    [
        _keeps_a_loss_on_one_way,
        _keeps_the_best,
        _keeps_one_of_a_loop,
        _keeps_one_of_loops_in_branches,
    ],
)
def test_a_loss_of_an_earlier_call_is_kept_beside_the_one_that_is_differentiated(
    step: Callable[..., None], backend: str | None
) -> None:
    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        p = weft.tensor([1.0, 2.0], requires_grad=True)
        kept = {"loss": weft.tensor(100.0)}
        call = wrap(lambda x: step(p, kept, x))
        out: list[Any] = []
        for i in range(6):
            p.grad = None
            call(weft.tensor([1.0, 2.0]) * (1.0 if i % 2 else -1.5) * (i + 1))
            out.append((p.grad.tolist(), kept["loss"].item(), kept["loss"].requires_grad))  # type: ignore[attr-defined]
        return out

    options: Any = {} if backend is None else {"backend": backend}
    assert run(lambda f: weft.compile(f, **options)) == run(lambda f: f)


def _of_a_branch(p: Any, q: Any, x: Any) -> Any:
    a, b = p * 2, q
    if x > 0:
        a, b = a * x, b * 3
    return b


def _of_a_loop(p: Any, q: Any, x: Any) -> Any:
    a, b = p * 2, q
    while x > 0:
        a, b, x = a * x, b * 3, x - 1
    return b


def _that_meet_later(p: Any, q: Any, x: Any) -> Any:
    a, b = p * 2, q
    while x > 0:
        a, b, x = a * x, a + b, x - 1
    return b


@pytest.mark.parametrize("step", [_of_a_branch, _of_a_loop, _that_meet_later])
def test_what_a_result_does_not_hang_on_gets_no_gradient(step: Callable[..., Any]) -> None:
    def run(wrap: Callable[[Any], Any]) -> tuple[Any, Any]:
        p = weft.tensor(2.0, requires_grad=True)
        q = weft.tensor(5.0, requires_grad=True)
        wrap(lambda x: step(p, q, x).backward())(weft.tensor(3.0))
        return p.grad, q.grad

    eager, compiled = run(lambda f: f), run(lambda f: weft.compile(f, backend="interpret"))
    assert [g is None for g in compiled] == [g is None for g in eager]
    assert [g.item() for g in compiled if g is not None] == [g.item() for g in eager if g is not None]


def detached_on_one_way_beside_a_backward(w: Any, x: Any) -> Any:
    y = w * x
    z = y.detach() if x.sum() > 0 else y
    y.sum().backward()
    return z


def asked_after_a_backward(w: Any, x: Any) -> Any:
    y = w * x
    z = y.detach() if x.sum() > 0 else y
    (y * z).sum().backward()
    return z.requires_grad, z


@pytest.mark.parametrize("program", [detached_on_one_way_beside_a_backward, asked_after_a_backward])
def test_what_requires_grad_is_known_after_a_backward_has_freed_the_graph(program: Any) -> None:
    def left(way: Any) -> list[Any]:
        w = weft.tensor([1.0, 2.0], requires_grad=True)
        run, found = way(lambda x: program(w, x)), []
        for sign in (1.0, -1.0, 1.0):
            w.grad = None
            out = weft.tree_leaves(run(weft.ones(2) * sign))
            found.append([(y.tolist(), y.requires_grad) if isinstance(y, weft.Tensor) else y for y in out])
            found.append(None if w.grad is None else w.grad.tolist())
        return found

    assert left(weft.compile) == left(lambda f: f)

"""How the elements of an argument lie decides whether a reshape of it is a view: it tells calls apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft


def reshapes(x: Any) -> Any:
    x.reshape(-1)[0] = 100.0


def flattens(x: Any) -> Any:
    return x.flatten().mul_(2.0)


def makes_contiguous(x: Any) -> Any:
    return x.contiguous().add_(1.0)


def of_a_slice(x: Any) -> Any:
    x[:, :2].reshape(-1)[1] = 7.0


def asks(x: Any) -> Any:
    return x.is_contiguous(), x.stride(), x * 1.0


def asks_for_a_view(x: Any) -> Any:
    return x.is_view, x._base is None, x * 1.0


MAKERS: dict[str, Callable[[], Any]] = {
    "whole": lambda: weft.arange(16.0).reshape(4, 4).clone(),
    "transposed": lambda: weft.arange(16.0).reshape(4, 4).clone().T,
    "part": lambda: weft.arange(32.0).reshape(4, 8).clone()[:, :4],
    "rows": lambda: weft.arange(32.0).reshape(8, 4).clone()[2:6],
    "copy": lambda: weft.ones((4, 4)),
}


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
@pytest.mark.parametrize(
    "program",
    [reshapes, flattens, makes_contiguous, of_a_slice, asks, asks_for_a_view],
    ids=lambda f: f.__name__,
)
def test_layout_of_an_argument_tells_calls_apart(program: Callable[..., Any], backend: str) -> None:
    for first in MAKERS:
        f = weft.compile(program, backend=backend)
        for name in (first, *MAKERS, first):
            assert _left(f, name) == _left(program, name), (first, name)


def test_code_that_does_not_ask_serves_all_layouts() -> None:
    f = weft.compile(lambda x: x * 2.0 + 1.0)
    for make in MAKERS.values():
        f(make())
    assert len(f.versions) == 1


def _left(function: Callable[..., Any], name: str) -> Any:
    x = MAKERS[name]()
    out = function(x)
    leaves = [y.tolist() if isinstance(y, weft.Tensor) else y for y in weft.tree_leaves(out)]
    return leaves, x.tolist()


def _outside(program: Callable[[Any, Any], Any], way: Callable[[Any], Any]) -> list[Any]:
    """What is left of tensors in a slot that others replace between calls."""
    state: dict[str, Any] = {}
    run, left = way(lambda x: program(state, x)), []
    for name in ("whole", "transposed", "copy", "part", "whole", "transposed", "whole"):
        state["h"] = held = MAKERS[name]()
        out = run(weft.ones(()))
        left.append((held.tolist(), state["h"].tolist(), out.tolist()))
    return left


def reshapes_what_is_held(state: Any, x: Any) -> Any:
    state["h"].reshape(-1)[0] = 9.0
    return x


def asks_what_is_held(state: Any, x: Any) -> Any:
    h = state["h"]
    state["h"] = h * 1.0
    return x * (2.0 if h.is_contiguous() else 3.0)


@pytest.mark.parametrize("program", [reshapes_what_is_held, asks_what_is_held], ids=lambda f: f.__name__)
def test_layout_of_what_a_slot_holds_tells_calls_apart(program: Callable[[Any, Any], Any]) -> None:
    assert _outside(program, weft.compile) == _outside(program, lambda f: f)


def test_whether_what_a_slot_holds_is_a_leaf_tells_calls_apart() -> None:
    def left(way: Callable[[Any], Any]) -> list[bool]:
        state: dict[str, Any] = {}
        run = way(lambda x: (state["h"].is_leaf, state.update(h=state["h"] * 1.0))[0])
        found = []
        for k in range(6):
            w = weft.tensor([1.0], requires_grad=True)
            state["h"] = w if k % 2 else w * 2.0
            found.append(run(weft.ones(())))
        return found

    assert left(weft.compile) == left(lambda f: f)


def test_replaced_data_that_lie_otherwise_are_seen() -> None:
    def left(way: Callable[[Any], Any]) -> list[Any]:
        w = weft.zeros((4, 4))
        run = way(lambda x: w.reshape(-1).mul_(x)[0])
        found = []
        for name in ("whole", "transposed", "whole", "transposed"):
            w.data = MAKERS[name]()
            run(weft.tensor(2.0))
            found.append(w.tolist())
        return found

    assert left(weft.compile) == left(lambda f: f)

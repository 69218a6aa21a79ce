"""Items of lists of tensors at positions that loops count or a run tells: the very tensors of eager code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import CaptureError

FORMS: dict[str, str] = {
    "changed at a position": "L[int(n)].add_(10.0); return sum(L)",
    "changed along a loop": "for k in range(3): L[k].mul_(2.0)\nreturn sum(L)",
    "changed along a loop of a length that a run tells": "for k in range(n): L[k].add_(10.0)\nreturn sum(L)",
    "changed along many turns": "for k in range(100): L[k % 3].add_(0.5)\nreturn sum(L)",
    "changed and returned": "x = L[int(n)]\nx.add_(1.0)\nreturn x",
    "changed by another name": "x = L[int(n)]\ny = x\ny += 1\nreturn L[0] + y",
    "changed in a while": "i = 0\nwhile i < n:\n    L[i] += 1\n    i += 1\nreturn sum(L)",
    "changed in a branch of a while": (
        "i = 0\nwhile i < n:\n    if i > 0: L[int(i)].mul_(2.0)\n    i = i + 1\nreturn sum(L)"
    ),
    "changed beside another": (
        "for i in range(3):\n    for j in range(n): L[i].add_(L[j] * 0.125)\nreturn sum(L)"
    ),
    "returned": "return L[int(n)]",
    "of a tuple": "t = tuple(L)\nt[int(n)].zero_()\nreturn sum(t)",
    "of a list made here": "x = [L[0], L[1]][int(n) % 2]\nx.mul_(3.0)\nreturn sum(L)",
    "held while the list changes": "x = L[int(n)]\nL[1].add_(100.0)\nreturn x * 1",
    "held from turn to turn": "x = L[0]\nfor i in range(3):\n    x.add_(1.0)\n    x = L[i]\nreturn x",
    "of one way": "if n > 1: x = L[int(n)]\nelse: x = L[0]\nx.add_(1.0)\nreturn x",
    "only read": "s = 0\nfor i in range(3): s = s + L[i] * i\nreturn s",
    "counted from the end": "L[int(n) - 3].add_(1.0)\nreturn sum(L)",
    "swapped": "for i in range(2): L[i], L[i + 1] = L[i + 1], L[i]\nL[0].add_(1.0)\nreturn sum(L)",
    "replaced": "for i in range(len(L)): L[i] = L[i] * 2\nreturn sum(L)",
    "of a list that a loop fills": (
        "l = []\nfor k in range(n + 2): l.append(L[0] * k)\nl[int(n)].add_(1.0)\nreturn sum(l)"
    ),
}


def made(body: str) -> Callable[..., Any]:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    space: dict[str, Any] = {}
    source = f"def form(L, n):\n{lines}\n"
    import linecache

    name = f"<items {hash(body)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), space)  # noqa: S102 - the text is ours
    return space["form"]  # type: ignore[no-any-return]


def results(form: Callable[..., Any], wrap: Callable[[Any], Any], *, grad: bool) -> list[Any]:
    """What calls give and leave, what others see of changes of results, and gradients."""
    start = weft.tensor([[1.0, 1.5], [2.0, 2.5], [3.0, 3.5]], requires_grad=grad)
    items = [row * 1.0 for row in start]
    function = wrap(lambda n: form(items, n))
    seen: list[Any] = []
    for n in (1, 2, 1, 0):
        out = function(weft.tensor(n))
        seen += [out.detach().numpy().copy(), *[t.detach().numpy().copy() for t in items]]
        if grad:
            total = sum((k + 1.0) * t.sum() for k, t in enumerate([out, *items]))
            (gradient,) = weft.autograd.grad(total, [start], retain_graph=True)
            return [*seen, gradient.numpy()]
        out.add_(0.5)
        seen += [t.numpy().copy() for t in items]
    return seen


@pytest.mark.rotating(4)
@pytest.mark.parametrize("grad", [False, True], ids=["values", "gradients"])
@pytest.mark.parametrize("name", FORMS)
def test_items_are_the_tensors_that_eager_code_has(name: str, grad: bool) -> None:
    form = made(FORMS[name])
    expected = results(form, lambda f: f, grad=grad)
    found = results(form, lambda f: weft.compile(f, backend="interpret"), grad=grad)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_loops_that_only_read_items_stay_loops() -> None:
    weights = [weft.full((4,), 0.5 * k) for k in range(40)]

    @weft.compile
    def function(x: Any) -> Any:
        for k in range(40):
            x = weft.tanh(x + weights[k])
        return x

    function(weft.ones(4))
    assert len(function.graph.nodes) < 60  # forty turns written out have eighty


def test_one_of_many_that_is_changed_is_refused() -> None:
    many = [weft.zeros(2) for _ in range(20)]

    @weft.compile
    def function(n: Any) -> None:
        many[int(n)].add_(1.0)

    with pytest.raises(CaptureError, match=r"(?s)one of at most 16, got 20.*many\[int\(n\)\].*stack"):
        function(weft.tensor(3))
    assert all(t.tolist() == [0.0, 0.0] for t in many)


def test_positions_out_of_bounds_are_errors() -> None:
    items = [weft.zeros(2), weft.ones(2)]

    @weft.compile
    def function(n: Any) -> Any:
        items[int(n)].add_(1.0)
        return items[0] + items[1]

    function(weft.tensor(1))
    with pytest.raises(weft.errors.BoundsError):
        function(weft.tensor(2))
    assert [t.tolist() for t in items] == [[0.0, 0.0], [2.0, 2.0]]


def test_items_of_a_list_from_outside_are_those_of_each_call() -> None:
    tensors, numbers = [weft.ones(1), weft.ones(1) * 2.0], [1.0, 2.0]

    @weft.compile
    def function(n: Any) -> Any:
        return tensors[int(n)] * numbers[int(n)]

    assert function(weft.tensor(1)).tolist() == [4.0]
    tensors[1] = weft.ones(1) * 5.0
    assert function(weft.tensor(1)).tolist() == [10.0]
    numbers[1] = 3.0
    assert function(weft.tensor(1)).tolist() == [15.0]
    tensors.append(weft.ones(1) * 7.0)
    numbers.append(10.0)
    assert function(weft.tensor(2)).tolist() == [70.0]

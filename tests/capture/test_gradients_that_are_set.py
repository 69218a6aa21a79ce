"""A gradient that captured code sets is who it is in eager code, or the code is refused."""

from __future__ import annotations

import linecache
from typing import Any

import pytest

import weft
from weft.errors import CaptureError

# ``p`` and ``q`` are leaves, ``g`` is a tensor from outside, ``v`` a view of ``p``, ``n`` the number of turns
REFUSED = {
    "a changed one": "for i in range(n):\n  g.mul_(0.5)\n  p.grad = g\np.grad.mul_(0.5)",
    "in a loop inside": (
        "for i in range(n):\n  for j in range(n):\n    g.mul_(0.5)\n    p.grad = g\n  p.grad.mul_(0.5)"
    ),
    "one from around": (
        "h = g * 2\nfor i in range(n):\n  h.mul_(0.5)\n  p.grad = h\np.grad.mul_(0.5)\nreturn h"
    ),
    "a view": "for i in range(n): p.grad = g[:]\np.grad.mul_(0.5)",
    "a view of a changed one": "for i in range(n):\n  g.mul_(0.5)\n  p.grad = g[:]\np.grad.mul_(0.5)",
    "a view that changes": "for i in range(n):\n  p.grad = g.detach()\n  p.grad.mul_(0.5)\ng.add_(1)",
    "of two leaves": "for i in range(n):\n  h = g * 2\n  p.grad = h\n  q.grad = h[:]\np.grad.mul_(0.5)",
    "a variable shows it": (
        "h = g\nfor i in range(n):\n  p.grad = g * 2\n  h = p.grad[:]\np.grad.mul_(0.5)\nreturn h"
    ),
    "an item": (
        "l = []\nfor i in range(n):\n  h = g * i\n  l.append(h)\n  p.grad = h\np.grad.mul_(0.5)\nreturn l"
    ),
}
CAPTURED = {
    "a new one": "for i in range(n):\n  h = g * 0.5\n  h.mul_(0.5)\n  p.grad = h\np.grad.mul_(0.5)",
    "a copy": "for i in range(n):\n  g.mul_(0.5)\n  p.grad = g.clone()\np.grad.mul_(0.5)",
    "of known turns": "for i in range(3):\n  g.mul_(0.5)\n  p.grad = g\np.grad.mul_(0.5)",
    "in a branch": "if n > 1:\n  g.mul_(0.5)\n  p.grad = g\nelse: p.grad = g * 2\np.grad.mul_(0.5)",
    "of a loss": (
        "for i in range(n):\n  p.grad = q.grad = None\n  (p + q).sum().backward()\n  p.grad.mul_(2.0)"
    ),
    "which is given": (
        "for i in range(n):\n  p.grad = None\n  (p * 1).backward(g)\n  p.grad.mul_(2.0)\ng.add_(1)"
    ),
    "of no turn": "p.grad = g\nfor i in range(n - 1): p.grad = p.grad * 0.5\np.grad.mul_(0.5)",
    "which changes before": (
        "p.grad = g\nfor i in range(n - 1):\n  p.grad.mul_(0.5)\n  p.grad = p.grad * 0.5\np.grad.mul_(0.5)"
    ),
    "which others change": (
        "p.grad = g\nfor i in range(n):\n  g.mul_(0.5)\n  p.grad = p.grad + 1.0\np.grad.mul_(0.5)"
    ),
    "which a turn may replace": (
        "p.grad = g\nfor i in range(n):\n  p.grad.mul_(0.5)\n  if i > 0: p.grad = p.grad * 2\n"
        "p.grad.mul_(0.5)"
    ),
    "set to zero and summed": (
        "p.grad = g\nfor i in range(n):\n  p.grad.zero_()\n  (p * p).sum().backward()\n  p.grad.mul_(2.0)"
    ),
    "none": (
        "for i in range(n - 1): p.grad = None\nif p.grad is not None: p.grad.add_(1)\nelse: p.grad = g * 2"
    ),
    "none for sure": (
        "if n > 1: p.grad = None\nif p.grad is not None: p.grad = None\n"
        "if p.grad is not None: p.grad = p.grad * 1\n"
        "p.grad = g.clone()"
    ),
    "none the other way round": (
        "if n > 1: p.grad = None\nif p.grad is None: pass\nelse: p.grad = None\n"
        "if p.grad is not None: p.grad = p.grad * 1\np.grad = g.clone()"
    ),
    "a view of its tensor": (
        "with weft.no_grad(): p.mul_(0.5)\nif n > 1:\n  p.grad = v\n  with weft.no_grad(): p.add_(1.0)"
    ),
    "a new view of its tensor": (
        "with weft.no_grad(): p.mul_(0.5)\nw = p.detach()\nif n > 1:\n  p.grad = w\n"
        "  with weft.no_grad(): p.add_(1.0)\nelse: p.grad = g"
    ),
    "cut from the graph": (
        "weft.tanh(p).sum().backward()\nw = p.detach()\nif n > 1:\n  if n > 2:\n"
        "    weft.tanh(p).sum().backward()\n    if g.sum() > 9: w.mul_(0.5)\n    else: p.grad = w\n"
        "  with weft.no_grad(): p.mul_(0.5)\np.grad = p.grad * 0.5"
    ),
    "scaled": (
        "for i in range(n):\n  p.grad = q.grad = None\n  (p * q).sum().backward()\n"
        "  for x in (p, q): x.grad = x.grad * 0.5\np.grad.add_(1)"
    ),
}


def _left(text: str, compiled: bool) -> list[Any]:
    """What calls return and leave."""
    lines = "".join(f"    {line}\n" for line in text.split("\n"))
    source, name = f"def f(p, q, g, v, n):\n{lines}", f"<{text}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {"weft": weft}
    exec(compile(source, name, "exec"), space)  # noqa: S102 - the text is ours
    p, q = (weft.ones(3, requires_grad=True) for _ in range(2))
    g = weft.tensor([1.0, 2.0, 3.0])
    q.grad = weft.tensor([0.5, 0.25, 1.0])
    p.grad = weft.tensor([0.25, 0.5, 2.0])
    v = p.detach()
    step = weft.compile(space["f"]) if compiled else space["f"]
    found = []
    for turns in (2, 1, 3, 1):
        out = step(p, q, g, v, weft.tensor(turns))
        given = [] if out is None else out if isinstance(out, list) else [out]
        for _ in range(2):
            tensors = [x for x in (*given, p, q, p.grad, q.grad, g, v) if x is not None]
            found.append([(x.tolist(), x.requires_grad) for x in tensors])
            with weft.no_grad():
                p.grad.add_(1)  # who sees that
    return found


@pytest.mark.parametrize("name", REFUSED)
def test_a_gradient_that_others_have_is_refused(name: str) -> None:
    with pytest.raises(CaptureError, match="must be a tensor that it makes and that nothing else holds"):
        _left(REFUSED[name], compiled=True)


@pytest.mark.parametrize("name", CAPTURED)
def test_a_gradient_of_its_own_is_captured(name: str) -> None:
    assert _left(CAPTURED[name], compiled=True) == _left(CAPTURED[name], compiled=False)

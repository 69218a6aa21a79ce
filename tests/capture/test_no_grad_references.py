"""What code that does not record refers to, or meets first, keeps its graph: as in eager code."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

import weft
from tests.capture.state_programs import World, check_source
from tests.capture.state_source import PREAMBLE
from weft.errors import CaptureError, GradientError

PROGRAMS = {
    "a base that is met after a change of its view": """
        v = o.p[:]
        o.p.mul_(a)
        with weft.no_grad():
            s = v.sum()
        return v * 2.0 + s, a
    """,
    "an outer view that is met after a change of its base": """
        z.mul_(a)
        with weft.no_grad():
            s = L[0].sum()
        return L[0] * z + s, z
    """,
    "a tensor that is met after a change of one that may be another": """
        v = L[0]
        if c > 0:
            v = m[1] * 0.5
            L[0].mul_(0.5)
        with weft.no_grad():
            L[0] -= 0.125
        v *= 0.5
        return v, a
    """,
    "a view of a state, met in a branch": """
        D["x"].mul_(a)
        s = a
        with weft.no_grad():
            if c > 0:
                s = s + D["x"].sum()
                D["x"].add_(1.0)
        return D["x"] * s, a
    """,
    "one of two": """
        with weft.no_grad():
            v = a if c > 0 else m[0] * 2.0
            w = m
            if c > 0:
                w = m * 1.0
        return v * 2.0, w * 3.0
    """,
    "two that are swapped as often as a run tells": """
        v = m[1] * 2.0
        with weft.no_grad():
            for i in range(int(n)):
                a, v = v, a
        return a * 2.0, v * 3.0
    """,
    "attributes that are swapped": """
        o.p, o.q = a * 2.0, m[0] * 3.0
        with weft.no_grad():
            for i in range(int(n)):
                o.p, o.q = o.q, o.p
        return o.p * 2.0, o.q
    """,
    "an item at a position that a run tells": """
        l = [a, m[0] * 2.0]
        with weft.no_grad():
            v = l[int(n) % 2]
        return v * 2.0, a
    """,
    "such an item, which then changes": """
        l = [a, m[0] * 2.0]
        with weft.no_grad():
            v = l[int(n) % 2]
        v.mul_(a)
        return l[0] * 2.0, l[1]
    """,
    "an item that is popped at such a position": """
        l = [a, m[0] * 2.0]
        with weft.no_grad():
            v = l.pop(int(n) % 2)
        return v * 2.0, l[0]
    """,
    "the last item of a list that a loop filled": """
        l = [a]
        for i in range(int(n)):
            l.append(l[-1] * m[0])
        with weft.no_grad():
            v = l[-1]
            w = l[int(n)]
            u = l[1:]
        for x in u:
            v = v + x
        return v * 2.0, w * 3.0
    """,
    "a loop over such a list": """
        l = [a * 1.0]
        for i in range(int(n)):
            l.append(a * m[0] * (i + 1.0))
        v, w = a, a
        with weft.no_grad():
            for i, x in enumerate(l):
                w = x
                if i == 1:
                    v = x
        return v * 2.0, w
    """,
    "a loop that fills a list with what has a graph": """
        l = [a * 1.0]
        k = []
        with weft.no_grad():
            for i in range(int(n)):
                l.append(a)
                l.append(m[0])
                k.append(a)
            k.append(a * 2.0)
        return weft.stack(l).sum(axis=0), weft.stack(k).sum(axis=0) + a
    """,
    "a list of known length that a loop fills": """
        l, s, h = [], a.sum(), a
        with weft.no_grad():
            for i in range(3):
                if s < 0.5:
                    l.append(a)
                else:
                    l.append(m[0])
                s = s + 1
                with weft.enable_grad():
                    h = h * m[1]
                l.append(h)
        return l[0] + 2.0 * l[2] + 3.0 * l[4], l[1] + l[3] * l[5]
    """,
    "the sum of a list, which has no graph": """
        l = [a * 1.0]
        for i in range(int(n)):
            l.append(a * m[0])
        with weft.no_grad():
            s = weft.stack(l).sum(axis=0) + weft.concat(l).sum()
        return s * a, sum(l) * 2.0
    """,
    "the stack of a list of known length, which has no graph": """
        l = []
        for i in range(3):
            l.append(a * m[0] * c)
        with weft.no_grad():
            s = weft.stack(l)
        return s.sum(axis=0) * a, weft.stack(l).sum(axis=0)
    """,
    "rows, which have no graph": """
        v, w = a, a
        with weft.no_grad():
            for r in m:
                v = r
                if c > 0:
                    w = r
        return v * 2.0, w * m[0]
    """,
    "rows that change": """
        v = a
        with weft.no_grad():
            for r in m:
                v = r
                r.mul_(2.0)
        return v * 2.0, m.sum() * a
    """,
    "a view without a graph, of what changes on one way": """
        with weft.no_grad():
            w = m[0]
        v = a
        if c > 0:
            v = m[0]
        v.mul_(a)
        return w * 1.0, v
    """,
    "such a view, of what changes if a loop has turns": """
        with weft.no_grad():
            w = o @ m[o.at % 2]
        for i in range(n):
            o.prop = m[o.at % 2]
        o.prop -= 0.125
        return w, a
    """,
    "what loops in loops leave": """
        v = a
        with weft.no_grad():
            for i in range(2):
                v = m[1]
                for k in range(2):
                    v *= 0.5
                    v = a
                if c > 0:
                    break
        return v * 2.0, m.sum() * a
    """,
    "a view without a graph, and changes of its base": """
        with weft.no_grad():
            w = m[0]
        v = m[0]
        for i in range(int(n)):
            v.mul_(a)
        return w * 2.0 + a, v
    """,
    "what a carried variable was": """
        h = a
        for i in range(int(n)):
            with weft.no_grad():
                if c > 0:
                    k = h
                else:
                    k = m[0]
            h = h * m[1] + k
        return h, a
    """,
    "a change that is not recorded, beside a way that records": """
        v = a
        with weft.no_grad():
            if n < 2:
                if c > 0:
                    with weft.enable_grad():
                        v = a * 2.0
                else:
                    o.p.add_(a)
                    L[0] = m[0] * a
        return v, o.p * 1.0
    """,
    "likewise, beside a way that reads an item": """
        v1 = v2 = o.p
        if n > 0:
            v1 = L[0]
        with weft.no_grad():
            if c > -0.7:
                if c < 0.1:
                    o.q = L[int(n) % 2] + 0.25
                else:
                    z += a
                v0 = a * net.weight
        z = v2.view(-1)
        o.p = z
        return v1, a
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_referred_to_keeps_its_graph(name: str) -> None:
    body = textwrap.indent(textwrap.dedent(PROGRAMS[name]).strip("\n"), " " * 8)
    source = f"{PREAMBLE}{body}\n\n    return f\n"
    for shared in (False, True):
        assert check_source(source, f"<{name}>", gradients=True, shared=shared) == "same"


@pytest.mark.xfail(reason="of a list of open length it is not told which rows require grad", strict=True)
@pytest.mark.parametrize("value", [1.0, -1.0])
def test_what_is_taken_of_a_list_of_open_length_requires_grad_as_its_row_does(value: float) -> None:
    def rows(a: Any, m: Any, c: Any) -> Any:
        found = [a * 1.0]
        with weft.no_grad():
            for _ in range(int(c.abs()) + 1):
                if c > 0:
                    found.append(m * 1.0)
                found.append(m * 2.0)
        return found[-1]

    a, m = weft.ones(2, requires_grad=True), weft.ones(2, requires_grad=True)
    wanted = rows(a, m, weft.tensor(value)).requires_grad
    assert weft.compile(rows)(a, m, weft.tensor(value)).requires_grad == wanted


VIEWS = {
    "at the top": "w.mul_(2.0)",
    "by an item": "w[0] = 2.0",
    "by a view of it": "w[1:].add_(1.0)",
    "to what has a gradient": "w.copy_(a)",
    "on one way": "if c > 0: w.mul_(2.0)",
    "in a loop": "for i in range(int(n)): w.mul_(2.0)",
}


@pytest.mark.parametrize("change", VIEWS.values(), ids=VIEWS)
def test_a_view_that_was_taken_under_no_grad_is_not_changed_while_recording(change: str) -> None:
    body = f"with weft.no_grad():\n    w = m[0]\n{change}\nreturn w, a"
    source = f"{PREAMBLE}{textwrap.indent(body, ' ' * 8)}\n\n    return f\n"
    told = "a view that was taken under no_grad must not be changed while recording"
    for way in (lambda f: f, lambda f: weft.compile(f, backend="interpret")):
        world = World(source, "<views>")
        a, m = (weft.ones(shape, requires_grad=True) * 1.0 for shape in ((3,), (2, 3)))
        with pytest.raises((GradientError, CaptureError), match=told) as raised:
            way(world.function)(a, m, weft.tensor(1.0), weft.tensor(2))
        assert "\n  at <views>" in str(raised.value)
        assert m.tolist() == [[1.0] * 3] * 2
    assert check_source(source, "<views>", gradients=False) == "same"  # where nothing has a gradient


def test_what_a_loop_under_no_grad_leaves_has_its_graph() -> None:
    def step(a: Any, m: Any) -> Any:
        v = m[1] * 1
        with weft.no_grad():
            for _ in range(2):
                v *= 0.5
                v = a
        return (a * 0.5).sum() + (v * 0.5).sum()

    def run(f: Any) -> list[float]:
        a, m = weft.tensor([1.0, 2.0, 3.0], requires_grad=True), weft.ones((2, 3), requires_grad=True)
        f(a * 1, m * 1).backward()
        return a.grad.tolist()  # type: ignore[union-attr]

    assert run(weft.compile(step, backend="interpret")) == run(step)

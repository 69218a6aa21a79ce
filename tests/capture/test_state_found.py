"""Programs about state that generators found, made small: compiled they leave what they leave eagerly."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

import weft
from tests.capture.state_programs import check_source
from tests.capture.state_source import PREAMBLE

FOUND = {
    "a loop changes what a place held, and puts items by their position there": """
        v2 = o.prop
        for i1 in range(2):
            v2[o.at].mul_(0.5)
            o.prop = L[i1]
        return v2, a * c
    """,
    "an item by its position in a loop beside a change": """
        v1 = L[0]
        for i1 in range(n):
            with o.scaled(v1):
                L[0] = a * c
                L[0] = L[int(n) % 2]
        return v1, v1
    """,
    "two loops after each other pick tensors, one of which is the same on both ways": """
        v2 = a
        a.add_(m.view(-1)[3:6] * 0.5)
        for i2 in range(n):
            l3 = []
            for x3 in m:
                l3.append(o.rows[1][0])
            o["k"], o.rows[0][0] = l3
        i4 = 0
        while i4 < n:
            i4 = i4 + 1
            for i5 in range(2):
                v2, o["k"] = o["k"], v2
        return v2, L[1].view(1, 3).T.reshape(3, 1)[:, 0]
    """,
    "a view in a branch, in a turn, of what a list held": """
        v2 = m[0]
        i1 = 0
        while i1 < n:
            i1 = i1 + 1
            if o:
                l2 = []
                for x2 in m:
                    l2.append(o.rows[0][0])
                v2, v1 = l2
                o.p = v2.view(3)
        return v2, net.buf
    """,
    "a tensor is given its own data": """
        v2 = a
        v2.data = a
        return o.p, m[0] * c
    """,
    "a view leaves of what two loops around each other may have rebound": """
        v2 = a
        for i1 in m:
            for i2 in range(n):
                v2 = o.prop
        D["x"] = v2[:]
        return a * 0.5, z
    """,
    "a view that one of two ways holds shows its base": """
        v1 = o.p
        if m[0][1] > a[0]:
            o.p = o.prop.view(1, 3)[0]
            if n > 1:
                v1 = o.p
        return a, v1 * 0.5
    """,
    "a view is swapped under an inner branch": """
        if c > 0:
            o.p = D["x"].view(1, 3).T.reshape(3, 1)[:, 0]
            if c > 0:
                o.p, o.prop = o.prop, o.p
        return a, z
    """,
    "a branch changes what another one meets first": """
        v0 = L[0]
        v1 = m[0]
        if c > 0:
            o.q -= 0.125
        else:
            if c > 0:
                v0 = a * 1
            o.q = v1.view(3)
        L[0] = v1
        return a, v0 * 1
    """,
    "a tensor is met where two ways meet": """
        v0 = o.p
        v1 = z
        if c * 2 < 0.5:
            D["x"].add_(o.q * 0.25)
            v0 = o.q[:]
        o.prop = v0 * c + o.p
        if n > 1:
            o.p = v0
        D["x"] = z
        o.q = v1.view(3)
        return v0, a
    """,
    "one of two new tensors is also somewhere else": """
        v0 = a * 0.5
        if o.prop.sum() > 0.3:
            v0 = a * 0.5
            if c > 0:
                D["x"] = v0
            else:
                v0 = weft.tanh(m.view(-1)[2:5])
        return v0, o.q
    """,
    "an attempt in inner loops leaves a change around them": """
        v1 = o.p
        L[0] = v1.view(3)
        for i1 in range(2):
            if n > 1:
                o.p[0] += c * 0.5
                L[1] = v1[...]
                net.buf *= 0.5
            else:
                L[1] = net.buf
        if a[1] > L[1][0]:
            net.buf -= 0.125
            for i3 in range(n):
                for i4 in range(2):
                    L[0] = D["x"].view(3)
        return v1, v1
    """,
    "a view of one of two leaves the call": """
        o.q = a * c
        v0 = o.p
        if c > 0:
            v0 = o.q[:]
        return a, v0[...]
    """,
    "an item gets the tensor that it happens to hold": """
        if c > 5:
            L[0] = a * 1
        L[1] = D["x"]
        if n > 1:
            a.mul_(0.25)
            D["x"] = D["x"] * 0.5
        return a, a
    """,
    "a parent of a view is met by the change": """
        if c > 10:
            z *= 0.5
        o.q *= 0.5
        o.q = z.view(1, 3)[0]
        return a, a
    """,
    "a detached tensor keeps its graph in a loop": """
        for i in range(2):
            v = L[1].view(3)
            v += a
            o.told = v
        return a, net(m[0])
    """,
    "swapped tensors that were detached": """
        v0 = net.kept
        for i2 in range(2):
            v0, z = z, v0
            v0 += m.view(-1)[2:5]
        return a, bump(net.kept, v0[:])
    """,
    "an attempt gives back what it met": """
        o.prop.view(3).add_(a)
        for i1 in m:
            D["x"] = z
            for i2 in range(n):
                for i3 in range(n):
                    D["x"].add_(z * 0.5)
                    o.prop = net.kept
        return a, a
    """,
    "loops of no turns leave a change before them": """
        v0 = L[0]
        z[0] += c * 0.5
        i1 = 0
        while i1 < n:
            i1 = i1 + 1
            for i2 in range(n):
                l = [z.view(3), bump(m[1], v0.view(3))]; l[0] += a * 0.5
                v0, z = l
            L[1] = v0.detach()
        return a, a
    """,
    "two that are cut from one base are swapped": """
        D["x"] += a
        v2 = o.p
        for i1 in range(n):
            v2, D["x"] = D["x"], v2
        D["x"][1] = c * 0.5
        return a, a
    """,
    "a change takes from a tensor that it meets": """
        if n > 1:
            o.p = net.buf
            z = L[0].view(3)
        else:
            v1 = L[1]
            v1 += m.view(-1)[2:5]
        if n > 1:
            o.p = L[0].view(3)
        L[1][0] += c * 0.5
        for i2 in range(2):
            L[0] = m.view(-1)[0:3]
            z = L[1].view(3)
            o.p = L[1].view(3)
        return a, L[0]
    """,
    "a change of a base that others are cut from": """
        z += bump(o.p, m.view(-1)[0:3])
        L[0] = a
        if n > 1:
            o.p = a
        if n > 1:
            L[0] -= 0.125
        return a, o.prop
    """,
    "a state beside something with a gradient": """
        v0 = a * 0.5
        if o:
            o.told = net(o.p)
            v0 = o.q
        for i1 in range(n):
            v0[0] += c * 0.5
        return m[0], D["x"] + o.prop * 0.5
    """,
    "two nested loops leave a tensor in a second place": """
        o.p = m[0] * 2.0
        for i1 in m:
            for i2 in range(2):
                z.add_(o.p)
                L[1] = z
                o.p = L[0]
        return a, L[1]
    """,
    "a branch in two nested loops leaves a tensor in a second place": """
        o.p = m[0] * 2.0
        for i1 in m:
            if c > 0:
                for i2 in range(n):
                    z.add_(o.p)
                    L[1] = z
                    o.p = L[0]
            else:
                o.q = o.p
        return a, L[1]
    """,
    "two views from outside of one tensor, one by way of a third": """
        D["x"] += 1.0
        net.kept *= 2.0
        net.kept = m.view(-1)[0:3]
        for i1 in range(n):
            D["x"] = m[1]
        return a, a
    """,
    "items of an inner loop are views": """
        for i1 in m:
            k = []
            for i2 in range(2):
                k.append(m[1])
            v1, L[1] = k
        return v1, a
    """,
    "a branch meets a tensor that shows what it has changed already": """
        v1 = z
        v1 -= 0.125
        if o:
            D["x"] = bump(v1, m[0]) + m.view(-1)[3:6] * 0.5
            L[1].mul_(0.5)
        L[1] = v1
        return v1, net.buf + m.view(-1)[0:3] * 0.5
    """,
    "items of a list that a loop in a branch of a loop fills": """
        for i1 in m:
            if i1.sum() > 0.3:
                l3 = []
                for x3 in range(2):
                    l3.append(o["k"])
                z, o.p = l3
        return a, a
    """,
    "a change without history beside a place that may be a view": """
        v1 = m[0]
        v2 = m[0]
        if c > 0:
            D["x"] = m.view(-1)[1:4]
            v2 -= 0.125
        with weft.no_grad():
            v1.add_(1.0)
        return v2, a
    """,
    "a change without history in a loop beside a place that comes to hold another": """
        v1 = m[0]
        v2 = m[0]
        D["x"] = m.view(-1)[1:4]
        v2 -= 0.125
        i1 = 0
        while i1 < n:
            i1 = i1 + 1
            with weft.no_grad():
                v1[...].add_(1.0)
            D["x"] = L[0]
        return v2, a
    """,
    "a way gives a place the tensor that it holds": """
        D["x"], o.told = o.told, D["x"]
        if c * 2 < 0.5:
            a += m[1]
        else:
            D["x"].mul_(0.5)
            o.prop = D["x"]
        return a, m
    """,
    "an item of a loop in two loops is a tensor from outside": """
        for i1 in range(2):
            i2 = 0
            while i2 < n:
                i2 = i2 + 1
                k = []
                for row in m:
                    k.append(net.buf)
                o.p = k[-1]
        return a, m
    """,
    "a swap in the inner of two loops": """
        v0 = D["x"] * 1.0
        for i1 in m:
            for i2 in range(n):
                o.q, v0 = v0, L[0]
            L[0] = L[0].view(3)
            o.told = i1
        return v0, o.q
    """,
}


@pytest.mark.rotating(4)
@pytest.mark.parametrize("gradients", [False, True], ids=["values", "gradients"])
@pytest.mark.parametrize("name", FOUND)
def test_found_programs_do_what_they_do_eagerly(name: str, gradients: bool) -> None:
    body = textwrap.indent(textwrap.dedent(FOUND[name]).strip("\n"), " " * 8)
    source = f"{PREAMBLE}{body}\n\n    return f\n"
    assert check_source(source, f"<{name}>", gradients=gradients) == "same"


SHARED = {  # where some of what is outside are views of one tensor
    "a view met after a recorded change and a branch": """
        L[1] += m.view(-1)[1:4]
        if c > 0:
            o.q = L[1]
        D["x"].mul_(0.75)
        return L[0], m[0]
    """,
    "a tensor with views that leaves its place and is changed": """
        v0 = o.q
        o.q = m[0]
        o.p = v0
        v0 += 1.0
        return a, a
    """,
}


@pytest.mark.parametrize("gradients", [False, True], ids=["values", "gradients"])
@pytest.mark.parametrize("name", SHARED)
def test_found_programs_on_views_do_what_they_do_eagerly(name: str, gradients: bool) -> None:
    body = textwrap.indent(textwrap.dedent(SHARED[name]).strip("\n"), " " * 8)
    source = f"{PREAMBLE}{body}\n\n    return f\n"
    assert check_source(source, f"<{name}>", gradients=gradients, shared=True) == "same"


class Plain:
    mode, count = "a", 0


@pytest.mark.parametrize("branches", [False, True])
def test_what_is_written_is_there_after_each_call_though_it_was_there_at_the_first(branches: bool) -> None:
    held, items, tensor = Plain(), [weft.zeros(3), 5], weft.ones(3)
    table: dict[str, Any] = {"x": tensor, "y": tensor}

    @weft.compile
    def step(x: Any, c: Any) -> Any:
        held.mode = "a"
        items[1] = 5
        held.count = 0
        held.count += 1
        if branches:
            if c > 0:
                table["y"] = table["x"]
        else:
            table["y"] = table["x"]
        return x * 1

    for _ in range(3):
        step(weft.ones(2), weft.tensor(1.0))
        assert (held.mode, held.count, items[1], table["y"] is table["x"]) == ("a", 1, 5, True)
        held.mode, held.count, items[1], table["y"] = "b", 7, 9, weft.zeros(3)


def test_a_branch_of_cond_changes_its_operand_and_what_shares_elements_with_it() -> None:
    def run(compiled: bool) -> list[Any]:
        base = weft.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        one, other = base[0], base[0]

        def change(x: Any) -> Any:
            other.sub_(1.0)
            return x.mul_(2.0)

        def step(c: Any) -> Any:
            return weft.cond(c > 0, change, lambda x: x * 3.0, one) + one

        found = (weft.compile(step) if compiled else step)(weft.tensor(1.0))
        return [found.tolist(), one.tolist(), base.tolist()]

    assert run(compiled=True) == run(compiled=False)


def _change_one_and_read(views: list[Any], x: Any, c: Any) -> Any:
    views[0].add_(x)
    y = views[1] * 2.0
    views[2].mul_(3.0)
    return (y * views[1] * views[0]).sum()


def _change_one_and_read_in_a_branch(views: list[Any], x: Any, c: Any) -> Any:
    views[0].add_(x)
    if c > 0:
        y = (views[1] * views[2]).sum()
        views[3].mul_(x)
    else:
        y = views[2].sum()
    return y + views[1].sum()


def _change_one_and_read_in_a_loop(views: list[Any], x: Any, c: Any) -> Any:
    y = x.sum()
    for _ in range(3):
        views[0].add_(x * 0.5)
        y = y + (views[1] * views[2]).sum()
    return y + views[3].sum()


def _change_one_unrecorded(views: list[Any], x: Any, c: Any) -> Any:
    with weft.no_grad():
        views[0].add_(x)
    return (views[1] * x).sum() + views[2].sum()


@pytest.mark.rotating(3)
@pytest.mark.parametrize(
    "step",
    [
        _change_one_and_read,
        _change_one_and_read_in_a_branch,
        _change_one_and_read_in_a_loop,
        _change_one_unrecorded,
    ],
)
@pytest.mark.parametrize("number", [1.0, -1.0])
def test_gradients_of_a_change_reach_views_that_are_met_later(step: Any, number: float) -> None:
    def run(compiled: bool) -> list[Any]:
        base = weft.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        views = [base[0], base.view(-1)[0:3], base.view(6)[1:4], base]

        def function(x: Any, c: Any) -> Any:
            return step(views, x, c)

        x = weft.tensor([1.0, 2.0, 3.0], requires_grad=True)
        out = (weft.compile(function) if compiled else function)(x, weft.tensor(number))
        out.backward()
        return [out.tolist(), x.grad.tolist(), *[v.tolist() for v in views]]

    assert run(compiled=True) == run(compiled=False)


@pytest.mark.parametrize("backend", ["interpret", None])
def test_gradients_of_a_change_reach_views_that_are_never_met(backend: str | None) -> None:
    def run(compiled: bool) -> list[Any]:
        base = weft.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        changed, others = base.view(-1)[2:5], [base, base[0], base[1]]

        def function(x: Any) -> None:
            changed.mul_(x)

        x = weft.tensor([1.0, 2.0, 3.0], requires_grad=True)
        (weft.compile(function, backend=backend) if compiled else function)(x)
        (sum((k + 1.0) * t.sum() for k, t in enumerate(others)) + changed.sum()).backward()
        return [x.grad.tolist(), *[t.tolist() for t in others]]

    assert run(compiled=True) == run(compiled=False)


def test_a_block_may_declare_names_and_do_nothing() -> None:
    z = weft.ones(2)

    def outer(x: Any) -> Any:
        if x.sum() > 0:
            nonlocal z
        return x + z

    assert weft.compile(outer)(weft.ones(2)).tolist() == [2.0, 2.0]

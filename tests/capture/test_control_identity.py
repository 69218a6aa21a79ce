"""Which tensors ``weft.cond``, loops and scans give: the very ones that eager code does, and views of these.

Each program is run eagerly and compiled; what it returns and holds, which of it is one, and what each shows
after all others were changed must be the same.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import CaptureError

Program = Callable[[Any, Any, Any], Any]
PROGRAMS: list[Program] = []


def program(function: Program) -> Program:
    PROGRAMS.append(function)
    return function


@program
def views_of_what_is_outside(o: Any, x: Any, n: Any) -> Any:
    out = weft.cond(n > 1, lambda: o.a[:2], lambda: o.b[1:])
    out += 1
    return out, weft.cond(n > 2, lambda y: y.view(3), lambda y: y.detach(), x)


@program
def picked_inside(o: Any, x: Any, n: Any) -> Any:
    def one() -> Any:
        if n > 2:
            return o.a
        return o.b

    out = weft.cond(n > 1, one, lambda: weft.cond(n > 0, lambda: o.b, lambda: x))
    out += 1
    return out


@program
def one_tensor_twice(o: Any, x: Any, n: Any) -> Any:
    def one() -> Any:
        y = x * 2
        return y, y

    p, q = weft.cond(n > 1, one, lambda: (x * 1, x * 3))
    p += 1
    return p, q


@program
def new_containers(o: Any, x: Any, n: Any) -> Any:
    out = weft.cond(n > 1, lambda: {"a": o.a, "b": [x, 1]}, lambda: {"a": o.b, "b": [o.a, 2]})
    out["a"] += 1
    out["b"][0] = out["b"][0] + out["b"][1]
    return out["a"], out["b"][0]


@program
def a_branch_that_raises(o: Any, x: Any, n: Any) -> Any:
    def bad() -> Any:
        o.b = o.b * 7
        raise ValueError("too many")

    return weft.cond(n < 9, lambda: o.a, bad)


@program
def a_branch_that_raises_and_is_handled(o: Any, x: Any, n: Any) -> Any:
    def bad() -> Any:
        o.b = o.b + 1
        raise ValueError("too many")

    try:
        return weft.cond(n < 2, lambda: o.a, bad)
    except ValueError:
        return o.b


@program
def attribute_where_the_other_way_raises(o: Any, x: Any, n: Any) -> Any:
    o.rows = None
    if n < 9:
        o.rows = [x, o.a]
    else:
        raise ValueError("too many")
    return o.rows[0]


@program
def numbers_that_a_run_tells(o: Any, x: Any, n: Any) -> Any:
    k = int(n)
    for i in range(n):
        out = weft.switch(i % 3, [lambda: o.a, lambda: x, lambda: o.b])
        out += 1
    return x * weft.cond(k > 1, lambda: 1.5, lambda: 2.5), weft.fori_loop(k, 3, lambda i, y: y + i, x)


@program
def no_turn_or_some(o: Any, x: Any, n: Any) -> Any:
    _, y = weft.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 2), (weft.tensor(0), x))
    y += 1
    z = weft.fori_loop(0, n, lambda i, z: z * 2, o.a)
    z += 1
    return y, z


@program
def kept_swapped_viewed(o: Any, x: Any, n: Any) -> Any:
    _, y, kept = weft.while_loop(
        lambda s: s[0] < n, lambda s: (s[0] + 1, s[1][:], s[2]), (weft.tensor(0), x, o.a)
    )
    y += 1
    kept += 2
    p, q = weft.fori_loop(0, n, lambda i, s: (s[1], s[0]), (x, o.b))
    p += 3
    return y, kept, p, q


@program
def changed_in_place_by_turns(o: Any, x: Any, n: Any) -> Any:
    def turn(i: Any, y: Any) -> Any:
        y += i
        return y

    def other(i: Any, y: Any) -> Any:
        o.b.add_(1)
        return y * 1.0

    return weft.fori_loop(0, n, turn, x), weft.fori_loop(0, 3, turn, o.a), weft.fori_loop(0, 2, other, o.b)


@program
def fewer_turns(o: Any, x: Any, n: Any) -> Any:
    test = lambda s: s[0] < n  # noqa: E731
    turn = lambda s: (s[0] + 1, s[1])  # noqa: E731
    _, y = weft.while_loop(test, turn, (weft.tensor(0), x), max_iterations=2)
    y += 1

    def stores(s: Any) -> Any:
        o.count += 1
        o.a = s[1]
        return s[0] + 1, s[1] * 2

    _, z = weft.while_loop(test, stores, (weft.tensor(0), x), max_iterations=2)
    z += 1
    return y, z, weft.while_loop(test, stores, (weft.tensor(0), o.b), max_iterations=0)[1]


@program
def a_test_that_counts(o: Any, x: Any, n: Any) -> Any:
    def test(s: Any) -> Any:
        o.count += 1
        return s[0] < n

    _, y = weft.while_loop(test, lambda s: (s[0] + 1, s[1] * 2), (weft.tensor(0), x))
    y += 1
    return y


@program
def loops_in_each_other(o: Any, x: Any, n: Any) -> Any:
    def outer(i: Any, y: Any) -> Any:
        def inner(j: Any, z: Any) -> Any:
            o.count += 1
            return weft.cond(j > 0, lambda: z * 0.5 + i * j, lambda: o.a)

        return weft.fori_loop(0, i, inner, y)

    out = weft.fori_loop(0, n, outer, x)
    out += 1
    return out


@program
def scans_that_hand_on(o: Any, x: Any, n: Any) -> Any:
    one, _ = weft.scan(lambda s, r: (o.a, s * r), x, o.b)
    two, _ = weft.scan(lambda s, r: (s, s * r), x, o.b)
    one += 1
    two += 1
    (kept, total), rows = weft.scan(lambda s, r: ((s[0], s[1] + r), s[1]), (x, x.sum()), o.b, reverse=True)
    kept += 1
    last, _ = weft.scan(lambda s, r: (r, s), x.sum(), o.b, reverse=True)
    last += 1
    return one, two, kept, total, rows, last


@program
def scans_that_change(o: Any, x: Any, n: Any) -> Any:
    def step(s: Any, row: Any) -> Any:
        o.count += 1
        o.a = o.a + row
        return {"s": s["s"] + row, "w": s["w"]}, {"y": s["s"], "z": (row, o.a)}

    last, rows = weft.scan(step, {"s": x.sum(), "w": x}, o.b, reverse=True)
    last["w"] += 1

    def doubles(s: Any, row: Any) -> Any:
        row *= 2
        s += row
        return s, s * 1

    return last["s"], last["w"], rows["y"], *rows["z"], *weft.scan(doubles, x.sum(), o.b)


@program
def steps_of_a_length(o: Any, x: Any, n: Any) -> Any:
    def step(s: Any, _: Any) -> Any:
        s *= 2
        return s, s + 1

    return weft.scan(step, x, None, 3)


@program
def a_long_scan(o: Any, x: Any, n: Any) -> Any:
    def step(s: Any, row: Any) -> Any:
        return (s[1], s[0] * 0.5 + row), s[0]

    (p, q), rows = weft.scan(step, (x, o.a), weft.linspace(0.0, 1.0, 100))
    p += 1
    return p, q, rows


def _left(function: Program, way: Callable[[Any], Any], *, gradients: bool) -> list[Any]:
    o = SimpleNamespace(
        a=weft.tensor([1.0, 2.0, 3.0]), b=weft.tensor([0.5, -0.25, 0.75]), count=0, rows=[weft.tensor(0.5)]
    )
    o.c = o.b
    run, log = way(lambda x, n: function(o, x, n)), []
    for turns in (3, 0, 1, 2, 5, 0):
        leaf = weft.tensor([0.5, -1.0, 2.0], requires_grad=gradients)
        x = leaf * 1.0
        out = run(x, weft.tensor(turns))
        held = [*weft.tree_leaves(out), x, o.a, o.b, o.c, *weft.tree_leaves(o.rows)]
        log += [x.detach().numpy().copy() for x in held] + [np.asarray(o.count)]
        log.append(np.asarray([[x is y for y in held].index(True) for x in held]))
        if gradients:
            log.append(np.asarray([x.requires_grad for x in held]))
            loss = sum(((k + 1.0) * x.sum() for k, x in enumerate(held) if x.requires_grad), weft.zeros(()))
            log.append(weft.autograd.grad(loss, leaf, materialize_grads=True)[0].numpy())
            o.a, o.b, o.c, o.rows = o.a.detach(), o.b.detach(), o.b.detach(), weft.tensor(0.5)
        for k, x in enumerate(held if not gradients else ()):
            x.mul_(0.5).add_(k)
        log += [x.detach().numpy().copy() for x in held]
    return log


@pytest.mark.parametrize("gradients", [False, True], ids=["values", "gradients"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_they_give_what_eager_code_does(function: Program, gradients: bool) -> None:
    eager, compiled = (_left(function, way, gradients=gradients) for way in (lambda f: f, weft.compile))
    assert len(eager) == len(compiled)
    for x, y in zip(eager, compiled, strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-5, atol=1e-6)


def test_a_carry_that_turns_keep_costs_no_loop_of_references() -> None:
    step = lambda s, row: ((s[0], s[1] + row @ s[0]), s[1])  # noqa: E731
    graph = weft.make_graph(lambda w, xs: weft.scan(step, (w, weft.zeros(4)), xs))(
        weft.ones((3, 4)), weft.ones((5, 3))
    )
    assert [n.op.name for n in graph.nodes if n.regions] == ["scan"]


def test_what_must_keep_its_type_does() -> None:
    f = weft.compile(lambda x, n: weft.fori_loop(0, n, lambda i, y: weft.concat([y, y]), x))
    with pytest.raises(CaptureError, match=r"fori_loop: carry must be f32\[2\], got f32\[4\] from the body"):
        f(weft.ones(2), weft.tensor(2))

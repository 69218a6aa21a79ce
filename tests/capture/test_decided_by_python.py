"""Ways that cannot meet in a graph: Python decides, by the value, and each way is a version of its own."""

from __future__ import annotations

import functools
import inspect
import linecache
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

import weft
import weft.nn as nn
from weft.errors import CaptureError

Made = tuple[Callable[..., Any], Callable[[], Any]]  # a function, and what is to be looked at after a call


class State:
    """Holds anything."""

    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...


def linear(seed: int) -> Any:
    weft.manual_seed(seed)
    return nn.Linear(2, 1)


def gradients(*nets: Any) -> list[Any]:
    held = [p.grad for net in nets for p in net.parameters()]
    return [None if g is None else g.tolist() for g in held]


def values(*nets: Any) -> list[Any]:
    return [p.tolist() for net in nets for p in net.parameters()]


ROW = weft.tensor([1.0, 2.0])


def a_backward_pass_on_each_way() -> Made:
    net = linear(0)
    opt = weft.optim.SGD(net.parameters(), lr=0.5)

    def step(c: Any) -> Any:
        opt.zero_grad()
        loss = net(ROW).sum()
        if c > 0:
            (loss * 2.0).backward()
        else:
            loss.backward()
        opt.step()
        return loss.item()

    return step, lambda: (values(net), gradients(net))


def a_backward_pass_in_elif() -> Made:
    net = linear(0)

    def step(c: Any) -> Any:
        loss = net(ROW).sum()
        if c > 1:
            (loss * 2.0).backward()
        elif c > 0:
            loss.backward()
        else:
            net.weight.grad = None
        return loss.item()

    return step, lambda: gradients(net)


def one_of_two_modules() -> Made:
    held = State(first=linear(0), second=linear(1))
    opt = weft.optim.SGD([*held.first.parameters(), *held.second.parameters()], lr=0.5)

    def step(c: Any) -> Any:
        opt.zero_grad()
        net = held.first if c > 0 else held.second
        loss = net(ROW).sum()
        loss.backward()
        opt.step()
        return loss.item()

    return step, lambda: values(held.first, held.second)


def a_module_that_a_function_picks() -> Made:
    nets = linear(0), linear(1), linear(2)

    def pick(c: Any) -> Any:
        if c > 2:
            return nets[0]
        if c > 0:
            return nets[1]
        return nets[2]

    def f(c: Any) -> Any:
        y = c * 0.0
        if c > -2:
            y = y + pick(c)(ROW).sum()
        return y

    return f, lambda: None


def a_function_that_is_picked() -> Made:
    def double(x: Any) -> Any:
        return x * 2.0

    def f(c: Any) -> Any:
        g = weft.sin
        if c > 0:
            g = double
        return g(c)

    return f, lambda: None


def one_of_two_in_a_try() -> Made:
    nets = linear(0), linear(1)

    def f(c: Any) -> Any:
        try:
            net = nets[0] if c > 0 else nets[1]
            return net(ROW) + 1.0 / float(c)
        except:  # noqa: E722
            return c * 3.0

    return f, lambda: None


class Quiet:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> bool:
        return True


def one_of_two_in_what_suppresses_all() -> Made:
    nets = linear(0), linear(1)

    def f(c: Any) -> Any:
        y = c * 3.0
        with Quiet():
            net = nets[0] if c > 0 else nets[1]
            y = net(ROW) + 1.0 / float(c)
        return y

    return f, lambda: None


def a_backward_pass_in_a_try_on_each_way() -> Made:
    net = linear(0)

    def f(c: Any) -> Any:
        loss = net(ROW).sum()
        if c > 0:
            loss.backward()
        else:
            try:
                loss.backward()
            except RuntimeError:
                return loss * 0.0
        return loss

    return f, lambda: gradients(net)


def what_is_picked_and_not_used() -> Made:
    held = State(first=linear(0), second=linear(1))

    def f(c: Any) -> Any:
        net = held.first
        if c > 0:
            net = held.second
        net = held.first
        return net(ROW) + c

    return f, lambda: None


def gradients_that_are_not_asked_for() -> Made:
    net = linear(0)

    def f(c: Any) -> Any:
        net.weight.grad = net.bias.grad = None
        if c > 0:
            net.weight.requires_grad_(False)
            net(ROW).sum().backward()
            net.weight.requires_grad_(True)
        else:
            net(ROW).sum().backward()
        return c

    return f, lambda: (gradients(net), net.weight.requires_grad)


def steps_of_a_gradient() -> Made:
    def f(c: Any) -> Any:
        start = (c * ROW).detach().requires_grad_()
        w = start
        for _ in range(int(c) % 3):
            (g,) = weft.autograd.grad((w * w * w).sum(), [w], create_graph=True)
            w = w - 0.1 * g
        (out,) = weft.autograd.grad((w * w).sum(), [start])
        return out * 1.0

    return f, lambda: None


def nothing_until_a_turn_sets_it() -> Made:
    def f(c: Any) -> Any:
        found = None
        for i in range(4):
            if c > i:
                found = c * i
        return c - 1.0 if found is None else found * 2.0

    return f, lambda: None


def nothing_until_a_turn_of_open_number_sets_it() -> Made:
    def f(c: Any) -> Any:
        index = None
        for i in range(int(c)):
            if c * i > 3:
                index = i
                break
        if index is not None:
            return index
        return -1

    return f, lambda: None


def nothing_until_a_while_sets_it() -> Made:
    def f(c: Any) -> Any:
        last, x = None, c * 1.0
        while x > 1.5:
            x = x - 1.0
            if x < 2.5:
                last = x
        return x if last is None else last + 10.0

    return f, lambda: None


def nothing_in_an_attribute() -> Made:
    held = State(ema=None)

    def f(c: Any) -> Any:
        y = c if held.ema is None else held.ema + c
        if c > 2:
            held.ema = None
        elif c > 0:
            held.ema = c if held.ema is None else held.ema * 0.5 + c * 0.5
        return y

    return f, lambda: None if held.ema is None else held.ema.item()


class Slots:
    """Has an attribute of its own, or none."""

    __slots__ = ("a",)
    a: Any


def a_slot_that_is_deleted() -> Made:
    held = Slots()

    def f(c: Any) -> Any:
        held.a = c * 2.0
        if c > 0:
            del held.a
        return c

    return f, lambda: hasattr(held, "a")


class Cached:
    """Keeps what it has computed."""

    scale = 3.0

    @functools.cached_property
    def product(self) -> Any:
        return ROW * self.scale


def a_cached_property_that_is_deleted() -> Made:
    held = Cached()

    def f(c: Any) -> Any:
        y = held.product.sum() * c
        if c > 0:
            del held.product
        return y

    return f, lambda: "product" in vars(held)


def an_item_at_a_number_in_a_branch() -> Made:
    held = State(items=[weft.zeros(()) for _ in range(4)])

    def f(c: Any) -> Any:
        if c > 0:
            held.items[int(c) % 4] = c * 1.0
        return c

    return f, lambda: [x.item() for x in held.items]


PROGRAMS = [
    a_backward_pass_on_each_way,
    a_backward_pass_in_elif,
    one_of_two_modules,
    a_module_that_a_function_picks,
    a_function_that_is_picked,
    one_of_two_in_a_try,
    one_of_two_in_what_suppresses_all,
    a_backward_pass_in_a_try_on_each_way,
    what_is_picked_and_not_used,
    gradients_that_are_not_asked_for,
    steps_of_a_gradient,
    nothing_until_a_turn_sets_it,
    nothing_until_a_turn_of_open_number_sets_it,
    nothing_until_a_while_sets_it,
    nothing_in_an_attribute,
    a_slot_that_is_deleted,
    a_cached_property_that_is_deleted,
    an_item_at_a_number_in_a_branch,
]
CALLS = (2.0, -1.0, 5.0, 1.0, -3.0, 2.0, 4.0, 0.0, 1.0)


def outcomes(function: Any, look: Callable[[], Any], calls: Sequence[float] = CALLS) -> list[Any]:
    out = []
    for c in calls:
        found = function(weft.tensor(c))
        out.append((type(found), weft.tensor(found).tolist(), look()))
    return out


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda p: p.__name__)
def test_each_call_does_what_eager_code_does(make: Callable[[], Made]) -> None:
    function, look = make()
    expected = outcomes(function, look)
    function, look = make()
    found = outcomes(weft.compile(function), look)
    assert [kind for kind, *_ in found] == [kind for kind, *_ in expected]
    assert_same([tree for _, *tree in found], [tree for _, *tree in expected])


def assert_same(found: Any, expected: Any) -> None:
    left, right = (weft.tree_leaves(x, is_leaf=lambda x: x is None) for x in (found, expected))
    assert [type(x) for x in left] == [type(x) for x in right]
    assert [x for x in left if x is not None] == pytest.approx([x for x in right if x is not None], rel=1e-5)


def chain(ways: int) -> Any:
    """A function with a long chain of ``elif``."""
    lines = ["def f(i, w):", "    if i == 0: y = w * 1.0"]
    lines += [f"    elif i == {k}: y = w * {k + 1}.0" for k in range(1, ways)]
    source, name = "\n".join([*lines, "    else: y = w * 0.5", "    return y", ""]), f"<chain of {ways}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {}
    exec(compile(source, name, "exec"), space)  # noqa: S102 - the text is ours
    return space["f"]


def test_a_long_chain_of_ways_has_its_gradients() -> None:
    f = chain(90)
    compiled = weft.compile(f)
    for i in (1, 89):
        w = weft.tensor(2.0, requires_grad=True)
        y = compiled(weft.tensor(i), w)
        y.backward()
        assert y.item() == f(i, 2.0)
        assert w.grad is not None
        assert w.grad.item() == f(i, 1.0)


def orders_of_a_list() -> Made:
    held = State(items=[3, 1, 2], tensors=[weft.tensor(1.0), weft.tensor(2.0)], n=0)

    def f(c: Any) -> Any:
        held.n += 1
        held.items[0] = held.n
        held.items.sort(reverse=True)
        if c > 0:
            held.tensors.reverse()
            held.tensors[0] += 1.0
        else:
            held.items.reverse()
        return c * held.items[0] + held.tensors[1]

    return f, lambda: (held.items, [x.item() for x in held.tensors])


def test_lists_from_outside_are_sorted_and_reversed() -> None:
    function, look = orders_of_a_list()
    expected = outcomes(function, look)
    function, look = orders_of_a_list()
    assert repr(outcomes(weft.compile(function), look)) == repr(expected)


def test_what_is_not_used_stays_one_version() -> None:
    function, _ = what_is_picked_and_not_used()
    compiled = weft.compile(function)
    for c in CALLS:
        compiled(weft.tensor(c))
    assert len(compiled.versions) == 1


def test_each_way_is_a_version() -> None:
    function, _ = one_of_two_modules()
    compiled = weft.compile(function)
    for c in CALLS:
        compiled(weft.tensor(c))
    assert len(compiled.versions) == 2


@pytest.mark.parametrize(
    "make",
    [one_of_two_modules, nothing_in_an_attribute, a_slot_that_is_deleted, an_item_at_a_number_in_a_branch],
    ids=lambda p: p.__name__,
)
def test_a_graph_of_types_alone_refuses_it(make: Callable[[], Made]) -> None:
    function, _ = make()
    with pytest.raises(CaptureError, match=r"at test_decided_by_python\.py:"):
        weft.make_graph(function)(weft.tensor(1.0))


def test_turns_after_the_first_value_are_a_loop_and_too_many_before_it_are_refused() -> None:
    def f(c: Any) -> Any:
        found = None
        for i in range(1000):
            if c > i:
                found = c * i
        return c if found is None else found

    compiled = weft.compile(f)
    for c in (5.0, 0.5, 700.0):  # which sets it in the first turn
        assert compiled(weft.tensor(c)).item() == f(weft.tensor(c)).item()
    assert len(list(compiled.graph.walk())) < 100
    with pytest.raises(CaptureError, match="found must be the same on both ways"):
        compiled(weft.tensor(-1.0))


def test_a_graph_that_is_freed_is_the_error_of_the_way_that_frees_it_twice() -> None:
    net = linear(0)

    @weft.compile
    def f(c: Any) -> Any:
        loss = net(ROW).sum()
        if c > 0:
            loss.backward()
            loss.backward()
        else:
            loss.backward()
        return loss

    f(weft.tensor(-1.0))
    with pytest.raises(weft.errors.FreedGraphError, match="second backward"):
        f(weft.tensor(1.0))
    f(weft.tensor(-1.0))
    assert gradients(net) == [[[2.0, 4.0]], [2.0]]


def test_why_a_way_is_captured_too_is_said_with_the_line(caplog: pytest.LogCaptureFixture) -> None:
    @weft.compile
    def f(x: Any) -> Any:
        name = "up"
        if x > 0.0:  # here
            name = "below"
        return x * len(name)

    with caplog.at_level("INFO", "weft.compile"):
        assert [float(f(weft.tensor(v))) for v in (1.0, -1.0, 2.0)] == [5.0, -2.0, 10.0]
    lines, start = inspect.getsourcelines(f.__wrapped__)
    line = start + next(k for k, text in enumerate(lines) if "# here" in text)
    assert f"because of a value that is asked for at test_decided_by_python.py:{line}" in caplog.text

"""Settings of modules and optimizers that captured code changes: each call goes on from the last one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft
from weft import nn
from weft.errors import CaptureError


def _evaluates(net: Any, opt: Any, c: Any) -> None:
    net(c * weft.tensor([[1.0, 2.0], [3.0, 5.0]]))
    net.eval()


def _evaluates_on_a_way(net: Any, opt: Any, c: Any) -> None:
    net(c * weft.tensor([[1.0, 2.0], [3.0, 5.0]]))
    if c > 0:
        net.eval()
    else:
        net.train()


def _applies(net: Any, opt: Any, c: Any) -> None:
    def count(module: Any) -> None:
        module.calls = getattr(module, "calls", 0) + 1

    net.apply(count)
    net[0].running_mean.add_(c * net.calls)


def _sets_the_rate(net: Any, opt: Any, c: Any) -> None:
    (net[1].weight * c).sum().backward()
    for group in opt.param_groups:
        group["lr"] = 0.5
    opt.step()
    opt.zero_grad()


def _sets_the_rate_and_sets_it_back(net: Any, opt: Any, c: Any) -> None:
    (net[1].weight * c).sum().backward()
    (group,) = opt.param_groups
    rate = group["lr"]
    group["lr"] = 0.25
    opt.step()
    group["lr"] = rate * 0.5
    opt.step()
    opt.zero_grad()


def _sets_the_rate_on_a_way(net: Any, opt: Any, c: Any) -> None:
    (net[1].weight * c).sum().backward()
    (group,) = opt.param_groups
    if c > 0:
        group["lr"] = 0.25
        opt.step()
    else:
        group["lr"] *= 0.25
        opt.step()
        group["lr"] = 0.3
    opt.zero_grad()


def _reads_what_it_set(net: Any, opt: Any, c: Any) -> None:
    (group,) = opt.param_groups
    group["lr"] = 0.5
    net[0].running_mean.add_(c * weft.jit.dynamic(lambda: group["lr"] * group["weight_decay"]))


STEPS: list[Callable[[Any, Any, Any], Any]] = [
    _evaluates,
    _evaluates_on_a_way,
    _applies,
    _sets_the_rate,
    _sets_the_rate_and_sets_it_back,
    _sets_the_rate_on_a_way,
    _reads_what_it_set,
]


def _left(step: Callable[[Any, Any, Any], Any], compiled: bool) -> list[Any]:
    weft.manual_seed(0)
    net = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))
    opt = weft.optim.SGD(net.parameters(), lr=0.1, weight_decay=0.5)

    def run(c: Any) -> None:
        step(net, opt, c)

    function = weft.compile(run) if compiled else run
    found = []
    for i, number in enumerate((1.0, -1.0, 2.0)):
        function(weft.tensor(number))
        tensors = [*net.parameters(), *net.buffers()]
        found.append([net.training, opt.param_groups[0]["lr"], *[x.tolist() for x in tensors]])
        opt.param_groups[0]["weight_decay"] = 0.25 * i
    return found


@pytest.mark.parametrize("step", STEPS)
def test_a_call_leaves_what_eager_code_leaves(step: Callable[[Any, Any, Any], Any]) -> None:
    for ours, theirs in zip(_left(step, True), _left(step, False), strict=True):
        for x, y in zip(ours, theirs, strict=True):
            assert weft.allclose(weft.tensor(x), weft.tensor(y), atol=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        lambda net, opt: net.register_forward_hook(lambda module, args, out: out * 2.0),
        lambda net, opt: net.add_module("more", nn.Tanh()),
        lambda net, opt: opt.add_param_group({"params": [weft.ones(2).requires_grad_()]}),
    ],
    ids=["a hook", "a module", "a group"],
)
def test_what_only_the_capture_would_set_up_is_refused(change: Callable[[Any, Any], Any]) -> None:
    net = nn.Sequential(nn.Linear(2, 2))
    opt = weft.optim.SGD(net.parameters(), lr=0.1)

    @weft.compile
    def step(x: Any) -> Any:
        change(net, opt)
        return net(x)

    with pytest.raises(CaptureError, match=r"must not change a (Sequential|SGD) from outside"):
        step(weft.ones((1, 2)))
    assert len(opt.param_groups) == len(list(net.children())) == 1
    assert net(weft.zeros((1, 2))).tolist() == [net[0].bias.tolist()]


def test_a_rate_that_changed_can_be_looked_at() -> None:
    net = nn.BatchNorm1d(2)
    weight = weft.ones(2, requires_grad=True)
    opt = weft.optim.SGD([weight], lr=0.1)

    @weft.compile
    def step(x: Any) -> Any:
        (weight * x).sum().backward()
        opt.step()
        if x.sum() > 0:
            net.eval()
        else:
            opt.param_groups[0]["lr"] *= 0.5
        return net(x)  # looks at whether it trains

    step(weft.ones((3, 2)))
    assert not net.training
    assert opt.param_groups[0]["lr"] == 0.1
    step(-weft.ones((3, 2)))
    assert opt.param_groups[0]["lr"] == 0.05

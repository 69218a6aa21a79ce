"""What people write, with its tensors on a device: state, branches, views and changes in place stay right."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.emulated import EmulatedDriver, emulated
from tests.backends.cuda.standin import StandIn
from weft import optim
from weft import parallel as par

pytestmark = pytest.mark.filterwarnings("ignore:.*has no kernel for cuda:RuntimeWarning")

CHANGES: dict[str, Any] = {
    "fill_": lambda x: x.fill_(3.0),
    "zero_": lambda x: x.zero_(),
    "copy_ of a tensor of the host": lambda x: x.copy_(weft.arange(3.0)),
    "copy_ of a number": lambda x: x.copy_(weft.tensor(2.0)),
    "all elements to a number": lambda x: x.__setitem__(slice(None), 0.5),
    "all elements to a list": lambda x: x.__setitem__(..., [1.0, 2.0, 3.0]),
    "all elements to a tensor of the host": lambda x: x.__setitem__(slice(None), weft.arange(3.0)),
    "some elements": lambda x: x.__setitem__(slice(1, None), 7.0),
    "a view": lambda x: x[1:].fill_(4.0),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_in_place_leaves_a_tensor_where_it_is(api: StandIn, name: str) -> None:
    there, here = weft.ones(3, device="cuda"), weft.ones(3)
    for x in (there, here):
        CHANGES[name](x)
    assert there.device == "cuda"
    assert there.tolist() == here.tolist()
    here.copy_(there)
    assert here.device == "cpu"


def test_a_tensor_of_one_element_stays_on_its_device_too(api: StandIn) -> None:
    x = weft.ones(1, device="cuda")
    x[0] = 0.5
    assert x.device == "cuda"
    assert x.tolist() == [0.5]


def test_state_of_the_host_is_kept_where_a_graph_has_no_program(api: StandIn) -> None:
    """The stand-in has no programs: graphs go op by op, and Adam counts its steps on the host."""
    w = weft.tensor([0.5], device="cuda", requires_grad=True)
    optimizer = optim.Adam([w], lr=0.1)

    @weft.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = ((x * w) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss

    for turn in range(3):
        step(weft.tensor([1.0 + turn], device="cuda"))
        assert optimizer.state[w]["step"].item() == turn + 1


def test_a_view_of_a_view_leaves_a_compiled_function(api: StandIn) -> None:
    x = weft.arange(6.0, device="cuda")

    @weft.compile
    def rows(x: Any) -> Any:
        x.add_(1.0)
        return x.view(2, 3)[1]

    row = rows(x)
    x.mul_(2.0)
    assert row.tolist() == [8.0, 10.0, 12.0]


def test_a_branch_and_its_gradient_see_one_condition() -> None:
    """The second branch on a condition comes after other kernels, which must not write where it lies."""

    def losses(device: str) -> list[Any]:
        w = weft.tensor([1.0, 1.0], device=device, requires_grad=True)
        held = SimpleNamespace(count=weft.tensor(0.0, device=device))

        @weft.compile
        def step(x: Any) -> Any:
            w.grad = None
            y = w * x
            if x[0] > 2:
                held.count += 1.0
                y = y * 2
            loss = y.sum()
            loss.backward()
            return loss.detach()

        found = []
        for first in (3.0, 1.0, 3.0, 4.0):
            loss = step(weft.tensor([first, 2.0], device=device))
            found.append([loss.item(), held.count.item(), *w.grad.tolist()])  # type: ignore[union-attr]
        return found

    with emulated() as card:
        np.testing.assert_array_equal(losses("cuda"), losses("cpu"))
        assert not card.errors


def test_checked_code_takes_tensors_of_a_device(api: StandIn) -> None:
    count, x = weft.zeros(2, device="cuda"), weft.arange(4.0, device="cuda")

    @weft.compile(debug=True)
    def pick(x: Any, i: Any) -> Any:
        count.add_(1.0)
        return x[i]

    found = pick(x, weft.tensor([3, 1], device="cuda"))
    assert found.device == "cuda"
    assert found.tolist() == [3.0, 1.0]
    with pytest.raises(IndexError):
        pick(x, weft.tensor([3, 4], device="cuda"))
    assert count.device == "cuda"
    assert count.tolist() == [1.0, 1.0]


def test_where_takes_a_truth_value_beside_tensors_of_a_device() -> None:
    with emulated():
        x = weft.tensor([1.0, 2.0], device="cuda")
        assert weft.where(True, x, -x).tolist() == [1.0, 2.0]
        assert weft.where(np.bool_(False), x, -x).tolist() == [-1.0, -2.0]


def test_captured_code_sees_the_device_of_its_tensors(api: StandIn) -> None:
    @weft.compile
    def scaled(x: Any) -> Any:
        if x.device.type == "cuda":
            return (x * 2).to("cuda")
        return x * 3

    here, there = weft.tensor([1]), weft.tensor([1], device="cuda")
    for _ in range(2):
        assert scaled(here).tolist() == [3]
        assert scaled(there).tolist() == [2]
    assert weft.compile(lambda x: x.is_cuda)(there)
    mask = weft.tensor([1.0, 0.0])
    found = weft.compile(lambda x: x * mask.to(x.device))(weft.ones(2, device="cuda"))
    assert found.device == "cuda"
    assert found.tolist() == [1.0, 0.0]


@pytest.fixture
def card() -> Iterator[EmulatedDriver]:
    with emulated() as found:
        yield found


def test_graphs_and_sessions_run_where_their_tensors_are(card: EmulatedDriver) -> None:
    w = weft.tensor([2.0, 3.0], device="cuda")
    graph = weft.make_graph(lambda x: (x * w).sum() + x)(weft.ones(2, device="cuda"))
    x = weft.tensor([1.0, 2.0], device="cuda")
    found = graph(x)
    assert found.device == "cuda"
    assert found.tolist() == [9.0, 10.0]
    assert graph.step({"x": x}).run_to(node="sum")
    with weft.Graph("line") as line:
        y = weft.placeholder("y", ("n",)) * w[0]
        change = weft.assign(w, w + 1.0)
    session = weft.Session(line)
    for times in (2.0, 3.0, 4.0, 5.0):
        product, _ = session.run([y, change], {"y": weft.arange(3.0, device="cuda")})
        assert product.device == w.device == "cuda"
        assert product.tolist() == [0.0, times, 2 * times]
    assert session.run(y, {"y": [1.0]}).tolist() == [6.0]  # what comes from the host is copied


def test_another_device_is_named_as_the_reason_of_another_version(
    card: EmulatedDriver, caplog: pytest.LogCaptureFixture
) -> None:
    w = weft.ones(2)
    fast = weft.compile(lambda x: x * w)
    fast(weft.ones(2))
    w = w.to("cuda")
    fast(weft.ones(2, device="cuda"))
    assert "x was f32[2] on cpu and is f32[2] on cuda:0" in caplog.text
    caplog.clear()
    fast(weft.ones(3, 2, device="cuda"))
    assert "x was f32[2] and is f32[3,2]" in caplog.text  # the device is another thing than the reason


@pytest.mark.filterwarnings("ignore:collectives of tensors on devices:RuntimeWarning")
def test_simulated_ranks_make_tensors_where_those_of_the_caller_go(card: EmulatedDriver) -> None:
    def program() -> Any:
        par.mesh(data=-1)
        return par.all_reduce(weft.tensor([1.0 + par.rank()]), "data")

    with weft.default_device("cuda"):
        there = par.simulate(program, 2)
    assert [(t.device == "cuda", t.tolist()) for t in there] == [(True, [3.0])] * 2
    assert par.simulate(program, 2)[0].device == "cpu"


def test_sizes_that_a_branch_does_not_fit_are_an_error_only_where_it_runs(card: EmulatedDriver) -> None:
    count = weft.zeros(2, device="cuda")

    @weft.compile
    def pick(x: Any, p: Any) -> Any:
        count.add_(1.0)
        return x[2] if p > 0 else x[0]

    def call(size: int, p: float) -> Any:
        return pick(weft.arange(1.0, size + 1, device="cuda"), weft.tensor(p, device="cuda"))

    for calls, size in enumerate((5, 4, 3, 2, 2, 2, 5), 1):
        first = call(size, -1.0)
        assert (first.device == "cuda", first.item(), count.tolist()) == (True, 1.0, [calls] * 2)
    with pytest.raises(IndexError, match="size 2"):
        call(2, 1.0)
    assert count.tolist() == [7.0, 7.0]
    assert call(4, 1.0).item() == 3.0

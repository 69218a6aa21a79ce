"""Profiles of code outside of graphs: ops, lines, modules, backward."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.ops.op import intercepted
from weft.profiler.log import Event
from weft.tensor.watch import here, watching

FILE = Path(__file__).name


def line_of(text: str) -> str:
    """``file.py:12`` for the first line of this file with some text."""
    lines = Path(__file__).read_text().splitlines()
    return f"{FILE}:{next(i for i, line in enumerate(lines, 1) if text in line)}"


def seconds_by(p: weft.profile, by: str) -> dict[str, float]:
    return {row.name: row.seconds for row in p.rows(by)}


def test_a_large_product_takes_longer_than_small_sums() -> None:
    big, small = weft.ones((400, 400)), weft.ones(4)
    with weft.profile() as p:
        for _ in range(5):
            big @ big  # the product
            small + small  # the sum
    by_op = seconds_by(p, "op")
    assert by_op["matmul"] > 5 * by_op["add"] > 0
    by_line = seconds_by(p, "line")
    assert by_line[line_of("big @ big  # the product")] > 5 * by_line[line_of("small + small  # the sum")] > 0


def test_each_op_is_counted_with_its_shapes_and_bytes() -> None:
    x, y = weft.ones((3, 4)), weft.ones((4, 5))
    with weft.profile() as p:
        x @ y
        weft.tanh(x)
        weft.where(x > 0, x, -x)
        weft.max(x, axis=1)
    events = {e.name: e for e in p.events}
    assert {"matmul", "tanh", "greater", "neg", "max"} <= set(events)
    assert events["matmul"].shapes == ("f32[3,4]", "f32[4,5]")
    assert events["matmul"].bytes == 4 * (12 + 20 + 15)
    assert all(e.kind == "op" and e.duration > 0 for e in p.events)


def test_the_line_has_its_text() -> None:
    x = weft.ones(3)
    with weft.profile() as p:
        weft.exp(x)  # a line to find
    [row] = p.rows("line")
    assert (row.name, row.text) == (line_of("a line to find"), "weft.exp(x)  # a line to find")


def test_operators_functions_and_names_that_users_hold_are_seen() -> None:
    tanh = weft.tanh  # held since before the block
    x = weft.ones(3)
    with weft.profile() as p:
        tanh(x)
        x * 2
        3.0 - x
        x**2
        x += 1
        x == x  # noqa: B015 - it is an op
    assert [e.name for e in p.events] == ["tanh", "mul", "sub", "square", "add", "equal"]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(8, 600)
        self.narrow = nn.Linear(600, 2)

    def forward(self, x: Any) -> Any:
        for _ in range(5):
            h = self.wide(x)
        return self.narrow(h)


def test_time_goes_to_the_module_that_ran() -> None:
    net, x = Net(), weft.ones((500, 8))
    net(x)
    with weft.profile() as p:
        net(x)
    by_module = seconds_by(p, "module")
    assert set(by_module) == {"wide", "narrow", "(top)"}
    assert by_module["wide"] > by_module["narrow"]
    assert {e.module for e in p.events if e.kind == "op"} == {"wide", "narrow"}
    assert [e.name for e in p.events if e.kind == "module"].count("Linear") == 6


def test_backward_belongs_to_the_lines_of_the_forward() -> None:
    x = weft.ones((300, 300), requires_grad=True)
    with weft.profile() as p:
        y = x @ x  # forward product
        z = y.sum()  # forward sum
        z.backward()
    by_name = {e.name: e for e in p.events if e.kind == "op"}
    assert by_name["matmul backward"].line == by_name["matmul"].line
    assert by_name["sum backward"].line == by_name["sum"].line
    assert seconds_by(p, "line")[line_of("y = x @ x  # forward product")] > 0


def test_gradients_of_modules_belong_to_them() -> None:
    net, x = Net(), weft.ones((4, 8))
    with weft.profile() as p:
        net(x).sum().backward()
    found = {e.module for e in p.events if e.name == "matmul backward"}
    assert found == {"wide", "narrow"}


@pytest.mark.parametrize("size", [4, 600])
def test_results_and_gradients_are_the_same_bits(size: int) -> None:
    def run() -> list[Any]:
        weft.manual_seed(0)
        x = weft.randn(size, size, requires_grad=True)
        y = nn.functional.layer_norm(weft.tanh(x @ x) * 2 + x, size)
        loss = nn.functional.softmax(y, axis=-1).max(axis=0).sum()
        loss.backward()
        return [y.detach().numpy(), loss.detach().numpy(), x.grad.numpy()]

    plain = run()
    with weft.profile():
        profiled = run()
    for a, b in zip(plain, profiled, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_composite_that_one_kernel_runs_is_one_op() -> None:
    x = weft.ones((512, 256))
    weft.layer_norm(x, 256)
    with weft.profile() as p:
        weft.layer_norm(x, 256)
    assert [e.name for e in p.events if e.kind == "op"] == ["layer_norm"]


def is_clean() -> bool:
    return (
        type(intercepted.threads) is set
        and watching.watcher is None
        and not here.inside
        and nn.Module.__call__.__module__ == "weft.nn.module"
    )


def test_nothing_is_left_behind() -> None:
    assert is_clean()
    with weft.profile():
        weft.ones(3) + 1
        assert not is_clean()
    assert is_clean()


def test_an_error_in_the_block_ends_it_and_keeps_what_ran() -> None:
    x = weft.ones(3)
    p = weft.profile()
    with pytest.raises(weft.errors.ShapeError, match="shapes must broadcast"), p:
        weft.exp(x)
        x + weft.ones(4)
    assert is_clean()
    assert [e.name for e in p.events][:2] == ["exp", "add"]


def test_inner_blocks_see_a_part_of_what_outer_ones_see() -> None:
    x = weft.ones(3)
    with weft.profile() as outer:
        weft.exp(x)
        with weft.profile() as inner:
            weft.sin(x)
        weft.cos(x)
    assert [e.name for e in inner.events] == ["sin"]
    assert [e.name for e in outer.events] == ["exp", "sin", "cos"]
    assert is_clean()


def test_blocks_may_end_in_any_order() -> None:
    x, first, second = weft.ones(3), weft.profile(), weft.profile()
    first.__enter__()
    weft.exp(x)
    second.__enter__()
    weft.sin(x)
    first.__exit__(None, None, None)
    weft.cos(x)
    second.__exit__(None, None, None)
    assert [e.name for e in first.events] == ["exp", "sin"]
    assert [e.name for e in second.events] == ["sin", "cos"]
    assert is_clean()


def test_all_threads_are_watched() -> None:
    def work() -> None:
        weft.exp(weft.ones(3))

    with weft.profile() as p:
        worker = threading.Thread(target=work, name="the worker")
        worker.start()
        worker.join()
        weft.sin(weft.ones(3))
    threads = {e.name: e.thread for e in p.events}
    assert threads["exp"] != threads["sin"]
    assert any(row.name.endswith("the worker") for row in p.rows("thread"))


def test_regions_hold_what_runs_in_them() -> None:
    x = weft.ones(3)
    with weft.profile() as p:
        with weft.profile.region("outer"), p.region("inner"):
            weft.exp(x)

        @weft.profile.region("function")
        def work() -> None:
            weft.sin(x)

        work()
    regions = {e.name: e for e in p.events if e.kind == "region"}
    [exp] = [e for e in p.events if e.name == "exp"]
    assert list(regions) == ["outer", "inner", "function"]
    assert regions["outer"].begin <= regions["inner"].begin <= exp.begin
    assert exp.end <= regions["inner"].end <= regions["outer"].end


def test_own_times_add_up_to_the_outermost_event() -> None:
    with weft.profile() as p, weft.profile.region("all"):
        for _ in range(3):
            with weft.profile.region("some"):
                weft.exp(weft.ones(10))
                time.sleep(0.001)
    [outermost] = [e for e in p.events if e.name == "all"]
    assert sum(e.own for e in p.events) == outermost.duration
    some: list[Event] = [e for e in p.events if e.name == "some"]
    assert all(e.own >= 1e6 for e in some)


def test_graphs_can_be_captured_in_a_block() -> None:
    with weft.profile() as p:
        graph = weft.make_graph(lambda x: weft.tanh(x) * 2.0)(weft.ones(3))
        weft.vmap(weft.grad(lambda x: (x * x).sum()))(weft.ones((2, 3)))
    assert [node.op.name for node in graph.nodes] == ["tanh", "mul"]
    assert "tanh" not in {e.name for e in p.events}
    assert is_clean()


def test_an_anomaly_is_found_in_a_block() -> None:
    x = weft.tensor([0.0, 4.0], requires_grad=True)
    with pytest.raises(weft.errors.AnomalyError), weft.profile(), weft.detect_anomaly():
        (x / x).sum().backward()
    assert is_clean()


def test_what_was_not_run_cannot_be_asked() -> None:
    p = weft.profile()
    assert repr(p) == "<profile: not run yet>"
    with pytest.raises(weft.errors.ArgumentError, match="profile: the block must have ended"):
        p.rows()
    with p, pytest.raises(weft.errors.ArgumentError, match="must not be entered again"):
        p.__enter__()
    with pytest.raises(
        weft.errors.ArgumentError, match="by must be one of op, line, module, thread, got 'no'"
    ):
        p.table(by="no")
    with pytest.raises(weft.errors.ArgumentError, match="the name must be a str, got int"):
        weft.profile.region(3)  # type: ignore[arg-type]


def test_what_a_checkpoint_computes_again_is_counted() -> None:
    x = weft.ones((3, 3), requires_grad=True)

    def f(x: Any) -> Any:
        return weft.tanh(x @ x).exp()  # computed twice

    with weft.profile() as p:
        weft.checkpoint(f, x).sum().backward()
    counts = {row.name: row.count for row in p.rows()}
    assert [counts[name] for name in ("matmul", "tanh", "exp", "sum")] == [2, 2, 2, 1]
    assert [counts[f"{name} backward"] for name in ("matmul", "tanh", "exp", "sum")] == [1, 1, 1, 1]
    again = [e for e in p.events if e.name == "tanh"]
    assert {f"{Path(e.line[0]).name}:{e.line[1]}" for e in again if e.line} == {line_of("# computed twice")}
    whole = sum(e.own for e in p.events)
    assert whole <= p.seconds * 1e9
    assert not here.inside

"""``explain()``, ``profile()`` and stepping of what runs on a device: kernels, bytes, times by events."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.emulated import EmulatedDriver, emulated
from weft.backends.cuda.build import build_program, loops_of
from weft.backends.cuda.card import card as find_card
from weft.backends.cuda.explain import _shares, measure_limits
from weft.ops.library_conv import library_conv, library_conv_input
from weft.schedule.explanation import Limits, explain_program
from weft.schedule.gpu.machine import Gpu as Machine
from weft.viewer.page import page_data


@pytest.fixture
def card() -> Iterator[EmulatedDriver]:
    with emulated() as found:
        yield found


def f(x: Any) -> Any:
    return weft.softmax(x.tanh() * 2.0, axis=1).sum(axis=0)


@pytest.mark.rotating(2)
def test_explain_tells_kernels_with_times_bytes_and_share_of_the_limit(
    card: EmulatedDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    x = weft.ones(8, 16, device="cuda")
    fast = weft.compile(f)
    expected = fast(x).tolist()
    (told,) = fast.explain(x)
    text = capsys.readouterr().out
    assert "on cuda:0 (Stand-in)" in text
    assert "of limit" in text
    assert "test_explained.py" in text
    assert len(told.kernels) == str(told.program).count("launch ")
    assert told.kernels[0].bytes >= 8 * 16 * 4
    assert all(k.measured.runs == 1 and k.measured.seconds > 0 for k in told.kernels)
    assert told.seconds > 0
    assert "cuda program" in str(told.program)
    assert fast(x).tolist() == expected


def test_explain_of_a_loop_counts_its_turns(card: EmulatedDriver, capsys: pytest.CaptureFixture[str]) -> None:
    fast = weft.compile(lambda x: weft.while_loop(lambda x: (x > 1.0).any(), lambda x: x / 2.0, x))
    x = weft.full((4,), 9.0, device="cuda")
    (told,) = fast.explain(x)
    capsys.readouterr()
    assert max(k.measured.runs for k in told.kernels) >= 4


def test_products_by_libraries_have_their_line_and_choices_are_those_of_the_target() -> None:
    def lines(x: Any, w: Any) -> Any:
        y = x @ w
        return weft.softmax(y, axis=1)

    graph = weft.make_graph(lines)(weft.ones(4096, 1024), weft.ones(1024, 1024)).optimize()
    loops = loops_of(graph, Machine(libraries=True))
    product, rows = explain_program(graph, loops, Limits(1e12, 1e12, 1 << 20, 1e13)).kernels
    assert (product.name, product.ops) == ("matmul", "matmul")
    assert "y = x @ w" in product.sources[0]
    assert "softmax" in rows.sources[0]
    assert {"fusion", "memory_plan"} <= set(loops.origins.choices)
    assert not {"units", "dots"} & set(loops.origins.choices)


def test_explain_on_the_host_is_as_it_is(card: EmulatedDriver, capsys: pytest.CaptureFixture[str]) -> None:
    fast = weft.compile(f)
    fast(weft.ones(8, 16, device="cuda"))
    (told,) = fast.explain(weft.ones(8, 16))
    assert told.device == ""
    assert "of limit" not in capsys.readouterr().out


def test_profile_has_kernels_of_compiled_functions_and_eager_ops(card: EmulatedDriver) -> None:
    x = weft.tensor(np.ones((8, 16), np.float32), device="cuda")
    fast = weft.compile(f)
    expected = fast(x).tolist()
    with weft.profile() as found:
        assert fast(x).tolist() == expected
        (x + x).tolist()
    kinds = {(e.kind, e.name) for e in found.events}
    assert any(kind == "kernel" for kind, _ in kinds), kinds
    assert ("op", "add") in kinds
    kernel = next(e for e in found.events if e.kind == "kernel")
    assert kernel.bytes > 0
    assert "f32[8,16]" in str(next(e for e in found.events if e.name == "add").shapes)


def test_profile_tells_the_share_of_the_limit_that_explain_tells(
    card: EmulatedDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    x = weft.ones(8, 16, device="cuda")
    fast = weft.compile(f)
    (told,) = fast.explain(x)
    capsys.readouterr()
    with weft.profile() as found:
        for _ in range(2):
            fast(x)
    kernels = [e for e in found.events if e.kind == "kernel"]
    assert len(kernels) == 2 * len(told.kernels)
    for event, step in zip(kernels, 2 * told.kernels, strict=True):
        assert event.at_best == round(step.estimated * 1e9) > 0
        assert event.bytes == step.bytes
    for row in found.rows():
        those = [e for e in kernels if e.name == row.name]
        at_best, took = (sum(getattr(e, field) for e in those) for field in ("at_best", "own"))
        assert row.limit == pytest.approx(at_best / took if those else 0.0)  # calls and builds have none
    assert "of limit" in str(found.table())
    (line,) = [row for row in found.rows("line") if "softmax" in row.text]
    assert line.limit > 0
    assert line.limit == pytest.approx(sum(e.at_best for e in kernels) / sum(e.own for e in kernels))


def test_profile_of_the_host_has_no_share_of_a_limit(card: EmulatedDriver) -> None:
    fast = weft.compile(f)
    with weft.profile() as found:
        fast(weft.ones(64, 64))
    assert any(e.kind == "kernel" for e in found.events)
    assert all(e.at_best == 0 for e in found.events)
    assert "of limit" not in str(found)


def test_profile_of_a_loop_counts_the_limit_of_each_turn(card: EmulatedDriver) -> None:
    fast = weft.compile(lambda x: weft.while_loop(lambda x: (x > 1.0).any(), lambda x: x / 2.0, x))
    x = weft.full((4,), 9.0, device="cuda")
    with weft.profile() as found:
        fast(x)
    once, often = (
        [e.at_best for e in found.events if e.kind == "kernel" and (e.count > 1) is many]
        for many in (False, True)
    )
    assert max(often) >= 3 * max(once)


def test_plans_of_a_memory_profile_are_those_of_the_device(card: EmulatedDriver) -> None:
    x = weft.ones(8, 16, device="cuda")
    fast = weft.compile(f)
    with weft.memory_profile() as found:
        fast(x)
    (plan,) = found.plans
    assert str(plan) == str(fast.memory(x))


def test_limits_are_those_of_the_card_even_where_another_one_had_its_identity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain, kilohertz, clock = EmulatedDriver.cuDeviceGetAttribute, 0, 13

    def told(self: Any, attribute: int, device: int) -> Any:
        return (0, kilohertz) if attribute == clock else plain(self, attribute, device)

    monkeypatch.setattr(EmulatedDriver, "cuDeviceGetAttribute", told)
    for kilohertz in (1_000_000, 2_000_000, 3_000_000):
        with emulated():
            limits = measure_limits(find_card())
        assert limits.flops == 2 * 128 * 132 * kilohertz * 1e3
        assert limits.halves == 16 * limits.flops  # of sm_90
        gc.collect()


def test_calls_of_libraries_are_estimated_by_their_products_or_not_at_all() -> None:
    attrs = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
    x, w = (weft.ones(s, dtype=weft.bfloat16) for s in ((8, 16, 16, 64), (64, 3, 3, 64)))

    def both(x: Any, w: Any) -> Any:
        return library_conv(x, w, **attrs), library_conv_input(x, w, **attrs, size=(16, 16))

    graph = weft.make_graph(both)(x, w)
    loops = loops_of(graph, Machine(libraries=True, cudnn=True))
    told = explain_program(graph, loops, Limits(1e12, 1e12, 1 << 20, 1e12, 16e12))
    forward, backward = told.kernels
    assert forward.flops == 2 * 8 * 16 * 16 * 64 * 9 * 64
    assert forward.estimated == pytest.approx(0.1e-6 + forward.flops / 16e12)
    assert backward.bytes > 0
    assert (backward.estimated, backward.limit_share) == (0.0, "")
    assert told.hosts == ()
    assert "by Python" not in str(told)


def test_stepping_shows_values_of_the_device(card: EmulatedDriver) -> None:
    run = weft.compile(lambda x: weft.exp(x * 2.0) + 1.0).step(weft.zeros(2, device="cuda"))
    assert run.run_to(node="exp")
    assert run["%0"].tolist() == [0.0, 0.0]


def g(x: Any) -> Any:
    return weft.softmax(weft.tanh(x * 2.0) @ W[0], axis=1)


W: list[Any] = []  # the weight, while a device is there


@pytest.fixture
def trained(card: EmulatedDriver) -> Iterator[tuple[Any, Any]]:
    """A function that has run on a device with a gradient, and its argument."""
    x = weft.ones(8, 16, device="cuda")
    W[:] = [weft.ones(16, 4, device="cuda", requires_grad=True)]
    fast = weft.compile(g)
    fast(x).sum().backward()
    yield fast, x
    W.clear()


def launches(told: Any) -> int:
    return str(told.program).count("launch ") + str(told.program).count("copy ")


@pytest.mark.rotating(2)
def test_explain_without_arguments_has_tables_of_both_graphs_on_made_up_numbers(
    trained: tuple[Any, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    fast, x = trained
    found = fast.explain()
    assert capsys.readouterr().out.count("measured on made-up numbers") == 2
    for told in found:
        assert told.device == "cuda:0 (Stand-in)"
        assert told.seconds > 0
        assert len(told.kernels) == launches(told)
        assert all(k.measured.runs == 1 and k.bytes > 0 for k in told.kernels)
    assert [len(told.kernels) for told in fast.explain(x)] == [len(told.kernels) for told in found]


def test_explain_runs_nothing_that_might_not_end_or_prints(
    card: EmulatedDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    def f(x: Any) -> Any:
        print("printed")  # noqa: T201
        return weft.while_loop(lambda x: (x > 1.0).any(), lambda x: x / 2.0, x)

    fast = weft.compile(f)
    fast(weft.full((4,), 9.0, device="cuda"))
    assert capsys.readouterr().out == "printed\n"
    (told,) = fast.explain()
    assert told.seconds is None
    assert told.device
    assert "printed\n" not in capsys.readouterr().out


@pytest.mark.rotating(2)
def test_viewer_shows_kernels_of_the_device(trained: tuple[Any, Any]) -> None:
    fast, x = trained
    told, backward = fast.explain(x)
    for args in (None, (x,)):
        page = page_data(fast, args=args)
        assert len(page["kernels"]) == len(told.kernels)
        assert page["device"] == told.device
        assert all(re.fullmatch(r"\d+%", k["limit"]) for k in page["kernels"])
        assert page["memory"]["arena"] == told.arena
        assert page["seconds"] > 0
        assert len(page["backward"]["kernels"]) == len(backward.kernels)
    graph = weft.make_graph(f)(x)
    (alone,) = weft.compile(f).explain(x)
    shown = page_data(graph, args=(x,))
    assert [k["name"] for k in shown["kernels"]] == [k.name for k in alone.kernels]


@pytest.mark.rotating(2)
def test_viewer_takes_limits_from_a_profile_and_has_none_for_the_host(trained: tuple[Any, Any]) -> None:
    fast, x = trained
    with weft.profile() as found:
        fast(x)
    page = page_data(fast, args=(x,), profile=found)
    events = [e for e in found.events if e.kind == "kernel"]
    assert [k["limit"] for k in page["kernels"]] == [f"{100 * e.at_best / e.duration:.0f}%" for e in events]
    host = page_data(weft.compile(f), args=(weft.ones(8, 16),))
    assert "device" not in host
    assert all(k["limit"] == "" for k in host["kernels"])


@pytest.mark.rotating(2)
def test_lowered_graph_and_memory_plan_are_those_of_the_device(trained: tuple[Any, Any]) -> None:
    fast, x = trained
    assert fast.lowered.history()
    report = fast.memory(x)
    run = fast.versions[0].run
    assert report.arena == run.program.arena
    assert report.inputs == 4 * (8 * 16 + 16 * 4)
    assert report.peak <= report.arena
    assert {b.op for b in report.buffers} >= {"matmul"}
    assert str(fast.memory()) == str(report)


def _each(*parts: Any) -> Any:
    return [weft.sin(x) * 2.0 + x for x in parts]


def test_launches_that_are_one_share_its_time(
    card: EmulatedDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [weft.ones(n, device="cuda") for n in (40, 32, 24)]
    fast = weft.compile(_each)
    fast(*given)
    (told,) = fast.explain(*given)
    capsys.readouterr()
    assert str(told.program).count("launch ") == 1
    assert [k.measured.runs for k in told.kernels] == [1, 1, 1]
    assert len({k.measured.seconds for k in told.kernels}) == 1  # a block each
    with weft.profile() as found:
        fast(*given)
    assert sum(e.kind == "kernel" for e in found.events) == 3


def test_shares_of_launches_are_those_of_their_blocks() -> None:
    given = [weft.ones(n) for n in (65536, 16384, 16384)]
    (step,) = build_program(weft.make_graph(_each)(*given).optimize()).steps
    assert _shares(step, {}) == pytest.approx([4 / 6, 1 / 6, 1 / 6])
    alone = build_program(weft.make_graph(weft.sin)(given[0]).optimize()).steps
    assert [_shares(step, {}) for step in alone] == [[1.0]]

"""The file that trace viewers open, and the tables."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft import data, nn
from weft.profiler.block import with_own_times
from weft.profiler.log import Event
from weft.profiler.tables import show_rate


@pytest.fixture(scope="module")
def profile() -> weft.profile:
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    compiled = weft.compile(net)
    with weft.profile() as p:
        for batch in data.from_arrays(np.ones((8, 8), np.float32)).batch(4).prefetch(2):
            with weft.profile.region("step"):
                net(batch).sum().backward()
                compiled(batch)
    return p


@pytest.fixture(scope="module")
def trace(profile: weft.profile, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    profile.save(path)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_records_have_the_fields_that_viewers_need(trace: dict[str, Any]) -> None:
    kinds = set()
    for record in trace["traceEvents"]:
        assert {"ph", "ts", "pid", "tid", "name"} <= set(record)
        assert record["ph"] in "XM"
        assert isinstance(record["name"], str)
        assert isinstance(record["tid"], int)
        if record["ph"] == "X":
            kinds.add(record["cat"])
            assert record["dur"] >= 0
            assert record["ts"] >= 0
    assert kinds == {"op", "kernel", "call", "build", "stage", "wait", "module", "region"} & kinds
    assert {"op", "kernel", "call", "stage", "wait", "module", "region"} <= kinds


def test_threads_have_names(trace: dict[str, Any]) -> None:
    used = {r["tid"] for r in trace["traceEvents"] if r["ph"] == "X"}
    named = {r["tid"]: r["args"]["name"] for r in trace["traceEvents"] if r["name"] == "thread_name"}
    assert set(named) == used
    assert {"MainThread", "weft-data"} <= set(named.values())


def test_events_of_a_thread_are_nested(trace: dict[str, Any]) -> None:
    around: dict[int, list[tuple[float, float]]] = {}
    for r in trace["traceEvents"]:
        if r["ph"] != "X":
            continue
        begin, end = r["ts"], r["ts"] + r["dur"]
        stack = around.setdefault(r["tid"], [])
        while stack and stack[-1][1] <= begin:
            stack.pop()
        if stack:
            assert stack[-1][0] <= begin
            assert end <= stack[-1][1] + 1e-3  # in microseconds, what rounding may do
        stack.append((begin, end))


def test_an_op_says_where_it_stands(trace: dict[str, Any]) -> None:
    [*ops] = [r for r in trace["traceEvents"] if r.get("cat") == "op" and r["name"] == "tanh"]
    assert ops
    assert all(Path(r["args"]["line"].rpartition(":")[0]).name == Path(__file__).name for r in ops)
    assert {r["args"]["module"] for r in ops} == {"1"}


@pytest.mark.parametrize("by", ["op", "line", "module", "thread"])
def test_shares_add_up_and_rows_are_sorted(profile: weft.profile, by: str) -> None:
    rows = profile.rows(by)
    assert sum(row.share for row in rows) == pytest.approx(1)
    assert [row.seconds for row in rows] == sorted([row.seconds for row in rows], reverse=True)
    text = str(profile.table(by, limit=2))
    assert len(text.splitlines()) == 2 + min(2, len(rows))
    assert rows[0].name in text


def test_a_table_is_shown_by_rich(profile: weft.profile, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich")
    profile.show("module")
    assert "module" in capsys.readouterr().out


def test_without_rich_it_is_text(
    profile: weft.profile, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == "rich":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    profile.show("op", limit=3)
    assert capsys.readouterr().out == f"{profile.table('op', limit=3)}\n"


def test_the_text_of_a_profile(profile: weft.profile) -> None:
    assert str(profile) == str(profile.table())
    assert repr(profile).startswith(f"<profile: {len(profile.events)} events in ")


def test_rates() -> None:
    assert show_rate(0, 1.0, "B/s") == show_rate(1, 0.0, "B/s") == ""
    assert show_rate(12, 2.0, "B/s") == "6 B/s"
    assert show_rate(5e6, 2.0, "flop/s") == "2.5 Mflop/s"


@st.composite
def nested(draw: st.DrawFn, begin: int = 0, length: int = 1000, depth: int = 3) -> list[Event]:
    """Events of one thread, one inside of another."""
    events = [Event("region", "r", begin, length, 0)]
    at = begin
    for _ in range(draw(st.integers(0, 3)) if depth else 0):
        skip, taken = draw(st.integers(1, 50)), draw(st.integers(1, 200))
        if at + skip + taken >= begin + length:
            break
        events += draw(nested(at + skip, taken, depth - 1))
        at += skip + taken
    return events


@given(nested(), st.randoms())
def test_own_times_add_up(events: list[Event], random: Any) -> None:
    shuffled = [*events]
    random.shuffle(shuffled)
    found = with_own_times(shuffled)
    assert sum(e.own for e in found) == 1000
    assert all(0 <= e.own <= e.duration for e in found)

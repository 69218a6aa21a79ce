"""Tables of pipelines: what they must hold, what waits in vain, how long they idle and what they keep."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft import parallel as par
from weft.parallel.schedules import TABLES


@st.composite
def tables(draw: st.DrawFn) -> par.Schedule:
    """Any of the usual tables."""
    name, ranks = draw(st.sampled_from(sorted(TABLES))), draw(st.integers(1, 6))
    microbatches = draw(st.integers(1, 9))
    if name == "interleaved" and microbatches > ranks:
        microbatches -= microbatches % ranks
    chunks = draw(st.integers(1, 3))
    return par.schedule(name, ranks=ranks, microbatches=microbatches, stages=ranks * chunks)


@settings(max_examples=60, deadline=None)
@given(tables())
def test_every_microbatch_goes_through_every_stage_after_what_it_needs(table: par.Schedule) -> None:
    """Checked by the definition, from the times alone."""
    ends = {slot.action: slot.end for slot in table.timeline(1.5, 2.0, 0.5, 0.25)}
    starts = {slot.action: slot for slot in table.timeline(1.5, 2.0, 0.5, 0.25)}
    kinds = "FBW" if table.splits else "FB"
    wanted = {(k, s, m) for k in kinds for s in range(table.stages) for m in range(table.microbatches)}
    assert {tuple(a) for a in ends} == wanted
    for (kind, stage, m), slot in starts.items():
        if kind == "F" and stage:
            assert slot.start >= ends[par.Action("F", stage - 1, m)]
        if kind == "B":
            assert slot.start >= ends[par.Action("F", stage, m)]
            if stage + 1 < table.stages:
                assert slot.start >= ends[par.Action("B", stage + 1, m)]
        if kind == "W":
            assert slot.start >= ends[par.Action("B", stage, m)]
    for rank in range(len(table.rows)):
        own = sorted((s.start, s.end) for s in starts.values() if s.rank == rank)
        assert all(one[1] <= other[0] for one, other in pairwise(own))


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("microbatches", [1, 2, 4, 8, 16])
def test_idle_time_is_as_published(ranks: int, microbatches: int) -> None:
    """(p - 1) / (m + p - 1) of the two plain tables; v m for m where stages are interleaved."""
    p, m = ranks, microbatches
    for name in ("gpipe", "1f1b"):
        table = par.schedule(name, ranks=p, microbatches=m)
        assert table.bubble(1, 2) == pytest.approx((p - 1) / (m + p - 1))
    if m % p == 0:
        for chunks in (1, 2, 3):
            table = par.schedule("interleaved", ranks=p, microbatches=m, stages=p * chunks)
            assert table.bubble(1, 2) == pytest.approx((p - 1) / (chunks * m + p - 1))
    if m >= p:
        end = max(slot.end for slot in par.schedule("zero-bubble", ranks=p, microbatches=m).timeline())
        assert end == 3 * m + (p - 1)  # F + B - W of each rank but one


@pytest.mark.parametrize("ranks", [1, 2, 4, 5])
@pytest.mark.parametrize("microbatches", [1, 3, 8])
def test_what_is_alive_is_as_published(ranks: int, microbatches: int) -> None:
    p, m = ranks, microbatches
    assert par.schedule("gpipe", ranks=p, microbatches=m).alive() == (m,) * p
    assert par.schedule("1f1b", ranks=p, microbatches=m).alive() == tuple(min(m, p - r) for r in range(p))
    assert par.schedule("zero-bubble", ranks=p, microbatches=m).alive() == (min(m, p),) * p
    if m % p == 0:
        first = [min(2 * m, 2 * (p - r - 1) + p + 1) for r in range(p)]
        table = par.schedule("interleaved", ranks=p, microbatches=m, stages=2 * p)
        assert table.alive() == tuple(first)


@settings(max_examples=40, deadline=None)
@given(tables(), st.lists(st.integers(0, 100), min_size=18, max_size=18))
def test_bytes_alive_are_counted_by_time(table: par.Schedule, sizes: list[int]) -> None:
    """Independently: at every beginning, the sum over microbatches between their F and their last B or W."""
    slots = table.timeline()
    begins = {s.action: s for s in slots}
    last = "W" if table.splits else "B"
    for rank, most in enumerate(table.alive(sizes)):
        order = [s.action for s in slots if s.rank == rank]
        found = 0
        for i in range(len(order)):
            before = set(order[: i + 1])
            alive = [a for a in before if a.kind == "F" and par.Action(last, *a[1:]) not in set(order[:i])]
            found = max(found, sum(sizes[a.stage] for a in alive))
        assert most == found
    assert len(begins) == len(slots)


def test_stages_beyond_ranks_are_neighbours_or_interleaved() -> None:
    assert par.schedule("1f1b", ranks=2, microbatches=2, stages=4).homes == (0, 0, 1, 1)
    assert par.schedule("interleaved", ranks=2, microbatches=2, stages=4).homes == (0, 1, 0, 1)


def _refused(rows: list[list[tuple[str, int, int]]]) -> str:
    with pytest.raises(weft.errors.ParallelError) as error:
        par.Schedule("mine", rows).check()
    return str(error.value)


def test_what_waits_in_vain_is_named() -> None:
    """Rank 0 wants the second microbatch back first, rank 1 the first."""
    first = [("F", 0, 0), ("B", 0, 0), ("F", 0, 1), ("B", 0, 1)]
    second = [("F", 1, 1), ("B", 1, 1), ("F", 1, 0), ("B", 1, 0)]
    text = _refused([first, second])
    assert "rank 0: B0 of stage 0 waits for B0 of stage 1 on rank 1" in text
    assert "rank 1: F1 of stage 1 waits for F1 of stage 0 on rank 0" in text


@settings(max_examples=60, deadline=None)
@given(tables(), st.data())
def test_planted_deadlocks_are_found(table: par.Schedule, data: st.DataObject) -> None:
    """Two actions of a rank change places; an oracle that looks for circles says whether it can still run."""
    rows = [list(row) for row in table.rows]
    rank = data.draw(st.integers(0, len(rows) - 1))
    i, j = (data.draw(st.integers(0, len(rows[rank]) - 1)) for _ in range(2))
    rows[rank][i], rows[rank][j] = rows[rank][j], rows[rank][i]
    mine = par.Schedule("mine", rows)
    before: dict[par.Action, list[par.Action]] = {}
    for row in mine.rows:
        for at, action in enumerate(row):
            before[action] = [*mine.needs(action), *row[max(0, at - 1) : at]]
    done: set[par.Action] = set()
    while fresh := [a for a in before if a not in done and done.issuperset(before[a])]:
        done.update(fresh)
    if len(done) == len(before):
        assert mine.check() is mine
    else:
        with pytest.raises(weft.errors.ParallelError, match=r"rank \d"):
            mine.check()


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[("F", 0, 0), ("B", 0, 0)], [("F", 1, 0)]], ["rank 0", "B0 of stage 1 is missing", "waits for it"]),
        ([[("F", 0, 0), ("B", 0, 0), ("F", 0, 0)]], ["rank 0", "F0 of stage 0 twice"]),
        ([[("F", 0, 0)], [("B", 0, 0)]], ["rank 1", "B0 of stage 0", "rank 0 runs others"]),
        ([[("B", 0, 0), ("F", 0, 0)]], ["rank 0", "B0 of stage 0 must come after F0 of stage 0"]),
        ([[("G", 0, 0)]], ["rank 0", "F, B or W", "('G', 0, 0)"]),
        ([[("F", 0, 0), ("B", 0, 0), ("W", 0, 0), ("F", 0, 1), ("B", 0, 1)]], ["W1 of stage 0 is missing"]),
    ],
)
def test_tables_that_cannot_be_are_refused(rows: list[list[tuple[str, int, int]]], words: list[str]) -> None:
    text = _refused(rows)
    assert all(word in text for word in words), text


@pytest.mark.parametrize(
    "bad",
    [
        {"name": "2f2b"},
        {"ranks": 0},
        {"microbatches": 1.5},
        {"stages": 3},
        {"name": "interleaved", "microbatches": 3},
    ],
)
def test_what_cannot_be_asked_for(bad: dict[str, object]) -> None:
    given: dict[str, object] = {"name": "1f1b", "ranks": 2, "microbatches": 4, **bad}
    with pytest.raises(weft.errors.DomainError):
        par.schedule(given.pop("name"), **given)  # type: ignore[arg-type]


def test_a_drawing_has_a_line_for_each_rank() -> None:
    text = str(par.schedule("interleaved", ranks=2, microbatches=2)).splitlines()
    assert text[0] == "interleaved: 2 ranks, 4 stages, 2 microbatches; idle 20%; alive 4, 3"
    assert text[1] == "rank 0  F0.0 F0.1 F2.0 F2.1 .... B2.0 .... B2.1 B0.0 B0.1"[: len(text[1])]
    assert [line[:6] for line in text[1:]] == ["rank 0", "rank 1"]
    assert Fraction(par.schedule("gpipe", ranks=2, microbatches=1).bubble()) == Fraction(1, 2)

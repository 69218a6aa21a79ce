"""Libraries that need much memory work where nothing lies any more that is looked at later."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from tests.backends.cuda.dnn import FrontEnd
from tests.backends.cuda.standin import StandIn
from tests.backends.cuda.test_cudnn import half
from weft.backends.cuda import cudnn, rooms
from weft.backends.cuda.build import build_program
from weft.backends.cuda.card import card
from weft.backends.cuda.copies import to_device
from weft.backends.cuda.entries import BranchEntry, FillEntry, LoopEntry
from weft.backends.cuda.execute import CudaExecutable
from weft.backends.cuda.order import Access
from weft.backends.interpret import BACKEND as INTERPRET
from weft.schedule.gpu.machine import Gpu as Machine

ARENA, OTHER = 3, 1


class Works:
    """A call of a library that works in much memory, and touches spans of the arena."""

    def __init__(self, workspace: int, *spans: tuple[int, int], known: bool = True) -> None:
        self.call = SimpleNamespace(workspace=workspace)
        self._touched = [Access(ARENA, a, b, False) for a, b in spans] if known else None

    def accesses(self) -> Any:
        return self._touched

    def slots(self) -> set[int]:
        return {ARENA}


def fill(start: int, stop: int, slot: int = ARENA) -> FillEntry:
    return FillEntry((slot, start), 0, stop - start)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "LARGE", 1000)


def spans(entries: list[Any], size: int = 10_240) -> dict[int, tuple[int, int]]:
    found = rooms.find_rooms(entries, ARENA, size)
    assert all(a.slot == ARENA and a.writes for a in found.values())
    return {number: (a.start, a.stop) for number, a in found.items()}


def test_room_is_what_nobody_touches_from_then_on() -> None:
    before, own = fill(0, 10_240), (512, 1024)
    assert spans([before, Works(1500, own)]) == {1: (1024, 2560)}
    assert spans([before, Works(1500, own), fill(1000, 1100)]) == {1: (1280, 2816)}
    assert spans([before, Works(1500, own), fill(0, 10_240, OTHER)]) == {1: (1024, 2560)}


@pytest.mark.parametrize(
    "later",
    [
        fill(0, 10_240),
        BranchEntry(None, (fill(0, 5000),), (fill(5000, 10_240),)),
        LoopEntry((fill(0, 5000),), (ARENA, 5000), (fill(5001, 10_240),)),
        Works(0, known=False),
    ],
)
def test_no_room_where_all_is_touched_later(later: Any) -> None:
    assert spans([Works(1500), later]) == {}


def test_what_is_asked_by_a_branch_is_not_written_over() -> None:
    asked = BranchEntry((ARENA, 700), (fill(0, 1, OTHER),))
    assert spans([Works(2000), asked]) == {0: (768, 2816)}


def test_calls_may_share_room_and_small_or_unknown_ones_have_none() -> None:
    assert spans([Works(1500), Works(2000), Works(999)]) == {0: (0, 1536), 1: (0, 2048)}
    assert spans([Works(1500, known=False)]) == {}
    assert spans([Works(10_000)], size=9999) == {}
    assert spans([Works(10_000)], size=10_240) == {0: (0, 10_240)}


@pytest.mark.parametrize("walked", [False, True])
def test_calls_in_the_arena_give_what_others_give(
    walked: bool, api: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in fills its workspace with rubbish."""
    front = FrontEnd(api)
    monkeypatch.setattr(cudnn, "_front_end", lambda: front)

    def mix(x: Any) -> Any:
        q = x.transpose(1, 2)
        return F.scaled_dot_product_attention(q, q, q).transpose(1, 2)

    def chain(x: Any) -> Any:
        return mix(mix(mix(mix(x))))

    x = half(2, 128, 2, 16)
    graph = weft.make_graph(chain)(x).optimize()
    program = build_program(graph, machine=Machine(cudnn=True))
    assert not program.kernels, str(program)
    exact = INTERPRET(graph)([x.numpy()])[0].astype(np.float64)
    sizes = []
    for large in (1000, 1 << 30):
        monkeypatch.setattr(rooms, "LARGE", large)
        run = CudaExecutable(card(0, "test"), program, graph)
        run._listed = not walked
        for _ in range(5):
            (found,) = run([to_device(x.numpy(), run.card)])
            near = 1e-2 * np.abs(exact).max()
            np.testing.assert_allclose(found.to_host().astype(np.float64), exact, atol=near)
        plan: Any = run._plan
        assert bool(plan.rooms) == (large == 1000)
        assert (plan.bound is None) == walked
        sizes.append(plan.for_graphs.arena)
    assert sizes[0] <= sizes[1]

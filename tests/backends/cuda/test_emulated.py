"""PTX on the emulated card: values as the interpreter's, and races found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.nn as nn
import weft.nn.functional as F
from tests.backends.agreement import assert_agree, interpreted
from tests.backends.cuda.emulator import EmulatedCard, RaceError
from tests.backends.cuda.programs import PROGRAMS
from tests.gpu.plain_driver import run_on_card
from weft.backends.cuda.build import build_program
from weft.backends.cuda.program import Check, CopyBytes, Launch, Place


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_emulated_program_gives_what_the_interpreter_gives(name: str) -> None:
    function, tensors = PROGRAMS[name]
    graph, arrays = weft.make_graph(function)(*tensors), [t.numpy() for t in tensors]
    found = run_on_card(EmulatedCard(), build_program(graph.optimize()), arrays)
    assert_agree(found, interpreted(graph, arrays))


def test_index_out_of_bounds_is_noted_with_its_values() -> None:
    graph = weft.make_graph(lambda x, i: x[i])(weft.ones(5), weft.tensor([1, 2]))
    program = build_program(graph.optimize())
    with pytest.raises(AssertionError, match=r"failure \(0, \[0, 5, 7, "):
        run_on_card(EmulatedCard(), program, [np.ones(5, np.float32), np.array([1, 7])])


def test_a_whole_training_step_stays_on_the_card() -> None:
    model = nn.Sequential(
        nn.Embedding(12, 16), nn.LayerNorm(16), nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 12)
    )
    optimizer = weft.optim.AdamW(model.parameters(), lr=1e-2)

    def step(tokens: Any, wanted: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens), wanted)
        loss.backward()
        optimizer.step()
        return loss

    tokens = weft.tensor(np.arange(10) % 12)
    graph = weft.make_graph(step)(tokens, tokens).optimize()
    random, arrays = np.random.default_rng(0), []
    for value in graph.inputs:
        size, dtype = value.type.shape, value.type.dtype
        if not size:  # the steps: after few of them AdamW's corrections would cancel most digits
            array = np.asarray(1000)
        elif dtype.kind in "iu":
            array = random.integers(0, 12, size)
        else:  # no moment is negative
            array = random.random(size)
        arrays.append(array.astype(dtype))
    program = build_program(graph)
    assert all(isinstance(s, Launch | CopyBytes | Check) for s in program.steps)
    # Gradients are sums in another order, and AdamW divides them by roots of moments that may be small.
    assert_agree(run_on_card(EmulatedCard(), program, arrays), interpreted(graph, arrays), ulps=64)


HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
MEETING = (
    HEAD
    + """
.shared .align 16 .b8 row[128];
.entry turn(.param .u64 turn_param_0)
{
  ld.param.b64 %rd1, [turn_param_0];
  mov.u32 %r1, %tid.x;
  mov.b64 %rd2, row;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd2, %rd3;
  st.shared.b32 [%rd4], %r1;
  BARRIER
  sub.s64 %rd5, %rd2, %rd3;
  ld.shared.b32 %r2, [%rd5+124];
  add.s64 %rd6, %rd1, %rd3;
  st.global.b32 [%rd6], %r2;
  ret;
}
"""
)


def _turned(text: str, room: int = 128) -> Any:
    card = EmulatedCard()
    pointer = card.allocate(room)
    card.launch(card.load(text)["turn"], 1, 32, 0, [pointer])
    out = np.empty(32, np.int32)
    card.get(pointer, out)
    return out


def test_threads_that_meet_at_a_barrier_see_what_others_wrote() -> None:
    np.testing.assert_array_equal(_turned(MEETING.replace("BARRIER", "bar.sync 0;")), np.arange(32)[::-1])


def test_threads_that_do_not_meet_are_a_race() -> None:
    with pytest.raises(RaceError, match="shared memory in block 0"):
        _turned(MEETING.replace("BARRIER", ""))


def test_two_threads_that_write_one_word_are_a_race() -> None:
    text = MEETING.replace("mul.wide.u32 %rd3, %r1, 4;", "and.b32 %r3, %r1, 15; mul.wide.u32 %rd3, %r3, 4;")
    with pytest.raises(RaceError):
        _turned(text.replace("; mul", ";\n  mul").replace("BARRIER", "bar.sync 0;"))


def test_access_beyond_what_is_allocated_is_an_error() -> None:
    with pytest.raises(AssertionError, match="not allocated"):
        _turned(MEETING.replace("BARRIER", "bar.sync 0;"), room=124)


def test_misaligned_access_is_an_error() -> None:
    text = MEETING.replace("[%rd5+124]", "[%rd5+122]").replace("BARRIER", "bar.sync 0;")
    with pytest.raises(AssertionError, match="misaligned"):
        _turned(text)


def test_arrays_that_are_not_aligned_in_a_program_are_reached_element_by_element() -> None:
    x = np.arange(40, dtype=np.float32)
    graph = weft.make_graph(lambda x: x[1:33].reshape(4, 8) * 2.0)(weft.tensor(x))
    program = build_program(graph.optimize())
    (launch,) = program.steps
    assert isinstance(launch, Launch)
    assert launch.arguments[0] == Place("input", 0, 4)
    assert_agree(run_on_card(EmulatedCard(), program, [x]), interpreted(graph, [x]))

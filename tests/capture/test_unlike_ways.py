"""What is another thing of Python on each way of an ``if``: whoever looks at it is told."""

from __future__ import annotations

import copy
import enum
import pickle
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import CaptureError


class Mode(enum.Enum):
    FAST = 1
    EXACT = 2


class Holder:
    kept: Any = None


def asked(how: Any) -> Any:
    """A program that chooses among two modes by a tensor, and then looks at the one that it has."""

    def program(x: Any) -> Any:
        mode = Mode.FAST if x > 0 else Mode.EXACT
        return how(mode, x)

    return program


def matched(mode: Any, x: Any) -> Any:
    match mode:
        case Mode.FAST:
            return x
        case Mode():
            return x * 2.0
    return x


def matched_inside(mode: Any, x: Any) -> Any:
    match [mode, 1]:
        case [Mode(), 1]:
            return x
    return x * 2.0


def changed(mode: Any, x: Any) -> Any:
    mode.name = "other"
    return x


LOOKS = {
    "is": lambda mode, x: x if mode is Mode.FAST else x * 2.0,
    "is not": lambda mode, x: x if Mode.EXACT is not mode else x * 2.0,
    "itself": lambda mode, x: x if mode is mode else x * 2.0,
    "ellipsis": lambda mode, x: x if mode is ... else x * 2.0,
    "==": lambda mode, x: x if mode == Mode.FAST else x * 2.0,
    "in": lambda mode, x: x if mode in (Mode.FAST, None) else x * 2.0,
    "item": lambda mode, x: x if {"mode": mode}["mode"] is Mode.FAST else x * 2.0,
    "value": lambda mode, x: x * mode.value,
    "name": lambda mode, x: x if mode.name == "FAST" else x * 2.0,
    "attribute set": changed,
    "getattr": lambda mode, x: x * getattr(mode, "value"),  # noqa: B009
    "isinstance": lambda mode, x: x if isinstance(mode, str) else x * 2.0,
    "type": lambda mode, x: x if type(mode) is Mode else x * 2.0,
    "callable": lambda mode, x: x if callable(mode) else x * 2.0,
    "hasattr": lambda mode, x: x if hasattr(mode, "hint") else x * 2.0,
    "bool": lambda mode, x: x if mode else x * 2.0,
    "id": lambda mode, x: x if id(mode) == id(Mode.FAST) else x * 2.0,
    "hash": lambda mode, x: x if hash(mode) == hash(Mode.FAST) else x * 2.0,
    "repr": lambda mode, x: repr(mode),
    "str": lambda mode, x: str([mode]),
    "text": lambda mode, x: f"{mode}",
    "%": lambda mode, x: "%s" % mode,  # noqa: UP031
    "join": lambda mode, x: ", ".join(["mode", mode]),
    "print": lambda mode, x: print(mode),  # noqa: T201
    "array": lambda mode, x: np.array([mode]),
    "copy": lambda mode, x: x if copy.copy(mode) is Mode.FAST else x * 2.0,
    "returned": lambda mode, x: [mode],
    "match": matched,
    "match inside": matched_inside,
    "dict": lambda mode, x: {Mode.FAST: x, Mode.EXACT: x * 2.0}[mode],
    "sorted": lambda mode, x: sorted([mode, Mode.FAST]),
    "count": lambda mode, x: [mode].count(Mode.FAST),
}


@pytest.mark.parametrize("look", LOOKS)
def test_what_only_a_run_tells_is_looked_at_by_python(look: str, capsys: pytest.CaptureFixture[str]) -> None:
    program = asked(LOOKS[look])
    compiled = weft.compile(program)
    for value in (1.0, -1.0, 2.0):
        found: list[Any] = []
        wanted: list[Any] = []
        for function, into in ((compiled, found), (program, wanted)):
            try:
                into.append(function(weft.tensor(value)))
            except (TypeError, AttributeError) as error:
                into.append(type(error))
            into.append(capsys.readouterr().out)
        assert [_shown(x) for x in found] == [_shown(x) for x in wanted]


def _shown(x: Any) -> Any:
    return x.tolist() if isinstance(x, weft.Tensor | np.ndarray) else x


@pytest.mark.parametrize("look", LOOKS)
def test_where_nobody_can_ask_it_cannot_be_looked_at(look: str) -> None:
    with pytest.raises(
        CaptureError, match=r"(?s)must be the same on both ways.*test_unlike_ways\.py"
    ) as told:
        weft.make_graph(asked(LOOKS[look]))(weft.TensorType((), weft.float32))
    assert "the `if` at" in str(told.value)


def test_what_nobody_looks_at_may_differ() -> None:
    held = Holder()

    @weft.compile
    def step(x: Any) -> Any:
        mode = Mode.FAST if x > 0 else Mode.EXACT
        found = [mode, mode]
        held.kept = mode
        held.kept = len(found)
        return x * 2.0 if mode is not None else x

    for value in (1.0, -1.0):
        assert step(weft.tensor(value)).item() == 2.0 * value
    assert held.kept == 2


def test_what_python_knows_decides_beside_a_tensor() -> None:
    schedule: Any = None

    def step(x: Any) -> Any:
        if x > 0 and schedule is not None:
            schedule.step()
        if x > 0 or schedule is None:
            return x * 2.0
        return schedule.missing

    compiled = weft.compile(step)
    for value in (1.0, -1.0):
        assert compiled(weft.tensor(value)).item() == 2.0 * value


def test_a_truth_value_of_a_run_is_a_condition() -> None:
    compiled = weft.compile(lambda x: weft.where(bool(x > 0), float(x), 1))
    for value in (2.5, -2.5):
        assert compiled(weft.tensor(value)).item() == max(value, 1.0 if value < 0 else value)


def test_errors_that_nobody_can_decide_are_those_that_users_know() -> None:
    def f(x: Any) -> Any:
        for i in range(3):
            if x > i:
                return None
        return x

    with pytest.raises(CaptureError) as caught:
        weft.make_graph(f)(weft.ones(()))
    assert caught.type.__name__ == "CaptureError"
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - of our own
    assert type(again) is CaptureError
    assert str(again) == str(caught.value)


def test_attribute_named_by_the_turn_of_a_loop() -> None:
    class Net(weft.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for i in range(3):
                setattr(self, f"fc{i}", weft.nn.Linear(2, 2))

        def forward(self, x: Any, n: Any) -> Any:
            for i in range(int(n)):
                x = getattr(self, f"fc{i}")(x)
            return x

    net = Net()
    compiled = weft.compile(net)
    for n in (1, 2, 3, 1):
        given = weft.ones(2), weft.tensor(n)
        np.testing.assert_allclose(compiled(*given).detach().numpy(), net(*given).detach().numpy(), rtol=1e-6)

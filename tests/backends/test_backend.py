"""Backends as objects and as functions: registering, choosing, what each can do, and what it says if not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import weft
from weft import backends
from weft.backends import Backend, Executable, backend_named, find_backend, register_backend
from weft.backends.llvm import BACKEND as LLVM
from weft.errors import ArgumentError, DeviceError


class Counting(Backend):
    """Interprets, and counts the graphs."""

    name = "counting"
    options = frozenset({"check_nan"})

    def __init__(self) -> None:
        self.built: list[dict[str, Any]] = []

    def build(self, graph: Any, **options: Any) -> Executable:
        self.built.append(options)
        return backend_named("interpret").build(graph, **options)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_registered", dict(backends._registered))


@pytest.mark.usefixtures("registry")
def test_registered_object_is_found_by_its_name() -> None:
    mine = register_backend("mine", Counting())
    assert backend_named("mine") is mine
    assert weft.compile(lambda x: x + 1.0, backend="mine")(weft.ones(1)).item() == 2.0
    assert isinstance(mine, Counting)
    assert mine.built == [{}]


@pytest.mark.usefixtures("registry")
def test_registered_function_becomes_a_backend() -> None:
    def double(graph: Any) -> Any:
        run = backend_named("interpret").build(graph)
        return lambda arrays: [2.0 * array for array in run(arrays)]

    made = register_backend("double", double)
    assert isinstance(made, Backend)
    assert made.name == "double"
    assert weft.compile(lambda x: x + 1.0, backend="double")(weft.ones(1)).item() == 4.0
    with pytest.raises(ArgumentError, match="must take check_nan, got double, which does not"):
        weft.compile(lambda x: x, backend="double", check_nan=True)


def test_object_is_taken_without_a_name() -> None:
    mine = Counting()
    assert find_backend(mine) is mine
    assert weft.compile(lambda x: x + 1.0, backend=mine, check_nan=True)(weft.ones(1)).item() == 2.0
    assert mine.built == [{"check_nan": True}]
    with pytest.raises(ArgumentError, match="compile: the backend must take debug, got counting, which does"):
        weft.compile(lambda x: x, backend=mine, debug=True)


def test_hint_that_a_backend_does_not_take_is_left_out() -> None:
    mine = Counting()
    weft.compile(lambda x: x + 1.0, backend=mine, fast_math=True)(weft.ones(1))
    assert mine.built == [{}]


def test_capability_that_a_backend_lacks_is_said_by_name() -> None:
    mine = Counting()
    assert mine.programs is None
    with pytest.raises(DeviceError, match="export_library: the backend must export libraries, got counting"):
        mine.exporter("host")
    with pytest.raises(DeviceError, match="profile: the backend must take down times, got interpret, which"):
        backend_named("interpret").watch(None)  # type: ignore[arg-type]


def test_profile_goes_on_with_a_backend_that_takes_down_no_times() -> None:
    f = weft.compile(lambda x: x + 1.0, backend=Counting())
    with weft.profile():
        assert f(weft.ones(1)).item() == 2.0


def test_function_of_arrays_is_an_executable_with_defaults() -> None:
    graph = weft.make_graph(lambda x: x + 1.0)(weft.ones(2))
    run = find_backend(lambda graph: lambda arrays: [arrays[0] + 1.0]).build(graph)
    assert isinstance(run, Executable)
    assert list(run.donated) == []
    assert "add" in str(run.explain())
    x = np.ones(2, np.float32)
    [out] = run.donating([x], [True])
    np.testing.assert_array_equal(out, [2.0, 2.0])


def test_function_may_give_what_donates_and_explains() -> None:
    class Run:
        donated = ((0, 0),)

        def __call__(self, arrays: Sequence[Any]) -> list[Any]:
            return [arrays[0] + 1.0]

        def donating(self, arrays: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
            arrays[0][...] += 1.0
            return [arrays[0]]

        def explain(self) -> str:
            return "adds one"

    graph = weft.make_graph(lambda x: x + 1.0)(weft.ones(2))
    run = find_backend(lambda graph: Run()).build(graph)
    x = np.ones(2, np.float32)
    assert run.donating([x], [True])[0] is x
    assert run.explain() == "adds one"


@pytest.mark.parametrize("name", ["interpret", "llvm"])
def test_own_backends_take_exactly_the_options_they_name(name: str) -> None:
    backend = backend_named(name)
    graph = weft.make_graph(lambda x: x + 1.0)(weft.ones(2))
    lists: dict[str, Any] = {"lowering": [], "disable": ["fusion"]}  # the others are on or off
    for option in backend.options:
        backend.build(graph, **{option: lists.get(option, True)})([np.ones(2, np.float32)])
    assert not backend.takes("nothing")


def test_llvm_tells_a_watcher_of_builds_and_calls_until_it_ends() -> None:
    seen: list[str] = []

    class Watcher:
        def call(self, call: Any) -> Any:
            seen.append(f"call {call.run.graph.name} {len(call.arrays)}")
            return call.plain()

        def build(self, graph: Any, build: Any) -> Any:
            seen.append(f"build {graph.name}")
            return build()

    graph = weft.make_graph(lambda x: x + 1.0)(weft.ones(2))
    end = LLVM.watch(Watcher())
    try:
        run = LLVM.build(graph)
        run([np.ones(2, np.float32)])
    finally:
        end()
    run([np.ones(2, np.float32)])
    LLVM.build(graph)
    assert seen == [f"build {graph.name}", f"call {graph.name} 1"]

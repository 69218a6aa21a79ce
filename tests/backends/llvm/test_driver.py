"""Whole graphs as machine code."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from tests.schedule.lowered import program_of
from weft.backends.interpret import build as interpreted
from weft.backends.llvm import build, driver, pool
from weft.backends.llvm.cache import Cache
from weft.backends.llvm.compiler import Compiler
from weft.backends.llvm.driver import compile_program
from weft.backends.llvm.emit.launches import RECORD, recorded_statements
from weft.backends.llvm.engine import Engine
from weft.backends.llvm.entry import make_enter
from weft.backends.llvm.run import NativeExecutable
from weft.backends.llvm.target import host_target
from weft.ir.graph import Graph
from weft.schedule.cpu.machine import Machine
from weft.schedule.cpu.target import Cpu

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = weft.get_num_threads()
    yield
    weft.set_num_threads(before)


def network(x: weft.Tensor, w: weft.Tensor) -> weft.Tensor:
    return weft.softmax(weft.tanh(x @ w) * 2.0 + x.sum(axis=1, keepdims=True), axis=1)


def example(rows: int = 300, columns: int = 70) -> tuple[Graph, list[Array]]:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, np.float32) for shape in ((rows, columns), (columns, columns))]
    return weft.make_graph(network)(*map(weft.tensor, arrays)).optimize(), arrays


def test_compiled_graph_agrees_with_the_interpreter() -> None:
    graph, arrays = example()
    np.testing.assert_allclose(build(graph)(arrays)[0], interpreted(graph)(arrays)[0], rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_results_do_not_depend_on_the_number_of_threads(threads: int) -> None:
    graph, arrays = example(2000, 130)
    run = build(graph)
    weft.set_num_threads(1)
    expected = run(arrays)
    weft.set_num_threads(threads)
    for _ in range(5):
        np.testing.assert_array_equal(run(arrays)[0], expected[0])


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_machines_with_narrower_vectors_agree(vector_bytes: int) -> None:
    graph, arrays = example(37, 19)
    if vector_bytes > host_target().vector_bytes:
        return
    target = host_target(vector_bytes)
    program = program_of(graph, target=Cpu(Machine(target.vector_bytes, target.registers)))
    run = NativeExecutable(graph, program, compile_program(program, Engine(target, Cache(None))), target)
    np.testing.assert_allclose(run(arrays)[0], interpreted(graph)(arrays)[0], rtol=2e-5, atol=1e-7)


def test_kernels_that_are_known_are_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, _ = example(41, 23)
    own = Engine(host_target(), Cache(None))
    program = program_of(graph)
    first = compile_program(program, own)
    compiled: list[str] = []
    compile_text = Compiler.compile

    def spy(self: Any, source: Any, verify: bool) -> bytes:
        compiled.append(source.text)
        return compile_text(self, source, verify)

    monkeypatch.setattr(Compiler, "compile", spy)
    second = compile_program(program, own)
    assert {c.symbol: c.address for c in first[1:]} == {c.symbol: c.address for c in second[1:]}
    assert len(first) > 1
    assert [text.count("define ") for text in compiled] == [1]
    del first, second
    gc.collect()
    compile_program(program, own)
    assert sum(text.count("weft_kernel_") for text in compiled[1:]) > 0


def test_threads_compile_and_run_at_the_same_time() -> None:
    found: dict[int, bool] = {}

    def work(number: int) -> None:
        graph, arrays = example(20 + number % 3, 11)
        found[number] = np.allclose(build(graph)(arrays)[0], interpreted(graph)(arrays)[0], rtol=2e-5)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(6), True)


def test_named_sizes_are_bound_by_each_call() -> None:
    text = "graph f(%x: f32[n,8], %y: f32[8]) {\n  %0: f32[n,8] = mul(%x, %y)\n  return %0\n}"
    graph = weft.parse_graph(text)
    run = build(graph)
    y = np.arange(8, dtype=np.float32)
    for n in (3, 0, 1000, 1):
        x = np.random.default_rng(n).random((n, 8), np.float32)
        np.testing.assert_array_equal(run([x, y])[0], x * y)


def test_code_with_checks_gives_the_same_results() -> None:
    graph, arrays = example(37, 19)
    np.testing.assert_array_equal(build(graph, debug=True)(arrays)[0], build(graph)(arrays)[0])


def test_profile_tells_the_time_of_each_part() -> None:
    graph, arrays = example()
    run: Any = build(graph, profile=True)
    records = np.zeros((len(recorded_statements(run.program)), len(RECORD)), np.int64)
    run.profile(arrays, records)
    count, total, first, last = records.T
    assert (count == 1).all()
    assert (total == last - first).all()
    assert (np.diff(first) >= 0).all()
    before = records.copy()
    np.testing.assert_array_equal(run(arrays)[0], build(graph)(arrays)[0])
    np.testing.assert_array_equal(records, before)


def test_function_of_a_python_program_is_compiled() -> None:
    def f(x: weft.Tensor) -> weft.Tensor:
        while (x * x).sum() < 100.0:
            x = x * 1.5 + weft.sin(x)
        return x.sum()

    compiled = weft.compile(f, backend="llvm")
    for start in (
        [0.1, 0.2, 0.3],
        [50.0, 0.0, 0.0],
        [1e-9, 0.0, 0.0],
    ):  # a few turns, none, more than fit at first
        x, y = (weft.tensor(start, requires_grad=True) for _ in range(2))
        f(x).backward()
        compiled(y).backward()
        assert x.grad is not None
        assert y.grad is not None
        np.testing.assert_allclose(y.grad.numpy(), x.grad.numpy(), rtol=1e-4)


@pytest.mark.parametrize(("size", "optimised"), [(4, True), (4096, False)])
def test_main_function_is_optimised_where_it_computes_in_loops(
    size: int, optimised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def walk(x: weft.Tensor) -> weft.Tensor:
        for _ in range(1000):
            x = weft.sin(x) * 1.5
        return x

    settings: dict[bool, bool] = {}
    compile_text = Compiler.compile

    def spy(self: Any, source: Any, verify: bool) -> bytes:
        settings["@weft_main(" in source.text] = source.optimise
        return compile_text(self, source, verify)

    monkeypatch.setattr(Compiler, "compile", spy)
    monkeypatch.setattr(Cache, "get", lambda self, key: None)
    x = np.linspace(0, 1, size, dtype=np.float32)
    graph = weft.make_graph(walk)(weft.tensor(x)).optimize()
    np.testing.assert_allclose(build(graph)([x])[0], interpreted(graph)([x])[0], rtol=1e-4, atol=1e-5)
    assert settings[True] == optimised


# What is prepared before the first graph


@pytest.mark.parametrize(("threads", "begun"), [(2, 1), (1, 0)])
def test_what_every_graph_needs_is_made_ready_once_beside_other_work(
    monkeypatch: pytest.MonkeyPatch, threads: int, begun: int
) -> None:
    started: list[threading.Thread] = []
    monkeypatch.setattr(driver, "_begun", started)
    weft.set_num_threads(threads)
    assert weft.compile(lambda x: x)
    assert weft.compile(lambda x: x)
    assert len(started) == begun
    for thread in started:
        thread.join()
        assert pool._pools
        assert make_enter.cache_info().currsize == 1

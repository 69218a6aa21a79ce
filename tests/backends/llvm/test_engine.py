"""From LLVM text to machine code in memory."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.leaks import resident
from tests.trusted import needs_trusted_files
from weft.backends.llvm import compiler
from weft.backends.llvm.cache import Cache
from weft.backends.llvm.compiler import Compiler, Source
from weft.backends.llvm.engine import Code, Engine, default_engine
from weft.backends.llvm.target import host_target
from weft.errors import DomainError, GraphError

pytestmark = needs_trusted_files

# Python warns of forks while there are threads; that these work is what is tested.
FORKS = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def constant(name: str, number: int) -> Source:
    return Source(f"define i64 @{name}() {{\n  ret i64 {number}\n}}\n")


def call(code: Code, *args: int) -> int:
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(args))(code.address)(*args))


@pytest.fixture
def engine() -> Engine:
    return Engine(host_target(), Cache(None))


def test_functions_of_several_texts_are_called_by_their_addresses(engine: Engine) -> None:
    codes = engine.load([constant("one", 1), constant("two", 2)])
    assert {name: call(code) for name, code in codes.items()} == {"one": 1, "two": 2}


CALLER = "declare i64 @one()\ndefine i64 @caller() {\n  %x = call i64 @one()\n  ret i64 %x\n}\n"


@pytest.mark.parametrize("optimise", [False, True])
def test_text_calls_what_another_text_of_the_load_defines(engine: Engine, optimise: bool) -> None:
    assert call(engine.load([Source(CALLER, optimise), constant("one", 1)])["caller"]) == 1


def test_text_calls_code_of_an_earlier_load(engine: Engine) -> None:
    first = engine.load([constant("one", 1)])
    assert call(engine.load([Source(CALLER)], known=first.values())["caller"]) == 1


def test_text_calls_what_was_provided(engine: Engine) -> None:
    other = Engine(host_target(), Cache(None)).load([constant("anything", 5)])["anything"]
    asked: list[int] = []
    engine.provide(["one"], lambda name: asked.append(1) or other.address)  # type: ignore[func-returns-value]
    assert asked == []
    assert call(engine.load([Source(CALLER)])["caller"]) == 5
    assert asked == [1]


def test_text_calls_the_c_library(engine: Engine) -> None:
    text = "declare i64 @labs(i64)\ndefine i64 @f(i64 %x) {\n  %y = call i64 @labs(i64 %x)\n  ret i64 %y\n}"
    assert call(engine.load([Source(text)])["f"], -7) == 7


def test_function_that_nobody_defines_is_an_error(engine: Engine) -> None:
    with pytest.raises(GraphError, match=r"llvm: the code must link, got .*one"):
        engine.load([Source(CALLER)])


def test_text_that_is_none_of_llvm_is_an_error(engine: Engine) -> None:
    with pytest.raises(GraphError, match=r"llvm: the text must be LLVM's, got .*expected"):
        engine.load([Source("define nonsense")])
    assert call(engine.load([constant("one", 1)])["one"]) == 1


def test_error_in_one_of_many_texts_is_raised(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_LEAST_BATCH", 1)
    sources = [constant(f"f{i}", i) for i in range(20)]
    with pytest.raises(GraphError, match="the text must be LLVM's"):
        engine.load([*sources, Source("define nonsense")])


def test_texts_in_one_module_share_their_declarations(engine: Engine) -> None:
    shared = '!0 = !{!"weft"}\n!1 = !{!"0", !0}\ndeclare i64 @labs(i64)\n'
    texts = [
        f"{shared}define i64 @f{i}(i64 %x) {{\n  %y = call i64 @labs(i64 %x)\n"
        f"  %z = add i64 %y, {i}\n  ret i64 %z\n}}"
        for i in range(3)
    ]
    codes = engine.load([Source(text) for text in texts])
    assert [call(codes[f"f{i}"], -7) for i in range(3)] == [7, 8, 9]


def test_code_is_known_as_long_as_somebody_holds_it(engine: Engine) -> None:
    codes = engine.load([constant("one", 1), constant("two", 2)])
    assert engine.known("one") is codes["one"]
    assert engine.known("three") is None
    two = codes["two"]
    del codes
    gc.collect()
    assert engine.known("one") is None
    assert call(two) == 2


def test_prepared_text_is_not_compiled_again(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with engine.lock, engine.compilation() as compilation:
        engine.prepare(constant("one", 1), compilation)
        codes = engine.link(compilation)
    assert codes == {}
    monkeypatch.setattr(Compiler, "compile", fail_to_compile)
    assert call(engine.load([constant("one", 1)])["one"]) == 1


def test_text_prepared_early_is_not_compiled_again(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    thread = threading.Thread(target=engine.prepare_early, args=([constant("one", 1), constant("two", 2)],))
    thread.start()
    thread.join()
    engine.prepare_early([constant("one", 1)])
    monkeypatch.setattr(Compiler, "compile", fail_to_compile)
    codes = engine.load([constant("two", 2)]) | engine.load([constant("one", 1)])
    assert {name: call(code) for name, code in codes.items()} == {"one": 1, "two": 2}


def test_load_waits_for_a_text_that_is_being_prepared(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, compiled, compile_ = threading.Event(), [], Compiler.compile

    def slowly(compiler: Compiler, source: Source, verify: bool) -> bytes:
        begun.set()
        compiled.append(source)
        time.sleep(0.05)
        return compile_(compiler, source, verify)

    monkeypatch.setattr(Compiler, "compile", slowly)
    thread = threading.Thread(target=engine.prepare_early, args=([constant("one", 1)],))
    thread.start()
    begun.wait()
    assert call(engine.load([constant("one", 1)])["one"]) == 1
    thread.join()
    assert len(compiled) == 1


def test_code_that_comes_soon_computes_the_same(engine: Engine) -> None:
    text = "define i64 @f(i64 %x) {\n  %y = mul i64 %x, %x\n  %z = add i64 %y, 1\n  ret i64 %z\n}"
    assert call(engine.load([Source(text, quick=True)])["f"], 7) == 50


def fail_to_compile(*args: Any) -> bytes:
    raise AssertionError("compiled again")


def test_code_comes_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [constant("one", 1), Source(constant("two", 2).text, optimise=True)]
    Engine(host_target(), Cache(tmp_path)).load(sources)
    monkeypatch.setattr(Compiler, "compile", fail_to_compile)
    codes = Engine(host_target(), Cache(tmp_path)).load(sources)
    assert (call(codes["one"]), call(codes["two"])) == (1, 2)
    with pytest.raises(AssertionError, match="compiled again"):
        Engine(host_target(), Cache(tmp_path)).load([constant("three", 3)])


def test_other_settings_and_targets_have_other_entries(tmp_path: Path) -> None:
    target, text = host_target(), constant("one", 1).text
    narrow = host_target(16)
    for used in {target, narrow}:
        for settings in ((False, False), (True, False), (False, True)):
            Engine(used, Cache(tmp_path)).load([Source(text, *settings)])
    assert len(list(tmp_path.glob("*.o"))) == 3 * len({target, narrow})


def test_damaged_entry_is_compiled_again(tmp_path: Path) -> None:
    Engine(host_target(), Cache(tmp_path)).load([constant("one", 1)])
    (path,) = tmp_path.glob("*.o")
    path.write_bytes(path.read_bytes()[:-10])
    assert call(Engine(host_target(), Cache(tmp_path)).load([constant("one", 1)])["one"]) == 1


def test_threads_load_at_the_same_time(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_LEAST_BATCH", 1)
    found: dict[int, list[int]] = {}

    def work(number: int) -> None:
        codes = engine.load([constant(f"f{number}_{i}", 100 * number + i) for i in range(20)])
        found[number] = [call(codes[f"f{number}_{i}"]) for i in range(20)]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: [100 * n + i for i in range(20)] for n in range(4)}


@FORKS
def test_child_of_a_fork_compiles(engine: Engine) -> None:
    before = default_engine().load([constant("before", 3)])["before"]
    child = os.fork()
    if child == 0:
        try:
            right = call(before) == 3 and call(default_engine().load([constant("after", 4)])["after"]) == 4
            os._exit(0 if right else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_target_with_narrower_vectors_runs_here(vector_bytes: int) -> None:
    if vector_bytes > host_target().vector_bytes:
        with pytest.raises(DomainError, match="target: vectors here have at most"):
            host_target(vector_bytes)
        return
    target = host_target(vector_bytes)
    assert target.vector_bytes == vector_bytes
    text = (
        "define void @f(ptr %x) {\n  %a = load <32 x float>, ptr %x, align 4\n"
        "  %b = fadd <32 x float> %a, %a\n  store <32 x float> %b, ptr %x, align 4\n  ret void\n}"
    )
    code = Engine(target, Cache(None)).load([Source(text)])["f"]
    memory = (ctypes.c_float * 32)(*range(32))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address)(ctypes.addressof(memory))
    assert list(memory) == [2.0 * i for i in range(32)]


def test_environment_narrows_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_VECTOR_BYTES", "16")
    assert host_target().vector_bytes == 16


def test_code_that_is_dropped_leaves_no_memory(engine: Engine, tmp_path: Path) -> None:
    engine.cache = Cache(tmp_path)

    def load(count: int) -> None:
        for i in range(count):
            assert call(engine.load([constant("number", i % 3)])["number"]) == i % 3

    load(250)
    before = resident()
    load(800)
    assert resident() - before < 3_000_000  # of 7.4 MB that the libraries took


@pytest.mark.rotating(2)
def test_code_stays_when_its_linker_is_replaced(engine: Engine) -> None:
    kept = engine.load([constant("kept", 7)])["kept"]
    linker = engine._linker
    while engine._linker is linker:
        engine.load([constant("other", 1)])
    del linker
    gc.collect()
    assert call(kept) == 7
    text = "declare i64 @kept()\ndefine i64 @caller() {\n  %x = call i64 @kept()\n  ret i64 %x\n}\n"
    assert call(engine.load([Source(text)], known=[kept])["caller"]) == 7


def test_entry_without_the_function_is_compiled_again(tmp_path: Path) -> None:
    """As an older weft, or somebody with the user's rights, might leave one."""
    one, two = constant("one", 1), constant("two", 2)
    first = Engine(host_target(), Cache(tmp_path))
    wrong = first.object_code(two)
    for content in (wrong, wrong[:40], b"\x7fELF"):
        Cache(tmp_path).put(first._key(one), content)
        assert call(Engine(host_target(), Cache(tmp_path)).load([one])["one"]) == 1
        kept = Cache(tmp_path).get(first._key(one))
        assert kept is not None
        assert b"one" in kept

"""Texts are compiled while more of them come."""

from __future__ import annotations

import sys
import threading

import pytest

from weft.backends.llvm import compiler as module
from weft.backends.llvm.compiler import Compilation, Source


def text_of(name: str, length: int = 0) -> str:
    return f"declare void @g()\ndefine void @{name}() {{\n  ret void\n}}\n;{'x' * length}\n"


def encoded(source: Source) -> bytes:
    return f"{source.optimise} {source.quick} {source.text}".encode()


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "get_num_threads", lambda: 2)


def test_work_begins_before_all_texts_are_there() -> None:
    begun = threading.Event()

    def compile_text(source: Source) -> bytes:
        begun.set()
        return b""

    with Compilation(compile_text) as compilation:
        compilation.add(Source(text_of("f", 5_000)))
        assert begun.wait(10)
        compilation.add(Source(text_of("h")))
        assert len(compilation.finish()) == 2


def test_what_takes_longest_is_compiled_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "get_num_threads", lambda: 1)
    order: list[int] = []

    def compile_text(source: Source) -> bytes:
        order.append(len(source.text) // 1000)
        return b""

    with Compilation(compile_text) as compilation:
        for length, quick in ((20_000, False), (40_000, True), (30_000, False)):
            compilation.add(Source(text_of("f", length), quick=quick))
        assert len(compilation.finish()) == 3
    assert order == [30, 20, 40]


def test_object_code_comes_in_the_order_of_the_modules() -> None:
    with Compilation(encoded) as compilation:
        for i in range(30):
            compilation.add(Source(text_of(f"f{i}", 4_000)))
        found = compilation.finish()
    positions = [b"".join(found).index(f"@f{i}()".encode()) for i in range(30)]
    assert positions == sorted(positions)
    assert 4 < len(found) < 30


def test_same_texts_are_put_into_the_same_modules() -> None:
    def compiled() -> list[bytes]:
        with Compilation(encoded) as compilation:
            for i in range(40):
                compilation.add(Source(text_of(f"f{i}", 300 * (i % 7)), quick=i % 3 == 0))
            return compilation.finish()

    assert compiled() == compiled()


def test_texts_with_other_settings_are_in_other_modules() -> None:
    sources = [Source(text_of("f")), Source(text_of("g2"), quick=True), Source(text_of("h"), optimise=True)]
    with Compilation(encoded) as compilation:
        for source in sources:
            compilation.add(source)
        assert compilation.finish() == [encoded(source) for source in sources]
        assert compilation.sources == sources


def test_error_of_a_thread_is_raised_at_the_end() -> None:
    def fail(source: Source) -> bytes:
        raise ValueError("no code")

    with Compilation(fail) as compilation:
        compilation.add(Source(text_of("f", 5_000)))
        with pytest.raises(ValueError, match="no code"):
            compilation.finish()


def test_what_is_left_is_not_compiled_after_an_error() -> None:
    compiled: list[str] = []
    hold = threading.Event()

    def compile_text(source: Source) -> bytes:
        compiled.append(source.text)
        hold.wait(10)
        return b""

    def write() -> None:
        with Compilation(compile_text) as compilation:
            for i in range(8):
                compilation.add(Source(text_of(f"f{i}", 20_000)))
            threading.Timer(0.05, hold.set).start()
            raise KeyError("a kernel that cannot be written")

    before = threading.active_count()
    with pytest.raises(KeyError):
        write()
    assert len(compiled) <= 1
    assert threading.active_count() <= before + 1  # the timer


def test_turns_of_threads_are_as_long_as_before() -> None:
    before = sys.getswitchinterval()
    with Compilation(encoded) as compilation:
        assert sys.getswitchinterval() < before
        compilation.finish()
    assert sys.getswitchinterval() == before

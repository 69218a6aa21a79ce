"""The cache of object code: it gives back what was stored, or nothing."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.backends.llvm import cache as module
from weft.backends.llvm.cache import Cache

ROOT = Path(__file__).parents[3]


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.o"))


def test_get_gives_what_put_stored(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "a" / "b")
    assert cache.get(("text",)) is None
    cache.put(("text",), b"code")
    assert cache.get(("text",)) == b"code"
    assert Cache(tmp_path / "a" / "b").get(("text",)) == b"code"


def test_parts_of_a_key_are_not_confused(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put(("ab", "c"), b"code")
    assert cache.get(("a", "bc")) is None
    assert cache.get(("abc",)) is None


def test_cache_without_directory_holds_nothing() -> None:
    cache = Cache(None)
    cache.put(("text",), b"code")
    cache.trim()
    assert cache.get(("text",)) is None


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_damaged_entry_is_ignored_and_rewritten(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        cache = Cache(directory)
        content = data.draw(st.binary(max_size=200))
        cache.put(("text",), content)
        (path,) = files(Path(directory))
        whole = path.read_bytes()
        how = data.draw(st.sampled_from(["flip", "cut", "append", "replace"]))
        at = data.draw(st.integers(0, len(whole) - 1))
        damaged = {
            "flip": whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :],
            "cut": whole[:at],
            "append": whole + data.draw(st.binary(min_size=1, max_size=9)),
            "replace": data.draw(st.binary(max_size=100)),
        }[how]
        path.write_bytes(damaged)
        assert cache.get(("text",)) is None
        cache.put(("text",), content)
        assert cache.get(("text",)) == content


def test_file_in_place_of_the_directory_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        cache = Cache(place)
        cache.put(("text",), b"code")
        assert cache.get(("text",)) is None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_write_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*args: object) -> None:
        raise OSError(number, os.strerror(number))

    cache = Cache(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", fail)
        cache.put(("text",), b"code")
    assert cache.get(("text",)) is None
    assert list(tmp_path.iterdir()) == []
    cache.put(("text",), b"code")
    assert cache.get(("text",)) == b"code"


def test_entry_that_cannot_be_touched_is_still_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise PermissionError

    cache = Cache(tmp_path)
    cache.put(("text",), b"code")
    monkeypatch.setattr(os, "utime", fail)
    assert cache.get(("text",)) == b"code"


def test_directory_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put(("text",), b"code")
    tmp_path.chmod(0o777)
    assert cache.get(("text",)) is None
    cache.put(("other",), b"code")
    assert len(files(tmp_path)) == 1


def test_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "new")
    cache.put(("text",), b"code")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_trim_removes_what_was_not_used_for_longest(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=2500)
    for i in range(4):
        cache.put((str(i),), bytes(900))
        os.utime(max(files(tmp_path), key=lambda p: p.stat().st_mtime_ns), (i, i))
    assert cache.get(("0",)) is not None  # used: it is the newest now
    cache.trim()
    assert [i for i in range(4) if cache.get((str(i),)) is not None] == [0, 3]


def test_trim_removes_files_that_were_never_finished(tmp_path: Path) -> None:
    old, new = tmp_path / "x.1-1.new", tmp_path / "y.1-1.new"
    old.write_text("")
    new.write_text("")
    os.utime(old, (time.time() - 7200,) * 2)
    Cache(tmp_path).trim()
    assert list(tmp_path.iterdir()) == [new]


def test_many_writes_keep_the_cache_within_its_limit(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=20_000)
    for i in range(2000):
        cache.put((str(i),), bytes(100))
    total = sum(path.stat().st_size for path in files(tmp_path))
    assert total < 20_000 + 154 * 1500  # it is trimmed once in 256 writes or so


WRITER = """
import sys
from weft.backends.llvm.cache import Cache
cache = Cache(sys.argv[1])
print("ready", flush=True)
for turn in range(int(sys.argv[2])):
    for i in range(20):
        content = bytes([i]) * (1000 + 5000 * i)
        found = cache.get((str(i),))
        assert found is None or found == content, i
        cache.put((str(i),), content)
"""


def start_writer(directory: Path, turns: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(directory), str(turns)]
    return subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.rotating(2)
def test_processes_that_write_the_same_entries_see_whole_ones(tmp_path: Path) -> None:
    writers = [start_writer(tmp_path, 30) for _ in range(3)]
    assert [w.wait(timeout=60) for w in writers] == [0, 0, 0]
    for w in writers:
        w.communicate()
    assert len(files(tmp_path)) == 20
    assert all(Cache(tmp_path).get((str(i),)) == bytes([i]) * (1000 + 5000 * i) for i in range(20))


@pytest.mark.rotating(2)
def test_process_that_is_killed_while_it_writes_does_no_harm(tmp_path: Path) -> None:
    for delay in (0.0, 0.003, 0.01):
        writer = start_writer(tmp_path, 1_000_000)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(delay)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        cache = Cache(tmp_path)
        for i in range(20):
            content = bytes([i]) * (1000 + 5000 * i)
            assert cache.get((str(i),)) in (None, content)
            cache.put((str(i),), content)
            assert cache.get((str(i),)) == content


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"WEFT_CACHE_DIR": "/somewhere"}, "/somewhere"),
        ({"WEFT_CACHE_DIR": "", "XDG_CACHE_HOME": "/caches"}, None),
        ({"XDG_CACHE_HOME": "/caches"}, "/caches/weft"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/home/me"}, "/home/me/.cache/weft"),
        ({"HOME": "/home/me"}, "/home/me/.cache/weft"),
    ],
)
def test_environment_tells_the_directory(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str | None
) -> None:
    for name in ("WEFT_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert module._directory() == expected

"""Files that are replaced: their rights stay, and what killed processes leave beside them goes."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import weft
from weft.io import atomic
from weft.io.atomic import replacing

ROOT = Path(__file__).parents[2]
SOMEBODY = 12345


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("rights", [0o600, 0o640, 0o644, 0o444, 0o666])
def test_saving_over_a_file_keeps_its_rights(tmp_path: Path, rights: int) -> None:
    path = tmp_path / "file"
    weft.save({"a": 1}, path)
    path.chmod(rights)
    weft.save({"a": 2}, path)
    assert weft.load(path) == {"a": 2}
    assert mode(path) == rights


def test_a_new_file_has_the_rights_that_the_mask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        weft.save({}, tmp_path / "file")
    finally:
        os.umask(before)
    assert mode(tmp_path / "file") == 0o640


def test_nobody_else_may_read_a_secret_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o600)
    with replacing(str(path)) as file:
        file.write(b"secret")
        (part,) = tmp_path.glob(".*.part")
        assert mode(part) == 0o600
    assert mode(path) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_owner_and_group_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    os.chown(path, SOMEBODY, SOMEBODY)
    path.chmod(0o640)
    weft.save({}, path)
    assert (path.stat().st_uid, path.stat().st_gid, mode(path)) == (SOMEBODY, SOMEBODY, 0o640)

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "fchown", refuse)  # as for other users: the new group is not the old one
    weft.save({}, path)
    assert (path.stat().st_gid, mode(path)) == (0, 0o600)


SAVE = """
import sys, time
from weft.io.atomic import replacing
with replacing(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def saver(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that is in the middle of writing to a path."""
    process = subprocess.Popen(
        [sys.executable, "-c", SAVE, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def parts(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.glob(".*.part"))


def test_what_a_killed_saver_leaves_goes_at_the_next_save_of_the_same_path(tmp_path: Path) -> None:
    path, other = tmp_path / "file", tmp_path / "file.2"
    for target in (path, other):
        with saver(target) as process:
            process.send_signal(signal.SIGKILL)
            process.wait()
    assert len(parts(tmp_path)) == 2
    weft.save({"a": 1}, path)
    assert [name[:8] for name in parts(tmp_path)] == [".file.2."]
    weft.save({"a": 2}, other)
    assert parts(tmp_path) == []
    assert (weft.load(path), weft.load(other)) == ({"a": 1}, {"a": 2})


def test_what_a_living_saver_writes_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with saver(path) as process:
        (living,) = parts(tmp_path)
        for _ in range(3):
            weft.save({"a": 1}, path)
        assert parts(tmp_path) == [living]
        process.communicate("end\n", timeout=30)
        assert process.returncode == 0
    assert path.read_bytes() == b"half"
    assert parts(tmp_path) == []


def test_only_parts_are_removed(tmp_path: Path) -> None:
    kept = [".file.part", ".file.12-ab.part", ".file.x-0123abcd.part", "file.12-0123abcd.part", ".filé.part"]
    for name in kept:
        (tmp_path / name).write_text("mine")
    os.mkfifo(tmp_path / ".file.12-0123abcd.part")
    (tmp_path / ".file.13-0123abcd.part").symlink_to(tmp_path / ".file.part")
    weft.save({}, tmp_path / "file")
    expected = {*kept, "file", ".file.12-0123abcd.part", ".file.13-0123abcd.part"}
    assert set(os.listdir(tmp_path)) == expected


def test_a_saver_whose_file_was_taken_before_it_was_locked_takes_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = atomic._is_locked
    taken: list[Path] = []

    def late(handle: int, *, wait: bool) -> bool:
        if wait and not taken:
            taken.extend(tmp_path.glob(".*.part"))
            taken[0].unlink()
        return lock(handle, wait=wait)

    monkeypatch.setattr(atomic, "_is_locked", late)
    weft.save({"a": 1}, tmp_path / "file")
    assert len(taken) == 1
    assert weft.load(tmp_path / "file") == {"a": 1}


def test_many_savers_of_one_path_lose_nothing(tmp_path: Path) -> None:
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(20):
                weft.save({"a": number}, tmp_path / "file")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert weft.load(tmp_path / "file")["a"] in range(4)
    assert os.listdir(tmp_path) == ["file"]

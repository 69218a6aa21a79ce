"""Code from disk is run only if nobody else can have put it there: modes, owners, links, pipes, devices."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trusted import needs_trusted_files
from weft.backends.llvm.cache import Cache
from weft.backends.llvm.trust import distrust, make_private

pytestmark = needs_trusted_files

ROOT = Path(__file__).parents[3]
KEY = ("text",)
SOMEBODY = 12345  # a user that is not this one
is_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A cache with an entry, three directories deep."""
    place = tmp_path / "a" / "b" / "cache"
    Cache(place).put(KEY, b"code")
    assert Cache(place).get(KEY) == b"code"
    return place


def entry(place: Path) -> Path:
    (path,) = place.glob("*.o")
    return path


# Directories


@pytest.mark.parametrize(
    ("which", "mode", "trusted"),
    [
        (0, 0o700, True),
        (0, 0o755, True),
        (0, 0o770, False),  # the group may write
        (0, 0o702, False),
        (0, 0o1777, False),  # anybody may put an entry there, whoever may remove it
        (1, 0o755, True),
        (1, 0o775, False),
        (1, 0o757, False),
        (1, 0o1777, True),  # as /tmp
        (2, 0o775, False),
        (2, 0o1775, True),
    ],
)
def test_who_may_write_decides(kept: Path, which: int, mode: int, trusted: bool) -> None:
    place = [kept, *kept.parents][which]
    place.chmod(mode)
    assert (Cache(kept).get(KEY) is not None) == trusted
    assert (distrust(str(kept)) is None) == trusted
    Cache(kept).put(("other",), b"code")
    assert len(list(kept.glob("*.o"))) == 1 + trusted


def test_a_directory_whose_mode_changes_is_looked_at_again(kept: Path) -> None:
    cache = Cache(kept)
    assert cache.get(KEY) == b"code"
    kept.chmod(0o770)
    assert cache.get(KEY) is None
    kept.chmod(0o700)
    assert cache.get(KEY) == b"code"


@is_root
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_directory_of_another_user_is_not_used(kept: Path, which: int) -> None:
    os.chown([kept, *kept.parents][which], SOMEBODY, -1)
    assert Cache(kept).get(KEY) is None


def test_links_are_followed_to_directories_that_are_trusted(kept: Path, tmp_path: Path) -> None:
    link, further = tmp_path / "link", tmp_path / "further"
    link.symlink_to("a/b")
    further.symlink_to(tmp_path / "." / "a" / ".." / "link")
    for path in (link / "cache", further / "cache"):
        assert Cache(path).get(KEY) == b"code"
    kept.parent.chmod(0o777)
    for path in (link / "cache", further / "cache"):
        assert Cache(path).get(KEY) is None


def test_a_link_that_lies_where_others_write_is_seen(kept: Path, tmp_path: Path) -> None:
    public = tmp_path / "public"
    public.mkdir()
    (public / "link").symlink_to(kept)
    assert Cache(public / "link").get(KEY) == b"code"
    public.chmod(0o777)
    assert Cache(public / "link").get(KEY) is None
    public.chmod(0o1777)
    assert Cache(public / "link").get(KEY) == b"code"
    if os.geteuid() == 0:
        os.chown(public / "link", SOMEBODY, -1, follow_symlinks=False)
        assert Cache(public / "link").get(KEY) is None


def test_a_circle_of_links_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to(tmp_path / "y")
    (tmp_path / "y").symlink_to(tmp_path / "x")
    with pytest.raises(OSError, match="symbolic links"):
        distrust(str(tmp_path / "x"))
    Cache(tmp_path / "x").put(KEY, b"code")
    assert Cache(tmp_path / "x").get(KEY) is None


def test_what_is_made_is_trusted_whatever_the_mask_of_the_process(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_private(str(tmp_path / "x" / "y" / "z"))
        Cache(tmp_path / "x" / "y" / "z").put(KEY, b"code")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "x", tmp_path / "x" / "y" / "z")]
    assert modes == [0o700, 0o700]
    assert stat.S_IMODE(entry(tmp_path / "x" / "y" / "z").stat().st_mode) & 0o022 == 0
    assert Cache(tmp_path / "x" / "y" / "z").get(KEY) == b"code"


# Files


def test_an_entry_that_others_may_write_is_not_used(kept: Path) -> None:
    for mode, trusted in ((0o600, True), (0o644, True), (0o664, False), (0o646, False), (0o666, False)):
        entry(kept).chmod(mode)
        assert (Cache(kept).get(KEY) is not None) == trusted


@is_root
def test_an_entry_of_another_user_is_not_used(kept: Path) -> None:
    os.chown(entry(kept), SOMEBODY, -1)
    assert Cache(kept).get(KEY) is None
    Cache(kept).put(KEY, b"new")
    assert Cache(kept).get(KEY) == b"new"


def test_an_entry_for_something_else_is_not_used(kept: Path) -> None:
    cache = Cache(kept)
    first = entry(kept)
    cache.put(("other",), b"other code")
    (second,) = set(kept.glob("*.o")) - {first}
    first.write_bytes(second.read_bytes())
    assert cache.get(KEY) is None
    assert cache.get(("other",)) == b"other code"


READ = """
import resource, sys
from weft.backends.llvm.cache import Cache
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
cache = Cache(sys.argv[1])
print(cache.get(("text",)))
cache.put(("text",), b"new")
print(cache.get(("text",)))
"""


@pytest.mark.rotating(3)
@pytest.mark.parametrize("kind", ["pipe", "link", "zero", "directory", "hole", "socket"])
def test_what_is_no_file_neither_hangs_nor_takes_memory(
    kept: Path, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = entry(kept)
    whole = path.read_bytes()
    path.unlink()
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "link":
            (tmp_path / "elsewhere").write_bytes(whole)
            path.symlink_to(tmp_path / "elsewhere")
        case "zero":
            path.symlink_to("/dev/zero")
        case "directory":
            path.mkdir()
        case "hole":
            path.write_bytes(whole[:22])
            os.truncate(path, 1 << 40)
        case "socket":
            monkeypatch.chdir(kept)  # the name of a socket must be short
            with socket.socket(socket.AF_UNIX) as sock:
                sock.bind(path.name)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", READ, str(kept)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.split() == ["None", "None" if kind == "directory" else "b'new'"]


def test_only_entries_are_removed(tmp_path: Path) -> None:
    for name in ("notes.txt", "main.o", "x.new"):
        (tmp_path / name).write_text("mine")
        os.utime(tmp_path / name, (0, 0))
    Cache(tmp_path).put(KEY, b"code")
    Cache(tmp_path, limit=0).trim()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["main.o", "notes.txt"]

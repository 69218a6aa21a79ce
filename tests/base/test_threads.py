"""How many threads weft uses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from weft.base import threads
from weft.config import settings


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = weft.get_num_threads()
    yield
    weft.set_num_threads(before)


def test_number_is_what_was_set() -> None:
    weft.set_num_threads(3)
    assert weft.get_num_threads() == 3


@pytest.mark.parametrize("n", [0, -1, 257])
def test_number_outside_of_what_is_possible_is_an_error(n: int) -> None:
    with pytest.raises(
        weft.errors.DomainError, match=r"set_num_threads: the number must be in 1\.\.256, got"
    ):
        weft.set_num_threads(n)


@pytest.mark.parametrize("n", [2.0, "2", True, None])
def test_number_that_is_no_int_is_an_error(n: object) -> None:
    with pytest.raises(weft.errors.ArgumentError, match="set_num_threads: the number must be an int, got"):
        weft.set_num_threads(n)  # type: ignore[arg-type]


def test_listener_is_told_of_changes() -> None:
    told: list[int] = []
    threads.on_change(told.append)
    try:
        weft.set_num_threads(2)
        weft.set_num_threads(5)
    finally:
        threads._listeners.remove(told.append)
    assert told == [2, 5]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, 6),
        ({"WEFT_NUM_THREADS": "9"}, 9),
        ({"OMP_NUM_THREADS": "9"}, 6),
        ({"OMP_NUM_THREADS": "3"}, 3),
        ({"OMP_NUM_THREADS": "3,2"}, 3),
        ({"WEFT_NUM_THREADS": "1", "OMP_NUM_THREADS": "3"}, 1),
        ({"WEFT_NUM_THREADS": "0"}, 6),
        ({"WEFT_NUM_THREADS": "many", "OMP_NUM_THREADS": "-1"}, 6),
    ],
)
def test_environment_tells_the_first_number(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: int
) -> None:
    for name in ("WEFT_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(threads, "usable_processors", lambda: 6)
    monkeypatch.setattr(settings, "chosen", {})
    assert threads._default_number() == expected


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("group", "files", "expected"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "150000 100000\n"}, 2),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 100000"}, 3),
        ("0::/a/b\n", {"a/b/cpu.max": "400000 100000\n", "a/cpu.max": "50000 100000"}, 1),
        ("0::/\n", {"cpu.max": "100000 100000\n"}, 1),
        ("3:cpu:/x\n", {"cpu/x/cpu.cfs_quota_us": "250000\n", "cpu/x/cpu.cfs_period_us": "100000\n"}, 3),
        ("3:cpu:/gone\n", {"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2),
        ("3:cpu,cpuacct:/\n",
         {"cpu,cpuacct/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"}, 256),
        ("3:memory:/\n", {"memory/cpu.max": "100000 100000\n"}, 256),
        ("0::/\n", {"cpu.max": "nonsense\n"}, 256),
        ("", {}, 256),
    ],
)  # fmt: skip
def test_control_groups_limit_the_number(
    tmp_path: Path, group: str, files: dict[str, str], expected: int
) -> None:
    write(tmp_path / "cgroup", group)
    for name, text in files.items():
        write(tmp_path / "fs" / name, text)
    assert threads._quota(str(tmp_path / "fs"), str(tmp_path / "cgroup")) == expected


def test_system_without_control_groups_does_not_limit(tmp_path: Path) -> None:
    assert threads._quota(str(tmp_path / "fs"), str(tmp_path / "cgroup")) == 256

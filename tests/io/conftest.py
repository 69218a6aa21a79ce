"""Directories of these tests are in memory where there is such a place: a disk takes long."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.backends.llvm.cache import default_cache, set_cache_directory

MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        yield Path(name)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    """A directory of its own for compiled code, empty at first."""
    before = default_cache().directory
    set_cache_directory(tmp_path / "cache")
    yield tmp_path / "cache"
    set_cache_directory(before)

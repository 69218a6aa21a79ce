"""Whether code from a cache under the folder for temporary files may be run at all."""

from __future__ import annotations

import tempfile

import pytest

from weft.backends.llvm.trust import distrust


def _is_trusted() -> bool:
    """On some machines others may write to that folder, without the sticky bit."""
    with tempfile.TemporaryDirectory() as folder:
        return distrust(folder) is None


needs_trusted_files = pytest.mark.skipif(
    not _is_trusted(), reason="others may write to the folder for temporary files"
)

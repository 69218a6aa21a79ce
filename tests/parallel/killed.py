"""Trains on all ranks from the newest checkpoint on, for who kills a rank: each leaves its process id."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.fuzz.kills import train_on_ranks
from weft import parallel as par


def main(folder: Path, epochs: int) -> None:
    """Go on, up to so many epochs."""
    (folder / f"pid-{par.rank()}").write_text(str(os.getpid()))
    train_on_ranks(folder, epochs)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

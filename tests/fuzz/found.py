"""What a generator found, as files that the ordinary suite replays (``test_found.py``).

A file says which generator found it, with which seed, the case itself (as text, or as bytes in base64), what
was expected and what came. ``tests.fuzz.<generator>.replay`` runs a case again.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "found"


@dataclass(frozen=True)
class Found:
    """A case that went wrong.

    Attributes:
        generator: the module of this folder that made it.
        seed: of the batch that it was in.
        case: as short as it could be made.
        expected: what should have come.
        got: what came instead.
    """

    generator: str
    seed: int
    case: bytes
    expected: str
    got: str

    def write(self, folder: Path, key: str) -> bool:
        """Write a file named after the key, unless there is one; gives whether there was none."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.generator}-{re.sub(r'[^A-Za-z0-9_]+', '-', key)[:80].strip('-')}.json"
        if path.exists():
            return False
        row = {k: v for k, v in asdict(self).items() if k != "case"} | _written(self.case)
        path.write_text(json.dumps(row, indent=1) + "\n")
        return True


def read(path: Path) -> Found:
    """What a file says."""
    row = json.loads(path.read_text())
    case = row["text"].encode() if "text" in row else base64.b64decode(row["bytes"])
    return Found(row["generator"], row["seed"], case, row["expected"], row["got"])


def _written(case: bytes) -> dict[str, str]:
    try:
        return {"text": case.decode()}
    except UnicodeDecodeError:
        return {"bytes": base64.b64encode(case).decode()}

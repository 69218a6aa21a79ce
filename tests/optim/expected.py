"""What PyTorch found, from expected.npz; make_expected.py beside it made that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

with np.load(Path(__file__).with_name("expected.npz")) as _stored:
    EXPECTED: dict[str, np.ndarray[Any, Any]] = dict(_stored)

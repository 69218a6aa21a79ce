"""What PyTorch computed for the cases of ``cases.py``, from expected/*.safetensors."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from tests.nn.cases import GROUPS

FOLDER = Path(__file__).parent / "expected"
GROUP_OF = {name: group for group, cases in GROUPS.items() for name in cases}


@cache
def _file(group: str) -> dict[str, np.ndarray[Any, Any]]:
    return load_file(FOLDER / f"{group}.safetensors")


def stored(name: str, kind: str) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays of one kind of a case, by the rest of their names: in, state, out, in_grad, grad, after."""
    prefix = f"{name}/{kind}/"
    found = {k.removeprefix(prefix): v for k, v in _file(GROUP_OF[name]).items() if k.startswith(prefix)}
    return dict(sorted(found.items()))  # files keep no order

"""The state of a run: all that it takes to go on as if it had never stopped."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

import weft
from weft.errors import DomainError

FORMAT = 1


def parts_state(parts: Mapping[str, Any]) -> dict[str, Any]:
    """What each part gives with ``state_dict``; None for one that is not there."""
    return {name: None if part is None else part.state_dict() for name, part in parts.items()}


def check_parts(parts: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Raise unless a state is one of these parts."""
    for name, part in parts.items():
        if (state.get(name) is None) != (part is None):
            had, has = ("none" if x is None else "one" for x in (state.get(name), part))
            raise DomainError("resume", f"the checkpoint was made with {had} for {name}, got {has}")


def load_parts(parts: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Give each part its state."""
    for name, part in parts.items():
        if part is not None:
            part.load_state_dict(state[name])


def random_state() -> dict[str, Any]:
    """The states of the global generators of weft, of Python, and of NumPy if it is in use."""
    version, words, gauss = random.getstate()
    state: dict[str, Any] = {"weft": weft.get_rng_state(), "python": (version, np.array(words), gauss)}
    if "numpy.random" in sys.modules:
        state["numpy"] = sys.modules["numpy.random"].get_state()
    return state


def set_random_state(state: Mapping[str, Any]) -> None:
    """Put those generators back whose states are there."""
    weft.set_rng_state(state["weft"])
    if "python" in state:
        version, words, gauss = state["python"]
        random.setstate((version, tuple(words.tolist()), gauss))
    if "numpy" in state:
        from numpy.random import set_state

        set_state(state["numpy"])

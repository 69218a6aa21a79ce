"""Independent oracles: the name of an op or composite to a function of NumPy arrays and attributes."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import tests.ops


def all_oracles() -> dict[str, Callable[..., Any]]:
    """The ORACLES of every module tests/ops/oracles_*.py."""
    found: dict[str, Callable[..., Any]] = {}
    for module in pkgutil.iter_modules(tests.ops.__path__):
        if module.name.startswith("oracles_"):
            found |= importlib.import_module(f"tests.ops.{module.name}").ORACLES
    return found

"""All rows of the table, in its order."""

from __future__ import annotations

import functools
from importlib import import_module

from bench.case import Case

# each is a module of bench.workloads, with a list CASES
MODULES = (
    "mlp",
    "cnn",
    "gpt",
    "lstm",
    "elementwise",
    "softmax",
    "layer_norm",
    "newton",
    "gmm",
    "bundle",
    "kmeans",
    "heat",
    "floyd",
    "ode",
    "gradbench",
    "npbench",
    "inference",
    "deployed",
    "halves",
    "served",
    "loader",
)

# which training cases the rows "compile" (the first step, of eager ones as well) and "memory" look at
COMPILED = ("mnist_mlp", "cnn", "gpt", "lstm", "eager cnn", "eager gpt")
MEMORY = "gpt"
MEMORY_GOAL = 100e6  # bytes
COMPILE_GOAL = 5.0
C_GOAL = 2.0  # times the time of hand-written C


@functools.cache
def all_cases() -> tuple[Case, ...]:
    """Every case."""
    return tuple(c for name in MODULES for c in import_module(f"bench.workloads.{name}").CASES)


def case_named(name: str) -> Case:
    """The case with a name."""
    (found,) = (c for c in all_cases() if c.name == name)
    return found


def row_names() -> list[str]:
    """The rows, each once."""
    others = ("startup", "ranks", "compile", "compile_scaling", "memory")
    return [*dict.fromkeys(c.row for c in all_cases()), *others]

"""A part of the op matrix for GPUs, another one whenever weft's code is: see ``op_matrix`` for all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backends.cuda.op_matrix import ARCHITECTURES, LONG, check_assembled, check_on_grid
from tests.backends.cuda.ptxas import needs_ptxas
from tests.backends.llvm.matrix import rows
from tests.of_code import part_of
from weft.ops.op import OPS

PARTS = 5


def _grid_names() -> list[str]:
    """Ops that are more than a rule for one element come first: each part has as many of them."""
    names = [name for name in rows() if name not in LONG]
    special = [name for name in names if name in OPS and OPS[name].scalar is None]
    return special + [name for name in names if name not in special]


@pytest.mark.parametrize("half", [0, 1])
def test_ops_and_their_gradients_on_the_grid_interpreter(half: int) -> None:
    for name in part_of(_grid_names(), PARTS)[half::2]:
        check_on_grid(name, first=True)


@needs_ptxas
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_of_ops_are_assembled(architecture: str, tmp_path: Path) -> None:
    names = part_of(_grid_names(), 3 * PARTS)
    assert check_assembled(names, architecture, tmp_path) > 5

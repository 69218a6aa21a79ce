"""The tables of ``tests/habits`` in PyTorch itself: what they say its users expect is what it gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.habits import rows_pytorch
from tests.habits.hint import Hint
from tests.habits.test_habits import EXPECTED, X, check, evaluate, grad, tensors

torch = pytest.importorskip("torch")

# Names that weft gives the array API's meaning, or has alone: docs/coming-from.md says so
OTHERWISE = {
    "torch.equal(x, y)",
    "torch.max(x, 1)",
    "torch.max(x, axis=1)",
    "torch.median(torch.tensor([4.0, 1.0, 3.0, 2.0]))",
    "torch.nonzero(m)",
    "torch.pad(x, ((0, 0), (1, 1)))",
    "torch.sort(x)",
    "torch.std(x)",
    "torch.var(x)",
    "int(x.size)",
    "v.kthvalue(2)",  # of equal elements any place
    "v.repeat(2, axis=0)",
    "x.max(1, keepdims=True)",
    "x.max(axis=1)",
    "x.median(axis=0)",
    "x.sort(axis=0)",
    "x.std(1, keepdims=True)",
    "x.std(axis=1)",
    "x.type()",
    "x.var(axis=0)",
}
SPARSE = ("sparse", "ragged")
ROWS = [
    row
    for row in rows_pytorch.ROWS
    if not isinstance(row[1], Hint) and row[0] not in OTHERWISE and not any(word in row[0] for word in SPARSE)
]


def plain(value: Any) -> Any:
    """A result of PyTorch as arrays and tuples."""
    if isinstance(value, torch.Tensor):
        return value.detach().resolve_conj().numpy()
    return [plain(v) for v in value] if isinstance(value, tuple | list) else value


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("expression", "wanted"), ROWS, ids=[row[0] for row in ROWS])
def test_expression_gives_in_pytorch_what_the_table_says(expression: str, wanted: str) -> None:
    own = {"F": torch.nn.functional, "nn": torch.nn, "optim": torch.optim, "data": torch.utils.data}
    made = {k: torch.tensor(v.numpy()) for k, v in tensors().items() if hasattr(v, "numpy")}
    names = own | made | {"torch": torch, "weft": torch, "grad": grad, "X": X.copy()}
    with np.errstate(all="ignore"):
        check(plain(evaluate(expression, names)), evaluate(wanted, dict(EXPECTED)))


def test_differences_are_rows_of_the_table() -> None:
    assert {row[0] for row in rows_pytorch.ROWS} >= OTHERWISE

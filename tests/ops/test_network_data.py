"""Values and gradients next to those that another library gave once; see ``tests/data``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import weft
from tests.data.network_cases import CASES, Case

DATA = np.load(Path(__file__).parent.parent / "data" / "network.npz")


@pytest.mark.parametrize(
    ("index", "case"), list(enumerate(CASES)), ids=[f"{i}-{c.name}" for i, c in enumerate(CASES)]
)
def test_function_gives_the_stored_values_and_gradients(index: int, case: Case) -> None:
    inputs = [
        weft.tensor(DATA[f"{index}.in{i}"], requires_grad=f"{index}.grad{i}" in DATA)
        for i in range(len(case.shapes))
    ]
    out = getattr(weft.functional, case.name)(*inputs, **case.settings)
    out.backward(weft.tensor(DATA[f"{index}.seed"]))
    np.testing.assert_allclose(out.detach().numpy(), DATA[f"{index}.out"], rtol=1e-6, atol=1e-6)
    for i, x in enumerate(inputs):
        if x.requires_grad:
            np.testing.assert_allclose(x.grad.numpy(), DATA[f"{index}.grad{i}"], rtol=1e-6, atol=1e-6)

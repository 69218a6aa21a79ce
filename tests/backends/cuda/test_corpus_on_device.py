"""Programs of ``tests/capture`` that take different ways on a device: branches, indices, counts, views."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.emulated import emulated
from tests.capture import programs
from tests.capture.programs.registry import PROGRAMS

for module in pkgutil.iter_modules(programs.__path__):
    importlib.import_module(f"{programs.__name__}.{module.name}")

CHOSEN = (
    "algorithms.maximum_subarray",
    "expressions.comprehension_with_condition",
    "expressions.condition_on_index",
    "expressions.shapes_of_nonzero",
    "expressions.walrus",
    "flow.two_loops_in_turn",
)


def _arrays(found: Any) -> list[Any]:
    return [x.detach().cpu().numpy() if isinstance(x, weft.Tensor) else x for x in weft.tree_leaves(found)]


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", CHOSEN)
def test_compiled_program_gives_the_same_on_a_device(name: str) -> None:
    program = PROGRAMS[name]
    with emulated() as card:
        fast = weft.compile(program.function)
        for run in program.inputs:
            expected = _arrays(program.function(*[weft.tensor(a) for a in run]))
            with weft.default_device("cuda"):
                found = _arrays(fast(*[weft.tensor(a) for a in run]))
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5)
        assert not card.errors


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", ["branches.where_side_by_side", "algorithms.conjugate_gradient"])
def test_gradients_of_a_compiled_program_are_those_of_the_host(name: str) -> None:
    program = PROGRAMS[name]
    with emulated() as card:
        fast, run = weft.compile(program.function), program.inputs[0]
        grads = []
        for device in ("cpu", "cuda"):
            inputs: Any = [weft.tensor(a, device=device, requires_grad=True) for a in run]
            fast(*inputs).sum().backward()
            grads.append([x.grad.cpu().numpy() for x in inputs])
        for a, b in zip(*grads, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)
        assert not card.errors

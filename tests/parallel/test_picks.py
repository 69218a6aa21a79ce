"""Tables and losses that are cut by the vocabulary: equal to whole ones, and wrong numbers stay errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from tests.parallel.test_place import on_mesh
from weft import parallel as par
from weft.errors import BoundsError

MESH = "data=2,model=2"


def loss_of(table: Any, x: Any, y: Any, **more: Any) -> Any:
    """A loss over the rows of the table that tokens are looked up in."""
    h = F.embedding(x, table)
    return F.cross_entropy(weft.tanh(h) @ table.mT, y, **more)


def on_parts(x: Any, y: Any, table: Any, **more: Any) -> list[Any]:
    """The loss and the gradient of a table that is cut along its rows, and the types of what is moved."""

    def program() -> Any:
        placed = par.place(weft.tensor(table), par.P("model"))

        def f(table: Any, x: Any, y: Any) -> Any:
            return loss_of(table, par.shard(x, "data"), par.shard(y, "data"), **more)

        run = weft.compile(weft.value_and_grad(f), mesh=par.mesh(data=2, model=2), reproducible=False)
        value, grad = run(placed, weft.tensor(x), weft.tensor(y))
        moved = [str(n.inputs[0].type) for n in run.lowered.walk() if n.op.name == "all_gather"]
        return float(value), grad.full().numpy(), moved

    return on_mesh(MESH, program)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("more", [{}, {"ignore_index": 3}, {"label_smoothing": 0.1}])
def test_embedding_and_loss_by_the_vocabulary_equal_whole_ones(more: Any) -> None:
    rng = np.random.default_rng(0)
    table = rng.standard_normal((6, 4))
    x, y = rng.integers(0, 6, 8), rng.integers(0, 6, 8)
    value, grad = weft.value_and_grad(loss_of)(weft.tensor(table), weft.tensor(x), weft.tensor(y), **more)
    for found, slope, moved in on_parts(x, y, table, **more):
        np.testing.assert_allclose(found, float(value), rtol=1e-12)
        np.testing.assert_allclose(slope, grad.numpy(), rtol=1e-10, atol=1e-12)
        assert "f64[3,4]" not in moved[:-1]  # the table itself stays where it is; the gradient is a result


def test_indices_that_count_from_the_end_and_several_of_them() -> None:
    table = np.arange(24.0).reshape(6, 4)

    def program(index: Any) -> Any:
        run = weft.compile(lambda t, i: t[i] * 2.0, mesh=par.mesh(data=2, model=2))
        return run(par.place(weft.tensor(table), par.P("model")), weft.tensor(index)).numpy()

    for index in ([-1, 0, -6, 5], [[2, 3], [-4, 1]]):
        for found in on_mesh(MESH, lambda i=index: program(i)):  # type: ignore[misc]
            np.testing.assert_array_equal(found, table[np.array(index)] * 2)


@pytest.mark.rotating(2)
@pytest.mark.parametrize(("x", "y"), [(7, 0), (-7, 0), (0, 6), (0, -1)])
def test_numbers_out_of_range_are_errors_as_before(x: int, y: int) -> None:
    table = np.ones((6, 4))
    with pytest.raises((BoundsError, IndexError)):
        on_parts(np.full(8, x), np.full(8, y), table)

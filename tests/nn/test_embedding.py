"""Tables of vectors: numbers that are no row of them are errors in every way to run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.errors import BoundsError

TABLES = {
    "plain": lambda: nn.Embedding(5, 3),
    "padded": lambda: nn.Embedding(5, 3, padding_idx=1),
    "limited": lambda: nn.Embedding(5, 3, max_norm=0.5),
    "bags": lambda: nn.EmbeddingBag(5, 3, mode="sum"),
    "limited_bags": lambda: nn.EmbeddingBag(5, 3, max_norm=0.5),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("wrong", [-1, -5, 5])
def test_a_number_outside_is_an_error_and_changes_nothing(name: str, wrong: int) -> None:
    table = TABLES[name]()
    before = table.weight.detach().numpy().copy()
    for call in (table, weft.compile(table)):
        with pytest.raises(BoundsError, match=rf"got {wrong}\b"):
            call(weft.tensor([[0, wrong], [2, 3]]))
        assert np.array_equal(table.weight.detach().numpy(), before)


@pytest.mark.parametrize("wrong", [-1, 5])
def test_a_number_outside_is_an_error_for_an_example_of_a_batch(wrong: int) -> None:
    table = nn.Embedding(5, 3)
    for call in (weft.vmap(table), weft.compile(weft.vmap(table))):
        with pytest.raises(BoundsError, match=rf"got {wrong}\b"):
            call(weft.tensor([[0, 1], [wrong, 3]]))


@pytest.mark.parametrize("name", TABLES)
def test_rows_are_those_that_eager_code_gives(name: str) -> None:
    weft.manual_seed(3)
    eager = TABLES[name]()
    compiled = TABLES[name]()
    compiled.load_state_dict(eager.state_dict())
    numbers = weft.tensor([[0, 4, 1], [2, 0, 0]], dtype="int8")
    results: list[Any] = []
    for table, call in ((eager, eager), (compiled, weft.compile(compiled))):
        out = call(numbers)
        (out * out).sum().backward()
        results.append((out.detach().numpy(), table.weight.detach().numpy(), table.weight.grad.numpy()))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def test_captured_code_that_handles_the_error_runs_its_handler() -> None:
    table = weft.tensor([[1.0], [2.0]])

    def looked_up(numbers: weft.Tensor) -> weft.Tensor:
        try:
            return weft.embedding(numbers, table).sum()
        except BoundsError:
            return weft.tensor(-1.0)

    run: Callable[..., Any] = weft.compile(looked_up)
    assert [run(weft.tensor([n])).item() for n in (1, -1, 0, 2)] == [2, -1, 1, -1]

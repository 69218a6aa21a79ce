"""The usual placement of transformers: what is cut, what it says, and that training is as before."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.parallel.test_place import on_mesh
from weft import nn
from weft import parallel as par
from weft.errors import ArgumentError, DomainError

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "parallel_gpt.py"


@cache
def example() -> Any:
    """The module of the example, whose model is a GPT."""
    spec = importlib.util.spec_from_file_location("parallel_gpt", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_products_heads_and_tables_are_cut_and_said() -> None:
    found = par.auto(example().GPT(64, 16, 32, 4, 2), par.Mesh("data=1,model=2"))
    columns = [f"blocks.*.{n}.{w}" for n in ("query", "key", "value", "fc1") for w in ("weight", "bias")]
    assert {n for n, p in found.items() if p == par.P("model")} == {
        "tokens.weight", *columns, "head.weight", "head.bias",
    }  # fmt: skip
    assert {n for n, p in found.items() if p == par.P(None, "model")} == {
        "blocks.*.out.weight",
        "blocks.*.fc2.weight",
    }
    text = str(found)
    assert "blocks.*.fc2.weight    P(None, 'model')  a product by rows, summed over ranks" in text
    assert "whole: places.weight" in text
    assert "places.weight" not in found


def test_sequential_pairs_and_sizes_that_do_not_divide() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4))
    assert par.auto(model, par.Mesh("model=2")) == {
        "0.weight": par.P("model"), "0.bias": par.P("model"), "2.weight": par.P(None, "model"),
    }  # fmt: skip
    assert par.auto(model, par.Mesh("model=4")) == {}
    with pytest.raises(DomainError, match="the axis must be one of the mesh"):
        par.auto(model, par.Mesh("data=2"))
    with pytest.raises(ArgumentError, match="takes a module, got int"):
        par.auto(3, par.Mesh("model=2"))


def losses(place: bool, sequence: bool = False) -> Any:
    """Losses of a small GPT, the bytes of its parameters that a rank holds, and what is moved."""
    mesh = par.mesh(data=-1, model=2) if place else par.mesh(data=-1)
    weft.manual_seed(0)
    model = example().GPT(32, 8, 16, 2, 1)
    if place:
        par.place(model, par.auto(model, mesh, sequence=sequence), mesh)
    optimizer = weft.optim.AdamW(model.parameters(), lr=1e-2)

    def step(x: Any, y: Any) -> Any:
        x, y = par.shard(x, "data"), par.shard(y, "data")
        optimizer.zero_grad()
        loss = example().loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = weft.compile(step, mesh=mesh, reproducible=False)
    rng = np.random.default_rng(0)
    x, y = (weft.tensor(rng.integers(0, 32, (8, 8))) for _ in range(2))
    found = [float(run(x, y)) for _ in range(3)]
    names = [node.op.name.removeprefix("start_") for node in run.lowered.walk()]
    moved = [n for n in names if n in ("all_gather", "all_to_all", "reduce_scatter")]
    return found, par.held_bytes(model.parameters()), moved


@pytest.mark.rotating(2)
def test_gpt_trains_as_before_in_half_the_memory_and_gathers_nothing() -> None:
    expected, whole, _ = par.simulate(losses, 1, False)[0]
    for found, held, moved in on_mesh("data=1,model=2", lambda: losses(True)):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        assert held < 0.6 * whole
        assert moved == []


def test_sizes_that_ranks_do_not_divide_are_whole_and_told() -> None:
    """A vocabulary of 33 words: table and head are on all ranks, the products between them are cut."""
    found = par.auto(example().GPT(33, 8, 16, 2, 1), par.Mesh("model=2"))
    assert "tokens.weight" not in found
    assert "blocks.*.fc1.weight" in found
    assert "uneven: tokens.weight: a size of 33, which 2 ranks do not divide" in str(found)
    assert "33" not in str(par.auto(example().GPT(33, 8, 16, 2, 1), par.Mesh("model=1")))


def test_what_runs_between_products_is_cut_along_the_sequence() -> None:
    """As an option, which the text tells; values are those of one process."""
    mesh = par.Mesh("data=1,model=2")
    text = str(par.auto(example().GPT(32, 8, 16, 2, 1), mesh, sequence=True))
    assert "sequence: what goes into blocks.* is cut over model\n" in text
    products = "blocks.*.query, blocks.*.key, blocks.*.value, blocks.*.fc1, head"
    assert f"sequence: what goes into {products} is whole" in text
    assert "sequence" not in str(par.auto(example().GPT(32, 8, 16, 2, 1), mesh))
    expected = par.simulate(losses, 1, False)[0][0]
    for found, _, moved in on_mesh("data=1,model=2", lambda: losses(True, sequence=True)):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        assert "reduce_scatter" in moved
        assert "all_to_all" not in moved

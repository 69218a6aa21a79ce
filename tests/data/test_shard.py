"""Pipelines shared out among ranks: every element once, the same batches on any number of ranks, resuming."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from weft import data
from weft import parallel as par
from weft.errors import ArgumentError, DomainError, ShapeError

COUNT, SIZE = 24, 8


def shuffled(mesh: Any, workers: int = 0) -> Any:
    """Numbers in random order with noise of their own, in batches."""
    numbers = data.from_arrays(np.arange(COUNT), np.zeros((COUNT, 2), np.float32))
    batches = numbers.augment(data.Noise(1.0), on=1, seed=5).shuffle(seed=3).batch(SIZE)
    batches = batches.prefetch(2, workers=workers) if workers else batches
    return batches.shard(mesh).numpy()


def streamed(mesh: Any, workers: int = 0) -> Any:
    """Likewise of a stream: elements that cannot be had by number."""
    numbers = data.from_arrays(np.arange(2 * COUNT), np.zeros((2 * COUNT, 2), np.float32))
    kept = numbers.filter(lambda i, _: i % 2 == 0).augment(data.Noise(1.0), on=1, seed=5)
    return kept.shuffle(5, seed=3).batch(SIZE).shard(mesh).numpy()


def run(
    make: Any, n: int, steps: int | None = None, state: Any = None, **settings: Any
) -> tuple[list[Any], Any]:
    """For each batch what all ranks got together, in the order of ranks; and the state of the last rank."""

    def program() -> Any:
        pipeline = make(par.mesh(data=-1), **settings)
        if state is not None:
            pipeline.load_state_dict(state)
        found = []
        for batch in pipeline:
            found.append(batch)
            if len(found) == steps:
                break
        return found, json.loads(json.dumps(pipeline.state_dict()))

    ranks = par.simulate(program, n)
    states = [s for _, s in ranks]
    assert all(s == states[0] for s in states), "the position is the same on all ranks"
    batches = zip(*[found for found, _ in ranks], strict=True)
    whole = [[np.concatenate(part) for part in zip(*parts, strict=True)] for parts in batches]
    return whole, states[0]


def same(a: list[Any], b: list[Any]) -> None:
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        for p, q in zip(x, y, strict=True):
            np.testing.assert_array_equal(p, q)


@pytest.mark.parametrize("make", [shuffled, streamed])
def test_ranks_together_get_the_batches_of_one_process(make: Any) -> None:
    one, _ = run(make, 1)
    assert sorted(np.concatenate([batch[0] for batch in one]).tolist()) == sorted(
        {int(i) for batch in one for i in batch[0]}
    )
    assert sum(len(batch[0]) for batch in one) == COUNT
    for n in (2, 4, 8):
        same(run(make, n)[0], one)


def test_workers_do_not_change_what_ranks_get() -> None:
    same(run(shuffled, 2, workers=2)[0], run(shuffled, 1)[0])


@pytest.mark.parametrize("make", [shuffled, streamed])
def test_a_run_goes_on_with_other_numbers_of_ranks(make: Any) -> None:
    """2 ranks, then 4, then 1: together the batches of one uninterrupted process, two epochs long."""
    whole = run(make, 1)[0]
    first, state = run(make, 2, steps=1)
    second, state = run(make, 4, steps=1, state=state)
    third, state = run(make, 1, state=state)
    same([*first, *second, *third], whole)
    assert state["epoch"] == 1
    same(run(make, 4, state=state)[0], run(make, 1, state=state)[0])  # the next epoch, in another order
    assert not np.array_equal(run(make, 1, state=state)[0][0][0], whole[0][0])


def test_each_rank_makes_its_own_elements_alone() -> None:
    def program() -> Any:
        made: list[int] = []
        numbers = data.from_arrays(np.arange(8)).map(lambda i: made.append(int(i)) or i)
        for _ in numbers.batch(4).shard(par.mesh(data=-1)):
            pass
        return made

    assert par.simulate(program, 2) == [[0, 1, 4, 5], [2, 3, 6, 7]]


def test_last_batches_are_padded_shared_out_or_an_error() -> None:
    def program(count: int, **settings: Any) -> Any:
        batches = data.from_arrays(np.arange(count)).batch(4, **settings).shard(par.mesh(data=-1)).numpy()
        return [
            batch[0].tolist() + batch[1].tolist() if settings.get("mask") else batch.tolist()
            for batch in batches
        ]

    found = par.simulate(lambda: program(5, last="pad", mask=True, value=9), 2)
    assert found == [[[0, 1, 1, 1], [4, 9, 1, 0]], [[2, 3, 1, 1], [9, 9, 0, 0]]]
    assert par.simulate(lambda: program(6), 2) == [[[0, 1], [4]], [[2, 3], [5]]]
    assert par.simulate(lambda: program(5, last="drop"), 2) == [[[0, 1]], [[2, 3]]]
    with pytest.raises(ShapeError, match="must divide by the 2 ranks, got one of 1 elements"):
        par.simulate(lambda: program(5), 2)


def test_ragged_rows_are_shared_out_with_their_padding() -> None:
    def program() -> Any:
        rows = data.from_dataset([[1, 2, 3], [4], [5, 6]]).batch(2, last="pad", ragged=True)
        return [
            batch.to_list() if hasattr(batch, "to_list") else str(batch)
            for batch in rows.shard(par.mesh(data=-1))
        ]

    first, second = par.simulate(program, 2)
    assert "1, 2, 3" in str(first[0])
    assert "4" in str(second[0])
    assert "5, 6" in str(first[1])
    assert "5" not in str(second[1])


def test_a_length_that_only_a_run_tells_fails_there() -> None:
    def program() -> None:
        odd = data.from_arrays(np.arange(6)).filter(lambda i: i < 5)
        list(odd.batch(4).shard(par.mesh(data=-1)))

    with pytest.raises(ShapeError, match="got one of 1 elements"):
        par.simulate(program, 2)


def test_only_the_named_axis_shares_out() -> None:
    def program() -> Any:
        return [b.tolist() for b in data.from_arrays(np.arange(4)).batch(4).shard(par.mesh(data=2, model=2))]

    assert par.simulate(program, 4) == [[[0, 1]], [[0, 1]], [[2, 3]], [[2, 3]]]


def test_text_tells_the_part_and_the_state_does_not() -> None:
    def program() -> Any:
        batches = data.from_arrays(np.arange(8)).batch(4).shard(par.mesh(data=-1))
        return batches.to_text(locations=False), batches.state_dict()["stages"]

    (text, stages), (_, others) = par.simulate(program, 2)
    assert "i64[2] = batch(%0, size=4, part=(0, 2))" in text
    assert stages == others == ["arrays(count=8)", "batch(%0, size=4)"]


def test_bad_uses_are_refused() -> None:
    mesh = par.mesh(data=1)
    numbers = data.from_arrays(np.arange(8))
    with pytest.raises(ArgumentError, match=r"must come after batch.*got arrays"):
        numbers.shard(mesh)
    with pytest.raises(ArgumentError, match=r"must come after batch.*got filter"):
        numbers.batch(4).filter(len).shard(mesh)
    with pytest.raises(ArgumentError, match="shared out once"):
        numbers.batch(4).shard(mesh).shard(mesh)
    with pytest.raises(ArgumentError, match=r"mesh must be made by par.mesh, got str"):
        numbers.batch(4).shard("data=2")
    with pytest.raises(DomainError, match="must be one of the mesh"):
        numbers.batch(4).shard(mesh, axis="model")
    with pytest.raises(ShapeError, match="must divide by the 2 ranks, got one of 3"):
        par.simulate(lambda: numbers.batch(3).shard(par.mesh(data=-1)), 2)

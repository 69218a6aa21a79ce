"""Threads and processes give what the synchronous pipeline gives, and a saved state resumes exactly."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import weft
from tests.data.recipes import Recipe, add_step, build, recipes, source, values
from tests.of_code import examples
from weft import data


def plain(recipe: Recipe) -> list[list[int]] | None:
    """What a recipe without random steps gives, by lists alone; None if it has random ones."""
    (_, _, n), *steps, (_, size, last) = recipe
    found = list(range(n))
    for name, *args in steps:
        if name in ("keyed", "shuffle"):
            return None
        other = list(range(args[1])) if name in ("concat", "interleave", "zip") else []
        found = {
            "map": lambda x: [i + 1 for i in x],
            "filter": lambda x: [i for i in x if i % 3],
            "take": lambda x: x[: args[0]],  # noqa: B023 - used at once
            "skip": lambda x: x[args[0] :],  # noqa: B023
            "repeat": lambda x: x * args[0],  # noqa: B023
            "cache": lambda x: x,
            "flatten": lambda x: [j for i in x for j in (i, i + 100)],
            "concat": lambda x: x + other,  # noqa: B023
            "interleave": lambda x: in_turn([x, other], args[2]),  # noqa: B023
            "zip": lambda x: [a + b for a, b in zip(x, other, strict=False)],  # noqa: B023
        }[name](found)
    batches = [found[i : i + size] for i in range(0, len(found), size)]
    if last == "drop":
        return [b for b in batches if len(b) == size]
    return [b + [0] * (size - len(b)) for b in batches] if last == "pad" else batches


def in_turn(parts: list[list[int]], block: int) -> list[int]:
    rest, out = [list(p) for p in parts], []
    while any(rest):
        for part in rest:
            out += part[:block]
            del part[:block]
    return out


@given(recipes())
@settings(max_examples=150)
def test_deterministic_pipelines_give_what_lists_give(recipe: Recipe) -> None:
    expected = plain(recipe)
    if expected is not None:
        pipeline = build(recipe)
        assert values(pipeline) == expected
        assert values(pipeline) == expected


@given(recipes(), st.integers(1, 4), st.integers(1, 3), st.integers(0, 5))
@examples(80, 27)
def test_threads_give_the_synchronous_batches(recipe: Recipe, count: int, workers: int, where: int) -> None:
    sync = values(build(recipe), 2)
    assert values(build(recipe).prefetch(count, workers=workers), 2) == sync
    inside = with_prefetch_inside(recipe, where, count, workers)
    assert values(inside, 2) == sync
    assert values(inside.prefetch(2, workers=2), 1) == sync[: len(values(build(recipe)))]


def with_prefetch_inside(recipe: Recipe, where: int, count: int, workers: int) -> data.Pipeline:
    (_, kind, n), *steps, (_, size, last) = recipe
    pipeline = source(kind, n)
    for i, step in enumerate([*steps, None]):
        if i == min(where, len(steps)):
            pipeline = pipeline.prefetch(count, workers=workers)
        if step is not None:
            pipeline = add_step(pipeline, step)
    return pipeline.batch(size, last)


@given(recipes(), st.integers(1, 3), st.integers(1, 2))
@examples(12, 4)
def test_processes_give_the_synchronous_batches(recipe: Recipe, count: int, workers: int) -> None:
    pipeline = build(recipe).prefetch(count, workers=workers, mode="process")
    assert values(pipeline, 2) == values(build(recipe), 2)


@given(
    recipes(), st.integers(0, 12), st.sampled_from(["no", "end", "inside"]), st.integers(0, 5), st.booleans()
)
@examples(150, 50)
@example((("source", "arrays", 10), ("flatten",), ("batch", 3, "keep")), 7, "no", 0, False)
def test_state_resumes_exactly(recipe: Recipe, stop: int, ahead: str, where: int, ahead_after: bool) -> None:
    whole = values(build(recipe), 3)
    first = with_prefetch_inside(recipe, where, 3, 2) if ahead == "inside" else build(recipe)
    if ahead == "end":
        first = first.prefetch(3, workers=2)
    seen: list[Any] = []
    for _ in range(2):
        epoch = iter(first)
        while len(seen) < stop:
            try:
                seen.append(next(epoch).tolist())
            except StopIteration:
                break
        if len(seen) == stop:
            break
        epoch.close()
    state = json.loads(json.dumps(first.state_dict()))
    second = build(recipe).prefetch(2) if ahead_after else build(recipe)
    second.load_state_dict(state)
    rest = values(second, 3)
    assert (seen + rest)[: len(whole)] == whole


def test_state_before_the_first_element_is_the_start() -> None:
    pipeline = data.from_arrays(np.arange(5)).shuffle().batch(2)
    expected = values(data.from_arrays(np.arange(5)).shuffle().batch(2), 2)
    iter(pipeline)
    again = data.from_arrays(np.arange(5)).shuffle().batch(2)
    again.load_state_dict(pipeline.state_dict())
    assert values(again, 2) == expected


def test_state_counts_what_was_seen_and_not_what_was_prefetched() -> None:
    pipeline = data.from_arrays(np.arange(40)).batch(2).prefetch(8, workers=2)
    epoch = iter(pipeline)
    for _ in range(3):
        next(epoch)
    assert pipeline.state_dict()["position"] == {"position": 3}
    epoch.close()
    assert pipeline.state_dict()["position"] == {"position": 3}


def test_state_is_loaded_whatever_prefetches() -> None:
    first = data.from_arrays(np.arange(20)).shuffle(seed=5).batch(3).prefetch(4, workers=2)
    epoch = iter(first)
    seen = [next(epoch).tolist() for _ in range(2)]
    second = data.from_arrays(np.arange(20)).shuffle(seed=5).batch(3).prefetch(2, mode="process")
    second.load_state_dict(first.state_dict())
    assert seen + values(second) == values(data.from_arrays(np.arange(20)).shuffle(seed=5).batch(3))


def test_state_of_another_pipeline_is_refused() -> None:
    state = data.from_arrays(np.arange(4)).batch(2).state_dict()
    other = data.from_arrays(np.arange(4)).batch(3)
    with pytest.raises(weft.errors.DomainError, match=r"same stages, got batch\(%0, size=2\) where .*size=3"):
        other.load_state_dict(state)
    with pytest.raises(weft.errors.ArgumentError, match="what state_dict returned"):
        other.load_state_dict({"epoch": 1})


def test_each_iteration_is_the_next_epoch() -> None:
    pipeline = data.from_arrays(np.arange(50)).shuffle().batch(50)
    orders = [tuple(next(iter(pipeline)).tolist()) for _ in range(3)]
    assert len(set(orders)) == 3
    assert pipeline.epoch == 2  # the last one was left before its end was seen
    assert list(range(50)) == sorted(orders[2])


def test_repeat_goes_through_the_epochs() -> None:
    def fresh() -> data.Pipeline:
        return data.from_arrays(np.arange(7)).shuffle(seed=2)

    assert list(fresh().repeat(3).numpy()) == [x for p in [fresh().numpy()] for _ in range(3) for x in p]
    endless = iter(fresh().repeat().numpy())
    assert [next(endless) for _ in range(21)] == list(fresh().repeat(3).numpy())


# Prefetch in the middle


def test_prefetch_in_the_middle_does_not_change_a_full_shuffle() -> None:
    plain = data.from_arrays(np.arange(30)).map(lambda x: x).shuffle(seed=3).batch(4)
    moved = data.from_arrays(np.arange(30)).map(lambda x: x).prefetch(8, workers=2).shuffle(seed=3).batch(4)
    assert values(moved, 2) == values(plain, 2)


def test_slow_function_before_a_filter_is_run_by_workers() -> None:
    here = os.getpid()
    pipeline = data.from_arrays(np.arange(8)).map(lambda x: (x, os.getpid())).prefetch(4, mode="process")
    found = list(pipeline.filter(lambda x, _: x % 2 == 0).batch(2).numpy())
    assert np.concatenate([x for x, _ in found]).tolist() == [0, 2, 4, 6]
    assert here not in np.concatenate([pid for _, pid in found])


def test_cache_behind_processes_keeps_what_they_made() -> None:
    here = os.getpid()
    pipeline = data.from_arrays(np.arange(6)).map(lambda x: x * 100_000_000 + os.getpid())
    cached = pipeline.prefetch(4, workers=2, mode="process").cache().shuffle().batch(6).numpy()
    (first,), (second,) = list(cached), list(cached)
    assert sorted(first) == sorted(second)
    assert here not in first % 100_000_000


def test_error_behind_a_prefetch_in_the_middle_names_the_stage_as_printed() -> None:
    pipeline = data.from_arrays([1, 0]).prefetch(2).map(lambda x: 1 // int(x))
    assert "%2 = map(%1, <lambda>)" in repr(pipeline)
    with pytest.raises(weft.errors.PipelineError, match="stage %2"):
        list(pipeline)


def test_elements_are_made_while_the_loop_works() -> None:
    begun = [threading.Event() for _ in range(4)]

    def begin(x: Any) -> Any:
        begun[x].set()
        return x

    for x in data.from_arrays(np.arange(4)).map(begin).prefetch(1).numpy():
        assert begun[min(x + 1, 3)].wait(10)  # the next one, before this one is given back

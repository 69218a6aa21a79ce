"""Where a prefetch in the middle of a pipeline goes."""

from __future__ import annotations

import numpy as np

from weft import data
from weft.data.hoist import hoist
from weft.data.text import format_pipeline


def moved(pipeline: data.Pipeline) -> list[str]:
    """The stages after prefetch was moved, without types."""
    lines = format_pipeline(hoist(pipeline.stage)[0], locations=False).splitlines()[1:-2]
    return [line.partition(" = ")[2] for line in lines]


def numbers() -> data.Pipeline:
    return data.from_arrays(np.arange(10))


def test_prefetch_moves_behind_what_can_be_had_by_number() -> None:
    pipeline = numbers().prefetch(8, workers=3, mode="process").shuffle().batch(4).take(2)
    assert moved(pipeline) == [
        "arrays(count=10)",
        "shuffle(%0)",
        "batch(%1, size=4)",
        "take(%2, count=2)",
        "prefetch(%3, count=2, workers=3, mode='process')",  # two batches are eight elements
    ]


def test_prefetch_stays_before_what_must_see_all_elements() -> None:
    pipeline = numbers().prefetch(8).filter(bool).batch(4)
    assert moved(pipeline) == [
        "arrays(count=10)",
        "prefetch(%0, count=8)",
        "filter(%1, bool)",
        "batch(%2, size=4)",
    ]


def test_prefetch_stays_before_a_cache() -> None:
    pipeline = numbers().prefetch(8).cache().shuffle()
    assert moved(pipeline) == ["arrays(count=10)", "prefetch(%0, count=8)", "cache(%1)", "shuffle(%2)"]


def test_prefetch_of_a_stream_moves_behind_what_is_done_element_by_element() -> None:
    pipeline = data.from_generator(numbers).prefetch(3).map(abs).batch(2).filter(bool)
    assert moved(pipeline) == [
        "generator(numbers)",
        "map(%0, abs)",
        "batch(%1, size=2)",
        "prefetch(%2, count=2)",
        "filter(%3, bool)",
    ]


def test_several_become_one_with_the_workers_of_the_largest() -> None:
    pair = numbers().prefetch(8, workers=2).zip(numbers().prefetch(2, workers=4, mode="process"))
    assert moved(pair.prefetch(3)) == [
        "arrays(count=10)",
        "arrays(count=10)",
        "zip(%0, %1)",
        "prefetch(%2, count=8, workers=4, mode='process')",
    ]


def test_stages_are_the_same_objects_where_nothing_moves() -> None:
    pipeline = numbers().shuffle().batch(2).prefetch(2)
    last, was = hoist(pipeline.stage)
    assert last is pipeline.stage
    assert all(new is old for new, old in was.items())

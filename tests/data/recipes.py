"""Random pipelines for tests: a recipe is a list of steps, and builds the same pipeline each time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st

import weft
from weft import data

Recipe = tuple[tuple[Any, ...], ...]


def add_one(x: Any) -> Any:
    return x + 1


def is_not_third(x: Any) -> bool:
    return int(np.ravel(x)[0]) % 3 != 0


def add_noise(x: Any, key: Any) -> Any:
    return x + weft.random.randint(key, (), 0, 1000).item()


def pair(x: Any) -> list[Any]:
    return [x, x + 100]


def counted(n: int) -> Iterator[Any]:
    return iter([np.int64(i) for i in range(n)])


def source(kind: str, n: int) -> data.Pipeline:
    if kind == "arrays":
        return data.from_arrays(np.arange(n))
    if kind == "dataset":
        return data.from_dataset([np.int64(i) for i in range(n)])
    return data.from_generator(lambda: counted(n))


def add_step(pipeline: data.Pipeline, step: tuple[Any, ...]) -> data.Pipeline:
    name, *args = step
    if name == "map":
        return pipeline.map(add_one)
    if name == "keyed":
        return pipeline.map(add_noise, keyed=True, seed=args[0])
    if name == "filter":
        return pipeline.filter(is_not_third)
    if name == "shuffle":
        return pipeline.shuffle(args[0], seed=args[1])
    if name in ("concat", "interleave"):
        other = source(args[0], args[1])
        return pipeline.concat(other) if name == "concat" else pipeline.interleave(other, block=args[2])
    if name == "zip":
        return pipeline.zip(source(args[0], args[1])).map(lambda x, y: x + y)
    if name == "flatten":
        return pipeline.map(pair).flatten()
    return getattr(pipeline, name)(*args)  # take, skip, repeat, cache


def build(recipe: Recipe) -> data.Pipeline:
    (_, kind, n), *steps, (_, size, last) = recipe
    pipeline = source(kind, n)
    for step in steps:
        pipeline = add_step(pipeline, step)
    return pipeline.batch(size, last)


KINDS = st.sampled_from(["arrays", "dataset", "generator"])
SMALL = st.integers(1, 6)
STEPS = st.one_of(
    st.tuples(st.just("map")),
    st.tuples(st.just("keyed"), SMALL),
    st.tuples(st.just("filter")),
    st.tuples(st.just("shuffle"), st.one_of(st.none(), SMALL), SMALL),
    st.tuples(st.just("take"), st.integers(0, 20)),
    st.tuples(st.just("skip"), SMALL),
    st.tuples(st.just("repeat"), st.integers(1, 3)),
    st.tuples(st.just("cache")),
    st.tuples(st.just("flatten")),
    st.tuples(st.just("concat"), KINDS, SMALL),
    st.tuples(st.just("interleave"), KINDS, SMALL, st.integers(1, 3)),
    st.tuples(st.just("zip"), KINDS, st.integers(1, 15)),
)


@st.composite
def recipes(draw: Any) -> Recipe:
    first = ("source", draw(KINDS), draw(st.integers(0, 15)))
    steps = draw(st.lists(STEPS, max_size=4))
    last = ("batch", draw(st.integers(1, 4)), draw(st.sampled_from(["keep", "drop", "pad"])))
    return (first, *steps, last)


def values(pipeline: data.Pipeline, epochs: int = 1) -> list[Any]:
    """All batches of some epochs, as lists."""
    return [batch.tolist() for _ in range(epochs) for batch in pipeline]

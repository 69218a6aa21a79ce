"""The stages of a pipeline: frozen nodes with settings and inputs, and nothing that runs.

What a stage does to elements is in ``weft.data.transform`` (one by one), ``weft.data.access`` (by number) and
``weft.data.stream`` (one after the other); how stages print is in ``weft.data.text``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from math import inf
from typing import Any, ClassVar, dataclass_transform

import numpy as np

from weft.base.philox import Block

Element = Any  # an array, a number, a text, or a tree of such
Where = int | str | tuple[int | str, ...] | None  # which parts of an element a stage works on


@dataclass_transform(eq_default=False, frozen_default=True, kw_only_default=True, field_specifiers=(field,))
@dataclass(frozen=True, eq=False, kw_only=True)
class Stage:
    """A node of a pipeline; subclasses are such dataclasses, too, and have a name.

    Args:
        inputs: the stages whose elements it takes.
        location: file and line where the user made it.
    """

    name: ClassVar[str] = "stage"

    inputs: tuple[Stage, ...] = field(default=(), repr=False)
    location: tuple[str, int] | None = field(default=None, repr=False)

    def __init_subclass__(cls, name: str = "") -> None:
        cls.name = name or cls.__name__.lower()
        dataclass(frozen=True, eq=False, kw_only=True)(cls)

    def settings(self) -> dict[str, Any]:
        """What is shown of it: its fields that are not as usual."""
        shown = ((f, getattr(self, f.name)) for f in fields(self) if f.repr)
        return {f.name: value for f, value in shown if value is not None and value is not f.default}


class Arrays(Stage):
    """A tree of arrays; an element is a row of each."""

    tree: Any = field(default=None, repr=False)
    count: int
    origin: str = field(default="arrays", repr=False)
    path: str | None = None


class Items(Stage, name="dataset"):
    """An object with ``__len__`` and ``__getitem__``."""

    dataset: Any


class Files(Stage):
    """Files, each read by a function when its turn comes."""

    paths: tuple[str, ...] = field(default=(), repr=False)
    count: int
    read: Callable[[str], Element]


class Generator(Stage):
    """What an iterator gives, made anew in each epoch."""

    function: Callable[[], Iterator[Element]]


class Map(Stage):
    """A function of each element."""

    function: Callable[..., Element]
    keyed: bool = False
    seed: int = 0


class Normalise(Stage):
    """``(x - mean) / std``."""

    mean: Any
    std: Any
    axis: int = 0
    on: Where = None


class Tile(Stage):
    """An array repeated along its axes."""

    repeats: tuple[int, ...]
    on: Where = None


class Change:
    """Base of random changes of arrays: what ``augment`` calls with four random words instead of a key."""

    def __call__(self, x: Any, words: Block) -> Any:
        """The array changed as the words say."""
        raise NotImplementedError


class Augment(Stage):
    """Random changes, one after the other; a crop is one of them."""

    ops: tuple[Any, ...]
    seed: int = 0
    on: Where = None


class Crop(Stage):
    """A part of an array: its centre, or a random one."""

    size: tuple[int, ...]
    random: bool = False
    seed: int = 0
    on: Where = None


class Filter(Stage):
    """The elements for which a function is true."""

    predicate: Callable[..., Any]


class Shuffle(Stage):
    """The elements in random order, all of them or through a buffer of some."""

    buffer: int | None = None
    seed: int = 0


class Batch(Stage):
    """Elements put together, so many at a time."""

    size: int
    last: str = "keep"
    ragged: Any = False
    value: float = 0
    mask: bool = False
    collate: Callable[[list[Element]], Element] | None = None
    part: tuple[int, int] | None = None  # which of how many equal parts of each batch is made


class Flatten(Stage):
    """The elements of each element, one after the other."""


class Cache(Stage):
    """Elements that are made once and kept, in memory or on disk."""

    path: str | None = None


class Repeat(Stage):
    """Several epochs of the input as one; for ever without a number."""

    times: int | None = None


class Take(Stage):
    """The first elements."""

    count: int


class Skip(Stage):
    """All but the first elements."""

    count: int


class Concat(Stage):
    """The elements of one input after those of another."""


class Zip(Stage):
    """Tuples of an element of each input, up to the end of the shortest."""


class Interleave(Stage):
    """Elements of each input in turn, until all have ended."""

    block: int = 1


class Prefetch(Stage):
    """The same elements, made ahead of time by threads or processes."""

    count: int
    workers: int = 1
    mode: str = "thread"
    start: str | None = None


TRANSFORMS = (Map, Normalise, Tile, Augment, Crop)  # from one element to one


def stages_of(last: Stage) -> list[Stage]:
    """A stage and all that it depends on, each once, inputs first."""
    found: dict[Stage, None] = {}
    waiting = [(last, False)]
    while waiting:
        stage, ready = waiting.pop()
        if stage in found:
            continue
        if ready:
            found[stage] = None
        else:
            waiting.append((stage, True))
            waiting.extend((x, False) for x in reversed(stage.inputs))
    return list(found)


def numbers_of(last: Stage) -> dict[Stage, int]:
    """The number of each stage in the text of its pipeline."""
    return {stage: i for i, stage in enumerate(stages_of(last))}


def draw_numbers_of(last: Stage) -> dict[Stage, int]:
    """The number of each stage in its random key: prefetch is not counted, so draws do not depend on it."""
    return {x: i for i, x in enumerate(x for x in stages_of(last) if not isinstance(x, Prefetch))}


def is_finite(stage: Stage) -> bool:
    """Whether a stage ends, as far as its kind tells; a generator is taken to."""
    if isinstance(stage, Repeat) and stage.times is None:
        return False
    if isinstance(stage, Take) or not stage.inputs:
        return True
    check = any if isinstance(stage, Zip) else all
    return check(is_finite(x) for x in stage.inputs)


def length_of(stage: Stage) -> float | None:
    """How many elements an epoch of a stage has: infinity if it has no end, None if only running it tells."""
    lengths = [length_of(x) for x in stage.inputs]
    known = [x for x in lengths if x is not None]
    if isinstance(stage, Arrays | Files):
        return stage.count
    if isinstance(stage, Items):
        return len(stage.dataset)
    if isinstance(stage, Generator | Filter | Flatten) or len(known) < len(lengths):
        return None
    if isinstance(stage, Zip):
        return min(known)
    return _length_after(stage, sum(known))


def _length_after(stage: Stage, count: float) -> float:
    """How many elements come out of a stage that so many go into."""
    if isinstance(stage, Batch):
        if count == inf:
            return inf
        return count // stage.size if stage.last == "drop" else -(-count // stage.size)
    if isinstance(stage, Repeat):
        times = inf if stage.times is None else stage.times
        return count * times if count else 0
    if isinstance(stage, Take):
        return min(count, stage.count)
    return max(0, count - stage.count) if isinstance(stage, Skip) else count


def is_ahead(stage: Stage) -> bool:
    """Whether the elements of a stage are made ahead of time."""
    return isinstance(stage, Prefetch)


def is_indexable(stage: Stage) -> bool:
    """Whether any element of a stage can be had by its number, without those before it."""
    if isinstance(stage, Generator | Filter | Flatten | Prefetch):
        return False
    if isinstance(stage, Cache):
        source = stage.inputs[0]
        return stage.path is not None or is_indexable(source.inputs[0] if is_ahead(source) else source)
    if isinstance(stage, Shuffle | Interleave) and not is_finite(stage):
        return False
    return all(is_indexable(x) for x in stage.inputs)


def runs_user_code(stage: Stage) -> bool:
    """Whether a stage calls functions of the user, which hold Python's lock."""
    if isinstance(stage, Augment):
        return not all(isinstance(op, Change) for op in stage.ops)
    if isinstance(stage, Batch):
        return stage.collate is not None
    return isinstance(stage, Items | Files | Generator | Map | Filter)


def function_name(function: Any) -> str:
    """A name for a function, or for an object that is called like one."""
    name = getattr(function, "__qualname__", None)
    if name is None:
        inner = getattr(function, "func", None)  # a functools.partial
        return f"partial({function_name(inner)})" if inner is not None else type(function).__name__
    return str(name).rpartition("<locals>.")[2]


IntArray = np.ndarray[Any, np.dtype[np.int64]]

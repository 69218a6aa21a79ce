"""How random graphs are drawn: by hypothesis, which makes what fails small, or quickly, by a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


class Draw(Protocol):
    """Choices that are made one after the other."""

    def of(self, options: Sequence[T]) -> T:
        """One of some."""
        ...

    def whole(self, least: int, most: int) -> int:
        """A number in a range, both ends included."""
        ...

    def truth(self) -> bool:
        """Yes or no."""
        ...

    def some(self, options: Sequence[T], least: int = 0) -> list[T]:
        """A part of some, in their order."""
        ...

    def shuffled(self, options: Sequence[T]) -> list[T]:
        """All of some, in any order."""
        ...


class ByHypothesis:
    """What a composite strategy draws."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw

    def of(self, options: Sequence[T]) -> T:
        return self.draw(st.sampled_from(options))  # type: ignore[no-any-return]

    def whole(self, least: int, most: int) -> int:
        return int(self.draw(st.integers(least, most)))

    def truth(self) -> bool:
        return bool(self.draw(st.booleans()))

    def some(self, options: Sequence[T], least: int = 0) -> list[T]:
        places = self.draw(st.sets(st.sampled_from(range(len(options))), min_size=least)) if options else ()
        return [options[i] for i in sorted(places)]

    def shuffled(self, options: Sequence[T]) -> list[T]:
        return list(self.draw(st.permutations(options)))


class BySeed:
    """What a generator of random numbers draws."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def of(self, options: Sequence[T]) -> T:
        return self.random.choice(options)

    def whole(self, least: int, most: int) -> int:
        return self.random.randint(least, most)

    def truth(self) -> bool:
        return self.random.random() < 0.5

    def some(self, options: Sequence[T], least: int = 0) -> list[T]:
        found = [x for x in options if self.truth()]
        return found if len(found) >= least else [self.of(options)]

    def shuffled(self, options: Sequence[T]) -> list[T]:
        return self.random.sample(options, len(options))

"""Generators: where keys come from when the user does not pass one.

A generator is a seed and the number of draws made so far; draw i uses the key (seed, i), so numbers
depend on nothing else. One global generator serves all threads, each draw a number of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft.base.concrete import on_host
from weft.base.dtypes import uint64
from weft.base.forks import Level, lock_of
from weft.base.philox import MASK
from weft.base.public import public
from weft.errors import ArgumentError, DomainError
from weft.ops.op import Array, intercepted, type_of
from weft.tensor.convert import integer
from weft.tensor.dispatch import captured_constant
from weft.tensor.mode import thread
from weft.tensor.random import new_key
from weft.tensor.tensor import Tensor

_DRAWS = 2**63  # set in the second word of the keys of generators, so that none is a weft.random.key(seed)


class Generator:
    """A source of random numbers with a state of its own.

    >>> import weft
    >>> one, two = weft.Generator(3), weft.Generator(3)
    >>> bool((weft.rand(4, generator=one) == weft.rand(4, generator=two)).all())
    True
    """

    __slots__ = ("_index", "_lock", "_seed")

    def __init__(self, seed: int = 0) -> None:
        self._lock = lock_of(Level.GENERATOR)
        self._seed = _checked_seed("Generator", seed)
        self._index = 0
        if (root := _capturing_root()) is not None:
            root.begin_generator(self, captured_constant(np.array([self._seed, 0], np.uint64)))

    def manual_seed(self, seed: int) -> Generator:
        """Start again from a seed; returns the generator itself."""
        number = _checked_seed("manual_seed", seed)
        if (root := _capturing_root()) is not None:
            root.set_state(self, captured_constant(np.array([number, 0], np.uint64)))
            return self
        with self._lock:
            self._seed, self._index = number, 0
        return self

    def seed(self) -> int:
        """Start again from a seed taken from the system's entropy; returns the seed."""
        number = int.from_bytes(os.urandom(8), "little")
        self.manual_seed(number)
        return number

    def initial_seed(self) -> int:
        """The seed last set."""
        return self._seed

    def next_key(self) -> Tensor:
        """The key of the next draw; in a capture it follows from the state that each call finds."""
        if (root := _capturing_root()) is not None:
            key: Tensor = root.draw_key(self)
            return key
        with self._lock:
            seed, index = self._seed, self._index
            self._index = index + 1
        return new_key(seed, _DRAWS | index)

    def get_state(self) -> Tensor:
        """Seed and number of draws, to go back to with ``set_state``."""
        if (root := _capturing_root()) is not None:
            state: Tensor = root.state_of(self)
            return state
        with self._lock:
            return new_key(self._seed, self._index)

    def set_state(self, state: Tensor) -> Generator:
        """Go back to a state; returns the generator itself."""
        if not isinstance(state, Tensor) or state.dtype != uint64 or state.shape != (2,):
            got = type_of(state) if isinstance(state, Tensor) else type(state).__name__
            raise ArgumentError("set_rng_state", f"state must be a u64[2], got {got}")
        if (root := _capturing_root()) is not None:
            root.set_state(self, state)
        else:
            self._set_state_array(state.numpy())
        return self

    def _state_array(self) -> Array:
        """Seed and number of draws as an array."""
        with self._lock:
            return np.array([self._seed, self._index], np.uint64)

    def _set_state_array(self, state: Array) -> None:
        seed, index = (int(word) for word in on_host(state))
        with self._lock:
            self._seed, self._index = seed, index

    def __repr__(self) -> str:
        return f"Generator(seed={self._seed}, draws={self._index})"


def _capturing_root() -> Any:
    """The root of the capture of this thread, if it is one whose graph can read and change generators."""
    if not intercepted.threads or thread.capture is None:
        return None
    root = thread.capture.root
    return root if root.keeps_generators else None


def _checked_seed(op: str, seed: object) -> int:
    number = integer(op, "seed", seed)
    if not -(2**63) <= number <= MASK:
        raise DomainError(op, f"seed must be in -2**63..2**64 - 1, got {number}")
    return number & MASK


KeyRules = tuple[Callable[[Tensor], Tensor], ...]  # what each running vmap makes of the key of a draw


class _Thread(threading.local):
    generator: Generator | None = None  # stands in for the global one inside fork_rng
    forked_in: Any = None  # the root of the capture that entered fork_rng; None outside of captures
    outside: Generator | None = None  # what stood for the global one when that capture began
    key_rules: KeyRules = ()


class _Current(Generator):
    """Stands in captured code for the generator that is the current one at each call."""

    __slots__ = ()

    def initial_seed(self) -> int:
        return generator_now().initial_seed()

    def next_key(self) -> Tensor:
        return super().next_key() if _capturing_root() is not None else generator_now().next_key()

    def get_state(self) -> Tensor:
        return super().get_state() if _capturing_root() is not None else generator_now().get_state()

    def manual_seed(self, seed: int) -> Generator:
        return (
            super().manual_seed(seed) if _capturing_root() is not None else generator_now().manual_seed(seed)
        )

    def _state_array(self) -> Array:
        return generator_now()._state_array()

    def _set_state_array(self, state: Array) -> None:
        generator_now()._set_state_array(state)

    def __repr__(self) -> str:
        return repr(generator_now())


default_generator = Generator()
CURRENT = _Current()
_thread = _Thread()


def generator_now() -> Generator:
    """The generator that stands at this moment for the global one in this thread."""
    return _thread.generator or default_generator


def generator_outside() -> Generator:
    """Likewise, outside of what this thread captures."""
    if _thread.forked_in is not None and _thread.forked_in is _capturing_root():
        return _thread.outside or default_generator
    return generator_now()


def current_generator() -> Generator:
    """The generator that draws without one of their own use in this thread.

    In captured code, outside of a ``fork_rng`` of its own, that is whichever each call finds.
    """
    root = _capturing_root()
    return generator_now() if root is None or _thread.forked_in is root else CURRENT


def next_key(generator: Generator | None = None) -> Tensor:
    """The key of the next draw from a generator, by default the current one."""
    key = (generator or current_generator()).next_key()
    for rule in _thread.key_rules:
        key = rule(key)
    return key


def current_key_rules() -> KeyRules:
    """What the transforms that run in this thread make of each key, the outermost first."""
    return _thread.key_rules


@contextmanager
def using_key_rules(rules: KeyRules) -> Iterator[None]:
    """Let rules make of each key what they do, in this thread, instead of the current ones."""
    outer = _thread.key_rules
    _thread.key_rules = rules
    try:
        yield
    finally:
        _thread.key_rules = outer


@public
def manual_seed(seed: int) -> Generator:
    """Start the global generator again from a seed.

    >>> import weft
    >>> generator = weft.manual_seed(0)
    >>> first = weft.rand(3)
    >>> generator = weft.manual_seed(0)
    >>> bool((first == weft.rand(3)).all())
    True
    """
    return current_generator().manual_seed(seed)


@public
def seed() -> int:
    """Start the global generator again from a seed taken from the system's entropy; returns the seed.

    >>> import weft
    >>> isinstance(weft.seed(), int)
    True
    """
    return current_generator().seed()


@public
def initial_seed() -> int:
    """The seed last set for the global generator.

    >>> import weft
    >>> weft.manual_seed(5).initial_seed() == weft.initial_seed() == 5
    True
    """
    return current_generator().initial_seed()


@public
def get_rng_state() -> Tensor:
    """The state of the global generator: its seed and the number of draws made since.

    >>> import weft
    >>> state = weft.get_rng_state()
    >>> a = weft.rand(3)
    >>> weft.set_rng_state(state)
    >>> bool((weft.rand(3) == a).all())
    True
    """
    return current_generator().get_state()


@public
def set_rng_state(state: Tensor) -> None:
    """Put the global generator back into a state that ``get_rng_state`` gave.

    >>> import weft
    >>> weft.set_rng_state(weft.get_rng_state())
    """
    current_generator().set_state(state)


@contextmanager
def fork_rng(state: Tensor | None = None) -> Iterator[Generator]:
    """Draw from a copy of the global generator inside a ``with`` block, in this thread only.

    Args:
        state: from which the copy starts; by default from where the global generator stands.

    >>> import weft
    >>> before = weft.get_rng_state()
    >>> with weft.fork_rng():
    ...     draws = weft.rand(100)
    >>> bool((weft.get_rng_state() == before).all())
    True
    """
    outer = _thread.generator, _thread.forked_in, _thread.outside
    inner = Generator().set_state(current_generator().get_state() if state is None else state)
    _thread.outside = generator_outside()
    _thread.generator, _thread.forked_in = inner, _capturing_root()
    try:
        yield inner
    finally:
        _thread.generator, _thread.forked_in, _thread.outside = outer

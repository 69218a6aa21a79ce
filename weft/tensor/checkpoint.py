"""Gradient checkpoints: memory for time.

A checkpointed call records its nodes as always, but what they save is dropped when it returns. When
backward comes to the first of them the function runs again, on the same values and random draws, and the
second recording gives each node what it needs. The graph itself is never rebuilt, so closures, several
outputs, nested checkpoints and higher-order gradients need nothing special.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from inspect import signature
from itertools import pairwise
from typing import Any, TypeVar

from weft.base.hooks import hooks
from weft.base.public import public
from weft.errors import ArgumentError, DomainError, GradientError
from weft.ops.op import intercepted, type_of
from weft.ops.view.primitives import again
from weft.tensor.autocast import autocast_dtype, casting_to
from weft.tensor.dispatch import recording, stage, wrap
from weft.tensor.engine import node_of
from weft.tensor.generator import (
    Generator,
    current_generator,
    current_key_rules,
    fork_rng,
    using_key_rules,
)
from weft.tensor.mode import call_user, enable_grad, observing, resumed, running_levels, thread
from weft.tensor.node import Leaf, Node
from weft.tensor.tensor import Tensor
from weft.tensor.watch import seen_again

Edges = tuple[Any, ...]
R = TypeVar("R")


@public
def checkpoint(
    function: Callable[..., R],
    *args: object,
    preserve_rng_state: bool = True,
    use_reentrant: bool | None = None,
    **kwargs: object,
) -> R:
    """Call a function without keeping its intermediate values; backward computes them again.

    What the function reads besides its arguments must stay as it is until backward has run. A parameter that
    changed, or a function that does something else the second time, is an error.

    Args:
        function: of any arguments, which may close over parameters.
        args: arguments of the function.
        preserve_rng_state: draw the same random numbers the second time.
        use_reentrant: taken for code written for other libraries; there is one way here.
        kwargs: keyword arguments of the function.

    >>> import weft
    >>> x = weft.tensor(3.0, requires_grad=True)
    >>> y = weft.checkpoint(lambda x: weft.tanh(x * x) * x, x)
    >>> y.backward()
    >>> x.grad
    tensor(1.0000)
    """
    if not callable(function):
        raise ArgumentError("checkpoint", f"the function must be callable, got {type(function).__name__}")
    if not args and not kwargs:
        _check_complete(function)
    capture = thread.capture if intercepted.threads else None
    if capture is None:
        return _call(function, args, kwargs, preserve_rng_state)  # type: ignore[no-any-return]
    start = len(capture.nodes)
    out: R = _call(function, args, kwargs, preserve_rng_state)
    if thread.capture is capture:
        hooks.note_checkpoint(capture, start)  # for gradients that are made of the graph, as those of loops
    return out


def _check_complete(function: Callable[..., Any]) -> None:
    """Raise if a function of arguments was given none, as where checkpoints are made of functions alone."""
    try:
        signature(function).bind()
    except ValueError:  # of some built-in functions nothing is known
        return
    except TypeError as error:
        hint = "weft.checkpoint(f, *args) calls it; for later: lambda *args: weft.checkpoint(f, *args)"
        raise ArgumentError("checkpoint", f"{error} of the function", hint=hint) from None


def _call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], preserve_rng_state: bool
) -> Any:
    if not recording():
        return call_user(function, *args, **kwargs)
    region = _Region(function, args, kwargs, preserve_rng_state)
    with observing(region.drop):
        out = call_user(function, *args, **kwargs)
    region.close()
    return out


@public
def checkpoint_sequential(functions: Sequence[Callable[..., Any]], segments: int, x: Tensor) -> Tensor:
    """Apply functions one after another, each of ``segments`` equal stretches of them a checkpoint.

    The last stretch is not, as backward would run it again at once.

    >>> import weft
    >>> x = weft.tensor(0.5, requires_grad=True)
    >>> weft.checkpoint_sequential([weft.tanh, weft.exp, weft.tanh], 2, x).backward()
    >>> x.grad
    tensor(0.1923)
    """
    chain = list(functions)
    if not 1 <= segments <= len(chain):
        raise DomainError("checkpoint_sequential", f"segments must be in 1..{len(chain)}, got {segments}")
    bounds = [i * len(chain) // segments for i in range(segments + 1)]
    for start, stop in pairwise(bounds[:-1]):
        x = checkpoint(_Chain(chain[start:stop]), x)
    return _Chain(chain[bounds[-2] :])(x)


@public
def checkpointed(items: Iterable[R], *, every: int) -> Iterable[R]:
    """What a ``for`` goes along, so that in a compiled function its gradient keeps every so many-th state.

    The way back computes the iterations in between again, ``every`` of them at a time. Values and gradients
    have the same bits; memory for n iterations goes from n states to about n / every + every. Where Python
    itself runs the loop, it is as without.

    Args:
        items: a range, a tensor, whose rows are the items, or anything else that a loop goes along.
        every: how many iterations are computed again at a time; about the root of their number needs least.

    >>> import weft
    >>> @weft.compile
    ... def power(x):
    ...     y = x
    ...     for _ in weft.checkpointed(range(9), every=3):
    ...         y = y * x
    ...     return y
    >>> weft.grad(power)(weft.tensor(1.0))
    tensor(10.)
    """
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise DomainError("checkpointed", f"every must be a positive int, got {every!r}")
    if not isinstance(items, Iterable):
        what = f"the items must be iterable, got {type(items).__name__}"
        raise ArgumentError("checkpointed", what, hint="for a number n give range(n)")
    return Checkpointed(items, every)


class Checkpointed(Iterable[R]):
    """Items, and of how many iterations of a loop along them one state is kept."""

    __slots__ = ("every", "items")

    def __init__(self, items: Iterable[R], every: int) -> None:
        self.items = items
        self.every = every

    def __iter__(self) -> Iterator[R]:
        return iter(self.items)


class _Chain:
    """Functions applied one after another."""

    def __init__(self, functions: Sequence[Callable[..., Any]]) -> None:
        self._functions = functions

    def __call__(self, x: Tensor) -> Tensor:
        for function in self._functions:
            x = function(x)
        return x


class _Dropped:
    """Takes the place of what a node saved; holds it until the function returns, as it may run backward."""

    __slots__ = ("__weakref__", "_index", "_region", "held")

    def __init__(self, region: _Region, index: int, held: object) -> None:
        self._region = region
        self._index = index
        self.held = held

    def take(self, recomputed: dict[Any, dict[int, Any]]) -> Any:
        """What the node saved, computed again; ``recomputed`` holds what one backward has not used yet."""
        if self.held is not None:
            return self.held
        region = self._region
        if region not in recomputed:
            recomputed[region] = dict(enumerate(region.run_again()))
        waiting = recomputed[region]
        taken = waiting.pop(self._index)
        if not waiting:
            del recomputed[region]  # and with it the arguments
        return taken


class _Region:
    """One checkpointed call: what it takes to run it again, and to see that it does the same."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        preserve_rng_state: bool,
    ) -> None:
        self._function = function
        self._args = [_Held(a) for a in args]
        self._kwargs = {name: _Held(a) for name, a in kwargs.items()}
        self._start = current_generator().get_state() if preserve_rng_state else None
        self._end: Any = None
        self._trail: list[tuple[str, Edges]] = []  # of each node its op, and its edges that come from outside
        self._parameters: dict[Leaf, Any] = {}  # leaves that are no arguments, with the data they had
        self._inside: set[int] = set()
        self._dropped: list[weakref.ref[_Dropped]] = []
        self._levels = frozenset(running_levels)
        self._key_rules = current_key_rules()
        self._autocast = autocast_dtype()

    def drop(self, node: Node) -> None:
        """Observe a node as the function records it the first time."""
        self._inside.add(id(node))
        outside = tuple([None if e is None or id(node_of(e)) in self._inside else e for e in node.edges])
        node.saved = dropped = _Dropped(self, len(self._trail), node.saved)
        self._dropped.append(weakref.ref(dropped))
        self._trail.append((node.rule.name, outside))
        given = [held.edge for held in (*self._args, *self._kwargs.values())]
        for edge in outside:
            if type(edge) is Leaf and edge not in self._parameters and not any(edge is g for g in given):
                self._parameters[edge] = _data_of(edge)

    def close(self) -> None:
        """End the first run."""
        self._inside = set()
        for reference in self._dropped:
            if (dropped := reference()) is not None:
                dropped.held = None
        self._dropped = []
        if self._start is not None:
            self._end = current_generator().get_state()

    def run_again(self) -> list[Tensor]:
        """Run the function again and give what each node saves."""
        for leaf, data in self._parameters.items():
            if _data_of(leaf) is not data and leaf.owner() is not None:
                raise GradientError(
                    "checkpoint",
                    "what the function uses must not change before backward, "
                    f"got another value of a leaf of type {type_of(leaf.owner())}",  # type: ignore[arg-type]
                    hint="run backward first, or pass the tensor as an argument",
                )
        saved: list[Any] = []

        def collect(node: Node) -> None:
            self._compare(len(saved), node)
            saved.append(node.saved)

        draws = nullcontext() if self._start is None else fork_rng(self._start)
        transforms = using_key_rules(self._key_rules)
        with (
            enable_grad(),
            resumed(self._levels),
            transforms,
            casting_to(self._autocast),
            draws as generator,
            seen_again(),
        ):
            new = self._made_anew()
            args = [held.get(held in new) for held in self._args]
            kwargs = {name: held.get(held in new) for name, held in self._kwargs.items()}
            with observing(collect, alone=True):
                call_user(self._function, *args, **kwargs)
        if len(saved) != len(self._trail):
            raise _differs(f"{len(self._trail)} ops", f"{len(saved)}")
        if generator is not None:
            self._compare_draws(generator)
        return saved

    def _made_anew(self) -> list[_Held]:
        """The arguments that are values of their own in the second run, where it is captured.

        What is computed from them is not merged with what the first run computed. Parameters are left as they
        are, unless there is nothing else: products find weights by what they are.
        """
        if not intercepted.threads or thread.capture is None:
            return []
        tensors = [held for held in (*self._args, *self._kwargs.values()) if held.is_tensor]
        return [held for held in tensors if type(held.edge) is not Leaf] or tensors

    def _compare(self, index: int, node: Node) -> None:
        if index >= len(self._trail):
            raise _differs(f"{len(self._trail)} ops", "more")
        name, outside = self._trail[index]
        if node.rule.name != name:
            raise _differs(name, node.rule.name)
        for edge, old in zip(node.edges, outside, strict=True):
            if old is not None and edge is not old:
                raise _differs(f"{name} of the same tensors", "another tensor")

    def _compare_draws(self, generator: Generator) -> None:
        if intercepted.threads and thread.capture is not None:
            return  # a graph has the draws of one thread
        end = generator.get_state().tolist()
        if end != self._start.tolist() and end != self._end.tolist():  # type: ignore[union-attr]
            raise GradientError(
                "checkpoint",
                "the function must draw the same random numbers again, "
                "got draws of another thread between its own",
                hint="draw inside weft.fork_rng(), or from a weft.Generator of each thread",
            )


class _Held:
    """An argument as it was: a tensor by its value and place in the graph, a generator by its state."""

    __slots__ = ("_value", "edge")

    def __init__(self, argument: object) -> None:
        self.edge: Any = None
        self._value = argument
        if isinstance(argument, Tensor):
            if intercepted.threads:
                stage(argument)  # one from outside is an input: what holds its array alone is a constant
            self.edge = argument._node
            self._value = wrap(argument._data, self.edge)
        elif isinstance(argument, Generator):
            self._value = Generator().set_state(argument.get_state())

    @property
    def is_tensor(self) -> bool:
        return isinstance(self._value, Tensor)

    def get(self, anew: bool = False) -> Any:
        """The argument again; what the function does to it does not reach this one."""
        value = self._value
        if isinstance(value, Tensor):
            return wrap(again(wrap(value._data, None))._data if anew else value._data, self.edge)
        return Generator().set_state(value.get_state()) if isinstance(value, Generator) else value


def _data_of(leaf: Leaf) -> Any:
    owner = leaf.owner()
    return None if owner is None else owner._data


def _differs(first: str, second: str) -> GradientError:
    return GradientError(
        "checkpoint",
        f"the function must do the same when it runs again, got {first} at first and {second} then",
        hint="it must not depend on what changes between forward and backward",
    )

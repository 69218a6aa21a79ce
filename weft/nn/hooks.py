"""Hooks on modules: functions that run around ``forward`` and around its gradient.

All hooks of a module are one object, which is replaced and never changed, so that a capture notices. The
gradient is met by two steps of the graph that change nothing, one before ``forward`` and one after it.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import weft
from weft import Tensor
from weft.errors import ArgumentError

Hook = Callable[..., Any]
_numbers = itertools.count()


class Entry(NamedTuple):
    """A hook, and whether it is given the keywords of the call."""

    hook: Hook
    with_kwargs: bool


class Hooks:
    """The hooks of a module, by when they run: dicts in the order in which they run."""

    __slots__ = ("backward", "backward_pre", "forward", "forward_pre")
    forward_pre: dict[int, Entry]
    forward: dict[int, Entry]
    backward_pre: dict[int, Entry]
    backward: dict[int, Entry]

    def __init__(self, other: Hooks | None = None, **changed: dict[int, Entry]) -> None:
        for name in self.__slots__:
            setattr(self, name, changed.get(name, {} if other is None else getattr(other, name)))

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)

    def __deepcopy__(self, memo: dict[int, Any]) -> Hooks:
        return self  # it never changes, and a copy of a module without hooks must have none too

    def __reduce__(self) -> tuple[Any, ...] | str:
        return (_restored, tuple(getattr(self, name) for name in self.__slots__)) if self else "NO_HOOKS"


def _restored(*entries: dict[int, Entry]) -> Hooks:
    return Hooks(None, **dict(zip(Hooks.__slots__, entries, strict=True)))


NO_HOOKS = Hooks()  # of every module without hooks


class HookHandle:
    """What registering a hook returns; ``remove()``, or the end of a ``with``, takes the hook off again."""

    def __init__(self, module: Any, place: str, number: int) -> None:
        self._module = weakref.ref(module)
        self._place = place
        self._number = number

    def remove(self) -> None:
        """Take the hook off; doing it twice is harmless."""
        module = self._module()
        if module is not None:
            entries = getattr(module._hooks, self._place)
            left = {k: e for k, e in entries.items() if k != self._number}
            module._hooks = Hooks(module._hooks, **{self._place: left}) or NO_HOOKS

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


def add_hook(
    module: Any, place: str, hook: Hook, prepend: bool = False, with_kwargs: bool = False
) -> HookHandle:
    """Add a hook to those of a module, after the others or before them."""
    if not callable(hook):
        raise ArgumentError("register_hook", f"a hook must be callable, got {type(hook).__name__}")
    number, others = next(_numbers), getattr(module._hooks, place)
    entry = {number: Entry(hook, with_kwargs)}
    module._hooks = Hooks(module._hooks, **{place: {**entry, **others} if prepend else {**others, **entry}})
    return HookHandle(module, place, number)


def call_around(module: Any, hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call ``forward`` of a module and its hooks."""
    for hook, with_kwargs in hooks.forward_pre.values():
        found = hook(module, args, kwargs) if with_kwargs else hook(module, args)
        if found is not None and with_kwargs:
            args, kwargs = found
        elif found is not None:
            args = found if isinstance(found, tuple) else (found,)
    around = Around(module, hooks) if hooks.backward or hooks.backward_pre else None
    if around is not None:
        args = around.entered(args)
    out = module.forward(*args, **kwargs)
    for hook, with_kwargs in hooks.forward.values():
        found = hook(module, args, kwargs, out) if with_kwargs else hook(module, args, out)
        out = out if found is None else found
    return out if around is None else around.left(out)


class Around:
    """One call of a module whose gradient has hooks: what flows in at its end and out at its beginning."""

    def __init__(self, module: Any, hooks: Hooks) -> None:
        self.module = module
        self.hooks = hooks
        self.places: list[int] = []  # of the tensors among the arguments whose gradients are wanted
        self.count = 0
        self.grad_output: Any = None

    def entered(self, args: tuple[Any, ...]) -> tuple[Tensor, ...]:
        """The arguments, whose gradients go by the hooks."""
        self.count = len(args)
        self.places = [i for i, a in enumerate(args) if weft.is_tensor(a) and a.requires_grad]
        if not self.places or not weft.is_grad_enabled():
            self.places = []
            return args
        passed = iter(_passed(_Beginning, self, [args[i] for i in self.places]))
        return tuple(next(passed) if i in self.places else a for i, a in enumerate(args))

    def left(self, out: Any) -> Any:
        """The results, whose gradients go by the hooks."""
        leaves, structure = weft.tree_flatten(out)
        places = [i for i, x in enumerate(leaves) if weft.is_tensor(x) and x.requires_grad]
        if not places:
            return out
        if weft.jit.is_capturing():  # a run may decide whether backward enters, and leaves it at this if not
            self.grad_output = tuple([weft.zeros_like(leaves[i]).detach() for i in places])
        passed = iter(_passed(_End, self, [leaves[i] for i in places]))
        results = [next(passed) if i in places else x for i, x in enumerate(leaves)]
        return weft.tree_unflatten(structure, results)

    def at_end(self, grads: tuple[Any, ...]) -> tuple[Tensor, ...]:
        """Where backward enters the module."""
        for hook, _ in self.hooks.backward_pre.values():
            found = hook(self.module, grads)
            if found is not None:
                grads = found if isinstance(found, tuple) else (found,)
        self.grad_output = grads
        if not self.places:
            self.at_beginning(())
        return grads

    def at_beginning(self, grads: tuple[Any, ...]) -> tuple[Tensor, ...]:
        """Where backward leaves the module."""
        given = dict(zip(self.places, grads, strict=True))
        whole: Any = tuple(given.get(i) for i in range(self.count))
        for hook, _ in self.hooks.backward.values():
            found = hook(self.module, whole, self.grad_output)
            if found is not None:
                whole = found if isinstance(found, tuple) else (found,)
        return tuple(whole[i] for i in self.places)


class _Beginning(weft.Function):
    @staticmethod
    def forward(ctx: Any, around: Around, *tensors: Any) -> Any:
        ctx.around = around
        return tuple(t._value() for t in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, *ctx.around.at_beginning(grads)


class _End(_Beginning):
    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, *ctx.around.at_end(grads)


def _passed(step: type[weft.Function], around: Around, tensors: list[Any]) -> tuple[Tensor, ...]:
    found = step.apply(around, *tensors)
    return found if isinstance(found, tuple) else (found,)

"""Guards: what a captured graph relies on outside of it, checked before each call by one generated function.

A guard is a slot of Python (a global, an attribute, an item, a cell) with what it held during the capture.
Values such as numbers and strings must be equal, other objects the same, arrays of the same elements,
tensors the same or, where the captured code itself replaces them, of the same type. Objects whose class
counts changes in ``_weft_version`` are looked at only when that count has moved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import BuiltinMethodType, MethodType
from typing import Any

import numpy as np

from weft.base.concrete import is_concrete
from weft.base.dtypes import DType
from weft.base.records import NamedTuple
from weft.base.sizes import Size
from weft.capture.program.slots import MISSING, AttrSlot, CellSlot, ItemSlot, Reading
from weft.ops.alias import epoch
from weft.ops.op import TensorLike
from weft.tensor.form import form_of
from weft.tensor.tensor import Tensor

_PLAIN = (int, float, complex, str, bytes, tuple, frozenset, np.generic, np.dtype, range, slice, Size)


OUTSIDE = "a tensor from outside"


class Guard(NamedTuple):
    """A slot that must hold what it held, or a tensor like it, if a ``Like`` is expected."""

    slot: Any
    expected: Any


class Like(NamedTuple):
    """Any tensor of a type, that requires grad or not."""

    shape: tuple[int, ...]
    dtype: DType
    requires_grad: bool

    @classmethod
    def of(cls, tensor: Any) -> Like:
        """What a tensor is."""
        return cls(tensor.shape, tensor.dtype, tensor._node is not None)


class Frame(NamedTuple):
    """A container of a class, with so many items, or with these keys."""

    kind: type
    items: int | tuple[Any, ...]


class Members(NamedTuple):
    """Objects, all of which must be what they were."""

    values: tuple[Any, ...]


class StandIn:
    """Takes the place of a tensor that was an argument, in the guards of the version that its call made."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __repr__(self) -> str:
        return "an argument"


class ArrayCopy:
    """An array, and what was in it."""

    __slots__ = ("array", "copy")

    def __init__(self, array: Any) -> None:
        self.array = array
        self.copy = array.copy()

    def __repr__(self) -> str:
        return repr(self.copy)


class TensorGuard(NamedTuple):
    """A tensor that must keep its type, and whether it requires grad."""

    tensor: Any
    form: Any
    shape: tuple[int, ...]
    dtype: DType
    requires_grad: bool

    @classmethod
    def of(cls, tensor: Any) -> TensorGuard:
        """The guard that holds for a tensor as it is now."""
        data = tensor._data
        return cls(tensor, form_of(data), data.shape, data.dtype, tensor._node is not None)


def same(a: Any, b: Any) -> bool:
    """Whether two values are alike to captured code: of one type and equal to the last bit, or one object."""
    if a is b:
        return True
    if type(a) is not type(b) or not isinstance(a, _PLAIN):
        return False
    if type(a) is float:
        return (a == b and math.copysign(1.0, a) == math.copysign(1.0, b)) or (a != a and b != b)
    if type(a) is complex:
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.generic):
        return bool(a.tobytes() == b.tobytes())
    return bool(a == b)


def same_array(a: Any, copy: Any) -> bool:
    """Whether an array still has the elements of a copy."""
    return bool(a.dtype == copy.dtype and a.shape == copy.shape and a.tobytes() == copy.tobytes())


def fits(tensor: Any, shape: tuple[int, ...], dtype: DType, requires_grad: bool) -> bool:
    """Whether something is a tensor of a type; its form is noted, so that the next look is quick."""
    if not isinstance(tensor, Tensor) or (tensor._node is not None) is not requires_grad:
        return False
    data = tensor._data
    if not is_concrete(data):
        data = settled(tensor)
    elif tensor._form is None:
        tensor._form = form_of(data)
    return bool(data.shape == shape and data.dtype == dtype)


def settled(tensor: Any) -> Any:
    """The data of a tensor; one that another thread captures is waited for."""
    waiting = getattr(tensor._data, "await_other_thread", None)
    if waiting is not None:
        waiting("compile")
    return tensor._data


class Guards:
    """The guards of one capture, by the key of their slot."""

    __slots__ = ("_guards", "inside")

    def __init__(self) -> None:
        self._guards: dict[tuple[Any, ...], Guard] = {}
        self.inside: dict[int, Any] = {}  # objects made during the capture, which need none

    def add(self, slot: Any, value: Any) -> None:
        """Rely on what a slot holds; the first value counts."""
        if slot.key not in self._guards:
            self.put(slot, value)

    def put(self, slot: Any, value: Any) -> None:
        """Rely on what a slot holds from now on."""
        expected = ArrayCopy(value) if type(value) is np.ndarray else value
        self._guards[slot.key] = Guard(slot, expected)

    def __contains__(self, key: tuple[Any, ...]) -> bool:
        return key in self._guards

    def get(self, key: tuple[Any, ...]) -> Guard | None:
        """The guard of a slot."""
        return self._guards.get(key)

    def __iter__(self) -> Iterator[Guard]:
        return iter(self._guards.values())

    def relax(self, key: tuple[Any, ...]) -> None:
        """Let a slot hold any tensor like the one it held."""
        guard = self._guards[key]
        self._guards[key] = guard._replace(expected=Like.of(guard.expected))

    def drop(self, key: tuple[Any, ...]) -> None:
        """Rely on a slot no more."""
        self._guards.pop(key, None)


Check = Callable[[Sequence[Any]], bool]


def compile_check(
    guards: Iterable[Guard],
    tensors: Iterable[TensorGuard],
    arguments: Sequence[Any] = (),
    more: Sequence[Callable[[Names], str]] = (),
) -> Check:
    """One function of the tensors among the arguments of a call that tells whether all guards hold.

    Where a guard names one of ``arguments``, which stand for them, it looks at that of the call. ``more``
    give further conditions on them, as expressions.
    """
    names = Names(arguments)
    direct: list[str] = []
    counted: dict[type, list[str]] = {}
    for guard in guards:
        owner = _counting_class(guard)
        (direct if owner is None else counted.setdefault(owner, [])).append(_condition(guard, names))
    for owner, conditions in counted.items():
        slow = _function(conditions, names)
        direct.append(f"{names(_Counted(owner, slow))}.holds(a)")
    typed = [_tensor_condition(t, names) for t in tensors]
    return _function([*direct, *typed, *[condition(names) for condition in more]], names)


def _counting_class(guard: Guard) -> type | None:
    """The class of an object that counts the changes of its attributes, if those are all that a guard is on.

    Of a tensor of which the type counts, nobody is told that it requires grad from now on.
    """
    if not isinstance(guard.slot, AttrSlot) or isinstance(guard.expected, Like):
        return None
    return next((c for c in type(guard.slot.owner).__mro__ if "_weft_version" in c.__dict__), None)


class _Counted:
    """Guards that can only fail after the count of a class has moved."""

    __slots__ = ("check", "owner", "seen")

    def __init__(self, owner: Any, check: Check) -> None:
        self.owner = owner
        self.check = check
        self.seen = owner._weft_version

    def holds(self, a: Sequence[Any]) -> bool:
        """Whether nothing was counted, or what was left the guards as they are."""
        version = self.owner._weft_version
        if version == self.seen:
            return True
        if not self.check(a):
            return False
        self.seen = version
        return True


class Names:
    """The objects that a generated function names; arguments of the call are ``a[0]``, ``a[1]``, ..."""

    def __init__(self, arguments: Sequence[Any] = ()) -> None:
        helpers = (("same", same), ("same_array", same_array), ("fits", fits), ("MISSING", MISSING))
        self.bound: dict[str, Any] = dict(helpers, epoch=epoch)
        self._known = {id(t): f"a[{i}]" for i, t in enumerate(arguments)}

    def __call__(self, obj: Any) -> str:
        """The name of an object."""
        if id(obj) not in self._known:
            name = self._known[id(obj)] = f"o{len(self._known)}"
            self.bound[name] = obj
        return self._known[id(obj)]

    def function(self, name: str, parameters: str, expression: str) -> Any:
        """The function of an expression that names the objects."""
        return self.define(name, f"def {name}({parameters}):\n    return ({expression})\n")

    def define(self, name: str, source: str) -> Any:
        """The function that a source which names the objects defines."""
        exec(compile(source, f"<weft {name}>", "exec"), self.bound)  # noqa: S102 - the source is weft's own
        return self.bound.pop(
            name
        )  # its own globals must not hold it, or it would live until the next collection


def _function(conditions: Sequence[str], names: Names) -> Check:
    if not conditions:
        return lambda a: True
    listed = "\n            and ".join(conditions)
    return names.define("check", _CHECK.format(listed))  # type: ignore[no-any-return]


_CHECK = """\
def check(a):
    try:
        if ({}):
            return True
    except Exception:  # something is gone that was there
        pass
    return False
"""


def _condition(guard: Guard, names: Names) -> str:
    slot, value = guard.slot, guard.expected
    if value is MISSING:
        if isinstance(slot, AttrSlot) and not slot.is_raw:
            return f"getattr({names(slot.owner)}, {slot.name!r}, MISSING) is MISSING"
        if isinstance(slot, ItemSlot) and type(slot.owner) is dict:
            return f"{names(slot.index)} not in {names(slot.owner)}"
        return f"{names(slot)}.get() is MISSING"
    code = slot.code(names)
    if type(value) is tuple and not value and isinstance(slot, Reading) and (empty := slot.empty_code(names)):
        return empty
    if isinstance(value, Members):
        scope, listed = slot.parts
        rows = [f"[{n!r}] is {names(x)}" for n, x in zip(listed, value.values, strict=True)]
        return f"(d := {names(scope)})" + " and d".join(rows)
    if isinstance(value, Frame):
        found = "tuple(t)" if isinstance(value.items, tuple) else "len(t)"
        return f"(type(t := {code}) is {names(value.kind)} and {found} == {names(value.items)})"
    if isinstance(value, Like):
        return f"fits({code}, {names(value.shape)}, {names(value.dtype)}, {value.requires_grad})"
    if isinstance(value, MethodType | BuiltinMethodType) and isinstance(slot, AttrSlot):
        return _method_condition(code, value, names)
    if type(value) is ArrayCopy:
        return f"(t := {code}) is {names(value.array)} and same_array(t, {names(value.copy)})"
    if value is None or value is True or value is False:
        return f"{code} is {value}"
    if isinstance(value, _PLAIN) and not isinstance(value, TensorLike):
        return f"((t := {code}) is {names(value)} or same(t, {names(value)}))"
    return f"{code} is {names(value)}"


def _method_condition(code: str, value: Any, names: Names) -> str:
    """Methods are bound anew at each read: the function and the object must be the same."""
    if isinstance(value, MethodType):
        return f"(t := {code}).__func__ is {names(value.__func__)} and t.__self__ is {names(value.__self__)}"
    return f"{code} == {names(value)}"


def _tensor_condition(guard: TensorGuard, names: Names) -> str:
    t = names(guard.tensor)
    slow = f"fits({t}, {names(guard.shape)}, {names(guard.dtype)}, {guard.requires_grad})"
    if guard.form is None:
        return slow
    state = "is not None" if guard.requires_grad else "is None"
    return f"({t}._form is {names(guard.form)} and {t}._node {state} or {slow})"


def rebound_slots(guards: Iterable[Guard]) -> set[tuple[Any, ...]]:
    """The keys of slots that hold another tensor than the one expected, of the same type."""
    found = [(g.slot, g.expected) for g in guards if isinstance(g.expected, Tensor) or _is_tree(g)]
    pairs = [(slot.key, held, slot.get()) for slot, held in found]
    return {key for key, held, now in pairs if now is not held and _is_like(now, held)}


def _is_tree(guard: Guard) -> bool:
    """Whether a guard is on a place that holds a tuple, list or dict with tensors in it."""
    held = guard.expected
    if not isinstance(guard.slot, AttrSlot | ItemSlot | CellSlot) or type(held) not in (tuple, list, dict):
        return False
    return any(isinstance(x, Tensor | tuple | list) for x in (held.values() if type(held) is dict else held))


def _is_like(now: Any, held: Any) -> bool:
    """Whether something is a tensor like another one, or a tree of the same parts."""
    if isinstance(held, Tensor):
        return fits(now, *Like.of(held))
    if type(now) is not type(held):
        return False
    if type(held) is dict:
        return now.keys() == held.keys() and all(_is_like(now[k], held[k]) for k in held)
    if type(held) in (tuple, list):
        return len(now) == len(held) and all(map(_is_like, now, held))
    return same(now, held)


def _held(slot: Any, given: Sequence[Any]) -> Any:
    """What a slot holds now, which may be one of a tensor among the arguments of a call."""
    first = slot.parts[0] if isinstance(slot, Reading) else None
    return slot.read(given[first.index], *slot.parts[1:]) if isinstance(first, StandIn) else slot.get()


def first_violated(
    guards: Iterable[Guard], tensors: Iterable[TensorGuard], arguments: Sequence[Any], given: Sequence[Any]
) -> tuple[str, Any, Any] | None:
    """The first guard that does not hold: what it is on, what it expects and what is there."""
    frozen: tuple[str, Any, Any] | None = None
    for guard in guards:
        names = Names(arguments)  # no counts: they begin when a check is compiled, after the change
        if not _function([_condition(guard, names)], names)(given):
            expected = guard.expected
            try:
                now = not expected if isinstance(expected, bool) else _held(guard.slot, given)
            except AttributeError:  # of a tensor that was frozen: where it is held says more
                frozen = "whether a tensor requires grad", True, False
                continue
            return guard.slot.describe(), expected, now
    for tensor in tensors:
        if not compile_check([], [tensor])(given):
            return OUTSIDE, tensor, tensor.tensor
    return frozen

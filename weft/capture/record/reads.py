"""What captured code reads of Python outside: each read is a guard, and gives what it found a name.

The runtime tells of reads by ``read_attr``, ``read_item``, ``read_global``, ``read_cell``,
``read_member``, ``read_length`` and ``read_contents``, and of objects made inside by ``made_inside``. What
was put somewhere inside, or belongs to the arguments, needs no guard.
"""

from __future__ import annotations

import functools
import types
import weakref
from typing import Any

from weft.capture.convert.functions import is_converted
from weft.capture.program.arguments import readable
from weft.capture.program.guards import Guards, Members
from weft.capture.program.slots import (
    MISSING,
    AttrSlot,
    CellSlot,
    ItemSlot,
    class_slot,
    contents_slot,
    identity_slot,
    lacking_slot,
    length_slot,
    member_slot,
    module_slot,
    result_slot,
)
from weft.capture.runtime.owners import note_outside
from weft.capture.runtime.places import item_at
from weft.ops.op import TensorLike
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor
from weft.transform.capture_root import CaptureRoot

_TRUSTED = frozenset({"weft", "numpy", "math", "builtins", "functools", "itertools", "operator", "typing"})
_MEMBERS = (str, int, float, bytes, tuple)  # what may be asked for in a container, and compares by value


class Reads(CaptureRoot):
    """The side of a root that faces Python.

    Attributes:
        guards: on Python values.
        paths: names of objects and tensors from outside, by id, for the names of inputs.
        kept: the named objects, so that no other gets the id of one while the capture runs.
        cells: variables of functions from outside, by id.
        arguments: tensors among the arguments, by id, each with its number.
        identified: ids of tensors from outside of which it matters which ones they are.
        containers: what the arguments are made of, by id: the key of a version tells what they hold.
        hooked: leaves whose hooks were run.
        journal: the slots that were changed, by key.
    """

    guards_reads = True
    arguments: dict[int, int]
    journal: dict[tuple[Any, ...], Any]

    def begin_reads(self) -> None:
        """Begin with nothing read."""
        self.guards = Guards()
        self.paths: dict[int, str] = {}
        self.kept: list[Any] = []
        self.cells: dict[int, Any] = {}
        self.identified: set[int] = set()
        self.containers: dict[int, Any] = {}
        self.hooked: dict[Any, None] = {}

    def is_outside(self, tensor: Any) -> bool:
        """Whether a tensor was there before the capture."""
        raise NotImplementedError  # the root knows

    def read_attr(self, obj: Any, name: str, value: Any) -> None:
        """Note that an attribute was read."""
        if isinstance(obj, TensorLike | tuple):
            return  # it cannot change
        if _is_trusted(obj):
            self._read_module(obj, name, value)
            return
        if value is not MISSING and isinstance(getattr(type(obj), name, None), property):
            return  # what its function reads is noted
        if id(obj) not in self.guards.inside or isinstance(value, TensorLike):
            self._name(value, obj, name)
        self._read(AttrSlot(obj, name), obj, value)

    def _read_module(self, module: Any, name: str, value: Any) -> None:
        """Note that something of a module of weft or of a library was read: somebody may replace it."""
        if isinstance(value, types.ModuleType) or vars(module).get(name, MISSING) is not value:
            return
        if value is MISSING:
            self.guards.add(lacking_slot(module, name), False)
            return
        known = self.guards.get(("module", id(module)))
        held = {} if known is None else dict(zip(known.slot.parts[1], known.expected.values, strict=True))
        if name not in held:
            names = (*held, name)
            self.guards.put(module_slot(module, names), Members((*held.values(), value)))

    def read_class(self, kind: type, name: str, value: Any) -> None:
        """Note that captured code relies on what stands in a class under a name: a property, a descriptor."""
        self._read(class_slot(kind, name), kind, value)

    def read_item(self, container: Any, index: Any, value: Any) -> None:
        """Note that an item of a list or a dict was read."""
        if isinstance(container, list | dict | tuple):
            self._name(value, container, f"[{index!r}]")
        if isinstance(container, list | dict):
            self._read(ItemSlot(container, index), container, value)

    def read_global(self, scope: dict[str, Any], name: str, value: Any) -> None:
        """Note that a global was read."""
        if isinstance(value, types.ModuleType) and _is_trusted(value):
            return
        if value is not MISSING:
            self.name_outside(value, name)
        self._read(ItemSlot(scope, name, f"the global {name!r}"), scope, value)

    def read_cell(self, cell: Any, name: str, value: Any) -> None:
        """Note that a variable of an enclosing function was read."""
        if id(cell) in self.cells:
            self.name_outside(value, name)
            self._read(CellSlot(cell, name), cell, value)

    def read_slot(self, slot: Any, value: Any) -> None:
        """Note what a slot holds that each call is to look at again."""
        self._read(slot, slot.owner, value)

    def read_call(self, function: Any, value: Any) -> None:
        """Note that a function which each call is to ask again gave a value."""
        self._read(result_slot(function), function, value)

    def read_member(self, container: Any, member: Any, found: bool) -> None:
        """Note that captured code asked whether something is in a list, dict or set."""
        if not isinstance(container, list | dict | set):
            return
        if not isinstance(member, _MEMBERS):
            self.read_contents(container)
            return
        if not self.is_written(("item", id(container), member)):
            self._read(member_slot(container, member), container, found)

    def read_length(self, container: Any) -> None:
        """Note that the length of a list, dict or set was read."""
        if isinstance(container, list | dict | set):
            self._read(length_slot(container), container, length_slot(container).get())

    def read_contents(self, container: Any) -> None:
        """Note that everything in a container was read."""
        if not isinstance(container, list | tuple | dict | set) or _is_long(container):
            slot = contents_slot(container)
            self._read(slot, container, slot.get())
            return
        self.read_length(container)
        pairs = container.items() if isinstance(container, dict) else enumerate(container)
        for index, value in pairs:
            self.read_item(container, index, value)

    def read_names(self, obj: Any, own: dict[str, Any]) -> None:
        """Note that captured code asked which attributes an object has."""
        self._read(length_slot(own), obj, length_slot(own).get())

    def read_identity(self, tensor: Any) -> None:
        """Note that captured code asked which tensor one is: a call is to have the same one."""
        if id(tensor) in self.arguments:
            self.guards.add(identity_slot(tensor, tensor), True)
        elif self.is_outside(tensor):
            self.identified.add(id(tensor))

    def read_apart(self, one: Any, other: Any) -> None:
        """Note that captured code relies on two tensors being different ones."""
        given = [x for x in (one, other) if id(x) in self.arguments]
        if len(given) == 2:
            return  # which tensors among the arguments are one, the key of a call tells
        if not (self.is_outside(one) and self.is_outside(other)):
            return  # one was made inside
        self.identified.update(id(x) for x in (one, other) if id(x) not in self.arguments)
        if given:
            self.guards.add(identity_slot(given[0], other if given[0] is one else one), False)

    def is_named(self, obj: Any) -> bool:
        """Whether an object was found outside, by a name."""
        return id(obj) in self.paths

    def made_inside(self, obj: Any) -> Any:
        """Note that captured code made an object, so that what it holds needs no guard; returns it."""
        self.guards.inside[id(obj)] = obj
        return obj

    def is_inside(self, obj: object) -> bool:
        """Whether captured code made an object."""
        return id(obj) in self.guards.inside

    def is_known(self, key: tuple[Any, ...]) -> bool:
        """Whether each call finds in a slot, or has put there, what it holds now."""
        return key in self.guards or self.is_written(key)

    def is_written(self, key: tuple[Any, ...]) -> bool:
        """Whether the code changed a slot by now, in the running region or around it."""
        whole = ("contents", *key[1:2])  # all that a container holds, of which an item may be asked for
        capture = thread.capture
        while capture is not None:
            if key in capture.journal:
                return True
            if key[0] == "item" and whole in capture.journal:
                slot, before = capture.journal[whole]
                if item_at(before, key[2]) is not item_at(slot.get(), key[2]):
                    return True
            capture = capture.parent
        return False

    def _read(self, slot: Any, owner: Any, value: Any) -> None:
        if slot.key in self.guards or self.is_written(slot.key) or id(owner) in self.guards.inside:
            return
        if id(owner) in self.containers:
            return
        if isinstance(value, Tensor) and not self.is_outside(value):
            return  # it was put there inside
        self.guards.add(slot, value)
        note_outside(value)
        self.read_function(value)

    def read_function(self, function: Any) -> None:
        """Note the default arguments of a function from outside, and that its variables are outside too."""
        while isinstance(function, functools.partial):
            function = function.func
        plain = function.__func__ if isinstance(function, types.MethodType) else function
        if isinstance(plain, types.FunctionType) and not is_converted(plain):
            self.cells.update((id(cell), cell) for cell in plain.__closure__ or ())
            for name in ("__code__", "__defaults__", "__kwdefaults__"):
                if getattr(plain, name) is not None:
                    self.guards.add(AttrSlot(plain, name), getattr(plain, name))
            self.read_contents(plain.__kwdefaults__ or ())

    def read_hooks(self, leaf: Any) -> None:
        """Note that the hooks of a leaf were run: another call is to find the same ones."""
        self.hooked[leaf] = None

    def name_outside(self, value: Any, name: str) -> None:
        """Name something from outside, for the names of inputs; the first name counts."""
        if not isinstance(value, bool | int | float | str | None) and id(value) not in self.paths:
            self.paths[id(value)] = name
            if isinstance(value, Tensor):  # which may die, and another one come to be where it was
                forget = functools.partial(_forget, self.paths, id(value))
                self.kept.append(weakref.ref(value, forget))
            elif not isinstance(value, TensorLike):
                self.kept.append(value)

    def _name(self, value: Any, owner: Any, step: str) -> None:
        """Name what was found in something by the way to it."""
        if id(value) in self.paths:
            return
        start = self.paths.get(id(owner), "")
        step = readable(step).removeprefix(".")
        self.name_outside(value, step if start in ("", "self") else f"{start}.{step}")


_LONG = 32  # items from which on plain ones are compared all at once
_HUGE = 1000  # from which on all but tensors are


def _is_long(container: Any) -> bool:
    """Whether a container is long, and holds plain values only; or is huge, and holds no tensors."""
    if len(container) >= _HUGE:
        held = container.values() if isinstance(container, dict) else container
        return not any(isinstance(x, TensorLike) for x in held)
    if len(container) < _LONG or isinstance(container, dict | set):
        return False
    return all(isinstance(x, _MEMBERS) for x in container)


def _is_trusted(obj: Any) -> bool:
    """Whether something is a module of weft or of a library, whose names do not change."""
    return isinstance(obj, types.ModuleType) and obj.__name__.partition(".")[0] in _TRUSTED


def _forget(paths: dict[int, str], number: int, dead: object) -> None:
    """Let nothing that comes to be where a tensor was have its name."""
    paths.pop(number, None)

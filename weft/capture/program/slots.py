"""Slots of Python that captured code may read and change: attributes, items, closure cells, generators.

Each says how it is read, written and named, and the expression that reads it in a generated function. Slots
that are only read, such as the length of a list, are made by functions. The slots of tensors themselves,
their data and gradient, are in ``weft.transform.slots``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from weft.capture.program.classes import MISSING as MISSING
from weft.capture.program.classes import base_method, class_attribute, has_users
from weft.ops.alias import layout_of
from weft.tensor.generator import generator_outside
from weft.transform.slots import Slot

Bind = Callable[[Any], str]  # gives an object a name in a generated function


class PythonSlot(Slot):
    """A place of Python.

    Attributes:
        words: what it is, for messages.
        parts: the objects that the expression which reads it is made of; the first one owns it.
        template: that expression, with a number in braces for each part.
    """

    __slots__ = ("parts", "template", "words")

    def __init__(self, key: tuple[Any, ...], words: str, template: str, *parts: Any) -> None:
        self.key = key
        self.words = words
        self.template = template
        self.parts = parts

    @property
    def owner(self) -> Any:
        """The object that it belongs to."""
        return self.parts[0]

    def describe(self) -> str:
        """In words, for messages."""
        return self.words

    def code(self, bind: Bind) -> str:
        """The expression that reads it."""
        return self.template.format(*map(bind, self.parts))

    def apply(self, content: Any) -> None:
        """Let it hold what a call of a compiled function left there."""
        self.put(content)


class AttrSlot(PythonSlot):
    """An attribute of an object, as ``object`` keeps it: methods of the user are not run."""

    __slots__ = ("is_raw", "name", "own", "read_by", "write_by")

    def __init__(self, obj: Any, name: str) -> None:
        words = f"the attribute {name!r} of a {type(obj).__name__}"
        key = ("attr", id(obj), name)
        lazy = isinstance(class_attribute(type(obj), name), cached_property)
        self.is_raw = lazy or has_users(type(obj), "__getattribute__", "__getattr__")
        self.read_by = _get_own if lazy else object.__getattribute__
        if self.is_raw:
            super().__init__(key, words, "{1}({0}, {2})", obj, self.read_by, name)
        elif name.isidentifier():
            super().__init__(key, words, f"{{0}}.{name}", obj)
        else:  # modules of a list have numbers for names
            super().__init__(key, words, "getattr({0}, {1})", obj, name)
        self.name = name
        self.write_by = _plain_method(type(obj), "__setattr__", setattr)
        self.own = name in _own(obj, name)  # not merely an attribute of its class

    def get(self) -> Any:
        """What it holds now."""
        if not self.is_raw:
            return getattr(self.owner, self.name, MISSING)
        try:
            return self.read_by(self.owner, self.name)
        except AttributeError:
            return MISSING

    def put(self, content: Any) -> None:
        """Let it hold something else; what only the class had is taken off the object again."""
        inherited = not self.own and content is getattr(type(self.owner), self.name, MISSING)
        if content is not MISSING and not inherited:
            self.write(content)
        elif self.name in _own(self.owner, self.name) and self.get() is not MISSING:
            self.remove()

    def apply(self, content: Any) -> None:
        """Let it hold what a call left there; a way that did not set it leaves what the class has."""
        if self.name in _own(self.owner, self.name) and content is not MISSING:  # perhaps since another call
            self.write(content)
            return
        inherited = MISSING if self.own else getattr(type(self.owner), self.name, MISSING)
        is_kept = type(content) in (int, float) and type(content) is type(inherited) and content == inherited
        if not is_kept:
            self.put(content)

    def write(self, content: Any) -> None:
        """Set the attribute."""
        self.write_by(self.owner, self.name, content)

    def remove(self) -> None:
        """Delete the attribute."""
        _plain_method(type(self.owner), "__delattr__", delattr)(self.owner, self.name)


def _get_own(obj: Any, name: str) -> Any:
    """An attribute that an object has itself, which its class would make."""
    return _own(obj, "").get(name, MISSING)


def _own(obj: Any, name: str) -> Any:
    """The attributes that an object has itself; the one named, if it has no dict."""
    try:
        return object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return (name,)


def _plain_method(kind: type, name: str, plain: Callable[..., None]) -> Callable[..., Any]:
    """What sets or deletes attributes: the plain function, or that of the first base that is no user's."""
    return base_method(kind, name) if has_users(kind, name) else plain


class ItemSlot(PythonSlot):
    """An item of a dict or a list, as those keep it; a global is an item of its module's dict."""

    __slots__ = ("index", "is_raw")

    def __init__(self, container: Any, index: Any, words: str = "") -> None:
        words = words or f"the item {index!r} of a {type(container).__name__}"
        key = ("item", id(container), index)
        self.is_raw = isinstance(container, dict | list) and type(container) not in (dict, list)
        if self.is_raw:
            super().__init__(key, words, "{1}({0}, {2})", container, _get_item, index)
        else:
            super().__init__(key, words, "{0}[{1}]", container, index)
        self.index = index

    def get(self) -> Any:
        """What it holds now."""
        if self.is_raw:
            return _get_item(self.owner, self.index)
        try:
            return self.owner[self.index]
        except (KeyError, IndexError):
            return MISSING

    def put(self, content: Any) -> None:
        """Let it hold something else."""
        if content is MISSING:
            base_method(type(self.owner), "pop")(self.owner, self.index, None)
        else:
            base_method(type(self.owner), "__setitem__")(self.owner, self.index, content)


def _get_item(container: Any, index: Any) -> Any:
    """An item of a dict or list, whatever methods its class has."""
    if isinstance(container, dict):
        return dict.get(container, index, MISSING)
    try:
        return list.__getitem__(container, index)
    except (IndexError, TypeError):  # where a dict was, perhaps
        return MISSING


class CellSlot(PythonSlot):
    """A variable of an enclosing function."""

    __slots__ = ()

    def __init__(self, cell: Any, name: str = "") -> None:
        which = f"the variable {name!r}" if name else "a variable"
        words = f"{which} of an enclosing function"
        super().__init__(("cell", id(cell)), words, "{0}.cell_contents", cell)

    def get(self) -> Any:
        """What it holds now."""
        try:
            return self.owner.cell_contents
        except ValueError:
            return MISSING

    def put(self, content: Any) -> None:
        """Let it hold something else."""
        if content is MISSING:
            del self.owner.cell_contents
        else:
            self.owner.cell_contents = content

    write = put


class GeneratorSlot(PythonSlot):
    """The state of a random generator while a capture draws from it: a tensor of its seed and draws."""

    __slots__ = ("generator", "states")

    def __init__(self, generator: Any, states: dict[Any, Any]) -> None:
        words = "the state of a random generator"
        super().__init__(("generator", id(generator)), words, "{0}._state_array()", generator)
        self.generator = generator
        self.states = states  # of the root capture, by generator

    def get(self) -> Any:
        """The tensor that stands for the state."""
        return self.states.get(self.generator, MISSING)

    def put(self, content: Any) -> None:
        """Let another tensor stand for the state."""
        if content is MISSING:
            self.states.pop(self.generator, None)
        else:
            self.states[self.generator] = content

    def is_new(self) -> bool:
        """Whether the generator was made inside, and has no state here."""
        return self.get() is MISSING

    def apply(self, content: Any) -> None:
        """Set the state of the generator itself."""
        self.generator._set_state_array(content._data)


# Slots that are only read


class PathSlot(PythonSlot):
    """A part of the tree that another slot holds, by the keys on the way to it."""

    __slots__ = ("path", "slot")

    def __init__(self, slot: PythonSlot, path: tuple[Any, ...]) -> None:
        words = slot.describe() + "".join(f"[{key!r}]" for key in path)
        super().__init__(("path", slot.key, path), words, "", *slot.parts)
        self.slot = slot
        self.path = path

    def get(self) -> Any:
        """What it holds now."""
        found = self.slot.get()
        for key in self.path:
            if not isinstance(found, tuple | list | dict):
                return MISSING
            found = _get_item([*tuple.__iter__(found)] if isinstance(found, tuple) else found, key)
        return found

    def code(self, bind: Bind) -> str:
        """The expression that reads it."""
        keys = [repr(key) if isinstance(key, int | str) else bind(key) for key in self.path]
        return self.slot.code(bind) + "".join(f"[{key}]" for key in keys)

    def put(self, content: Any) -> None:
        """Nothing: whoever replaces the tree restores it."""


def parts_of(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """What a tree of tuples, lists and dicts is made of, itself first, each with the way to it."""
    yield path, tree
    pairs = tree.items() if type(tree) is dict else enumerate(tree) if type(tree) in (tuple, list) else ()
    for key, value in pairs:
        yield from parts_of(value, (*path, key))


class KindSlot(PythonSlot):
    """The class of what another slot holds."""

    __slots__ = ("slot",)

    def __init__(self, slot: PythonSlot) -> None:
        super().__init__(("kind", *slot.key), f"the class of {slot.describe()}", "", *slot.parts)
        self.slot = slot

    def get(self) -> Any:
        """The class now."""
        return type(self.slot.get())

    def code(self, bind: Bind) -> str:
        """The expression that reads it."""
        return f"type({self.slot.code(bind)})"

    def put(self, content: Any) -> None:
        """Nothing: whoever changes what it is about restores that."""


class Reading(PythonSlot):
    """Something that captured code asked of an object."""

    __slots__ = ("nothing", "read")

    def __init__(
        self,
        key: tuple[Any, ...],
        words: str,
        template: str,
        read: Callable[..., Any],
        *parts: Any,
        nothing: str = "",
    ) -> None:
        super().__init__(key, words, template, *parts)
        self.read = read
        self.nothing = nothing  # a quick expression for the answer being empty, if there is one

    def get(self) -> Any:
        """The answer now."""
        return self.read(*self.parts)

    def empty_code(self, bind: Bind) -> str:
        """The expression of whether the answer is empty; "" if there is none quicker than reading it."""
        return self.nothing.format(*map(bind, self.parts))

    def put(self, content: Any) -> None:
        """Nothing: whoever changes what it is about restores that."""


class Within(PythonSlot):
    """Something that captured code asked of what a slot holds."""

    __slots__ = ("asked", "slot")

    def __init__(self, asked: Reading, slot: PythonSlot) -> None:
        super().__init__(("within", asked.key[0], slot.key), asked.words, asked.template, slot.owner)
        self.asked = asked
        self.slot = slot

    def get(self) -> Any:
        """The answer now."""
        return self.asked.read(self.slot.get(), *self.asked.parts[1:])

    def code(self, bind: Bind) -> str:
        """The expression that asks."""
        return self.template.format(self.slot.code(bind), *map(bind, self.asked.parts[1:]))


def result_slot(function: Callable[[], Any]) -> Reading:
    """What a function of no arguments gives."""
    words = "a value read by weft.jit.dynamic"
    return Reading(("result", id(function)), words, "{0}()", lambda f: f(), function)


def module_slot(module: Any, names: tuple[str, ...]) -> Reading:
    """Functions and values of a module, of which a guard expects ``Members``."""
    words = f"what {module.__name__} has under {', '.join(names)}"
    read = lambda scope, names: tuple(scope[n] for n in names)  # noqa: E731 - what the template says
    return Reading(("module", id(module)), words, "[{0}[n] for n in {1}]", read, vars(module), names)


def lacking_slot(module: Any, name: str) -> Reading:
    """Whether a module has something under a name that was looked for in vain."""
    words = f"whether {module.__name__} has {name}"
    read = lambda scope, name: name in scope  # noqa: E731 - what the template says
    return Reading(("lacking", id(module), name), words, "({1} in {0})", read, vars(module), name)


def context_slot(variable: Any, default: tuple[Any, ...]) -> Reading:
    """What a context variable holds."""
    words = f"the context variable {variable.name!r}"
    key = ("context", id(variable), *map(id, default))
    return Reading(key, words, "{0}.get(*{1})", lambda v, d: v.get(*d), variable, default)


def cached_slot(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Reading:
    """What a function with a cache gives for plain arguments."""
    words = f"the cached result of {function.__name__}"
    key = ("cached", id(function), args, tuple(kwargs.items()))
    read = lambda f, a, k: f(*a, **k)  # noqa: E731 - what the template says
    return Reading(key, words, "{0}(*{1}, **{2})", read, function, args, kwargs)


def current_slot(generator: Any) -> Reading:
    """Whether a generator is the current one, which draws without one of their own use."""
    words, template = "whether a random generator is the current one", "({1}() is {0})"
    read = lambda g, now: now() is g  # noqa: E731 - what the template says
    return Reading(("current", id(generator)), words, template, read, generator, generator_outside)


def class_slot(kind: type, name: str) -> Reading:
    """What stands in a class itself under a name."""
    words = f"the attribute {name!r} of the class {kind.__name__}"
    read, key = (lambda c, n: c.__dict__.get(n, MISSING)), ("class", id(kind), name)
    return Reading(key, words, "{0}.__dict__[{1}]", read, kind, name)


def member_slot(container: Any, member: Any) -> Reading:
    """Whether something is in a container."""
    words = f"whether {member!r} is in a {type(container).__name__}"
    key = ("member", id(container), type(member), member)
    return Reading(key, words, "({1} in {0})", lambda c, m: m in c, container, member)


def length_slot(container: Any) -> Reading:
    """How many items a list has; of a dict its keys in order, of a set its elements."""
    read = tuple if isinstance(container, dict) else frozenset if isinstance(container, set) else len
    words = f"the length of a {type(container).__name__}"
    nothing = "not {0}" if type(container) is dict else ""
    template = f"{read.__name__}({{0}})"
    return Reading(("length", id(container)), words, template, read, container, nothing=nothing)


def identity_slot(tensor: Any, other: Any) -> Reading:
    """Whether a tensor is a certain one."""
    words = "whether an argument is a certain tensor"
    read, key = (lambda a, b: a is b), ("identity", id(tensor), id(other))
    return Reading(key, words, "({0} is {1})", read, tensor, other)


def contents_slot(container: Any) -> Reading:
    """All items of a container, at once."""
    words = f"the contents of a {type(container).__name__}"
    pairs = isinstance(container, Mapping)
    read, template = (_pairs, "tuple({0}.items())") if pairs else (tuple, "tuple({0})")
    return Reading(("contents", id(container)), words, template, read, container)


def _pairs(mapping: Mapping[Any, Any]) -> tuple[Any, ...]:
    return tuple(mapping.items())


def grad_slot(tensor: Any) -> Reading:
    """The gradient of a tensor, as something that is read."""
    read, template = (lambda t: getattr(t, "_grad", None)), "getattr({0}, '_grad', None)"
    return Reading(("grad", id(tensor)), "the gradient of a tensor", template, read, tensor)


def device_slot(tensor: Any) -> Reading:
    """The name of the device that a tensor is on."""
    read = lambda t: str(t.device)  # noqa: E731 - as its siblings
    return Reading(("device", id(tensor)), "the device of a tensor", "str({0}.device)", read, tensor)


def leaf_slot(tensor: Any) -> Reading:
    """Whether a tensor is a leaf."""
    read = lambda t: t.is_leaf  # noqa: E731 - as its siblings
    return Reading(("leaf", id(tensor)), "whether a tensor is a leaf", "{0}.is_leaf", read, tensor)


def layout_slot(tensor: Any) -> Reading:
    """How the elements of a tensor lie: None if one after another, else its strides."""
    template = "({1}({0}) if hasattr({0}, '_link') else None)"
    read = lambda t, layout: layout(t)  # noqa: E731 - as its siblings
    return Reading(("layout", id(tensor)), "the layout of a tensor", template, read, tensor, layout_of)


def view_slot(tensor: Any) -> Reading:
    """Whether a tensor is a view."""
    return Reading(("view", id(tensor)), "whether a tensor is a view", "{0}.is_view", _is_view, tensor)


def _is_view(tensor: Any) -> bool:
    return bool(tensor.is_view)


def hooks_slot(tensor: Any) -> Reading:
    """The hooks of a leaf, by number."""
    template = "(*(n := {0}._node).hooks, *n.post_hooks)"
    nothing = "not ((n := {0}._node).hooks or n.post_hooks)"
    return Reading(("hooks", id(tensor)), "the hooks of a tensor", template, _hooks, tensor, nothing=nothing)


def _hooks(tensor: Any) -> tuple[int, ...]:
    return (*tensor._node.hooks, *tensor._node.post_hooks)

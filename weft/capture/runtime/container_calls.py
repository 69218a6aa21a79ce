"""Methods of lists, dicts and sets: what they read and change is told to the capture."""

from __future__ import annotations

from functools import partial
from typing import Any

from weft.capture.program.slots import ItemSlot
from weft.capture.runtime.access import base_delitem, base_getitem, base_setitem, before_item
from weft.capture.runtime.apart import parts_for
from weft.capture.runtime.equality import count_in, has_users_equality, position_in
from weft.capture.runtime.handed import callback, with_text
from weft.capture.runtime.hashed import known_key, settled
from weft.capture.runtime.joined import before_joined_read
from weft.capture.runtime.lists import GraphList, check_growth, check_plain
from weft.capture.runtime.methods import plain_key
from weft.capture.runtime.operators import binary
from weft.capture.runtime.owners import is_made_inside, is_outside, note_made
from weft.capture.runtime.places import before_change, check_joined_change, note_read
from weft.capture.runtime.users_keys import note_key, note_keys
from weft.capture.runtime.whole import items, whole
from weft.tensor.mode import thread


def call_container(
    obj: Any, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str = ""
) -> Any:
    """Call a method of a list, dict or set."""
    name = name or method.__name__
    if name in SPECIAL and not kwargs:
        return SPECIAL[name](name, method, obj, *args)
    if isinstance(obj, GraphList) and name not in _GROWING:
        obj.need_plain(f"list.{name}")
    args = parts_for(obj, name, args)
    if not isinstance(obj, list):  # what is given is a key
        args, kwargs = with_text(method, args, kwargs)
        if name in _KEYED:
            args = (*map(known_key, args[:1]), *args[1:])
        _note_keys(obj, name, args)
    elif name in ("pop", "insert"):
        args = (*map(plain_key, args[:1]), *args[1:])
    args = tuple(map(callback, args))
    kwargs = {k: callback(x) for k, x in kwargs.items()}
    if isinstance(obj, list):
        found = search(obj, name, args)
        return _call_list(obj, name, method, args, kwargs) if found is None else found[0]
    if isinstance(obj, dict):
        return _call_dict(obj, name, method, args, kwargs)
    if name in _SET_CHANGES:
        check_growth(obj, name)
        before_change(obj)
    else:
        whole(obj)
    out = method(*args, **kwargs)
    if name not in _KEYED:
        settled(obj)
    return out


_KEYED = frozenset({"get", "setdefault", "pop", "move_to_end", "__contains__", "add", "discard", "remove"})


def _note_keys(obj: Any, name: str, args: tuple[Any, ...]) -> None:
    """Note what is read where keys are hashed and compared."""
    if name in (_OF_DICTS if isinstance(obj, dict) else _OF_SETS):
        for key in args[:1]:
            note_key(key, obj)
    elif args and isinstance(obj, set):
        note_keys((*obj, *[k for x in args if isinstance(x, list | tuple | set | frozenset) for k in x]))


def search(obj: Any, name: str, args: tuple[Any, ...]) -> tuple[Any] | None:
    """What a method of a list or tuple gives that compares items by methods of the user; else None."""
    if name not in ("index", "count", "remove") or not args or not has_users_equality(args[0], obj):
        return None
    equal = partial(binary, "==")
    if name == "count":
        return (count_in(obj, args[0], equal),)
    at = position_in(obj, args[0], equal, *args[1:])
    if name == "index":
        return (at,)
    _call_list(obj, "pop", obj.pop, (at,), {})
    return (None,)


_OF_SETS = frozenset({"add", "discard", "remove", "__contains__"})
_OF_DICTS = frozenset({"get", "pop", "setdefault", "__contains__", "__getitem__", "__setitem__"})
_LIST_CHANGES = frozenset({"append", "extend", "insert", "pop", "remove", "clear", "reverse", "sort"})
_LIST_CHANGES |= {"__imul__"}
_DICT_CHANGES = frozenset({"update", "pop", "popitem", "clear", "setdefault", "move_to_end", "subtract"})
_SET_CHANGES = frozenset({"add", "discard", "remove", "pop", "clear", "update", "difference_update"})
_SET_CHANGES |= {"intersection_update", "symmetric_difference_update"}


_COPIES = frozenset({"copy", "fromkeys", "__add__", "__mul__", "__rmul__", "__or__", "__ror__"})


def _call_list(obj: list[Any], name: str, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if name not in _LIST_CHANGES:
        note_read(obj)
        whole(obj)
        out = method(*args, **kwargs)
        return note_made(out) if isinstance(out, list) and name in _COPIES else out
    if name in ("sort", "reverse") and is_outside(obj):
        items = [*whole(obj)]
        getattr(items, name)(*args, **kwargs)
        base_setitem(obj, slice(None), items)
        return None
    check_growth(obj, name)
    before_change(obj)
    if name not in ("append", "extend"):
        note_read(obj)
    return method(*args, **kwargs)


def _call_dict(
    obj: dict[Any, Any], name: str, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if name not in _DICT_CHANGES:
        _note_dict(obj, name, args)
        out = method(*args, **kwargs)
        return note_made(out) if type(out) is dict and name in _COPIES else out
    if name in ("setdefault", "pop"):
        _note_dict(obj, "get", args)
    if is_made_inside(obj) or thread.capture.region:
        before_change(obj)
    elif name == "update" and (not args or isinstance(args[0], dict)):
        for key in {**(args[0] if args else {}), **kwargs}:
            before_item(obj, key)
    elif name in ("setdefault", "pop"):
        check_joined_change(obj)
        thread.capture.before_write(ItemSlot(obj, args[0]))
    else:
        check_growth(obj, name)
    out = method(*args, **kwargs)
    if name not in _KEYED:
        settled(obj)
    return out


def _note_dict(obj: dict[Any, Any], name: str, args: tuple[Any, ...]) -> None:
    """Tell the root what is read of a dict from outside."""
    root = thread.capture.root
    before_joined_read(obj)
    if is_made_inside(obj) or not root.guards_reads:
        return
    if name == "get":
        if args[0] in obj:
            root.read_item(obj, args[0], obj[args[0]])
        else:
            root.read_member(obj, args[0], False)
    elif name in ("items", "keys", "values", "copy"):
        root.read_contents(obj)


# Special methods, called by their names


def _changes(name: str, method: Any, obj: Any, *args: Any) -> Any:
    """``l.__iadd__(items)``, and ``super().__init__(items)`` of a class made from a container."""
    for x in args:
        items(x)
    if name != "__init__":
        check_growth(obj, name)
    before_change(obj)
    if name == "__iadd__" and isinstance(obj, GraphList):
        obj.extend(*args)
        return obj
    if isinstance(obj, GraphList) and name != "__init__":
        obj.need_plain(f"list.{name}")
    return method(*args)


def _looks(name: str, method: Any, obj: Any, *args: Any) -> Any:
    """A method that looks into a container, and what it is compared with."""
    for x in (obj, *args):
        whole(x)
        check_plain(x, f"list.{name}")
    return method(*args)


def _contains(name: str, method: Any, obj: Any, member: Any) -> Any:
    check_plain(obj, f"list.{name}")
    whole(obj)
    return method(member if isinstance(obj, list) else known_key(member))


SPECIAL: dict[str, Any] = {
    "__getitem__": lambda _, __, obj, key: base_getitem(obj, key),
    "__setitem__": lambda _, __, obj, key, value: base_setitem(obj, key, value),
    "__delitem__": lambda _, __, obj, key: base_delitem(obj, key),
    "__contains__": _contains,
}
SPECIAL |= dict.fromkeys(("__init__", "__iadd__", "__ior__", "__iand__", "__isub__", "__ixor__"), _changes)
SPECIAL |= dict.fromkeys(("__len__", "__iter__", "__reversed__", "__eq__", "__ne__"), _looks)
SPECIAL |= dict.fromkeys(("__lt__", "__le__", "__gt__", "__ge__"), _looks)
_GROWING = frozenset({"append", "extend", "clear", "copy"})

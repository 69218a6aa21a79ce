"""Records: ``dataclass`` and ``NamedTuple`` as the type checkers know them, made in a fraction of the time.

The compiler has two hundred small classes. The standard library writes, and compiles, up to six functions for
each of them, and typing compiles every annotation: a quarter of the time of a first compile. Here one
function is written for a class, its constructor; the others are closures. What weft does not use (order,
metadata, texts of what holds itself) is not here; the functions of ``dataclasses`` take such classes, too.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

MISSING: Any = object()


class Field:
    """What a class says of one of its fields."""

    __slots__ = ("default", "default_factory", "init", "kw_only", "repr")

    def __init__(
        self,
        *,
        default: Any = MISSING,
        default_factory: Any = MISSING,
        init: bool = True,
        repr: bool = True,
        kw_only: bool = MISSING,
    ) -> None:
        self.default, self.default_factory = default, default_factory
        self.init, self.repr, self.kw_only = init, repr, kw_only


Fields = dict[str, Field]
Values = Callable[[Any], tuple[Any, ...]]  # of the fields of an object


class _Record:
    """What is known of a class: the fields that it declares, those of its objects, and its settings."""

    __slots__ = ("fields", "own", "settings")

    def __init__(self, own: Fields, fields: Fields, settings: dict[str, bool]) -> None:
        self.own, self.fields, self.settings = own, fields, settings


def make_dataclass(cls: type | None = None, /, **options: bool) -> Any:
    """As ``dataclasses.dataclass``, with ``frozen``, ``eq``, ``repr``, ``slots`` and ``kw_only``."""
    return _make(cls, **options) if cls is not None else lambda cls: _make(cls, **options)


def _make(
    cls: type,
    frozen: bool = False,
    eq: bool = True,
    repr: bool = True,
    slots: bool = False,
    kw_only: bool = False,
) -> type:
    own = _own_fields(cls, kw_only)
    fields = {name: f for base in cls.__mro__[:0:-1] for name, f in _declared(base).items()} | own
    values = _getter(fields)
    settings = {"frozen": frozen, "eq": eq, "repr": repr, "kw_only": kw_only}
    made: dict[str, Any] = {
        "__init__": _constructor(cls, fields, frozen),
        "__match_args__": tuple([name for name, f in fields.items() if f.init and not f.kw_only]),
        "__dataclass_fields__": _Standard("__dataclass_fields__"),
        "__dataclass_params__": _Standard("__dataclass_params__"),
        "_record": _Record(own, fields, settings),
    }
    if repr:
        made["__repr__"] = _printer([name for name, f in fields.items() if f.repr])
    if eq:
        made["__eq__"] = _comparison(values)
        made["__hash__"] = (lambda self: hash(values(self))) if frozen else None
    if frozen:
        made["__setattr__"] = made["__delattr__"] = _refusal(fields)
    if frozen and slots:  # what pickle and copy do by themselves would set attributes
        made["__getstate__"], made["__setstate__"] = _state_functions(values, fields)
    return _finished(cls, own, made, slots)


def _own_fields(cls: type, kw_only: bool) -> Fields:
    """The fields that a class itself annotates."""
    found = {}
    for name, annotation in cls.__annotations__.items():
        if annotation.startswith("ClassVar"):
            continue
        default = vars(cls).get(name, MISSING)
        found[name] = field = default if isinstance(default, Field) else Field(default=default)
        if field.kw_only is MISSING:
            field.kw_only = kw_only
    return found


def _declared(cls: type) -> Fields:
    """The fields that a base class declared, if it is a record."""
    found: Fields = vars(cls)["_record"].own if "_record" in vars(cls) else {}
    return found


def _finished(cls: type, own: Fields, made: dict[str, Any], slots: bool) -> type:
    """The class with the methods that were made, beside those that it has written out."""
    space = dict(vars(cls))
    if space.get("__hash__", MISSING) is None:  # Python's, because there is an __eq__
        del space["__hash__"]
    made |= {name: f.default for name, f in own.items() if f.default is not MISSING and not slots}
    hidden = [name for name, f in own.items() if slots or isinstance(space.get(name), Field)]
    if not slots:
        for name in hidden:
            delattr(cls, name)
        for name, value in made.items():
            if name not in space or name in hidden:
                setattr(cls, name, value)
        return cls
    taken = {name for base in cls.__mro__[1:] for name in getattr(base, "__slots__", ())}
    space = made | {name: value for name, value in space.items() if name not in hidden}
    space["__slots__"] = tuple(name for name in own if name not in taken)
    space["__qualname__"] = cls.__qualname__
    for name in ("__dict__", "__weakref__"):
        space.pop(name, None)
    return type(cls)(cls.__name__, cls.__bases__, space)


# Methods


def _constructor(cls: type, fields: Fields, frozen: bool) -> Callable[..., None]:
    """The one function that is compiled: objects are made often."""
    scope: dict[str, Any] = {"put": object.__setattr__, "missing": MISSING}
    plain: list[str] = []
    keywords: list[str] = []
    body = []
    for name, f in fields.items():
        given, usual = _said(name, f, scope)
        if given:
            body.append(f"put(self, {name!r}, {given})" if frozen else f"self.{name} = {given}")
        if f.init:
            (keywords if f.kw_only else plain).append(name + usual)
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(["self", *plain, *(["*", *keywords] if keywords else [])])
    # nothing but names of fields is in the text
    exec(f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"]), scope)  # noqa: S102
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _said(name: str, f: Field, scope: dict[str, Any]) -> tuple[str, str]:
    """What a constructor sets a field to, "" for nothing, and the default of its parameter."""
    if f.default_factory is not MISSING:
        scope[f"make_{name}"] = f.default_factory
        made = f"make_{name}()"
        return (f"{made} if {name} is missing else {name}" if f.init else made), "=missing"
    if f.default is not MISSING:
        scope[f"usual_{name}"] = f.default
        return name if f.init else f"usual_{name}", f"=usual_{name}"
    return name if f.init else "", ""


def _getter(names: Iterable[str]) -> Values:
    """What gives the values of fields as a tuple."""
    names = tuple(names)
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple([getattr(record, name) for name in names])


def _printer(names: list[str]) -> Callable[[Any], str]:
    def text(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join([f'{n}={getattr(self, n)!r}' for n in names])})"

    return text


def _comparison(values: Values) -> Callable[[Any, object], Any]:
    def equal(self: Any, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return equal


def _refusal(fields: Fields) -> Callable[..., NoReturn]:
    def refuse(self: Any, name: str, *value: object) -> None:
        """Refuse to change a field; a subclass that is no record may have attributes besides."""
        if name in fields or "_record" in vars(type(self)):
            from dataclasses import FrozenInstanceError

            what = "assign to" if value else "delete"
            raise FrozenInstanceError(f"cannot {what} field {name!r}")
        object.__setattr__(self, name, *value) if value else object.__delattr__(self, name)

    return refuse  # type: ignore[return-value]


def _state_functions(values: Values, fields: Fields) -> Any:
    def restore(self: Any, state: tuple[Any, ...]) -> None:
        for name, value in zip(fields, state, strict=True):
            object.__setattr__(self, name, value)

    return (lambda self: values(self)), restore


def field_names(x: object) -> Iterable[str]:
    """The names of the fields of a record; none of another object.

    >>> from weft.base.records import dataclass, field_names
    >>> @dataclass
    ... class Point:
    ...     x: float
    ...     y: float = 0.0
    >>> list(field_names(Point(1.0))), list(field_names("text"))
    (['x', 'y'], [])
    """
    record: _Record | None = getattr(type(x), "_record", None)
    return record.fields if isinstance(record, _Record) else ()


def replace_fields(x: Any, /, **changes: Any) -> Any:
    """A record like another one, but for some fields."""
    given = {name: getattr(x, name) for name, f in type(x)._record.fields.items() if f.init}
    return type(x)(**given | changes)


class _Standard:
    """An attribute of the standard library's dataclasses, made when somebody asks, by a dataclass like it."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, record: object, owner: type) -> Any:
        from dataclasses import dataclass, field

        kind = next(base for base in owner.__mro__ if "_record" in vars(base))
        space: dict[str, Any] = {
            "__annotations__": {},
            "__module__": kind.__module__,
            "__doc__": kind.__doc__,
        }
        for base in kind.__mro__[::-1]:
            for name, f in _declared(base).items():
                space["__annotations__"][name] = base.__annotations__[name]
                settings = {key: getattr(f, key) for key in Field.__slots__}
                space[name] = field(**{k: v for k, v in settings.items() if v is not MISSING})
        twin: type = dataclass(**vars(kind)["_record"].settings)(type(kind.__name__, (), space))
        for name in ("__dataclass_fields__", "__dataclass_params__"):
            setattr(kind, name, vars(twin)[name])
        return getattr(kind, self.name)


# Tuples


class _Maker(type):
    """Makes ``class Pair(NamedTuple)`` a class of tuples."""

    def __new__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> Any:
        if not bases:
            return super().__new__(cls, name, bases, space)
        types = space.get("__annotations__", {})
        usual = [space[field] for field in types if field in space]
        made = namedtuple(name, types, defaults=usual, module=space["__module__"])  # type: ignore[misc]
        for key, value in space.items():
            if key not in types and key != "__classcell__":
                setattr(made, key, value)
        return made


class _NamedTuple(metaclass=_Maker):
    """As ``typing.NamedTuple``."""


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import replace as replace
    from typing import NamedTuple as NamedTuple
else:
    dataclass, field, replace, NamedTuple = make_dataclass, Field, replace_fields, _NamedTuple

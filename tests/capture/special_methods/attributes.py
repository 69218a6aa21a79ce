"""Forms that read and set attributes: properties, descriptors, ``__setattr__`` and its siblings."""

from __future__ import annotations

from typing import Any

import weft
from tests.capture.special_methods.forms import Counts, form


class Attributes(Counts):
    def __init__(self) -> None:
        super().__init__()
        self.held = weft.tensor(1.0)

    @property
    def v(self) -> Any:
        self.note()
        return self.held * 2.0

    @v.setter
    def v(self, value: Any) -> None:
        self.note()
        self.held = value

    @v.deleter
    def v(self) -> None:
        self.note(3.0)
        self.held = self.held * 0.0


@form(Attributes)
def property_read(o: Any, x: Any) -> Any:
    return o.v + x


@form(Attributes)
def property_write(o: Any, x: Any) -> Any:
    o.v = x * 3.0
    return o.held + 0.0


@form(Attributes)
def property_delete(o: Any, x: Any) -> Any:
    del o.v
    return o.held + x


@form(Attributes)
def property_changed(o: Any, x: Any) -> Any:
    o.v += x
    return o.held * 1.0


@form(Attributes)
def property_by_setattr(o: Any, x: Any) -> Any:
    o.v = x
    return o.v + (1.0 if hasattr(o, "w") else 2.0)


@form(Attributes)
def property_as_loop_target(o: Any, x: Any) -> Any:
    for o.v in (x, x * 2.0):
        pass
    return o.held + 0.0


@form(Attributes)
def property_unpacked(o: Any, x: Any) -> Any:
    o.v, y = x, x * 2.0
    return y + o.held


class Derived(Attributes):
    @property
    def v(self) -> Any:
        self.note(0.5)
        return super().v + 1.0

    @v.setter
    def v(self, value: Any) -> None:
        Attributes.v.fset(self, value)  # type: ignore[attr-defined]


@form(Derived)
def property_of_super(o: Any, x: Any) -> Any:
    o.v = x
    return o.v * x


class SetsAttributes(Counts):
    z: Any

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "z", weft.tensor(0.0))

    def __setattr__(self, name: str, value: Any) -> None:
        self.note()
        super().__setattr__(name, value * 2.0)

    def __delattr__(self, name: str) -> None:
        self.note(2.0)
        object.__setattr__(self, name, weft.tensor(7.0))


@form(SetsAttributes)
def setattr_method(o: Any, x: Any) -> Any:
    o.z = x
    return o.z + 0.0


@form(SetsAttributes)
def setattr_method_augmented(o: Any, x: Any) -> Any:
    o.z += x
    return o.z + 0.0


@form(SetsAttributes)
def delattr_method(o: Any, x: Any) -> Any:
    del o.z
    return o.z + x


class FindsAttributes(Counts):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        self.note()
        return self.n * 2.0


@form(FindsAttributes)
def getattr_method(o: Any, x: Any) -> Any:
    return o.anything + x


@form(FindsAttributes)
def getattr_method_by_name(o: Any, x: Any) -> Any:
    return getattr(o, "anything", None) + x


class SeesAttributes(Counts):
    w: Any

    def __init__(self) -> None:
        super().__init__()
        self.w = weft.tensor(3.0)

    def __getattribute__(self, name: str) -> Any:
        if name == "w":
            object.__getattribute__(self, "note")()
        return object.__getattribute__(self, name)


@form(SeesAttributes)
def getattribute_method(o: Any, x: Any) -> Any:
    return o.w * x


@form(SeesAttributes)
def getattribute_method_and_write(o: Any, x: Any) -> Any:
    o.w = x
    return o.w * x


class Descriptor:
    def __get__(self, o: Any, kind: Any = None) -> Any:
        o.note()
        return o.held * 2.0

    def __set__(self, o: Any, value: Any) -> None:
        o.note(0.5)
        o.held = value

    def __delete__(self, o: Any) -> None:
        o.note(2.0)


class Lazy:
    def __get__(self, o: Any, kind: Any = None) -> Any:
        o.note()
        return o.n * 3.0


class Described(Counts):
    d = Descriptor()
    lazy = Lazy()

    def __init__(self) -> None:
        super().__init__()
        self.held = weft.tensor(1.0)


@form(Described)
def descriptor_read(o: Any, x: Any) -> Any:
    return o.d + x


@form(Described)
def descriptor_write(o: Any, x: Any) -> Any:
    o.d = x * 2.0
    return o.held * 1.0


@form(Described)
def descriptor_delete(o: Any, x: Any) -> Any:
    del o.d
    return x * 2.0


@form(Described)
def descriptor_without_set(o: Any, x: Any) -> Any:
    return o.lazy + x


class Slotted:
    __slots__ = ("n", "other")

    def __init__(self) -> None:
        self.n = weft.tensor(0.0)
        self.other = weft.tensor(1.0)


@form(Slotted)
def slots(o: Any, x: Any) -> Any:
    o.n = o.n + x
    o.other, o.n = o.n, o.other
    return o.n * 1.0


@form(Attributes)
def namespace(o: Any, x: Any) -> Any:
    o.__dict__["held"] = x * 2.0
    return o.held + vars(o)["held"]

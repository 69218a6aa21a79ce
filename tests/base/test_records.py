"""Records beside the standard library's own, of the same declarations."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import typing
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from weft.base import records

SETTINGS: list[dict[str, bool]] = [
    {},
    {"frozen": True},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "eq": False},
    {"eq": False, "repr": False, "slots": True, "kw_only": True},
    {"frozen": True, "repr": False},
]


def declare(dataclass: Callable[..., Any], field: Callable[..., Any], settings: dict[str, bool]) -> Any:
    """The same classes by either maker: with every kind of field, a method, a constant and a subclass."""

    @dataclass(**settings)
    class Base:
        """A point."""

        kind: ClassVar[str] = "point"
        x: int
        tags: list[str] = field(default_factory=list)
        shown: str = field(default="a", repr=False)
        extra: int = field(default=3, kw_only=True)

        def double(self) -> int:
            return self.x * 2

    @dataclass(**settings)
    class Derived(Base):
        shown: str = "b"
        y: float = 0.5
        made: int = field(default=7, init=False)

    return Base, Derived


def outcome(call: Callable[[], object]) -> object:
    """What a call gives, or the type of its error."""
    try:
        return call()
    except Exception as error:
        return type(error)


def through_pickle(x: object) -> object:
    return pickle.loads(pickle.dumps(x))  # noqa: S301 - our own bytes


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_records_behave_as_dataclasses_of_the_standard_library_do(settings: dict[str, bool]) -> None:
    ours = declare(records.dataclass, records.field, settings)
    theirs = declare(dataclasses.dataclass, dataclasses.field, settings)
    for cls, other in zip(ours, theirs, strict=True):
        assert behaviour(cls) == behaviour(other)


def behaviour(cls: Any) -> list[object]:
    """What is seen of a class: what it takes, prints, equals, hashes to and refuses."""
    made: Any = cls(x=1, tags=["t"])
    changed = copy.copy(made)
    return [
        [(p.name, p.kind, p.default is p.empty) for p in inspect.signature(cls).parameters.values()],
        [getattr(made, f.name) for f in dataclasses.fields(cls)],
        [(f.name, f.type, f.init, f.repr, f.kw_only) for f in dataclasses.fields(cls)],
        cls.__match_args__,
        outcome(lambda: cls(1, ["t"]).x),
        repr(made) if "__repr__" in vars(cls) else None,
        outcome(lambda: made == changed),
        outcome(lambda: cls(x=1) == cls(x=1)),
        outcome(lambda: cls(x=1) == (1,)),
        outcome(lambda: hash(made)) is TypeError,
        outcome(lambda: setattr(changed, "x", 5)),
        outcome(lambda: setattr(changed, "unknown", 5)) is None,  # refused by different errors
        outcome(lambda: delattr(changed, "x")),
        outcome(lambda: vars(made)) is TypeError,
        outcome(lambda: cls(x=1).tags is cls(x=1).tags),
        outcome(lambda: cls()),
        outcome(lambda: cls(x=1, nothing=2)),
        outcome(lambda: cls(x=1, made=2)),
        dataclasses.replace(made, x=9).double(),
        cls.kind,
        cls.__doc__ if cls.__doc__ == "A point." else None,
    ]


@records.dataclass(frozen=True, slots=True)
class Pair:
    first: int
    second: tuple[int, ...] = ()


@records.dataclass
class Checked:
    size: int

    def __post_init__(self) -> None:
        self.size = max(self.size, 0)

    def __repr__(self) -> str:
        return f"<{self.size}>"


@records.dataclass(frozen=True)
class Named:
    name: str
    note: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


class Place(records.NamedTuple):
    """Where something is."""

    row: int
    column: int = 0

    def moved(self, rows: int) -> Place:
        return self._replace(row=self.row + rows)


class StandardPlace(typing.NamedTuple):
    """Where something is."""

    row: int
    column: int = 0


def test_equal_frozen_records_are_one_key_and_survive_copies() -> None:
    pair = Pair(1, (2,))
    assert {pair: "found"}[Pair(1, (2,))] == "found"
    assert through_pickle(pair) == copy.deepcopy(pair) == copy.copy(pair) == pair
    assert Pair(1) != Pair(2)


def test_methods_that_a_class_writes_itself_stay() -> None:
    assert repr(Checked(-3)) == "<0>"
    assert Named("a", "x") == Named("a", "y")
    assert len({Named("a", "x"), Named("a", "y")}) == 1


def test_fields_and_replacement_without_the_standard_library() -> None:
    assert list(records.field_names(Pair(1))) == ["first", "second"]
    assert records.field_names(Pair) == records.field_names(3) == ()
    assert records.replace(Pair(1, (2,)), first=4) == Pair(4, (2,))
    match Pair(5, (6,)):
        case Pair(first, (second,)):
            assert (first, second) == (5, 6)


def test_a_dataclass_of_the_standard_library_may_derive_from_a_record() -> None:
    @dataclasses.dataclass
    class Longer(Checked):
        unit: str = "m"

    assert (Longer(3).size, Longer(3).unit, [f.name for f in dataclasses.fields(Longer)]) == (
        3,
        "m",
        ["size", "unit"],
    )


def test_named_tuples_are_those_of_the_standard_library() -> None:
    place = Place(1)
    assert place == (1, 0)
    assert place.moved(2) == Place(row=3, column=0)
    assert isinstance(place, tuple)
    assert repr(place) == repr(StandardPlace(1)).removeprefix("Standard")
    for name in ("_fields", "_field_defaults", "__doc__", "__module__", "__match_args__"):
        assert getattr(Place, name) == getattr(StandardPlace, name), name
    assert typing.get_type_hints(Place) == typing.get_type_hints(StandardPlace)
    assert through_pickle(place) == place
    assert outcome(lambda: Place(column=1)) is TypeError  # type: ignore[call-arg]
    assert outcome(lambda: setattr(place, "row", 3)) is AttributeError

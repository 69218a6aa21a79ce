from __future__ import annotations

import collections
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.of_code import examples
from weft.base.trees import flatten_like, spread_prefix
from weft.errors import ArgumentError, DomainError


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass
class Layer:
    weight: Any
    bias: Any = None
    name: str = field(default="", metadata={"static": True})


@dataclass(frozen=True, slots=True)
class Frozen:
    a: Any
    b: Any


class Registered:
    def __init__(self, children: list[Any], tag: str) -> None:
        self.children = children
        self.tag = tag


weft.register_tree(
    Registered, lambda r: (r.children, r.tag), lambda tag, children: Registered(list(children), tag)
)

leaves = st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)
trees = st.recursive(
    leaves | st.none(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=4)
        | st.builds(Point, inner, inner)
        | st.builds(Layer, inner, inner)
        | st.builds(Frozen, inner, inner)
    ),
    max_leaves=20,
)


@given(trees)
@examples(100, 35)
def test_unflatten_undoes_flatten(tree: Any) -> None:
    flat, structure = weft.tree_flatten(tree)
    assert weft.tree_unflatten(structure, flat) == tree
    assert structure.num_leaves == len(flat) == len(structure.paths())
    assert weft.tree_structure(tree) == structure
    assert hash(weft.tree_structure(tree)) == hash(structure)


@given(trees)
def test_paths_lead_to_their_leaves(tree: Any) -> None:
    flat, structure = weft.tree_flatten(tree)
    for leaf, path in zip(flat, structure.paths(), strict=True):
        assert eval(f"tree{path}", {"tree": tree}) == leaf  # noqa: S307 - the paths are Python


@given(trees)
def test_map_keeps_the_structure(tree: Any) -> None:
    counted = weft.tree_map(lambda a, b: (a == b,), tree, tree, is_leaf=None)
    assert all(weft.tree_leaves(counted))


def test_dicts_keep_their_order() -> None:
    tree = {"b": 1, "a": 2}
    assert weft.tree_leaves(tree) == [1, 2]
    assert list(weft.tree_map(lambda x: x, tree)) == ["b", "a"]


def test_dicts_are_matched_by_key() -> None:
    assert weft.tree_map(lambda x, y: (x, y), {"a": 1, "b": 2}, {"b": 20, "a": 10}) == {
        "a": (1, 10),
        "b": (2, 20),
    }


def test_kinds_of_dict_are_kept() -> None:
    ordered = collections.OrderedDict(b=1, a=2)
    assert type(weft.tree_map(lambda x: x, ordered)) is collections.OrderedDict
    default = collections.defaultdict(list, a=1)
    mapped = weft.tree_map(lambda x: x + 1, default)
    assert mapped == {"a": 2}
    assert mapped["new"] == []


def test_named_tuple_and_dataclass_are_rebuilt() -> None:
    point = weft.tree_map(lambda x: x * 2, Point(1, [2, 3]))
    assert point == Point(2, [4, 6])
    assert type(point) is Point
    layer = weft.tree_map(lambda x: x * 2, Layer(1, None, "first"))
    assert layer == Layer(2, None, "first")
    assert weft.tree_map(lambda x: -x, Frozen(1, Frozen(2, 3))) == Frozen(-1, Frozen(-2, -3))


def test_static_field_is_part_of_the_structure() -> None:
    assert weft.tree_leaves(Layer(1, 2, "n")) == [1, 2]
    assert weft.tree_structure(Layer(1, 2, "n")) == weft.tree_structure(Layer(3, 4, "n"))
    assert weft.tree_structure(Layer(1, 2, "n")) != weft.tree_structure(Layer(1, 2, "m"))


def test_dataclass_is_rebuilt_without_running_init() -> None:
    @dataclass
    class Counted:
        a: int

        def __post_init__(self) -> None:
            raise AssertionError("__init__ must not run again")

    tree = object.__new__(Counted)
    tree.a = 1
    assert weft.tree_map(lambda x: x + 1, tree).a == 2


def test_registered_class_is_a_container() -> None:
    tree = Registered([1, {"a": 2}], "tag")
    assert weft.tree_leaves(tree) == [1, 2]
    mapped = weft.tree_map(lambda x: x + 1, tree)
    assert (mapped.children, mapped.tag) == ([2, {"a": 3}], "tag")


def test_class_is_registered_once() -> None:
    with pytest.raises(DomainError, match="a class is registered once, got Registered again"):
        weft.register_tree(Registered, lambda r: ((), None), lambda aux, children: None)
    with pytest.raises(DomainError, match="got dict again"):
        weft.register_tree(dict, lambda r: ((), None), lambda aux, children: None)
    with pytest.raises(ArgumentError, match="must be given a class"):
        weft.register_tree(3, lambda r: ((), None), lambda aux, children: None)  # type: ignore[type-var]


def test_tensors_and_arrays_are_leaves() -> None:
    x = weft.tensor([1.0, 2.0])
    assert weft.tree_leaves([x]) == [x] or weft.tree_leaves([x])[0] is x


def test_is_leaf_stops_early() -> None:
    assert weft.tree_leaves([(1, 2), None], is_leaf=lambda x: x is None or isinstance(x, tuple)) == [
        (1, 2),
        None,
    ]
    assert weft.tree_map(len, [(1, 2), (3,)], is_leaf=lambda x: isinstance(x, tuple)) == [2, 1]


@pytest.mark.rotating(2)
def test_deep_tree_does_not_recurse() -> None:
    tree: Any = 1
    for _ in range(100_000):
        tree = [tree]
    flat, structure = weft.tree_flatten(tree)
    assert flat == [1]
    assert weft.tree_leaves(weft.tree_unflatten(structure, [2])) == [2]
    assert weft.tree_leaves(weft.tree_map(lambda x, y: x + y, tree, tree)) == [2]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ([1, 2], [1], "got list of 2 and list of 1 at the root"),
        ({"a": [1, (2, 3)]}, {"a": [1, [2, 3]]}, r"got tuple of 2 and list of 2 at \['a'\]\[1\]"),
        (Point(1, [2]), Point(1, 2), r"got list of 1 and int at \.y"),
        ([None], [1], r"got None and int at \[0\]"),
        (Layer([1], 2, "n"), Layer([1], 2, "m"), "got Layer of 2 and Layer of 2 at the root"),
    ],
)
def test_difference_of_trees_is_named_by_path(first: Any, second: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=f"tree_map: trees must have the same structure, {message}"):
        weft.tree_map(lambda x, y: x, first, second)


def test_difference_of_keys_is_listed() -> None:
    with pytest.raises(ArgumentError, match=r"only in the first: \['b'\]; only in the second: \['c'\]"):
        weft.tree_map(lambda x, y: x, {"a": 1, "b": 2}, {"a": 1, "c": 2})


def test_unflatten_checks_the_number_of_leaves() -> None:
    with pytest.raises(DomainError, match=r"there must be 2 leaves, got 1 for Structure\(\[\*, \*\]\)"):
        weft.tree_unflatten(weft.tree_structure([1, 2]), [1])


def test_flatten_like_stops_at_the_structures_leaves() -> None:
    structure = weft.tree_structure({"a": 0, "b": 0})
    assert flatten_like("test", structure, {"b": None, "a": [1, 2]}) == [[1, 2], None]


def test_prefix_is_spread_over_subtrees() -> None:
    def is_axis(x: Any) -> bool:
        return x is None or isinstance(x, int)

    tree = ({"a": 1, "b": [2, 3]}, 4)
    assert spread_prefix("test", 0, tree, "", is_axis) == [0, 0, 0, 0]
    assert spread_prefix("test", ({"a": 1, "b": None}, 2), tree, "", is_axis) == [1, None, None, 2]

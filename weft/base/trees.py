"""Trees: nested containers of leaves, taken apart and put together again.

Dicts (in their own order), lists, tuples, named tuples, dataclasses and None are containers, and so is
every type given to ``register_tree``; anything else is a leaf. Nothing here recurses, so a tree may be
as deep as memory allows.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from weft.base.public import public
from weft.base.records import NamedTuple, dataclass
from weft.errors import ArgumentError, DomainError

T = TypeVar("T", bound=type)
Flatten = Callable[[Any], tuple[Sequence[Any], Any]]
Unflatten = Callable[[Any, Sequence[Any]], Any]
IsLeaf = Callable[[Any], bool]


class _Container(NamedTuple):
    """One container of a tree: its type, how each child is reached, and what else it takes to rebuild it."""

    kind: type
    labels: tuple[str, ...]
    aux: Any

    def __str__(self) -> str:
        return "None" if self.kind is type(None) else f"{self.kind.__name__} of {len(self.labels)}"


@dataclass(frozen=True, slots=True)
class Structure:
    """The shape of a tree without its leaves: its containers in depth-first order, None for each leaf.

    >>> import weft
    >>> weft.tree_structure({"a": 1, "b": [2, 3]})
    Structure({'a': *, 'b': [*, *]})
    """

    items: tuple[_Container | None, ...]

    @property
    def num_leaves(self) -> int:
        """The number of leaves."""
        return self.items.count(None)

    def paths(self) -> list[str]:
        """How each leaf is reached from the root, such as ``['w'][0]``; "" for a tree that is a leaf."""
        out: list[str] = []
        waiting: list[_Trail] = [(None, "")]
        for item in self.items:
            trail = waiting.pop()
            if item is None:
                out.append(_path(trail))
            else:
                waiting.extend((trail, label) for label in reversed(item.labels))
        return out

    def __repr__(self) -> str:
        return f"Structure({tree_unflatten(self, [_Star()] * self.num_leaves)})"


class _Star:
    def __repr__(self) -> str:
        return "*"


_registered: dict[type, tuple[Flatten, Unflatten]] = {}


@public
def register_tree(kind: T, flatten: Flatten, unflatten: Unflatten) -> T:
    """Make instances of a class containers of trees.

    Args:
        kind: the class itself; subclasses are registered on their own.
        flatten: from an instance to its children, and whatever else it takes to rebuild it, to be compared.
        unflatten: from that and new children to a new instance.

    >>> import weft
    >>> class Pair:
    ...     def __init__(self, a, b):
    ...         self.a, self.b = a, b
    >>> _ = weft.register_tree(Pair, lambda p: ((p.a, p.b), None), lambda aux, children: Pair(*children))
    >>> weft.tree_leaves([Pair(1, 2), 3])
    [1, 2, 3]
    """
    if not isinstance(kind, type):
        raise ArgumentError("register_tree", f"must be given a class, got {kind!r}")
    if kind in _registered or kind in _BUILTIN:
        raise DomainError("register_tree", f"a class is registered once, got {kind.__name__} again")
    _registered[kind] = (flatten, unflatten)
    return kind


def _flatten_dataclass(x: Any) -> tuple[list[Any], _Container]:
    fields = dataclasses.fields(x)
    static = tuple((f.name, getattr(x, f.name)) for f in fields if f.metadata.get("static"))
    names = [f.name for f in fields if not f.metadata.get("static")]
    return [getattr(x, n) for n in names], _Container(type(x), tuple(f".{n}" for n in names), static)


def _flatten_one(x: Any) -> tuple[Sequence[Any], _Container] | None:
    """The children of a container and what it is, or None for a leaf."""
    kind = type(x)
    if kind is tuple or kind is list:
        return x, _Container(kind, _indices(len(x)), None)
    if kind is dict or kind is OrderedDict:
        return list(x.values()), _Container(kind, _keys(x), tuple(x))
    if x is None:
        return (), _Container(kind, (), None)
    if kind in _registered:
        children, aux = _registered[kind][0](x)
        return children, _Container(kind, _indices(len(children)), aux)
    if isinstance(x, tuple) and hasattr(kind, "_fields"):
        return x, _Container(kind, tuple(f".{n}" for n in kind._fields), None)
    if kind is defaultdict:
        return list(x.values()), _Container(kind, _keys(x), (x.default_factory, tuple(x)))
    if dataclasses.is_dataclass(kind):
        return _flatten_dataclass(x)
    return None


def is_node(x: object) -> bool:
    """Whether something is a container of trees, rather than a leaf."""
    kind = type(x)
    return (
        kind in _BUILTIN
        or kind in _registered
        or (isinstance(x, tuple) and hasattr(kind, "_fields"))
        or dataclasses.is_dataclass(kind)
    )


def _indices(count: int) -> tuple[str, ...]:
    return tuple(f"[{i}]" for i in range(count))


def _keys(x: dict[Any, Any]) -> tuple[str, ...]:
    return tuple(f"[{k!r}]" for k in x)


def _rebuild_dataclass(item: _Container, children: list[Any]) -> Any:
    """An instance with these fields; ``__init__`` does not run, as it may do more than set them."""
    out: Any = object.__new__(item.kind)
    names = (label[1:] for label in item.labels)
    for name, value in (*zip(names, children, strict=True), *item.aux):
        object.__setattr__(out, name, value)
    return out


_BUILTIN: dict[type, Callable[[_Container, list[Any]], Any]] = {
    tuple: lambda item, children: tuple(children),
    list: lambda item, children: children,
    dict: lambda item, children: dict(zip(item.aux, children, strict=True)),
    OrderedDict: lambda item, children: OrderedDict(zip(item.aux, children, strict=True)),
    defaultdict: lambda item, children: defaultdict(item.aux[0], zip(item.aux[1], children, strict=True)),
    type(None): lambda item, children: None,
}


def _rebuild(item: _Container, children: list[Any]) -> Any:
    kind = item.kind
    if kind in _BUILTIN:
        return _BUILTIN[kind](item, children)
    if kind in _registered:
        return _registered[kind][1](item.aux, children)
    if issubclass(kind, tuple):
        return kind(*children)
    return _rebuild_dataclass(item, children)


@public
def tree_flatten(tree: object, *, is_leaf: IsLeaf | None = None) -> tuple[list[Any], Structure]:
    """The leaves of a tree, in order, and its structure.

    >>> import weft
    >>> leaves, structure = weft.tree_flatten({"b": 1, "a": (2, None)})
    >>> leaves, structure
    ([1, 2], Structure({'b': *, 'a': (*, None)}))
    """
    leaves: list[Any] = []
    items: list[_Container | None] = []
    waiting = [tree]
    while waiting:
        x = waiting.pop()
        found = None if is_leaf is not None and is_leaf(x) else _flatten_one(x)
        if found is None:
            leaves.append(x)
            items.append(None)
        else:
            waiting.extend(reversed(found[0]))
            items.append(found[1])
    return leaves, Structure(tuple(items))


@public
def tree_unflatten(structure: Structure, leaves: Sequence[Any]) -> Any:
    """The tree of a structure with these leaves.

    >>> import weft
    >>> leaves, structure = weft.tree_flatten({"a": 1, "b": [2, 3]})
    >>> weft.tree_unflatten(structure, [10 * x for x in leaves])
    {'a': 10, 'b': [20, 30]}
    """
    if len(leaves) != structure.num_leaves:
        raise DomainError(
            "tree_unflatten",
            f"there must be {structure.num_leaves} leaves, got {len(leaves)} for {structure}",
        )
    rest = list(leaves)
    built: list[Any] = []  # whole subtrees, the leftmost last
    for item in reversed(structure.items):
        if item is None:
            built.append(rest.pop())
            continue
        children = [built.pop() for _ in item.labels]
        built.append(_rebuild(item, children))
    return built[0]


@public
def tree_leaves(tree: object, *, is_leaf: IsLeaf | None = None) -> list[Any]:
    """The leaves of a tree, in order.

    >>> import weft
    >>> weft.tree_leaves([1, {"a": 2, "b": (3,)}, None])
    [1, 2, 3]
    """
    return tree_flatten(tree, is_leaf=is_leaf)[0]


@public
def tree_structure(tree: object, *, is_leaf: IsLeaf | None = None) -> Structure:
    """The structure of a tree.

    >>> import weft
    >>> weft.tree_structure([1, 2]) == weft.tree_structure([3, 4])
    True
    """
    return tree_flatten(tree, is_leaf=is_leaf)[1]


@public
def tree_map(function: Callable[..., Any], tree: object, *rest: object, is_leaf: IsLeaf | None = None) -> Any:
    """A tree of what function gives for each leaf, and the leaves at the same place of the other trees.

    >>> import weft
    >>> weft.tree_map(lambda x, y: x + y, {"a": 1, "b": [2]}, {"a": 10, "b": [20]})
    {'a': 11, 'b': [22]}
    """
    leaves, structure = tree_flatten(tree, is_leaf=is_leaf)
    others = [flatten_like("tree_map", structure, other) for other in rest]
    return tree_unflatten(structure, [function(*xs) for xs in zip(leaves, *others, strict=True)])


def flatten_like(op: str, structure: Structure, tree: object, root: str = "") -> list[Any]:
    """What stands in a tree where the structure has leaves; dicts are matched by key.

    Args:
        op: named in the error if the tree differs.
        structure: to follow.
        tree: whose part at each leaf of the structure is returned, whatever it is.
        root: what the paths in the error begin with.
    """
    out: list[Any] = []
    waiting: list[tuple[Any, _Trail]] = [(tree, (None, root))]
    for item in structure.items:
        x, trail = waiting.pop()
        if item is None:
            out.append(x)
            continue
        found = _flatten_one(x)
        if found is None or not _alike(item, found[1]):
            got = type(x).__name__ if found is None else str(found[1])
            raise _difference(op, _path(trail), item, got, found)
        children = dict(zip(found[1].labels, found[0], strict=True))
        waiting.extend((children[label], (trail, label)) for label in reversed(item.labels))
    return out


_Trail = tuple[Any, str]  # the trail to the parent, or None, and the label of the last step


def _path(trail: _Trail) -> str:
    labels = []
    rest: Any = trail
    while rest is not None:
        rest, label = rest
        labels.append(label)
    return "".join(reversed(labels))


def _alike(a: _Container, b: _Container) -> bool:
    if a.kind is not b.kind:
        return False
    if issubclass(a.kind, dict):
        return len(a.labels) == len(b.labels) and set(a.labels) == set(b.labels)
    return a == b


def _difference(op: str, path: str, item: _Container, got: str, found: Any) -> ArgumentError:
    place = f"at {path}" if path else "at the root"
    message = f"trees must have the same structure, got {item} and {got} {place}"
    if found is not None and issubclass(item.kind, dict) and found[1].kind is item.kind:
        ours, theirs = set(item.labels), set(found[1].labels)
        only = [f"only in the first: {', '.join(sorted(ours - theirs))}"] if ours - theirs else []
        only += [f"only in the second: {', '.join(sorted(theirs - ours))}"] if theirs - ours else []
        return ArgumentError(op, message, hint="; ".join(only))
    return ArgumentError(op, message)


def spread_prefix(op: str, prefix: object, tree: object, root: str, is_leaf: IsLeaf) -> list[Any]:
    """For each leaf of a tree, the leaf of a prefix of that tree which covers it.

    ``in_axes`` of vmap is such a prefix: one value may stand for a whole subtree.
    """
    leaves, structure = tree_flatten(prefix, is_leaf=is_leaf)
    parts = flatten_like(op, structure, tree, root)
    return [leaf for leaf, part in zip(leaves, parts, strict=True) for _ in tree_leaves(part)]

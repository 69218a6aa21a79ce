"""What leaves a capture: each call makes the containers and objects anew that the code made, each once.

A list that leaves in one place is part of the tree there. One that leaves in several, and any object of a
class of the user, is described by itself, and what holds it says which one it is: so what was one stays one.
Objects are made before they are filled, so that they may hold each other.
"""

from __future__ import annotations

import collections
import copyreg
from collections.abc import Callable, Iterator, Sequence
from dataclasses import is_dataclass
from functools import partial
from types import CellType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, cast

import numpy as np

from weft.base.sizes import Size
from weft.base.trees import is_node, tree_flatten, tree_unflatten
from weft.capture.program.aliases import describe_tensor
from weft.capture.program.arguments import containers, is_container, taken_apart
from weft.capture.program.described import BuiltOut, LeafOut, TreeOut
from weft.capture.program.guards import ArrayCopy
from weft.capture.program.program import new_object
from weft.capture.record.root import Root
from weft.capture.runtime.joined import Joined, cannot_leave, joined_of, origin_of
from weft.capture.runtime.mixed import Mixed, as_flag, mixed_of
from weft.capture.runtime.number import Number, number_of
from weft.capture.runtime.owners import is_from_outside, was_there
from weft.capture.runtime.text import looked_at
from weft.capture.runtime.undefined import Undefined
from weft.errors import CaptureError
from weft.ir.graph import Value
from weft.tensor.choices import both, either
from weft.tensor.tensor import Tensor

_COPIED = frozenset({set, bytearray, np.ndarray, collections.deque})  # that callers may change
_HOLDING = (set, frozenset, collections.deque)  # whose items are no parts of a tree
_IMMUTABLE = (tuple, type(None))
_PLAIN = frozenset({bool, int, float, complex, str, bytes, *_COPIED})
_LEAF = tree_flatten(0)[1]  # the structure of a tree that is a leaf


class Standing:
    """Stands in a tree for something that is no part of it."""

    __slots__ = ("what",)

    def __init__(self, what: Any) -> None:
        self.what = what


def tensors_in(root: Root, tree: Any) -> list[Tensor]:
    """The tensors of a tree, also of sparse ones and of objects that the code made."""
    found: list[Tensor] = []
    seen: dict[int, Any] = {}
    waiting = [tree]
    while waiting:
        x = waiting.pop()
        if isinstance(x, Tensor):
            found.append(x)
        elif id(x) not in seen:
            seen[id(x)] = x
            waiting += _parts_of(root, x)
    return found


def _parts_of(root: Root, x: Any) -> Sequence[Any]:
    if is_container(x):
        return tree_flatten(taken_apart(x))[0]
    if is_node(x):
        tops = [x]
        return tree_flatten(x, is_leaf=lambda y: not (tops and tops.pop() is y))[0]
    return contents_of(x) if root.is_inside(x) and is_plain_object(x) else ()


class Leaving:
    """All that leaves a capture, described.

    Args:
        root: the capture.
        result: what its function returned.
        stored: what the places outside hold now that it changed.
    """

    def __init__(self, root: Root, result: Any, stored: Sequence[Any]) -> None:
        self.root = root
        self.built: dict[int, BuiltOut] = {}
        expected = [guard.expected for guard in root.guards]
        self._found = {id(x.array if type(x) is ArrayCopy else x) for x in expected}  # in places outside
        self._alone: dict[int, Any] = {}  # what is described by itself, by id
        self._seen: dict[int, Any] = {}
        self._firsts: dict[int, tuple[Any, int | None, Any]] = {}  # by id of what a way made, who is that one
        self._picks: dict[int, tuple[Any, Any, Any]] = {}  # which one it is: a truth, and two ways
        self._of_result: set[int] = set()
        if root.keeps_references:
            self._find(result)
            self._of_result = set(self._alone)
            for new in stored:
                self._find(new)
            self._find_shared()
            for x in [*self._seen.values()]:
                self._settle(x)
        for x in [*self._alone.values()]:
            self._build(x)

    def tree(self, tree: Any, value_of: Callable[[Tensor], Value], *, opened: bool = False) -> TreeOut:
        """A tree that leaves the capture; opened if it is itself what is described."""
        tree = self._with_stand_ins(tree, opened=opened)
        for x in containers(tree).values():
            joined_of(x)
        leaves, structure = tree_flatten(taken_apart(tree))
        return TreeOut(structure, [self._leaf(leaf, value_of) for leaf in leaves])

    def is_itself(self, x: Any) -> bool:
        """Whether something is a container from outside, which is itself; those of arguments are trees."""
        return id(x) in self.root.notes.outside and id(x) not in self.root.containers

    def is_copied(self, x: Any) -> bool:
        """Whether something is a leaf that the code made, and that who gets it may change."""
        return type(x) in _COPIED and not self.is_itself(x) and id(x) not in self._found

    # Finding what is described by itself

    def _find(self, tree: Any) -> None:
        """Find what a tree has that leaves in another place, too, and the objects in it."""
        waiting = [tree]
        while waiting:
            for leaf in tree_flatten(waiting.pop(), is_leaf=self._is_met)[0]:
                if id(leaf) not in self._alone and self._is_made_object(leaf):
                    self._alone[id(leaf)] = leaf
                    waiting.append(contents_of(leaf))

    def _is_met(self, x: Any) -> bool:
        """Whether something is no part of the tree around it: one that was met before leaves twice."""
        if is_container(x) or self.is_itself(x):
            return True
        if isinstance(x, _IMMUTABLE) or not (_is_changeable(x) or self.is_copied(x)):
            return False
        if id(x) in self._seen:
            self._alone[id(x)] = x
            return True
        self._seen[id(x)] = x
        return False

    def _is_made_object(self, x: Any) -> bool:
        """Whether something is an object that the code made, and that can be made anew."""
        return self.root.is_inside(x) and is_plain_object(x)

    def _find_shared(self) -> None:
        """Find what nobody holds for sure, and several that leave may be: where both are it, they are one."""
        known: dict[int, Any] = {}
        for x in [*self._seen.values()]:
            joined = joined_of(x)
            for key, way in ({} if joined is None else joined.ways).items():
                if is_from_outside(way) or key in self._seen:
                    continue
                if key in known and known[key] is not x:
                    self._find(way)
                    self._alone[key] = way
                known.setdefault(key, x)

    def _settle(self, x: Any) -> None:
        """Find which others a container may be that leaves, if anybody can see that."""
        if id(x) in self._picks:
            return
        joined, twins = joined_of(x), self._twins(x)
        if any(twin is not None for twin in twins):
            truth, *ways = cast(Joined, origin_of(x)).pick or (None, None, None)
            if truth is None:
                raise cannot_leave(cast(Joined, origin_of(x)))
            found = [self._way(way) if twin is None else twin for way, twin in zip(ways, twins, strict=True)]
        elif joined is not None and self._is_seen_in(joined):
            truth, *found = self._two_ways(joined)
        else:
            return
        self._alone[id(x)] = x
        self._picks[id(x)] = (truth, *found)

    def _two_ways(self, joined: Joined) -> tuple[Any, Any, Any]:
        """Which container one is that others hold: a truth, and two ways, of which None is a new one."""
        found: list[tuple[Any, Any]] = []
        for truth, way in self._cases(joined):
            seen = self._way(way)
            same = next((k for k, (_, known) in enumerate(found) if known is seen), None)
            if same is None:
                found.append((truth, seen))
            else:
                found[same] = either(found[same][0], truth), seen
        if len(found) != 2 and joined.cases is not None:  # one of them is itself one of several
            found = [(truth, self._way(way)) for truth, way in joined.cases]
        if len(found) != 2 or not isinstance(found[0][0], Tensor):
            raise cannot_leave(joined)
        (truth, one), (_, other) = found
        return truth, one, other

    def _cases(self, joined: Joined) -> Iterator[tuple[Any, Any]]:
        """The containers that one may be, with truths, in place of joined ones that nobody holds."""
        if joined.cases is None:
            raise cannot_leave(joined)
        for truth, way in joined.cases:
            inner = joined_of(way)
            if inner is None or self._is_seen(way) or not self._is_seen_in(inner):
                yield truth, way
            else:
                for told, x in self._cases(inner):
                    yield both(truth, told), x

    def _twins(self, x: Any) -> list[Any]:
        """For both ways, another container that leaves and is the same new one there, or None."""
        twins: list[Any] = [None, None]
        for key, k, truth in self._new_ones(x):
            first, place, test = self._firsts.setdefault(key, (x, k, truth))
            if first is not x:
                if k is None or place != k or test is not truth:
                    raise cannot_leave(cast(Joined, origin_of(x)))
                twins[k] = first
                self._alone[id(first)] = first
        return twins

    def _new_ones(self, x: Any, *, deep: bool = False) -> Iterator[tuple[int, int | None, Any]]:
        """The containers that ways made which one may be, by id, with the number of the way and the truth."""
        origin = origin_of(x)
        if origin is None or origin.pick is None:
            return
        truth, *ways = origin.pick
        for k, way in enumerate(ways):
            if was_there(way) or origin_of(way) is not None:
                yield from self._new_ones(way, deep=True)
            elif id(way) not in self.root.notes.joined:  # else it stands for what a turn began with
                yield id(way), None if deep else k, truth

    def _way(self, way: Any) -> Any:
        """What a container is on one way, or None if that is a new one."""
        if self._is_seen(way):
            if not is_from_outside(way):
                self._alone[id(way)] = way
            return way
        joined = joined_of(way)
        if joined is None or not self._is_seen_in(joined):
            return None
        if not was_there(way):  # which one it is, only a branch knew
            raise cannot_leave(joined)
        self._settle(way)
        return way

    def _is_seen_in(self, joined: Joined) -> bool:
        return any(map(self._is_seen, joined.ways.values()))

    def _is_seen(self, x: Any) -> bool:
        """Whether others hold a container after the call; those of arguments are trees."""
        if is_from_outside(x):
            return id(x) not in self.root.containers
        return id(x) in self._seen

    # Describing

    def _build(self, x: Any) -> None:
        value_of = self.root.result_of if id(x) in self._of_result else self.root.value_of
        if type(x) in _COPIED:
            self.built[id(x)] = BuiltOut(None, TreeOut(_LEAF, [LeafOut(plain=x, copied=True)]))
        elif is_plain_object(x):
            self.built[id(x)] = BuiltOut(type(x), self.tree(contents_of(x), value_of))
        else:
            self.built[id(x)] = BuiltOut(None, self.tree(x, value_of, opened=True), self._pick_of(x))

    def _pick_of(self, x: Any) -> tuple[Value, LeafOut | None, LeafOut | None] | None:
        """Which one a container is, if a run picks it."""
        if id(x) not in self._picks:
            return None
        truth, *ways = self._picks[id(x)]
        one, other = [None if way is None else self._reference(way) for way in ways]
        return self.root.value_of(truth), one, other

    def _reference(self, x: Any) -> LeafOut:
        return LeafOut(built=id(x)) if id(x) in self._alone else LeafOut(plain=x)

    def _stands(self, x: Any) -> bool:
        return id(x) in self._alone or self.is_itself(x)

    def _with_stand_ins(self, tree: Any, *, opened: bool) -> Any:
        """A tree in which what is no part of it is a leaf, whatever sparse tensors become."""
        tops = [tree] if opened else []

        def is_leaf(x: Any) -> bool:
            return is_container(x) or (not (tops and tops.pop() is x) and self._stands(x))

        leaves, structure = tree_flatten(tree, is_leaf=is_leaf)
        if not any(map(self._stands, leaves)):
            return tree
        return tree_unflatten(structure, [Standing(x) if self._stands(x) else x for x in leaves])

    def _leaf(self, leaf: Any, value_of: Callable[[Tensor], Value]) -> LeafOut:
        root = self.root
        if isinstance(leaf, Tensor):
            out = describe_tensor(leaf, value_of, root.is_outside)
            mixed = mixed_of(leaf)
            return out if mixed is None else out._replace(number=self._number(mixed))
        if isinstance(leaf, Size):
            leaf = number_of(leaf)
        if isinstance(leaf, Number):
            return LeafOut(value_of(leaf.tensor), kind=leaf.kind)
        if type(leaf) is Undefined:
            raise leaf.error()
        if isinstance(leaf, Standing):
            return self._reference(leaf.what)
        leaf = looked_at(leaf)
        self._check_plain(leaf)
        return LeafOut(plain=leaf, copied=self.is_copied(leaf))

    def _number(self, mixed: Mixed) -> tuple[Value, type] | None:
        """Whether a tensor is a number of Python, and of which kind; None where nothing tells."""
        kinds, truth = mixed.ways
        if truth is None:
            return None
        if len(kinds) > 1:
            names = " or ".join(sorted(kind.__name__ for kind in kinds))
            raise CaptureError(
                self.root.name,
                f"what captured code gives away must be a number of one kind where {mixed.where} leaves a "
                f"number of Python on one way and a tensor on the other, got {names}",
                hint="make it a tensor on both ways, with weft.tensor(...)",
            )
        (kind,) = kinds
        return self.root.value_of(as_flag(truth)), kind

    def _check_plain(self, leaf: Any) -> None:
        """Raise where each call would give the one object, with tensors of this call in it."""
        kind = type(leaf).__name__
        if type(leaf) in _HOLDING and any(isinstance(x, Tensor | Number) for x in leaf):
            raise self._error(f"a {kind} that holds a tensor", "give a list of its items away")
        if leaf is None or type(leaf) in _PLAIN or id(leaf) in self._found or self.is_itself(leaf):
            return
        if isinstance(leaf, Iterator):
            raise self._error(f"an iterator ({kind})", "give a list of its items away")
        held = tree_flatten(held_by(leaf))[0]
        if any(isinstance(x, Number) or (isinstance(x, Tensor) and self._is_of_call(x)) for x in held):
            hint = f"make {kind} a dataclass, or give its parts away"
            if callable(leaf):
                hint = "give the tensors away, and make the function of them outside"
            raise self._error(f"a {kind} that holds a tensor", hint)

    def _error(self, got: str, hint: str) -> CaptureError:
        message = (
            "what captured code makes and gives away must be made of tensors, numbers, tuples, lists, "
            f"dicts, dataclasses and plain objects, got {got}"
        )
        return CaptureError(self.root.name, message, hint=hint)

    def _is_of_call(self, tensor: Tensor) -> bool:
        """Whether a tensor is another one in each call."""
        return id(tensor) in self.root.arguments or not self.root.is_outside(tensor)


def held_by(x: Any) -> list[Any]:
    """What something that is no tree holds on to, as a function its variables."""
    if isinstance(x, MethodType):
        return [x.__self__, *held_by(x.__self__), *held_by(x.__func__)]
    if isinstance(x, FunctionType):
        cells = [cell.cell_contents for cell in x.__closure__ or () if not _is_empty(cell)]
        return [*cells, *(x.__defaults__ or ()), *(x.__kwdefaults__ or {}).values()]
    if isinstance(x, partial):
        return [*held_by(x.func), x.args, x.keywords]
    if isinstance(x, BaseException):
        return [x.args]
    if isinstance(x, slice):
        return [x.start, x.stop, x.step]
    if isinstance(x, MappingProxyType):
        return [*x.values()]
    if isinstance(x, np.ndarray):
        return [*x.flat] if x.dtype == object else []
    return [*getattr(x, "__dict__", {}).values()] if not isinstance(x, type | ModuleType) else []


def _is_empty(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


def is_plain_object(x: Any) -> bool:
    """Whether something is an object of a class of the user that is all in its attributes and items."""
    if is_node(x) or any(c.__module__.partition(".")[0] == "weft" for c in type(x).__mro__):
        return False
    try:
        return type(x) is not object and type(new_object(type(x))) is type(x)
    except TypeError:  # one that has more to it
        return False


def contents_of(x: Any) -> tuple[dict[str, Any], Any]:
    """What a plain object holds: its attributes by name, and the items of a list or dict."""
    named = [name for name in copyreg._slotnames(type(x)) if hasattr(x, name)]  # type: ignore[attr-defined]
    attributes = {**getattr(x, "__dict__", {}), **{name: object.__getattribute__(x, name) for name in named}}
    if isinstance(x, dict):
        return attributes, dict(dict.items(x))
    return attributes, [*list.__iter__(x)] if isinstance(x, list) else None


def _is_changeable(x: Any) -> bool:
    """Whether something is a container of trees that can be changed, so that it matters which one it is."""
    if isinstance(x, list | dict) and is_node(x):
        return True
    return is_dataclass(x) and not isinstance(x, type) and not x.__dataclass_params__.frozen  # type: ignore[attr-defined]

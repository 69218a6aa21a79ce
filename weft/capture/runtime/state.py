"""Variables where ways meet: the two branches of an ``if``, or an iteration of a loop and the next.

A value is a tree of leaves. A leaf that is a tensor, or a number that differs, is *carried*: it flows
through the graph. Everything else must be the same on both ways and stays what it is in Python. ``Plan``
says which is which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import is_dataclass
from enum import Enum
from typing import Any, TypeGuard

import numpy as np

from weft.base.dtypes import scalar_dtype
from weft.base.records import NamedTuple
from weft.base.sizes import Size
from weft.base.trees import Structure, tree_flatten, tree_unflatten
from weft.capture.runtime.number import KINDS, Number, higher_kind, number_of
from weft.capture.runtime.owners import is_reference, note_made
from weft.ir.types import TensorType
from weft.ops.op import OPS, type_of
from weft.tensor.dispatch import captured_constant
from weft.tensor.mode import thread
from weft.tensor.node import Leaf
from weft.tensor.tensor import Tensor
from weft.transform.frozen import ByValue
from weft.transform.staging import gives_leaf


class Fixed(NamedTuple):
    """A leaf that is the same on all ways."""

    value: Any


Kind = type[bool] | type[int] | type[float]


class Carried(NamedTuple):
    """A leaf that flows through the graph: a tensor, or a Python number of a kind."""

    type: TensorType
    kind: Kind | None = None


Part = Fixed | Carried


class _Blank:
    """Stands for a tensor or number on a way where nobody reads it: it is whatever the other way says."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "nothing"


BLANK = _Blank()


class Plan(NamedTuple):
    """What a variable is on all ways: its structure, and what each leaf is."""

    structure: Structure
    parts: tuple[Part, ...]

    @property
    def types(self) -> list[TensorType]:
        """The types of what flows through the graph."""
        return [p.type for p in self.parts if isinstance(p, Carried)]


class Mismatch(Exception):  # noqa: N818 - no error of the user yet: whoever joins decides
    """Two values that cannot be one variable, in words."""

    def __init__(self, first: str, second: str) -> None:
        self.first = first
        self.second = second
        super().__init__(first, second)


def is_leaf(x: Any) -> bool:
    """Whether a value is not taken apart: a tensor, a number, or a container from outside."""
    return isinstance(x, Tensor | Number) or is_reference(x)


def plan_of(value: Any) -> Plan:
    """What a value is: its tensors and Numbers flow, all else is fixed."""
    leaves, structure = tree_flatten(value, is_leaf=is_leaf)
    return Plan(_with_plain_lists(structure), tuple(map(_part_of, leaves)))


def _with_plain_lists(structure: Structure) -> Structure:
    """A structure, in which lists that captured code made are as those from outside are."""
    if not any(map(_is_items, structure.items)):
        return structure
    items = [x._replace(kind=list, aux=None) if x and _is_items(x) else x for x in structure.items]
    return Structure(tuple(items))


def _is_items(item: Any) -> bool:
    """Whether a container is a list that captured code made, of a length that is known."""
    return item is not None and issubclass(item.kind, list) and item.aux == "items"


def plan_with(old: Plan, value: Any) -> Plan:
    """What a value is, where tensors that an older plan says are fixed stay so."""
    new = plan_of(value)
    if new.structure != old.structure or not any(_is_fixed_tensor(p) for p in old.parts):
        return new
    leaves = tree_flatten(value, is_leaf=is_leaf)[0]
    rows = zip(old.parts, new.parts, leaves, strict=True)
    return new._replace(parts=tuple(a if _is_fixed_tensor(a) and a.value is x else b for a, b, x in rows))


def _is_fixed_tensor(part: Part) -> TypeGuard[Fixed]:
    return isinstance(part, Fixed) and isinstance(part.value, Tensor)


def _part_of(leaf: Any) -> Part:
    if isinstance(leaf, Tensor):
        if type(leaf._node) is not Leaf:
            return Carried(type_of(leaf))
        if thread.capture.region and leaf._node in thread.capture.notes.leaves:
            raise gives_leaf()
        return Fixed(leaf)  # a leaf that requires grad is changed in place: its data is a slot
    if isinstance(leaf, Number):
        return Carried(TensorType((), KINDS[leaf.kind]), leaf.kind)
    return Fixed(leaf)


def join(a: Plan, b: Plan) -> Plan:
    """What a variable is that comes as either; raises Mismatch if it cannot be both."""
    if a.structure != b.structure:
        _check_references(a, b)
        raise Mismatch(describe(a), describe(b))
    try:
        return Plan(a.structure, tuple(map(_join_parts, a.parts, b.parts)))
    except Mismatch as found:
        _check_references(a, b)
        if len(a.parts) == 1:
            raise
        raise Mismatch(f"{describe(a)} with {found.first}", f"{describe(b)} with {found.second}") from None


def _check_references(*plans: Plan) -> None:
    """Begin the capture again where containers from outside are not one: what they hold is joined then."""
    parts = [p.value for plan in plans for p in plan.parts if isinstance(p, Fixed)]
    found = {id(x) for x in parts if is_reference(x)}
    if found:
        raise ByValue(found)


def _join_parts(a: Part, b: Part) -> Part:
    if a == b if isinstance(a, Carried) or isinstance(b, Carried) else _alike(a.value, b.value):
        return a
    a, b = _flowing(a), _flowing(b)
    if isinstance(a, Carried) and isinstance(b, Carried) and a == b:
        return a
    for part, instead in ((a, b), (b, a)):
        if isinstance(part, Fixed) and part.value is BLANK:
            return instead
    left, right = _kind_of(a), _kind_of(b)
    if left is not None and right is not None:
        kind = higher_kind(left, right)
        found = Carried(TensorType((), KINDS[kind]), kind)
        return a if a == found else found
    tensor, other = (a, right) if isinstance(a, Carried) and a.kind is None else (b, left)
    if isinstance(tensor, Carried) and other is not None and _holds(tensor.type, other):
        return tensor
    first, second = _describe_part(a), _describe_part(b)
    raise Mismatch(first, f"another {second.partition(' ')[2]}" if first == second else second)


def _flowing(part: Part) -> Part:
    """A part, carried if it is a tensor."""
    if isinstance(part, Fixed) and isinstance(part.value, Tensor):
        return Carried(type_of(part.value))
    return part


def _holds(t: TensorType, kind: Kind) -> bool:
    """Whether a number of a kind can be a tensor of a type."""
    return t.shape == () and scalar_dtype(kind(), t.dtype) == t.dtype


def _kind_of(part: Part) -> Kind | None:
    """The kind of a part that is a number, else None."""
    if isinstance(part, Carried):
        return part.kind
    return number_kind(part.value)


def number_kind(x: Any) -> Kind | None:
    """The kind of a plain number, else None; a named size is an int."""
    if isinstance(x, Size):
        return int
    if isinstance(x, bool | int | float) and not isinstance(x, Enum):
        return bool if isinstance(x, bool) else int if isinstance(x, int) else float
    return None


def _alike(a: Any, b: Any) -> bool:
    """Whether two plain values are one to the program."""
    if a is b:
        return True
    if type(a) is not type(b) or isinstance(a, np.ndarray | Tensor | list | dict | set):
        return False
    if isinstance(a, float) and a == b:
        return np.copysign(1.0, a) == np.copysign(1.0, b) or a != 0.0
    try:
        return bool(a == b)
    except Exception:  # whatever its class does there, it is not known to be equal
        return False


# From values to the graph and back


def carried_tensors(value: Any, plan: Plan) -> list[Any]:
    """The tensors of a value that flow, as its plan says."""
    leaves, _ = tree_flatten(value, is_leaf=is_leaf)
    pairs = zip(leaves, plan.parts, strict=True)
    return [_as_carried(leaf, part) for leaf, part in pairs if isinstance(part, Carried)]


def held_leaves(value: Any, plan: Plan) -> list[bool | None]:
    """For each leaf that flows, whether it is a tensor in the value too; None where a number flows."""
    leaves, _ = tree_flatten(value, is_leaf=is_leaf)
    pairs = [(x, part) for x, part in zip(leaves, plan.parts, strict=True) if isinstance(part, Carried)]
    return [isinstance(x, Tensor) if part.kind is None else None for x, part in pairs]


def _as_carried(leaf: Any, part: Carried) -> Any:
    if isinstance(leaf, Number):
        return leaf.in_dtype(part.type.dtype)
    if isinstance(leaf, Size):
        return number_of(leaf).in_dtype(part.type.dtype)
    return captured_constant(np.asarray(leaf, part.type.dtype)) if number_kind(leaf) is not None else leaf


def rebuild(plan: Plan, tensors: Sequence[Any]) -> Any:
    """The value of a plan with these tensors flowing."""
    rest = iter(tensors)
    leaves = [
        p.value if isinstance(p, Fixed) else next(rest) if p.kind is None else Number(p.kind, next(rest))
        for p in plan.parts
    ]
    out = tree_unflatten(plan.structure, leaves)
    _note_containers(out)
    return out


def _note_containers(x: Any) -> None:
    """Note that a tree was made inside the capture."""
    if (not isinstance(x, list | tuple | dict) and not is_dataclass(x)) or is_reference(x):
        return
    note_made(x)
    children = x if isinstance(x, list | tuple) else x.values() if isinstance(x, dict) else vars(x).values()
    for child in children:
        _note_containers(child)


def zeros_of(plan: Plan) -> list[Any]:
    """Tensors for what flows that nobody will read."""
    return [zeros(t) for t in plan.types]


def zeros(t: TensorType) -> Any:
    """A tensor of zeros, which takes no memory in the graph."""
    zero = captured_constant(np.zeros((), t.dtype))
    return zero if t.shape == () else OPS["broadcast_to"].on_tensors(zero, shape=t.shape)


# In words


def describe(plan: Plan) -> str:
    """What a variable is, for messages: ``f32[3]``, ``None``, ``a tuple of 2``."""
    first = plan.structure.items[0]
    if first is None:
        return _describe_part(plan.parts[0])
    return "None" if first.kind is type(None) else f"a {first}"


def _describe_part(part: Part) -> str:
    part = _flowing(part)
    if isinstance(part, Carried):
        return str(part.type) if part.kind is None else f"a Python {part.kind.__name__}"
    kind = number_kind(part.value)
    if kind is not None or isinstance(part.value, str):
        return f"the Python {type(part.value).__name__} {part.value!r}"
    return f"a {type(part.value).__name__}"

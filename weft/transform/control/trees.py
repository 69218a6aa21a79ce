"""What ``cond``, ``while_loop`` and the like share: trees of tensors, and where Python may decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.concrete import is_concrete
from weft.base.trees import Structure, flatten_like, tree_flatten, tree_unflatten
from weft.errors import ArgumentError, DomainError
from weft.ops.op import intercepted, type_of
from weft.tensor.dispatch import captured_constant
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor
from weft.transform.arguments import to_tensor
from weft.transform.control.flat import CarryMismatch


def captures() -> bool:
    """Whether this thread captures a graph."""
    return bool(intercepted.threads) and thread.capture is not None


def is_known(x: Tensor) -> bool:
    """Whether Python may decide on a tensor: no capture runs, and it has one value for all examples."""
    return not captures() and is_concrete(x._data)


def as_tensor(op: str, x: object, place: str) -> Tensor:
    """x as a tensor; numbers and arrays become constants."""
    out = to_tensor(op, x, place)
    if out is not x and captures():
        out = captured_constant(out._data)
    return out


class Tree:
    """The structure of a carry or of results, and what its leaves are called in errors."""

    def __init__(self, op: str, what: str, structure: Structure) -> None:
        self.op = op
        self.what = what
        self.structure = structure

    def leaves(self, tree: object, where: str) -> list[Tensor]:
        """The leaves of a tree of this structure, as tensors."""
        found, structure = tree_flatten(tree)
        if structure != self.structure:
            found = flatten_like(self.op, self.structure, tree, f"{self.what} from {where}")
        return [as_tensor(self.op, x, self.name(i)) for i, x in enumerate(found)]

    def tree(self, leaves: Sequence[Any]) -> Any:
        """The tree with these leaves."""
        return tree_unflatten(self.structure, leaves)

    def name(self, index: int) -> str:
        """What a leaf is called."""
        return self.what + self.structure.paths()[index]

    def check(self, before: Sequence[Tensor], after: Sequence[Tensor], where: str) -> None:
        """Raise if a leaf does not keep its type."""
        for i, (a, b) in enumerate(zip(before, after, strict=True)):
            if a.shape != b.shape or a.dtype != b.dtype:
                raise CarryMismatch(self.op, i, type_of(a), type_of(b), where, name=self.name(i))

    def named(self, error: CarryMismatch) -> CarryMismatch:
        """The same error, naming the leaf by its place in the tree."""
        name = self.name(error.index)
        return CarryMismatch(self.op, error.index, error.expected, error.got, error.where, name=name)


def flatten_tensors(op: str, what: str, tree: object) -> tuple[list[Tensor], Tree]:
    """The leaves of a tree as tensors, and its structure."""
    leaves, structure = tree_flatten(tree)
    form = Tree(op, what, structure)
    return [as_tensor(op, x, form.name(i)) for i, x in enumerate(leaves)], form


def need_tensor(op: str, what: str, x: object) -> Tensor:
    """x, or an error if it is no tensor."""
    if not isinstance(x, Tensor):
        raise ArgumentError(op, f"{what} must be a tensor, got {type(x).__name__}")
    return x


def check_count(op: str, name: str, value: object, least: int) -> None:
    """Raise unless a value is None or an int from a least one on."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise ArgumentError(op, f"{name} must be an int or None, got {value!r}")
    if value is not None and value < least:
        raise DomainError(op, f"{name} must be at least {least}, got {value}")

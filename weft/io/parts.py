"""Sparse and ragged tensors that a saved graph takes or returns, as the tensors that they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.base.trees import Structure, register_tree, tree_flatten, tree_unflatten
from weft.capture.program.arguments import Parts, is_container
from weft.tensor.ragged import RaggedTensor
from weft.tensor.sparse import SparseTensor

_NAMES: dict[type, str] = {SparseTensor: "sparse", RaggedTensor: "ragged"}
KINDS = frozenset(_NAMES.values())


class Parted:
    """What a container is made of: its kind, tensors or marks in place of them, and what else must agree."""

    __slots__ = ("kind", "rest", "tensors")

    def __init__(self, kind: str, tensors: tuple[Any, ...], rest: Any) -> None:
        self.kind = kind
        self.tensors = tensors
        self.rest = rest


register_tree(
    Parted,
    lambda x: (x.tensors, (x.kind, x.rest)),
    lambda aux, tensors: Parted(aux[0], tuple(tensors), aux[1]),
)


def taken_apart(tree: Any) -> Any:
    """A tree in which sparse and ragged tensors are ``Parted``."""
    leaves, structure = tree_flatten(tree, is_leaf=is_container)
    if not any(map(is_container, leaves)):
        return tree
    return tree_unflatten(structure, [_parted(x) if is_container(x) else x for x in leaves])


def _parted(x: Any) -> Parted:
    tensors, rest = x.parts()
    return Parted(_NAMES[type(x)], tensors, rest)


def parted_structure(structure: Structure) -> Structure:
    """The structure of what a capture took or gave, which leaves that are no tensors can fill."""
    return _replaced(structure, Parts, Parted, _NAMES)


def whole_structure(structure: Structure) -> Structure:
    """The structure that makes sparse and ragged tensors of what is ``Parted``."""
    return _replaced(structure, Parted, Parts, {name: kind for kind, name in _NAMES.items()})


def _replaced(structure: Structure, old: type, new: type, kinds: Mapping[Any, Any]) -> Structure:
    items = [
        item._replace(kind=new, aux=(kinds[item.aux[0]], item.aux[1]))
        if item is not None and item.kind is old
        else item
        for item in structure.items
    ]
    return Structure(tuple(items))

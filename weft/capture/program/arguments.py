"""The arguments of a captured function: taken apart into tensors and plain values, and named."""

from __future__ import annotations

import inspect
import types
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.concrete import is_concrete
from weft.base.dtypes import default_float
from weft.base.records import NamedTuple
from weft.base.trees import Structure, register_tree, tree_flatten, tree_unflatten
from weft.capture.program.call_keys import CallKey, LeafKey, TreeShape, tensor_key, value_key
from weft.errors import ArgumentError
from weft.ops.op import Container
from weft.tensor.autocast import autocast_dtype
from weft.tensor.convert import from_ndarray
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor, wrap


class Arguments(NamedTuple):
    """The arguments of one call.

    Attributes:
        leaves: of the tree ``(args, kwargs)``; arrays have become tensors.
        structure: of that tree.
        tensors: those among the leaves, each once.
        shape: of that tree, to be compared.
        keys: of the leaves, likewise.
        converted: whether arrays have become tensors, so that the tree is not the user's own.
        traced: whether some tensor holds something else than an array, inside a transform such as vmap.
        arrays: the ids of tensors that arrays have become.
    """

    leaves: list[Any]
    structure: Structure
    tensors: list[Any]
    shape: TreeShape
    keys: tuple[LeafKey, ...]
    converted: bool
    traced: bool
    arrays: frozenset[int] = frozenset()

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of the tensors."""
        return tuple([t._data.shape for t in self.tensors])


def call_key(arguments: Arguments) -> CallKey:
    """The key of a call with arguments, made now."""
    return CallKey(arguments.shape, arguments.keys, autocast_dtype(), thread.recording, default_float())


def flatten(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """Take the arguments of a call apart."""
    leaves, structure = tree_flatten((args, kwargs), is_leaf=is_container)
    converted = any(type(x) is np.ndarray or isinstance(x, Container) for x in leaves)
    arrays = frozenset[int]()
    if converted:
        given, structure = tree_flatten(taken_apart((args, kwargs)))
        leaves = [wrap(from_ndarray("compile", x, None, None)) if type(x) is np.ndarray else x for x in given]
        arrays = frozenset(id(y) for x, y in zip(given, leaves, strict=True) if x is not y)
    tensors: dict[int, Any] = {}
    keys: list[LeafKey] = []
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            place = len(tensors)
            if tensors.setdefault(id(leaf), leaf) is leaf and len(tensors) > place:
                keys.append(tensor_key(leaf))
            else:
                keys.append(list(tensors).index(id(leaf)))
        else:
            keys.append(value_key(leaf))
    found = list(tensors.values())
    traced = any(not is_concrete(t._data) for t in found)
    return Arguments(leaves, structure, found, TreeShape(structure), tuple(keys), converted, traced, arrays)


def is_container(x: Any) -> bool:
    """Whether something is a sparse or ragged tensor."""
    return isinstance(x, Container)


class Parts:
    """A sparse or ragged tensor as a tree of the tensors that it is made of; it is rebuilt as what it was."""

    __slots__ = ("container",)

    def __init__(self, container: Any) -> None:
        self.container = container


def _flatten_parts(parts: Parts) -> tuple[tuple[Any, ...], Any]:
    tensors, rest = parts.container.parts()
    return tensors, (type(parts.container), rest)


register_tree(Parts, _flatten_parts, lambda aux, tensors: aux[0].from_parts(tuple(tensors), aux[1]))


def taken_apart(tree: Any) -> Any:
    """A tree in which sparse and ragged tensors are trees of their parts."""
    leaves, structure = tree_flatten(tree, is_leaf=is_container)
    if not any(isinstance(x, Container) for x in leaves):
        return tree
    return tree_unflatten(structure, [Parts(x) if isinstance(x, Container) else x for x in leaves])


def rebuild(arguments: Arguments) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as the function gets them."""
    args, kwargs = tree_unflatten(arguments.structure, arguments.leaves)
    return args, kwargs


def containers(tree: Any) -> dict[int, Any]:
    """What makes up a tree and is no leaf, by id; each is gone into once, whatever holds what."""
    found: dict[int, Any] = {}
    visits: Counter[int] = Counter()

    def visit(x: Any) -> bool:
        found[id(x)] = x
        visits[id(x)] += 1
        return visits[id(x)] > 1 or is_container(x)

    visits.subtract(map(id, tree_flatten(tree, is_leaf=visit)[0]))
    return {key: x for key, x in found.items() if visits[key]}


def leaf_names(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> list[str]:
    """The name of each leaf of the arguments: its parameter, then the way to it, as in ``params.w``."""
    named = [(name, value) for name, value in bound_names(function, args, kwargs)]
    out: list[str] = []
    for name, value in named:
        out += [name + readable(path) for path in tree_flatten(taken_apart(value))[1].paths()]
    return out


def readable(path: str) -> str:
    """``['w'][0]`` as ``.w.0``."""
    return path.replace("['", ".").replace("']", "").replace("[", ".").replace("]", "")


def bound_names(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> list[tuple[str, Any]]:
    """Each argument with the name of its parameter, in the order given."""
    positional, rest = _positional_names(function)
    names = [
        positional[i] if i < len(positional) else f"{rest}{i - len(positional)}" for i in range(len(args))
    ]
    return [*zip(names, args, strict=True), *kwargs.items()]


_SAID_ELSEWHERE = frozenset({"__wrapped__", "__signature__"})  # where these are, the code does not tell


def _positional_names(function: Any) -> tuple[list[str], str]:
    """The names of the parameters that take arguments by position, and of the one that takes the rest."""
    if isinstance(function, types.FunctionType) and not _SAID_ELSEWHERE & function.__dict__.keys():
        code = function.__code__  # inspect takes ten times as long to tell the same
        named = code.co_argcount + code.co_kwonlyargcount
        rest = code.co_varnames[named] if code.co_flags & inspect.CO_VARARGS else "x"
        return [*code.co_varnames[: code.co_argcount]], rest
    positional, rest = [], "x"
    signature = signature_of(function)
    for p in signature.parameters.values() if signature is not None else ():
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            positional.append(p.name)
        elif p.kind is p.VAR_POSITIONAL:
            rest = p.name
    return positional, rest


def signature_of(function: Any) -> inspect.Signature | None:
    """How a function or module is called; None where that cannot be known."""
    try:
        return inspect.signature(_body_of(function))
    except (TypeError, ValueError):
        return None


def _body_of(function: Any) -> Any:
    """What tells the names of arguments: of a module it is ``forward``, which its call hands them to."""
    forward = getattr(function, "forward", None)
    return forward if callable(forward) and not isinstance(function, types.FunctionType) else function


_WAITING = 0x20 | 0x80 | 0x200  # flags of generators, coroutines and asynchronous generators, as in inspect


def as_function(op: str, function: Any) -> Any:
    """Something that can be called, and runs when it is: a module without ``__call__`` is its ``forward``."""
    if not callable(function):
        function = getattr(function, "forward", function)
    check_callable(op, function)
    return function


def check_callable(op: str, function: Any) -> None:
    """Raise if something cannot be called, or does not run when it is."""
    if not callable(function):
        raise ArgumentError(op, f"takes a function or a module, got {type(function).__name__}")
    code = getattr(function, "__code__", None)
    if code is not None and code.co_flags & _WAITING:
        hint = "return a list or a tensor"
        raise ArgumentError(
            op, f"takes a function that returns, got the generator {name_of(function)}", hint=hint
        )


def name_of(function: Any) -> str:
    """The name of a function, or of the class of a module."""
    name: str = getattr(function, "__name__", type(function).__name__)
    return name

"""Calls of weft's own functions, which are called as they are: what they are given becomes what they take."""

from __future__ import annotations

from typing import Any

from weft.base.dtypes import result_dtype
from weft.base.sizes import is_known
from weft.base.trees import tree_leaves
from weft.capture.program.slots import MISSING
from weft.capture.runtime.builtins import item
from weft.capture.runtime.control_calls import call_control
from weft.capture.runtime.handed import FUNCTIONS, handed_over, is_weft_function, with_text
from weft.capture.runtime.items import rows_of
from weft.capture.runtime.lists import GraphList, check_plain, check_some, stacked
from weft.capture.runtime.methods import method_of, plain_key
from weft.capture.runtime.number import Number, is_number, number_of
from weft.capture.runtime.owners import note_made
from weft.capture.runtime.plain_arguments import plain_arguments
from weft.capture.runtime.truth import is_staged
from weft.capture.runtime.untold import call_weft_watched
from weft.capture.runtime.whole import note_whole
from weft.ops.rows import rows
from weft.ops.select import cast
from weft.ops.view.primitives import stack
from weft.tensor.choices import without_history
from weft.tensor.convert import number_dtype
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor


def call_weft(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function of weft: the user's functions among the arguments are converted."""
    name = getattr(function, "__name__", "")
    owner = getattr(function, "__self__", None)
    if name == "item" and isinstance(owner, Tensor) and not args and not kwargs:
        return item(owner)
    if name == "tolist" and isinstance(owner, Tensor) and is_staged(owner) and _is_short(owner):
        return _nested(owner)
    if name in _JOINS and args and isinstance(args[0], list) and not isinstance(owner, Tensor):
        found = stacked(args[0])
        if found is not None:
            check_some(name, args[0])
            joined = _stack_again(function, name, found, args[1:], kwargs)
            return joined if thread.recording else without_history(joined)
    if name.startswith("tree_") or name == "scan":  # whose leaves are items, or rows of them
        check_plain((*args, *kwargs.values()), name)
    args, kwargs = with_text(function, args, kwargs)
    note_whole(*args, *kwargs.values(), objects=False)
    args, kwargs = plain_arguments(function, args, kwargs)
    if (found := call_control(function, args, kwargs)) is not MISSING:
        return found
    given = tuple(_argument(x, name) for x in args)
    out = call_weft_watched(function, given, {k: _argument(x, name) for k, x in kwargs.items()})
    if out is NotImplemented and any(isinstance(x, Number) for x in given):
        return function(*_beside(owner, given))  # a method of an operator, which leaves numbers to theirs
    return out


def _beside(owner: Any, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands of a method of a tensor, with tensors for numbers."""
    tensor = owner if isinstance(owner, Tensor) else operands[0]
    return tuple(x.next_to(tensor) if isinstance(x, Number) else x for x in operands)


_MOST_NUMBERS = 256  # that tolist() makes Numbers of; of more the values are looked at


def _is_short(tensor: Tensor) -> bool:
    return is_known(tensor.shape) and tensor.size <= _MOST_NUMBERS


def _nested(tensor: Tensor) -> Any:
    """Nested lists of Numbers."""
    if tensor.ndim == 0:
        return item(tensor)
    parts = rows.on_tensors(tensor, count=tensor.shape[0]) if tensor.shape[0] else ()
    return note_made([_nested(part) for part in parts])


def _stack_again(function: Any, name: str, found: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The stack or join of a list whose rows come from one tensor."""
    axis = kwargs.get("axis", args[0] if args else 0)
    if name == "vstack" or not isinstance(axis, int):
        return function(found, *args, **kwargs)
    at = axis if axis >= 0 else axis + found.ndim - (name == "concat")
    moved = found if at == 0 else found.moveaxis(0, at)
    return moved if name == "stack" else moved.reshape(_merged(moved.shape, at))


def _merged(shape: tuple[Any, ...], axis: int) -> tuple[Any, ...]:
    """A shape with an axis and the next one as one."""
    return (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])


_JOINS = frozenset({"stack", "vstack", "concat"})
_MAKERS = frozenset({"tensor", "asarray", "as_tensor", "full", "full_like", "from_numpy", "scalar_tensor"})


def _argument(x: Any, name: str) -> Any:
    if isinstance(x, GraphList) and x.is_grown and name in _MAKERS:
        tensor, kind = rows_of(x.content)
        return tensor if kind is None else cast(tensor, dtype=number_dtype(kind()))
    if isinstance(x, Number) and name in _MAKERS:
        return x.in_dtype(_alone(x))
    if isinstance(x, list | tuple) and name in _MAKERS and any(isinstance(y, Number) for y in tree_leaves(x)):
        return _stacked_numbers(x)
    if isinstance(x, FUNCTIONS) and not is_weft_function(x):
        return handed_over(x)
    if any(method_of(x, name) is not None for name in _ARRAYS):
        note_whole(x)
    return x if name in _MAKERS or name == "arange" else plain_key(x)


_ARRAYS = ("__array__", "__float__", "__dlpack__")  # methods by which an object says its elements


def _stacked_numbers(x: Any) -> Any:
    """Nested lists of numbers, some of which only a run tells, as a tensor."""
    if not isinstance(x, list | tuple):
        return number_of(x).in_dtype(_alone(number_of(x))) if is_number(x) else x
    parts = [_stacked_numbers(y) for y in x]
    common = result_dtype("tensor", *[p.dtype for p in parts])
    return stack([p if p.dtype == common else p.astype(common) for p in parts])


def _alone(number: Number) -> Any:
    """The dtype of a Python number without tensors beside it."""
    return number_dtype(number.example)

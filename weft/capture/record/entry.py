"""The entry of a version: one generated function that tells quickly whether a call is one of its own.

It takes the arguments as they are given, and covers calls by position with tensors and plain values, not
with trees of them. Other calls, and those while some thread captures, go the general way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from weft.base.concrete import is_on_device
from weft.base.dtypes import default_float_cell
from weft.base.sizes import Size
from weft.base.switch import switch
from weft.base.trees import tree_flatten
from weft.capture.program.call_keys import PLAIN_TYPES, CallKey, Same, TensorKey
from weft.capture.program.guards import Names
from weft.ops.op import casting, intercepted
from weft.tensor.autocast import autocast_dtype
from weft.tensor.form import Form, form_of
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor, wrap

MISS: Any = object()  # what an entry gives where the call is not one of its version
_FEW = 4  # tensors that are compared with each other one by one

Entry = Callable[[tuple[Any, ...]], Any]


def compile_entry(
    key: CallKey,
    check: Callable[[Sequence[Any]], bool],
    run: Callable[[Sequence[Any]], Any],
    fixed: frozenset[int],
) -> Entry:
    """A function of the arguments that gives what the version gives, or ``MISS``.

    Args:
        key: of the calls that the version is for.
        check: whether its guards hold, for the tensors among the arguments.
        run: the version.
        fixed: ids of tensors from outside that must not be among the arguments.
    """
    shape, parts, autocast, recording, floating = key
    names = Names()
    names.bound |= {**_HELPERS, "check": check, "run": run, "fixed": fixed, "floating": floating}
    if shape.structure != tree_flatten(((0,) * len(parts), {}))[1]:
        return no_entry
    try:
        conditions = _conditions(parts, names)
    except _NotCoveredError:
        return no_entry
    tensors = [i for i, part in enumerate(parts) if isinstance(part, TensorKey)]
    conditions += _apart(tensors)
    conditions += [f"id(a{i}) not in fixed" for i in tensors if fixed]
    conditions.append("(not off or thread.recording)" if recording else "off and not thread.recording")
    no_casts = "not casting or " if autocast is None else ""
    conditions.append(f"({no_casts}autocast_dtype() is {names(autocast)})")
    floats = [f"number(a{i}), " for i, part in enumerate(parts) if part is float]
    given = "args" if len(tensors) == len(parts) else f"({''.join([f'a{i}, ' for i in tensors] + floats)})"
    unpacked = f"{''.join(f'a{i}, ' for i in range(len(parts)))} = args" if parts else ""
    listed = "\n                and ".join(conditions)
    return names.define("enter", _ENTRY.format(len(parts), unpacked, listed, given))  # type: ignore[no-any-return]


def no_entry(args: tuple[Any, ...]) -> Any:
    """The entry of a version whose calls all go the general way."""
    return MISS


_ENTRY = """\
def enter(args):
    if staged or len(args) != {0} or default_float[0] is not floating:
        return MISS
    {1}
    try:
        if not ({2}):
            return MISS
    except Exception:  # of a plain value that does not compare
        return MISS
    a = {3}
    return run(a) if check(a) else MISS
"""


class _NotCoveredError(Exception):
    """Of an argument that the general way looks at."""


def _conditions(parts: Sequence[Any], names: Names) -> list[str]:
    out: list[str] = []
    places: list[int] = []  # of tensors, by their number among them
    sizes: dict[str, str] = {}
    for i, part in enumerate(parts):
        if isinstance(part, TensorKey):
            places.append(i)
            out += _tensor_conditions(i, part, names, sizes)
        elif type(part) is int:
            out.append(f"a{i} is a{places[part]}")
        else:
            out.append(_plain_condition(i, part, names))
    return out


def _plain_condition(i: int, part: Any, names: Names) -> str:
    if part is float:
        return f"type(a{i}) is float"
    if isinstance(part, Same):
        return f"a{i} is {names(part.obj)}"
    if len(part) == 2 and (part[0] in PLAIN_TYPES or part[0] is float):
        return f"type(a{i}) is {names(part[0])} and a{i} == {names(part[1])}"
    raise _NotCoveredError


def _tensor_conditions(i: int, part: TensorKey, names: Names, sizes: dict[str, str]) -> list[str]:
    out = [f"type(a{i}) is Tensor", f"a{i}._node {'is not' if part.requires_grad else 'is'} None"]
    if isinstance(part.type, Form):
        form = names(part.type)
        return [*out, f"((f := a{i}._form) is {form} or f is None and settled_form(a{i}) is {form})"]
    shape, dtype = part.type
    out += [f"(type(d := a{i}._data) is ndarray or is_on_device(d))", f"d.dtype is {names(dtype)}"]
    if not any(isinstance(size, Size) for size in shape):
        return [*out, f"d.shape == {names(shape)}"]
    out.append(f"len(s{i} := d.shape) == {len(shape)}")
    for axis, size in enumerate(shape):
        here = f"s{i}[{axis}]"
        if not isinstance(size, Size):
            out.append(f"{here} == {size}")
        elif (known := sizes.setdefault(str(size), here)) == here:
            out.append(f"{here} > 1")
        else:
            out.append(f"{here} == {known}")
    return out


def _apart(tensors: Sequence[int]) -> list[str]:
    """That no tensor is given twice, where the captured call had none twice."""
    if len(tensors) <= _FEW:
        return [f"a{i} is not a{j}" for i, j in combinations(tensors, 2)]
    return [f"len({{{', '.join(f'id(a{i})' for i in tensors)}}}) == {len(tensors)}"]


def settled_form(tensor: Any) -> Form | None:
    """The form of a tensor, noted there for the next time."""
    form = tensor._form = form_of(tensor._data)
    return form


def number(x: float) -> Any:
    """A float as the tensor that stands for it among the inputs of a graph."""
    return wrap(np.asarray(x, np.float64))


_HELPERS: dict[str, Any] = {
    "MISS": MISS,
    "autocast_dtype": autocast_dtype,
    "casting": casting,
    "Tensor": Tensor,
    "default_float": default_float_cell,
    "is_on_device": is_on_device,
    "ndarray": np.ndarray,
    "number": number,
    "off": switch.off,
    "settled_form": settled_form,
    "staged": intercepted.threads,
    "thread": thread,
}

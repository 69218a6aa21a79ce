"""Sequences and optionals, which are lists and None while a model is imported."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.base.sizes import Size
from weft.interop.forms.elements import cut
from weft.onnx.operators.registry import Call, Subgraph, enter_handlers, operator


def _place(call: Call, items: list[Tensor], position: Tensor | None, default: int, last: int) -> int:
    if position is None:
        return default
    found = int(call.scalar(position, "position"))
    if not -len(items) <= found <= last:
        raise call.error(f"position must be in {-len(items)}..{last}, got {found}")
    return found


@operator("SequenceInsert")
def insert(call: Call, items: list[Tensor], x: Tensor, position: Tensor | None = None) -> list[Tensor]:
    """With one more tensor, by default at the end."""
    place = _place(call, items, position, len(items), len(items))
    place = place + len(items) if place < 0 else place
    return [*items[:place], x, *items[place:]]


@operator("SequenceErase")
def erase(call: Call, items: list[Tensor], position: Tensor | None = None) -> list[Tensor]:
    """Without one of the tensors, by default the last."""
    place = _place(call, items, position, len(items) - 1, len(items) - 1) % len(items)
    return [*items[:place], *items[place + 1 :]]


@operator("SplitToSequence", moves=True)
def split_to_sequence(
    call: Call, x: Tensor, parts: Tensor | None = None, *, axis: int = 0, keepdims: int = 1
) -> list[Tensor]:
    """Cut along an axis, into parts of a size, of several sizes, or of one element."""
    axis %= x.ndim
    total = x.shape[axis]
    if isinstance(total, Size):
        raise call.error(f"the size of axis {axis} must be known, got {total}", "fix it with sizes=")
    if parts is None:
        pieces = cut(x, axis, (1,) * total)
        return pieces if keepdims else [weft.squeeze(p, axis=axis) for p in pieces]
    sizes = call.ints(parts, "split")
    if parts.ndim == 0:
        step = sizes[0]
        sizes = tuple([min(step, total - start) for start in range(0, total, step)])
    return cut(x, axis, sizes)


@operator("SequenceMap", folds=False)
def sequence_map(call: Call, items: Any, *others: Any, body: Subgraph) -> tuple[list[Any], ...]:
    """What a graph gives for each tensor."""
    rows = [body(x, *[o[i] if isinstance(o, list) else o for o in others]) for i, x in enumerate(items)]
    return tuple([list(column) for column in zip(*rows, strict=True)] or [[] for _ in call.outputs])


@operator("OptionalGetElement", moves=True)
def get_element(call: Call, x: Any) -> Any:
    """What there is."""
    if x is None:
        raise call.error("there must be an element, got none")
    return x


enter_handlers(
    {
        "SequenceConstruct": lambda call, *inputs: list(inputs),
        "ConcatFromSequence": lambda call, items, *, axis, new_axis=0: (
            weft.stack(items, axis=axis) if new_axis else weft.concat(items, axis=axis)
        ),
    },
    moves=True,
)
enter_handlers(
    {
        "SequenceEmpty": lambda call: [],
        "SequenceLength": lambda call, items: np.array(len(items), np.int64),
        "SequenceAt": lambda call, items, at: items[_place(call, items, at, 0, len(items) - 1)],
        "Optional": lambda call, x=None: x,
        "OptionalHasElement": lambda call, x=None: np.array(x is not None),
    }
)

"""The types of a pipeline's elements, where they can be told without running it; None where they cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import TensorType
from weft.base.dtypes import canonical, float32, kind
from weft.data import stage as kinds
from weft.data.augment import Erase, Flip, Noise, RandomCrop, Rotate, Scale, Shift
from weft.data.stage import Stage, Where, length_of
from weft.data.tree import map_tree, parts_of
from weft.errors import WeftError

ElementType = Any  # a tree of TensorTypes, of texts for arrays that cannot be tensors; None if not known

_SAME = (kinds.Shuffle, kinds.Filter, kinds.Cache, kinds.Repeat, kinds.Take, kinds.Skip, kinds.Prefetch)
_KEEPING = (Flip, Rotate, Shift, Erase, Noise, Scale)


def format_type(tree: ElementType) -> str:
    """The type of an element, such as ``(f32[8,8], i64[])``."""
    if isinstance(tree, tuple):
        inner = ", ".join(format_type(x) for x in tree)
        return f"({inner},)" if len(tree) == 1 else f"({inner})"
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{k}: {format_type(x)}" for k, x in tree.items()) + "}"
    return str(tree)


def element_types(stages: list[Stage]) -> dict[Stage, ElementType]:
    """The type of the elements of each stage; inputs stand before what uses them."""
    found: dict[Stage, ElementType] = {}
    for stage in stages:
        try:
            found[stage] = _type_of(stage, [found[x] for x in stage.inputs])
        except WeftError:  # the stage does not fit its input, which running it will tell
            found[stage] = None
    return found


def _type_of(stage: Stage, inputs: list[ElementType]) -> ElementType:
    if isinstance(stage, kinds.Arrays):
        return map_tree(lambda array: _leaf(array.shape[1:], array.dtype), stage.tree)
    if not inputs or any(x is None for x in inputs):
        return None
    if isinstance(stage, kinds.Zip):
        return tuple(inputs)
    if isinstance(stage, kinds.Concat | kinds.Interleave):
        return inputs[0] if all(x == inputs[0] for x in inputs) else None
    if isinstance(stage, _SAME):
        return inputs[0]
    rule = _RULES.get(type(stage))
    return None if rule is None else rule(stage, inputs[0])


def _leaf(shape: tuple[int, ...], dtype: Any) -> Any:
    own = canonical(dtype)
    return f"text[{','.join(map(str, shape))}]" if own is None else TensorType(shape, own)


def _batch_type(stage: kinds.Batch, element: ElementType) -> ElementType:
    if stage.ragged is not False or stage.collate is not None:
        return None
    count = length_of(stage.inputs[0])
    whole = stage.last != "keep" or (count is not None and count % stage.size == 0)
    size: Any = stage.size // (stage.part or (0, 1))[1] if whole else "batch"
    batch = map_tree(lambda x: x if isinstance(x, str) else TensorType((size, *x.shape), x.dtype), element)
    if not stage.mask:
        return batch
    mask = TensorType((size,), np.dtype(np.bool_))
    if isinstance(batch, dict):
        return {**batch, "mask": mask}
    return (*batch, mask) if isinstance(batch, tuple) and not hasattr(batch, "_fields") else (batch, mask)


def _floating(x: Any) -> Any:
    return TensorType(x.shape, x.dtype if kind(x.dtype) == "f" else float32)


def _tiled(x: Any, repeats: tuple[int, ...]) -> Any:
    rank = max(len(x.shape), len(repeats))
    shape = (1,) * (rank - len(x.shape)) + tuple(x.shape)
    times = (1,) * (rank - len(repeats)) + repeats
    return TensorType(tuple(a * b for a, b in zip(shape, times, strict=True)), x.dtype)


def _cropped(x: Any, size: tuple[int, ...]) -> Any:
    return TensorType((*x.shape[: len(x.shape) - len(size)], *size), x.dtype)


def _augmented(stage: kinds.Augment, element: ElementType) -> ElementType:
    for op in stage.ops:
        if isinstance(op, RandomCrop):
            element = _change(element, stage.on, lambda x, size=op.size: _cropped(x, size))  # type: ignore[misc]
        elif not isinstance(op, _KEEPING):
            return None
        elif isinstance(op, Noise | Scale):
            element = _change(element, stage.on, _floating)
    return element


def _change(element: ElementType, on: Where, function: Callable[[Any], Any]) -> ElementType:
    """An element's type with those of some parts replaced."""
    keys = parts_of("type", element, on)
    if keys == (None,):
        return function(element)
    if isinstance(element, dict):
        return {k: function(x) if k in keys else x for k, x in element.items()}
    return tuple(function(x) if k in keys else x for k, x in enumerate(element))


_RULES: dict[type[Stage], Callable[[Any, ElementType], ElementType]] = {
    kinds.Batch: _batch_type,
    kinds.Normalise: lambda stage, x: _change(x, stage.on, _floating),
    kinds.Tile: lambda stage, x: _change(x, stage.on, lambda leaf: _tiled(leaf, stage.repeats)),
    kinds.Crop: lambda stage, x: _change(x, stage.on, lambda leaf: _cropped(leaf, stage.size)),
    kinds.Augment: _augmented,
}

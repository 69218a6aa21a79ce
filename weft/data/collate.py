"""Elements put together to batches: stacked, ragged, or padded; and last batches filled up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

import weft
from weft.data.stage import Batch, Element
from weft.data.tree import parts_of, tuple_like
from weft.errors import ArgumentError, ShapeError, WeftError


class Padded(NamedTuple):
    """Rows of different length, padded to the longest, and how long each was.

    >>> from weft import data
    >>> rows = data.from_dataset([[1, 2, 3], [4]]).batch(2, ragged="pad")
    >>> next(iter(rows)).values
    tensor([[1, 2, 3],
            [4, 0, 0]])
    """

    values: Any
    lengths: Any


def collate(elements: Sequence[Element], stage: Batch, first: int = 0) -> Element:
    """Elements as one: arrays of their rows, in the same tree.

    Args:
        elements: at least one.
        stage: says how rows of different length are put together.
        first: the number of the first element, for messages.
    """
    if stage.ragged is False:
        return _stack(elements, first)
    if stage.ragged is True or stage.ragged == "pad":
        return _join(elements, stage, first)
    return _join_parts(elements, stage, first)


def _columns(elements: Sequence[Any], join: Callable[[list[Any]], Any]) -> Any:
    """The tree of the elements, with what ``join`` makes of the leaves in each place."""
    head = elements[0]
    try:
        if isinstance(head, tuple):
            return tuple_like(head, [_columns(column, join) for column in zip(*elements, strict=True)])
        if isinstance(head, dict):
            return {k: _columns([e[k] for e in elements], join) for k in head}
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, WeftError):
            raise
        raise ArgumentError("batch", "elements must be trees of one structure", hint=str(error)) from error
    return join(list(elements))


def stack(elements: Sequence[Element]) -> Element:
    """Elements as one: arrays of their rows, in the same tree."""
    return _stack(elements, 0)


def _stack(elements: Sequence[Any], first: int) -> Any:
    return _columns(elements, lambda column: _stack_leaves(column, first))


def _stack_leaves(column: list[Any], first: int) -> Any:
    head = column[0]
    if head is None:
        return None
    if type(head) in (int, bool, str) or isinstance(head, np.generic):
        with suppress(ValueError):  # of something else among them, which is said below
            return np.array(column)
    arrays = [x if type(x) is np.ndarray else _as_array(x) for x in column]
    shape = arrays[0].shape
    if any(x.shape != shape for x in arrays):
        raise _misfit(arrays, first)
    if not shape:
        return np.array(arrays)
    return np.concatenate(arrays).reshape(len(arrays), *shape)  # in half the time of np.stack


def _misfit(arrays: list[Any], first: int) -> ShapeError:
    shape = arrays[0].shape
    i = next(i for i, a in enumerate(arrays) if a.shape != shape)
    message = (
        f"elements must have one shape, got {shape} and {arrays[i].shape} (elements {first} and {first + i})"
    )
    return ShapeError("batch", message, hint="batch(n, ragged=True) keeps rows of different length")


def _join(elements: Sequence[Any], stage: Batch, first: int) -> Any:
    """Ragged leaves where they have an axis, stacked ones where they have none."""

    def join(column: list[Any]) -> Any:
        arrays = [_as_array(x) for x in column]
        return _stack_leaves(column, first) if arrays[0].ndim == 0 else _join_leaves(arrays, stage, first)

    return _columns(elements, join)


def _join_parts(elements: Sequence[Any], stage: Batch, first: int) -> Any:
    """Ragged leaves in the parts that are named, stacked ones in the others."""
    keys = parts_of("batch", elements[0], stage.ragged)
    head = elements[0]
    made = {}
    for k in head if isinstance(head, dict) else range(len(head)):
        column = [e[k] for e in elements]
        made[k] = _join(column, stage, first) if k in keys else _stack(column, first)
    return made if isinstance(head, dict) else tuple_like(head, list(made.values()))


def _join_leaves(arrays: list[Any], stage: Batch, first: int) -> Any:
    inner = arrays[0].shape[1:]
    if any(a.ndim == 0 or a.shape[1:] != inner for a in arrays):
        i = next(i for i, a in enumerate(arrays) if a.ndim == 0 or a.shape[1:] != inner)
        message = f"rows must differ in their first axis alone, got {arrays[0].shape} and {arrays[i].shape}"
        raise ShapeError("batch", f"{message} (elements {first} and {first + i})")
    lengths = np.array([len(a) for a in arrays], np.int64)
    if stage.ragged != "pad":
        splits = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return weft.ragged_from_splits(weft.from_numpy(np.concatenate(arrays)), weft.from_numpy(splits))
    dtype = np.result_type(*{a.dtype for a in arrays})
    out = np.full((len(arrays), int(lengths.max()), *inner), stage.value, dtype)
    for row, array in zip(out, arrays, strict=True):
        row[: len(array)] = array
    return Padded(out, lengths)


# Full batches


def pad_batch(batch: Element, count: int, stage: Batch) -> Element:
    """A batch of ``count`` elements filled up to its size, with a mask of what is real if one is wanted."""
    short = stage.size - count
    if short and stage.last == "pad":
        batch = _fill_tree(batch, short, stage.value)
    if not stage.mask:
        return batch
    mask = np.arange(stage.size if stage.last == "pad" else count) < count
    if isinstance(batch, dict):
        return {**batch, "mask": mask}
    return (*batch, mask) if isinstance(batch, tuple) and not hasattr(batch, "_fields") else (batch, mask)


def rows_of(tree: Any, start: int, stop: int) -> Any:
    """Some rows of a batch."""
    if isinstance(tree, tuple):
        return tuple_like(tree, [rows_of(x, start, stop) for x in tree])
    if isinstance(tree, dict):
        return {k: rows_of(x, start, stop) for k, x in tree.items()}
    if isinstance(tree, weft.RaggedTensor):
        splits = tree.splits.numpy()[start : stop + 1]
        values = tree.values.numpy()[splits[0] : splits[-1]]
        return weft.ragged_from_splits(weft.from_numpy(values), weft.from_numpy(splits - splits[0]))
    return None if tree is None else tree[start:stop]


def _fill_tree(tree: Any, short: int, value: float) -> Any:
    if isinstance(tree, Padded):
        return Padded(_fill(tree.values, short, value), _fill(tree.lengths, short, 0))
    if isinstance(tree, tuple):
        return tuple_like(tree, [_fill_tree(x, short, value) for x in tree])
    if isinstance(tree, dict):
        return {k: _fill_tree(x, short, value) for k, x in tree.items()}
    return _fill(tree, short, value)


def _fill(leaf: Any, short: int, value: float) -> Any:
    if isinstance(leaf, weft.RaggedTensor):
        splits = leaf.splits.numpy()
        return weft.ragged_from_splits(leaf.values, weft.from_numpy(np.append(splits, [splits[-1]] * short)))
    if leaf is None:
        return None
    filler = np.zeros((short, *leaf.shape[1:]), leaf.dtype)
    if leaf.dtype.kind not in "US":
        filler[...] = value
    return np.concatenate([leaf, filler])


# Leaves


def _as_array(x: Any) -> Any:
    """A leaf as an array; Python's floats are of weft's default dtype."""
    array = np.asarray(x)
    if isinstance(x, float) and not isinstance(x, np.generic):
        return array.astype(weft.get_default_dtype())
    if isinstance(x, list) and array.dtype == np.float64 and not _has_arrays(x):
        return array.astype(weft.get_default_dtype())
    return array


def _has_arrays(x: Any) -> bool:
    while isinstance(x, list) and x:
        x = x[0]
    return isinstance(x, np.ndarray | np.generic)

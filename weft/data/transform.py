"""What stages do to one element: a function of the epoch, the element's number and the element.

Some also work on many rows at once, with the same result. Functions of the user are called through
``call_user``, which says which stage failed on what.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.philox import Block, Key
from weft.data.augment import RandomCrop, centre_box
from weft.data.keys import element_block, element_blocks, element_key, folded_key, stage_key
from weft.data.stage import Augment, Change, Crop, Element, Items, Map, Normalise, Stage, Tile, function_name
from weft.data.tree import change_parts, parts_of, to_arrays
from weft.errors import PipelineError, ShapeError

IDLE = -1

# The stage and the element that a function of the user works on; in a worker, memory that its parent reads.
doing: list[Any] = [[IDLE, 0]]


def call_user(
    stage: Stage, number: int, epoch: int, i: int, function: Callable[..., Any], *arguments: Any
) -> Any:
    """What a function of the user gives; an error of it becomes one that says where it happened."""
    note = doing[0]
    note[0], note[1] = number, i
    try:
        return function(*arguments)
    except PipelineError:
        raise  # of a pipeline inside this one
    except Exception as error:
        what = f"{_label(stage, function)} (stage %{number}) failed on element {i} of epoch {epoch}"
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise PipelineError(stage_name(stage), f"{what}: {why}", location=stage.location) from error
    finally:
        note[0] = IDLE


def _label(stage: Stage, function: Callable[..., Any]) -> str:
    """What to call a function that a stage calls."""
    if isinstance(stage, Items):
        return type(stage.dataset).__name__
    known = (getattr(stage, name, None) for name in ("function", "predicate", "read", "collate"))
    return function_name(next((f for f in known if f is not None), function))


def stage_name(stage: Stage) -> str:
    """The name of a stage in texts and errors."""
    return getattr(stage, "origin", stage.name)


def spread(element: Element) -> tuple[Any, ...]:
    """The arguments that an element is for a function: a tuple is several."""
    plain = isinstance(element, tuple) and not hasattr(element, "_fields")
    return element if plain else (element,)


class Transform:
    """A stage that makes one element of one."""

    def __init__(self, stage: Any, number: int, draw: int) -> None:
        self.stage = stage
        self.number = number
        self.draw = draw  # its number in keys

    def key(self, epoch: int) -> Key:
        """The key of its draws in an epoch."""
        return stage_key(self.stage.seed, self.draw, epoch)

    def apply(self, epoch: int, i: int, element: Element) -> Element:
        """What becomes of element i."""
        raise NotImplementedError

    def apply_many(self, epoch: int, numbers: Sequence[int], elements: list[Element]) -> list[Element]:
        """What becomes of elements with these numbers."""
        return [self.apply(epoch, i, x) for i, x in zip(numbers, elements, strict=True)]

    def apply_rows(self, rows: Element) -> Element | None:
        """What becomes of many elements, stacked, if that is the same as one by one; else None."""
        return None


class _Map(Transform):
    stage: Map

    def apply(self, epoch: int, i: int, element: Element) -> Element:
        stage = self.stage
        arguments = spread(element)
        if stage.keyed:
            key = element_key(self.key(epoch), i)
            arguments = (*arguments, key)
        return to_arrays(call_user(stage, self.number, epoch, i, stage.function, *arguments))


class _Normalise(Transform):
    stage: Normalise

    def apply(self, epoch: int, i: int, element: Element) -> Element:
        keys = parts_of("normalise", element, self.stage.on)
        return change_parts(element, keys, lambda x: self._scale(x, 0))

    def apply_rows(self, rows: Element) -> Element | None:
        keys = parts_of("normalise", rows, self.stage.on)
        return change_parts(rows, keys, lambda x: self._scale(x, 1))

    def _scale(self, x: Any, lead: int) -> Any:
        """Scale an array with so many axes before those of an element."""
        dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.float32)
        mean, std = (self._along(part, x.ndim - lead, dtype) for part in (self.stage.mean, self.stage.std))
        try:
            scaled = np.asarray(x.astype(dtype, copy=False) - mean)
            return np.divide(scaled, std, out=scaled)
        except ValueError:
            shape = x.shape[lead:]
            message = (
                f"mean and std must fit axis {self.stage.axis}, got {mean.shape} for an array of {shape}"
            )
            raise ShapeError("normalise", message, location=self.stage.location) from None

    def _along(self, part: Any, ndim: int, dtype: Any) -> Any:
        array = np.asarray(part, dtype)
        if array.ndim != 1 or ndim == 0:
            return array
        shape = [1] * ndim
        shape[self.stage.axis] = -1
        return array.reshape(shape)


class _Tile(Transform):
    stage: Tile

    def apply(self, epoch: int, i: int, element: Element) -> Element:
        keys = parts_of("tile", element, self.stage.on)
        return change_parts(element, keys, lambda x: np.tile(x, self.stage.repeats))


class _Crop(Transform):
    stage: Crop

    def apply(self, epoch: int, i: int, element: Element) -> Element:
        stage = self.stage
        if stage.random:
            return self._cut(element, element_block(self.key(epoch), i))
        keys = parts_of("crop", element, stage.on)
        return change_parts(element, keys, lambda x: x[centre_box("crop", x.shape, stage.size)])

    def apply_many(self, epoch: int, numbers: Sequence[int], elements: list[Element]) -> list[Element]:
        if not self.stage.random:
            return super().apply_many(epoch, numbers, elements)
        blocks = element_blocks(self.key(epoch), numbers)
        return [self._cut(x, words) for x, words in zip(elements, blocks, strict=True)]

    def _cut(self, element: Element, words: Block) -> Element:
        cut = RandomCrop(self.stage.size)
        return change_parts(element, parts_of("crop", element, self.stage.on), lambda x: cut(x, words))

    def apply_rows(self, rows: Element) -> Element | None:
        if self.stage.random:
            return None
        keys, size = parts_of("crop", rows, self.stage.on), self.stage.size
        return change_parts(
            rows, keys, lambda x: np.ascontiguousarray(x[:, *centre_box("crop", x.shape[1:], size)])
        )


class _Augment(Transform):
    stage: Augment

    def apply(self, epoch: int, i: int, element: Element) -> Element:
        return self.apply_many(epoch, (i,), [element])[0]

    def apply_many(self, epoch: int, numbers: Sequence[int], elements: list[Element]) -> list[Element]:
        for place, op in enumerate(self.stage.ops):
            key = folded_key(self.key(epoch), place)
            if isinstance(op, Change):
                blocks = element_blocks(key, numbers)
                elements = [self._change(x, op, words) for x, words in zip(elements, blocks, strict=True)]
            else:
                elements = [self._call(x, op, key, epoch, i) for x, i in zip(elements, numbers, strict=True)]
        return elements

    def _change(self, element: Element, op: Any, words: Block) -> Element:
        keys = parts_of("augment", element, self.stage.on)
        return change_parts(element, keys, lambda x: op(x, words))

    def _call(self, element: Element, op: Any, base: Key, epoch: int, i: int) -> Element:
        keys, key = parts_of("augment", element, self.stage.on), element_key(base, i)
        return change_parts(
            element, keys, lambda x: to_arrays(call_user(self.stage, self.number, epoch, i, op, x, key))
        )


_KINDS: dict[type[Stage], type[Transform]] = {
    Map: _Map,
    Normalise: _Normalise,
    Tile: _Tile,
    Crop: _Crop,
    Augment: _Augment,
}


def transform_of(stage: Stage, number: int, draw: int) -> Transform:
    """What a stage does to one element; its numbers in texts and in keys."""
    return _KINDS[type(stage)](stage, number, draw)

"""Pipelines as text: one line a stage, with the type of its elements where it is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.notebook import place_text
from weft.data.element_type import element_types, format_type
from weft.data.stage import Prefetch, Stage, draw_numbers_of, function_name, numbers_of, stages_of
from weft.data.transform import stage_name

ALIGNED = 80  # of a line that locations are aligned behind: a long one does not push all others away


def format_pipeline(last: Stage, *, locations: bool = True) -> str:
    """A pipeline, one line a stage.

    >>> import numpy as np
    >>> from weft import data
    >>> images = data.from_arrays(np.zeros((10, 8, 8), np.float32), np.zeros(10, np.int64))
    >>> print(images.shuffle().batch(5).to_text(locations=False))
    pipeline {
      %0: (f32[8,8], i64[]) = arrays(count=10)
      %1: (f32[8,8], i64[]) = shuffle(%0)
      %2: (f32[5,8,8], i64[5]) = batch(%1, size=5)
      return %2
    }
    """
    stages = stages_of(last)
    numbers = numbers_of(last)
    types = element_types(stages)
    lines = [_line(stage, numbers, types) for stage in stages]
    if locations:
        width = max((len(line) for line in lines if len(line) <= ALIGNED), default=0)
        lines = [_located(line, stage, width) for line, stage in zip(lines, stages, strict=True)]
    return "\n".join(["pipeline {", *lines, f"  return %{numbers[last]}", "}"])


def _line(stage: Stage, numbers: dict[Stage, int], types: dict[Stage, Any]) -> str:
    inputs = [f"%{numbers[x]}" for x in stage.inputs]
    known = types[stage]
    type_ = "" if known is None else f": {format_type(known)}"
    return f"  %{numbers[stage]}{type_} = {describe_stage(stage, inputs)}"


def _located(line: str, stage: Stage, width: int) -> str:
    if stage.location is None:
        return line
    return f"{line:<{width}}  @ {place_text(*stage.location)}"


def describe_stage(stage: Stage, inputs: Sequence[str] = (), *, paths: bool = True) -> str:
    """A stage with its settings, such as ``batch(%1, size=5)``.

    Names of files, and which part of batches a rank makes, are among them if wanted.
    """
    settings = {k: value for k, value in stage.settings().items() if paths or k not in ("path", "part")}
    shown = [_setting(name, value) for name, value in settings.items()]
    return f"{stage_name(stage)}({', '.join([*inputs, *shown])})"


def _setting(name: str, value: Any) -> str:
    if name == "dataset":
        return type(value).__name__
    if callable(value):
        return function_name(value)
    if isinstance(value, np.ndarray):
        return f"{name}={_array_text(value)}"
    if name == "ops":
        return ", ".join(
            function_name(op) if not hasattr(op, "__dataclass_fields__") else repr(op) for op in value
        )
    return f"{name}={value!r}"


def _array_text(array: Any) -> str:
    return str(array.tolist()) if array.size <= 4 else f"{array.dtype}{list(array.shape)}"


def fingerprint(last: Stage, *, paths: bool = False) -> list[str]:
    """What must be the same for a state or cached files to be of use: all stages other than prefetch.

    Names of files, and which part of batches a rank makes, are in it if wanted; a run may be resumed where
    they are others.
    """
    numbers = draw_numbers_of(last)
    inputs = {x: [f"%{numbers[_without_prefetch(y)]}" for y in x.inputs] for x in numbers}
    return [describe_stage(x, inputs[x], paths=paths) for x in numbers]


def _without_prefetch(stage: Stage) -> Stage:
    while isinstance(stage, Prefetch):
        stage = stage.inputs[0]
    return stage

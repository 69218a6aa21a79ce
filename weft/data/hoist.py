"""Prefetch moved to where it does not matter for what comes out.

A prefetch in the middle would cut a pipeline: what comes behind could no longer be had by number. So it moves
behind every stage that can be computed by number, or element by element; order, draws and states are then
those of the pipeline without it, and its workers do more of the work.
"""

from __future__ import annotations

from dataclasses import replace

from weft.data.stage import TRANSFORMS, Batch, Cache, Prefetch, Stage, is_indexable, stages_of


def hoist(last: Stage) -> tuple[Stage, dict[Stage, Stage]]:
    """The stages with prefetch moved, and for each of them the one that it was."""
    made: dict[Stage, Stage] = {}
    for stage in stages_of(last):
        made[stage] = _rebuild(stage, tuple(made[x] for x in stage.inputs))
    was = {_without(new): old for old, new in made.items() if not isinstance(old, Prefetch)}
    was |= {new: old for old, new in made.items() if isinstance(new, Prefetch)}
    return made[last], was


def _rebuild(stage: Stage, inputs: tuple[Stage, ...]) -> Stage:
    """A stage on inputs that were rebuilt, with a prefetch of these behind it if that can be."""
    ahead = [x for x in inputs if isinstance(x, Prefetch)]
    bare = tuple(_without(x) for x in inputs)
    if isinstance(stage, Prefetch):
        return _merged([stage, *ahead], bare[0]) if ahead else _on(stage, inputs)
    if not ahead or isinstance(stage, Cache):  # what a cache keeps is made by the workers before it
        return _on(stage, inputs)
    moved = _on(stage, bare)
    if not isinstance(stage, (Batch, *TRANSFORMS)) and not is_indexable(moved):
        return _on(stage, inputs)
    found = _merged(ahead, moved)
    size = stage.size if isinstance(stage, Batch) else 1
    return replace(found, count=max(1, -(-found.count // size)))


def _on(stage: Stage, inputs: tuple[Stage, ...]) -> Stage:
    """The stage itself if these are its inputs, else one like it."""
    return stage if inputs == stage.inputs else replace(stage, inputs=inputs)


def _merged(ahead: list[Prefetch], source: Stage) -> Prefetch:
    """One prefetch that does what several do."""
    by_process = next((x for x in ahead if x.mode == "process"), ahead[0])
    count, workers = max(x.count for x in ahead), max(x.workers for x in ahead)
    return replace(by_process, inputs=(source,), count=count, workers=workers)


def _without(stage: Stage) -> Stage:
    return stage.inputs[0] if isinstance(stage, Prefetch) else stage

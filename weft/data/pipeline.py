"""The pipeline that users hold: stages put together by methods, epochs by iteration, and a state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, NoReturn

import weft
from weft.base.elsewhere import unknown_of
from weft.base.frames import user_location
from weft.base.public import name_methods
from weft.data import check
from weft.data import stage as kinds
from weft.data.device import on_device
from weft.data.epoch import Epoch, Progress
from weft.data.plan import Plan, plan_of
from weft.data.sharding import sharded
from weft.data.stage import Element, Stage, Where, length_of
from weft.data.stream import State
from weft.data.text import fingerprint, format_pipeline
from weft.errors import ArgumentError, CaptureError, DomainError

_FORMAT = 1


class Pipeline:
    """Elements from a source through stages; iterating over it is one epoch, and the next time the next one.

    The stages are never changed: each method returns a new pipeline. What a pipeline itself remembers is
    which epoch it is in, and how far.

    >>> import numpy as np
    >>> from weft import data
    >>> pipeline = data.from_arrays(np.arange(6)).map(lambda x: x * x).shuffle(seed=1).batch(3)
    >>> len(pipeline)
    2
    >>> sorted(int(x) for batch in pipeline for x in batch)
    [0, 1, 4, 9, 16, 25]
    """

    def __init__(self, stage: Stage, *, tensors: bool = True, device: Any = None) -> None:
        self.stage = stage
        self._tensors = tensors
        self._device = device
        self._plan: tuple[Plan, Stage] | None = None
        self._epoch = 0  # that of the next iteration
        self._start: State | None = None  # where that begins
        self._running: Progress | None = None  # whose state is this pipeline's

    # Stages

    def _then(self, kind: Callable[..., Stage], *others: Pipeline, **settings: Any) -> Pipeline:
        for other in others:
            if not isinstance(other, Pipeline):
                raise ArgumentError(
                    str(getattr(kind, "name", kind)), f"takes pipelines, got {type(other).__name__}"
                )
        inputs = (self.stage, *[other.stage for other in others])
        made = kind(inputs=inputs, location=user_location(3), **settings)
        return Pipeline(made, tensors=self._tensors, device=self._device)

    def map(self, function: Callable[..., Element], *, keyed: bool = False, seed: int = 0) -> Pipeline:
        """What a function gives for each element; for each batch, if it comes after ``batch``.

        Args:
            function: of an element. An element that is a tuple is passed as several arguments. Arrays are
                NumPy's; the function may return tensors, too.
            keyed: whether it is given a key of ``weft.random`` as its last argument, another one for each
                element and epoch, and the same whoever works on it.
            seed: of these keys.

        >>> from weft import data
        >>> list(data.from_arrays([1, 2], [3, 4]).map(lambda x, y: x * y).numpy())
        [np.int64(3), np.int64(8)]
        """
        check.function("map", function)
        return self._then(kinds.Map, function=function, keyed=keyed, seed=check.seed("map", seed))

    def filter(self, predicate: Callable[..., Any]) -> Pipeline:
        """The elements for which a function is true.

        >>> from weft import data
        >>> list(data.from_arrays([1, 2, 3, 4]).filter(lambda x: x % 2 == 0).numpy())
        [np.int64(2), np.int64(4)]
        """
        return self._then(kinds.Filter, predicate=check.function("filter", predicate))

    def shuffle(self, buffer: int | None = None, *, seed: int = 0) -> Pipeline:
        """The elements in random order, another one in each epoch.

        Args:
            buffer: how many elements wait for their turn at a time; all of them if it is None.
            seed: the same seed gives the same orders.

        >>> from weft import data
        >>> digits = data.from_arrays([0, 1, 2, 3, 4]).shuffle(seed=3).batch(5)
        >>> next(iter(digits)), next(iter(digits))
        (tensor([3, 1, 2, 0, 4]), tensor([1, 3, 4, 2, 0]))
        """
        if buffer is not None:
            check.positive("shuffle", "buffer", buffer)
        return self._then(kinds.Shuffle, buffer=buffer, seed=check.seed("shuffle", seed))

    def batch(
        self,
        size: int,
        last: str = "keep",
        *,
        ragged: Any = False,
        value: float = 0,
        mask: bool = False,
        collate: Callable[[list[Element]], Element] | None = None,
    ) -> Pipeline:
        """Elements put together, ``size`` at a time: arrays get an axis in front.

        Args:
            size: elements in a batch.
            last: what becomes of a last batch that is not full: "keep" it, "drop" it or "pad" it.
            ragged: how rows of different length are put together: as a ragged tensor (True), or as
                ``data.Padded``, an array and lengths ("pad"). Names of parts of an element, such as
                ``("tokens",)``, make those ragged and stack the others.
            value: what is padded with.
            mask: whether a batch has one more part, which tells what is an element and what was padded.
            collate: a function of your own, from a list of elements to a batch.

        >>> from weft import data
        >>> list(data.from_arrays([1, 2, 3]).batch(2, last="pad", mask=True))
        [(tensor([1, 2]), tensor([True, True])), (tensor([3, 0]), tensor([ True, False]))]
        >>> next(iter(data.from_dataset([[1, 2], [3]]).batch(2, ragged=True)))
        ragged([[1, 2],
                [3]])
        """
        check.positive("batch", "size", size)
        check.choice("batch", "last", last, ("keep", "drop", "pad"))
        settings = {"ragged": check.ragged("batch", ragged), "value": value, "mask": mask}
        if collate is not None:
            check.function("batch", collate)
        return self._then(kinds.Batch, size=size, last=last, collate=collate, **settings)

    def shard(self, mesh: Any, *, axis: str = "data") -> Pipeline:
        """The part of this rank of each batch; a rank makes no more elements than that where it can be.

        The batches are those of one process, whatever the number of ranks: together the ranks get every
        element once in an epoch, and a state that was saved by some is resumed by any other number of them.

        Args:
            mesh: of the ranks.
            axis: along which batches are shared out; ranks along other axes get the same.

        >>> from weft import data
        >>> from weft import parallel as par
        >>> def program():
        ...     batches = data.from_arrays([0, 1, 2, 3, 4, 5, 6, 7]).batch(4).shard(par.mesh(data=-1))
        ...     return [batch.tolist() for batch in batches]
        >>> par.simulate(program, 2)
        [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
        """
        return Pipeline(sharded(self.stage, mesh, axis), tensors=self._tensors, device=self._device)

    def normalise(self, mean: Any, std: Any, *, axis: int = 0, on: Where = None) -> Pipeline:
        """``(x - mean) / std``, in floating point.

        Args:
            mean: a number, or one for each place along the axis.
            std: likewise.
            axis: of the channels, in an element.
            on: which parts of an element; the first of a tuple if none is named.

        >>> from weft import data
        >>> next(iter(data.from_arrays([[1, 3]]).normalise(2.0, 0.5)))
        tensor([-2.,  2.])
        """
        arrays = [check.numbers("normalise", name, x) for name, x in (("mean", mean), ("std", std))]
        if not (arrays[1] > 0).all():
            raise DomainError("normalise", f"std must be positive, got {arrays[1].tolist()}")
        return self._then(kinds.Normalise, mean=arrays[0], std=arrays[1], axis=axis, on=on)

    def crop(self, size: Sequence[int], *, random: bool = False, seed: int = 0, on: Where = None) -> Pipeline:
        """A part of the last axes: the centre, or a random one.

        >>> import numpy as np
        >>> from weft import data
        >>> next(iter(data.from_arrays(np.arange(16).reshape(1, 4, 4)).crop((2, 2))))
        tensor([[ 5,  6],
                [ 9, 10]])
        """
        sizes = check.sizes("crop", size)
        return self._then(kinds.Crop, size=sizes, random=random, seed=check.seed("crop", seed), on=on)

    def tile(self, repeats: Sequence[int] | int, *, on: Where = None) -> Pipeline:
        """Arrays repeated along their axes, as ``weft.tile`` does.

        >>> from weft import data
        >>> next(iter(data.from_arrays([[1, 2]]).tile((2, 2))))
        tensor([[1, 2, 1, 2],
                [1, 2, 1, 2]])
        """
        return self._then(kinds.Tile, repeats=check.sizes("tile", repeats), on=on)

    def augment(self, *changes: Any, seed: int = 0, on: Where = None) -> Pipeline:
        """Random changes, one after the other: ``data.Flip``, ``data.Shift``, ..., or functions of your own.

        Args:
            changes: each is one of those, or a function of an array and a key of ``weft.random``.
            seed: of the draws.
            on: which parts of an element; several are changed alike. The first of a tuple if none is named.

        >>> import numpy as np
        >>> from weft import data
        >>> images = data.from_arrays(np.ones((4, 8, 8), np.float32))
        >>> next(iter(images.augment(data.Flip(), data.Shift(2), data.Noise(0.1)).batch(4))).shape
        (4, 8, 8)
        """
        if not changes:
            raise ArgumentError("augment", "takes at least one change, got none")
        for change in changes:
            check.function("augment", change)
        return self._then(kinds.Augment, ops=tuple(changes), seed=check.seed("augment", seed), on=on)

    def cache(self, path: Any = None) -> Pipeline:
        """Elements that are made once and kept: in memory, or as .npy files in a directory.

        What is kept is what comes before in epoch 0, so random stages belong behind it. Memory belongs to the
        pipeline that is iterated over.

        >>> from weft import data
        >>> calls = []
        >>> squares = data.from_arrays([1, 2]).map(lambda x: calls.append(x) or x * x).cache().batch(2)
        >>> for epoch in range(3):
        ...     print(*squares, len(calls))
        tensor([1, 4]) 2
        tensor([1, 4]) 2
        tensor([1, 4]) 2
        """
        return self._then(kinds.Cache, path=None if path is None else str(path))

    def flatten(self) -> Pipeline:
        """The elements of each element, one after the other: the records of files, say.

        >>> from weft import data
        >>> list(data.from_dataset(["ab", "c"]).flatten())
        ['a', 'b', 'c']
        """
        return self._then(kinds.Flatten)

    def repeat(self, times: int | None = None) -> Pipeline:
        """Several epochs as one; without a number there is no end.

        >>> from weft import data
        >>> list(data.from_arrays([1, 2]).repeat(2).numpy())
        [np.int64(1), np.int64(2), np.int64(1), np.int64(2)]
        """
        if times is not None:
            check.positive("repeat", "times", times)
        return self._then(kinds.Repeat, times=times)

    def take(self, count: int) -> Pipeline:
        """The first elements.

        >>> from weft import data
        >>> list(data.from_arrays([1, 2, 3]).take(1).numpy())
        [np.int64(1)]
        """
        return self._then(kinds.Take, count=check.count("take", count))

    def skip(self, count: int) -> Pipeline:
        """All but the first elements.

        >>> from weft import data
        >>> list(data.from_arrays([1, 2, 3]).skip(1).numpy())
        [np.int64(2), np.int64(3)]
        """
        return self._then(kinds.Skip, count=check.count("skip", count))

    def concat(self, *others: Pipeline) -> Pipeline:
        """The elements of this one, then those of others.

        >>> from weft import data
        >>> list(data.from_arrays([1]).concat(data.from_arrays([2])).numpy())
        [np.int64(1), np.int64(2)]
        """
        return self._then(kinds.Concat, *others)

    def zip(self, *others: Pipeline) -> Pipeline:
        """Tuples of an element of each, up to the end of the shortest.

        >>> from weft import data
        >>> list(data.from_arrays([1, 2]).zip(data.from_arrays([3, 4, 5])).numpy())
        [(np.int64(1), np.int64(3)), (np.int64(2), np.int64(4))]
        """
        return self._then(kinds.Zip, *others)

    def interleave(self, *others: Pipeline, block: int = 1) -> Pipeline:
        """Elements of each in turn, ``block`` at a time, until all have ended.

        >>> from weft import data
        >>> list(data.from_arrays([1, 2, 3]).interleave(data.from_arrays([9])).numpy())
        [np.int64(1), np.int64(9), np.int64(2), np.int64(3)]
        """
        return self._then(kinds.Interleave, *others, block=check.positive("interleave", "block", block))

    def prefetch(
        self, count: int = 2, *, workers: int = 1, mode: str = "thread", start: str | None = None
    ) -> Pipeline:
        """The same elements in the same order, made while those before are used.

        It belongs at the end, where a worker makes whole batches. In the middle of a pipeline it is moved
        behind all stages that can do without the elements before.

        Args:
            count: how many are made ahead, at most.
            workers: how many threads or processes make them.
            mode: "thread", for what waits or computes outside of Python; "process", for what is Python.
            start: how processes are started: "fork" (the default on Linux), "forkserver" or "spawn". The
                last two need functions that can be imported.

        >>> import numpy as np
        >>> from weft import data
        >>> pipeline = data.from_arrays(np.arange(4)).batch(2).prefetch(2, workers=2)
        >>> list(pipeline)
        [tensor([0, 1]), tensor([2, 3])]
        """
        check.choice("prefetch", "mode", mode, ("thread", "process"))
        if start is not None:
            check.choice("prefetch", "start", start, ("fork", "forkserver", "spawn"))
        check.positive("prefetch", "count", count)
        check.positive("prefetch", "workers", workers)
        return self._then(kinds.Prefetch, count=count, workers=workers, mode=mode, start=start)

    def numpy(self) -> Pipeline:
        """The same elements as NumPy arrays instead of tensors.

        >>> from weft import data
        >>> list(data.from_arrays([1, 2]).batch(2).numpy())
        [array([1, 2])]
        """
        return Pipeline(self.stage, tensors=False)

    def to(self, device: Any) -> Pipeline:
        """The same elements as tensors on a device, copied there while those before are used.

        A thread reads ahead, so that two elements wait on a GPU, or are on their way, beyond the one in use.

        >>> from weft import data
        >>> list(data.from_arrays([1, 2]).batch(2).to("cpu"))
        [tensor([1, 2])]
        """
        found = weft.zeros(0, device=device).device
        return Pipeline(self.stage, device=None if found == "cpu" else found)

    # Running

    @property
    def epoch(self) -> int:
        """The number of the epoch that is running, or of the next one if none is.

        >>> from weft import data
        >>> pipeline = data.from_arrays([1, 2])
        >>> for _ in pipeline:
        ...     pass
        >>> pipeline.epoch
        1
        """
        running = self._running
        return self._epoch if running is None or running.finished else running.epoch

    def __iter__(self) -> Epoch:
        if weft.jit.is_capturing():
            raise CaptureError(
                "pipeline",
                "captured code must not go along a pipeline, whose elements only the capture would take, "
                "not each call",
                hint="compile the step, and call it in a loop over the pipeline",
            )
        if self._plan is None:
            self._plan = plan_of(self.stage)
        plan, last = self._plan
        stream = plan.open(last, self._epoch, self._start)
        if self._device is not None:
            stream = on_device(stream, self._device)
        self._running = Progress(self._epoch, self._start)
        self._epoch, self._start = self._epoch + 1, None
        return Epoch(stream, self._running, tensors=self._tensors)

    def __len__(self) -> int:
        found = length_of(self.stage)
        if found is None or found == inf:
            why = "has no end" if found == inf else "is known only after running it"
            raise TypeError(f"the length of this pipeline {why}")
        return int(found)

    def __bool__(self) -> bool:
        return True  # also where the length is not known

    # State

    def state_dict(self) -> State:
        """Where the pipeline is: after the last element that a loop has got. It is made of counts and texts.

        >>> import numpy as np
        >>> from weft import data
        >>> pipeline = data.from_arrays(np.arange(4)).shuffle().batch(2)
        >>> first = next(iter(pipeline))
        >>> again = data.from_arrays(np.arange(4)).shuffle().batch(2)
        >>> again.load_state_dict(pipeline.state_dict())
        >>> len(list(again))
        1
        """
        running = self._running
        epoch, position = self._epoch, self._start
        if running is not None and not running.finished:
            epoch, position = running.epoch, running.state
        return {"version": _FORMAT, "epoch": epoch, "position": position, "stages": fingerprint(self.stage)}

    def load_state_dict(self, state: State) -> None:
        """Go on where a pipeline of the same stages was; how its elements were prefetched does not matter.

        >>> from weft import data
        >>> pipeline = data.from_arrays([1, 2, 3]).numpy()
        >>> start = pipeline.state_dict()
        >>> first = list(pipeline)
        >>> pipeline.load_state_dict(start)
        >>> list(pipeline) == first
        True
        """
        check.state(state, _FORMAT, fingerprint(self.stage))
        self._epoch, self._start, self._running = state["epoch"], state["position"], None

    # Seeing

    def to_text(self, *, locations: bool = True) -> str:
        """The stages as text, with where they were made unless told otherwise.

        >>> from weft import data
        >>> print(data.from_arrays([1, 2]).to_text(locations=False))
        pipeline {
          %0: i64[] = arrays(count=2)
          return %0
        }
        """
        return format_pipeline(self.stage, locations=locations)

    def __getitem__(self, index: object) -> NoReturn:
        hint = "use next(iter(pipeline)) for the first element, .take(n) and .skip(n) for others"
        raise ArgumentError("index", "elements of a pipeline come in turn, got an index", hint=hint)

    def __getattr__(self, name: str) -> NoReturn:
        raise unknown_of(name, self, "Pipeline")

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return self.to_text(locations=False)

    def dot(self) -> Any:
        """A picture of the stages, as ``weft.dot(pipeline)``; as a string it is for Graphviz.

        >>> from weft import data
        >>> data.from_arrays([1, 2]).batch(2).dot()
        <picture of pipeline: 2 boxes>
        """
        return weft.dot(self)


_NOT_FULL = 'last="drop" leaves out a last batch that is not full'
name_methods(
    Pipeline,
    {
        **dict.fromkeys(("drop", "drop_last", "drop_remainder"), _NOT_FULL),
        "batch_size": "size= is how many elements a batch has",
        "buffer_size": "the number is the first argument: .shuffle(n), .prefetch(n)",
        "collate_fn": "collate= takes a function from a list of elements to a batch",
        "map_func": "the function is the first argument",
        "num_parallel_calls": ".prefetch(workers=n) runs the stages before it ahead, in n workers",
        "num_workers": ".prefetch(workers=n) runs the stages before it ahead, in n workers",
    },
)

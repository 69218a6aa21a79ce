"""The errors weft raises, and how they are worded.

    WeftError
    ├── ShapeError        (ValueError)    shapes that do not fit an op
    ├── DtypeError        (TypeError)     dtypes that do not fit an op or each other
    ├── AxisError         (IndexError)    an axis outside the tensor's rank, or named twice
    ├── BoundsError       (IndexError)    an index outside the tensor
    ├── ArgumentError     (TypeError)     an argument of the wrong kind, or an unknown keyword
    ├── DomainError       (ValueError)    an argument of the right kind with an impossible value
    │   └── NonFiniteError                a result is NaN or infinite, which ``check_nan`` looks for
    ├── DeviceError       (ValueError)    a device that is not there, or tensors on different devices
    │   └── DeviceMemoryError (MemoryError)  a device has no memory left for what was asked for
    ├── SharingError      (BufferError)   memory that cannot be shared with another library
    ├── ParallelError     (RuntimeError)  ranks that do not fit their mesh, or one of them that failed
    │   ├── DivergenceError               ranks that do different things, so that none could go on
    │   └── RankError                     another rank failed, whose error it tells
    ├── PipelineError     (RuntimeError)  a stage of a data pipeline failed on an element; why is chained
    │   └── WorkerError                   a process that worked for a pipeline was killed, or ended by itself
    ├── GradientError     (RuntimeError)  a gradient that cannot be had
    │   ├── FreedGraphError               backward through a graph that was already freed
    │   └── AnomalyError                  a result or a gradient went NaN under ``weft.detect_anomaly()``
    ├── GraphError        (ValueError)    a graph that is not well formed, or is used wrongly
    │   └── ParseError                    text that is no graph
    ├── FileError         (ValueError)    a file that is damaged, or of another kind
    ├── StoppedError      (RuntimeError)  a run that was ended from outside, at a loop
    ├── CheckError        (AssertionError)  an ``assert`` of captured code that failed when the graph ran
    └── CaptureError      (RuntimeError)  Python that cannot become a graph, or a value that outlived it
        └── TraceGuardError               a call that goes another way than the one that was traced

Each is also the builtin error in brackets, so ``except ValueError`` keeps working. The text is always
**op: what must hold, got what**, then the user's line, then a hint.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from weft.base.frames import WEFT, format_location, owner_of, user_location

Named = tuple[tuple[str, str], ...]
Path = tuple[str, ...]


class WeftError(Exception):
    """Base of every error that weft raises.

    >>> import weft
    >>> try:
    ...     weft.tensor([1.0, 2.0]) + weft.tensor([1.0, 2.0, 3.0])
    ... except weft.errors.WeftError as error:
    ...     print(str(error).splitlines()[0])
    add: shapes must broadcast together, got f32[2] and f32[3] (2 vs 3 on axis 0)
    """

    details: Callable[[], tuple[Named, Path]] | None = None  # of an error in a graph, found when it is shown
    _tensors: Named = ()
    _path: Path = ()

    def __init__(
        self, op: str, message: str, *, hint: str | None = None, location: tuple[str, int] | None = None
    ) -> None:
        self.op = op
        self.message = message
        self.hint = hint
        self.location = user_location(2) if location is None else location
        super().__init__(op, message)
        _prepare(self)

    @property
    def tensors(self) -> Named:
        """Names and types of the tensors that are involved."""
        self._find_details()
        return self._tensors or _named_tensors(self)

    @property
    def path(self) -> Path:
        """How the op that failed follows from the leaves, line by line, where that was looked for."""
        self._find_details()
        return self._path

    def _find_details(self) -> None:
        if self.details is not None:
            find, self.details = self.details, None
            self._tensors, self._path = find()

    def __reduce__(self) -> Any:
        named = {"_tensors": self.tensors}  # first: the frames and the graph that tell them do not travel
        state = {k: v for k, v in self.__dict__.items() if k not in ("node", "details")}
        return type(self), (self.op, self.message), {**state, **named}

    def __str__(self) -> str:
        lines = [f"{self.op}: {self.message}"]
        if self.location is not None:
            lines.append(f"  at {format_location(self.location)}")
            if named := self.tensors:
                lines.append(f"  where {_listed([f'{name} is {kind}' for name, kind in named])}")
        if self.path:
            lines += ["  from the leaves to it:", *[f"    {line}" for line in self.path]]
        if self.hint is not None:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


def _named_tensors(error: WeftError) -> Named:
    """Names and types of the tensors in the line that raised an error, as long as it has its traceback."""
    from weft.base.naming import named_tensors

    if error.__traceback__ is None or error.location is None:
        return ()
    return named_tensors(error.__traceback__, error.location)


def _listed(parts: list[str]) -> str:
    return ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]


def _prepare(error: WeftError) -> None:
    """Keep to what concerns the user: not the error of a library that weft met and turned into this one."""
    met = sys.exc_info()[1]
    if met is not None and not isinstance(met, WeftError) and met.__traceback__ is not None:
        error.__suppress_context__ = owner_of(met.__traceback__.tb_frame.f_code.co_filename) == WEFT


class ShapeError(WeftError, ValueError):
    """Shapes do not fit the op, or each other.

    >>> import weft
    >>> weft.ones((2, 3)) @ weft.ones((2, 3))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.ShapeError: matmul: inner dimensions must agree, got f32[2,3] and f32[2,3] (3 vs 2)
    ...
    >>> (weft.ones((2, 3)) @ weft.ones((2, 3)).mT).shape
    (2, 2)
    """

    clash: tuple[Any, Any] | None = None  # two sizes, or shapes, that had to be equal

    def __init__(
        self,
        op: str,
        message: str,
        *,
        hint: str | None = None,
        location: tuple[str, int] | None = None,
        clash: tuple[Any, Any] | None = None,
    ) -> None:
        super().__init__(op, message, hint=hint, location=location)
        if clash is not None:
            self.clash = clash


class DtypeError(WeftError, TypeError):
    """Dtypes do not fit the op, or have no common dtype.

    >>> import weft
    >>> weft.bitwise_and(weft.ones(2), weft.ones(2))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.DtypeError: bitwise_and: dtype must be bool or integer, got float32
    ...
    """


class AxisError(WeftError, IndexError):
    """An axis is outside the tensor's rank, or is named twice.

    >>> import weft
    >>> weft.sum(weft.ones((2, 3)), axis=2)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.AxisError: sum: axis must be in -2..1 for rank 2, got 2
    ...
    """


class BoundsError(WeftError, IndexError):
    """An index is outside the tensor.

    >>> import weft
    >>> weft.arange(3)[5]  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.BoundsError: index: index must be in -3..2 for axis 0 of size 3, got 5
    ...
    """


class ArgumentError(WeftError, TypeError):
    """An argument is of the wrong kind, or a keyword is unknown.

    >>> import weft
    >>> weft.sum(weft.ones(3), along=0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.ArgumentError: sum: unknown keyword 'along'
    ...
    """


class DomainError(WeftError, ValueError):
    """An argument has the right kind and an impossible value.

    >>> import weft
    >>> weft.arange(0, 5, 0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.DomainError: arange: step must not be 0
    ...
    """


class NonFiniteError(DomainError):
    """A result of compiled code is NaN, or infinite though what it was made of is finite.

    >>> import weft
    >>> f = weft.compile(lambda x: weft.log(x), check_nan=True)
    >>> f(-weft.ones(2))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.NonFiniteError: log: results must not be NaN, got 2 in f32[2], from f32[2] in -1..-1
    ...
    """


class DeviceError(WeftError, ValueError):
    """A device is not there, or tensors live on different devices.

    >>> import weft
    >>> weft.ones(3, device="tpu")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.DeviceError: device: must be cpu or cuda, got 'tpu'
    ...
    """


class DeviceMemoryError(DeviceError, MemoryError):
    """A device has no memory left, though what nobody holds was given back first; the process can go on.

    Smaller batches help, and ``del`` of tensors that are not needed; ``weft.cuda.memory_allocated()`` tells.
    """


class SharingError(WeftError, BufferError):
    """Memory cannot be shared with another library in the way it asked for.

    >>> import weft
    >>> weft.ones(3).__dlpack__(dl_device=(2, 0))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.SharingError: __dlpack__: the device must be the cpu, (1, 0), got (2, 0)
    ...
    """


class ParallelError(WeftError, RuntimeError):
    """Ranks that do not fit what was asked of them, or a rank that failed while others waited for it.

    >>> from weft import parallel as par
    >>> par.mesh(data=2)
    Traceback (most recent call last):
    weft.errors.ParallelError: mesh: the axes must multiply to the 1 rank of the world, got data=2 (2 ranks)
    ...
      hint: start the script with: weft launch -n 2 script.py
    """


class DivergenceError(ParallelError):
    """Ranks that do different things: one waits for what another does not do.

    >>> import weft
    >>> from weft import parallel as par
    >>> def program():
    ...     par.mesh(data=2)
    ...     return par.all_reduce(weft.ones(2 + par.rank()), "data")
    >>> par.simulate(program, 2)
    Traceback (most recent call last):
    weft.errors.DivergenceError: all_reduce: ranks must meet in the same collective, got
      rank 0: all_reduce of f32[2] over "data" at ...
      rank 1: all_reduce of f32[3] over "data" at ...
    """


class RankError(ParallelError):
    """Another rank failed while this one worked with it; the text tells which, and its error.

    All ranks raise, and none has changed its state, so all of them can go on together.

    >>> import weft
    >>> raise weft.errors.RankError("parallel", "all ranks must succeed, rank 1 failed with KeyError: 'x'")
    Traceback (most recent call last):
    weft.errors.RankError: parallel: all ranks must succeed, rank 1 failed with KeyError: 'x'
    ...
    """


class PipelineError(WeftError, RuntimeError):
    """A function of the user, called by a stage of a data pipeline, failed; its own error is the cause.

    >>> import weft
    >>> from weft import data
    >>> try:
    ...     list(data.from_arrays([2, 0]).map(lambda x: 1 // int(x)))
    ... except weft.errors.PipelineError as error:
    ...     print(str(error).splitlines()[0].partition(": Z")[0])
    ...     print(repr(error.__cause__))
    map: <lambda> (stage %1) failed on element 1 of epoch 0
    ZeroDivisionError('integer division or modulo by zero')
    """


class WorkerError(PipelineError):
    """A process that worked for a data pipeline ended before it gave its result.

    >>> import os, weft
    >>> from weft import data
    >>> pipeline = data.from_arrays([1, 2]).map(lambda x: os._exit(3)).prefetch(2, mode="process")
    >>> next(iter(pipeline))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.WorkerError: prefetch: a worker (process ...) ended with exit code 3 while stage %1, ...
    """


class GradientError(WeftError, RuntimeError):
    """A gradient cannot be had.

    >>> import weft
    >>> weft.ones(3).sum().backward()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.GradientError: backward: the tensor must have a graph, got one that does not require grad
    ...
    """


class FreedGraphError(GradientError):
    """Backward ran through a graph whose saved values were already freed.

    >>> import weft
    >>> x = weft.tensor(2.0, requires_grad=True)
    >>> y = x * x
    >>> y.backward()
    >>> y.backward()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.FreedGraphError: backward: the graph must not be freed, got a second backward through mul
    ...
    """


class AnomalyError(GradientError):
    """A result or a gradient went NaN under ``weft.detect_anomaly()``; the line is that of the forward op.

    >>> import weft
    >>> x = weft.tensor([0.0, 4.0], requires_grad=True)
    >>> with weft.detect_anomaly():
    ...     weft.sqrt(x * x).sum().backward()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.AnomalyError: mul: the gradient of input 0 (x) must not be NaN, got one at index (0,)
    ...
    """


class GraphError(WeftError, ValueError):
    """A graph is not well formed, or is used in a way that it does not allow.

    >>> import weft
    >>> graph = weft.make_graph(lambda x: x + 1.0)(weft.ones(2))
    >>> weft.Session(graph).run(graph.outputs, {})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.GraphError: run: every placeholder that the fetches need must be fed, got none for x
    ...
    """


class ParseError(GraphError):
    """Text is not a graph; the line and column are in the message.

    >>> import weft
    >>> weft.parse_graph("graph f( {")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.ParseError: parse_graph: ...
    """


class FileError(WeftError, ValueError):
    """A file is damaged, or is none that weft can read.

    >>> import os, tempfile, weft
    >>> path = os.path.join(tempfile.mkdtemp(), "empty")
    >>> open(path, "wb").close()
    >>> weft.load(path)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.FileError: load: empty: must begin with 8 bytes of length, got a file of 0 bytes
    ...
    """


class StoppedError(WeftError, RuntimeError):
    """A run was ended from outside, as a server does with one that takes too long; it has changed nothing.

    >>> import weft
    >>> from weft.base.stopping import Stoppable
    >>> with Stoppable() as runs:
    ...     runs.stop("a stop at once")
    ...     weft.compile(lambda x: weft.while_loop(lambda x: x > 0.0, lambda x: x + 1.0, x))(weft.tensor(3.0))
    ... # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.StoppedError: while_loop: must end by itself, got a stop at once
    ...
    """


class CheckError(WeftError, AssertionError):
    """An ``assert`` on a tensor, in code that became a graph, failed when the graph ran.

    >>> import weft
    >>> @weft.compile
    ... def root(x):
    ...     assert (x >= 0.0).all(), "must not be negative"
    ...     return x.sqrt()
    >>> root(-weft.ones(2))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.CheckError: assert: must not be negative
    ...
    """


class CaptureError(WeftError, RuntimeError):
    """Python code cannot become a graph, or a tensor of a graph is used after its capture ended.

    >>> import weft
    >>> weft.make_graph(lambda x: x.numpy())(weft.ones(2))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.CaptureError: numpy: needs a value that is known while ...
    """


class TraceGuardError(CaptureError):
    """A traced function was called with values that take another way than the one that was traced.

    >>> import weft
    >>> f = weft.jit.trace(lambda x: x * 2.0 if x.sum() > 0 else -x, weft.ones(2))
    >>> f(-weft.ones(2))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.TraceGuardError: trace: ...

    Attributes:
        answers: the elements that were traced and those of the call, where elements were asked for.
        said: what the run had printed by then, which another run of the same call does not print again.
    """

    answers: tuple[Any, Any] | None = None
    said: Sequence[str] = ()

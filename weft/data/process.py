"""Workers that are processes: how they are asked, how their errors come back, and what happens if one dies.

Messages over the pipe are two numbers; elements go through memory that both processes see. A worker ends when
it is told to, and also when the process that it works for is gone.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import struct
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any

import weft
from weft.data import transform
from weft.data.memory import HEADER, SharedMemory
from weft.data.stage import Element, Prefetch
from weft.errors import DomainError, PipelineError, WorkerError

Job = Callable[[int, Any], Element]
Describe = Callable[[int], str]  # of a stage, by its number

_MESSAGE = struct.Struct("<qq")  # asked: element, end of its stretch; answered: whether it failed, end of it
_DOING = struct.Struct("<qq")  # stage, element
_GRACE = 2.0  # seconds from asking a process to end to making it


def start_method(stage: Prefetch) -> str:
    """How the processes of a stage are started."""
    if os.name != "posix":
        hint = 'use mode="thread"'
        raise DomainError("prefetch", f"processes need a POSIX system, got {sys.platform}", hint=hint)
    return stage.start or ("fork" if sys.platform == "linux" else "spawn")


class Parcel:
    """A job that reaches a process which is started anew: written to shared memory, arrays as bytes."""

    def __init__(self, parts: Any, make: Callable[..., Job]) -> None:
        self._memory = SharedMemory()
        self._make = make
        try:
            self._end = self._memory.write(parts)
        except BaseException:
            self._memory.close()
            raise

    def unpack(self) -> Job:
        """The job, on arrays in the shared memory."""
        return self._make(*self._memory.read(self._end, copy=False))

    def close(self) -> None:
        """Give up the memory, which lives on in the processes that have it."""
        self._memory.close()


# In the worker


def _main(conn: Connection, memory: SharedMemory, given: Job | Parcel) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the training loop, which then ends this process
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    weft.set_num_threads(1)  # there are other workers
    transform.doing[0] = memoryview(memory.view(HEADER))[: _DOING.size].cast("q")
    job = given.unpack() if isinstance(given, Parcel) else given
    parent = os.getppid()
    while True:
        while not conn.poll(1.0):
            if os.getppid() != parent:
                os._exit(1)
        try:
            i, end = _MESSAGE.unpack(conn.recv_bytes())
            conn.send_bytes(_MESSAGE.pack(*_answer(job, memory, i, end)))
        except (EOFError, OSError):  # nobody is there any more
            return


def _answer(job: Job, memory: SharedMemory, i: int, end: int) -> tuple[int, int]:
    try:
        element = job(i, memory.read(end) if end else None)
        return 0, memory.write(element)
    except BaseException as error:
        return 1, memory.write(_described(error))


def _described(error: BaseException) -> tuple[Any, Any, str]:
    """An error, its cause, and its traceback as text; None for what cannot be pickled."""
    cause = error.__cause__ if isinstance(error, PipelineError) else None
    shown = cause or error
    lines = traceback.format_exception(type(shown), shown, shown.__traceback__)
    return _portable(error), _portable(cause), "".join(lines).rstrip()


def _portable(error: BaseException | None) -> BaseException | None:
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - what was dumped just here
    except Exception:
        return None  # its text is sent, too
    return error


# In the process that trains


class ProcessWorker:
    """A process that computes elements, asked by one thread at a time."""

    def __init__(self, given: Job | Parcel, stage: Prefetch, describe: Describe) -> None:
        context: Any = multiprocessing.get_context(start_method(stage))
        self._describe = describe
        self._stage = stage
        self._memory = SharedMemory()
        _DOING.pack_into(self._memory.view(HEADER), 0, transform.IDLE, 0)
        self._conn, theirs = context.Pipe()
        self._process = context.Process(
            target=_main, args=(theirs, self._memory, given), name="weft-data", daemon=True
        )
        try:
            with _interrupts_blocked(), warnings.catch_warnings():
                # Python warns of forking beside threads, which may hold locks; weft's and NumPy's survive it.
                warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
                self._process.start()
        except BaseException:
            if self._process.pid is not None:
                self.stop()
            self.close()
            raise
        finally:
            theirs.close()

    def __call__(self, i: int, chunk: Any) -> Element:
        try:
            end = 0 if chunk is None else self._memory.write(chunk)
            self._conn.send_bytes(_MESSAGE.pack(i, end))
            if self._conn not in wait([self._conn, self._process.sentinel]) and not self._conn.poll():
                raise EOFError
            failed, end = _MESSAGE.unpack(self._conn.recv_bytes())
        except (EOFError, OSError):
            raise self._death(i) from None
        if failed:
            self._raise(*self._memory.read(end))
        return self._memory.read(end)

    def _raise(self, error: Any, cause: Any, text: str) -> None:
        if error is None:
            why = text.rpartition("\n")[2]
            error = PipelineError("prefetch", f"a worker failed: {why}", location=self._stage.location)
        (cause or error).add_note(f"in the worker (process {self._process.pid}):\n{text}")
        raise error from cause

    def _death(self, i: int) -> WorkerError:
        self._process.join(_GRACE)
        code = self._process.exitcode
        killed = code is not None and code < 0
        ended = f"was killed by {_signal_name(-code)}" if killed else f"ended with exit code {code}"
        number, element = _DOING.unpack_from(self._memory.view(HEADER))
        doing = f"while it made element {i}"
        if number != transform.IDLE:
            doing = f"while stage %{number}, {self._describe(number)}, worked on its element {element}"
        hint = None
        if code == -signal.SIGKILL:
            hint = "Linux kills processes when memory runs out; fewer workers or smaller batches need less"
        message = f"a worker (process {self._process.pid}) {ended} {doing}"
        return WorkerError("prefetch", message, hint=hint, location=self._stage.location)

    def stop(self) -> None:
        """End the process, whatever it does."""
        self._process.terminate()
        self._process.join(_GRACE)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def close(self) -> None:
        self._process.close()
        self._conn.close()
        self._memory.close()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Let Ctrl-C wait until a new process has got so far as to ignore it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

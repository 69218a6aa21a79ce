"""``weft.cuda.graph``: eager code of the user, captured once and replayed as one CUDA graph."""

from __future__ import annotations

from collections import Counter
from types import TracebackType
from typing import Any

from weft.backends.cuda.array import DeviceArray
from weft.backends.cuda.card import Card
from weft.backends.cuda.driver import Life
from weft.backends.cuda.execute import read_words
from weft.backends.cuda.fixed import Static, copy_over
from weft.backends.cuda.memory import Block, Borrowed
from weft.backends.cuda.parting import Holders
from weft.backends.cuda.recorder import GraphMemory, Recorder
from weft.backends.cuda.streams import Stream
from weft.backends.cuda.surroundings import Found, Surroundings
from weft.errors import DeviceError


class CapturedGraph:
    """The work of a ``with`` block as one CUDA graph: ``replay()`` does it again, by one call of the driver.

    The block runs as usual, but nothing is computed: its work is noted. A replay reads the tensors from
    outside by the values that they have by then, so new input comes by ``x.copy_(...)``; tensors made in the
    block then show the new results, and those that the block changes (weights, gradients) are changed again.

    Args:
        card: the GPU.
    """

    def __init__(self, card: Card) -> None:
        self._card = card
        self._recorder: Recorder | None = None
        self._before: Surroundings | None = None
        self._memory: GraphMemory | None = None
        self._held: list[Block | Borrowed] = []
        self._written: list[Block] = []
        self._checks: list[Any] = []
        self._statics: list[Static] = []
        self._back: list[tuple[Static, DeviceArray]] = []  # what is written back after a look for failures

    def __enter__(self) -> CapturedGraph:
        if self._memory is not None or self._recorder is not None:
            raise DeviceError(
                "cuda.graph", "a graph is captured once, got a second block", hint="make another"
            )
        recorder = Recorder(self._card)
        self._before = Surroundings()
        recorder.begin()
        self._recorder = recorder
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        recorder, before = self._recorder, self._before
        assert recorder is not None
        assert before is not None
        self._recorder = self._before = None
        changed: list[tuple[Found, Any, DeviceArray]] = []
        try:
            if kind is None:
                before.check()
                changed = [
                    (found, owner, recorder.own_copy(now))
                    for found, owner, now in before.changes(recorder.reads)
                ]
                self._write_back(recorder, changed)
        except BaseException as raised:
            kind = type(raised)
            raise
        finally:
            recorder.leave()
            if kind is not None:
                recorder.drop()
                before.restore()
        if kind is None:
            try:
                self._make_ready(recorder)
            except BaseException:
                before.restore()
                raise
            self._keep(recorder, before, changed)

    def _write_back(self, recorder: Recorder, changed: list[tuple[Found, Any, DeviceArray]]) -> None:
        """Note copies of new values to where the block found the old ones, unless the block may fail."""
        for found, _, now in changed:
            recorder.write(found.data.block)
            if not recorder.checks:
                copy_over(found.data, now)

    def _make_ready(self, recorder: Recorder) -> None:
        """Have the driver make the graph; it may find something that the recorder has let through."""
        self._graph = recorder.end()
        self._ready = self._card.driver.cuGraphInstantiate(self._graph, 0)

    def _keep(
        self, recorder: Recorder, before: Surroundings, changed: list[tuple[Found, Any, DeviceArray]]
    ) -> None:
        """Keep what replays need: memory, and the tensors from outside."""
        self._memory = recorder.memory
        self._checks = recorder.checks
        self._held = list(recorder.reads.values())
        self._written = list(recorder.writes.values())
        self._written += [self._card.library_order] if recorder.calls_libraries else []
        used = {*recorder.reads, *recorder.writes}
        memory = recorder.memory
        inner = before.kept(lambda block: id(block) in used or getattr(block, "pool", None) is memory)
        done = set()
        for found, owner, now in changed:
            done.add(id(found.tensor))
            static = Static(found.tensor, found.data, writes=True, owner=owner)
            static.show()
            self._statics.append(static)
            self._back += [(static, now)] if recorder.checks else []
        self._statics += [
            Static(found.tensor, found.data)
            for found in before.roots()
            if id(found.tensor) not in done and id(found.data.block) in used
        ]
        self._statics += before.made(memory)
        self._holders = Holders(inner)
        counts = Counter(id(static.home.block) for static in self._statics)
        self._several = {block for block, count in counts.items() if count > 1}

    def __del__(self, life: type[Life] = Life) -> None:
        if life.ending:
            return
        if hasattr(self, "_ready"):
            self._card.driver.code("cuGraphExecDestroy", self._ready)
        if hasattr(self, "_graph"):
            self._card.driver.code("cuGraphDestroy", self._graph)

    def replay(self) -> None:
        """Do the work of the block again, on the current stream."""
        memory = self._memory
        if memory is None:
            raise DeviceError("cuda.graph", "a graph must be captured before it is replayed, got none")
        self._card.enter()
        stream = self._card.current()
        if stream.capture is not None:
            stream.capture.refuse("a replay of another graph")
        waiting = self._unsettled()
        for static in waiting:
            static.bring_in()
        self._wait(memory, stream)
        self._card.driver.cuGraphLaunch(self._ready, stream.handle)
        memory.ran = True
        self._raise_failures(stream)
        for static, now in self._back:
            copy_over(static.home, now)
        for static in waiting:
            static.show()
        for static in waiting:
            static.settle()

    def _unsettled(self) -> list[Static]:
        """The tensors for which a replay has something to do; who else is where it writes has moved."""
        changed = self._holders.have_changed()
        waiting = [s for s in self._statics if changed or not s.is_settled()]
        if waiting and any(id(s.home.block) in self._several for s in waiting):
            waiting = self._statics
        shared: list[DeviceArray] = []
        self._holders.part([array for static in waiting for array in static.shown(shared)], shared)
        return waiting

    def _wait(self, memory: GraphMemory, stream: Stream) -> None:
        """Let a stream wait for all who write what the graph reads, or use what it writes."""
        for block in self._held:
            block.read_on(stream)
        for own in self._written:
            own.write_on(stream)
        memory.write_on(stream)

    def _raise_failures(self, stream: Stream) -> None:
        """Raise the first error that kernels have noted; what is outside of the graph is unchanged then."""
        for executable, context in self._checks:
            executable.raise_failure(read_words(self._card, context, stream))

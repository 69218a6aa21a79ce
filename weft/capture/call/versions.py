"""The versions of one function: found by the key of a call, and kept in the order of their last use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.forks import Level, lock_of
from weft.capture.call.version import Version
from weft.capture.program.call_keys import CallKey
from weft.capture.program.guards import rebound_slots
from weft.capture.program.sizes import admits, open_key

MOST_VERSIONS = 64  # of one function; beyond it, those not used for longest go
_FEW = 8  # that a call tries before it looks at what its arguments are made of


class Versions:
    """A store of versions; several threads may share it.

    Attributes:
        recent: all of them, the one used last first; replaced, never changed.
        quick: the first of these.
        newest: the one captured last.
    """

    __slots__ = ("_by_key", "_changing", "_count", "newest", "quick", "recent")

    def __init__(self) -> None:
        self._by_key: dict[CallKey, list[Version]] = {}  # those with named sizes by their open key
        self._changing = lock_of(Level.VERSIONS)
        self._count = 0
        self.recent: list[Version] = []
        self.quick: tuple[Version, ...] = ()
        self.newest: Version | None = None

    def keys(self) -> list[CallKey]:
        """The keys of all versions."""
        return [version.key for version in self.recent]

    def find(self, key: CallKey, shapes: Sequence[tuple[int, ...]]) -> list[Version]:
        """The versions for calls of a key, on tensors of shapes; those for just these sizes come first."""
        found = list(self._by_key.get(key, ()))
        return found + [v for v in self._by_key.get(open_key(key), ()) if admits(v.key, shapes)]

    def rebound(self, key: CallKey, shapes: Sequence[tuple[int, ...]]) -> set[tuple[Any, ...]]:
        """The keys of slots that hold other tensors now than versions for such calls found there."""
        return {slot for version in self.find(key, shapes) for slot in rebound_slots(version.program.guards)}

    def keep(self, version: Version) -> None:
        """Let later calls find a version."""
        with self._changing:
            self._by_key.setdefault(_place(version), []).insert(0, version)
            self.newest = version
            self._count += 1
            version.number = self._count
            self._order([version, *self.recent])
            while len(self.recent) > MOST_VERSIONS:
                self._drop(self.recent[-1])

    def touch(self, version: Version) -> None:
        """Note that a version was used: it comes first from now on."""
        if self.quick[0] is not version:
            with self._changing:
                if version in self.recent:
                    self._order([version, *[v for v in self.recent if v is not version]])

    def _order(self, versions: list[Version]) -> None:
        self.recent, self.quick = versions, tuple(versions[:_FEW])

    def _drop(self, version: Version) -> None:
        place = _place(version)
        self._by_key[place].remove(version)
        if not self._by_key[place]:
            del self._by_key[place]
        self._order([v for v in self.recent if v is not version])


def _place(version: Version) -> CallKey:
    return open_key(version.key) if version.is_open else version.key

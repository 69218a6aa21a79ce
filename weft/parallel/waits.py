"""Where ranks wait, and whether they wait for each other in vain."""

from __future__ import annotations

from collections.abc import Mapping

from weft.base.frames import format_location, user_location
from weft.base.records import NamedTuple
from weft.errors import DivergenceError

Members = tuple[int, ...]


class Wait(NamedTuple):
    """Where a rank waits: in which group, for the how many-th meeting, and what it does there."""

    members: Members
    number: int
    meeting: str
    line: str = ""

    def __str__(self) -> str:
        return f"{self.meeting}{self.line}"


def circle(waits: Mapping[int, Wait], start: int) -> tuple[int, ...]:
    """The ranks on a way from one back to itself, each waiting for the next, which waits elsewhere."""
    came: dict[int, int] = {}
    pending = [start]
    while pending:
        rank = pending.pop()
        for other in waits[rank].members:
            if other in came or other == rank or other not in waits or _meet(waits[rank], waits[other]):
                continue
            came[other] = rank
            if other == start:
                ring = [rank]
                while ring[-1] != start:
                    ring.append(came[ring[-1]])
                return tuple(sorted(ring))
            pending.append(other)
    return ()


def _meet(one: Wait, other: Wait) -> bool:
    """Whether two ranks are in the same meeting, or in one that both have come to."""
    if one.members != other.members:
        return False
    return one.number != other.number or one.meeting == other.meeting


def divergence(op: str, lines: list[str]) -> DivergenceError:
    """The error of ranks that went apart, with a line for each."""
    text = "\n".join(["ranks must meet in the same collective, got", *sorted(lines)])
    return DivergenceError(op.split(" ")[0], text)


def user_line() -> str:
    """The line of the program that this rank is in."""
    place = user_location(3)
    return "" if place is None else f" at {format_location(place)}"

"""What repeats itself in a graph, so that the page can fold it: equal blocks, and turns of unrolled loops.

The groups that nodes are in form a tree; what stands in a group is a sequence, in order of execution. A
stretch of it that comes again and again is a fold: modules with equal insides (whatever their parameters are
called), the nodes that a loop in Python left behind turn by turn, each from the same lines, and stretches of
nodes without lines that are alike. Each node is looked at a few times: the work is linear in the graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Record = dict[str, Any]
Path = tuple[str, ...]
Run = tuple[int, int, int]  # where a repetition begins, how many things repeat, and how often

FEWEST = 3  # repetitions that are folded
SMALLEST = 12  # nodes without a group that are worth a fold
TRIES = 24  # distances that are tried at a place
LONGEST = 5000  # things that may repeat together
_NAMED = "PMB"  # groups whose names say what they are; others are numbered


class _Group:
    """What is in a group: nodes (the numbers of records) and groups, in order of execution."""

    __slots__ = ("inside", "known", "name", "own", "what")

    def __init__(self, name: str) -> None:
        self.name = name
        self.inside: list[_Group | int] = []
        self.known: dict[str, _Group] = {}
        self.own = -1  # the record of a node with regions
        self.what = -1  # equal for groups with equal insides


class Folder:
    """Finds the folds of graphs that share records.

    >>> line = {"kind": "op", "op": "tanh", "at": [0, 3, "f"]}
    >>> records = [{**line, "values": [i], "inputs": [i - 1]} for i in range(20)]
    >>> Folder(records).folds(range(20))
    {'': [[0, 1, 20]]}
    """

    def __init__(self, records: Sequence[Record], modules: Mapping[str, str] | None = None) -> None:
        self.records = records
        self.modules = modules or {}
        self._numbers: dict[Any, int] = {}
        self._by_line: dict[int, int] = {}
        self._exact: dict[int, int] = {}

    def folds(
        self, stage: Iterable[int], paths: Mapping[int, Path] | None = None
    ) -> dict[str, list[list[int]]]:
        """By group, what is folded in it.

        Args:
            stage: the numbers of the records of a graph, in order.
            paths: the groups around a record, where those are others than it says.

        Returns:
            By the path of a group (``/Pforward/Mblocks``) rounds, one after the other: each the runs that
            become one thing each, as numbers in threes. A run counts what stands in the group (nodes with an
            op, and groups with such) before its round.
        """
        root = self._tree([i for i in stage if self.records[i]["kind"] == "op"], paths or {})
        found: dict[str, list[list[int]]] = {}
        self._fold(root, "", (), found)
        return found

    def _tree(self, stage: Sequence[int], paths: Mapping[int, Path]) -> _Group:
        records = self.records
        where = {i: paths.get(i, records[i].get("path", ())) for i in stage}
        with_regions = {int(p[1:]) for path in set(where.values()) for p in path if p[0] == "R"}
        root = _Group("")
        groups: dict[Path, _Group] = {(): root}
        for i in stage:
            value = records[i]["values"][0]
            if value in with_regions:
                _group_at(groups, (*where[i], f"R{value}")).own = i
            else:
                _group_at(groups, where[i]).inside.append(i)
        return root

    # Folds of one group, from the inside out

    def _fold(self, group: _Group, path: str, words: Path, found: dict[str, list[list[int]]]) -> None:
        for child in group.inside:
            if isinstance(child, _Group):
                is_module = child.name[0] == "M"
                own = (*words, child.name[1:]) if is_module else words
                self._fold(child, f"{path}/{child.name}", own, found)
        things: list[_Group | int] = group.inside
        rounds = []
        while runs := self._next_runs(things):
            rounds.append([n for run in runs for n in run])
            things = self._folded(things, runs)
        if rounds:
            found[path] = rounds
        own_token = self._exact_token(group.own) if group.own >= 0 else -1
        inside = tuple([(_title(t), self._token(t, exact=True)) for t in things])
        group.what = self._number(("group", group.name[:1], self._class(words, group), own_token, inside))

    def _next_runs(self, things: Sequence[_Group | int]) -> list[Run]:
        """The runs of the shortest things: what repeats inside a turn of a loop is folded before the turns.

        A turn with three times something in it is longer than twice that, so no limit admits both at first.
        """
        tokens = [self._token(t) for t in things]
        longest = 1
        while FEWEST * longest <= len(tokens) and longest < 2 * LONGEST:
            found = [r for run in find_runs(tokens, longest) for r in self._equal(things, run)]
            if found:
                return found
            longest *= 2
        return []

    def _class(self, words: Path, group: _Group) -> str:
        return self.modules.get(".".join(words), "") if group.name[:1] == "M" else ""

    def _folded(self, things: list[_Group | int], runs: list[Run]) -> list[_Group | int]:
        """The things with one group in place of each run."""
        left: list[_Group | int] = []
        at = 0
        for start, period, count in runs:
            fold = _Group("F")
            fold.inside = things[start : start + period * count]
            fold.what = self._number(("fold", tuple([self._token(t) for t in fold.inside[:period]])))
            left += [*things[at:start], fold]
            at = start + period * count
        return left + things[at:]

    def _equal(self, things: Sequence[_Group | int], run: Run) -> Iterator[Run]:
        """The parts of a run whose members are wired alike; nodes of one line are alike by that."""
        start, period, count = run
        first = things[start : start + period]
        if all(not isinstance(t, _Group) for t in first):
            if period * count < SMALLEST:
                return
            if all("at" in self.records[t] for t in first):  # type: ignore[index]
                yield run
                return
        wirings = [self._wiring(things[i : i + period]) for i in range(start, start + period * count, period)]
        begin = 0
        for i in range(1, count + 1):
            if i == count or wirings[i] != wirings[begin]:
                if i - begin >= FEWEST:
                    yield start + begin * period, period, i - begin
                begin = i

    def _wiring(self, things: Sequence[_Group | int]) -> list[Any]:
        """What a member takes from itself, by place, and from around it, by order of use."""
        places: dict[int, int] = {}
        outside: dict[int, int] = {}
        found: list[Any] = []
        for i in _records_in(things):
            record = self.records[i]
            for value in record.get("inputs", ()):
                place = places.get(value)
                found.append(outside.setdefault(value, -1 - len(outside)) if place is None else place)
            for value in record["values"]:
                places[value] = len(places)
            found.append(None)
        return found

    # What is equal to what

    def _number(self, key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _token(self, thing: _Group | int, exact: bool = False) -> int:
        if isinstance(thing, _Group):
            return thing.what
        if exact or "at" not in self.records[thing]:
            return self._exact_token(thing)
        found = self._by_line.get(thing)
        if found is None:
            record = self.records[thing]
            file, line = record["at"][:2]
            found = self._by_line[thing] = self._number(("line", file, line, record["op"]))
        return found

    def _exact_token(self, number: int) -> int:
        found = self._exact.get(number)
        if found is None:
            record = self.records[number]
            attrs = tuple(record.get("attrs", {}).items())
            attrs = tuple([(k, v) for k, v in attrs if k != "arguments"])
            key = ("node", record["op"], tuple(record.get("types", ())), attrs)
            found = self._exact[number] = self._number(key)
        return found


def _group_at(groups: dict[Path, _Group], path: Path) -> _Group:
    found = groups.get(path)
    if found is None:
        found = groups[path] = _Group(path[-1])
        _group_at(groups, path[:-1]).inside.append(found)
    return found


def _title(thing: _Group | int) -> str:
    return thing.name if isinstance(thing, _Group) and thing.name[0] in _NAMED else ""


def _records_in(things: Iterable[_Group | int]) -> Iterator[int]:
    for thing in things:
        if isinstance(thing, _Group):
            if thing.own >= 0:
                yield thing.own
            yield from _records_in(thing.inside)
        else:
            yield thing


def find_runs(tokens: Sequence[int], longest: int = LONGEST) -> list[Run]:
    """What repeats itself in a sequence at least three times in a row, of at most ``longest`` things.

    >>> find_runs([9, 1, 2, 1, 2, 1, 2, 9, 9])
    [(1, 2, 3)]
    """
    tokens = list(tokens)
    following = _next_equal(tokens)
    found: list[Run] = []
    at, total = 0, len(tokens)
    while at < total:
        run = _run_at(tokens, following, at, longest)
        if run is None:
            at += 1
        else:
            found.append(run)
            at += run[1] * run[2]
    return found


def _next_equal(tokens: Sequence[int]) -> list[int]:
    """By place, the next place with the same token; 0 for none."""
    following = [0] * len(tokens)
    last: dict[int, int] = {}
    for i in range(len(tokens) - 1, -1, -1):
        following[i] = last.get(tokens[i], 0)
        last[tokens[i]] = i
    return following


def _run_at(tokens: list[int], following: Sequence[int], at: int, longest: int) -> Run | None:
    other = at
    for _ in range(TRIES):
        other = following[other]
        period = other - at
        if other == 0 or period > longest or at + FEWEST * period > len(tokens):
            return None
        block = tokens[at:other]
        count, end = 1, other
        while tokens[end : end + period] == block:
            count += 1
            end += period
        if count >= FEWEST:
            return at, period, count
    return None


def kernel_paths(
    records: Sequence[Record], stage: Sequence[int], kernels: Sequence[Mapping[str, Any]]
) -> dict[int, Path]:
    """By number of a record in a kernel, the groups around it where kernels are groups.

    A kernel stands in the groups that all of its nodes are in, of the part that most of them belong to.
    """
    of_value = {records[i]["values"][0]: i for i in stage if records[i].get("values")}
    with_regions = {p for i in stage for p in records[i].get("path", ()) if p[0] == "R"}
    found: dict[int, Path] = {}
    for number, kernel in enumerate(kernels):
        inside = [of_value[v] for v in kernel["values"] if v in of_value]
        paths = [records[i].get("path", ()) for i in inside]
        place = (*_shared(paths), f"K{number}")
        for i in inside:
            if f"R{records[i]['values'][0]}" not in with_regions or records[i]["kind"] != "op":
                found.setdefault(i, place)
    return found


def _shared(paths: Sequence[Path]) -> Path:
    if not paths:
        return ()
    first = Counter(path[:1] for path in paths).most_common(1)[0][0]
    most, *others = [path for path in paths if path[:1] == first]
    shared = len(most)
    for path in others:
        while most[:shared] != path[:shared]:
            shared -= 1
    return most[:shared]

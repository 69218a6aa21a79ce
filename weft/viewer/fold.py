"""Diagrams with fewer boxes: those of one module, and of one line where no module holds them, become one."""

from __future__ import annotations

from collections import Counter

from weft.viewer.diagram import Arrow, Box, Diagram

Key = tuple[str, ...]


def fold_diagram(diagram: Diagram, most: int) -> Diagram | None:
    """A diagram of at most so many boxes, with as much detail as that allows; None if it takes more.

    >>> import weft
    >>> from weft.viewer.diagram import diagram_of
    >>> model = weft.nn.Sequential(weft.nn.Linear(2, 2), weft.nn.GELU(), weft.nn.Linear(2, 2))
    >>> whole = diagram_of(weft.make_graph(model)(weft.ones(1, 2)))
    >>> small = fold_diagram(whole, 6)
    >>> len(whole.boxes) > len(small.boxes), [b.label[0] for b in small.boxes if b.kind == "op"]
    (True, ['0', '2', 'gelu'])
    """
    if len(diagram.boxes) <= most:
        return diagram
    deepest = max(len(box.cluster) for box in diagram.boxes)
    for depth in range(deepest, -1, -1):
        keys = [_key(i, box, depth) for i, box in enumerate(diagram.boxes)]
        keys = _without_leaves(diagram, keys)
        if len(set(keys)) <= most:
            return _folded(diagram, keys)
    return None


def _key(number: int, box: Box, depth: int) -> Key:
    """What a box is part of: modules to a depth, or, where none holds it, its line; else itself."""
    if depth and box.cluster:
        return ("in", *box.cluster[:depth])
    if box.kind == "op":
        return ("in", *box.cluster[:1]) if box.cluster else ("at", box.label[-1])
    return ("box", str(number))


def _without_leaves(diagram: Diagram, keys: list[Key]) -> list[Key]:
    """The keys, where parameters and constants that one part alone uses belong to it, and so do what is
    written back to them.
    """
    found = list(keys)
    users: dict[int, set[Key]] = {}
    makers: dict[int, Key] = {}
    for arrow in diagram.arrows:
        users.setdefault(arrow.source, set()).add(keys[arrow.target])
        makers[arrow.target] = keys[arrow.source]
    for i, box in enumerate(diagram.boxes):
        if box.kind in ("param", "constant") and users.get(i):
            found[i] = sorted(users[i])[0]
        elif box.kind == "output" and box.label[0].endswith(" after") and i in makers:
            found[i] = makers[i]
    return found


def _folded(diagram: Diagram, keys: list[Key]) -> Diagram:
    small = Diagram(diagram.name)
    members = Counter(keys)
    numbers: dict[Key, int] = {}
    for box, key in zip(diagram.boxes, keys, strict=True):
        if key not in numbers:
            numbers[key] = len(small.boxes)
            small.boxes.append(box if members[key] == 1 else _group(key, members[key]))
    drawn: dict[tuple[int, int], Arrow] = {}
    for arrow in diagram.arrows:
        ends = numbers[keys[arrow.source]], numbers[keys[arrow.target]]
        if ends[0] != ends[1]:
            drawn.setdefault(ends, Arrow(*ends, arrow.label, arrow.dashed))
    small.arrows = list(drawn.values())
    return small


def _group(key: Key, count: int) -> Box:
    name = ".".join(key[1:]) if key[0] == "in" else key[1]
    return Box((name, f"{count} boxes"), "op")

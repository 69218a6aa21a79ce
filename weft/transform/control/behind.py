"""Which operands the results of a graph are computed from, as far as the graph tells by itself.

What stands behind branches that differ, or behind a loop that may have no turn, only a run tells.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir.graph import Graph, Node, Value
from weft.ops import control
from weft.ops.call import call
from weft.ops.op import NoGradient
from weft.ops.stop import when_chosen
from weft.transform.control.regions import has_partial, is_smooth

Way = bool | None  # whether a result is computed from an operand; None where only a run tells
Row = dict[int, Way]  # of one result, by operand; False for those that are left out
_MOST_TURNS = 64  # that are followed one by one where carries go on being exchanged
_CONTROL = (control.cond, control.switch, control.scan, control.while_loop)


def rows(graph: Graph) -> list[Row]:
    """Which inputs of a graph each output is computed from."""
    outputs: dict[Value, Outputs] = {}
    for k, value in enumerate(graph.outputs):
        if is_smooth(value):
            outputs[value] = _joined(outputs.get(value, _NONE), (1 << k, 1 << k))
    for node in reversed(graph.nodes):
        given = [outputs.get(v, _NONE) for v in node.outputs]
        if any(may for _, may in given):
            for i, found in _behind_node(node, given).items():
                value = node.inputs[i]
                if is_smooth(value):
                    outputs[value] = _joined(outputs.get(value, _NONE), found)
    out: list[Row] = [{} for _ in graph.outputs]
    for i, value in enumerate(graph.inputs):
        sure, may = outputs.get(value, _NONE)
        for k in range(len(out)) if may else ():
            if may >> k & 1:
                out[k][i] = True if sure >> k & 1 else None
    return out


Outputs = tuple[int, int]  # which of a graph's are computed from a value, surely and perhaps, as bits
_NONE: Outputs = (0, 0)


def _joined(a: Outputs, b: Outputs) -> Outputs:
    return a[0] | b[0], a[1] | b[1]


def _behind_node(node: Node, given: Sequence[Outputs]) -> dict[int, Outputs]:
    """By inputs of a node, which outputs of the graph are computed from them, from those of its outputs."""
    if node.op in _CONTROL or node.op is call:
        first, table = _rows_of_control(node)
        found: dict[int, Outputs] = {}
        for row, (sure, may) in zip(table, given, strict=False):
            for i, way in row.items():
                if way is not False:
                    found[i + first] = _joined(found.get(i + first, _NONE), (sure if way else 0, may))
        return found
    if isinstance(node.op.vjp, NoGradient):
        return {}
    total = _NONE
    for one in given:
        total = _joined(total, one)
    if node.op is when_chosen:
        total = 0, total[1]
    return {i: total for i in range(len(node.inputs)) if has_partial(node.op, i)}


def _rows_of_control(node: Node) -> tuple[int, list[Row]]:
    """Which operands each result of control flow is computed from, and the place where these begin."""
    attrs = node.attrs
    if node.op is call:
        return 0, rows(attrs["body"])
    if node.op in (control.cond, control.switch):
        return 1, agreed([rows(b) for b in attrs["branches"]])
    if node.op is control.while_loop:
        return 0, agreed(turns(attrs["body"], attrs["carries"], None))
    known = attrs["length"] if isinstance(attrs["length"], int) and not attrs["counted"] else None
    found = turns(attrs["body"], attrs["carries"], known)
    return int(attrs["counted"]), found[-1] if known is not None else agreed(found)


def turns(body: Graph, carries: int, count: int | None) -> list[list[Row]]:
    """Which operands the results of a loop are computed from after no turn, one, two, ... up to a count.

    It ends where another turn changes nothing.
    """
    one = rows(body)
    now: list[Row] = [{k: True} if is_smooth(body.inputs[k]) else {} for k in range(carries)]
    gathered: list[Row] = [{} for _ in range(carries, len(one))]
    found = [[*now, *gathered]]
    while count is None or len(found) <= count:
        if len(found) > _MOST_TURNS:
            everything = agreed(found)
            return [everything] if count is not None else [*found, everything]
        gathered = [
            _merged(old, _after(row, now, carries)) for old, row in zip(gathered, one[carries:], strict=True)
        ]  # of the turn that comes now, whose carries are those of before
        now = [_after(row, now, carries) for row in one[:carries]]
        found.append([*now, *gathered])
        if found[-1] == found[-2]:
            break
    return found


def _after(row: Row, before: Sequence[Row], carries: int) -> Row:
    """What a value of a turn is computed from, by what the carries were that came into it."""
    out: Row = {i: way for i, way in row.items() if i >= carries}
    for c, way in row.items():
        if c < carries:
            out = _merged(out, {i: _and(way, inner) for i, inner in before[c].items()})
    return out


def _merged(a: Row, b: Row) -> Row:
    return {i: _or(a.get(i, False), b.get(i, False)) for i in {**a, **b}}


def _or(a: Way, b: Way) -> Way:
    return True if a or b else None if a is None or b is None else False


def _and(a: Way, b: Way) -> Way:
    return False if a is False or b is False else None if a is None or b is None else True


def agreed(tables: Sequence[Sequence[Row]]) -> list[Row]:
    """What holds on whichever way: None where ways differ."""
    out = []
    for rows in zip(*tables, strict=True):
        found: Row = {}
        for i in set().union(*rows):
            ways = {row.get(i, False) for row in rows}
            found[i] = ways.pop() if len(ways) == 1 else None
        out.append(found)
    return out

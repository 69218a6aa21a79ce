"""Algebraic simplification: rules that keep every bit of the result, and with ``fast_math`` some that do not.

The rules are in ``weft.passes.algebra`` (numbers), ``views`` (shapes) and ``branches``.
"""

from __future__ import annotations

from functools import cache

from weft.ir.graph import Graph
from weft.ir.rewrite import Rules, sweep
from weft.passes.base import graph_pass


@graph_pass
def simplify(graph: Graph, fast_math: bool = False) -> Graph:
    """Apply algebraic identities, in regions too.

    Those that hold for all numbers, infinities, NaN and zeros of both signs: ``x * 1``, ``x - 0`` (but not
    ``x + 0``, which turns -0 into 0), double negation, chains of transposes, reshapes, broadcasts, casts and
    slices, ``where`` with a known condition, branches that do no work, and the like. With ``fast_math`` also
    those that are true of real numbers alone.

    >>> import weft
    >>> graph = weft.make_graph(lambda x: weft.sum((x.T * 1.0).T - 0.0, axis=0))(weft.ones((2, 3)))
    >>> [node.op.name for node in weft.passes.simplify(graph).nodes]
    ['sum']
    """
    return sweep(graph, _rules(fast_math=fast_math))


def load_rules() -> None:
    """Import the rules and trace their patterns, which the first graph would have to wait for."""
    _rules(fast_math=False)


@cache
def _rules(*, fast_math: bool) -> Rules:
    from weft.passes.algebra import ALGEBRA, FAST_MATH
    from weft.passes.branches import BRANCHES
    from weft.passes.rules import by_op
    from weft.passes.views import VIEWS

    rules = [*ALGEBRA, *FAST_MATH] if fast_math else ALGEBRA
    table = {op: list(found) for op, found in by_op(rules).items()}
    for op, rule in [*VIEWS, *BRANCHES]:
        table.setdefault(op, []).append(rule)
    return table

"""Which variables each converted statement takes and gives, which it shares, which may be without a value."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from weft.base.records import dataclass, field
from weft.capture.convert.flow import Lowered, children, is_plain
from weft.capture.convert.liveness import Definedness, FunctionUses, Liveness
from weft.capture.convert.names import Scope, child_nodes, walk

Names = frozenset[str]


@dataclass(slots=True)
class Shared:
    """The variables of the statements of a function that become functions.

    Attributes:
        facts: what each node uses.
        live: liveness where no exception is raised.
        raising: liveness with exceptions.
        defined: which variables surely have a value.
        states: by statement, the variables it may change that are read afterwards or in its next iteration.
        shared: by statement, those and the ones that only a handler of an exception reads.
        guarded: variables that may hold ``undefined``.
        unset: those of them that do so at the start of the function.
    """

    facts: FunctionUses
    live: Liveness
    raising: Liveness
    defined: Definedness
    states: dict[ast.AST, list[str]] = field(default_factory=dict)
    shared: dict[ast.AST, Names] = field(default_factory=dict)
    guarded: Names = frozenset()
    unset: Names = frozenset()

    def is_dead_before(self, node: ast.AST, name: str) -> bool:
        """Whether a statement does not need the value that a variable has before it, if any."""
        return name not in self.raising.before[node]

    def passed(self, node: ast.If, statements: Sequence[ast.stmt]) -> Names:
        """The variables a branch reads and then changes for itself alone: it is given their values."""
        own = self.facts.binds(statements) - self.shared[node]
        live = self.raising.body[node] if statements is node.body else self.raising.orelse[node]
        return own & live & self.facts.scope.locals


def share_variables(lowered: Lowered, scope: Scope, outer: Names) -> Shared:
    """Decide for each statement of a lowered function what it shares with the function."""
    facts, body = FunctionUses(scope, lowered.leave), lowered.body
    live, raising = [Liveness(facts, body, exceptions=e) for e in (False, True)]
    shared = Shared(facts, live, raising, Definedness(facts, body))
    uncertain = shared.defined.uncertain
    ours = (scope.locals | scope.nonlocals | scope.remote) - outer
    found: set[str] = set(scope.remote & scope.locals)
    for node, inside in _walk(body, lowered, False):
        if _is_converted(node, lowered):
            _share(node, shared, ours)
            found |= _unsettled(node, shared)
        if inside or _is_converted(node, lowered):
            found |= _read_too_early(node, uncertain, inside)
    bound = facts.binds(body)
    found |= {n.id for n in uncertain if isinstance(n, ast.Name) and n.id not in bound}
    shared.guarded = frozenset(found) & scope.locals
    shared.unset = shared.guarded - scope.parameters
    return shared


def _walk(statements: Sequence[ast.stmt], lowered: Lowered, inside: bool) -> Iterator[tuple[ast.stmt, bool]]:
    """All statements, with whether they stand in one that becomes a function."""
    for node in statements:
        yield node, inside
        converted = inside or _is_converted(node, lowered)
        for block in children(node):
            yield from _walk(block, lowered, converted)


def _is_converted(node: ast.stmt, lowered: Lowered) -> bool:
    if isinstance(node, ast.If):
        return node not in lowered.plain and not is_plain(node.test)
    return isinstance(node, ast.For | ast.While)


def _share(node: ast.stmt, shared: Shared, ours: Names) -> None:
    live, raising = shared.live, shared.raising
    binds = shared.facts.binds(_parts(node)) & ours
    wanted, handled = live.after[node], raising.after[node]
    if isinstance(node, ast.If):
        wanted |= handled & (live.body[node] | live.orelse[node])
    else:
        wanted |= live.body[node]
        handled |= raising.body[node]
    shared.states[node] = sorted(binds & wanted)
    shared.shared[node] = binds & (wanted | handled)


def _parts(node: ast.stmt) -> list[ast.AST]:
    """What of a statement runs in functions."""
    if isinstance(node, ast.For):
        return [node.target, *node.body]
    return [part for block in children(node) for part in block]


def _unsettled(node: ast.stmt, shared: Shared) -> set[str]:
    """Variables that must be able to have no value because of a statement."""
    states, defined = set(shared.states[node]), shared.defined.before[node]
    found = {n for n in states if n not in defined and not shared.is_dead_before(node, n)}
    found |= shared.shared[node] - states
    found |= shared.shared[node] & shared.facts.of(node).deletes
    if isinstance(node, ast.If):
        for block in (node.body, node.orelse):
            found |= shared.passed(node, block) - defined
    return found


def _read_too_early(node: ast.stmt, uncertain: set[ast.AST], inside: bool) -> set[str]:
    """Variables that a function of ours may read before they have a value."""
    within = (
        [node] if inside and not children(node) else [n for n in child_nodes(node) if isinstance(n, ast.expr)]
    )
    if not inside:
        within = [node.test] if isinstance(node, ast.While) else []
    names = {n for part in within for n in walk(part) if n in uncertain}
    return {n.id for n in names if isinstance(n, ast.Name)}

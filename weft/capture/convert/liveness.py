"""What statements that become functions pass in and out: liveness and definite assignment of variables.

Works on a lowered function body (``flow``), whose only jumps are ``return`` and exceptions. An
exception may leave any statement of a ``try`` or ``with``, so what its handlers and what follows it read is
live all through it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from weft.capture.convert.names import Scope, Uses, child_nodes, uses_in, walk

Names = frozenset[str]
NONE: Names = frozenset()


class FunctionUses:
    """What the statements and expressions of a function use.

    Attributes:
        scope: the variables of the function.
        leave: for loops that may be left early, the flag that tells.
    """

    def __init__(self, scope: Scope, leave: Mapping[ast.stmt, str]) -> None:
        self.scope = scope
        self.leave = leave

    def of(self, node: ast.AST) -> Uses:
        """What a node uses."""
        return uses_in(node)

    def binds(self, nodes: Sequence[ast.AST]) -> Names:
        """What nodes may assign, by the functions they call too."""
        return self.scope.remote.union(*[self.of(n).binds for n in nodes])

    def loads(self, *nodes: ast.AST | None) -> Names:
        """What nodes read."""
        return NONE.union(*[self.of(n).loads for n in nodes if n is not None])


class Liveness:
    """Which variables may still be read, from each statement on.

    Attributes:
        before: by statement, what may be read from there on.
        after: by statement, what may be read after it.
        body: by if, what may be read from the start of its body; by loop, from its next round on.
        orelse: by if, what may be read from the start of its else.
    """

    def __init__(self, facts: FunctionUses, body: Sequence[ast.stmt], *, exceptions: bool) -> None:
        self.facts = facts
        self.exceptions = exceptions
        self.always = facts.scope.captured | facts.scope.nonlocals
        self.before: dict[ast.AST, Names] = {}
        self.after: dict[ast.AST, Names] = {}
        self.body: dict[ast.AST, Names] = {}
        self.orelse: dict[ast.AST, Names] = {}
        self.block(body, self.always, NONE)

    def block(self, statements: Sequence[ast.stmt], after: Names, raised: Names) -> Names:
        """What is live before a block, if `after` is at its end and `raised` where an exception leaves it."""
        for statement in reversed(statements):
            self.after[statement] = after | raised
            after = self.statement(statement, after, raised) | raised | self.always
            self.before[statement] = after
        return after | raised

    def statement(self, node: Any, after: Names, raised: Names) -> Names:
        """What is live before a statement."""
        loads, uses = self.facts.loads, self.facts.of
        match node:
            case ast.If():
                self.body[node] = self.block(node.body, after, raised)
                self.orelse[node] = self.block(node.orelse, after, raised)
                return self.body[node] | self.orelse[node] | loads(node.test)
            case ast.While():
                head = after | loads(node.test)
                for _ in range(2):
                    head |= self.block(node.body, head, raised)
                self.body[node] = head
                return head
            case ast.For():
                flag = self.facts.leave.get(node)  # that ends the loop
                head, target = after | ({flag} if flag else NONE), uses(node.target)
                for _ in range(2):
                    head |= (self.block(node.body, head, raised) - target.binds) | target.loads
                self.body[node] = head
                return head | loads(node.iter)
            case ast.With():
                skipped = after if self.exceptions else NONE  # the manager may swallow an exception
                bound = NONE.union(*[uses(i.optional_vars).binds for i in node.items if i.optional_vars])
                return (self.block(node.body, after, raised | skipped) - bound) | skipped | loads(*node.items)
            case ast.Match():
                bodies = [self.block(case.body, after, raised) for case in node.cases]
                return after.union(
                    loads(node.subject), *[loads(c.guard, c.pattern) for c in node.cases], *bodies
                )
            case ast.Try() | ast.TryStar():
                return self.try_(node, after, raised)
            case ast.Return():
                return loads(node.value) | self.always
            case ast.Raise():
                return loads(node)
        return (after - bound_by(node)) | loads(node)

    def try_(self, node: Any, after: Names, raised: Names) -> Names:
        """What is live before a try; without exceptions its handlers are never reached."""
        final = self.block(node.finalbody, after | raised, raised) if node.finalbody else after
        leaving = raised | final if node.finalbody and self.exceptions else raised
        handled = NONE
        for handler in node.handlers:
            body = self.block(handler.body, final, leaving)
            handled |= (body - {handler.name}) | self.facts.loads(handler.type)
        orelse = self.block(node.orelse, final, leaving)
        return self.block(node.body, orelse, leaving | handled if self.exceptions else leaving)


class Definedness:
    """Which variables surely have a value.

    Attributes:
        before: by statement, the variables that surely have a value before it.
        uncertain: reads of own variables that may have no value then.
    """

    def __init__(self, facts: FunctionUses, body: Sequence[ast.stmt]) -> None:
        self.facts = facts
        self.scope = facts.scope
        self.before: dict[ast.AST, Names] = {}
        self.uncertain: set[ast.AST] = set()
        self.block(body, self.scope.parameters)

    def block(self, statements: Sequence[ast.stmt], known: Names) -> Names:
        """What surely has a value after a block."""
        for statement in statements:
            self.before[statement] = known
            known = self.statement(statement, known)
        return known

    def read(self, known: Names, *nodes: ast.AST | None) -> None:
        """Note the reads of variables that may have no value."""
        for node in nodes:
            if node is None or not (self.facts.loads(node) & self.scope.locals) - known:
                continue
            for child in walk(node):
                if isinstance(child, ast.Name) and child.id in self.scope.locals and child.id not in known:
                    self.uncertain.add(child)

    def statement(self, node: Any, known: Names) -> Names:
        """What surely has a value after a statement."""
        match node:
            case ast.If():
                self.read(known, node.test)
                known |= _surely(node.test)
                return self.block(node.body, known) & self.block(node.orelse, known)
            case ast.While():
                known -= self.deletes(node)
                self.read(known, node.test)
                self.block(node.body, known)
                return known
            case ast.For():
                self.read(known, node.iter)
                known |= _surely(node.iter)
                known -= self.deletes(node)
                self.block(node.body, known | self.facts.of(node.target).binds)
                self.read(known, node.target)
                return known
            case ast.With():
                for item in node.items:
                    self.read(known, item)
                    known |= _surely(item.context_expr)
                    if item.optional_vars is not None:
                        known |= self.facts.of(item.optional_vars).binds
                self.block(node.body, known)
                return known - self.deletes(node)
            case ast.Match():
                self.read(known, node.subject)
                known |= _surely(node.subject)
                for case in node.cases:
                    inner = known | self.facts.of(case.pattern).binds
                    self.read(inner, case.pattern, case.guard)
                    self.block(case.body, inner)
                return known - self.deletes(node)
            case ast.Try() | ast.TryStar():
                return self.try_(node, known)
            case ast.Return() | ast.Raise():
                self.read(known, node)
                return known | self.scope.locals  # nothing follows
        self.read(known, node)
        return (known | bound_by(node) | _surely(node)) - self.deletes(node)

    def try_(self, node: Any, known: Names) -> Names:
        """What surely has a value after a try, however far its body came."""
        before = known - self.deletes(node)
        out = self.block(node.orelse, self.block(node.body, known))
        for handler in node.handlers:
            self.read(before, handler.type)
            inner = before | ({handler.name} if handler.name else set())
            out &= self.block(handler.body, inner) - {handler.name}
        final = self.block(node.finalbody, before)
        gone = NONE.union(*[self.deletes(s) for s in node.finalbody])
        return (out - gone) | (final - before) | (final & gone)

    def deletes(self, node: ast.AST) -> Names:
        """What a statement may leave without a value."""
        return frozenset(self.facts.of(node).deletes)


def _surely(node: ast.AST | None) -> Names:
    """The variables that evaluating a node surely assigns by ``:=``."""
    if isinstance(node, ast.stmt):
        return _surely_in_statement(node)
    if node is None or isinstance(node, ast.Lambda | ast.BoolOp | ast.IfExp) or not uses_in(node).binds:
        return NONE
    found = NONE
    if isinstance(node, ast.NamedExpr):
        found = frozenset({node.target.id})
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        return found | _surely(node.generators[0].iter)
    if isinstance(node, ast.Compare) and len(node.ops) > 1:
        return found | _surely(node.left)
    return found.union(*[_surely(child) for child in child_nodes(node) if isinstance(child, ast.expr)])


def _surely_in_statement(node: ast.stmt) -> Names:
    if not isinstance(node, ast.Expr | ast.Assign | ast.AugAssign | ast.AnnAssign):
        return NONE
    return _surely(node.value)


def bound_by(node: ast.stmt) -> Names:
    """The variables that a simple statement, a function or a class surely assigns."""
    match node:
        case ast.Assign():
            return NONE.union(*[uses_in(t).binds for t in node.targets])
        case ast.AnnAssign(target=ast.Name(id=name), value=value):
            return frozenset({name}) if value is not None else NONE
        case ast.AugAssign(target=ast.Name(id=name)):
            return frozenset({name})
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return frozenset({name})
        case ast.Import() | ast.ImportFrom():
            return frozenset(uses_in(node).binds)
    if hasattr(ast, "TypeAlias") and isinstance(node, ast.TypeAlias):
        return frozenset(uses_in(node).binds)
    return NONE

"""Lowering of ``break``, ``continue`` and ``return`` where the statement around them becomes a function.

What comes out is Python again, without these statements: where one branch of an ``if`` always leaves, what
follows moves into the other branch; else flags are set, and what follows is guarded by them. Loops that may
be left early are marked with the flag that ends them. A ``return`` that is in no converted statement stays.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft.base.records import dataclass
from weft.capture.convert.build import assign, constant, load, negate, place, rebuilt
from weft.capture.convert.names import binds_by_walrus

Kinds = frozenset[str]
NONE: Kinds = frozenset()


class UnsupportedSyntax(Exception):  # noqa: N818  (caught by the converter, which then leaves the function as it is)
    """Something that conversion would change the meaning of."""


@dataclass(frozen=True, slots=True)
class Loop:
    """The flags of a loop: ``leave`` is set by break and return, ``skip`` by continue as well."""

    leave: str
    skip: str


@dataclass(slots=True)
class Lowered:
    """A function body without jumps.

    Attributes:
        body: its statements.
        leave: for loops that may be left early, the flag that tells.
        plain: statements of ours whose test is never a tensor.
        result: the statement at the end that gives what a lowered return has set; None where there is none.
    """

    body: list[ast.stmt]
    leave: dict[ast.stmt, str]
    plain: set[ast.stmt]
    result: ast.Return | None


def lower_jumps(body: list[ast.stmt], fresh: Callable[[str], str], *, calls_assign: bool = False) -> Lowered:
    """A function body whose jumps out of converted statements are gone.

    Args:
        body: the statements of the function.
        fresh: gives a name that the function does not use.
        calls_assign: whether functions inside it assign variables of it, so that the test of a loop may.
    """
    return _Lowering(fresh, calls_assign=calls_assign).run(body)


def is_plain(test: ast.expr) -> bool:
    """Whether a test is a bool of Python whatever its operands are, so that no tensor can decide."""
    if isinstance(test, ast.Compare):
        if any(
            isinstance(op, ast.Is | ast.IsNot) for op in test.ops
        ):  # of two truth values a run may tell it
            sides = (test.left, *test.comparators)
            return len(sides) == 2 and any(map(is_singleton, sides)) and not asks_for_gradient(test)
        return all(isinstance(op, ast.In | ast.NotIn) for op in test.ops)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return is_plain(test.operand)
    if isinstance(test, ast.BoolOp):
        return all(is_plain(value) for value in test.values)
    return isinstance(test, ast.Constant)


def is_singleton(node: ast.expr) -> bool:
    """Whether an expression is None, which no tensor decides about."""
    return isinstance(node, ast.Constant) and node.value is None


def asks_for_gradient(test: ast.Compare) -> bool:
    """Whether a comparison is ``x.grad is None``, or ``is not``: after some ways only a run tells."""
    left, op, right = test.left, test.ops[0], test.comparators[0]
    is_none = isinstance(right, ast.Constant) and right.value is None and isinstance(op, ast.Is | ast.IsNot)
    return is_none and len(test.ops) == 1 and isinstance(left, ast.Attribute) and left.attr == "grad"


def children(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks of a statement that belong to the same function."""
    if not isinstance(statement, _COMPOUND):
        return []
    blocks = [getattr(statement, name, None) or [] for name in ("body", "orelse", "finalbody")]
    parts = getattr(statement, "handlers", None) or getattr(statement, "cases", None) or []
    return [block for block in (*blocks, *[part.body for part in parts]) if block]


_COMPOUND = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.TryStar, ast.Match)


def jumps(statements: Iterable[ast.stmt]) -> Kinds:
    """The jumps that leave some statements: "return", and "break" or "continue" of a loop around them."""
    found: set[str] = set()
    for statement in statements:
        name = _JUMPS.get(type(statement))
        if name:
            found.add(name)
        inner = frozenset[str]().union(*[jumps(block) for block in children(statement)])
        if isinstance(statement, ast.For | ast.While):
            inner = (inner & {"return"}) | jumps(statement.orelse)
        found |= inner
    return frozenset(found)


_JUMPS: dict[type, str] = {ast.Return: "return", ast.Break: "break", ast.Continue: "continue"}


def always_leaves(statements: Sequence[ast.stmt]) -> bool:
    """Whether a block never reaches its end."""
    if not statements:
        return False
    last = statements[-1]
    if isinstance(last, ast.If):
        return always_leaves(last.body) and always_leaves(last.orelse)
    if isinstance(last, ast.While) and isinstance(last.test, ast.Constant) and last.test.value:
        return "break" not in jumps(last.body)  # it is left by return alone
    return isinstance(last, ast.Return | ast.Break | ast.Continue | ast.Raise)


def _may_be_abandoned(statements: Iterable[ast.stmt]) -> bool:
    """Whether a jump may start and then be given up, as what runs on the way out (finally, with) raises."""
    for statement in statements:
        on_exit = isinstance(statement, ast.With) or bool(getattr(statement, "finalbody", None))
        blocks = children(statement)
        if on_exit and any(jumps(block) for block in blocks):
            return True
        if any(_may_be_abandoned(block) for block in blocks):
            return True
    return False


class _Lowering:
    def __init__(self, fresh: Callable[[str], str], *, calls_assign: bool) -> None:
        self.fresh = fresh
        self.calls_assign = calls_assign
        self.loops: list[Loop] = []
        self.flags: set[str] = set()
        self.read: set[str] = set()
        self.leave: dict[ast.stmt, str] = {}
        self.plain: set[ast.stmt] = set()
        self.returned: tuple[str, str] | None = None

    def run(self, body: list[ast.stmt]) -> Lowered:
        if _returns_inside(body) and not always_leaves(body):
            last = body[-1]
            body = [*body, ast.Return(constant(None, last), **place(last))]
        lowered, _ = self.block(body, inside=False)
        result = None
        if self.returned is not None:
            flag, value = self.returned
            if flag in self.read:
                lowered.insert(0, assign(flag, constant(False, body[0]), body[0]))
            result = ast.Return(load(value, body[-1]), **place(body[-1]))
            lowered.append(result)
        return Lowered(self.clean(lowered), self.leave, self.plain, result)

    def flag(self, base: str) -> str:
        name = self.fresh(base)
        self.flags.add(name)
        return name

    def clean(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Leave out what sets flags that nothing reads."""
        unread = self.flags - self.read
        kept = [s for s in statements if not (isinstance(s, ast.Assign) and _target(s) in unread)]
        cleaned = [_map_blocks(s, self.clean) for s in kept]
        for before, after in zip(kept, cleaned, strict=True):
            if before in self.leave:
                self.leave[after] = self.leave[before]
            if before in self.plain:
                self.plain.add(after)
        return cleaned

    # Blocks. Each gives its new statements, and the jumps that may have been taken, by flag, at its end.

    def block(self, statements: Sequence[ast.stmt], *, inside: bool) -> tuple[list[ast.stmt], Kinds]:
        out: list[ast.stmt] = []
        rest = list(statements)
        while rest:
            statement, *rest = rest
            if type(statement) in _JUMPS:
                made, pending = self.jump(statement, inside)
                return [*out, *made], pending
            if not children(statement):
                out.append(statement)
                continue
            made, pending, rest = self.compound(statement, rest, inside)
            out += made
            if pending:
                guarded, more = self.guard(rest, pending)
                return [*out, *guarded], pending | more
        return out, NONE

    def guard(self, rest: Sequence[ast.stmt], pending: Kinds) -> tuple[list[ast.stmt], Kinds]:
        """Statements that run only if none of the pending jumps was taken."""
        if not rest:
            return [], NONE
        if "continue" in pending:
            flag = self.loops[-1].skip
        elif self.loops:
            flag = self.loops[-1].leave
        else:
            flag = self.returning()[0]
        self.read.add(flag)
        body, more = self.block(rest, inside=True)
        at = rest[0]
        return [ast.If(negate(load(flag, at), at), body or [ast.Pass(**place(at))], [], **place(at))], more

    def returning(self) -> tuple[str, str]:
        if self.returned is None:
            self.returned = (self.flag("_returned"), self.fresh("_value"))
        return self.returned

    def jump(self, statement: ast.stmt, inside: bool) -> tuple[list[ast.stmt], Kinds]:
        kind = _JUMPS[type(statement)]
        if isinstance(statement, ast.Return):
            if not inside:
                return [statement], NONE
            value = statement.value or constant(None, statement)
            made: list[ast.stmt] = [assign(self.returning()[1], value, statement)]
            return [*made, *self.set_flags(kind, True, statement)], frozenset({kind})
        return self.set_flags(kind, True, statement) or [ast.Pass(**place(statement))], frozenset({kind})

    def set_flags(self, kind: str, value: bool, like: ast.stmt) -> list[ast.stmt]:
        if kind == "return":
            flags = [self.returning()[0], *[f for loop in self.loops for f in (loop.leave, loop.skip)]]
        else:
            loop = self.loops[-1]
            flags = [loop.leave, loop.skip] if kind == "break" else [loop.skip]
        return [assign(flag, constant(value, like), like) for flag in flags]

    # Compound statements, each with those that follow it; the third result is what still follows.

    def compound(
        self, statement: ast.stmt, rest: list[ast.stmt], inside: bool
    ) -> tuple[list[ast.stmt], Kinds, list[ast.stmt]]:
        if isinstance(statement, ast.If):
            return self.if_(statement, rest, inside)
        if isinstance(statement, ast.While) and self.test_assigns(statement.test):
            return [], NONE, [*_test_inside(statement, self.fresh), *rest]
        if isinstance(statement, ast.While | ast.For):
            return self.loop(statement, rest)
        if isinstance(statement, ast.With):
            made, pending = self.with_(statement, inside)
        elif isinstance(statement, ast.Match):
            made, pending = self.match(statement, inside)
        else:
            made, pending = self.try_(statement, inside)
        return made, pending, rest

    def test_assigns(self, test: ast.expr) -> bool:
        """Whether the test of a loop may assign variables of the function."""
        return binds_by_walrus(test) or (self.calls_assign and not isinstance(test, ast.Constant | ast.Name))

    def if_(
        self, statement: ast.If, rest: list[ast.stmt], inside: bool
    ) -> tuple[list[ast.stmt], Kinds, list[ast.stmt]]:
        then, orelse = statement.body, statement.orelse
        inside = inside or not is_plain(statement.test)
        leaves = always_leaves(then), always_leaves(orelse)
        if inside and any(leaves) and jumps([statement]):
            if not leaves[1]:
                orelse = [*orelse, *rest]
            elif not leaves[0]:
                then = [*then, *rest]
            rest = []
        new_then, a = self.block(then, inside=inside)
        new_orelse, b = self.block(orelse, inside=inside)
        made = rebuilt(statement, body=new_then or [ast.Pass(**place(statement))], orelse=new_orelse)
        return [made], a | b, rest

    def loop(
        self, statement: ast.For | ast.While, rest: list[ast.stmt]
    ) -> tuple[list[ast.stmt], Kinds, list[ast.stmt]]:
        loop = Loop(self.flag("_break"), self.flag("_continue"))
        self.loops.append(loop)
        body, pending = self.block(statement.body, inside=True)
        self.loops.pop()
        if loop.skip in self.read:
            body.insert(0, assign(loop.skip, constant(False, statement), statement))
        made = rebuilt(statement, body=body or [ast.Pass(**place(statement))], orelse=[])
        orelse = list(statement.orelse)
        before: list[ast.stmt] = []
        if pending & {"break", "return"}:
            self.read.add(loop.leave)
            before = [assign(loop.leave, constant(False, statement), statement)]
            made = self.until(made, loop.leave)
            if orelse:
                at = orelse[0]
                orelse = [ast.If(negate(load(loop.leave, at), at), orelse, [], **place(at))]
        return [*before, made], pending & {"return"}, [*orelse, *rest]

    def until(self, loop: Any, flag: str) -> Any:
        """A loop that ends when a flag is set."""
        if isinstance(loop, ast.For):
            self.leave[loop] = flag
            return loop
        going = negate(load(flag, loop.test), loop.test)
        if isinstance(loop.test, ast.Constant) and loop.test.value:
            return rebuilt(loop, test=going)
        return rebuilt(loop, test=ast.BoolOp(ast.And(), [going, loop.test], **place(loop.test)))

    def with_(self, statement: ast.With, inside: bool) -> tuple[list[ast.stmt], Kinds]:
        body, pending = self.block(statement.body, inside=inside)
        made = rebuilt(statement, body=body)
        if not pending or not _may_be_abandoned(statement.body):
            return [made], pending
        done = self.fresh("_done")
        made = rebuilt(statement, body=[*body, assign(done, constant(True, statement), statement)])
        check = ast.If(
            negate(load(done, statement), statement), self.reset(pending, statement), [], **place(statement)
        )
        self.plain.add(check)
        return [assign(done, constant(False, statement), statement), made, check], pending

    def reset(self, pending: Kinds, like: ast.stmt) -> list[ast.stmt]:
        """Take back jumps that were given up."""
        return [s for kind in sorted(pending) for s in self.set_flags(kind, False, like)]

    def match(self, statement: ast.Match, inside: bool) -> tuple[list[ast.stmt], Kinds]:
        cases, pending = [], NONE
        for case in statement.cases:
            body, taken = self.block(case.body, inside=inside)
            cases.append(ast.match_case(case.pattern, case.guard, body))
            pending |= taken
        return [rebuilt(statement, cases=cases)], pending

    def try_(self, statement: Any, inside: bool) -> tuple[list[ast.stmt], Kinds]:
        if jumps(statement.finalbody):
            raise UnsupportedSyntax("a jump out of finally")
        body, pending = self.block(statement.body, inside=inside)
        reset = _may_be_abandoned(statement.body)
        handlers, taken = [], NONE
        for handler in statement.handlers:
            handled, more = self.block(handler.body, inside=inside)
            if reset:
                handled = [*self.reset(pending, handler.body[0]), *handled]
            handlers.append(rebuilt(handler, body=handled))
            taken |= more
        if pending:
            orelse, more = self.guard(statement.orelse, pending)
        else:
            orelse, more = self.block(statement.orelse, inside=inside)
        final, _ = self.block(statement.finalbody, inside=inside)
        made = rebuilt(statement, body=body, handlers=handlers, orelse=orelse, finalbody=final)
        return [made], pending | taken | more


def _target(statement: ast.Assign) -> str:
    target = statement.targets[0]
    return target.id if isinstance(target, ast.Name) else ""


def _test_inside(loop: ast.While, fresh: Callable[[str], str]) -> list[ast.stmt]:
    """``while test: body`` as ``while True: if test: body; else: break``, for tests that assign variables."""
    at = loop.test
    end: list[ast.stmt] = [ast.Break(**place(at))]
    if not loop.orelse:
        inner = ast.If(at, loop.body, end, **place(at))
        return [ast.While(constant(True, at), [inner], [], **place(loop))]
    done = fresh("_done")
    end.insert(0, assign(done, constant(True, at), at))
    inner = ast.If(at, loop.body, end, **place(at))
    return [
        assign(done, constant(False, loop), loop),
        ast.While(constant(True, at), [inner], [], **place(loop)),
        ast.If(load(done, at), loop.orelse, [], **place(loop.orelse[0])),
    ]


def _returns_inside(statements: Iterable[ast.stmt], converted: bool = False) -> bool:
    """Whether a return stands inside a statement that becomes a function."""
    for statement in statements:
        if isinstance(statement, ast.Return) and converted:
            return True
        around = converted or isinstance(statement, ast.For | ast.While)
        around = around or (isinstance(statement, ast.If) and not is_plain(statement.test))
        if any(_returns_inside(block, around) for block in children(statement)):
            return True
    return False


def _map_blocks(statement: ast.stmt, change: Callable[[list[ast.stmt]], list[ast.stmt]]) -> ast.stmt:
    """A statement with its blocks changed; a body that comes out empty becomes ``pass``."""
    if not children(statement):
        return statement
    changes: dict[str, Any] = {}
    for name in ("body", "orelse", "finalbody"):
        block = getattr(statement, name, None)
        if block:
            made = change(block)
            changes[name] = made or ([ast.Pass(**place(block[0]))] if name == "body" else [])
    for name in ("handlers", "cases"):
        parts = getattr(statement, name, None)
        if parts:
            blocks = [change(p.body) or [ast.Pass(**place(p.body[0]))] for p in parts]
            changes[name] = [rebuilt(p, body=b) for p, b in zip(parts, blocks, strict=True)]
    return rebuilt(statement, **changes)  # type: ignore[no-any-return]

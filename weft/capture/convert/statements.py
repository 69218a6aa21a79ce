"""Conversion of statements: branches and loops become functions of the variables they may change.

Such a function takes the values of these variables, assigns the variables themselves (they are shared with
the function around, by ``nonlocal``), and gives their values at its end. So a run that an exception ends half
way leaves the same variables behind as before, and a capture can run a branch or body on values it chooses.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft.base.records import replace
from weft.capture.convert.assign import AssignmentConverter
from weft.capture.convert.build import (
    assign,
    constant,
    expression,
    function,
    load,
    names_stored,
    no_arguments,
    place,
    rebuilt,
    store,
    thunk,
    tuple_of,
)
from weft.capture.convert.flow import Lowered, UnsupportedSyntax, is_plain, jumps, lower_jumps
from weft.capture.convert.names import FUNCTIONS, Scope, is_generator, scope_of, uses_of
from weft.capture.convert.shared import Shared, share_variables
from weft.capture.convert.unit import Unit

_LOOPS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FOLLOWED = (ast.Call, ast.Attribute, ast.Subscript, *_LOOPS)  # what the capture must be told of
_MARKS_STATEMENT = sys.version_info[:2] == (3, 12)  # in tracebacks of an assert; the others mark its test


class FunctionConverter(AssignmentConverter):
    """Converts one function of the user, and those inside it."""

    def __init__(self, unit: Unit, node: ast.FunctionDef, around: FunctionConverter | None = None) -> None:
        super().__init__(unit)
        self.node = node
        self.around = around
        named = [*node.args.posonlyargs, *node.args.args]
        self.first = named[0].arg if named else ""
        self.document, body = _split_document(node.body)
        self.lowered: Lowered = self.lower(body)
        self.scope = self.find_scope()
        self.outer = self.find_outer()
        self.shared: Shared = share_variables(self.lowered, self.scope, self.outer)
        self.own = self.scope.locals
        self.uncertain = self.shared.defined.uncertain
        around_guarded = around.guarded - self.own if around is not None else frozenset()
        self.guarded = self.shared.guarded | around_guarded

    def lower(self, body: list[ast.stmt]) -> Lowered:
        """The body without jumps."""
        around = self.around is not None and bool(self.around.scope.remote)
        return lower_jumps(body, self.unit.fresh, calls_assign=around or bool(scope_of(self.node).remote))

    def find_scope(self) -> Scope:
        """The variables of the function, with the flags of lowered jumps."""
        scope = scope_of(self.node)
        bound = uses_of(self.lowered.body).binds - scope.globals - scope.nonlocals
        remote = scope.remote
        if self.around is not None:
            remote |= self.around.scope.remote - scope.locals - scope.globals
        return replace(scope, locals=scope.locals | bound, remote=remote)

    def find_outer(self) -> frozenset[str]:
        """The variables declared nonlocal that belong to no function here: their cells are slots."""
        around = self.around
        found: frozenset[str] = self.scope.nonlocals
        while around is not None:
            found -= around.scope.locals
            around = around.around
        return found

    def is_slot(self, name: str) -> str:
        """How a variable from outside is kept: "global", "cell", or "" for one of the functions here."""
        if name in self.scope.globals:
            return "global"
        return "cell" if name in self.outer else ""

    # The function

    def convert_body(self) -> list[ast.stmt]:
        """The statements of the function."""
        at = self.node.body[0] if self.node.body else self.node
        body = list(self.document)
        remote = self.scope.remote - self.scope.locals if self.shared.states else frozenset()
        body += _declarations(self.scope.globals, self.scope.nonlocals | remote, at)
        for name in sorted(self.shared.unset):
            body.append(assign(name, self.runtime("undefined", (constant(name, at),), at), at))
        if self.node.args.kwarg is not None:  # a dict that the call made
            own = self.runtime("new_dict", (load(self.node.args.kwarg.arg, at),), at)
            body.append(expression(own, at))
        return [*body, *self.block(self.lowered.body)] or [ast.Pass(**place(at))]

    def nested_function(self, node: ast.FunctionDef) -> ast.stmt:
        """A function that conversion has made of an expression, converted in its turn."""
        inner = FunctionConverter(self.unit, node, self)
        inner.first = self.first
        return rebuilt(node, body=inner.convert_body())  # type: ignore[no-any-return]

    # Blocks

    def block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Statements, converted, each after the functions that its expressions need."""
        out: list[ast.stmt] = []
        for statement in statements:
            before, self.hoisted = self.hoisted, []
            made = self.statement(statement)
            out += [*self.hoisted, *made]
            self.hoisted = before
        return out

    def statement(self, node: Any) -> list[ast.stmt]:
        """A statement, converted."""
        convert = _STATEMENTS.get(type(node))
        if convert is None:
            return [self.generic(node)]
        own: list[ast.stmt] = getattr(self, convert.__name__)(node)
        return own

    def state_function(
        self,
        base: str,
        node: ast.stmt,
        make: Callable[[], list[ast.stmt]],
        bound: Sequence[ast.AST],
        item: str = "",
    ) -> ast.FunctionDef:
        """A function of the variables that a statement may change, which gives their values at its end."""
        names = self.shared.states[node]
        at = bound[0] if bound else node
        uses = uses_of(bound)
        outer = uses.binds & self.scope.nonlocals
        body = _declarations(
            uses.binds & self.scope.globals, self.shared.shared[node] | set(names) | outer, node
        )
        arguments = no_arguments()
        if item:
            arguments.args.append(ast.arg(item, None, None, **place(node)))
        if names:
            state = self.unit.state
            arguments.vararg = ast.arg(state, None, None, **place(node))
            body.append(ast.Assign([names_stored(names, node)], load(state, node), **place(node)))
        body += make()
        if not isinstance(body[-1], ast.Return):
            end = bound[-1] if bound else node
            body.append(ast.Return(tuple_of([load(n, end) for n in names], end), **place(end)))
        return function(self.unit.generated(base), arguments, body, at)

    def branch(self, base: str, node: ast.If, statements: list[ast.stmt]) -> ast.expr:
        """One way of an if, as a function; it is defined before the statement."""
        assert self.hoisted is not None
        names = self.shared.states[node]
        if not statements or all(isinstance(s, ast.Pass) for s in statements):
            arguments = no_arguments()
            if not names:
                return ast.Lambda(arguments, tuple_of((), node), **place(node))
            state = self.unit.state
            arguments.vararg = ast.arg(state, None, None, **place(node))
            return ast.Lambda(arguments, load(state, node), **place(node))
        made = self.state_function(base, node, lambda: self.block(statements), statements)
        for name in sorted(self.shared.passed(node, statements)):
            made.args.kwonlyargs.append(ast.arg(name, None, None, **place(node)))
            made.args.kw_defaults.append(load(name, node))
        self.hoisted.append(made)
        return load(made.name, node)

    def state(self, node: ast.stmt) -> tuple[ast.expr, ast.expr]:
        """The values of the variables before a statement, and their names."""
        values: list[ast.expr] = []
        for name in self.shared.states[node]:
            if self.shared.is_dead_before(node, name):
                values.append(self.runtime("undefined", (constant(name, node),), node))
            else:
                values.append(load(name, node))
        return tuple_of(values, node), constant(tuple(self.shared.states[node]), node)

    def assign_state(self, node: ast.stmt, value: ast.expr) -> ast.stmt:
        """The variables of a statement become what the runtime gives."""
        names = self.shared.states[node]
        if not names:
            return expression(value, node)
        return ast.Assign([names_stored(names, node)], value, **place(node))

    # Control flow

    def if_(self, node: ast.If) -> list[ast.stmt]:
        """``if``, by the runtime unless its test is surely a bool."""
        if node in self.lowered.plain or is_plain(node.test):
            test = self.expr(node.test) if node not in self.lowered.plain else node.test
            body = self.block(node.body)
            return [ast.If(test, body or [ast.Pass(**place(node))], self.block(node.orelse), **place(node))]
        test = self.test(node.test)
        then = self.branch("_then", node, node.body)
        orelse = self.branch("_else", node, node.orelse)
        values, names = self.state(node)
        return [
            self.assign_state(node, self.runtime("if_stmt", (test, then, orelse, values, names), node.test))
        ]

    def while_(self, node: ast.While) -> list[ast.stmt]:
        """``while``: its test is a function of the state too."""

        def ask() -> list[ast.stmt]:
            before, self.hoisted = self.hoisted, []
            value = self.test(node.test)
            made = [*self.hoisted, ast.Return(value, **place(node.test))]
            self.hoisted = before
            return made

        test = self.state_function("_test", node, ask, [node.test])
        body = self.state_function("_body", node, lambda: self.block(node.body), node.body)
        values, names = self.state(node)
        arguments = (load(test.name, node), load(body.name, node), values, names)
        return [test, body, self.assign_state(node, self.runtime("while_stmt", arguments, node.test))]

    def for_(self, node: ast.For) -> list[ast.stmt]:
        """``for``: its body takes an item, and assigns the target first."""
        item = self.unit.item
        iterable = self.expr(node.iter)

        def make() -> list[ast.stmt]:
            return [
                *self.assign_to(node.target, load(item, node.target), node.target),
                *self.block(node.body),
            ]

        body = self.state_function("_body", node, make, [node.target, *node.body], item)
        values, names = self.state(node)
        arguments = (iterable, load(body.name, node), values, names, self.more(node))
        return [body, self.assign_state(node, self.runtime("for_stmt", arguments, node.iter))]

    def more(self, node: ast.For) -> ast.expr:
        """What tells whether a loop goes on: a function of the state; None if it is never left early."""
        flag = self.lowered.leave.get(node)
        if flag is None:
            return constant(None, node)
        state = self.unit.state
        arguments = no_arguments()
        arguments.vararg = ast.arg(state, None, None, **place(node))
        position = constant(self.shared.states[node].index(flag), node)
        value = ast.Subscript(load(state, node), position, ast.Load(), **place(node))
        return ast.Lambda(arguments, self.runtime("not_", (value,), node), **place(node))

    def return_(self, node: ast.Return) -> list[ast.stmt]:
        """``return``; the one that ends a function with lowered returns gives what they have set."""
        if node is self.lowered.result:
            return [rebuilt(node, value=self.runtime("returned", (node.value,), node))]  # type: ignore[arg-type]
        return [self.generic(node)]

    def raise_(self, node: ast.Raise) -> list[ast.stmt]:
        """``raise``; the runtime has a say, since a tensor may decide whether it is reached."""
        if node.exc is None:
            return [node]
        cause = node.cause and self.expr(node.cause)
        return [rebuilt(node, exc=self.runtime("raised", (self.expr(node.exc),), node.exc), cause=cause)]

    def assert_(self, node: ast.Assert) -> list[ast.stmt]:
        """``assert``."""
        parts = [p for p in (node.test, node.msg) if p is not None]
        if not __debug__ or uses_of(parts).binds:
            return [self.generic(node)]
        message = constant(None, node) if node.msg is None else self.thunk(node.msg)
        test = thunk(self.test(node.test), node.test)
        marked = node if _MARKS_STATEMENT else node.test
        return [expression(self.runtime("assert_stmt", (test, message), marked), node)]

    # Statements with blocks that stay

    def with_(self, node: ast.With) -> list[ast.stmt]:
        """``with``; what it binds is stored by the runtime where it is more than a variable."""
        items, first = [], []
        for i, item in enumerate(node.items):
            made_here = isinstance(item.context_expr, ast.Call)
            context = self.expr(item.context_expr) if made_here else self.whole(item.context_expr)
            context = self.runtime("managed", (context,), item.context_expr)
            target = item.optional_vars
            if target is None or self.is_simple_target(target):
                items.append(rebuilt(item, context_expr=context))
                continue
            if i + 1 < len(node.items):
                rest = rebuilt(node, items=node.items[i + 1 :])
                inner = rebuilt(node, items=[item], body=[rest])
                made = inner if not items else rebuilt(node, items=node.items[:i], body=[inner])
                return self.with_(made)
            held = self.unit.fresh("_held")
            items.append(rebuilt(item, context_expr=context, optional_vars=store(held, target)))
            first = self.assign_to(target, load(held, target), target)
        return [rebuilt(node, items=items, body=[*first, *self.block(node.body)])]

    def try_(self, node: Any) -> list[ast.stmt]:
        """``try``."""
        handlers = [self.handler(h) for h in node.handlers]
        if handlers and isinstance(node, ast.Try):
            at = node.handlers[0]
            passed = self.runtime("unfinished", (), at.type or at)  # what the capture itself must see
            handlers.insert(0, ast.ExceptHandler(passed, None, [ast.Raise(**place(at))], **place(at)))
        blocks = {name: self.block(getattr(node, name)) for name in ("body", "orelse", "finalbody")}
        if any(map(_handles, node.handlers)):
            blocks["body"] = [self.watched(node, blocks["body"])]
        made = rebuilt(node, handlers=handlers, **blocks)
        return [made] if not node.finalbody else self.finished(made)

    def finished(self, node: Any) -> list[ast.stmt]:
        """A ``try`` with a ``finally``, whose changes the runtime looks at."""
        begun, first = self.unit.fresh("_begun"), node.finalbody[0]
        item = ast.withitem(self.runtime("finishing", (load(begun, first),), first), None)
        final = ast.With([item], node.finalbody, **place(first))
        begin = assign(begun, self.runtime("started", (), node), node)
        return [begin, rebuilt(node, finalbody=[final])]

    def watched(self, node: Any, body: list[ast.stmt]) -> ast.stmt:
        """The body of a ``try``, while the runtime knows what is handled."""
        handlers = [h for h in node.handlers if _handles(h)]
        at = handlers[0]
        kinds = [self.expr(h.type) for h in handlers if h.type is not None]
        if len(kinds) < len(handlers):
            kinds = [load(self.unit.use("BaseException"), at)]
        kind = kinds[0] if len(kinds) == 1 else tuple_of(kinds, at)
        item = ast.withitem(self.runtime("trying", (thunk(kind, at),), at), None)
        return ast.With([item], body, **place(node.body[0]))

    def handler(self, node: ast.ExceptHandler) -> ast.ExceptHandler:
        """``except``; its variable is without a value afterwards, in a way that state can hold."""
        kind = node.type and self.expr(node.type)
        body = self.block(node.body)
        if node.name is None or node.name not in self.guarded:
            return rebuilt(node, type=kind, body=body)  # type: ignore[no-any-return]
        held = self.unit.fresh("_error")
        begin = assign(node.name, load(held, node), node)
        end = assign(node.name, self.runtime("undefined", (constant(node.name, node),), node), node)
        kept = ast.Try(body, [], [], [end], **place(node.body[0]))
        return rebuilt(node, type=kind, name=held, body=[begin, kept])  # type: ignore[no-any-return]

    def match(self, node: ast.Match) -> list[ast.stmt]:
        """``match``, which Python does; the capture is told of the lists and dicts that it makes."""
        cases = []
        for case in node.cases:
            body = [*self.matched(case.pattern), *self.block(case.body)]
            cases.append(ast.match_case(case.pattern, case.guard and self.expr(case.guard), body))
        subject = self.runtime("subject", (self.whole(node.subject),), node.subject)
        return [rebuilt(node, subject=subject, cases=cases)]

    def matched(self, pattern: ast.pattern) -> list[ast.stmt]:
        """Tell of the rests of sequences and mappings that a pattern has bound."""
        out: list[ast.stmt] = []
        for part in ast.walk(pattern):
            if isinstance(part, ast.MatchStar) and part.name is not None:
                out.append(assign(part.name, self.runtime("new_list", (load(part.name, part),), part), part))
            elif isinstance(part, ast.MatchMapping) and part.rest is not None:
                out.append(assign(part.rest, self.runtime("new_dict", (load(part.rest, part),), part), part))
        return out

    # Definitions

    def function(self, node: ast.FunctionDef) -> list[ast.stmt]:
        """``def``: converted in place, unless it is a generator."""
        decorators = [self.runtime("decorator", (self.expr(d),), d) for d in node.decorator_list]
        arguments = self.arguments(node.args)
        if is_generator(node) and scope_of(node).nonlocals:
            raise UnsupportedSyntax("a generator that assigns variables of the function around it")
        body = converter_for(node)(self.unit, node, self).convert_body()
        return [rebuilt(node, decorator_list=decorators, args=arguments, body=body)]

    def async_function(self, node: ast.AsyncFunctionDef) -> list[ast.stmt]:
        """``async def``, which stays."""
        decorators = [self.expr(d) for d in node.decorator_list]
        body = self.unconverted(node.body, scope_of(node).locals)
        return [rebuilt(node, decorator_list=decorators, args=self.arguments(node.args), body=body)]

    def class_(self, node: ast.ClassDef) -> list[ast.stmt]:
        """``class``: its methods are converted, and what its body gives names to."""
        changes = {
            "decorator_list": [self.runtime("decorator", (self.expr(d),), d) for d in node.decorator_list],
            "bases": [
                self.expr(b) if isinstance(b, ast.Starred) else self.runtime("base", (self.expr(b),), b)
                for b in node.bases
            ],
            "keywords": [
                rebuilt(k, value=self.runtime("base", (self.expr(k.value),), k.value)) for k in node.keywords
            ],
        }
        unit = self.unit
        before = unit.class_name, unit.in_class
        unit.class_name, unit.in_class = node.name, True
        own = frozenset(uses_of(node.body).binds)
        guarded = self.guarded
        self.guarded = guarded - own
        body = [made for s in node.body for made in self.in_class(s, own)]
        self.guarded = guarded
        unit.class_name, unit.in_class = before
        return [rebuilt(node, body=body, **changes)]

    def in_class(self, node: ast.stmt, own: frozenset[str]) -> list[ast.stmt]:
        """A statement of the body of a class, where functions cannot see the names of the body."""
        if isinstance(node, ast.ClassDef):
            return self.class_(node)
        if isinstance(node, ast.FunctionDef) or not any(isinstance(x, _FOLLOWED) for x in _run_by(node)):
            return [self.keep(node, methods=True)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if all(isinstance(t, ast.Name) for t in targets) and not own & uses_of([node.value]).loads:
                return [rebuilt(node, value=self.expr(node.value))]
        refused = expression(self.runtime("statements", (), node), node)
        return [refused, self.keep(node, methods=True)]

    def unconverted(
        self, statements: list[ast.stmt], own: frozenset[str], *, methods: bool = False
    ) -> list[ast.stmt]:
        """Statements that stay, with checked reads of variables from around; their methods are converted."""
        guarded = self.guarded
        self.guarded = guarded - own
        made = [self.keep(s, methods) for s in statements]
        self.guarded = guarded
        return made

    def keep(self, node: Any, methods: bool) -> Any:
        """A node as it is, but for the methods in it and the variables from around."""
        if isinstance(node, ast.FunctionDef) and methods:
            return self.function(node)[0]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return rebuilt(node, body=self.unconverted(node.body, scope_of(node).locals))
        if isinstance(node, ast.Name):
            return self.name(node)
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)) or not hasattr(node, "_fields"):
            return node
        changes: dict[str, Any] = {}
        for name, value in ast.iter_fields(node):
            many = isinstance(value, list)
            new = [self.keep(x, methods) for x in value] if many else self.keep(value, methods)
            if new is not value and new != value:
                changes[name] = new
        return rebuilt(node, **changes) if changes else node

    def nothing(self, node: ast.stmt) -> list[ast.stmt]:
        """Declarations stand at the begin of each function; a block may have nothing else."""
        return [ast.Pass(**place(node))]


def converter_for(node: ast.FunctionDef) -> type[FunctionConverter]:
    """The class that converts a function."""
    if not is_generator(node):
        return FunctionConverter
    from weft.capture.convert.generators import GeneratorConverter

    return GeneratorConverter


def _handles(handler: ast.ExceptHandler) -> bool:
    """Whether code after a handler may run: it does not always raise its exception again."""
    last = handler.body[-1]
    again = isinstance(last, ast.Raise) and (
        last.exc is None or (isinstance(last.exc, ast.Name) and last.exc.id == handler.name)
    )
    return not again or bool(jumps(handler.body)) or handler.name in uses_of(handler.body).binds


def _run_by(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a statement that Python runs when it comes to it, but for annotations."""
    yield node
    for name, value in ast.iter_fields(node):
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST) and not isinstance(part, FUNCTIONS) and name != "annotation":
                yield from _run_by(part)


def _split_document(body: list[ast.stmt]) -> tuple[list[ast.stmt], list[ast.stmt]]:
    first = body[0]
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        return [first], body[1:]
    return [], body


def _declarations(globals: Any, nonlocals: Any, like: ast.AST) -> list[ast.stmt]:
    made: list[ast.stmt] = []
    if globals:
        made.append(ast.Global(sorted(globals), **place(like)))
    if nonlocals:
        made.append(ast.Nonlocal(sorted(nonlocals), **place(like)))
    return made


_STATEMENTS: dict[type, Callable[[Any, Any], list[ast.stmt]]] = {
    ast.If: FunctionConverter.if_,
    ast.While: FunctionConverter.while_,
    ast.For: FunctionConverter.for_,
    ast.Return: FunctionConverter.return_,
    ast.Assert: FunctionConverter.assert_,
    ast.Raise: FunctionConverter.raise_,
    ast.With: FunctionConverter.with_,
    ast.Try: FunctionConverter.try_,
    ast.TryStar: FunctionConverter.try_,
    ast.Match: FunctionConverter.match,
    ast.FunctionDef: FunctionConverter.function,
    ast.AsyncFunctionDef: FunctionConverter.async_function,
    ast.ClassDef: FunctionConverter.class_,
    ast.Global: FunctionConverter.nothing,
    ast.Nonlocal: FunctionConverter.nothing,
    ast.Assign: FunctionConverter.assign,
    ast.AugAssign: FunctionConverter.augmented,
    ast.AnnAssign: FunctionConverter.annotated,
    ast.Delete: FunctionConverter.delete,
}

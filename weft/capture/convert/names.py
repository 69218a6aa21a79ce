"""Which variables a piece of syntax reads and binds, and which scope they belong to.

``uses_of`` answers for a statement or an expression as part of the function it stands in: the scopes of
comprehensions, nested functions and classes are looked through, and their own variables left out.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

from weft.base.records import dataclass, field

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(slots=True, eq=False)
class Uses:
    """The variables of a function that a piece of its syntax uses.

    Attributes:
        loads: read, here or in functions that are made here.
        binds: assigned or deleted.
        deletes: deleted.
        captured: used by functions, generators or classes made here, which may run later.
        remote: assigned by such functions, by ``nonlocal``.
        globals: declared ``global``.
        nonlocals: declared ``nonlocal``.
        yields: whether it makes the function a generator or a coroutine.
    """

    loads: set[str] = field(default_factory=set)
    binds: set[str] = field(default_factory=set)
    deletes: set[str] = field(default_factory=set)
    captured: set[str] = field(default_factory=set)
    remote: set[str] = field(default_factory=set)
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)
    yields: bool = False

    def add(self, other: Uses) -> None:
        """Join with what another piece of the same function uses."""
        self.loads |= other.loads
        self.binds |= other.binds
        self.deletes |= other.deletes
        self.captured |= other.captured
        self.remote |= other.remote
        self.globals |= other.globals
        self.nonlocals |= other.nonlocals
        self.yields |= other.yields


_known: WeakKeyDictionary[ast.AST, Uses] = WeakKeyDictionary()  # of nodes, which are never changed
_scopes: WeakKeyDictionary[ast.AST, Scope] = WeakKeyDictionary()


def uses_of(nodes: Iterable[ast.AST]) -> Uses:
    """What pieces of syntax use, together."""
    together = Uses()
    for node in nodes:
        together.add(uses_in(node))
    return together


def uses_in(node: ast.AST) -> Uses:
    """What one piece of syntax uses; worked out once, so not to be changed."""
    uses = _known.get(node)
    if uses is None:
        uses = _known[node] = Uses()
        _visit(node, uses)
    return uses


def child_nodes(node: ast.AST) -> list[Any]:
    """The nodes right below a node, as ``ast.iter_child_nodes`` gives them, but faster."""
    kind = type(node)
    fields = _fields.get(kind)
    if fields is None:
        fields = _fields[kind] = tuple(f for f in kind._fields if f not in _NO_NODES)
    found = []
    for name in fields:
        value = getattr(node, name, None)
        if value.__class__ is list:
            found += [x for x in value if isinstance(x, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


_fields: dict[type, tuple[str, ...]] = {ast.Constant: (), ast.Name: ()}
_NO_NODES = frozenset(
    {
        "ctx",
        "op",
        "ops",
        "id",
        "attr",
        "kind",
        "type_comment",
        "conversion",
        "simple",
        "level",
        "module",
        "is_async",
    }
)


def walk(node: ast.AST) -> Iterator[Any]:
    """A node and all below it."""
    found = [node]
    for n in found:
        found += child_nodes(n)
    return iter(found)


def parameter_names(arguments: ast.arguments) -> list[str]:
    """The names of all parameters, in the order of the code object."""
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    starred = [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
    return [a.arg for a in (*named, *starred)]


def body_of(node: FunctionNode) -> list[ast.stmt]:
    """The statements of a function; of a lambda, its value as one."""
    if isinstance(node, ast.Lambda):
        at = node.body
        return [ast.copy_location(ast.Return(node.body), at)]
    return node.body


def is_generator(node: FunctionNode) -> bool:
    """Whether a function is a generator or a coroutine, which are left as they are."""
    return isinstance(node, ast.AsyncFunctionDef) or _body_uses(node).yields


def _body_uses(node: FunctionNode) -> Uses:
    return uses_of([node.body] if isinstance(node, ast.Lambda) else node.body)


def binds_by_walrus(node: ast.AST) -> bool:
    """Whether an expression assigns variables of the function it stands in."""
    return bool(uses_in(node).binds)


def identifiers(node: ast.AST) -> set[str]:
    """Every name that occurs in a function, for making new ones."""
    found = set()
    for child in walk(node):
        if isinstance(child, ast.Name):
            found.add(child.id)
            continue
        for name in ("arg", "name", "asname", "rest"):
            value = getattr(child, name, None)
            if isinstance(value, str):
                found.add(value)
        if isinstance(child, ast.Global | ast.Nonlocal):
            found.update(child.names)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """The variables of a function.

    Attributes:
        parameters: its parameters.
        locals: its own variables, parameters included.
        globals: those it declares ``global``.
        nonlocals: those it declares ``nonlocal``.
        captured: own variables that functions inside it use.
        remote: own variables that functions inside it assign.
        outer_assigned: variables of functions around that it, or functions inside it, assign.
        free: names it uses that are not its own.
    """

    parameters: frozenset[str]
    locals: frozenset[str]
    globals: frozenset[str]
    nonlocals: frozenset[str]
    captured: frozenset[str]
    remote: frozenset[str]
    outer_assigned: frozenset[str]
    free: frozenset[str]


def scope_of(node: FunctionNode) -> Scope:
    """The variables of a function."""
    scope = _scopes.get(node)
    if scope is None:
        scope = _scopes[node] = _find_scope(node, _body_uses(node))
    return scope


def _find_scope(node: FunctionNode, uses: Uses) -> Scope:
    parameters = frozenset(parameter_names(node.args))
    declared = uses.globals | uses.nonlocals
    own = (parameters | uses.binds) - declared
    return Scope(
        parameters=parameters,
        locals=frozenset(own),
        globals=frozenset(uses.globals),
        nonlocals=frozenset(uses.nonlocals),
        captured=frozenset(uses.captured & own),
        remote=frozenset(uses.remote & own),
        outer_assigned=frozenset((uses.binds & uses.nonlocals) | (uses.remote - own)),
        free=frozenset((uses.loads | uses.captured | uses.nonlocals | uses.remote) - own - uses.globals),
    )


def _visit(node: ast.AST, uses: Uses) -> None:
    visit = _VISITORS.get(type(node))
    if visit is not None:
        visit(node, uses)
        return
    for child in child_nodes(node):
        if isinstance(child, ast.stmt):
            uses.add(uses_in(child))
        else:
            _visit(child, uses)


def _visit_all(nodes: Iterable[ast.AST | None], uses: Uses) -> None:
    for node in nodes:
        if node is not None:
            _visit(node, uses)


def _yield(node: Any, uses: Uses) -> None:
    uses.yields = True
    _visit_all(child_nodes(node), uses)


def _name(node: Any, uses: Uses) -> None:
    if isinstance(node.ctx, ast.Load):
        uses.loads.add(node.id)
        return
    uses.binds.add(node.id)
    if isinstance(node.ctx, ast.Del):
        uses.deletes.add(node.id)
        uses.loads.add(node.id)


def _augmented(node: Any, uses: Uses) -> None:
    if isinstance(node.target, ast.Name):
        uses.loads.add(node.target.id)
    _visit_all((node.target, node.value), uses)


def _annotated(node: Any, uses: Uses) -> None:
    _visit_all((node.target, node.value), uses)  # annotations of variables are not evaluated in functions


def _import(node: Any, uses: Uses) -> None:
    uses.binds.update((alias.asname or alias.name.split(".")[0]) for alias in node.names)


def _handler(node: Any, uses: Uses) -> None:
    if node.name:
        uses.binds.add(node.name)
        uses.deletes.add(node.name)
    _visit_all((node.type, *node.body), uses)


def _pattern_name(node: Any, uses: Uses) -> None:
    bound = node.rest if isinstance(node, ast.MatchMapping) else node.name
    if bound:
        uses.binds.add(bound)
    _visit_all(child_nodes(node), uses)


def _declare_globals(node: Any, uses: Uses) -> None:
    uses.globals.update(node.names)


def _declare_nonlocals(node: Any, uses: Uses) -> None:
    uses.nonlocals.update(node.names)


def _function(node: Any, uses: Uses) -> None:
    arguments = node.args
    _visit_all((*arguments.defaults, *arguments.kw_defaults), uses)
    if not isinstance(node, ast.Lambda):
        uses.binds.add(node.name)
        _visit_all((*node.decorator_list, node.returns), uses)
        for a in (
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            arguments.vararg,
            arguments.kwarg,
        ):
            if a is not None and a.annotation is not None:
                _visit(a.annotation, uses)
    scope = scope_of(node)
    generic = {p.name for p in getattr(node, "type_params", ())}
    uses.captured |= scope.free - generic
    uses.loads |= scope.free - generic
    uses.remote |= scope.outer_assigned


def _class(node: Any, uses: Uses) -> None:
    uses.binds.add(node.name)
    _visit_all((*node.decorator_list, *node.bases, *node.keywords), uses)
    inner = uses_of(node.body)
    uses.captured |= inner.captured
    uses.loads |= inner.loads - inner.globals
    uses.remote |= (inner.binds & inner.nonlocals) | inner.remote


def _comprehension(node: Any, uses: Uses) -> None:
    first, *others = node.generators
    _visit(first.iter, uses)
    inner = Uses()
    targets = uses_of([g.target for g in node.generators])
    _visit_all([*first.ifs, *[part for g in others for part in (g.iter, *g.ifs)]], inner)
    _visit_all((node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,), inner)
    loads = (inner.loads | targets.loads) - targets.binds
    uses.loads |= loads
    uses.binds |= inner.binds
    uses.captured |= inner.captured - targets.binds
    uses.yields |= inner.yields or any(g.is_async for g in node.generators)
    uses.remote |= inner.remote
    if isinstance(node, ast.GeneratorExp):
        uses.captured |= loads


def _type_alias(node: Any, uses: Uses) -> None:
    uses.binds.add(node.name.id)
    inner = uses_of([node.value])
    names = inner.loads - {p.name for p in node.type_params}
    uses.captured |= names
    uses.loads |= names


_VISITORS: dict[type, Callable[[Any, Uses], None]] = {
    ast.Name: _name,
    ast.AugAssign: _augmented,
    ast.AnnAssign: _annotated,
    ast.Import: _import,
    ast.ImportFrom: _import,
    ast.ExceptHandler: _handler,
    ast.MatchAs: _pattern_name,
    ast.MatchStar: _pattern_name,
    ast.MatchMapping: _pattern_name,
    ast.Global: _declare_globals,
    ast.Nonlocal: _declare_nonlocals,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.Lambda: _function,
    ast.ClassDef: _class,
    **dict.fromkeys(COMPREHENSIONS, _comprehension),
    **dict.fromkeys((ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith), _yield),
}
if hasattr(ast, "TypeAlias"):
    _VISITORS[ast.TypeAlias] = _type_alias

"""Conversion of expressions: calls, attributes, items and all that asks for truth goes through the runtime.

Operands that Python may not evaluate become functions without parameters (thunks). An expression with ``:=``
in such a place stays as it is, since a variable assigned in a thunk would be the thunk's own.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from weft.capture.convert.build import (
    assign,
    attribute,
    call,
    constant,
    expression,
    function,
    load,
    no_arguments,
    place,
    rebuilt,
    thunk,
    tuple_of,
)
from weft.capture.convert.flow import asks_for_gradient, is_plain, is_singleton
from weft.capture.convert.names import (
    COMPREHENSIONS,
    binds_by_walrus,
    is_generator,
    scope_of,
    uses_of,
)
from weft.capture.convert.unit import Unit

# These look at the frame that calls them, so a call between would change what they see.
FRAME_FUNCTIONS = frozenset({"locals", "globals", "vars", "dir", "eval", "exec", "super", "breakpoint"})

_OPERATORS: dict[type, str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}


SIGNS: dict[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.MatMult: "@",
    ast.Div: "/",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.BitAnd: "&",
    ast.FloorDiv: "//",
    ast.UAdd: "+",
    ast.USub: "-",
    ast.Invert: "~",
}


class ExpressionConverter:
    """Converts the expressions of one function.

    Attributes:
        unit: what the functions that are converted together share.
        guarded: variables that may hold ``undefined``, so that reading them is checked.
        uncertain: reads of the function's own variables that may come too early.
        own: the function's own variables.
        first: its first parameter, which ``super()`` means.
        hoisted: functions to define before the statement; None where variables of an inner scope are in use.
    """

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.guarded: frozenset[str] = frozenset()
        self.uncertain: set[ast.AST] = set()
        self.own: frozenset[str] = frozenset()
        self.first = ""
        self.hoisted: list[ast.stmt] | None = None

    def expr(self, node: Any) -> Any:
        """An expression, converted."""
        convert = _CONVERTERS.get(type(node))
        return self.generic(node) if convert is None else convert(self, node)

    def generic(self, node: Any) -> Any:
        """A node with converted expressions in it; itself, if there are none."""
        changes = {}
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                new: Any = [self.expr(x) if isinstance(x, ast.AST) else x for x in value]
                if any(a is not b for a, b in zip(new, value, strict=True)):
                    changes[name] = new
            elif isinstance(value, ast.AST):
                new = self.expr(value)
                if new is not value:
                    changes[name] = new
        return rebuilt(node, **changes) if changes else node

    def runtime(self, name: str, arguments: Iterable[ast.expr], like: ast.AST) -> ast.Call:
        """A call of a function of the runtime."""
        at = _on_one_line(like)  # else Python moves the call to where the name of the method ends
        return call(attribute(load(self.unit.runtime, at), name, at), list(arguments), like)

    def thunk(self, node: ast.expr) -> ast.Lambda:
        """A function that evaluates an expression."""
        return thunk(self.expr(node), node)

    @contextmanager
    def inner_scope(self, names: Iterable[str]) -> Iterator[None]:
        """While what is converted stands in an inner scope with variables of its own."""
        guarded, hoisted = self.guarded, self.hoisted
        self.guarded = guarded.difference(names)
        self.hoisted = None
        try:
            yield
        finally:
            self.guarded, self.hoisted = guarded, hoisted

    # Names

    def name(self, node: ast.Name) -> Any:
        """A variable; where it may have no value, that is checked."""
        if node.id not in self.guarded or not isinstance(node.ctx, ast.Load):
            return node
        if node.id in self.own and node not in self.uncertain:
            return node
        return self.runtime("load", (node, constant(node.id, node)), node)

    # Truth

    def bool_op(self, node: ast.BoolOp) -> Any:
        """``and`` and ``or``."""
        if is_plain(node) or any(map(binds_by_walrus, node.values)):
            return self.generic(node)
        return self.runtime(
            "and_" if isinstance(node.op, ast.And) else "or_", [self.thunk(v) for v in node.values], node
        )

    def test(self, node: ast.expr) -> Any:
        """An expression of which only the truth matters."""
        if not isinstance(node, ast.BoolOp) or is_plain(node) or any(map(binds_by_walrus, node.values)):
            return self.expr(node)
        name = "all_true" if isinstance(node.op, ast.And) else "any_true"
        return self.runtime(name, [thunk(self.test(v), v) for v in node.values], node)

    def unary(self, node: ast.UnaryOp) -> Any:
        """``not``, ``-``, ``+`` and ``~``; of a literal the sign belongs to it."""
        if not isinstance(node.op, ast.Not):
            if isinstance(node.operand, ast.Constant):
                return node
            sign = constant(SIGNS[type(node.op)], node)
            return self.runtime("unary", (sign, self.expr(node.operand)), node)
        if is_plain(node.operand):
            return self.generic(node)
        return self.runtime("not_", (self.test(node.operand),), node)

    def if_exp(self, node: ast.IfExp) -> Any:
        """``a if test else b``."""
        if is_plain(node.test) or binds_by_walrus(node.body) or binds_by_walrus(node.orelse):
            return self.generic(node)
        return self.runtime(
            "if_exp", (self.test(node.test), self.thunk(node.body), self.thunk(node.orelse)), node
        )

    def compare(self, node: ast.Compare) -> Any:
        """``a < b < c``; one comparison alone is the operands' own."""
        if asks_for_gradient(node):
            name = "lacks_gradient" if isinstance(node.ops[0], ast.Is) else "holds_gradient"
            return self.runtime(name, (self.expr(node.left.value),), node)  # type: ignore[attr-defined]
        looks = any(
            isinstance(op, ast.In | ast.NotIn) for op in node.ops
        )  # into a container, which is guarded
        python = not looks and (len(node.ops) == 1 or is_plain(node))
        inside = all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops)
        if any(map(binds_by_walrus, node.comparators)) or (inside and _names_constant(node)):
            return self.generic(node)
        if inside and python and len(node.ops) == 1:
            name = "is_" if isinstance(node.ops[0], ast.Is) else "is_not"
            return self.runtime(name, (self.expr(node.left), self.expr(node.comparators[0])), node)
        if python and not inside:
            sign = constant(_OPERATORS[type(node.ops[0])], node)
            return self.runtime("binary", (sign, self.expr(node.left), self.expr(node.comparators[0])), node)
        pairs = [
            tuple_of((constant(_OPERATORS[type(op)], right), self.thunk(right)), right)
            for op, right in zip(node.ops, node.comparators, strict=True)
        ]
        return self.runtime("compare", (self.expr(node.left), tuple_of(pairs, node)), node)

    # Operands that Python looks into

    def whole(self, node: ast.expr) -> Any:
        """An operand that Python looks into, of which all is then read."""
        made = self.expr(node)
        return self.runtime("whole", (made,), node) if isinstance(node, _FROM_OUTSIDE) else made

    def items(self, node: ast.expr) -> Any:
        """Something that Python takes apart into its items, which are then read."""
        made = self.expr(node)
        return self.runtime("items", (made,), node) if isinstance(node, _FROM_OUTSIDE) else made

    def mapped(self, node: ast.expr) -> Any:
        """A mapping that Python takes apart into its keys and items, which are then read."""
        made = self.expr(node)
        return self.runtime("mapped", (made,), node) if isinstance(node, _FROM_OUTSIDE) else made

    def binary(self, node: ast.BinOp) -> Any:
        """``a + b``."""
        if isinstance(node.left, ast.Constant) and isinstance(node.right, ast.Constant):
            return node
        sign = constant(SIGNS[type(node.op)], node)
        return self.runtime("binary", (sign, self.expr(node.left), self.expr(node.right)), node)

    def starred(self, node: ast.Starred) -> Any:
        """``*a``."""
        return rebuilt(node, value=self.items(node.value)) if isinstance(node.ctx, ast.Load) else node

    def yield_from(self, node: ast.YieldFrom) -> Any:
        """``yield from a``."""
        return rebuilt(node, value=self.items(node.value))

    def keyword(self, node: ast.keyword) -> Any:
        """``name=a`` or ``**a`` in a call."""
        value = self.mapped(node.value) if node.arg is None else self.expr(node.value)
        return rebuilt(node, value=value)

    def formatted(self, node: ast.FormattedValue) -> Any:
        """``{a}`` in text."""
        spec = constant("", node) if node.format_spec is None else self.expr(node.format_spec)
        parts = (self.expr(node.value), constant(node.conversion, node), spec)
        return rebuilt(node, value=self.runtime("formatted", parts, node), conversion=-1, format_spec=None)

    def joined(self, node: ast.JoinedStr) -> Any:
        """``f"text {a}"``."""
        return self.runtime("joined", (self.generic(node),), node)

    # Calls, attributes, items

    def call(self, node: ast.Call) -> Any:
        """A call; a method is looked up before its arguments are evaluated, where that could be noticed."""
        function, at = node.func, _call_place(node)
        if isinstance(function, ast.Name) and function.id in FRAME_FUNCTIONS:
            return self.frame_call(node)
        arguments = [self.expr(a) for a in node.args]
        keywords = [self.expr(k) for k in node.keywords]
        if not isinstance(function, ast.Attribute):
            made = self.runtime("call", (self.expr(function), *arguments), at)
        elif all(map(_is_quiet, (*node.args, *[k.value for k in node.keywords]))):
            name = constant(self.unit.mangled(function.attr), at)
            made = self.runtime("call_method", (self.expr(function.value), name, *arguments), at)
        else:
            made = self.runtime("call", (self.expr(function), *arguments), at)
        made.keywords = keywords
        return made

    def frame_call(self, node: ast.Call) -> Any:
        """A call of a builtin that looks at its caller; ``super()`` is spelled out, for another caller."""
        bare = not node.args and not node.keywords
        if (
            bare
            and isinstance(node.func, ast.Name)
            and node.func.id == "super"
            and self.first
            and self.unit.in_class
        ):
            return rebuilt(node, args=[load("__class__", node), load(self.first, node)])
        return rebuilt(
            node, args=[self.expr(a) for a in node.args], keywords=[self.expr(k) for k in node.keywords]
        )

    def attribute(self, node: ast.Attribute) -> Any:
        """``a.name``, read."""
        name = constant(self.unit.mangled(node.attr), node)
        return self.runtime("getattr", (self.expr(node.value), name), _attribute_place(node))

    def subscript(self, node: ast.Subscript) -> Any:
        """``a[key]``, read."""
        return self.runtime("getitem", (self.expr(node.value), self.key(node.slice)), node)

    def key(self, node: ast.expr) -> Any:
        """What stands in the brackets, as a value."""
        if isinstance(node, ast.Slice):
            parts = [
                constant(None, node) if p is None else self.expr(p)
                for p in (node.lower, node.upper, node.step)
            ]
            return call(load(self.unit.use("slice"), node), parts, node)
        if isinstance(node, ast.Tuple):
            return rebuilt(node, elts=[self.key(e) for e in node.elts])
        return self.expr(node)

    # Displays, comprehensions, lambdas

    def display(self, node: Any) -> Any:
        """A list, dict or set, which the runtime is to know."""
        kind = _KINDS[type(node)]
        made = self.generic(node)
        if isinstance(node, ast.Dict):  # a key that is None stands for **
            values = zip(node.keys, node.values, strict=True)
            made = rebuilt(made, values=[self.mapped(v) if k is None else self.expr(v) for k, v in values])
        return self.runtime(f"new_{kind}", (made,), node)

    def comprehension(self, node: Any) -> Any:
        """A comprehension: a function with loops, where one can be defined before the statement."""
        if self.hoisted is None or isinstance(node, ast.GeneratorExp) or binds_by_walrus(node):
            return self.comprehension_in_place(node)
        if any(g.is_async for g in node.generators):
            return node
        made = _as_function(node, self.unit)
        self.hoisted.append(self.nested_function(made))
        return call(load(made.name, node), (self.expr(node.generators[0].iter),), node)

    def comprehension_in_place(self, node: Any) -> Any:
        """A comprehension or generator that stays one, with what is in it converted."""
        if any(g.is_async for g in node.generators):
            return node
        first, *others = node.generators
        iterable = self.items(first.iter)
        with self.inner_scope(uses_of([g.target for g in node.generators]).binds):
            generators = [rebuilt(first, iter=iterable, ifs=[self.expr(i) for i in first.ifs])]
            generators += [
                rebuilt(g, iter=self.items(g.iter), ifs=[self.expr(i) for i in g.ifs]) for g in others
            ]
            parts = ("key", "value") if isinstance(node, ast.DictComp) else ("elt",)
            made = rebuilt(node, generators=generators, **{p: self.expr(getattr(node, p)) for p in parts})
        if isinstance(node, ast.GeneratorExp):
            return made
        return self.runtime(f"new_{_KINDS[type(node)]}", (made,), node)

    def lambda_(self, node: ast.Lambda) -> Any:
        """A lambda, whose value is converted."""
        arguments = self.arguments(node.args)
        if is_generator(node):
            return rebuilt(node, args=arguments)
        first = self.first
        named = [*node.args.posonlyargs, *node.args.args]
        with self.inner_scope(scope_of(node).locals):
            self.first = named[0].arg if named else ""
            body = self.expr(node.body)
        self.first = first
        if node.args.kwarg is not None:  # a dict that the call made
            own = self.runtime("new_dict", (load(node.args.kwarg.arg, node.body),), node.body)
            both = ast.Tuple([own, body], ast.Load(), **place(node.body))
            body = ast.Subscript(both, constant(1, node.body), ast.Load(), **place(node.body))
        return rebuilt(node, args=arguments, body=body)

    def arguments(self, node: ast.arguments) -> ast.arguments:
        """Parameters with converted defaults."""
        defaults = [self.expr(d) for d in node.defaults]
        return rebuilt(node, defaults=defaults, kw_defaults=[d and self.expr(d) for d in node.kw_defaults])  # type: ignore[no-any-return]

    def nested_function(self, node: ast.FunctionDef) -> ast.stmt:
        """A function defined inside this one, converted."""
        raise NotImplementedError  # the converter of statements says it


def _as_function(node: Any, unit: Unit) -> ast.FunctionDef:
    """A comprehension as a function of its first iterable, with loops and appends."""
    kind = _KINDS[type(node)]
    result, items = unit.fresh("_result"), unit.fresh("_items")
    at = node.key if kind == "dict" else node.elt
    value = unit.fresh("_entry")
    if kind == "dict":
        key = unit.fresh("_key")
        target = ast.Subscript(load(result, at), load(key, at), ast.Store(), **place(at))
        put: list[ast.stmt] = [
            assign(key, node.key, node.key),
            assign(value, node.value, node.value),
            ast.Assign([target], load(value, at), **place(at)),
        ]
    else:
        add = attribute(load(result, at), "append" if kind == "list" else "add", at)
        put = [assign(value, node.elt, at), expression(call(add, (load(value, at),), at), at)]
    for i, generator in reversed(list(enumerate(node.generators))):
        for test in reversed(generator.ifs):
            put = [ast.If(test, put, [], **place(test))]
        iterable = generator.iter if i else load(items, generator.iter)
        put = [ast.For(generator.target, iterable, put, [], None, **place(generator.target))]
    empty: ast.expr = ast.List([], ast.Load(), **place(node))
    if kind == "dict":
        empty = ast.Dict([], [], **place(node))
    elif kind == "set":
        empty = call(load(unit.use("set"), node), (), node)
    body = [assign(result, empty, node), *put, ast.Return(load(result, node), **place(node))]
    arguments = no_arguments()
    arguments.args.append(ast.arg(items, None, None, **place(node)))
    name = unit.generated(f"_{kind}", like=f"<{kind}comp>")
    return function(name, arguments, body, node)


def _names_constant(node: ast.Compare) -> bool:
    """Whether one side of a single comparison is None."""
    return any(is_singleton(x) for x in (node.left, *node.comparators))


def _is_quiet(node: ast.expr) -> bool:
    """Whether evaluating an argument can be noticed by nothing, so that it may come before a lookup."""
    if isinstance(node, ast.Starred):
        return False
    if isinstance(node, ast.Tuple):
        return all(map(_is_quiet, node.elts))
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.operand, ast.Constant)
    return isinstance(node, ast.Name | ast.Constant | ast.Lambda) and not (
        isinstance(node, ast.Lambda) and (node.args.defaults or node.args.kw_defaults)
    )


def _call_place(node: ast.Call) -> ast.AST:
    """Where Python says a call is: at the name of the method, if the lookup goes over several lines."""
    function = node.func
    if not isinstance(function, ast.Attribute) or function.lineno == function.end_lineno:
        return node
    return _at_name(function, node)


def _attribute_place(node: ast.Attribute) -> ast.AST:
    return node if node.lineno == node.end_lineno else _at_name(node, node)


def _on_one_line(node: Any) -> ast.AST:
    if node.lineno == node.end_lineno:
        return node  # type: ignore[no-any-return]
    line, column = node.lineno, node.col_offset
    return ast.Pass(lineno=line, col_offset=column, end_lineno=line, end_col_offset=column)


def _at_name(node: ast.Attribute, like: ast.expr) -> ast.AST:
    line, end = node.end_lineno, node.end_col_offset
    if line is None or end is None:
        return like
    column = max(0, end - len(node.attr))
    moved = ast.Pass(
        lineno=line, col_offset=column, end_lineno=like.end_lineno, end_col_offset=like.end_col_offset
    )
    return moved


_KINDS: dict[type, str] = {
    ast.List: "list",
    ast.Set: "set",
    ast.Dict: "dict",
    ast.ListComp: "list",
    ast.SetComp: "set",
    ast.DictComp: "dict",
}

# What may give something from outside: all else makes something new, or is a constant.
_FROM_OUTSIDE = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.IfExp, ast.BoolOp, ast.NamedExpr)

_CONVERTERS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Name: ExpressionConverter.name,
    ast.BoolOp: ExpressionConverter.bool_op,
    ast.BinOp: ExpressionConverter.binary,
    ast.Starred: ExpressionConverter.starred,
    ast.keyword: ExpressionConverter.keyword,
    ast.YieldFrom: ExpressionConverter.yield_from,
    ast.FormattedValue: ExpressionConverter.formatted,
    ast.JoinedStr: ExpressionConverter.joined,
    ast.UnaryOp: ExpressionConverter.unary,
    ast.IfExp: ExpressionConverter.if_exp,
    ast.Compare: ExpressionConverter.compare,
    ast.Call: ExpressionConverter.call,
    ast.Attribute: ExpressionConverter.attribute,
    ast.Subscript: ExpressionConverter.subscript,
    ast.List: ExpressionConverter.display,
    ast.Set: ExpressionConverter.display,
    ast.Dict: ExpressionConverter.display,
    ast.Lambda: ExpressionConverter.lambda_,
    **dict.fromkeys(COMPREHENSIONS, ExpressionConverter.comprehension),
}

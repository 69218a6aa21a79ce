"""Conversion of assignments: stores to attributes, items and variables from outside go through the runtime.

Python evaluates the value first and then, target by target, where it goes; temporary variables keep that
order where it could be noticed.
"""

from __future__ import annotations

import ast
from typing import Any

from weft.capture.convert.build import (
    assign,
    constant,
    expression,
    load,
    place,
    rebuilt,
    store,
)
from weft.capture.convert.expressions import SIGNS, ExpressionConverter
from weft.capture.convert.names import walk


class AssignmentConverter(ExpressionConverter):
    """Converts the assignments of one function."""

    scope: Any

    def is_slot(self, name: str) -> str:
        """How a variable from outside is kept: "global", "cell", or "" for one of the functions here."""
        raise NotImplementedError  # the converter of statements says it

    def is_steady(self, node: ast.expr) -> bool:
        """Whether an expression gives the same all through a statement: a literal, or an own variable."""
        if isinstance(node, ast.Name):
            return node.id in self.own and node.id not in self.scope.remote
        if isinstance(node, ast.Tuple):
            return all(map(self.is_steady, node.elts))
        return isinstance(node, ast.Constant)

    def is_simple_target(self, target: ast.expr) -> bool:
        """Whether Python itself can store to a target: nothing but variables of the functions here.

        Of a target with a star the capture is told that Python makes a list.
        """
        if isinstance(target, ast.Name):
            return not self.is_slot(target.id)
        if isinstance(target, ast.Tuple | ast.List):
            return all(map(self.is_simple_target, target.elts))
        return False

    def held(self, value: ast.expr, base: str, out: list[ast.stmt]) -> ast.expr:
        """A converted value in a new variable."""
        name = self.unit.fresh(base)
        out.append(assign(name, value, value))
        return load(name, value)

    # Statements

    def assign(self, node: ast.Assign) -> list[ast.stmt]:
        """``a = b.c = value``."""
        takes = any(isinstance(t, ast.Tuple | ast.List) for t in node.targets)
        value = self.items(node.value) if takes else self.expr(node.value)
        if all(map(self.is_simple_target, node.targets)):
            return [rebuilt(node, value=value)]
        out: list[ast.stmt] = []
        only = node.targets[0] if len(node.targets) == 1 else None
        if only is None or not self.may_come_late(only, node.value):
            value = self.held(value, "_held", out)
        for target in node.targets:
            out += self.assign_to(target, value, node)
        return out

    def may_come_late(self, target: ast.expr, value: ast.expr) -> bool:
        """Whether it cannot be noticed that the parts of a target are evaluated before the value."""
        if isinstance(target, ast.Tuple | ast.List | ast.Name):
            return True
        if self.is_steady(value):
            return True
        if isinstance(target, ast.Attribute):
            return self.is_steady(target.value) and not _binds(value)
        return (
            isinstance(target, ast.Subscript)
            and self.is_steady(target.value)
            and self.is_steady(target.slice)
            and not _binds(value)
        )

    def assign_to(self, target: ast.expr, value: ast.expr, like: ast.AST) -> list[ast.stmt]:
        """Store a converted value."""
        if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Name):
            value = self.runtime("items", (value,), like)
        if self.is_simple_target(target):
            return [ast.Assign([target], value, **place(like))]
        match target:
            case ast.Name():
                return [self.store_outside(target, value)]
            case ast.Attribute():
                name = constant(self.unit.mangled(target.attr), target)
                made = self.runtime("setattr", (self.expr(target.value), name, value), target)
            case ast.Subscript():
                parts = (self.expr(target.value), self.key(target.slice), value)
                made = self.runtime("setitem", parts, target)
            case ast.Tuple() | ast.List():
                return self.unpack(target, value, like)
            case _:
                raise TypeError(f"no target: {ast.dump(target)}")
        return [expression(made, like)]

    def unpack(self, target: Any, value: ast.expr, like: ast.AST) -> list[ast.stmt]:
        """Take a value apart into new variables, and store these one by one."""
        parts: list[ast.expr] = []
        after: list[ast.stmt] = []
        for element in target.elts:
            name = self.unit.fresh("_part")
            starred = isinstance(element, ast.Starred)
            inner = element.value if starred else element
            part: ast.expr = store(name, inner)
            parts.append(ast.Starred(part, ast.Store(), **place(element)) if starred else part)
            taken: ast.expr = load(name, inner)
            if starred:
                taken = self.runtime("new_list", (taken,), inner)
            after += self.assign_to(inner, taken, inner)
        return [ast.Assign([rebuilt(target, elts=parts)], value, **place(like)), *after]

    def store_outside(self, target: ast.Name, value: ast.expr) -> ast.stmt:
        """Store to a global, or to a free variable of what is converted: a slot for the capture."""
        if self.is_slot(target.id) == "global":
            name = constant(self.unit.mangled(target.id), target)
            made = self.runtime("setitem", (load(self.unit.use("globals"), target), name, value), target)
        else:
            cell = load(self.unit.cell(target.id), target)
            made = self.runtime("setattr", (cell, constant("cell_contents", target), value), target)
        return expression(made, target)

    def augmented(self, node: ast.AugAssign) -> list[ast.stmt]:
        """``target += value``; the parts of the target are evaluated once."""
        out: list[ast.stmt] = []
        target = node.target
        if isinstance(target, ast.Name):
            current = self.name(self.as_read(target, uncertain=target in self.uncertain))
            return self.assign_to(target, self.changed(node, current), node)
        obj = self.expr(target.value)
        if not self.is_steady(target.value):
            obj = self.held(obj, "_object", out)
        if isinstance(target, ast.Attribute):
            name = constant(self.unit.mangled(target.attr), target)
            current = self.runtime("getattr", (obj, name), target)
            made = self.runtime("setattr", (obj, name, self.changed(node, current)), node)
        else:
            key = self.key(target.slice)
            if not self.is_steady(target.slice):
                key = self.held(key, "_key", out)
            current = self.runtime("getitem", (obj, key), target)
            made = self.runtime("setitem", (obj, key, self.changed(node, current)), node)
        return [*out, expression(made, node)]

    def as_read(self, target: ast.Name, *, uncertain: bool = True) -> ast.Name:
        """The same variable, read; where it may have no value, if that is uncertain."""
        read = rebuilt(target, ctx=ast.Load())
        if uncertain:
            self.uncertain.add(read)
        return read  # type: ignore[no-any-return]

    def changed(self, node: ast.AugAssign, current: ast.expr) -> ast.expr:
        """``current += value``, as a value."""
        sign = constant(f"{SIGNS[type(node.op)]}=", node)
        return self.runtime("augmented", (sign, current, self.expr(node.value)), node)

    def annotated(self, node: ast.AnnAssign) -> list[ast.stmt]:
        """``target: type = value``; in functions the type is not evaluated."""
        if node.value is not None:
            return self.assign(ast.Assign([node.target], node.value, **place(node)))
        if isinstance(node.target, ast.Attribute):
            return [expression(self.expr(node.target.value), node)]
        if isinstance(node.target, ast.Subscript):
            parts = (node.target.value, node.target.slice)
            return [expression(self.expr(p) if p is parts[0] else self.key(p), node) for p in parts]
        return []

    def delete(self, node: ast.Delete) -> list[ast.stmt]:
        """``del a, b.c``."""
        return [made for target in node.targets for made in self.delete_one(target)]

    def delete_one(self, target: ast.expr) -> list[ast.stmt]:
        """``del target``; a variable that may be state is set to have no value."""
        match target:
            case ast.Tuple() | ast.List():
                return [made for element in target.elts for made in self.delete_one(element)]
            case ast.Attribute():
                name = constant(self.unit.mangled(target.attr), target)
                return [expression(self.runtime("delattr", (self.expr(target.value), name), target), target)]
            case ast.Subscript():
                parts = (self.expr(target.value), self.key(target.slice))
                return [expression(self.runtime("delitem", parts, target), target)]
            case ast.Name() if target.id in self.guarded:
                gone = self.runtime("undefined", (constant(target.id, target),), target)
                read = self.name(self.as_read(target))
                return [expression(read, target), assign(target.id, gone, target)]
        return [ast.Delete([target], **place(target))]


def _binds(value: ast.expr) -> bool:
    return any(isinstance(child, ast.NamedExpr) for child in walk(value))

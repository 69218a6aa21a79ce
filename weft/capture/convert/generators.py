"""Conversion of generators: what they read, call and change goes through the runtime, their flow stays.

A generator stops in the middle of its statements, which therefore cannot become functions. A test in it that
is a tensor is asked for its value, as everywhere where Python must know one.
"""

from __future__ import annotations

import ast

from weft.capture.convert.build import load, place, rebuilt, store
from weft.capture.convert.flow import Lowered, UnsupportedSyntax
from weft.capture.convert.names import walk
from weft.capture.convert.statements import FunctionConverter

_YIELDS = (ast.Yield, ast.YieldFrom)
_PUT_OFF = (ast.BoolOp, ast.IfExp, ast.Compare, ast.Assert)  # parts of which may become functions


class GeneratorConverter(FunctionConverter):
    """Converts one generator of the user, and the functions inside it."""

    def lower(self, body: list[ast.stmt]) -> Lowered:
        """The body with all its jumps, which Python does."""
        for part in body:
            for node in walk(part):
                if isinstance(node, _PUT_OFF) and any(isinstance(n, _YIELDS) for n in walk(node)):
                    raise UnsupportedSyntax("a yield that may not be reached in an expression")
        return Lowered(body, {}, set(), None)

    def if_(self, node: ast.If) -> list[ast.stmt]:
        """``if``, as it is."""
        body, orelse = self.block(node.body), self.block(node.orelse)
        return [rebuilt(node, test=self.test(node.test), body=body, orelse=orelse)]

    def while_(self, node: ast.While) -> list[ast.stmt]:
        """``while``, as it is."""
        before, self.hoisted = self.hoisted, None
        test = self.test(node.test)
        self.hoisted = before
        return [rebuilt(node, test=test, body=self.block(node.body), orelse=self.block(node.orelse))]

    def for_(self, node: ast.For) -> list[ast.stmt]:
        """``for``, as it is."""
        iterable, target = self.items(node.iter), node.target
        first: list[ast.stmt] = []
        if not self.is_simple_target(target):
            held = self.unit.fresh("_held")
            first = self.assign_to(target, load(held, target), target)
            target = store(held, target)
        body = [*first, *self.block(node.body)]
        made = ast.For(target, iterable, body, self.block(node.orelse), None, **place(node))
        return [made]

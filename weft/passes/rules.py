"""Rewrite rules written as plain Python: a pattern and a replacement, both functions of tensors that are
traced.

A rule holds for all types. Its pattern is traced on some types first, which tells the ops to look for; where
these are found, both sides are traced on the types that are there, and compared exactly: ops, attributes,
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from weft.base.lazy import cached_property
from weft.base.public import parameters
from weft.errors import ArgumentError, AxisError, BoundsError, DtypeError, GraphError, ShapeError, WeftError
from weft.ir.graph import Graph, Node, Value
from weft.ir.pattern import AnyAttribute, Bound, Pattern
from weft.ir.rewrite import Draft, Hint, Results, Rules, sweep
from weft.ir.types import TensorType
from weft.ops.view.primitives import broadcast_to
from weft.passes.base import Pass
from weft.passes.tracing import Sides, Wild, mixed_types, read_wildcards, trace_sides, uniform_types

any_attr = AnyAttribute()

_TYPES_HINT = "give types that fit: examples=[weft.TensorType((4,), weft.float32), ...]"
_ATTRIBUTE_HINT = "any_attr is an attribute of an op; hand it to one as it is, as in reduce_sum(x, axes=axes)"


class RewriteRule:
    """A rule that replaces what one function computes by what another does; made by ``weft.passes.rewrite``.

    It is a pass too: ``rule(graph)`` applies it until it holds nowhere.

    Attributes:
        literal: whether the numbers in its pattern are the same on all types.
    """

    def __init__(
        self,
        name: str,
        sides: Callable[..., tuple[Any, Any]],
        parameters: Sequence[str],
        attributes: Sequence[str] = (),
        *,
        where: Callable[..., bool] | None = None,
        examples: Sequence[TensorType] | None = None,
        shared: bool = False,
    ) -> None:
        self.name = self.__name__ = name
        self._sides = sides
        self._parameters = tuple(parameters)
        self._attributes = tuple(attributes)
        self._where = where
        self._examples = examples
        self._shared = shared
        self._traced: dict[Any, Sides | None] = {}
        self.literal = False

    def __repr__(self) -> str:
        return f"<rewrite rule {self.name}>"

    def __call__(self, graph: Graph, *, again: bool = True) -> Graph:
        """The graph after the rule; the same object if it holds nowhere."""
        return sweep(graph, by_op([self]), again=again)

    # What it looks for, in ops alone

    @cached_property
    def skeletons(self) -> list[Pattern]:
        """The pattern on types that it can be traced on, with its calls and with what they call."""
        count = len(self._parameters)
        tries: list[Iterable[Sequence[TensorType]]] = [uniform_types(count), mixed_types(count)]
        if self._examples is not None:
            tries = [[self._examples]]
        errors: list[Exception] = []
        for types in tries:
            found = {_wiring(g): Pattern(g, loose=True) for g in self._forms(types, errors)}
            if found:
                return list(found.values())
        raise GraphError(
            self.name,
            f"the pattern must be a function of tensors, got on each type that was tried: {errors[0]}",
            hint=_ATTRIBUTE_HINT if "AnyAttribute" in str(errors[0]) else _TYPES_HINT,
        ) from errors[0]

    def _forms(self, tries: Iterable[Sequence[TensorType]], errors: list[Exception]) -> Iterator[Graph]:
        for types in tries:
            try:
                yield from self._trace(types, None).patterns
            except ArgumentError:
                raise
            except (WeftError, TypeError, ValueError, IndexError) as error:
                errors.append(error)

    def _trace(self, types: Sequence[TensorType], wild: Wild | None) -> Sides:
        inputs = list(zip(self._parameters, types, strict=True))
        return trace_sides(self.name, self._sides, inputs, self._attributes, wild)

    @cached_property
    def hints(self) -> dict[Any, list[Hint]]:
        """By op that may be the last of a match, what such a node must have."""
        found: dict[Any, list[Hint]] = {}
        for skeleton in self.skeletons:
            for root in skeleton.graph.outputs:
                node = skeleton.made[root]
                arrays = [skeleton.graph.constants[v] for v in node.inputs if v in skeleton.graph.constants]
                numbers = tuple(a.item() if self.literal and a.size == 1 else None for a in arrays)
                ops = frozenset(skeleton.made[v].op for v in node.inputs if v in skeleton.made)
                found.setdefault(node.op, []).append(Hint(numbers, ops))
        return found

    @property
    def roots(self) -> set[Any]:
        """The ops that may be the last of a match."""
        return {s.made[v].op for s in self.skeletons for v in s.graph.outputs}

    # Where it holds

    def apply(self, draft: Draft, node: Node) -> Results | None:
        """What stands for the outputs of a node, if it is the last of a match."""
        if not draft.again and not draft.fresh.isdisjoint(node.outputs):
            return None
        for skeleton in self.skeletons:
            for root in skeleton.graph.outputs:
                if skeleton.made[root].op is not node.op or not skeleton.may_end_at(draft, root, node):
                    continue
                for value in node.outputs:
                    for bound in skeleton.whole_matches(draft, root, value):
                        found = self._replace(draft, node, skeleton, bound)
                        if found is not None:
                            return found
        return None

    def _replace(self, draft: Draft, node: Node, skeleton: Pattern, bound: Bound) -> Results | None:
        if not bound.keys() >= set(skeleton.graph.inputs):
            message = "the pattern must use all of its parameters, got one that it does not"
            raise ArgumentError(self.name, message)
        inputs = [bound[v] for v in skeleton.graph.inputs]
        outs = [bound[v] for v in skeleton.graph.outputs]
        wild = read_wildcards(draft, skeleton, bound)
        if wild is None or not self._agrees(inputs, wild):
            return None
        sides = self._on_types(tuple(v.type for v in inputs), wild)
        nodes = None if sides is None else _exact_match(draft, sides, inputs, outs)
        if sides is None or nodes is None or not (self._shared or _all_inside(draft, nodes, outs)):
            return None
        moved = _moved(draft, nodes, inputs, outs)
        if moved is None:
            return None
        made = draft.expand(sides.replacement, inputs)
        new = [draft.fit(v, o.type, broadcast_to, self.name) for v, o in zip(made, outs, strict=True)]
        now = dict(zip(outs, new, strict=True))
        if len(outs) > 1:
            draft.redirect([(o, n) for o, n in now.items() if o not in node.outputs], moved)
        return [now.get(v, v) for v in node.outputs]

    def _agrees(self, inputs: Sequence[Value], wild: Wild) -> bool:
        return self._where is None or bool(self._where(*[v.type for v in inputs], **wild.named))

    def _on_types(self, types: tuple[TensorType, ...], wild: Wild) -> Sides | None:
        """Both sides on types; None if the pattern cannot have them."""
        key = (types, tuple(wild.named.items()), tuple(repr(n.attrs) for n in wild.guide))
        if key not in self._traced:
            try:
                self._traced[key] = self._trace(types, wild)
            except (ShapeError, DtypeError, AxisError, BoundsError):
                self._traced[key] = None
        return self._traced[key]


def _wiring(graph: Graph) -> str:
    """The ops of a graph and how they are connected, as text."""
    names = {v: f"i{i}" for i, v in enumerate(graph.inputs)} | dict.fromkeys(graph.constants, "c")
    lines = []
    for i, node in enumerate(graph.nodes):
        lines.append(f"{node.op.name}({','.join(names[v] for v in node.inputs)})")
        names |= {v: f"{i}.{k}" for k, v in enumerate(node.outputs)}
    return ";".join([*lines, *[names[v] for v in graph.outputs]])


def _exact_match(
    draft: Draft, sides: Sides, inputs: Sequence[Value], outs: Sequence[Value]
) -> dict[Node, None] | None:
    """The nodes that compute values from others as a pattern says."""
    for graph in sides.patterns:
        pattern = Pattern(graph, loose=False)
        start = dict(zip(graph.inputs, inputs, strict=True))
        found = next(pattern.matches(draft, list(zip(graph.outputs, outs, strict=True)), start), None)
        if found is not None:
            return pattern.nodes_of(draft, found)
    return None


def _all_inside(draft: Draft, nodes: dict[Node, None], outs: Sequence[Value]) -> bool:
    """Whether nothing outside of a match uses a value that is no result of it."""
    inside: dict[Value, int] = {}
    for node in nodes:
        for v in node.inputs:
            inside[v] = inside.get(v, 0) + 1
    made = [v for node in nodes for v in node.outputs if v not in outs]
    return all(draft.uses.get(v, 0) == inside.get(v, 0) for v in made)


def _moved(
    draft: Draft, nodes: dict[Node, None], inputs: Sequence[Value], outs: Sequence[Value]
) -> list[Node] | None:
    """What is in place and uses results of a match; None if it cannot move behind the match."""
    if len(outs) == 1:
        return []
    users = draft.dependents(outs)
    reached = {*outs, *[v for n in users for v in n.outputs]}
    moved = [n for n in users if n not in nodes]
    needed = {v for n in nodes for v in n.inputs}
    if not reached.isdisjoint(inputs) or any(not needed.isdisjoint(n.outputs) for n in moved):
        return None
    return moved if all(n.is_pure for n in moved) else None


# The public functions


def by_op(rules: Sequence[RewriteRule]) -> Rules:
    """Rules by the ops they may hold for."""
    out: dict[Any, list[Any]] = {}
    for rule in rules:
        for op in rule.roots:
            out.setdefault(op, []).append(rule.apply)
    return out


def rules_pass(rules: Sequence[RewriteRule], name: str) -> Pass:
    """A pass that applies rules until none holds."""

    def run(graph: Graph) -> Graph:
        return sweep(graph, by_op(rules))

    return Pass(run, name)


def rewrite(
    function: Callable[..., Any] | None = None,
    *,
    where: Callable[..., bool] | None = None,
    examples: Sequence[TensorType] | None = None,
    shared: bool = False,
    name: str = "",
) -> Any:
    """Make a rule of a function that gives two sides: what to look for, and what to put there.

    Parameters are tensors of any type. One whose default is ``weft.passes.any_attr`` is an attribute of any
    value; as the replacement then depends on it, give that as a function without parameters. Numbers match by
    their bits, a single one also a tensor full of it. Commutative ops match both ways. Calls of composites
    match such calls, and the ops that they stand for.

    Args:
        function: gives ``(pattern, replacement)``, each a tensor or a tuple of tensors; a replacement may be
            a number.
        where: whether to replace, asked with the type of each tensor and the attributes by name.
        examples: types on which the pattern can be traced, where those that are tried by default do not fit.
        shared: whether a value inside the pattern may be used elsewhere: it is then computed as well as the
            replacement. Otherwise there is no match.
        name: of the rule, by default that of the function.

    >>> import weft
    >>> @weft.passes.rewrite
    ... def tanh_of_negated(x):
    ...     return weft.tanh(-x), -weft.tanh(x)
    >>> graph = weft.make_graph(lambda x: weft.tanh(-x) + 1.0)(weft.ones(3))
    >>> [node.op.name for node in tanh_of_negated(graph).nodes]
    ['tanh', 'neg', 'add']
    """
    if function is None:
        return lambda f: rewrite(f, where=where, examples=examples, shared=shared, name=name)
    tensors, attributes = split_parameters(function)
    return RewriteRule(
        name or function.__name__,
        function,
        tensors,
        attributes,
        where=where,
        examples=examples,
        shared=shared,
    )


def split_parameters(function: Callable[..., Any]) -> tuple[list[str], list[str]]:
    """Names of the parameters that are tensors, and of those that are attributes."""
    plain = function
    while hasattr(plain, "__wrapped__"):
        plain = plain.__wrapped__
    if not hasattr(plain, "__code__"):
        raise ArgumentError("rewrite", f"takes a plain function, got {type(function).__name__}")
    positional, keywords, rest = parameters(plain)
    if rest:
        raise ArgumentError("rewrite", f"a pattern must name its parameters, got *{rest}")
    defaults = dict(zip(reversed(positional), reversed(plain.__defaults__ or ()), strict=False))
    defaults |= plain.__kwdefaults__ or {}
    attributes = [n for n in (*positional, *keywords) if type(defaults.get(n)) is AnyAttribute]
    return [n for n in positional if n not in defaults], attributes

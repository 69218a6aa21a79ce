"""``graph.rewrite``: one sub-graph replaced by another wherever it is found."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from weft.errors import ArgumentError
from weft.ir.graph import Graph
from weft.ir.types import TensorType
from weft.passes.rules import RewriteRule, split_parameters


def rewrite(
    graph: Graph,
    pattern: Callable[..., Any],
    replacement: Callable[..., Any],
    *,
    where: Callable[..., bool] | None = None,
    examples: Sequence[TensorType] | None = None,
    shared: bool = False,
) -> Graph:
    """The graph with another implementation wherever it computes what a function does, in regions too.

    What is put there is not searched again. See ``weft.passes.rewrite`` for what patterns may say.

    Args:
        graph: to search.
        pattern: a function of tensors: what to look for.
        replacement: a function of the same parameters: what to put there.
        where: whether to replace, asked with the type of each tensor and the attributes by name.
        examples: types on which the pattern can be traced, where those that are tried by default do not fit.
        shared: whether a value inside the pattern may be used elsewhere: it is then computed as well as the
            replacement.

    >>> import weft
    >>> graph = weft.make_graph(lambda x: weft.exp(x) / (1.0 + weft.exp(x)))(weft.ones(3))
    >>> def pattern(x):
    ...     return weft.exp(x) / (1.0 + weft.exp(x))
    >>> [node.op.name for node in graph.rewrite(pattern, weft.sigmoid).nodes]
    ['sigmoid']
    """
    tensors, attributes = split_parameters(pattern)

    def sides(*xs: object, **wild: object) -> tuple[Any, Any]:
        return pattern(*xs, **wild), lambda: replacement(*xs, **wild)

    name = getattr(pattern, "__name__", "rewrite")
    _check_parameters(name, replacement, tensors, attributes)
    rule = RewriteRule(name, sides, tensors, attributes, where=where, examples=examples, shared=shared)
    return rule(graph, again=False)


def _check_parameters(
    name: str, replacement: Callable[..., Any], tensors: Sequence[str], attributes: Sequence[str]
) -> None:
    try:
        signature = inspect.signature(replacement)
    except ValueError:  # of a builtin, which does not tell
        return
    try:
        signature.bind(*tensors, **dict.fromkeys(attributes))
    except TypeError:
        wanted = ", ".join([*tensors, *attributes])
        message = f"the replacement must take the parameters of the pattern, ({wanted}), got {signature}"
        raise ArgumentError(name, message) from None

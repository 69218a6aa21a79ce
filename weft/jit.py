"""From Python to graphs: ``weft.jit.trace`` records a run, ``weft.jit.script`` reads the source."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from weft.backends import Build, builder
from weft.base.public import public
from weft.base.trees import tree_leaves
from weft.capture.call.function import GraphFunction
from weft.capture.convert.functions import converted_source
from weft.capture.program.arguments import as_function, call_key, flatten
from weft.capture.runtime.dynamic import dynamic
from weft.capture.runtime.modules import call_forward, is_capturing, module_scope
from weft.errors import ArgumentError
from weft.ir.types import TensorType
from weft.schedule.choices import check_disabled

P = ParamSpec("P")
R = TypeVar("R")

__all__ = [
    "GraphFunction",
    "call_forward",
    "converted_source",
    "dynamic",
    "is_capturing",
    "module_scope",
    "script",
    "trace",
]


@public
def trace(
    function: Callable[P, R], *examples: Any, disable: Iterable[str] = (), **keywords: Any
) -> GraphFunction[P, R]:
    """Run a function or module on examples, and record what it does as a graph.

    What depended on the value of a tensor (``if t``, ``int(t)``, the shape of ``nonzero``) is a guard in the
    graph: a call that goes another way is a ``TraceGuardError`` with the line and both values. Nothing
    outside changes while it is traced.

    Args:
        function: to trace.
        examples: arguments to run it on.
        disable: names of passes of ``weft.passes.LOWERING`` to leave out, and of choices of the schedule.
        keywords: arguments to run it on, by name.

    >>> import weft
    >>> f = weft.jit.trace(lambda x: x.relu() + 1.0, weft.ones(2))
    >>> f(weft.tensor([-1.0, 1.0]))
    tensor([1., 2.])
    """
    function = as_function("trace", function)
    _need_values(tree_leaves((examples, keywords)))
    traced = GraphFunction(function, _build("trace", disable), staged=False, looks=True, grows=False)
    arguments = flatten(examples, keywords)
    own = None if arguments.converted else (examples, keywords)
    traced.capture(arguments, own, call_key(arguments))
    return traced


def _need_values(examples: list[Any]) -> None:
    """Refuse types: there is nothing to run on, and the function would take them for what they are."""
    for example in examples:
        if isinstance(example, TensorType):
            hint = "weft.compile(f).save(path, *types) and weft.make_graph(f)(*types) take types"
            raise ArgumentError("trace", f"examples must be values, got the type {example}", hint=hint)


@public
def script(function: Callable[P, R], *, disable: Iterable[str] = ()) -> GraphFunction[P, R]:
    """Read the source of a function or module, so that all of its branches and loops are in the graph.

    The graph is made at the first call, and another one for each call with arguments of other types.

    Args:
        function: to read.
        disable: names of passes of ``weft.passes.LOWERING`` to leave out, and of choices of the schedule.

    >>> import weft
    >>> f = weft.jit.script(lambda x: x * 2.0)
    >>> f(weft.ones(2))
    tensor([2., 2.])
    """
    function = as_function("script", function)
    return GraphFunction(function, _build("script", disable), staged=True, looks=True, grows=True)


def _build(op: str, disable: Iterable[str]) -> Build:
    return builder(op, hints={"disable": check_disabled(op, disable) or None})


class _Callable(ModuleType):
    """The module itself can be called, as JAX's function of the same name is."""

    def __call__(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """``weft.compile`` a function; what only says which arguments are static or donated is not needed.

        >>> import weft
        >>> weft.jit(lambda x: x * 2.0)(weft.ones(2))
        tensor([2., 2.])
        """
        from weft.compile import compile

        for name in ("static_argnums", "static_argnames", "donate_argnums", "donate_argnames", "inline"):
            options.pop(name, None)
        return compile(function, **options) if function is not None else lambda f: compile(f, **options)


sys.modules[__name__].__class__ = _Callable

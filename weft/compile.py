"""The driver of the compiler: ``weft.compile`` captures graphs, optimises them, and gives them to a backend.

Capture, versions and guards are in ``weft.capture``, optimisation in ``weft.passes``, execution in
``weft.backends``. They are imported when something is compiled: this module is loaded with weft itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar, Unpack, overload

from weft.base.public import public
from weft.errors import DomainError
from weft.tensor.large import set_kernel_layer

if TYPE_CHECKING:
    from weft.capture.function import GraphFunction

P = ParamSpec("P")
R = TypeVar("R")
_CAPTURES = ("source", "trace")


class Settings(TypedDict, total=False):
    """The settings of ``compile``, which says what they are."""

    backend: str | Callable[..., Any] | None
    capture: str
    passes: Sequence[Any] | None
    fast_math: bool
    debug: bool
    check_nan: bool | str


@overload
def compile(function: Callable[P, R], /, **settings: Unpack[Settings]) -> GraphFunction[P, R]: ...
@overload
def compile(
    function: None = None, /, **settings: Unpack[Settings]
) -> Callable[[Callable[P, R]], GraphFunction[P, R]]: ...
@public
def compile(
    function: Callable[..., Any] | None = None,
    /,
    *,
    backend: Any = None,
    capture: str = "source",
    passes: Sequence[Any] | None = None,
    fast_math: bool = False,
    debug: bool = False,
    check_nan: bool | str = False,
) -> Any:
    """Compile a function, a method or a module: at its first call it becomes a graph, which later calls run.

    A call whose arguments have other types, or that meets Python values that have changed since, becomes
    another graph; both are kept. Sizes and floats that vary from call to call are open in one graph from
    their second value on. Each time a function is compiled again, the logger "weft.compile" says why. What
    the function changes outside (parameters, gradients, attributes that hold tensors, random generators)
    changes as if it had run in Python, and gradients flow through it.

    Args:
        function: to compile; without it, ``compile`` with its settings is a decorator.
        backend: the name of what runs the graphs, or a function from a graph to a function of arrays; the
            default is the fastest there is.
        capture: "source" to have all branches and loops in the graph, "trace" to record the ones taken.
        passes: to optimise with, instead of the usual ones.
        fast_math: allow what changes results in the last bits: passes, and numbers so small that they are
            not normal ones taken for zero.
        debug: check every index that compiled code reads and writes at.
        check_nan: raise an error that names the line where a result becomes NaN; with "all" also where one
            becomes infinite though what it is made of is finite.

    >>> import weft
    >>> @weft.compile
    ... def norm(x):
    ...     return (x * x).sum().sqrt()
    >>> norm(weft.tensor([3.0, 4.0]))
    tensor(5.)
    """
    if function is None:
        settings = {"backend": backend, "capture": capture, "passes": passes, "fast_math": fast_math}
        return functools.partial(compile, **settings, debug=debug, check_nan=check_nan)
    if capture not in _CAPTURES:
        raise DomainError("compile", f'capture must be "source" or "trace", got {capture!r}')
    from weft.capture.arguments import as_function
    from weft.capture.function import GraphFunction
    from weft.ops.nan import check_setting

    check_nan = check_setting("compile", check_nan)
    function = as_function("compile", function)
    build = _builder(backend, passes, fast_math, {"debug": debug, "check_nan": check_nan})
    return GraphFunction(function, build, staged=capture == "source", looks=True, grows=True)


def _builder(
    backend: Any, passes: Sequence[Any] | None, fast_math: bool, options: Mapping[str, Any]
) -> Callable[[Any], Any]:
    """From a graph to a function of arrays: optimise, then build by the backend."""
    import weft.capture.runtime
    import weft.passes.pipeline
    import weft.transform.function_region  # noqa: F401
    from weft.backends import builder
    from weft.passes.simplify import load_rules

    load_rules()
    build = builder("compile", backend, options, {"fast_math": fast_math})
    return lambda graph: build(_optimized(graph, passes, fast_math))


def _optimized(graph: Any, passes: Sequence[Any] | None, fast_math: bool) -> Any:
    if passes is not None and not passes:
        return graph
    return graph.optimize(passes=passes, fast_math=fast_math)


def _load_kernels() -> Any:
    """The kernels for what runs on large arrays outside of graphs; None where nothing can be compiled."""
    if any(find_spec(package) is None for package in ("llvmlite", "scipy_openblas32")):
        return None
    from weft.backends.eager import kernels

    return kernels


set_kernel_layer(_load_kernels)

"""The driver of the compiler: ``weft.compile`` captures graphs, optimises them, and gives them to a backend.

Capture, versions and guards are in ``weft.capture``, optimisation in ``weft.passes``, execution in
``weft.backends``. They are imported when something is compiled: this module is loaded with weft itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypedDict, TypeVar, Unpack, overload

from weft.base.hooks import hooks
from weft.base.public import public
from weft.errors import ArgumentError, DomainError

if TYPE_CHECKING:
    from weft.base.ranks import Mesh
    from weft.capture.call.function import GraphFunction
    from weft.ir.graph import Graph
    from weft.passes.base import Pass

P = ParamSpec("P")
R = TypeVar("R")
_CAPTURES = ("source", "trace")
# Passes for ranks, what makes a builder for them, and choices of the schedule that they leave out.
Ranks: TypeAlias = "tuple[Sequence[Pass], Callable[..., Any] | None, frozenset[str]]"


if TYPE_CHECKING:  # nothing but annotations needs it

    class Settings(TypedDict, total=False):
        """The settings of ``compile``, which says what they are."""

        backend: str | Callable[..., Any] | None
        capture: str
        passes: Sequence[Any] | None
        disable: Iterable[str]
        fast_math: bool
        debug: bool
        check_nan: bool | str
        memory: int | str | None
        precision: Any  # "bf16", "f16", or such a dtype
        mesh: Mesh | None
        reproducible: bool
        reshard_limit: int
        zero: int
        microbatches: int | None
        schedule: Any  # a name, or a Schedule of weft.parallel
        stages: int | None


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
    disable: Iterable[str] = (),
    fast_math: bool = False,
    debug: bool = False,
    check_nan: bool | str = False,
    memory: int | str | None = None,
    precision: Any = None,
    mesh: Mesh | None = None,
    reproducible: bool = True,
    reshard_limit: int = 1 << 20,
    zero: int = 0,
    microbatches: int | None = None,
    schedule: Any = "1f1b",
    stages: int | None = None,
) -> Any:
    """Compile a function, a method or a module: at its first call it becomes a graph, which later calls run.

    A call whose arguments have other types, or that meets Python values that have changed since, becomes
    another graph; both are kept. Sizes and floats that vary from call to call are open in one graph from
    their second value on, and a tensor outside that somebody replaces is looked up by calls from then on.
    Each time a function is compiled again, the logger "weft.compile" says why. What the function changes
    outside (parameters, gradients, attributes that hold tensors, random generators)
    changes as if it had run in Python, and gradients flow through it.

    Args:
        function: to compile; without it, ``compile`` with its settings is a decorator.
        backend: what runs the graphs: a name, a ``weft.backends.Backend``, or a function from a graph to a
            function of arrays; by default the fastest there is.
        capture: "source" to have all branches and loops in the graph, "trace" to record the ones taken.
        passes: to rewrite graphs with, instead of the usual ones; with an empty list none does.
        disable: names of passes to leave out, and of choices of the schedule, such as "fusion".
        fast_math: allow what changes results in the last bits: passes, and numbers so small that they are
            not normal ones taken for zero.
        debug: check every index that compiled code reads and writes at, and graphs after each pass.
        check_nan: raise an error that names the line where a result becomes NaN; with "all" also where one
            becomes infinite though what it is made of is finite.
        memory: bytes, or a text such as "2 GB", for what is in between and for what is kept for gradients,
            on a GPU by the plan of its program. Where the plan needs more, gradients of loops keep about as
            few states as the root of the number of iterations, and compute the others again; where that does
            not do, the logger says so.
        precision: "bf16" or "f16", to compute products and convolutions of float32 in half precision, with
            sums in float32, as ``weft.autocast`` does; inputs and results keep their dtypes. What that costs
            in accuracy, ``explain(..., accuracy=True)`` tells. Training wants ``weft.autocast``.
        mesh: of ``weft.parallel``: each of its ranks runs its part of the program (docs/parallel.md).
        reproducible: whether sums over a batch have the same bits for every number of ranks.
        reshard_limit: bytes that a rank may get because two lines of the program want a tensor cut in
            different ways, without ``par.shard`` asking for it; more is an error.
        zero: what the ranks of a batch share instead of each holding it whole: 1 the state of optimizers, 2
            gradients, too, 3 parameters, too.
        microbatches: in how many parts each rank works on its part of the batch, one after another.
        schedule: on a mesh with the axis "pipe", in which order stages work on microbatches: "gpipe", "1f1b",
            "interleaved" or "zero-bubble", or a table (``par.schedule``).
        stages: likewise, in how many stages the step is cut, by default as many as the schedule has; with the
            same number results have the same bits on every number of ranks.

    >>> import weft
    >>> @weft.compile
    ... def norm(x):
    ...     return (x * x).sum().sqrt()
    >>> norm(weft.tensor([3.0, 4.0]))
    tensor(5.)
    """
    if function is None:
        settings = {"backend": backend, "capture": capture, "passes": passes, "disable": disable}
        on_mesh = {"mesh": mesh, "reproducible": reproducible, "reshard_limit": reshard_limit, "zero": zero}
        piped = {"microbatches": microbatches, "schedule": schedule, "stages": stages}
        return functools.partial(
            compile,
            **settings,
            **on_mesh,
            **piped,
            fast_math=fast_math,
            debug=debug,
            check_nan=check_nan,
            memory=memory,
            precision=precision,
        )
    if capture not in _CAPTURES:
        raise DomainError("compile", f'capture must be "source" or "trace", got {capture!r}')
    from weft.capture.call.function import GraphFunction
    from weft.capture.program.arguments import as_function
    from weft.ops.nan import check_setting

    check_nan = check_setting("compile", check_nan)
    function = as_function("compile", function)
    ranks: Ranks = ((), None, frozenset())
    if mesh is not None:
        on_ranks = {"mesh": mesh, "reproducible": reproducible, "limit": reshard_limit, "zero": zero}
        piped = {"microbatches": microbatches, "schedule": schedule, "stages": stages}
        ranks = hooks.mesh_builder({**on_ranks, **piped})
    options = {"debug": debug, "check_nan": check_nan}
    build = _builder(backend, passes, disable, fast_math, options, ranks, precision)
    budget = None
    if memory is not None:
        from weft.schedule.budget import Budget, as_bytes

        budget = Budget(as_bytes("compile", memory))
    return GraphFunction(function, build, staged=capture == "source", looks=True, grows=True, budget=budget)


def _builder(
    backend: Any,
    passes: Sequence[Any] | None,
    disable: Iterable[str],
    fast_math: bool,
    options: Mapping[str, Any],
    ranks: Ranks = ((), None, frozenset()),
    precision: Any = None,
) -> Callable[[Graph], Any]:
    """From a graph to a function of arrays: optimise, share out among ranks, then build by the backend."""
    import weft.capture.runtime.interface
    import weft.transform.function_region  # noqa: F401
    from weft.backends import builder
    from weft.passes.pipeline import optimize
    from weft.passes.simplify import load_rules
    from weft.schedule.choices import CHOICES, check_disabled

    load_rules()
    own, on_ranks, left = ranks
    off = check_disabled("compile", disable, (*(passes or ()), *own)) | left
    lowering = None if passes is None else ()  # a list of one's own is all that runs
    hints = {"fast_math": fast_math, "lowering": lowering, "disable": off or None}
    build = builder("compile", backend, options, hints)
    left_out, debug = off.difference(CHOICES), bool(options.get("debug"))
    rewrite = functools.partial(optimize, fast_math=fast_math, debug=debug)
    if precision is not None:
        from weft.passes.half_products import as_half, half_products

        half = as_half("compile", precision)
        if on_ranks is not None:
            raise ArgumentError(
                "compile", "precision must be None on a mesh; use weft.autocast in the function"
            )
        return lambda graph: build(rewrite(half_products(graph, dtype=half), passes, disable=left_out))
    if on_ranks is None:
        return lambda graph: build(rewrite(graph, passes, disable=left_out))
    made: Callable[[Graph], Any] = on_ranks(rewrite, build, passes, left_out)
    return made

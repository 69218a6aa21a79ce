"""Control flow: ``cond``, ``switch``, ``while_loop`` and ``scan``, ops with graphs (regions) as attributes.

A region is closed: what it uses from around is an operand of the op and an input of the region. Operands of a
loop are its carries, for a scan the arrays it goes along, and then what stays the same in every iteration.
Derivatives and batching are in ``reverse``, ``forward`` and ``batch`` of ``weft.transform.control``, and
whether a gradient reaches an operand in ``ways``.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import bool_, int64, kind
from weft.base.hooks import hooks
from weft.base.sizes import Size
from weft.errors import DtypeError, GraphError, ShapeError
from weft.ir.graph import Graph
from weft.ir.types import TensorType
from weft.ops.control_run import Ask, driven, prepare, stack_collected
from weft.ops.families import primitive
from weft.ops.op import Array, Op

Types = tuple[TensorType, ...]
Running = Generator[Ask, list[Array], tuple[Array, ...]]
_COUNT = TensorType((), int64)


# What must hold of types


def output_types(graph: Graph) -> Types:
    """The types of what a region gives."""
    return tuple(v.type for v in graph.outputs)


def _check_inputs(op: str, what: str, graph: Graph, types: Sequence[TensorType]) -> None:
    if len(graph.inputs) != len(types):
        raise GraphError(op, f"{what} must take {len(types)} inputs, got {len(graph.inputs)}")
    for i, (value, t) in enumerate(zip(graph.inputs, types, strict=True)):
        if value.type != t:
            raise ShapeError(op, f"input {i} of {what} must be {t}, got {value.type}")


def check_predicate(op: str, t: TensorType) -> None:
    """Raise unless a type is that of one truth value."""
    hint = "compare it, as in x > 0, or reduce it with .all() or .any()"
    if t.dtype != bool_:
        raise DtypeError(op, f"the predicate must be one bool, got {t}", hint=hint)
    if t.shape != ():
        raise ShapeError(op, f"the predicate must be one bool, got {t}", hint=hint)


def check_index(op: str, t: TensorType) -> None:
    """Raise unless a type is that of one integer."""
    if kind(t.dtype) not in "iu":
        raise DtypeError(
            op, f"the index must be one integer, got {t}", hint="cast it with .astype(weft.int64)"
        )
    if t.shape != ():
        raise ShapeError(op, f"the index must be one integer, got {t}")


def _check_carries(op: str, before: Sequence[TensorType], after: Sequence[TensorType]) -> None:
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        if old != new:
            raise ShapeError(op, f"carry {i} must keep its type, got {old} before and {new} after the body")


def _branch_types(op: str, xs: Types, branches: tuple[Graph, ...]) -> Types:
    for i, branch in enumerate(branches):
        _check_inputs(op, f"branch {i}", branch, xs)
    first = output_types(branches[0])
    for i, branch in enumerate(branches[1:], 1):
        found = output_types(branch)
        if len(found) != len(first):
            raise GraphError(op, f"branches must give as many outputs, got {len(first)} and {len(found)}")
        for k, (a, b) in enumerate(zip(first, found, strict=True)):
            if a != b:
                raise ShapeError(
                    op, f"branches must agree in output {k}, got {a} from branch 0 and {b} from {i}"
                )
    return first


# Choosing a branch


def _cond_type(predicate: TensorType, *xs: TensorType, branches: tuple[Graph, ...]) -> Types:
    check_predicate("cond", predicate)
    if len(branches) != 2:
        raise GraphError("cond", f"there must be two branches, got {len(branches)}")
    return _branch_types("cond", xs, branches)


def _switch_type(index: TensorType, *xs: TensorType, branches: tuple[Graph, ...]) -> Types:
    check_index("switch", index)
    if not branches:
        raise GraphError("switch", "there must be a branch, got none")
    return _branch_types("switch", xs, branches)


def _run_branch(branches: tuple[Graph, ...], index: int, xs: Sequence[Array]) -> Running:
    branch = branches[index]
    return tuple((yield Ask(branch, prepare(branch, xs), f"branches[{index}]", xs)))


def _cond(predicate: Array, *xs: Array, branches: tuple[Graph, ...]) -> Running:
    return _run_branch(branches, 0 if predicate else 1, xs)


def _switch(index: Array, *xs: Array, branches: tuple[Graph, ...]) -> Running:
    return _run_branch(branches, min(max(int(index), 0), len(branches) - 1), xs)


cond: Op = primitive(
    "cond",
    type_rule=_cond_type,
    eval=driven("cond", _cond),
    vjp=lambda g, predicate, xs, branches, needed: hooks.branch_vjp(cond, g, predicate, xs, branches, needed),
    ways=lambda seeds, predicate, xs, branches, needed: hooks.branch_ways(
        cond, seeds, predicate, xs, branches, needed
    ),
    jvp=lambda primals, tangents, outs, *, branches: hooks.branch_jvp(cond, primals, tangents, branches),
    batch=lambda *args: hooks.branch_batch(*args),
    samples=None,
    outputs=0,
)
"""``cond(predicate, *xs, branches=(true, false))``: the outputs of one of two regions of xs."""

switch: Op = primitive(
    "switch",
    type_rule=_switch_type,
    eval=driven("switch", _switch),
    vjp=lambda g, index, xs, branches, needed: hooks.branch_vjp(switch, g, index, xs, branches, needed),
    ways=lambda seeds, index, xs, branches, needed: hooks.branch_ways(
        switch, seeds, index, xs, branches, needed
    ),
    jvp=lambda primals, tangents, outs, *, branches: hooks.branch_jvp(switch, primals, tangents, branches),
    batch=lambda *args: hooks.branch_batch(*args),
    samples=None,
    outputs=0,
)
"""``switch(index, *xs, branches=...)``: the outputs of the region with a number, which is clamped."""


# Loops


def _while_type(
    *xs: TensorType, test: Graph, body: Graph, carries: int, trips: Any, checkpoint_every: int | None
) -> Types:
    _check_inputs("while_loop", "the test", test, xs)
    _check_inputs("while_loop", "the body", body, xs)
    if len(test.outputs) != 1:
        raise GraphError("while_loop", f"the test must give one bool, got {len(test.outputs)} outputs")
    check_predicate("while_loop", test.outputs[0].type)
    after = output_types(body)
    _check_carries("while_loop", xs[:carries], after[:carries])
    if trips is None:
        if len(after) > carries:
            raise GraphError("while_loop", "a body that collects needs a size for the number of iterations")
        return after
    stacks = tuple(TensorType((trips, *t.shape), t.dtype) for t in after[carries:])
    return (*after[:carries], *stacks, _COUNT)


def _while(
    *xs: Array, test: Graph, body: Graph, carries: int, trips: object, checkpoint_every: int | None
) -> Running:
    run_test, run_body = Ask(test, prepare(test, xs), "test"), Ask(body, prepare(body, xs), "body")
    state, fixed = list(xs[:carries]), xs[carries:]
    gives = run_body.program.outputs[carries:]
    columns: list[list[Array]] = [[] for _ in gives]
    count = 0
    while True:
        run_test.arrays = run_body.arrays = [*state, *fixed]
        run_test.iteration = run_body.iteration = count
        if not (yield run_test)[0]:
            break
        out = yield run_body
        state = out[:carries]
        for column, array in zip(columns, out[carries:], strict=True):
            column.append(array)
        count += 1
    if trips is None:
        return tuple(state)
    return (*state, *stack_collected("while_loop", columns, gives), np.asarray(count))


while_loop = primitive(
    "while_loop",
    type_rule=_while_type,
    eval=driven("while_loop", _while),
    vjp=lambda g, xs, test, body, carries, trips, checkpoint_every, needed: hooks.while_vjp(
        g, xs, test, body, carries, trips, checkpoint_every, needed
    ),
    ways=lambda seeds, xs, test, body, carries, trips, needed: hooks.while_ways(
        seeds, xs, test, body, carries, trips, needed
    ),
    jvp=lambda *args, **attrs: hooks.while_jvp(*args, **attrs),
    batch=lambda *args: hooks.while_batch(*args),
    samples=None,
    outputs=0,
    defaults={"trips": None, "checkpoint_every": None},
)
"""``while_loop(*xs, test, body, carries, trips, checkpoint_every)``: a loop until a test fails.

Operands are the carries and then what stays the same. While ``test(*carries, *same)`` holds, the first
outputs of ``body(*carries, *same)`` become the next carries. Its further outputs are collected: they come out
stacked along an axis of the size ``trips``, a named size that only a run tells, and after them comes their
number. Where nothing is collected ``trips`` is None. ``checkpoint_every=k`` lets the gradient keep every
k-th state alone.
"""


def _scan_type(
    *xs: TensorType,
    body: Graph,
    carries: int,
    mapped: int,
    length: int,
    reverse: bool,
    counted: bool,
    checkpoint_every: int | None,
) -> Types:
    if counted:
        check_index("scan", xs[0])
        xs = xs[1:]
    along = xs[carries : carries + mapped]
    for i, t in enumerate(along):
        if t.ndim == 0 or t.shape[0] != length:
            raise ShapeError("scan", f"xs must have {length} items along axis 0, got {t} for {i}")
    rows = tuple(TensorType(t.shape[1:], t.dtype) for t in along)
    _check_inputs("scan", "the body", body, (*xs[:carries], *rows, *xs[carries + mapped :]))
    after = output_types(body)
    _check_carries("scan", xs[:carries], after[:carries])
    return (*after[:carries], *[TensorType((length, *t.shape), t.dtype) for t in after[carries:]])


def _scan(
    *xs: Array,
    body: Graph,
    carries: int,
    mapped: int,
    length: int,
    reverse: bool,
    counted: bool,
    checkpoint_every: int | None,
) -> Running:
    if counted:
        steps, xs = int(xs[0]), xs[1:]
    state, along, fixed = list(xs[:carries]), xs[carries : carries + mapped], xs[carries + mapped :]
    if along:
        length = along[0].shape[0]
    elif counted and isinstance(length, Size):
        length = steps  # no array tells it, and outside a batch the two are one
    steps = steps if counted else int(length)
    rows = [np.broadcast_to(np.zeros((), x.dtype), x.shape[1:]) for x in along]
    run = Ask(body, prepare(body, (*state, *rows, *fixed)), "body")
    gives = run.program.outputs[carries:]
    columns: list[list[Array]] = [[] for _ in gives]
    for i in range(steps - 1, -1, -1) if reverse else range(steps):
        run.arrays, run.iteration = [*state, *[np.asarray(x[i]) for x in along], *fixed], i
        out = yield run
        state = out[:carries]
        for column, array in zip(columns, out[carries:], strict=True):
            column.append(array)
    if reverse:
        columns = [column[::-1] for column in columns]
    if steps < length:
        for column, value in zip(columns, gives, strict=True):
            column += [np.zeros(value.type.shape, value.type.dtype)] * (length - steps)
    return (*state, *stack_collected("scan", columns, gives))


scan = primitive(
    "scan",
    type_rule=_scan_type,
    eval=driven("scan", _scan),
    vjp=lambda g, xs, body, carries, mapped, length, reverse, counted, checkpoint_every, needed: (
        hooks.scan_vjp(g, xs, body, carries, mapped, length, reverse, counted, checkpoint_every, needed)
    ),
    ways=lambda seeds, xs, body, carries, mapped, length, reverse, counted, needed: hooks.scan_ways(
        seeds, xs, body, carries, mapped, length, reverse, counted, needed
    ),
    jvp=lambda *args, **attrs: hooks.scan_jvp(*args, **attrs),
    batch=lambda *args: hooks.scan_batch(*args),
    samples=None,
    outputs=0,
    defaults={"mapped": 0, "reverse": False, "counted": False, "checkpoint_every": None},
)
"""``scan(*xs, body, carries, mapped, length, ...)``: a loop along the first axis of arrays.

Operands are the carries, the arrays it goes along (``mapped`` of them, of ``length`` rows), and what stays
the same. ``body(*carries, *rows, *same)`` gives the next carries and then what comes out stacked. It goes
from the first row to the last, or in ``reverse``. Where it is ``counted`` an integer before all operands
tells how many of the first rows there are; what comes out for the others is zeros. ``checkpoint_every=k``
lets the gradient keep every k-th state alone.
"""

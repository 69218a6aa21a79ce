"""Calls of composites on large arrays, outside of graphs: a kernel forward, one backward, a node of the tape.

A composite is captured once for types of its tensors and values of its other arguments. What does not fit
(dtypes other than float32 and float64, arguments that are no literals, a trace that looks at values) runs op
by op; so does a call that fails, which then says what is wrong in the user's terms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.backends.eager.graphs import (
    EXACT_KERNELS,
    MISSING,
    MOST_KERNELS,
    Order,
    build_in_order,
    has_product,
    only_moves,
    open_first,
    order_of,
    recorder,
    trace,
    without_gaps,
)
from weft.base.dtypes import float32, float64, kind
from weft.base.public import parameters
from weft.ir.graph import Graph
from weft.ir.types import TensorType
from weft.ops.op import Composite, type_of
from weft.tensor.dispatch import recording
from weft.tensor.tensor import Tensor, wrap

ndarray = np.ndarray
Types = tuple[TensorType, ...]

_FLOATS = (float32, float64)
_TENSOR = object()  # stands for one among literals
_MOST_CALLS = 4096  # kinds of calls that are remembered


class Call:
    """A call of a composite.

    Attributes:
        entry: the composite.
        args: by position.
        kwargs: by name.
        tensors: among them, also those in tuples, in their order.
        orders: of each tensor, in which its axes lie in memory.
        literals: the other arguments, as what tells them apart.
    """

    __slots__ = ("args", "entry", "kwargs", "literals", "orders", "tensors")

    def __init__(self, entry: Composite, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.entry = entry
        self.args = args
        self.kwargs = kwargs
        self.tensors: list[Tensor] = []
        self.orders: list[Order] = []
        self.literals: list[Any] = []
        for x in args:
            self._add(x)
        for name, x in kwargs.items():
            self.literals.append(name)
            self._add(x)

    def _add(self, x: Any) -> None:
        """Take an argument down; a TypeError if there are no kernels for such."""
        if isinstance(x, Tensor):
            data = x._data
            if type(data) is not ndarray or (data.dtype not in _FLOATS and kind(data.dtype) not in "biu"):
                raise TypeError
            self.tensors.append(x)
            self.orders.append(None if data.flags.c_contiguous else order_of(data))
            self.literals.append(_TENSOR)
        elif isinstance(x, float):
            self.literals.append(repr(x))  # tells 0.0 from -0.0
        elif x is None or isinstance(x, bool | int | str | np.dtype):
            self.literals += (type(x), x)
        elif isinstance(x, tuple | list):
            self.literals.append(len(x))
            for item in x:
                self._add(item)
        else:
            raise TypeError

    def key(self) -> tuple[Any, ...]:
        """All that a kernel for this call may depend on."""
        known = [(t._data.dtype, t._data.shape, t._node is None) for t in self.tensors]
        return (self.entry.name, *self.literals, *known, *self.orders)

    def kernel_key(self, types: Types) -> tuple[Any, ...]:
        """What a kernel for tensors of types depends on."""
        flags = [t._node is None for t in self.tensors]
        return (self.entry.name, *self.literals, *types, *flags, *self.orders)

    def types(self) -> Types:
        """Of the tensors."""
        return tuple([type_of(t) for t in self.tensors])

    def open_types(self) -> Types:
        """The same, with names for the sizes of first axes that the composite leaves open."""
        names, _, _ = parameters(getattr(self.entry.function, "__wrapped__", self.entry.function))
        given = dict(zip(names, self.args, strict=False)) | self.kwargs
        opened = [given[name] for name in self.entry.whole if isinstance(given.get(name), Tensor)]
        size = opened[0].shape[0] if opened and opened[0].ndim else 1
        if size == 1:  # which would broadcast
            return self.types()
        is_open = [any(t is x for x in opened) for t in self.tensors]
        return tuple([open_first(k, size) if o else k for k, o in zip(self.types(), is_open, strict=True)])

    def again(self, tensors: Sequence[Tensor]) -> Any:
        """The same call on other tensors, op by op."""
        rest = iter(tensors)

        def filled(x: Any) -> Any:
            if isinstance(x, tuple | list):
                return type(x)(map(filled, x))
            return next(rest) if isinstance(x, Tensor) else x

        args = [filled(x) for x in self.args]
        return self.entry.function(*args, **{name: filled(x) for name, x in self.kwargs.items()})

    def orders_of_results(self, graph: Graph) -> list[Order]:
        """Results lie in memory as the first tensor does, if they have as many axes."""
        order = self.orders[0]
        return [order if order and len(order) == v.type.ndim else None for v in graph.outputs]


class Kernel:
    """Runs calls of one kind.

    Attributes:
        run: from tensors to tensors.
        single: whether the composite gives one tensor, rather than a tuple.
        moves: whether it only moves elements; that takes no kernel but for a gradient.
    """

    __slots__ = ("moves", "run", "single")

    def __init__(
        self, run: Callable[[Sequence[Tensor]], Sequence[Tensor]], *, single: bool, moves: bool
    ) -> None:
        self.run = run
        self.single = single
        self.moves = moves

    def __call__(self, call: Call) -> Any:
        """The results of a call; a copy that closes gaps serves forward and backward."""
        tensors = call.tensors
        for i, t in enumerate(tensors):
            if not t._data.flags.c_contiguous:
                tensors[i] = wrap(without_gaps(t._data, call.orders[i]), t._node)
        outs = self.run(tensors)
        return outs[0] if self.single else tuple(outs)


_known: dict[Any, Kernel | None] = {}  # by the keys of calls
_kernels: dict[Any, Kernel | None] = {}  # by types, in which sizes may be open
_graphs: dict[Any, tuple[Graph, bool] | None] = {}  # by types as well: what may become kernels
_exact: Counter[Any] = Counter()  # by types with open sizes: kernels for known ones
_counts: Counter[str] = Counter()  # kernels that a composite has


def call_whole(entry: Composite, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a composite gives, recorded as one node; None where its ops are to run one by one.

    >>> import weft
    >>> x = weft.ones((512, 256), requires_grad=True)
    >>> weft.layer_norm(x, 256).grad_fn
    <LayerNormBackward>
    """
    try:
        call = Call(entry, args, kwargs)
    except TypeError:
        return None
    key = call.key()
    kernel = _known.get(key, MISSING)
    if kernel is MISSING:
        if len(_known) >= _MOST_CALLS:
            _known.clear()
        kernel = _known[key] = _find(call)
    if kernel is None or (kernel.moves and not recording()):
        return None
    try:
        return kernel(call)
    except Exception:  # whatever it was, op by op it is said in the user's terms
        return None


def _find(call: Call) -> Kernel | None:
    """What runs calls like this one.

    A kernel serves any batch if that can be. Products are faster if all sizes are known, so the first few
    sizes of a batch get kernels of their own.
    """
    exact, opened = call.types(), call.open_types()
    if opened == exact:
        return _kernel(call, exact)
    key = call.kernel_key(opened)
    if key not in _graphs:
        _graphs[key] = _traced(call, opened)
    graph = _graphs[key]
    if graph is None:
        return _kernel(call, exact)
    if has_product(graph[0]) and (call.kernel_key(exact) in _kernels or _exact[key] < EXACT_KERNELS):
        _exact[key] += call.kernel_key(exact) not in _kernels
        return _kernel(call, exact)
    return _kernel(call, opened) or _kernel(call, exact)


def _kernel(call: Call, types: Types) -> Kernel | None:
    """The kernel for types of a call's tensors; made if it is new, None where it cannot be made."""
    key = call.kernel_key(types)
    if key not in _kernels:
        _kernels[key] = _make(call, types, key)
    return _kernels[key]


def _traced(call: Call, types: Types) -> tuple[Graph, bool] | None:
    """The graph of a call, and whether it gives one tensor rather than a tuple; None if it has none."""
    single = False

    def function(*tensors: Tensor) -> list[Tensor]:
        nonlocal single
        out = call.again(tensors)
        single = isinstance(out, Tensor)
        return [out] if single else list(out)

    try:
        graph = trace(function, types, call.entry.name)
    except Exception:  # which op by op is said in the user's terms, if it is an error at all
        return None
    return None if graph is None else (graph, single)


def _make(call: Call, types: Types, key: Any) -> Kernel | None:
    name = call.entry.name
    traced = _graphs.get(key) or _traced(call, types)
    if traced is None or _counts[name] >= MOST_KERNELS:
        return None
    graph, single = traced
    moves, wrt = only_moves(graph), [i for i, t in enumerate(call.tensors) if t._node is not None]
    if moves and not wrt:
        return None
    _counts[name] += 1
    try:
        results = call.orders_of_results(graph)
        if wrt:
            run = _recorded(recorder(graph, wrt, call.orders, results))
        else:
            run = _forward(build_in_order(graph.optimize(), call.orders, results))
    except Exception:  # where nothing can be compiled, the ops still run one by one
        return None
    return Kernel(run, single=single, moves=moves)


def _forward(run: Any) -> Any:
    return lambda tensors: [wrap(a) for a in run([t._data for t in tensors])]


def _recorded(run: Any) -> Any:
    return lambda tensors: run(tensors)[0]

"""Samples of the op matrix with a size named: which axes it names, and the same call at other values of it.

The meaning of an op decides which axes must have the same size, so several ways to name are tried in order:
the leading axis of the first input, those of all inputs that agree with it, and every axis and attribute of
that value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import weft
from tests.ops.checks import Entry
from weft.base.dtypes import kind
from weft.base.sizes import Size, bind, named_size
from weft.errors import WeftError
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.ir.types import TensorType
from weft.transform.tracing import trace_graph

N = named_size("n")
SHAPES = ("shape", "sizes", "output_size", "size")  # attributes that hold sizes


class Naming(NamedTuple):
    """For each input the axes that are ``n``, and the attributes with ``n`` in them."""

    axes: tuple[tuple[int, ...], ...]
    attrs: dict[str, Any]

    def types(self, arrays: Sequence[Any]) -> list[TensorType]:
        """The types of the inputs, with the name."""
        named: Any = N
        return [
            TensorType(tuple(named if i in axes else s for i, s in enumerate(a.shape)), a.dtype)
            for a, axes in zip(arrays, self.axes, strict=True)
        ]

    def resized(self, arrays: Sequence[Any], n: int) -> list[Any]:
        """The inputs at another value of the name, by repeating or leaving out elements."""
        out = []
        for array, axes in zip(arrays, self.axes, strict=True):
            for axis in axes:
                array = np.take(array, np.arange(n) % array.shape[axis], axis=axis)
            if (
                len(axes) == 1 and kind(array.dtype) in "fc" and array.size
            ):  # repeated rows would be a special case
                with np.errstate(all="ignore"):
                    near = 1 - 0.02 * ((np.arange(array.size) * 37) % 11) / 11
                    array = (array * near.reshape(array.shape)).astype(array.dtype)
            out.append(array)
        return out


def namings(entry: Entry) -> Iterator[Naming]:
    """The ways to name the leading size of the first input."""
    arrays, attrs = entry.sample.inputs, entry.sample.attrs
    size = arrays[0].shape[0]
    yield Naming(tuple((0,) if i == 0 else () for i in range(len(arrays))), attrs)
    yield Naming(tuple((0,) if a.shape[:1] == (size,) else () for a in arrays), attrs)
    everywhere = tuple(tuple(i for i, s in enumerate(a.shape) if s == size) for a in arrays)
    yield Naming(everywhere, attrs)
    named = {k: _named(v, size) if k in SHAPES else v for k, v in attrs.items()}
    yield Naming(tuple((0,) if a.shape[:1] == (size,) else () for a in arrays), named)
    yield Naming(everywhere, named)
    if attrs.get("shape"):
        yield Naming(((),) * len(arrays), {**attrs, "shape": (N, *attrs["shape"][1:])})


def _named(value: Any, size: int) -> Any:
    if isinstance(value, tuple):
        return tuple(_named(v, size) for v in value)
    return N if value == size and not isinstance(value, bool) else value


def gradient_call(entry: Entry, attrs: dict[str, Any]) -> Any:
    """A function of the inputs that gives the outputs, and the gradients of their sum where there are any."""

    def function(*inputs: Any) -> list[Any]:
        given = [x.detach().requires_grad_(kind(x.dtype) in "fc") for x in inputs]
        out = entry.call(*given, **attrs)
        outs = list(out) if isinstance(out, tuple | list) else [out]
        total = [o for o in outs if o.requires_grad]
        wanted = [x for x in given if x.requires_grad]
        if not total or not wanted:
            return outs
        seeds = [weft.ones_like(o) for o in total]
        grads = weft.autograd.grad(total, wanted, seeds, materialize_grads=True)
        return [*[o.detach() for o in outs], *grads]

    return function


def traced(entry: Entry) -> tuple[Naming, Graph] | list[WeftError]:
    """The first naming under which the call traces, with its graph; else the errors."""
    errors: list[WeftError] = []
    for naming in namings(entry):
        try:
            graph, used = trace_graph(gradient_call(entry, naming.attrs), naming.types(entry.sample.inputs))
        except WeftError as error:
            errors.append(error)
            continue
        arrays = [t.numpy() for t in used]
        return naming, _closed(graph, arrays)
    return errors


def _closed(graph: Graph, arrays: Sequence[Any]) -> Graph:
    """The graph with what it used from around it as constants."""
    count = len(graph.inputs) - len(arrays)
    constants = dict(zip(graph.inputs[count:], arrays, strict=True))
    return graph.replace(
        inputs=graph.inputs[:count], roles=graph.roles[:count], constants={**graph.constants, **constants}
    )


def check_at(entry: Entry, naming: Naming, graph: Graph, n: int) -> bool:
    """The graph gives what the eager call gives, or both fail; whether they gave something."""
    arrays = naming.resized(entry.sample.inputs, n)
    attrs = {k: bind(v, {"n": n}) for k, v in naming.attrs.items()}
    try:
        expected = gradient_call(entry, attrs)(*[weft.tensor(a) for a in arrays])
    except WeftError:
        return False
    actual = interpret(graph, arrays, sizes={"n": n})
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        want = e.numpy()
        assert (a.shape, a.dtype) == (want.shape, want.dtype)
        assert_close(a, want)
    return True


def assert_close(a: Any, want: Any) -> None:
    """Equal up to rounding of the narrower dtypes."""
    if kind(want.dtype) not in "fc":
        np.testing.assert_array_equal(a, want)
        return
    wide = np.complex128 if kind(want.dtype) == "c" else np.float64
    tolerance = (
        1e-9 if want.dtype in (np.float64, np.complex128) else 2e-2 if want.dtype.itemsize == 2 else 2e-5
    )
    np.testing.assert_allclose(a.astype(wide), want.astype(wide), rtol=tolerance, atol=tolerance)


def has_name(graph: Graph) -> bool:
    """Whether an input of the graph has a size that is not known."""
    return any(isinstance(s, Size) for v in graph.inputs for s in v.type.shape)

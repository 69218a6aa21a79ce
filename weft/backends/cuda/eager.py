"""Ops on arrays of a device, outside of graphs: a view, a program of one op, or a way through the host.

A program is compiled once for the types of its inputs and kept. Ops that work element by element see arrays
of one shape as rows of any length, so that one program serves all sizes; others get one with open sizes where
they vary (``weft.backends.cuda.varied``). What has no program, because there
is no kernel for it yet or none can be, is computed by NumPy on the host; that is said once for each op.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from weft.backends.cuda.array import DeviceArray
from weft.backends.cuda.card import Card
from weft.backends.cuda.compiling import compile_for_device, has_compiler
from weft.backends.cuda.copies import to_device
from weft.backends.cuda.kernels import Kernel
from weft.backends.cuda.meeting import is_shared
from weft.backends.cuda.placing import on_one_device
from weft.backends.cuda.varied import Varied, open_kind
from weft.backends.cuda.views import view_of
from weft.base.ranks import world
from weft.base.shapes import Shape
from weft.base.sizes import named_size
from weft.errors import DeviceError, ParallelError, WeftError
from weft.ir.graph import Graph
from weft.ir.types import TensorType
from weft.ops.effects import copied_from
from weft.ops.op import Op, type_of
from weft.ops.select import cast

Runner = Callable[[Sequence[Any]], Sequence[Any]]
Build = Callable[[Graph, Card], Runner]

_MOST_PROGRAMS = 4096
_ROW: Any = named_size("n")
_programs: dict[Any, Runner | None] = {}
_varied: dict[Any, Varied] = {}  # by all that tells calls apart but sizes
_said: set[str] = set()  # ops that go through the host, of which that was said


def evaluate_on_device(
    op: Op, inputs: Sequence[Any], datas: Sequence[Any], attrs: dict[str, Any]
) -> tuple[Any, ...]:
    """The data of an op's results, on the device of its operands."""
    arrays = on_one_device(op, datas)
    if op.view is not None:
        return (view_of(op, arrays[0], attrs),)
    if op is cast and attrs["dtype"] == arrays[0].dtype:
        return (arrays[0].copy(),)
    if op.cuda is not None:
        assert isinstance(op.cuda, Kernel)
        return op.cuda.run(op, arrays, attrs)
    runner = find_program(op, arrays, attrs)
    if runner is not None:
        return tuple(runner(arrays))
    return through_host(op, arrays, attrs)


def through_host(op: Op, arrays: Sequence[DeviceArray], attrs: dict[str, Any]) -> tuple[DeviceArray, ...]:
    """The results of an op, computed by its kernel for the host."""
    if op.name not in _said:
        _said.add(op.name)
        warnings.warn(
            f"{op.name} has no kernel for {arrays[0].device} yet: it is computed on the host, and what it "
            "reads and gives is copied",
            RuntimeWarning,
            stacklevel=2,
        )
    hosts = [array.to_host() for array in arrays]
    try:
        with np.errstate(all="ignore"), copied_from(arrays[0].device):
            result = op.eval(*hosts, **attrs)
    except WeftError:
        raise
    except Exception:
        op.type_rule(*map(type_of, hosts), **attrs)  # raises in the user's terms if the types are at fault
        raise
    results = (result,) if op.outputs == 1 else result
    return tuple([to_device(np.array(r, order="C"), arrays[0].card) for r in results])


# Programs of one op

_build: list[Build] = [compile_for_device] if has_compiler() else []  # what makes runners of graphs


def set_build(build: Build | None) -> None:
    """Use a function from a graph and a device to what runs it; None for no programs at all."""
    _build[:] = [] if build is None else [build]
    _programs.clear()
    _varied.clear()


def current_build() -> Build | None:
    """What makes runners of graphs, if anything does."""
    return _build[0] if _build else None


def forget_programs() -> None:
    """Drop all programs, and what was said about ops without."""
    _programs.clear()
    _varied.clear()
    _said.clear()


def find_program(op: Op, arrays: Sequence[DeviceArray], attrs: dict[str, Any]) -> Runner | None:
    """What runs an op on arrays like these; None if it goes through the host."""
    if not _build:
        return None
    place = None
    if op.effect or op.host:
        if not is_shared(op, arrays[0].card, attrs):
            return None
        place = world().rank  # a program is that of one rank
    flat = op.accepts != "" and is_flat(arrays)
    try:
        call = (op, id(arrays[0].card), place, flat, *_literals(attrs))
        key = (call, *_kinds(arrays, flat))
        known = _programs.get(key, _programs)
    except TypeError:  # attributes that cannot be told apart
        return None
    if known is _programs:
        if len(_programs) >= _MOST_PROGRAMS:
            _programs.clear()
            _varied.clear()
        if flat:
            known = _make_flat(op, arrays, attrs)
        else:
            varied = _varied.setdefault((call, *map(open_kind, arrays)), Varied())
            known = varied.find([a.shape for a in arrays], partial(_make, op, arrays, attrs))
        _programs[key] = known
    return known  # type: ignore[return-value]


def is_flat(arrays: Sequence[DeviceArray]) -> bool:
    """Whether arrays are of one shape and without gaps, or numbers: then their axes do not matter."""
    shape = next((a.shape for a in arrays if a.shape), ())
    return shape != () and all(not a.shape or (a.shape == shape and a.gaps is None) for a in arrays)


def _kinds(arrays: Sequence[DeviceArray], flat: bool) -> list[Any]:
    if flat:
        return [(a.dtype, bool(a.shape)) for a in arrays]
    return [(a.dtype, a.shape) for a in arrays]


def _literals(attrs: dict[str, Any]) -> list[Any]:
    """Attributes as what tells them apart: 0.0 from -0.0, and 1 from True."""
    out: list[Any] = []
    for name, value in attrs.items():
        out += (name, type(value), repr(value) if isinstance(value, float) else value)
    return out


def _make_flat(op: Op, arrays: Sequence[DeviceArray], attrs: dict[str, Any]) -> Runner | None:
    run = _make(op, arrays, attrs, [(_ROW,) if a.shape else () for a in arrays])
    return None if run is None else InRows(run)


def _make(
    op: Op, arrays: Sequence[DeviceArray], attrs: dict[str, Any], shapes: Sequence[Shape]
) -> Runner | None:
    """What runs an op on arrays of shapes, whose sizes may have names; None if there is no kernel for it."""
    from weft.backends.eager.graphs import trace

    types = [TensorType(shape, a.dtype) for shape, a in zip(shapes, arrays, strict=True)]

    def function(*tensors: Any) -> list[Any]:
        out = op(*tensors, **attrs)
        return [out] if op.outputs == 1 else list(out)

    graph = trace(function, types, op.name)
    if graph is None:
        return None
    try:
        return _build[0](graph, arrays[0].card)
    except (DeviceError, ParallelError):  # of the device itself, or of other ranks
        raise
    except WeftError:  # no kernel for it
        return None


class InRows:
    """Runs a program for rows on arrays of any shape.

    Attributes:
        executable: what runs the program.
    """

    __slots__ = ("executable",)

    def __init__(self, executable: Runner) -> None:
        self.executable = executable

    def __call__(self, arrays: Sequence[DeviceArray]) -> list[DeviceArray]:
        """Run on arrays of one shape, and numbers."""
        shape = next(a.shape for a in arrays if a.shape)
        outs = self.executable([in_row(a) if a.shape else a for a in arrays])
        return [_with_shape(out, shape) for out in outs]


def in_row(array: DeviceArray) -> DeviceArray:
    """The elements of an array without gaps, along one axis."""
    return _with_shape(array, (array.size,))


def _with_shape(array: DeviceArray, shape: tuple[int, ...]) -> DeviceArray:
    return DeviceArray(array.card, array.block, array.pointer, shape, array.dtype)

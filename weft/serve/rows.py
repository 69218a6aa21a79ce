"""Rows: whether requests to a model may be put together along a size, which is tried on random inputs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from weft.base.dtypes import kind
from weft.base.sizes import Size, size_names
from weft.errors import WeftError
from weft.io.interface import Interface, random_array, random_inputs
from weft.serve.tensors import Array

_TRIED = (3, 8, 32, 1)  # that named sizes get, until the model takes one
_ROWS = 4


def row_size(interface: Interface, wanted: str = "") -> str:
    """The name of the size that counts rows: first of all inputs and outputs, and nowhere else; "" if none.

    Args:
        interface: of a model.
        wanted: the name; by default it must begin with "batch".
    """
    ports = (*interface.inputs, *interface.outputs)
    graph = interface.loaded.graph
    if not interface.inputs or any(not port.type.shape for port in ports) or graph.updates:
        return ""
    names = {str(port.type.shape[0]) for port in ports if isinstance(port.type.shape[0], Size)}
    if len(names) != 1 or any(not isinstance(port.type.shape[0], Size) for port in ports):
        return ""
    (name,) = names
    if any(name in size_names(port.type.shape[1:]) for port in ports):
        return ""
    return name if (name == wanted if wanted else name.startswith("batch")) else ""


def fitting_sizes(interface: Interface) -> dict[str, int] | None:
    """Values of the named sizes with which a model runs on random inputs; None if none were found."""
    for size in _TRIED:
        sizes = dict.fromkeys(interface.sizes, size)
        try:
            run_random(interface, sizes)
        except WeftError:
            continue
        return sizes
    return None


def run_random(interface: Interface, sizes: Mapping[str, int]) -> list[Array]:
    """What a model gives for random inputs."""
    return interface.run(random_inputs(interface, sizes, np.random.default_rng(0)))


def rows_are_independent(interface: Interface, name: str, sizes: Mapping[str, int]) -> bool:
    """Whether rows of results depend on their own rows alone, as far as random numbers show it.

    One row is changed, and all others must stay what they are; and a row by itself must give what it gives
    among others, up to rounding. Where there are no floats, only the changed row is not 0, and then only it
    is not 1, so that a maximum and a minimum show.
    """
    generator = np.random.default_rng(0)
    for changed, others_are in ((0, None), (1, 0), (_ROWS - 1, 1)):
        first = random_inputs(interface, {**sizes, name: _ROWS}, generator)
        if others_are is not None:
            first = [a if kind(a.dtype) == "f" else np.full_like(a, others_are) for a in first]
        second = [_with_row(a, changed, generator) for a in first]
        try:
            results, others = interface.run(first), interface.run(second)
            alone = interface.run([a[2:3] for a in first])
        except WeftError:
            return False
        kept = [i for i in range(_ROWS) if i != changed]
        if not all(map(_same, (a[kept] for a in results), (a[kept] for a in others))):
            return False
        if not all(map(_close, (a[2:3] for a in results), alone)):
            return False
    return True


def _with_row(array: Array, row: int, generator: np.random.Generator) -> Array:
    changed = array.copy()
    other = random_array(array.shape[1:], array.dtype, generator)
    changed[row] = other if kind(array.dtype) == "f" else 1 - array[row].astype(np.int64)
    return changed


def _same(a: Array, b: Array) -> bool:
    return a.tobytes() == b.tobytes()


def _close(a: Array, b: Array) -> bool:
    if kind(a.dtype) != "f":
        return bool((a == b).all())
    x, y = a.astype(np.float64), b.astype(np.float64)
    limit = 64 * float(np.finfo(np.float16 if a.dtype.itemsize == 2 else np.float32).eps)
    return bool(np.allclose(x, y, limit, limit * max(1.0, float(np.abs(x).max(initial=0.0))), equal_nan=True))

"""Checkpoints on a mesh: ``weft.save`` writes them, this reads of one what a rank needs."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from weft.base.parts import Cut, is_cut, part_shape, pieces_of, plain_axes
from weft.base.public import public
from weft.base.ranks import Mesh, mesh_axes, world
from weft.io.atomic import file_path
from weft.io.files import tree_of
from weft.io.layout import Array, Problem, read_file
from weft.parallel.placing import made_parts, mesh_text_of
from weft.tensor.tensor import Tensor, wrap


@public
def load(path: str | os.PathLike[str], mesh: Mesh | None = None) -> Any:
    """The tree that ``weft.save`` wrote, of which tensors that were placed are placed again.

    They are cut over the axes of the same names, however many ranks these have now; along an axis that the
    mesh does not have they are whole. Each rank reads what it needs. ``weft.load`` gives whole tensors.

    Args:
        path: of the file.
        mesh: by default the mesh of this world.

    >>> import os, tempfile, weft
    >>> from weft import parallel as par
    >>> path = os.path.join(tempfile.mkdtemp(), "state.safetensors")
    >>> def write():
    ...     weft.save({"x": par.place(weft.arange(8), par.P("data"), par.mesh(data=4))}, path)
    >>> _ = par.simulate(write, 4)
    >>> par.simulate(lambda: par.load(path, par.mesh(data=2)), 2)[0], weft.load(path)
    ({'x': tensor(<i64[8@data] on mesh(data=2)>)}, {'x': tensor([0, 1, 2, 3, 4, 5, 6, 7])})
    """
    source, text = file_path("load", path), mesh_text_of(mesh)
    known = dict(mesh_axes(text))

    def place(shape: tuple[int, ...], cut: Cut) -> Any:
        now = tuple([",".join(n for n in axes.split(",") if plain_axes(n) in known) for axes in cut])
        if not is_cut(now, text):
            return None
        pieces = pieces_of(shape, now, text, world().rank)

        def made(array: Array) -> Tensor:
            return wrap(made_parts(_padded(array, shape, now, text), shape, now, text))

        return pieces, made

    contents = read_file("load", source, mmap=False, verify=True)
    return tree_of(contents, Problem("load", source), None, place)


def _padded(array: Array, shape: tuple[int, ...], cut: Cut, mesh: str) -> Array:
    """The part of a rank, of its elements alone."""
    wanted = part_shape(shape, cut, mesh)
    if array.shape == wanted:
        return array
    return np.pad(array, [(0, w - s) for w, s in zip(wanted, array.shape, strict=True)])

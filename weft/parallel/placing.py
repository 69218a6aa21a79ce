"""Placement: tensors of which each rank of a mesh holds its part and no more (``par.place``).

What such a tensor holds is a ``Parts`` (``weft/base/parts.py``); compiled steps take and give parts
(``weft/parallel/step.py``), and ops outside of graphs work on them by the same rules
(``weft/parallel/eager.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, TypeVar

import numpy as np

from weft.base.concrete import CONCRETE, is_concrete, on_host
from weft.base.device import CPU
from weft.base.hooks import hooks
from weft.base.parts import (
    STRIPES,
    Cut,
    Parts,
    counts_of,
    home_of,
    indices_of,
    is_cut,
    is_home,
    own_shape,
    part_shape,
    pieces_of,
    plain_axes,
    take_part,
    without_home,
)
from weft.base.public import public
from weft.base.ranks import Mesh, axis_size, check_world, members, mesh_axes, world
from weft.errors import ArgumentError, DomainError, ParallelError, ShapeError
from weft.ops import collective as ops
from weft.parallel.mesh import P, current_mesh
from weft.tensor.alias import is_aliased
from weft.tensor.creation import zeros
from weft.tensor.mode import no_grad
from weft.tensor.tensor import Tensor, wrap

T = TypeVar("T")


@public
def place(target: T, spec: P | Mapping[str, P], mesh: Mesh | None = None) -> T:
    """Let each rank hold its part of a tensor, or of the parameters and buffers of a module, and no more.

    The whole must be the same on all ranks before; each keeps its part. Where the ranks do not divide a
    size, the last parts are padded. ``x.full()``, called by all ranks, gives the whole again.

    Args:
        target: a tensor, of which a placed one is given back; or a module, whose tensors are placed.
        spec: how a tensor is cut; of a module, by patterns of names, such as ``blocks.*.fc1.weight``; what no
            pattern names is left as it is, and the first one counts.
        mesh: over whose ranks; by default the mesh of this world.

    >>> import weft
    >>> from weft import nn, parallel as par
    >>> def program():
    ...     mesh = par.mesh(model=2)
    ...     x = par.place(weft.arange(6.0), par.P("model"), mesh)
    ...     layer = par.place(nn.Linear(4, 6), {"*": par.P("model")}, mesh)
    ...     return x, x.shape, layer.weight
    >>> par.simulate(program, 2)[1][:2]
    (tensor(<f32[6@model] on mesh(model=2)>), (6,))
    """
    text = mesh_text_of(mesh)
    if isinstance(target, Tensor):
        if not isinstance(spec, P):
            raise ArgumentError("place", f"a tensor takes a par.P, got {type(spec).__name__}")
        return _placed(target, spec.cut("place", text, target.ndim), text)  # type: ignore[return-value]
    if not hasattr(target, "named_parameters"):
        raise ArgumentError("place", f"takes a tensor or a module, got {type(target).__name__}")
    for tensor, cut in _chosen(target, spec, text):
        put_parts(tensor, cut, text)
    _mark_stages(target, getattr(spec, "stages", ()))
    _mark_sequence(target, getattr(spec, "sequence", {}), text)
    return target


def _mark_stages(module: Any, names: Sequence[str]) -> None:
    """Let stages of a pipeline begin with modules."""
    modules = dict(module.named_modules())
    for name in names:
        modules[name].register_forward_pre_hook(_begin_stage)


def _mark_sequence(module: Any, axes: Mapping[str, str], mesh: str) -> None:
    """Note how the positions of what goes into modules are cut."""
    modules = dict(module.named_modules())
    batch = "data" if "data" in dict(mesh_axes(mesh)) else None
    for name, axis in axes.items():
        modules[name].register_forward_pre_hook(partial(_note_positions, mesh, batch, axis or None))


def _note_positions(mesh: str, batch: str | None, axis: str | None, module: Any, args: Any) -> Any:
    """The arguments of a module, the first with a note, if it has positions that can be cut."""
    from weft.parallel.collectives import shard

    x = args[0] if args else None
    if not isinstance(x, Tensor) or x.ndim != 3:
        return args
    sizes = dict(mesh_axes(mesh))
    wanted = [(x.shape[0], batch), (x.shape[1], axis)]
    if any(name and isinstance(size, int) and size % sizes[name] for size, name in wanted):
        return args
    return (shard(x, batch, axis, None), *args[1:])


def _begin_stage(module: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a module that begins a stage."""
    from weft.parallel.pipeline import next_stage

    return tuple([next_stage(x) if isinstance(x, Tensor) else x for x in args])


@public
def from_parts(part: Tensor, spec: P, mesh: Mesh | None = None) -> Tensor:
    """A placed tensor of what each rank has already, such as its own rows of a batch.

    Parts have the same shape on all ranks; the whole has as many times their sizes as there are parts.

    Args:
        part: of this rank.
        spec: how the whole is cut.
        mesh: over whose ranks; by default the mesh of this world.

    >>> import weft
    >>> from weft import parallel as par
    >>> def program():
    ...     mesh = par.mesh(data=2)
    ...     return par.from_parts(weft.ones(2) * par.rank(), par.P("data"), mesh).full()
    >>> par.simulate(program, 2)[0]
    tensor([0., 0., 1., 1.])
    """
    text = mesh_text_of(mesh)
    if not isinstance(part, Tensor) or not isinstance(spec, P):
        raise ArgumentError("from_parts", "takes a tensor and a par.P")
    cut = spec.cut("from_parts", text, part.ndim)
    array = np.ascontiguousarray(part.detach().numpy())
    if not is_cut(cut, text):
        return wrap(array.copy())
    shape = tuple([s * n for s, n in zip(array.shape, counts_of(cut, text), strict=True)])
    return wrap(_parts(array.copy(), shape, cut, text))


def mesh_text_of(mesh: Mesh | None) -> str:
    """The text of a mesh, by default that of this world."""
    if mesh is None:
        return current_mesh("place")
    if not isinstance(mesh, Mesh):
        hint = "par.place(x, par.P(...), mesh)"
        raise ArgumentError("place", f"mesh must be made by par.mesh, got {type(mesh).__name__}", hint=hint)
    return mesh.text


def _chosen(module: Any, spec: P | Mapping[str, P], mesh: str) -> Iterator[tuple[Tensor, Cut]]:
    """The tensors of a module that patterns name, with their cuts."""
    patterns = {"*": spec} if isinstance(spec, P) else spec
    if not isinstance(patterns, Mapping) or not all(isinstance(p, P) for p in patterns.values()):
        raise ArgumentError("place", "a module takes a par.P, or a dict of them by patterns of names")
    named = [*module.named_parameters(), *module.named_buffers()]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name, _ in named):
            known = ", ".join(name for name, _ in named[:8])
            raise DomainError("place", f"a pattern must name a tensor ({known}, ...), got {pattern!r}")
    found = []
    for name, tensor in named:
        how = next((p for pattern, p in patterns.items() if fnmatchcase(name, pattern)), None)
        if how is not None:
            p = how if not isinstance(spec, P) else P(*spec[: tensor.ndim])
            cut = p.cut(f"place of {name}", mesh, tensor.ndim)
            _check_stripes(module, name, tensor, cut, mesh)
            found.append((tensor, cut))
    yield from found  # nothing is placed unless all can be


def _check_stripes(module: Any, name: str, tensor: Tensor, cut: Cut, mesh: str) -> None:
    """Raise where stripes cannot be: of sizes, or of heads, that ranks do not divide."""
    for size, axes in zip(tensor.shape, cut, strict=True):
        if STRIPES not in axes:
            continue
        count, heads = axis_size("place", mesh, plain_axes(axes)), heads_of(module, name)
        if heads is not None and heads % count:
            message = f"the {count} ranks along {plain_axes(axes)!r} must divide the heads, got {heads}"
            hint = "another mesh; or leave this tensor whole, as par.auto does"
            raise ParallelError(f"place of {name}", message, hint=hint)
        indices_of(size, axes, mesh, 0)  # raises for other sizes


_HEADS = ("num_heads", "heads", "n_heads", "n_head", "nhead", "num_attention_heads")


def heads_of(module: Any, name: str) -> int | None:
    """How many heads the module of a parameter says that it has, or the one around that; None if neither."""
    path, modules = name.split("."), dict(module.named_modules())
    for end in range(len(path) - 1, max(len(path) - 3, -1), -1):
        owner = modules.get(".".join(path[:end]))
        for known in _HEADS:
            found = getattr(owner, known, None)
            if isinstance(found, int) and found > 0:
                return found
    return None


def _placed(x: Tensor, cut: Cut, mesh: str) -> Tensor:
    if x._node is not None and not x.is_leaf:
        raise ParallelError("place", "the tensor must be a leaf, got the result of an op", hint="x.detach()")
    out = wrap(_cut_data(x, cut, mesh))
    return out.requires_grad_(x.requires_grad)


def put_parts(tensor: Tensor, cut: Cut, mesh: str) -> None:
    """Let a tensor hold the part of this rank from now on."""
    if is_aliased(tensor):
        raise ParallelError("place", "the tensor must be no view, nor have one", hint="x.clone()")
    tensor._data, tensor._form = _cut_data(tensor, cut, mesh), None


def _cut_data(x: Tensor, cut: Cut, mesh: str) -> Any:
    data = x._data
    if not is_concrete(data):
        raise ParallelError(
            "place", "a tensor must be placed outside of captured code", hint="par.shard(x, ...)"
        )
    array = whole_array(data) if type(data) is Parts else x._array("place")
    if not is_cut(cut, mesh):
        return array
    return _parts(_part_of(array, cut, mesh), array.shape, cut, mesh)


def _parts(part: Any, shape: tuple[int, ...], cut: Cut, mesh: str) -> Parts:
    CONCRETE.add(Parts)
    return Parts(part, shape, cut, mesh)


def as_parts(array: Any, cut: Cut, mesh: str) -> Parts:
    """The part of this rank of a whole array; of parts that are cut otherwise too, which moves data."""
    if type(array) is Parts:
        if array.cut == cut and array.mesh == mesh:
            return array
        array = whole_array(array)
    return _parts(_part_of(array, cut, mesh), array.shape, cut, mesh)


def _part_of(array: Any, cut: Cut, mesh: str) -> Any:
    """The part of this rank of an array, in memory of its own, where the array is."""
    return (take_part if isinstance(array, np.ndarray) else _take_on_device)(array, cut, mesh)


def _take_on_device(whole: Any, cut: Cut, mesh: str) -> Any:
    """Likewise of elements in the memory of a device."""
    check_world(mesh)
    shape, pieces = own_shape(whole.shape, cut, mesh), pieces_of(whole.shape, cut, mesh, world().rank)
    with no_grad():
        x = wrap(whole)
        own = x[pieces[0][0]]
        if own.shape != shape:
            own = zeros(shape, dtype=x.dtype, device=x.device)
            for there, here in pieces:
                own[here] = x[there]
        return own.clone()._data


def made_parts(part: Any, shape: tuple[int, ...], cut: Cut, mesh: str) -> Parts:
    """What a rank computed as its part of a tensor."""
    expected = own_shape(shape, cut, mesh)
    if part.shape != expected:
        raise ShapeError("place", f"a part must have shape {expected}, got {part.shape}")
    return _parts(part, shape, cut, mesh)


def whole_array(data: Any) -> Any:
    """The whole of what ranks hold parts of, where these are; all of them ask for it together."""
    if type(data) is not Parts:
        return data
    found = _whole_on_host(data)
    return found if data.device is CPU else hooks.copy_to(found, data.device)


def _whole_on_host(data: Parts) -> Any:
    x, home = on_host(data.part), home_of(data.cut)
    if home is not None:
        if not is_home(data.cut, data.mesh, world().rank):
            x = np.zeros(part_shape(data.shape, data.cut, data.mesh), data.dtype)
        x = ops.broadcast.eval(x, axis=home[0], root=home[1], mesh=data.mesh)
    for dim, axes in enumerate(without_home(data.cut)):
        if axes:
            x = ops.all_gather.eval(x, axis=plain_axes(axes), dim=dim, mesh=data.mesh)
        if STRIPES in axes:
            x = _in_order(x, dim, axes, data.mesh)
    if x.shape != data.shape:
        x = x[tuple([slice(0, s) for s in data.shape])]
    return np.array(x, order="C")


def _in_order(x: Any, dim: int, axes: str, mesh: str) -> Any:
    """What ranks have of a dimension in stripes, one behind the other, in its own order."""
    ranks = members("place", mesh, plain_axes(axes), world().rank)
    found = np.concatenate([indices_of(x.shape[dim], axes, mesh, rank) for rank in ranks])
    return np.take(x, np.argsort(found), axis=dim)


@public
def held_bytes(tensors: Iterable[Tensor]) -> int:
    """The bytes that this rank holds of tensors: of those that are placed, its part.

    >>> import weft
    >>> from weft import parallel as par
    >>> def program():
    ...     x = weft.ones(8)
    ...     return par.held_bytes([x, par.place(x, par.P("data"), par.mesh(data=2))])
    >>> par.simulate(program, 2)
    [48, 48]
    """
    datas: list[Any] = [t._data for t in tensors]
    return sum((d.part if type(d) is Parts else d).nbytes for d in datas)

"""Checkpoints of a mesh: every rank writes its slices of tensors, and one of them the file that names them.

Slices are files beside it, ``state.safetensors.1f2e3d4c.00003``, with numbers of the save and the rank; the
file with all else is written last, and takes the place of an older one at once. So whoever is killed at
whatever moment leaves the older checkpoint whole. Slices hold parts of global tensors, with where they begin:
any number of processes reads them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np

from weft.base.device import DeviceLike
from weft.base.dtypes import as_dtype, kind, real_dtype
from weft.base.parts import Cut, Parts, home_of, is_home, slices_of
from weft.base.ranks import Meeting, coordinates, world
from weft.base.records import NamedTuple
from weft.errors import ParallelError
from weft.io.layout import Array, Problem, parse_json, read_file, write_file
from weft.tensor.moving import moved
from weft.tensor.tensor import Tensor, wrap

_SUFFIX = re.compile(r"\.[0-9a-f]{8}\.[0-9]{5}")
Ranges = tuple[slice, ...]
# From the shape of a tensor and how it was cut to the ranges of it that are wanted and what makes a tensor of
# them; None for all of it.
Place = Callable[[tuple[int, ...], Cut], tuple[Ranges, Callable[[Array], Tensor]] | None]


# Writing


def save_slices(
    path: str, arrays: Mapping[str, Array], placed: Mapping[str, Parts], metadata: Mapping[str, str]
) -> None:
    """Write arrays that all ranks hold and their slices of others; all ranks call it together."""
    here = world()
    token = os.urandom(4)
    if here.size > 1:
        token = _meet("save", np.frombuffer(token, np.uint8))[0].tobytes()
    own = f"{path}.{token.hex()}.{here.rank:05d}"
    mine = {name: _own_slice(data) for name, data in placed.items() if here.rank in _writers(data)}
    slices = (lambda: write_file(own, mine, "slices", {})) if mine else (lambda: None)
    _together("write its slices", slices, [own], named=False)
    listed = json.dumps({name: _listed(data, path, token.hex()) for name, data in placed.items()})
    more = {**metadata, "weft.slices": listed} if placed else metadata
    last = (lambda: write_file(path, arrays, "tree", more)) if here.rank == 0 else (lambda: None)
    _together("write the file", last, [own], named=True)
    if here.rank == 0:
        remove_slices(path, keep=token.hex())


def _meet(what: str, word: Array) -> Array:
    here = world()
    return here.group(tuple(range(here.size))).gather(Meeting("save", "", what), word)


def _together(what: str, write: Callable[[], None], made: Sequence[str], *, named: bool) -> None:
    """Write, and go on if all ranks could; else take back what was made, and raise on all of them.

    Where ranks could not hear of each other, as one was ahead and has raised, what was made is taken back
    too, unless it may be named by a file that another rank has written.
    """
    error: BaseException | None = None
    try:
        write()
    except Exception as found:
        error = found
    here = world()
    failed = [int(error is not None)]
    try:
        if here.size > 1:
            failed = [int(word[0]) for word in _meet(what, np.array([error is not None], np.uint8))]
    except BaseException:
        if not named:
            _take_back(made)
        raise
    if not any(failed):
        return
    _take_back(made)
    if error is not None:
        raise error
    raise ParallelError("save", f"all ranks must {what}, got an error on rank {failed.index(1)}")


def _take_back(made: Sequence[str]) -> None:
    for path in made:
        with suppress(OSError):
            os.unlink(path)


def _own_slice(data: Parts) -> Array:
    """The elements of this rank, without what is padded."""
    ranges = slices_of(data.shape, data.cut, data.mesh, world().rank)
    own = data.part[tuple([slice(0, r.stop - r.start) for r in ranges])]
    return _as_reals(np.ascontiguousarray(own))


def _as_reals(array: Array) -> Array:
    if kind(array.dtype) != "c":
        return array
    return array.view(real_dtype(array.dtype)).reshape(*array.shape, 2)


def _writers(data: Parts) -> list[int]:
    """The ranks that write a tensor: of those that hold the same part, the first."""
    home = home_of(data.cut)
    used = {name for axes in data.cut for name in axes.split(",")} | ({home[0]} if home else set())
    ranks = [r for r in range(world().size) if is_home(data.cut, data.mesh, r)]
    return [r for r in ranks if not any(at for n, at in coordinates(data.mesh, r).items() if n not in used)]


def _listed(data: Parts, path: str, token: str) -> dict[str, Any]:
    pieces = []
    for rank in _writers(data):
        ranges = slices_of(data.shape, data.cut, data.mesh, rank)
        file = f"{os.path.basename(path)}.{token}.{rank:05d}"
        pieces.append({"file": file, "ranges": [[r.start, r.stop] for r in ranges]})
    return {"dtype": data.dtype.name, "shape": list(data.shape), "cut": list(data.cut), "pieces": pieces}


def remove_slices(path: str, keep: str = "") -> None:
    """Remove the slices beside a path, but for those of one save."""
    directory, name = os.path.split(path)
    with suppress(OSError), os.scandir(directory or ".") as entries:
        for entry in entries:
            rest = entry.name[len(name) :] if entry.name.startswith(name) else ""
            if _SUFFIX.fullmatch(rest) and not (keep and rest.startswith(f".{keep}.")):
                with suppress(OSError):
                    os.unlink(entry.path)


# Reading


class _Listed(NamedTuple):
    """What the file says of a tensor in slices."""

    dtype: Any
    shape: tuple[int, ...]
    cut: Cut
    pieces: tuple[tuple[str, Ranges], ...]


class Slices:
    """The tensors of a checkpoint that are in slices.

    Args:
        metadata: of the file that names them.
        problem: makes errors about it.
        device: where tensors go.
        place: which part to take of each; without, all of it.
    """

    def __init__(
        self, metadata: Mapping[str, str], problem: Problem, device: DeviceLike | None, place: Place | None
    ) -> None:
        self._problem, self._device, self._place = problem, device, place
        found = parse_json(metadata["weft.slices"], "the list of slices", problem)
        if not isinstance(found, dict):
            raise problem("the list of slices must be one of names, got something else")
        self._listed = {name: self._checked(name, item) for name, item in found.items()}
        self._files: dict[str, Mapping[str, Array]] = {}
        self._made: dict[str, Tensor] = {}

    def tensor(self, note: Any) -> Tensor:
        """The tensor that a note in the tree of the file stands for."""
        name = note.get("name") if isinstance(note, dict) else None
        if not isinstance(name, str) or name not in self._listed:
            raise self._problem(f"slices must be listed, got none of {name!r}")
        if name not in self._made:
            self._made[name] = self._make(name, self._listed[name])
        made = self._made[name]
        return made.requires_grad_() if note.get("grad") is True and kind(made.dtype) in "fc" else made

    def _checked(self, name: str, item: Any) -> _Listed:
        """What is listed of a tensor, of which nothing is believed: names of files are names beside."""
        try:
            dtype = as_dtype(str(item["dtype"]))
            shape = tuple([_size(s) for s in item["shape"]])
            cut = tuple([str(axes) for axes in item["cut"]])
            own = os.path.basename(self._problem.path)
            pieces = []
            for piece in item["pieces"]:
                file, ranges = str(piece["file"]), [slice(_size(a), _size(b)) for a, b in piece["ranges"]]
                if len(ranges) != len(shape) or not all(
                    r.stop <= s for r, s in zip(ranges, shape, strict=True)
                ):
                    raise ValueError
                pieces.append((self._file(own, file), tuple(ranges)))
            if len(cut) != len(shape):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise self._problem(f"the slices of {name!r} must be listed as weft.save does") from None
        total = sum(prod(max(r.stop - r.start, 0) for r in ranges) for _, ranges in pieces)
        if total != prod(shape):
            raise self._problem(f"the slices of {name!r} must make {prod(shape)} elements, got {total}")
        return _Listed(dtype, shape, cut, tuple(pieces))

    def _file(self, own: str, file: str) -> str:
        """The name of a file of slices: it may have been given another one, with all of them."""
        found = _SUFFIX.search(file)
        if found is None or found.end() != len(file) or os.sep in file or "/" in file:
            raise ValueError
        return own + found[0]

    def _make(self, name: str, listed: _Listed) -> Tensor:
        wanted = None if self._place is None else self._place(listed.shape, listed.cut)
        ranges = tuple([slice(0, s) for s in listed.shape]) if wanted is None else wanted[0]
        out = np.empty([r.stop - r.start for r in ranges], listed.dtype)
        for file, there in listed.pieces:
            both = [(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(ranges, there, strict=True)]
            if any(lo >= hi for lo, hi in both):
                continue
            piece = self._piece(file, name, listed, there)
            to = tuple([slice(lo - a.start, hi - a.start) for (lo, hi), a in zip(both, ranges, strict=True)])
            of = tuple([slice(lo - b.start, hi - b.start) for (lo, hi), b in zip(both, there, strict=True)])
            out[to] = piece[of]
        return moved(wrap(out), self._device) if wanted is None else wanted[1](out)

    def _piece(self, file: str, name: str, listed: _Listed, ranges: Ranges) -> Array:
        if file not in self._files:
            path = os.path.join(os.path.dirname(self._problem.path), file)
            try:
                self._files[file] = read_file(self._problem.op, path, mmap=True, verify=True).arrays
            except FileNotFoundError:
                raise self._problem(f"its slices must be beside it, got no {file}") from None
        array = self._files[file].get(name)
        if array is not None and kind(listed.dtype) == "c" and array.ndim:
            array = np.ascontiguousarray(array).view(listed.dtype).reshape(array.shape[:-1])
        shape = tuple([r.stop - r.start for r in ranges])
        if array is None or array.shape != shape or array.dtype != listed.dtype:
            raise self._problem(f"{file} must hold {shape} of {name!r}, got something else")
        return array


def _size(x: Any) -> int:
    if type(x) is not int or not 0 <= x < 2**62:
        raise ValueError
    return x

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

from weft.base.concrete import on_host
from weft.base.device import DeviceLike
from weft.base.dtypes import as_dtype, kind, real_dtype
from weft.base.parts import Cut, Parts, Ranges, home_of, is_home, pieces_of, plain_axes
from weft.base.ranks import Meeting, coordinates, world
from weft.base.records import NamedTuple
from weft.errors import ParallelError
from weft.io.layout import Array, Problem, parse_json, read_file, write_file
from weft.tensor.moving import moved
from weft.tensor.tensor import Tensor, wrap

_AXIS = r"([1-9][0-9]{0,8}\*)?[^\W\d]\w*(:[0-9]{1,9})?"
_CUT = re.compile(rf"({_AXIS}(,{_AXIS})*)?")
_SUFFIX = re.compile(r"\.[0-9a-f]{8}\.[0-9]{5}")
Pieces = Sequence[tuple[Ranges, Ranges]]  # ranges of a tensor, and where they are in a part of it
# From the shape of a tensor and how it was cut to what is wanted of it, and what makes a tensor of that; None
# for all of it.
Place = Callable[[tuple[int, ...], Cut], tuple[Pieces, Callable[[Array], Tensor]] | None]


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
    pieces = pieces_of(data.shape, data.cut, data.mesh, world().rank)
    own = on_host(data.part)[tuple([slice(0, n) for n in _extent(pieces)])]
    return _as_reals(np.ascontiguousarray(own))


def _extent(pieces: Pieces) -> tuple[int, ...]:
    """The sizes of what pieces make."""
    return tuple([max(r.stop for r in runs) for runs in zip(*[here for _, here in pieces], strict=True)])


def _as_reals(array: Array) -> Array:
    if kind(array.dtype) != "c":
        return array
    return array.view(real_dtype(array.dtype)).reshape(*array.shape, 2)


def _writers(data: Parts) -> list[int]:
    """The ranks that write a tensor: of those that hold the same part, the first."""
    home = home_of(data.cut)
    used = {name for axes in data.cut for name in plain_axes(axes).split(",")} | (
        {home[0]} if home else set()
    )
    ranks = [r for r in range(world().size) if is_home(data.cut, data.mesh, r)]
    return [r for r in ranks if not any(at for n, at in coordinates(data.mesh, r).items() if n not in used)]


def _listed(data: Parts, path: str, token: str) -> dict[str, Any]:
    pieces = []
    for rank in _writers(data):
        file = f"{os.path.basename(path)}.{token}.{rank:05d}"
        found = pieces_of(data.shape, data.cut, data.mesh, rank)
        for there, here in found:
            piece = {"file": file, "ranges": [[r.start, r.stop] for r in there]}
            if len(found) > 1:  # else it is all that the file has of the tensor
                piece["within"] = [[r.start, r.stop] for r in here]
            pieces.append(piece)
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


class _Piece(NamedTuple):
    """A file, the ranges of a tensor that it has, and where they are in what it holds, None for all."""

    file: str
    ranges: Ranges
    within: Ranges | None


class _Listed(NamedTuple):
    """What the file says of a tensor in slices."""

    dtype: Any
    shape: tuple[int, ...]
    cut: Cut
    pieces: tuple[_Piece, ...]


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
            pieces = [self._checked_piece(piece, shape) for piece in item["pieces"]]
            if len(cut) != len(shape) or not all(map(_CUT.fullmatch, cut)):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise self._problem(f"the slices of {name!r} must be listed as weft.save does") from None
        total = sum(prod(_lengths(piece.ranges)) for piece in pieces)
        if total != prod(shape):
            raise self._problem(f"the slices of {name!r} must make {prod(shape)} elements, got {total}")
        return _Listed(dtype, shape, cut, tuple(pieces))

    def _checked_piece(self, piece: Any, shape: tuple[int, ...]) -> _Piece:
        ranges = _checked_ranges(piece["ranges"])
        if len(ranges) != len(shape) or not all(r.stop <= s for r, s in zip(ranges, shape, strict=True)):
            raise ValueError
        within = _checked_ranges(piece["within"]) if "within" in piece else None
        if within is not None and _lengths(within) != _lengths(ranges):
            raise ValueError
        return _Piece(self._file(str(piece["file"])), ranges, within)

    def _file(self, file: str) -> str:
        """The name of a file of slices: it may have been given another one, with all of them."""
        own, found = os.path.basename(self._problem.path), _SUFFIX.search(file)
        if found is None or found.end() != len(file) or os.sep in file or "/" in file:
            raise ValueError
        return own + found[0]

    def _make(self, name: str, listed: _Listed) -> Tensor:
        wanted = None if self._place is None else self._place(listed.shape, listed.cut)
        everything = tuple([slice(0, s) for s in listed.shape])
        pieces = [(everything, everything)] if wanted is None else wanted[0]
        out = np.empty(_extent(pieces), listed.dtype)
        for ranges, here in pieces:
            for piece in listed.pieces:
                self._copy(out[here], ranges, name, listed, piece)
        return moved(wrap(out), self._device) if wanted is None else wanted[1](out)

    def _copy(self, out: Array, ranges: Ranges, name: str, listed: _Listed, piece: _Piece) -> None:
        """Write to an array, which holds ranges of a tensor, what a piece has of them."""
        pairs = list(zip(ranges, piece.ranges, strict=True))
        both = [(max(a.start, b.start), min(a.stop, b.stop)) for a, b in pairs]
        if any(lo >= hi for lo, hi in both):
            return
        array = self._array(name, listed, piece)
        to = tuple([slice(lo - a.start, hi - a.start) for (lo, hi), (a, _) in zip(both, pairs, strict=True)])
        of = tuple([slice(lo - b.start, hi - b.start) for (lo, hi), (_, b) in zip(both, pairs, strict=True)])
        out[to] = array[of]

    def _array(self, name: str, listed: _Listed, piece: _Piece) -> Array:
        file, shape = piece.file, _lengths(piece.ranges)
        if file not in self._files:
            path = os.path.join(os.path.dirname(self._problem.path), file)
            try:
                self._files[file] = read_file(self._problem.op, path, mmap=True, verify=True).arrays
            except FileNotFoundError:
                raise self._problem(f"its slices must be beside it, got no {file}") from None
        array = self._files[file].get(name)
        if array is not None and kind(listed.dtype) == "c" and array.ndim:
            array = np.ascontiguousarray(array).view(listed.dtype).reshape(array.shape[:-1])
        if array is not None and piece.within is not None and array.ndim == len(shape):
            array = array[piece.within]
        if array is None or array.shape != shape or array.dtype != listed.dtype:
            raise self._problem(f"{file} must hold {shape} of {name!r}, got something else")
        return array


def _checked_ranges(ranges: Any) -> Ranges:
    return tuple([slice(_size(a), _size(b)) for a, b in ranges])


def _lengths(ranges: Ranges) -> tuple[int, ...]:
    return tuple([max(r.stop - r.start, 0) for r in ranges])


def _size(x: Any) -> int:
    if type(x) is not int or not 0 <= x < 2**62:
        raise ValueError
    return x

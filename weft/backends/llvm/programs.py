"""Whole compiled programs on disk: machine code that a later process runs without any compiler.

A program is kept as an image (``elf``), its constants, and what calls need to know of it (``Plan``). The
entry from Python and the pool of threads are an image of their own, for all programs. What is read is checked
by the cache; whatever is not as expected counts as not there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from weft.backends.backend import Array, Arrays, Executable
from weft.backends.llvm.blas import NAMES as BLAS
from weft.backends.llvm.blas import blas_address
from weft.backends.llvm.cache import Cache, default_cache
from weft.backends.llvm.code import MAIN, Code, lock, shared
from weft.backends.llvm.entry import PYTHON, make_enter, python_address
from weft.backends.llvm.image import Image, load_image, process_address
from weft.backends.llvm.interrupts import StopPlaces, stop_places, stoppable, stored_error
from weft.backends.llvm.plan import Facts, Frame, Plan
from weft.backends.llvm.pool import FUNCTIONS as POOL
from weft.backends.llvm.pool import pool_address
from weft.backends.llvm.prepared import Preparation, PreparedExecutable
from weft.backends.llvm.trust import distrust
from weft.base.aligned import empty_aligned
from weft.base.digest import digest
from weft.base.dtypes import DTYPES
from weft.errors import DeviceError

if TYPE_CHECKING:
    from weft.backends.capabilities import Key, Note, Shapes, StoredProgram
    from weft.backends.llvm.run import NativeExecutable

_SHARED = "shared"  # the key of the entry and the pool
_PREPARE = "prepare"  # the end of the key of what computes what a program needs of weights
_SHARED_NAMES = ("weft_enter", "weft_poll", *POOL)
_DTYPES = {d.name: d for d in DTYPES}
_NO_RECORDS = np.zeros(0, np.int64)


class NativeProgram:
    """A program from disk, called with the arrays of its inputs.

    Attributes:
        note: what was stored with it.
        plans: what there is for calls, by the shapes of the arrays.
    """

    def __init__(
        self,
        code: Code,
        plans: Mapping[Shapes, Plan],
        note: Note,
        stops: StopPlaces,
        preparation: Preparation | None = None,
    ) -> None:
        self.note = note
        self.plans = dict(plans)
        self._code = code
        self._stops = stops
        self._preparation = preparation
        self._enter = stoppable(make_enter(), stops) if stops else make_enter()

    def run(self, arrays: Arrays, plan: Plan) -> list[Array] | None:
        """The results; None if the arrays do not fit as they are, or the run fails."""
        if self._preparation is not None:
            given = self._preparation.add(arrays)
            if given is None:
                return None
            arrays = given
        try:
            frame = plan.frames.pop()
        except IndexError:
            frame = Frame(plan)
        if not plan.keeps_arena:
            frame.take_arena()
        recipe = plan.recipe
        outputs = recipe.new_outputs() if recipe.large else recipe.blank.copy()
        failed = self._enter(arrays, outputs, frame.words, recipe.words)
        plan.free(frame)
        if failed - 1 in self._stops:
            raise stored_error(*self._stops[failed - 1])
        return None if failed else outputs


class Programs:
    """The programs on disk, as ``weft.backends.capabilities.ProgramStore`` says."""

    @property
    def directory(self) -> str | None:
        """Where the cache of this process is."""
        return default_cache().directory

    @property
    def distrust(self) -> str | None:
        """Why the cache is not used; None where it is, or is yet to be made."""
        directory = default_cache().directory
        return None if directory is None or not os.path.exists(directory) else distrust(directory)

    def key(self, parts: Sequence[str]) -> Key | None:
        """Parts of a key with all that a program depends on besides; None where none are kept."""
        from weft.backends.llvm.fingerprint import fingerprint

        machine = fingerprint()
        return None if machine is None else (*machine, *parts)

    def digest(self, data: memoryview) -> str:
        """What stands for data in a key."""
        return digest(data).hex()

    def find(self, key: Key) -> NativeProgram | None:
        """The program that was kept under a key, ready to run."""
        cache = default_cache()
        try:
            return _found(key, cache)
        except (ValueError, TypeError, KeyError, IndexError, DeviceError):  # other content, or no library
            return None

    def shapes(self, run: Executable) -> list[Shapes]:
        """The shapes that a program has run on; none of one that cannot be kept."""
        if not getattr(run, "objects", ()):
            return []
        return [shapes for shapes, _ in cast("NativeExecutable", run).known_plans()]

    def keep(self, key: Key, run: Executable, note: Note, before: StoredProgram | None) -> bool:
        """Keep a program that has been run, with what was kept for other shapes; whether it could be."""
        plans = {} if before is None else before.plans
        if not isinstance(run, PreparedExecutable):
            return _store(key, cast("NativeExecutable", run), note, plans)
        if not _store((*key, _PREPARE), run.prepare, {}, {}):
            return False
        return _store(key, run.main, note, plans, run.numbers)


# Storing


def _store(
    key: Key,
    run: NativeExecutable,
    note: Note,
    before: Mapping[Shapes, Plan],
    prepared: Sequence[int] | None = None,
) -> bool:
    cache, program = default_cache(), run.program
    plans = {**before, **dict(run.known_plans())}
    told = any(plan.told for plan in plans.values())
    if not run.objects or program.hosts or program.heap or not plans or told:
        return False
    image = _linked(run.objects, [MAIN])
    if image is None or not all(_is_known(name) for name in image.imports) or not _store_shared(cache):
        return False
    constants = [np.require(c, requirements=("C", "A")) for c in program.constants]
    described = {
        "facts": [program.inputs, program.outputs, len(program.main.buffers), list(program.main.sizes)],
        "inputs": [v.type.dtype.name for v in run.graph.inputs],
        "results": [v.type.dtype.name for v in run.graph.results],
        "plans": [[shapes, p.shapes, p.arena, p.sizes] for shapes, p in plans.items()],
        "constants": [[c.dtype.name, c.shape] for c in constants],
        "note": note,
        "stops": [[number, *told] for number, told in stop_places(program).items()],
        "prepared": prepared,
    }
    cache.put(key, _packed(image, described, constants))
    return True


def _store_shared(cache: Cache) -> bool:
    """Keep the entry and the pool, unless they are there."""
    key = _shared_key()
    if key is None:
        return False
    if cache.get(key) is None:
        from weft.backends.llvm.engine import default_engine
        from weft.backends.llvm.entry import enter_source
        from weft.backends.llvm.pool import pool_source

        with lock:
            objects = [default_engine().object_code(source) for source in (enter_source(), pool_source())]
        image = _linked(objects, _SHARED_NAMES)
        if image is None:
            return False
        cache.put(key, _packed(image, {}, ()))
    return True


def _linked(objects: Sequence[bytes], wanted: Sequence[str]) -> Image | None:
    from weft.backends.llvm.elf import UnknownObjectError, make_image

    try:
        return make_image(objects, wanted)
    except UnknownObjectError:
        return None


def _shared_key() -> tuple[str, ...] | None:
    from weft.backends.llvm.fingerprint import fingerprint

    found = fingerprint()
    return None if found is None else (_SHARED, *found)


def _packed(image: Image, described: Mapping[str, Any], constants: Sequence[Array]) -> bytes:
    """One row of bytes: a length, JSON, the image, constants."""
    open_parts = [image.fixed, image.exports, image.imports, image.rebased, len(image.data)]
    head = json.dumps({"image": open_parts, **described}, separators=(",", ":")).encode()
    return b"".join([len(head).to_bytes(8, "little"), head, image.data, *[c.tobytes() for c in constants]])


# Reading


def _found(key: Key, cache: Cache) -> NativeProgram | None:
    """A program that was kept, with the one that prepares weights for it."""
    data = cache.get(key)
    return None if data is None else _loaded(data, key, cache)


def _prepared(numbers: Sequence[int], key: Key, cache: Cache) -> Preparation | None:
    """What computes what a program needs of weights; None if it is not there."""
    program = _found((*key, _PREPARE), cache)
    if program is None:
        return None
    (plan,) = program.plans.values()
    return Preparation(numbers, lambda arrays: program.run(arrays, plan))


def _loaded(data: bytes, key: Key, cache: Cache) -> NativeProgram | None:
    image, head, rest = _unpacked(data)
    with lock:
        codes = load_image(image, _address) if _load_shared(cache) else None
    if codes is None:
        return None
    numbers = head["prepared"]
    preparation = None if numbers is None else _prepared(numbers, key, cache)
    if numbers is not None and preparation is None:
        return None
    inputs, outputs, buffers, sizes = head["facts"]
    constants = _constants(head["constants"], rest)
    given = [_DTYPES[name] for name in head["inputs"]]
    made = [_DTYPES[name] for name in head["results"]]
    stops = {int(number): (str(op), (str(file), int(line))) for number, op, (file, line) in head["stops"]}
    plans = {}
    for shapes, results, arena, values in head["plans"]:
        key_shapes = tuple(map(tuple, shapes))
        facts = Facts(inputs, outputs, buffers, tuple(sizes), arena, stops=bool(stops))
        specs = list(zip(key_shapes, given, strict=True)), list(zip(map(tuple, results), made, strict=True))
        plans[key_shapes] = Plan(facts, codes[MAIN].address, constants, _NO_RECORDS, *specs, values)
    return NativeProgram(codes[MAIN], plans, head["note"], stops, preparation)


def _unpacked(data: bytes) -> tuple[Image, dict[str, Any], memoryview]:
    end = 8 + int.from_bytes(data[:8], "little")
    head = json.loads(data[8:end])
    fixed, exports, imports, rebased, size = head["image"]
    return (
        Image(data[end : end + size], fixed, exports, imports, rebased),
        head,
        memoryview(data)[end + size :],
    )


def _constants(described: Sequence[Any], data: memoryview) -> list[Array]:
    """Constants, each in memory that is aligned."""
    found, at = [], 0
    for name, shape in described:
        dtype = _DTYPES[name]
        size = prod(shape) * dtype.itemsize
        array = empty_aligned(shape, dtype)
        array.reshape(-1).view(np.uint8)[:] = np.frombuffer(data[at : at + size], np.uint8)
        found.append(array)
        at += size
    return found


def _load_shared(cache: Cache) -> bool:
    """Have the entry and the pool from disk, unless this process has them from there already."""
    if shared:
        return True
    key = _shared_key()
    data = None if key is None else cache.get(key)
    codes = None if data is None else load_image(_unpacked(data)[0], _address)
    if codes is None or not codes.keys() >= {*_SHARED_NAMES}:
        return False
    shared.update(codes)
    return True


def _is_known(name: str) -> bool:
    return name in POOL or name in BLAS or process_address(name) is not None


def _address(name: str) -> int | None:
    """Where something is that programs, the entry and the pool call."""
    if name in PYTHON:
        return python_address(name)
    if name in BLAS:
        return blas_address(name)
    if name in POOL:
        return pool_address(name)
    return process_address(name)

"""A card in NumPy: runs the very PTX that ships, a block at a time, its threads side by side as lanes.

Of the threads that can go on, those with the least program counter do. Every access must be inside of memory
that was allocated, and aligned; two threads that reach a byte of shared memory between the same barriers, one
of them writing, are an error. It is for launches of a few blocks: an instruction takes some microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.backends.cuda.ptx_text import Entry, Instruction, literal, read_entries
from weft.base.dtypes import bfloat16

_ROOM = 1 << 22  # bytes of the card
_ZONE = 256  # before and after what is allocated


class RaceError(AssertionError):
    """Two threads reach one byte of shared memory with nothing between them."""


def dtype_of(name: str) -> Any:
    """The dtype of a type of PTX."""
    if name == "pred":
        return np.dtype(bool)
    if name == "bf16":
        return np.dtype(bfloat16)
    kind = {"b": "u", "u": "u", "s": "i", "f": "f"}[name[0]]
    return np.dtype(f"{kind}{int(name[1:]) // 8}")


class EmulatedCard:
    """Memory, and launches; it stands for ``tests.gpu.plain_driver.Card``."""

    def __init__(self) -> None:
        self.memory = np.full(_ROOM, 0xA5, np.uint8)
        self.owned = np.zeros(_ROOM, bool)
        self._next = _ZONE
        self.launches = 0

    def load(self, ptx: str) -> dict[str, Entry]:
        """A module of PTX."""
        return read_entries(ptx)

    def function(self, module: dict[str, Entry], name: str) -> Entry:
        """An entry of a module."""
        return module[name]

    def unload(self, module: Any) -> None:
        """Nothing is held."""

    def allocate(self, size: int) -> int:
        """Memory of the card, with zones around it."""
        at = self._next
        self._next += -(-(size + _ZONE) // 256) * 256
        assert self._next <= _ROOM, "the emulated card is full"
        self.owned[at : at + size] = True
        return at

    def free(self, pointer: int) -> None:
        """Memory is not used again."""

    def put(self, pointer: int, array: Any) -> None:
        """Copy an array to the card."""
        bytes_ = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.memory[pointer : pointer + bytes_.size] = bytes_

    def get(self, pointer: int, array: Any) -> None:
        """Copy from the card into an array."""
        array.reshape(-1).view(np.uint8)[:] = self.memory[pointer : pointer + array.nbytes]

    def copy(self, target: int, source: int, count: int) -> None:
        """Bytes from one place to another."""
        self.memory[target : target + count] = self.memory[source : source + count]

    def wait(self) -> None:
        """All is done already."""

    def launch(self, entry: Entry, grid: int, threads: int, shared: int, arguments: Sequence[int]) -> None:
        """Run a kernel, its blocks in any order."""
        self.launches += 1
        for number in np.random.default_rng(self.launches).permutation(grid).tolist():
            with np.errstate(all="ignore"):
                _Block(self, entry, number, threads, arguments, shared).run()


class _Block:
    """One block of a launch."""

    def __init__(
        self, card: EmulatedCard, entry: Entry, number: int, threads: int, args: Sequence[int], asked: int
    ) -> None:
        self.card, self.entry, self.number, self.threads = card, entry, number, threads
        assert len(args) == entry.words
        self.arguments = [a % 2**64 for a in args]
        self.symbols = {**entry.symbols, **{name: 8 * i for name, i in entry.parameters.items()}}
        self.registers: dict[str, Any] = {}
        self.room = entry.shared + asked
        self.shared = np.full(self.room + 16, 0xA5, np.uint8)
        self.local = np.full((threads, entry.local + 16), 0xA5, np.uint8)
        self.counters = np.zeros(threads, np.int64)
        self.done, self.waiting = np.zeros(threads, bool), np.zeros(threads, bool)
        self.written, self.seen = np.full(self.shared.size, -1), np.full(self.shared.size, -1)
        self.came_early = any(list(s.opcode[:2]) == ["griddepcontrol", "wait"] for s in entry.code)

    def run(self) -> None:
        """All threads to their end."""
        while not self.done.all():
            free = ~self.done & ~self.waiting
            if not free.any():
                self._pass_barrier()
                continue
            at = self.counters[free].min()
            self._step(self.entry.code[at], free & (self.counters == at))

    def _pass_barrier(self) -> None:
        assert len(set(self.counters[~self.done])) == 1, "threads wait at different barriers"
        assert not self.done.any(), "a thread has ended, and others wait for it"
        self.counters += 1
        self.waiting[:] = False
        self.written[:], self.seen[:] = -1, -1

    def _step(self, s: Instruction, active: Any) -> None:
        name = s.opcode[0]
        if name == "bar":
            self.waiting |= active
            return
        self.counters[active] += 1
        if name == "griddepcontrol":
            self.came_early = self.came_early and s.opcode[1] != "wait"
            return
        if s.predicate:
            active = active & (self.value(s.predicate, np.dtype(bool)) != s.negated)
        if name == "bra":
            self.counters[active] = self.entry.labels[s.operands[0]]
        elif name in ("ret", "exit"):
            self.done |= active
        elif name in ("ld", "st", "atom"):
            self._access(s, active)
        else:
            self.set(s.operands[0], self._computed(s), active)

    # Registers

    def value(self, x: str, dtype: Any) -> Any:
        """An operand in all threads."""
        if x == "%tid.x":
            return np.arange(self.threads).astype(dtype)
        if x in ("%ctaid.x", "%ntid.x"):
            return np.full(self.threads, self.number if x == "%ctaid.x" else self.threads, dtype)
        if x in self.symbols:
            return np.full(self.threads, self.symbols[x], dtype)
        if x.startswith("%"):
            held = self.registers.get(x, np.zeros(self.threads, np.uint64))
            return held.astype(bool) if dtype.kind == "b" else _bits(held.astype(np.uint64), dtype)
        return np.full(self.threads, literal(x, np.dtype("u1") if dtype.kind == "b" else dtype)).astype(dtype)

    def set(self, x: str, value: Any, active: Any) -> None:
        """Give a register, or several in braces, a value in the active threads; two predicates theirs."""
        if "|" in x:
            for name, part in zip(x.split("|"), value.T, strict=True):
                self.set(name.strip(), part, active)
            return
        if x.startswith("{"):
            names = [n.strip() for n in x.strip("{}").split(",")]
            whole = value.astype(np.uint64)
            size = 8 * value.dtype.itemsize // len(names)
            for i, name in enumerate(names):
                part = (whole >> np.uint64(size * i)) & np.uint64((1 << size) - 1)
                self._set_one(name, part, active)
            return
        if value.dtype != bool:
            value = np.ascontiguousarray(value).view(f"u{value.dtype.itemsize}")
        self._set_one(x, value.astype(np.uint64), active)

    def _set_one(self, name: str, value: Any, active: Any) -> None:
        old = self.registers.get(name, np.zeros(self.threads, np.uint64))
        self.registers[name] = np.where(active, value, old)

    # Memory

    def _access(self, s: Instruction, active: Any) -> None:
        if "param" in s.opcode:
            places = self._address(s.operands[1]) // 8
            self.set(s.operands[0], np.array(self.arguments, np.uint64)[places], active)
        elif s.opcode[0] == "atom":
            self._exchange(s, active)
        else:
            self._move(s, active)

    def _address(self, x: str) -> Any:
        base, _, offset = x.strip("[]").replace(" ", "").partition("+")
        return self.value(base, np.dtype(np.int64)) + int(offset or 0)

    def _move(self, s: Instruction, active: Any) -> None:
        assert not self.came_early or "global" not in s.opcode, "memory is not ready before the wait"
        load, size = s.opcode[0] == "ld", dtype_of(s.opcode[-1]).itemsize
        place, held = (s.operands[1], s.operands[0]) if load else s.operands[:2]
        names = [n.strip() for n in held.strip("{}").split(",")]
        base, lanes = self._address(place), np.flatnonzero(active)
        assert (base[lanes] % (size * len(names)) == 0).all(), f"misaligned: {s.text}"
        for i, name in enumerate(names):
            where = base[lanes, None] + (i * size + np.arange(size))
            memory, where = self._memory(s, where, lanes, write=not load)
            if load:
                found = np.zeros((self.threads, size), np.uint8)
                found[lanes] = memory[where]
                signed = s.opcode[-1].startswith("s")
                number = found.view(f"{'i' if signed else 'u'}{size}")[:, 0]
                self.set(name, number.astype(np.int64) if signed else number, active)
            else:
                bytes_ = self.value(name, np.dtype(f"u{size}")).view(np.uint8).reshape(self.threads, size)
                memory[where] = bytes_[lanes]

    def _memory(self, s: Instruction, where: Any, lanes: Any, *, write: bool) -> tuple[Any, Any]:
        """The memory that bytes are in, and the places there; they must be there."""
        if "shared" in s.opcode:
            assert ((where >= 0) & (where < self.room)).all(), f"out of bounds: {s.text}"
            self._note(where.ravel(), np.repeat(lanes, where.shape[1]), write, s)
            return self.shared, where
        if "local" in s.opcode:
            assert ((where >= 0) & (where < self.entry.local)).all(), f"out of bounds: {s.text}"
            return self.local, (lanes[:, None], where)
        assert ((where >= 0) & (where < _ROOM)).all(), f"out of bounds: {s.text}"
        # LLVM may read all of 16 bytes that begin in what is allocated: they are on one page.
        asked = where if write else where - where % 16
        assert self.card.owned[asked].all(), f"not allocated: {s.text}"
        return self.card.memory, where

    def _note(self, places: Any, lanes: Any, write: bool, s: Instruction) -> None:
        """Note who reaches which bytes; another thread that did since the last barrier is an error."""
        other = (self.written[places] >= 0) & (self.written[places] != lanes)
        several = np.bincount(places, minlength=self.seen.size) > 1
        if write:
            other |= (self.seen[places] >= 0) & (self.seen[places] != lanes)
            other |= several[places]
        if other.any():
            raise RaceError(f"byte {places[other][0]} of shared memory in block {self.number}: {s.text}")
        if write:
            self.written[places] = lanes
            return
        known = self.seen[places]
        self.seen[places] = np.where((known >= 0) & (known != lanes), self.threads, lanes)
        self.seen[several] = self.threads  # more than one thread has seen it

    def _exchange(self, s: Instruction, active: Any) -> None:
        """Compare and swap, one thread after the other."""
        assert "cas" in s.opcode, s.text
        dtype = dtype_of(s.opcode[-1])
        places, old = self._address(s.operands[1]), np.zeros(self.threads, dtype)
        expected, new = (self.value(x, dtype) for x in s.operands[2:4])
        for i in np.flatnonzero(active):
            element = self.card.memory[places[i] : places[i] + dtype.itemsize].view(dtype)
            old[i] = element[0]
            if element[0] == expected[i]:
                element[0] = new[i]
        self.set(s.operands[0], old, active)

    # Instructions

    def _computed(self, s: Instruction) -> Any:
        way = _WAYS.get(s.opcode[0])
        if way is None:
            raise NotImplementedError(s.text)
        return way(self, s)

    def args(self, s: Instruction, dtype: Any = None) -> list[Any]:
        """The operands but the first, in the type that the opcode ends with."""
        dtype = dtype or dtype_of(s.opcode[-1])
        return [self.value(x, dtype) for x in s.operands[1:]]


def _bits(held: Any, dtype: Any) -> Any:
    return held.astype(f"u{dtype.itemsize}").view(dtype)


Way = Callable[[_Block, Instruction], Any]


def _shf(block: _Block, s: Instruction) -> Any:
    """Two registers as one of 64 bits, of which 32 are taken."""
    low, high, count = (x.astype(np.uint64) for x in block.args(s, np.dtype(np.uint32)))
    assert s.opcode[2] == "wrap"
    whole, n = high << np.uint64(32) | low, count & np.uint64(31)
    found = whole << n >> np.uint64(32) if s.opcode[1] == "l" else whole >> n
    return found.astype(np.uint32)


def _plain(function: Callable[..., Any]) -> Way:
    def way(block: _Block, s: Instruction) -> Any:
        if s.opcode[-1].endswith("x2"):
            return _in_halves(block, s, function)
        return np.asarray(function(*block.args(s)))

    return way


def _halves(block: _Block, s: Instruction) -> list[Any]:
    """The operands but the first, as pairs of halves."""
    half = dtype_of(s.opcode[-1].removesuffix("x2"))
    return [block.value(o, np.dtype(np.uint32)).view(half).reshape(-1, 2) for o in s.operands[1:]]


def _in_halves(block: _Block, s: Instruction, function: Callable[..., Any]) -> Any:
    """What a function gives of the two halves of each register."""
    args = _halves(block, s)
    return np.ascontiguousarray(function(*args).astype(args[0].dtype)).view(np.uint32)[:, 0]


def _approximate(function: Callable[..., Any]) -> Way:
    """A function that is off by as much as instructions may be that are not exact (PTX ISA, 9.7.3)."""

    def way(block: _Block, s: Instruction) -> Any:
        (x,) = block.args(s)
        if "approx" not in s.opcode:
            return np.asarray(function(x), x.dtype)
        assert x.dtype == np.float32, s.text
        tiny = np.finfo(np.float32).tiny if "ftz" in s.opcode else 0
        read = np.where(np.abs(x) < tiny, np.copysign(0, x), x).astype(np.float64)
        exact = function(read)
        out = np.where(exact == np.round(exact), exact, exact * (1 + 2.0**-22)).astype(np.float32)
        return np.where(np.abs(out) < tiny, np.copysign(np.float32(0), out), out)

    return way


def _mov(block: _Block, s: Instruction) -> Any:
    source = s.operands[1]
    dtype = dtype_of(s.opcode[-1])
    if not source.startswith("{"):
        return block.value(source, dtype)
    names = [n.strip() for n in source.strip("{}").split(",")]
    size = 8 * dtype.itemsize // len(names)
    parts = [block.value(n, np.dtype(f"u{size // 8}")).astype(np.uint64) for n in names]
    whole = sum(part << np.uint64(size * i) for i, part in enumerate(parts))
    return whole.astype(f"u{dtype.itemsize}")


def _cvt(block: _Block, s: Instruction) -> Any:
    to, source = s.opcode[-2], dtype_of(s.opcode[-1])
    x = block.value(s.operands[1], source)
    if to in ("f16x2", "bf16x2"):
        y = block.value(s.operands[2], source)
        return _half(x, to[:-2]).astype(np.uint32) << np.uint32(16) | _half(y, to[:-2]).astype(np.uint32)
    if to == "bf16":
        return _half(x, to)
    target = dtype_of(to)
    rounding = next((o for o in s.opcode if o in _ROUNDINGS), None)
    if rounding is not None:
        x = _ROUNDINGS[rounding](x)
    if x.dtype.kind == "f" and target.kind in "iu":
        limits = np.iinfo(target)
        exact = [min(max(int(v), limits.min), limits.max) if np.isfinite(v) else _edge(v, limits) for v in x]
        return np.array(exact, target)
    if "sat" in s.opcode:
        x = np.clip(x, 0, 1)
    x = x.astype(target)
    return x.astype(np.int64) if target.kind == "i" else x  # a narrow one fills its register


def _half(x: Any, name: str) -> Any:
    """The bits of numbers in half precision."""
    return x.astype(bfloat16 if name == "bf16" else np.float16).view(np.uint16)


def _edge(x: Any, limits: Any) -> int:
    return 0 if np.isnan(x) else int(limits.max if x > 0 else limits.min)


_ROUNDINGS: dict[str, Callable[[Any], Any]] = {
    "rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil,
}  # fmt: skip
_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda x, y: (x == y),
    "ne": lambda x, y: (x != y) & (x == x) & (y == y),
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "equ": lambda x, y: (x == y) | np.isnan(x) | np.isnan(y),
    "neu": lambda x, y: x != y,
    "ltu": lambda x, y: ~(x >= y), "leu": lambda x, y: ~(x > y),
    "gtu": lambda x, y: ~(x <= y), "geu": lambda x, y: ~(x < y),
    "num": lambda x, y: ~(np.isnan(x) | np.isnan(y)),
    "nan": lambda x, y: np.isnan(x) | np.isnan(y),
}  # fmt: skip


def _setp(block: _Block, s: Instruction) -> Any:
    compare = _COMPARED[s.opcode[1]]
    if s.opcode[-1].endswith("x2"):  # two predicates, of the lower half and of the upper one
        return compare(*_halves(block, s)[:2])
    return compare(*block.args(s)[:2])


def _selp(block: _Block, s: Instruction) -> Any:
    dtype = dtype_of(s.opcode[-1])
    x, y = (block.value(o, dtype) for o in s.operands[1:3])
    return np.where(block.value(s.operands[3], np.dtype(bool)), x, y)


def _wider(dtype: Any) -> Any:
    return np.dtype(f"{dtype.kind}{2 * dtype.itemsize}")


def _mul(block: _Block, s: Instruction) -> Any:
    if s.opcode[-1].endswith("x2"):
        return _in_halves(block, s, np.multiply)
    dtype = dtype_of(s.opcode[-1])
    x, y = block.args(s)
    if "wide" in s.opcode:
        return x.astype(_wider(dtype)) * y.astype(_wider(dtype))
    if "hi" in s.opcode:
        pairs = zip(x.tolist(), y.tolist(), strict=True)
        high = [(a * b >> 8 * dtype.itemsize) % (1 << 8 * dtype.itemsize) for a, b in pairs]
        return np.array(high, f"u{dtype.itemsize}").view(dtype)
    return x * y


def _mad(block: _Block, s: Instruction) -> Any:
    dtype = dtype_of(s.opcode[-1])
    x, y = (block.value(o, dtype) for o in s.operands[1:3])
    if "wide" in s.opcode:
        wide = _wider(dtype)
        return x.astype(wide) * y.astype(wide) + block.value(s.operands[3], wide)
    return x * y + block.value(s.operands[3], dtype)


def _fma(block: _Block, s: Instruction) -> Any:
    def once(x: Any, y: Any, z: Any) -> Any:
        wide = np.longdouble if x.dtype == np.float64 else np.float64
        return (x.astype(wide) * y.astype(wide) + z.astype(wide)).astype(x.dtype)

    return _plain(once)(block, s)


def _logical(whole: Callable[..., Any], truth: Callable[..., Any]) -> Way:
    def way(block: _Block, s: Instruction) -> Any:
        return (truth if s.opcode[-1] == "pred" else whole)(*block.args(s))

    return way


def _shift(function: Callable[[Any, Any], Any]) -> Way:
    def way(block: _Block, s: Instruction) -> Any:
        dtype = dtype_of(s.opcode[-1])
        x, n = block.value(s.operands[1], dtype), block.value(s.operands[2], np.dtype(np.uint32))
        bits = 8 * dtype.itemsize
        beyond = x >> np.array(bits - 1, dtype) if function is np.right_shift else np.zeros_like(x)
        return np.where(n >= bits, beyond, function(x, np.minimum(n, bits - 1).astype(dtype)))

    return way


def _div(block: _Block, s: Instruction) -> Any:
    x, y = block.args(s)
    if x.dtype.kind == "f":
        return x / y
    pairs = zip(x.tolist(), y.tolist(), strict=True)
    return np.array([_toward_zero(a, b) if b else -1 for a, b in pairs]).astype(x.dtype)


def _rem(block: _Block, s: Instruction) -> Any:
    x, y = block.args(s)
    pairs = zip(x.tolist(), y.tolist(), strict=True)
    return np.array([a - b * _toward_zero(a, b) if b else a for a, b in pairs]).astype(x.dtype)


def _toward_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _bfe(block: _Block, s: Instruction) -> Any:
    x = block.value(s.operands[1], dtype_of(s.opcode[-1]))
    start, count = (block.value(o, np.dtype(np.uint32)).astype(x.dtype) for o in s.operands[2:4])
    one = np.ones_like(x)
    found = (x >> start) & ((one << count) - one)
    if x.dtype.kind == "i":  # the field's highest bit is its sign
        found = np.where(found >> (count - one) & one == 1, found - (one << count), found)
    return found


def _prmt(block: _Block, s: Instruction) -> Any:
    x, y, how = (block.value(o, np.dtype(np.uint32)).astype(np.uint64) for o in s.operands[1:4])
    both, out = x | y << np.uint64(32), np.zeros(block.threads, np.uint64)
    for i in range(4):
        which = how >> np.uint64(4 * i) & np.uint64(7)
        byte = both >> np.uint64(8) * which & np.uint64(255)
        sign = np.where(byte >> np.uint64(7) == 1, np.uint64(255), np.uint64(0))  # in all bits, if asked for
        byte = np.where(how >> np.uint64(4 * i + 3) & np.uint64(1) == 1, sign, byte)
        out |= byte << np.uint64(8 * i)
    return out.astype(np.uint32)


def _clz(block: _Block, s: Instruction) -> Any:
    (x,) = block.args(s)
    return np.array([8 * x.dtype.itemsize - int(v).bit_length() for v in x], np.uint32)


def _extreme(function: Callable[..., Any], strict: Callable[..., Any]) -> Way:
    def way(block: _Block, s: Instruction) -> Any:
        if s.opcode[-1].endswith("x2"):
            return _in_halves(block, s, function)
        return (strict if "NaN" in s.opcode else function)(*block.args(s))

    return way


_WAYS: dict[str, Way] = {
    "mov": _mov, "cvt": _cvt, "setp": _setp, "selp": _selp, "mul": _mul, "mad": _mad, "fma": _fma,
    "cvta": _mov, "add": _plain(np.add), "sub": _plain(np.subtract), "div": _div, "rem": _rem,
    "neg": _plain(np.negative), "abs": _plain(np.abs), "sqrt": _plain(np.sqrt),
    "rcp": _approximate(lambda x: 1 / x), "ex2": _approximate(np.exp2), "bfe": _bfe,
    "prmt": _prmt, "shf": _shf, "clz": _clz,
    "copysign": _plain(lambda x, y: np.copysign(y, x)),
    "not": _logical(np.invert, np.logical_not), "and": _logical(np.bitwise_and, np.logical_and),
    "or": _logical(np.bitwise_or, np.logical_or), "xor": _logical(np.bitwise_xor, np.logical_xor),
    "shl": _shift(np.left_shift), "shr": _shift(np.right_shift),
    "min": _extreme(np.fmin, np.minimum), "max": _extreme(np.fmax, np.maximum),
}  # fmt: skip


def opcodes(ptx: str) -> set[str]:
    """The instructions of a text, by the first part of their opcodes."""
    return {s.opcode[0] for entry in read_entries(ptx).values() for s in entry.code}

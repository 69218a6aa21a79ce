"""Kernels of the user: PTX or CUDA C++, run on tensors as an op of its own, or as a custom op's."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from weft.backends.cuda.array import DeviceArray, new_array
from weft.backends.cuda.card import Card
from weft.backends.cuda.launches import Launch, Three
from weft.backends.cuda.modules import Function, load_module
from weft.backends.cuda.nvrtc import compile_source
from weft.base.dtypes import DType
from weft.base.records import NamedTuple
from weft.errors import ArgumentError, DeviceError, DomainError, GradientError
from weft.ir.types import TensorType
from weft.ops.op import OPS, Op
from weft.tensor.custom import custom_op

Count = int | tuple[int, ...]
Counting = Count | Callable[..., Count]
_MOST_THREADS = 1024
_C_TYPES = {  # what a parameter of C is in PTX
    "float": "f32", "double": "f64", "int": "s32", "unsigned": "u32", "unsigned int": "u32", "int32_t": "s32",
    "uint32_t": "u32", "long": "s64", "long long": "s64", "unsigned long": "u64", "unsigned long long": "u64",
    "size_t": "u64", "int64_t": "s64", "uint64_t": "u64", "bool": "u8", "char": "s8", "short": "s16",
    "unsigned char": "u8", "int8_t": "s8", "uint8_t": "u8", "unsigned short": "u16", "int16_t": "s16",
    "uint16_t": "u16",
}  # fmt: skip
_HALVES = {"half": "f16", "__half": "f16", "__nv_bfloat16": "bf16", "nv_bfloat16": "bf16"}
_FLOATS = {"f16": "float16", "bf16": "bfloat16", "f32": "float32 complex64", "f64": "float64 complex128"}


class Argument:
    """Stands for an array where a kernel's arguments, grid and shared memory are told: shape and dtype."""

    __slots__ = ("dtype", "shape", "size")

    def __init__(self, shape: tuple[int, ...], dtype: DType) -> None:
        self.shape = shape
        self.dtype = dtype
        self.size = prod(shape)

    def __repr__(self) -> str:
        return f"<{TensorType(self.shape, self.dtype)} of a kernel>"


class Prepared(NamedTuple):
    """A launch that lacks pointers; ``pointers`` are (word, number of the array among inputs and outputs)."""

    launch: Launch
    grid: Three
    block: Three
    shared: int
    pointers: tuple[tuple[int, int], ...]


class Kernel:
    """A kernel, called with tensors of a GPU and attributes; gives new tensors.

    Attributes:
        name: of the function in the source.
        source: PTX, or CUDA C++.
    """

    def __init__(
        self,
        source: str,
        name: str,
        *,
        out: Callable[..., Any] | None = None,
        arguments: Callable[..., Any] | None = None,
        grid: Counting | None = None,
        block: Count = 256,
        shared: int | Callable[..., int] = 0,
        options: Sequence[str] = (),
    ) -> None:
        for word, value in (("source", source), ("name", name)):
            if not isinstance(value, str):
                raise ArgumentError("cuda.kernel", f"{word} must be a text, got {type(value).__name__}")
        for word, rule in (("out", out), ("arguments", arguments)):
            if rule is not None and not callable(rule):
                raise ArgumentError("cuda.kernel", f"{word} must be a function, got {type(rule).__name__}")
        self.source, self.name = source, name
        self._out, self._arguments, self._grid, self._shared = out, arguments, grid, shared
        self._block = _three("block", block)
        if not 0 < prod(self._block) <= _MOST_THREADS:
            raise DomainError("cuda.kernel", f"a block has 1 to {_MOST_THREADS} threads, got {block}")
        self._options = tuple(options)
        self._functions: dict[int, tuple[Function, tuple[str, ...]]] = {}
        self._op: Callable[..., Any] | None = None

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"

    def __call__(self, *inputs: Any, **attrs: Any) -> Any:
        """Run it, as an op that weft knows; the results are as ``out`` says."""
        if self._op is None:
            self._op = self._declare()
        return self._op(*inputs, **attrs)

    def _declare(self) -> Callable[..., Any]:
        if self._out is None:
            raise ArgumentError(
                "cuda.kernel",
                f"{self.name} must say the types of its results to be called, got none",
                hint="pass out=lambda x: x, or use it as cuda= of weft.custom_op",
            )
        numbers = ("", *[f"_{i}" for i in range(2, len(OPS))])
        name = next(f"cuda::{self.name}{n}" for n in numbers if f"cuda::{self.name}{n}" not in OPS)
        outputs = _outputs_of(self._out)
        rule = self._refuse_gradient
        made = custom_op(name, type_rule=self._out, gradient=lambda g: rule(), outputs=outputs, cuda=self)(
            self._out
        )
        made.op.eval = self._refuse_host  # type: ignore[attr-defined]
        return made

    def _refuse_gradient(self) -> Any:
        raise GradientError(
            self.name,
            "a kernel must have a gradient for backward, got none",
            hint="declare one by weft.custom_op",
        )

    def _refuse_host(self, *arrays: Any, **attrs: Any) -> Any:
        raise DeviceError(
            self.name,
            "tensors must be on a GPU for a kernel of CUDA, got them on the cpu",
            hint="use x.cuda()",
        )

    # Running

    def run(self, op: Op, arrays: Sequence[DeviceArray], attrs: dict[str, Any]) -> tuple[DeviceArray, ...]:
        """The results of an op whose kernel this is."""
        found = op.type_rule(*[a.type for a in arrays], **attrs)
        types = found if isinstance(found, tuple) else (found,)
        card = arrays[0].card
        stream = card.current()
        packed = [a.packed() for a in arrays]
        outs = tuple([new_array(card, t.shape, t.dtype, stream) for t in types])
        prepared = self.prepare(card, [a.type for a in arrays], types, attrs)
        if prepared is not None:
            for array in packed:
                array.block.read_on(stream)
            both = (*packed, *outs)
            for word, number in prepared.pointers:
                prepared.launch.words[word] = both[number].pointer
            prepared.launch.run(prepared.grid, prepared.block, prepared.shared, stream)
        return outs

    def prepare(
        self, card: Card, inputs: Sequence[TensorType], outputs: Sequence[TensorType], attrs: dict[str, Any]
    ) -> Prepared | None:
        """A launch for arrays of these types; None where there is nothing to launch."""
        both = [Argument(tuple(t.shape), t.dtype) for t in (*inputs, *outputs)]
        function, kinds = self._function(card)
        given = self._given(both, len(inputs), attrs)
        if len(given) != len(kinds):
            raise ArgumentError(self.name, f"takes {len(kinds)} parameters, got {len(given)} arguments")
        launch, pointers = Launch(function, len(given)), []
        for word, (value, kind) in enumerate(zip(given, kinds, strict=True)):
            if isinstance(value, Argument):
                pointers.append((word, self._number(value, both, kind)))
            else:
                launch.words[word] = _encoded(self.name, word, value, kind)
        grid = self._blocks(both, len(inputs), attrs)
        if 0 in grid:
            return None
        shared = self._shared(*both, **attrs) if callable(self._shared) else self._shared
        if not isinstance(shared, int) or shared < 0:
            raise ArgumentError("cuda.kernel", f"shared must be a number of bytes, got {shared!r}")
        return Prepared(launch, grid, self._block, shared, tuple(pointers))

    def _number(self, value: Argument, both: list[Argument], kind: str) -> int:
        if kind[0] != "*" and (kind[1:] != "64" or kind[0] == "f"):
            raise ArgumentError(self.name, f"an array must go to a pointer, got one for a parameter .{kind}")
        if not _points_to(kind[1:], value.dtype):
            raise ArgumentError(
                self.name,
                f"an array must have the elements of its pointer, got {value.dtype.name} for .{kind[1:]}",
                hint="cast it by x.astype(...)",
            )
        return next(i for i, each in enumerate(both) if each is value)

    def _given(self, both: list[Argument], inputs: int, attrs: dict[str, Any]) -> tuple[Any, ...]:
        if self._arguments is not None:
            found = self._arguments(*both, **attrs)
            return tuple(found) if isinstance(found, tuple | list) else (found,)
        return (*both[:inputs], *attrs.values(), *both[inputs:])

    def _blocks(self, both: list[Argument], inputs: int, attrs: dict[str, Any]) -> Three:
        if self._grid is None:
            return -(-both[inputs].size // prod(self._block)), 1, 1
        return _three("grid", self._grid(*both, **attrs) if callable(self._grid) else self._grid)

    def _function(self, card: Card) -> tuple[Function, tuple[str, ...]]:
        """The kernel in a device, and the types of its parameters."""
        known = self._functions.get(id(card))
        if known is None:
            is_ptx = re.search(r"^\s*\.version\b", self.source, re.MULTILINE)
            text = self.source if is_ptx else compile_source(self.source, card.architecture, self._options)
            kinds = parameters_of(text, self.name, None if is_ptx else self.source)
            known = load_module(card, text).function(self.name), kinds
            self._functions[id(card)] = known
        return known


def parameters_of(text: str, name: str, source: str | None = None) -> tuple[str, ...]:
    """The types of a kernel's parameters by its PTX; by the source in C where that is there, with pointers.

    >>> from weft.backends.cuda.kernels import parameters_of
    >>> parameters_of(".visible .entry f(.param .u64 f_0, .param .f32 f_1) { ret; }", "f")
    ('u64', 'f32')
    >>> parameters_of(".entry f(.param .u64 f_0, .param .b32 f_1)", "f", "f(int* x, float y)")
    ('*s32', 'f32')
    """
    entries = dict(re.findall(r"\.entry\s+(\w+)\s*(?:\(([^)]*)\))?", text))
    if name not in entries:
        there = ", ".join(entries) or "none"
        hint = 'write extern "C" __global__ void' if source else None
        raise ArgumentError("cuda.kernel", f"the source must have a kernel {name!r}, got {there}", hint=hint)
    found = []
    for part in entries[name].split(","):
        if not part.strip():
            continue
        kind = re.search(r"\.param\s+(?:\.align\s+\d+\s+)?\.([bsuf]\d+)\b", part)
        if kind is None or "[" in part:
            what = " ".join(part.split())
            raise ArgumentError("cuda.kernel", f"parameters must be pointers or numbers, got {what}")
        found.append(kind.group(1))
    told = _told_by(source, name) if source else []
    if len(told) == len(found):
        found = [c or kind for c, kind in zip(told, found, strict=True)]
    return tuple(found)


def _told_by(source: str, name: str) -> list[str | None]:
    """The types of parameters as the source in C has them, pointers by a star; None of what is neither."""
    head = re.search(rf"\b{name}\s*\(([^)]*)\)", re.sub(r"//.*?$|/\*.*?\*/", " ", source, flags=re.M | re.S))
    if head is None or not head.group(1).strip():
        return []
    return [_kind_of(part) for part in head.group(1).split(",")]


def _kind_of(parameter: str) -> str | None:
    """What one parameter of C takes: "s32", "*f32", "*" of a pointer to what has no name here, or None."""
    stars = len(re.findall(r"\*|\[", parameter))
    words = re.sub(r"\bconst\b|\b__restrict__\b|\bvolatile\b|\bstd::|\*|\[.*", " ", parameter).split()
    named = " ".join(words[:-1])
    if stars:
        return "*" + ((_C_TYPES.get(named) or _HALVES.get(named, "")) if stars == 1 else "")
    return _C_TYPES.get(named)


def _points_to(kind: str, dtype: DType) -> bool:
    """Whether a pointer may go to elements of a dtype: bytes and unsigned numbers may stand for any bits."""
    if kind in _FLOATS:
        return dtype.name in _FLOATS[kind].split()
    if kind in ("", "64", "s8", "u8"):  # nobody knows, or bytes
        return True
    return dtype.itemsize * 8 == int(kind[1:]) and (kind[0] == "u" or dtype.kind in "iub")


def _encoded(op: str, word: int, value: object, kind: str) -> int:
    """A number as the bits of a parameter; an error where it is none, or does not fit."""
    width = int(kind[1:]) if kind[0] != "*" else 64
    if isinstance(value, np.generic):
        if kind[0] == "b" and value.dtype.itemsize * 8 == width:
            return int.from_bytes(value.tobytes(), "little")
        value = value.item()
    if not isinstance(value, bool | int | float):
        raise ArgumentError(op, f"argument {word} must be an array or a number, got {type(value).__name__}")
    if kind[0] == "*" and value != 0:
        raise ArgumentError(op, f"argument {word} must be an array for a pointer, got {value!r}")
    if kind[0] == "f" or (kind[0] == "b" and isinstance(value, float)):
        code = {16: "e", 32: "f", 64: "d"}.get(width)
        if code is None:
            raise ArgumentError(op, f"argument {word} must be whole for a parameter .{kind}, got {value!r}")
        try:
            return int.from_bytes(struct.pack(f"<{code}", float(value)), "little")
        except OverflowError:
            raise DomainError(op, f"argument {word} must fit a parameter .{kind}, got {value}") from None
    if isinstance(value, float):
        raise ArgumentError(op, f"argument {word} must be whole for a parameter .{kind}, got {value!r}")
    least = 0 if kind[0] == "u" else -(1 << (width - 1))
    most = (1 << (width - 1 if kind[0] == "s" else width)) - 1
    if not least <= int(value) <= most:
        raise DomainError(op, f"argument {word} must fit a parameter .{kind}, got {value}")
    return int(value) & ((1 << width) - 1)


def _three(word: str, count: object) -> Three:
    listed = count if isinstance(count, tuple | list) else (count,)
    if not 1 <= len(listed) <= 3 or not all(isinstance(n, int) and n >= 0 for n in listed):
        raise ArgumentError("cuda.kernel", f"{word} must be one to three whole numbers, got {count!r}")
    x, y, z = (*listed, 1, 1)[:3]
    return x, y, z


def _outputs_of(out: Callable[..., Any]) -> int:
    """How many results a function tells: as many as the tuple that it is annotated or written to give."""
    try:
        sample = [TensorType((1,), np.dtype(np.float32))] * out.__code__.co_argcount
        found = out(*sample, **dict.fromkeys(_keywords(out), 1))
    except Exception:  # it wants other types; the type rule says so when it is called
        return 1
    return len(found) if isinstance(found, tuple | list) else 1


def _keywords(function: Callable[..., Any]) -> tuple[str, ...]:
    code = function.__code__
    return code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]

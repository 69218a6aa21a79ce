"""Copies between host and device, and on a device: evenly laid out elements, and those with gaps.

Elements with gaps are gathered by a kernel that is written here as PTX, one for each number of axes and width
of an element: axes that lie evenly are made one first, so most copies have one or two.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from weft.backends.cuda.array import DeviceArray, Host, new_array
from weft.backends.cuda.card import Card
from weft.backends.cuda.launches import Launch
from weft.backends.cuda.modules import Module, load_module
from weft.backends.cuda.turning import THREADS as TURN_THREADS
from weft.backends.cuda.turning import as_turned, tiles_of, turn_name, turn_text
from weft.base.dtypes import DType
from weft.ops.alias import _merged as merged_axes

_THREADS = 256
_STAGED = 64 << 10  # bytes that are rather copied on the host than waited for
_MOVES = {1: "b8", 2: "b16", 4: "b32", 8: "b64"}  # what one element of so many bytes is moved by


def to_device(array: Host, card: Card, *, fixed: bool = False) -> DeviceArray:
    """A copy of an array on a device. It is read before this returns, unless it lies in pinned memory.

    While a graph is captured only what is ``fixed`` can be copied: replays find it as it is.
    """
    stream = card.current()
    if stream.capture is not None:
        if not fixed:
            stream.capture.refuse(
                f"{array.dtype.name}{list(array.shape)} from the cpu",
                "make it before, and give it new values by x.copy_(...) before each replay",
            )
        stream = stream.capture.outer  # done once, beside what is captured
    whole = np.ascontiguousarray(array)
    own = whole is not array and whole.base is None
    if not own and whole.nbytes <= _STAGED:
        whole, own = whole.copy(), True
    out = new_array(card, array.shape, array.dtype, stream)
    if out.size:
        card.driver.cuMemcpyHtoDAsync(out.pointer, whole.ctypes.data, out.nbytes, stream.handle)
        if not own:  # of somebody, who may have pinned it; what is not pinned was read by now
            stream.synchronize()
    return out


def to_host(array: DeviceArray) -> Host:
    """The elements as an array of NumPy, when they are there."""
    card = array.card
    card.enter()
    stream = card.current()
    if stream.capture is not None:
        stream.capture.refuse(f"a look at the values of {array.type}", "read them after g.replay()")
    packed = array.packed()
    out: Host = np.empty(array.shape, array.dtype)
    if out.size:
        packed.block.read_on(stream)
        card.driver.cuMemcpyDtoHAsync(out.ctypes.data, packed.pointer, out.nbytes, stream.handle)
    stream.synchronize()
    return out


def packed_copy(array: DeviceArray) -> DeviceArray:
    """The elements of an array, one after another, in memory of their own."""
    card = array.card
    card.enter()
    stream = card.current()
    out = new_array(card, array.shape, array.dtype, stream)
    if not out.size:
        return out
    array.block.read_on(stream)
    if array.gaps is None:
        card.driver.cuMemcpyDtoDAsync(out.pointer, array.pointer, out.nbytes, stream.handle)
    else:
        gather(out, array)
    return out


def gather(out: DeviceArray, source: DeviceArray) -> None:
    """Write the elements of an array with gaps into one without, on the current stream."""
    axes = merged_axes(source.shape, source.strides) or [(1, 0)]
    width, count = source.dtype.itemsize, out.size
    if width == 16:  # two halves, which are one more axis
        axes, width, count = [*axes, (2, 8)], 8, 2 * count
    turned = as_turned(axes, width)
    if turned is not None:
        _turn(out, source, turned, width)
        return
    name = f"weft_gather_{len(axes)}_{width}"
    launch = Launch(gather_module(out.card, len(axes), width).function(name), 3 + 2 * len(axes))
    sizes, strides = zip(*axes, strict=True)
    launch.set(out.pointer, source.pointer, count, *sizes, *strides)
    launch.run(((count + _THREADS - 1) // _THREADS, 1, 1), (_THREADS, 1, 1), 0, out.card.current())


def _turn(out: DeviceArray, source: DeviceArray, turned: tuple[int, ...], width: int) -> None:
    """A batch of matrices that lie transposed."""
    down, across = (tiles_of(size) for size in turned[1:3])
    launch = Launch(load_module(out.card, turn_text(width)).function(turn_name(width)), 9)
    launch.set(out.pointer, source.pointer, *turned, down, across)
    launch.run((turned[0] * down * across, 1, 1), (TURN_THREADS, 1, 1), 0, out.card.current())


def fill(out: DeviceArray, value: Host) -> None:
    """Write one value, a 0-d array of the same dtype, to all elements of a new array."""
    if not out.size:
        return
    card, stream, raw = out.card, out.card.current(), value.tobytes()
    word = int.from_bytes(raw, "little")
    if not any(raw):
        card.driver.cuMemsetD8Async(out.pointer, 0, out.nbytes, stream.handle)
    elif len(raw) in (1, 2, 4):
        write = getattr(card.driver, f"cuMemsetD{8 * len(raw)}Async")
        write(out.pointer, word, out.size, stream.handle)
    else:
        one = to_device(np.array(value, order="C"), card, fixed=True)
        one.block.read_on(stream)
        gather(out, DeviceArray(card, one.block, one.pointer, (out.size,), out.dtype, (0,)))


def filled(card: Card, shape: tuple[int, ...], value: Host, dtype: DType) -> DeviceArray:
    """A new array of one value."""
    out = new_array(card, shape, dtype)
    fill(out, value)
    return out


# The kernel


@cache
def _gather_text(rank: int, width: int) -> str:
    """PTX of a kernel: thread n writes element n, whose place it finds by dividing n by the sizes."""
    move = _MOVES[width]
    register = {"b8": "%h0", "b16": "%h0", "b32": "%w0", "b64": "%d9"}[move]
    names = [
        "out",
        "source",
        "count",
        *[f"size{a}" for a in range(rank)],
        *[f"stride{a}" for a in range(rank)],
    ]
    head = ",\n".join(f"  .param .u64 p_{name}" for name in names)
    lines = [f"  ld.param.u64 %{name}, [p_{name}];" for name in names]
    for axis in reversed(range(rank)):
        lines += [
            f"  rem.u64 %d2, %rest, %size{axis};",
            f"  div.u64 %rest, %rest, %size{axis};",
            f"  mad.lo.s64 %source, %d2, %stride{axis}, %source;",
        ]
    declared = "\n".join(f"  .reg .b64 %{name};" for name in [*names, "rest"])
    body = "\n".join(lines)
    return f""".visible .entry weft_gather_{rank}_{width}(
{head}
)
{{
  .reg .pred %p0;
  .reg .b16 %h0;
  .reg .b32 %w0, %w1, %w2, %w3;
  .reg .b64 %d0, %d1, %d2, %d9;
{declared}
  mov.u32 %w1, %ctaid.x;
  mov.u32 %w2, %ntid.x;
  mov.u32 %w3, %tid.x;
  mul.wide.u32 %d0, %w1, %w2;
  cvt.u64.u32 %d1, %w3;
  add.u64 %d0, %d0, %d1;
  ld.param.u64 %count, [p_count];
  setp.ge.u64 %p0, %d0, %count;
  @%p0 bra DONE;
  mov.u64 %rest, %d0;
{body}
  ld.global.{move} {register}, [%source];
  mad.lo.u64 %d0, %d0, {width}, %out;
  st.global.{move} [%d0], {register};
DONE:
  ret;
}}
"""


def gather_text(rank: int, width: int) -> str:
    """A whole module with the kernel, for any GPU since 2020."""
    return f".version 7.0\n.target sm_70\n.address_size 64\n\n{_gather_text(rank, width)}"


def gather_module(card: Card, rank: int, width: int) -> Module:
    """The module with the kernel for a device."""
    return load_module(card, gather_text(rank, width))

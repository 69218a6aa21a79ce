"""What launches, chains of launches and memory cost on a card; see ``tests.gpu.card_runtime``."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

import weft
from tests.gpu.card import device_us, host_us, note, part
from weft.backends.cuda.array import new_array
from weft.backends.cuda.bound import Bound
from weft.backends.cuda.card import card
from weft.backends.cuda.copies import to_device
from weft.backends.cuda.execute import CudaExecutable
from weft.backends.cuda.graphs import GraphRun
from weft.backends.cuda.launches import Launch
from weft.backends.cuda.memory import Pinned
from weft.backends.cuda.modules import load_module
from weft.backends.cuda.program import Array, CopyBytes, CudaProgram, Kernel, Place
from weft.backends.cuda.program import Launch as LaunchStep
from weft.base.dtypes import float32
from weft.base.sizes import named_size

N: Any = named_size("n")
SCALE = """.version 7.0
.target sm_70
.address_size 64
.visible .entry scale(.param .u64 px, .param .u64 pout, .param .u64 pn)
{
  .reg .pred %p<2>;
  .reg .f32 %f<3>;
  .reg .b32 %r<4>;
  .reg .b64 %d<8>;
  ld.param.u64 %d1, [px];
  ld.param.u64 %d2, [pout];
  ld.param.u64 %d3, [pn];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mul.wide.u32 %d4, %r1, %r2;
  cvt.u64.u32 %d5, %r3;
  add.u64 %d4, %d4, %d5;
  setp.ge.u64 %p1, %d4, %d3;
  @%p1 bra DONE;
  shl.b64 %d4, %d4, 2;
  add.u64 %d1, %d1, %d4;
  add.u64 %d2, %d2, %d4;
  ld.global.f32 %f1, [%d1];
  fma.rn.f32 %f2, %f1, 0f40000000, 0f3F800000;
  st.global.f32 [%d2], %f2;
DONE:
  ret;
}
"""


def scaling(count: int) -> CudaProgram:
    """A chain of so many launches, back and forth between arena and output."""
    x, y, a = Place("input", 0), Place("output", 0), Place("arena", 0)
    places = [x, *[(a, y)[i % 2] for i in range(count)]]
    steps: list[Any] = [
        LaunchStep("scale", (N + 255) // 256, (places[i], places[i + 1], N)) for i in range(count)
    ]
    if count % 2:
        steps.append(CopyBytes(y, a, 4 * N))
    kernel = Kernel("scale", ("pointer", "pointer", "number"), 256)
    array = Array(float32, N, (N,))
    return CudaProgram(
        "chain",
        card().architecture,
        SCALE,
        {"scale": kernel},
        (array,),
        (array,),
        (),
        (),
        ("n",),
        4 * N,
        tuple(steps),
    )


@part
def launch_costs() -> None:
    on = card()
    launch = Launch(load_module(on, SCALE).function("scale"), 3)
    x = new_array(on, (32,), np.dtype(np.float32))
    launch.set(x.pointer, x.pointer, 32)
    launch.shape((1, 1, 1), (32, 1, 1), 0)
    stream, handle, address = on.current(), launch.function.handle, launch.params
    driver, record = on.driver, launch.address
    arguments = ((x.pointer, x.pointer, 32), (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64))
    shape = (1, 1, 1, 32, 1, 1, 0, stream.handle)
    by_tuple = host_us(lambda: driver.cuLaunchKernel(handle, *shape, arguments, 0))
    by_address = host_us(lambda: driver.cuLaunchKernel(handle, *shape, address, 0))
    note("launch, bindings with a tuple", f"{by_tuple:.2f} us")
    note("launch, bindings with an address", f"{by_address:.2f} us")
    by_ctypes = ctypes.CDLL("libcuda.so.1").cuLaunchKernel
    by_ctypes.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]
    note("launch, ctypes", f"{host_us(lambda: by_ctypes(handle, *shape, address, None)):.2f} us")
    if launch.call is not None:
        call, p = launch.call, x.pointer
        launch.start(stream)
        note("launch, machine code", f"{host_us(lambda: call(record)):.2f} us")
        note("launch, machine code, three words", f"{host_us(lambda: call(record, p, p, 32)):.2f} us")
    note("Launch.start", f"{host_us(lambda: launch.start(stream)):.2f} us")


@part
def chains() -> None:
    for count in (30, 300):
        _chain(count)


def _chain(count: int) -> None:
    on = card()
    program, stream = scaling(count), on.current()
    array = to_device(np.ones(256, np.float32), on)
    bound = Bound(on, program, load_module(on, SCALE), {"n": 256})
    out, arena = new_array(on, (256,), float32), on.pool.take(4096, stream)
    table = [array.pointer, out.pointer, arena.pointer, 0]
    graph = GraphRun(on, bound.entries, table)
    for name, run in (("list", lambda: bound.run(table, stream)), ("graph", lambda: graph.run(stream))):
        note(
            f"{count} launches as a {name}", f"{host_us(run, 50):.1f} us host, {device_us(run):.1f} us device"
        )
    turn, pointers = iter(range(10**9)), (out.pointer, new_array(on, (256,), float32).pointer)

    def elsewhere() -> None:
        graph.set(1, pointers[next(turn) % 2])
        graph.run(stream)

    note(f"{count} launches, graph, other output", f"{host_us(elsewhere, 50):.1f} us host")
    whole = CudaExecutable(on, program)
    for _ in range(5):
        whole([array])
    note(f"{count} launches, whole call", f"{host_us(lambda: whole([array]), 200):.1f} us host")


@part
def memory_costs() -> None:
    on = card()
    stream = on.current()

    def small() -> None:
        on.pool.take(1024, stream)

    def large() -> None:
        on.pool.take(8 << 20, stream)

    note("memory, 1 KiB from weft's lists", f"{host_us(small):.2f} us")
    note("memory, 8 MiB from the driver's pool", f"{host_us(large):.2f} us")
    note("new_array(256 floats)", f"{host_us(lambda: new_array(on, (256,), float32)):.2f} us")
    event = weft.cuda.Event(timing=False)
    note("event record", f"{host_us(lambda: event.record(stream)):.2f} us")
    size = 256 << 20
    pageable = np.ones(size // 4, np.float32)
    out = new_array(on, (size // 4,), float32)
    pinned = Pinned(on, size)
    driver = on.driver
    for name, pointer in (("pageable", pageable.ctypes.data), ("pinned", pinned.pointer)):
        up = device_us(lambda p=pointer: driver.cuMemcpyHtoDAsync(out.pointer, p, size, stream.handle), 5)
        down = device_us(lambda p=pointer: driver.cuMemcpyDtoHAsync(p, out.pointer, size, stream.handle), 5)
        note(
            f"256 MiB, {name}", f"to the device {size / up / 1e3:.1f} GB/s, back {size / down / 1e3:.1f} GB/s"
        )

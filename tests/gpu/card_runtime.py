"""The runtime on a real card: checks and times, in one run: ``python -m tests.gpu.card_runtime``.

Prints a line for each check, and a table of times. What is not there (PyTorch, kernels) is skipped by name.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import threading
import time
import warnings
from typing import Any

import numpy as np
import pytest

import weft
from tests.gpu.card import device_us, host_us, note, part, run_all
from tests.gpu.card_times import SCALE, scaling
from weft.backends.cuda.array import new_array
from weft.backends.cuda.card import card
from weft.backends.cuda.compiling import has_compiler
from weft.backends.cuda.copies import to_device
from weft.backends.cuda.execute import CudaExecutable
from weft.backends.cuda.launches import Launch
from weft.backends.cuda.modules import forget_modules, load_module
from weft.backends.cuda.products import Product
from weft.backends.cuda.program import MatrixProduct, Place
from weft.backends.llvm.cache import set_cache_directory
from weft.base.dtypes import bfloat16, float16, float32, float64
from weft.errors import DeviceError, DeviceMemoryError, GraphError


@part
def machine() -> None:
    on = card()
    version = on.driver.cuDriverGetVersion()
    free, total = weft.cuda.mem_get_info()
    print(f"      {on.name}, {on.architecture}, {on.multiprocessors} processors, driver {version}")
    print(f"      python {sys.version.split()[0]}, memory {free >> 20} of {total >> 20} MiB")
    print(f"      launches by pointer: {bool(on.launch_address)}, kernels: {has_compiler()}")
    assert weft.cuda.is_available()
    assert weft.cuda.device_count() >= 1


@part
def round_trips() -> None:
    rng = np.random.default_rng(0)
    for dtype in (
        np.bool_,
        np.int8,
        np.int16,
        np.int32,
        np.int64,
        np.float16,
        bfloat16,
        np.float32,
        np.float64,
        np.complex64,
        np.complex128,
    ):
        for shape in ((), (0, 3), (5,), (3, 4, 5), (1000, 257)):
            array = (rng.random(shape) * 100).astype(dtype)
            np.testing.assert_array_equal(weft.tensor(array, device="cuda").cpu().numpy(), array)


@part
def copies_with_gaps() -> None:
    rng = np.random.default_rng(0)
    for dtype in (np.bool_, np.float16, np.float32, np.float64, np.complex128):
        array = (rng.random((4, 6, 5, 7)) * 100).astype(dtype)
        x = weft.tensor(array, device="cuda")
        for take in (
            lambda t: t[1],
            lambda t: t[:, ::-1, 1:4:2],
            lambda t: t.transpose(3, 1, 0, 2) if isinstance(t, np.ndarray) else t.permute((3, 1, 0, 2)),
            lambda t: t[:, :, ::2, ::-3],
            lambda t: t[2, :, 3],
        ):
            np.testing.assert_array_equal(take(x).clone().cpu().numpy(), take(array))
            np.testing.assert_array_equal(take(x).reshape(-1).cpu().numpy(), take(array).reshape(-1))
        np.testing.assert_array_equal(
            x[0, 0].expand((3, 5, 7)).clone().cpu().numpy(), np.broadcast_to(array[0, 0], (3, 5, 7))
        )
    big = weft.zeros(8192, 8192, device="cuda")
    note("transposed copy 8192 x 8192 f32", f"{device_us(lambda: big.T.clone()):.0f} us")


@part
def fills() -> None:
    for value, dtype in (
        (0, weft.float32),
        (1.5, weft.float32),
        (True, weft.bool),
        (-3, weft.int16),
        (7, weft.int64),
        (2.5, weft.float64),
        (1 + 2j, weft.complex128),
        (-1, weft.int8),
        (0.5, weft.bfloat16),
    ):
        np.testing.assert_array_equal(
            weft.full((3, 1001), value, dtype=dtype, device="cuda").cpu().numpy(),
            weft.full((3, 1001), value, dtype=dtype).numpy(),
        )


@part
def kernel_by_hand() -> None:
    on = card()
    launch = Launch(load_module(on, SCALE).function("scale"), 3)
    x = to_device(np.arange(1000, dtype=np.float32), on)
    out = new_array(on, (1000,), np.dtype(np.float32))
    launch.set(x.pointer, out.pointer, 1000)
    launch.run((4, 1, 1), (256, 1, 1), 0, on.current())
    np.testing.assert_array_equal(out.to_host(), np.arange(1000) * 2 + 1)
    print(f"      by machine code: {launch.call is not None}")


@part
def programs_as_lists_and_graphs() -> None:
    on = card()
    for count in (1, 3, 30, 31):
        run = CudaExecutable(on, scaling(count))
        x = np.linspace(-1, 1, 5000, dtype=np.float32)
        expected = x.copy()
        for _ in range(count):
            expected = expected * np.float32(2) + np.float32(1)
        held = [run([to_device(x, on)])[0] for _ in range(6)]
        for found in held:
            np.testing.assert_allclose(found.to_host(), expected, rtol=1e-6)
        (plan,) = run._plans.values()
        assert bool(plan.replays) == (count >= 3)


@part
def streams_and_events() -> None:
    side = weft.cuda.Stream()
    x = weft.rand(1 << 22, device="cuda")
    expected = x.cpu().numpy()
    for _ in range(20):
        with side:
            y = x[::2].clone()
        z = y[::-1].clone()
        del y
        np.testing.assert_array_equal(z.cpu().numpy(), expected[::2][::-1])
    start, end = weft.cuda.Event(), weft.cuda.Event()
    start.record()
    x.clone()
    end.record()
    end.synchronize()
    assert 0 < start.elapsed_time(end) < 1000
    assert end.query()


@part
def out_of_memory() -> None:
    free, total = weft.cuda.mem_get_info()
    before = weft.cuda.memory_allocated()
    held = [weft.empty(1 << 20, device="cuda") for _ in range(100)]
    del held
    try:
        weft.empty(total, dtype=weft.int8, device="cuda")
        weft.empty(total, dtype=weft.int8, device="cuda")
        raise AssertionError("the card has more memory than it says")
    except DeviceMemoryError as error:
        print("      " + str(error).splitlines()[0])
    gc.collect()
    assert weft.cuda.memory_allocated() == before
    x = weft.ones(1000, device="cuda")
    assert x.cpu().numpy().sum() == 1000
    most = weft.empty(free // 2, dtype=weft.int8, device="cuda")
    del most
    weft.cuda.empty_cache()
    note("reserved after empty_cache", f"{weft.cuda.memory_reserved() >> 20} MiB")


@part
def nothing_is_left_behind() -> None:
    weft.cuda.synchronize()
    gc.collect()
    before = weft.cuda.memory_allocated()
    x = weft.rand(1000, device="cuda")
    for _ in range(10_000):
        x = x[::-1].clone()
    assert weft.cuda.memory_allocated() <= before + 4096
    del x
    gc.collect()
    assert weft.cuda.memory_allocated() <= before


@part
def threads() -> None:
    run = CudaExecutable(card(), scaling(31))
    wrong: list[float] = []

    def work(value: float) -> None:
        stream = weft.cuda.Stream()
        with stream:
            x = to_device(np.full(4096, value, np.float32), card())
            expected = np.float32(value)
            for _ in range(31):
                expected = expected * np.float32(2) + np.float32(1)
            for _ in range(200):
                wrong.extend([value] * (not np.allclose(run([x])[0].to_host(), expected)))

    workers = [threading.Thread(target=work, args=(float(i),)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong, len(wrong)


@part
def modules_on_disk() -> None:
    from weft.backends.cuda.copies import gather_text

    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o700)
        set_cache_directory(directory)
        texts = [gather_text(rank, 4) for rank in (5, 6)]
        for name in ("linked", "from disk"):
            forget_modules()
            begin = time.perf_counter()
            for text in texts:
                load_module(card(), text)
            note(f"module, {name}", f"{(time.perf_counter() - begin) / len(texts) * 1e3:.1f} ms")
        set_cache_directory(None)


@part
def errors_of_the_driver() -> None:
    try:
        load_module(card(), SCALE.replace("fma.rn.f32", "nonsense.f32"))
        raise AssertionError("the driver took nonsense")
    except GraphError as error:
        print("      " + str(error).splitlines()[0][:150])
    x = weft.ones(3, device="cuda")
    for call, text in (
        (lambda: x + weft.ones(3), "on cuda:0 and f32[3] on cpu"),
        (lambda: x.cuda(77), "cuda:77"),
    ):
        with pytest.raises(DeviceError) as found:
            call()
        assert text in str(found.value)


@part
def products() -> None:
    rng = np.random.default_rng(0)
    on = card()
    for dtype, tolerance in ((float32, 1e-5), (float64, 1e-13), (float16, 2e-3), (bfloat16, 2e-2)):
        for transposed in ((False, False), (True, False), (False, True), (True, True)):
            m, n, k, batch = 37, 53, 29, 3
            a: Any = rng.standard_normal((batch, m, k)).astype(dtype)
            b: Any = rng.standard_normal((batch, k, n)).astype(dtype)
            there = [
                to_device(np.ascontiguousarray(t.swapaxes(1, 2) if flip else t), on)
                for t, flip in zip((a, b), transposed, strict=True)
            ]
            c = new_array(on, (batch, m, n), dtype)
            rows_of = (m if transposed[0] else k, k if transposed[1] else n, n)
            place = Place("arena", 0)
            step = MatrixProduct(
                place, place, place, dtype, m, n, k, rows_of, transposed, False, batch, (m * k, k * n, m * n)
            )
            product = Product.of(on, step, {})
            room = on.pool.take(product.workspace, on.current())
            product.run(c.pointer, there[0].pointer, there[1].pointer, room.pointer, on.current())
            exact = a.astype(np.float64) @ b.astype(np.float64)
            np.testing.assert_allclose(
                c.to_host().astype(np.float64), exact, rtol=tolerance, atol=tolerance * 20
            )
    place = Place("arena", 0)
    for dtype, name in ((bfloat16, "bf16"), (float32, "f32")):
        step = MatrixProduct(place, place, place, dtype, 16384, 3072, 768, (768, 3072, 3072), (False, False))
        a, b, c = (new_array(on, s, dtype) for s in ((16384, 768), (768, 3072), (16384, 3072)))
        product = Product.of(on, step, {})
        room = on.pool.take(product.workspace, on.current())
        given = c.pointer, a.pointer, b.pointer, room.pointer, on.current()
        took = device_us(lambda product=product, given=given: product.run(*given))
        note(
            f"product 16384 x 3072 x 768 {name}",
            f"{took:.1f} us, {2 * 16384 * 3072 * 768 / took / 1e6:.0f} TFLOP/s",
        )
    step = MatrixProduct(place, place, place, float32, 8, 8, 8, (8, 8, 8), (False, False))
    product = Product.of(on, step, {})
    note(
        "product 8 x 8 x 8, host",
        f"{host_us(lambda: product.run(*given)):.2f} us",
    )


@part
def dlpack_with_pytorch() -> None:
    import torch

    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float16):
        theirs = (torch.arange(24, device="cuda") % 5).reshape(4, 6).to(dtype)
        ours = weft.from_dlpack(theirs.T)
        assert ours._data.pointer == theirs.data_ptr()
        np.testing.assert_array_equal(ours.cpu().astype(weft.float32).numpy(), theirs.T.cpu().float().numpy())
        back = torch.from_dlpack(ours.detach())
        assert back.data_ptr() == theirs.data_ptr()
    for _ in range(50):  # written by one side just before the other reads
        t = torch.rand(1 << 20, device="cuda")
        y = weft.from_dlpack(t * 2)
        z = torch.from_dlpack(y[::-1].clone())
        assert torch.equal(z.flip(0), t * 2)
        del t, y
    t0 = torch.ones(3, device="cuda")
    assert weft.asarray(t0).device == "cuda"
    note("from_dlpack of PyTorch", f"{host_us(lambda: weft.from_dlpack(t0), 200):.1f} us")


@part
def dlpack_and_interface_with_cupy() -> None:
    import cupy

    x = weft.arange(12.0, device="cuda").reshape(3, 4)
    for part_of in (x, x.T, x[:, 1:3]):
        shared = cupy.from_dlpack(part_of)
        assert shared.data.ptr == part_of._data.pointer
        np.testing.assert_array_equal(cupy.asnumpy(shared), part_of.cpu().numpy())
        described = cupy.asarray(part_of)
        np.testing.assert_array_equal(cupy.asnumpy(described), part_of.cpu().numpy())
    theirs = cupy.arange(10, dtype=cupy.float32)[::3]
    np.testing.assert_array_equal(weft.from_dlpack(theirs).cpu().numpy(), cupy.asnumpy(theirs))
    np.testing.assert_array_equal(weft.asarray(theirs).cpu().numpy(), cupy.asnumpy(theirs))


@part
def eager_through_the_host() -> None:
    warnings.simplefilter("ignore")
    x: Any = weft.rand(3, 4).requires_grad_()
    there: Any = x.detach().cuda().requires_grad_()
    for t in (x, there):
        (weft.softmax(t @ t.T, axis=1).log() * 2).sum().backward()
    np.testing.assert_allclose(there.grad.cpu().numpy(), x.grad.numpy(), rtol=1e-4, atol=1e-6)


@part
def eager_by_kernels() -> None:
    if not has_compiler():
        raise ImportError("there is no weft.backends.cuda.build in this tree")
    warnings.simplefilter("error", RuntimeWarning)
    x: Any = weft.rand(4, 8).requires_grad_()
    there: Any = x.detach().cuda().requires_grad_()
    for function in (
        lambda t: t + t,
        lambda t: t * 2.0 - 1.0,
        lambda t: t.tanh().exp(),
        lambda t: t.sum(axis=1),
        lambda t: t @ t.T,
        lambda t: weft.softmax(t, axis=1),
        lambda t: weft.layer_norm(t, 8),
    ):
        try:
            results = []
            for t in (x, there):
                t.grad = None
                out = function(t)
                out.sum().backward()
                results.append((out.detach().cpu().numpy(), t.grad.cpu().numpy()))
            for ours, theirs in zip(*results, strict=True):
                np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-6)
        except RuntimeWarning as warning:
            print(f"      {warning}")
    small = weft.rand(256, device="cuda")
    note("eager x + x, 256 floats", f"{host_us(lambda: small + small):.2f} us")
    note("eager x * 2.0", f"{host_us(lambda: small * 2.0):.2f} us")
    leaf = weft.rand(256, device="cuda").requires_grad_()
    note("eager x * x with gradient", f"{host_us(lambda: (leaf * leaf).backward(small), 500):.2f} us")
    m = weft.rand(64, 64, device="cuda")
    note("eager matmul 64", f"{host_us(lambda: m @ m, 500):.2f} us")
    big = weft.ones(1 << 26, device="cuda")
    took = device_us(lambda: big + big)
    note("eager x + x, 64 M floats", f"{took:.0f} us, {3 * 4 * (1 << 26) / took / 1e6:.2f} TB/s")


@part
def compiled() -> None:
    warnings.simplefilter("ignore")

    def f(x: Any, w: Any) -> Any:
        return weft.softmax(weft.tanh(x @ w) * 2.0 + 1.0, axis=1).sum(axis=0)

    fast = weft.compile(f)
    x, w = weft.rand(64, 32), weft.rand(32, 16)
    for _ in range(4):
        found = fast(x.cuda(), w.cuda())
        np.testing.assert_allclose(found.cpu().numpy(), f(x, w).numpy(), rtol=1e-4)
    there = x.cuda(), w.cuda()
    note("compiled softmax(tanh(x @ w)), call", f"{host_us(lambda: fast(*there), 200):.1f} us host")


@part
def training() -> None:
    warnings.simplefilter("ignore")

    def losses(device: str) -> list[float]:
        weft.manual_seed(0)
        model = weft.nn.Sequential(weft.nn.Linear(8, 32), weft.nn.Tanh(), weft.nn.Linear(32, 1)).to(device)
        optimizer = weft.optim.AdamW(model.parameters(), lr=0.01)
        x = weft.rand(64, 8).to(device)
        found = []
        for _ in range(10):
            loss = ((model(x) - x.sum(axis=1, keepdims=True)) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    np.testing.assert_allclose(losses("cuda"), losses("cpu"), rtol=1e-3)


@part
def compiled_training() -> None:
    warnings.simplefilter("ignore")

    def losses(device: str) -> tuple[list[float], Any]:
        weft.manual_seed(0)
        model = weft.nn.Sequential(weft.nn.Linear(8, 32), weft.nn.Tanh(), weft.nn.Linear(32, 1)).to(device)
        optimizer = weft.optim.AdamW(model.parameters(), lr=0.01)
        x = weft.rand(64, 8).to(device)

        @weft.compile
        def step(x: Any) -> Any:
            loss = ((model(x) - x.sum(axis=1, keepdims=True)) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        return [step(x).item() for _ in range(10)], lambda: step(x)

    there, call = losses("cuda")
    np.testing.assert_allclose(there, losses("cpu")[0], rtol=1e-3)
    note("compiled training step, tiny", f"{host_us(call, 100):.1f} us host, {device_us(call):.1f} us device")


if __name__ == "__main__":
    sys.exit(run_all())

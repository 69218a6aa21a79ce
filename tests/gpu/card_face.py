"""The public face on a real card: graphs, kernels, uploads, features: ``python -m tests.gpu.card_face``."""

from __future__ import annotations

import gc
import multiprocessing
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from typing import Any

import numpy as np

import weft
from tests.backends.cuda import test_aliases, test_parting
from tests.backends.cuda.test_kernels import SCALE
from tests.gpu.card import device_us, host_us, note, part, run_all
from weft import data
from weft.backends.cuda.card import card
from weft.errors import BoundsError, DeviceError, DeviceMemoryError, DomainError

warnings.simplefilter("ignore")


def rows(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def near(tensor: Any, expected: Any, rtol: float = 1e-4) -> None:
    np.testing.assert_allclose(tensor.detach().cpu().numpy(), expected, rtol=rtol, atol=1e-5)


def raises(error: type[BaseException], call: Any) -> str:
    try:
        call()
    except error as found:
        return str(found)
    raise AssertionError(f"no {error.__name__}")


# Graphs


@part
def captured_graph() -> None:
    x, w = weft.tensor(rows(1, 64, 32), device="cuda"), weft.tensor(rows(2, 32, 16), device="cuda")
    with weft.cuda.graph() as g:
        y = weft.softmax(weft.tanh(x @ w) * 2.0 + 1.0, axis=1)
        z = y.sum(axis=0)
    print("      " + raises(DeviceError, lambda: y.tolist()).splitlines()[0])
    for seed in (1, 3, 4):
        x.copy_(weft.tensor(rows(seed, 64, 32), device="cuda"))
        g.replay()
        expected = weft.softmax(
            weft.tanh(weft.tensor(rows(seed, 64, 32)) @ weft.tensor(rows(2, 32, 16))) * 2.0 + 1.0, axis=1
        )
        near(y, expected.numpy())
        near(z, expected.numpy().sum(0))
    note(
        "graph of softmax(tanh(x @ w)), replay",
        f"{host_us(g.replay):.1f} us host, {device_us(g.replay):.1f} device",
    )


@part
def refused_in_a_graph() -> None:
    x = weft.ones(3, device="cuda")
    w = weft.ones(3, device="cuda")
    for wrong in (
        lambda: x.sum().item(), lambda: print(x), lambda: weft.tensor([1.0], device="cuda"),
        lambda: weft.cuda.synchronize(), lambda: weft.cuda.Event().record(), lambda: x.cpu(),
    ):  # fmt: skip

        def block(wrong: Any = wrong) -> None:
            nonlocal w
            with weft.cuda.graph():
                w += x
                wrong()

        raises(DeviceError, block)
        assert w.tolist() == [1.0] * 3
    assert (x + w).tolist() == [2.0] * 3


@part
def training_in_a_graph() -> None:
    def losses(captured: bool) -> tuple[list[float], Any]:
        weft.manual_seed(0)
        model = weft.nn.Sequential(weft.nn.Linear(8, 32), weft.nn.Tanh(), weft.nn.Linear(32, 1)).to("cuda")
        optimizer = weft.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        x = weft.tensor(rows(1, 64, 8), device="cuda")

        def step() -> Any:
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        first = step().item()
        if not captured:
            return [first, *[step().item() for _ in range(5)]], step
        with weft.cuda.graph() as g:
            loss = step()
        found = [first]
        for _ in range(5):
            g.replay()
            found.append(loss.item())
        return found, g.replay

    (mine, replay), (expected, step) = losses(True), losses(False)
    np.testing.assert_allclose(mine, expected, rtol=1e-4)
    note(
        "training step, tiny, by a captured graph",
        f"{host_us(replay):.1f} us host, {device_us(replay):.1f} device",
    )
    note("the same, eager", f"{host_us(step, 100):.1f} us host")


@part
def failure_in_a_replay() -> None:
    x, total = weft.arange(4.0, device="cuda"), weft.zeros(2, device="cuda")
    places = weft.tensor([0, 1], device="cuda")
    with weft.cuda.graph() as g:
        total += x[places]
    places.copy_(weft.tensor([2, 9], device="cuda"))
    raises(BoundsError, g.replay)
    assert total.tolist() == [0.0, 0.0]
    places.copy_(weft.tensor([2, 3], device="cuda"))
    g.replay()
    assert total.tolist() == [2.0, 3.0]


@part
def who_sees_what_replays_write() -> None:
    for name, check in vars(test_parting).items():
        if name.startswith("test_"):
            sharing = name == test_parting.test_others_that_share_memory_keep_their_values.__name__
            for given in [{"way": way} for way in test_parting.SHARING.values()] if sharing else [{}]:
                check(**given)


@part
def memory_that_is_shared() -> None:
    for name, scene in test_aliases.SCENES.items():
        try:
            test_aliases.check_scene(scene)
        except AssertionError as error:
            raise AssertionError(name) from error


@part
def streams_that_are_gone() -> None:
    x = weft.ones(1000, device="cuda")

    def work(times: int) -> int:
        for _ in range(times):
            with weft.cuda.Stream():
                y = x[::2].clone()
            y = y[::2].clone()
        assert y.cpu().numpy().sum() == 250
        return weft.cuda.memory_reserved()

    few = work(50)
    assert work(3000) <= few + (4 << 20)


@part
def memory_of_graphs() -> None:
    gc.collect()
    x = weft.ones(1 << 20, device="cuda")
    before = weft.cuda.memory_allocated()
    with weft.cuda.graph() as g:
        y = (x * 2.0 + 1.0) * 3.0
    weft.cuda.empty_cache()
    others = [weft.full((1 << 20,), 7.0, device="cuda") for _ in range(8)]
    g.replay()
    assert y.cpu().numpy().min() == y.cpu().numpy().max() == 9.0
    assert all(o.cpu().numpy().max() == 7.0 for o in others)
    del g, y, others
    gc.collect()
    assert weft.cuda.memory_allocated() <= before + 8 * 512


# Kernels

SOURCE = """
extern "C" __global__ void rowsum(const float* x, float* out, float factor, int rows, int columns) {
    extern __shared__ float part[];
    float total = 0.0f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) total += x[blockIdx.x * columns + i];
    part[threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < blockDim.x; i++) total += part[i];
        out[blockIdx.x] = factor * total;
    }
}
"""


@part
def kernels_of_the_user() -> None:
    k = weft.cuda.kernel(
        SCALE, "scale", out=lambda x, *, factor=2.0: x, arguments=lambda x, y, factor: (x, y, factor, x.size)
    )
    x = rows(1, 77, 33)
    there = weft.tensor(x, device="cuda")
    near(k(there.T, factor=3.0), x.T * np.float32(3.0))
    fast = weft.compile(lambda t: k(weft.tanh(t), factor=3.0) + 1.0)
    for _ in range(5):
        near(fast(there), np.tanh(x) * 3.0 + 1.0)
    with weft.cuda.graph() as g:
        y = k(there + 1.0, factor=5.0)
    g.replay()
    near(y, (x + 1.0) * 5.0)


@part
def kernels_by_nvrtc() -> None:
    k = weft.cuda.kernel(
        SOURCE,
        "rowsum",
        out=lambda x, *, factor: weft.TensorType(x.shape[:1], x.dtype),
        arguments=lambda x, out, factor: (x, out, factor, *x.shape),
        grid=lambda x, out, factor: x.shape[0],
        block=128,
        shared=512,
    )
    x = rows(1, 50, 1000)
    near(k(weft.tensor(x, device="cuda"), factor=2), x.sum(1) * 2.0, 1e-3)
    wrong = weft.cuda.kernel(SOURCE.replace("total +=", "nonsense +="), "rowsum", out=lambda x, *, factor: x)
    said = raises(DomainError, lambda: wrong(weft.tensor(x, device="cuda"), factor=2.0))
    print("      " + " | ".join(said.splitlines()[:3])[:200])


# Data


@part
def overlap_of_uploads() -> None:
    batch, count = 4096, 100
    x = np.random.default_rng(0).random((batch * 4, 4096), np.float32)  # 64 MiB a batch
    source = data.from_arrays(np.arange(count)).map(lambda i: x[(i % 4) * batch : (i % 4 + 1) * batch])
    copies = _seconds(lambda: [None for _ in source.to("cuda")])
    fixed = weft.tensor(x[:batch], device="cuda")

    def work(t: Any, turns: int) -> Any:
        for _ in range(turns):
            t = weft.tanh(t)
        return t

    once = _seconds(lambda: work(fixed, 2000)) / 2000
    for share in (1.3, 3.0):  # how long the work takes, in times of the copies
        turns = round(share * copies / count / once)
        alone = _seconds(lambda turns=turns: [work(fixed, turns) for _ in range(count)] and None)
        both = _seconds(lambda turns=turns: [work(t, turns) for t in source.to("cuda")] and None)
        hidden = (alone + copies - both) / min(alone, copies)
        note(f"work / uploads / both ({share})", f"{alone:.3f} / {copies:.3f} / {both:.3f} s")
        note(f"overlap of uploads and work ({share})", f"{100 * hidden:.1f} %")
    note("uploads, 64 MiB a batch", f"{count * batch * 4096 * 4 / copies / 1e9:.1f} GB/s")


def _seconds(run: Any) -> float:
    found = []
    for _ in range(2):
        weft.cuda.synchronize()
        begin = time.perf_counter()
        kept = run()
        weft.cuda.synchronize()
        found.append(time.perf_counter() - begin)
        del kept
    return min(found)


# Features


@part
def autocast_and_scaling() -> None:
    for dtype in (weft.bfloat16, weft.float16):
        weft.manual_seed(0)
        model = weft.nn.Sequential(weft.nn.Linear(16, 32), weft.nn.GELU(), weft.nn.Linear(32, 4)).to("cuda")
        optimizer = weft.optim.AdamW(model.parameters(), lr=1e-2)
        scaler = weft.optim.GradScaler()
        x, y = weft.tensor(rows(1, 64, 16), device="cuda"), weft.tensor(np.arange(64) % 4, device="cuda")
        losses = []
        for _ in range(20):
            with weft.autocast(dtype=dtype):
                loss = weft.cross_entropy(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        assert losses[-1] < losses[0] * 0.9, losses


@part
def recompute_sparse_ragged() -> None:
    x: Any = weft.tensor(rows(1, 8, 8), device="cuda").requires_grad_()
    weft.checkpoint(lambda t: weft.tanh(t @ t).sum(), x).backward()
    h: Any = weft.tensor(rows(1, 8, 8)).requires_grad_()
    weft.tanh(h @ h).sum().backward()
    near(x.grad, h.grad.numpy())


@part
def transforms() -> None:
    x = rows(1, 5, 4)
    f = lambda t: weft.tanh(t * t).sum()  # noqa: E731
    for name, run in {
        "grad": lambda t: weft.grad(f)(t),
        "vmap": lambda t: weft.vmap(lambda r: weft.softmax(r, axis=0))(t),
        "jvp": lambda t: weft.jvp(f, (t,), (t,))[1],
        "hessian": lambda t: weft.hessian(f)(t[0]),
        "jacrev": lambda t: weft.jacrev(lambda r: weft.sin(r) * r)(t[0]),
        "vmap of grad": lambda t: weft.vmap(weft.grad(lambda r: (r**3).sum()))(t),
    }.items():
        found = run(weft.tensor(x, device="cuda"))
        assert found.device == "cuda", name
        near(found, run(weft.tensor(x)).numpy())


@part
def explanations() -> None:
    x = weft.tensor(rows(1, 16384, 4096), device="cuda")
    fast = weft.compile(lambda x: weft.softmax(weft.tanh(x) * 2.0, axis=1).sum(axis=0))
    expected = fast(x).cpu().numpy()
    fast.explain(x)
    with weft.profile() as found:
        near(fast(x), expected)
        (x + x).sum()
    for event in found.events:
        if event.kind in ("kernel", "op"):
            note(f"profile: {event.kind} {event.name[:24]}", f"{event.duration / 1e3:.0f} us")


@part
def command_line() -> None:
    """``weft doctor`` tries the card; a saved graph runs there."""

    def said(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "weft.cli", *arguments], capture_output=True, text=True, timeout=120
        )
        assert not done.returncode, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    text = said("doctor")
    for line in text.splitlines():
        if "cuda" in line.lower() or "cublas" in line.lower() or "cudnn" in line.lower():
            print("      " + line.strip()[:150])
    assert card().architecture in text
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.weft"
        weft.jit.trace(weft.nn.Linear(3, 2), weft.ones(1, 3)).save(path)
        begin = time.perf_counter()
        said("bench", path, "--device", "cuda")
        note("weft bench --device cuda", f"{time.perf_counter() - begin:.1f} s")


@part
def trainer_on_the_device() -> None:
    def history(device: str) -> list[Any]:
        weft.manual_seed(0)
        model = weft.nn.Sequential(weft.nn.Linear(3, 8), weft.nn.ReLU(), weft.nn.Linear(8, 3))
        x = rows(1, 64, 3)
        optimizer = weft.optim.Adam(model.parameters(), lr=0.02)
        batches = data.from_arrays(x, x.argmax(axis=1)).shuffle(seed=3).batch(8)
        trainer = weft.Trainer(
            model, weft.cross_entropy, optimizer, batches, [(x[:8], x[:8].argmax(axis=1))],
            metrics=["accuracy"], clip_norm=1.0, ema=weft.optim.EMA(model), progress=False, device=device,
        )  # fmt: skip
        return [[row["loss"], row["val_loss"]] for row in trainer.fit(epochs=3)]

    np.testing.assert_allclose(history("cuda"), history("cpu"), rtol=1e-3)


# Endurance


@part
def ten_thousand_steps_leave_nothing() -> None:
    model = weft.nn.Sequential(weft.nn.Linear(8, 32), weft.nn.Tanh(), weft.nn.Linear(32, 1)).to("cuda")
    optimizer = weft.optim.AdamW(model.parameters(), lr=1e-3)

    @weft.compile
    def step(x: Any) -> Any:
        loss = (model(x) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    x = weft.tensor(rows(1, 64, 8), device="cuda")
    for _ in range(50):
        step(x)
    gc.collect()
    weft.cuda.synchronize()
    allocated, reserved = weft.cuda.memory_allocated(), weft.cuda.memory_reserved()
    begin = time.perf_counter()
    for _ in range(10_000):
        step(x)
    weft.cuda.synchronize()
    note("compiled training step, 10,000 times", f"{(time.perf_counter() - begin) * 100:.1f} us a step")
    assert weft.cuda.memory_allocated() <= allocated + 4096
    assert weft.cuda.memory_reserved() <= reserved + (2 << 20)


@part
def a_thousand_steps_in_half_precision_leave_nothing() -> None:
    """With products of cuBLASLt in the graph, and losses that somebody keeps for a while."""
    model = weft.nn.Sequential(weft.nn.Linear(256, 512), weft.nn.GELU(), weft.nn.Linear(512, 256)).to("cuda")
    optimizer = weft.optim.AdamW(model.parameters(), lr=1e-3)

    @weft.compile
    def step(x: Any) -> Any:
        with weft.autocast(dtype=weft.bfloat16):
            loss = ((model(x) - x).astype(weft.float32) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    x = weft.tensor(rows(1, 128, 256), device="cuda")
    first = step(x).item()
    kept = [step(x) for _ in range(20)]
    del kept[:]
    gc.collect()
    weft.cuda.synchronize()
    allocated, reserved = weft.cuda.memory_allocated(), weft.cuda.memory_reserved()
    for _ in range(1000):
        kept = [*kept[-3:], step(x)]
    last = kept[-1].item()
    del kept[:]
    gc.collect()
    assert last < first / 2
    assert weft.cuda.memory_allocated() <= allocated + 4096
    assert weft.cuda.memory_reserved() <= reserved + (4 << 20)


@part
def two_threads() -> None:
    fast = weft.compile(lambda x, w: weft.softmax(weft.tanh(x @ w), axis=1).sum(axis=0))
    wrong: list[Any] = []

    def work(seed: int) -> None:
        x, w = rows(seed, 32, 16), rows(seed + 9, 16, 8)
        expected = weft.softmax(weft.tanh(weft.tensor(x) @ weft.tensor(w)), axis=1).sum(axis=0).numpy()
        there = weft.tensor(x, device="cuda"), weft.tensor(w, device="cuda")
        for _ in range(100):
            try:
                near(fast(*there), expected)
                near(weft.tanh(there[0]).sum(axis=0), np.tanh(x).sum(0))
            except Exception as error:
                wrong.append(error)
                return

    workers = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if wrong:
        raise wrong[0]


def _child(seed: int, answers: Any) -> None:
    x = weft.tensor(rows(seed, 64, 64), device="cuda")
    for _ in range(200):
        y = weft.tanh(x @ x)
    answers.put((seed, y.cpu().numpy()))


@part
def two_processes() -> None:
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    children = [context.Process(target=_child, args=(seed, answers)) for seed in (1, 2)]
    for child in children:
        child.start()
    for _ in children:
        seed, found = answers.get(timeout=60)
        np.testing.assert_allclose(
            found, np.tanh(rows(seed, 64, 64) @ rows(seed, 64, 64)), rtol=1e-3, atol=1e-4
        )
    for child in children:
        child.join(20)


@part
def out_of_memory_in_a_step() -> None:
    x = weft.ones(1 << 15, 1 << 14, device="cuda")  # 2 GiB
    held: list[Any] = []
    try:
        while True:
            held.append(x * 2.0)
    except DeviceMemoryError as error:
        print("      " + str(error).splitlines()[0], len(held))
    held.clear()
    gc.collect()
    assert (weft.ones(1000, device="cuda") * 2.0).cpu().numpy().sum() == 2000
    del x
    weft.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(run_all())

"""Run on a machine with a card: kernels of the schedule for GPUs, their values and times, beside PyTorch's.

    python -m tests.gpu.card_kernels [times] [batches] [quality] [variants] [bits] [matrix] [matrix:2/8]

Prints one line for each; ``matrix:2/8`` is the third of eight parts of the ops, for processes side by side.
PTX is loaded by the driver; PyTorch has the memory and measures the peers.
"""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
import weft.nn.functional as F
from tests.gpu.plain_driver import Card, Loaded, run_on_card
from weft.backends.cuda.build import build_program
from weft.schedule.gpu.machine import Gpu as Machine

try:
    import torch
except ImportError:  # where tests are collected there may be none
    torch: Any = None  # type: ignore[no-redef]

ROWS, COLUMNS = 16384, 4096
TURNS = 50


def measure(run: Callable[[], Any]) -> float:
    """Milliseconds of a call, the median of several stretches of calls."""
    for _ in range(5):
        run()
    torch.cuda.synchronize()
    times = []
    for _ in range(5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(TURNS):
            run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / TURNS)
    return sorted(times)[2]


def prepared(
    card: Card, function: Any, tensors: list[Any], machine: Machine | None = None
) -> tuple[Loaded, float]:
    """A function of weft on the memory of tensors, and how long it took to compile."""
    begin = time.perf_counter()
    specs = [_spec(t) for t in tensors]
    program = build_program(weft.make_graph(function)(*specs).optimize(), machine=machine)
    loaded = Loaded(card, program)
    loaded.give([t.data_ptr() for t in tensors])
    return loaded, time.perf_counter() - begin


def _spec(tensor: Any) -> Any:
    dtypes = {
        torch.float32: weft.float32, torch.bfloat16: weft.bfloat16, torch.int64: weft.int64,
        torch.uint64: weft.uint64,
    }  # fmt: skip
    return weft.zeros(tuple(tensor.shape), dtype=dtypes[tensor.dtype])


def results(card: Card, loaded: Loaded) -> list[Any]:
    """What a program has written, as tensors."""
    out = []
    for i, array in enumerate(loaded.program.outputs):
        bf16 = array.dtype.itemsize == 2
        host = np.empty(array.shape, np.uint16 if bf16 else array.dtype)
        card.get(loaded.bases["output", i], host)
        tensor = torch.from_numpy(host.view(np.int16) if bf16 else host)
        out.append(tensor.view(torch.bfloat16) if bf16 else tensor)
    return out


def compare(
    card: Card, name: str, function: Any, peer: Any, tensors: list[Any], passes: float, near: float,
    *, also_compiled: bool = False,
) -> None:  # fmt: skip
    """Values and times of one function, beside the same one of PyTorch."""
    loaded, compiling = prepared(card, function, tensors)
    loaded.run()
    card.wait()
    expected = peer(*tensors) if peer is not None else tuple(results(card, loaded))
    expected = expected if isinstance(expected, tuple) else (expected,)
    worst = 0.0
    for got, want in zip(results(card, loaded), expected, strict=True):
        want = want.detach().double().cpu().reshape(got.shape)
        scale = want.abs().max().clamp(min=1.0)
        worst = max(worst, float((got.double() - want).abs().max() / scale))
    first = [r.clone() for r in results(card, loaded)]
    loaded.run()
    card.wait()
    same = all(torch.equal(a, b) for a, b in zip(first, results(card, loaded), strict=True))
    ours = measure(loaded.run)
    bytes_ = passes * tensors[0].numel() * tensors[0].element_size()
    line = f"{name:34} {ours:8.4f} ms {bytes_ / ours / 1e9:6.2f} TB/s compile {compiling:5.2f} s "
    line += f"error {worst:.1e} {'ok' if worst < near else 'WRONG'} {'bits same' if same else 'BITS DIFFER'}"
    line += f" | torch {measure(lambda: peer(*tensors)):8.4f}" if peer is not None else ""
    try:
        fast = torch.compile(peer) if also_compiled else None
        line += f" compiled {measure(lambda: fast(*tensors)):8.4f}" if fast is not None else ""
    except Exception as error:  # a peer that does not compile is no reason to end
        line += f" compiled: {type(error).__name__}"
    print(line, flush=True)


def grads(function: Any, count: int) -> Any:
    """By PyTorch: the results of a function, and its gradients by the first arguments along the last."""

    def run(*tensors: Any) -> tuple[Any, ...]:
        *given, along = tensors
        given = [t.detach().requires_grad_() for t in given]
        out = function(*given)
        return (out.detach(), *torch.autograd.grad(out, given[:count], along))

    return run


def weft_grads(function: Any, count: int, *, value: bool = True) -> Any:
    """The same by weft."""

    def run(*tensors: Any) -> tuple[Any, ...]:
        *given, along = tensors
        out, pull = weft.vjp(function, *given)
        found = tuple(pull(along))[:count]
        return (out, *found) if value else found

    return run


def times(card: Card) -> None:
    """The functions whose times are goals."""
    gen = torch.Generator(device="cuda").manual_seed(0)

    def normal(*shape: int, dtype: Any = torch.float32) -> Any:
        return torch.randn(*shape, device="cuda", dtype=torch.float32, generator=gen).to(dtype)

    x, dy = normal(ROWS, COLUMNS), normal(ROWS, COLUMNS)
    w, b = normal(COLUMNS), normal(COLUMNS)
    tf = torch.nn.functional
    run = [
        ("copy", lambda x: x + 0.0, lambda x: x + 0.0, [x], 2, 1e-6),
        ("softmax 16k x 4k", lambda x: F.softmax(x, axis=-1), lambda x: tf.softmax(x, -1), [x], 2, 1e-6),
        (
            "softmax, y and gradient",
            weft_grads(lambda x: F.softmax(x, axis=-1), 1),
            grads(lambda x: tf.softmax(x, -1), 1), [x, dy], 4, 1e-5,
        ),
        (
            "layer norm",
            lambda x, w, b: F.layer_norm(x, (COLUMNS,), w, b),
            lambda x, w, b: tf.layer_norm(x, (COLUMNS,), w, b), [x, w, b], 2, 1e-5,
        ),
        (
            "layer norm, gradients by x, w, b",
            weft_grads(lambda x, w, b: F.layer_norm(x, (COLUMNS,), w, b), 3, value=False),
            lambda *t: grads(lambda x, w, b: tf.layer_norm(x, (COLUMNS,), w, b), 3)(*t)[1:],
            [x, w, b, dy], 3, 1e-5,
        ),
        (
            "layer norm, y and all gradients",
            weft_grads(lambda x, w, b: F.layer_norm(x, (COLUMNS,), w, b), 3),
            grads(lambda x, w, b: tf.layer_norm(x, (COLUMNS,), w, b), 3), [x, w, b, dy], 4, 1e-5,
        ),
        (
            "chain 64M, y and gradient",
            weft_grads(lambda x: weft.tanh(x * 2.0 + 1.0) * weft.exp(-x * x) + x, 1),
            grads(lambda x: torch.tanh(x * 2.0 + 1.0) * torch.exp(-x * x) + x, 1), [x, dy], 4, 1e-5,
        ),
        ("sum of all", lambda x: x.sum(), lambda x: x.sum(), [x], 1, 1e-3),
        ("sum of columns", lambda x: x.sum(axis=0), lambda x: x.sum(0), [x], 1, 1e-5),
        ("sum of rows", lambda x: x.sum(axis=1), lambda x: x.sum(1), [x], 1, 1e-5),
    ]  # fmt: skip
    h, bias = normal(ROWS, 3072, dtype=torch.bfloat16), normal(3072, dtype=torch.bfloat16)
    d, dw = normal(ROWS, 768, dtype=torch.bfloat16), normal(768, dtype=torch.bfloat16)
    run += [
        (
            "bf16 bias + gelu 16k x 3072",
            lambda x, b: F.gelu(x + b), lambda x, b: tf.gelu(x + b), [h, bias], 2, 2e-2,
        ),
        (
            "bf16 layer norm 16k x 768",
            lambda x, w, b: F.layer_norm(x, (768,), w, b),
            lambda x, w, b: tf.layer_norm(x, (768,), w, b), [d, dw, dw], 2, 2e-2,
        ),
    ]  # fmt: skip
    for case in run:
        guarded(case[0], 120, lambda case=case: compare(card, *case, also_compiled=True))  # type: ignore[misc]


def quality(card: Card) -> None:
    """Kernels of single ops that are easily slow: beside PyTorch's, and beside a copy."""
    gen = torch.Generator(device="cuda").manual_seed(0)

    def normal(*shape: int, dtype: Any = torch.float32) -> Any:
        return torch.randn(*shape, device="cuda", dtype=torch.float32, generator=gen).to(dtype)

    tf, bf16 = torch.nn.functional, torch.bfloat16
    h, bias, dh = normal(ROWS, 3072, dtype=bf16), normal(3072, dtype=bf16), normal(ROWS, 3072, dtype=bf16)
    square, wide = normal(8192, 8192), normal(4096, 50304, dtype=bf16)
    rows, line, some = normal(4096, 1024), normal(1 << 24), normal(256, 50304)
    target = torch.randint(0, 50304, (4096,), device="cuda", generator=gen)
    table, dy = normal(50304, 768), normal(16384, 768)
    tokens = torch.randint(0, 50304, (16384,), device="cuda", generator=gen)
    key = torch.tensor([1, 2], dtype=torch.uint64, device="cuda")

    def cross_entropy_of_torch(x: Any, t: Any) -> tuple[Any, ...]:
        x = x.detach().requires_grad_()
        loss = tf.cross_entropy(x, t)
        return (loss.detach(), *torch.autograd.grad(loss, [x]))

    run = [
        ("bf16 copy 16k x 3072", lambda x: x + 0.0, lambda x: x + 0.0, [h], 2, 1e-6),
        (
            "bf16 bias + gelu 16k x 3072",
            lambda x, b: F.gelu(x + b), lambda x, b: tf.gelu(x + b), [h, bias], 2, 2e-2,
        ),
        (
            "bf16 bias + gelu, y and gradient",
            weft_grads(lambda x, b: F.gelu(x + b), 1),
            grads(lambda x, b: tf.gelu(x + b), 1), [h, bias, dh], 4, 2e-2,
        ),
        (
            "bf16 softmax 16k x 3072",
            lambda x: F.softmax(x, axis=-1), lambda x: tf.softmax(x, -1), [h], 2, 2e-2,
        ),
        ("f32 gelu 8192 x 8192", F.gelu, tf.gelu, [square], 2, 1e-5),
        ("transposed 8192 x 8192", lambda x: x.T + 0.5, lambda x: x.T + 0.5, [square], 2, 1e-6),
        ("cumsum of rows 8192", lambda x: weft.cumsum(x, axis=1), lambda x: x.cumsum(1), [square], 2, 1e-3),
        ("argmax of bf16 rows", lambda x: weft.argmax(x, axis=1), lambda x: x.argmax(1), [wide], 1, 1e-6),
        ("sort 4096 x 1024", lambda x: weft.sort(x, axis=1), lambda x: x.sort(1)[0], [rows], 2, 1e-6),
        ("cumsum of one line 2^24", lambda x: weft.cumsum(x, axis=0), lambda x: x.cumsum(0), [line], 2, 1e-2),
        (
            "cross entropy 4096 x 50304, bf16, y and gradient",
            lambda x, t: weft.value_and_grad(lambda x: F.cross_entropy(x, t))(x),
            cross_entropy_of_torch, [wide, target], 3, 2e-2,
        ),
        (
            "gradient of an embedding, 16k of 50304 x 768",
            lambda w, i, dy: weft.vjp(lambda w: w[i], w)[1](dy),
            lambda w, i, dy: torch.zeros_like(w).index_add_(0, i, dy), [table, tokens, dy], 1, 1e-4,
        ),
        (
            "top 50 of 256 x 50304",
            lambda x: weft.topk(x, 50, axis=1), lambda x: tuple(x.topk(50, 1)), [some], 1, 1e-6,
        ),
        ("uniform 2^24", lambda k: weft.random.uniform(k, (1 << 24,)), None, [key], 1, 1.0),
        ("argsort 4096 x 1024", lambda x: weft.argsort(x, axis=1), lambda x: x.argsort(1), [rows], 3, 1e-6),
    ]  # fmt: skip
    for case in run:
        guarded(case[0], 30, lambda case=case: compare(card, *case))  # type: ignore[misc]


def parameter_shapes() -> list[tuple[int, ...]]:
    """Those of GPT-2, the small one."""
    layer = [(2304, 768), (2304,), (768, 768), (768,), (3072, 768), (3072,), (768, 3072), *[(768,)] * 5]
    return [(50304, 768), (1024, 768), *(layer * 12), (768,), (768,)]


def batches(card: Card) -> None:
    """AdamW over all parameters of a model, with copies in half precision: how many launches, how long."""
    shapes = parameter_shapes()
    gen = torch.Generator(device="cuda").manual_seed(0)
    given = [[torch.randn(*s, device="cuda", generator=gen) for s in shapes] for _ in range(3)]
    given.append([torch.rand(*s, device="cuda", generator=gen) for s in shapes])
    count = len(shapes)

    def one(p: Any, g: Any, m: Any, v: Any) -> Any:
        m, v = m + (g - m) * 0.1, v * 0.999 + g * g * 0.001
        new = p * 0.9999 - m / (v.sqrt() * 1.2 + 1e-8) * 3e-4
        return new, m, v, new

    def ours(*ts: Any) -> Any:
        out = []
        for i in range(count):
            new, m, v, half = one(*[ts[k * count + i] for k in range(4)])
            out += [new, m, v, half.astype(weft.bfloat16)]
        return out

    tensors = [t for group in given for t in group]
    loaded, compiling = prepared(card, ours, tensors)
    loaded.run()
    card.wait()
    wrong = 0.0
    for i, got in enumerate(results(card, loaded)[: 4 * 30]):
        want = one(*[group[i // 4] for group in given])[i % 4].double().cpu()
        wrong = max(wrong, float((got.double() - want).abs().max()))
    launches = len(loaded.program.steps)
    peers = [torch.nn.Parameter(p.clone()) for p in given[0]]
    for p, g in zip(peers, given[1], strict=True):
        p.grad = g
    times_ = {}
    for kind in ("fused", "foreach"):
        optimizer = torch.optim.AdamW(peers, lr=3e-4, **{kind: True})
        times_[kind] = measure(optimizer.step)
    elements = sum(t.numel() for t in given[0])
    took = measure(loaded.run)
    told = ", ".join(f"torch {kind} {ms:.3f}" for kind, ms in times_.items())
    print(
        f"AdamW, {count} parameters, bf16 copies: {launches} launches, {took:.3f} ms, "
        f"{elements * 30 / took / 1e9:.2f} TB/s, error {wrong:.1e}, compile {compiling:.2f} s | {told}",
        flush=True,
    )


def variants(card: Card) -> None:
    """Other ways to share out the same work."""
    gen = torch.Generator(device="cuda").manual_seed(0)
    x, dy = (torch.randn(ROWS, COLUMNS, device="cuda", generator=gen) for _ in range(2))
    w = torch.randn(COLUMNS, device="cuda", generator=gen)
    norm = lambda x, w, b: F.layer_norm(x, (COLUMNS,), w, b)  # noqa: E731
    cases = {
        "softmax": (lambda x: F.softmax(x, axis=-1), [x]),
        "softmax, y and gradient": (weft_grads(lambda x: F.softmax(x, axis=-1), 1), [x, dy]),
        "layer norm gradients": (weft_grads(norm, 3, value=False), [x, w, w, dy]),
        "layer norm, y and gradients": (weft_grads(norm, 3), [x, w, w, dy]),
    }
    machines = {
        "16 a thread": Machine(), "8 a thread": Machine(good_elements=8), "4": Machine(good_elements=4),
        "16, 528 blocks": Machine(blocks=528), "8, 528 blocks": Machine(good_elements=8, blocks=528),
        "8, 396 blocks": Machine(good_elements=8, blocks=396),
    }  # fmt: skip
    for name, (function, tensors) in cases.items():
        for told, machine in machines.items():

            def one(
                name: Any = (name, told),
                function: Any = function,
                tensors: Any = tensors,
                machine: Any = machine,
            ) -> None:
                loaded, _ = prepared(card, function, tensors, machine)
                print(f"{name[0]:28} {name[1]:16} {measure(loaded.run):8.4f} ms", flush=True)

            guarded(name, 60, one)


def bits(card: Card) -> None:
    """Elementwise functions: how many units in the last place the card is from the processor."""
    from tests.backends.agreement import compiled

    x = np.random.default_rng(0).standard_normal(1 << 16).astype(np.float32) * 4
    y = np.abs(np.random.default_rng(1).standard_normal(1 << 16)).astype(np.float32) + 0.1
    functions = {
        "exp": lambda x, y: weft.exp(x), "log": lambda x, y: weft.log(y), "tanh": lambda x, y: weft.tanh(x),
        "sin": lambda x, y: weft.sin(x), "cos": lambda x, y: weft.cos(x), "sqrt": lambda x, y: weft.sqrt(y),
        "div": lambda x, y: x / y, "pow": lambda x, y: y**x, "sigmoid": lambda x, y: weft.sigmoid(x),
        "gelu": lambda x, y: F.gelu(x), "silu": lambda x, y: F.silu(x), "fmod": lambda x, y: weft.fmod(x, y),
        "x*y+x": lambda x, y: x * y + x, "(x*y+x)*(x*y)": lambda x, y: (x * y + x) * (x * y),
        "atan2": lambda x, y: weft.atan2(x, y), "log1p": lambda x, y: weft.log1p(y),
    }  # fmt: skip
    for name, function in functions.items():

        def one(name: str = name, function: Any = function) -> None:
            graph = weft.make_graph(function)(weft.tensor(x), weft.tensor(y)).optimize()
            a, b = run_on_card(card, build_program(graph), [x, y])[0], compiled(graph, [x, y])[0]
            apart = np.abs(a.view(np.int32).astype(np.int64) - b.view(np.int32).astype(np.int64))
            apart = np.where(np.isnan(a) & np.isnan(b), 0, apart)
            print(f"bits of {name:16} differ in {int((apart > 0).sum()):6} of {x.size}, by {apart.max()} ulp")

        guarded(name, 60, one)


def guarded(name: str, seconds: int, run: Callable[[], Any]) -> bool:
    """Whether something ran without an error, in time; what was wrong is printed."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"longer than {seconds} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        run()
    except Exception as error:
        lines = traceback.format_exc().strip().splitlines()
        print(
            f"{name:34} FAILED {type(error).__name__}: {str(error)[:300]} [{lines[-3].strip()}]", flush=True
        )
        return False
    finally:
        signal.alarm(0)
    return True


def matrix(card: Card, seconds: float, share: str = "0/1") -> None:
    """Every op of a share with its gradient, against the interpreter, as many as the time allows."""
    from tests.backends.agreement import assert_agree, interpreted
    from tests.backends.llvm.matrix import arrays_of, cases, graph_of, rows

    begin, good, bad = time.perf_counter(), 0, []
    first, shares = map(int, share.split("/"))
    for name in list(rows())[first::shares]:
        if time.perf_counter() - begin > seconds:
            print(f"matrix: out of time at {name}")
            break

        def one(name: str = name) -> None:
            found = list(cases(name))
            graph, arrays = graph_of(found), arrays_of(found)
            program = build_program(graph.optimize())
            assert_agree(run_on_card(card, program, arrays), interpreted(graph, arrays))

        if guarded(name, 60, one):
            good += 1
        else:
            bad.append(name)
    print(f"matrix: {good} ops agree, {len(bad)} do not: {' '.join(bad)}", flush=True)


def main() -> None:
    """What the arguments ask for."""
    wanted = sys.argv[1:] or ["times", "batches", "quality", "variants", "bits", "matrix"]
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    card = Card()
    if "times" in wanted:
        times(card)
    if "batches" in wanted:
        guarded("batches", 60, lambda: batches(card))
    if "quality" in wanted:
        quality(card)
    if "variants" in wanted:
        variants(card)
    if "bits" in wanted:
        bits(card)
    for name in wanted:
        if name.startswith("matrix"):
            matrix(card, 180, name.partition(":")[2] or "0/1")


if __name__ == "__main__":
    main()

"""What ``test_mpi`` runs on several ranks: each check raises on the rank where it fails."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from tests.parallel.test_collectives import CASES, WAYS, given
from tests.parallel.test_step import step_with_class
from tests.parallel.training import train
from weft import parallel as par
from weft.base.ranks import hiding, tree_fold, world
from weft.errors import BoundsError, RankError
from weft.io.slices import remove_slices


def check_collectives() -> None:
    """Every collective, eager and compiled, against NumPy on what all ranks hold."""
    n, rank = par.size(), par.rank()
    xs = [given(r, (n * 2, 3)) for r in range(n)]
    for way in WAYS.values():
        for call, expected in CASES.values():
            out = way(call)(weft.tensor(xs[rank])).numpy()
            np.testing.assert_array_equal(out, expected(n, rank, xs))


def check_bits() -> None:
    """A sum of any size is one tree over the ranks; native sums are close to it."""
    n, rank = par.size(), par.rank()
    for size in (0, 1, 7, 5000, 100_003, 3_000_001):  # the last is cut into pieces
        for dtype in (np.float32, np.float64, np.float16, np.int64)[: 1 if size > 1 << 20 else 4]:
            xs = [given(r, (size,), dtype) for r in range(n)]
            out = par.all_reduce(weft.tensor(xs[rank]), "data").numpy()
            assert out.tobytes() == tree_fold(xs, np.add).tobytes()
            loose = par.all_reduce(weft.tensor(xs[rank]), "data", reproducible=False).numpy()
            scale = 1e-2 if dtype is np.float16 else 1e-5
            np.testing.assert_allclose(loose, tree_fold(xs, np.add), rtol=scale, atol=scale * 8)


def check_small_sums_again_and_again() -> None:
    """What is looked up once for sums of a shape: values, results of their own, and ranks that differ."""
    n, rank = par.size(), par.rank()
    for dtype in (np.float32, np.float64):
        for shape in ((), (3,), (2, 5), (0,), (16, 16), (64, 64)):
            kept = []
            for turn in range(4):
                xs = [given(r + turn, shape, dtype) for r in range(n)]
                for op, fold in (("sum", np.add), ("max", np.maximum)):
                    out = par.all_reduce(weft.tensor(xs[rank]), "data", op=op)
                    assert (out.shape, out.dtype) == (shape, np.dtype(dtype))
                    kept.append((out, tree_fold(xs, fold)))
                loose = par.all_reduce(weft.tensor(xs[rank]), "data", reproducible=False)
                np.testing.assert_allclose(loose.numpy(), tree_fold(xs, np.add), rtol=1e-5, atol=1e-5)
            for out, expected in kept:  # later ones have not written over it
                assert out.numpy().tobytes() == np.asarray(expected).tobytes()
    with pytest.raises(weft.errors.DivergenceError, match=r"mpi_program\.py"):
        par.all_reduce(weft.ones(3), "data", op="max" if rank else "sum")
    assert float(par.all_reduce(weft.ones(3), "data")[2]) == n
    x = weft.ones(3, requires_grad=rank == 0)  # another way to the same sum
    assert float(par.all_reduce(x, "data")[2]) == n


def check_divergence() -> None:
    """Ranks that do different things are told within two seconds, and can go on."""
    rank = par.rank()
    calls: list[Callable[[], Any]] = [
        lambda: par.all_reduce(weft.ones(3 + rank), "data"),
        lambda: par.all_gather(weft.ones(3), "data") if rank else par.barrier(),
        lambda: par.all_reduce(weft.ones(3, dtype=weft.float64 if rank else weft.float32), "data"),
    ]
    for call in calls:
        start = time.monotonic()
        with pytest.raises(weft.errors.DivergenceError) as found:
            call()
        for part in ("rank 0", "rank 1", "mpi_program.py"):
            assert part in str(found.value)
        assert time.monotonic() - start < 2
        assert float(par.all_reduce(weft.tensor(1.0), "data")) == par.size()


def check_crossing() -> None:
    """Ranks that wait for each other in different groups are told, too."""
    if par.size() == 4:
        par.mesh(a=2, b=2)
        start = time.monotonic()
        with pytest.raises(weft.errors.ParallelError):
            for axis in ("a", "b") if par.rank() in (0, 3) else ("b", "a"):
                par.all_reduce(weft.ones(2), axis)
        assert time.monotonic() - start < 2
        par.barrier()


def check_failure() -> None:
    """A rank that fails in a compiled step keeps all from committing; all say whose error it was."""
    last = par.rank() == par.size() - 1
    with pytest.raises(BoundsError if last else RankError, match="class numbers must be in"):
        step_with_class(7)
    step_with_class(1)


def check_late_failure() -> None:
    """Likewise where a rank fails after the last message, by something of its own."""
    broken = [par.rank() == 1]

    @weft.custom_op("test::breaks", type_rule=lambda x: x, gradient=lambda g: g)
    def breaks(x: Any) -> Any:
        if broken[0]:
            raise OSError("no memory on this machine")
        return x.copy()

    total = weft.zeros(3)

    def step(x: Any) -> Any:
        total.add_(par.shard(x, "data").sum(axis=0))
        return breaks(total * 1.0)

    run = weft.compile(step, mesh=par.mesh(data=-1))
    with pytest.raises(OSError if broken[0] else RankError, match="no memory on this machine"):
        run(weft.ones(8, 3))
    assert (total.numpy() == 0).all()
    broken[0] = False
    run(weft.ones(8, 3))
    assert (total.numpy() == 8).all()


def check_placed(digest: str) -> None:
    """Parameters, gradients and state in parts: the same weights, and each process holds its part."""
    here: Any = world()
    for here.progress.has_thread in (True, False):
        assert train("mlp", zero=3)[1] == digest
    n, rank = par.size(), par.rank()
    x = par.place(weft.arange(10.0), par.P("data"))
    assert par.held_bytes([x]) == -(-10 // n) * 4
    np.testing.assert_array_equal((x * 2).full().numpy(), np.arange(10) * 2)
    rows = par.from_parts(weft.ones(2) * rank, par.P("data"))
    assert float((rows + 1).sum()) == n * (n + 1)


def check_checkpoint() -> None:
    """All processes write their slices, and any of them reads the whole."""
    path = Path(tempfile.gettempdir()) / f"weft-{os.getppid()}.safetensors"  # of the launcher: one for all
    x = par.place(weft.arange(10.0), par.P("data"))
    weft.save({"x": x, "step": 3}, path)
    assert weft.load(path)["x"].tolist() == list(range(10))
    again = par.load(path)["x"]
    assert par.held_bytes([again]) == par.held_bytes([x])
    np.testing.assert_array_equal(again.full().numpy(), np.arange(10))
    par.barrier()
    if par.rank() == 0:
        path.unlink()
        remove_slices(str(path))


def check_failure_in_a_large_sum() -> None:
    """A rank that fails while others are in the middle of a sum; what comes late harms nobody."""
    n, last = par.size(), par.rank() == par.size() - 1
    total = weft.zeros(2_000_000)

    def step(x: Any, scores: Any, classes: Any) -> Any:
        loss = F.cross_entropy(par.shard(scores, "data"), par.shard(classes, "data"))
        total.add_(par.shard(x, "data").sum(axis=0))
        return loss

    run = weft.compile(step, mesh=par.mesh(data=-1), reproducible=False)
    rows = np.arange(n * 2_000_000, dtype=np.float32).reshape(n, -1) % 97
    right = np.zeros(n, np.int64)
    wrong = np.append(right[1:], 9)  # the last rank's
    for _ in range(3):
        with pytest.raises(BoundsError if last else RankError, match="class numbers must be in"):
            run(weft.tensor(rows), weft.ones(n, 3), weft.tensor(wrong))
    assert (total.numpy() == 0).all()
    run(weft.tensor(rows), weft.ones(n, 3), weft.tensor(right))
    np.testing.assert_array_equal(total.numpy(), rows.sum(axis=0))


def check_overlap() -> None:
    """Gradients that are summed while others are computed have the bits of those that are not."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((300, 300)).astype(np.float32) / 20 for _ in range(6)]
    x = weft.tensor(rng.standard_normal((64, 300)).astype(np.float32))

    def gradients(**settings: Any) -> list[Any]:
        ws = [weft.tensor(w) for w in weights]

        def loss(*ws: Any) -> Any:
            h = par.shard(x, "data")
            for w in ws:
                h = weft.tanh(h @ w)
            return h.sum()

        run = weft.compile(weft.grad(loss, argnums=tuple(range(6))), mesh=par.mesh(data=-1), **settings)
        return [[g.numpy() for g in run(*ws)] for _ in range(3)][-1]

    here: Any = world()
    for settings, has_thread in product(({}, {"reproducible": False}), (True, False)):
        here.progress.has_thread = has_thread
        before = hiding.count
        plain = gradients(disable=["bucket", "overlap"], **settings)
        assert hiding.count == before
        with weft.profile() as p:
            beside = gradients(disable=["bucket"], **settings)
        assert hiding.count > before
        assert "sums over ranks took" in str(p)
        assert 0 <= p.hidden <= 1 if has_thread else p.hidden == 0
        for a, b in zip(plain, beside, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4 if settings else 0, atol=1e-5 if settings else 0)


def main() -> None:
    """Run what the arguments name."""
    par.mesh(data=-1)
    what = sys.argv[1]
    if what == "all":
        check_collectives()
        check_bits()
        check_small_sums_again_and_again()
        check_divergence()
        check_failure()
        check_late_failure()
        check_failure_in_a_large_sum()
        check_overlap()
        digest = train("mlp")[1]
        check_placed(digest)
        check_checkpoint()
        check_crossing()
        sys.stdout.write(f"rank {par.rank()} {digest}\n")
        return
    if par.rank() == 1:
        if what == "leaves":
            return
        if what == "raises":
            raise ValueError("an error of rank 1")
        os.kill(os.getpid(), signal.SIGKILL)
    par.barrier()


if __name__ == "__main__":
    main()

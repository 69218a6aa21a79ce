"""NCCL on a card: communicators of one rank, each collective on real memory, in lists and in graphs.

One card is all there is, and NCCL takes no two ranks on one; those are tried with a stand-in for the library
(tests/backends/cuda/test_collectives.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from tests.gpu.card import host_us, note, part, run_all
from weft import parallel as par
from weft.backends.cuda import nccl
from weft.backends.cuda.build import build_program
from weft.backends.cuda.card import card
from weft.backends.cuda.compiling import machine_of
from weft.backends.cuda.copies import to_device
from weft.backends.cuda.execute import CudaExecutable
from weft.backends.cuda.libraries import collectives_of
from weft.base.ranks import world
from weft.ops import collective as ops
from weft.passes.lowering.collectives_by_library import collectives_by_library

ALONE = {"axis": "data", "mesh": "data=1"}


def program(function: Callable[..., Any], *types: Any) -> CudaExecutable:
    """A program whose collectives are calls of NCCL, though there is one rank alone."""
    if nccl.the_library() is None:
        raise ImportError("NCCL is not there")
    graph = weft.make_graph(function)(*types).optimize()
    shared = collectives_by_library(graph, pairs=[("data=1", "data"), ("data=1", "")], alone=True)
    made = build_program(shared, card().architecture, machine_of(card()))
    assert collectives_of(made.steps), str(made)
    return CudaExecutable(card(), made, graph)


def agree(function: Callable[..., Any], shape: tuple[int, ...], dtype: Any = np.float32) -> None:
    """A collective of one rank, with kernels before and after it, first as a list and then as a graph."""

    def around(x: Any) -> Any:
        y = function(x + 1)
        return y * 2, y + 3

    run = program(around, weft.zeros(shape, dtype=weft.tensor(np.zeros(1, dtype)).dtype))
    rng = np.random.default_rng(0)
    for _ in range(6):
        x = rng.integers(-9, 9, shape).astype(dtype)
        y = function(weft.tensor(x) + 1)
        found = [a.to_host() for a in run([to_device(x, run.card)])]
        for got, right in zip(found, (y * 2, y + 3), strict=True):
            np.testing.assert_array_equal(got, right.numpy())
    (plan,) = run._plans.values()
    assert plan.replays, "calls must have become a graph"


@part
def nccl_is_found() -> None:
    library = nccl.the_library()
    if library is None:
        raise ImportError("NCCL is not there")
    note("NCCL", library.version)
    assert len(card().uuid) == 16


@part
def every_collective_of_one_rank() -> None:
    for dtype in (np.float32, np.int32, np.float16):
        agree(lambda x: ops.all_reduce(x, **ALONE, ordered=True), (5, 3), dtype)
        agree(lambda x: ops.all_reduce(x, **ALONE, ordered=False), (5, 3), dtype)
        agree(lambda x: ops.all_gather(x, **ALONE, dim=1), (5, 3), dtype)
        agree(lambda x: ops.reduce_scatter(x, **ALONE, dim=1, ordered=True), (5, 3), dtype)
        agree(lambda x: ops.reduce_scatter(x, **ALONE, dim=1, ordered=False), (5, 3), dtype)
        agree(lambda x: ops.all_to_all(x, **ALONE, split=0, join=1), (5, 3), dtype)
        agree(lambda x: ops.permute_ranks(x, **ALONE, to=(0,)), (5, 3), dtype)
        agree(lambda x: ops.permute_ranks(x, **ALONE, to=(-1,)), (5, 3), dtype)
        agree(lambda x: ops.broadcast(x, **ALONE, root=0), (5, 3), dtype)
    agree(lambda x: ops.all_reduce_max(x, **ALONE, ordered=True), (1000, 1001))
    agree(lambda x: ops.all_reduce(x, **ALONE, ordered=False), (1 << 22,))


@part
def failure_is_told_by_the_device() -> None:
    """Ranks learn from a reduction of the failure word, in a graph, whether state may be overwritten."""

    def looked_up(table: Any, i: Any) -> Any:
        found = table[i].sum()
        ops.commit.on_tensors(mesh="data=1")
        return table + found, table * 2, found * 3

    table, good = np.ones((4, 2), np.float32), np.array([0, 1, 3])
    run = program(looked_up, weft.tensor(table), weft.tensor(good))
    for bad in (False, False, False, False, True, False, True):
        arrays = [to_device(x, run.card) for x in (table, good + 4 * bad)]
        if bad:
            try:
                run(arrays)
            except IndexError:
                continue
            raise AssertionError("an index out of bounds must be an error")
        np.testing.assert_array_equal(run(arrays)[0].to_host(), table + 6)
    (plan,) = run._plans.values()
    assert plan.replays, "calls must have become a graph"


@part
def one_communicator_serves_many_programs() -> None:
    made = nccl._known[world()].communicators
    assert len(made) == 1, made
    next(iter(made.values())).check("test")


@part
def a_step_on_a_mesh_of_one_card() -> None:
    """A data-parallel step on a card gives what the host gives; its calls are graphs."""
    mesh = par.mesh(data=1)

    def trained(device: str) -> tuple[np.ndarray[Any, Any], Any, Any, Any]:
        rng = np.random.default_rng(0)
        w = weft.tensor(rng.standard_normal((64, 32)).astype(np.float32) / 8).to(device).requires_grad_()
        x = weft.tensor(rng.standard_normal((128, 64)).astype(np.float32)).to(device)

        def step(x: Any) -> Any:
            loss = (weft.tanh(par.shard(x, "data", None) @ w) ** 2).sum()
            loss.backward()
            with weft.no_grad():
                w.sub_(w.grad * 1e-3)
            w.grad = None
            return loss

        compiled = weft.compile(step, mesh=mesh)
        for _ in range(8):
            loss = compiled(x)
        del loss
        return w.detach().cpu().numpy(), compiled, step, x

    host, *_ = trained("cpu")
    found, compiled, step, x = trained("cuda")
    np.testing.assert_allclose(found, host, rtol=2e-4, atol=2e-5)
    note("a step on a mesh of one, us", f"{host_us(lambda: compiled(x), 300):.1f}")
    plain = weft.compile(step)
    note("the same without a mesh, us", f"{host_us(lambda: plain(x), 300):.1f}")


@part
def eager_collectives_of_one_rank() -> None:
    par.mesh(data=1)
    x = weft.arange(6.0).to("cuda").requires_grad_()
    y = par.all_reduce(x * 2, "data")
    y.sum().backward()
    assert y.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert x.grad.tolist() == [2.0] * 6
    assert str(par.all_gather(x, "data").device) == "cuda:0"


if __name__ == "__main__":
    raise SystemExit(run_all())

"""Collectives by NCCL: ranks are threads, each with an emulated card, and the library is a stand-in."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.collect import INVALID_USAGE, REMOTE, StandInNccl, emulated_ranks
from tests.parallel.launching import launch, needs_mpi
from tests.parallel.test_collectives import CASES, given
from weft import parallel as par
from weft.backends.cuda import cublaslt, nccl
from weft.backends.cuda.build import build_program
from weft.backends.cuda.card import card
from weft.backends.cuda.execute import CudaExecutable
from weft.backends.cuda.order import dependencies
from weft.base.dtypes import bfloat16
from weft.base.ranks import tree_fold
from weft.config import settings
from weft.errors import DivergenceError, ParallelError
from weft.passes.lowering.collectives_by_library import collectives_by_library

Array = np.ndarray[Any, Any]
CARDS = 4


@pytest.fixture
def library() -> Iterator[StandInNccl]:
    with emulated_ranks(CARDS) as found:
        yield found


def there(array: Array, one: bool = False) -> Any:
    """A tensor on the card of this rank, or on the first one."""
    return weft.tensor(array).to("cuda:0" if one else f"cuda:{par.rank()}")


def on_cards(n: int, call: Callable[[Any], Any], arrays: list[Array], one: bool = False) -> list[Array]:
    """What each rank gets by a call of its own array."""

    def program() -> Any:
        par.mesh(data=-1)
        x = there(arrays[par.rank()], one)
        par.broadcast(there(np.ones(1), one), "data")  # from here on ranks know whether NCCL serves them
        for _ in range(4):  # from the third call on as a graph
            found = call(x)
        return found.cpu().numpy()

    return par.simulate(program, n)


# Values


@pytest.mark.parametrize("name", CASES)
def test_eager_collective_equals_numpy(library: StandInNccl, name: str) -> None:
    call, expected = CASES[name]
    for n in (1, 2, 3):
        xs = [given(r, (n * 2, 3)) for r in range(n)]
        for rank, out in enumerate(on_cards(n, call, xs)):
            np.testing.assert_array_equal(out, expected(n, rank, xs))


@pytest.mark.parametrize("name", CASES)
def test_compiled_collective_is_part_of_a_graph(library: StandInNccl, name: str) -> None:
    call, expected = CASES[name]
    n, launched = 3, library.api.names().count("cuGraphLaunch")

    def program() -> Any:
        par.mesh(data=-1)
        par.broadcast(there(np.ones(1)), "data")
        step = weft.compile(lambda x: weft.tanh(call(x * 2)) * 3 + 1)
        plain = weft.compile(lambda y: weft.tanh(y) * 3 + 1)
        for i in range(4):
            x = there(given(par.rank(), (n * 2, 3)) + i)
            found = step(x)
        xs = [(given(r, (n * 2, 3)) + i) * 2 for r in range(n)]
        right = plain(there(expected(n, par.rank(), xs).astype(np.float32)))
        return found.cpu().numpy(), right.cpu().numpy()

    for found, right in par.simulate(program, n):
        np.testing.assert_array_equal(found, right)
    if name not in ("copy_to_ranks", "take_shard", "axis_index"):  # these are one kernel
        assert library.api.names().count("cuGraphLaunch") >= launched + 2 * n
        assert any(c in library.calls for c in ("ncclAllGather", "ncclSend", "ncclBroadcast"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, bfloat16, np.int32, np.int16])
@pytest.mark.parametrize("size", [5, 4099])  # rows from all to all, and a slice for each
def test_ordered_sum_has_the_bits_of_the_host(library: StandInNccl, dtype: Any, size: int) -> None:
    xs = [given(r, (size,), np.float64).astype(dtype) for r in range(3)]
    if np.dtype(dtype).kind == "f":
        tiny = np.finfo(dtype).smallest_subnormal
        edges = [(0.0, -0.0), (np.inf, -np.inf), (np.nan, 1.0), (tiny, -tiny), (tiny, tiny)]
        for x, values in zip(xs, zip(*edges, strict=True), strict=False):
            x[: len(values)] = values
        xs[2][: len(edges)] = -0.0
    with np.errstate(all="ignore"):
        right = tree_fold(xs, np.add)
    for out in on_cards(3, lambda x: par.all_reduce(x, "data"), xs):
        assert out.tobytes() == right.tobytes() or _same_but_nan(out, right)


def _same_but_nan(a: Array, b: Array) -> bool:
    """Whether arrays have the same bits where they are numbers; a NaN may be another one."""
    nan = np.isnan(a)
    return bool((nan == np.isnan(b)).all()) and a[~nan].tobytes() == b[~nan].tobytes()


def test_sum_in_any_order_is_the_librarys(library: StandInNccl) -> None:
    xs = [given(r, (7,)) for r in range(3)]
    call = lambda x: par.all_reduce(x, "data", reproducible=False)  # noqa: E731
    for out in on_cards(3, call, xs):
        np.testing.assert_array_equal(out, xs[2] + xs[1] + xs[0])  # in the order of the stand-in
    assert "ncclAllReduce" in library.calls
    assert "ncclAllGather" not in library.calls


def test_bools_and_empty_arrays(library: StandInNccl) -> None:
    for out in on_cards(2, lambda x: par.all_gather(x, "data"), [np.array([r == 1]) for r in range(2)]):
        assert out.tolist() == [False, True]
    for out in on_cards(2, lambda x: par.all_reduce(x, "data"), [np.zeros((0, 3), np.float32)] * 2):
        assert out.shape == (0, 3)


def test_gradients_of_collectives(library: StandInNccl) -> None:
    def program() -> Any:
        par.mesh(data=-1)
        x = there(given(par.rank(), (4,))).requires_grad_()
        (par.all_gather(x, "data") ** 2).sum().backward()
        y = weft.tensor(x.detach().cpu().numpy(), requires_grad=True)
        (par.all_gather(y, "data") ** 2).sum().backward()
        return x.grad.cpu().numpy(), y.grad.numpy()

    for found, right in par.simulate(program, 2):
        np.testing.assert_array_equal(found, right)


def test_groups_along_two_axes(library: StandInNccl) -> None:
    def program() -> Any:
        par.mesh(data=2, model=2)
        x = there(np.float32([10 ** par.rank()]))
        step = weft.compile(lambda x: [par.all_reduce(x, a) for a in ("data", "model", ("data", "model"))])
        return [float(y.cpu().numpy()[0]) for y in step(x)]

    found = par.simulate(program, 4)
    assert found == [[101, 11, 1111], [1010, 11, 1111], [101, 1100, 1111], [1010, 1100, 1111]]
    assert library.calls.count("ncclCommInitRank") == 12
    assert library.calls.count("ncclGetUniqueId") == 5


# Steps on a mesh


def trained(device: bool, steps: int = 4, **options: Any) -> tuple[bytes, Array]:
    """The last loss and the weights of a small model after some steps of data parallel training."""
    mesh = par.mesh(data=-1)
    rng = np.random.default_rng(0)
    put = there if device else weft.tensor
    w, v = (put(rng.standard_normal(s).astype(np.float32)).requires_grad_() for s in ((2, 3), (3, 2)))

    def step(x: Any) -> Any:
        loss = ((weft.relu(par.shard(x, "data", None) @ w) @ v) ** 2).sum()
        loss.backward()
        with weft.no_grad():
            for p in (w, v):
                p.sub_(p.grad * 1e-3)
                p.grad = None
        return loss

    compiled = weft.compile(step, mesh=mesh, **options)
    for i in range(steps):
        loss = compiled(put(rng.standard_normal((8, 2)).astype(np.float32) + i))
    weights = np.concatenate([p.detach().cpu().numpy().reshape(-1) for p in (w, v)])
    return loss.detach().cpu().numpy().tobytes(), weights


def test_step_on_two_cards_equals_one_process(library: StandInNccl) -> None:
    launched = library.api.names().count("cuGraphLaunch")
    [(loss, weights)] = par.simulate(lambda: trained(True), 1)
    assert "ncclCommInitRank" not in library.calls
    for other, found in par.simulate(lambda: trained(True), 2):
        assert other == loss
        assert found.tobytes() == weights.tobytes()
    assert library.api.names().count("cuGraphLaunch") >= launched + 4
    [(_, host)] = par.simulate(lambda: trained(False), 1)
    np.testing.assert_allclose(weights, host, rtol=1e-5)


def test_step_in_any_order_uses_the_librarys_sums(library: StandInNccl) -> None:
    [(_, host)] = par.simulate(lambda: trained(False), 1)
    for _, found in par.simulate(lambda: trained(True, reproducible=False), 2):
        np.testing.assert_allclose(found, host, rtol=1e-5)
    assert "ncclAllReduce" in library.calls


def test_step_that_can_fail_is_a_graph_on_one_rank(library: StandInNccl) -> None:
    def program() -> Any:
        mesh = par.mesh(data=1)
        table = there(np.ones((4, 2), np.float32)).requires_grad_()

        def step(i: Any) -> None:
            table[par.shard(i, "data")].sum().backward()
            with weft.no_grad():
                table.sub_(table.grad)
            table.grad = None

        compiled = weft.compile(step, mesh=mesh, reproducible=False)
        for _ in range(5):
            compiled(there(np.arange(4) % 3))
        with pytest.raises(IndexError):
            compiled(there(np.array([0, 1, 2, 7])))
        return table.detach().cpu().numpy().tolist()

    assert par.simulate(program, 1) == [[[-9, -9], [-4, -4], [-4, -4], [1, 1]]]
    assert library.api.names().count("cuGraphLaunch") >= 3


def test_collective_in_a_branch_is_walked_to(library: StandInNccl) -> None:
    def program() -> Any:
        par.mesh(data=-1)

        def step(x: Any) -> Any:
            if x.sum() > 0:
                return par.all_reduce(x, "data") * 2
            return x - 1

        compiled = weft.compile(step)
        return [compiled(there(np.float32([v, v]))).tolist() for v in (1, -1, 1, -1, 1, -1)]

    found = par.simulate(program, 2)
    assert found == [[[4, 4], [-2, -2]] * 3] * 2
    assert "ncclAllGather" in library.calls
    assert "cuGraphLaunch" not in library.api.names()


@pytest.mark.parametrize("calls", [1, 4])  # walked through, and in a graph
def test_failure_on_one_card_changes_state_on_none(library: StandInNccl, calls: int) -> None:
    left: dict[int, Any] = {}

    def program() -> None:
        mesh, rank = par.mesh(data=-1), par.rank()
        table = there(np.ones((4, 2), np.float32)).requires_grad_()
        left[rank] = table

        def step(i: Any) -> Any:
            loss = table[par.shard(i, "data")].sum()
            loss.backward()
            with weft.no_grad():
                table.sub_(table.grad)
            table.grad = None
            return loss

        compiled = weft.compile(step, mesh=mesh)
        good = np.zeros(16, np.int64)
        for _ in range(calls):
            compiled(there(good))
        good[-1] = 7  # of the part of the last rank
        compiled(there(good))

    with pytest.raises(IndexError, match="7"):
        par.simulate(program, 2)
    for table in left.values():
        np.testing.assert_array_equal(table.detach().cpu().numpy()[0], [1 - 16 * calls] * 2)
    assert (library.api.names().count("cuGraphLaunch") > 0) == (calls > 2)


@needs_mpi
def test_processes_of_mpi_find_each_other() -> None:
    found = launch(2, Path(__file__).parent / "collect_program.py", seconds=300)
    assert found.returncode == 0, found.stderr
    assert sorted(filter(None, found.stdout.split("\n"))) == ["rank 0 is done", "rank 1 is done"]


# Order in graphs


def test_collectives_keep_their_order_and_run_beside_kernels(library: StandInNccl) -> None:
    def function(x: Any, y: Any) -> Any:
        mesh = {"axis": "data", "mesh": "data=1"}
        first = weft.ops.collective.all_gather(x, **mesh, dim=0)
        second = weft.ops.collective.all_gather(y, **mesh, dim=0)
        return first, second, weft.tanh(y)

    graph = weft.make_graph(function)(weft.ones(4), weft.ones(4))
    shared = collectives_by_library(graph, pairs=[("data=1", "data")], alone=True)
    run = CudaExecutable(card(), build_program(shared), graph)
    bound = run.plan_for([run.fitted(np.ones(4, np.float32))] * 2).bound
    assert bound is not None
    names = [type(entry).__name__ for entry in bound.entries]
    after = dict(zip(range(3), dependencies(bound.entries, {}), strict=True))
    first, second = (i for i, name in enumerate(names) if name == "CallEntry")
    assert after[second] == [first]
    assert after[names.index("KernelEntry")] == []


# What keeps it from being used


def host_sum(n: int, one: bool = False) -> list[str]:
    """A compiled sum over ranks goes through the host; what was said of it."""
    xs = [given(r, (4,)) for r in range(n)]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        call = lambda x: weft.compile(lambda x: par.all_reduce(x, "data") * 2)(x)  # noqa: E731
        for out in on_cards(n, call, xs, one):
            np.testing.assert_array_equal(out, tree_fold(xs, np.add) * 2)
    return [str(w.message) for w in said if "NCCL" in str(w.message)]


def test_without_the_library_sums_go_through_the_host(library: StandInNccl) -> None:
    nccl.load_functions = lambda: None
    nccl.forget()
    (said,) = host_sum(2)
    assert said.endswith("NCCL is not there (pip install 'weft[nccl]')")
    assert "not found" in nccl.describe_nccl()


def test_two_ranks_on_one_card_go_through_the_host(library: StandInNccl) -> None:
    (said,) = host_sum(2, one=True)
    assert "ranks 0 and 1 have the same device" in said
    assert "ncclCommInitRank" not in library.calls


def test_setting_switches_it_off(library: StandInNccl) -> None:
    settings.nccl = False
    try:
        assert host_sum(2) == []
        assert "WEFT_NCCL" in nccl.describe_nccl()
    finally:
        del settings.nccl
    assert nccl.describe_nccl() == "2.27.5"


def test_simulated_ranks_do_without_the_real_library(library: StandInNccl) -> None:
    library.serves_threads = False
    nccl.forget()
    assert host_sum(2) == []
    assert library.calls == []


def test_failing_call_names_op_and_rank(library: StandInNccl) -> None:
    library.fail["ncclAllGather"] = REMOTE
    message = "library_gather: ncclAllGather must succeed on rank [01], got error 6: what the library says"
    with pytest.raises(ParallelError, match=message) as raised:
        on_cards(2, lambda x: par.all_reduce(x, "data"), [given(r, (4,)) for r in range(2)])
    assert "another rank has ended" in str(raised.value)


def test_communicator_that_cannot_be_made(library: StandInNccl) -> None:
    library.fail["ncclCommInitRank"] = INVALID_USAGE
    with pytest.raises(ParallelError, match="ncclCommInitRank must succeed on rank") as raised:
        on_cards(2, lambda x: par.all_reduce(x, "data"), [given(r, (4,)) for r in range(2)])
    assert "a device of its own" in str(raised.value)


def test_trouble_since_the_last_call_is_told(library: StandInNccl) -> None:
    def program() -> None:
        par.mesh(data=-1)
        x = there(given(0, (4,)))
        par.all_reduce(x, "data")
        par.barrier()
        library.trouble = REMOTE
        par.barrier()
        par.all_reduce(x, "data")

    with pytest.raises(ParallelError, match="the last collective must succeed on rank"):
        par.simulate(program, 2)
    assert "ncclCommAbort" in library.calls


@pytest.mark.parametrize("compiled", [False, True])
def test_ranks_that_differ_are_named(library: StandInNccl, compiled: bool) -> None:
    def program() -> None:
        par.mesh(data=-1)
        call: Any = lambda x: par.all_reduce(x, "data") * 2  # noqa: E731
        call = weft.compile(call) if compiled else call
        call(there(np.ones(3, np.float32)))
        call(there(np.ones(3 + par.rank(), np.float32)))

    with pytest.raises(DivergenceError, match="rank 1: call of"):
        par.simulate(program, 2)


def test_program_of_another_rank_is_refused(library: StandInNccl) -> None:
    made: list[Any] = []

    def program() -> None:
        par.mesh(data=-1)
        par.broadcast(there(np.ones(1)), "data")
        step = weft.compile(lambda x: par.take_shard(x, "data") * 2)
        x = there(np.arange(4, dtype=np.float32))
        step(x)
        if par.rank() == 0:
            made.extend((step, x))

    par.simulate(program, 2)

    def other() -> None:
        par.mesh(data=-1)
        if par.rank() == 1:
            made[0](made[1])

    with pytest.raises(ParallelError, match="rank 0 of 2 that it was compiled for, got 1 of 2"):
        par.simulate(other, 2)


def test_what_needs_no_other_rank_waits_for_none(library: StandInNccl) -> None:
    def program() -> Any:
        par.mesh(data=-1)
        if par.rank() == 1:
            return None
        step = weft.compile(lambda x: par.take_shard(x, "data") * 2)
        return step(there(np.arange(4, dtype=np.float32))).cpu().numpy().tolist()

    assert par.simulate(program, 2) == [[0.0, 2.0], None]
    assert library.calls == []


def test_library_of_a_package_is_found(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "nvidia" / "collect" / "lib"
    folder.mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    assert str(folder / "libcollect.so.2") in cublaslt._candidates("collect", (2,))
    assert cublaslt.find_library("collect", (2,)) is None  # there is no file

"""What ``test_collectives`` runs by processes of MPI, each with an emulated card."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.collect import StandInBetweenProcesses, StandInNccl, emulated_ranks
from tests.parallel.test_collectives import CASES, given
from weft import parallel as par
from weft.errors import DivergenceError, RankError


def there(array: Any) -> Any:
    """A tensor on the card of this rank."""
    return weft.tensor(array).to(f"cuda:{par.rank()}")


def check_collectives(library: StandInNccl) -> None:
    """Every collective, eager and compiled, against NumPy on what all ranks hold, also in graphs."""
    n, rank = par.size(), par.rank()
    xs = [given(r, (n * 2, 3)) for r in range(n)]
    par.broadcast(there(xs[rank]), "data")
    for call, expected in CASES.values():
        compiled = weft.compile(lambda x, call=call: call(x + 0) * 2)
        right = expected(n, rank, xs)
        np.testing.assert_array_equal(call(there(xs[rank])).cpu().numpy(), right)
        for _ in range(4):
            np.testing.assert_array_equal(compiled(there(xs[rank])).cpu().numpy(), right * 2)
    assert library.calls.count("ncclCommInitRank") == 1
    assert library.calls.count("ncclGetUniqueId") == (rank == 0)
    assert "cuGraphLaunch" in library.api.names()


def check_divergence() -> None:
    """Ranks that are about to run different collectives are told, and can go on."""
    with pytest.raises(DivergenceError, match="rank 1: call of"):
        par.all_reduce(there(np.ones(3 + par.rank(), np.float32)), "data")
    assert par.all_reduce(there(np.ones(2, np.float32)), "data").tolist() == [par.size()] * 2


def check_failure() -> None:
    """A step that fails on one rank changes nothing on any, and all go on; walked through, and in a graph."""
    mesh, last = par.mesh(data=-1), par.size() - 1
    table = there(np.zeros((4, 2), np.float32)).requires_grad_()

    def step(i: Any) -> None:
        table[par.shard(i, "data")].sum().backward()
        with weft.no_grad():
            table.add_(table.grad)
        table.grad = None

    compiled, bad = weft.compile(step, mesh=mesh), np.zeros(8, np.int64)
    bad[-1] = 7  # of the part of the last rank
    for calls in range(1, 6):
        compiled(there(np.zeros(8, np.int64)))
        with pytest.raises(IndexError if par.rank() == last else RankError, match="7"):
            compiled(there(bad))
        assert table.tolist() == [[8 * calls] * 2, [0, 0], [0, 0], [0, 0]]


def main() -> None:
    """Run all of it."""
    par.mesh(data=-1)
    with emulated_ranks(par.size(), StandInBetweenProcesses) as library:
        check_collectives(library)
        check_divergence()
        check_failure()
        sys.stdout.write(f"rank {par.rank()} is done\n")


if __name__ == "__main__":
    main()

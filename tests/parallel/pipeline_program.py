"""What ``test_pipeline_runs`` runs on several processes: each check raises on the rank where it fails."""

from __future__ import annotations

import sys
import time

import pytest

import weft
from tests.parallel.pipelines import KINDS, Layers, train
from weft import parallel as par
from weft.errors import BoundsError, RankError


def check_failure() -> None:
    """An error of the first stage is one on all ranks, soon, and all can go on."""
    mesh = par.mesh(data=1, pipe=-1)
    weft.manual_seed(0)
    model = Layers([0, 1, 1, 0])
    run = weft.compile(lambda x: model(par.shard(x, "data")).sum(), mesh=mesh)
    good = weft.zeros(8, dtype=weft.int64)
    before = float(run(good))
    start = time.monotonic()
    with pytest.raises(BoundsError if par.rank() == 0 else RankError, match="axis 0 of size 4, got 9"):
        run(weft.tensor([0, 0, 0, 0, 0, 0, 0, 9]))
    assert time.monotonic() - start < 5
    assert float(run(good)) == before


def main() -> None:
    """Bits of training, with ZeRO over two ranks of each stage, then a failure."""
    n = par.size()
    axes = {"data": 1, "pipe": n}
    schedule = "interleaved" if n == 2 else "zero-bubble"
    found = train(axes, KINDS, model={"dropout": 0.2}, stages=4, adam=True, schedule=schedule)
    shared = train({"data": 2, "pipe": n // 2}, KINDS, model={"dropout": 0.2}, stages=4, adam=True, zero=3)
    assert shared["digest"] == found["digest"]
    check_failure()
    sys.stdout.write(f"rank {par.rank()} {found['digest']}\n")


if __name__ == "__main__":
    main()

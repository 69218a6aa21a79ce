"""Rules of ops that work along some dimensions: cut along the others, parts give the parts of the whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from tests.parallel.test_partition import check_equal, graph_of, names
from weft import parallel as par

RNG = np.random.default_rng(0)
X = RNG.standard_normal((8, 6, 6))
MATRICES = X @ X.swapaxes(1, 2) + np.eye(6)
SIDES = RNG.standard_normal((6, 2))


def assigned(x: Any) -> Any:
    """A tensor written to, column after column."""
    out = weft.zeros_like(x)
    out[:, 2] = x[:, 3] * 2.0
    out[:, :, 1:4] = x[:, :, 2:5]
    return out


ALONG: dict[str, Callable[[Any], Any]] = {
    "sort": lambda x: weft.sort(x, axis=1),
    "argsort": lambda x: weft.argsort(x, axis=2),
    "topk": lambda x: weft.topk(x, 2, axis=2),
    "argmax": lambda x: (weft.argmax(x, axis=1), weft.argmin(x, axis=2, keepdims=True)),
    "cumsum": lambda x: weft.cumsum(x, axis=1),
    "cumprod": lambda x: weft.cumprod(x, axis=2),
    "cummax": lambda x: weft.cummax(x, axis=1),
    "fft": lambda x: weft.fft.fft2(x).abs(),
    "rfft": lambda x: weft.fft.irfft(weft.fft.rfft(x, axis=1), n=6, axis=1),
    "pool": lambda x: F.avg_pool1d(x, 2),
    "unfold": lambda x: F.unfold(x.unsqueeze(1), 2),
    "assigned": assigned,
    "rows": lambda x: [row * 2.0 for row in x.swapaxes(0, 1)],
}
OF_MATRICES: dict[str, Callable[[Any], Any]] = {
    "cholesky": weft.linalg.cholesky,
    "inv": weft.linalg.inv,
    "det": lambda x: (weft.linalg.det(x), weft.linalg.slogdet(x)),
    "solve": lambda x: weft.linalg.solve(x, weft.tensor(SIDES)),
    "triangular": lambda x: weft.linalg.solve_triangular(x, weft.tensor(SIDES), upper=False),
    "eigh": lambda x: weft.linalg.eigvalsh(x),
    "svd": lambda x: weft.linalg.svdvals(x),
    "qr": lambda x: weft.linalg.qr(x)[1],
    "matrix_exp": lambda x: weft.linalg.matrix_exp(x * 0.1),
}


def flat(found: Any) -> Any:
    leaves = [x for y in found for x in flat(y)] if isinstance(found, tuple | list) else [found]
    return tuple(leaves)


@pytest.mark.parametrize("name", ALONG)
def test_dimensions_that_an_op_does_not_go_along_stay_cut(name: str) -> None:
    graph = graph_of(lambda x: flat(ALONG[name](par.shard(x, "data"))), "data=4", X)
    parts = check_equal(graph, "data=4", [X])
    assert set(names(parts)) <= {"take_shard", "all_gather"}
    made = [v for node in parts.nodes for v in node.outputs if not node.op.sequence and not node.op.ambient]
    assert not [v for v in made if v.type.shape[:1] == (8,) and v.type.ndim > 1]


@pytest.mark.parametrize("name", OF_MATRICES)
def test_matrices_of_a_batch_are_shared_out(name: str) -> None:
    graph = graph_of(lambda x: flat(OF_MATRICES[name](par.shard(x, "data"))), "data=4", MATRICES)
    parts = check_equal(graph, "data=4", [MATRICES])
    made = [v for node in parts.nodes for v in node.outputs if not node.op.sequence and not node.op.ambient]
    assert not [v for v in made if v.type.shape[:1] == (8,)]


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "pool", "assigned", "rows", "rfft"])
def test_gradients_stay_cut(name: str) -> None:
    def loss(x: Any) -> Any:
        return sum((y.square().sum() for y in flat(ALONG[name](par.shard(x, "data")))), weft.zeros(()))

    graph = graph_of(weft.grad(loss), "data=4", X)
    parts = check_equal(graph, "data=4", [X])
    assert [n.op.name for n in parts.nodes if n.op.sequence] == ["all_gather"]


@pytest.mark.parametrize("name", ["sort", "cumsum", "argmax", "fft", "assigned"])
def test_dimensions_that_an_op_goes_along_are_whole(name: str) -> None:
    for cut in ((None, "data", None), (None, None, "data")):
        graph = graph_of(lambda x, c=cut: flat(ALONG[name](par.shard(x, *c))), "data=2", X)
        check_equal(graph, "data=2", [X])


def test_matrices_are_cut_in_batches_that_are_stretched() -> None:
    a, b = MATRICES.reshape(1, 8, 6, 6), RNG.standard_normal((4, 1, 6, 2))

    def f(a: Any, b: Any) -> Any:
        return weft.linalg.solve(par.shard(a, None, "data"), par.shard(b, "model"))

    parts = check_equal(graph_of(f, "data=4,model=2", a, b), "data=4,model=2", [a, b])
    (solve,) = [node for node in parts.nodes if node.op.name == "solve"]
    assert solve.outputs[0].type.shape == (2, 2, 6, 2)


def test_accuracy_of_a_large_batch_is_no_reshard() -> None:
    """Scores over 1 MB, of which a metric takes the largest."""
    scores, classes = np.zeros((4096, 512), np.float32), np.zeros(4096, np.int64)

    def accuracy(x: Any, y: Any) -> Any:
        return (weft.argmax(par.shard(x, "data"), axis=1) == par.shard(y, "data")).mean(dtype=weft.float32)

    parts = par.partition(graph_of(accuracy, "data=4", scores, classes), mesh="data=4")
    assert names(parts) == ["take_shard", "take_shard", "all_reduce"]

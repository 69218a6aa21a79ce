"""Code of the other architecture gives what NumPy gives, and what goes wrong in it is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.fuzz.emulator import CrashError, Emulator, export_for, other
from weft.ir.types import TensorType

pytestmark = pytest.mark.skipif(bool(other().missing()), reason=other().missing())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    with Emulator(other(), tmp_path_factory.mktemp("emulator")) as emulator:
        yield emulator


def test_values_are_numpys(run: Emulator, tmp_path: Path) -> None:
    def function(x: Any, y: Any) -> Any:
        return weft.exp(x) @ y, x.argmax(axis=1), y.to(weft.bfloat16), (x * 100).to(weft.int8)

    open_rows = TensorType(("n", 37), weft.float32)
    graph = weft.make_graph(function)(open_rows, TensorType((37, 19), weft.float32)).optimize()
    export_for(run.machine, graph, tmp_path)
    rng = np.random.default_rng(0)
    for n in (1, 5, 33):
        x, y = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((n, 37), (37, 19)))
        message, (product, places, half, small) = run(tmp_path, [x, y], {"n": n})
        assert message == ""
        np.testing.assert_allclose(product.reshape(n, 19), np.exp(x) @ y, rtol=1e-4, atol=1e-5)
        assert places.tolist() == x.argmax(axis=1).tolist()
        assert half.astype(np.float32).tolist() == y.astype(half.dtype).astype(np.float32).ravel().tolist()
        assert small.tolist() == (x * 100).astype(np.int8).ravel().tolist()


def test_threads_work_on_large_arrays(run: Emulator, tmp_path: Path) -> None:
    graph = weft.make_graph(lambda x: (weft.tanh(x), x.sum(axis=1)))(weft.zeros(300, 1000)).optimize()
    export_for(run.machine, graph, tmp_path)
    x = np.random.default_rng(1).uniform(-2, 2, (300, 1000)).astype(np.float32)
    _, (values, sums) = run(tmp_path, [x], {})
    np.testing.assert_allclose(values.reshape(x.shape), np.tanh(x), rtol=1e-6)
    np.testing.assert_allclose(sums, x.sum(axis=1, dtype=np.float64), rtol=1e-4, atol=1e-3)


def test_errors_of_a_run_are_told(run: Emulator, tmp_path: Path) -> None:
    graph = weft.make_graph(lambda x, i: x[i])(weft.zeros(4), weft.tensor([0, 1])).optimize()
    export_for(run.machine, graph, tmp_path)
    x = np.arange(4, dtype=np.float32)
    message, _ = run(tmp_path, [x, np.array([1, 9])], {})
    assert "index must be in -4..3" in message
    assert run(tmp_path, [x, np.array([1, -1])], {})[1][0].tolist() == [1.0, 3.0]


def test_a_process_that_ends_is_told_and_another_one_goes_on(run: Emulator, tmp_path: Path) -> None:
    export_for(run.machine, weft.make_graph(lambda x: x + 1)(weft.zeros(2)), tmp_path)
    library, x = tmp_path / "libmodel.so", np.ones(2, np.float32)
    good = library.read_bytes()
    library.write_bytes(good[:100])
    with pytest.raises(CrashError, match="status 102"):
        run(tmp_path, [x], {})
    library.write_bytes(good)
    assert run(tmp_path, [x], {})[1][0].tolist() == [2.0, 2.0]
    assert run._process is not None
    run._process.kill()
    with pytest.raises(CrashError, match="ended the process with -9"):
        run(tmp_path, [x], {})
    assert run(tmp_path, [x], {})[1][0].tolist() == [2.0, 2.0]

"""Files of every version of the layout, as they were written then: they stay readable.

A file here is never written again. A new version of the layout brings a new file of each kind.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft

FILES = Path(__file__).parent / "files"

# What the file of a tree holds.
TREE = {
    "model": {"w": np.arange(6, dtype=np.float32).reshape(2, 3) / 4, "b": np.array([True, False])},
    "half": np.array([1.5, -2.0], np.float16),
    "pairs": np.array([1 + 2j, -3j], np.complex64),
    "rest": [None, True, 2**70, 0.1, float("inf"), "text", (b"bytes", {5: "five", (1, "a"): []})],
}


def scaled(x: Any, scale: float = 2.0) -> Any:
    """What the file of a graph was made from; ``WEIGHT`` and ``TABLE`` were tensors then."""
    h = x @ weft.asarray(WEIGHT)
    while (h * h).sum() > 10.0:
        h = h * 0.5
    return {"y": weft.gelu(h) * scale, "sum": (x.sum(axis=0) + weft.asarray(TABLE)[:3], "fixed")}


WEIGHT = np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(3, 4)
TABLE = np.arange(20, dtype=np.float32)


def expected(x: Any) -> tuple[Any, Any]:
    """The same, by NumPy."""
    from scipy.special import erf

    h = x @ WEIGHT
    while (h * h).sum() > 10.0:
        h = h * 0.5
    return h * 0.5 * (1 + erf(h / np.sqrt(2.0))) * 2.0, x.sum(axis=0) + TABLE[:3]


def plain(x: Any) -> Any:
    return x.numpy() if isinstance(x, weft.Tensor) else x


@pytest.mark.parametrize("version", [1])
def test_a_tree_of_each_version_loads(version: int) -> None:
    found = weft.load(FILES / f"tree-{version}.safetensors")
    assert found["rest"] == TREE["rest"]
    for name in ("half", "pairs"):
        np.testing.assert_array_equal(plain(found[name]), TREE[name])
        assert found[name].dtype == TREE[name].dtype  # type: ignore[attr-defined]
    for name, array in TREE["model"].items():  # type: ignore[attr-defined]
        np.testing.assert_array_equal(plain(found["model"][name]), array)


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
@pytest.mark.parametrize("version", [1])
def test_a_graph_of_each_version_loads_and_runs(version: int, backend: str) -> None:
    loaded = weft.load_graph(FILES / f"graph-{version}.weft", backend=backend)
    assert str(loaded.signature) == "(x, scale=2.0)"
    for n in (1, 4):
        x = np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32) * 3
        out = loaded(x)
        y, total = expected(x)
        np.testing.assert_allclose(out["y"].numpy(), y, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(out["sum"][0].numpy(), total, rtol=1e-5, atol=1e-6)
        assert out["sum"][1] == "fixed"

"""What needs neither PyTorch nor JAX: state dicts, and errors that say how to install what is missing."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

import weft
from weft.interop.forms.scatter import scatter_along

MISSING = """
import sys
sys.modules["{package}"] = None  # as if it were not installed
import weft
try:
    weft.interop.{package}.{call}
except weft.errors.ArgumentError as error:
    print(error)
"""
CALLS = [
    ("torch", "to_torch(weft.ones(1))"),
    ("torch", "from_torch(1)"),
    ("torch", "as_torch(abs)"),
    ("torch", "from_function(abs)"),
    ("torch", "import_program('model.pt2')"),
    ("jax", "to_jax(weft.ones(1))"),
    ("jax", "from_jax(1)"),
    ("jax", "import_jaxpr(1)"),
    ("jax", "import_function(abs, 1.0)"),
]


@pytest.mark.parametrize("package", ["torch", "jax"])
def test_without_the_framework_the_error_says_how_to_install_it(package) -> None:
    calls = [call for name, call in CALLS if name == package]
    script = "".join(MISSING.format(package=package, call=call) for call in calls)
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    for call in calls:
        assert f"{call.partition('(')[0]}: {package} must be installed" in out
    assert out.count(f"hint: pip install {package}") == len(calls)


def test_importing_the_module_imports_no_framework() -> None:
    script = (
        "import sys, weft; weft.interop.torch, weft.interop.jax; print(*{'torch', 'jax'} & {*sys.modules})"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert out.split() == []


def test_unknown_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'tensorflow'"):
        weft.interop.tensorflow  # noqa: B018


def test_weights_are_those_of_a_graph_alone() -> None:
    with pytest.raises(weft.errors.ArgumentError, match="must be given a graph, got int"):
        weft.interop.weights(3)


# State dicts


def test_state_dict_of_a_wrapped_model_fits(tmp_path) -> None:
    path = tmp_path / "m.safetensors"
    save_file({"module.weight": np.ones((1, 2), np.float32), "module.bias": np.zeros(1, np.float32)}, path)
    model = weft.nn.Linear(2, 1)
    assert model.load_state_dict(weft.interop.torch.load_state_dict(path)) == ([], [])
    assert float(model(weft.ones(2)).detach()) == 2


@pytest.mark.parametrize(
    "content", [pickle.dumps({"w": 1}), pickle.dumps({"w": 1}, protocol=5), b"PK\x03\x04" + b"0" * 20]
)
def test_pickled_file_is_refused_unread(content, tmp_path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    with pytest.raises(
        weft.errors.FileError, match=r"model\.pt: must be a safetensors file, got a pickled one"
    ) as caught:
        weft.interop.torch.load_state_dict(path)
    assert "save_file(torch.load" in str(caught.value)


def test_other_files_are_refused(tmp_path) -> None:
    (tmp_path / "index.json").write_text("[]")
    with pytest.raises(weft.errors.FileError, match="must have a weight_map"):
        weft.interop.torch.load_state_dict(tmp_path / "index.json")
    weft.save({"epoch": 3}, tmp_path / "tree.safetensors")
    with pytest.raises(weft.errors.FileError, match="must hold tensors by name"):
        weft.interop.torch.load_state_dict(tmp_path / "tree.safetensors")
    with pytest.raises(weft.errors.ArgumentError, match="must be given a path, got int"):
        weft.interop.torch.load_state_dict(3)


# Scatter with a reduction


@pytest.mark.parametrize("how", ["sum", "prod", "mean", "max", "min"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("axis", [0, 1])
def test_elements_that_meet_are_reduced(how, include_self, axis) -> None:
    random = np.random.default_rng(0)
    x, src = random.normal(size=(4, 5)), random.normal(size=(3, 4))
    index = random.integers(0, 4, size=(3, 4))
    reduce = {"sum": np.sum, "prod": np.prod, "mean": np.mean, "max": np.max, "min": np.min}[how]
    wanted = x.copy()
    for place in np.ndindex(4, 5):
        met = [src[i] for i in np.ndindex(3, 4) if index[i] == place[axis] and i[1 - axis] == place[1 - axis]]
        if met:
            wanted[place] = reduce([x[place], *met] if include_self else met)
    found = scatter_along(weft.tensor(x), axis, weft.tensor(index), weft.tensor(src), how, include_self)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12)


@pytest.mark.parametrize("how", ["max", "min"])
def test_nan_among_elements_that_meet_stays(how) -> None:
    src = weft.tensor([1.0, float("nan"), 3.0])
    found = scatter_along(weft.full(2, 5.0), 0, weft.tensor([0, 0, 1]), src, how)
    assert np.isnan(found.numpy()[0]), "as in the other frameworks"
    assert float(found[1]) == (5 if how == "max" else 3)


def test_unknown_reduction_is_an_error() -> None:
    with pytest.raises(weft.errors.DomainError, match="must be set, sum, prod, mean, max or min, got 'xor'"):
        scatter_along(weft.ones(2), 0, weft.tensor([0]), weft.ones(1), "xor")

"""Trees of tensors in files: what goes in comes out, and other programs can read it."""

from __future__ import annotations

import json
import os
import stat
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import weft
from weft.errors import ArgumentError, FileError

DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text()
    | st.binary(max_size=8)
)
KEYS = st.text(max_size=5) | st.integers() | st.booleans() | st.none() | st.tuples(st.integers(), st.text())
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=12,
)


def bits(x: Any) -> tuple[Any, ...]:
    array = x.detach().numpy() if isinstance(x, weft.Tensor) else x
    return array.dtype, array.shape, array.tobytes()


def round_trip(tree: Any, path: Path, **options: Any) -> Any:
    weft.save(tree, path / "file")
    return weft.load(path / "file", **options)


def test_any_tree_of_plain_values_comes_back(tmp_path: Path) -> None:
    @given(TREES)
    def check(tree: Any) -> None:
        assert repr(round_trip(tree, tmp_path)) == repr(tree)  # tells 1 from True and 0.0 from -0.0

    check()


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3)])
@pytest.mark.parametrize("name", DTYPES)
def test_tensors_and_arrays_keep_every_bit(
    name: str, shape: tuple[int, ...], mmap: bool, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    dtype = getattr(weft, name)
    if name == "bool":
        array = rng.integers(0, 2, shape).astype(bool)
    else:
        count = int(np.prod(shape)) * dtype.itemsize
        array = np.frombuffer(rng.bytes(count), dtype).reshape(shape)
    tensor = weft.asarray(array)
    out = round_trip({"t": tensor, "a": array}, tmp_path, mmap=mmap)
    assert bits(out["t"]) == bits(tensor) == bits(out["a"])
    assert isinstance(out["t"], weft.Tensor)
    assert type(out["a"]) is np.ndarray


def test_special_numbers_come_back(tmp_path: Path) -> None:
    tree = [float("inf"), float("-inf"), -0.0, 2**200, -(2**64), 5e-324, complex(float("inf"), -0.0)]
    assert repr(round_trip(tree, tmp_path)) == repr(tree)
    assert np.isnan(round_trip(float("nan"), tmp_path))


def test_numpy_scalars_and_dtypes_come_back(tmp_path: Path) -> None:
    tree = (np.float32(1.5), np.int8(-3), np.bool_(True), weft.bfloat16, weft.int64)
    out = round_trip(tree, tmp_path)
    assert [type(a) for a in out] == [type(a) for a in tree]
    assert out == tree


def test_arrays_of_the_other_byte_order_and_views_are_written_by_value(tmp_path: Path) -> None:
    swapped = np.arange(6, dtype=">i4").reshape(2, 3)
    view = np.arange(12.0).reshape(3, 4)[::-1, 1::2]
    out = round_trip([swapped, view, swapped.T], tmp_path)
    for a, b in zip(out, [swapped, view, swapped.T], strict=True):
        np.testing.assert_array_equal(a, b)


def test_sparse_and_ragged_tensors_come_back(tmp_path: Path) -> None:
    sparse = weft.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3))
    ragged = weft.ragged([[1.0, 2.0], [], [3.0]])
    out = round_trip({"s": sparse, "r": ragged}, tmp_path)
    assert out["s"].to_dense().tolist() == [[0.0, 0.0, 3.0], [4.0, 0.0, 0.0]]
    assert out["r"].tolist() == [[1.0, 2.0], [], [3.0]]


def test_what_is_in_a_tree_twice_is_one_object_again(tmp_path: Path) -> None:
    tensor, array = weft.ones((4, 4)), np.zeros(3)
    out = round_trip({"a": tensor, "b": [tensor, tensor.detach()], "c": (array, array)}, tmp_path)
    assert out["a"] is out["b"][0]
    assert out["b"][1] is not out["a"]
    assert out["c"][0] is out["c"][1]
    assert set(load_file(tmp_path / "file")) == {"a", "c.0"}  # each data once


def test_an_array_that_was_a_view_of_a_tensor_is_no_longer(tmp_path: Path) -> None:
    tensor = weft.zeros(3)
    out = round_trip({"t": tensor, "a": tensor.numpy()}, tmp_path)
    out["a"][0] = 5.0
    assert out["t"].tolist() == [0.0, 0.0, 0.0]


def test_requires_grad_comes_back(tmp_path: Path) -> None:
    w = weft.ones(2, requires_grad=True)
    out = round_trip({"w": w, "y": w * 2.0, "x": weft.ones(2)}, tmp_path)
    assert [out[k].requires_grad for k in "wyx"] == [True, True, False]
    assert out["y"].is_leaf


def test_dicts_of_other_kinds_become_dicts(tmp_path: Path) -> None:
    assert round_trip(OrderedDict(b=1, a=2), tmp_path) == {"b": 1, "a": 2}


def test_names_are_paths_that_the_safetensors_package_reads(tmp_path: Path) -> None:
    state = {"layer": {"w": weft.arange(6.0).reshape(2, 3)}, "b": [weft.ones(2, dtype=weft.bfloat16)]}
    weft.save(state, tmp_path / "file")
    found = load_file(tmp_path / "file")
    assert set(found) == {"layer.w", "b.0"}
    np.testing.assert_array_equal(found["layer.w"], np.arange(6, dtype=np.float32).reshape(2, 3))
    assert found["b.0"].astype(np.float32).tolist() == [1.0, 1.0]
    with safe_open(tmp_path / "file", "np") as file:
        assert file.metadata()["weft.kind"] == "tree"


def test_names_that_meet_are_told_apart(tmp_path: Path) -> None:
    tree = {
        "a": {"b": weft.zeros(2)},
        "a.b": weft.ones(2),
        "__metadata__": weft.ones(1),
        "\ud800": weft.ones(3),
    }
    out = round_trip(tree, tmp_path)
    assert out["a"]["b"].tolist() == [0.0, 0.0]
    assert out["a.b"].tolist() == [1.0, 1.0]
    assert out["__metadata__"].shape == (1,)
    assert out["\ud800"].shape == (3,)


def test_complex_tensors_are_pairs_to_others(tmp_path: Path) -> None:
    weft.save({"z": weft.tensor([1.0 + 2.0j])}, tmp_path / "file")
    assert load_file(tmp_path / "file")["z"].tolist() == [[1.0, 2.0]]


def test_a_file_of_the_safetensors_package_is_a_dict_of_tensors(tmp_path: Path) -> None:
    arrays = {"b": np.arange(3, dtype=np.int16), "a": np.ones((2, 2), np.float16), "flag": np.array([True])}
    save_file(arrays, tmp_path / "theirs", metadata={"by": "hand"})
    for mmap in (False, True):
        out = weft.load(tmp_path / "theirs", mmap=mmap)
        assert {k: bits(v) for k, v in out.items()} == {k: bits(v) for k, v in arrays.items()}


def test_a_mapped_file_is_not_copied_and_is_aligned(tmp_path: Path) -> None:
    tree = {"a": weft.ones(1000), "b": weft.ones(3, dtype=weft.int8), "c": weft.ones(7, dtype=weft.float64)}
    out = round_trip(tree, tmp_path, mmap=True)
    for name, tensor in out.items():
        array = tensor.numpy()
        assert not array.flags.owndata
        assert array.ctypes.data % tensor.itemsize == 0
        assert (tensor * 2.0).sum() == 2.0 * tree[name].sum()
    length = int.from_bytes((tmp_path / "file").read_bytes()[:8], "little")
    assert (8 + length) % 64 == 0


def test_a_mapped_file_may_be_replaced_while_it_is_used(tmp_path: Path) -> None:
    first = round_trip({"a": weft.ones(1000)}, tmp_path, mmap=True)
    weft.save({"a": weft.zeros(10)}, tmp_path / "file")
    assert first["a"].sum() == 1000.0


def test_saving_leaves_nothing_else_and_keeps_the_old_file_on_an_error(tmp_path: Path) -> None:
    weft.save({"a": 1}, tmp_path / "file")
    with pytest.raises(ArgumentError):
        weft.save({"a": object()}, tmp_path / "file")
    assert weft.load(tmp_path / "file") == {"a": 1}
    assert os.listdir(tmp_path) == ["file"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weft.save({"a": 1}, tmp_path / "file")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        weft.save({"a": 2}, tmp_path / "file")
    monkeypatch.undo()
    assert weft.load(tmp_path / "file") == {"a": 1}
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_has_its_name_only_when_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noting_fsync(handle: int) -> None:
        seen.append("directory" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def noting_replace(old: str, new: str) -> None:
        seen.append("rename")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "replace", noting_replace)
    weft.save({"a": 1}, tmp_path / "file")
    assert seen == ["file", "rename", "directory"]


def test_a_link_stays_a_link_and_modes_are_those_of_new_files(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    weft.save(1, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert weft.load(tmp_path / "real") == 1
    (tmp_path / "plain").touch()
    modes = [stat.S_IMODE((tmp_path / n).stat().st_mode) for n in ("real", "plain")]
    assert modes[0] == modes[1]


@pytest.mark.parametrize(
    ("tree", "message", "hint"),
    [
        (
            {"a": {"f": len}},
            "save: must hold what can be written, got builtin_function_or_method at a.f",
            "it takes dicts",
        ),
        (
            [weft.optim.SGD([weft.ones(1, requires_grad=True)], lr=1.0)],
            "must hold what can be written, got SGD at 0",
            "state_dict",
        ),
        (np.array(["a"]), "save: dtypes must be weft's, got <U1 at data", "it takes dicts"),
        ({frozenset(): 1}, "keys must be numbers, strings, bytes or tuples", "it takes dicts"),
    ],
)
def test_what_cannot_be_written_is_named(tree: Any, message: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError) as caught:
        weft.save(tree, tmp_path / "file")
    assert message in str(caught.value)
    assert hint in str(caught.value)


def test_a_tree_that_holds_itself_is_an_error(tmp_path: Path) -> None:
    tree: list[Any] = []
    tree.append(tree)
    with pytest.raises(ArgumentError, match="holds itself"):
        weft.save(tree, tmp_path / "file")


def test_arguments_in_the_wrong_order_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="path must be a str or a Path, got dict"):
        weft.save(str(tmp_path / "file"), {"a": 1})  # type: ignore[arg-type]


def test_a_missing_file_is_pythons_own_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        weft.load(tmp_path / "none")


def test_a_file_of_a_newer_version_says_so(tmp_path: Path) -> None:
    from weft.io import layout

    layout.write_file(str(tmp_path / "file"), {}, "tree", {"weft.version": "2", "weft.tree": "1"})
    with pytest.raises(FileError, match=r"the version of the file must be 1, got '2'\n(.*\n)*.*newer weft"):
        weft.load(tmp_path / "file")


def test_the_header_says_what_the_documentation_says(tmp_path: Path) -> None:
    weft.save({"w": weft.ones(2)}, tmp_path / "file")
    data = (tmp_path / "file").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert header["w"] == {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    assert json.loads(header["__metadata__"]["weft.tree"]) == {"dict": {"w": {"tensor": "w"}}}
    assert data[8 + length :] == np.ones(2, np.float32).tobytes()

"""Files of PyTorch and of weights in several parts: read right, or refused without running anything."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.io.torch_files import Saved, saved, write
from weft.errors import FileError

W = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("protocol", [2, 4])
def test_state_is_read(tmp_path: Path, protocol: int) -> None:
    arrays = {
        "weight": W,
        "bias": np.array([1.5, -2.5]),
        "half": np.array([0.5, 2.0], np.float16),
        "steps": np.array(7),
        "mask": np.array([True, False]),
        "wave": np.array([1 + 2j], np.complex64),
        "empty": np.zeros((0, 3), np.float32),
    }
    tree = OrderedDict((name, saved(array)) for name, array in arrays.items())
    write(tmp_path / "model.pt", tree, protocol=protocol)
    found = weft.load(tmp_path / "model.pt")
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name].numpy(), array)


def test_strides_offsets_and_shared_data_are_followed(tmp_path: Path) -> None:
    tree = {
        "turned": saved(W.T),
        "row": Saved(W.ravel(), (3,), (1,), offset=3),
        "spread": Saved(W.ravel(), (4, 2), (0, 1), offset=1),
    }
    write(tmp_path / "views.pt", tree)
    found = weft.load(tmp_path / "views.pt")
    np.testing.assert_array_equal(found["turned"].numpy(), W.T)
    np.testing.assert_array_equal(found["row"].numpy(), W[1])
    np.testing.assert_array_equal(found["spread"].numpy(), np.tile([1.0, 2.0], (4, 1)))


def test_plain_values_and_gradients_are_kept(tmp_path: Path) -> None:
    tree = {"epoch": 3, "lr": 0.5, "name": "net", "list": [1, (2, None, True)], "w": saved(W, grad=True)}
    write(tmp_path / "checkpoint.pt", tree)
    found = weft.load(tmp_path / "checkpoint.pt")
    assert found["w"].requires_grad
    assert {k: v for k, v in found.items() if k != "w"} == {k: v for k, v in tree.items() if k != "w"}


def test_big_endian_data_are_turned(tmp_path: Path) -> None:
    write(tmp_path / "big.pt", {"w": saved(W), "n": saved(np.array([1, 2**40]))}, byteorder="big")
    found = weft.load(tmp_path / "big.pt")
    np.testing.assert_array_equal(found["w"].numpy(), W)
    assert found["n"].tolist() == [1, 2**40]


def test_module_takes_the_state(tmp_path: Path) -> None:
    write(tmp_path / "linear.pt", {"weight": saved(W), "bias": saved(np.ones(2, np.float32))})
    layer = weft.nn.Linear(3, 2)
    layer.load_state_dict(weft.load(tmp_path / "linear.pt"))
    np.testing.assert_array_equal(layer(weft.ones(3)).detach().numpy(), W.sum(1) + 1)


class Harm:
    """What runs a command when it is unpickled."""

    def __reduce__(self) -> Any:
        return print, ("harm",)


def archive_of(path: Path, data: bytes, compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", data)
    return path


def test_code_is_never_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for protocol in (0, 2, 4):
        path = archive_of(tmp_path / f"harm{protocol}.pt", pickle.dumps(Harm(), protocol))
        with pytest.raises(FileError, match=r"tensors and plain values, got (builtins|__builtin__)\.print"):
            weft.load(path)
    assert capsys.readouterr().out == ""


def test_objects_are_refused_by_name(tmp_path: Path) -> None:
    path = archive_of(tmp_path / "object.pt", pickle.dumps({"path": io.StringIO}, 2))
    with pytest.raises(FileError, match="StringIO"):
        weft.load(path)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (Saved(W.ravel(), (7,), (1,)), "must lie in its data of 6 elements"),
        (Saved(W.ravel(), (2, 3), (3, 2)), "must lie in its data"),
        (Saved(W.ravel(), (3,), (1,), offset=4), "must lie in its data"),
        (Saved(W.ravel(), (10**12,), (0,)), "must lie in its data"),
        (Saved(W.ravel(), (-1,), (1,)), "numbers from 0 on"),
        (Saved(W.ravel(), (2, 3), (1,)), "numbers from 0 on"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(tmp_path: Path, tensor: Saved, message: str) -> None:
    write(tmp_path / "sizes.pt", {"w": tensor})
    with pytest.raises(FileError, match=message):
        weft.load(tmp_path / "sizes.pt")


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    """Every cut, and a flipped byte at every 7th place: an error of weft, or the right tensors."""
    write(tmp_path / "whole.pt", {"w": saved(W)})
    whole = (tmp_path / "whole.pt").read_bytes()
    path = tmp_path / "damaged.pt"
    for cut in range(4, len(whole), 31):
        path.write_bytes(whole[:cut])
        with pytest.raises(FileError):
            weft.load(path)
    for place in range(4, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            found = weft.load(path)
        except FileError:
            continue
        np.testing.assert_array_equal(found["w"].numpy(), W)


def test_instructions_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    for data in (b"", b".", b"a.", b"(.", b"\x80\x02}q\x00e.", b"\x80\x02h\x05.", b"\x80\x02]q\x00h\x00a."):
        with pytest.raises(FileError):
            weft.load(archive_of(tmp_path / "odd.pt", data))


def test_compressed_entries_and_other_archives_are_refused(tmp_path: Path) -> None:
    data = pickle.dumps({"a": "b" * 10**6}, 2)
    with pytest.raises(FileError, match="stored as they are"):
        weft.load(archive_of(tmp_path / "bomb.pt", data, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(FileError, match=r"must hold one data\.pkl, got 0"):
        weft.load(tmp_path / "other.zip")


def test_bare_pickles_are_refused(tmp_path: Path) -> None:
    (tmp_path / "old.pt").write_bytes(pickle.dumps({"a": 1}, 2))
    with pytest.raises(FileError, match="bare pickle, which could run code"):
        weft.load(tmp_path / "old.pt")


def test_weights_in_several_files_load_as_one(tmp_path: Path) -> None:
    weft.save({"a": weft.ones(2)}, tmp_path / "model-1.safetensors")
    weft.save({"b": weft.zeros(3), "c": weft.ones(1)}, tmp_path / "model-2.safetensors")
    weight_map = {"b": "model-2.safetensors", "a": "model-1.safetensors"}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 20}, "weight_map": weight_map}))
    found = weft.load(index)
    assert {name: t.tolist() for name, t in found.items()} == {"b": [0.0] * 3, "a": [1.0] * 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "must be JSON"),
        ("[]", "weight_map"),
        ('{"weight_map": {"a": "../model-1.safetensors"}}', "beside the index"),
        ('{"weight_map": {"x": "model-1.safetensors"}}', "must hold 'x'"),
    ],
)
def test_bad_index_is_refused(tmp_path: Path, text: str, message: str) -> None:
    weft.save({"a": weft.ones(2)}, tmp_path / "model-1.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(text)
    with pytest.raises(FileError, match=message):
        weft.load(index)

"""Tensors that cross without a copy, and state dicts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import weft
from weft.interop.torch import from_torch, load_state_dict, to_torch

DTYPES = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]


def address(x: weft.Tensor) -> int:
    return x._array("test").__array_interface__["data"][0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_cross_both_ways_in_one_memory(dtype) -> None:
    theirs = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(getattr(torch, dtype))
    ours = from_torch(theirs)
    assert (ours.dtype.name, ours.shape, address(ours)) == (dtype, (2, 3), theirs.data_ptr())
    back = to_torch(ours)
    assert back.data_ptr() == theirs.data_ptr()
    assert torch.equal(back, theirs)


def test_views_cross_with_their_strides() -> None:
    theirs = torch.arange(12.0).view(3, 4).T[1:, ::2]
    np.testing.assert_array_equal(from_torch(theirs).numpy(), theirs.numpy())
    assert address(from_torch(theirs)) == theirs.data_ptr()
    ours = weft.arange(12.0).reshape(3, 4).mT[1:]
    np.testing.assert_array_equal(to_torch(ours).numpy(), ours.numpy())


def test_what_requires_grad_arrives_as_a_leaf_that_requires_grad() -> None:
    theirs = torch.ones(2, requires_grad=True)
    assert from_torch(theirs).requires_grad
    assert from_torch(theirs * 2).is_leaf
    assert to_torch(weft.ones(2, requires_grad=True)).requires_grad
    assert not from_torch(theirs.detach()).requires_grad


def test_conjugated_and_empty_tensors_cross() -> None:
    theirs = torch.tensor([1 + 2j]).conj()
    np.testing.assert_array_equal(from_torch(theirs).numpy(), [1 - 2j])
    assert to_torch(weft.zeros((0, 3))).shape == (0, 3)


def test_what_is_no_tensor_is_an_error() -> None:
    with pytest.raises(weft.errors.ArgumentError, match=r"must be given a torch\.Tensor, got list"):
        from_torch([1.0])
    with pytest.raises(weft.errors.ArgumentError, match="must be given a tensor of weft, got Tensor"):
        to_torch(torch.ones(1))
    with pytest.raises(weft.errors.DtypeError, match="must be dense"):
        from_torch(torch.eye(2).to_sparse())


# State dicts


def saved(path, module: torch.nn.Module, prefix: str = "") -> dict[str, torch.Tensor]:
    state = {prefix + k: v.contiguous() for k, v in module.state_dict().items()}
    save_file(state, path)
    return state


PAIRS = [
    ("Linear", (3, 2), {}),
    ("Conv2d", (3, 4, 3), {"groups": 1}),
    ("ConvTranspose2d", (3, 4, 2), {}),
    ("BatchNorm2d", (3,), {}),
    ("LayerNorm", (4,), {}),
    ("GroupNorm", (2, 4), {}),
    ("Embedding", (5, 3), {}),
    ("LSTM", (3, 4, 2), {"bidirectional": True}),
    ("GRU", (3, 4), {}),
    ("MultiheadAttention", (8, 2), {}),
    ("TransformerEncoderLayer", (8, 2, 16), {}),
]


@pytest.mark.parametrize(("name", "args", "kwargs"), PAIRS, ids=[p[0] for p in PAIRS])
def test_state_dict_of_a_layer_fits_the_layer_of_the_same_name(name, args, kwargs, tmp_path) -> None:
    theirs = getattr(torch.nn, name)(*args, **kwargs)
    state = saved(tmp_path / "layer.safetensors", theirs)
    ours = getattr(weft.nn, name)(*args, **kwargs)
    assert ours.load_state_dict(load_state_dict(tmp_path / "layer.safetensors")) == ([], [])
    for key, value in ours.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), state[key].numpy())


def test_loaded_model_gives_what_pytorch_gives(tmp_path) -> None:
    def build(nn):
        return nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)
        ).eval()

    theirs, ours = build(torch.nn), build(weft.nn)
    saved(tmp_path / "model.safetensors", theirs)
    ours.load_state_dict(load_state_dict(tmp_path / "model.safetensors", mmap=True))
    x = torch.randn(2, 1, 8, 8)
    np.testing.assert_allclose(
        ours(from_torch(x)).detach().numpy(), theirs(x).detach().numpy(), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "_orig_mod.module."])
def test_prefixes_of_wrappers_are_taken_off(prefix, tmp_path) -> None:
    saved(tmp_path / "m.safetensors", torch.nn.Linear(2, 1), prefix)
    assert sorted(load_state_dict(tmp_path / "m.safetensors")) == ["bias", "weight"]


def test_prefixes_can_be_taken_off_added_and_names_changed(tmp_path) -> None:
    path = tmp_path / "m.safetensors"
    save_file({"model.a.w": torch.ones(1), "model.b": torch.ones(1), "ema.b": torch.ones(1)}, path)
    assert sorted(load_state_dict(path, strip="model.")) == ["a.w", "b"]
    assert sorted(load_state_dict(path, strip="model.", add="net.")) == ["net.a.w", "net.b"]
    assert sorted(load_state_dict(path, rename=lambda n: None if n.startswith("ema") else n.upper())) == [
        "MODEL.A.W",
        "MODEL.B",
    ]
    with pytest.raises(weft.errors.ArgumentError, match=r"some names must begin with 'vae\.'"):
        load_state_dict(path, strip="vae.")


def test_several_files_and_their_index_are_one_state_dict(tmp_path) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / "1.safetensors")
    save_file({"b": torch.ones(1)}, tmp_path / "2.safetensors")
    files = [tmp_path / "1.safetensors", tmp_path / "2.safetensors"]
    assert sorted(load_state_dict(files)) == ["a", "b"]
    (tmp_path / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}'
    )
    assert sorted(load_state_dict(tmp_path / "model.safetensors.index.json")) == ["a", "b"]


@pytest.mark.parametrize("old", [False, True])
def test_pickled_file_is_never_opened_and_the_error_says_how_to_convert_it(old, tmp_path) -> None:
    path = tmp_path / "model.pt"
    torch.save(torch.nn.Linear(2, 1).state_dict(), path, _use_new_zipfile_serialization=not old)
    with pytest.raises(
        weft.errors.FileError, match=r"must be a safetensors file, got a pickled one"
    ) as caught:
        load_state_dict(path)
    assert 'save_file(torch.load("model.pt", weights_only=True), "model.safetensors")' in str(caught.value)

"""States that do not fit, other dtypes, and parameters as vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.errors import WeftError


def net() -> Any:
    return nn.Sequential({"first": nn.Linear(2, 3), "last": nn.Linear(3, 1)})


def load_error(state: dict[str, Any]) -> str:
    with pytest.raises(weft.errors.WeftError) as error:
        net().load_state_dict(state)
    return str(error.value)


def test_close_names_are_suggested() -> None:
    state = net().state_dict()
    state["frist.weight"] = state.pop("first.weight")
    text = load_error(state)
    assert "missing: first.weight (3, 2); unknown: frist.weight (3, 2)" in text
    assert "hint: frist.weight is perhaps first.weight" in text


def test_prefix_of_all_paths_is_noticed() -> None:
    inner = net().state_dict()
    assert "begin with 'model.': remove it" in load_error({f"model.{k}": v for k, v in inner.items()})
    with pytest.raises(weft.errors.ArgumentError, match=r"begin with 'model\.': load into the module inside"):
        nn.ModuleDict({"model": net()}).load_state_dict(inner)
    assert list(net().state_dict(prefix="model.")) == [f"model.{k}" for k in inner]


def test_all_wrong_shapes_are_told_at_once() -> None:
    text = load_error({k: weft.zeros((*v.shape, 1)) for k, v in net().state_dict().items()})
    assert "first.weight must have the shape (3, 2), got (3, 2, 1); first.bias must have" in text
    assert "other sizes" in text


def test_long_lists_are_cut() -> None:
    model = nn.Sequential(*[nn.Linear(1, 1) for _ in range(10)])
    with pytest.raises(weft.errors.ArgumentError, match="and 12 more; unknown: none"):
        model.load_state_dict({})


def test_state_may_hold_the_parameters_themselves() -> None:
    layer = nn.Linear(2, 2)
    assert layer.state_dict(keep_vars=True)["weight"] is layer.weight
    assert not layer.state_dict()["weight"].requires_grad
    with pytest.raises(weft.errors.ArgumentError, match="must be a dict, got list"):
        layer.load_state_dict([1])


def test_paths_are_found_or_suggested() -> None:
    model = net()
    assert model.get_parameter("last.bias") is model.last.bias
    assert nn.BatchNorm1d(2).get_buffer("running_mean").shape == (2,)
    with pytest.raises(weft.errors.ArgumentError, match=r"got 'last.bais'[\s\S]*there is last.bias"):
        model.get_parameter("last.bais")
    with pytest.raises(weft.errors.ArgumentError, match="must be a path in Sequential, got 'middle'"):
        model.get_submodule("middle")


# Dtypes


def test_to_casts_floating_state_and_keeps_the_objects() -> None:
    layer = nn.BatchNorm1d(2)
    optimizer = weft.optim.SGD(layer.parameters(), lr=1.0)
    weight = layer.weight
    assert layer.to(weft.float64) is layer
    assert layer.weight is weight
    assert {name: t.dtype.name for name, t in layer.state_dict().items()} == {
        "weight": "float64",
        "bias": "float64",
        "running_mean": "float64",
        "running_var": "float64",
        "num_batches_tracked": "int64",
    }
    x = weft.randn(4, 2, dtype=weft.float64)
    (layer(x) * x).sum().backward()
    optimizer.step()
    assert layer.weight.dtype == weft.float64
    assert not (layer.weight == 1).all()


def test_to_takes_devices_dtypes_and_tensors() -> None:
    layer = nn.Linear(2, 2)
    assert layer.to("cpu").weight.dtype == weft.float32
    assert layer.to("cpu", weft.float64).weight.dtype == weft.float64
    assert layer.to(weft.ones(1)).weight.dtype == weft.float32
    assert layer.to(dtype="float16").weight.dtype == weft.float16
    for name in ("float", "double", "half", "bfloat16"):
        assert getattr(layer, name)().bias.dtype.name == {
            "float": "float32",
            "double": "float64",
            "half": "float16",
        }.get(name, name)
    assert layer.cpu() is layer
    with pytest.raises(weft.errors.DtypeError, match="the dtype of a module must be floating, got int64"):
        layer.to(weft.int64)
    with pytest.raises(weft.errors.DeviceError):
        layer.to("cuda:0")


def test_to_casts_gradients_and_compiled_code_notices() -> None:
    layer = nn.Linear(2, 2)
    compiled = weft.compile(lambda x: layer(x), backend="interpret")
    x = weft.ones((1, 2))
    compiled(x).sum().backward()
    layer.double()
    assert layer.weight.grad.dtype == weft.float64
    assert compiled(x.double()).dtype == weft.float64


# Vectors


def test_parameters_as_one_vector_and_back() -> None:
    model = net()
    vector = nn.utils.parameters_to_vector(model.parameters())
    assert vector.shape == (13,)
    vector.sum().backward()
    assert all((p.grad == 1).all() for p in model.parameters())
    nn.utils.vector_to_parameters(weft.arange(13.0), model.parameters())
    np.testing.assert_array_equal(
        nn.utils.parameters_to_vector(model.parameters()).detach().numpy(), np.arange(13.0)
    )
    with pytest.raises(weft.errors.ShapeError, match=r"must have shape \(13,\), got \(12,\)"):
        nn.utils.vector_to_parameters(weft.ones(12), model.parameters())


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm_keeps_the_weight_until_a_length_changes(dim: int | None) -> None:
    plain = nn.Linear(3, 4)
    x, weight = weft.randn(2, 3), plain.weight.detach()
    expected = plain(x).detach().numpy()
    normed = nn.utils.weight_norm(plain, dim=dim)
    assert normed is plain
    np.testing.assert_allclose(normed(x).detach().numpy(), expected, atol=1e-6)
    with weft.no_grad():
        normed.weight_g *= 2.0  # type: ignore[attr-defined]
    np.testing.assert_allclose(normed.weight.detach().numpy(), 2 * weight.numpy(), atol=1e-6)
    nn.utils.remove_weight_norm(normed)
    assert sorted(normed.state_dict()) == ["bias", "weight"]
    with pytest.raises(weft.errors.ArgumentError, match="'weight' of Linear must have been normed"):
        nn.utils.remove_weight_norm(normed)
    with pytest.raises(weft.errors.ArgumentError, match="'kernel' must be a parameter of Linear"):
        nn.utils.weight_norm(normed, "kernel")


# Lists and dicts of parameters


def test_list_of_parameters() -> None:
    values = nn.ParameterList([weft.ones(1), nn.Parameter(weft.zeros(2))])
    values.append(weft.ones(3)).extend([weft.ones(4)])
    assert [p.shape for p in values] == [(1,), (2,), (3,), (4,)]
    assert all(isinstance(p, nn.Parameter) for p in values)
    values[-1] = weft.ones(5)
    assert values[3].shape == (5,)
    assert [p.shape for p in values[1:3]] == [(2,), (3,)]
    assert list(values.state_dict()) == ["0", "1", "2", "3"]
    assert repr(values).startswith("ParameterList((0): Parameter (1,), (1): Parameter (2,)")
    with pytest.raises(weft.errors.BoundsError, match=r"must be in -4..3, got 4"):
        values[4]
    with pytest.raises(weft.errors.ArgumentError, match="must be an int or a slice, got 'a'"):
        values["a"]


def test_dict_of_parameters() -> None:
    values = nn.ParameterDict({"a": weft.ones(1)})
    values["b"] = weft.ones(2)
    assert [*values.keys()] == ["a", "b"]
    assert "b" in values
    assert values.get("c", 5) == 5
    assert values.pop("a").shape == (1,)
    assert [name for name, _ in values.named_parameters()] == ["b"]
    with pytest.raises(KeyError):
        values["a"]
    with pytest.raises(weft.errors.ArgumentError, match="must not be that of an attribute, got 'train'"):
        values["train"] = weft.ones(1)


def test_prefix_is_told_in_whichever_order_the_state_is() -> None:
    layer = nn.Linear(2, 2)
    state = {f"model.{k}": v for k, v in reversed(list(layer.state_dict().items()))}
    with pytest.raises(WeftError) as caught:
        nn.Linear(2, 2).load_state_dict(state)
    assert "begin with 'model.': remove it" in str(caught.value)

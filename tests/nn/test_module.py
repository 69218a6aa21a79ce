"""What modules hold, how they are called, and their state."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(weft.ones(2))
        self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2, bias=False)])
        self.head = nn.Sequential(nn.Linear(2, 1), nn.Tanh())
        self.register_buffer("count", weft.tensor(0.0))
        self.register_buffer("scratch", weft.zeros(1), persistent=False)
        self.note = "plain"

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x) * self.scale
        return self.head(x)


PATHS = ["scale", "layers.0.weight", "layers.0.bias", "layers.1.weight", "head.0.weight", "head.0.bias"]


def test_parameters_are_found_by_attribute_in_order() -> None:
    net = Net()
    assert [name for name, _ in net.named_parameters()] == PATHS
    assert [name for name, _ in net.named_parameters(recurse=False)] == ["scale"]
    assert all(isinstance(p, nn.Parameter) and p.requires_grad for p in net.parameters())
    assert [name for name, _ in net.named_buffers()] == ["count", "scratch"]
    assert [name for name, _ in net.named_children()] == ["layers", "head"]
    names = [name for name, _ in net.named_modules()]
    assert names == ["", "layers", "layers.0", "layers.1", "head", "head.0", "head.1"]
    assert net.get_submodule("layers.1") is net.layers[1]


def test_shared_parameters_come_once_and_are_saved_under_each_path() -> None:
    net = Net()
    net.layers[1].weight = net.layers[0].weight
    assert len(list(net.parameters())) == len(PATHS) - 1
    assert [name for name, _ in net.named_parameters(remove_duplicate=False)] == PATHS
    assert set(PATHS) <= set(net.state_dict())


def test_state_goes_through_a_dict_of_arrays() -> None:
    a, b = Net(), Net()
    state = a.state_dict()
    assert list(state) == ["scale", "count", *PATHS[1:]]
    assert b.load_state_dict({k: v.numpy() for k, v in state.items()}) == ([], [])
    x = weft.randn(3, 2)
    np.testing.assert_array_equal(a(x).detach().numpy(), b(x).detach().numpy())


def test_state_shows_the_parameters_as_in_pytorch() -> None:
    net = nn.Linear(2, 2)
    state = net.state_dict()
    before = state["weight"].numpy().copy()
    with weft.no_grad():
        net.weight += 1.0
    np.testing.assert_array_equal(state["weight"].numpy(), before + 1.0)
    state["bias"].copy_(weft.tensor([5.0, 6.0]))
    assert net.bias.tolist() == [5.0, 6.0]
    assert net.bias.requires_grad
    assert not state["bias"].requires_grad


def test_loading_says_what_does_not_fit_and_changes_nothing() -> None:
    net = nn.Linear(2, 2)
    before = net.weight.detach().numpy().copy()
    with pytest.raises(weft.errors.ArgumentError, match=r"got missing: bias \(2,\); unknown: extra \(1,\)"):
        net.load_state_dict({"weight": weft.zeros((2, 2)), "extra": weft.zeros(1)})
    with pytest.raises(weft.errors.ShapeError, match=r"bias must have the shape \(2,\), got \(3,\)"):
        net.load_state_dict({"weight": weft.zeros((2, 2)), "bias": weft.zeros(3)})
    np.testing.assert_array_equal(net.weight.detach().numpy(), before)
    missing, unknown = net.load_state_dict(
        {"weight": weft.zeros((2, 2)), "extra": weft.ones(1)}, strict=False
    )
    assert (missing, unknown) == (["bias"], ["extra"])
    assert (net.weight == 0).all()


def test_loading_keeps_the_parameters_themselves() -> None:
    net = nn.Linear(2, 2, dtype=weft.float64)
    weight = net.weight
    net.load_state_dict({"weight": weft.ones((2, 2)), "bias": weft.ones(2)})
    assert net.weight is weight
    assert weight.dtype == weft.float64


def test_attributes_keep_their_kind() -> None:
    net = Net()
    with pytest.raises(weft.errors.ArgumentError, match="scale must stay a parameter or None, got Tensor"):
        net.scale = weft.ones(2)  # type: ignore[assignment]
    with pytest.raises(weft.errors.ArgumentError, match="head must stay a module or None, got int"):
        net.head = 3  # type: ignore[assignment]
    with pytest.raises(weft.errors.ArgumentError, match="count must stay a buffer or None, got float"):
        net.count = 1.0
    net.scale = None  # type: ignore[assignment]
    assert "scale" not in dict(net.named_parameters())
    net.scale = nn.Parameter(weft.zeros(2))
    net.count = weft.tensor(5.0)
    assert dict(net.named_buffers())["count"].item() == 5.0
    del net.scale
    net.scale = weft.ones(2)  # type: ignore[assignment]
    assert "scale" not in net.state_dict()


def test_setting_before_the_constructor_ran_is_an_error() -> None:
    class Late(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter(weft.ones(1))

    with pytest.raises(weft.errors.ArgumentError, match="must be set up before 'weight' is set"):
        Late()


def test_every_change_is_counted() -> None:
    net = Net()
    count = nn.Module._weft_version
    net.note = "changed"
    net.eval()
    del net.note
    assert nn.Module._weft_version >= count + 3
    count = nn.Module._weft_version
    net.eval()
    assert nn.Module._weft_version == count


def test_parameter_is_a_plain_tensor() -> None:
    w = nn.Parameter(weft.ones(2))
    assert type(w) is weft.Tensor
    assert isinstance(w, nn.Parameter)
    assert not isinstance(w * 1.0, nn.Parameter)
    frozen = nn.Parameter([1.0, 2.0], requires_grad=False)
    assert isinstance(frozen, nn.Parameter)
    assert not frozen.requires_grad


def test_parameters_are_not_kept_alive() -> None:
    from weft.nn import parameter

    gc.collect()
    count = len(parameter._known)
    made = [nn.Parameter(weft.ones(2)) for _ in range(10)]
    assert len(parameter._known) == count + 10
    del made
    gc.collect()
    assert len(parameter._known) == count


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])  # noqa: S301 - our own bytes
def test_copies_are_modules_of_their_own(duplicate: Any) -> None:
    net = Net()
    twin = duplicate(net)
    assert [name for name, _ in twin.named_parameters()] == PATHS
    assert all(isinstance(p, nn.Parameter) for p in twin.parameters())
    with weft.no_grad():
        twin.scale += 1.0
    assert (net.scale == 1).all()
    assert twin.layers[0]._path() == "layers.0"


def test_train_eval_apply_and_gradients() -> None:
    net = Net()
    assert net.eval() is net
    assert not any(m.training for m in net.modules())
    net.train()
    assert all(m.training for m in net.modules())
    seen: list[str] = []
    net.apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Linear", "Linear", "ModuleList", "Linear", "Tanh", "Sequential", "Net"]
    net(weft.ones((1, 2))).sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    net.zero_grad(set_to_none=False)
    assert all((p.grad == 0).all() for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    net.requires_grad_(False)
    assert not net(weft.ones((1, 2))).requires_grad


def test_hooks_see_and_change_arguments_and_results() -> None:
    layer = nn.Identity()
    before = layer.register_forward_pre_hook(lambda module, args: (args[0] + 1.0,))
    after = layer.register_forward_hook(lambda module, args, out: out * args[0])
    assert layer(weft.tensor(2.0)).item() == 9.0
    before.remove()
    assert layer(weft.tensor(2.0)).item() == 4.0
    with after:
        pass
    assert layer(weft.tensor(2.0)).item() == 2.0
    after.remove()
    with pytest.raises(weft.errors.ArgumentError, match="a hook must be callable, got int"):
        layer.register_forward_hook(3)


def test_text_shows_the_tree() -> None:
    assert repr(Net()) == (
        "Net(  # 15 parameters\n"
        "  (layers): ModuleList(  # 10\n"
        "    (0): Linear(in_features=2, out_features=2, bias=True)  # 6\n"
        "    (1): Linear(in_features=2, out_features=2, bias=False)  # 4\n"
        "  )\n"
        "  (head): Sequential(  # 3\n"
        "    (0): Linear(in_features=2, out_features=1, bias=True)  # 3\n"
        "    (1): Tanh()\n"
        "  )\n"
        ")"
    )


def test_forward_must_be_defined() -> None:
    with pytest.raises(NotImplementedError, match="Module must define forward"):
        nn.Module()(1)


def test_a_module_that_names_forward_as_keras_does_is_told() -> None:
    class Keras(nn.Module):
        def call(self, x: Any) -> Any:
            return x

    with pytest.raises(NotImplementedError, match="Keras must define forward, got call, as Keras names it"):
        Keras()(1.0)


def test_lists_of_modules() -> None:
    layers = nn.ModuleList([nn.Tanh(), nn.ReLU()])
    layers.append(nn.Sigmoid()).insert(0, nn.Identity())
    assert [type(m).__name__ for m in layers] == ["Identity", "Tanh", "ReLU", "Sigmoid"]
    del layers[1]
    layers[-1] = nn.GELU()
    assert [type(m).__name__ for m in layers[1:]] == ["ReLU", "GELU"]
    assert isinstance(layers[1:], nn.ModuleList)
    assert len(layers) == 3
    assert isinstance(layers.pop(), nn.GELU)
    assert [type(m).__name__ for m in layers + nn.ModuleList([nn.Tanh()])] == ["Identity", "ReLU", "Tanh"]
    layers.append(nn.GELU())
    with pytest.raises(weft.errors.BoundsError, match=r"an index must be in -3..2, got 3"):
        layers[3]
    with pytest.raises(weft.errors.ArgumentError, match="must hold modules, got int"):
        layers.append(3)


def test_sequences_by_name_and_slices() -> None:
    net = nn.Sequential({"first": nn.Linear(2, 3), "act": nn.ReLU(), "last": nn.Linear(3, 1)})
    assert list(net.state_dict()) == ["first.weight", "first.bias", "last.weight", "last.bias"]
    x = weft.randn(4, 2)
    np.testing.assert_array_equal(net[2:](net[:2](x)).detach().numpy(), net(x).detach().numpy())


def test_dicts_of_modules() -> None:
    modules = nn.ModuleDict({"a": nn.Tanh()})
    modules["b"] = nn.Linear(1, 1)
    assert [*modules] == ["a", "b"]
    assert "b" in modules
    assert len(list(modules.parameters())) == 2
    assert isinstance(modules.pop("b"), nn.Linear)
    assert [name for name, _ in modules.items()] == ["a"]
    twin = copy.deepcopy(modules)
    twin.clear()
    assert (len(twin), len(modules)) == (0, 1)
    with pytest.raises(KeyError):
        modules["b"]
    with pytest.raises(
        weft.errors.ArgumentError, match="a name must not be that of an attribute, got 'train'"
    ):
        modules["train"] = nn.Tanh()


def test_nodes_of_a_captured_module_carry_its_path() -> None:
    net = Net()
    graph = weft.make_graph(net)(weft.ones((1, 2)))
    paths = [n.location.module for n in graph.nodes]
    assert paths == ["layers.0", "", "layers.1", "", "head.0", "head.1"]


def test_captured_module_notices_every_change() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5), nn.BatchNorm1d(3))
    compiled = weft.compile(lambda x: net(x))
    x = weft.randn(5, 2)
    compiled(x)
    compiled(x)
    assert len(compiled.versions) == 1
    assert net[2].num_batches_tracked.item() == 2
    changes = [
        net.eval,
        lambda: setattr(net[2], "eps", 1.0),
        lambda: net[0].register_forward_hook(lambda module, args, out: out * 2.0),
        lambda: net.append(nn.ReLU()),
        lambda: net.__setitem__(0, nn.Linear(2, 3)),
    ]
    for i, change in enumerate(changes):
        change()
        np.testing.assert_allclose(
            compiled(x).detach().numpy(), net(x).detach().numpy(), rtol=1e-5, atol=1e-6
        )
        assert len(compiled.versions) == i + 2

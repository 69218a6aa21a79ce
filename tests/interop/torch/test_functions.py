"""Functions and modules of weft in PyTorch's graph, and functions of PyTorch in weft's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import weft
from tests.interop.torch.tools import assert_close
from weft import nn
from weft.interop.torch import as_torch, from_function, from_torch, to_torch
from weft.ops.op import OPS


def ours(x, y):
    return weft.tanh(x * y).sum(axis=1) + (x**3).sum()


def theirs(x, y):
    return torch.tanh(x * y).sum(1) + (x**3).sum()


def inputs(dtype=torch.float64):
    made = torch.Generator().manual_seed(0)
    return [torch.randn(3, 2, generator=made, dtype=dtype).requires_grad_() for _ in range(2)]


@pytest.mark.parametrize("wrap", [lambda f: f, weft.compile], ids=["eager", "compiled"])
def test_function_has_the_values_and_gradients_of_its_twin_to_second_order(wrap) -> None:
    f, given = as_torch(wrap(ours)), inputs()
    assert torch.allclose(f(*given), theirs(*given))
    assert torch.autograd.gradcheck(f, given)
    assert torch.autograd.gradgradcheck(f, given)


def test_gradients_are_those_of_pytorch() -> None:
    given = inputs(torch.float32)
    wanted = torch.autograd.grad(theirs(*given).sum(), given)
    found = torch.autograd.grad(as_torch(ours)(*given).sum(), given)
    assert_close([g.numpy() for g in found], wanted)


def test_trees_numbers_and_integer_results_pass() -> None:
    f = as_torch(
        lambda tree, k, *, add: {"out": tree["x"] * k + add[0], "place": weft.argmax(tree["x"]), "k": k}
    )
    x, shift = torch.tensor([1.0, 3.0], requires_grad=True), torch.ones(2)
    out = f({"x": x}, 2, add=(shift,))
    assert (out["k"], int(out["place"]), out["place"].requires_grad) == (2, 1, False)
    out["out"].sum().backward()
    assert_close([x.grad.numpy()], [torch.tensor([2.0, 2.0])])
    assert shift.grad is None


def test_function_without_gradients_records_nothing() -> None:
    assert not as_torch(ours)(*[x.detach() for x in inputs()]).requires_grad
    with torch.no_grad():
        assert not as_torch(ours)(*inputs()).requires_grad


def test_result_shares_its_memory() -> None:
    made = []

    def f(x):
        made.append(x + 1.0)
        return made[0]

    out = as_torch(f)(torch.ones(3))
    assert out.data_ptr() == to_torch(made[0]).data_ptr()


def test_change_in_place_before_backward_is_noticed() -> None:
    x = torch.ones(2, requires_grad=True)
    y = as_torch(weft.exp)(x)
    with torch.no_grad():
        y += 1.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_second_backward_needs_retain_graph() -> None:
    x = torch.ones(2, requires_grad=True)
    y = as_torch(weft.exp)(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert_close([x.grad.numpy()], [2 * torch.ones(2).exp()])
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_random_function_is_differentiated_with_the_numbers_it_drew() -> None:
    weft.manual_seed(3)
    f = as_torch(lambda x: weft.dropout(x * x * x, 0.5, True))
    x = torch.ones(200, dtype=torch.float64, requires_grad=True)
    y = f(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    assert torch.equal(g != 0, y != 0)
    (h,) = torch.autograd.grad(g.sum(), x)
    assert torch.equal(h, torch.where(y != 0, 12.0, 0.0).double())


def test_what_is_no_function_is_an_error() -> None:
    with pytest.raises(weft.errors.ArgumentError, match="must be given a function or a module, got int"):
        as_torch(3)
    with pytest.raises(weft.errors.ArgumentError, match="must be given a function, got int"):
        from_function(3)


# Modules


def small() -> nn.Module:
    weft.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))


def twin(module: torch.nn.Module) -> torch.nn.Module:
    layers = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Tanh(), torch.nn.Linear(4, 2)
    )
    layers.load_state_dict(module.state_dict())
    return layers


def test_module_has_parameters_and_buffers_under_their_names_in_one_memory() -> None:
    module = small()
    wrapped = as_torch(module)
    assert list(wrapped.state_dict()) == list(module.state_dict())
    for name, parameter in wrapped.named_parameters():
        assert parameter.data_ptr() == to_torch(module.get_parameter(name).detach()).data_ptr()


def test_module_trains_under_an_optimizer_of_pytorch_like_its_twin() -> None:
    module = small()
    wrapped = as_torch(module)
    other = twin(wrapped)
    steps = [(m, torch.optim.SGD(m.parameters(), lr=0.2, momentum=0.9)) for m in (wrapped, other)]
    data = torch.randn(5, 8, 3, generator=torch.Generator().manual_seed(1))
    for x in data:
        losses = []
        for m, optimizer in steps:
            optimizer.zero_grad()
            loss = (m(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    for (name, a), b in zip(wrapped.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.allclose(a, b, rtol=1e-3, atol=1e-5), name
        np.testing.assert_array_equal(module.state_dict()[name].numpy(), a.numpy())


def test_module_follows_train_and_eval_and_new_weights() -> None:
    module = small()
    wrapped = as_torch(module).eval()
    assert not module.training
    other = twin(wrapped).eval()
    torch.nn.init.ones_(other[0].weight)
    wrapped.load_state_dict(other.state_dict())
    x = torch.randn(4, 3)
    assert_close([wrapped(x).detach().numpy(), module(from_torch(x)).detach().numpy()], [other(x), other(x)])
    wrapped.double()
    assert wrapped(x.double()).dtype is torch.float64


def test_values_that_weft_gives_its_parameters_reach_pytorch() -> None:
    module = small()
    wrapped = as_torch(module).eval()
    optimizer = weft.optim.SGD(module.parameters(), lr=0.5)
    x = torch.randn(4, 3)
    before = wrapped(x)
    (module(from_torch(x)) ** 2).sum().backward()
    optimizer.step()
    after = wrapped(x)
    assert not torch.allclose(before, after)
    assert_close(
        [module(from_torch(x)).detach().numpy(), twin(wrapped).eval()(x).detach().numpy()], [after, after]
    )
    for name, parameter in wrapped.named_parameters():
        assert parameter.data_ptr() == to_torch(module.get_parameter(name).detach()).data_ptr()


def test_frozen_parameters_get_no_gradient_and_second_order_works() -> None:
    wrapped = as_torch(nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))).double()
    wrapped.get_submodule("0").weight.requires_grad_(False)
    x = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(wrapped, (x,))
    assert torch.autograd.gradgradcheck(wrapped, (x,))
    wrapped(x).sum().backward()
    assert wrapped.get_submodule("0").weight.grad is None
    assert wrapped.get_submodule("2").weight.grad is not None


# The other way


def entropy(x, y=None):
    return torch.special.entr(x) if y is None else torch.special.xlogy(x, y) * 2


def test_function_of_pytorch_is_differentiated_by_weft_to_second_order() -> None:
    f = from_function(entropy)
    x, y = weft.tensor([1.0, 2.0], requires_grad=True), weft.tensor([3.0, 4.0], requires_grad=True)
    f(x, y).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.log([3.0, 4.0]), rtol=1e-6)
    np.testing.assert_allclose(y.grad.numpy(), [2 / 3, 1.0], rtol=1e-6)
    found = weft.hessian(lambda x: f(x, x).sum())(weft.tensor([1.0, 2.0]))
    np.testing.assert_allclose(found.numpy(), np.diag([2.0, 1.0]), rtol=1e-6)
    weft.testing.gradcheck(lambda x: f(x, x), weft.tensor([0.5, 1.5], dtype=weft.float64))


def test_function_of_pytorch_has_tangents() -> None:
    f = from_function(entropy)
    x, v = weft.tensor([1.0, 2.0]), weft.tensor([1.0, 10.0])
    out, tangent = weft.jvp(lambda x: f(x, x), (x,), (v,))
    np.testing.assert_allclose(out.numpy(), 2 * x.numpy() * np.log(x.numpy()), rtol=1e-6)
    np.testing.assert_allclose(tangent.numpy(), 2 * (np.log(x.numpy()) + 1) * v.numpy(), rtol=1e-6)
    assert not weft.jacfwd(lambda x: f(x, x))(x).requires_grad


def test_calls_that_come_again_share_their_ops() -> None:
    f = from_function(entropy)
    derivative = weft.jacfwd(lambda x: f(x, x))
    derivative(weft.ones(2))
    count = len(OPS)
    derivative(weft.ones(2))
    assert len(OPS) == count


def test_function_of_pytorch_runs_in_compiled_code() -> None:
    f = from_function(entropy)
    compiled = weft.compile(lambda x: (f(x, x) * x).sum())
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    assert float(compiled(x).detach()) == pytest.approx(8 * np.log(2), rel=1e-6)
    compiled(x).backward()
    wanted = weft.grad(lambda x: (f(x, x) * x).sum())(weft.tensor([1.0, 2.0]))
    np.testing.assert_allclose(x.grad.numpy(), wanted.numpy(), rtol=1e-6)
    for n in (3, 5, 6):
        assert float(compiled(weft.ones(n))) == 0


def test_gradient_inside_compiled_code() -> None:
    f = from_function(entropy)
    compiled = weft.compile(lambda x: weft.grad(lambda x: f(x, x).sum())(x))
    np.testing.assert_allclose(
        compiled(weft.tensor([1.0, 2.0])).numpy(), 2 * (np.log([1.0, 2.0]) + 1), rtol=1e-6
    )


def test_function_of_pytorch_in_a_graph_with_open_sizes() -> None:
    f = from_function(lambda x: (torch.special.entr(x), x.argmax(1)))
    graph = weft.make_graph(lambda x: f(x))(weft.TensorType(("batch", 3), weft.float32))
    assert [str(v.type) for v in graph.outputs] == ["f32[batch,3]", "i64[batch]"]
    x = torch.rand(4, 3)
    for backend in ("interpret", "llvm"):
        found = weft.Session(graph, backend=backend).run(list(graph.outputs), {"x": from_torch(x)})
        assert_close([t.numpy() for t in found], [torch.special.entr(x), x.argmax(1)])


def test_shape_that_does_not_follow_from_types_is_an_error_in_a_graph() -> None:
    f = from_function(lambda x: x[x > 0])
    assert f(weft.tensor([1.0, -1.0])).shape == (1,)
    with pytest.raises(
        weft.errors.CaptureError, match="must run on tensors without data to be part of a graph"
    ):
        weft.make_graph(lambda x: f(x))(weft.ones(3))


def test_function_that_changes_its_argument_is_an_error() -> None:
    with pytest.raises(weft.errors.ArgumentError, match="must not change its arguments in place"):
        from_function(lambda x: x.add_(1))(weft.ones(2))


def test_module_of_pytorch_is_a_function() -> None:
    module = torch.nn.Linear(3, 2)
    f, x = from_function(module), torch.randn(4, 3, requires_grad=True)
    given = from_torch(x.detach()).requires_grad_()
    f(given).sum().backward()
    module(x).sum().backward()
    assert_close([f(given).detach().numpy(), given.grad.numpy()], [module(x), x.grad])

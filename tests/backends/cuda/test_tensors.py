"""Tensors on a device: where they are made and moved, what can be done with them, what is refused."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.standin import StandIn, standing_in
from tests.ops import checks
from weft.backends.cuda.array import DeviceArray
from weft.errors import DeviceError, ShapeError
from weft.ops.op import OPS

pytestmark = pytest.mark.filterwarnings("ignore:.*has no kernel for cuda:RuntimeWarning")


def test_devices_are_named_and_compared() -> None:
    assert weft.device("cuda").index is None
    assert weft.device("cuda:3").index == weft.device("cuda", 3).index == 3
    assert weft.device("cuda") == weft.device("cuda:0") == "cuda" == weft.device(weft.device("cuda"))
    assert weft.device("cuda:1") != "cuda"
    assert hash(weft.device("cuda")) == hash(weft.device("cuda:0"))
    assert pickle.loads(pickle.dumps(weft.device("cuda:1"))) == "cuda:1"  # noqa: S301 - made here
    for wrong in ("tpu", "cuda:", "cuda:-1", "cuda:x", ""):
        with pytest.raises(DeviceError):
            weft.device(wrong)
    with pytest.raises(DeviceError, match="there is one cpu"):
        weft.ones(1, device="cpu:1")


MAKERS: list[Any] = [
    lambda **k: weft.zeros(2, 3, **k),
    lambda **k: weft.ones((2,), dtype=weft.int64, **k),
    lambda **k: weft.full((3,), 2.5, **k),
    lambda **k: weft.full((3,), 7, dtype=weft.complex128, **k),
    lambda **k: weft.full((2, 2), True, **k),
    lambda **k: weft.full((4,), -3, dtype=weft.int16, **k),
    lambda **k: weft.full((2,), weft.tensor(4.0), **k),
    lambda **k: weft.arange(5, **k),
    lambda **k: weft.linspace(0, 1, 4, **k),
    lambda **k: weft.eye(3, **k),
    lambda **k: weft.hann_window(5, **k),
    lambda **k: weft.tensor([[1.0, 2.0]], **k),
    lambda **k: weft.asarray(np.arange(3), **k),
    lambda **k: weft.zeros_like(weft.ones(2), **k),
    lambda **k: weft.full_like(weft.ones(2), 3, **k),
    lambda **k: weft.fft.fftfreq(4, **k),
    lambda **k: weft.zeros(0, 3, **k),
    lambda **k: weft.rand(3, generator=weft.Generator().manual_seed(1), **k),
    lambda **k: weft.randn(3, dtype=weft.complex64, generator=weft.Generator().manual_seed(1), **k),
    lambda **k: weft.randint(10, (3,), generator=weft.Generator().manual_seed(1), **k),
    lambda **k: weft.randperm(5, generator=weft.Generator().manual_seed(1), **k),
]


def test_every_function_that_makes_tensors_takes_a_device(api: StandIn) -> None:
    for make in MAKERS:
        host, there = make(), make(device="cuda")
        assert there.device == "cuda:0"
        assert type(there._data) is DeviceArray
        assert (there.shape, there.dtype) == (host.shape, host.dtype)
        np.testing.assert_array_equal(there.cpu().numpy(), host.numpy())
        assert make(device="cpu").device == "cpu"
    assert weft.empty(4, device="cuda").device == "cuda"


def test_keys_are_on_the_default_device_and_what_they_draw_is_there(api: StandIn) -> None:
    expected = weft.random.uniform(weft.random.key(3), (5,)).tolist()
    with weft.default_device("cuda"):
        key = weft.random.key(3)
        drawn = weft.random.uniform(key, (5,))
        picked = weft.random.bernoulli(key, weft.ones(5))
        graph = weft.make_graph(lambda x: x + weft.random.uniform(weft.random.key(3), (5,)))(weft.ones(5))
    assert key.device == drawn.device == picked.device == "cuda"
    assert drawn.tolist() == expected
    assert picked.tolist() == [True] * 5
    assert len(graph.inputs) == 1  # keys that captured code makes are constants
    assert weft.random.key(3).device == "cpu"


def test_default_device_is_that_of_new_tensors_in_a_block(api: StandIn) -> None:
    with weft.default_device("cuda") as device:
        assert device == weft.get_default_device() == "cuda"
        assert weft.zeros(2).device == weft.tensor([1]).device == weft.rand(2).device == "cuda"
        assert weft.zeros(2, device="cpu").device == "cpu"
        with weft.default_device("cpu"):
            assert weft.zeros(2).device == "cpu"
        x = weft.ones(2)
        assert weft.zeros_like(weft.ones(2, device="cpu")).device == "cpu"
    assert weft.zeros(2).device == weft.get_default_device() == "cpu"
    assert weft.zeros_like(x).device == x.new_ones(2).device == weft.rand_like(x).device == "cuda"


def test_tensors_move_with_their_gradients(api: StandIn) -> None:
    x = weft.tensor([1.0, 2.0, 3.0], requires_grad=True)
    there = x.cuda()
    assert there.to("cuda") is there
    assert x.cpu() is x
    y = (there * there).cpu() * 2.0
    y.sum().backward()
    assert x.grad.device == "cpu"
    np.testing.assert_array_equal(x.grad.numpy(), [4.0, 8.0, 12.0])
    both = x.to("cuda", weft.float64)
    assert both.device == "cuda:0"
    assert both.dtype == weft.float64
    assert x.astype(weft.int32, device="cuda").device == "cuda"
    second = weft.autograd.grad((x.cuda() ** 3).sum(), x, create_graph=True)[0]
    (twice,) = weft.autograd.grad(second.sum(), x)
    np.testing.assert_allclose(twice.numpy(), 6 * x.detach().numpy())


def test_two_devices_have_tensors_of_their_own() -> None:
    with standing_in(devices=2):
        x = weft.arange(3.0).to("cuda:1")
        assert x.device == "cuda:1"
        np.testing.assert_array_equal(x.to("cuda:0").cpu().numpy(), [0.0, 1.0, 2.0])
        with pytest.raises(DeviceError, match=r"f32\[3\] on cuda:0 and f32\[3\] on cuda:1"):
            x.to("cuda:0") + x
        with pytest.raises(DeviceError, match="got cuda:2, but cuda:0 to cuda:1 are"):
            x.to("cuda:2")


def test_operands_on_two_devices_are_an_error_that_names_both(api: StandIn) -> None:
    x, w = weft.ones(3, device="cuda"), weft.ones(3)
    with pytest.raises(DeviceError) as found:
        x + w  # the user's line
    text = str(found.value)
    assert "add: tensors must be on one device, got f32[3] on cuda:0 and f32[3] on cpu" in text
    assert "x + w  # the user's line" in text
    assert "x is f32[3] on cuda:0" in text
    assert "w is f32[3]" in text
    calls: list[Any] = [
        lambda: w * x,
        lambda: weft.where(x > 0, w, x),
        lambda: weft.concat([x, w]),
        lambda: weft.functional.linear(weft.ones(2, 3, device="cuda"), weft.ones(4, 3)),
        lambda: weft.nn.Linear(3, 2)(x),
        lambda: weft.functional.cross_entropy(weft.ones(2, 3, device="cuda"), weft.tensor([0, 1])),
        lambda: weft.einsum("i,i->", x, w),
    ]
    for call in calls:
        with pytest.raises(DeviceError, match="tensors must be on one device"):
            call()
    with pytest.raises(DeviceError, match=r"must be on cuda:0, as the tensor is, got cpu"):
        x.grad = w


def test_numbers_and_arrays_of_one_element_go_along(api: StandIn) -> None:
    x = weft.arange(3.0, device="cuda")
    for y in (x * 2, 1.0 - x, x + weft.tensor(2.0), x ** np.float32(2), x.sum() * weft.tensor(3.0)):
        assert y.device == "cuda"
    np.testing.assert_array_equal((x * 2 + 1).cpu().numpy(), [1.0, 3.0, 5.0])


def test_elements_come_back_as_python_and_numpy(api: StandIn) -> None:
    x = weft.tensor([[1.5, -2.0]], device="cuda")
    assert x[0, 0].item() == float(x[0, 0]) == 1.5
    assert x.tolist() == [[1.5, -2.0]]
    assert bool(weft.tensor(True, device="cuda"))
    assert int(weft.tensor(3, device="cuda")) == range(9)[weft.tensor(3, device="cuda")] == 3
    assert f"{x[0, 1]:.1f}" == "-2.0"
    assert repr(x) == "tensor([[ 1.5000, -2.0000]], device='cuda:0')"
    assert [row.tolist() for row in x] == [[1.5, -2.0]]
    assert weft.tensor([2, 3], device="cuda").to(weft.bfloat16).tolist() == [2.0, 3.0]
    for read in (x.numpy, lambda: np.asarray(x), lambda: np.sin(x.detach()._data), lambda: list(x._data)):
        with pytest.raises((DeviceError, TypeError), match=r"on the cpu|not supported|DeviceArray"):
            read()


def test_copies_and_pickles_stay_on_the_device(api: StandIn) -> None:
    x = weft.arange(6.0, device="cuda").reshape(2, 3).T.requires_grad_(False)
    for again in (copy.deepcopy(x.detach()), pickle.loads(pickle.dumps(x)), x.clone()):  # noqa: S301
        assert again.device == "cuda"
        np.testing.assert_array_equal(again.cpu().numpy(), np.arange(6.0).reshape(2, 3).T)
    assert copy.copy(x).device == "cuda"


def test_views_share_memory_and_changes(api: StandIn) -> None:
    host = weft.arange(24.0).reshape(2, 3, 4)
    for take in (
        lambda t: t[0],
        lambda t: t[:, ::-1, 1:3],
        lambda t: t.permute((2, 0, 1)),
        lambda t: t[1, :, ::2],
        lambda t: t.reshape(6, 4)[2:],
        lambda t: t.transpose(0, 2)[1],
        lambda t: t[..., None, -1],
        lambda t: t.unsqueeze(1).squeeze(1),
        lambda t: t.expand((5, 2, 3, 4)),
    ):
        there = host.to("cuda")
        view = take(there)
        assert view._data.block is there._data.block
        np.testing.assert_array_equal(view.cpu().numpy(), take(host).numpy())
        np.testing.assert_array_equal((view * 1.0).cpu().numpy(), take(host).numpy())
    x, y = weft.zeros(3, 4, device="cuda"), weft.zeros(3, 4)
    for t in (x, y):
        row, column = t[1], t.T[2]
        row += 1
        column[0] = 5.0
        t[:, 3].fill_(7.0)
        t[2, [0, 1]] = t.new_full((2,), 9.0)
        assert row.is_view
    np.testing.assert_array_equal(x.cpu().numpy(), y.numpy())
    np.testing.assert_array_equal(x[1].cpu().numpy(), y[1].numpy())
    assert x[1].device == "cuda"


def test_reshape_of_elements_with_gaps_copies_them(api: StandIn) -> None:
    array = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    there = weft.tensor(array, device="cuda")
    np.testing.assert_array_equal(
        there.permute((2, 0, 1)).reshape(-1).cpu().numpy(), array.transpose(2, 0, 1).ravel()
    )
    for dtype in (weft.bool, weft.int8, weft.float16, weft.float32, weft.float64, weft.complex128):
        x = weft.tensor(array % 2, device="cuda").astype(dtype)
        expected = array.astype(np.int64) % 2
        np.testing.assert_array_equal(
            x[:, ::-2].permute((2, 1, 0)).clone().cpu().numpy(), expected.astype(dtype)[:, ::-2].T
        )


def test_errors_of_types_are_the_same_on_a_device(api: StandIn) -> None:
    with pytest.raises(ShapeError, match=r"matmul: .*got f32\[2,3\] and f32\[2,3\]"):
        weft.ones(2, 3, device="cuda") @ weft.ones(2, 3, device="cuda")
    with pytest.raises(IndexError):
        weft.ones(2, device="cuda")[2]


def test_hooks_checkpoints_and_anomalies_see_tensors_of_the_device(api: StandIn) -> None:
    seen = []
    x = weft.ones(3, device="cuda", requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: seen.append(g.device))
    y.retain_grad()
    y.sum().backward()
    assert seen == ["cuda"]
    assert y.grad.device == x.grad.device == "cuda"
    with weft.no_grad(), weft.autocast(weft.bfloat16):
        assert (weft.ones(2, 2, device="cuda") @ weft.ones(2, 2, device="cuda")).dtype == weft.bfloat16


def test_transforms_run_on_a_device(api: StandIn) -> None:
    x = weft.tensor([0.5, -1.0, 2.0])
    there = x.to("cuda")

    def f(t: Any) -> Any:
        return (t.tanh() * t).sum()

    for transform in (
        weft.grad,
        lambda g: lambda t: weft.jvp(g, (t,), (weft.ones_like(t),))[1],
        lambda g: weft.vmap(lambda row: g(row[None])),
        weft.hessian,
    ):
        found = transform(f)(there)
        assert found.device == "cuda"
        np.testing.assert_allclose(found.cpu().numpy(), transform(f)(x).numpy(), rtol=1e-6)
    assert weft.vmap(lambda row: row * row.device.index)(there).device == "cuda"


def test_modules_move_and_train(api: StandIn) -> None:
    def losses(device: str) -> list[float]:
        weft.manual_seed(0)
        model = weft.nn.Sequential(
            weft.nn.Linear(3, 8), weft.nn.BatchNorm1d(8), weft.nn.Tanh(), weft.nn.Linear(8, 1)
        )
        weight = model[0].weight
        assert model.to(device) is model
        assert model[0].weight is weight
        assert {t.device for t in (*model.parameters(), *model.buffers())} == {weft.device(device)}
        optimizer = weft.optim.AdamW(model.parameters(), lr=0.05)
        x = weft.rand(16, 3).to(device)
        out = []
        for _ in range(3):
            loss = ((model(x) - x.sum(axis=1, keepdims=True)) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            out.append(loss.item())
        assert model.cpu()[0].weight.grad.device == "cpu"
        return out

    np.testing.assert_allclose(losses("cuda"), losses("cpu"), rtol=1e-5)


def test_what_has_no_kernel_says_so_once(api: StandIn) -> None:
    x = weft.ones(3, device="cuda")
    with pytest.warns(RuntimeWarning, match="sinh has no kernel for cuda:0 yet: it is computed on the host"):
        weft.sinh(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weft.sinh(x)


# Every op, its values and gradients; that is the host's kernel between two copies, so bits agree

SAMPLES: dict[str, list[checks.Entry]] = {}
for _entry in checks.entries():
    SAMPLES.setdefault(_entry.name, []).append(_entry)
ROUNDED = ("einsum",)  # whose products depend on how elements lie in memory
ON_HOST = ("histogram",)  # the edges of bins follow from numbers alone


def _run(entry: checks.Entry, device: str) -> tuple[list[Any], list[Any]]:
    inputs = [weft.tensor(a, device=device) for a in entry.sample.inputs]
    for i in entry.differentiable:
        inputs[i].requires_grad_()
    outs = entry.outputs(*inputs)
    roots = [o for o in outs if o.requires_grad]
    if roots:
        weft.autograd.backward(roots, [weft.ones_like(o) for o in roots])
    return outs, [x.grad for x in inputs]


@pytest.mark.parametrize("part", range(4))
def test_every_op_runs_on_a_device_as_on_the_host(part: int, api: StandIn) -> None:
    for name, samples in list(SAMPLES.items())[part::4]:
        if name in OPS and OPS[name].effect:
            continue
        for entry in samples[:1]:
            if not entry.sample.inputs:
                continue
            (outs, grads), (mine, own) = _run(entry, "cpu"), _run(entry, "cuda")
            tolerance = 1e-14 if name in ROUNDED else 0.0
            for a, b in zip((*outs, *grads), (*mine, *own), strict=True):
                if a is None or b is None:
                    assert a is b, name
                    continue
                assert b.device == "cuda" or name in ON_HOST, name
                np.testing.assert_allclose(
                    b.detach().cpu().numpy(), a.detach().numpy(), rtol=max(tolerance, 1e-6), err_msg=name
                )


def test_compiled_functions_run_where_their_tensors_are(api: StandIn) -> None:
    def f(x: Any, y: Any) -> Any:
        z = x * 2.0 + y
        if z.sum() > 0:
            z = z.tanh()
        return z, z.sum()

    compiled = weft.compile(f)
    expected = f(weft.ones(2, 3), weft.ones(2, 3))
    for device in ("cuda", "cpu", "cuda"):
        x = weft.ones(2, 3, device=device).requires_grad_()
        found = compiled(x, weft.ones(2, 3, device=device))
        found[1].backward()
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.device == device
            np.testing.assert_allclose(ours.detach().cpu().numpy(), theirs.numpy(), rtol=1e-6)
        assert x.grad.device == device


def test_compiled_training_step_changes_its_model_on_the_device(api: StandIn) -> None:
    def losses(device: str) -> list[float]:
        weft.manual_seed(0)
        model = weft.nn.Linear(3, 1).to(device)
        optimizer = weft.optim.AdamW(model.parameters(), lr=0.1)

        @weft.compile
        def step(x: Any) -> Any:
            loss = ((model(x) - 1.0) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        found = [step(weft.ones(4, 3, device=device)).item() for _ in range(3)]
        assert model.weight.device == device
        return found

    np.testing.assert_allclose(losses("cuda"), losses("cpu"), rtol=1e-5)

"""Options of ``weft.compile`` for functions of tensors on a device: they are of the device's program."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.emulated import EmulatedDriver, emulated
from weft.backends.cuda.build import build_program, loops_of
from weft.backends.cuda.program import LibraryCall, MatrixProduct, all_steps
from weft.errors import ArgumentError, DomainError
from weft.schedule.budget import planned_bytes
from weft.schedule.gpu.machine import Gpu as Machine


@pytest.fixture
def card() -> Iterator[EmulatedDriver]:
    with emulated() as found:
        yield found


def f(x: Any, w: Any) -> Any:
    return weft.softmax(weft.tanh(x * 2.0 + 1.0) @ w, axis=1)


def explained(device: str, **options: Any) -> Any:
    """What a function with options does there, after calls that gave what eager code gives."""
    rng = np.random.default_rng(0)
    x, w = (weft.tensor(rng.standard_normal(s).astype(np.float32)) for s in ((8, 16), (16, 4)))
    expected = f(x, w).numpy()
    fast = weft.compile(f, **options)
    given = x.to(device), w.to(device)
    for _ in range(3):  # the third may be a replay
        found = fast(*given)
        assert found.device == device
        np.testing.assert_allclose(found.cpu().numpy(), expected, rtol=1e-5, atol=1e-7)
    (told,) = fast.explain(*given)
    return told


@pytest.mark.rotating(2)
@pytest.mark.parametrize(
    "options",
    [
        {"disable": ["fusion"]},
        {"disable": ["recompute", "narrow_products", "take_products", "fuse_attention"]},
        {"disable": ["waves", "memory_plan", "donation", "epilogues"]},
        {"disable": ["libraries", "alike", "graphs", "row_products", "rows_in_parts", "recompute_more"]},
        {"disable": [p.name for p in weft.passes.GPU_LOWERING]},
        {"passes": []},
        {"disable": "fusion", "check_nan": True, "fast_math": True},
    ],
    ids=str,
)
def test_options_keep_values_and_the_device(
    card: EmulatedDriver, capsys: pytest.CaptureFixture[str], options: dict[str, Any]
) -> None:
    told = explained("cuda", **options)
    capsys.readouterr()
    assert told.device.startswith("cuda:0")
    assert all(k.measured is not None for k in told.kernels)  # the steps are those that ran


def test_what_is_disabled_is_left_out_on_the_device(
    card: EmulatedDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    usual, apart, whole = (
        explained("cuda", **options) for options in ({}, {"disable": ["fusion"]}, {"disable": ["decompose"]})
    )
    capsys.readouterr()
    names = [str(told.program).count("launch ") for told in (usual, apart)]
    assert names[0] < names[1]
    assert len(apart.kernels) == names[1]
    assert "decompose" in usual.passes
    assert "decompose" not in whole.passes


def test_a_name_means_the_pass_that_devices_have_in_its_place() -> None:
    def loss(weights: Any, x: Any) -> Any:
        return (weft.gelu(x @ weights[0], approximate="tanh") @ weights[1]).pow(2).sum()

    def gradient(*args: Any) -> Any:
        return weft.grad(loss)(args[:2], args[2])

    shapes = (64, 512), (512, 64), (32768, 64)
    graph = weft.make_graph(gradient)(*[weft.ones(s) for s in shapes]).optimize()

    def passes(*disable: str) -> set[str]:
        lowered: Any = loops_of(graph, disable=disable).origins.graph
        return {record.name for record in lowered.history()}

    assert "recompute_more" in passes()
    assert "recompute_more" not in passes("recompute")


# Passes that only GPUs have, each with a graph that it changes.


def half(*shape: int) -> Any:
    return weft.ones(shape, dtype=weft.bfloat16)


def classified(x: Any, y: Any) -> Any:
    return weft.value_and_grad(lambda x: weft.cross_entropy(x, y))(x)


def attended(q: Any) -> Any:
    return weft.scaled_dot_product_attention(q, q, q)


def convolved(x: Any, w: Any, b: Any) -> Any:
    return weft.conv2d(weft.relu(weft.conv2d(x, w, b)), w)


def gated(x: Any, w: Any) -> Any:
    return weft.tanh((x @ w + 1.0)[:, :32]) * weft.sigmoid((x @ w + 1.0)[:, 32:])


def parted(x: Any) -> Any:
    a, b = x.chunk(2, -1)
    return weft.sin(a).sum() + weft.cos(b).sum()


def modelled(x: Any, w: Any, y: Any) -> Any:
    return weft.grad(lambda w: weft.cross_entropy(weft.linear(x, w), y))(w)


def trained(*args: Any) -> Any:
    def loss(weights: Any, x: Any) -> Any:
        return (weft.gelu(x @ weights[0], approximate="tanh") @ weights[1]).pow(2).sum()

    return weft.grad(loss)(args[:2], args[2])


def recurrent(w: Any, xs: Any) -> Any:
    def loss(w: Any) -> Any:
        return weft.scan(lambda h, x: (weft.tanh(x @ w + h),) * 2, weft.zeros(8, 64), xs)[1].sum()

    return weft.grad(loss)(w)


def bytes_multiplied(x: Any, w: Any) -> Any:
    return weft.matmul(x.astype(weft.int32), w.astype(weft.int32))


CLASSES = weft.zeros(64, dtype=weft.int64)
CHANGED: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "attention_by_library": (attended, (half(2, 2, 128, 64),)),
    "biases_by_library": (weft.linear, (half(64, 64), half(64, 64), half(64))),
    "convolutions_by_library": (convolved, (half(2, 8, 9, 9), half(8, 8, 3, 3), half(8))),
    "channels_last": (convolved, (half(2, 8, 9, 9), half(8, 8, 3, 3), half(8))),
    "pick_classes": (classified, (weft.ones(64, 16), CLASSES)),
    "falling_powers": (weft.softmax, (weft.ones(64, 16),)),
    "row_products": (weft.linear, (weft.ones(1, 512), weft.ones(512, 512))),
    "early_parts": (gated, (weft.ones(8, 16), weft.ones(16, 64))),
    "rows_in_parts": (modelled, (half(16384, 64), half(50304, 64), weft.zeros(16384, dtype=weft.int64))),
    "recompute_more": (trained, (weft.ones(64, 512), weft.ones(512, 64), weft.ones(32768, 64))),
    "join_parts": (weft.grad(parted), (weft.ones(8, 16),)),
    "take_wide_products": (recurrent, (weft.ones(64, 64), weft.ones(16, 8, 64))),
}
ONLY_THERE = [p.name for p in weft.passes.GPU_LOWERING if p not in weft.passes.LOWERING]


def changing(function: Any, given: tuple[Any, ...], *disable: str) -> list[str]:
    """The passes that change the graph of a function on a card with all libraries."""
    graph = weft.make_graph(function)(*given).optimize()
    machine = Machine(libraries=True, cudnn=True)
    lowered: Any = loops_of(graph, machine, disable=disable).origins.graph
    return [record.name for record in lowered.history()]


def test_every_pass_that_only_devices_have_is_known_by_its_name() -> None:
    assert set(CHANGED) | {"widen_products"} == set(ONLY_THERE)
    for name in ONLY_THERE:
        assert getattr(weft.passes, name).name == name
        assert name in dir(weft.passes)
        weft.compile(f, disable=[name])(weft.ones(8, 16), weft.ones(16, 4))  # on a processor it means nothing
        with pytest.raises(ArgumentError, match="must not be that of a pass of weft"):
            weft.passes.register(weft.passes.Pass(lambda graph: graph, name))


@pytest.mark.parametrize("name", CHANGED)
def test_passes_of_devices_are_left_out_by_their_names(name: str) -> None:
    function, given = CHANGED[name]
    assert name in changing(function, given)
    assert name not in changing(function, given, name)


def multiplied(x: Any, w: Any) -> Any:
    return x @ w


@pytest.mark.parametrize(
    ("function", "given"),
    [CHANGED["convolutions_by_library"], (multiplied, (weft.ones(1024, 1024), weft.ones(1024, 1024)))],
    ids=["conv", "matmul"],
)
def test_libraries_are_left_out_by_name(function: Any, given: Any) -> None:
    graph, machine = weft.make_graph(function)(*given).optimize(), Machine(libraries=True, cudnn=True)

    def calls(*disable: str) -> int:
        steps = all_steps(build_program(graph, machine=machine, disable=disable).steps)
        return sum(isinstance(step, MatrixProduct | LibraryCall) for step in steps)

    assert calls() > 0
    assert calls("libraries") == 0


def test_graphs_and_kernels_for_work_that_is_alike_are_left_out_by_name(card: EmulatedDriver) -> None:
    given = [weft.ones(n, device="cuda") for n in (4096, 2048, 1024)]

    def each(*parts: Any) -> Any:
        rows = [weft.sin(x) * 2.0 + x for x in parts]
        return [*rows, weft.cumsum(rows[0], axis=0), weft.sort(rows[1])]

    def made(disable: list[str]) -> tuple[int, int]:
        fast = weft.compile(each, disable=disable)
        before = card.names().count("cuGraphLaunch")
        for _ in range(5):  # the third is a graph, where there are any
            found = [y.tolist() for y in fast(*given)]
        assert found == [y.tolist() for y in each(*given)]
        run: Any = fast.versions[0].run
        return len(run.program.kernels), card.names().count("cuGraphLaunch") - before

    kernels, graphs = made([])
    assert graphs > 0
    assert made(["graphs"]) == (kernels, 0)
    apart, graphs = made(["alike"])
    assert apart > kernels
    assert graphs > 0


def test_a_wrong_name_is_an_error_that_lists_those_of_devices() -> None:
    with pytest.raises(ArgumentError, match=r"among .*rows_in_parts.*libraries.*got 'row_parts'"):
        weft.compile(f, disable=["row_parts"])
    with pytest.raises(ArgumentError, match=r"disable must be among .*recompute_more.*graphs, got 'cudnn'"):
        weft.jit.trace(f, weft.ones(8, 16), weft.ones(16, 4), disable="cudnn")


# A budget of memory


def by_turns(x: Any, w: Any) -> Any:
    for _ in range(16):
        x = weft.tanh(x @ w)
    return x.sum()


STEP = weft.value_and_grad(by_turns, argnums=(0, 1))


def square(seed: int) -> Any:
    return weft.tensor(np.random.default_rng(seed).standard_normal((16, 16)).astype(np.float32) / 4)


@pytest.mark.rotating(2)
def test_a_budget_of_memory_is_for_the_plan_of_the_device(
    card: EmulatedDriver, caplog: pytest.LogCaptureFixture
) -> None:
    host = square(0), square(1)
    there = tuple(t.to("cuda") for t in host)
    free = weft.compile(STEP)
    needed, on_host = free.memory(*there).arena, weft.compile(STEP).memory(*host).arena
    assert needed < on_host  # else nothing would be told apart
    with caplog.at_level(logging.WARNING, logger="weft.compile"):
        enough = weft.compile(STEP, memory=(needed + on_host) // 2)
        assert enough.memory(*there).arena == needed
        assert enough.memory(*host).arena < on_host
        bound = weft.compile(STEP, memory=needed - 1)
        assert bound.memory(*there).arena < needed
        assert not [r for r in caplog.records if "the plan needs" in r.getMessage()]
        weft.compile(STEP, memory=1000).memory(*there)
    assert "the plan needs" in caplog.text
    for a, b in zip(weft.tree_leaves(bound(*there)), weft.tree_leaves(STEP(*host)), strict=True):
        assert a.device == "cuda:0"
        np.testing.assert_allclose(a.cpu().numpy(), b.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.rotating(2)
def test_a_budget_is_for_the_device_of_weights_that_a_function_holds(card: EmulatedDriver) -> None:
    x, w = square(0).to("cuda"), square(1).to("cuda").requires_grad_()
    arenas = []
    for memory in (None, 8000):
        fast = weft.compile(lambda x: by_turns(x, w), memory=memory)
        w.grad = None
        fast(x).backward()
        version = fast.versions[0]
        arenas.append(planned_bytes(version.program, {}, x._data))
        grad = w.grad.cpu().numpy()
    assert arenas[1] < arenas[0]
    _, (_, wanted) = STEP(square(0), square(1))
    np.testing.assert_allclose(grad, wanted.numpy(), rtol=1e-4, atol=1e-6)


def test_checks_for_nan_are_of_the_device_with_other_options(card: EmulatedDriver) -> None:
    fast = weft.compile(lambda x: weft.log(x) * 2.0, check_nan=True, disable=["fusion"])
    assert fast(weft.ones(3, device="cuda")).tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(DomainError, match=r"test_options\.py"):
        fast(weft.tensor([1.0, -1.0, 1.0], device="cuda"))

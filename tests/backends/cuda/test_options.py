"""Options of ``weft.compile`` for functions of tensors on a device: they are of the device's program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.emulated import EmulatedDriver, emulated
from weft.backends.cuda.build import loops_of
from weft.errors import DomainError


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


def test_checks_for_nan_are_of_the_device_with_other_options(card: EmulatedDriver) -> None:
    fast = weft.compile(lambda x: weft.log(x) * 2.0, check_nan=True, disable=["fusion"])
    assert fast(weft.ones(3, device="cuda")).tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(DomainError, match=r"test_options\.py"):
        fast(weft.tensor([1.0, -1.0, 1.0], device="cuda"))

"""Every core ATen operator, by itself: what PyTorch computes and what its graph gives, on every backend."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import weft
from tests.interop.torch.samples import IMPOSSIBLE, SAMPLES, UNCERTAIN, X
from tests.interop.torch.tools import BACKENDS, as_array, check_function, flat, run_graph, traced_graph
from weft.interop.torch import supported_operators
from weft.interop.torch.calls import rule_name


def core_operators() -> set[str]:
    """The operators that PyTorch itself marks as core."""
    found = set()
    names = {s.name for s in torch._C._jit_get_all_schemas() if s.name.startswith("aten::")}
    for name in names:
        packet = getattr(torch.ops.aten, name.removeprefix("aten::"), None)
        for overload in packet.overloads() if hasattr(packet, "overloads") else ():
            if torch.Tag.core in getattr(packet, overload).tags:
                found.add(rule_name(getattr(packet, overload)))
    return found


CASES = [
    pytest.param(f, xs, id=f"{name}-{i}")
    for name, samples in SAMPLES.items()
    for i, (f, xs) in enumerate(samples)
]


@pytest.mark.parametrize(("function", "inputs"), CASES)
def test_operator_gives_what_pytorch_gives(function, inputs) -> None:
    check_function(function, *inputs)


@pytest.mark.parametrize("name", UNCERTAIN)
def test_operator_without_fixed_values_gives_the_types_that_pytorch_gives(name) -> None:
    function, inputs = UNCERTAIN[name]
    graph = traced_graph(function, inputs)
    for backend in BACKENDS:
        for one, other in zip(run_graph(graph, inputs, backend), flat(function(*inputs)), strict=True):
            assert (one.shape, one.dtype) == (tuple(other.shape), as_array(other).dtype)


def test_dropout_keeps_the_mean_and_says_what_it_kept() -> None:
    graph = traced_graph(lambda x: torch.ops.aten.native_dropout(x, 0.25, True), (torch.ones(10_000),))
    out, mask = run_graph(graph, (torch.ones(10_000),), "llvm")
    np.testing.assert_array_equal(out, np.where(mask, np.float32(1 / 0.75), 0))
    assert abs(out.mean() - 1) < 0.05


def test_more_than_nine_in_ten_core_operators_are_covered() -> None:
    core = core_operators()
    tested = {name for name in (*SAMPLES, *UNCERTAIN) if name in supported_operators()}
    tested.add("_local_scalar_dense")  # in test_program
    assert core - tested == set(IMPOSSIBLE)
    assert len(core & tested) / len(core) > 0.98


def test_result_whose_shape_depends_on_values_is_an_error_that_says_so() -> None:
    with pytest.raises(
        weft.errors.CaptureError, match="the number of results depends on the values of a tensor"
    ):
        traced_graph(lambda x, m: torch.ops.aten.index.Tensor(x, [m]), (X, X > 0))

"""Every layer against PyTorch: states load, and outputs, gradients and changed buffers are the same to 1e-5.

The same holds for layers in graphs, captured from source and run by the interpreter or by machine code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from tests.nn.case import differentiable, inputs_of
from tests.nn.cases import CASES
from tests.nn.stored import stored
from weft import nn

Array = np.ndarray[Any, Any]
COMPILED = (
    "conv2d",
    "transposed2d",
    "max_pool2d_indices",
    "batch_norm2d",
    "group_norm",
    "bag_sum",
    "cross_entropy_ignoring",
    "gru_packed",
    "lstm_projected",
    "attention_added_keys",
    "decoder_layer",
    "weight_norm",
)


def close(found: Any, expected: Array) -> None:
    """Equal to 1e-5, relative to the largest element."""
    assert found.shape == expected.shape
    largest = float(np.abs(expected[np.isfinite(expected)]).max(initial=1.0))
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-5, atol=1e-5 * largest)


def weighted_sum(outs: list[Any]) -> Any:
    """A loss that tells all elements of all outputs apart."""
    floating = [o for o in outs if weft.is_floating_point(o)]
    return sum((o * weft.cos(weft.arange(o.size, dtype=o.dtype)).reshape(o.shape)).sum() for o in floating)


def tensor(values: Any) -> Any:
    return weft.tensor(values)


def check(name: str, prepare: Callable[[Any], Callable[..., Any]]) -> None:
    """Compare a layer, called in the way that ``prepare`` makes of it, with what is stored."""
    case = CASES[name]
    layer = case.make(nn, tensor)
    state = stored(name, "state")
    assert {k: v.shape for k, v in layer.state_dict().items()} == {k: v.shape for k, v in state.items()}
    assert layer.load_state_dict(state) == ([], [])
    layer.train(case.training)
    inputs = [weft.tensor(x) for x in inputs_of(name, case)]
    for i in differentiable(case):
        inputs[i].requires_grad_()
    run = prepare(layer) if case.call is None else prepare(lambda *x: case.call(nn, layer, *x))
    outs = weft.tree_leaves(run(*inputs))
    for out, expected in zip(outs, stored(name, "out").values(), strict=True):
        close(out, expected)
    after = {**state, **stored(name, "after")}
    for key, value in layer.state_dict().items():
        close(value, after[key])
    weighted_sum(outs).backward()
    for i, expected in stored(name, "in_grad").items():  # type: ignore[assignment]
        close(inputs[int(i)].grad, expected)
    parameters = dict(layer.named_parameters())
    for key, expected in stored(name, "grad").items():
        close(parameters[key].grad, expected)


@pytest.mark.parametrize("name", CASES)
def test_layer_computes_what_pytorch_does(name: str) -> None:
    check(name, lambda layer: layer)


@pytest.mark.parametrize("name", CASES)
def test_inputs_are_those_that_pytorch_was_given(name: str) -> None:
    for drawn, kept in zip(inputs_of(name, CASES[name]), stored(name, "in").values(), strict=True):
        np.testing.assert_array_equal(drawn, kept)


@pytest.mark.rotating(4)
@pytest.mark.parametrize("name", CASES)
def test_captured_layer_computes_what_pytorch_does(name: str) -> None:
    check(name, lambda layer: weft.compile(layer, backend="interpret"))


@pytest.mark.rotating(4)
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_layer_computes_what_pytorch_does(name: str) -> None:
    check(name, weft.compile)

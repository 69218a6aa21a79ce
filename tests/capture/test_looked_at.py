"""Floats that Python looks at: guards hold at the call that was captured, though kernels round otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft


def by_ufunc(a: Any, b: Any, c: Any) -> Any:
    return weft.ones(2) * np.sqrt(abs(float((a * b + c).sum())))


def rounded(a: Any, b: Any, c: Any) -> Any:
    return weft.ones(2) * np.round(float(((a - b) ** 2).mean()), 3) + c[:2]


def by_array(a: Any, b: Any, c: Any) -> Any:
    return weft.ones(2) * float(np.sum((a * b + c).numpy()))


def by_scalar(a: Any, b: Any, c: Any) -> Any:
    return weft.ones(2) * np.float32((a * b + c).sum().item())


def softmax_peak(a: Any, b: Any, c: Any) -> Any:
    return a * float(np.max(weft.softmax(a, axis=0).numpy())) + b


def two_looks(a: Any, b: Any, c: Any) -> Any:
    y = a * b + c
    z = weft.tanh(y) * b
    return y * float(np.mean(y.numpy())) + z * float(np.max(z.numpy()))


def as_text(a: Any, b: Any, c: Any) -> Any:
    return len(str((a * 1.1 + 0.3).numpy().tolist()[0])) * b


def as_truth(a: Any, b: Any, c: Any) -> Any:
    y = a * 1.1 + b
    return y * (1 if np.all(y.numpy() > 0) else 2)


def with_state(a: Any, b: Any, c: Any) -> Any:
    y = a * b + c
    a += 1
    return y * float(np.mean(y.numpy()))


FUNCTIONS = [
    by_ufunc,
    rounded,
    by_array,
    by_scalar,
    softmax_peak,
    two_looks,
    as_text,
    as_truth,
    with_state,
]


@pytest.mark.rotating(4)
@pytest.mark.parametrize("capture", ["source", "trace"])
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_the_captured_call_passes_its_own_guards(f: Callable[..., Any], capture: str) -> None:
    rng = np.random.default_rng(0)
    compiled = weft.compile(f, capture=capture)
    for _ in range(3):
        arrays = [rng.standard_normal(5).astype(np.float32) for _ in range(3)]
        count = len(compiled.versions)
        for _ in range(2):
            ours, theirs = ([weft.tensor(x) for x in arrays] for _ in range(2))
            np.testing.assert_allclose(compiled(*ours).numpy(), f(*theirs).numpy(), rtol=1e-4, atol=1e-5)
            assert ours[0].tolist() == theirs[0].tolist()
        assert len(compiled.versions) == count + 1


def test_gradients_flow_through_a_version_that_was_settled() -> None:
    def f(w: Any, x: Any) -> Any:
        y = w * x + 0.3
        return (y * float(np.max(y.detach().numpy()))).sum()

    x = weft.tensor(np.random.default_rng(1).standard_normal(7).astype(np.float32))
    found = []
    for g in (f, weft.compile(f)):
        w = (weft.ones(7) * 1.1).requires_grad_()
        g(w, x).backward()
        found.append(w.grad.numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_trace_serves_the_call_that_was_traced(f: Callable[..., Any]) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(5).astype(np.float32) for _ in range(3)]
    traced = weft.jit.trace(f, *map(weft.tensor, arrays))
    for _ in range(2):
        ours, theirs = ([weft.tensor(x) for x in arrays] for _ in range(2))
        np.testing.assert_allclose(traced(*ours).numpy(), f(*theirs).numpy(), rtol=1e-4, atol=1e-5)
        assert ours[0].tolist() == theirs[0].tolist()

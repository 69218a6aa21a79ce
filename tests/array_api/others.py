"""Functions of other libraries on tensors: their results, types and gradients against the same on arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import weft

STEP = 1e-6


class Call(NamedTuple):
    """A function of a library and the arrays that it is called with."""

    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    exact: bool = True  # whether the dtype is kept; some functions make arrays in the default dtype


def leaves(result: Any) -> Iterator[Any]:
    """The arrays of a result, which may be a tuple or an object with several."""
    if isinstance(result, tuple | list):
        for part in result:
            yield from leaves(part)
    elif hasattr(result, "__dict__") and not isinstance(result, weft.Tensor | np.ndarray | np.generic):
        yield from leaves(tuple(vars(result).values()))
    else:
        yield result


def check_values(call: Call, dtype: str = "float64") -> None:
    """Tensors in, tensors out, of the dtype and the values that arrays give."""
    arrays = [x.astype(dtype) if x.dtype.kind == "f" else x for x in call.inputs]
    expected = list(leaves(call.function(*arrays)))
    found = list(leaves(call.function(*map(weft.asarray, arrays))))
    assert len(found) == len(expected)
    tolerance = 1e-9 if dtype == "float64" else 2e-4
    for ours, theirs in zip(found, expected, strict=True):
        assert isinstance(ours, weft.Tensor)
        theirs = np.asarray(theirs)
        if theirs.dtype.kind not in "fc":
            assert ours.dtype == theirs.dtype
        elif call.exact:
            assert (weft.real(ours).dtype, ours.dtype.kind) == (dtype, theirs.dtype.kind)  # type: ignore[comparison-overlap]
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=tolerance, atol=tolerance)


def check_gradient(call: Call) -> None:
    """The derivative along a random direction, by weft through the library and by differences."""
    rng = np.random.default_rng(0)
    moved = [x.dtype.kind == "f" for x in call.inputs]
    directions = [
        rng.standard_normal(x.shape) if m else None for x, m in zip(call.inputs, moved, strict=True)
    ]
    tensors = [weft.tensor(x, requires_grad=m) for x, m in zip(call.inputs, moved, strict=True)]
    outputs = [y for y in leaves(call.function(*tensors)) if y.requires_grad]
    assert outputs
    weights = [rng.standard_normal(y.shape) for y in outputs]
    sum(weft.sum(weft.real(y * w)) for y, w in zip(outputs, weights, strict=True)).backward()
    slope = sum(
        np.sum(x.grad.numpy() * d) for x, d in zip(tensors, directions, strict=True) if x.grad is not None
    )

    kept = [y.requires_grad for y in leaves(call.function(*tensors))]

    def weighted(step: float) -> float:
        arrays = [x if d is None else x + step * d for x, d in zip(call.inputs, directions, strict=True)]
        results = [y for y, k in zip(leaves(call.function(*arrays)), kept, strict=True) if k]
        return float(sum(np.sum(np.real(y * w)) for y, w in zip(results, weights, strict=True)))

    expected = (weighted(STEP) - weighted(-STEP)) / (2 * STEP)
    np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-7)

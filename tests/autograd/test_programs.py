"""Random programs: whatever graph a program builds, its gradient is its finite difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

import weft
from tests.of_code import examples

SHAPES = [(), (3,), (2, 3), (2, 1)]

# Smooth, and bounded in value and slope, so that finite differences hold at any depth.
UNARY: dict[str, Callable[[Any], Any]] = {
    "tanh": weft.tanh,
    "sin": weft.sin,
    "sigmoid": weft.sigmoid,
    "gauss": lambda x: weft.exp(-(x * x)),
    "root": lambda x: weft.sqrt(x * x + 1.0) - 1.0,
    "half": lambda x: x * 0.5,
    "negate": lambda x: -x,
    "sum last": lambda x: weft.tanh(x.sum(axis=-1, keepdims=True)) if x.ndim else x,
    "mean": lambda x: x.mean(),
    "flip": lambda x: x.reshape(-1).flip().reshape(x.shape),
    "repeat": lambda x: weft.broadcast_to(x, (2, *x.shape)).mean(axis=0),
    "pick": lambda x: x.reshape(-1)[0] * 0.5 + x * 0.5,
    "detached factor": lambda x: x * 0.5 + weft.stop_gradient(x) * 0.0,
    "changed in place": lambda x: _changed(x * 1.0),
    "checkpoint": lambda x: weft.checkpoint(lambda t: weft.tanh(t * 0.7) * weft.sin(t), x),
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: (x + y) * 0.5,
    "sub": lambda x, y: (x - y) * 0.5,
    "mul": lambda x, y: weft.tanh(x) * weft.sin(y),
    "div": lambda x, y: x / (2.0 + y * y),
    "select": lambda x, y: weft.where(weft.tensor([True, False, True]), x, y).mean(axis=-1, keepdims=True),
    "stack": lambda x, y: weft.stack([weft.tanh(x).mean(), weft.sin(y).mean()]).sum() * 0.5,
}


def _changed(x: Any) -> Any:
    x *= 0.5
    x += weft.sin(x)
    return x


Step = tuple[str, int, int]


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[tuple[int, ...]], list[Step]]:
    """Shapes of leaves, and steps that each apply an op to earlier values, by their number."""
    shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3))
    steps: list[Step] = []
    for k in range(draw(st.integers(1, 12))):
        place = st.integers(0, len(shapes) + k - 1)
        steps.append((draw(st.sampled_from([*UNARY, *BINARY])), draw(place), draw(place)))
    return shapes, steps


def run(steps: list[Step], leaves: list[Any]) -> Any:
    """The sum of the last values of a program, and all of its values."""
    values = list(leaves)
    for name, i, j in steps:
        values.append(UNARY[name](values[i]) if name in UNARY else BINARY[name](values[i], values[j]))
    total = values[-1].sum()
    for v in values[-4:-1]:
        total = total + weft.tanh(v).sum()
    return total, values


def arrays(shapes: list[tuple[int, ...]], seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.uniform(-1.0, 1.0, shape) for shape in shapes]


def tensors(values: list[Any], requires_grad: bool = False) -> list[Any]:
    return [weft.tensor(v, dtype=weft.float64, requires_grad=requires_grad) for v in values]


def inner(xs: list[Any], ys: list[Any]) -> float:
    return float(sum(np.vdot(x, y) for x, y in zip(xs, ys, strict=True)))


def backward(steps: list[Step], points: list[Any]) -> list[Any]:
    leaves = tensors(points, requires_grad=True)
    run(steps, leaves)[0].backward()
    return [np.zeros(x.shape) if x.grad is None else x.grad.numpy() for x in leaves]


@examples(80, 26)
@given(programs())
def test_gradient_is_the_finite_difference(program: Any) -> None:
    shapes, steps = program
    points, direction = arrays(shapes, 1), arrays(shapes, 2)
    found = inner(backward(steps, points), direction)

    def value(step: float) -> float:
        moved = [p + step * d for p, d in zip(points, direction, strict=True)]
        return float(run(steps, tensors(moved))[0])

    h = 1e-3
    coarse, fine = (value(h) - value(-h)) / (2 * h), (value(h / 2) - value(-h / 2)) / h
    np.testing.assert_allclose(found, (4 * fine - coarse) / 3, rtol=1e-7, atol=1e-7)


@examples(40, 13)
@given(programs())
def test_all_ways_to_a_gradient_agree(program: Any) -> None:
    shapes, steps = program
    points = arrays(shapes, 1)
    expected = backward(steps, points)

    leaves = tensors(points, requires_grad=True)
    total, _ = run(steps, leaves)
    for retain, create in ((True, False), (True, True), (False, False)):
        found = weft.autograd.grad(
            total, leaves, retain_graph=retain, create_graph=create, materialize_grads=True
        )
        for f, e in zip(found, expected, strict=True):
            np.testing.assert_allclose(f.detach().numpy(), e, rtol=1e-12, atol=1e-12)

    transformed = weft.grad(lambda xs: run(steps, xs)[0])(tensors(points))
    for f, e in zip(transformed, expected, strict=True):
        np.testing.assert_allclose(f.numpy(), e, rtol=1e-12, atol=1e-12)
    direction = arrays(shapes, 2)
    _, tangent = weft.jvp(lambda xs: run(steps, xs)[0], (tensors(points),), (tensors(direction),))
    np.testing.assert_allclose(tangent.item(), inner(expected, direction), rtol=1e-10, atol=1e-10)


@examples(30, 10)
@given(programs(), st.data())
def test_gradient_by_a_value_in_the_middle_is_what_it_retains(program: Any, data: st.DataObject) -> None:
    shapes, steps = program
    leaves = tensors(arrays(shapes, 1), requires_grad=True)
    total, values = run(steps, leaves)
    middle = values[data.draw(st.integers(0, len(values) - 1))]
    middle.retain_grad()
    (found,) = weft.autograd.grad(total, middle, retain_graph=True, allow_unused=True)
    total.backward()
    assert (found is None) == (middle.grad is None)
    if found is not None:
        np.testing.assert_array_equal(found.numpy(), middle.grad.numpy())


@examples(30, 10)
@given(programs())
def test_second_derivative_is_the_difference_of_gradients(program: Any) -> None:
    shapes, steps = program
    points, direction = arrays(shapes, 1), arrays(shapes, 2)
    leaves = tensors(points, requires_grad=True)
    first = weft.autograd.grad(run(steps, leaves)[0], leaves, create_graph=True, materialize_grads=True)
    slope = sum((g * d).sum() for g, d in zip(first, tensors(direction), strict=True))
    found = [np.zeros(p.shape) for p in points]
    if slope.requires_grad:
        found = [g.numpy() for g in weft.autograd.grad(slope, leaves, materialize_grads=True)]

    def gradient(step: float) -> list[Any]:
        return backward(steps, [p + step * d for p, d in zip(points, direction, strict=True)])

    h = 1e-4
    for f, plus, minus in zip(found, gradient(h), gradient(-h), strict=True):
        np.testing.assert_allclose(f, (plus - minus) / (2 * h), rtol=1e-5, atol=1e-6)


@examples(20, 6)
@given(programs())
def test_watched_and_unwatched_runs_give_the_same_bits(program: Any) -> None:
    shapes, steps = program
    points = arrays(shapes, 1)
    plain = backward(steps, points)
    with weft.detect_anomaly():
        watched = backward(steps, points)
    for p, w in zip(plain, watched, strict=True):
        np.testing.assert_array_equal(p, w)

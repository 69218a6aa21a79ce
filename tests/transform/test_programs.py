"""Random tensor programs: derivatives in both modes, batches and second order against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.of_code import examples
from weft.testing import assert_close, check_vmap, gradcheck, gradgradcheck

Step = Callable[[list[Any]], Any]


def set_first(x: Any, value: Any) -> Any:
    y = x * 1.0
    y[..., 0] = value
    return y


UNARY: dict[str, Callable[[Any], Any]] = {
    "tanh": weft.tanh,
    "sin": weft.sin,
    "square": lambda x: x * x,
    "softened": lambda x: x / (1.5 + weft.tanh(x)),
    "exp": lambda x: weft.exp(-x * x),
    "sum": lambda x: x.sum(),
}
MATRIX: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: x.mT,
    "rows summed": lambda x: x.sum(axis=0, keepdims=True),
    "columns summed": lambda x: x.sum(axis=-1),
    "flattened": lambda x: x.reshape((-1,)),
    "product": lambda x: x @ x.mT,
    "cut": lambda x: x[:, 1:],
    "reversed": lambda x: x[::-1],
    "picked": lambda x: x[weft.tensor([1, 0, 0])],
    "with a new axis": lambda x: x[:, None] * x[None],
    "summed along": lambda x: weft.cumsum(x, axis=1),
    "averaged": lambda x: x - x.mean(axis=-1, keepdims=True),
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "sub": lambda x, y: x - 2.0 * y,
    "where": lambda x, y: weft.where(y.detach() > 0.123456789, x, x * y),
    "joined": lambda x, y: weft.concat([x.reshape((-1,)), y.reshape((-1,))]),
    "set": lambda x, y: set_first(x, y.sum()) if x.ndim else x + y.sum(),
}


def broadcasts(x: Any, y: Any) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(x.shape[::-1], y.shape[::-1], strict=False))


@st.composite
def programs(draw: Any) -> tuple[list[tuple[str, int, int]], Callable[..., Any], tuple[Any, ...]]:
    """The steps of a program, the program as a function of two tensors, and two arrays for it."""
    arrays = tuple(0.2 + 0.1 * np.arange(n, dtype=float).reshape(s) for n, s in ((6, (2, 3)), (3, (3,))))
    values = [weft.tensor(a) for a in arrays]
    steps: list[tuple[str, int, int]] = []
    for _ in range(draw(st.integers(2, 6))):
        i, j = draw(st.integers(0, len(values) - 1)), draw(st.integers(0, len(values) - 1))
        choices = list(UNARY)
        if values[i].ndim == 2 and values[i].size and values[i].size < 20:
            choices += [m for m in MATRIX if m != "picked" or values[i].shape[0] > 1]
        if broadcasts(values[i], values[j]) and values[i].size:
            choices += list(BINARY)
        name = draw(st.sampled_from(choices))
        steps.append((name, i, j))
        values.append(apply(name, values[i], values[j]))

    def run(*inputs: Any) -> Any:
        values = list(inputs)
        for name, i, j in steps:
            values.append(apply(name, values[i], values[j]))
        return values[-1], values[-2].sum()

    return steps, run, arrays


def apply(name: str, x: Any, y: Any) -> Any:
    if name in BINARY:
        return BINARY[name](x, y)
    return (UNARY | MATRIX)[name](x)


common = examples(40, 13)


@common
@given(programs())
def test_derivatives_agree_with_finite_differences(program: Any) -> None:
    _, run, arrays = program
    assert gradcheck(run, arrays, batched=True)


@common
@given(programs())
def test_second_derivatives_agree_with_finite_differences(program: Any) -> None:
    _, run, arrays = program
    assert gradgradcheck(run, arrays, batched=True, rtol=1e-3, atol=1e-4)


@common
@given(programs())
def test_batch_equals_a_loop(program: Any) -> None:
    _, run, (x, y) = program
    scale = np.array([1.0, -0.5, 0.25])
    check_vmap(run, (weft.tensor(x * scale[:, None, None]), weft.tensor(y[:, None] * scale)), (0, 1))
    check_vmap(run, (weft.tensor(x), weft.tensor(y[:, None] * scale)), (None, 1))


@common
@given(programs())
def test_tape_and_transforms_agree(program: Any) -> None:
    _, run, arrays = program
    leaves = [weft.tensor(a, requires_grad=True) for a in arrays]
    out, total = run(*leaves)
    (out.sum() + total).backward()
    gradient = weft.grad(lambda *xs: run(*xs)[0].sum() + run(*xs)[1], argnums=(0, 1))(
        *map(weft.tensor, arrays)
    )
    expected = [np.zeros(x.shape) if x.grad is None else x.grad for x in leaves]
    assert_close(list(gradient), expected)

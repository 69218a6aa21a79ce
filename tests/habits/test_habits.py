"""Expressions that people type by habit: each gives what they expect, or an error that tells what to type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.habits import (
    rows_first_hour,
    rows_jax,
    rows_jax_hints,
    rows_jax_values,
    rows_keras,
    rows_keras_more,
    rows_numpy,
    rows_numpy_plain,
    rows_pytorch,
)
from tests.habits.hint import Hint, Row
from weft import data, nn, optim

X = np.array([[1.0, 3.0, 2.0], [6.0, 5.0, 4.0]], np.float32)
Y = np.array([[2.0, 2.0, 2.0], [7.0, 1.0, 4.0]], np.float32)
V = np.array([3.0, 1.0, 2.0, 2.0], np.float32)
M = np.array([[True, False, True], [False, True, False]])
PLACES = np.array([[2], [0]])
S = np.array([[4.0, 1.0], [1.0, 3.0]], np.float32)


def grad(f: Any, x: Any) -> Any:
    """The gradient of a function of a tensor, by backward."""
    leaf = x.clone().requires_grad_()
    f(leaf).backward()
    return leaf.grad


def put(x: Any, index: Any, values: Any) -> Any:
    np.put_along_axis(x, index, values, 1)
    return x


def filled_diagonal(x: Any) -> Any:
    x = x.copy()
    np.fill_diagonal(x, 0.0)
    return x


def softmax(x: Any) -> Any:
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


EXPECTED: dict[str, Any] = {
    "N": np, "X": X, "Y": Y, "V": V, "M": M, "I": PLACES, "S": S,
    "put": put, "filled_diagonal": filled_diagonal, "softmax": softmax,
}  # fmt: skip
MODULES: dict[str, dict[str, Any]] = {
    "pytorch": {"torch": weft, "F": nn.functional, "nn": nn, "optim": optim, "data": data, "X": X},
    "jax": {"jnp": weft, "jax": weft, "nn": nn.functional, "lax": weft, "optax": optim, "X": X},
    "numpy": {"np": weft, "X": X, "V": V},
    "first hour": {"nn": nn, "optim": optim, "data": data},
    "keras": {"keras": weft, "tf": weft, "layers": nn, "nn": nn, "optim": optim, "data": data},
}
ROWS = [
    (who, row)
    for who, rows in (
        ("pytorch", rows_pytorch.ROWS),
        ("jax", rows_jax.ROWS + rows_jax_values.ROWS + rows_jax_hints.ROWS),
        ("numpy", rows_numpy.ROWS + rows_numpy_plain.ROWS),
        ("keras", rows_keras.ROWS + rows_keras_more.ROWS),
        ("first hour", rows_first_hour.ROWS),
    )
    for row in rows
]


def tensors() -> dict[str, Any]:
    names = {"x": X, "y": Y, "v": V, "m": M, "i": PLACES, "s": S}
    return {name: weft.tensor(array) for name, array in names.items()} | {"grad": grad, "weft": weft}


def evaluate(expression: str, names: dict[str, Any]) -> Any:
    """The value of an expression of this folder's tables."""
    return eval(expression, names)  # noqa: S307 - of our own tables


def check(found: Any, wanted: Any) -> None:
    """The same value: numbers within the precision of their dtype, tuples part by part."""
    if isinstance(wanted, tuple | list) and not isinstance(found, weft.Tensor):
        assert len(found) == len(wanted)
        for f, w in zip(found, wanted, strict=True):
            check(f, w)
        return
    if isinstance(found, weft.Tensor):
        found = found.detach().numpy()
    if isinstance(wanted, np.ndarray | np.generic):
        wanted = np.asarray(wanted)
        assert np.shape(found) == wanted.shape
        assert np.asarray(found).dtype.kind == wanted.dtype.kind
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=2e-5, atol=1e-6)
    else:
        assert found == wanted


@pytest.mark.parametrize(("who", "row"), ROWS, ids=[f"{who}: {row[0]}" for who, row in ROWS])
def test_habit(who: str, row: Row) -> None:
    expression, wanted = row
    names = MODULES[who] | tensors()
    if isinstance(wanted, Hint):
        with pytest.raises((weft.errors.WeftError, AttributeError, ImportError)) as caught:
            evaluate(expression, names)
        text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
        assert [word for word in wanted.words if word not in text] == [], text
        return
    found = evaluate(expression, names)
    with np.errstate(all="ignore"):
        check(found, evaluate(wanted, dict(EXPECTED)))


def test_there_are_as_many_habits_as_promised() -> None:
    expressions = {(who, row[0]) for who, row in ROWS}
    assert len(expressions) >= 2150
    assert len(expressions) == len(ROWS)

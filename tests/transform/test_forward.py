from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, DtypeError, GradientError, ShapeError
from weft.testing import assert_close


def tensor(*values: float) -> weft.Tensor:
    return weft.tensor(np.array(values, np.float64))


def test_value_and_tangent() -> None:
    out, tangent = weft.jvp(
        lambda x, y: x * x * y, (tensor(1, 2), tensor(3, 4)), (tensor(1, 0), tensor(0, 1))
    )
    assert_close((out, tangent), (tensor(3, 16), tensor(6, 4)))
    assert not tangent.requires_grad


def test_trees_in_and_out() -> None:
    def f(t: Any) -> Any:
        return {"product": t["x"] * t["y"][0], "x": t["x"]}

    primals = {"x": tensor(1, 2), "y": [tensor(3, 4)]}
    tangents = {"y": [tensor(0, 1)], "x": tensor(1, 0)}
    out, tangent = weft.jvp(f, (primals,), (tangents,))
    assert_close(out, {"product": tensor(3, 8), "x": tensor(1, 2)})
    assert_close(tangent, {"product": tensor(3, 2), "x": tensor(1, 0)})


def test_result_that_does_not_depend_on_the_argument_has_tangent_zero() -> None:
    constant = tensor(1, 2)
    out, tangent = weft.jvp(lambda x: (constant, x > 0.0, weft.tensor(3)), (tensor(1),), (tensor(1),))
    assert_close(out, (constant, np.array([True]), weft.tensor(3)))
    assert_close(tangent, (tensor(0, 0), np.array([False]), weft.tensor(0)))


def test_numbers_are_taken_as_tensors() -> None:
    assert_close(weft.jvp(lambda x: x * x, (3.0,), (1.0,)), (weft.tensor(9.0), weft.tensor(6.0)))
    assert_close(weft.jvp(lambda x: x * x, [3.0], [1]), (weft.tensor(9.0), weft.tensor(6.0)))


def test_tangent_is_cast_to_the_dtype_of_its_argument() -> None:
    _, tangent = weft.jvp(lambda x: x * 2.0, (weft.tensor([1.0]),), (tensor(3),))
    assert_close(tangent, weft.tensor([6.0]))


def test_aux_is_returned() -> None:
    out, tangent, aux = weft.jvp(
        lambda x: (x * x, {"x": x, "n": 1}), (tensor(3),), (tensor(1),), has_aux=True
    )
    assert_close((out, tangent, aux["x"]), (tensor(9), tensor(6), tensor(3)))
    assert aux["n"] == 1


def test_python_may_decide_on_values() -> None:
    def f(x: Any) -> Any:
        if x > 0.0 and float(x) > 0.0 and x.item() > 0.0:
            return x * x
        return -x

    assert_close(weft.jvp(f, (3.0,), (1.0,))[1], weft.tensor(6.0))
    assert_close(weft.jvp(f, (-3.0,), (1.0,))[1], weft.tensor(-1.0))


def test_item_is_set_inside() -> None:
    def f(x: Any) -> Any:
        x[0] = x[1] * x[1]
        y = weft.zeros(2, dtype=weft.float64)
        y[1] = x[0]
        return x, y

    out, tangent = weft.jvp(f, (tensor(1, 3),), (tensor(10, 1),))
    assert_close(out, (tensor(9, 3), tensor(0, 9)))
    assert_close(tangent, (tensor(6, 1), tensor(0, 6)))


def test_several_outputs_of_one_op() -> None:
    x, v = np.random.default_rng(0).standard_normal((2, 3, 3))
    x = x @ x.T + np.eye(3)
    (values, _), (tangent, _) = weft.jvp(
        lambda a: tuple(weft.linalg.eigh(a)), (weft.tensor(x),), (weft.tensor(v + v.T),)
    )
    step = 1e-6
    expected = (np.linalg.eigvalsh(x + step * (v + v.T)) - np.linalg.eigvalsh(x - step * (v + v.T))) / (
        2 * step
    )
    assert_close(values, np.linalg.eigvalsh(x))
    assert_close(tangent, expected, rtol=1e-6, atol=1e-6)


def test_complex_tangent() -> None:
    z, v = np.array([1 + 2j]), np.array([0.5 - 1j])
    out, tangent = weft.jvp(lambda z: z * z, (weft.tensor(z),), (weft.tensor(v),))
    assert_close((out, tangent), (z * z, 2 * z * v))
    out, tangent = weft.jvp(lambda z: (z * z.conj()).real, (weft.tensor(z),), (weft.tensor(v),))
    assert_close((out, tangent), (np.abs(z) ** 2, 2 * (z.conj() * v).real))


def test_gradients_flow_out_to_leaves() -> None:
    x = weft.tensor(np.array([1.0, 2.0]), requires_grad=True)
    v = weft.tensor(np.array([3.0, 4.0]), requires_grad=True)
    w = weft.tensor(np.array([5.0, 6.0]), requires_grad=True)
    out, tangent = weft.jvp(lambda x: w * x * x, (x,), (v,))
    (out + tangent).sum().backward()  # w x² + 2 w x v
    assert_close(x.grad, 2 * w.detach() * (x.detach() + v.detach()))
    assert_close(v.grad, 2 * w.detach() * x.detach())
    assert_close(w.grad, x.detach() * (x.detach() + 2 * v.detach()))


def test_linearize_gives_value_and_push() -> None:
    calls = []

    def f(x: Any, y: Any) -> Any:
        calls.append(1)
        return {"product": x * y, "sum": x + y, "n": weft.tensor(1)}

    out, push = weft.linearize(f, tensor(1, 2), tensor(3, 4))
    expected = weft.jvp(f, (tensor(1, 2), tensor(3, 4)), (tensor(1, 0), tensor(0, 1)))
    assert_close((out, push(tensor(1, 0), tensor(0, 1))), expected)
    assert_close(push(tensor(2, 0), tensor(0, 2)), weft.tree_map(lambda t: t * 2, expected[1]))
    assert len(calls) == 2  # one by jvp


def test_linearize_maps_over_directions() -> None:
    x = tensor(1, 2, 3)
    _, push = weft.linearize(lambda x: weft.exp(x) * x.sum(), x)
    rows = weft.vmap(push)(weft.tensor(np.eye(3)))
    assert_close(rows, weft.jacfwd(lambda x: weft.exp(x) * x.sum())(x).numpy().T)


def test_linearize_with_aux() -> None:
    out, push, aux = weft.linearize(lambda x: (x * x, x * 3.0), tensor(2), has_aux=True)
    assert_close((out, push(tensor(1)), aux), (tensor(4), tensor(4), tensor(6)))
    assert not out.requires_grad
    assert not aux.requires_grad


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: weft.jvp(lambda a: a, x, x), ArgumentError, "primals must be a tuple .* got Tensor"),
        (lambda x: weft.jvp(lambda a: a, (x,), x), ArgumentError, "tangents must be a tuple .* got Tensor"),
        (
            lambda x: weft.jvp(lambda a: a, (x,), ()),
            ArgumentError,
            "as many tangents as primals, got 0 and 1",
        ),
        (
            lambda x: weft.jvp(lambda a: a, (x,), (x.sum(),)),
            ShapeError,
            r"argument 0 must be of type f64\[2\], got f64\[\]",
        ),
        (
            lambda x: weft.jvp(lambda a: a["a"], ({"a": x},), ({"b": x},)),
            ArgumentError,
            r"only in the second: \['b'\]",
        ),
        (
            lambda x: weft.jvp(lambda a: a["a"], ({"a": x},), ({"a": [x]},)),
            ArgumentError,
            r"tangent of argument 0\['a'\] must",
        ),
        (
            lambda x: weft.jvp(lambda a: a, (weft.tensor([1]),), (weft.tensor([1]),)),
            DtypeError,
            "argument 0 must be floating",
        ),
        (lambda x: weft.jvp(lambda a: 1.0, (x,), (x,)), ArgumentError, "must return tensors, got float"),
        (lambda x: weft.jvp(lambda a: a.numpy(), (x,), (x,)), GradientError, "numpy: .* inside jvp"),
        (lambda x: weft.linearize(lambda a: a, x)[1](), ArgumentError, "as many tangents as primals"),
    ],
)
def test_mistake_is_reported(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(tensor(1, 2))


def test_escaped_tensor_is_noticed() -> None:
    kept: list[Any] = []
    weft.jvp(lambda a: kept.append(a) or a, (tensor(1),), (tensor(1),))  # type: ignore[func-returns-value]
    with pytest.raises(GradientError, match="tensors of a jvp must not be used after it ended"):
        kept[0] * 2.0

"""Numbers that only a run tells as arguments of weft's functions: operands, or looked at with a guard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.nn import functional as F


def cube() -> Any:
    return weft.arange(24).reshape(2, 3, 4) * 0.25


def vector() -> Any:
    return weft.tensor([0.5, 1.5, -2.0, 3.0, 0.25])


def ints() -> Any:
    return weft.tensor([0, 1, 2, 1])


def check(function: Callable[[Any], Any], values: tuple[float, ...] = (1, 2, 1)) -> Any:
    """Compare a function with eager for several numbers; gives the compiled one."""
    compiled = weft.compile(function)
    for value in values:
        found, expected = (weft.tree_leaves(f(weft.tensor(value))) for f in (compiled, function))
        for a, b in zip(found, expected, strict=True):
            assert isinstance(a, weft.Tensor) == isinstance(b, weft.Tensor)
            if isinstance(a, weft.Tensor):
                assert a.dtype == b.dtype
                np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)
            else:
                assert (a, type(a)) == (b, type(b))
    return compiled


KNOWN: dict[str, Callable[[Any], Any]] = {
    "transpose": lambda n: cube()[0].transpose(0, int(n) - 2),
    "transpose three": lambda n: (cube().transpose(0, int(n)), cube().transpose(-1, int(n))),
    "transpose all": lambda n: cube().transpose(int(n), 0, 3 - int(n)),
    "unfold": lambda n: (vector().unfold(0, int(n), 1), vector().unfold(0, 2, int(n))),
    "diagonal": lambda n: (cube().diagonal(int(n)), weft.diag(vector(), int(n)), vector().diag(int(n))),
    "trace": lambda n: weft.linalg.trace(weft.ones(3, 3), offset=int(n)),
    "arange": lambda n: (weft.arange(int(n)), weft.arange(1, int(n) + 3), weft.arange(0, 10, int(n))),
    "linspace": lambda n: (weft.linspace(0.0, float(n), 3), weft.linspace(0.0, 1.0, int(n))),
    "logspace": lambda n: weft.logspace(0.0, float(n), 3),
    "full": lambda n: (weft.full((int(n),), 2.0), weft.full([int(n), 2], float(n))),
    "new_full": lambda n: vector().new_full((2,), float(n)),
    "one_hot": lambda n: (F.one_hot(ints(), int(n) + 3), weft.one_hot(ints(), num_classes=int(n) + 3)),
    "norm": lambda n: (vector().norm(p=int(n)), vector().norm(float(n)), weft.linalg.norm(vector(), int(n))),
    "normalize": lambda n: F.normalize(vector(), p=float(n), axis=0),
    "leaky_relu": lambda n: (F.leaky_relu(vector(), float(n)), weft.nn.LeakyReLU(float(n))(vector())),
    "elu": lambda n: (F.elu(vector(), float(n)), F.celu(vector(), float(n))),
    "softplus": lambda n: (F.softplus(vector(), float(n)), F.softshrink(vector(), float(n))),
    "hardtanh": lambda n: F.hardtanh(vector(), -1.0, float(n)),
    "pad": lambda n: (weft.pad(vector(), ((int(n), 0),)), weft.pad(vector(), ((1, 0),), value=float(n))),
    "pad of functional": lambda n: F.pad(vector(), (1, int(n)), value=float(n)),
    "correction": lambda n: (cube().std(correction=int(n)), cube().var(int(n), correction=int(n))),
    "repeats": lambda n: (vector().repeat_interleave(int(n)), vector().repeat(int(n))),
    "quantile": lambda n: weft.quantile(vector(), float(n) / 4),
    "random": lambda n: (vector().uniform_(0, float(n)).shape, weft.normal(0.0, float(n), (2,)).shape),
    "axes": lambda n: (cube().sum(int(n)), cube().flip([0, int(n)]), cube().cumsum_(int(n))),
    "triangles": lambda n: (weft.tril(cube(), int(n)), cube().triu_(int(n))),
}
OPERANDS: dict[str, Callable[[Any], Any]] = {
    "clamp": lambda n: (
        vector().clamp(0, int(n)),
        weft.clip(vector(), max=float(n)),
        ints().clamp(max=int(n)),
    ),
    "clamp_": lambda n: (vector().clamp_(0, int(n)), vector().clamp_min(int(n))),
    "fill_": lambda n: (vector().fill_(int(n)), vector().fill_(float(n)), ints().fill_(float(n))),
    "take": lambda n: cube().take(int(n)),
    "dropout": lambda n: F.dropout(vector(), float(n) * 0.0),
    "where": lambda n: weft.where(vector() > 0, vector(), float(n)),
}


@pytest.mark.parametrize("function", KNOWN.values(), ids=KNOWN)
def test_a_number_that_python_must_know_is_guarded(function: Callable[[Any], Any]) -> None:
    assert len(check(function).versions) == 2


@pytest.mark.parametrize("function", OPERANDS.values(), ids=OPERANDS)
def test_a_number_that_an_op_can_take_is_an_operand(function: Callable[[Any], Any]) -> None:
    assert len(check(function).versions) == 1


def test_bounds_and_fills_beside_wide_and_narrow_dtypes() -> None:
    wide, narrow = weft.tensor([0.1], dtype=weft.float64), weft.tensor([-100, 100], dtype=weft.int8)
    check(lambda n: (wide.clone().fill_(float(n)), wide.clamp(float(n))), (0.3, 1.7))
    check(lambda n: narrow.clamp(-int(n), int(n)), (5, 1000))
    with pytest.raises(weft.errors.DtypeError, match="bounds must be integers"):
        weft.compile(lambda n: narrow.clamp(float(n)))(weft.tensor(1.5))


@pytest.mark.parametrize(
    "name",
    [
        *("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "rfloordiv", "mod"),
        *("rmod", "pow", "rpow", "eq", "ne", "lt", "ge", "iadd", "imul"),
    ],
)
def test_methods_of_operators_take_numbers(name: str) -> None:
    def function(n: Any) -> Any:
        word = f"__{name}__"
        own = getattr(weft.Tensor, word)
        return getattr(vector(), word)(int(n)), getattr(vector(), word)(float(n)), own(vector(), int(n))

    assert len(check(function).versions) == 1


def test_methods_of_bitwise_operators_take_numbers() -> None:
    check(lambda n: (ints().__rand__(int(n)), ints().__or__(int(n)), ints().__rlshift__(int(n))))


def test_methods_of_pythons_numbers_take_numbers() -> None:
    check(lambda n: ((3).__sub__(int(n)), (3.0).__rtruediv__(int(n)), (3).__lt__(int(n)), int(n).__rsub__(3)))
    check(lambda n: (int.__sub__(3, int(n)), int.__sub__(int(n), 3), float.__pow__(2.0, float(n))))


def test_in_a_loop_of_the_graph_a_method_of_an_operator_computes() -> None:
    def f(x: Any, n: Any) -> Any:
        for i in range(n):
            x = x.__rsub__(i) + x.__mul__(i)
        return x

    compiled = weft.compile(f)
    for n in (0, 1, 3):
        assert compiled(vector(), weft.tensor(n)).tolist() == f(vector(), n).tolist()


def test_a_loop_of_known_length_is_run_by_python_where_it_tells_an_axis() -> None:
    def f(x: Any) -> Any:
        for i in range(2):
            x = x.transpose(0, i) + x.diagonal(i, 0, 1).sum()
        return x

    x = weft.arange(9).reshape(3, 3) * 1.0
    assert weft.compile(f)(x).tolist() == f(x).tolist()


def test_a_loop_whose_length_a_run_tells_and_that_tells_an_axis_is_run_by_python() -> None:
    def f(x: Any, n: Any) -> Any:
        for i in range(n):
            x = x.transpose(0, i)
        return x

    compiled, x = weft.compile(f), weft.arange(4.0).reshape(2, 2)
    for n in (2, 1, 0, 2):
        assert compiled(x, weft.tensor(n)).tolist() == f(x, weft.tensor(n)).tolist()
    message = r"needs the value of an int here[\s\S]*x.transpose\(0, i\)"
    with pytest.raises(weft.errors.CaptureError, match=message):
        weft.make_graph(f)(weft.TensorType((2, 2), weft.float32), weft.TensorType((), weft.int64))

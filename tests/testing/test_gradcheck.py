from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import DtypeError, GradientError
from weft.testing import check_vmap, gradcheck, gradgradcheck

X = np.array([0.3, 0.7])
Z = np.array([0.3 + 1.0j, -0.7 + 0.5j])


class WrongBackward(weft.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 3.0

    @staticmethod
    def jvp(ctx: Any, t: Any) -> Any:
        return t * 5.0


def test_right_derivatives_pass() -> None:
    assert gradcheck(lambda x: weft.exp(x) * x.sum(), X, batched=True)
    assert gradcheck(lambda t: {"a": t["x"] * t["z"], "b": [t["x"].sum()]}, {"x": X, "z": Z}, batched=True)
    assert gradcheck(lambda x, n: x * n, (X, 3), batched=True)
    assert gradcheck(lambda x: (x * 2.0, weft.tensor(3)), X)
    assert gradcheck(lambda x: x * x, 3.0)
    assert gradcheck(lambda x: x * x, np.zeros((0, 2)), batched=True)


def test_functions_of_complex_numbers_need_not_be_holomorphic() -> None:
    assert gradcheck(lambda z: z.conj() * z, Z, batched=True)
    assert gradcheck(lambda z: (z * z).real, Z, batched=True)
    assert gradgradcheck(lambda z: z.conj() * z * z, Z, batched=True)


def test_single_precision_is_checked_in_double() -> None:
    assert gradcheck(weft.exp, weft.tensor([1.0, 2.0]))
    with pytest.raises(DtypeError, match=r"must compute in double precision, got output 0 f32\[2\]"):
        gradcheck(lambda x: x.astype(weft.float32), X)


def test_wrong_reverse_mode_is_shown() -> None:
    with pytest.raises(GradientError) as caught:
        gradcheck(lambda t: WrongBackward.apply(t["x"]), {"x": X}, forward=False)
    text = str(caught.value)
    assert "the reverse-mode derivative must agree with finite differences, got 3 and 0.6" in text
    assert "for output 0 at (0,) by inputs[0]['x'] at (0,); 2 of 4 elements differ" in text
    assert "analytical:\n[[3. 0.]\n [0. 3.]]" in text
    assert "numerical:\n[[0.6 0. ]\n [0.  1.4]]" in text


def test_wrong_forward_mode_is_shown() -> None:
    with pytest.raises(GradientError, match=r"the forward-mode derivative must agree .* got 5 and 0.6"):
        gradcheck(WrongBackward.apply, X, reverse=False)
    with pytest.raises(GradientError, match=r"real part of output 0 at .* by imaginary part of inputs"):
        gradcheck(lambda z: z * z.detach(), np.array([2j]))


def test_false_is_returned_if_asked_for() -> None:
    assert not gradcheck(WrongBackward.apply, X, raise_exception=False)
    assert not gradgradcheck(lambda x: x * x * x.detach(), X, raise_exception=False)


def test_second_derivatives_are_checked() -> None:
    assert gradgradcheck(lambda x, y: weft.tanh(x * y), (X, X), batched=True)
    with pytest.raises(GradientError, match="finite differences"):
        gradgradcheck(lambda x: x * (x * x).detach(), X)


def test_function_that_is_not_deterministic_is_noticed() -> None:
    calls = itertools.count()
    with pytest.raises(GradientError, match="must give the same outputs again"):
        gradcheck(lambda x: x * float(next(calls)), X)


def test_inputs_must_have_something_to_differentiate() -> None:
    with pytest.raises(DtypeError, match="there must be a floating or complex tensor"):
        gradcheck(lambda n: n, (3, weft.tensor([1, 2])))


def test_check_vmap_finds_a_difference() -> None:
    x = weft.tensor(np.arange(6.0).reshape(3, 2))
    check_vmap(lambda a, b: (a * b, a.sum()), (x, x), (0, 0))
    check_vmap(lambda a, b: a * b, (x, 2.0), (1, None))
    calls = itertools.count()
    with pytest.raises(AssertionError, match="differs in"):
        check_vmap(lambda a: a * float(next(calls)), (x,))

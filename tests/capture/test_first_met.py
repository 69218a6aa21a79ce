"""Tensors from outside that captured code meets first as an argument: each call reads what they hold then."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import weft
from weft import nn

Form = Callable[[Any, Any, Any], Any]


class Product(weft.Function):
    """``a * b``, with a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any) -> Any:
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        a, b = ctx.saved_tensors
        return g * b, g * a


FORMS: dict[str, Form] = {
    "function": lambda w, v, x: Product.apply(w, v).sum() * x.sum(),
    "function beside an argument": lambda w, v, x: Product.apply(x, w).sum() + Product.apply(v, x).sum(),
    "checkpoint": lambda w, v, x: weft.checkpoint(lambda a, b: (a * b).sin(), w, v).sum() + x.sum(),
    "grad": lambda w, v, x: weft.grad(lambda a: (a * a * v).sum())(w).sum() * x.sum(),
    "vjp": lambda w, v, x: weft.vjp(lambda a, b: a * b, w, v)[1](x)[0].sum(),
    "jvp": lambda w, v, x: weft.jvp(lambda a: a * a, (w,), (v,))[1].sum() + x.sum(),
    "vmap": lambda w, v, x: weft.vmap(lambda a, b: a * b)(w, v).sum() + x.sum(),
    "hessian": lambda w, v, x: weft.hessian(lambda a: (a**3).sum())(w).sum() + x.sum(),
    "copies": lambda w, v, x: w.clone().sum() + copy.copy(v).sum() + x.sum(),
    "cond": lambda w, v, x: weft.cond(x.sum() > 0, lambda a, b: a * b, lambda a, b: a + b, w, v).sum(),
    "scan": lambda w, v, x: weft.scan(lambda c, a: (c + a, c * a), w.sum(), v)[1].sum() + x.sum(),
    "fori_loop": lambda w, v, x: weft.fori_loop(0, 3, lambda i, a: a * v, w).sum() + x.sum(),
    "rows": lambda w, v, x: sum((a * b for a, b in zip(w, v, strict=True)), x.sum()),
    "functional": lambda w, v, x: nn.functional.layer_norm(x, (3,), w, v).sum(),
    "distribution": lambda w, v, x: weft.distributions.Normal(w, v.abs() + 1).log_prob(x).sum(),
}


@pytest.mark.parametrize("capture", ["source", "trace"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_each_call_reads_what_a_tensor_from_outside_holds(form: Form, capture: str) -> None:
    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        w = weft.tensor([1.0, 2.0, 3.0], requires_grad=True)
        v = weft.tensor([0.5, -1.0, 2.0], requires_grad=True)
        call = wrap(lambda x: form(w, v, x))
        out: list[Any] = []
        for i in range(4):
            w.grad = v.grad = None
            result = call(weft.tensor([1.0, -2.0, 4.0]) + i)
            result.backward()
            found = [None if t.grad is None else t.grad.tolist() for t in (w, v)]
            out.append([result.item(), *found])
            with weft.no_grad():
                w.mul_(-1.5)
                v.add_(1.0)
        return out

    def close(a: Any, b: Any) -> bool:
        if isinstance(a, list):
            return len(a) == len(b) and all(map(close, a, b))
        return a is b if a is None or b is None else a == pytest.approx(b, rel=1e-5, abs=1e-5)

    compiled = run(lambda f: weft.compile(f, backend="interpret", capture=capture))
    assert close(compiled, run(lambda f: f))

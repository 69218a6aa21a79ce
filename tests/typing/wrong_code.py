"""Mistakes of users that mypy must find, each with its kind beside it. It is never run."""

from __future__ import annotations

import weft
from weft import Tensor, nn

x = weft.ones(3)
weft.sum(x, axes=0)  # call-arg
weft.sum("x")  # arg-type
weft.reshape(x, "3")  # arg-type
x.no_such_method()  # attr-defined
x["name"]  # index
x + "text"  # operator
nn.Linear(3, 2)(x, x)  # call-arg
nn.Linear("3", 2)  # arg-type


@weft.compile
def step(x: Tensor, lr: float) -> Tensor:
    return x * lr


step(x)  # call-arg
step(x, "0.1")  # arg-type
weft.compile(fast="yes")  # call-overload
weft.grad(step)(x, "0.1")  # arg-type
text: str = weft.vmap(step)(x, 0.1)  # assignment

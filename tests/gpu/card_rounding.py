"""On a machine with a card: what libraries compute in half precision is rounded once, after a bias is added.

python -m tests.gpu.card_libraries linears_round_once convolutions_round_once
"""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import numpy as np

import weft
from tests.gpu.card import note, part
from weft.ops.affine import matmul_add


@part
def linears_round_once() -> None:
    """Linear layers of half precision, eager and compiled, to the last bit: sums are exact in float32."""
    rng = np.random.default_rng(0)

    def whole(*shape: int, dtype: Any) -> Any:
        return rng.integers(-16, 17, shape).astype(dtype)

    def activated(x: Any, w: Any, b: Any) -> Any:
        y = weft.linear(x, w, b)
        return weft.relu(y), y

    def gradients(x: Any, w: Any, b: Any) -> Any:
        return weft.vjp(weft.linear, x, w, b)[1](weft.ones((x.shape[0], w.shape[0]), dtype=x.dtype))

    wrong: list[Any] = []

    def compare(got: Any, wanted: Any, *case: Any) -> None:
        if apart := int((got.cpu().numpy() != wanted).sum()):
            wrong.append((*case, f"{apart} of {wanted.size}"))

    sizes = [(512, 768, 3072), (16, 64, 24), (1, 768, 512), (300, 777, 333), (640, 128, 1), (2, 4096, 96)]
    for dtype in (weft.bfloat16, weft.float16):
        for m, k, n in sizes:
            x, w = whole(m, k, dtype=dtype), whole(n, k, dtype=dtype)
            b = (rng.integers(-39, 40, n + 1) / 8).astype(dtype)
            there, case = [weft.tensor(a).cuda() for a in (x, w, b)], (dtype.name, m, k, n)
            product = x.astype(float) @ w.astype(float).T
            compare(weft.linear(*there[:2]), product.astype(dtype), *case, "without a bias")
            for first in (0, 1):  # a bias that begins anywhere
                wanted = (product + b[first : n + first].astype(float)).astype(dtype)
                compiled = weft.compile(activated)
                for run in (activated, *[compiled] * 4):
                    relu, y = run(*there[:2], there[2][first : n + first])
                    compare(y, wanted, *case, first, "eager" if run is activated else "compiled")
                    compare(relu, np.maximum(wanted, 0), *case, first, "relu")
            added = weft.compile(lambda x, w, z: matmul_add(x, w.T, z))
            z = weft.tensor(np.repeat(b[None, :n], m, 0)).cuda()
            compare(added(*there[:2], z), (product + b[:n].astype(float)).astype(dtype), *case, "a matrix")
            exact = [np.ones((m, n)) @ w.astype(float), np.ones((n, m)) @ x.astype(float), np.full(n, m)]
            for run in (gradients, weft.compile(gradients)):
                for got, e in zip(run(*there[:2], there[2][:n]), exact, strict=True):
                    compare(got, e.astype(dtype), *case, "gradient", e.shape)
    for case in wrong:
        note("not to the last bit", f"{case}")
    assert not [case for case in wrong if "without a bias" not in case and "gradient" not in case]


@part
def convolutions_round_once() -> None:
    """Convolutions of half precision with a bias, eager and compiled, to the last bit: sums are exact."""
    rng = np.random.default_rng(0)
    functional = weft.nn.functional
    wrong: list[Any] = []
    told = 0  # where rounding twice would give something else

    def compare(got: Any, wanted: Any, *case: Any) -> None:
        if apart := int((got.cpu().numpy() != wanted).sum()):
            wrong.append((*case, f"{apart} of {wanted.size}"))

    cases = [  # channels, outputs, size, taps, stride, padding, dilation
        (64, 128, 32, 3, 2, 1, 1), (3, 64, 32, 3, 1, 1, 1), (64, 64, 16, 1, 1, 0, 1),
        (16, 24, 19, 5, 1, 2, 1), (32, 40, 15, 3, 1, 2, 2), (128, 8, 7, 7, 3, 3, 1),
        (8, 16, 9, 2, 1, 0, 1), (10, 12, 9, 3, 1, 1, 1), (64, 32, 16, 3, -2, 1, 1),
        (16, 24, 9, 4, -2, 1, 1), (32, 8, 7, 2, -2, 0, 1), (16, 16, 8, 3, -1, 1, 1),
    ]  # fmt: skip
    for dtype, most in ((weft.bfloat16, 16), (weft.float16, 12)):
        for channels, outputs, size, taps, stride, padding, dilation in cases:
            x = rng.integers(-most, most + 1, (4, channels, size, size)).astype(dtype)
            w = rng.integers(-most, most + 1, (outputs, channels, taps, taps)).astype(dtype)
            b = (rng.integers(-39, 40, outputs + 1) / 8).astype(dtype)
            case = (dtype.name, channels, outputs, size, taps, stride, padding, dilation)
            conv: Any = functional.conv2d
            if stride < 0:  # a transposed one
                stride, w, conv = -stride, np.ascontiguousarray(w.swapaxes(0, 1)), functional.conv_transpose2d
            given = {"stride": stride, "padding": padding, "dilation": dilation}
            sums = conv(*[weft.tensor(a.astype(float)) for a in (x, w)], **given).numpy()

            def activated(x: Any, w: Any, b: Any, first: int, given: Any = given, conv: Any = conv) -> Any:
                y = conv(x, w, b[first : b.shape[0] - 1 + first], **given)
                return weft.relu(y), y

            there = [weft.tensor(a).cuda() for a in (x, w, b)]
            for first in (0, 1):  # a bias that begins anywhere
                row = b[first : outputs + first].reshape(-1, 1, 1)
                wanted = (sums + row.astype(float)).astype(dtype)
                told += int((sums.astype(dtype) + row != wanted).sum())
                compiled = weft.compile(activated)
                for run in (activated, *[compiled] * 4):
                    relu, y = run(*there, first)
                    compare(y, wanted, *case, first, "eager" if run is activated else "compiled")
                    compare(relu, np.maximum(wanted, 0), *case, first, "relu")
                with redirect_stdout(StringIO()):
                    program = str(compiled.explain(*there, first)[0].program)
                assert ("call library_conv" in program) is (outputs % 8 == 0), program
    for case in wrong:
        note("not to the last bit", f"{case}")
    note("elements that rounding twice would change", str(told))
    assert told
    assert not wrong

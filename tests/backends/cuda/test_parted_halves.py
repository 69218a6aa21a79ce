"""Sums of two 16-bit numbers at a time, which the assembler of CUDA 13.0 gets wrong, are in no program."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.backends.cuda.emulated import emulated
from weft.backends.cuda.build import build_program
from weft.backends.cuda.emit.halves import parted_halves
from weft.ops.windows import overlap_add

WINDOWS = {"sizes": (6,), "kernel": (3,), "stride": (2,), "padding": ((1, 1),), "dilation": (1,)}


def test_windows_of_few_rows_are_added_without_them() -> None:
    x = np.random.default_rng(0).standard_normal((4, 3, 3)).astype(np.float32)
    graph = weft.make_graph(lambda x: overlap_add(x, **WINDOWS))(weft.tensor(x))
    ptx = build_program(graph.optimize(), "sm_90").ptx
    assert "%half" in ptx  # else this is about nothing
    assert "16x2" not in ptx
    with emulated():
        found = overlap_add(weft.tensor(x, device="cuda"), **WINDOWS)
        np.testing.assert_allclose(found.cpu().numpy(), overlap_add(weft.tensor(x), **WINDOWS).numpy(), 1e-6)


@pytest.mark.parametrize("constant", [65536, -1, 65537])
def test_both_halves_of_a_constant_are_added(constant: int) -> None:
    found = parted_halves(f"{{\n\tadd.u16x2 \t%r2, %r1, {constant};\n}}").splitlines()
    assert found[3:5] == [
        f"\tmov.b16 \t%half3, {constant & 0xFFFF};",
        f"\tmov.b16 \t%half4, {constant >> 16 & 0xFFFF};",
    ]


def test_text_without_them_stays_as_it_is() -> None:
    text = "{\n\tadd.f16x2 \t%r2, %r1, %r3;\n}"
    assert parted_halves(text) == text

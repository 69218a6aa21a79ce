"""Scalar code says the same as the reference kernel, for every op that has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft.base.dtypes import kind
from weft.ops.op import OPS, Op, Sample
from weft.ops.scalar import INSTRUCTIONS, NUMPY, NumpyEmitter

WITH_CODE = [op for op in OPS.values() if op.scalar is not None]
CASES = [(op, sample) for op in WITH_CODE for sample in (op.samples or tuple)()]


@pytest.mark.rotating(4)
@pytest.mark.parametrize(("op", "sample"), CASES, ids=[op.name for op, _ in CASES])
def test_scalar_code_equals_the_kernel(op: Op, sample: Sample) -> None:
    assert op.scalar is not None
    inputs = np.broadcast_arrays(*sample.inputs)
    with np.errstate(all="ignore"):
        expected = np.asarray(op.eval(*inputs, **sample.attrs))
        actual = np.asarray(op.scalar(NUMPY, *inputs, **sample.attrs))
    assert actual.dtype == expected.dtype
    if not _is_single(expected) and kind(expected.dtype) in "fc":
        np.testing.assert_allclose(actual, expected, rtol=1e-13, atol=1e-15)
    elif kind(expected.dtype) in "fc":
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-7)
    else:
        np.testing.assert_array_equal(actual, expected)


def _is_single(a: Any) -> bool:
    return a.dtype in (np.float32, np.complex64)


def test_every_elementwise_op_has_scalar_code() -> None:
    assert [op.name for op in OPS.values() if op.accepts and op.scalar is None] == []


def test_the_numpy_emitter_has_every_instruction_and_no_other() -> None:
    written = {name for name in vars(NumpyEmitter) if not name.startswith("_")}
    assert written - {"dtype"} == set(INSTRUCTIONS)


def test_the_instruction_set_stays_small() -> None:
    assert len(INSTRUCTIONS) <= 38

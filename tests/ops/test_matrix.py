"""Every op and composite, times every check.

Types and values are checked at every sample. Of the samples of derivatives, of ``vmap`` and of half precision
a run takes the first of each op and a third of the others, another third whenever weft's code is another;
``WEFT_ALL=1`` takes all.
"""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.ops import checks
from tests.ops.oracles import all_oracles
from weft.ops import bits as _bits  # noqa: F401 - weft itself does not import these
from weft.ops import panels as _panels  # noqa: F401
from weft.ops import rows as _rows  # noqa: F401
from weft.ops.op import COMPOSITES, OPS, NoGradient, Op
from weft.ops.view import reinterpreted as _reinterpreted  # noqa: F401

ENTRIES = checks.entries()
ORACLES = all_oracles()
PARTS = 3
HOLDING_GRAPHS = (  # they have tests of their own
    "attention",
    "attention_gradient",
    "call",
    "cond",
    "function",
    "scan",
    "switch",
    "while_loop",
)


def _is_smooth(entry: checks.Entry) -> bool:
    """Whether finite differences apply: double precision inputs at which the op is differentiable."""
    if isinstance(entry.op, Op) and isinstance(entry.op.vjp, NoGradient):
        return False
    wide = all(entry.sample.inputs[i].dtype in (np.float64, np.complex128) for i in entry.differentiable)
    return entry.sample.smooth and bool(entry.differentiable) and wide


def _has_effect(name: str) -> bool:
    return name in OPS and OPS[name].effect


def _is_call(name: str) -> bool:
    """Whether it is a call of a library that programs for GPUs have; tests/backends/cuda checks those."""
    return name.startswith("library_")


SMOOTH = [e for e in ENTRIES if _is_smooth(e)]


@pytest.mark.parametrize(
    "name",
    [n for n in (*OPS, *COMPOSITES) if n not in HOLDING_GRAPHS and not _has_effect(n) and not _is_call(n)],
)
def test_op_declares_samples_and_an_oracle(name: str) -> None:
    op = OPS.get(name) or COMPOSITES[name]
    assert op.samples is not None, f"{name} has no samples"
    assert list(op.samples()), f"the samples of {name} are empty"
    assert name in ORACLES, f"{name} has no oracle in tests/ops/oracles_*.py"


@checks.over([e for e in ENTRIES if isinstance(e.op, Op)])
def test_type_rule_tells_the_actual_type(entry: checks.Entry) -> None:
    checks.check_type(entry)


@checks.over(ENTRIES)
def test_value_equals_the_oracle(entry: checks.Entry) -> None:
    if entry.name not in ORACLES:
        pytest.fail(f"{entry.name} has no oracle")
    checks.check_value(entry, ORACLES[entry.name])


# What a half stores before it is done (a product, to which a bias is then added), what is about the dtype
# itself, and what is only defined on (0, 1) or for sums that belong to the other inputs
NOT_ROUNDED_ONCE = (
    "bitcast", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "linear", "nan_to_num", "nextafter", "normal_quantile", "reinterpret", "ring_attention_vjp",
)  # fmt: skip


@pytest.mark.rotating(3)
@checks.over(
    [e for e in ENTRIES if e.name in ORACLES and e.name not in NOT_ROUNDED_ONCE and checks.is_real(e)], PARTS
)
def test_half_precision_is_rounded_once(entry: checks.Entry) -> None:
    for dtype, scale in ((weft.float16, 1.0), (weft.float16, 64.0), (weft.bfloat16, 1.0)):
        checks.check_half(entry, ORACLES[entry.name], dtype, scale)


@checks.over(SMOOTH, PARTS)
def test_jvp_equals_finite_differences(entry: checks.Entry) -> None:
    checks.check_jvp(entry)


@pytest.mark.rotating(3)
@checks.over(SMOOTH, PARTS)
def test_vjp_is_the_transpose_of_jvp(entry: checks.Entry) -> None:
    checks.check_transposed(entry)


@pytest.mark.rotating(4)
@checks.over(SMOOTH, PARTS)
def test_second_order_equals_finite_differences(entry: checks.Entry) -> None:
    checks.check_second_order(entry)


@checks.over(ENTRIES, PARTS)
def test_vmap_equals_a_loop(entry: checks.Entry) -> None:
    count = len(entry.sample.inputs)
    if count == 0:
        return
    checks.check_vmap(entry, [True] * count, axis=0)
    checks.check_vmap(entry, [True] * count, axis=1)
    for i in range(count if count > 1 else 0):
        checks.check_vmap(entry, [i == k for k in range(count)], axis=0)

"""A newcomer adds an elementwise op by one declaration and one oracle, and nothing else.

The declaration stands in a module of its own, as it would in ``weft/ops``; all else is derived from it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.ops import checks
from weft.ops.op import OPS, Op
from weft.schedule.program import lower_graph

DECLARATION = '''
"""The bump of Runge."""

from weft.ops.families import elementwise
from weft.ops.samples import reals

bump = elementwise(
    "bump",
    eval=lambda x: 1 / (1 + x * x),
    partials=(lambda x, out: -2 * x * out * out,),
    accepts="f",
    samples=reals(1),
    scalar=lambda e, x: e.div(1, e.add(1, e.mul(x, x))),
)
'''


def oracle(x: Any) -> Any:
    return np.reciprocal(1 + x.astype("f8") ** 2).astype(x.dtype)


@pytest.fixture(scope="module", name="bump")
def declared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Op]:
    folder: Path = tmp_path_factory.mktemp("ops")
    (folder / "weft_test_bump.py").write_text(DECLARATION)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        before = dict(OPS)
        yield importlib.import_module("weft_test_bump").bump
        OPS.clear()
        OPS.update(before)


def entries(op: Op, *, smooth: bool = False) -> list[checks.Entry]:
    rows = [checks.Entry(op.name, op, sample, op) for sample in op.samples() if op.samples]
    return [r for r in rows if r.sample.smooth and r.sample.inputs[0].dtype == np.float64] if smooth else rows


def kernels_of(function: Any, *arrays: Any) -> list[str]:
    program = lower_graph(weft.make_graph(function)(*map(weft.tensor, arrays)).optimize())
    assert not program.hosts
    return [s.function.name for s in program.main.body.statements if hasattr(s, "function")]


def test_it_has_types_and_values(bump: Op) -> None:
    for entry in entries(bump):
        checks.check_type(entry)
        checks.check_value(entry, oracle)


def test_it_is_differentiated_in_both_modes_to_second_order(bump: Op) -> None:
    assert entries(bump, smooth=True)
    for entry in entries(bump, smooth=True):
        checks.check_jvp(entry)
        checks.check_transposed(entry)
        checks.check_second_order(entry)


def test_it_is_batched(bump: Op) -> None:
    for entry in entries(bump):
        checks.check_vmap(entry, [True], axis=0)


def test_it_broadcasts_promotes_and_refuses_as_others_do(bump: Op) -> None:
    assert bump(weft.tensor([1, 2])).dtype == weft.float32
    with pytest.raises(weft.errors.DtypeError, match="bump: dtype must be floating"):
        bump(weft.tensor([1j]))


def test_it_is_fused_with_what_is_around_it(bump: Op) -> None:
    x = np.random.default_rng(0).standard_normal((30, 50)).astype("f4")

    def f(x: Any) -> Any:
        return weft.sum(bump(weft.exp(x)) * 2.0, axis=1)

    assert len(kernels_of(f, x)) == 1
    expected = (2 / (1 + np.exp(x.astype("f8")) ** 2)).sum(1)
    np.testing.assert_allclose(weft.compile(f)(weft.tensor(x)).numpy(), expected, rtol=1e-5)


def test_its_gradient_is_one_kernel_too(bump: Op) -> None:
    x = np.random.default_rng(0).standard_normal((30, 50)).astype("f4")
    assert len(kernels_of(weft.grad(lambda x: bump(x * 2.0).sum()), x)) == 1


def test_it_is_in_graphs_and_their_text(bump: Op) -> None:
    graph = weft.make_graph(lambda x: bump(x))(weft.ones(3))
    assert [node.op.name for node in graph.nodes] == ["bump"]
    assert [node.op for node in weft.parse_graph(graph.to_text()).nodes] == [bump]


def test_its_cost_is_that_of_its_instructions(bump: Op) -> None:
    assert bump.cost == 6  # a division counts as four


# That its public function is documented and in the stub is asked of what makes these: `weft/ops` registers
# public names once, and the test of that registration takes a module such as this one.

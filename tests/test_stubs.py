"""What editors and type checkers are told is what there is; an op that is declared public is everywhere."""

from __future__ import annotations

import doctest
import pickle
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import weft
from tests import stubs
from weft.ops.families import elementwise
from weft.ops.op import OPS
from weft.ops.public import Public
from weft.ops.samples import reals
from weft.tensor import interface
from weft.tensor.published import FUNCTIONS

OTHER = "third_power"  # of the op that is declared here


@pytest.mark.parametrize("name", stubs.STUBS)
def test_stub_is_up_to_date(name: str) -> None:
    assert stubs.stub_path(name).read_text() == stubs.STUBS[name](), "run python -m tests.stubs --write"


def test_attached_class_is_empty_at_run_time() -> None:
    assert not [name for name in vars(interface.Attached) if not name.startswith("__")]


def test_every_module_that_declares_public_ops_is_imported_with_weft() -> None:
    code = "import weft; from weft.ops.table import import_all; from weft.tensor.published import FUNCTIONS"
    code += "; at_once = set(FUNCTIONS); import_all(); print(sorted(set(FUNCTIONS) - at_once))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]", "published.py imports such modules, so that methods are there"


@pytest.fixture
def cube() -> Iterator[str]:
    """An op that a newcomer declares, under two names."""
    elementwise(
        "cube",
        public=Public("x * x * x.", "[2.0, -1.0] -> [ 8., -1.]", names=("cube", OTHER)),
        eval=lambda x: x * x * x,
        partials=(lambda x: 3 * x * x,),
        accepts="f",
        samples=reals(1),
        scalar=lambda e, x: e.mul(x, e.mul(x, x)),
    )
    yield "cube"
    del OPS["cube"]
    for name in ("cube", OTHER):
        del FUNCTIONS[name]
        delattr(weft.Tensor, name)
        delattr(weft.Tensor, f"{name}_")


def test_declared_op_is_a_name_of_weft(cube: str) -> None:
    function, x = getattr(weft, cube), weft.tensor([2.0, -1.0], requires_grad=True)
    assert function(x).tolist() == getattr(weft, OTHER)(x).tolist() == [8.0, -1.0]
    assert {cube, OTHER} <= set(dir(weft))
    assert pickle.loads(pickle.dumps(function)) is function  # noqa: S301 - our own bytes
    function(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [12.0, 3.0]


def test_declared_op_is_a_method_and_works_in_place(cube: str) -> None:
    x = weft.tensor([2.0, -1.0])
    assert getattr(x, cube)().tolist() == [8.0, -1.0]
    assert getattr(x, f"{OTHER}_")() is x
    assert x.tolist() == [8.0, -1.0]


def test_declared_op_has_a_signature_and_an_example_that_runs(cube: str) -> None:
    function = getattr(weft, cube)
    examples = doctest.DocTestParser().get_doctest(function.__doc__, {}, cube, None, None)
    assert doctest.DocTestRunner().run(examples) == (0, 2)
    with pytest.raises(weft.errors.ArgumentError, match="takes 1 tensor, got 2"):
        function(weft.ones(2), weft.ones(2))


def test_declared_op_is_in_the_stubs(cube: str) -> None:
    assert "def cube(x: Operand, /) -> Tensor: ..." in stubs.functions_stub()
    assert "cube as cube" in stubs.weft_stub()
    assert "def cube(self) -> Tensor: ..." in stubs.interface_stub()
    assert "cube_ = _functions.cube" in stubs.interface_stub()


def test_declared_op_is_fused(cube: str) -> None:
    function = getattr(weft, cube)
    compiled = weft.compile(lambda x: function(x + 1.0) * 2.0)
    np.testing.assert_allclose(compiled(weft.tensor([1.0, 2.0])).numpy(), [16.0, 54.0])


def test_names_that_are_not_there_are_an_error() -> None:
    with pytest.raises(AttributeError, match="module 'weft' has no attribute 'cube'"):
        getattr(weft, "cube")  # noqa: B009 - a type checker knows that it is not there

"""Custom ops that say what they are compile as weft's own do: into the same kernels, nothing in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, ShapeError
from weft.loop.text import format_program
from weft.ops.op import OPS
from weft.schedule.program import lower_graph
from weft.testing import Sample, check_op

X = np.random.default_rng(0).standard_normal((40, 60)).astype("f4")


@pytest.fixture(autouse=True)
def _table_is_as_it_was() -> Iterator[None]:
    before = dict(OPS)
    yield
    OPS.clear()
    OPS.update(before)


def program_of(function: Callable[..., Any], *arrays: Any) -> str:
    graph = weft.make_graph(function)(*map(weft.tensor, arrays)).optimize()
    program = lower_graph(graph)
    assert not program.hosts
    return format_program(program)


def body_of(text: str) -> list[str]:
    """The lines of a program without the names of its functions, which are those of the ops."""
    words = ("function", "launch", "program")
    return [line for line in text.splitlines() if not line.strip().startswith(words)]


def assert_compiles_alike(custom: Callable[..., Any], own: Callable[..., Any], *arrays: Any) -> None:
    ours, theirs = program_of(custom, *arrays), program_of(own, *arrays)
    assert body_of(ours) == body_of(theirs)
    assert ours.count("launch") == theirs.count("launch")
    tensors = list(map(weft.tensor, arrays))
    np.testing.assert_array_equal(weft.compile(custom)(*tensors).numpy(), weft.compile(own)(*tensors).numpy())


# Folds


def declare_total(name: str = "test::total", **changes: Any) -> Any:
    def gradient(g: Any, x_type: Any, axes: Any, keepdims: bool) -> Any:
        shape = tuple(1 if i in axes else s for i, s in enumerate(x_type.shape))
        return weft.broadcast_to(g.reshape(shape), x_type.shape)

    parts: dict[str, Any] = {
        "fold": "add",
        "gradient": gradient,
        "samples": [
            Sample((np.arange(6.0).reshape(2, 3),), {"axes": (1,), "keepdims": False}),
            Sample((np.arange(24.0).reshape(2, 3, 4),), {"axes": (0, 2), "keepdims": True}),
        ],
    }

    @weft.custom_op(name, **(parts | changes))
    def total(x: Any, *, axes: Any = None, keepdims: bool = False) -> Any:
        return np.add.reduce(x, axis=axes, keepdims=keepdims, dtype=x.dtype)

    return total


def test_generated_checks_pass_for_a_fold() -> None:
    check_op(declare_total(), reference=lambda x, *, axes, keepdims: x.sum(axes, keepdims=keepdims))


@pytest.mark.parametrize("axes", [1, 0, (0, 1), None, -1])
def test_fold_is_fused_as_a_sum_is(axes: Any) -> None:
    total = declare_total()
    assert_compiles_alike(
        lambda x: total(weft.exp(x) * 2.0, axes=axes), lambda x: weft.sum(weft.exp(x) * 2.0, axis=axes), X
    )


def test_row_that_was_folded_is_used_in_the_same_kernel() -> None:
    total = declare_total()
    assert_compiles_alike(
        lambda x: weft.exp(x) / total(weft.exp(x), axes=1, keepdims=True),
        lambda x: weft.exp(x) / weft.sum(weft.exp(x), axis=1, keepdims=True),
        X,
    )
    text = program_of(lambda x: weft.exp(x) / total(weft.exp(x), axes=1, keepdims=True), X)
    assert text.count("launch") == 1


def test_fold_along_an_axis_in_the_middle_is_written_as_a_sum_is() -> None:
    total = declare_total()
    assert_compiles_alike(
        lambda x: total(x, axes=1),
        lambda x: weft.sum(x, axis=1),
        np.ones((5, 70, 9), "f4"),
    )


def test_type_and_batching_of_a_fold_follow() -> None:
    @weft.custom_op("test::largest", fold="max", gradient=weft.no_gradient("only for its values"))
    def largest(x: Any, *, axes: Any, keepdims: bool = False) -> Any:
        return np.max(x, axis=axes, keepdims=keepdims)

    assert weft.vmap(lambda row: largest(row, axes=0))(weft.tensor(X)).tolist() == X.max(1).tolist()
    with pytest.raises(ShapeError, match="test::largest: there must be elements along the reduced axes"):
        weft.make_graph(lambda x: largest(x, axes=0))(weft.zeros((0, 3)))


# Scalar code


def test_scalar_code_is_fused() -> None:
    @weft.custom_op(
        "test::cube",
        partials=[lambda x: 3.0 * x * x],
        scalar=lambda e, x: e.mul(x, e.mul(x, x)),
        samples=[(np.arange(3.0),)],
    )
    def cube(x: Any) -> Any:
        return x * x * x

    check_op(cube)
    text = program_of(lambda x: weft.sum(cube(weft.tanh(x)) + 1.0, axis=1), X)
    assert text.count("launch") == 1
    expected = (np.tanh(X.astype("f8")) ** 3 + 1).sum(1)
    got = weft.compile(lambda x: weft.sum(cube(weft.tanh(x)) + 1.0, axis=1))(weft.tensor(X)).numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_cost_is_counted_in_scalar_code() -> None:
    @weft.custom_op("test::swish", partials=[1.0], scalar=lambda e, x: e.div(x, e.add(1, e.exp(e.neg(x)))))
    def swish(x: Any) -> Any:
        return x / (1 + np.exp(-x))

    assert OPS["test::swish"].cost == 4 + 1 + 8 + 1


# Views


def declare_diagonal(**changes: Any) -> Any:
    parts: dict[str, Any] = {
        "type_rule": lambda x: weft.TensorType((x.shape[0],), x.dtype),
        "view": lambda index, x: (index[0], index[0]),
        "gradient": lambda g: weft.eye(g.shape[0], dtype=g.dtype) * g,
        "samples": [(np.arange(9.0).reshape(3, 3),)],
    }

    @weft.custom_op("test::diagonal", **(parts | changes))
    def diagonal(x: Any) -> Any:
        return np.diagonal(x)

    return diagonal


def test_view_is_read_where_it_lies() -> None:
    diagonal = declare_diagonal()
    check_op(diagonal, reference=np.diagonal)
    text = program_of(lambda x: weft.exp(diagonal(x)) * 2.0, X[:40, :40].copy())
    assert text.count("launch") == 1
    assert "41*" in text  # one row and one column on


def test_view_with_attributes_compiles_as_a_slice_does() -> None:
    @weft.custom_op(
        "test::every",
        type_rule=lambda x, *, step: weft.TensorType((*x.shape[:-1], -(-x.shape[-1] // step)), x.dtype),
        view=lambda index, x, *, step: (*index[:-1], index[-1] * step),
        gradient=weft.no_gradient("only for its values"),
    )
    def every(x: Any, *, step: int) -> Any:
        return x[..., ::step]

    assert_compiles_alike(lambda x: weft.exp(every(x, step=2)), lambda x: weft.exp(x[..., ::2]), X)


def test_flat_view_stays_in_the_group() -> None:
    @weft.custom_op(
        "test::flattened",
        type_rule=lambda x: weft.TensorType((x.shape[0] * x.shape[1],), x.dtype),
        view="flat",
        gradient=lambda g, x_type: g.reshape(x_type.shape),
        samples=[(np.arange(6.0).reshape(2, 3),)],
    )
    def flattened(x: Any) -> Any:
        return x.reshape(-1)

    check_op(flattened)
    assert_compiles_alike(
        lambda x: weft.tanh(flattened(weft.exp(x))) * 2.0,
        lambda x: weft.tanh(weft.exp(x).reshape(-1)) * 2.0,
        X,
    )


def test_check_op_finds_a_view_that_is_not_the_kernels() -> None:
    wrong = declare_diagonal(view=lambda index, x: (index[0], index[0] * 0))
    with pytest.raises(AssertionError) as error:
        check_op(wrong)
    assert "against its kernel" in "\n".join(error.value.__notes__)


def test_view_beyond_its_input_is_refused() -> None:
    wrong = declare_diagonal(view=lambda index, x: (index[0], index[0] + 1))
    with pytest.raises(ShapeError, match="view must stay in axis 1 of size 3, got places 1 to 3"):
        weft.compile(lambda x: wrong(x) + 1)(weft.ones((3, 3)))


# Declarations that do not fit


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fold": "sub"}, "fold must be one of add, mul, max, min, and_, or_, got 'sub'"),
        ({"type_rule": lambda x, *, axes, keepdims: x}, "type_rule follows from fold, got both"),
        ({"batch": "leading"}, "batch follows from fold, got both"),
        ({"partials": [1.0]}, "gradient follows from partials, got both"),
    ],
)
def test_fold_that_does_not_fit_is_an_error(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        declare_total(**changes)


def test_fold_needs_its_attributes() -> None:
    with pytest.raises(ArgumentError, match="one input and the attributes axes and keepdims"):

        @weft.custom_op("test::total", fold="add", gradient=weft.no_gradient("none"))
        def total(x: Any, *, axis: int) -> Any:
            return x.sum(axis)


@pytest.mark.parametrize(
    ("view", "words"),
    [
        ("order", "view must be a function or \"flat\", got 'order'"),
        (lambda index: index, r"view must be a function of \(index, x\)"),
        (lambda index, x, *, step: index, r"view must be a function of \(index, x\)"),
    ],
)
def test_view_that_does_not_fit_is_an_error(view: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        declare_diagonal(view=view)


def test_view_keeps_dtype_and_a_flat_one_its_elements() -> None:
    for view in ("flat", lambda index, x: (index[0], 0)):
        wrong = declare_diagonal(
            view=view,
            type_rule=lambda x: weft.TensorType((2,), weft.float64),
            replace=True,
        )
        with pytest.raises(ShapeError, match="a view must keep the dtype"):
            wrong(weft.ones((3, 3)))


def test_scalar_code_that_does_not_run_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="scalar must be code for 1 numbers, got"):

        @weft.custom_op("test::bad", partials=[1.0], scalar=lambda e, x: e.gelu(x))
        def bad(x: Any) -> Any:
            return x

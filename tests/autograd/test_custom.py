"""``weft.custom_op``: declared like the ops of weft, checked like them, and replaced in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, GradientError, ShapeError
from weft.ops.op import OPS
from weft.testing import Sample, check_op


@pytest.fixture(autouse=True)
def _table_is_as_it_was() -> Iterator[None]:
    before = dict(OPS)
    yield
    OPS.clear()
    OPS.update(before)


def declare_scale(**changes: Any) -> Any:
    parts: dict[str, Any] = {
        "type_rule": lambda x, *, factor: x,
        "gradient": lambda g, factor: g * factor,
        "samples": [Sample((np.arange(6.0).reshape(2, 3),), {"factor": 3.0})],
    }

    @weft.custom_op("test::scale", **(parts | changes))
    def scale(x: Any, *, factor: float = 2.0) -> Any:
        """Multiply by a number."""
        return x * np.asarray(factor, x.dtype)

    return scale


def test_custom_op_records_and_differentiates() -> None:
    scale = declare_scale()
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    y = scale(x, factor=5.0)
    assert (y.tolist(), repr(y.grad_fn)) == ([5.0, 10.0], "<test::ScaleBackward>")
    y.sum().backward()
    assert x.grad.tolist() == [5.0, 5.0]
    assert scale(x).tolist() == [2.0, 4.0]
    assert scale.__doc__ == "Multiply by a number."


def test_custom_op_is_in_the_table_under_its_name() -> None:
    scale = declare_scale()
    assert OPS["test::scale"] is scale.op
    assert (scale.op.inputs, scale.op.attrs) == (("x",), ("factor",))


def test_generated_checks_pass_for_a_right_op() -> None:
    check_op(declare_scale(), reference=lambda x, *, factor: x * factor)
    check_op("test::scale")


def test_op_of_several_inputs_and_outputs() -> None:
    @weft.custom_op(
        "test::moments",
        type_rule=lambda x, w: (weft.TensorType(x.shape[:-1], x.dtype),) * 2,
        gradient=lambda g, x, w: (
            expand(g[0], x) * w + expand(g[1], x) * 2.0 * x * w,
            expand(g[0], x) * x + expand(g[1], x) * x * x,
        ),
        outputs=2,
        batch="leading",
        samples=[(np.arange(6.0).reshape(2, 3), np.ones((2, 3)))],
    )
    def moments(x: Any, w: Any) -> Any:
        return (x * w).sum(-1), (x * x * w).sum(-1)

    def expand(g: Any, x: Any) -> Any:
        return weft.broadcast_to(g.reshape((*x.shape[:-1], 1)), x.shape)

    check_op(moments, reference=lambda x, w: ((x * w).sum(-1), (x * x * w).sum(-1)))


def test_elementwise_op_from_partials_alone() -> None:
    @weft.custom_op(
        "test::multiply_add",
        partials=[lambda b: b, lambda a: a, 1.0],
        samples=[(np.arange(3.0), np.ones((2, 1)), np.ones(())), (np.arange(3.0), np.ones(3), np.ones(3))],
    )
    def multiply_add(a: Any, b: Any, c: Any) -> Any:
        return a * b + c

    check_op(multiply_add, reference=lambda a, b, c: a * b + c)
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    multiply_add(x, 3.0, 1).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_elementwise_op_may_name_its_output_and_carry_scalar_code() -> None:
    code = lambda e, x: e.exp(x)  # noqa: E731

    @weft.custom_op("test::exp", partials=[lambda out: out], scalar=code, samples=[(np.arange(3.0),)])
    def exp(x: Any) -> Any:
        return np.exp(x)

    check_op(exp)
    assert exp.op.scalar is code  # type: ignore[attr-defined]


def test_variadic_op() -> None:
    @weft.custom_op(
        "test::join",
        type_rule=lambda *xs: weft.TensorType((sum(x.shape[0] for x in xs),), xs[0].dtype),
        gradient=lambda g, xs_type: weft.split(g, [t.shape[0] for t in xs_type]),
        samples=[(np.arange(3.0), np.ones(2))],
    )
    def join(*xs: Any) -> Any:
        return np.concatenate(xs)

    check_op(join)


def test_op_without_gradient_says_why() -> None:
    @weft.custom_op(
        "test::count",
        type_rule=lambda x: weft.TensorType((), weft.int64),
        gradient=weft.no_gradient("counts"),
        samples=[(np.arange(3.0),)],
    )
    def count(x: Any) -> Any:
        return np.asarray(x.size)

    check_op(count)
    assert not count(weft.ones(3).requires_grad_()).requires_grad


def test_vmap_runs_the_kernel_for_each_example_without_a_batching_rule() -> None:
    shapes: list[Any] = []

    @weft.custom_op("test::seen", type_rule=lambda x: x, gradient=lambda g: g)
    def seen(x: Any) -> Any:
        shapes.append(x.shape)
        return x

    weft.vmap(seen)(weft.ones((3, 2)))
    assert shapes == [(2,)] * 3


def test_jvp_of_the_declaration_is_used() -> None:
    scale = declare_scale(jvp=lambda primals, tangents, out, factor: tangents[0] * factor * 100.0)
    _, tangent = weft.jvp(scale, (weft.tensor(1.0),), (weft.tensor(1.0),))
    assert tangent.item() == 200.0


def test_rules_may_use_types_and_several_rules() -> None:
    @weft.custom_op(
        "test::outer",
        type_rule=lambda x, y: weft.TensorType((*x.shape, *y.shape), x.dtype),
        gradient=(
            lambda g, y, x_type: (g * y).sum(axis=1).reshape(x_type.shape),
            lambda g, x, y_type: (g * x.reshape((*x.shape, 1))).sum(axis=0).reshape(y_type.shape),
        ),
        samples=[(np.arange(3.0), np.arange(2.0))],
    )
    def outer(x: Any, y: Any) -> Any:
        return np.multiply.outer(x, y)

    check_op(outer)


def test_kernel_cannot_change_its_input() -> None:
    @weft.custom_op("test::spoil", type_rule=lambda x: x, gradient=lambda g: g)
    def spoil(x: Any) -> Any:
        x += 1.0
        return x

    x = weft.ones(2)
    with pytest.raises(ValueError, match="read-only"):
        spoil(x)
    assert x.tolist() == [1.0, 1.0]


# Names


def test_name_is_taken_once_unless_replaced() -> None:
    first = declare_scale()
    with pytest.raises(ArgumentError, match="must be new, got 'test::scale' again"):
        declare_scale()
    x = weft.tensor([1.0], requires_grad=True)
    y = first(x)
    second = declare_scale(gradient=lambda g, factor: g * factor * 10.0, replace=True)
    assert OPS["test::scale"] is second.op
    y.backward()
    assert x.grad.tolist() == [2.0]  # recorded with the first
    second(x).backward()
    assert x.grad.tolist() == [22.0]


def test_failed_replacement_leaves_the_op_in_place() -> None:
    first = declare_scale()
    with pytest.raises(ArgumentError):
        declare_scale(gradient=None, replace=True)
    assert OPS["test::scale"] is first.op


def test_removed_op_is_gone_and_may_be_declared_again() -> None:
    declare_scale()
    weft.remove_custom_op("test::scale")
    assert "test::scale" not in OPS
    declare_scale()


@pytest.mark.parametrize("name", ["test::none", "add", "mul"])
def test_only_custom_ops_can_be_removed(name: str) -> None:
    with pytest.raises(ArgumentError, match="must be declared"):
        weft.remove_custom_op(name)
    assert "add" in OPS


@pytest.mark.parametrize("name", ["scale", "::scale", "test::", "test::a-b", "a::b::c", "", 3])
def test_name_needs_a_namespace(name: Any) -> None:
    with pytest.raises(ArgumentError, match="must have a namespace"):
        weft.custom_op(name, type_rule=lambda x: x, gradient=lambda g: g)


# Mistakes in the declaration


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gradient": None}, "must have a gradient, got none"),
        ({"type_rule": None}, "must have a type_rule, got none"),
        ({"gradient": lambda g, q: g}, "asks for 'q', which is none of factor, out, outs, x, x_type"),
        ({"gradient": lambda: 1}, "must take the gradient of the output first"),
        ({"gradient": (lambda g: g, lambda g: g)}, "one rule for each of 1 inputs, got 2"),
        ({"gradient": (3,)}, "a rule must be a function, got int"),
        ({"scalar": lambda e, x: x}, "scalar code belongs to an op with partials"),
        ({"partials": [2.0]}, "follows from partials, got both"),
        ({"partials": [2.0], "gradient": None, "type_rule": None}, "no attributes"),
    ],
)
def test_parts_that_do_not_fit_are_errors(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        declare_scale(**changes)
    assert "test::scale" not in OPS


def test_kernel_must_be_a_function_with_inputs() -> None:
    declare = weft.custom_op("test::bad", type_rule=lambda x: x, gradient=lambda g: g)
    with pytest.raises(ArgumentError, match="must be a Python function, got ufunc"):
        declare(np.sin)
    with pytest.raises(ArgumentError, match="a positional parameter for each input, got none"):
        declare(lambda *, factor: factor)


def test_partial_that_asks_for_something_unknown_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="asks for 'q', which is none of out, x"):
        weft.custom_op("test::bad", partials=[lambda q: q])(lambda x: x)


# Mistakes in the parts, found when the op runs


@pytest.mark.parametrize(
    ("kernel", "error", "words"),
    [
        (
            lambda x: x.astype(np.float64),
            ShapeError,
            r"must return f32\[2\], as its type rule says, got float64\[2\]",
        ),
        (lambda x: x[:1], ShapeError, r"got float32\[1\]"),
        (lambda x: [1.0, 2.0], ArgumentError, "must return an array, got list"),
    ],
)
def test_kernel_that_breaks_its_type_rule_is_an_error(
    kernel: Any, error: type[Exception], words: str
) -> None:
    op = weft.custom_op("test::bad", type_rule=lambda x: x, gradient=lambda g: g)(kernel)
    with pytest.raises(error, match=words):
        op(weft.ones(2))


def test_kernel_with_another_number_of_outputs_is_an_error() -> None:
    op = weft.custom_op("test::bad", type_rule=lambda x: (x, x), gradient=lambda g: g[0], outputs=2)(
        lambda x: x
    )
    with pytest.raises(ArgumentError, match="must return 2 arrays, got ndarray"):
        op(weft.ones(2))


def test_type_rule_that_returns_something_else_is_an_error() -> None:
    op = weft.custom_op("test::bad", type_rule=lambda x: x.shape, gradient=lambda g: g)(lambda x: x)
    with pytest.raises(ArgumentError, match="type_rule must return 1 types, got int, int"):
        op(weft.ones((2, 3)))


@pytest.mark.parametrize(
    ("gradient", "words"),
    [
        (lambda g: g.sum(), r"the gradient of input 0 must be of type f32\[2\], got f32\[\]"),
        (
            lambda g: weft.astype(g, weft.float64) if hasattr(g, "_node") else g.astype(np.float64),
            r"got f64\[2\]",
        ),
    ],
)
@pytest.mark.parametrize("create_graph", [False, True])
def test_gradient_of_another_type_is_an_error(gradient: Any, words: str, create_graph: bool) -> None:
    op = weft.custom_op("test::bad", type_rule=lambda x: x, gradient=gradient)(lambda x: x)
    x = weft.ones(2).requires_grad_()
    with pytest.raises(ShapeError, match=words):
        op(x).sum().backward(create_graph=create_graph)
    assert x.grad is None


def test_gradient_of_another_number_is_an_error() -> None:
    op = weft.custom_op("test::bad", type_rule=lambda x, y: x, gradient=lambda g: (g,))(lambda x, y: x * y)
    with pytest.raises(GradientError, match="one for each of 2 inputs, got 1"):
        op(weft.ones(2).requires_grad_(), weft.ones(2)).sum().backward()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda f: f(weft.ones(2), fact=1.0), "unknown keyword 'fact'"),
        (lambda f: f(weft.ones(2), factor=[1.0]), "must be a number, string, dtype or tuple, got list"),
        (lambda f: f(weft.ones(2), factor=weft.ones(2)), "got Tensor"),
        (lambda f: f([1.0, 2.0]), "inputs must be tensors, got list"),
        (lambda f: f(3.0), "must be a tensor, got Python numbers only"),
        (lambda f: f(), r"takes 1 inputs \(x\), got 0"),
        (lambda f: f(weft.ones(2), weft.ones(2)), "got 2"),
    ],
)
def test_wrong_call_is_an_error(call: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        call(declare_scale())


def test_attribute_without_default_must_be_given() -> None:
    @weft.custom_op("test::power", type_rule=lambda x, *, n: x, gradient=lambda g, x, n: g * n * x ** (n - 1))
    def power(x: Any, *, n: int) -> Any:
        return x**n

    with pytest.raises(ArgumentError, match="the attribute 'n' must be given"):
        power(weft.ones(2))
    check_op(power, [Sample((np.arange(1.0, 4.0),), {"n": 3})])


# check_op


def test_check_op_finds_a_wrong_gradient() -> None:
    declare_scale(gradient=lambda g, factor: g * factor * 1.01)
    with pytest.raises(GradientError, match="must agree with finite differences") as caught:
        check_op("test::scale")
    assert "in sample 0 of test::scale: f64[2,3]" in caught.value.__notes__


def test_check_op_finds_a_gradient_that_is_wrong_only_to_second_order() -> None:
    @weft.custom_op(
        "test::square",
        type_rule=lambda x: x,
        gradient=lambda g, x: g * 2.0 * x.detach() if hasattr(x, "detach") else g * 2.0 * x,
    )
    def square(x: Any) -> Any:
        return x * x

    with pytest.raises(GradientError, match=r"gradgradcheck|gradcheck"):
        check_op(square, [(np.arange(3.0),)])


def test_check_op_finds_a_wrong_value_and_a_wrong_batching_rule() -> None:
    declare_scale()
    with pytest.raises(AssertionError):
        check_op("test::scale", reference=lambda x, *, factor: x)
    declare_scale(batch=lambda op, size, inputs, axes, attrs: (inputs[0], axes[0]), replace=True)
    with pytest.raises(AssertionError):
        check_op("test::scale")


def test_check_op_needs_an_op_and_samples() -> None:
    with pytest.raises(ArgumentError, match="must be given an op or its name"):
        check_op("test::none")
    with pytest.raises(ArgumentError, match="there must be samples"):
        check_op(declare_scale(samples=None))


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", ["tanh", "mul", "matmul", "where", "sum", "reshape"])
def test_check_op_passes_for_ops_of_weft(name: str) -> None:
    check_op(name)

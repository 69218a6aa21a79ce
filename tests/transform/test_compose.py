"""Transforms inside transforms, against closed forms and a symbolic oracle."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.of_code import examples
from weft.testing import assert_close

Function = Callable[[Any], Any]


def double(x: Any) -> weft.Tensor:
    return weft.tensor(np.asarray(x, np.float64))


# Ways to differentiate a function of one number, each of which must give the same.


def by_grad(f: Function) -> Function:
    return weft.grad(f)


def by_value_and_grad(f: Function) -> Function:
    return lambda x: weft.value_and_grad(f)(x)[1]


def by_vjp(f: Function) -> Function:
    return lambda x: weft.vjp(f, x)[1](double(1.0))[0]


def by_jvp(f: Function) -> Function:
    return lambda x: weft.jvp(f, (x,), (double(1.0),))[1]


def by_linearize(f: Function) -> Function:
    return lambda x: weft.linearize(f, x)[1](double(1.0))


def by_jacrev(f: Function) -> Function:
    return weft.jacrev(f)


def by_jacfwd(f: Function) -> Function:
    return weft.jacfwd(f)


def by_grad_of_vmap(f: Function) -> Function:
    return lambda x: weft.grad(lambda y: weft.vmap(f)(y.reshape((1,))).sum())(x)


def by_vmap_of_grad(f: Function) -> Function:
    return lambda x: weft.vmap(weft.grad(f))(x.reshape((1,))).reshape(())


def by_vmap_of_jvp(f: Function) -> Function:
    def derivative(x: Any) -> Any:
        return weft.vmap(lambda t: weft.jvp(f, (x,), (t,))[1])(double([1.0, 2.0])).sum() / 3.0

    return derivative


WAYS = [
    by_grad,
    by_value_and_grad,
    by_vjp,
    by_jvp,
    by_linearize,
    by_jacrev,
    by_jacfwd,
    by_grad_of_vmap,
    by_vmap_of_grad,
    by_vmap_of_jvp,
]
PAIRS = list(itertools.product(WAYS, WAYS))


def name(way: Any) -> str:
    return str(way.__name__)[3:]


@pytest.mark.rotating(4)
@pytest.mark.parametrize(("outer", "inner"), PAIRS, ids=lambda w: name(w))
def test_second_derivative_by_any_two_ways(outer: Any, inner: Any) -> None:
    assert_close(outer(inner(lambda x: weft.exp(x * x)))(double(0.5)), double(3 * 2 * math.exp(0.25) / 2))


@pytest.mark.rotating(4)
@pytest.mark.parametrize(("outer", "inner"), PAIRS, ids=lambda w: name(w))
def test_inner_derivative_is_not_confused_with_outer(outer: Any, inner: Any) -> None:
    # d/dx [x * d/dy (x + y) at y = x] is 1; an inner derivative that takes x for y gives 2
    assert_close(outer(lambda x: x * inner(lambda y: x + y)(x))(double(3.0)), double(1.0))
    # d/dx [x * d/dy (x * y) at y = 2] = d/dx x * x
    assert_close(outer(lambda x: x * inner(lambda y: x * y)(double(2.0)))(double(3.0)), double(6.0))
    # d/dx [d/dy (x * y * y) at y = x] = d/dx 2 x x
    assert_close(outer(lambda x: inner(lambda y: x * y * y)(x))(double(3.0)), double(12.0))
    # the inner function does not use its argument
    assert_close(outer(lambda x: x * inner(lambda y: x * x)(x))(double(3.0)), double(0.0))


@pytest.mark.rotating(4)
@pytest.mark.parametrize(
    "ways", list(itertools.product(WAYS, WAYS, WAYS))[::7], ids=lambda w: "-".join(map(name, w))
)
def test_third_derivative_by_any_three_ways(ways: Any) -> None:
    first, second, third = ways
    f = first(second(third(lambda x: x * x * x * x + weft.exp(2.0 * x))))
    assert_close(f(double(0.5)), double(24 * 0.5 + 8 * math.e), rtol=1e-10)


@pytest.mark.parametrize("inner", WAYS, ids=name)
def test_backward_differentiates_what_a_transform_gave(inner: Any) -> None:
    x = weft.tensor(np.float64(0.5), requires_grad=True)
    w = weft.tensor(np.float64(3.0), requires_grad=True)
    y = inner(lambda t: w * w * t * t * t)(x)  # 3 w² x²
    assert y.requires_grad
    y.backward()
    assert_close(x.grad, double(6 * 9 * 0.5))
    assert_close(w.grad, double(6 * 3 * 0.25))


@pytest.mark.parametrize("inner", WAYS, ids=name)
def test_result_is_outside_the_graph_if_nothing_there_can_be_differentiated(inner: Any) -> None:
    y = inner(lambda t: t * t * t)(double(0.5))
    assert not y.requires_grad
    assert y.is_leaf


@pytest.mark.parametrize("inner", WAYS, ids=name)
def test_under_no_grad_derivatives_work_and_results_are_constants(inner: Any) -> None:
    x = weft.tensor(np.float64(0.5), requires_grad=True)
    w = weft.tensor(np.float64(3.0), requires_grad=True)
    with weft.no_grad():
        y = inner(lambda t: w * t * t)(x)
    assert_close(y, double(3.0))
    assert not y.requires_grad


@pytest.mark.rotating(4)
@pytest.mark.parametrize(("outer", "inner"), PAIRS, ids=lambda w: name(w))
def test_no_grad_inside_makes_constants(outer: Any, inner: Any) -> None:
    def f(x: Any) -> Any:
        with weft.no_grad():
            slope = inner(lambda y: x * y * y)(x)  # 2 x², to the outer derivative a number
        return slope * x

    assert_close(outer(f)(double(3.0)), double(18.0))


@pytest.mark.parametrize("way", WAYS, ids=name)
def test_detach_makes_constants(way: Any) -> None:
    assert_close(way(lambda x: x.detach() * x)(double(3.0)), double(3.0))
    assert_close(way(way(lambda x: x.detach() * x * x))(double(3.0)), double(6.0))
    with pytest.raises(AssertionError):
        assert_close(way(lambda x: x * x)(double(3.0)), double(3.0))


@pytest.mark.parametrize("way", WAYS, ids=name)
def test_autograd_grad_inside_a_transform(way: Any) -> None:
    def slope(x: Any) -> Any:
        y = x * 1.0
        y.requires_grad_()
        return weft.autograd.grad(x * y * y, y, create_graph=True)[0]  # 2 x y

    assert_close(way(slope)(double(3.0)), double(12.0))


@pytest.mark.rotating(3)
@pytest.mark.parametrize(("outer", "inner"), [(o, i) for o in WAYS for i in WAYS[::3]], ids=lambda w: name(w))
def test_checkpoint_inside_and_outside_of_transforms(outer: Any, inner: Any) -> None:
    w = weft.tensor(np.float64(2.0), requires_grad=True)

    def f(x: Any) -> Any:
        return weft.checkpoint(lambda a: weft.tanh(a * w) * a, x)

    def plain(x: Any) -> Any:
        return weft.tanh(x * w) * x

    y = outer(inner(f))(double(0.5))
    expected = outer(inner(plain))(double(0.5))
    assert_close(y, expected)
    assert_close(weft.autograd.grad(y, w)[0], weft.autograd.grad(expected, w)[0])
    whole = weft.checkpoint(lambda x: outer(inner(plain))(x), double(0.5))
    assert_close(whole, expected)
    assert_close(weft.autograd.grad(whole, w)[0], weft.autograd.grad(outer(inner(plain))(double(0.5)), w)[0])


@pytest.mark.parametrize(
    "inside", [weft.vmap, lambda f: lambda x: weft.jvp(f, (x,), (x,))[1]], ids=["vmap", "jvp"]
)
def test_backward_inside_reaches_only_tensors_made_inside(inside: Any) -> None:
    w = weft.tensor(np.array([1.0, 2.0]), requires_grad=True)
    x = double([[1.0, 2.0], [3.0, 4.0]])

    def own(a: Any) -> Any:
        leaf = a.detach().requires_grad_()
        (leaf * leaf * w.detach()).sum().backward()
        return leaf.grad * a

    def other(a: Any) -> Any:
        (a * w).sum().backward()
        return a

    assert_close(inside(own)(x), 2 * x * w.detach() * x)
    with pytest.raises(weft.errors.GradientError, match="must not be added to a tensor from outside"):
        inside(other)(x)
    assert w.grad is None


# A little language of programs with derivatives in them, and its symbolic oracle.


@dataclass(frozen=True)
class Number:
    value: float


@dataclass(frozen=True)
class Variable:
    depth: int


@dataclass(frozen=True)
class Call:
    function: str  # add, mul, sin, exp, tanh
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Derivative:
    """d body / d variable, where the variable is the one of this depth, at a point."""

    depth: int
    body: Any
    point: Any
    way: int


def derive(e: Any, v: int) -> Any:
    """The symbolic derivative of an expression without derivatives in it."""
    match e:
        case Number():
            return Number(0.0)
        case Variable(depth):
            return Number(1.0 if depth == v else 0.0)
        case Call("add", (a, b)):
            return Call("add", (derive(a, v), derive(b, v)))
        case Call("mul", (a, b)):
            return Call("add", (Call("mul", (derive(a, v), b)), Call("mul", (a, derive(b, v)))))
        case Call("exp", (a,)):
            return Call("mul", (e, derive(a, v)))
        case Call("tanh", (a,)):
            slope = Call("add", (Number(1.0), Call("mul", (Number(-1.0), Call("mul", (e, e))))))
            return Call("mul", (slope, derive(a, v)))
    raise AssertionError(e)


def substitute(e: Any, v: int, value: Any) -> Any:
    match e:
        case Variable(depth):
            return value if depth == v else e
        case Call(function, arguments):
            return Call(function, tuple(substitute(a, v, value) for a in arguments))
    return e


def resolve(e: Any) -> Any:
    """The same expression with its derivatives carried out."""
    match e:
        case Call(function, arguments):
            return Call(function, tuple(resolve(a) for a in arguments))
        case Derivative(depth, body, point, _):
            return substitute(derive(resolve(body), depth), depth, resolve(point))
    return e


def evaluate(e: Any, values: dict[int, float]) -> float:
    match e:
        case Number(value):
            return value
        case Variable(depth):
            return values[depth]
        case Call("add", (a, b)):
            return evaluate(a, values) + evaluate(b, values)
        case Call("mul", (a, b)):
            return evaluate(a, values) * evaluate(b, values)
        case Call(function, (a,)):
            return float(getattr(math, function)(evaluate(a, values)))
    raise AssertionError(e)


def run(e: Any, values: dict[int, Any]) -> Any:
    """The expression on tensors, with transforms for the derivatives."""
    match e:
        case Number(value):
            return double(value)
        case Variable(depth):
            return values[depth]
        case Call("add", (a, b)):
            return run(a, values) + run(b, values)
        case Call("mul", (a, b)):
            return run(a, values) * run(b, values)
        case Call(function, (a,)):
            return getattr(weft, function)(run(a, values))
        case Derivative(depth, body, point, way):
            return WAYS[way](lambda x: run(body, {**values, depth: x}))(run(point, values))
    raise AssertionError(e)


def expressions(depth: int, nested: int) -> st.SearchStrategy[Any]:
    """Expressions of the variables below depth, with derivatives nested at most so deep."""
    atoms = st.builds(Variable, st.integers(0, depth - 1)) | st.builds(
        Number, st.sampled_from([-1.0, 0.5, 2.0])
    )

    def grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        calls = st.builds(Call, st.sampled_from(["add", "mul"]), st.tuples(inner, inner))
        calls |= st.builds(Call, st.just("tanh"), st.tuples(inner))
        if nested == 0:
            return calls
        body = expressions(depth + 1, nested - 1)
        ways = st.integers(0, len(WAYS) - 1)
        return calls | st.builds(Derivative, st.just(depth), body, inner, ways)

    return st.recursive(atoms, grow, max_leaves=4)


programs = st.builds(
    Derivative, st.just(1), expressions(2, 2), expressions(1, 0), st.integers(0, len(WAYS) - 1)
)


@examples(150, 50)
@given(programs)
def test_random_program_of_transforms_equals_its_symbolic_derivative(program: Any) -> None:
    expected = evaluate(resolve(program), {0: 0.75})
    actual = run(program, {0: double(0.75)})
    assert_close(actual, double(expected), rtol=1e-7, atol=1e-9)
    assert not actual.requires_grad


@examples(50, 16)
@given(programs)
def test_random_program_maps_over_a_batch(program: Any) -> None:
    points = [0.75, -0.5, 0.25]
    expected = [evaluate(resolve(program), {0: p}) for p in points]
    actual = weft.vmap(lambda x: run(program, {0: x}))(double(points))
    assert_close(actual, double(expected), rtol=1e-7, atol=1e-9)
    assert not actual.requires_grad


@examples(50, 16)
@given(programs)
def test_backward_goes_through_a_random_program(program: Any) -> None:
    slope = substitute(derive(resolve(program), 0), 0, Number(0.75))
    x = weft.tensor(np.float64(0.75), requires_grad=True)
    y = run(program, {0: x})
    gradient = (
        weft.autograd.grad(y, x, allow_unused=True, materialize_grads=True)[0] if y.requires_grad else 0.0
    )
    assert_close(gradient, evaluate(slope, {}), rtol=1e-7, atol=1e-9)

"""Mistakes, and what weft says of them: the class, the first line, the user's line, and nothing changed."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import (
    ArgumentError,
    AxisError,
    BoundsError,
    DeviceError,
    DomainError,
    DtypeError,
    GradientError,
    ShapeError,
    WeftError,
)


def tensors() -> SimpleNamespace:
    """Tensors to make mistakes with."""
    x = weft.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x.grad = weft.ones(3)
    return SimpleNamespace(
        scalar=weft.tensor(2.0),
        three=weft.tensor([1.0, 2.0, 3.0]),
        four=weft.tensor([1.0, 2.0, 3.0, 4.0]),
        wide=weft.ones((2, 3)),
        tall=weft.ones((4, 3)),
        square=weft.ones((3, 3)),
        empty=weft.ones((0, 3)),
        ints=weft.tensor([1, 2, 3]),
        small=weft.tensor([1, 2, 3], dtype=weft.int8),
        big=weft.tensor([1, 2], dtype=weft.uint64),
        mask=weft.tensor([True, False, True]),
        z=weft.tensor([1.0 + 2.0j]),
        x=x,
        y=x * x,
    )


Mistake = tuple[type[WeftError], str, Callable[[Any], Any]]

SHAPES: list[Mistake] = [
    (
        ShapeError,
        "add: shapes must broadcast together, got f32[3] and f32[4] (3 vs 4 on axis 0)",
        lambda t: t.three + t.four,
    ),
    (
        ShapeError,
        "mul: shapes must broadcast together, got f32[2,3] and f32[4] (3 vs 4 on axis 1)",
        lambda t: weft.mul(t.wide, t.four),
    ),
    (
        ShapeError,
        "less: shapes must broadcast together, got f32[3] and f32[4] (3 vs 4 on axis 0)",
        lambda t: t.three < t.four,
    ),
    (
        ShapeError,
        "matmul: inner dimensions must agree, got f32[2,3] and f32[4,3] (3 vs 4)",
        lambda t: t.wide @ t.tall,
    ),
    (
        ShapeError,
        "matmul: both sides must have at least one axis, got f32[2,3] and f32[]",
        lambda t: t.wide @ t.scalar,
    ),
    (
        ShapeError,
        "reshape: the number of elements must stay 3, got f32[3] to (2, 2)",
        lambda t: t.three.reshape(2, 2),
    ),
    (
        ShapeError,
        "reshape: at most one size may be -1, got (-1, -1)",
        lambda t: weft.reshape(t.three, (-1, -1)),
    ),
    (
        ShapeError,
        "broadcast_to: sizes must be equal or 1, got f32[3] to (2, 2)",
        lambda t: weft.broadcast_to(t.three, (2, 2)),
    ),
    (
        ShapeError,
        "concat: shapes must agree but on axis 1, got f32[2,3] and f32[3,3]",
        lambda t: weft.concat([t.wide, t.square], axis=1),
    ),
    (
        ShapeError,
        "stack: shapes must be equal, got f32[3] and f32[4]",
        lambda t: weft.stack([t.three, t.four]),
    ),
    (
        ShapeError,
        "where: shapes must broadcast together, got bool[3] and f32[3] and f32[4] (3 vs 4 on axis 0)",
        lambda t: weft.where(t.mask, t.three, t.four),
    ),
    (ShapeError, "squeeze: axis 0 must be of size 1, got f32[2,3]", lambda t: weft.squeeze(t.wide, axis=0)),
    (
        ShapeError,
        "split: sizes must add up to 3 along axis 0, got (1, 1)",
        lambda t: weft.split(t.three, [1, 1]),
    ),
    (
        ShapeError,
        "einsum: sizes of 'j' in 'ij,jk->ik' must agree, got 3 and 4",
        lambda t: weft.einsum("ij,jk->ik", t.wide, t.tall),
    ),
    (
        ShapeError,
        "max: there must be elements along the reduced axes, got f32[0,3]",
        lambda t: weft.max(t.empty),
    ),
    (ShapeError, "tril: the tensor must have at least two axes, got f32[3]", lambda t: weft.tril(t.three)),
    (ShapeError, "ones: sizes must not be negative, got (-1,)", lambda t: weft.ones((-1,))),
    (
        ShapeError,
        "tensor: lists must have equal lengths on axis 1, got 1 and 2",
        lambda t: weft.tensor([[1.0, 2.0], [3.0]]),
    ),
    (ShapeError, "cholesky: matrices must be square, got f32[2,3]", lambda t: weft.linalg.cholesky(t.wide)),
    (ShapeError, "item: the tensor must have one element, got f32[3]", lambda t: t.three.item()),
    (ShapeError, "bool: the truth of a tensor needs one element, got f32[3]", lambda t: bool(t.three)),
    (ShapeError, "float: the tensor must have one element, got f32[3]", lambda t: float(t.three)),
    (
        ShapeError,
        "setitem: values must broadcast to shape (3,), got f32[4]",
        lambda t: t.three.__setitem__(slice(None), t.four),
    ),
    (
        ShapeError,
        "add: the result must stay f32[3] in place, got f32[2,3]",
        lambda t: t.three.__iadd__(t.wide),
    ),
    (ShapeError, "grad: must be of type f32[3], got f32[4]", lambda t: setattr(t.x, "grad", t.four)),
    (ShapeError, "data: must be a tensor of type f32[3], got f32[4]", lambda t: setattr(t.x, "data", t.four)),
]

DTYPES: list[Mistake] = [
    (DtypeError, "bitwise_and: dtype must be bool or integer, got float32", lambda t: t.three & t.three),
    (DtypeError, "bitwise_invert: dtype must be bool or integer, got float32", lambda t: ~t.three),
    (DtypeError, "neg: dtype must be integer or floating or complex, got bool", lambda t: -t.mask),
    (DtypeError, "sub: dtype must be integer or floating or complex, got bool", lambda t: t.mask - t.mask),
    (DtypeError, "floor: dtype must be integer or floating, got complex64", lambda t: weft.floor(t.z)),
    (DtypeError, "less: dtype must be bool or integer or floating, got complex64", lambda t: t.z < t.z),
    (DtypeError, "add: dtypes must have a common dtype, got uint64 and int64", lambda t: t.big + t.ints[:2]),
    (DtypeError, "add: the number must fit in int8, got 300", lambda t: t.small + 300),
    (DtypeError, "add: the result must stay int64 in place, got float32", lambda t: t.ints.__iadd__(0.5)),
    (
        DtypeError,
        "setitem: float32 must be able to hold the value, got 'a'",
        lambda t: t.three.__setitem__(0, "a"),
    ),
    (DtypeError, "int: dtype must be real, got complex64", lambda t: int(t.z)),
    (DtypeError, "index: must be a 0-d integer tensor, got f32[]", lambda t: [1, 2, 3][t.scalar]),
    (
        DtypeError,
        "requires_grad_: dtype must be floating or complex to have a gradient, got int64",
        lambda t: t.ints.requires_grad_(),
    ),
    (
        DtypeError,
        "requires_grad_: dtype must be floating or complex to have a gradient, got bool",
        lambda t: setattr(t.mask, "requires_grad", True),
    ),
    (
        DtypeError,
        "requires_grad_: dtype must be floating or complex to have a gradient, got int64",
        lambda t: weft.tensor([1, 2], requires_grad=True),
    ),
    (
        DtypeError,
        "set_default_dtype: dtype must be floating, got int64",
        lambda t: weft.set_default_dtype(weft.int64),
    ),
]

AXES: list[Mistake] = [
    (AxisError, "sum: axis must be in -2..1 for rank 2, got 2", lambda t: weft.sum(t.wide, axis=2)),
    (AxisError, "sum: axis must be in -2..1 for rank 2, got -3", lambda t: t.wide.sum(axis=-3)),
    (AxisError, "sum: axes must be distinct, got (0, 0)", lambda t: weft.sum(t.wide, axis=(0, 0))),
    (AxisError, "sum: axis must be absent for rank 0, got 0", lambda t: weft.sum(t.scalar, axis=0)),
    (ArgumentError, "sum: axis must be an int, got 'rows'", lambda t: weft.sum(t.wide, axis="rows")),
    (AxisError, "mean: axis must be in -1..0 for rank 1, got 3", lambda t: weft.mean(t.three, axis=3)),
    (AxisError, "argmax: axis must be in -1..0 for rank 1, got 1", lambda t: weft.argmax(t.three, axis=1)),
    (
        AxisError,
        "cumulative_sum: axis must be in -2..1 for rank 2, got 5",
        lambda t: weft.cumulative_sum(t.wide, axis=5),
    ),
    (AxisError, "sort: axis must be in -2..1 for rank 2, got 2", lambda t: weft.sort(t.wide, axis=2)),
    (AxisError, "softmax: axis must be in -2..1 for rank 2, got 2", lambda t: weft.softmax(t.wide, axis=2)),
    (
        AxisError,
        "permute_dims: axes must name each of 2 axes once, got (0, 0)",
        lambda t: weft.permute_dims(t.wide, (0, 0)),
    ),
    (AxisError, "flip: axis must be in -2..1 for rank 2, got 4", lambda t: weft.flip(t.wide, axis=4)),
]

INDICES: list[Mistake] = [
    (BoundsError, "index: index must be in -3..2 for axis 0 of size 3, got 5", lambda t: t.three[5]),
    (BoundsError, "index: index must be in -3..2 for axis 1 of size 3, got -4", lambda t: t.wide[0, -4]),
    (
        BoundsError,
        "index: there must be at most 2 indices for shape (2, 3), got 3",
        lambda t: t.wide[0, 0, 0],
    ),
    (
        BoundsError,
        "index: index must be in -3..2 for axis 0 of size 3, got 9",
        lambda t: t.three[weft.tensor([0, 9])],
    ),
    (
        BoundsError,
        "index: a mask must have the shape (3,) of the axes it covers, got bool[2]",
        lambda t: t.three[weft.tensor([True, False])],
    ),
    (
        BoundsError,
        "index: index must be in -3..2 for axis 0 of size 3, got 7",
        lambda t: t.three.__setitem__(7, 1.0),
    ),
    (
        BoundsError,
        "take: index must be in -3..2 for axis 0 of size 3, got 7",
        lambda t: weft.take(t.three, weft.tensor([7])),
    ),
    (
        ArgumentError,
        "index: must be integers, slices, None, ... or integer or bool tensors, got 'a'",
        lambda t: t.three["a"],
    ),
    (
        ArgumentError,
        "index: must be integers, slices, None, ... or integer or bool tensors, got 1.5",
        lambda t: t.three[1.5],
    ),
    (ArgumentError, "index: there must be at most one ..., got more", lambda t: t.three[..., ...]),
    (DomainError, "index: the step of a slice must not be 0", lambda t: t.three[::0]),
]

ARGUMENTS: list[Mistake] = [
    (
        ArgumentError,
        "sum: axis= and dim= are one argument, got both",
        lambda t: weft.sum(t.three, dim=0, axis=0),
    ),
    (
        ArgumentError,
        "max: a call speaks one dialect, got dim= of PyTorch and keepdims= of the array API",
        lambda t: t.wide.max(dim=1, keepdims=True),
    ),
    (ArgumentError, "reshape: unknown keyword 'sise'", lambda t: weft.reshape(t.three, sise=(3,))),
    (ArgumentError, "ones: unknown keyword 'dtyp'", lambda t: weft.ones(3, dtyp=weft.float32)),
    (
        ArgumentError,
        "tensor: unknown keyword 'require_grad'",
        lambda t: weft.tensor([1.0], require_grad=True),
    ),
    (ArgumentError, "backward: unknown keyword 'retain'", lambda t: t.y.sum().backward(retain=True)),
    (
        ArgumentError,
        "grad: unknown keyword 'graph'",
        lambda t: weft.autograd.grad(t.y.sum(), t.x, graph=True),
    ),
    (ArgumentError, "matmul: missing 1 required positional argument: 'x2'", lambda t: weft.matmul(t.wide)),
    (ArgumentError, "mul: inputs must be tensors, got list", lambda t: [1.0, 2.0, 3.0] * t.three),
    (ArgumentError, "add: inputs must be tensors, got NoneType", lambda t: t.three + None),
    (ArgumentError, "exp: inputs must be tensors, got list", lambda t: weft.exp([1.0, 2.0])),
    (
        ArgumentError,
        "tensor: data must be numbers, (nested) lists or arrays, got str",
        lambda t: weft.tensor("abc"),
    ),
    (ArgumentError, "Tensor: tensors are not made by calling the class", lambda t: weft.Tensor([1.0])),
    (ArgumentError, "ones: shape must be an int or a tuple of ints, got 2.5", lambda t: weft.ones(2.5)),
    (ArgumentError, "len: a 0-d tensor has no length", lambda t: len(t.scalar)),
    (ArgumentError, "iter: a 0-d tensor cannot be iterated over", lambda t: list(t.scalar)),
    (ArgumentError, "format: a format applies to a 0-d tensor, got f32[3]", lambda t: f"{t.three:.2f}"),
    (DomainError, "arange: step must not be 0", lambda t: weft.arange(0, 5, 0)),
    (DomainError, "linspace: num must not be negative, got -1", lambda t: weft.linspace(0, 1, -1)),
    (
        DomainError,
        "inv: matrices must be invertible, got a singular one (f32[2,2])",
        lambda t: weft.linalg.inv(weft.zeros((2, 2))),
    ),
    (DeviceError, "device: must be cpu or cuda, got 'tpu'", lambda t: weft.ones(3, device="tpu")),
    (DeviceError, "device: the number must be one, as in cuda:0, got 'x'", lambda t: t.three.to("cuda:x")),
]

GRADIENTS: list[Mistake] = [
    (
        GradientError,
        "backward: a gradient must be given for a tensor of more than one element, got f32[3]",
        lambda t: t.y.backward(),
    ),
    (
        GradientError,
        "backward: the tensor must have a graph, got one that does not require grad",
        lambda t: t.three.sum().backward(),
    ),
    (
        GradientError,
        "backward: the tensor must have a graph, got one that does not require grad",
        lambda t: t.y.detach().sum().backward(),
    ),
    (
        GradientError,
        "backward: the tensor must have a graph, got one that does not require grad",
        lambda t: t.ints.sum().backward(),
    ),
    (
        GradientError,
        "backward: the tensor must have a graph, got one that does not require grad at 1",
        lambda t: weft.autograd.backward([t.y.sum(), t.scalar]),
    ),
    (ShapeError, "backward: the gradient must be of type f32[3], got f32[4]", lambda t: t.y.backward(t.four)),
    (
        DtypeError,
        "backward: the gradient must be of type f32[3], got c64[3]",
        lambda t: t.y.backward(weft.ones(3) * 1j),
    ),
    (ArgumentError, "backward: a gradient must be a tensor or None, got str", lambda t: t.y.backward("ones")),
    (ArgumentError, "backward: inputs must not be empty", lambda t: t.y.sum().backward(inputs=[])),
    (
        GradientError,
        "backward: every input must require grad, got input 0 that does not",
        lambda t: t.y.sum().backward(inputs=[t.three]),
    ),
    (
        GradientError,
        "requires_grad_: the tensor must be a leaf, got the result of an op",
        lambda t: t.y.requires_grad_(False),
    ),
    (
        GradientError,
        "add: a leaf that requires grad must not be changed in place while recording",
        lambda t: t.x.__iadd__(1.0),
    ),
    (
        GradientError,
        "setitem: a leaf that requires grad must not be changed in place while recording",
        lambda t: t.x.__setitem__(0, 1.0),
    ),
    (GradientError, "numpy: the tensor must not require grad, got one that does", lambda t: t.x.numpy()),
    (GradientError, "numpy: the tensor must not require grad, got one that does", lambda t: np.asarray(t.y)),
    (
        GradientError,
        "grad: every input must require grad, got input 1 that does not",
        lambda t: weft.autograd.grad(t.y.sum(), [t.x, t.three]),
    ),
    (
        GradientError,
        "grad: the outputs must depend on every input, got input 1 of type f32[3], which they do not use",
        lambda t: weft.autograd.grad((t.x * 1.0).sum(), [t.x, t.y]),
    ),
    (
        ArgumentError,
        "grad: outputs must be a tensor or a list of tensors, got float",
        lambda t: weft.autograd.grad(3.0, t.x),
    ),
    (
        ArgumentError,
        "grad: inputs must be tensors, got int at 1",
        lambda t: weft.autograd.grad(t.y.sum(), [t.x, 3]),
    ),
    (
        ArgumentError,
        "grad: there must be one gradient for each of 1 tensors, got 2 in grad_outputs",
        lambda t: weft.autograd.grad(t.y, t.x, [t.three, t.three]),
    ),
    (
        GradientError,
        "register_hook: the tensor must require grad, got one that does not",
        lambda t: t.three.register_hook(print),
    ),
    (ArgumentError, "register_hook: a hook must be callable, got int", lambda t: t.x.register_hook(3)),
    (
        GradientError,
        "retain_grad: the tensor must require grad, got one that does not",
        lambda t: t.three.retain_grad(),
    ),
    (ArgumentError, "grad: must be a tensor or None, got list", lambda t: setattr(t.x, "grad", [1.0])),
    (
        GradientError,
        "pickle: the tensor must be a leaf, got the result of an op",
        lambda t: pickle.dumps(t.y),
    ),
    (ArgumentError, "checkpoint: the function must be callable, got int", lambda t: weft.checkpoint(3)),
    (
        ArgumentError,
        "custom_op: the name must have a namespace, got 'scale'",
        lambda t: weft.custom_op("scale"),
    ),
    (
        GradientError,
        "grad: the function must return one real number, got f32[3]",
        lambda t: weft.grad(lambda x: x * x)(t.three),
    ),
    (
        ShapeError,
        "jvp: the tangent of argument 0 must be of type f32[3], got f32[4]",
        lambda t: weft.jvp(weft.exp, (t.three,), (t.four,)),
    ),
]

MISTAKES = SHAPES + DTYPES + AXES + INDICES + ARGUMENTS + GRADIENTS


def state(t: SimpleNamespace) -> list[Any]:
    """Everything one can see of the tensors."""
    return [
        (
            name,
            x.tolist(),
            x.shape,
            x.dtype,
            x.requires_grad,
            x.is_leaf,
            x.grad_fn,
            x.grad is None or x.grad.tolist(),
        )
        for name, x in vars(t).items()
    ]


def test_there_are_many_mistakes() -> None:
    assert len(MISTAKES) >= 60


@pytest.mark.parametrize(
    ("error", "first_line", "call"), MISTAKES, ids=[m[1].split(", got")[0] for m in MISTAKES]
)
def test_mistake_gets_its_error_and_changes_nothing(
    error: type[WeftError], first_line: str, call: Callable[[Any], Any]
) -> None:
    t = tensors()
    before = state(t)
    with pytest.raises(WeftError) as caught:
        call(t)
    assert type(caught.value) is error
    lines = str(caught.value).splitlines()
    assert lines[0] == first_line
    assert lines[1].startswith(f"  at test_errors.py:{call.__code__.co_firstlineno}: ")
    assert all(line.startswith(("  where ", "  hint: ")) for line in lines[2:])
    assert state(t) == before
    t.y.sum().backward()  # and nothing was freed
    assert t.x.grad.tolist() == [3.0, 5.0, 7.0]


BUILTINS = {
    ShapeError: ValueError,
    DtypeError: TypeError,
    AxisError: IndexError,
    BoundsError: IndexError,
    ArgumentError: TypeError,
    DomainError: ValueError,
    DeviceError: ValueError,
    GradientError: RuntimeError,
}


@pytest.mark.parametrize(("error", "builtin"), BUILTINS.items())
def test_errors_are_builtin_errors_too(error: type[WeftError], builtin: type[Exception]) -> None:
    assert issubclass(error, builtin)


def test_error_survives_pickling_with_all_it_says() -> None:
    with pytest.raises(ShapeError) as caught:
        weft.ones((2, 3)) @ weft.ones((4, 3))
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own bytes
    assert str(again) == str(caught.value)
    assert (again.op, again.hint, again.location) == (
        caught.value.op,
        caught.value.hint,
        caught.value.location,
    )


def test_line_of_the_innermost_caller_is_shown_not_that_of_weft() -> None:
    def model(x: Any) -> Any:
        return weft.vmap(lambda row: row + weft.ones(4))(x)  # this line

    with pytest.raises(ShapeError, match="this line"):
        model(weft.ones((2, 3)))

"""Mistakes in code that becomes a graph: wrong lines are marked, and what weft must say stands by them.

A row is a function with one mistake, its arguments, the class of the error, a text of its message that says
what must hold and what was got, the names of tensors that it must show, and a part of the hint.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import weft
from weft import nn
from weft.errors import (
    ArgumentError,
    AxisError,
    BoundsError,
    CaptureError,
    DomainError,
    DtypeError,
    ShapeError,
    WeftError,
)


class Mistake(NamedTuple):
    """One mistake, and what must be said of it."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    error: type[WeftError]
    says: str
    names: tuple[str, ...] = ()
    hint: str = ""
    skips: str = ""  # the way of running it in which it is no mistake


class Net(nn.Module):
    """A module with parameters, to make mistakes with."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(weft.ones((4, 3)))
        self.parts = nn.ModuleList([nn.Linear(3, 3)])


NET = Net()
WEIGHT = weft.ones((5, 5))


class Holder:
    """An object that is no module, with a tensor."""

    scale = 2.0

    def __init__(self) -> None:
        self.table = weft.ones((3, 2))


HOLDER = Holder()

f23, f43, f3, f4 = weft.ones((2, 3)), weft.ones((4, 3)), weft.ones(3), weft.ones(4)
i3, mask = weft.tensor([0, 1, 2]), weft.tensor([True, False, True])
square = weft.ones((3, 3))
image = weft.ones((1, 3, 8, 8))
index = weft.tensor([0, 7])


# What types tell


def add_shapes(x: Any, y: Any) -> Any:
    return x + y  # here


def matmul_shapes(x: Any, y: Any) -> Any:
    h = x * 2.0
    return h @ y  # here


def parameter(x: Any) -> Any:
    h = x * 2.0
    return h @ NET.w  # here


def closure(x: Any) -> Any:
    return x @ WEIGHT  # here


def attribute(x: Any) -> Any:
    return x + HOLDER.table  # here


def in_branch(x: Any, y: Any) -> Any:
    if x.sum() > 0:
        x = x * y  # here
    return x


def in_loop(x: Any, y: Any) -> Any:
    for _ in range(3):
        x = weft.maximum(x, y)  # here
    return x


def in_helper(x: Any, y: Any) -> Any:
    return _helper(x, y) * 2.0


def _helper(a: Any, b: Any) -> Any:
    return weft.concat([a, b], axis=1)  # here


def reshape(x: Any) -> Any:
    return x.reshape(4, 2)  # here


def reshape_twice_open(x: Any) -> Any:
    return weft.reshape(x, (-1, -1))  # here


def axis(x: Any) -> Any:
    return x.sum(axis=3)  # here


def axis_twice(x: Any) -> Any:
    return weft.mean(x, axis=(0, 0))  # here


def softmax_axis(x: Any) -> Any:
    return weft.softmax(x, axis=5)  # here


def transpose(x: Any) -> Any:
    return weft.permute_dims(x, (0, 2))  # here


def squeeze(x: Any) -> Any:
    return weft.squeeze(x, axis=0)  # here


def stack(x: Any, y: Any) -> Any:
    return weft.stack([x, y])  # here


def split(x: Any) -> Any:
    return weft.split(x, [1, 1])  # here


def broadcast(x: Any) -> Any:
    return weft.broadcast_to(x, (2, 2))  # here


def einsum(x: Any, y: Any) -> Any:
    return weft.einsum("ij,jk->ik", x, y)  # here


def where(p: Any, x: Any, y: Any) -> Any:
    return weft.where(p, x, y)  # here


def bits(x: Any) -> Any:
    return weft.bitwise_and(x, x)  # here


def index_of_float(x: Any, i: Any) -> Any:
    return x[i]  # here


def too_many_indices(x: Any) -> Any:
    return x[0, 0, 0]  # here


def known_index(x: Any) -> Any:
    return x[5]  # here


def keyword(x: Any) -> Any:
    return weft.sum(x, dmi=0)  # here


def missing(x: Any) -> Any:
    return weft.matmul(x)  # here


def not_a_tensor(x: Any) -> Any:
    return weft.tanh("x") + x  # here


def text_operand(x: Any) -> Any:
    return weft.add(x, "y")  # here


def dtype_name(x: Any) -> Any:
    return x.astype("float33")  # here


def conv_channels(x: Any, w: Any) -> Any:
    return weft.conv2d(x, w)  # here


def linear_sizes(x: Any) -> Any:
    return NET.parts[0](x)  # here


def loss_shapes(x: Any, y: Any) -> Any:
    return weft.mse_loss(x, y[0, :2])  # here


def class_dtype(x: Any, y: Any) -> Any:
    return weft.cross_entropy(x, y)  # here


def pool_window(x: Any) -> Any:
    return weft.max_pool2d(x, 9)  # here


def norm_shape(x: Any) -> Any:
    return weft.layer_norm(x, (4,))  # here


def not_square(x: Any) -> Any:
    return weft.linalg.inv(x)  # here


def cond_types(x: Any) -> Any:
    return weft.cond(x.sum() > 0, lambda v: v, lambda v: v[0], x)  # here


def cond_predicate(x: Any) -> Any:
    return weft.cond(x > 0, lambda v: v, lambda v: -v, x)  # here


def scan_carry(x: Any) -> Any:
    return weft.scan(lambda c, r: (weft.stack([c, c]), r), x[0], x)  # here


def while_carry(x: Any) -> Any:
    return weft.while_loop(lambda c: c.sum() < 9, lambda c: c.sum(), x)  # here


def arange_step(x: Any) -> Any:
    return x + weft.arange(0, 5, 0)  # here


def negative_size(x: Any) -> Any:
    return x + weft.ones((-1,))  # here


def device(x: Any) -> Any:
    return x + weft.ones(3, device="tpu")  # here


def take_axis(x: Any, i: Any) -> Any:
    return weft.take(x, i, axis=4)  # here


def pad_widths(x: Any) -> Any:
    return weft.pad(x, (1, 2, 3))  # here


def topk_many(x: Any) -> Any:
    return weft.topk(x, 9)  # here


def embedding_dtype(x: Any, w: Any) -> Any:
    return weft.embedding(x, w)  # here


TYPES = [
    Mistake(
        add_shapes,
        (f3, f4),
        ShapeError,
        "add: shapes must broadcast together, got f32[3] and f32[4]",
        ("x is f32[3]", "y is f32[4]"),
    ),
    Mistake(
        matmul_shapes,
        (f23, f43),
        ShapeError,
        "matmul: inner dimensions must agree, got f32[2,3] and f32[4,3]",
        ("h is f32[2,3]", "y is f32[4,3]"),
        "transposed",
    ),
    Mistake(
        parameter,
        (f23,),
        ShapeError,
        "matmul: inner dimensions must agree, got f32[2,3] and f32[4,3]",
        ("h is f32[2,3]", "NET.w is f32[4,3]"),
        "transposed",
    ),
    Mistake(
        closure,
        (f23,),
        ShapeError,
        "matmul: inner dimensions must agree",
        ("x is f32[2,3]", "WEIGHT is f32[5,5]"),
    ),
    Mistake(
        attribute,
        (f23,),
        ShapeError,
        "add: shapes must broadcast together",
        ("x is f32[2,3]", "HOLDER.table is f32[3,2]"),
    ),
    Mistake(
        in_branch,
        (f3, f4),
        ShapeError,
        "mul: shapes must broadcast together",
        ("x is f32[3]", "y is f32[4]"),
        skips="graph",
    ),
    Mistake(
        in_loop,
        (f3, f4),
        ShapeError,
        "maximum: shapes must broadcast together",
        ("x is f32[3]", "y is f32[4]"),
    ),
    Mistake(
        in_helper,
        (f23, square),
        ShapeError,
        "concat: shapes must agree but on axis 1, got f32[2,3] and f32[3,3]",
        ("a is f32[2,3]", "b is f32[3,3]"),
    ),
    Mistake(
        reshape,
        (f23,),
        ShapeError,
        "reshape: the number of elements must stay 6, got f32[2,3] to (4, 2)",
        ("x is f32[2,3]",),
    ),
    Mistake(
        reshape_twice_open,
        (f23,),
        ShapeError,
        "reshape: at most one size may be -1, got (-1, -1)",
        ("x is f32[2,3]",),
    ),
    Mistake(axis, (f23,), AxisError, "sum: axis must be in -2..1 for rank 2, got 3", ("x is f32[2,3]",)),
    Mistake(axis_twice, (f23,), AxisError, "mean: axes must be distinct, got (0, 0)", ("x is f32[2,3]",)),
    Mistake(
        softmax_axis,
        (f23,),
        AxisError,
        "softmax: axis must be in -2..1 for rank 2, got 5",
        ("x is f32[2,3]",),
    ),
    Mistake(transpose, (f23,), AxisError, "permute_dims: ", ("x is f32[2,3]",)),
    Mistake(
        squeeze, (f23,), ShapeError, "squeeze: axis 0 must be of size 1, got f32[2,3]", ("x is f32[2,3]",)
    ),
    Mistake(
        stack,
        (f3, f4),
        ShapeError,
        "stack: shapes must be equal, got f32[3] and f32[4]",
        ("x is f32[3]", "y is f32[4]"),
    ),
    Mistake(
        split, (f3,), ShapeError, "split: sizes must add up to 3 along axis 0, got (1, 1)", ("x is f32[3]",)
    ),
    Mistake(
        broadcast,
        (f3,),
        ShapeError,
        "broadcast_to: sizes must be equal or 1, got f32[3] to (2, 2)",
        ("x is f32[3]",),
    ),
    Mistake(
        einsum,
        (f23, f43),
        ShapeError,
        "einsum: sizes of 'j' in 'ij,jk->ik' must agree, got 3 and 4",
        ("x is f32[2,3]", "y is f32[4,3]"),
    ),
    Mistake(
        where,
        (mask, f3, f4),
        ShapeError,
        "where: shapes must broadcast together",
        ("p is bool[3]", "x is f32[3]", "y is f32[4]"),
    ),
    Mistake(
        bits, (f3,), DtypeError, "bitwise_and: dtype must be bool or integer, got float32", ("x is f32[3]",)
    ),
    Mistake(index_of_float, (f3, f3), WeftError, "index", ("x is f32[3]", "i is f32[3]")),
    Mistake(too_many_indices, (f23,), WeftError, "index", ("x is f32[2,3]",)),
    Mistake(
        known_index,
        (f3,),
        BoundsError,
        "index must be in -3..2 for axis 0 of size 3, got 5",
        ("x is f32[3]",),
    ),
    Mistake(
        keyword, (f3,), ArgumentError, "sum: unknown keyword 'dmi'", ("x is f32[3]",), "it takes x, axis"
    ),
    Mistake(
        missing, (f3,), ArgumentError, "matmul: missing 1 required positional argument", ("x is f32[3]",)
    ),
    Mistake(not_a_tensor, (f3,), ArgumentError, "tanh: inputs must be tensors, got str", ()),
    Mistake(text_operand, (f3,), ArgumentError, "add: inputs must be tensors, got str", ("x is f32[3]",)),
    Mistake(dtype_name, (f3,), WeftError, "float33", ("x is f32[3]",)),
    Mistake(
        conv_channels,
        (image, weft.ones((4, 2, 3, 3))),
        ShapeError,
        "conv2d: ",
        ("x is f32[1,3,8,8]", "w is f32[4,2,3,3]"),
    ),
    Mistake(linear_sizes, (f4,), ShapeError, "linear: ", ("x is f32[4]",)),
    Mistake(loss_shapes, (f3, f23), ShapeError, "mse_loss: ", ("x is f32[3]",)),
    Mistake(class_dtype, (f23, f43), WeftError, "cross_entropy: ", ("x is f32[2,3]", "y is f32[4,3]")),
    Mistake(pool_window, (image,), WeftError, "max_pool2d: ", ("x is f32[1,3,8,8]",)),
    Mistake(norm_shape, (f23,), ShapeError, "layer_norm: ", ("x is f32[2,3]",)),
    Mistake(not_square, (f23,), ShapeError, "inv: ", ("x is f32[2,3]",)),
    Mistake(
        cond_types,
        (f3,),
        CaptureError,
        "cond: the result must be f32[3] as from branch 0, got f32[] from branch 1",
        ("x is f32[3]",),
        "make both the same shape",
        skips="eager",
    ),
    Mistake(
        cond_predicate,
        (f3,),
        ShapeError,
        "cond: the predicate must be one bool, got bool[3]",
        ("x is f32[3]",),
        "compare it",
    ),
    Mistake(
        scan_carry,
        (f23,),
        CaptureError,
        "scan: carry must be f32[3], got f32[2,3] from the body",
        ("x is f32[2,3]",),
        "make both the same shape",
    ),
    Mistake(
        while_carry,
        (f3,),
        CaptureError,
        "while_loop: carry must be f32[3], got f32[] from the body",
        ("x is f32[3]",),
        "make both the same shape",
    ),
    Mistake(arange_step, (f3,), DomainError, "arange: step must not be 0", ()),
    Mistake(negative_size, (f3,), ShapeError, "ones: sizes must not be negative, got (-1,)", ()),
    Mistake(device, (f3,), WeftError, "device: must be cpu or cuda, got 'tpu'", ()),
    Mistake(
        take_axis,
        (f23, i3),
        AxisError,
        "take: axis must be in -2..1 for rank 2, got 4",
        ("x is f32[2,3]", "i is i64[3]"),
    ),
    Mistake(pad_widths, (f23,), WeftError, "pad: ", ("x is f32[2,3]",)),
    Mistake(topk_many, (f3,), WeftError, "topk: ", ("x is f32[3]",)),
    Mistake(embedding_dtype, (f3, f43), DtypeError, "embedding: ", ("x is f32[3]", "w is f32[4,3]")),
]

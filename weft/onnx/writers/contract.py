"""Writers of products that sum, of a little linear algebra; and what ONNX has no words for."""

from __future__ import annotations

from typing import Any

from weft.base.dtypes import bool_, float32, int32
from weft.base.sizes import is_known
from weft.onnx.writers.registry import cannot, composite_writer, emitted, enter_writers, writer
from weft.onnx.writers.view import padded, write_pad
from weft.onnx.writers.writer import Ref, Writer, is_float, same_dtype
from weft.ops.conv.layers import per_axis

Ints = tuple[Any, ...]
Padding = tuple[tuple[Any, Any], ...]


@writer("matmul")
def write_matmul(w: Writer, x: Ref, y: Ref) -> Any:
    """The matrix product; of bools whether any pair holds."""
    if x.dtype == bool_:
        return w.truth(w.emit("MatMul", w.cast(x, int32), w.cast(y, int32)))
    return w.emit("MatMul", x, y)


@writer("matmul_bytes")
def write_matmul_bytes(w: Writer, x: Ref, y: Ref) -> Any:
    """The product of bytes in int32."""
    return w.emit("MatMul", w.cast(x, int32), w.cast(y, int32))


@writer("matmul_halves")
def write_matmul_halves(w: Writer, x: Ref, y: Ref) -> Any:
    """The product of half precision in float32."""
    return w.emit("MatMul", w.cast(x, float32), w.cast(y, float32))


@writer("matmul_add")
def write_matmul_add(w: Writer, x: Ref, y: Ref, z: Ref) -> Any:
    """A product with something added; half precision is float32 until then."""
    if x.dtype.itemsize != 2 or not is_float(x):
        return w.emit("Add", w.emit("MatMul", x, y), z)
    return w.cast(w.emit("Add", write_matmul_halves(w, x, y), w.cast(z, float32)), x.dtype)


@composite_writer("matmul_vectors", "mm", "bmm", "mv")
def write_product(w: Writer, x1: Ref, x2: Ref) -> Any:
    """A product of vectors and matrices, with MatMul's meaning of axes."""
    return write_matmul(w, x1, x2) if x1.dtype == x2.dtype else None


@composite_writer("dot")
def write_dot(w: Writer, x1: Ref, x2: Ref) -> Any:
    """A product that means another one of stacks of matrices and of numbers, where it is written op by op."""
    return write_product(w, x1, x2) if x1.ndim and x2.ndim in (1, 2) else None


@composite_writer("linear")
def write_linear(w: Writer, x: Ref, weight: Ref, bias: Ref | None) -> Any:
    """x times the transposed weight, plus a bias: one operator for a batch of rows."""
    if not same_dtype(x, weight, bias) or not is_float(x) or weight.ndim != 2:
        return None
    if x.ndim == 2:
        return w.emit("Gemm", x, weight, *[b for b in (bias,) if b is not None], transB=1)
    out = w.emit("MatMul", x, w.emit("Transpose", weight, perm=(1, 0)))
    return out if bias is None else w.emit("Add", out, bias)


@composite_writer("einsum")
def write_einsum(w: Writer, equation: str, operands: tuple[Ref, ...]) -> Any:
    """A sum of products over named axes."""
    repeated = any(len(set(term)) < len(term) for term in equation.replace(".", "").split("->")[0].split(","))
    if not same_dtype(*operands) or repeated or not is_float(operands[0]) or "->" not in equation:
        return None
    return w.emit("Einsum", *operands, equation=equation.replace(" ", ""))


# Convolutions


@writer("conv_halves")
def write_conv_halves(w: Writer, x: Ref, weight: Ref, **given: Any) -> Any:
    """A convolution of half precision in float32."""
    return write_conv(w, w.cast(x, float32), w.cast(weight, float32), **given)


@writer("conv_add")
def write_conv_add(w: Writer, x: Ref, weight: Ref, z: Ref, **given: Any) -> Any:
    """A convolution with a bias; half precision is float32 until then."""
    half = x.dtype.itemsize == 2 and is_float(x)
    wide = [w.cast(v, float32) for v in (x, weight, z)] if half else [x, weight, z]
    bias = w.emit("Reshape", wide[2], w.ints((-1, *(1,) * (x.ndim - 2))))
    return w.cast(w.emit("Add", write_conv(w, *wide[:2], **given), bias), x.dtype)


@writer("conv")
def write_conv(
    w: Writer, x: Ref, weight: Ref, bias: Ref | None = None, *, padding: Padding, **given: Any
) -> Any:
    """A convolution; zeros between the elements of x, and borders that cut, are made before it."""
    stride, dilation, input_dilation, groups = (
        given[name] for name in ("stride", "dilation", "input_dilation", "groups")
    )
    if 0 in w.type.shape:  # the window does not fit, or there is nothing to fit it in
        return w.full(w.type.shape, 0, x.dtype)
    if x.ndim == 2:  # nothing to slide over: an axis of one element
        out = w.emit("Conv", w.unsqueeze(x, 2), w.unsqueeze(weight, 2), group=groups, kernel_shape=(1,))
        return w.emit("Squeeze", out, w.ints((2,)))
    lows, highs = ((0, 0, *[p[i] for p in padding]) for i in (0, 1))
    own = is_known((*lows, *highs)) and min((*lows, *highs)) >= 0
    if any(d != 1 for d in input_dilation):
        gaps = (0, 0, *[d - 1 for d in input_dilation])
        x = write_pad(w, x, low=(0,) * x.ndim, high=(0,) * x.ndim, interior=gaps, value=0)
    if not own:
        x = padded(w, x, lows, highs)
        lows = highs = (0,) * (2 + len(padding))
    inputs = (x, weight) if bias is None else (x, weight, bias)
    pads = (*lows[2:], *highs[2:])
    attrs: dict[str, Any] = {"strides": stride, "pads": pads, "dilations": dilation, "group": groups}
    taps = weight.shape[2:]
    return w.emit("Conv", *inputs, kernel_shape=taps if is_known(taps) else None, **attrs)


def _is_plain(x: Ref, weight: Ref, bias: Ref | None) -> bool:
    """Whether operands are as ONNX's operators take them."""
    same = same_dtype(x, weight, bias) and x.ndim == weight.ndim
    return same and is_float(x) and is_known(weight.shape)


@composite_writer("conv1d", "conv2d", "conv3d")
def write_convolution(w: Writer, x: Ref, weight: Ref, bias: Ref | None, **attrs: Any) -> Any:
    """A convolution with its bias; attributes are those that its body found."""
    assert w.node is not None
    inner = [node for node in w.node.op.body.nodes if node.op.name == "conv"]
    if len(inner) != 1 or not _is_plain(x, weight, bias):
        return None
    return write_conv(w, x, weight, bias, **inner[0].attrs)


@composite_writer("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def write_conv_transpose(
    w: Writer, x: Ref, weight: Ref, bias: Ref | None, groups: int, **settings: Any
) -> Any:
    """The transpose of a convolution."""
    if not _is_plain(x, weight, bias):
        return None
    names = {
        "stride": "strides",
        "padding": "pads",
        "output_padding": "output_padding",
        "dilation": "dilations",
    }
    attrs: dict[str, Any] = {
        own: per_axis("onnx.export", n, settings[n], x.ndim - 2, 0) for n, own in names.items()
    }
    attrs["pads"] = (*attrs["pads"], *attrs["pads"])
    inputs = (x, weight) if bias is None else (x, weight, bias)
    return w.emit("ConvTranspose", *inputs, kernel_shape=weight.shape[2:], group=groups, **attrs)


# What ONNX has no words for, with what to do instead

_RANDOM = "export model.eval(), or a function that takes the random numbers as an argument"
_LINALG = "compute it outside of the exported function, and pass the result in"
_FOURIER = "ONNX has no complex numbers; compute it outside of the exported function"

cannot(_RANDOM, "random_bits derive_key")
cannot(
    "export the function without its mesh, on whole tensors",
    "all_reduce all_reduce_max all_reduce_min all_gather reduce_scatter all_to_all permute_ranks broadcast "
    "copy_to_ranks axis_index shard take_shard take_shards gather_shards shards_here commit "
    "start_all_reduce wait_all_reduce start_reduce_scatter wait_reduce_scatter start_all_gather "
    "wait_all_gather next_stage send receive start_receive wait_receive",
)
cannot(
    "export weft.scaled_dot_product_attention, which is the same on whole tensors",
    "ring_attention ring_attention_vjp",
)
cannot(
    _LINALG,
    "solve solve_triangular inv cholesky lu ldl_factor ldl_unpack ldl_solve qr svd svdvals cofactors"
    " slogdet eigh eigvalsh eig eigvals pinv matrix_exp polygamma",
)
cannot(_FOURIER, "fft ifft rfft irfft complex real imag conj")
cannot(
    'a trace holds for one way through the code; use weft.jit.script, or weft.compile with capture="source"',
    "guard",
)
enter_writers({"det": emitted("Det")})


@writer("cross")
def write_cross(w: Writer, x: Ref, y: Ref, *, axis: int) -> Any:
    """The product of vectors of three elements: differences of products of turned ones."""

    def turned(v: Ref, *order: int) -> Any:
        return w.emit("Gather", v, w.ints(order), axis=axis)

    left = w.emit("Mul", turned(x, 1, 2, 0), turned(y, 2, 0, 1))
    return w.emit("Sub", left, w.emit("Mul", turned(x, 2, 0, 1), turned(y, 1, 2, 0)))


cannot(
    "it is made when a graph is lowered: export the graph as it was captured",
    "attention attention_gradient pack_panels matmul_panels",
)

"""How a convolution is computed on NumPy arrays: windows copied into a small buffer, then one matrix product.

The buffer is reused for one chunk of the work after another, so that it stays in the cache and memory
does not grow with the batch. An input dilated by zeros is split into dense convolutions, one for each
residue of the output position, so that no product with an inserted zero is ever computed.
"""

from __future__ import annotations

from itertools import product
from math import gcd, prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from weft.base.dtypes import bfloat16, float16, float32
from weft.base.size_bounds import positive
from weft.ops.op import Operand

Array = Any  # a NumPy array; its stubs do not know indices that are computed

Ints = tuple[int, ...]
Padding = tuple[tuple[int, int], ...]

_BUFFER_BYTES = 1 << 22
_POINTWISE_COLUMNS = 64  # below this many positions an example, batching examples beats a product for each


def output_size(
    size: int, kernel: int, stride: int, low: int, high: int, dilation: int, input_dilation: int
) -> int:
    """The number of window positions along one axis; 0 where the window does not fit."""
    padded = dilated_size(size, input_dilation) + low + high
    return positive((padded - dilated_size(kernel, dilation)) // stride + 1)  # type: ignore[no-any-return]


def dilated_size(size: int, dilation: int) -> int:
    """The length of ``size`` elements set ``dilation`` apart."""
    return size + positive(size - 1) * (dilation - 1)  # type: ignore[no-any-return]


def convolve(
    x: Array, w: Array, *, stride: Ints, padding: Padding, dilation: Ints, input_dilation: Ints, groups: int
) -> Array:
    """The convolution of x (N, C, *S) with w (O, C / groups, *K); see ``weft.ops.conv.primitive``."""
    if x.dtype in (float16, bfloat16):
        wide = convolve(
            x.astype(float32),
            w.astype(float32),
            stride=stride,
            padding=padding,
            dilation=dilation,
            input_dilation=input_dilation,
            groups=groups,
        )
        return wide.astype(x.dtype)
    sizes = zip(x.shape[2:], w.shape[2:], stride, padding, dilation, input_dilation, strict=True)
    positions = tuple(output_size(n, k, s, lo, hi, d, e) for n, k, s, (lo, hi), d, e in sizes)
    shape = (x.shape[0], w.shape[0], *positions)
    if x.size == 0 or w.size == 0 or 0 in shape:
        return np.zeros(shape, x.dtype)
    if prod(w.shape[2:]) > 1 and prod(stride) == 1 and _adds_less(x.shape, shape, input_dilation):
        return _by_adding(x, w, shape, padding, dilation, input_dilation, groups)
    if any(e > 1 for e in input_dilation):
        return _convolve_dilated(x, w, shape, stride, padding, dilation, input_dilation, groups)
    return _convolve_dense(x, w, shape, stride, padding, dilation, groups)


def _adds_less(inputs: Ints, outputs: Ints, input_dilation: Ints) -> bool:
    """Whether adding products up moves less memory than copying windows; an add costs about two copies."""
    return 2 * prod(outputs[:2]) * prod(inputs[2:]) * prod(input_dilation) <= prod(inputs[:2]) * prod(
        outputs[2:]
    )


def _convolve_dilated(
    x: Array,
    w: Array,
    shape: Ints,
    stride: Ints,
    padding: Padding,
    dilation: Ints,
    input_dilation: Ints,
    groups: int,
) -> Array:
    out = np.zeros(shape, x.dtype)
    axes = zip(x.shape[2:], w.shape[2:], shape[2:], stride, padding, dilation, input_dilation, strict=True)
    for phase in product(*[_phases(n, k, p, s, lo, d, e) for n, k, p, s, (lo, _), d, e in axes]):
        places, taps, strides, pads, dilations = zip(*phase, strict=True)
        part = out[(..., *places)]
        part[...] = _convolve_dense(x, w[(..., *taps)], part.shape, strides, pads, dilations, groups)
    return out


def _phases(size: int, kernel: int, positions: int, stride: int, low: int, dilation: int, spread: int) -> Any:
    """The dense convolutions that make up one along an axis whose elements are ``spread`` apart.

    Window position j meets tap k at j * stride + k * dilation - low, where there is an element only if
    that is a multiple of ``spread``. Positions of one residue share the taps for which it is. Gives for
    each residue: slice of positions, slice of taps, and stride, padding and dilation on the elements.
    """
    period, common = spread // gcd(stride, spread), gcd(dilation, spread)
    step = spread // common
    for residue in range(min(period, positions)):
        behind = low - residue * stride
        if behind % common:
            continue
        first = behind // common * pow(dilation // common, -1, step) % step
        taps = len(range(first, kernel, step))
        if taps == 0:
            continue
        count = len(range(residue, positions, period))
        before = (behind - first * dilation) // spread
        apart, hop = step * dilation // spread, stride // gcd(stride, spread)
        after = (count - 1) * hop + (taps - 1) * apart + 1 - size - before
        yield slice(residue, None, period), slice(first, None, step), hop, (before, after), apart


def _convolve_dense(
    x: Array, w: Array, shape: Ints, stride: Ints, padding: Padding, dilation: Ints, groups: int
) -> Array:
    positions, taps = shape[2:], w.shape[2:]
    x = pad_array(x, padding)
    grouped = x.reshape(x.shape[0], groups, -1, *x.shape[2:])
    kernel = w.reshape(groups, shape[1] // groups, *w.shape[1:])
    windows = window_view(grouped, taps, positions, stride, dilation)
    if prod(taps) == 1 and (prod(positions) >= _POINTWISE_COLUMNS or shape[0] == 1):
        columns = windows.reshape(*windows.shape[:3], prod(positions))
        return np.matmul(np.ascontiguousarray(kernel.reshape(kernel.shape[:3])), columns).reshape(shape)
    if prod(taps) > prod(positions):
        return _by_rows(windows, kernel, shape)
    return _by_columns(windows, kernel, shape)


def pad_array(x: Array, padding: Padding, value: Operand = 0) -> Array:
    """x with its last axes extended by a value, or cut where padding is negative."""
    if not any(lo or hi for lo, hi in padding):
        return x
    lead = x.ndim - len(padding)
    sizes = [n + lo + hi for n, (lo, hi) in zip(x.shape[lead:], padding, strict=True)]
    out: Array = np.full((*x.shape[:lead], *sizes), value, x.dtype)
    pairs = list(zip(x.shape[lead:], sizes, padding, strict=True))
    source = tuple(slice(max(0, -lo), max(0, n - max(0, -hi))) for n, _, (lo, hi) in pairs)
    target = tuple(slice(max(0, lo), max(0, m - max(0, hi))) for _, m, (lo, hi) in pairs)
    out[(..., *target)] = x[(..., *source)]
    return out


def window_view(x: Array, taps: Ints, positions: Ints, stride: Ints, dilation: Ints) -> Array:
    """A view (..., *positions, *taps) of the windows over the last axes of x."""
    lead = x.ndim - len(taps)
    inner = x.strides[lead:]
    strides = (
        *x.strides[:lead],
        *(b * s for b, s in zip(inner, stride, strict=True)),
        *(b * d for b, d in zip(inner, dilation, strict=True)),
    )
    return as_strided(x, (*x.shape[:lead], *positions, *taps), strides, writeable=False)


def _by_columns(windows: Array, kernel: Array, shape: Ints) -> Array:
    """One column for each position, chunk by chunk over examples and the first axis of positions."""
    n, rank = shape[0], len(shape) - 2
    groups, outputs = kernel.shape[:2]
    depth = prod(kernel.shape[2:])
    matrix = np.ascontiguousarray(kernel.reshape(groups, outputs, depth))
    windows = windows.transpose(1, 2, *range(3 + rank, 3 + 2 * rank), 0, *range(3, 3 + rank))
    examples, rows = _chunk_sizes(n, shape[2], groups * depth * prod(shape[3:]) * windows.itemsize)
    out = np.empty(shape, windows.dtype)
    grouped = out.reshape(n, groups, outputs, *shape[2:])
    buffer = np.empty((*windows.shape[: 2 + rank], examples, rows, *shape[3:]), windows.dtype)
    taps = (slice(None),) * (2 + rank)
    for i, j in product(range(0, n, examples), range(0, shape[2], rows)):
        part = windows[(*taps, slice(i, i + examples), slice(j, j + rows))]
        block = part.shape[2 + rank :]
        chunk = buffer[(*taps, slice(block[0]), slice(block[1]))]
        np.copyto(chunk, part)
        columns = chunk.reshape(groups, depth, prod(block))
        if examples == 1 and rows == shape[2]:
            np.matmul(matrix, columns, out=grouped[i].reshape(groups, outputs, prod(block)))
            continue
        found = np.matmul(matrix, columns).reshape(groups, outputs, *block)
        grouped[i : i + examples, :, :, j : j + rows] = found.transpose(2, 0, 1, *range(3, 3 + rank))
    return out


def _chunk_sizes(examples: int, rows: int, row_bytes: int) -> tuple[int, int]:
    """How many examples, and rows of each, fit into the buffer; rows of one example come first."""
    fitting = max(1, min(rows, _BUFFER_BYTES // row_bytes))
    if fitting < rows:
        return 1, fitting
    return max(1, min(examples, _BUFFER_BYTES // (row_bytes * rows))), rows


def _by_rows(windows: Array, kernel: Array, shape: Ints) -> Array:
    """One row for each position, chunk by chunk over examples and channels: for large windows."""
    n, rank = shape[0], len(shape) - 2
    groups, outputs, channels = kernel.shape[:3]
    taps, positions = prod(kernel.shape[3:]), prod(shape[2:])
    order = (1, 0, *range(3, 3 + rank), 2, *range(3 + rank, 3 + 2 * rank))
    windows = windows.transpose(order)
    one = groups * positions * taps * windows.itemsize
    examples = max(1, min(n, _BUFFER_BYTES // one))
    deep = max(1, min(channels, _BUFFER_BYTES // (one * examples)))
    out = np.zeros((groups, outputs, n, positions), windows.dtype)
    for c in range(0, channels, deep):
        matrix = kernel[:, :, c : c + deep].reshape(groups, outputs, -1)
        for i in range(0, n, examples):
            part = windows[(slice(None), slice(i, i + examples), *(slice(None),) * rank, slice(c, c + deep))]
            rows = part.reshape(groups, -1, matrix.shape[2])
            product_ = np.matmul(matrix, rows.transpose(0, 2, 1))
            out[:, :, i : i + examples] += product_.reshape(groups, outputs, -1, positions)
    return out.transpose(2, 0, 1, 3).reshape(shape)


def _by_adding(
    x: Array, w: Array, shape: Ints, padding: Padding, dilation: Ints, input_dilation: Ints, groups: int
) -> Array:
    """Products of all elements with all taps first, then added where they belong: for few outputs."""
    n, outputs, channels = x.shape[0], w.shape[0] // groups, w.shape[1]
    sizes, taps = x.shape[2:], w.shape[2:]
    x = x.reshape(n, groups, channels, prod(sizes))
    order = (0, *range(3, w.ndim + 1), 1, 2)
    matrix = w.reshape(groups, outputs, *w.shape[1:]).transpose(order).reshape(groups, -1, channels)
    spans = [dilated_size(s, e) for s, e in zip(sizes, input_dilation, strict=True)]
    reach = [(k - 1) * d for k, d in zip(taps, dilation, strict=True)]
    cut = tuple(
        (lo - r, p - (lo - r) - (s + r))
        for p, (lo, _), r, s in zip(shape[2:], padding, reach, spans, strict=True)
    )
    out = np.empty(shape, x.dtype)
    chunk = max(1, min(n, _BUFFER_BYTES // (matrix.size // channels * prod(sizes) * x.itemsize)))
    for i in range(0, n, chunk):
        products = np.matmul(matrix, x[i : i + chunk]).reshape(-1, groups, *taps, outputs, *sizes)
        sums = [s + r for s, r in zip(spans, reach, strict=True)]
        total: Array = np.zeros((len(products), groups, outputs, *sums), x.dtype)
        for tap in np.ndindex(taps):
            starts = [r - k * d for r, k, d in zip(reach, tap, dilation, strict=True)]
            place = tuple(slice(a, a + s, e) for a, s, e in zip(starts, spans, input_dilation, strict=True))
            total[(..., *place)] += products[(slice(None), slice(None), *tap)]
        out[i : i + chunk] = pad_array(total, cut).reshape(-1, *shape[1:])
    return out

"""Signals: Fourier transforms, the mel scale. The last axis holds real and imaginary parts."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.onnx.operators.registry import Call, operator

_FLOAT = 1  # ONNX's code of float32


def _as_complex(x: Tensor) -> Tensor:
    """Pairs as complex numbers; a single number is a real one."""
    return x[..., 0] if x.shape[-1] == 1 else weft.complex(x[..., 0], x[..., 1])


def _as_pairs(x: Tensor, dtype: Any) -> Any:
    return weft.stack([weft.real(x), weft.imag(x)], axis=-1).astype(dtype)


@operator("DFT")
def dft(
    call: Call, x: Tensor, length: Any = None, axis: Any = None, *, inverse: int = 0, onesided: int = 0
) -> Any:
    """A Fourier transform; its axis is an attribute up to version 19."""
    default = call.attribute("axis", 1) if call.version < 20 else -2
    along = (default if axis is None else call.scalar(axis, "axis")) % x.ndim
    count = None if length is None else call.scalar(length, "dft_length")
    wide = x.astype(weft.float32) if x.dtype.itemsize < 4 else x
    if inverse and onesided:
        return weft.fft.irfft(_as_complex(wide), n=count, axis=along)[..., None].astype(x.dtype)
    if onesided:
        return _as_pairs(weft.fft.rfft(wide[..., 0], n=count, axis=along), x.dtype)
    transform = weft.fft.ifft if inverse else weft.fft.fft
    return _as_pairs(transform(_as_complex(wide), n=count, axis=along), x.dtype)


@operator("STFT")
def stft(
    call: Call, x: Tensor, step: Tensor, window: Any = None, length: Any = None, *, onesided: int = 1
) -> Any:
    """The Fourier transforms (N, frames, frequencies, 2) of frames along a signal (N, L, 1 or 2)."""
    hop, size = call.scalar(step, "frame_step"), x.shape[1] if window is None else window.shape[0]
    size = size if length is None else call.scalar(length, "frame_length")
    frames = (x.shape[1] - size) // hop + 1
    places = weft.arange(frames)[:, None] * hop + weft.arange(size)
    parts = weft.take(x, places.reshape(-1), axis=1).reshape((x.shape[0], *places.shape, x.shape[2]))
    if window is not None:
        parts = parts * window[:, None]
    if onesided and x.shape[2] == 1:
        return _as_pairs(weft.fft.rfft(parts[..., 0], axis=2), x.dtype)
    return _as_pairs(weft.fft.fft(_as_complex(parts), axis=2), x.dtype)


@operator("MelWeightMatrix")
def mel_weight_matrix(
    call: Call, bins: Tensor, length: Tensor, rate: Tensor, lower: Tensor, upper: Tensor
) -> Tensor:
    """Triangles over the frequencies of a spectrum, of equal width on the mel scale: (frequencies, bins)."""
    count, size = call.scalar(bins, "num_mel_bins"), call.scalar(length, "dft_length")
    ends = [2595 * np.log10(1 + call.scalar(e, "an edge") / 700) for e in (lower, upper)]
    mels = ends[0] + np.arange(count + 2) * ((ends[1] - ends[0]) / (count + 2))
    hertz = 700 * (10 ** (mels / 2595) - 1)
    places = np.floor((size + 1) * hertz / call.scalar(rate, "sample_rate")).astype(np.int64)
    low, middle, high = places[:-2], places[1:-1], places[2:]
    row = np.arange(size // 2 + 1)[:, None]
    rising = np.where(middle == low, 1.0, (row - low) / np.maximum(middle - low, 1))
    falling = (high - row) / np.maximum(high - middle, 1)
    after = np.where((row > middle) & (row < high), falling, 0.0)
    out = np.where((row >= low) & (row <= middle), rising, after)
    return weft.asarray(out).astype(call.dtype(call.attribute("output_datatype", _FLOAT)))

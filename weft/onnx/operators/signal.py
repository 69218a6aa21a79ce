"""Signals: Fourier transforms, windows, the mel scale. The last axis holds real and imaginary parts."""

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


@operator("DFT", until=19)
def dft_17(call: Call, x: Tensor, length: Tensor | None = None) -> Any:
    """The discrete Fourier transform along an axis that an attribute tells."""
    return _dft(call, x, length, call.attribute("axis", 1))


@operator("DFT", since=20)
def dft(call: Call, x: Tensor, length: Tensor | None = None, axis: Tensor | None = None) -> Any:
    """The discrete Fourier transform along an axis, of a length to which x is cut or filled up."""
    return _dft(call, x, length, -2 if axis is None else call.scalar(axis, "axis"))


def _dft(call: Call, x: Tensor, length: Tensor | None, axis: int) -> Any:
    axis, dtype = axis % x.ndim, x.dtype
    count = None if length is None else call.scalar(length, "dft_length")
    wide = x.astype(weft.float32) if dtype.itemsize < 4 else x
    inverse, half = bool(call.attribute("inverse", 0)), bool(call.attribute("onesided", 0))
    given = _as_complex(wide)
    if inverse and half:
        return weft.fft.irfft(given, n=count, axis=axis)[..., None].astype(dtype)
    if half:
        return _as_pairs(weft.fft.rfft(wide[..., 0], n=count, axis=axis), dtype)
    transform = weft.fft.ifft if inverse else weft.fft.fft
    return _as_pairs(transform(given, n=count, axis=axis), dtype)


@operator("STFT")
def stft(
    call: Call, x: Tensor, step: Tensor, window: Tensor | None = None, length: Tensor | None = None
) -> Any:
    """The Fourier transforms (N, frames, frequencies, 2) of frames along a signal (N, L, 1 or 2)."""
    hop = call.scalar(step, "frame_step")
    size = x.shape[1]
    if length is not None:
        size = call.scalar(length, "frame_length")
    elif window is not None:
        size = window.shape[0]
    frames = (x.shape[1] - size) // hop + 1
    places = weft.arange(frames)[:, None] * hop + weft.arange(size)
    parts = weft.take(x, places.reshape(-1), axis=1).reshape((x.shape[0], *places.shape, x.shape[2]))
    if window is not None:
        parts = parts * window[:, None]
    if call.attribute("onesided", 1) and x.shape[2] == 1:
        return _as_pairs(weft.fft.rfft(parts[..., 0], axis=2), x.dtype)
    return _as_pairs(weft.fft.fft(_as_complex(parts), axis=2), x.dtype)


# Windows


def _window(call: Call, size: Tensor, weights: tuple[float, ...]) -> Any:
    """A sum of cosines of multiples of an angle that goes round once."""
    count = call.scalar(size, "size")
    around = count if call.attribute("periodic", 1) else count - 1
    angle = weft.arange(count, dtype=weft.float64) * (2 * np.pi) / around
    total = sum(w * weft.cos(angle * k) for k, w in enumerate(weights))
    return total.astype(call.dtype(call.attribute("output_datatype", _FLOAT)))  # type: ignore[union-attr]


@operator("HannWindow")
def hann_window(call: Call, size: Tensor) -> Any:
    """A raised cosine."""
    return _window(call, size, (0.5, -0.5))


@operator("HammingWindow")
def hamming_window(call: Call, size: Tensor) -> Any:
    """A raised cosine that does not go down to 0."""
    return _window(call, size, (25 / 46, -21 / 46))


@operator("BlackmanWindow")
def blackman_window(call: Call, size: Tensor) -> Any:
    """A sum of two cosines."""
    return _window(call, size, (0.42, -0.5, 0.08))


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
    out = np.where(
        (row >= low) & (row <= middle), rising, np.where((row > middle) & (row < high), falling, 0.0)
    )
    return weft.asarray(out).astype(call.dtype(call.attribute("output_datatype", _FLOAT)))

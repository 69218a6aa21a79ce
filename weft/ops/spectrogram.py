"""The short-time Fourier transform, and its inverse by overlapping windows."""

from __future__ import annotations

import numpy as np

from weft.base.dtypes import DType, int64, kind, real_dtype
from weft.base.size_bounds import positive, same_size, size_min, surely_less
from weft.base.sizes import is_known
from weft.errors import ArgumentError, DomainError, DtypeError, ShapeError
from weft.ops.batching import move_axis
from weft.ops.fft import fft, ifft, irfft, rfft
from weft.ops.index import scatter_add_nd
from weft.ops.index_axis import take
from weft.ops.op import Sample, Tensor, composite, type_of
from weft.ops.samples import complex_array, real_array
from weft.ops.select import same_dtype, select
from weft.ops.size import count_to, filled
from weft.ops.view.padding import pad
from weft.ops.view.primitives import permute, reshape
from weft.ops.view.slices import pad_axes, slice_axis
from weft.ops.windows import overlap_add, window_attrs, windows


def _settings(op: str, n_fft: int, hop: int | None, length: int | None) -> tuple[int, int]:
    if hop is None and not is_known((n_fft,)):
        raise ShapeError(op, f"hop_length must be given where n_fft is open, got n_fft = {n_fft}")
    hop, length = n_fft // 4 if hop is None else hop, n_fft if length is None else length
    if surely_less(n_fft, 1) or hop < 1 or not (same_size(length, n_fft) or 0 < length <= n_fft):
        got = f"{n_fft}, {hop} and {length}"
        raise DomainError(op, f"n_fft and hop_length must be positive, win_length in 1..n_fft, got {got}")
    return hop, length


def _window(op: str, window: Tensor | None, n_fft: int, length: int, dtype: DType) -> Tensor:
    """The window in the middle of ``n_fft`` places."""
    if window is None:
        window = filled((length,), 1, dtype)
    assert window is not None
    if window.shape != (length,):
        raise ShapeError(op, f"the window must have win_length = {length} elements, got {type_of(window)}")
    left = (n_fft - length) // 2
    return pad_axes(window, low=(left,), high=(n_fft - length - left,), interior=(0,), value=0)


def _samples() -> list[Sample]:
    x, window = real_array((2, 50)), np.hanning(9)[:8]
    return [
        Sample((x, window), {"n_fft": 8}),
        Sample((x[0], window), {"n_fft": 10, "hop_length": 3, "win_length": 8, "normalized": True}),
        Sample((x, window), {"n_fft": 8, "center": False, "onesided": False}),
        Sample((complex_array((30,)), window), {"n_fft": 8}),
    ]


@composite(
    samples=_samples,
    sampled=lambda x, window, n_fft, **rest: stft(x, n_fft, window=window, **rest),  # type: ignore[has-type]
)
def stft(
    x: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool = True,
) -> Tensor:
    """The Fourier transforms of pieces of signals (..., T), complex: (..., frequencies, frames).

    Args:
        x: signals, real or complex.
        n_fft: length of each transform.
        hop_length: from one window to the next, ``n_fft // 4`` by default.
        win_length: length of the window, ``n_fft`` by default; it stands in the middle.
        window: what each piece is multiplied with, ones by default.
        center: whether frame t is centred at ``t * hop_length``: x is then padded on both sides.
        pad_mode: how, see ``weft.pad``.
        normalized: whether to divide by ``sqrt(n_fft)``.
        onesided: whether to leave out the frequencies that mirror others, by default for real signals.
        return_complex: must be True; ``weft.view_as_real`` gives pairs of real numbers.

    >>> import weft
    >>> weft.stft(weft.ones(16), 8, window=weft.hann_window(8)).shape
    (5, 9)
    """
    if kind(x.dtype) not in "fc" or x.ndim < 1:
        raise DtypeError("stft", f"signals must be floating or complex, got {type_of(x)}")
    if not return_complex:
        hint = "weft.view_as_real(weft.stft(...)) gives pairs of real numbers"
        raise ArgumentError("stft", "return_complex must be True, got False", hint=hint)
    is_real = kind(x.dtype) == "f"
    onesided = is_real if onesided is None else onesided
    if onesided and not is_real:
        raise ArgumentError("stft", "onesided must be False for complex signals, got True")
    hop, length = _settings("stft", n_fft, hop_length, win_length)
    taper = _window("stft", window, n_fft, length, real_dtype(x.dtype))
    if center:
        x = pad(x, [(0, 0)] * (x.ndim - 1) + [(n_fft // 2, n_fft // 2)], pad_mode)
    frames = _frames(x, n_fft, hop)
    frames, taper = same_dtype("stft", frames, taper)
    out = (rfft if onesided else fft)(frames * taper, axis=-1, norm="ortho" if normalized else "backward")
    return move_axis(out, out.ndim - 1, out.ndim - 2)


def _frames(x: Tensor, n_fft: int, hop: int) -> Tensor:
    """The pieces of signals (..., T) that windows see: (..., frames, n_fft)."""
    if x.shape[-1] < n_fft:
        raise ShapeError("stft", f"signals must be at least n_fft = {n_fft} long, got {type_of(x)}")
    lead = x.shape[:-1]
    if not is_known((n_fft,)):
        return take(x, _places((x.shape[-1] - n_fft) // hop + 1, n_fft, hop), axis=-1)
    view = windows(x, **window_attrs((n_fft,), (hop,), ((0, 0),), (1,)))
    return reshape(view, shape=(*lead, *view.shape[len(lead) :]))


def _places(count: int, n_fft: int, hop: int) -> Tensor:
    """Where the elements of so many windows are: (frames, n_fft)."""
    places: Tensor = reshape(count_to(count, int64) * hop, shape=(count, 1)) + count_to(n_fft, int64)
    return places


def _inverse_samples() -> list[Sample]:
    window = np.hanning(9)[:8]
    return [
        Sample((complex_array((2, 5, 9)), window), {"n_fft": 8, "hop_length": 2}),
        Sample(
            (complex_array((5, 9)), window), {"n_fft": 8, "hop_length": 2, "length": 13, "normalized": True}
        ),
        Sample((complex_array((8, 9)), window), {"n_fft": 8, "onesided": False, "return_complex": True}),
    ]


@composite(
    samples=_inverse_samples,
    sampled=lambda x, window, n_fft, **rest: istft(x, n_fft, window=window, **rest),  # type: ignore[has-type]
)
def istft(
    x: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """Signals from their short-time Fourier transforms (..., frequencies, frames): the least squares fit.

    The arguments are those of ``stft``; ``length`` is that of the signals, and ``return_complex`` says that
    they are complex.

    >>> import weft
    >>> x, window = weft.arange(16).float(), weft.hann_window(8)
    >>> weft.allclose(weft.istft(weft.stft(x, 8, window=window), 8, window=window), x, atol=1e-5)
    tensor(True)
    """
    if kind(x.dtype) != "c" or x.ndim < 2:
        raise DtypeError("istft", f"transforms must be complex (..., frequencies, frames), got {type_of(x)}")
    if onesided is None:
        # An open n_fft may be 2, of which both have 2 frequencies: their real signals are the same.
        onesided = bool(x.shape[-2] - n_fft) if return_complex else not same_size(x.shape[-2], n_fft)
    if x.shape[-2] != (n_fft // 2 + 1 if onesided else n_fft):
        raise ShapeError("istft", f"frequencies must be those of n_fft = {n_fft}, got {type_of(x)}")
    hop, size = _settings("istft", n_fft, hop_length, win_length)
    taper = _window("istft", window, n_fft, size, real_dtype(x.dtype))
    frames = permute(x, axes=(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))
    norm = "ortho" if normalized else "backward"
    pieces = irfft(frames, n=n_fft, axis=-1, norm=norm) if onesided else ifft(frames, axis=-1, norm=norm)
    pieces = pieces if return_complex or kind(pieces.dtype) == "f" else pieces.real
    return _overlapped(pieces, taper, n_fft, hop, center, length)


def _overlapped(
    pieces: Tensor, taper: Tensor, n_fft: int, hop: int, center: bool, length: int | None
) -> Tensor:
    """Pieces (..., frames, n_fft) added where they lie, divided by the sum of squared windows there."""
    count = pieces.shape[-2]
    total = n_fft + hop * (count - 1)
    squares = reshape(taper * taper, shape=(1, n_fft)) * filled((count, 1), 1, taper.dtype)
    whole, weights = (_added(t, total, n_fft, hop) for t in (pieces * taper, squares))
    first = n_fft // 2 if center else 0
    stop = total - first if length is None else size_min(first + length, total)
    whole, weights = (slice_axis(t, t.ndim - 1, first, stop) for t in (whole, weights))
    out = whole / select(weights > _LEAST, weights, np.ones((), weights.dtype))
    if length is None:
        return out
    missing = positive(length - (stop - first))
    none = (0,) * (out.ndim - 1)
    return pad_axes(out, low=(*none, 0), high=(*none, missing), interior=(*none, 0), value=0)


def _added(pieces: Tensor, total: int, n_fft: int, hop: int) -> Tensor:
    """Pieces (..., frames, n_fft) added up where they lie."""
    if is_known((n_fft,)):
        return overlap_add(pieces, sizes=(total,), **window_attrs((n_fft,), (hop,), ((0, 0),), (1,)))
    rest = pieces.ndim - 2
    front = permute(pieces, axes=(rest, rest + 1, *range(rest)))
    target = filled((total, *pieces.shape[:-2]), 0, pieces.dtype)
    return move_axis(scatter_add_nd(target, front, _places(pieces.shape[-2], n_fft, hop)), 0, rest)


_LEAST = 1e-11  # a sum of squared windows below this tells nothing

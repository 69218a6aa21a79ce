"""Transforms, windows, ranges and one-hot vectors whose lengths are open sizes: one file for all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ShapeError, WeftError

rng = np.random.default_rng(7)
F, C = weft.float32, weft.complex64


def floats(*shape: int) -> Any:
    return weft.tensor(rng.normal(size=shape).astype(np.float32))


def spectra(*lengths: int, **settings: Any) -> list[Any]:
    return [weft.stft(floats(8 * n), n, hop_length=2, **settings) for n in lengths]


ROWS: dict[str, Callable[[Any], Any]] = {
    "hann": lambda x: weft.hann_window(x.shape[0])[:, None] * x,
    "hamming to the end": lambda x: weft.hamming_window(x.shape[0], periodic=False)[:, None] * x,
    "blackman": lambda x: weft.blackman_window(x.shape[0])[:, None] * x,
    "bartlett": lambda x: weft.bartlett_window(x.shape[0], periodic=False)[:, None] * x,
    "linspace": lambda x: weft.linspace(-1.0, 3.0, x.shape[0])[:, None] * x,
    "linspace without its end": lambda x: weft.linspace(-1, 3, x.shape[0], endpoint=False)[:, None] * x,
    "linspace of integers": lambda x: weft.linspace(0, 10, x.shape[0], dtype=weft.int32),
    "linspace of far ends": lambda x: weft.linspace(-1e308, 1e308, x.shape[0], dtype=weft.float64),
    "logspace": lambda x: weft.logspace(0, 1, x.shape[0]),
    "one_hot": lambda x: weft.one_hot(weft.argmax(x, axis=1), x.shape[0]),
    "rfft": lambda x: weft.abs(weft.fft.rfft(x, n=2 * x.shape[0], axis=0)),
    "irfft": lambda x: weft.fft.irfft(x.astype(C), axis=0),
    "irfftn": lambda x: weft.fft.irfftn(weft.fft.rfftn(x), s=(x.shape[0], 3)),
}


def assert_file_gives(f: Any, types: tuple[Any, ...], path: Path, calls: list[tuple[Any, ...]]) -> None:
    weft.compile(f).save(path / "f.weft", *types)
    loaded = weft.load_graph(path / "f.weft")
    for args in calls:
        try:
            wanted = f(*args)
        except WeftError:
            with pytest.raises(WeftError):
                loaded(*args)
            continue
        found = loaded(*args)
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", ROWS)
def test_a_length_may_be_an_open_size(name: str, tmp_path: Path) -> None:
    calls = [(floats(n, 3),) for n in (4, 1, 2, 7, 0)]
    assert_file_gives(ROWS[name], (weft.TensorType(("n", 3), F),), tmp_path, calls)


def _length(s: Any) -> Any:
    return 2 * (s.shape[-2] - 1)


INVERSES: dict[str, Callable[[Any], Any]] = {
    "plain": lambda s: weft.istft(s, _length(s), hop_length=2, onesided=True),
    "window": lambda s: weft.istft(
        s, _length(s), hop_length=2, onesided=True, window=weft.hann_window(_length(s))
    ),
    "signals": lambda s: weft.istft(weft.stack([s, s * 2]), _length(s), hop_length=2, onesided=True),
    "length": lambda s: weft.istft(s, _length(s), hop_length=2, onesided=True, length=40),
    "from the edge": lambda s: weft.istft(s, _length(s), hop_length=2, onesided=True, center=False),
    "of real signals": lambda s: weft.istft(s, _length(s), hop_length=2),
    "gradient": weft.grad(lambda s: weft.exp(weft.istft(s, _length(s), hop_length=2, onesided=True)).sum()),
}


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", INVERSES)
def test_the_number_of_frequencies_may_be_open(name: str, tmp_path: Path) -> None:
    calls = [(s,) for s in spectra(8, 16, 10, 4, 2)]
    assert_file_gives(INVERSES[name], (weft.TensorType(("f", "t"), C),), tmp_path, calls)


def test_all_frequencies_may_be_an_open_number(tmp_path: Path) -> None:
    calls = [(s,) for s in spectra(8, 5, 12, onesided=False)]
    types = (weft.TensorType(("f", "t"), C),)
    assert_file_gives(lambda s: weft.istft(s, s.shape[0], hop_length=2), types, tmp_path, calls)


def test_the_length_of_transforms_may_be_open(tmp_path: Path) -> None:
    types = (weft.TensorType(("n",), F), weft.TensorType(("k",), F))
    calls = [(floats(60), floats(k)) for k in (3, 5, 8)]
    f = lambda x, k: weft.abs(weft.stft(x, 2 * k.shape[0], hop_length=3))  # noqa: E731
    assert_file_gives(f, types, tmp_path, calls)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"onesided": True}, "hop_length must be given"),
        ({"hop_length": 2, "return_complex": True}, "must be known"),
    ],
    ids=str,
)
def test_what_open_frequencies_leave_untold_is_asked_for(settings: Any, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        weft.make_graph(lambda s: weft.istft(s, _length(s), **settings))(weft.TensorType(("f", "t"), C))

"""Programs for devices on disk: what was kept runs as what was built, and nothing else is believed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.standin import standing_in
from tests.backends.cuda.test_together import EmulatedDriver
from weft.backends.cuda import stored
from weft.backends.cuda.build import build_program
from weft.backends.cuda.compiling import compile_for_device
from weft.backends.cuda.eager import set_build
from weft.backends.llvm.cache import default_cache, set_cache_directory

TABLE = weft.arange(12.0).reshape(4, 3)


def looped(x: Any) -> Any:
    for row in x:
        while (x > 1.0).any():
            x = x * 0.5
        x = x + row.sum()
    return x


def picked(x: Any, rows: Any) -> Any:
    return TABLE.to(x.device)[rows] + x


FUNCTIONS: list[Any] = [
    (lambda x: weft.softmax(weft.tanh(x) * 2.0, axis=1), 1),
    (lambda x: x @ weft.ones(4, 2) + weft.arange(2.0), 1),
    (looped, 1),
    (lambda x: weft.grad(lambda s: (weft.sin(s) * s).sum())(x), 1),
]


def inputs(count: int) -> list[Any]:
    return [weft.rand(3, 4, generator=weft.Generator().manual_seed(i)) for i in range(count)]


@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
def test_program_is_the_same_from_disk(number: int) -> None:
    function, count = FUNCTIONS[number]
    compiled = weft.compile(function)
    compiled(*inputs(count))
    program = build_program(compiled.graph.optimize())
    data = stored._written(program)
    assert data is not None
    again = stored._read(data, lambda: program)
    assert again is not None
    assert str(again) == str(program)
    assert (again.steps, again.ptx, again.kernels) == (program.steps, program.ptx, program.kernels)
    for ours, theirs in zip(again.constants, program.constants, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for cut in (0, 7, 20, len(data) // 2):
        assert stored._read(data[:cut], lambda: program) is None


def run_once(directory: Path, function: Any, *tensors: Any) -> tuple[Any, int]:
    """What a process of its own would do: nothing is known but what is on disk. Also how many were built."""
    built = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        built.append(args)
        return build_program(*args, **kwargs)

    with standing_in(EmulatedDriver()) as card, pytest.MonkeyPatch.context() as patch:
        set_build(compile_for_device)
        set_cache_directory(directory)
        patch.setattr("weft.backends.cuda.build.build_program", counted)
        try:
            found = weft.compile(function)(*[t.cuda() for t in tensors]).cpu().numpy()
        finally:
            count = len(built)
        assert not card.errors
    return found, count


def test_second_process_builds_nothing(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o700)
    (x,) = inputs(1)
    function = FUNCTIONS[0][0]
    for expected in (1, 0):
        found, count = run_once(tmp_path, function, x)
        np.testing.assert_allclose(found, function(x).numpy(), rtol=2e-5)
        assert count == expected
    _, count = run_once(tmp_path, lambda x: weft.softmax(weft.tanh(x) * 3.0, axis=1), x)
    assert count == 1  # another number is another program
    for file in tmp_path.iterdir():
        file.chmod(0o666)  # others may have written it
    found, count = run_once(tmp_path, function, x)
    np.testing.assert_allclose(found, function(x).numpy(), rtol=2e-5)
    assert count == 1


def test_failure_of_a_program_from_disk_names_the_line(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o700)
    x, bad = weft.ones(2, 3), weft.tensor([1, 9])
    for expected in (1, 1):  # the second one is built for what the error says alone
        with pytest.raises(weft.errors.BoundsError) as found:
            run_once(tmp_path, picked, x, bad)
        assert "TABLE.to(x.device)[rows]" in str(found.value)
        assert expected


def declared(factor: float) -> Any:
    @weft.custom_op("stored::scale", partials=(factor,), scalar=lambda e, x: e.mul(x, factor), replace=True)
    def scale(x: Any) -> Any:
        return x * factor

    return scale


def test_ops_of_users_are_not_kept(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o700)
    for factor in (2.0, 3.0):
        scale = declared(factor)
        try:
            found, count = run_once(tmp_path, lambda x, scale=scale: scale(x) + 1.0, weft.ones(3))
        finally:
            weft.remove_custom_op("stored::scale")
        assert count == 1
        np.testing.assert_allclose(found, np.full(3, factor + 1.0))


def key_of(function: Any) -> Any:
    return stored._key(weft.make_graph(function)(weft.ones(4, 4)).optimize(), "sm_90")


def test_keys_tell_constants_apart_by_their_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_cache(), "directory", str(tmp_path))
    arrays = [
        np.broadcast_to(np.float32(1.0), (4, 4)),
        np.broadcast_to(np.float32(2.0), (4, 4)),
        np.broadcast_to(np.float32(-0.0), (4, 4)),
        np.broadcast_to(np.float32(0.0), (4, 4)),
        np.broadcast_to(np.float64(0.0), (4, 4)),
        np.broadcast_to(np.float32(0.0), (1, 4)),
        np.broadcast_to(np.arange(4, dtype=np.float32), (4, 4)),
        np.arange(16, dtype=np.float32).reshape(4, 4),
        np.arange(16, dtype=np.float32).reshape(4, 4).T,
    ]
    assert len({stored._named(a) for a in arrays}) == len(arrays)
    turned = np.arange(16, dtype=np.float32).reshape(4, 4).T
    assert stored._named(turned) == stored._named(turned.copy())
    keys = [key_of(lambda x, a=a: x.matmul(weft.tensor(np.asarray(a)))) for a in arrays[:2]]
    assert keys[0] != keys[1]
    assert None not in keys

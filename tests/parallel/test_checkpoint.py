"""Checkpoints on meshes: global tensors in slices, read by any number of ranks; the old one stays valid."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
import weft.io.layout
import weft.io.slices
from tests.parallel.launching import environment
from tests.parallel.saving import Run
from weft import parallel as par
from weft.base.ranks import Meeting
from weft.errors import FileError, ParallelError
from weft.parallel.threads import _Left, _Table


def write(path: Path, number: float = 1.0, ranks: int = 2) -> None:
    """A checkpoint of tensors that all hold a number."""

    def program() -> None:
        par.mesh(data=-1)
        x = par.place(weft.full((5, 4), number, requires_grad=True), par.P("data"))
        weft.save({"x": x, "again": x, "w": weft.full((2,), number), "step": 3}, path)

    par.simulate(program, ranks)


@pytest.mark.rotating(2)
def test_run_goes_on_with_the_same_bits_on_another_number_of_ranks(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"

    def first() -> tuple[bytes, list[float]]:
        run = Run(3, par.mesh(data=-1))
        run.train(0, 2)
        weft.save(run.state(), path)
        losses = run.train(2, 4)
        return run.bytes(), losses

    def second(placed: bool, zero: int) -> Any:
        mesh = par.mesh(data=-1)
        run = Run(zero, mesh)
        run.go_on(par.load(path) if placed else weft.load(path))
        losses = run.train(2, 4)
        return (run.bytes(), losses), par.held_bytes(run.model.parameters())

    expected = par.simulate(first, 2)[0]
    found = [*par.simulate(second, 4, True, 3), *par.simulate(second, 1, False, 0)]
    assert all(result == expected for result, _ in found)
    assert [held for _, held in found] == [84, 84, 84, 84, 332]  # the bias of 3 is padded


def test_one_process_reads_whole_tensors(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    write(path, 7.0, 3)
    found = weft.load(path)
    assert found["x"] is found["again"]
    assert found["x"].requires_grad
    np.testing.assert_array_equal(found["x"].detach().numpy(), np.full((5, 4), 7.0))
    assert found["w"].tolist() == [7.0, 7.0]
    assert found["step"] == 3
    assert sorted(p.name[-5:] for p in tmp_path.iterdir()) == ["00000", "00001", "00002", "nsors"]


def test_other_axes_and_other_dtypes(tmp_path: Path) -> None:
    """What is cut over axes that the reader has not is whole; replicas are written once."""
    path = tmp_path / "state.safetensors"
    arrays = [
        np.random.default_rng(0).standard_normal((6, 4)),
        np.arange(12).reshape(3, 4) * (1 + 2j),
        np.array([True, False, True]),
        np.zeros((0, 4), np.float32),
    ]

    def out() -> None:
        par.mesh(data=2, model=2)
        specs = [par.P("data", "model"), par.P(None, "model"), par.P("data"), par.P(None, "data")]
        pairs = zip(arrays, specs, strict=True)
        weft.save([par.place(weft.tensor(a), spec) for a, spec in pairs], path)

    def back() -> Any:
        found = par.load(path, par.mesh(model=2))
        return [repr(x) for x in found[:2]], [x.full().numpy() for x in found]

    par.simulate(out, 4)
    for shown, found in par.simulate(back, 2):
        assert shown[0] == "tensor(<f64[6,4@model] on mesh(model=2)>)"
        for a, b in zip(found, arrays, strict=True):
            np.testing.assert_array_equal(a, b)
    for x, b in zip(weft.load(path), arrays, strict=True):
        np.testing.assert_array_equal(x.numpy(), b)


def test_save_that_fails_on_one_rank_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.safetensors"
    write(path, 1.0)
    before = sorted(tmp_path.iterdir())
    plain = weft.io.layout.write_file

    def full_disk(target: str, *rest: Any) -> None:
        if target.endswith("00001"):
            raise OSError("no space left on device")
        plain(target, *rest)

    monkeypatch.setattr(weft.io.slices, "write_file", full_disk)
    with pytest.raises((OSError, ParallelError)):
        write(path, 2.0)
    monkeypatch.undo()
    assert sorted(tmp_path.iterdir()) == before
    assert float(weft.load(path)["x"][4, 3]) == 1.0
    write(path, 2.0, 1)  # in one process it is one file, and the slices are of no use
    assert float(weft.load(path)["x"][4, 3]) == 2.0


def test_save_whose_file_cannot_be_written_leaves_no_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.safetensors"
    write(path, 1.0)
    before = sorted(tmp_path.iterdir())
    plain = weft.io.layout.write_file

    def full_disk(target: str, *rest: Any) -> None:
        if target == str(path):
            raise OSError("no space left on device")
        plain(target, *rest)

    monkeypatch.setattr(weft.io.slices, "write_file", full_disk)
    for _ in range(20):  # the rank that failed may end while others hear of it
        with pytest.raises((OSError, ParallelError)):
            write(path, 2.0)
        assert sorted(tmp_path.iterdir()) == before
    assert float(weft.load(path)["x"][4, 3]) == 1.0


@pytest.mark.rotating(2)
def test_killed_at_any_moment_the_old_checkpoint_stays_valid(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    rng = np.random.default_rng(0)
    command = [sys.executable, "-m", "tests.parallel.saving", str(path)]
    last = 0
    for _ in range(2):
        process = subprocess.Popen(command, env=environment())
        try:
            seen = path.stat().st_mtime_ns if path.exists() else 0
            end = time.monotonic() + 30
            while not path.exists() or path.stat().st_mtime_ns == seen:
                assert time.monotonic() < end
                time.sleep(0.01)
            time.sleep(float(rng.uniform(0, 0.2)))
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        found = weft.load(path)
        step = found["step"]
        assert (found["x"].numpy() == step).all()
        assert (found["y"].numpy() == step).all()
        last = max(last, step)
    assert last > 1


def test_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    write(path)
    moved = tmp_path / "b.safetensors"
    for file in tmp_path.iterdir():
        (tmp_path / file.name.replace("state", "b")).write_bytes(file.read_bytes())
    assert float(weft.load(moved)["x"][0, 0]) == 1.0  # all of it under another name
    (piece,) = tmp_path.glob("b.*.00001")
    data = piece.read_bytes()
    piece.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(FileError, match="must agree with its checksum"):
        weft.load(moved)
    piece.unlink()
    with pytest.raises(FileError, match=r"its slices must be beside it, got no b\.safetensors\..*\.00001"):
        weft.load(moved)


def test_simulated_ranks_that_have_met_all_go_on() -> None:
    # Else one could keep what the others took back, or the other way round.
    table, meeting, found = _Table(2), Meeting("save", "", "test"), list[Any]()
    other = threading.Thread(target=lambda: found.append(table.meet(1, (0, 1), meeting, "b")))
    other.start()
    while 1 not in table.waits:
        time.sleep(0.001)
    with table.change:  # nobody hears of the meeting before the failure
        assert table.meet(0, (0, 1), meeting, "a") == {0: "a", 1: "b"}
        table.fail(0, OSError("later"))
    other.join()
    assert found == [{0: "a", 1: "b"}]
    with pytest.raises(_Left):  # the next one is of nobody
        table.meet(1, (0, 1), meeting, "c")

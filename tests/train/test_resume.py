"""Runs that stop and go on: the same bits as runs that do not stop."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.train.common import batches, bits, examples, pipeline, timeless, trainer
from weft import data
from weft.errors import DomainError, FileError

ROOT = Path(weft.__file__).parent.parent
PER_EPOCH = 7
EPOCHS = 3


def assert_same(a: Any, b: Any) -> None:
    assert (a.step, a.epoch) == (b.step, b.epoch)
    assert bits(a) == bits(b)
    assert timeless(a.history) == timeless(b.history)
    assert a.optimizer.param_groups[0]["lr"] == b.optimizer.param_groups[0]["lr"]


def interrupted(directory: Path, at: list[int], **settings: Any) -> Any:
    """A run that ends at some steps, each time going on in a new trainer."""
    for step in at:
        run = trainer(directory, **settings)
        if step != at[0]:
            weft.manual_seed(step)  # what the checkpoint says counts
            assert run.resume()
        run.fit(steps=step)
    run = trainer(directory, **settings)
    weft.manual_seed(99)
    assert run.resume()
    run.fit(epochs=EPOCHS)
    return run


@pytest.mark.rotating(2)
@pytest.mark.parametrize("kind", ["pipeline", "list"])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_resumed_run_has_the_same_bits(compiled: bool, kind: str, tmp_path: Path) -> None:
    source = pipeline if kind == "pipeline" else batches
    whole = trainer(source=source(), compile=compiled)
    whole.fit(epochs=EPOCHS)
    assert whole.step == EPOCHS * PER_EPOCH
    cut = interrupted(tmp_path, [3, PER_EPOCH, 12], source=source(), compile=compiled)
    assert_same(whole, cut)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("step", [1, 4, 6, 7, 8, 13, 14])
def test_any_step_is_one_to_go_on_from(step: int, tmp_path: Path) -> None:
    settings = {"compile": False, "accumulate": 1 + step % 2}
    whole = trainer(**settings)
    whole.fit(steps=16)
    first = trainer(tmp_path, **settings)
    first.fit(steps=step)
    second = trainer(tmp_path, **settings)
    assert second.resume()
    second.fit(steps=16)
    assert_same(whole, second)


@pytest.mark.rotating(2)
def test_accumulated_steps_go_on_when_compiled(tmp_path: Path) -> None:
    whole = trainer(compile=True, accumulate=2)
    whole.fit(epochs=EPOCHS)
    assert_same(whole, interrupted(tmp_path, [2, 5], compile=True, accumulate=2))


@pytest.mark.rotating(2)
@pytest.mark.parametrize("compiled", [False, True])
def test_averages_and_scaled_losses_go_on(compiled: bool, tmp_path: Path) -> None:
    def settings() -> dict[str, Any]:
        scaler = weft.optim.GradScaler(init_scale=2.0**12, growth_interval=4)
        return {"compile": compiled, "average": True, "scaler": scaler, "autocast": weft.bfloat16}

    whole = trainer(**settings())
    whole.fit(steps=10)
    first = trainer(tmp_path, **settings())
    first.fit(steps=6)
    second = trainer(tmp_path, **settings())
    assert second.resume()
    second.fit(steps=10)
    assert_same(whole, second)
    a, b = (run.state_dict() for run in (whole, second))
    assert a["scaler"] == b["scaler"]
    assert a["ema"]["updates"] == 10
    for name, average in a["ema"]["averages"].items():
        np.testing.assert_array_equal(average.numpy(), b["ema"]["averages"][name].numpy())


def test_shuffled_and_prefetched_pipelines_go_on(tmp_path: Path) -> None:
    whole = trainer(source=pipeline().prefetch(2), compile=False)
    whole.fit(epochs=EPOCHS)
    cut = interrupted(tmp_path, [4, 9], source=pipeline().prefetch(3, workers=2), compile=False)
    assert_same(whole, cut)


@pytest.mark.parametrize("fails", [False, True])
def test_what_reads_ahead_has_ended_after_fit(fails: bool) -> None:
    before = threading.active_count()
    callbacks = [FailAt("step", 3)] if fails else []
    run = trainer(source=pipeline().prefetch(2, workers=2), compile=False, callbacks=callbacks)
    with pytest.raises(FailureError) if fails else nullcontext():
        run.fit(steps=3)
    assert threading.active_count() == before


def test_loaders_and_endless_pipelines_go_on(tmp_path: Path) -> None:
    def loader() -> Any:
        return data.Loader(examples(), batch_size=8, shuffle=True, num_workers=1)

    whole = trainer(source=loader(), compile=False)
    whole.fit(epochs=EPOCHS)
    assert_same(whole, interrupted(tmp_path / "loader", [5, 10], source=loader(), compile=False))

    whole = trainer(source=pipeline().repeat(), compile=False)
    whole.fit(steps=20)
    first = trainer(tmp_path / "endless", source=pipeline().repeat(), compile=False)
    first.fit(steps=9)
    second = trainer(tmp_path / "endless", source=pipeline().repeat(), compile=False)
    second.resume()
    second.fit(steps=20)
    assert_same(whole, second)
    assert second.epoch == 0


def test_a_second_fit_goes_on_from_the_first() -> None:
    once = trainer(compile=False)
    once.fit(epochs=EPOCHS)
    often = trainer(compile=False)
    often.fit(steps=4)
    often.fit(epochs=2)
    often.fit(epochs=EPOCHS)
    assert_same(once, often)


def test_generators_of_python_and_numpy_go_on(tmp_path: Path) -> None:
    class Draw(weft.train.Callback):
        def __init__(self) -> None:
            self.seen: list[tuple[float, float]] = []

        def on_step(self, trainer: Any, row: Any) -> None:
            self.seen.append((random.random(), np.random.rand()))

    def run(seed: int, **settings: Any) -> Any:
        random.seed(seed)
        np.random.seed(seed)
        return trainer(callbacks=[Draw()], compile=False, **settings)

    whole = run(0)
    whole.fit(steps=8)
    first = run(0, directory=tmp_path)
    first.fit(steps=5)
    second = run(1, directory=tmp_path)
    second.resume()
    second.fit(steps=8)
    assert first.callbacks[0].seen + second.callbacks[0].seen == whole.callbacks[0].seen


def test_logs_have_each_row_once(tmp_path: Path) -> None:
    whole = trainer(tmp_path / "whole", compile=False)
    whole.fit(epochs=2)
    first = trainer(tmp_path / "cut", compile=False, checkpoint_every=5)
    first.fit(steps=9)  # checkpoints of 5 and 9
    (tmp_path / "cut" / "step-00000009.safetensors").unlink()  # as if killed before it was written
    second = trainer(tmp_path / "cut", compile=False, checkpoint_every=5)
    second.resume()
    second.fit(epochs=2)
    rows = [
        [line.split(",")[:-1] for line in (tmp_path / name / "log.csv").read_text().splitlines()]
        for name in ("whole", "cut")
    ]
    assert rows[0] == rows[1]


def test_a_row_that_ended_an_epoch_after_the_checkpoint_of_its_step_stands_once(tmp_path: Path) -> None:
    whole = trainer(tmp_path / "whole", compile=False, log_every=7)
    whole.fit(epochs=2)
    first = trainer(tmp_path / "cut", compile=False, checkpoint_every=7, log_every=7)
    first.fit(steps=7)  # the checkpoint of step 7, before the epoch ends
    written = (tmp_path / "whole" / "log.csv").read_text().splitlines(keepends=True)
    ended = next(line for line in written if line.startswith("7,1,"))
    with open(tmp_path / "cut" / "log.csv", "a") as log:
        log.write(ended)  # as a run does that is killed when the epoch has ended
    second = trainer(tmp_path / "cut", compile=False, checkpoint_every=7, log_every=7)
    second.resume()
    second.fit(epochs=2)
    found = (tmp_path / "cut" / "log.csv").read_text().splitlines()
    assert [line.split(",")[:-1] for line in found] == [line.strip().split(",")[:-1] for line in written]


# Errors


class FailureError(Exception):
    pass


class FailAt(weft.train.Callback):
    def __init__(self, when: str, step: int) -> None:
        self.when, self.step = when, step

    def on_step(self, trainer: Any, row: Any) -> None:
        if self.when == "step" and trainer.step == self.step:
            raise FailureError

    def on_epoch(self, trainer: Any, row: Any) -> None:
        if self.when == "epoch":
            raise FailureError


class FailingLoss:
    """A loss whose call with a number fails, after random numbers were drawn and statistics changed."""

    def __init__(self, at: int) -> None:
        self.at = at

    def __call__(self, output: Any, target: Any) -> Any:
        self.at -= 1
        if self.at == 0:
            raise FailureError
        return weft.cross_entropy(output, target)


def fail_in_step(directory: Path, kind: str) -> None:
    if kind == "loss":
        run = trainer(directory, compile=False, loss=FailingLoss(5))
    elif kind == "data":
        good = batches()
        bad = [*good[:4], ("not", "numbers")]
        run = trainer(directory, compile=False, source=bad)
    else:
        run = trainer(directory, compile=False, callbacks=[FailAt(kind, 4)])
    with pytest.raises((FailureError, AttributeError, weft.errors.WeftError)):
        run.fit(epochs=EPOCHS)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("kind", ["loss", "data", "step", "epoch"])
def test_an_error_loses_nothing(kind: str, tmp_path: Path) -> None:
    fail_in_step(tmp_path, kind)
    settings = {"source": batches()} if kind == "data" else {}
    callbacks = [weft.train.Callback()] if kind in ("step", "epoch") else []
    again = trainer(tmp_path, compile=False, callbacks=callbacks, **settings)
    assert again.resume()
    assert again.step == (PER_EPOCH if kind == "epoch" else 4)
    again.fit(epochs=EPOCHS)
    whole = trainer(compile=False, callbacks=callbacks, **settings)
    whole.fit(epochs=EPOCHS)
    assert_same(whole, again)


def checked(model: Any, batch: Any) -> tuple[Any, Any]:
    x, y = batch
    out = model(x)
    assert (x < 1000.0).all(), "too large"
    return out, y


@pytest.mark.rotating(2)
def test_an_error_in_a_compiled_step_loses_nothing(tmp_path: Path) -> None:
    good = batches()
    bad = [*good[:4], (good[4][0] + 1000.0, good[4][1]), *good[5:]]
    run = trainer(tmp_path, source=bad, forward=checked)
    with pytest.raises(weft.errors.CheckError, match="too large"):
        run.fit(epochs=EPOCHS)
    again = trainer(tmp_path, source=good, forward=checked)
    assert again.resume()
    assert again.step == 4
    again.fit(epochs=2)
    whole = trainer(source=good, forward=checked)
    whole.fit(epochs=2)
    assert_same(whole, again)


def test_a_run_may_go_on_in_the_same_process_after_an_error(tmp_path: Path) -> None:
    run = trainer(tmp_path, compile=False, loss=FailingLoss(5))
    with pytest.raises(FailureError):
        run.fit(epochs=EPOCHS)
    run.fit(epochs=EPOCHS)
    whole = trainer(compile=False)
    whole.fit(epochs=EPOCHS)
    assert_same(whole, run)


def test_a_directory_of_another_run_is_left_alone(tmp_path: Path) -> None:
    trainer(tmp_path, compile=False).fit(steps=2)
    files = {p: p.read_bytes() for p in tmp_path.iterdir()}
    with pytest.raises(DomainError, match=r"the directory must be of this run(.|\n)*call resume\(\)"):
        trainer(tmp_path, compile=False).fit(steps=1)
    assert {p: p.read_bytes() for p in tmp_path.iterdir()} == files


def test_a_run_that_goes_back_leaves_what_came_after(tmp_path: Path) -> None:
    run = trainer(tmp_path, compile=False, checkpoint_every=2, keep=5)
    run.fit(steps=8)
    back = trainer(tmp_path, compile=False, checkpoint_every=2, keep=5)
    assert back.resume(tmp_path / "step-00000004.safetensors")
    back.fit(steps=6)
    assert [p.name[-14:-12] for p in back.checkpoints.files()] == ["06", "04", "02"]


def test_a_checkpoint_of_other_parts_is_an_error(tmp_path: Path) -> None:
    trainer(tmp_path, compile=False).fit(steps=1)
    other = trainer(tmp_path, compile=False, scheduler=None)
    before = bits(other)
    with pytest.raises(DomainError, match="the checkpoint was made with one for scheduler, got none"):
        other.resume()
    assert bits(other) == before
    with pytest.raises(DomainError, match="must be of such a trainer"):
        trainer(tmp_path, compile=False, callbacks=[weft.train.Callback()]).resume()


def test_a_damaged_checkpoint_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = trainer(tmp_path, compile=False, checkpoint_every=2)
    run.fit(steps=6)
    newest = tmp_path / "step-00000006.safetensors"
    newest.write_bytes(newest.read_bytes()[:-7])
    again = trainer(tmp_path, compile=False)
    assert again.resume()
    assert again.step == 4
    assert "left out a checkpoint" in caplog.text
    for file in tmp_path.glob("step-*"):
        file.write_bytes(b"")
    with pytest.raises(FileError, match="must be whole, got none that is"):
        trainer(tmp_path, compile=False).resume()


# Other processes

CTRL_C = """
import sys
from pathlib import Path
from tests.train.common import trainer
run = trainer(Path(sys.argv[1]), compile=False, checkpoint_every=1, keep=2)
run.fit(epochs=100000)
print("stopped", run.stopped, run.step, flush=True)
"""

KILLED = """
import os, random, signal, sys, time
from pathlib import Path
from tests.train.common import trainer
from weft.train import Checkpoints

def train(directory):
    run = trainer(directory, compile=False, checkpoint_every=1, keep=2)
    run.resume()
    run.fit(epochs=100000)

directory, rng = Path(sys.argv[1]), random.Random(0)
checkpoints = Checkpoints(directory)
for _ in range(25):
    newest = checkpoints.files()[:1]
    child = os.fork()
    if child == 0:
        train(directory)
    while checkpoints.files()[:1] == newest:
        if os.waitpid(child, os.WNOHANG)[0]:
            sys.exit("the child ended by itself")
        time.sleep(0.0005)
    time.sleep(rng.uniform(0.0, 0.01))  # some steps and files of a few milliseconds each
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print(checkpoints.load()["step"])
"""


def start(script: str, directory: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", script, str(directory)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True, cwd=ROOT)


def assert_is_whole_run(directory: Path, step: int) -> None:
    again = trainer(directory, compile=False)
    assert again.resume()
    assert again.step == step
    whole = trainer(compile=False)
    whole.fit(steps=step)
    assert bits(whole) == bits(again)


@pytest.mark.rotating(2)
def test_a_run_that_is_killed_at_any_moment_leaves_a_checkpoint_that_loads(tmp_path: Path) -> None:
    process = start(KILLED, tmp_path)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    steps = [int(line) for line in out.split()]
    assert len(steps) == 25
    assert steps == sorted(steps)
    assert steps[-1] >= 25
    assert_is_whole_run(tmp_path, steps[-1])
    assert not list(tmp_path.glob(".*.part"))


def test_ctrl_c_ends_the_step_saves_and_stops(tmp_path: Path) -> None:
    process = start(CTRL_C, tmp_path)
    while not list(tmp_path.glob("step-*")):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    word, reason, step = out.split()
    assert (word, reason) == ("stopped", "interrupted")
    assert_is_whole_run(tmp_path, int(step))


def test_ctrl_c_in_validation_is_noticed_there(tmp_path: Path) -> None:
    def endless() -> Any:
        yield batches(16)[0]
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            yield batches(16)[0]

    class Source:
        def __iter__(self) -> Any:
            return endless()

    run = trainer(tmp_path, compile=False, validation=Source())
    run.fit(epochs=1)
    assert (run.stopped, run.step, run.epoch) == ("interrupted", PER_EPOCH, 0)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert run.validate(batches(16))["loss"] > 0.0
    again = trainer(tmp_path, compile=False)
    again.resume()
    again.fit(epochs=2)
    whole = trainer(compile=False)
    whole.fit(epochs=2)
    assert_same(whole, again)

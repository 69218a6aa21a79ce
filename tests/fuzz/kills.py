"""Kills savers, trainers and ranks with SIGKILL at random moments: nothing that was saved is lost.

A saver's file holds a whole version, never an older one than was told to be written. A trainer, eager and
compiled, goes on from its newest checkpoint: at the end weights, optimizer and logs are those of a run that
nobody killed, bit for bit. Of a trainer on two ranks (``weft launch``) one is killed: the other one ends
within seconds, and the run goes on with the same bits, at the end in one process. A case is JSON: who is
killed, how often, and a seed; moments differ each time.
"""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import numpy as np

import weft
from tests.fuzz.campaign import Watch, campaign, place, told
from tests.parallel.launching import environment
from tests.train.common import bits, trainer
from weft import parallel as par
from weft.train import Checkpoints

KINDS = ("tree", "graph", "eager", "compiled")
RANKS = "ranks"  # beside these, by ``--ranks``: each kill takes seconds
KILLS = 8  # in a case
EPOCHS = 40  # of a trainer's run
TIMED = ("seconds", "time", "examples_per_second")  # columns of logs that say how fast it was
PATIENCE = 60.0  # seconds until a child that does nothing is an error


class LostError(Exception):
    """Something was lost, or is not what it should be."""


def _started(work: Callable[[], None]) -> int:
    """A child that works."""
    child = os.fork()
    if child == 0:
        try:
            signal.setitimer(signal.ITIMER_PROF, 0)
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def _kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


# Savers


def _version(number: int) -> dict[str, Any]:
    size = 1 + number % 7 * 20_000
    return {"number": number, "data": weft.full((size,), float(number))}


def _save_tree(path: Path, number: int) -> None:
    weft.save(_version(number), path)


def _tree_number(path: Path) -> int:
    found = weft.load(path)
    number = found["number"]
    if not np.array_equal(found["data"].numpy(), _version(number)["data"].numpy()):
        raise LostError(f"version {number} has other data")
    return int(number)


def _save_graph(path: Path, number: int) -> None:
    table = _version(number)["data"]
    weft.compile(lambda x: x + table.sum() * 0.0 + number).save(path, weft.zeros(2))


def _graph_number(path: Path) -> int:
    return int(weft.load_graph(path)(weft.zeros(2)).numpy()[0])


def kill_saver(kind: str, kills: int, draw: random.Random, folder: Path) -> None:
    """Kill a saver again and again."""
    save, number_of = (_save_tree, _tree_number) if kind == "tree" else (_save_graph, _graph_number)
    path, done = folder / "file", 0
    save(path, 0)
    for _ in range(kills):
        reader, writer = os.pipe()
        child = _started(lambda first=done + 1, pipe=writer: _save_on(save, path, first, pipe))  # type: ignore[misc]
        os.close(writer)
        told = os.read(reader, 8)  # the first version is written
        time.sleep(draw.uniform(0.0, 0.02))
        _kill(child)
        while part := os.read(reader, 1 << 16):
            told += part
        os.close(reader)
        written = int.from_bytes(told[len(told) // 8 * 8 - 8 : len(told) // 8 * 8], "little")
        done = number_of(path)
        if done < written:
            raise LostError(f"version {written} was written, {done} is there")
    save(path, done + 1)
    left = sorted(p.name for p in folder.iterdir() if p != path and not p.is_dir())
    if left:
        raise LostError(f"left behind: {left}")


def _save_on(save: Callable[[Path, int], None], path: Path, number: int, pipe: int) -> None:
    while True:
        save(path, number)
        os.write(pipe, number.to_bytes(8, "little"))
        number += 1


# Trainers


@cache
def _whole(compiled: bool) -> tuple[dict[str, bytes], list[Any]]:
    """The bits and the logs of a run that nobody kills."""
    with tempfile.TemporaryDirectory() as folder:
        run = trainer(Path(folder), compile=compiled, checkpoint_every=1, keep=2)
        run.fit(epochs=EPOCHS)
        return bits(run), _logs(Path(folder))


def _logs(folder: Path) -> list[Any]:
    """What the logs say, but for how long it took."""
    found = []
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="") as file:
            found.append([{k: v for k, v in row.items() if k not in TIMED} for row in csv.DictReader(file)])
    return found


def _train(folder: Path, compiled: bool) -> Any:
    run = trainer(folder, compile=compiled, checkpoint_every=1, keep=2)
    run.resume()
    run.fit(epochs=EPOCHS)
    return run


def kill_trainer(kind: str, kills: int, draw: random.Random, folder: Path) -> None:
    """Kill a trainer again and again, then let it end."""
    compiled = kind == "compiled"
    checkpoints = Checkpoints(folder)
    for _ in range(kills):
        newest = checkpoints.files()[:1]
        child = _started(lambda: _train(folder, compiled))  # type: ignore[arg-type,return-value]
        end = time.monotonic() + PATIENCE
        while checkpoints.files()[:1] == newest:
            if os.waitpid(child, os.WNOHANG)[0]:
                break
            if time.monotonic() > end:
                _kill(child)
                raise LostError("a trainer did nothing")
            time.sleep(0.0005)
        else:
            time.sleep(draw.uniform(0.0, 0.05))
            _kill(child)
        if newest and checkpoints.load()["step"] < int(newest[0].stem.split("-")[1]):
            raise LostError(f"step {newest[0].stem} was there")
    _is_whole(_train(folder, compiled), folder, compiled)


def _is_whole(run: Any, folder: Path, compiled: bool) -> None:
    wanted, logs = _whole(compiled)
    if bits(run) != wanted:
        raise LostError("weights or state of the optimizer are not those of a whole run")
    if _logs(folder) != logs:
        ours, theirs = _logs(folder), logs
        pairs = zip(chain.from_iterable(ours), chain.from_iterable(theirs), strict=False)
        lines = [(a, b) for a, b in pairs if a != b]
        raise LostError(f"logs of {list(map(len, ours))} rows, not {list(map(len, theirs))}; {lines[:2]}")


# Ranks

EPOCHS_OF_RANKS = 40
ENDS = 10.0  # seconds in which a run must end after one of its ranks was killed
SLOW = 120.0  # seconds until ranks that make no checkpoint are an error


@cache
def _whole_on_ranks() -> list[bytes]:
    """The weights of a run that nobody kills, in one process."""
    with tempfile.TemporaryDirectory() as folder:
        return _weights(par.simulate(train_on_ranks, 1, Path(folder), EPOCHS_OF_RANKS)[0])


def train_on_ranks(folder: Path, epochs: int) -> dict[str, Any]:
    """Go on from the newest checkpoint, if there is one; what it ends with."""
    run = trainer(folder / "run", mesh=par.mesh(data=-1), zero=1, checkpoint_every=1, keep=2)
    run.resume()
    run.fit(epochs=epochs)
    state: dict[str, Any] = run.model.state_dict()
    return state


def _weights(state: dict[str, Any]) -> list[bytes]:
    return [x.detach().full().numpy().tobytes() for x in state.values()]


def kill_rank(kills: int, draw: random.Random, folder: Path) -> int:
    """Kill one of two ranks again and again, then let the run end in one process; gives the kills."""
    killed = 0
    checkpoints = Checkpoints(folder / "run")
    program = Path(__file__).parent.parent / "parallel" / "killed.py"
    words = [sys.executable, "-m", "weft.cli", "launch", "-n", "2", str(program), str(folder)]
    for _ in range(kills):
        for path in folder.glob("pid-*"):
            path.unlink()
        newest = checkpoints.files()[:1]
        child = subprocess.Popen(
            [*words, str(EPOCHS_OF_RANKS)], stdout=DEVNULL, stderr=DEVNULL, env=environment()
        )
        end = time.monotonic() + SLOW
        while checkpoints.files()[:1] == newest and child.poll() is None:
            if time.monotonic() > end:
                child.kill()
                raise LostError("ranks did nothing")
            time.sleep(0.002)
        time.sleep(draw.uniform(0.0, 0.3))
        if child.poll() is None:
            os.kill(int((folder / f"pid-{draw.randrange(2)}").read_text()), signal.SIGKILL)
            killed += 1
        elif child.returncode == 0:
            break  # it was done before
        try:
            child.wait(ENDS)
        except subprocess.TimeoutExpired:
            child.kill()
            raise LostError(f"a run goes on {ENDS} s after one of its ranks was killed") from None
        if newest and checkpoints.load()["step"] < int(newest[0].stem.split("-")[1]):
            raise LostError(f"step {newest[0].stem} was there")
    found = par.simulate(train_on_ranks, 1, folder, EPOCHS_OF_RANKS)[0]
    if _weights(found) != _whole_on_ranks():
        raise LostError("weights are not those of a whole run in one process")
    return killed


# The campaign


def check(case: bytes) -> int:
    """Run a case; how often somebody was killed."""
    row = json.loads(case)
    with tempfile.TemporaryDirectory() as folder:
        draw = random.Random(row["seed"])
        if row["kind"] == RANKS:
            return kill_rank(row["kills"], draw, Path(folder))
        kill = kill_saver if row["kind"] in ("tree", "graph") else kill_trainer
        kill(row["kind"], row["kills"], draw, Path(folder))
        return int(row["kills"])


def replay(case: bytes) -> str:
    """What is wrong with a case."""
    try:
        check(case)
    except Exception as error:
        return told(error)
    return ""


def batch(watch: Watch) -> None:
    """One case of each kind, beginning with that which the seed tells."""
    for i in range(len(KINDS)):
        if watch.over():
            return
        kind = KINDS[(watch.seed + i) % len(KINDS)]
        case = json.dumps({"kind": kind, "kills": KILLS, "seed": watch.seed}).encode()
        watch.begin(case, "cases", 300)
        try:
            check(case)
        except Exception as error:
            watch.found(f"{kind}-{place(error)}", "nothing lost", told(error))
        watch.done()
        watch.counts[f"kills of {kind}"] += KILLS


def batch_of_ranks(watch: Watch) -> None:
    """One case of ranks."""
    if watch.over():
        return
    case = json.dumps({"kind": RANKS, "kills": KILLS, "seed": watch.seed}).encode()
    watch.begin(case, "cases", 600)
    try:
        watch.counts[f"kills of {RANKS}"] += check(case)
    except Exception as error:
        watch.found(f"{RANKS}-{place(error)}", "nothing lost", told(error))
    watch.done()


def main(arguments: Sequence[str] | None = None) -> int:
    """Kill; with ``--ranks`` ranks of runs of two processes, and nobody else."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "--ranks" in words:
        words.remove("--ranks")
        return campaign("kills", batch_of_ranks, words)
    return campaign("kills", batch, words)


if __name__ == "__main__":
    sys.exit(main())

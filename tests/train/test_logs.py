"""What a run writes and shows: tables, event files, lines and bars."""

from __future__ import annotations

import csv
import io
import json
import runpy
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.parallel.launching import environment
from tests.train.common import batches, trainer
from weft.errors import ArgumentError, DomainError
from weft.train import Log, progress
from weft.train.logs import CsvLog, EventFile, crc32c


def test_a_table_has_a_row_every_few_steps_and_one_an_epoch(tmp_path: Path) -> None:
    trainer(tmp_path, source=batches(), compile=False, log_every=3).fit(epochs=1)
    head, *rows = [line.split(",") for line in (tmp_path / "log.csv").read_text().splitlines()]
    assert head == ["step", "epoch", "lr", "loss", "accuracy", "val_loss", "val_accuracy", "seconds"]
    assert [row[:2] for row in rows] == [["3", "0"], ["6", "0"], ["7", "1"]]
    assert [bool(row[5]) for row in rows] == [False, False, True]


def test_a_row_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("step,loss\n1,0.5\n2,0.25\n3,0.1")
    log = CsvLog(path, ["step", "loss"], step=9)
    log.write({"step": 10, "loss": 0.0})
    log.close()
    assert path.read_text() == "step,loss\n1,0.5\n2,0.25\n10,0.0\n"


@pytest.mark.parametrize(  # from RFC 3720, B.4
    ("data", "expected"),
    [(bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E)],
)
def test_checksums_are_those_of_the_standard(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected


# Logs of own loops

LOOP = """
import os, signal, sys
from pathlib import Path
import weft

folder, last = Path(sys.argv[1]), int(sys.argv[2])
log, at, value = weft.train.Log(folder, ["csv", "jsonl", "tensorboard"]), 0, 1.0
if (folder / "state.safetensors").exists():
    state = weft.load(folder / "state.safetensors")
    log.load_state_dict(state["log"])
    at, value = state["at"], state["value"]
for step in range(at + 1, 31):
    value = value * 0.9 + 0.01 * step
    log.add(step, loss=value, **({"late": weft.tensor(0.5)} if step > 12 else {}))
    if step == last:
        with open(folder / "log.csv", "a") as file:
            file.write("99,0.1")  # a line that a crash cut off
        os.kill(os.getpid(), signal.SIGKILL)
    if step % 7 == 0:
        weft.save({"log": log.state_dict(), "at": step, "value": value}, folder / "state.safetensors")
log.close()
"""


def run_loop(folder: Path, monkeypatch: pytest.MonkeyPatch, killed_after: int = 0) -> dict[str, str]:
    """The files of a run, which may be killed after a step, and then goes on from its checkpoint."""
    folder.mkdir()
    script = folder / "loop.py"
    script.write_text(LOOP)
    if killed_after:
        command = [sys.executable, str(script), str(folder), str(killed_after)]
        assert subprocess.run(command, env=environment(), check=False).returncode == -signal.SIGKILL
    monkeypatch.setattr(sys, "argv", [str(script), str(folder), "99"])
    runpy.run_path(str(script))
    return {p.name: p.read_text() for p in folder.glob("log.*")}


def test_log_of_a_loop_that_was_killed_is_that_of_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run_loop(tmp_path / "whole", monkeypatch)
    assert set(whole) == {"log.csv", "log.jsonl"}
    assert whole["log.csv"].splitlines()[0] == "step,loss,late"
    rows = [json.loads(line) for line in whole["log.jsonl"].splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 31))
    assert rows[-1]["late"] == 0.5
    assert run_loop(tmp_path / "killed", monkeypatch, 19) == whole


def test_log_keeps_numbers_exactly_and_says_what_is_no_number(tmp_path: Path) -> None:
    value = 0.1 + 0.2
    with Log(tmp_path, ["csv", "jsonl"]) as log:
        log.add(1, {"loss/train": value}, note="a, b", nothing=float("nan"))
    (row,) = csv.DictReader((tmp_path / "log.csv").read_text().splitlines())
    assert float(row["loss/train"]) == value
    assert row["note"] == "a, b"
    told = json.loads((tmp_path / "log.jsonl").read_text())
    assert told == {"step": 1, "loss/train": value, "note": "a, b", "nothing": None}


def test_log_that_is_used_wrongly_says_so(tmp_path: Path) -> None:
    with pytest.raises(DomainError, match="logs must be among csv, jsonl, tensorboard, got 'xml'"):
        Log(tmp_path, ["xml"])
    with Log(tmp_path / "new" / "folder") as log:
        log.add(3, loss=1.0)
        with pytest.raises(DomainError, match="do not go back, got 2 after 3"):
            log.add(2, loss=1.0)
        with pytest.raises(ArgumentError, match=r"Log: loss must be one number, got \[1, 2\]"):
            log.add(4, loss=[1, 2])
    assert (tmp_path / "new" / "folder" / "log.csv").read_text() == "step,loss\n3,1.0\n"


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def fields(data: bytes) -> list[tuple[int, Any]]:
    """The fields of a message in the encoding of protocol buffers."""
    at, found = 0, []
    while at < len(data):
        key, at = varint(data, at)
        value: Any
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
        else:
            form, length = ("<d", 8) if key & 7 == 1 else ("<f", 4)
            value, at = struct.unpack(form, data[at : at + length])[0], at + length
        found.append((key >> 3, value))
    return found


def unmasked(word: bytes) -> int:
    rotated = (struct.unpack("<I", word)[0] - 0xA282EAD8) & 0xFFFFFFFF
    return ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF


def records(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        head, check = data[at : at + 8], data[at + 8 : at + 12]
        assert unmasked(check) == crc32c(head)
        length = struct.unpack("<Q", head)[0]
        body, check = data[at + 12 : at + 12 + length], data[at + 12 + length : at + 16 + length]
        assert unmasked(check) == crc32c(body)
        found.append(body)
        at += 16 + length
    return found


def test_event_files_hold_what_was_added(tmp_path: Path) -> None:
    with EventFile(tmp_path, step=300) as events:
        events.add({"loss/train": 0.5, "lr/train": 0.25}, step=301)
    (path,) = tmp_path.glob("events.out.tfevents.*")
    version, start, scalars = [dict(fields(record)) for record in records(path.read_bytes())]
    assert version[3] == b"brain.Event:2"
    assert (start[2], fields(start[7])) == (301, [(1, 1)])
    assert scalars[2] == 301
    values = [dict(fields(value)) for _, value in fields(scalars[5])]
    assert values == [{1: b"loss/train", 2: 0.5}, {1: b"lr/train", 2: 0.25}]


def test_a_run_writes_events_of_training_and_validation(tmp_path: Path) -> None:
    trainer(tmp_path, source=batches(), compile=False, logs=["tensorboard"]).fit(epochs=1)
    (path,) = tmp_path.glob("events.out.tfevents.*")
    found = [dict(fields(record)) for record in records(path.read_bytes())][1:]
    tags = {dict(fields(value))[1].decode() for event in found for _, value in fields(event[5])}
    assert {"loss/train", "accuracy/train", "loss/validation", "lr/train"} <= tags
    assert not (tmp_path / "log.csv").exists()


def test_lines_sum_up_each_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    trainer(source=batches(), compile=False, progress=True).fit(epochs=2)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["epoch 1/2", "epoch 2/2"]
    assert all("val_accuracy" in line for line in lines)


def test_a_long_epoch_shows_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])  # type: ignore[attr-defined]
    out = io.StringIO()
    lines = progress.Lines(out)
    lines.begin("epoch 1/3", 100, 20, 200)
    for done, at in ((21, 4.0), (40, 10.0), (41, 10.5), (80, 30.0)):
        now[0] = at
        lines.advance(done, {"loss": 0.5})
    assert out.getvalue().splitlines() == [
        "epoch 1/3: 40/100, 2.0/s, loss 0.5000, 2:10 left",
        "epoch 1/3: 80/100, 2.0/s, loss 0.5000, 1:50 left",
    ]


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(out, "isatty", lambda: True, raising=False)
    console = Console(file=out, force_terminal=True, width=120)
    monkeypatch.setattr("rich.get_console", lambda: console)
    monkeypatch.setattr("rich.progress.get_console", lambda: console)
    trainer(source=batches(), compile=False, progress=True).fit(epochs=1)
    shown = out.getvalue()
    assert "epoch 1/1" in shown
    assert "val_loss" in shown


def test_without_rich_a_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert isinstance(progress.make_progress(True), progress.Lines)

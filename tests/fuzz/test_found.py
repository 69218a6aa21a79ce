"""What was found stays right; and every generator runs on a few cases, the same ones each time.

New ones are what ``make fuzz`` is for: the suite fails by what somebody changed, not by luck.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.fuzz import __main__ as campaign
from tests.fuzz import emulated, functions, graphs
from tests.fuzz.found import FOLDER, Found, read

CASES = sorted(FOLDER.glob("*.json"))
# Seconds for each; kills and leaks have tests of their own in tests/train and below.
SOME = {"graphs": 2.0, "programs": 1.5, "damage": 1.5, "functions": 1.0, "emulated": 2.0}


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_what_was_found_is_right(path: Path) -> None:
    case = read(path)
    if case.generator == "emulated" and (wanted := emulated.missing()):
        pytest.skip(wanted)
    assert import_module(f"tests.fuzz.{case.generator}").replay(case.case) == ""


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", SOME)
def test_generator_finds_nothing_new(name: str, tmp_path: Path) -> None:
    if name == "emulated" and (wanted := emulated.missing()):
        pytest.skip(wanted)
    environment = {**os.environ, "PYTHONPATH": str(campaign.ROOT), "PYTHONWARNINGS": "ignore"}
    command = [
        sys.executable,
        "-m",
        f"tests.fuzz.{name}",
        "--seconds",
        str(SOME[name]),
        "--found",
        str(tmp_path),
        "--seed",
        "1",
    ]
    done = subprocess.run(
        command, env=environment, cwd=campaign.ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{name}: ")
    assert "; 0 wrong; " in done.stdout


def test_emulated_code_needs_its_programs_and_says_which(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert emulated.main([]) == 0
    assert re.fullmatch(
        r"emulated: skipped, \S+-gcc is missing: apt install gcc-\S+\n", capsys.readouterr().out
    )


def test_table_has_every_generator() -> None:
    modules = {path.stem for path in Path(campaign.__file__).parent.glob("*.py")}
    found = {name for name in modules if hasattr(import_module(f"tests.fuzz.{name}"), "replay")}
    assert found == set(campaign.known())


def test_every_float32_function_of_one_argument_has_an_oracle() -> None:
    assert set(functions.names()) == set(functions.ORACLES)


def test_noise_has_nan_of_either_sign() -> None:
    """x86-64 and ARM make NaN of different signs, so that no result may depend on it."""
    graph = weft.make_graph(lambda x: weft.copysign(weft.ones(8), weft.log(x)))(weft.ones(8))
    found = [graphs.noisy(graph, [-np.ones(8, np.float32)], number)[0] for number in range(4)]
    assert set(np.sign(np.ravel(found))) == {-1.0, 1.0}
    assert (graphs.noisy(graph, [np.full(8, 0.5, np.float32)], 0)[0] < -0.99).all()


@pytest.mark.parametrize("case", [b'{"a": 1}', b"\xff\x00 no text"])
def test_found_case_is_read_as_it_was_written(case: bytes, tmp_path: Path) -> None:
    found = Found("graphs", 7, case, "this", "that")
    assert found.write(tmp_path, "a key / of any kind")
    assert not found.write(tmp_path, "a key / of any kind")
    (path,) = tmp_path.iterdir()
    assert read(path) == found


WRONG = """
import os, sys, time
from tests.fuzz.campaign import campaign
from tests.fuzz.found import read

def batch(watch):
    watch.begin(b"the case", seconds=0.2)
    {does}

sys.exit(campaign("wrong", batch))
"""


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("os.abort()", "SIGABRT"),
        ("time.sleep(60)", "SIGKILL"),
        ("all(iter(int, 1)) or [0 for _ in iter(int, 1)]", "ended with 1"),
        ("watch.found('key', 'this', 'that')", "that"),
        ("os.kill(os.getpid(), 9)", "SIGKILL"),
    ],
)
def test_crashes_and_hangs_are_found(does: str, told: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRONG.format(does=does), "--once", "--patience", "1"]
    command += ["--found", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(campaign.ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    (path,) = tmp_path.iterdir()
    found = read(path)
    assert (found.case, found.generator) == (b"the case", "wrong")
    assert told in found.got

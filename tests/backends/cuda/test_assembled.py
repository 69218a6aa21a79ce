"""PTX through NVIDIA's assembler: for every architecture, and what it makes of kernels that matter."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import weft
import weft.nn.functional as F
from tests.backends.cuda.programs import PROGRAMS, layer_norm_gradients
from tests.backends.cuda.ptxas import assemble, needs_ptxas
from weft.backends.cuda.build import build_program
from weft.backends.cuda.conditions import setter_text

pytestmark = needs_ptxas
LARGE = (1024, 4096)


ARCHITECTURES = ("sm_80", "sm_90", "sm_100")


def _ptx(programs: list[Any], architecture: str) -> str:
    """The kernels of some programs in one text, so that LLVM is called once."""

    def everything(*tensors: Any) -> tuple[Any, ...]:
        given = iter(tensors)
        out: list[Any] = []
        for function, own in programs:
            found = function(*[next(given) for _ in own])
            out += found if isinstance(found, tuple | list) else [found]
        return tuple(out)

    tensors = [t for _, own in programs for t in own]
    return build_program(weft.make_graph(everything)(*tensors).optimize(), architecture).ptx


def test_every_kind_of_kernel_assembles_for_every_architecture(tmp_path: Path) -> None:
    ptx = _ptx(list(PROGRAMS.values()), "sm_80")
    assert ptx.count(".entry") > 20
    for architecture in ARCHITECTURES:
        assemble(ptx, architecture, tmp_path, "-O0")


@pytest.mark.parametrize("architecture", ARCHITECTURES[1:])
def test_what_llvm_writes_for_newer_architectures_assembles(architecture: str, tmp_path: Path) -> None:
    wanted = ("elements in vectors", "layer norm, gradients", "half precision", "bfloat16", "looked up")
    ptx = _ptx([PROGRAMS[name] for name in wanted], architecture)
    assert f".target {architecture}" in ptx
    assemble(ptx, architecture, tmp_path, "-O0")


def _assembled(function: Any, *tensors: Any, folder: Path) -> tuple[str, str]:
    """The PTX of a program, and what the assembler says of its kernels."""
    program = build_program(weft.make_graph(function)(*tensors).optimize())
    return program.ptx, assemble(program.ptx, "sm_90", folder, "-v")


@pytest.mark.parametrize("name", ["softmax", "layer norm gradients", "bfloat16"])
def test_rows_are_read_once_by_16_bytes_and_stay_in_registers(name: str, tmp_path: Path) -> None:
    x, w = weft.zeros(LARGE), weft.zeros(LARGE[1:])
    programs = {
        "softmax": (lambda x: F.softmax(x, axis=-1), [x]),
        "layer norm gradients": (layer_norm_gradients, [x, w, w, x]),
        "bfloat16": (lambda x: F.softmax(x, axis=-1), [weft.zeros(LARGE, dtype=weft.bfloat16)]),
    }
    function, tensors = programs[name]
    ptx, told = _assembled(function, *tensors, folder=tmp_path)
    assert set(re.findall(r"(\d+) bytes spill stores", told)) == {"0"}
    assert set(re.findall(r"(\d+) bytes stack frame", told)) == {"0"}
    first = ptx[: ptx.index("\n}")]  # the kernel itself, before those that combine
    moves = re.findall(r"(?:ld|st)\.global\S*", first)
    rows = 2 if name == "layer norm gradients" else 1
    full = 2 if name == "bfloat16" else 4  # vectors of a thread: 16 elements
    weights = full if name == "layer norm gradients" else 0
    loads = [m for m in moves if m.startswith("ld")]
    assert len(loads) == rows * full + weights
    assert all(m.endswith(".v4.b32") for m in moves)


def test_registers_leave_room_for_two_blocks(tmp_path: Path) -> None:
    x, w = weft.zeros(LARGE), weft.zeros(LARGE[1:])
    _, told = _assembled(layer_norm_gradients, x, w, w, x, folder=tmp_path)
    assert max(int(n) for n in re.findall(r"Used (\d+) registers", told)) <= 128


@pytest.mark.parametrize(
    ("function", "left", "right", "loads"),
    [
        (lambda x, w: x @ w.T, (128, 784), (256, 784), 14),  # two for each of seven chunks
        (lambda x, w: x.T @ w, (128, 256), (128, 784), 8),
        (
            lambda x, w: x @ w,
            (64, 512),
            (512, 2048),
            16,
        ),  # four for each of two chunks, before a loop and in it
    ],
)
def test_sides_of_small_products_are_read_by_16_bytes(
    function: Any, left: Any, right: Any, loads: int, tmp_path: Path
) -> None:
    """And the sums stay in registers, of which two blocks have enough."""
    ptx, told = _assembled(function, weft.zeros(left), weft.zeros(right), folder=tmp_path)
    assert set(re.findall(r"(\d+) bytes spill stores", told)) == {"0"}
    assert set(re.findall(r"(\d+) bytes stack frame", told)) == {"0"}
    assert max(int(n) for n in re.findall(r"Used (\d+) registers", told)) <= 128
    found = re.findall(r"ld\.global\S*", ptx)
    assert len(found) == loads
    assert all(m.endswith(".v4.b32") for m in found)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernel_that_sets_conditions_assembles(architecture: str, tmp_path: Path) -> None:
    assemble(setter_text(architecture), architecture, tmp_path, "-c")

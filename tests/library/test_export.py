"""What ``export_library`` writes, for which machine, and what it refuses."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.library.harness import BAD_PROCESSOR, NO_WEIGHTS, OK, Library, build, exported, same
from weft import nn
from weft.backends.llvm import features
from weft.backends.llvm.export import processor
from weft.backends.llvm.export.processor import is_arm
from weft.backends.llvm.export.sizes import allowed_sizes
from weft.backends.llvm.target import host_target
from weft.errors import ArgumentError, DeviceError, DomainError, ShapeError

Type = weft.TensorType


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def linear() -> Any:
    weft.manual_seed(0)
    return weft.jit.trace(nn.Linear(3, 2), weft.ones((4, 3)))


# The folder


def test_folder_has_all_that_a_program_needs(tmp_path: Path) -> None:
    linear().export_library(tmp_path / "a" / "b", name="linear")
    names = sorted(path.name for path in (tmp_path / "a" / "b").iterdir())
    assert names == ["Makefile", "README.md", "example.c", "liblinear.so", "linear.h", "linear.json"]


def test_makefile_builds_the_example(tmp_path: Path) -> None:
    linear().export_library(tmp_path, name="linear")
    subprocess.run(["make"], cwd=tmp_path, check=True, capture_output=True)
    done = subprocess.run([tmp_path / "example"], cwd="/", check=True, capture_output=True, text=True)
    assert done.stdout.startswith("out: f32[4,2] = ")


@pytest.mark.parametrize(("compiler", "flag"), [("cc", "-std=c99"), ("c++", "-std=c++98")])
def test_header_stands_alone(compiler: str, flag: str, tmp_path: Path) -> None:
    library = exported(linear(), tmp_path)
    source = tmp_path / ("alone.c" if compiler == "cc" else "alone.cpp")
    source.write_text('#include "model.h"\n#include "model.h"\nint main(void) { return 0; }\n')
    flags = [flag] if compiler == "cc" else [flag, "-Wno-long-long", "-Wno-variadic-macros"]
    build(library.folder, source, *flags, compiler=compiler)


def test_arguments_have_names_that_c_can_write(tmp_path: Path) -> None:
    def function(float: Any, pair: Any, model: Any) -> Any:
        return {"int": float + pair[0], "0": pair[1]["x.y"] * model}

    a, b, c, d = (weft.ones(2) for _ in range(4))
    library = exported(weft.compile(function), tmp_path, a, (b, {"x.y": c}), d)
    header = (tmp_path / "model.h").read_text()
    assert [d["symbol"] for d in library.signature["inputs"]] == ["float_", "pair_0", "pair_1_x_y", "model_2"]
    assert [d["symbol"] for d in library.signature["outputs"]] == ["int_", "out0"]
    assert "const float *pair_1_x_y, const float *model_2, float *int_, float *out0)" in header
    x = numbers(2)
    assert same(library(x, x, x, x), [x + x, x * x])


def test_export_replaces_what_is_there_and_a_failed_one_leaves_it(tmp_path: Path) -> None:
    exported(weft.compile(lambda x: x + 1), tmp_path, weft.ones(2))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(DeviceError):
        weft.compile(weft.linalg.svd).export_library(tmp_path, weft.ones((2, 2)), name="model")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    exported(weft.compile(lambda x: x + 2), tmp_path, weft.ones(2))
    assert (tmp_path / "libmodel.so").read_bytes() != before["libmodel.so"]


def test_program_of_the_guide_runs(tmp_path: Path) -> None:
    guide = (Path(weft.__file__).parent.parent / "docs" / "library.md").read_text()
    source = tmp_path / "guide.c"
    source.write_text(guide.split("```c\n")[1].split("```")[0])
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    run = weft.compile(model)
    run.export_library(tmp_path / "digits", Type(("batch", 64), weft.float32), name="digits")
    program = build(tmp_path / "digits", source, "-std=c99", name="digits")
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert done.stderr == ""


# Weights


def test_weights_beside_are_mapped_from_the_folder_of_the_library(tmp_path: Path) -> None:
    model = linear()
    model.export_library(tmp_path / "first", name="model", weights="beside")
    moved = (tmp_path / "first").rename(tmp_path / "moved")
    held = weft.load(moved / "model.weft")["weights"]
    assert sorted(held) == ["bias", "weight"]
    x = numbers(4, 3)
    assert same(Library(moved)(x), [model(weft.tensor(x))])


def test_other_weights_are_refused(tmp_path: Path) -> None:
    linear().export_library(tmp_path, name="model", weights="beside")
    library = Library(tmp_path)
    file = tmp_path / "model.weft"
    good = file.read_bytes()
    handle = ctypes.c_void_p()
    create = library.function("create")
    for bad in (good[:-1], good[:99] + b"?" + good[100:]):
        file.write_bytes(bad)
        assert create(None, ctypes.byref(handle)) == NO_WEIGHTS
        assert not handle
    file.unlink()
    assert create(None, ctypes.byref(handle)) == NO_WEIGHTS
    assert library.function("status")(NO_WEIGHTS) == b"the file of the weights is missing, or another one"
    elsewhere = tmp_path / "elsewhere.weft"
    elsewhere.write_bytes(good)
    path = ctypes.c_char_p(str(elsewhere).encode())
    options = (ctypes.c_void_p * 6)(48, None, ctypes.cast(path, ctypes.c_void_p))
    assert create(options, ctypes.byref(handle)) == OK
    library.function("free")(handle)


def test_weights_are_inside_or_beside(tmp_path: Path) -> None:
    with pytest.raises(DomainError, match=r"weights must be .*, got 'there'"):
        linear().export_library(tmp_path, weights="there")


# Machines


def test_generic_library_runs_on_older_machines(tmp_path: Path) -> None:
    run = weft.compile(lambda x: weft.exp(x).sum(axis=1))
    x = numbers(33, 70)
    library = exported(run, tmp_path, weft.tensor(x), cpu="generic")
    command = ["objdump", "-d", tmp_path / "libmodel.so"]
    code = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert not any(register in code for register in ("%ymm", "%zmm", "z0.s"))  # wider than all machines have
    np.testing.assert_allclose(library(x)[0], np.exp(x).sum(axis=1), rtol=1e-5)


def test_half_precision_on_older_machines(tmp_path: Path) -> None:
    run = weft.compile(lambda x: x * x + 1)
    x = numbers(100).astype(np.float16)
    library = exported(run, tmp_path, weft.tensor(x), cpu="generic")
    assert same(library(x), [run(weft.tensor(x))])


COLLECTS = """#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in
    -o) out=$2; shift ;;
    *.o) all="$all $1" ;;
  esac
  shift
done
mkdir "$out" && cp $all "$out"
"""


@pytest.mark.parametrize(("cpu", "machine"), [("armv8-a", 183), ("x86-64-v3", 62)])
def test_all_objects_are_for_the_machine_that_was_asked_for(cpu: str, machine: int, tmp_path: Path) -> None:
    linker = tmp_path / "collects"
    linker.write_text(COLLECTS)
    linker.chmod(0o755)
    linear().export_library(tmp_path / "c", name="model", cpu=cpu, linker=str(linker))
    objects = [path.read_bytes() for path in (tmp_path / "c" / "libmodel.so").iterdir()]
    assert len(objects) >= 4  # the program, its data, the functions around it, and the pool
    assert {int.from_bytes(code[18:20], "little") for code in objects} == {machine}


def test_processor_that_lacks_instructions_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = {"sse3": (1, 0, 2, 16), "lse": (0, 63)}  # bits that no processor sets
    monkeypatch.setattr(processor, "X86_BITS", processor.X86_BITS | {"sse3": never["sse3"]})
    monkeypatch.setattr(processor, "ARM_BITS", features.ARM_BITS | {"lse": never["lse"]})
    linear().export_library(tmp_path, name="model")
    library, handle = Library(tmp_path), ctypes.c_void_p()
    assert library.function("create")(None, ctypes.byref(handle)) == BAD_PROCESSOR
    wanted = b"the processor lacks instructions that the library is made of"
    assert library.function("status")(BAD_PROCESSOR) == wanted


def test_fast_math_is_for_machines_of_this_kind(tmp_path: Path) -> None:
    model = linear()
    library = exported(model, tmp_path, fast_math=True)
    x = numbers(4, 3)
    np.testing.assert_allclose(library(x)[0], model(weft.tensor(x)).detach().numpy(), rtol=1e-5)
    other = "x86-64-v2" if is_arm(host_target()) else "armv8-a"
    with pytest.raises(DomainError, match=f"fast_math must be off .*, got it on for {other}"):
        model.export_library(tmp_path, cpu=other, fast_math=True)


def test_unknown_machine_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DomainError, match=r'cpu must be one of "host", "generic", .*, got \'pentium\''):
        linear().export_library(tmp_path, cpu="pentium")


# The linker


def test_plain_linker_links_too(tmp_path: Path) -> None:
    model = linear()
    library = exported(model, tmp_path, linker="ld")
    x = numbers(4, 3)
    assert same(library(x), [model(weft.tensor(x))])


def test_without_a_linker_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DeviceError) as caught:
        linear().export_library(tmp_path / "c", name="linear")
    lines = str(caught.value).splitlines()
    expected = (
        "a C compiler or a linker must be there to link the library, got none of cc, gcc, clang, ld, ld.lld"
    )
    assert lines[0] == f"export_library: {expected} on the PATH"
    assert lines[-1] == "  hint: install one: apt install gcc, dnf install gcc, or apk add gcc musl-dev"
    assert not (tmp_path / "c").exists()


def test_linker_that_fails_is_quoted(tmp_path: Path) -> None:
    linker = tmp_path / "bad"
    linker.write_text("#!/bin/sh\necho no space left >&2\nexit 1\n")
    linker.chmod(0o755)
    with pytest.raises(DeviceError, match="bad must link the library, got: no space left"):
        linear().export_library(tmp_path / "c", linker=str(linker))


# What cannot be exported


def test_op_that_runs_in_python_is_named_with_its_line(tmp_path: Path) -> None:
    def values(x: Any) -> Any:
        return weft.linalg.svdvals(x)

    with pytest.raises(DeviceError) as caught:
        weft.compile(values).export_library(tmp_path, weft.ones((3, 3)))
    text = str(caught.value)
    assert "every op must have machine code, got svd" in text
    assert "test_export.py:" in text
    assert "return weft.linalg.svdvals(x)" in text


def test_what_is_no_function_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="must be given a graph or a compiled function, got Linear"):
        weft.export_library(nn.Linear(2, 2), tmp_path)


def test_examples_of_a_graph_are_an_error(tmp_path: Path) -> None:
    graph = weft.make_graph(lambda x: x + 1)(weft.ones(2))
    with pytest.raises(ArgumentError, match="the types of a graph are fixed, got examples"):
        weft.export_library(graph, tmp_path, weft.ones(3))


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", ["get", "set", "run", "weft"])
def test_name_may_be_one_that_is_used_inside(name: str, tmp_path: Path) -> None:
    model = linear()
    library = exported(model, tmp_path, name=name)
    x = numbers(4, 3)
    assert same(library(x), [model(weft.tensor(x))])
    build(tmp_path, tmp_path / "example.c", "-std=c99", name=name)


@pytest.mark.parametrize("name", ["my-model", "2d", "int", "m"])
def test_name_that_is_none_for_a_library_is_an_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(DomainError, match=f"name must be one that C and its linker take, got '{name}'"):
        linear().export_library(tmp_path, name=name)


def test_sizes_that_depend_on_each_other_are_an_error() -> None:
    graph = weft.make_graph(lambda x, y: x[y.shape[0]])(
        Type(("n",), weft.float32), Type(("m",), weft.float32)
    )
    with pytest.raises(ShapeError, match="the values that n, m may have must be a range"):
        allowed_sizes(graph, ["n", "m"])

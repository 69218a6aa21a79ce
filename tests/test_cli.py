"""The command ``weft``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft
from weft import nn
from weft.cli import main
from weft.config import settings

ROOT = Path(__file__).parent.parent
COMMAND = [sys.executable, "-m", "weft.cli"]


def start(*arguments: str, **options: object) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([*COMMAND, *arguments], env=environment, stderr=subprocess.PIPE, **options)  # type: ignore[call-overload, no-any-return]


@pytest.fixture
def linear(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """A saved graph that multiplies by a matrix, and the matrix."""
    layer = nn.Linear(3, 2, bias=False)
    path = tmp_path / "linear.weft"
    weft.compile(layer).save(path, weft.TensorType(("batch", 3), weft.float32))
    return path, layer.weight.detach().numpy().copy()


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    path = tmp_path / "pair.weft"
    function = weft.compile(lambda x, k: {"sum": x + k, "last": (x * k, x - k)})
    function.save(path, weft.TensorType(("n",), weft.int32), weft.TensorType((), weft.int32))
    return path


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


# run


def test_run_writes_what_the_graph_computes(linear: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    path, weight = linear
    x = np.random.default_rng(0).random((4, 3))
    np.save(tmp_path / "x.npy", x)
    out = tmp_path / "y.npy"
    assert main(["run", str(path), "--input", f"x={tmp_path / 'x.npy'}", "--output", str(out)]) == 0
    found = np.load(out)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, x @ weight.T, rtol=1e-5)


def test_run_takes_archives_numbers_and_lists(pair: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.arange(3), k=np.array(10), other=np.zeros(2))
    for inputs in ([f"x={tmp_path / 'in.npz'}", f"k={tmp_path / 'in.npz'}:k"], ["x=[0, 1, 2]", "k=10"]):
        arguments = [word for text in inputs for word in ("-i", text)]
        assert main(["run", str(pair), *arguments, "-o", str(tmp_path / "all.npz")]) == 0
        with np.load(tmp_path / "all.npz") as found:
            assert {name: found[name].tolist() for name in found.files} == {
                "sum": [10, 11, 12],
                "last.0": [0, 10, 20],
                "last.1": [-10, -9, -8],
            }


def test_run_takes_all_inputs_from_an_archive(pair: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.arange(3, dtype=np.int32), k=np.int32(2))
    out = tmp_path / "sum.npy"
    assert main(["run", str(pair), "-i", str(tmp_path / "in.npz"), "-o", f"sum={out}"]) == 0
    assert np.load(out).tolist() == [2, 3, 4]


def test_run_prints_without_an_output(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(pair), "-i", "x=[5]", "-i", "k=2"]) == 0
    assert lines(capsys) == ["sum: int32[1]", "[7]", "last.0: int32[1]", "[10]", "last.1: int32[1]", "[3]"]


def test_run_goes_between_pipes(linear: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    path, weight = linear
    x = np.eye(3, dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    with (tmp_path / "x.npy").open("rb") as file:
        process = start("run", str(path), "-i", "x=-", "-o", "-", stdin=file, stdout=subprocess.PIPE)
        out, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (0, b"")
    (tmp_path / "y.npy").write_bytes(out)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), weight.T, rtol=1e-6)


def test_run_of_a_training_step_saves_the_state_after_it(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1)

    @weft.compile
    def step(x: weft.Tensor, y: weft.Tensor) -> weft.Tensor:
        optimizer.zero_grad()
        loss = weft.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    x, y = np.ones((4, 2), np.float32), np.zeros((4, 1), np.float32)
    step(weft.tensor(x), weft.tensor(y))
    step.save(tmp_path / "step.weft")
    np.savez(tmp_path / "in.npz", x=x, y=y)
    state = tmp_path / "state.weft"
    losses = []
    for source in (tmp_path / "step.weft", state):
        arguments = ["-i", str(tmp_path / "in.npz"), "-o", str(tmp_path / "loss.npy"), "--save", str(state)]
        assert main(["run", str(source), *arguments]) == 0
        losses.append(float(np.load(tmp_path / "loss.npy")))
    expected = [float(step(weft.tensor(x), weft.tensor(y))) for _ in range(2)]
    assert losses == pytest.approx(expected, rel=1e-6)
    assert losses[1] < losses[0]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["-i", "x=[1, 2]"], "every input must be given, got none for k: i32[]"),
        (["-i", "x=[1]", "-i", "k=1", "-i", "z=1"], "inputs must be among x, k, got 'z'"),
        (["-i", "x=[1]", "-i", "x=[1]"], "inputs must be given once, got x twice"),
        (["-i", "x=[[1]]", "-i", "k=1"], "x must be i32[n], got i32[1,1]"),
        (["-i", "x=[0.5]", "-i", "k=1"], "x must be i32[n], got an array of float64"),
        (["-i", "x=[9999999999]", "-i", "k=1"], "x must hold numbers of int32, got others"),
        (["-i", "x=gone.npy", "-i", "k=1"], "gone.npy: No such file or directory"),
        (["-i", "x=what", "-i", "k=1"], "x must be a file (.npy, .npz) that is there, a number or a list"),
        (["-i", "x=[1]", "-i", "k=1", "-o", "y.npy"], "a .npy file must have one result, got 3"),
        (["-i", "x=[1]", "-i", "k=1", "-o", "y=y.npy"], "results must be among sum, last.0, last.1, got 'y'"),
    ],
)
def test_run_tells_what_is_wrong_in_one_line(
    pair: Path, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(pair), *arguments]) == 1
    error = capsys.readouterr().err
    assert told in error
    assert error.startswith("weft run: ")
    assert error.count("\n") == 1


def test_files_with_objects_in_them_are_refused(
    pair: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "bad.npy", np.array([{}], object), allow_pickle=True)
    assert main(["run", str(pair), "-i", f"x={tmp_path / 'bad.npy'}", "-i", "k=1"]) == 1
    assert "must be a file of arrays" in capsys.readouterr().err


def test_run_takes_onnx_models(tmp_path: Path) -> None:
    from onnx import TensorProto, helper, save

    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 2]) for n in ("x", "y")]
    node = helper.make_node("Exp", ["x"], ["y"])
    model = helper.make_model(
        helper.make_graph([node], "exponential", values[:1], values[1:]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    save(model, tmp_path / "exp.onnx")
    out = tmp_path / "y.npy"
    assert main(["run", str(tmp_path / "exp.onnx"), "-i", "x=[[0, 1]]", "-o", f"y={out}"]) == 0
    np.testing.assert_allclose(np.load(out), np.exp([[0, 1]]), rtol=1e-6)


# info


def test_info_tells_what_a_file_holds(
    linear: tuple[Path, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", str(linear[0]), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["inputs"] == {"x": "f32[batch,3]"}
    assert found["outputs"] == {"output": "f32[batch,2]"}
    assert (found["sizes"], found["parameters"], found["weight_bytes"]) == (["batch"], 6, 24)
    assert found["flops"] == "12*batch"
    assert main(["info", str(linear[0]), "--json", "--sizes", "batch=5"]) == 0
    assert json.loads(capsys.readouterr().out)["flops"] == 60


def test_info_reads_no_data_unless_it_verifies(
    linear: tuple[Path, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = linear
    with path.open("r+b") as file:
        file.seek(-3, 2)
        file.write(b"???")
    assert main(["info", str(path)]) == 0
    assert "that of the header agrees" in capsys.readouterr().out
    assert main(["info", str(path), "--verify"]) == 1
    assert "must agree with its checksum" in capsys.readouterr().err


def test_info_prints_a_graph_that_can_be_parsed(
    linear: tuple[Path, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", str(linear[0]), "--graph"]) == 0
    text = capsys.readouterr().out
    assert weft.parse_graph(text).name == weft.load_graph(linear[0]).graph.name


# optimize


def test_optimize_keeps_values_and_makes_graphs_smaller(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def f(x: weft.Tensor) -> weft.Tensor:
        return weft.exp(x * 1.0) + weft.exp(x) + weft.arange(4).sum()

    weft.compile(f).save(tmp_path / "f.weft", weft.TensorType(("n",), weft.float32))
    assert main(["optimize", str(tmp_path / "f.weft"), "-o", str(tmp_path / "g.weft")]) == 0
    told = lines(capsys)
    assert [line.split()[0] for line in told[:-1]][-1] == "all"
    before, after = weft.load_graph(tmp_path / "f.weft"), weft.load_graph(tmp_path / "g.weft")
    assert len(after.graph.nodes) < len(before.graph.nodes)
    x = weft.linspace(-1.0, 1.0, 7)
    assert (after(x) == before(x)).all()


def test_optimize_takes_passes_and_sizes(linear: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    out = str(tmp_path / "out.weft")
    assert main(["optimize", str(linear[0]), "-o", out, "--passes", "inline,dce", "--sizes", "batch=2"]) == 0
    loaded = weft.load_graph(out)
    assert str(loaded.graph.inputs[0].type) == "f32[2,3]"
    assert list(loaded.weights) == list(weft.load_graph(linear[0]).weights)
    np.testing.assert_allclose(loaded(weft.ones((2, 3))).numpy()[0], linear[1].sum(1), rtol=1e-5)


def test_optimize_does_not_write_large_constants(tmp_path: Path) -> None:
    weft.compile(lambda x: x + weft.zeros((1000, 1000)).sum()).save(tmp_path / "f.weft", weft.ones(2))
    assert main(["optimize", str(tmp_path / "f.weft"), "-o", str(tmp_path / "g.weft")]) == 0
    assert (tmp_path / "g.weft").stat().st_size < 10_000


def test_optimize_refuses_names_of_other_files(
    linear: tuple[Path, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("out.txt", "out.onnx"):
        assert main(["optimize", str(linear[0]), "-o", str(tmp_path / name)]) == 1
        told = capsys.readouterr().err
        assert "must end in .weft" in told
        assert "weft info MODEL --graph" in told
    assert main(["optimize", str(linear[0]), "-o", str(tmp_path / "out")]) == 0


def test_package_is_the_command() -> None:
    call = [sys.executable, "-m", "weft", "--version"]
    assert subprocess.run(call, capture_output=True, text=True, check=True).stdout.startswith("weft 0.")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--passes", "nonsense"], "passes must be among inline, unroll, fold"),
        (["--sizes", "depth=3"], "sizes must be among batch, got depth"),
    ],
)
def test_optimize_tells_what_is_wrong(
    linear: tuple[Path, np.ndarray],
    tmp_path: Path,
    more: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["optimize", str(linear[0]), "-o", str(tmp_path / "o.weft"), *more]) == 1
    assert told in capsys.readouterr().err
    assert not (tmp_path / "o.weft").exists()


# bench


def test_bench_measures_each_number_of_threads(
    linear: tuple[Path, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    before = weft.get_num_threads()
    try:
        arguments = ["--json", "--seconds", "0.02", "--threads", "1,2", "--sizes", "batch=4"]
        assert main(["bench", str(linear[0]), *arguments]) == 0
    finally:
        weft.set_num_threads(before)
    found = json.loads(capsys.readouterr().out)
    assert [run["threads"] for run in found["runs"]] == [1, 2]
    for run in found["runs"]:
        assert 0 < run["p50"] <= run["p90"] <= run["p99"]
        assert run["rows_per_second"] == pytest.approx(4 * run["calls_per_second"])
    assert found["first_answer_seconds"] >= found["compile_seconds"] > 0


def test_bench_speaks_to_people(linear: tuple[Path, np.ndarray], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(linear[0]), "--seconds", "0"]) == 0
    assert "first answer" in capsys.readouterr().out


# view


def test_library_writes_what_a_c_program_needs(
    linear: tuple[Path, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = linear
    folder = tmp_path / "library"
    assert main(["library", str(path), "-o", str(folder), "--name", "linear", "--cpu", "generic"]) == 0
    told = lines(capsys)
    assert {line.split(":")[0] for line in told} == {str(file) for file in folder.iterdir()}
    assert {"liblinear.so", "linear.h", "example.c"} <= {file.name for file in folder.iterdir()}


def test_library_tells_what_is_wrong(
    linear: tuple[Path, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["library", str(linear[0]), "-o", str(tmp_path / "l"), "--linker", "no-such-linker"]) == 1
    assert "no-such-linker" in capsys.readouterr().err
    assert not (tmp_path / "l").exists()


def test_view_writes_the_page_of_a_saved_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved, page = tmp_path / "model.weft", tmp_path / "page.html"
    weft.jit.trace(lambda x: weft.tanh(x), weft.ones(2)).save(saved)
    assert main(["view", str(saved), "--output", str(page), "--no-open"]) == 0
    assert capsys.readouterr().out.strip() == str(page)
    assert '"tanh"' in page.read_text("utf-8")


def test_view_opens_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    weft.jit.trace(lambda x: weft.tanh(x), weft.ones(2)).save(tmp_path / "model.weft")
    main(["view", str(tmp_path / "model.weft"), "-o", str(tmp_path / "page.html")])
    assert opened == [(tmp_path / "page.html").as_uri()]


# How it ends


@pytest.mark.parametrize("command", ["run", "info", "bench", "view", "serve"])
def test_a_file_that_is_not_there_is_told(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(tmp_path / "nothing.weft")]) == 1
    error = capsys.readouterr().err
    assert "nothing.weft" in error
    assert error.count("\n") == 1


def test_a_damaged_file_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.weft").write_bytes(b"\x10" + b"\0" * 40)
    assert main(["info", str(tmp_path / "bad.weft")]) == 1
    assert capsys.readouterr().err.startswith("weft info: bad.weft: ")


@pytest.mark.parametrize(
    "arguments",
    [[], ["nonsense"], ["run"], ["bench", "m.weft", "--threads", "0"], ["info", "m.weft", "--sizes", "batch"],
     ["serve", "m.weft", "--port", "99999"], ["optimize", "m.weft"]],
)  # fmt: skip
def test_a_wrong_call_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: weft" in capsys.readouterr().err


def test_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"weft {weft.__version__}\n"


def test_an_error_of_weft_itself_has_its_lines_where_they_are_asked_for(
    linear: tuple[Path, np.ndarray], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*args: object) -> None:
        raise ValueError("by mistake")

    monkeypatch.setattr("weft.cli.information.describe", fail)
    assert main(["info", str(linear[0])]) == 1
    assert "ValueError: by mistake (WEFT_FULL_TRACEBACKS=1 shows where)" in capsys.readouterr().err
    monkeypatch.setattr(settings, "chosen", {})
    monkeypatch.setenv("WEFT_FULL_TRACEBACKS", "1")
    with pytest.raises(ValueError, match="by mistake"):
        main(["info", str(linear[0])])


def test_ctrl_c_ends_with_130_and_says_nothing(linear: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.npy")
    process = start("run", str(linear[0]), "-i", f"x={tmp_path / 'x.npy'}", stdout=subprocess.DEVNULL)
    with (tmp_path / "x.npy").open("wb"):  # waits until the process has it open, and lets it wait for data
        process.send_signal(signal.SIGINT)
        try:
            _, error = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:  # it came after Python had looked for signals, and before the read
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=40)
    assert (process.returncode, error) == (130, b"")


def test_a_reader_that_goes_away_is_no_error(linear: tuple[Path, np.ndarray]) -> None:
    reading, writing = os.pipe()
    process = start("info", str(linear[0]), stdout=writing)
    os.close(writing)
    os.close(reading)
    _, error = process.communicate(timeout=30)
    assert (process.returncode, error) == (141, b"")


def test_doctor_tells_packages_settings_and_that_compiling_works(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_VECTOR_BYTES", "16")
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    assert f"weft              {weft.__version__}" in told
    assert "vector_bytes      16 (WEFT_VECTOR_BYTES)" in told
    assert "compiled and run in" in told


def test_doctor_fails_where_compiling_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(function: object) -> object:
        raise RuntimeError("no code for this machine")

    monkeypatch.setattr(weft, "compile", broken)
    assert main(["doctor"]) == 1
    assert "failed: RuntimeError: no code for this machine" in capsys.readouterr().out


# files of other kinds


def test_view_takes_onnx_models(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    weft.onnx.export(lambda x: x * 2.0, path, weft.TensorType((2,), weft.float32))
    assert main(["view", str(path), "-o", str(tmp_path / "page.html"), "--no-open"]) == 0
    assert "<html" in (tmp_path / "page.html").read_text()[:500].lower()


def test_info_lists_the_tensors_of_files_without_a_graph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weft.save({"w": weft.ones((2, 3)), "b": weft.zeros(2, dtype=weft.int64)}, tmp_path / "w.safetensors")
    assert main(["info", str(tmp_path / "w.safetensors")]) == 0
    assert lines(capsys)[-2:] == ["  b: i64[2]", "  w: f32[2,3]"]
    assert main(["info", "--json", str(tmp_path / "w.safetensors")]) == 0
    assert json.loads(capsys.readouterr().out)["weights"] == {"b": "i64[2]", "w": "f32[2,3]"}


def test_run_writes_text_and_refuses_other_endings(
    linear: tuple[Path, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, weight = linear
    call = ["run", str(path), "--input", "x=[[1,2,3],[0,1,0]]", "--output"]
    assert main([*call, str(tmp_path / "y.txt")]) == 0
    expected = np.array([[1, 2, 3], [0, 1, 0]]) @ weight.T
    np.testing.assert_allclose(np.loadtxt(tmp_path / "y.txt"), expected, rtol=1e-5)
    assert main([*call, str(tmp_path / "y.png")]) == 1
    assert "files must end in .npy, .npz or .txt" in capsys.readouterr().err
    assert not (tmp_path / "y.png").exists()


@pytest.mark.parametrize(
    ("start", "kind"),
    [(b"PK\x03\x04 and more", "an archive"), (b"hello\n", "a text"), (b"", "an empty file")],
)
def test_files_of_other_kinds_are_told_by_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], start: bytes, kind: str
) -> None:
    (tmp_path / "model.weft").write_bytes(start)
    assert main(["info", str(tmp_path / "model.weft")]) == 1
    assert f"(model.weft is {kind}" in capsys.readouterr().err


def test_serve_names_the_port_that_is_taken(
    linear: tuple[Path, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["serve", str(linear[0]), "--port", str(port)]) == 1
    assert f"127.0.0.1:{port}" in capsys.readouterr().err


def test_optimize_never_writes_more_nodes_than_it_got(tmp_path: Path) -> None:
    path, out = tmp_path / "f.weft", tmp_path / "g.weft"
    weft.compile(lambda x: weft.gelu(weft.layer_norm(x, (4,)))).save(
        path, weft.TensorType((2, 4), weft.float32)
    )
    assert main(["optimize", str(path), "-o", str(out)]) == 0
    before, after = (weft.load_graph(p).graph.stats() for p in (path, out))
    assert after.nodes + after.inner_nodes <= before.nodes + before.inner_nodes

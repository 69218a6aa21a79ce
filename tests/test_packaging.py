"""The wheel and the source distribution: what is in them, and that weft runs from the wheel alone."""

from __future__ import annotations

import email
import os
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from pathlib import Path

import pytest

import weft

ROOT = Path(__file__).parent.parent
REQUIRED = {"llvmlite", "ml-dtypes", "numpy", "scipy-openblas32"}

# What a new user does first, in an empty folder, with nothing of this repository in reach but the wheel
FIRST_STEPS = """
import sys
import weft
assert weft.__file__.startswith(sys.argv[1]), weft.__file__

w = weft.tensor([1.0], requires_grad=True)
x = weft.tensor([2.0], requires_grad=True)
((x + w) * (w + 1)).backward()
assert (w.grad.tolist(), x.grad.tolist()) == ([5.0], [2.0])

def root(a):
    x = a
    while weft.abs(x * x - a) > 1e-6:
        x = (x + a / x) / 2.0
    return x

compiled = weft.compile(root)
assert abs(compiled(weft.tensor(2.0)).item() - 2**0.5) < 1e-6
compiled.save("root.weft")
assert abs(weft.load_graph("root.weft")(weft.tensor(9.0)).item() - 3.0) < 1e-6

from weft import datasets
images = datasets.digits()[0]
assert len(images) > 1000
weft.view(compiled, "page.html", open=False)
"""


def build(source: Path, target: Path, *options: str) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(target), *options]
    subprocess.run(command, cwd=source, check=True, capture_output=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution of this tree."""
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    (path,) = built.glob("*.whl")
    assert path.name == f"weft-{weft.__version__}-py3-none-any.whl"
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    return email.message_from_bytes(wheel.read(f"weft-{weft.__version__}.dist-info/METADATA"))


def test_wheel_holds_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    files = {f.relative_to(ROOT).as_posix() for f in (ROOT / "weft").rglob("*") if f.is_file()}
    expected = {f for f in files if "__pycache__" not in f}
    inside = set(wheel.namelist())
    assert {f for f in inside if not f.startswith(f"weft-{weft.__version__}.dist-info/")} == expected
    assert {"weft/py.typed", "weft/datasets/digits.npz", "weft/viewer/page/page.html"} <= inside


def test_metadata_says_what_weft_needs(metadata: Message) -> None:
    assert (metadata["Name"], metadata["Version"]) == ("weft", weft.__version__)
    assert metadata["Requires-Python"] == ">=3.11"
    needs = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert {line.split(">")[0].strip().replace("_", "-") for line in needs} == REQUIRED
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload().startswith("# weft")


def test_documentation_tells_of_every_extra(metadata: Message) -> None:
    told = (ROOT / "docs" / "dependencies.md").read_text()
    for extra in metadata.get_all("Provides-Extra", []):
        assert f"[{extra}]" in told, extra


def test_wheel_installs_the_command(wheel: zipfile.ZipFile) -> None:
    entry_points = wheel.read(f"weft-{weft.__version__}.dist-info/entry_points.txt").decode()
    assert "weft = weft.cli:main" in entry_points


def test_source_distribution_builds_the_same_wheel(
    built: Path, wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 on
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(tmp_path)
    (source,) = tmp_path.iterdir()
    assert {"conftest.py", "docs", "examples", "pyproject.toml", "tests"} <= {
        f.name for f in source.iterdir()
    }
    build(source, tmp_path / "dist", "--target", "wheel")
    (again,) = (tmp_path / "dist").iterdir()
    with zipfile.ZipFile(again) as other:
        assert {i.filename: i.CRC for i in other.infolist()} == {i.filename: i.CRC for i in wheel.infolist()}


def test_weft_runs_from_the_wheel(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    site, work = tmp_path / "site", tmp_path / "work"
    wheel.extractall(site)  # which is all that pip does with a wheel of plain Python
    work.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        result = subprocess.run(
            command, cwd=work, env=environment, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    (work / "first_steps.py").write_text(FIRST_STEPS)
    run("first_steps.py", str(site))
    assert (work / "page.html").stat().st_size > 10_000
    assert "view" in run("-m", "weft.cli", "--help")

"""The front end of cuDNN is loaded without what its package imports, where it is laid out as expected."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from weft.backends.cuda import front_end

PACKAGE = """
import importlib
_compiled = importlib.import_module("._compiled_module", package=__name__)
pygraph, backend_version = _compiled.pygraph, _compiled.backend_version
pygraph.execute = lambda self, *given, **named: "the package's"
imported = True
__version__ = "1.18.0"
"""
COMPILED = """
handle = []
class pygraph:
    def _make_tensor(self, dim, stride, data_type=0, name="", uid=-1):
        return tensor(), dim, uid
    def _execute(self, places, workspace, handle):
        self.ran = places, workspace, handle
class tensor:
    def _set_data_type(self, kind):
        self.kind = kind
        return self
class data_type: FLOAT = 1
class heur_mode: A = 1
def backend_version(): return 91900
def create_handle(): return 7
def set_stream(handle, stream): pass
def _set_dlhandle_cudnn(value): handle.append(value)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a package cudnn is found, whose compiled module is Python."""
    made = tmp_path / "cudnn"
    made.mkdir()
    (made / "__init__.py").write_text(PACKAGE)
    (made / "_compiled_module.py").write_text(COMPILED)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(front_end, "EXTENSION_SUFFIXES", [".py"])
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "cudnn"}
    importlib.invalidate_caches()
    yield made
    for name in [name for name in sys.modules if name.split(".")[0] == "cudnn"]:
        del sys.modules[name]
    sys.modules.update(before)


def test_compiled_module_is_loaded_alone(folder: Path) -> None:
    api = front_end.load_front_end()
    assert "cudnn" not in sys.modules
    assert (api.__version__, api.backend_version(), api.create_handle()) == ("1.18.0", 91900, 7)
    graph = api.pygraph()
    made, dim, uid = graph.tensor(dim=[2], stride=[1], uid=3)
    assert (dim, uid, made.set_data_type(api.data_type.FLOAT).kind) == ([2], 3, 1)
    graph.execute({1: 2}, 4, handle=7)
    assert graph.ran == ({1: 2}, 4, 7)


def test_package_that_is_imported_later_has_the_same_classes(folder: Path) -> None:
    api = front_end.load_front_end()
    package: Any = importlib.import_module("cudnn")
    assert package.imported
    assert package.pygraph is api.pygraph
    assert api.pygraph().execute({}, 0) == "the package's"
    assert front_end.load_front_end() is package


def test_package_that_is_imported_already_is_used(folder: Path) -> None:
    package = importlib.import_module("cudnn")
    assert front_end.load_front_end() is package


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("__init__.py", '__version__ = "1.18.0"', "from os import name as __version__"),
        ("_compiled_module.py", "def create_handle", "def raw_create_handle"),
        ("_compiled_module.py", "def _execute", "def _run"),
        ("_compiled_module.py", "def _set_data_type", "def _other"),
    ],
)
def test_other_layouts_are_imported_as_they_are(folder: Path, name: str, old: str, new: str) -> None:
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new))
    assert front_end.load_front_end() is sys.modules["cudnn"]


def test_package_without_a_compiled_module_says_so(folder: Path) -> None:
    (folder / "_compiled_module.py").unlink()
    with pytest.raises(ImportError, match="_compiled_module"):
        front_end.load_front_end()


def test_broken_compiled_module_leaves_nothing_behind(folder: Path) -> None:
    (folder / "_compiled_module.py").write_text("raise ImportError('libcudart')")
    with pytest.raises(ImportError, match="libcudart"):
        front_end.load_front_end()
    assert "cudnn._compiled_module" not in sys.modules


def test_no_package_is_an_import_error(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    importlib.invalidate_caches()
    if importlib.util.find_spec("cudnn") is None:
        with pytest.raises(ImportError):
            front_end.load_front_end()

"""The pages of the site, gathered in one folder: Markdown that is there, examples, course, reference."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from docs_tools import reference
from docs_tools.links import rewritten, tightened

ROOT = Path(__file__).parent.parent

# Pages that lie elsewhere in the repository, and what they are called on the site.
OUTSIDE = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "README.zh.md": "readme-zh.md",
    "bench/README.md": "benchmarks.md",
    "examples/README.md": "examples/index.md",
    "weft/datasets/README.md": "datasets.md",
}
_FIRST = "index.md"  # of docs/, which takes the place of README.md here

# The navigation: pages in the order in which they are read. Others come last, under "More".
SECTIONS = {
    "Begin": "coming-from tensors autograd transforms nn optim data training saving",
    "Learn": "cookbook course/en/index course/zh/index examples/index",
    "Graphs": "compile capture control-flow graphs static-graphs passes aot halves",
    "Look and debug": "seeing profiling errors stepping debugging-compiled",
    "Ship": "deploying command-line serving library onnx interop",
    "Scale": "gpu parallel cluster",
    "Reference": "api/index array-api linalg-fft distributions compiler adding-a-backend",
    "Project": "platforms contributing architecture benchmarks compared reliability dependencies datasets "
    "changelog readme-zh",
}
PARENTS = {  # pages that others hang by, and where these lie
    "api/index": "api/",
    "cookbook": "cookbook/",
    "course/en/index": "course/en/",
    "course/zh/index": "course/zh/",
    "examples/index": "examples/",
}


class Site(NamedTuple):
    """What was gathered: a folder of sources, and the pages of the reference."""

    folder: Path
    reference: list[reference.Page]


def gather(folder: Path, *, with_reference: bool = True) -> Site:
    """Gather all pages in an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for source in sorted((ROOT / "docs").rglob("*")):
        if source.is_file() and "__pycache__" not in source.parts:
            _copy(source, folder / source.relative_to(ROOT / "docs"))
    for path, name in OUTSIDE.items():
        if (ROOT / path).exists() and name != _FIRST:
            _copy(ROOT / path, folder / name)
    _write_examples(folder / "examples")
    made = reference.write(folder / "api") if with_reference else []
    navigate(folder)
    return Site(folder, made)


def places() -> dict[Path, Path]:
    """Where files of the repository that are pages of the site lie there."""
    docs = ROOT / "docs"
    found = {p: p.relative_to(docs) for p in docs.rglob("*") if p.is_file()}
    found |= {ROOT / path: Path(name) for path, name in OUTSIDE.items()}
    found |= {p: Path("examples", f"{p.stem}.md") for p in (ROOT / "examples").glob("*.py")}
    found[ROOT / "examples"] = Path("examples", "index.md")
    found[ROOT / "docs"] = Path(_FIRST)
    found[ROOT / "bench"] = Path("benchmarks.md")
    found[ROOT / "docs" / "course"] = Path("course", "index.md")
    return found


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix == ".md":
        target.write_text(_linked(source.read_text(), source, target))
    elif source.suffix == ".ipynb":
        text = "\n\n".join(_cells(json.loads(source.read_text())))
        target.with_suffix(".md").write_text(_linked(text, source, target))
    elif source.suffix != ".py":
        shutil.copyfile(source, target)


def _linked(text: str, source: Path, target: Path) -> str:
    """The text of a page with links that are right on the site; those to other files of the project go."""
    known = places()
    base = _folder_of(target)

    def change(link: str) -> str | None:
        file, sign, anchor = link.partition("#")
        if not file:
            return link
        there = known.get((source.parent / file).resolve())
        if there is None:
            return None
        return (
            Path(
                os.path.relpath(there.with_suffix(".md") if there.suffix == ".ipynb" else there, base)
            ).as_posix()
            + sign
            + anchor
        )

    return tightened(rewritten(text, change))


def _folder_of(target: Path) -> Path:
    """The folder of a page below the folder of all pages."""
    for parent in target.parents:
        if parent.name == SOURCES:
            return target.parent.relative_to(parent)
    raise ValueError(f"{target} is in no folder called {SOURCES}")


SOURCES = "site-pages"


def _write_examples(folder: Path) -> None:
    """A page for each example: its source."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted((ROOT / "examples").glob("*.py")):
        code = path.read_text()
        (folder / f"{path.stem}.md").write_text(f"# {path.name}\n\n```python\n{code}```\n")


def _cells(notebook: Any) -> Iterator[str]:
    """The cells of a notebook as Markdown: text, code, and what it printed."""
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield source
        elif cell["cell_type"] == "code" and source.strip():
            yield f"```python\n{source}\n```"
            for output in cell.get("outputs", ()):
                text = "".join(output.get("text", ()) or output.get("data", {}).get("text/plain", ()))
                if text.strip():
                    yield f"```text\n{text.rstrip()}\n```"


# Navigation


def navigate(folder: Path) -> None:
    """Add the tables of contents to the first page, and to pages that have others below them.

    Every page is in one of them; those that no section names are under "More".
    """
    left = {p.relative_to(folder).with_suffix("").as_posix() for p in folder.rglob("*.md")} - {"index"}
    for parent, below in PARENTS.items():
        children = sorted(n for n in left if n.startswith(below) and n != parent)
        if parent in left and children:
            if parent != "api/index":  # which has its own
                _add(folder / f"{parent}.md", _toctree("", [f"/{name}" for name in children]))
            left -= set(children)
    text = ""
    for caption, names in SECTIONS.items():
        found = [name for name in names.split() if name in left]
        left -= set(found)
        text += _toctree(caption, found)
    _add(folder / "index.md", text + _toctree("More", sorted(left)))


def _add(page: Path, text: str) -> None:
    with page.open("a") as file:
        file.write(text)


def _toctree(caption: str, names: list[str]) -> str:
    if not names:
        return ""
    listed = "\n".join(names)
    told = f":caption: {caption}\n" if caption else ""
    return f"\n```{{toctree}}\n:hidden:\n{told}:maxdepth: 1\n\n{listed}\n```\n"

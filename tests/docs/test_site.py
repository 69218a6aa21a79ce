"""What the site is built of: pages gathered with links that hold, all of them in the navigation."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from docs_tools import pages
from docs_tools.links import broken, links_of


@pytest.fixture(scope="module", name="gathered")
def _gathered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pages.gather(tmp_path_factory.mktemp("site") / pages.SOURCES, with_reference=False).folder


def names_of(folder: Path) -> set[str]:
    return {p.relative_to(folder).with_suffix("").as_posix() for p in folder.rglob("*.md")}


def listed(folder: Path) -> list[str]:
    """The pages that tables of contents name, from the first page on."""
    found = []
    for page in folder.rglob("*.md"):
        for block in re.findall(r"```\{toctree\}\n((?::[^\n]*\n)*)\n(.*?)\n```", page.read_text(), re.S):
            found += [name.lstrip("/") for name in block[1].split()]
    return found


def test_every_page_is_in_the_navigation_once(gathered: Path) -> None:
    assert sorted(listed(gathered)) == sorted(names_of(gathered) - {"index"})


def test_pages_of_all_kinds_are_gathered(gathered: Path) -> None:
    have = names_of(gathered)
    assert {"index", "tensors", "cookbook/training", "examples/vae", "architecture", "contributing"} <= have
    assert len(have) > 60
    assert (gathered / "images" / "gpt.png").exists()


def test_links_of_gathered_pages_hold(gathered: Path) -> None:
    wrong = [told for page in sorted(gathered.rglob("*.md")) for told in broken(page, gathered)]
    assert [told for told in wrong if "](api/" not in told] == []
    assert "contributing.md" in [link.target for link in links_of((gathered / "index.md").read_text())]


def test_links_to_files_without_a_page_are_left_as_text(gathered: Path) -> None:
    assert "[Makefile]" not in (gathered / "contributing.md").read_text()


@pytest.fixture(name="small")
def _small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a course, a notebook and a page that no section names."""
    root = tmp_path / "root"
    for path, text in {
        "docs/index.md": "# First\n\n[chapter](course/en/01-nodes.md#one)\n",
        "docs/strange.md": "# Strange\n",
        "docs/course/en/index.md": "# Course\n",
        "docs/course/en/01-nodes.md": "# Nodes\n\n## One\n",
        "docs/course/zh/01-nodes.md": "# 节点\n\n[English](../en/01-nodes.md)\n",
        "examples/README.md": "# Examples\n\n[one](one.py)\n",
        "examples/one.py": "x = 1\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    cells = [
        {"cell_type": "markdown", "source": ["# A notebook\n", "\n", "[first](../../index.md)"]},
        {"cell_type": "code", "source": ["1 + 1"], "outputs": [{"data": {"text/plain": ["2"]}}]},
    ]
    (root / "docs/course/en/02-edges.ipynb").write_text(json.dumps({"cells": cells}))
    monkeypatch.setattr(pages, "ROOT", root)
    return pages.gather(tmp_path / pages.SOURCES, with_reference=False).folder


def test_course_and_unknown_pages_appear_by_themselves(small: Path) -> None:
    assert sorted(listed(small)) == sorted(names_of(small) - {"index"})
    assert "/course/en/01-nodes" in (small / "course/en/index.md").read_text()
    more = (small / "index.md").read_text().partition(":caption: More")[2]
    assert "strange" in more
    assert "course/zh/01-nodes" in more  # whose first page is missing
    assert [broken(page, small) for page in small.rglob("*.md")] == [[]] * 8


def test_notebooks_become_pages(small: Path) -> None:
    text = (small / "course/en/02-edges.md").read_text()
    assert text.startswith("# A notebook\n")
    assert "```python\n1 + 1\n```\n\n```text\n2\n```" in text


def test_examples_become_pages(small: Path) -> None:
    assert "```python\nx = 1\n```" in (small / "examples/one.md").read_text()
    assert [link.target for link in links_of((small / "examples/index.md").read_text())] == ["one.md"]

"""The course: its notebooks run, its pictures are what its code draws, and both languages have the same code.

The pages themselves are run as doctests, as all pages are; those in Chinese are not: their code is the same.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.course.notebooks import write_notebooks
from tests.course.pages import COURSE, IMAGES, ROOT, Cell, chapters, code_blocks, read_cells
from tests.course.pictures import contents, outdated
from tests.course.running import run_cells

NAMES = [page.name for page in chapters("en")]
PICTURE = r"\.\./images/(.+?)\.svg"


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    written = write_notebooks(tmp_path_factory.mktemp("notebooks"))
    return {f"{path.parent.name}/{path.stem}.md": json.loads(path.read_text()) for path in written}


def test_there_are_ten_chapters_in_both_languages() -> None:
    assert len(NAMES) == 10
    assert [page.name for page in chapters("zh")] == NAMES


@pytest.mark.rotating(4)
@pytest.mark.parametrize("name", NAMES)
def test_notebook_runs_from_top_to_bottom_and_draws_what_the_page_shows(
    name: str, notebooks: dict[str, Any]
) -> None:
    text = (COURSE / "en" / name).read_text()
    cells = [
        Cell(c["cell_type"], "".join(c["source"]), "tags" in c["metadata"], of_page.picture)
        for c, of_page in zip(notebooks[f"en/{name}"]["cells"], read_cells(text), strict=True)
    ]
    drawn = run_cells(cells)
    shown = set(re.findall(PICTURE, text))
    assert set(drawn) == shown != set()
    stale = shown & set(outdated(drawn))
    assert not stale, f"python -m tests.course.pictures --write makes {sorted(stale)} anew"


def test_every_picture_is_on_a_page() -> None:
    text = "".join(page.read_text() for page in chapters("en"))
    assert {path.stem for path in IMAGES.glob("*")} == set(re.findall(PICTURE, text))


def test_notebooks_have_the_form_that_jupyter_reads(notebooks: dict[str, Any]) -> None:
    assert len(notebooks) == 20
    for made in notebooks.values():
        assert (made["nbformat"], made["nbformat_minor"]) == (4, 5)
        assert made["metadata"]["kernelspec"]["name"] == "python3"
        assert len({cell["id"] for cell in made["cells"]}) == len(made["cells"])
        for cell in made["cells"]:
            code = {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
            assert set(cell) == {"id", "cell_type", "metadata", "source"} | code
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", cell["id"])
            assert cell["source"]
            assert all(line.endswith("\n") for line in cell["source"][:-1])
            assert ">>> " not in "".join(cell["source"])
            assert "<details>" not in "".join(cell["source"])


@pytest.mark.parametrize("name", NAMES)
def test_both_languages_have_the_same_code_pictures_and_exercises(name: str) -> None:
    english, chinese = ((COURSE / language / name).read_text() for language in ("en", "zh"))
    assert code_blocks(chinese) == code_blocks(english)
    links = r"\]\(([^)]+)\)"
    for mark in (links, r"^#+ ", r"^\d\. ", r"^\|", "<details>", "<summary>", "</summary>", "</details>"):
        assert re.findall(mark, chinese, re.MULTILINE) == re.findall(mark, english, re.MULTILINE), mark


@pytest.mark.parametrize("name", NAMES)
def test_chapter_has_all_of_its_parts(name: str) -> None:
    text = (COURSE / "en" / name).read_text()
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert {"The idea", "What is measured", "Build it yourself", "Exercises"} <= set(headings)
    exercises = text.split("## Exercises\n")[1].split("<details>")[0]
    count = len(re.findall(r"^\d\. ", exercises, re.MULTILINE))
    assert 3 <= count <= 5
    assert re.findall(r"<summary>Solution (\d)</summary>", text) == [str(i) for i in range(1, count + 1)]


def test_links_of_the_course_lead_to_files() -> None:
    pages = [*COURSE.glob("*/*.md"), ROOT / "README.zh.md"]
    assert len(pages) == 23
    for page in pages:
        prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", prose):
            assert (page.parent / link).exists(), f"{page}: {link}"


def test_chinese_readme_has_the_code_and_commands_of_the_first_one() -> None:
    english, chinese = ((ROOT / name).read_text() for name in ("README.md", "README.zh.md"))
    assert _fenced(chinese) == _fenced(english)
    links, links_too = (re.findall(r"\]\(([^)]+)\)", text) for text in (english, chinese))
    assert set(links) - {"README.zh.md"} <= set(links_too)
    for mark in (r"^#+ ", r"^\|"):
        assert re.findall(mark, chinese, re.MULTILINE) == re.findall(mark, english, re.MULTILINE), mark


def _fenced(text: str) -> list[list[str]]:
    """The blocks of code in a text, without comments, which are in its language."""
    blocks = re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL)
    return [[line.split("  #")[0].rstrip() for line in block.splitlines()] for block in blocks]


def test_a_picture_that_shows_something_else_is_noticed() -> None:
    svg = (IMAGES / "01-first.svg").read_text()
    other = svg.replace(">Mul<", ">Add<")
    assert other != svg
    assert contents(svg) == contents(re.sub(r'(width|height)="\d+"', r'\1="1"', svg))
    assert contents(svg) != contents(other)
    assert "01-first" in outdated({"01-first": other})
    assert "01-first" not in outdated({"01-first": svg})


def test_a_cell_that_fails_or_does_not_fail_as_meant_is_noticed() -> None:
    with pytest.raises(AssertionError, match="cell 1 must run"):
        run_cells([Cell("code", "1 / 0")])
    with pytest.raises(AssertionError, match="cell 2 must raise"):
        run_cells([Cell("code", "x = 1"), Cell("code", "x", raises=True)])


def test_a_page_is_cut_where_it_shows_what_comes_out() -> None:
    text = (
        "# Title\n\n```python\n>>> x = 1\n>>> x\n1\n>>> draw(x)\n<picture>\n\n```\n\n"
        "![a](../images/a.svg)\n\nText\n\n<details>\n<summary>Solution 1</summary>\n\n```python\n>>> 1 / 0\n"
        "Traceback (most recent call last):\nZeroDivisionError: division by zero\n\n```\n\n</details>\n"
    )
    assert read_cells(text) == [
        Cell("markdown", "# Title"),
        Cell("code", "x = 1\nx"),
        Cell("code", "draw(x)", picture="a"),
        Cell("markdown", "Text\n\n#### Solution 1"),
        Cell("code", "1 / 0", raises=True, folded=True),
    ]

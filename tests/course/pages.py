"""Pages of the course as cells of a notebook: text and code, and which code draws which picture.

A page is Markdown with doctests. A block of code becomes one cell or several, each ending where the page
shows what comes out; a picture right after a block is what the last expression of that block draws.
"""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
COURSE = ROOT / "docs" / "course"
IMAGES = COURSE / "images"
LANGUAGES = ("en", "zh")

_BLOCK = re.compile(r"^```python\n(.*?)^```\n?", re.MULTILINE | re.DOTALL)
_PICTURE = re.compile(r"\A\s*!\[[^\]]*\]\(\.\./images/([^)]+)\.svg\)\n")


@dataclass(frozen=True)
class Cell:
    """A cell of a notebook.

    Attributes:
        kind: "markdown" or "code".
        source: its text, without prompts and without what comes out.
        raises: whether its last statement is meant to raise an error.
        picture: the name of the picture that its last expression draws, or None.
        folded: whether it belongs to a solution that the page folds away.
    """

    kind: str
    source: str
    raises: bool = False
    picture: str | None = None
    folded: bool = False


def chapters(language: str) -> list[Path]:
    """The chapters of the course, in order."""
    return sorted((COURSE / language).glob("[0-9]*.md"))


def code_blocks(text: str) -> list[str]:
    """The blocks of Python in a page, as they stand there."""
    return _BLOCK.findall(text)


def read_cells(text: str) -> list[Cell]:
    """A page as cells."""
    cells: list[Cell] = []
    depth = 0  # of folded parts around what comes next
    parts = _BLOCK.split(text)
    for number, part in enumerate(parts):
        if number % 2:
            after = _PICTURE.match(parts[number + 1])
            cells += _code_cells(part, after and after.group(1), folded=depth > 0)
            continue
        prose = _PICTURE.sub("", part) if number else part
        depth += prose.count("<details>") - prose.count("</details>")
        if shown := _unfolded(prose):
            cells.append(Cell("markdown", shown))
    return cells


def _unfolded(prose: str) -> str:
    """Text without marks that fold parts of a page: a notebook folds cells, not text across cells."""
    prose = re.sub(r"</?details>\n?", "", prose)
    return re.sub(r"<summary>(.*?)</summary>", r"#### \1", prose).strip()


def _code_cells(block: str, picture: str | None, folded: bool) -> Iterator[Cell]:
    sources: list[str] = []
    examples = doctest.DocTestParser().get_examples(block)
    for number, example in enumerate(examples, 1):
        sources.append(example.source)
        last = number == len(examples)
        if example.want or last:
            source = "".join(sources).rstrip("\n")
            sources.clear()
            yield Cell("code", source, example.exc_msg is not None, picture if last else None, folded)

"""The pictures of the course: what its code draws, and whether those in the repository are still that.

``python -m tests.course.pictures --write`` runs the chapters and writes all pictures; either way it
names those that were not up to date.
"""

from __future__ import annotations

import re
import sys
from collections import Counter

from tests.course.pages import IMAGES, chapters, read_cells
from tests.course.running import run_cells


def contents(svg: str) -> tuple[Counter[str], Counter[str]]:
    """What a picture shows, wherever it lies: its words, and how many boxes and arrows there are.

    Where boxes lie depends on the version of the library that lays them out, and so is not compared.
    """
    words = Counter(re.findall(r"<text[^>]*>([^<]*)</text>", svg))
    shapes = Counter(re.findall(r"<(rect|ellipse|path)\b", svg))
    return words, shapes


def draw() -> dict[str, str]:
    """All pictures, by name, made anew."""
    found: dict[str, str] = {}
    for page in chapters("en"):
        found |= run_cells(read_cells(page.read_text()))
    return found


def outdated(drawn: dict[str, str]) -> list[str]:
    """The names of pictures that are missing, show something else, or that no page draws."""
    wrong = {path.stem for path in IMAGES.glob("*.svg")} - set(drawn)
    for name, svg in drawn.items():
        path = IMAGES / f"{name}.svg"
        if not path.exists() or contents(path.read_text()) != contents(svg):
            wrong.add(name)
    return sorted(wrong)


def write_pictures(drawn: dict[str, str]) -> None:
    """Write all pictures, and remove those that no page draws."""
    IMAGES.mkdir(exist_ok=True)
    for path in IMAGES.glob("*.svg"):
        if path.stem not in drawn:
            path.unlink()
    for name, svg in drawn.items():
        (IMAGES / f"{name}.svg").write_text(svg)


def main(write: bool) -> int:
    """Write pictures, or name those that are not up to date."""
    drawn = draw()
    wrong = outdated(drawn)
    sys.stdout.writelines(f"{name}.svg\n" for name in wrong)
    if write:
        write_pictures(drawn)
    return 0 if write else bool(wrong)


if __name__ == "__main__":
    sys.exit(main("--write" in sys.argv[1:]))

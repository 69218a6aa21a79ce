"""The course as notebooks: ``python -m tests.course.notebooks FOLDER``, or ``make notebooks``.

Pages are the source, and what is tested; notebooks are made of them when somebody wants them, and not kept.
Outputs are left out: run a notebook to see them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.course.pages import LANGUAGES, Cell, chapters, read_cells


def notebook(cells: list[Cell]) -> dict[str, Any]:
    """A notebook of Jupyter, version 4.5 of the format."""
    return {
        "cells": [_cell(number, cell) for number, cell in enumerate(cells)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cell(number: int, cell: Cell) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    if cell.raises:
        metadata["tags"] = ["raises-exception"]  # so that "run all" goes on after it
    if cell.folded:
        metadata["jupyter"] = {"source_hidden": True}
    made = {
        "id": f"cell-{number}",
        "cell_type": cell.kind,
        "metadata": metadata,
        "source": cell.source.splitlines(keepends=True),
    }
    return made | ({"execution_count": None, "outputs": []} if cell.kind == "code" else {})


def write_notebooks(folder: Path) -> list[Path]:
    """Write the notebooks of all chapters, in a folder for each language."""
    written = []
    for language in LANGUAGES:
        (folder / language).mkdir(parents=True, exist_ok=True)
        for page in chapters(language):
            path = folder / language / f"{page.stem}.ipynb"
            made = notebook(read_cells(page.read_text()))
            path.write_text(json.dumps(made, ensure_ascii=False, indent=1) + "\n")
            written.append(path)
    return written


if __name__ == "__main__":
    for made in write_notebooks(Path(sys.argv[1])):
        sys.stdout.write(f"{made}\n")

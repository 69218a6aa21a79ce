"""The examples of docs/interop.md and of the docstrings run, where the frameworks are installed."""

from __future__ import annotations

import inspect
import re
import runpy
import textwrap
import warnings
from pathlib import Path

import pytest

import weft

PAGE = Path(__file__).parents[2] / "docs" / "interop.md"
SECTIONS = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(r"Example::\n\n((?:[ ]{4,}.*\n|\n)+)")
FUNCTIONS = [
    getattr(module, name) for module in (weft.interop.torch, weft.interop.jax) for name in module.__all__
]


def run(code: str, folder: Path) -> None:
    path = folder / "example.py"
    path.write_text(code)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runpy.run_path(str(path))


@pytest.mark.parametrize("section", SECTIONS, ids=[s.splitlines()[0] for s in SECTIONS])
def test_examples_of_the_page_run(section, tmp_path) -> None:
    blocks = BLOCK.findall(section)
    assert blocks
    run("\n".join(blocks), tmp_path)


EXAMPLES = {
    f.__name__: found[1] for f in FUNCTIONS if (found := EXAMPLE.search(inspect.getdoc(f) + "\n")) is not None
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_the_docstrings_run(name, tmp_path) -> None:
    run("import jax, torch, weft\n" + textwrap.dedent(EXAMPLES[name]), tmp_path)


def test_every_function_has_an_example() -> None:
    assert len(EXAMPLES) == 9
    assert all(">>>" in f.__doc__ for f in FUNCTIONS if f.__name__ not in EXAMPLES)

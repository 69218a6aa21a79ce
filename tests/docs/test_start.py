"""The first page: a program that trains comes first, and what it saves can be served as the page says."""

from __future__ import annotations

import doctest
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.serve.client import run, serving

ROOT = Path(__file__).parents[2]
FIRST_SCREEN = 55  # lines
STEPS = (
    "nn.Sequential",
    "nn.CrossEntropyLoss",
    "optim.",
    ">>> @weft.compile",
    ".backward()",
    ".save(",
    "weft serve",
)
RECIPES = sorted((ROOT / "docs" / "cookbook").glob("*.md"))
HEADINGS = {page: re.findall(r"^## (.*)$", page.read_text(), re.M) for page in RECIPES}


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_training_is_on_the_first_screen(page: str) -> None:
    lines = (ROOT / page).read_text().splitlines()[:FIRST_SCREEN]
    found = [next((i for i, line in enumerate(lines) if step in line), None) for step in STEPS]
    assert None not in found, dict(zip(STEPS, found, strict=True))
    assert found == sorted(found, key=lambda i: i or 0)


def test_model_of_the_first_page_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "index.md").read_text()
    space: dict[str, Any] = {}
    for example in doctest.DocTestParser().get_examples(text):
        source = example.source.replace("range(10)", "range(1)")
        exec(compile(source, "<page>", "exec"), space)  # noqa: S102 - the page itself
    names = re.findall(r"weft serve (\S+) --port 8000", text)
    assert names == ["digits.weft"]

    async def ask(server: Any) -> tuple[Any, Any]:
        about = await server.ask("GET", "/v2/models/digits")
        body = (tmp_path / "request.json").read_bytes()
        return about, await server.ask("POST", "/v2/models/digits/infer", body)

    assert re.findall(r"localhost:8000(\S+)", text) == ["/v2/models/digits", "/v2/models/digits/infer"]
    with serving(names[0]) as server:
        about, answer = run(ask(server))
    assert (about.status, answer.status) == (200, 200)
    (output,) = json.loads(answer.body)["outputs"]
    expected = space["model"](space["images"][:1]).detach().numpy()[0]
    assert output["data"] == pytest.approx(expected.tolist(), abs=1e-4)


# Recipes


def test_there_are_thirty_recipes_and_more() -> None:
    assert sum(map(len, HEADINGS.values())) >= 30


@pytest.mark.parametrize("page", RECIPES, ids=[page.stem for page in RECIPES])
def test_recipes_stand_by_themselves(page: Path) -> None:
    """Each makes its own imports, so that it can be copied alone."""
    parts = re.split(r"^## .*$", page.read_text(), flags=re.M)[1:]
    for heading, part in zip(HEADINGS[page], parts, strict=True):
        first = part.partition(">>> ")[2]
        assert first.startswith(("import ", "from ")), heading
        assert len(part.splitlines()) < 60, f"{heading} is no short recipe"


def test_first_page_of_the_cookbook_lists_all_recipes() -> None:
    listed = re.findall(r"^- \[(.*)\]\(cookbook/", (ROOT / "docs" / "cookbook.md").read_text(), re.M)
    assert sorted(listed) == sorted(heading for found in HEADINGS.values() for heading in found)

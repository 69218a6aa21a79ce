"""The file that ``weft.view`` writes."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.viewer.page import page_data, page_text


class Parts(HTMLParser):
    """Scripts by type, and all addresses."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: dict[str, str] = {}
        self.addresses: list[str] = []
        self._type: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.addresses += [str(v) for k, v in attrs if k in ("src", "href")]
        self._type = str(found.get("type")) if tag == "script" else None

    def handle_data(self, data: str) -> None:
        if self._type is not None:
            self.scripts[self._type] = self.scripts.get(self._type, "") + data


def square(x: Any) -> Any:
    return x * x  # "</script><b>" & 'quotes'


@pytest.fixture(scope="module")
def text() -> str:
    return page_text(page_data(weft.make_graph(square)(weft.ones(3))))


def test_everything_is_in_the_file(text: str) -> None:
    parts = Parts(text)
    assert parts.addresses == ["data:,"]
    style = text[text.index("<style>") : text.index("</style>")]
    assert not re.search(r"@import|url\(", style)
    imports = json.loads(parts.scripts["importmap"])["imports"]
    assert all(address.startswith("data:text/javascript;base64,") for address in imports.values())


def test_a_name_with_the_text_of_a_place_is_only_a_name() -> None:
    """Places are those of the page; what is put into one is not looked at for others."""
    text = page_text({**page_data(weft.make_graph(square)(weft.ones(3))), "name": "{{data}}"})
    assert "<title>{{data}} · weft</title>" in text
    assert json.loads(Parts(text).scripts["application/json"])


def test_modules_are_as_their_files_and_import_each_other_alone(text: str) -> None:
    imports = json.loads(Parts(text).scripts["importmap"])["imports"]
    files = {f.name: f for f in (resources.files("weft.viewer") / "page").iterdir() if f.name.endswith(".js")}
    assert {f"weft/{name}" for name in files} == set(imports)
    for name, address in imports.items():
        code = base64.b64decode(address.partition(",")[2]).decode()
        assert code == files[name.removeprefix("weft/")].read_text("utf-8")
        assert set(re.findall(r'from "([^"]+)"', code)) <= set(imports)


def test_what_users_write_cannot_end_the_data(text: str) -> None:
    data = json.loads(Parts(text).scripts["application/json"])
    (source,) = data["sources"]
    assert any('"</script><b>"' in line for line in source["lines"])


def test_names_in_the_title_are_escaped() -> None:
    graph = weft.make_graph(square)(weft.ones(3)).replace(name="<b>&")
    assert "<title>&lt;b&gt;&amp; · weft</title>" in page_text(page_data(graph))


def test_the_file_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    graph = weft.make_graph(square)(weft.ones(3))
    path = weft.view(graph, tmp_path / "page.html", open=False)
    assert path == tmp_path / "page.html"
    assert path.read_text("utf-8").startswith("<!doctype html>")
    with pytest.raises(weft.errors.ArgumentError, match=r"must end in \.html, got 'page\.png'"):
        weft.view(graph, tmp_path / "page.png", open=False)


def test_the_browser_is_asked_to_open_it(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    path = weft.view(weft.make_graph(square)(weft.ones(3)))
    assert opened == [path.absolute().as_uri()]
    path.unlink()
    path.parent.rmdir()

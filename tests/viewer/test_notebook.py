"""What notebooks show: valid, escaped, bounded; in a real shell of IPython where it is installed."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from typing import Any
from xml.etree import ElementTree

import pytest

import weft
from tests.viewer.programs import training_step
from weft import nn

VOID = {"img", "br", "hr", "input", "meta", "link"}


class Parsed(HTMLParser):
    """The elements of HTML, which must be closed in the order they were opened."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.found if name == tag]


def picture_in(html: str) -> ElementTree.Element:
    (image,) = Parsed(html).all("img")
    start, _, data = str(image["src"]).partition(",")
    assert start == "data:image/svg+xml;base64"
    return ElementTree.fromstring(base64.b64decode(data))


def texts_of(svg: ElementTree.Element) -> list[str]:
    return [e.text or "" for e in svg.iter() if e.tag.endswith("text")]


def test_graph_is_drawn_with_its_page_one_click_away() -> None:
    graph = weft.make_graph(lambda x: weft.tanh(x) * 2.0)(weft.ones(2))
    html = graph._repr_html_()
    assert {"x", "tanh", "mul"} <= set(texts_of(picture_in(html)))
    parsed = Parsed(html)
    assert len(parsed.all("details")) == 1
    (frame,) = parsed.all("iframe")
    page = str(frame["srcdoc"])
    assert page.startswith(("<!doctype html>", "<!DOCTYPE html>"))
    assert '"tanh"' in page


def test_names_of_users_are_escaped() -> None:
    def f(x: weft.Tensor) -> weft.Tensor:
        return x + 1.0

    f.__name__ = "<script>alert(1)</script>"
    graph = weft.make_graph(f)(weft.ones(2))
    assert graph.name == f.__name__
    assert "<script>" not in graph._repr_html_().replace(escaped_page(graph._repr_html_()), "")
    compiled = weft.compile(f)
    compiled(weft.ones(2))
    assert not Parsed(compiled._repr_html_()).all("script")
    assert "<script>alert(1)</script>" in Parsed(compiled._repr_html_()).text


def escaped_page(html: str) -> str:
    found = re.search(r'srcdoc="([^"]*)"', html)
    return "" if found is None else found.group(1)


def chain(count: int) -> weft.Graph:
    def f(x: weft.Tensor) -> weft.Tensor:
        for _ in range(count):
            x = weft.sin(x)
            x = weft.cos(x)
        return x

    return weft.jit.trace(f, weft.ones(2)).graph


def test_large_graph_is_folded_and_bounded() -> None:
    graph = chain(400)
    html = graph._repr_html_()
    assert len(html) < 100_000
    assert not Parsed(html).all("iframe")  # it would be as large as the graph
    assert "800 nodes" in Parsed(html).text
    labels = texts_of(picture_in(html))
    assert len(labels) < 130
    assert sum("400 boxes" in label for label in labels) == 2  # one for each of the two lines


def test_folded_picture_keeps_what_flows_between_modules() -> None:
    blocks = [nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU()) for _ in range(20)]
    model = nn.Sequential(*blocks)
    graph = weft.make_graph(model)(weft.ones(2, 4))
    labels = texts_of(picture_in(graph._repr_html_()))
    assert {str(i) for i in range(20)} <= set(labels)


def test_function_says_why_there_is_each_version() -> None:
    f = weft.compile(lambda x, flag: x * 2.0 if flag else x)
    assert "no versions" in f._repr_html_()
    f(weft.ones(2), True)
    f(weft.ones(2), False)
    f(weft.ones((2, 2)), False)
    text = Parsed(f._repr_html_()).text
    assert "3 versions" in text
    assert "it was called first" in text
    assert "flag was True and is False" in text
    assert "x was f32[2] and is f32[2,2]" in text
    assert "x: f32[2], flag: True" in text


def test_profile_has_a_bar_for_each_row() -> None:
    x = weft.ones((64, 64))
    with weft.profile() as p:
        assert p._repr_html_() is None  # while it runs there is nothing to show
        (x @ x).sum()
    parsed = Parsed(p._repr_html_() or "")
    widths = [
        int(m.group(1)) for s in parsed.all("span") if (m := re.search(r"width:(\d+)px", str(s["style"])))
    ]
    shares = [row.share for row in p.rows()]
    assert widths == [round(110 * share) for share in shares]
    assert "matmul" in parsed.text


def test_memory_profile_is_a_table() -> None:
    with weft.memory_profile() as p:
        kept = weft.ones((64, 64)) * 2.0
    assert kept.shape == (64, 64)
    assert "mul" in Parsed(p._repr_html_() or "").text


def test_module_is_its_tree_with_parameters() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    text = Parsed(model._repr_html_()).text
    assert "0: Linear" in text
    assert "in_features=4" in text
    assert "58 parameters" in text
    summary = Parsed(model.summary(weft.ones((3, 4)))._repr_html_()).text
    assert "(3, 2)" in summary


def test_module_of_very_many_modules_is_bounded() -> None:
    model = nn.Sequential(*[nn.Linear(2, 2) for _ in range(300)])
    html = model._repr_html_()
    assert len(html) < 60_000
    assert "and 201 more" in Parsed(html).text


# In a shell

CELLS = (
    "import weft\nx = weft.ones(2)",
    "def f(a):\n    b = a * 2.0\n    return b @ weft.ones((3, 3))",
    "f(x)",
    "weft.compile(f)(x)",
    "g = weft.make_graph(lambda a: a * 2.0)(x)\nassert str(weft.parse_graph(str(g))) == str(g)\nprint(g)",
    "x",
    "g",
    "m = weft.nn.Linear(1, 1)\nm",
    "weft.view(g)",
    "x = weft.ones(8, 1)\n"
    "o = weft.optim.SGD(m.parameters(), lr=0.1)\n"
    "_ = weft.Trainer(m, weft.mse_loss, o, [(x, x)] * 4).fit(epochs=2)",
)


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of the cells shows, from 1 on."""
    if find_spec("IPython") is None:
        pytest.skip("needs IPython")
    env = {**os.environ, "IPYTHONDIR": str(tmp_path_factory.mktemp("ipython")), "BROWSER": "false"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.viewer.cells"],
        input=json.dumps(CELLS),
        capture_output=True,
        text=True,
        env=env,
        check=True,
    )
    return [{}, *json.loads(done.stdout)]


@pytest.mark.rotating(2)
def test_errors_name_the_cell_and_its_line(cells: list[dict[str, Any]]) -> None:
    for failed in (cells[3], cells[4]):
        assert "at Cell In[2], line 3: return b @ weft.ones((3, 3))" in failed["error"]
    assert cells[5]["error"] is None
    assert '@ "Cell In[5]":1' in cells[5]["printed"]


def test_objects_are_shown_rich_and_tensors_as_text(cells: list[dict[str, Any]]) -> None:
    assert cells[6]["shown"] == [{"data": {"text/plain": "tensor([1., 1.])"}, "update": False}]
    assert "<img" in cells[7]["shown"][0]["data"]["text/html"]
    assert "in_features=1" in cells[8]["shown"][0]["data"]["text/html"]
    (page,) = cells[9]["shown"]  # the path that view gives adds nothing
    assert page["data"]["text/html"].startswith("<iframe srcdoc=")


def test_trainer_has_a_bar_that_goes_when_it_ends(cells: list[dict[str, Any]]) -> None:
    assert cells[10]["error"] is None
    shown = [each["data"]["text/html"] for each in cells[10]["shown"]]
    assert any("<progress" in html for html in shown)
    assert "<progress" not in shown[-1]
    assert "epoch 2/2: loss" in shown[-1]


def test_training_step_is_shown() -> None:
    step, args = training_step()
    step(*args)
    assert "nodes" in Parsed(step._repr_html_()).text

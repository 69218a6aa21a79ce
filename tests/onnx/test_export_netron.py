"""Exported models open in Netron: served on loopback, looked at in Chromium.

``WEFT_BROWSER=1`` asks for these; they need the packages netron and playwright, and chromium.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import netron
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

import weft
from tests.onnx.test_export_examples import example

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield found
        found.close()


@contextmanager
def opened(browser: Browser, path: str) -> Iterator[Page]:
    """A model as Netron draws it; nothing leaves the machine."""
    host, port = netron.start(path, address=("127.0.0.1", 0), browse=False)
    try:
        page: Page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.route("**/*", lambda r: r.continue_() if f"{host}:{port}" in r.request.url else r.abort())
        page.goto(f"http://{host}:{port}")
        page.get_by_text("Accept").click()  # the page asks about cookies before it opens a model
        page.wait_for_selector("svg .node", timeout=30_000)
        yield page
    finally:
        netron.stop((host, port))


def labels(page: Page) -> list[str]:
    """What is written in the nodes, in order."""
    found = page.locator(".node-item-type")
    return [found.nth(i).text_content() or "" for i in range(found.count())]


def test_digits_network_is_drawn_layer_by_layer(browser: Browser, tmp_path: Path) -> None:
    model = example("digits_cnn").make_model().eval()
    path = weft.onnx.export(
        model, tmp_path / "digits.onnx", weft.TensorType(("batch", 1, 8, 8), weft.float32)
    )
    with opened(browser, path) as page:
        found = labels(page)
    layers = ["Conv", "BatchNormalization", "Relu", "Conv", "BatchNormalization", "Relu"]
    expected = [*layers, "MaxPool", "Reshape", "Gemm"]
    assert len(found) == len(expected)
    assert all(text.startswith(name) for text, name in zip(found, expected, strict=True))
    assert found[0].endswith("0/Conv")


def test_gpt_is_drawn_with_its_modules_and_lines(browser: Browser, tmp_path: Path) -> None:
    model = example("char_gpt").GPT(30, 32, 32, 4, 2).eval()
    path = weft.onnx.export(
        lambda tokens: model(tokens)[0],
        tmp_path / "gpt.onnx",
        weft.TensorType(("batch", 16), weft.int64),
        opset=23,
    )
    with opened(browser, path) as page:
        found = labels(page)
        page.locator(".node-item-type", has_text="Attention").first.click()
        page.get_by_text(re.compile(r"char_gpt\.py:\d+ in forward")).first.wait_for()
        assert page.get_by_text("blocks.0", exact=True).count() == 1
    assert sum(label.startswith("Attention") for label in found) == 2
    assert any("blocks.1.network.1/Gelu" in label for label in found)
    assert not any(label.startswith("Constant") for label in found)

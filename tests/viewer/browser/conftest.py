"""What tests in a browser share: the browser, the pages, and figures that are told at the end."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.viewer.browser.helpers import DESKTOP, Figures
from tests.viewer.browser.subjects import write_pages


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="session")
def figures(request: pytest.FixtureRequest) -> Iterator[Figures]:
    found = Figures()
    yield found
    terminal = request.config.pluginmanager.getplugin("terminalreporter")
    if terminal is not None:
        terminal.write_line("")
        for name, text in found.rows:
            terminal.write_line(f"{name}: {text}")


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """All pages, by name."""
    return write_pages(tmp_path_factory.mktemp("pages"))


@pytest.fixture
def show(browser: Browser, files: dict[str, Path]) -> Iterator[Callable[..., Page]]:
    """A function that opens a page; at the end there must have been no error."""
    problems: list[str] = []
    pages: list[Page] = []

    def open_page(
        name: str, size: tuple[int, int] = DESKTOP, session: list[Any] | None = None, **settings: Any
    ) -> Page:
        page = browser.new_page(viewport={"width": size[0], "height": size[1]}, **settings)
        if session is not None:
            session[:] = [page.context.new_cdp_session(page)]
            session[0].send("Performance.enable", {"timeDomain": "threadTicks"})
        page.on("console", lambda m: problems.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda r: problems.append(r.url) if r.url.startswith("http") else None)
        pages.append(page)
        page.goto(files[name].as_uri())
        page.wait_for_selector("html[data-ready]")
        return page

    yield open_page
    for page in pages:
        page.close()
    assert problems == []

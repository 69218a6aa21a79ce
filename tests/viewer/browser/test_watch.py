"""The page of a run in a browser: what its header says is what its charts show."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from weft.train.watch import PARTS, Watch, _Server

STEPS, SPAN = 400, 10  # the page takes a fortieth of the points on each side


def _times() -> np.ndarray:
    """Milliseconds of steps that swing by a factor of three, with slow ones among the last."""
    whole = np.tile([2.0, 6.0], STEPS // 2)
    whole[0] = 3000.0
    whole[-4] = 500.0
    return whole


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    watch = Watch(["0.weight"], ["0"], serves=False, say=print)
    parts = {f"time_{part}": np.zeros(STEPS) for part in PARTS}
    parts["time_step"], parts["time_loader"] = 0.75 * _times(), 0.25 * _times()
    steps = np.arange(1.0, STEPS + 1)
    watch.points.extend({"step": steps, "lr": np.ones(STEPS), "loss": 1 / steps, **parts})
    watch.state |= {"status": "trains", "step": STEPS, "epoch": 0}
    server = _Server(watch, 0)
    found = browser.new_page()
    problems: list[str] = []
    found.on("pageerror", lambda error: problems.append(str(error)))
    found.goto(f"http://127.0.0.1:{server.port}/")
    found.wait_for_function("document.getElementById('rate').textContent !== '–'")
    yield found
    found.close()
    server.close()
    assert problems == []


def _number(text: str) -> float:
    return float(text.replace(",", "").split()[0])


def test_rate_of_the_header_is_that_of_the_chart_and_of_the_clock(page: Page) -> None:
    header = page.inner_text("#rate")
    assert header == page.inner_text("#speed .legend b")
    last = _times()[-SPAN - 1 :]
    assert _number(header) == pytest.approx(1000 * len(last) / last.sum(), rel=0.01)


def test_rate_in_the_middle_is_steps_by_time(page: Page) -> None:
    place = page.locator("#speed > div").last  # the chart in it is drawn anew all the time
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_function("document.querySelector('#speed .legend').textContent.includes('at step')")
    assert _number(page.inner_text("#speed .legend b")) == pytest.approx(
        250, rel=0.06
    )  # 4 ms; a mean of rates is 333


def test_share_that_waits_is_of_the_time(page: Page) -> None:
    assert page.inner_text("#wait") == page.inner_text("#waits .legend b") == "25 %"

"""Passes, time, memory and values in a real browser, and the page itself: keys, light, paper, pointer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.viewer.browser.helpers import DESKTOP, SMALL, settle


def test_heat_by_time_and_bytes(show: Callable[..., Page]) -> None:
    page = show("step")
    for choice in ("seconds", "bytes"):
        page.select_option("#colour", choice)
        page.wait_for_timeout(100)
        shares = page.evaluate(
            "weft.camera.scene.boxes.map((b) => (b.open ? -1 : weft.heat(b.item))).filter((s) => s >= 0)"
        )
        assert max(shares) == pytest.approx(1.0)
        expect(page.locator("#legend .scale")).to_be_visible()


def test_the_memory_timeline_is_linked_to_the_nodes(show: Callable[..., Page]) -> None:
    page = show("gpt")
    page.click("#memory-button")
    expect(page.locator("#live h3")).to_contain_text("the peak")
    page.click("#live li >> nth=0")
    name = page.locator("#live li >> nth=0").inner_text().split()[0]
    expect(page.locator("#node h2")).to_contain_text(name)
    buffer = page.evaluate("weft.memory.memory.buffers[0].value")
    assert isinstance(buffer, int)


@pytest.mark.parametrize("size", [DESKTOP, SMALL])
def test_play_shows_values_in_order_of_execution(show: Callable[..., Page], size: tuple[int, int]) -> None:
    page = show("loop", size)
    page.click("#next")
    expect(page.locator("#card")).to_contain_text("16")
    page.click("#next")
    expect(page.locator("#card")).to_contain_text("abs")
    page.select_option("#speed", "60")
    page.click("#play")
    page.wait_for_function("weft.player.moment === weft.player.events.length - 1", timeout=20_000)
    expect(page.locator("#moment-name")).to_contain_text("cond")
    expect(page.locator("#card")).to_contain_text("0.333")
    page.keyboard.press("Escape")
    expect(page.locator("#card")).to_be_hidden()


def test_play_shows_gradients_as_such(show: Callable[..., Page]) -> None:
    page = show("step")
    moment = page.evaluate("weft.data.events.findIndex(([v]) => weft.partOf(v) === 'backward')")
    page.evaluate(f"weft.player.goTo({moment})")
    expect(page.locator("#card")).to_contain_text("gradient")


def test_everything_can_be_reached_by_keys(show: Callable[..., Page]) -> None:
    page = show("loop")
    page.focus("#canvas")
    seen = []
    for _ in range(6):
        page.keyboard.press("ArrowDown")
        seen.append(page.evaluate("weft.chosen?.id"))
    assert len(set(seen)) > 3
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("]")
    assert page.evaluate("weft.stage") == 1


def test_the_graph_of_a_gradient_is_there_too(show: Callable[..., Page]) -> None:
    page = show("two graphs")
    ops = "weft.tree.leaves.map((l) => l.record.op)"
    forward = page.evaluate(ops)
    page.select_option("#graphs", "backward")
    page.wait_for_function(f"String({ops}) !== '{','.join(forward)}'")
    expect(page.locator("#graphs")).to_have_value("backward")
    assert page.evaluate("weft.data.kernels.length") > 0


def test_light_and_dark(show: Callable[..., Page]) -> None:
    page = show("loop", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 25, 31)"
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_it_prints_without_controls(show: Callable[..., Page]) -> None:
    page = show("loop", color_scheme="dark")
    page.emulate_media(media="print")
    expect(page.locator("footer")).to_be_hidden()
    expect(page.locator("#search")).to_be_hidden()
    expect(page.locator("#canvas")).to_be_visible()
    assert len(page.pdf()) > 10_000


def test_the_wheel_zooms_at_the_pointer(show: Callable[..., Page]) -> None:
    page = show("loop")
    under = "(() => { const { x, y, k } = weft.camera.at; return [x + 300 / k, y + 200 / k]; })()"
    frame = page.locator("#canvas").bounding_box()
    assert frame is not None
    page.mouse.move(frame["x"] + 300, frame["y"] + 200)
    settle(page)
    before, scale = page.evaluate(under), page.evaluate("weft.camera.at.k")
    page.mouse.wheel(0, -300)
    page.wait_for_timeout(200)
    assert page.evaluate("weft.camera.at.k") > scale * 1.3
    assert page.evaluate(under) == pytest.approx(before, abs=0.5)


def test_dragging_pans(show: Callable[..., Page]) -> None:
    page = show("loop")
    before = page.evaluate("weft.camera.at")
    page.mouse.move(100, 500)
    page.mouse.down()
    page.mouse.move(160, 540, steps=4)
    page.mouse.up()
    after = page.evaluate("weft.camera.at")
    assert (before["x"] - after["x"]) * after["k"] == pytest.approx(60, abs=1)
    assert (before["y"] - after["y"]) * after["k"] == pytest.approx(40, abs=1)

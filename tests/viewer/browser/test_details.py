"""Small things of the page in a real browser."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.viewer.browser.helpers import settle
from tests.viewer.programs import line_of


def test_tips_go_away(show: Callable[..., Page]) -> None:
    page = show("loop")
    settle(page)
    tip = page.locator("#tip")
    for leave in (
        lambda: page.mouse.wheel(0, -200),
        lambda: page.keyboard.press("+"),
        lambda: page.keyboard.press("c"),
        lambda: page.mouse.move(5, 5),
        lambda: page.evaluate("weft.setStage(1)"),
    ):
        page.evaluate("weft.setStage(0); weft.openAll(true); weft.camera.fit(undefined, false)")
        settle(page)
        where = page.evaluate(
            """(() => {
                const box = weft.camera.scene.boxes.find((b) => !b.open && b.item.record?.kind === "op");
                const { x, y, k } = weft.camera.at;
                const frame = weft.canvas.getBoundingClientRect();
                return [frame.left + (box.x + box.w / 2 - x) * k, frame.top + (box.y + box.h / 2 - y) * k];
            })()"""
        )
        page.mouse.move(where[0] - 3, where[1])
        page.mouse.move(*where)
        expect(tip).to_be_visible()
        leave()
        expect(tip).to_be_hidden()


def test_a_group_shows_the_function_it_comes_from(show: Callable[..., Page]) -> None:
    page = show("step")
    page.evaluate("weft.choose([...weft.tree.groups.values()].find((g) => g.title === 'first'))")
    lit = page.evaluate("[...document.querySelectorAll('#lines .lit')].map((r) => Number(r.dataset.line))")
    assert lit == [line_of("FORWARD") - 1, line_of("FORWARD")]  # def forward, and the line in it
    expect(page.locator("#lines .lit").first).to_be_in_viewport()
    expect(page.locator("#node")).to_contain_text(f"programs.py:{line_of('FORWARD') - 1} in forward")


def test_arguments_are_in_words(show: Callable[..., Page]) -> None:
    page = show("step")
    page.evaluate("weft.choose([...weft.tree.groups.values()].find((g) => g.record?.op === 'cross_entropy'))")
    expect(page.locator("#node")).to_contain_text("target=y")
    expect(page.locator("#node")).not_to_contain_text("Operand")


def test_strings_over_several_lines_have_one_colour(show: Callable[..., Page]) -> None:
    page = show("step")
    line = line_of("STORY")
    kinds = [
        page.evaluate(
            f"[...document.querySelectorAll('#lines [data-line=\"{n}\"] .st')].map((e) => e.textContent)"
        )
        for n in range(line + 1, line + 5)
    ]
    assert kinds[0] == ['"""One line, # no comment']
    assert kinds[1] == ["    def nothing(): return 'of this is code'"]
    assert kinds[2] == ['    and the last."""']
    assert kinds[3] == []


def test_titles_can_be_read_from_far_away(show: Callable[..., Page]) -> None:
    page = show("blocks 26k")
    page.evaluate(
        """(() => {
            window.told = [];
            const write = CanvasRenderingContext2D.prototype.fillText;
            CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
                const size = parseFloat(this.font.match(/([\\d.]+)px/)[1]);
                window.told.push([text, size * this.getTransform().a / weft.camera.ratio]);
                return write.call(this, text, ...rest);
            };
            weft.openAll(true);
        })()"""
    )
    settle(page)
    told = page.evaluate("window.told")
    assert page.evaluate("weft.camera.at.k") < 0.1
    assert {"▾ forward", "▾ backward", "▾ optimizer"} <= {text for text, _ in told}
    assert min(pixels for _, pixels in told) > 5


def test_an_open_graph_of_26_thousand_nodes_is_no_sliver(show: Callable[..., Page]) -> None:
    for name in ("blocks 26k", "unrolled 26k", "tangled 26k"):
        page = show(name)
        page.evaluate("weft.openAll(true)")
        w, h = page.evaluate("[weft.camera.scene.bounds.w, weft.camera.scene.bounds.h]")
        assert 0.3 < w / h < 4

"""Boxes and lines in a real browser: groups, search, links with the source, kernels; by clicks and keys."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.viewer.browser.helpers import DESKTOP, SMALL, boxes, click_item, settle
from tests.viewer.browser.subjects import ODD
from tests.viewer.programs import line_of


@pytest.mark.parametrize("size", [DESKTOP, SMALL])
def test_groups_unfold_and_fold_by_clicks(show: Callable[..., Page], size: tuple[int, int]) -> None:
    page = show("step", size)
    page.keyboard.press("c")
    settle(page)
    folded = boxes(page)
    click_item(page, "item.title === 'first' && item.part === 'forward'")
    unfolded = boxes(page)
    assert unfolded > folded
    assert "first.weight" in page.evaluate("weft.camera.scene.boxes.map((b) => b.item.record?.op).join()")
    click_item(page, "item.title === 'first' && item.part === 'forward'")
    assert boxes(page) == folded


@pytest.mark.parametrize("name", ODD)
def test_every_stage_of_every_graph_can_be_seen_and_played(show: Callable[..., Page], name: str) -> None:
    page = show(name)
    for stage in range(page.evaluate("weft.data.stages.length")):
        page.evaluate(f"weft.setStage({stage})")
        page.evaluate("weft.openAll(true)")
        page.evaluate("new Promise(requestAnimationFrame)")
        shown, leaves = page.evaluate("[weft.camera.scene.at.size, weft.tree.leaves.length]")
        assert shown >= leaves
    if page.evaluate("Boolean(weft.player)"):
        page.evaluate("weft.setStage(0)")
        page.evaluate("weft.player.goTo(weft.data.events.length - 1)")
    page.evaluate("weft.choose([...weft.tree.items.values()].at(-1), { reveal: true })")
    page.evaluate("weft.memory.toggle()")
    page.wait_for_timeout(150)


def test_unfolding_moves_smoothly(show: Callable[..., Page]) -> None:
    page = show("step")
    page.keyboard.press("c")
    settle(page)
    shown = page.evaluate(
        """async () => {
            const group = [...weft.tree.groups.values()].find((g) => g.title === "first");
            const widths = [];
            const draw = weft.camera.drawAll.bind(weft.camera);
            weft.camera.drawAll = (scene, look) => {
                const box = scene.boxes.find((b) => b.item === group);
                if (box) widths.push(box.w);
                draw(scene, look);
            };
            weft.toggle(group);
            await new Promise((done) => setTimeout(done, 700));
            return widths;
        }"""
    )
    assert len(set(shown)) > 4
    assert shown == sorted(shown)


def test_all_unfolds_and_folds_by_keys(show: Callable[..., Page]) -> None:
    page = show("step")
    page.keyboard.press("e")
    assert boxes(page) > page.evaluate("weft.tree.leaves.length")
    page.keyboard.press("c")
    assert boxes(page) < 40


@pytest.mark.parametrize("size", [DESKTOP, SMALL])
def test_search_finds_and_goes_there(show: Callable[..., Page], size: tuple[int, int]) -> None:
    page = show("step", size)
    page.keyboard.press("/")
    page.keyboard.type("tanh")
    expect(page.locator("#found li").first).to_contain_text("tanh")
    page.keyboard.press("Enter")
    expect(page.locator("#node h2")).to_contain_text("tanh")
    settle(page)
    assert page.evaluate("weft.camera.isInView(weft.camera.scene.at.get(weft.chosen))")


def test_search_opens_the_groups_around_what_it_finds(show: Callable[..., Page]) -> None:
    page = show("step")
    page.keyboard.press("c")
    page.fill("#search", "first weight exp_avg_sq")
    page.keyboard.press("Enter")
    settle(page)
    assert page.evaluate("weft.camera.scene.at.has(weft.chosen)")
    expect(page.locator("#node h2")).to_contain_text("model.first.weight.exp_avg_sq")


def test_search_for_nothing_says_so(show: Callable[..., Page]) -> None:
    page = show("loop")
    page.fill("#search", "no such thing")
    expect(page.locator("#found")).to_contain_text("nothing found")


@pytest.mark.parametrize("size", [DESKTOP, SMALL])
def test_a_line_lights_up_its_nodes(show: Callable[..., Page], size: tuple[int, int]) -> None:
    page = show("loop", size)
    page.click(f"#lines div[data-line='{line_of('NEWTON')}']")
    lit = page.evaluate("[...weft.lit].map((item) => item.record.op).sort()")
    assert lit == ["add", "div", "mul"]
    expect(page.locator("#lines .lit")).to_contain_text("new = 0.5 * (x + a / x)")


@pytest.mark.parametrize("size", [DESKTOP, SMALL])
def test_a_node_lights_up_its_line(show: Callable[..., Page], size: tuple[int, int]) -> None:
    page = show("loop", size)
    page.keyboard.press("e")
    click_item(page, "item.record?.op === 'mul'")
    expect(page.locator("#lines .lit")).to_have_attribute("data-line", str(line_of("NEWTON")))
    expect(page.locator("#lines .lit")).to_be_in_viewport()
    expect(page.locator("#node")).to_contain_text("f32[2]")
    expect(page.locator("#node")).to_contain_text("while_loop › body")


def test_neighbours_in_the_panel_are_links(show: Callable[..., Page]) -> None:
    page = show("loop")
    click_item(page, "item.record?.op === 'mul'")
    page.click("#node a:text-is('add')")
    expect(page.locator("#node h2")).to_have_text("add ")


def test_the_slider_goes_through_the_passes(show: Callable[..., Page]) -> None:
    page = show("step")
    names = page.evaluate("weft.data.stages.map((s) => s.name)")
    assert (names[0], names[-1]) == ("captured", "kernels")
    page.focus("#stage")
    for name in names[1:]:
        page.keyboard.press("ArrowRight")
        expect(page.locator("#stage-name")).to_have_text(name)
    expect(page.locator("#groups")).to_be_visible()
    page.keyboard.press("Home")
    expect(page.locator("#stage-name")).to_have_text("captured")


def test_what_a_pass_changed_is_marked(show: Callable[..., Page]) -> None:
    page = show("step")
    stage = page.evaluate("weft.data.stages.findIndex((s) => s.name === 'simplify')")
    page.evaluate(f"weft.setStage({stage})")
    expect(page.locator("#changes")).to_contain_text("−")
    assert page.evaluate("weft.marks.size") > 0
    page.click("#changes .removed")
    removed = page.evaluate("weft.litItems.map((i) => i.record.values[0])")
    after = page.evaluate(f"[...weft.passes.valuesOf({stage}).keys()]")
    assert removed
    assert not set(removed) & set(after)


def test_kernels_are_groups_around_their_nodes(show: Callable[..., Page]) -> None:
    page = show("step")
    page.evaluate("weft.setStage(weft.data.stages.length - 1)")
    page.evaluate("weft.openAll(true)")
    wrong = page.evaluate(
        """weft.data.kernels.filter((kernel) => {
            const group = [...weft.tree.groups.values()].find((g) => g.kernel === kernel);
            if (!group) return false;
            const box = weft.camera.scene.at.get(group);
            return weft.tree.leavesOf(group).some((leaf) => {
                const inner = weft.camera.scene.at.get(leaf);
                return inner.x < box.x || inner.y < box.y || inner.x + inner.w > box.x + box.w
                    || inner.y + inner.h > box.y + box.h;
            });
        }).length"""
    )
    assert wrong == 0
    page.select_option("#groups", "module")
    assert page.evaluate("[...weft.tree.groups.values()].every((g) => !g.kernel)")


@pytest.mark.parametrize("name", ["step", "loop", "gpt"])
def test_no_two_boxes_overlap(show: Callable[..., Page], name: str) -> None:
    page = show(name)
    page.evaluate("weft.openAll(true)")
    overlapping = page.evaluate(
        """(() => {
            const by = new Map();
            for (const b of weft.camera.scene.boxes) {
                const key = b.item.parent;
                by.set(key, [...(by.get(key) ?? []), b]);
            }
            let count = 0;
            for (const group of by.values()) {
                group.sort((p, q) => p.y - q.y);
                for (let i = 0; i < group.length; i++) {
                    for (let j = i + 1; j < group.length && group[j].y < group[i].y + group[i].h - 0.5; j++) {
                        const [p, q] = [group[i], group[j]];
                        if (p.x < q.x + q.w - 0.5 && q.x < p.x + p.w - 0.5) count += 1;
                    }
                }
            }
            return count;
        })()"""
    )
    assert overlapping == 0

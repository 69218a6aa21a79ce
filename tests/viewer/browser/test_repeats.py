"""What repeats in a real browser: equal blocks, unrolled loops, bundles of edges, search in many nodes."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page

from tests.viewer.browser.helpers import Figures, boxes, click_item, settle

FOLD = "[...weft.tree.groups.values()].find((g) => g.kind === 'fold' && g.part === 'forward')"


def test_two_hundred_equal_blocks_are_one_box_that_opens_into_them(show: Callable[..., Page]) -> None:
    page = show("blocks")
    titles = "weft.camera.scene.boxes.map((b) => b.item.title)"
    assert page.evaluate(titles).count("blocks: Block × 200") == 2  # forward and backward
    assert boxes(page) < 20
    click_item(page, "item.title === 'blocks: Block × 200' && item.part === 'forward'")
    members = page.evaluate(f"{FOLD}.children.map((m) => [m.title, weft.camera.scene.at.has(m)])")
    assert members == [[str(i), True] for i in range(200)]
    w, h = page.evaluate(f"(({{w, h}}) => [w, h])(weft.camera.scene.at.get({FOLD}))")
    assert 0.5 < w / h < 3  # in columns, not as a sliver
    click_item(page, "item.title === '7' && item.part === 'forward'")
    assert (
        page.evaluate(f"{FOLD}.children[7].children.map((c) => c.title).slice(0, 3).join()") == "norm,up,down"
    )
    page.evaluate(f"weft.toggle({FOLD})")
    assert boxes(page) < 20


def test_what_a_loop_left_behind_is_folded_by_its_lines(show: Callable[..., Page]) -> None:
    page = show("unrolled 26k")
    assert page.evaluate("weft.camera.scene.boxes.map((b) => b.item.title ?? b.item.record.op)") == [
        "x",
        "12–14: x = a × 5,200",
        "output",
    ]
    page.evaluate("weft.choose(weft.tree.leaves[13_000], { reveal: true })")  # somewhere in the middle
    settle(page)
    assert page.evaluate("weft.camera.isInView(weft.camera.scene.at.get(weft.chosen))")
    around = page.evaluate("weft.chosen.ancestors().slice(1).map((g) => g.title)")
    assert around == ["turn 2600", "2,501–2,600", "12–14: x = a × 5,200"]


def test_edges_of_parameters_and_the_optimizer_are_bundled_and_drawn_when_a_box_is_chosen(
    show: Callable[..., Page],
) -> None:
    page = show("blocks")
    ends = "(lines) => lines.map((l) => [l.from.part ?? l.from.title, l.to.part ?? l.to.title])"
    drawn = page.evaluate(f"({ends})([...weft.camera.scene.lines, ...weft.camera.scene.far])")
    assert not [pair for pair in drawn if "optimizer" in pair]
    assert page.evaluate("weft.look().quiet") is None
    click_item(page, f"item === {FOLD}")
    page.evaluate(f"weft.toggle({FOLD})")
    settle(page)
    bundles = page.evaluate("weft.look().quiet.map((l) => [l.from.title, l.to.title, l.values.length])")
    fold = "blocks: Block × 200"
    uses = 200 * 3 * 7  # by the gradient: six of what a layer makes, one of its weight
    assert sorted(bundles) == [[fold, fold, uses], [fold, "optimizer", 1200]]


def test_search_in_26_thousand_nodes_answers_at_once(show: Callable[..., Page], figures: Figures) -> None:
    for name in ("blocks 26k", "unrolled 26k"):
        page = show(name)
        page.wait_for_function("weft.search.known?.texts.length === weft.search.known?.items.length")
        times = [
            float(page.evaluate(SEARCH, word))
            for word in ("tanh", "blocks.7 norm", "f32[4]", "programs.py:20")
        ]
        assert page.evaluate("weft.search.found.length") > 0 or name == "unrolled 26k"
        figures.add(f"search in {name}", f"{max(times):.0f} ms at most")
        assert min(times) < 100


SEARCH = """(word) => {
    const start = performance.now();
    weft.search.input.value = word;
    weft.search.run();
    return performance.now() - start;
}"""

"""Links of all pages lead to files and headings that are there; nothing is built for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs_tools.links import anchors_of, broken, links_of, rewritten, slug_of

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        ROOT / "examples" / "README.md",
        ROOT / "bench" / "README.md",
    ]
)


@pytest.mark.parametrize("page", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert broken(page, ROOT) == []


def test_wrong_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text(
        "# A\n\n[gone](b.md) [right](#a) [wrong](#b) [twice](#a-1)\n\n```\n[code](c.md)\n```\n\n# A\n"
        "`[code](d.md)` [web](https://e.f) ![picture](g.png) [out](../x.md)\n"
    )
    (tmp_path.parent / "x.md").write_text("")
    told = broken(page, tmp_path)
    assert [line.partition(": ")[2].partition(":")[0] for line in told] == [
        "[gone](b.md)",
        "[wrong](#b)",
        "[picture](g.png)",
        "[out](../x.md)",
    ]
    assert told[0] == "a.md:3: [gone](b.md): there is no such file"
    assert told[1].endswith("there is no such heading")
    assert told[3].endswith("leaves the repository")


@pytest.mark.parametrize(
    ("heading", "slug"),
    [
        ("A training step on a mesh", "a-training-step-on-a-mesh"),
        ("`weft.compile`, step by step", "weftcompile-step-by-step"),
        ("What it costs (in ms)", "what-it-costs-in-ms"),
        ("See [there](x.md)", "see-there"),
        ("第一章 节点", "第一章-节点"),
    ],
)
def test_anchors_are_those_of_the_site(heading: str, slug: str) -> None:
    assert slug_of(heading) == slug


def test_headings_in_code_are_no_anchors(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text("# One\n\n```python\n# Two\n```\n\n## Three\n")
    assert anchors_of(page) == {"one", "three"}


def test_links_are_rewritten_outside_of_code_alone() -> None:
    text = "[a](a.md) and ![b](b.png) `[c](c.md)` [d](https://d.e)\n```\n[e](e.md)\n```\n"
    new = rewritten(text, lambda target: None if target == "b.png" else f"x/{target}")
    assert new == "[a](x/a.md) and b `[c](c.md)` [d](https://d.e)\n```\n[e](e.md)\n```\n"
    assert [link.target for link in links_of(new)] == ["x/a.md"]

"""Links of Markdown pages: what they point to, and the anchors that headings have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

_FENCE = re.compile(r"^\s*(`{3,}|~{3,}|:{3,}\{)")
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+(?:\([^()]*\))?)(?: \"[^\"]*\")?\)")
_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$")
_CODE = re.compile(r"`[^`]*`")
_OTHER = re.compile(r"^[a-z][a-z0-9+.-]*:")  # https:, mailto:


class Link(NamedTuple):
    """A link of a page: where it stands, and where it leads."""

    line: int
    text: str
    target: str


def links_of(text: str) -> Iterator[Link]:
    """The links of a page to other files and to anchors; not those to the web.

    >>> [link.target for link in links_of("see [b](b.md#c), `[no](x)` and [web](https://a.b)")]
    ['b.md#c']
    """
    for number, line in _outside_of_code(text):
        plain = _CODE.sub(lambda found: "x" * len(found[0]), line)
        for found in _LINK.finditer(plain):
            target = line[found.start(3) : found.end(3)]
            if not _OTHER.match(target):
                yield Link(number, line[found.start(2) : found.end(2)], target)


def rewritten(text: str, change: Callable[[str], str | None]) -> str:
    """A page with other targets of its links; a link whose target becomes None is left as its text."""
    lines = text.split("\n")
    for number, line in _outside_of_code(text):
        plain = _CODE.sub(lambda found: "x" * len(found[0]), line)
        for found in reversed(list(_LINK.finditer(plain))):
            target = line[found.start(3) : found.end(3)]
            if _OTHER.match(target):
                continue
            new = change(target)
            text_of = line[found.start(2) : found.end(2)]
            told = text_of if new is None else f"{found[1]}[{text_of}]({new})"
            line = line[: found.start()] + told + line[found.end() :]
        lines[number - 1] = line
    return "\n".join(lines)


def tightened(text: str) -> str:
    r"""A page without the empty line that ends each doctest: it is there for Python alone.

    >>> tightened("```python\n>>> 1\n1\n\n```\n\n```\na\n```")
    '```python\n>>> 1\n1\n```\n\n```\na\n```'
    """
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if fence and line.strip() == fence:
            while lines and not lines[-1].strip():
                lines.pop()
            fence = ""
        elif not fence and found is not None and found[1][0] in "`~":
            fence = found[1]
        lines.append(line)
    return "\n".join(lines)


@cache
def anchors_of(path: Path) -> frozenset[str]:
    """The anchors of a page: its headings as GitHub and the site name them, and ``<a id=...>``."""
    text = path.read_text()
    found: list[str] = []
    for _, line in _outside_of_code(text):
        heading = _HEADING.match(line)
        if heading is not None:
            slug = slug_of(heading[2])
            same = sum(
                1 for other in found if other == slug or re.fullmatch(f"{re.escape(slug)}-\\d+", other)
            )
            found.append(f"{slug}-{same}" if same else slug)
    return frozenset(found) | frozenset(re.findall(r"(?:id|name)=\"([\w-]+)\"", text))


def slug_of(heading: str) -> str:
    """The anchor of a heading.

    >>> slug_of("Pipelines: `stages` of a model")
    'pipelines-stages-of-a-model'
    """
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def broken(path: Path, root: Path) -> list[str]:
    """What is wrong with the links of a page, each with its line."""
    wrong = []
    for link in links_of(path.read_text()):
        file, _, anchor = link.target.partition("#")
        target = (path.parent / file).resolve() if file else path
        where = f"{path.relative_to(root)}:{link.line}: [{link.text}]({link.target})"
        if not target.exists():
            wrong.append(f"{where}: there is no such file")
        elif not target.is_relative_to(root):
            wrong.append(f"{where}: leaves the repository")
        elif anchor and target.suffix == ".md" and anchor not in anchors_of(target):
            wrong.append(f"{where}: there is no such heading")
    return wrong


def _outside_of_code(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, without those of fenced blocks."""
    fence = ""
    for number, line in enumerate(text.split("\n"), 1):
        found = _FENCE.match(line)
        if fence:
            if line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
            continue
        if found is not None and found[1][0] in "`~":
            fence = found[1]
            continue
        yield number, line

"""Docstrings as Markdown: paragraphs, lists of arguments, and examples as blocks of code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import cleandoc

_SECTION = re.compile(r"^(Args|Arguments|Attributes|Example|Examples|Raises|Returns|Yields|Note):\s*$")
_ITEM = re.compile(r"^(\*{0,2}[\w., *]+?)( \([^)]*\))?: (.*)$")
_CODE = re.compile(r"(``[^`]+``|`[^`]+`)")


def to_markdown(text: str) -> str:
    r"""A docstring as Markdown.

    >>> to_markdown("Twice x.\n\nArgs:\n    x: a number.")
    'Twice x.\n\n- **x**: a number.'
    """
    return "\n\n".join(_blocks(cleandoc(text).splitlines())).strip()


def example_of(text: str) -> str:
    r"""The doctest of a docstring, all its blocks; "" if there is none.

    >>> example_of("Twice x.\n\n>>> 2 * 2\n4")
    '>>> 2 * 2\n4'
    """
    groups = _groups(cleandoc(text).splitlines())
    return "\n".join("\n".join(group) for group in groups if group[0].lstrip().startswith(">>>"))


def escaped(text: str) -> str:
    r"""Plain text whose signs mean nothing to Markdown; what stands in backticks stays.

    >>> escaped("(N, *S) of `a*b`")
    '(N, \\*S) of `a*b`'
    """
    parts = _CODE.split(text)
    return "".join(part if i % 2 else re.sub(r"([*<\[\]$|])", r"\\\1", part) for i, part in enumerate(parts))


def _groups(lines: list[str]) -> Iterator[list[str]]:
    """Lines that stand together, without the empty ones between."""
    group: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            group.append(line.rstrip())
        elif group:
            yield group
            group = []


def _blocks(lines: list[str]) -> Iterator[str]:
    literal = False  # whether a paragraph that ends with :: came before
    for group in _groups(lines):
        if literal and group[0].startswith(" "):
            yield _fenced(group)
            continue
        literal = False
        heading = _SECTION.match(group[0])
        if group[0].lstrip().startswith(">>>"):
            yield _fenced(group)
        elif heading is not None and len(group) > 1:
            yield from _section(heading[1], group[1:])
        elif group[-1].endswith("::"):
            literal = True
            yield _paragraph([*group[:-1], group[-1][:-1]])
        elif group[0].startswith("    "):
            yield _fenced(group, "text")
        elif all(line.lstrip().startswith("- ") or line.startswith("  ") for line in group):
            yield "\n".join(escaped(line) for line in group)
        else:
            yield from _with_example(group)


def _with_example(group: list[str]) -> Iterator[str]:
    """A paragraph, and the example that begins in it without an empty line before."""
    begin = next((i for i, line in enumerate(group) if line.lstrip().startswith(">>>")), len(group))
    yield _paragraph(group[:begin])
    if begin < len(group):
        yield _fenced(group[begin:])


def _paragraph(group: list[str]) -> str:
    return "\n".join(escaped(line.strip()) for line in group)


def _fenced(group: list[str], language: str = "python") -> str:
    return f"```{language}\n{cleandoc(chr(10).join(['', *group]))}\n```"


def _section(title: str, group: list[str]) -> Iterator[str]:
    """A list of arguments or attributes; what else has a heading is a paragraph."""
    lines = cleandoc("\n".join(["", *group])).splitlines()
    if not all(line.startswith(" ") or _ITEM.match(line) for line in lines):
        yield f"*{title}.* {_paragraph(lines)}"
        return
    items: list[str] = []
    for line in lines:
        found = None if line.startswith(" ") else _ITEM.match(line)
        if found is not None:
            items.append(f"- **{escaped(found[1])}**: {escaped(found[3])}")
        else:
            items.append(f"  {escaped(line.strip())}")
    yield "\n".join(items) if title.startswith("Arg") else f"*{title}*\n\n" + "\n".join(items)

"""Pages of one file: a package's ``page/page.html``, with its style and all that is told put into it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources

_PLACE = re.compile(r"\{\{(\w+)\}\}")


def fill_page(package: str, parts: Mapping[str, str]) -> str:
    """The page of a package with the parts in the places of their names; ``{{style}}`` is its own.

    What is put in is not looked at again: a part may have such places in its text.
    """
    files = resources.files(package) / "page"
    style = (files / "page.css").read_text("utf-8")
    found = {**parts, "style": style}
    return _PLACE.sub(lambda place: found[place[1]], (files / "page.html").read_text("utf-8"))

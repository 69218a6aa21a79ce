"""Keys of dicts and members of sets: Python hashes them, so it must know the numbers and text in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft.base.sizes import Size
from weft.capture.program.classes import base_method
from weft.capture.runtime.number import Number
from weft.capture.runtime.text import Marked, marked, resolve_text
from weft.errors import CaptureError


def known_key(key: Any) -> Any:
    """A key or member as Python must have it: what only a run tells is looked at, which leaves a guard."""
    if isinstance(key, Number):
        return key.value()
    if type(key) is Marked:
        return resolve_text(key)
    if isinstance(key, Size):
        raise CaptureError(
            "key",
            f"a key must be a number that is known, got the size {key}, which stands for any",
            hint="look it up outside, or make the graph for a size that is known",
        )
    if isinstance(key, tuple | frozenset):
        return _known_parts(key)
    return key


def _known_parts(key: Any) -> Any:
    """A key of several parts; itself, if all of them are known."""
    parts = [known_key(x) for x in key]
    if all(x is y for x, y in zip(parts, key, strict=True)):
        return key
    return key._make(parts) if hasattr(key, "_make") else type(key)(parts)


def settled(made: Any) -> Any:
    """What Python has made, as captured code gets it: text with marks, and plain keys and members."""
    if type(made) is str:
        return marked(made)
    if not isinstance(made, dict | set | frozenset) or not _has_unknown(made):
        return made
    if isinstance(made, frozenset):
        return known_key(made)
    if isinstance(made, dict):
        entries = [(known_key(k), v) for k, v in made.items()]
        base_method(type(made), "clear")(made)
        for key, value in entries:
            base_method(type(made), "__setitem__")(made, key, value)
    else:
        members = [known_key(x) for x in made]
        set.clear(made)
        set.update(made, members)
    return made


def _has_unknown(keys: Iterable[Any]) -> bool:
    """Whether some keys hold numbers or text that only a run tells."""
    return any(
        isinstance(k, Number) or type(k) is Marked or (isinstance(k, tuple | frozenset) and _has_unknown(k))
        for k in keys
    )

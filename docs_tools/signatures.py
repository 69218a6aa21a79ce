"""Signatures as people read them: types as they are written, without quotes."""

from __future__ import annotations

import inspect
import re
from typing import Any

_SIGNS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def signature_of(value: Any, *, method: bool = False) -> str:
    """The signature of what can be called, with the parentheses; "(...)" where Python does not know it.

    >>> def f(x: int | None, /, *rest: int, name: str = "a") -> list[int]: ...
    >>> signature_of(f)
    "(x: int | None, /, *rest: int, name: str = 'a') -> list[int]"
    """
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    parameters = list(found.parameters.values())
    if method and parameters and parameters[0].kind <= inspect.Parameter.POSITIONAL_OR_KEYWORD:
        parameters = parameters[1:]
    gives = "" if isinstance(value, type) else _annotation(found.return_annotation, " -> ")
    return f"({_listed(parameters)}){gives}"


def _listed(parameters: list[inspect.Parameter]) -> str:
    parts: list[str] = []
    before: Any = None
    for parameter in parameters:
        kind = parameter.kind
        if before is inspect.Parameter.POSITIONAL_ONLY and kind is not before:
            parts.append("/")
        if kind is inspect.Parameter.KEYWORD_ONLY and before not in (kind, inspect.Parameter.VAR_POSITIONAL):
            parts.append("*")
        parts.append(_parameter(parameter))
        before = kind
    if before is inspect.Parameter.POSITIONAL_ONLY:
        parts.append("/")
    return ", ".join(parts)


def _parameter(parameter: inspect.Parameter) -> str:
    text = _SIGNS.get(parameter.kind, "") + parameter.name + _annotation(parameter.annotation, ": ")
    if parameter.default is parameter.empty:
        return text
    default = repr(parameter.default)
    if default.startswith("<") or len(default) > 40:
        default = "..."
    return f"{text} = {default}" if ":" in text else f"{text}={default}"


def _annotation(annotation: Any, before: str) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"ForwardRef\('([^']*)'[^)]*\)", r"\1", text)  # fields of named tuples
    return before + re.sub(r"\b(weft|typing|collections|builtins)(\.\w+)*\.(?=\w)", "", text)

"""The state of modules: what ``state_dict`` gives and ``load_state_dict`` takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import weft
from weft.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from weft.nn.module import Module

_MOST_SHOWN = 8  # paths and shapes that an error tells of


class KeyDifference(NamedTuple):
    """How the paths of a state differ from those of a module."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def named_state(module: Module, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The parameters and persistent buffers by their paths; what is shared comes under each of its paths."""
    yield from ((prefix + name, p) for name, p in module._members("_parameter_names"))
    persistent = module._buffer_names
    yield from ((prefix + name, b) for name, b in module._members("_buffer_names") if persistent[name])
    for name, child in module._members("_module_names"):
        yield from named_state(child, f"{prefix}{name}.")


def state_dict(module: Module, prefix: str, keep_vars: bool) -> dict[str, Any]:
    """The state as views of it, cut from the graph: a change of either shows in the other."""
    return {path: t if keep_vars else t.detach() for path, t in named_state(module, prefix)}


def load_state_dict(module: Module, state: Mapping[str, Any], strict: bool) -> KeyDifference:
    """Give the state of a module other values; nothing changes if one of them does not fit."""
    if not isinstance(state, Mapping):
        raise ArgumentError("load_state_dict", f"must be a dict, got {type(state).__name__}")
    own = dict(named_state(module))
    difference = KeyDifference([k for k in own if k not in state], [k for k in state if k not in own])
    if strict and (difference.missing_keys or difference.unexpected_keys):
        raise ArgumentError(
            "load_state_dict",
            f"paths must be those of {type(module).__name__}, got {_told(difference, own, state)}",
            hint=_hint(difference),
        )
    given = {path: weft.as_tensor(state[path])._value() for path in own if path in state}
    wrong = [(p, own[p].shape, x.shape) for p, x in given.items() if x.shape != own[p].shape]
    if wrong:
        told = _listed((f"{p} must have the shape {shape}, got {got}" for p, shape, got in wrong), "; ")
        raise ShapeError("load_state_dict", told, hint="was the state saved from a module of other sizes?")
    for path, value in given.items():
        own[path]._set(value.astype(own[path].dtype))
    return difference


def _told(difference: KeyDifference, own: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    """What is missing and what is unknown, each with its shape, so that a rename shows."""
    missing = _listed(f"{k} {tuple(own[k].shape)}" for k in difference.missing_keys)
    unknown = _listed(f"{k} {_shape(state[k])}" for k in difference.unexpected_keys)
    return f"missing: {missing}; unknown: {unknown}"


def _shape(value: Any) -> Any:
    return tuple(value.shape) if hasattr(value, "shape") else type(value).__name__


def _listed(texts: Iterable[str], separator: str = ", ") -> str:
    listed = list(texts)
    more = [f"and {len(listed) - _MOST_SHOWN} more"] if len(listed) > _MOST_SHOWN else []
    return separator.join([*listed[:_MOST_SHOWN], *more]) or "none"


def _hint(difference: KeyDifference) -> str:
    """The most likely cause: a prefix that all paths have, or names that are nearly right."""
    missing, unknown = difference
    prefix = _added_prefix(missing, unknown)
    if prefix is not None:
        return prefix
    from difflib import get_close_matches

    close = [(k, found[0]) for k in unknown[:_MOST_SHOWN] if (found := get_close_matches(k, missing, 1))]
    guesses = "; ".join(f"{name} is perhaps {match}" for name, match in close)
    return f"{guesses}; or pass strict=False" if close else "pass strict=False to load what fits"


def _added_prefix(missing: list[str], unknown: list[str]) -> str | None:
    """What to say if all unknown paths are missing ones behind a prefix, or the other way round."""
    for outer, inner, advice in (
        (unknown, missing, "the paths of the state begin with {!r}: remove it"),
        (missing, unknown, "the paths of the module begin with {!r}: load into the module inside"),
    ):
        if not inner or len(outer) != len(inner):
            continue
        for prefix in sorted({outer[0].removesuffix(i) for i in inner if outer[0].endswith("." + i)}):
            if {prefix + i for i in inner} == set(outer):  # in whichever order
                return advice.format(prefix)
    return None

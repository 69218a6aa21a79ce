"""The state of modules: what ``state_dict`` gives and ``load_state_dict`` takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import weft
from weft.errors import ArgumentError, ShapeError


class KeyDifference(NamedTuple):
    """How the paths of a state differ from those of a module."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def named_state(module: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The parameters and persistent buffers by their paths; what is shared comes under each of its paths."""
    yield from ((prefix + name, p) for name, p in module._members("_parameter_names"))
    persistent = module._buffer_names
    yield from ((prefix + name, b) for name, b in module._members("_buffer_names") if persistent[name])
    for name, child in module._members("_module_names"):
        yield from named_state(child, f"{prefix}{name}.")


def state_dict(module: Any) -> dict[str, Any]:
    """The values of the state, which later changes of the module do not reach."""
    return {path: tensor.detach() for path, tensor in named_state(module)}


def load_state_dict(module: Any, state: Mapping[str, Any], strict: bool) -> KeyDifference:
    """Give the state of a module other values; nothing changes if one of them does not fit."""
    if not isinstance(state, Mapping):
        raise ArgumentError("load_state_dict", f"must be a dict, got {type(state).__name__}")
    own = dict(named_state(module))
    difference = KeyDifference([k for k in own if k not in state], [k for k in state if k not in own])
    if strict and (difference.missing_keys or difference.unexpected_keys):
        missing, unexpected = (", ".join(keys) or "none" for keys in difference)
        raise ArgumentError(
            "load_state_dict",
            f"paths must be those of {type(module).__name__}, got missing: {missing}; unknown: {unexpected}",
            hint="pass strict=False to load what fits",
        )
    values = {path: _fitting(path, tensor, state[path]) for path, tensor in own.items() if path in state}
    for path, value in values.items():
        own[path].data = value
    return difference


def _fitting(path: str, tensor: Any, value: Any) -> Any:
    given = weft.as_tensor(value).detach()
    if given.shape != tensor.shape:
        raise ShapeError("load_state_dict", f"{path} must have the shape {tensor.shape}, got {given.shape}")
    return given.astype(tensor.dtype)

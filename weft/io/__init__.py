"""Files: trees of tensors, and graphs with their weights. How they are laid out is in docs/saving.md.

Each function is imported at first use: saving tensors does without the compiler, and so does a graph that was
compiled before.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.io.files import load, save
    from weft.io.model import LoadedGraph, load_graph, save_graph

__all__ = ["LoadedGraph", "load", "load_graph", "save", "save_graph"]


def __getattr__(name: str) -> object:
    """Import what is asked for."""
    if name in __all__:
        from importlib import import_module

        return getattr(import_module("weft.io.files" if name in ("load", "save") else "weft.io.model"), name)
    raise AttributeError(f"module 'weft.io' has no attribute {name!r}")

"""Files: trees of tensors, and graphs with their weights. How they are laid out is in docs/saving.md.

What graphs need is imported at first use: saving tensors does without the compiler.
"""

from typing import TYPE_CHECKING

from weft.io.files import load, save

if TYPE_CHECKING:
    from weft.io.model import LoadedGraph, load_graph, save_graph

__all__ = ["LoadedGraph", "load", "load_graph", "save", "save_graph"]


def __getattr__(name: str) -> object:
    """Import what graphs need."""
    if name in __all__:
        from importlib import import_module

        return getattr(import_module("weft.io.model"), name)
    raise AttributeError(f"module 'weft.io' has no attribute {name!r}")

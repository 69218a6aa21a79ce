"""ONNX models: ``load`` makes a Graph of one, ``export`` writes one.

The ``onnx`` package reads and writes the files; it is imported at first use (``pip install weft[onnx]``).
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.onnx.exporting import export
    from weft.onnx.loading import load
    from weft.onnx.operators.registry import Call, operator
    from weft.onnx.writers.registry import writer

__all__ = ["Call", "export", "load", "operator", "writer"]
_MODULES = {
    "load": "loading",
    "export": "exporting",
    "Call": "operators.registry",
    "operator": "operators.registry",
    "writer": "writers.registry",
}


def __getattr__(name: str) -> object:
    """Import what is asked for at first use."""
    if name not in _MODULES:
        raise AttributeError(f"module 'weft.onnx' has no attribute {name!r}")
    return getattr(import_module(f"weft.onnx.{_MODULES[name]}"), name)

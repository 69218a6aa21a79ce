"""ONNX models: ``load`` makes a Graph of one, ``export`` writes one.

The ``onnx`` package reads and writes the files; it is imported at first use (``pip install weft[onnx]``).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.onnx.exporting import export
    from weft.onnx.loading import load
    from weft.onnx.operators.registry import Call, operator
    from weft.onnx.writers.registry import writer

__all__ = ["Call", "export", "load", "operator", "writer"]


def __getattr__(name: str) -> object:
    """Import what is asked for at first use."""
    if name == "load":
        from weft.onnx.loading import load

        return load
    if name == "export":
        from weft.onnx.exporting import export

        return export
    if name in ("Call", "operator"):
        from weft.onnx.operators import registry

        return getattr(registry, name)
    if name == "writer":
        from weft.onnx.writers.registry import writer

        return writer
    raise AttributeError(f"module 'weft.onnx' has no attribute {name!r}")

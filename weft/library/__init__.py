"""Graphs as shared libraries: what C programs call where there is no Python. ``export`` is the driver."""

from __future__ import annotations

from weft.library.export import export_library

__all__ = ["export_library"]

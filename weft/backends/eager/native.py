"""The backend that kernels outside of graphs are made by: the default one, where it runs such."""

from __future__ import annotations

from weft.backends import DEFAULT_BACKEND, backend_named

_backend = backend_named(DEFAULT_BACKEND)
build = _backend.build
empty = _backend.empty

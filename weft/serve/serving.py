"""What users call: ``weft.serve.app`` for a server of their own, ``weft.serve.run`` for one of weft."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields
from importlib.util import find_spec
from typing import Any

from weft.base.public import public
from weft.errors import ArgumentError
from weft.serve.app import App
from weft.serve.model import load_models
from weft.serve.settings import Settings


@public
def app(models: Any, *, backend: Any = None, **limits: Any) -> App:
    """An ASGI application that serves models by the Open Inference Protocol, version 2.

    Any ASGI server runs it, and any ASGI framework mounts it. The models are loaded and compiled at once.

    Args:
        models: the path of a file, several of them, or a dict of paths or loaded graphs by name. Without a
            name a model is called like its file.
        backend: the name of what runs the graphs; the default is the fastest there is.
        limits: ``max_batch``, ``max_delay``, ``max_queue``, ``max_body``, ``max_held``, ``timeout``,
            ``read_timeout``, ``drain``, ``grace``, ``batch_size``; see ``weft.serve.Settings``.

    >>> import os, tempfile, weft
    >>> path = os.path.join(tempfile.mkdtemp(), "double.weft")
    >>> weft.compile(lambda x: x * 2.0).save(path, weft.TensorType(("batch", 3), weft.float32))
    >>> application = weft.serve.app(path, max_batch=16)
    >>> application.models["double"].metadata()["inputs"]
    [{'name': 'x', 'datatype': 'FP32', 'shape': [-1, 3]}]
    """
    known = [field.name for field in fields(Settings)]
    for name in limits:
        if name not in known:
            raise ArgumentError("serve", f"limits must be among {', '.join(known)}, got {name!r}")
    settings = Settings(**limits)
    return App(load_models(models, settings, backend), settings)


@public
def run(
    models: Any,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    backend: Any = None,
    told: Callable[[str], None] | None = None,
    **limits: Any,
) -> bool:
    """Serve models until SIGTERM or SIGINT; whether all requests were answered then.

    Args:
        models, backend, limits: as of ``weft.serve.app``.
        host, port: where to listen; with port 0 the system chooses one.
        told: is called with the address when the server listens; by default it is printed.

    >>> import weft
    >>> weft.serve.run([])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.ArgumentError: serve: must be given a model, got none
    ...
    """
    for package in ("uvicorn", "httptools"):
        if find_spec(package) is None:
            raise ArgumentError("serve", f"needs {package}, got none", hint="pip install 'weft[serve]'")
    application = app(models, backend=backend, **limits)
    from weft.serve.server import serve_app

    return serve_app(application, host, port, told or _say)


def _say(address: str) -> None:
    sys.stdout.write(f"serving on {address}\n")
    sys.stdout.flush()

"""What users call: ``weft.serve.app`` for a server of their own, ``weft.serve.run`` for one of weft."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import fields
from importlib.util import find_spec
from typing import Any

import weft
from weft.base.public import public
from weft.errors import ArgumentError
from weft.serve.app import App
from weft.serve.model import load_models, named_models
from weft.serve.settings import Settings


@public
def app(models: Any, *, backend: Any = None, device: Any = None, **limits: Any) -> App:
    """An ASGI application that serves models by the Open Inference Protocol, version 2.

    Any ASGI server runs it, and any ASGI framework mounts it. The models are loaded and compiled at once.

    Args:
        models: the path of a file, several of them, or a dict of paths or loaded graphs by name. Without a
            name a model is called like its file.
        backend: the name of what runs the graphs; the default is the fastest there is.
        device: where they run, such as "cuda"; by default the cpu.
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
    return App(load_models(models, settings, backend, device), settings)


@public
def run(
    models: Any,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    backend: Any = None,
    device: Any = None,
    workers: int = 1,
    threads: int | None = None,
    told: Callable[[str], None] | None = None,
    **limits: Any,
) -> bool:
    """Serve models until SIGTERM or SIGINT; whether all requests were answered then.

    Args:
        models, backend, device, limits: as of ``weft.serve.app``.
        host, port: where to listen; with port 0 the system chooses one.
        workers: how many processes serve; each loads the models, which are then given by their files.
        threads: how many threads the graphs use in each process; by default all of the machine together.
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
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise ArgumentError("serve", f"workers must be a number from 1 on, got {workers!r}")
    from weft.serve.server import address_of, listen, serve_app

    if workers == 1:
        if threads is not None:
            weft.set_num_threads(threads)
        return serve_app(app(models, backend=backend, device=device, **limits), host, port, told or _say)
    from weft.serve.workers import Supervisor

    given = {
        "models": paths_of(models),
        "backend": backend,
        "device": None if device is None else str(device),
        "threads": threads or max(1, weft.get_num_threads() // workers),
        "limits": limits,
    }
    with listen(host, port) as sock:
        return Supervisor(sock, workers, given).run(lambda: (told or _say)(address_of(sock, host)))


def paths_of(models: Any) -> dict[str, str]:
    """The files of models by name, which each worker reads."""
    found = named_models(models)
    for name, model in found.items():
        if not isinstance(model, str | os.PathLike):
            kind = type(model).__name__
            raise ArgumentError("serve", f"several workers must be given files, got a {kind} for {name}")
    return {name: os.fspath(model) for name, model in found.items()}


def _say(address: str) -> None:
    sys.stdout.write(f"serving on {address}\n")
    sys.stdout.flush()

"""A model that is served: a loaded graph, whether its requests may be put together, and what runs them."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from weft.base.dtypes import kind
from weft.base.sizes import Size, size_names
from weft.base.stopping import Stoppable
from weft.errors import ArgumentError, StoppedError, WeftError
from weft.io.interface import Interface, Port, open_model, random_array, random_inputs
from weft.io.model import LoadedGraph
from weft.io.saved import saved_graph
from weft.ir.graph import Graph
from weft.ops.control import scan, while_loop
from weft.serve.batching import Batcher
from weft.serve.metrics import ModelMetrics
from weft.serve.protocol import DATATYPES, Array, Codec
from weft.serve.settings import Settings

VERSION = "1"
_NAME = re.compile(r"[A-Za-z0-9._-]+")

log = logging.getLogger("weft.serve")

_LOOPS = (scan, while_loop)  # which may take long for other numbers than those of the trial


class Model:
    """A graph under a name, ready to answer.

    Attributes:
        name: in paths.
        interface: its inputs and outputs.
        batch: the name of the size that counts rows, "" where requests are run one by one.
        metrics: what is counted.
        codec: reads requests and writes answers.
        batcher: runs them.
    """

    def __init__(self, name: str, loaded: Any, settings: Settings) -> None:
        if not _NAME.fullmatch(name):
            raise ArgumentError(
                "serve", f"the name of a model must be made of letters, digits, . _ and -, got {name!r}"
            )
        self.name = name
        self.interface = Interface(loaded)
        for port in (*self.interface.inputs, *self.interface.outputs):
            if port.type.dtype not in DATATYPES:
                message = f"inputs and outputs of {name} must be of {', '.join(DATATYPES.values())}"
                raise ArgumentError("serve", f"{message}, got {port.name}: {port.type}")
        self.metrics = ModelMetrics(name)
        self.batch = self._find_batch(settings)
        ports = self.interface.inputs, self.interface.outputs
        self.codec = Codec(name, VERSION, *ports, settings.max_body)
        plain = not any(node.op in _LOOPS for node in self.interface.loaded.graph.walk())
        batched = bool(self.batch)
        self.batcher = Batcher(self.interface.run, settings, batched, self.metrics, inline=plain)
        self._max_batch = settings.max_batch

    def _find_batch(self, settings: Settings) -> str:
        """Try the model, which compiles it, and find the size that counts rows."""
        name = row_size(self.interface, settings.batch_size)
        if settings.batch_size and not name:
            message = f"{settings.batch_size} must be the first size of all inputs and outputs of {self.name}"
            raise ArgumentError("serve", f"{message}, and no other one, got a model where it is not")
        if self.interface.loaded.graph.updates:  # a run would change its state
            return ""
        try:
            sizes = self._try(settings)
        except StoppedError as error:
            log.warning(
                "%s: with random inputs it does not end, so its requests are run one by one: %s",
                self.name,
                error,
            )
            return settings.batch_size
        if not name or settings.max_batch == 1:
            return ""
        if sizes is None:
            log.warning(
                "%s: refuses random inputs, so it is not known whether rows are independent", self.name
            )
            return settings.batch_size
        with limited(settings.timeout):
            if rows_are_independent(self.interface, name, sizes):
                run_random(self.interface, {**sizes, name: settings.max_batch})
                return name
        if settings.batch_size:
            message = f"rows of {self.name} must not depend on each other, got some that do"
            raise ArgumentError("serve", message, hint=f"leave out that {name} counts rows")
        log.warning("%s: rows along %s depend on each other: requests are run one by one", self.name, name)
        return ""

    def _try(self, settings: Settings) -> dict[str, int] | None:
        """Sizes that a model takes; an error if it does not end with them in the time of a request."""
        try:
            with limited(settings.timeout):
                return fitting_sizes(self.interface)
        except StoppedError:  # the first time it was compiled, which counts for nothing
            with limited(settings.timeout):
                return fitting_sizes(self.interface)

    @property
    def max_rows(self) -> int:
        """Rows that one request may have; 0 where there is no limit."""
        return self._max_batch if self.batch else 0

    def metadata(self) -> dict[str, Any]:
        """What the protocol tells of a model."""
        found: dict[str, Any] = {
            "name": self.name,
            "versions": [VERSION],
            "platform": "weft",
            "inputs": [_described(port) for port in self.interface.inputs],
            "outputs": [_described(port) for port in self.interface.outputs],
        }
        if self.batch:
            found["parameters"] = {"max_batch_size": self._max_batch}
        return found


def _described(port: Port) -> dict[str, Any]:
    shape = [-1 if isinstance(size, Size) else size for size in port.type.shape]
    return {"name": port.name, "datatype": DATATYPES[port.type.dtype], "shape": shape}


# From files


def load_models(models: Any, settings: Settings, backend: Any = None, device: Any = None) -> list[Model]:
    """The models that were asked for: a path, several, or graphs or paths by name."""
    found = named_models(models)
    return [Model(name, _loaded(source, backend, device), settings) for name, source in found.items()]


def named_models(models: Any) -> dict[str, Any]:
    """What was given as models, by name."""
    pairs = _named(models)
    if not pairs:
        raise ArgumentError("serve", "must be given a model, got none")
    found: dict[str, Any] = {}
    for name, source in pairs:
        if name in found:
            raise ArgumentError("serve", f"names of models must be distinct, got {name!r} twice")
        found[name] = source
    return found


def _named(models: Any) -> list[tuple[str, Any]]:
    if isinstance(models, Mapping):
        return list(models.items())
    if isinstance(models, str | os.PathLike | LoadedGraph | Graph):
        models = [models]
    return [(_name_of(m), m) for m in models]


def _name_of(source: Any) -> str:
    if isinstance(source, str | os.PathLike):
        return Path(source).stem
    return str(getattr(source, "__name__", None) or getattr(source, "name", ""))


def _loaded(source: Any, backend: Any, device: Any) -> Any:
    if isinstance(source, LoadedGraph):
        return source if device is None else source.to(device)
    if isinstance(source, Graph):
        return LoadedGraph(saved_graph(source), backend).to(device)
    if isinstance(source, str | os.PathLike):
        return open_model(source, backend, device)
    raise ArgumentError("serve", f"models must be paths or loaded graphs, got {type(source).__name__}")


# Rows: whether requests may be put together along a size, which is tried on random inputs

_TRIED = (3, 8, 32, 1)  # that named sizes get, until the model takes one
_ROWS = 4


def row_size(interface: Interface, wanted: str = "") -> str:
    """The name of the size that counts rows: first of all inputs and outputs, and nowhere else; "" if none.

    Args:
        interface: of a model.
        wanted: the name; by default it must begin with "batch".
    """
    ports = (*interface.inputs, *interface.outputs)
    graph = interface.loaded.graph
    if not interface.inputs or any(not port.type.shape for port in ports) or graph.updates:
        return ""
    names = {str(port.type.shape[0]) for port in ports if isinstance(port.type.shape[0], Size)}
    if len(names) != 1 or any(not isinstance(port.type.shape[0], Size) for port in ports):
        return ""
    (name,) = names
    if any(name in size_names(port.type.shape[1:]) for port in ports):
        return ""
    return name if (name == wanted if wanted else name.startswith("batch")) else ""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Stop the runs of a block that takes too long."""
    with Stoppable() as runs:
        timer = threading.Timer(seconds, runs.stop, [f"no end within {seconds:g} s"])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def fitting_sizes(interface: Interface) -> dict[str, int] | None:
    """Values of the named sizes with which a model runs on random inputs; None if none were found."""
    for size in _TRIED:
        sizes = dict.fromkeys(interface.sizes, size)
        try:
            run_random(interface, sizes)
        except StoppedError:
            raise
        except WeftError:
            continue
        return sizes
    return None


def run_random(interface: Interface, sizes: Mapping[str, int]) -> list[Array]:
    """What a model gives for random inputs."""
    return interface.run(random_inputs(interface, sizes, np.random.default_rng(0)))


def rows_are_independent(interface: Interface, name: str, sizes: Mapping[str, int]) -> bool:
    """Whether rows of results depend on their own rows alone, as far as random numbers show it.

    One row is changed, and all others must stay what they are; and a row by itself must give what it gives
    among others, up to rounding. Where there are no floats, only the changed row is not 0, and then only it
    is not 1, so that a maximum and a minimum show.
    """
    generator = np.random.default_rng(0)
    for changed, others_are in ((0, None), (1, 0), (_ROWS - 1, 1)):
        first = random_inputs(interface, {**sizes, name: _ROWS}, generator)
        if others_are is not None:
            first = [a if kind(a.dtype) == "f" else np.full_like(a, others_are) for a in first]
        second = [_with_row(a, changed, generator) for a in first]
        try:
            results, others = interface.run(first), interface.run(second)
            alone = interface.run([a[2:3] for a in first])
        except WeftError:
            return False
        kept = [i for i in range(_ROWS) if i != changed]
        if any(a[kept].tobytes() != b[kept].tobytes() for a, b in zip(results, others, strict=True)):
            return False
        if not all(map(_close, (a[2:3] for a in results), alone)):
            return False
    return True


def _with_row(array: Array, row: int, generator: np.random.Generator) -> Array:
    changed = array.copy()
    other = random_array(array.shape[1:], array.dtype, generator)
    changed[row] = other if kind(array.dtype) == "f" else 1 - array[row].astype(np.int64)
    return changed


def _close(a: Array, b: Array) -> bool:
    if kind(a.dtype) != "f":
        return bool((a == b).all())
    x, y = a.astype(np.float64), b.astype(np.float64)
    limit = 64 * float(np.finfo(np.float16 if a.dtype.itemsize == 2 else np.float32).eps)
    return bool(np.allclose(x, y, limit, limit * max(1.0, float(np.abs(x).max(initial=0.0))), equal_nan=True))

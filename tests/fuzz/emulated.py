"""Random graphs as code of the other architecture, run by qemu: as interpreted, values and gradients.

Cases are those of ``tests.fuzz.graphs``, and are compared as there. They are exported as libraries, linked by
the cross compiler, and run on arrays with guards around them: code that writes where it should not is found,
too. ``apt install qemu-user-static gcc-aarch64-linux-gnu`` installs what it needs on x86-64.
"""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tests.fuzz import graphs
from tests.fuzz.campaign import Watch, campaign
from tests.fuzz.emulator import Emulator, export_for, other
from tests.fuzz.graphs import FailedRunError, LeftOutError, improved
from weft.base.sizes import bind
from weft.errors import ArgumentError, DeviceError
from weft.ir.graph import Graph
from weft.ops.table import import_all
from weft.passes.simplify import load_rules
from weft.schedule.cpu.target import Cpu

Array = np.ndarray[Any, Any]
_numbers = itertools.count()


def missing() -> str:
    """What has to be installed, "" if nothing."""
    return other().missing()


def built(run: Emulator, folder: Path, graph: Graph, row: dict[str, Any]) -> Callable[..., Any]:
    """A graph as code of the other architecture, as a case says."""
    library = folder / f"{next(_numbers)}"
    optimised = improved(graph, row)
    try:
        export_for(run.machine, optimised, library, row["disable"])
    except (ArgumentError, DeviceError) as error:
        raise LeftOutError(str(error)) from None
    return partial(_results, run, library, optimised, row["sizes"])


def _results(
    run: Emulator, library: Path, graph: Graph, sizes: dict[str, int], arrays: Sequence[Array]
) -> list[Array]:
    message, found = run(library, arrays, sizes)
    shutil.rmtree(library)
    if message:
        raise FailedRunError(message)
    # a library gives each output once, and of the inputs those that change
    changed = [(old, new) for old, new in graph.updates if old is not new]
    given = [*dict.fromkeys(graph.outputs), *sorted(changed, key=lambda pair: graph.inputs.index(pair[0]))]
    known = dict(zip(graph.inputs, arrays, strict=True)) | dict(zip(given, found, strict=True))
    wanted = [*graph.outputs, *[pair if pair in known else pair[1] for pair in graph.updates]]
    shapes = [bind(v.type.shape, sizes) for v in graph.results]
    return [known[key].reshape(shape) for key, shape in zip(wanted, shapes, strict=True)]


def replay(case: bytes) -> str:
    """What is wrong with a case."""
    with TemporaryDirectory() as name, Emulator(other(), Path(name)) as run:
        return graphs.judged(case, partial(built, run, Path(name)))[1]


def batch(watch: Watch) -> None:
    """Many graphs; those that are wrong are made short."""
    with Emulator(other(), watch.folder) as run:
        graphs.batch(watch, partial(built, run, watch.folder))


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz."""
    if wanted := missing():
        sys.stdout.write(f"emulated: skipped, {wanted}\n")
        return 0
    import_all()
    Cpu().load()
    load_rules()
    return campaign("emulated", batch, arguments)


if __name__ == "__main__":
    sys.exit(main())

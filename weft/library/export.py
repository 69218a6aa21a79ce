"""``weft.export_library``: a graph as a shared library that C programs call, in a folder with what they need.

model -> optimize -> machine code -> data -> the functions around it -> linker -> header, example, README
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import weft
from weft.backends import Array, find_backend
from weft.backends.library import Exporter, Model, Storage
from weft.base.public import public
from weft.capture.call.function import GraphFunction
from weft.errors import ArgumentError, DeviceError
from weft.io.atomic import checked_path
from weft.io.model import LoadedGraph
from weft.io.saved import Saved, saved_graph, saved_version, with_weights
from weft.ir.graph import Graph
from weft.library.example import example_text, makefile_text, readme_text
from weft.library.header import header_text
from weft.library.model import described, model_of
from weft.library.storage import choose_place, store_beside, store_inside
from weft.passes.pipeline import optimize
from weft.passes.simplify import load_rules

PathLike = str | os.PathLike[str]


class Options(NamedTuple):
    """How a library is to be; see ``weft.export_library``."""

    name: str | None = None
    cpu: str = "host"
    weights: str = "auto"
    fast_math: bool = False
    check_nan: bool | str = False
    linker: str | None = None


@public
def export_library(
    graph: Any,
    folder: PathLike,
    *examples: Any,
    name: str | None = None,
    cpu: str = "host",
    weights: str = "auto",
    fast_math: bool = False,
    check_nan: bool | str = False,
    linker: str | None = None,
) -> None:
    """Write a graph as a shared library with a C header, an example program and a page on how to use them.

    The library needs neither Python nor weft. It is machine code of the graph and its weights, for Linux.

    Args:
        graph: a graph whose parameters have data, a compiled function, or what ``weft.load_graph`` gives.
        folder: that the files go to; it is made if it is not there.
        examples: of a compiled function, arguments to export the version for, as ``save`` takes them.
        name: of the library, which its functions begin with; that of the graph by default.
        cpu: the processor it is for: "host" is this one, "generic" any of its kind that is not older than
            some ten years; or "x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16",
            "armv8-a", "armv8.6-a".
        weights: "inside" the library, or "beside" it in a file that it maps; "auto" is inside up to 1 GiB.
        fast_math: allow what changes results in the last bits.
        check_nan: a run fails where a result becomes NaN; with "all" also where it becomes infinite.
        linker: the program that links, a C compiler or a linker; by default one that is found.

    >>> import os, tempfile, weft
    >>> folder = tempfile.mkdtemp()
    >>> model = weft.nn.Linear(3, 2)
    >>> example = weft.TensorType(("batch", 3), weft.float32)
    >>> weft.export_library(weft.compile(model), folder, example, name="linear")
    >>> sorted(os.listdir(folder))
    ['Makefile', 'README.md', 'example.c', 'liblinear.so', 'linear.h', 'linear.json']
    """
    options = Options(name, cpu, weights, fast_math, check_nan, linker)
    if isinstance(graph, GraphFunction):
        export_function(graph, folder, examples, options._asdict())
        return
    if not isinstance(graph, Graph | LoadedGraph):
        message = f"must be given a graph or a compiled function, got {type(graph).__name__}"
        raise ArgumentError("export_library", message, hint="compile it with weft.compile")
    if examples:
        raise ArgumentError("export_library", "the types of a graph are fixed, got examples")
    write_library(_saved(graph), folder, options)


def _saved(graph: Graph | LoadedGraph) -> Saved:
    if not isinstance(graph, Graph):
        return with_weights(graph._saved, graph.weights)
    try:
        return saved_graph(graph)
    except ArgumentError as error:
        hint = "export it where it was captured"
        raise ArgumentError("export_library", error.message, hint=hint) from None


def export_function(
    function: GraphFunction[..., Any], folder: PathLike, examples: tuple[Any, ...], given: Mapping[str, Any]
) -> None:
    """Export a version of a captured function; ``fn.export_library`` calls it."""
    options = {key: value for key, value in given.items() if key in Options._fields}
    keywords = {key: value for key, value in given.items() if key not in options}
    version = function._version_to_save(examples, keywords)
    write_library(saved_version(function._function, version), folder, Options(**options))


def write_library(saved: Saved, folder: PathLike, options: Options) -> None:
    """Write a graph with its weights as a library; the files are there when all of them are made."""
    if not sys.platform.startswith("linux"):
        raise DeviceError("export_library", f"libraries are for Linux, got {sys.platform}")
    path = Path(checked_path("export_library", folder))
    linker = find_linker(options.linker)
    exporter = find_backend().exporter(options.cpu, fast_math=options.fast_math, check_nan=options.check_nan)
    load_rules()
    model = model_of(saved, options.name)
    model = dataclasses.replace(model, graph=optimize(model.graph, fast_math=options.fast_math))
    path.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".weft-", dir=path) as made:
        _write_all(model, Path(made), exporter, linker, options.weights)
        for file in sorted(os.listdir(made)):
            os.replace(os.path.join(made, file), path / file)


def _write_all(model: Model, folder: Path, exporter: Exporter, linker: str, weights: str) -> None:
    library = folder / f"lib{model.name}.so"
    files = {library.name: "the library", f"{model.name}.h": "its header"}
    with tempfile.TemporaryDirectory() as work:
        data = Path(work) / "data.o"

        def place(constants: Sequence[Array]) -> Storage:
            arrays = [*[w.array for w in model.weights], *constants]
            if choose_place(weights, arrays) == "inside" or not arrays:
                return store_inside(arrays, data, arm=exporter.is_arm)
            files[f"{model.name}.weft"] = (
                "its weights, which `weft.load` reads too; keep it beside the library"
            )
            named = {w.name: w.array for w in model.weights}
            return store_beside(named, constants, folder / f"{model.name}.weft")

        made = exporter.export(model, place)
        beside = [Path(shutil.copyfile(source, folder / source.name)) for source in made.libraries]
        objects = [data] if data.exists() else []
        for number, code in enumerate(made.objects):
            objects.append(Path(work) / f"{number}.o")
            objects[-1].write_bytes(code)
        link(objects, library, made.symbols, beside, linker=linker)
    files |= {file.name: "matrix products; keep it beside the library" for file in beside}
    files |= {"example.c": "a program that runs it", "Makefile": "builds the example"}
    files |= {f"{model.name}.json": "what goes in and out"}
    _write_texts(model, folder, files, made.sizes, exporter.cpu)


def _write_texts(model: Model, folder: Path, files: dict[str, str], allowed: Sequence[str], cpu: str) -> None:
    version = weft.__version__
    (folder / f"{model.name}.h").write_text(header_text(model, version))
    (folder / "example.c").write_text(example_text(model))
    (folder / "Makefile").write_text(makefile_text(model))
    page = readme_text(model, version=version, cpu=cpu, files=files, allowed=allowed)
    (folder / "README.md").write_text(page)
    signature = {"weft": version, "cpu": cpu, **described(model)}
    (folder / f"{model.name}.json").write_text(json.dumps(signature, indent=2) + "\n")


# Objects become a shared library, by the linker of the system

_COMPILERS = ("cc", "gcc", "clang")
_LINKERS = ("ld", "ld.lld")
_HINT = "install one: apt install gcc, dnf install gcc, or apk add gcc musl-dev"


def find_linker(linker: str | None = None) -> str:
    """The path of a program that links: one that is named, a C compiler, or a linker."""
    names = (*_COMPILERS, *_LINKERS) if linker is None else (linker,)
    for name in names:
        if found := shutil.which(name):
            return found
    wanted = "a C compiler or a linker" if linker is None else linker
    message = f"{wanted} must be there to link the library, got none of {', '.join(names)} on the PATH"
    raise DeviceError("export_library", message, hint=_HINT)


def link(
    objects: Sequence[Path],
    target: Path,
    exported: Sequence[str],
    libraries: Sequence[Path] = (),
    *,
    linker: str,
) -> None:
    """Write a shared library of objects, in which other programs see the exported names only.

    Args:
        objects: files.
        target: the library.
        exported: names of functions.
        libraries: that are beside it wherever it goes.
        linker: the path of the program that links.
    """
    script = target.with_suffix(".map")
    script.write_text(f"{{ global: {' '.join([f'{name};' for name in exported])} local: *; }};\n")
    is_plain = os.path.basename(linker) in _LINKERS
    options = [
        f"--version-script={script}",
        f"-soname={target.name}",
        "-z,noexecstack",
        "-z,nodelete",  # the threads of the pool run its code as long as the process lives
        "-z,relro",
        "--gc-sections",
        *(["--enable-new-dtags", "-rpath,$ORIGIN"] if libraries else []),
    ]
    passed = [x for o in options for x in o.split(",")] if is_plain else [f"-Wl,{o}" for o in options]
    system = [] if is_plain else ["-lpthread", "-ldl", "-lm"]
    command: list[str | Path] = [linker, "-shared", "-o", target, *objects, *libraries, *passed, *system]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    script.unlink()
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        message = f"{os.path.basename(linker)} must link the library, got: {' / '.join(said[-3:])}"
        raise DeviceError("export_library", message, hint=_HINT)

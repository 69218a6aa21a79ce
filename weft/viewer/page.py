"""``weft.view``: one file of HTML with a graph, its sources, passes, kernels, memory and values in it.

The page's own code is plain ES modules in ``weft/viewer/page``; they are put into the file as they are,
behind an import map, so that nothing is built and nothing is loaded from elsewhere.
"""

from __future__ import annotations

import base64
import json
import linecache
import tempfile
import webbrowser
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import weft
from weft.base.notebook import file_text, in_notebook
from weft.base.pages import fill_page
from weft.base.public import public
from weft.errors import ArgumentError
from weft.viewer.costs import list_kernels, memory_timeline, take_profile
from weft.viewer.folding import Folder, kernel_paths
from weft.viewer.packing import pack
from weft.viewer.play import play_graph
from weft.viewer.subject import Args, Subject, subject_of
from weft.viewer.table import Table, add_dynamic


@public
def view(
    shown: Any,
    path: str | Path | None = None,
    open: bool = True,
    *,
    args: Args = None,
    params: Mapping[str, Any] | None = None,
    profile: Any = None,
) -> Path:
    """Write a page about a graph, and open it: the graph to fold, search and play, beside its source.

    The page is one file that needs nothing else: it can be kept, sent and printed. In a notebook it is shown
    below the cell.

    Args:
        shown: a graph, a compiled or captured function, the path of a file that ``save`` wrote, a tensor with
            a dynamic graph; or any function or module, if there are ``args``.
        path: of the file; by default a temporary one.
        open: whether to open it in the browser, or show it in the notebook.
        args: of a call, to play it with its values and to take the times on; of a graph its inputs, by
            position or by name.
        params: names for tensors of a dynamic graph, such as ``dict(model.named_parameters())``.
        profile: of ``weft.profile()``, in which the function was called, to take the times of kernels from.

    >>> import os, tempfile, weft
    >>> page = os.path.join(tempfile.mkdtemp(), "page.html")
    >>> weft.view(weft.make_graph(lambda x: weft.tanh(x))(weft.ones(2)), page, open=False).name
    'page.html'
    """
    data = page_data(shown, args=args, params=params, profile=profile)
    if path is None:
        path = Path(tempfile.mkdtemp(prefix="weft-view-")) / "graph.html"
    path = Path(path)
    if path.suffix not in (".html", ".htm"):
        raise ArgumentError("view", f"the path must end in .html, got {path.name!r}")
    text = page_text(data)
    path.write_text(text, encoding="utf-8")
    if open and in_notebook():
        from weft.viewer.notebook import show_page

        show_page(text, path.absolute().as_uri())
        return ShownPath(path)
    if open:
        webbrowser.open(path.absolute().as_uri())
    return path


class ShownPath(type(Path())):  # type: ignore[misc]  # the class of paths of this system
    """The path of a page that a notebook shows already: as the last line of a cell it adds nothing."""

    def _ipython_display_(self) -> None:
        """Show nothing more."""


def page_data(
    shown: Any, *, args: Args = None, params: Mapping[str, Any] | None = None, profile: Any = None
) -> dict[str, Any]:
    """What the page knows, as JSON can hold it.

    >>> import weft
    >>> data = page_data(weft.make_graph(lambda x: weft.tanh(x) * 1.0)(weft.ones(2)))
    >>> [stage["name"] for stage in data["stages"]]
    ['captured', 'simplify', 'kernels']
    """
    if weft.is_tensor(shown):
        table = Table()
        stages = [{"name": "dynamic", "records": add_dynamic(table, shown, params or {})}]
        return {"name": "dynamic graph", "stages": stages, "records": table.records, "sources": []}
    subject = subject_of(shown, args)
    found = data_of(subject)
    if profile is not None:
        found["seconds"] = take_profile(found.get("kernels", ()), subject.name, profile)
        found["note"] = "times are means over the calls in a profile"
    if subject.backward is not None:
        found["backward"] = data_of(subject.backward)
    return found


def data_of(subject: Subject) -> dict[str, Any]:
    """What the page knows of a subject, without the graph of its gradient."""
    table = Table()
    stages = [{"name": name, "records": table.add_graph(graph)} for name, graph in subject.graphs]
    found: dict[str, Any] = {"name": subject.name, "stages": stages, "note": subject.note}
    found["modules"] = dict(subject.modules)
    if subject.program is not None and subject.program.origins.graph is not None:
        lowered, on_device = subject.program.origins.graph, bool(subject.device)
        found["kernels"] = list_kernels(table, lowered, subject.steps, limits=on_device)
        if on_device:
            found["device"] = subject.device
        found["memory"] = memory_timeline(table, subject.optimized, subject.program, subject.sizes)
        found["seconds"] = subject.seconds
    if subject.arrays is not None:
        found["events"] = play_graph(table, subject.graphs[0][1], subject.arrays)
    found["records"] = table.records
    found["sources"] = read_sources(table.files, table.records)
    _add_folds(found)
    return found


def _add_folds(data: dict[str, Any]) -> None:
    """Say of each graph what repeats itself in it; of the last one also where its kernels are groups."""
    folder = Folder(data["records"], data["modules"])
    for stage in data["stages"]:
        stage["folds"] = folder.folds(stage["records"])
    if "kernels" in data:
        last = data["stages"][-1]["records"]
        data["kernelFolds"] = folder.folds(last, kernel_paths(data["records"], last, data["kernels"]))


def page_text(data: Mapping[str, Any]) -> str:
    """The page, with everything in it."""
    files = resources.files("weft.viewer") / "page"
    modules = {
        f"weft/{f.name}": f.read_text("utf-8")
        for f in sorted(files.iterdir(), key=lambda f: f.name)
        if f.name.endswith(".js")
    }
    start = "data:text/javascript;base64,"
    addresses = {name: start + base64.b64encode(code.encode()).decode() for name, code in modules.items()}
    parts = {
        "title": escape(f"{data['name']} · weft"),
        "imports": _script_text({"imports": addresses}),
        "data": _script_text(pack(data)),
    }
    return fill_page("weft.viewer", parts)


def _script_text(data: Any) -> str:
    """JSON that may stand in an element of a page: nothing in it ends the element."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


AROUND = 60  # lines that are kept before and after those that are needed, where a file is long
WHOLE = 1500  # lines of a file that is kept as a whole


def read_sources(files: Sequence[str], records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each file its name, path, and the lines that are needed, from the number ``first`` on."""
    used: dict[int, set[int]] = {}
    for record in records:
        if "at" in record:
            used.setdefault(record["at"][0], set()).add(record["at"][1])
    return [_read(path, used.get(i, set())) for i, path in enumerate(files)]


def _read(path: str, used: set[int]) -> dict[str, Any]:
    lines = [line.rstrip("\n") for line in linecache.getlines(path)]
    first = 1
    if len(lines) > WHOLE and used:
        first = max(1, min(used) - AROUND)
        lines = lines[first - 1 : max(used) + AROUND]
    return {"name": file_text(path), "path": path, "first": first, "lines": lines}

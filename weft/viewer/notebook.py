"""What notebooks show of weft's objects, as HTML: pictures, tables with bars, and pages in frames.

Styles stand in the elements, colours are those of the page or half transparent: so they fit light and dark
pages, and nothing of them leaks into the notebook. What is shown is bounded, however large the object is.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from typing import Any

from weft.base.notebook import Shown
from weft.capture.call.reasons import describe_leaf
from weft.errors import ArgumentError
from weft.ir.graph import Graph
from weft.viewer.diagram import Diagram, diagram_of
from weft.viewer.fold import fold_diagram
from weft.viewer.page import page_data, page_text
from weft.viewer.picture import Picture

MOST_BOXES = 60  # of a picture; what has more is folded
MOST_NODES = 150  # of a graph whose page comes with its picture
MOST_BYTES = 8_000_000  # of a page that is put into a notebook
MOST_ROWS = 100  # of a table
MOST_LETTERS = 4_000  # of a text
HEIGHT = 620  # of a page's frame, in pixels

_GREY = "color:inherit;opacity:.65"
_TABLE = "border-collapse:collapse;font-size:13px;margin:4px 0"
_BAR = "display:inline-block;height:9px;border-radius:2px;background:#3b82c4;vertical-align:middle"


# Graphs


def graph_html(graph: Graph) -> str:
    """A graph: a picture, its size, and, unless it is large, its page, one click away.

    >>> import weft
    >>> from weft.viewer.notebook import graph_html
    >>> graph = weft.make_graph(lambda x: weft.tanh(x))(weft.ones(2))
    >>> "<img" in graph_html(graph), "<iframe" in graph_html(graph)
    (True, True)
    """
    count = sum(1 for _ in graph.walk())
    title = f"graph <b>{escape(graph.name)}</b>: {len(graph.inputs)} inputs, {count:,} nodes, "
    title += f"{len(graph.outputs)} outputs"
    parts = [f'<div style="margin:2px 0">{title}</div>', _drawn(graph)]
    parts.append(_page_below(graph, count))
    return "".join(["<div>", *parts, "</div>"])


def _drawn(graph: Graph) -> str:
    """A picture, folded where it is large; the beginning of the text where it cannot be drawn."""
    diagram = fold_diagram(diagram_of(graph), MOST_BOXES)
    if diagram is None:
        return _pre(graph.to_text())
    try:
        return picture_html(diagram)
    except ArgumentError:  # neither Graphviz nor igraph is installed
        return _pre(graph.to_text())


def picture_html(diagram: Diagram) -> str:
    """A picture as an image: its styles and names are its own."""
    data = base64.b64encode(Picture(diagram).svg().encode()).decode()
    name = escape(f"graph {diagram.name}", quote=True)
    return f'<img alt="{name}" src="data:image/svg+xml;base64,{data}" style="max-width:100%;height:auto">'


def _page_below(graph: Graph, count: int) -> str:
    """The page in a frame that a click opens."""
    if count > MOST_NODES:
        return f'<div style="{_GREY}">weft.view(...) shows all of it, to fold and search.</div>'
    frame = frame_html(page_text(page_data(graph)))
    return _on_click("Interactive page", frame)


def frame_html(page: str) -> str:
    """A page in a frame."""
    style = f"width:100%;height:{HEIGHT}px;border:1px solid rgba(128,128,128,.4);border-radius:4px"
    return f'<iframe srcdoc="{escape(page, quote=True)}" style="{style}" loading="lazy"></iframe>'


def show_page(page: str, address: str) -> None:
    """Show a page below the cell that runs; one that is too large for a notebook by its address."""
    link = f'<a href="{escape(address, quote=True)}" target="_blank">{escape(address)}</a>'
    html = link if len(page) > MOST_BYTES else frame_html(page)
    Shown(html, address)


# Functions


def function_html(function: Any) -> str:
    """A compiled function: its versions, the newest first, and why there is each of them.

    >>> import weft
    >>> from weft.viewer.notebook import function_html
    >>> f = weft.compile(lambda x: x * 2.0)
    >>> _ = f(weft.ones(2)), f(weft.ones(2, 2))
    >>> "x was f32[2] and is f32[2,2]" in function_html(f)
    True
    """
    versions = sorted(function.versions, key=lambda v: v.number, reverse=True)
    title = f"compiled function <b>{escape(function.__name__)}</b>"
    if not versions:
        return f"<div>{title}: no versions yet; its first call makes one</div>"
    rows = [
        (str(v.number), _arguments(v), f"{sum(1 for _ in v.graph.walk()):,}", _sentence(v.reason))
        for v in versions
    ]
    count = f"{len(versions)} version{'' if len(versions) == 1 else 's'}"
    table = table_html(("version", "arguments", "nodes", "compiled because"), rows, numbers=(0, 2))
    graph = _on_click(f"Graph of version {versions[0].number}", _drawn(versions[0].graph))
    return f"<div><div>{title}: {count}</div>{table}{graph}</div>"


def _arguments(version: Any) -> str:
    told = [
        f"{name}: {describe_leaf(leaf)}" for name, leaf in zip(version.names, version.key.leaves, strict=True)
    ]
    return _cut(", ".join(told), 300)


def _sentence(reason: str) -> str:
    return reason.removeprefix("because of ") or "it was called first"


# Tables


def table_html(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Sequence[int] = (),
    shares: Sequence[float] = (),
    indents: Sequence[int] = (),
    more: int = 0,
) -> str:
    """A table.

    Args:
        head: names of the columns.
        rows: the texts of their cells.
        numbers: columns that are set to the right.
        shares: for each row the length of a bar behind its first cell, from 0 to 1.
        indents: for each row how far its first cell is moved to the right.
        more: how many rows there are beyond these.

    >>> from weft.viewer.notebook import table_html
    >>> "&lt;b&gt;" in table_html(["name"], [["<b>"]])
    True
    """
    lines = [_row("th", list(head), numbers, "" if not shares else "<th></th>", 0)]
    for i, cells in enumerate(rows[:MOST_ROWS]):
        bar = ""
        if shares:
            width = round(110 * min(max(shares[i], 0.0), 1.0))
            bar = f'<span style="{_BAR};width:{width}px"></span>'
            bar = f'<td style="text-align:left;padding:1px 6px">{bar}</td>'
        lines.append(_row("td", list(cells), numbers, bar, indents[i] if indents else 0))
    more += max(0, len(rows) - MOST_ROWS)
    note = f'<div style="{_GREY}">and {more:,} more</div>' if more else ""
    return f'<table style="{_TABLE}">{"".join(lines)}</table>{note}'


def _row(tag: str, cells: list[str], numbers: Sequence[int], bar: str, indent: int) -> str:
    made = []
    for i, cell in enumerate(cells):
        side = "right" if i in numbers else "left"
        style = f"text-align:{side};padding:1px 10px 1px {6 + 16 * indent if i == 0 else 6}px"
        made.append(f'<{tag} style="{style}">{escape(cell)}</{tag}>' + (bar if i == 0 else ""))
    return f"<tr>{''.join(made)}</tr>"


def profile_html(table: Any) -> str:
    """A table of times or bytes, each row with a bar as long as its share.

    >>> import weft
    >>> from weft.viewer.notebook import profile_html
    >>> with weft.profile() as p:
    ...     _ = weft.ones(3) + 1.0
    >>> "add" in profile_html(p.table())
    True
    """
    numbers = range(len(table.head) - 2)
    shares = [row.share for row in table.rows]
    title = escape(table.title).replace("\n", "<br>")
    return (
        f"<div><div>{title}</div>{table_html(table.head, table.cells, numbers=numbers, shares=shares)}</div>"
    )


# Modules


def module_html(module: Any) -> str:
    """A module: the modules in it, their settings, and how many numbers each of them learns.

    >>> import weft
    >>> from weft.viewer.notebook import module_html
    >>> "in_features=2" in module_html(weft.nn.Linear(2, 3))
    True
    """
    from weft.nn.text import count_parameters

    rows, counts, indents = [], [], []
    whole, frozen = count_parameters(module)
    modules = list(module.named_modules())
    for path, inside in modules[:MOST_ROWS]:
        count = count_parameters(inside)[0]
        name = f"{path.rpartition('.')[2]}: " if path else ""
        rows.append((f"{name}{type(inside).__name__}", f"{count:,}" if count else "", inside.extra_repr()))
        counts.append(count)
        indents.append(path.count(".") + 1 if path else 0)
    shares = [count / whole if whole else 0.0 for count in counts]
    table = table_html(
        ("module", "parameters", "settings"),
        rows,
        numbers=(1,),
        shares=shares,
        indents=indents,
        more=len(modules) - len(rows),
    )
    note = f", {frozen:,} of them frozen" if frozen else ""
    below = f"{whole:,} parameters{note}; summary(x) tells shapes and costs"
    return f'<div>{table}<div style="{_GREY}">{below}</div></div>'


def summary_html(summary: Any) -> str:
    """What ``Module.summary`` gives, with bars of the operations.

    >>> import weft
    >>> from weft.viewer.notebook import summary_html
    >>> "(1, 3)" in summary_html(weft.nn.Linear(2, 3).summary(weft.ones(1, 2)))
    True
    """
    from weft.nn.summary import cells_of, depth_of

    rows = [(cells[0].strip(), *cells[1:]) for cells in map(cells_of, summary.rows)]
    most = max((row.flops for row in summary.rows), default=0) or 1
    shares = [row.flops / most for row in summary.rows]
    indents = [depth_of(row.path) for row in summary.rows]
    head = ("module", "output", "parameters", "memory", "flops")
    table = table_html(head, rows, numbers=(2, 3, 4), shares=shares, indents=indents)
    last = str(summary).splitlines()[-1]
    return f'<div>{table}<div style="{_GREY}">{escape(last)}; bars are flops</div></div>'


def _on_click(title: str, html: str) -> str:
    return f'<details><summary style="cursor:pointer">{escape(title)}</summary>{html}</details>'


def _pre(text: str) -> str:
    return f"<pre>{escape(_cut(text, MOST_LETTERS))}</pre>"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} …"

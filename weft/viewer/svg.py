"""Diagrams as SVG, without Graphviz: layers of boxes, ordered by igraph, and arrows that go around boxes.

An arrow over several layers has a lane in each that it passes, as wide as a small box; it runs straight
through layers, and sideways only between them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import Any

from weft.errors import ArgumentError
from weft.viewer.diagram import Box, Diagram

# Fill and line; the colours of Okabe and Ito, which colour-blind people can tell apart, made light.
COLOURS = {
    "input": ("#d4ecf9", "#0072b2"),
    "param": ("#fbe7c2", "#b07800"),
    "constant": ("#eeeeee", "#777777"),
    "op": ("#ffffff", "#444444"),
    "output": ("#c9ecdf", "#00795a"),
    "backward": ("#f6dbe9", "#a8487c"),
}
LINE, LETTER, PADDING = 15, 6.6, 9  # pixels
GAP, LAYER, LANE = 26, 46, 14  # between boxes side by side, between layers, and the width of a lane
_SCALE = 75.0  # pixels for one of igraph's units
_HOW_TO_INSTALL = "`apt install graphviz`, `brew install graphviz`, or `pip install 'weft[view]'`"


def colours_of(box: Box) -> tuple[str, str]:
    """The colours of a box: what fills it, and its line."""
    return COLOURS["backward" if box.kind == "op" and box.phase == "backward" else box.kind]


@dataclass
class _Cell:
    """A box, or the place where an arrow passes a layer."""

    layer: int
    width: float
    height: float = 0.0
    x: float = 0.0
    y: float = 0.0


@dataclass
class _Chart:
    """Cells in layers: first those of the boxes; by arrow, the cells it goes through."""

    cells: list[_Cell]
    ways: list[list[int]] = field(default_factory=list)
    top: dict[int, float] = field(default_factory=dict)
    height: dict[int, float] = field(default_factory=dict)


def draw_svg(diagram: Diagram) -> str:
    """A diagram as the text of an SVG picture, the inputs at the top.

    >>> import weft
    >>> from weft.viewer.diagram import diagram_of
    >>> draw_svg(diagram_of(weft.make_graph(lambda x: -x)(weft.ones(2)))).count("<rect")
    4
    """
    if not diagram.boxes:
        return _document(diagram.name, 40, 40, [])
    chart = _chart_of(diagram)
    _place(chart)
    parts = [_arrow(chart, way, a) for way, a in zip(chart.ways, diagram.arrows, strict=True)]
    parts += [_box(box, chart.cells[i]) for i, box in enumerate(diagram.boxes)]
    width = max(c.x + c.width / 2 for c in chart.cells) + 20
    height = max(c.y + c.height / 2 for c in chart.cells) + 20
    return _document(diagram.name, width, height, parts)


def _chart_of(diagram: Diagram) -> _Chart:
    layers = _layers(diagram)
    chart = _Chart([_Cell(layers[i], *_size(box)) for i, box in enumerate(diagram.boxes)])
    lanes: dict[tuple[int, int], int] = {}  # by box and layer: arrows from one box share a lane
    for arrow in diagram.arrows:
        way = [arrow.source]
        for layer in range(layers[arrow.source] + 1, layers[arrow.target]):
            key = (arrow.source, layer)
            if key not in lanes:
                lanes[key] = len(chart.cells)
                chart.cells.append(_Cell(layer, LANE))
            way.append(lanes[key])
        chart.ways.append([*way, arrow.target])
    return chart


def _layers(diagram: Diagram) -> list[int]:
    """The layer of each box: below all that it takes from; what takes from nothing is near its first user."""
    count = len(diagram.boxes)
    targets: list[list[int]] = [[] for _ in range(count)]
    waiting = [0] * count
    for arrow in diagram.arrows:
        targets[arrow.source].append(arrow.target)
        waiting[arrow.target] += 1
    layers = [0] * count
    sources = [i for i in range(count) if not waiting[i]]
    ready = list(sources)
    for i in ready:
        for j in targets[i]:
            layers[j] = max(layers[j], layers[i] + 1)
            waiting[j] -= 1
            if not waiting[j]:
                ready.append(j)
    for i in sources:
        layers[i] = max(0, min((layers[j] for j in targets[i]), default=1) - 1)
    return layers


def _place(chart: _Chart) -> None:
    """Give each cell its place: each layer in igraph's order, none on another, each near where it was put."""
    wanted = _order(chart)
    y = 20.0
    for layer in sorted({c.layer for c in chart.cells}):
        members = sorted((i for i, c in enumerate(chart.cells) if c.layer == layer), key=lambda i: wanted[i])
        chart.top[layer], chart.height[layer] = y, max(chart.cells[i].height for i in members)
        right = float("-inf")
        for i in members:
            cell = chart.cells[i]
            cell.x = max(wanted[i] * _SCALE, right + GAP + cell.width / 2)
            cell.y = y + chart.height[layer] / 2
            right = cell.x + cell.width / 2
        y += chart.height[layer] + LAYER
    left = min(c.x - c.width / 2 for c in chart.cells)
    for cell in chart.cells:
        cell.x += 20 - left


def _order(chart: _Chart) -> list[float]:
    """Where igraph would put each cell in its layer."""
    try:
        import igraph
    except ImportError:
        raise ArgumentError(
            "dot", "a picture needs Graphviz or igraph to be installed, got neither", hint=_HOW_TO_INSTALL
        ) from None
    edges = list(dict.fromkeys(pair for way in chart.ways for pair in pairwise(way)))
    graph = igraph.Graph(n=len(chart.cells), edges=edges, directed=True)
    layout: Any = graph.layout_sugiyama(layers=[c.layer for c in chart.cells], maxiter=200)
    return [float(x) for x, _ in layout.coords[: len(chart.cells)]]


def _size(box: Box) -> tuple[float, float]:
    longest = max((len(line) for line in box.label), default=1)
    return longest * LETTER + 2 * PADDING, len(box.label) * LINE + 2 * PADDING - 4


def _box(box: Box, cell: _Cell) -> str:
    x, y, width, height = cell.x, cell.y, cell.width, cell.height
    fill, line = colours_of(box)
    corner = height / 2 if box.kind in ("input", "output") else 5
    frame = f'x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width:.1f}" height="{height:.1f}"'
    parts = [f'<rect {frame} rx="{corner:.1f}" fill="{fill}" stroke="{line}"/>']
    top = y - (len(box.label) - 1) * LINE / 2 + 4
    for i, text in enumerate(box.label):
        style = ' class="small"' if i else ""
        parts.append(f'<text x="{x:.1f}" y="{top + i * LINE:.1f}"{style}>{escape(text)}</text>')
    return "".join(parts)


def _arrow(chart: _Chart, way: list[int], arrow: Any) -> str:
    """Straight through each layer, in a curve from one to the next."""
    first, last = chart.cells[way[0]], chart.cells[way[-1]]
    curve = [f"M{first.x:.1f},{first.y + first.height / 2:.1f}"]
    for p, q in pairwise(way):
        above, below = chart.cells[p], chart.cells[q]
        start, end = chart.top[above.layer] + chart.height[above.layer], chart.top[below.layer] - 8
        middle = (start + end) / 2
        curve.append(f"L{above.x:.1f},{start:.1f}")
        curve.append(f"C{above.x:.1f},{middle:.1f} {below.x:.1f},{middle:.1f} {below.x:.1f},{end:.1f}")
    curve.append(f"L{last.x:.1f},{last.y - last.height / 2 - 3:.1f}")
    dashes = ' stroke-dasharray="4 3"' if arrow.dashed else ""
    title = f"<title>{escape(arrow.label)}</title>" if arrow.label else ""
    return f'<path d="{" ".join(curve)}" class="arrow"{dashes} marker-end="url(#head)">{title}</path>'


def _document(name: str, width: float, height: float, parts: list[str]) -> str:
    style = (
        "text{font:11px Helvetica,Arial,sans-serif;text-anchor:middle;fill:#111}"
        ".small{font-size:9.5px;fill:#555}.arrow{fill:none;stroke:#888}"
    )
    head = (
        '<marker id="head" viewBox="0 0 8 8" refX="6" refY="4" '
        'markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#888"/></marker>'
    )
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}><title>{escape(name)}</title><style>{style}</style>'
        f'<defs>{head}</defs><rect width="100%" height="100%" fill="white"/>' + "".join(parts) + "</svg>\n"
    )

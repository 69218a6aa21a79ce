"""Diagrams as pictures: in the language of Graphviz, which draws them where it is installed, else as SVG."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from weft.errors import ArgumentError
from weft.ops.products import dot as inner_product
from weft.viewer.diagram import Box, Diagram, diagram_of

# Fill and line; the colours of Okabe and Ito, which colour-blind people can tell apart, made light.
COLOURS = {
    "input": ("#d4ecf9", "#0072b2"),
    "param": ("#fbe7c2", "#b07800"),
    "constant": ("#eeeeee", "#777777"),
    "op": ("#ffffff", "#444444"),
    "output": ("#c9ecdf", "#00795a"),
    "backward": ("#f6dbe9", "#a8487c"),
}
_SHAPES = {"input": "ellipse", "param": "cylinder", "constant": "box", "op": "box", "output": "ellipse"}


def colours_of(box: Box) -> tuple[str, str]:
    """The colours of a box: what fills it, and its line."""
    return COLOURS["backward" if box.kind == "op" and box.phase == "backward" else box.kind]


def dot_text(diagram: Diagram) -> str:
    """A diagram in the language of Graphviz.

    >>> import weft
    >>> from weft.viewer.diagram import diagram_of
    >>> print(dot_text(diagram_of(weft.make_graph(lambda x: -x)(weft.ones(2)))).splitlines()[0])
    digraph "<lambda>" {
    """
    lines = [f"digraph {_quoted(diagram.name)} {{"]
    lines.append('  node [fontname="Helvetica", fontsize=11, style="filled,rounded", margin="0.12,0.06"];')
    lines.append('  edge [fontname="Helvetica", fontsize=9, color="#666666", arrowsize=0.7];')
    lines += _clustered(diagram, (), list(range(len(diagram.boxes))), "  ")
    for arrow in diagram.arrows:
        style = ", style=dashed" if arrow.dashed else ""
        lines.append(f"  n{arrow.source} -> n{arrow.target} [label={_quoted(arrow.label)}{style}];")
    return "\n".join([*lines, "}"]) + "\n"


def _clustered(diagram: Diagram, path: tuple[str, ...], inside: list[int], margin: str) -> Iterator[str]:
    """The boxes of a cluster, those of the clusters inside it in clusters of their own."""
    depth = len(path)
    below: dict[str, list[int]] = {}
    for i in inside:
        box = diagram.boxes[i]
        if len(box.cluster) > depth:
            below.setdefault(box.cluster[depth], []).append(i)
        else:
            yield f"{margin}n{i} [{_box_settings(box)}];"
    for name, members in below.items():
        yield f"{margin}subgraph {_quoted('cluster_' + '/'.join((*path, name)))} {{"
        yield f'{margin}  label={_quoted(name)}; style="rounded"; color="#aaaaaa"; fontname="Helvetica";'
        yield from _clustered(diagram, (*path, name), members, margin + "  ")
        yield f"{margin}}}"


def _box_settings(box: Box) -> str:
    fill, line = colours_of(box)
    label = _quoted("\n".join(box.label))
    return f'label={label}, shape={_SHAPES[box.kind]}, fillcolor="{fill}", color="{line}"'


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def has_graphviz() -> bool:
    """Whether the program ``dot`` of Graphviz is installed."""
    return shutil.which("dot") is not None


def run_graphviz(text: str, form: str) -> bytes:
    """A picture, drawn by Graphviz, as "svg", "png" or "pdf"."""
    done = subprocess.run(["dot", f"-T{form}"], input=text.encode(), capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise ArgumentError("dot", f"Graphviz must draw {form}, but it said: {said}")
    return done.stdout


# Without Graphviz: layers from igraph, boxes and curves as SVG

LINE, LETTER, PADDING = 15, 6.6, 9  # pixels
_HOW_TO_INSTALL = "`apt install graphviz`, `brew install graphviz`, or `pip install 'weft[view]'`"
GAP, LAYER = 26, 46  # between boxes side by side, and between layers


def draw_svg(diagram: Diagram) -> str:
    """A diagram as the text of an SVG picture, the inputs at the top."""
    if not diagram.boxes:
        return _document(diagram.name, 40, 40, [])
    sizes = [_size(box) for box in diagram.boxes]
    layers, order = _layers(diagram)
    places = _places(sizes, layers, order)
    parts = [
        _arrow(places[a.source], sizes[a.source], places[a.target], sizes[a.target], a)
        for a in diagram.arrows
    ]
    parts += [_box(box, places[i], sizes[i]) for i, box in enumerate(diagram.boxes)]
    width = max(x + w / 2 for (x, _), (w, _) in zip(places, sizes, strict=True)) + 20
    height = max(y + h / 2 for (_, y), (_, h) in zip(places, sizes, strict=True)) + 20
    return _document(diagram.name, width, height, parts)


def _layers(diagram: Diagram) -> tuple[list[int], list[float]]:
    """The layer of each box, and where in it igraph would put it."""
    try:
        import igraph
    except ImportError:
        raise ArgumentError(
            "dot", "a picture needs Graphviz or igraph to be installed, got neither", hint=_HOW_TO_INSTALL
        ) from None
    edges = [(a.source, a.target) for a in diagram.arrows]
    graph = igraph.Graph(n=len(diagram.boxes), edges=edges, directed=True)
    layout: Any = graph.layout_sugiyama(maxiter=200)
    points = layout.coords[: len(diagram.boxes)]
    return [round(y) for _, y in points], [x for x, _ in points]


def _places(
    sizes: list[tuple[float, float]], layers: list[int], order: list[float]
) -> list[tuple[float, float]]:
    """The middles of the boxes: each layer in igraph's order, none on another, each near where it was put."""
    places = [(0.0, 0.0)] * len(sizes)
    scale = 75.0  # pixels for one of igraph's units
    y = 20.0
    for layer in sorted(set(layers)):
        members = sorted((i for i, n in enumerate(layers) if n == layer), key=lambda i: order[i])
        height = max(sizes[i][1] for i in members)
        right = float("-inf")
        for i in members:
            x = max(order[i] * scale, right + GAP + sizes[i][0] / 2)
            places[i] = (x, y + height / 2)
            right = x + sizes[i][0] / 2
        y += height + LAYER
    left = min(x - w / 2 for (x, _), (w, _) in zip(places, sizes, strict=True))
    return [(x - left + 20, y) for x, y in places]


def _size(box: Box) -> tuple[float, float]:
    longest = max((len(line) for line in box.label), default=1)
    return longest * LETTER + 2 * PADDING, len(box.label) * LINE + 2 * PADDING - 4


def _box(box: Box, place: tuple[float, float], size: tuple[float, float]) -> str:
    (x, y), (width, height) = place, size
    fill, line = colours_of(box)
    corner = height / 2 if box.kind in ("input", "output") else 5
    frame = f'x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width:.1f}" height="{height:.1f}"'
    parts = [f'<rect {frame} rx="{corner:.1f}" fill="{fill}" stroke="{line}"/>']
    top = y - (len(box.label) - 1) * LINE / 2 + 4
    for i, text in enumerate(box.label):
        style = ' class="small"' if i else ""
        parts.append(f'<text x="{x:.1f}" y="{top + i * LINE:.1f}"{style}>{escape(text)}</text>')
    return "".join(parts)


def _arrow(start: Any, start_size: Any, end: Any, end_size: Any, arrow: Any) -> str:
    x1, y1 = start[0], start[1] + start_size[1] / 2
    x2, y2 = end[0], end[1] - end_size[1] / 2 - 3
    bend = max(20.0, abs(y2 - y1) / 2)
    dashes = ' stroke-dasharray="4 3"' if arrow.dashed else ""
    curve = f"M{x1:.1f},{y1:.1f} C{x1:.1f},{y1 + bend:.1f} {x2:.1f},{y2 - bend:.1f} {x2:.1f},{y2:.1f}"
    title = f"<title>{escape(arrow.label)}</title>" if arrow.label else ""
    return f'<path d="{curve}" class="arrow"{dashes} marker-end="url(#head)">{title}</path>'


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


FORMS = ("dot", "svg", "png", "pdf")


class Picture:
    """A picture of a graph: its text is Graphviz's, ``save`` draws it, and notebooks show it.

    >>> import weft
    >>> picture = weft.dot(weft.make_graph(lambda x: weft.tanh(x))(weft.ones(2)))
    >>> str(picture).startswith("digraph")
    True

    Attributes:
        diagram: what it shows.
    """

    def __init__(self, diagram: Diagram) -> None:
        self.diagram = diagram

    def __str__(self) -> str:
        return dot_text(self.diagram)

    def __repr__(self) -> str:
        return f"<picture of {self.diagram.name}: {len(self.diagram.boxes)} boxes>"

    def svg(self) -> str:
        """The picture as SVG: by Graphviz where it is installed, else with igraph's layout."""
        if has_graphviz():
            return run_graphviz(str(self), "svg").decode()
        return draw_svg(self.diagram)

    _repr_svg_ = svg

    def save(self, path: str | Path) -> Path:
        """Write the picture; the ending of the path says how: .dot, .svg, and with Graphviz .png and .pdf."""
        path = Path(path)
        form = path.suffix.removeprefix(".")
        if form not in FORMS:
            raise ArgumentError("save", f"the path must end in one of {FORMS}, got {path.name!r}")
        if form == "dot":
            path.write_text(str(self), encoding="utf-8")
        elif form == "svg":
            path.write_text(self.svg(), encoding="utf-8")
        elif has_graphviz():
            path.write_bytes(run_graphviz(str(self), form))
        else:
            hint = "install it with `apt install graphviz` or `brew install graphviz`, or save as .svg"
            raise ArgumentError("save", f".{form} needs Graphviz, which is not installed", hint=hint)
        return path


def dot(
    shown: Any,
    other: Any = None,
    /,
    *,
    params: Mapping[str, Any] | None = None,
    backward: bool = False,
    saved: bool = False,
) -> Any:
    """A picture of a tensor's dynamic graph, of a graph, or of a function that was captured.

    With two vectors it is their product, as it is in the libraries that people know.

    Args:
        shown: what to draw.
        other: a second vector.
        params: names for tensors of a dynamic graph, such as ``dict(model.named_parameters())``.
        backward: draw the graph of a captured function's gradient, which was taken, instead of its own.
        saved: show what each op of a dynamic graph has kept for its gradient, too.

    >>> import weft
    >>> w = weft.ones(2, requires_grad=True)
    >>> weft.dot((w * 2).sum(), params={"w": w})
    <picture of backward: 4 boxes>
    >>> weft.dot(weft.tensor([1.0, 2.0]), weft.tensor([3.0, 4.0]))
    tensor(11.)
    """
    if other is not None:
        return inner_product(shown, other)
    return Picture(diagram_of(shown, params, backward=backward, saved=saved))

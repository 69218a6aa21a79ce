"""``weft.dot``: a picture of a graph, as text, in a file or in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft.errors import ArgumentError
from weft.ops.products import dot as inner_product
from weft.viewer.diagram import Diagram, diagram_of
from weft.viewer.drawing import dot_text, draw_svg, has_graphviz, run_graphviz

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

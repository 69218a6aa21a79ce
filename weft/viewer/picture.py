"""Diagrams as pictures: in the language of Graphviz, which draws them where it is installed, else as SVG."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from weft.base.public import public
from weft.errors import ArgumentError
from weft.ops.products import dot as inner_product
from weft.viewer.diagram import Box, Diagram, diagram_of
from weft.viewer.svg import colours_of, draw_svg

_SHAPES = {"input": "ellipse", "param": "cylinder", "constant": "box", "op": "box", "output": "ellipse"}


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


@public
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

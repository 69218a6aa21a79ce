"""Diagrams in the language of Graphviz, and drawn by Graphviz where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

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

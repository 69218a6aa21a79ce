"""Pictures of graphs."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

import weft
from weft import nn
from weft.viewer.diagram import diagram_of
from weft.viewer.svg import COLOURS, colours_of, draw_svg

SVG = "{http://www.w3.org/2000/svg}"


def halve(x: Any) -> Any:
    while (x * x).sum() > 1.0:
        x = x * 0.5
    return x


def labels(picture: Any) -> list[str]:
    return [box.label[0] for box in picture.diagram.boxes]


def test_every_tensor_and_op_of_a_dynamic_graph_is_there_once() -> None:
    model = nn.Linear(2, 3)
    shared = model(weft.ones((4, 2)))
    picture = weft.dot((shared * shared).sum(), params=dict(model.named_parameters()))
    assert sorted(labels(picture)) == sorted(
        ["tensor", "Sum", "Mul", "Add", "Matmul", "Permute", "weight", "bias"]
    )
    kinds = {box.label[0]: box.kind for box in picture.diagram.boxes}
    assert kinds["weight"] == "param"
    assert kinds["tensor"] == "output"


def test_arrows_of_a_dynamic_graph_run_from_leaves_to_the_tensor() -> None:
    x = weft.ones(2, requires_grad=True)
    diagram = diagram_of(weft.tanh(x), {"x": x})
    names = [box.label[0] for box in diagram.boxes]
    assert {(names[a.source], names[a.target]) for a in diagram.arrows} == {("x", "Tanh"), ("Tanh", "tensor")}


def test_a_tensor_without_a_graph_is_one_box() -> None:
    assert labels(weft.dot(weft.ones(2))) == ["tensor"]


def test_shapes_are_on_the_arrows_of_a_graph() -> None:
    graph = weft.make_graph(lambda x, y: x @ y)(weft.ones((2, 3)), weft.ones((3, 4)))
    assert [a.label for a in diagram_of(graph).arrows] == ["f32[2,3]", "f32[3,4]", "f32[2,4]"]


def test_regions_and_modules_are_clusters() -> None:
    class Halver(nn.Module):
        def forward(self, x: Any) -> Any:
            return halve(x)

    model = nn.Sequential(nn.Tanh(), Halver())
    text = str(weft.dot(weft.make_graph(lambda x: model(x))(weft.ones(3))))
    assert re.search(r'subgraph "cluster_1/while_loop \d+: body"', text)
    assert text.count("{") == text.count("}")


def test_gradients_have_a_colour_of_their_own() -> None:
    graph = weft.make_graph(weft.grad(lambda x: weft.tanh(x).sum()))(weft.ones(3))
    fills = {colours_of(box)[0] for box in diagram_of(graph).boxes if box.kind == "op"}
    assert COLOURS["backward"][0] in fills


def test_text_in_labels_is_quoted() -> None:
    graph = weft.make_graph(lambda x: -x)(weft.ones(2)).replace(name='a"b\\c')
    assert str(weft.dot(graph)).startswith('digraph "a\\"b\\\\c" {')


def boxes_of(svg: str) -> list[tuple[float, float, float, float]]:
    found = []
    for box in ElementTree.fromstring(svg).iter(f"{SVG}rect"):
        if box.get("rx"):
            x, y, width, height = (float(str(box.get(k))) for k in ("x", "y", "width", "height"))
            found.append((x, y, x + width, y + height))
    return found


def test_boxes_are_drawn_apart_without_graphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    graph = weft.make_graph(weft.grad(lambda x: model(x).sum()))(weft.ones((3, 4)))
    picture = weft.dot(graph)
    boxes = boxes_of(picture.svg())
    assert len(boxes) == len(picture.diagram.boxes)
    for i, (a, b, c, d) in enumerate(boxes):
        for e, f, g, h in boxes[:i]:
            assert c <= e or g <= a or d <= f or h <= b, "two boxes overlap"


def test_loops_can_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    graph = weft.make_graph(halve)(weft.ones(3))
    assert "while_loop" in weft.dot(graph)._repr_svg_()


def test_files_are_written_as_their_ending_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    picture = weft.dot(weft.make_graph(lambda x: -x)(weft.ones(2)))
    assert picture.save(tmp_path / "a.dot").read_text() == str(picture)
    assert picture.save(str(tmp_path / "a.svg")).read_text().startswith("<svg")
    with pytest.raises(weft.errors.ArgumentError, match=r"(?s)\.png needs Graphviz.*apt install graphviz"):
        picture.save(tmp_path / "a.png")
    with pytest.raises(weft.errors.ArgumentError, match=r"must end in one of"):
        picture.save(tmp_path / "a.jpeg")


def test_without_anything_to_draw_with_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setitem(sys.modules, "igraph", None)
    picture = weft.dot(weft.make_graph(lambda x: -x)(weft.ones(2)))
    with pytest.raises(weft.errors.ArgumentError, match=r"(?s)Graphviz or igraph.*weft\[view\]"):
        picture.svg()


def test_compiled_functions_are_drawn_by_their_graph() -> None:
    compiled = weft.compile(lambda x: weft.tanh(x), backend="interpret")
    compiled(weft.ones(2))
    assert "tanh" in labels(weft.dot(compiled))


@pytest.mark.parametrize("wrong", [3, "x", [1.0]])
def test_what_has_no_graph_cannot_be_drawn(wrong: Any) -> None:
    with pytest.raises(weft.errors.ArgumentError, match="must be a tensor, a graph or a function"):
        weft.dot(wrong)


def test_dot_of_two_vectors_is_their_product() -> None:
    assert weft.dot(weft.tensor([1.0, 2.0]), weft.tensor([3.0, 4.0])).item() == 11.0


def test_what_ops_keep_for_the_gradient_is_shown_on_request() -> None:
    x = weft.ones(3, requires_grad=True)
    y = weft.exp(x) * x
    assert "saved" not in labels(weft.dot(y))
    assert labels(weft.dot(y, saved=True)).count("saved") >= 2
    y.sum().backward()
    assert "saved" not in labels(weft.dot(y, saved=True))  # freed


def test_the_graph_of_a_gradient_is_drawn_on_request() -> None:
    compiled = weft.compile(lambda x: weft.tanh(x).sum(), backend="interpret")
    with pytest.raises(weft.errors.ArgumentError, match="captured function with a gradient"):
        weft.dot(compiled, backward=True)
    compiled(weft.ones(2, requires_grad=True)).backward()
    assert "grad" not in labels(weft.dot(compiled))
    assert "grad" in labels(weft.dot(compiled, backward=True))  # what comes from behind


def test_data_pipelines_are_drawn_like_graphs() -> None:
    picture = weft.dot(weft.data.from_arrays([1.0, 2.0]).shuffle(seed=0).batch(2))
    assert [label.partition("(")[0] for label in labels(picture)] == ["arrays", "shuffle", "batch"]
    assert len(picture.diagram.arrows) == 2
    assert "<svg" in picture.svg()


def points_of(path: str) -> list[tuple[float, float]]:
    """Points along a path of straight lines and curves."""
    found: list[tuple[float, float]] = []
    for kind, text in re.findall(r"([MLC])([^MLC]*)", path):
        at = [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+),(-?[\d.]+)", text)]
        if kind == "M":
            found += at
        elif kind == "L":
            x, y = found[-1]
            found += [(x + (at[0][0] - x) * t / 20, y + (at[0][1] - y) * t / 20) for t in range(1, 21)]
        else:
            curve = [found[-1], *at]
            for t in (i / 20 for i in range(1, 21)):
                weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
                found.append(
                    tuple(sum(w * p[k] for w, p in zip(weights, curve, strict=True)) for k in (0, 1))
                )  # type: ignore[arg-type]
    return found


def many_ways(x: Any) -> Any:
    for _ in range(6):
        y = weft.tanh(x)
        x = y * x + weft.exp(x)  # what goes around other boxes
    return x + y


@pytest.mark.parametrize("function", [many_ways, lambda x: x + weft.tanh(weft.exp(x) + x) * x])
def test_arrows_cross_no_box(function: Any) -> None:
    diagram = diagram_of(weft.make_graph(function)(weft.ones((3, 4))))
    svg = draw_svg(diagram)
    boxes = boxes_of(svg)
    paths = [p for p in ElementTree.fromstring(svg).iter(f"{SVG}path") if p.get("class") == "arrow"]
    assert len(paths) == len(diagram.arrows) > 5
    for path, arrow in zip(paths, diagram.arrows, strict=True):
        for x, y in points_of(str(path.get("d"))):
            hit = [i for i, (a, b, c, d) in enumerate(boxes) if a < x < c and b < y < d]
            assert set(hit) <= {arrow.source, arrow.target}

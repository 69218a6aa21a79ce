"""What must hold of every graph, on random ones."""

from __future__ import annotations

from hypothesis import given

import weft
from tests.ir.random_graphs import arrays_of, assert_same_results, graphs
from tests.of_code import examples
from weft.ir.graph import Graph
from weft.ir.interpret import interpret


@given(graphs())
@examples(150, 50)
def test_text_parses_back_to_the_same_graph(graph: Graph) -> None:
    graph.verify()
    again = weft.parse_graph(graph.to_text(), constants=graph.constant_data())
    assert graph.difference(again) is None
    assert again.to_text() == graph.to_text()


@given(graphs())
@examples(60, 20)
def test_parsed_text_runs_as_the_graph_does(graph: Graph) -> None:
    again = weft.parse_graph(graph.to_text(), constants=graph.constant_data())
    arrays = arrays_of(graph)
    assert_same_results(interpret(again, arrays), interpret(graph, arrays))


@given(graphs())
@examples(60, 20)
def test_text_for_people_parses_too_but_for_file_names(graph: Graph) -> None:
    again = weft.parse_graph(str(graph), constants=graph.constant_data())
    assert graph.difference(again, locations=False) is None


@given(graphs())
@examples(40, 13)
def test_clone_is_the_same_and_shares_nothing(graph: Graph) -> None:
    copy = graph.clone()
    assert graph.difference(copy) is None
    assert not {v for n in graph.walk() for v in n.outputs} & {v for n in copy.walk() for v in n.outputs}


@given(graphs())
@examples(60, 20)
def test_cut_and_extract_together_compute_what_the_graph_does(graph: Graph) -> None:
    if not graph.nodes:
        return
    middle = graph.nodes[len(graph.nodes) // 2].outputs[0]
    arrays = arrays_of(graph)
    first = graph.extract(graph.inputs, [middle]).verify()
    second = graph.cut([middle]).verify()
    feeds = dict(zip(graph.inputs, arrays, strict=True)) | {middle: interpret(first, arrays)[0]}
    assert_same_results(interpret(second, [feeds[v] for v in second.inputs]), interpret(graph, arrays))

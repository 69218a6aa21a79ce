"""Attention and convolutions by cuDNN in programs: what the library is told, graphs, plans on disk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from tests.backends.cuda.dnn import FrontEnd, Graph
from tests.backends.cuda.standin import StandIn
from weft.backends.cuda import compiling, cudnn
from weft.backends.cuda.build import build_program, loops_of
from weft.backends.cuda.card import card
from weft.backends.cuda.copies import to_device
from weft.backends.cuda.execute import CudaExecutable
from weft.backends.interpret import BACKEND as INTERPRET
from weft.backends.llvm.cache import set_cache_directory
from weft.errors import DeviceError
from weft.schedule.gpu.machine import Gpu as Machine


@pytest.fixture
def front(api: StandIn, monkeypatch: pytest.MonkeyPatch) -> FrontEnd:
    found = FrontEnd(api)
    monkeypatch.setattr(cudnn, "_front_end", lambda: found)
    return found


def half(*shape: int, seed: int = 0) -> Any:
    numbers = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return weft.tensor(numbers).astype(weft.bfloat16)


def heads(a: Any) -> Any:
    return a.reshape(2, 128, 2, 16).transpose(1, 2)


def attend(x: Any, y: Any) -> Any:
    """Of one projection, and of two arrays."""
    q, k, v = (heads(a) for a in x.chunk(3, -1))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    other = F.scaled_dot_product_attention(y, y, y, scale=0.5)
    return mixed.transpose(1, 2), other.transpose(1, 2)


def agree(function: Any, *given: Any, calls: int = 5) -> None:
    """Run a program of calls alone, as a list and as a graph; its inputs are other memory each time."""
    graph = weft.make_graph(function)(*given).optimize()
    program = build_program(graph, machine=Machine(cudnn=True))
    assert not program.kernels, str(program)
    run = CudaExecutable(card(0, "test"), program, graph)
    arrays = [t.numpy() for t in given]
    wanted = INTERPRET(graph)(arrays)
    for _ in range(calls):
        there = [to_device(a, run.card) for a in arrays]
        for got, right in zip(run(there), wanted, strict=True):
            exact = right.astype(np.float64)
            near = 1e-2 * np.abs(exact).max()
            np.testing.assert_allclose(got.to_host().astype(np.float64), exact, atol=near)


def test_attention(front: FrontEnd) -> None:
    agree(attend, half(2, 128, 96), half(2, 2, 128, 16, seed=1))


def test_gradients_of_attention_side_by_side(front: FrontEnd, api: StandIn) -> None:
    def both(x: Any, g: Any) -> Any:
        def mix(x: Any) -> Any:
            q, k, v = (heads(a) for a in x.chunk(3, -1))
            mixed = F.scaled_dot_product_attention(q, k, v)
            return mixed.transpose(1, 2).reshape(2, 128, 32)

        out, pull = weft.vjp(mix, x)
        return out, pull(g)[0]

    agree(both, half(2, 128, 96), half(2, 128, 32, seed=1))


def test_convolutions_and_their_gradients_are_nodes_of_graphs(front: FrontEnd, api: StandIn) -> None:
    """Arrays whose channels come last in memory already, so that nothing is copied."""

    def both(x: Any, w: Any, g: Any) -> Any:
        x, w, g = (a.permute(0, 3, 1, 2) for a in (x, w, g))
        out, pull = weft.vjp(lambda x, w: F.conv2d(x, w, stride=2, padding=1), x, w)
        by_x, by_w = pull(g)
        return tuple(a.permute(0, 2, 3, 1) for a in (out, by_x, by_w))

    agree(both, half(2, 6, 6, 8), half(16, 3, 3, 8, seed=1), half(2, 3, 3, 16, seed=2))
    assert "cuGraphAddChildGraphNode" in api.names()


def last(function: Any) -> Any:
    """A function of images, of arrays whose channels come last in memory already."""

    def of(x: Any, w: Any, *biases: Any) -> Any:
        return function(x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), *biases).permute(0, 2, 3, 1)

    return of


def forward(*given: Any) -> Any:
    return F.conv2d(*given, stride=2, padding=1)


def transposed(*given: Any) -> Any:
    return F.conv_transpose2d(*given, stride=2, padding=1, output_padding=1)


@pytest.mark.parametrize("dtype", [weft.bfloat16, weft.float16])
@pytest.mark.parametrize(
    ("function", "channels", "call"),
    [(forward, (8, 16), "library_conv_add"), (transposed, (16, 8), "library_conv_input_add")],
)
def test_convolutions_with_a_bias_round_once(
    front: FrontEnd, dtype: Any, function: Any, channels: Any, call: str
) -> None:
    rng = np.random.default_rng(0)
    shapes = (2, 7, 6, channels[0]), (16, 3, 3, 8)
    x, w = (rng.integers(-40, 41, s).astype(dtype) for s in shapes)
    b = (rng.integers(-39, 40, channels[1]) / 8).astype(dtype)
    sums = last(function)(*[weft.tensor(a.astype(float)) for a in (x, w)]).numpy()
    graph = weft.make_graph(last(function))(x, w, b).optimize()
    program = build_program(graph, machine=Machine(cudnn=True))
    assert str(program).count(f"call {call}(") == 1
    assert not program.kernels
    there = [to_device(a, card(0, "test")) for a in (x, w, b)]
    (found,) = CudaExecutable(card(0, "test"), program, graph)(there)
    wanted = (sums + b.astype(float)).astype(dtype)
    assert (sums.astype(dtype) + b != wanted).any()  # else nothing would be tested
    np.testing.assert_array_equal(found.to_host(), wanted)


def test_a_library_that_has_no_plan_with_a_bias_keeps_the_other_calls(
    front: FrontEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = Graph.build

    def refuse(graph: Graph, modes: Any) -> None:
        if "bias" in graph.op["kind"]:
            raise RuntimeError("no engine")
        build(graph, modes)

    monkeypatch.setattr(Graph, "build", refuse)
    monkeypatch.setattr(compiling, "has_cudnn", lambda: True)
    x, w, b = half(2, 8, 6, 6), half(16, 8, 3, 3), half(16)
    graph = weft.make_graph(lambda x, w, b: (F.conv2d(x, w, b), F.conv2d(x, w)))(x, w, b).optimize()
    run = compiling.compile_for_device(graph, card(0, "test"))
    text = str(run.program)
    assert "call library_conv(" in text
    assert "library_conv_add" not in text
    assert "conv_halves" in {node.op.name for node in run.loops.origins.graph.nodes}


def test_what_does_not_begin_at_16_bytes_is_copied_for_the_library(front: FrontEnd) -> None:
    def shifted(x: Any, w: Any, b: Any) -> Any:
        return last(lambda x, w, b: F.conv2d(x, w, b[1:17]))(x[1:].reshape(2, 6, 6, 8), w, b)

    given = half(2 * 6 * 6 * 8 + 1), half(16, 3, 3, 8, seed=1), half(17, seed=2)
    graph = weft.make_graph(shifted)(*given).optimize()
    run = CudaExecutable(card(0, "test"), build_program(graph, machine=Machine(cudnn=True)), graph)
    arrays = [t.numpy() for t in given]
    (found,) = run([to_device(a, run.card) for a in arrays])
    np.testing.assert_array_equal(found.to_host(), INTERPRET(graph)(arrays)[0])


def test_channels_stay_last_between_convolutions_with_biases() -> None:
    def net(x: Any, w: Any, v: Any, b: Any) -> Any:
        def loss(given: Any) -> Any:
            w, v, b = given
            return F.conv2d(weft.relu(F.conv2d(x, w, b, padding=1)), v, b, padding=1).square().sum()

        return weft.grad(loss)((w, v, b))

    given = half(2, 8, 6, 6), half(16, 8, 3, 3), half(16, 16, 3, 3), half(16)
    graph = weft.make_graph(net)(*given).optimize()
    lowered: Any = loops_of(graph, Machine(cudnn=True)).origins.graph
    ops = [node.op.name for node in lowered.nodes]
    assert ops.count("library_conv_add") == 2
    assert "conv" not in ops
    turned = [node.inputs[0] for node in lowered.nodes if node.op.name == "permute"]
    assert sorted(v.name for v in turned if v in lowered.inputs) == ["v", "w", "x"]  # each once
    made = {v: node.op.name for node in lowered.nodes for v in node.outputs}
    assert {made[v] for v in turned if v not in lowered.inputs} == {"library_conv_weight", "permute"}


@pytest.mark.parametrize("outputs", [12, 16])
def test_convolutions_that_the_library_does_not_take_round_once_too(outputs: int) -> None:
    graph = weft.make_graph(F.conv2d)(half(2, 8, 6, 6), half(outputs, 8, 3, 3), half(outputs)).optimize()

    def ops(cudnn: bool) -> set[str]:
        lowered: Any = loops_of(graph, Machine(cudnn=cudnn)).origins.graph
        return {node.op.name for node in lowered.nodes}

    assert "conv_halves" in ops(False)
    assert ("library_conv_add" in ops(True)) is (outputs == 16)
    assert ("conv_halves" in ops(True)) is (outputs == 12)


def test_plans_are_made_once_and_kept(front: FrontEnd, tmp_path: Any) -> None:
    set_cache_directory(str(tmp_path))
    x, y = half(2, 128, 96), half(2, 2, 128, 16, seed=1)
    for _ in range(3):
        agree(attend, x, y, calls=1)
        cudnn.forget_libraries()
    assert front.built == 2  # one for each of two shapes; the others come from disk
    for path in tmp_path.rglob("*.o"):
        path.write_bytes(b"something else")
    agree(attend, x, y, calls=1)
    assert front.built == 4


def test_what_the_library_has_no_plan_for_is_an_error(
    front: FrontEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(graph: Any, modes: Any) -> None:
        raise RuntimeError("no engine")

    monkeypatch.setattr("tests.backends.cuda.dnn.Graph.build", refuse)
    given = half(2, 128, 96), half(2, 2, 128, 16, seed=1)
    with pytest.raises(DeviceError, match="library_attention: cuDNN must have a plan for it, got: no engine"):
        agree(attend, *given)
    monkeypatch.setattr(compiling, "has_cudnn", lambda: True)
    graph = weft.make_graph(attend)(*given).optimize()
    made = compiling.compile_for_device(graph, card(0, "test")).program  # which does without
    assert "call" not in str(made)
    assert made.kernels

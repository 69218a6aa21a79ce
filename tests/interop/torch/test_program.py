"""What an imported program keeps: names, sizes, lines, buffers that change, control flow; and its errors."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch._higher_order_ops import associative_scan, scan, while_loop

import weft
from tests.interop.torch.models import BATCH, Of
from tests.interop.torch.tools import BACKENDS, assert_close, check_module, exported, run_graph
from weft.interop.torch import from_torch, import_program


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.first(x)).tanh()  # the line that nodes name


LINES = Path(__file__).read_text().splitlines()
LINE = next(i for i, text in enumerate(LINES, 1) if "the line that nodes name" in text)


def imported(module: nn.Module, *inputs: torch.Tensor, dynamic: object = None) -> weft.Graph:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_program(exported(module, inputs, dynamic))


def test_nodes_know_the_line_and_module_of_the_pytorch_code() -> None:
    graph = imported(Small().eval(), torch.ones(2, 3))
    places = {
        node.op.name if node.op.name != "call" else node.attrs["function"]: node.location
        for node in graph.nodes
    }
    assert {p.line for p in places.values()} == {LINE}
    assert {os.path.basename(p.file) for p in places.values()} == {os.path.basename(__file__)}
    assert places["linear"].module == "first"
    assert places["linear"].function == "forward"
    assert places["tanh"].module == ""


def test_nodes_of_layers_alone_know_their_module() -> None:
    graph = imported(nn.Sequential(nn.Linear(2, 3), nn.Tanh()), torch.ones(1, 2))
    assert [node.location.module for node in graph.nodes] == ["0", "1"]


def test_error_of_a_run_names_the_line_of_the_pytorch_code() -> None:
    graph = imported(Of(lambda m, x: torch.log(x)), torch.ones(3))
    with pytest.raises(weft.errors.NonFiniteError, match=r"at models\.py"):
        weft.Session(graph, check_nan=True).run(graph.outputs, {"x": -np.ones(3, np.float32)})


def test_open_sizes_have_the_names_of_their_dims() -> None:
    graph = imported(Small().eval(), torch.ones(2, 3), dynamic=({0: BATCH},))
    assert [str(v.type) for v in graph.inputs[:1]] == ["f32[batch,3]"]
    assert str(graph.outputs[0].type) == "f32[batch,4]"


def test_sizes_can_be_renamed_and_derived() -> None:
    half = torch.export.Dim("half")
    module = Of(lambda m, x: x.view(-1, 2).sum(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = exported(module, (torch.ones(6),), ({0: 2 * half},))
        graph = import_program(program, sizes={"half": "pairs"}, name="sums")
    assert (graph.name, str(graph.inputs[0].type), str(graph.outputs[0].type)) == (
        "sums",
        "f32[2*pairs]",
        "f32[pairs]",
    )
    np.testing.assert_array_equal(graph(weft.arange(8.0)).numpy(), [1, 5, 9, 13])


def test_parameters_have_their_names_and_share_memory_with_the_program() -> None:
    module = Small().eval()
    graph = imported(module, torch.ones(2, 3))
    weights = weft.interop.weights(graph)
    assert set(weights) == {
        "first.weight",
        "first.bias",
        "norm.weight",
        "norm.bias",
        "norm.running_mean",
        "norm.running_var",
    }
    assert weights["first.weight"].numpy().__array_interface__["data"][0] == module.first.weight.data_ptr()
    with torch.no_grad():
        module.first.bias += 1.0
    x = torch.randn(2, 3)
    assert_close([graph(from_torch(x)).numpy()], [module(x)])


def test_buffers_that_the_program_changes_are_updates() -> None:
    module = Small().train()
    x = torch.randn(6, 3)
    graph = imported(module, x)
    before = module.norm.running_mean.clone()
    wanted = module(x)
    for backend in BACKENDS:
        assert_close(run_graph(graph, [x], backend), [wanted])
    out = graph(from_torch(x))
    weights = weft.interop.weights(graph)
    assert_close([out.numpy()], [wanted])
    assert not torch.equal(before, module.norm.running_mean)
    assert_close(
        [weights["norm.running_mean"].numpy(), weights["norm.running_var"].numpy()],
        [module.norm.running_mean, module.norm.running_var],
    )
    assert int(weights["norm.num_batches_tracked"]) == 1


def test_gradients_flow_through_an_imported_graph() -> None:
    module = Small().eval()
    graph = imported(module, torch.ones(2, 3))
    x = torch.randn(2, 3, requires_grad=True)
    module(x).sum().backward()
    weights = weft.interop.weights(graph)
    weights["first.weight"].requires_grad_()
    w = from_torch(x)
    graph(w).sum().backward()
    assert_close([w.grad.numpy(), weights["first.weight"].grad.numpy()], [x.grad, module.first.weight.grad])


def test_program_from_a_file_and_graph_to_a_file(tmp_path) -> None:
    module, x = Small().eval(), torch.randn(4, 3)
    program = exported(module, (torch.ones(2, 3),), ({0: BATCH},))
    torch.export.save(program, tmp_path / "small.pt2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = import_program(tmp_path / "small.pt2")
    assert_close([graph(from_torch(x)).numpy()], [module(x)])
    weft.save_graph(graph, tmp_path / "small.weft")
    assert_close([weft.load_graph(tmp_path / "small.weft")(from_torch(x)).numpy()], [module(x)])


def test_optimised_graph_gives_the_same() -> None:
    module, x = Small().eval(), torch.randn(2, 3)
    assert_close([imported(module, x).optimize()(from_torch(x)).numpy()], [module(x)])


def test_arguments_in_trees_and_fixed_numbers_and_results_in_trees() -> None:
    class Tree(nn.Module):
        def forward(self, pair, scale, *, shift):
            return {"sum": pair[0] + pair[1]["b"] * scale, "rest": (shift, None, pair[0].shape[0])}

    x, y, z = torch.ones(2), torch.full((2,), 3.0), torch.zeros(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(Tree(), ((x, {"b": y}), 2), {"shift": z})
        graph = import_program(program)
    found = graph(from_torch(x), from_torch(y), shift=from_torch(z))
    assert_close([f.numpy() for f in found], [x + 2 * y, z, np.int64(2)])


def test_number_that_a_run_tells_is_a_tensor_without_axes() -> None:
    check_module(Of(lambda m, x: x * x.sum().item()), (torch.randn(3),))


# Control flow


def test_cond_is_a_branch() -> None:
    module = Of(lambda m, x: torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos(), (x,)))
    graph = check_module(module, (torch.ones(3),), None, (-torch.ones(3),))
    assert "cond" in [node.op.name for node in graph.nodes]


def test_while_loop_is_a_loop() -> None:
    def run(m, x):
        return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.5), (torch.tensor(0), x))

    graph = check_module(Of(run), (torch.ones(3),))
    assert "while_loop" in [node.op.name for node in graph.nodes]


def test_scan_is_a_scan() -> None:
    def run(m, x, y):
        return scan(lambda carry, row: (carry + row, carry * row), x, y)

    graph = check_module(Of(run), (torch.ones(3), torch.randn(5, 3)))
    assert "scan" in [node.op.name for node in graph.nodes]


def test_map_and_associative_scan_are_scans() -> None:
    def run(m, x, y):
        mapped = torch._higher_order_ops.map(lambda row, y: row * y, x, y)
        summed = associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic")
        return mapped, summed

    check_module(Of(run), (torch.randn(5, 3), torch.randn(3)))


# Errors


def test_argument_that_is_changed_in_place_is_an_error() -> None:
    with pytest.raises(weft.errors.CaptureError, match="arguments must not be changed in place, got x"):
        imported(Of(lambda m, x: x.add_(1)), torch.ones(2))


def test_unknown_operator_is_named_with_its_line() -> None:
    with pytest.raises(
        weft.errors.CaptureError, match=r"must be one weft knows, got aten\._linalg_eigh"
    ) as caught:
        imported(Of(lambda m, x: torch.linalg.eigh(x)[0]), torch.eye(3))
    assert "at models.py" in str(caught.value)


def test_shape_that_values_decide_is_an_error() -> None:
    with pytest.raises(weft.errors.CaptureError, match="depends on the values of a tensor"):
        imported(Of(lambda m, x: x[x > 0]), torch.randn(4))


@pytest.mark.parametrize("wrong", [nn.Linear(2, 2), 3])
def test_what_is_no_program_is_an_error_that_says_how_to_make_one(wrong) -> None:
    with pytest.raises(weft.errors.ArgumentError, match="must be an exported program") as caught:
        import_program(wrong)
    assert "torch.export.export" in str(caught.value)


def test_wrong_argument_of_an_imported_graph_is_an_error() -> None:
    graph = imported(Small().eval(), torch.ones(2, 3), dynamic=({0: BATCH},))
    with pytest.raises(weft.errors.ShapeError, match=r"must be fed f32\[batch,3\]"):
        graph(weft.ones((2, 4)))

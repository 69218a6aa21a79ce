"""What the page knows of a graph: records, groups, passes, kernels, memory, values, sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.viewer.programs import line_of, root, training_step
from weft import nn
from weft.ir.graph import Value
from weft.viewer.page import page_data
from weft.viewer.play import summary


@pytest.fixture(scope="module")
def step() -> dict[str, Any]:
    compiled, args = training_step()
    return page_data(compiled, args=args)


def records(data: dict[str, Any], stage: int = 0) -> list[dict[str, Any]]:
    return [data["records"][i] for i in data["stages"][stage]["records"]]


def named(data: dict[str, Any], op: str, stage: int = 0) -> list[dict[str, Any]]:
    return [r for r in records(data, stage) if r.get("op") == op]


def test_data_is_json(step: dict[str, Any]) -> None:
    assert json.loads(json.dumps(step, allow_nan=False))["name"] == "step"


def test_every_node_of_every_pass_has_a_record() -> None:
    graph = weft.make_graph(lambda x: weft.tanh(x) * 1.0 + weft.tanh(x))(weft.ones(3))
    data = page_data(graph)
    assert [s["name"] for s in data["stages"]] == ["captured", "simplify", "cse", "kernels"]
    ops = [[r["op"] for r in records(data, i) if r["kind"] == "op"] for i in range(3)]
    assert ops == [["tanh", "mul", "tanh", "add"], ["tanh", "tanh", "add"], ["tanh", "add"]]


def test_inputs_of_records_are_values_of_others_in_the_same_graph(step: dict[str, Any]) -> None:
    for number in range(len(step["stages"])):
        made = {v for r in records(step, number) for v in r.get("values", ())}
        used = {v for r in records(step, number) for v in r.get("inputs", ())}
        assert used <= made


def test_records_come_after_those_they_take_from(step: dict[str, Any]) -> None:
    seen: set[int] = set()
    for record in records(step):
        inside_call = any(p[0] == "R" for p in record.get("path", ()))
        assert inside_call or seen.issuperset(record.get("inputs", ()))
        seen.update(record.get("values", ()))


def test_a_node_that_a_pass_leaves_as_it_is_keeps_its_record() -> None:
    data = page_data(weft.make_graph(lambda x: weft.exp(x) * 1.0 + weft.tanh(x))(weft.ones(3)))
    first, second = data["stages"][0]["records"], data["stages"][1]["records"]
    kept = [data["records"][i]["op"] for i in first if i in second]
    assert {"exp", "tanh"} <= set(kept)
    assert "mul" not in kept


def test_parts_of_a_training_step(step: dict[str, Any]) -> None:
    parts = {r["part"] for r in records(step) if r["kind"] == "op"}
    assert parts == {"forward", "backward", "optimizer"}
    place = line_of("STEP")
    assert {r["part"] for r in records(step) if r["kind"] == "op" and r["at"][1] == place} == {"optimizer"}
    (loss,) = named(step, "cross_entropy")
    assert loss["part"] == "forward"


def test_a_graph_without_gradients_has_no_parts() -> None:
    data = page_data(weft.make_graph(root)(weft.ones(2)))
    assert all("part" not in r for r in data["records"])


def test_gradients_alone_have_no_optimizer() -> None:
    data = page_data(weft.make_graph(weft.grad(lambda x: weft.tanh(x).sum()))(weft.ones(3)))
    assert {r.get("part") for r in data["records"] if r["kind"] == "op"} <= {"forward", "backward"}


def test_nodes_are_in_the_group_of_their_module(step: dict[str, Any]) -> None:
    paths = {r["op"]: r["path"] for r in records(step) if r.get("part") == "forward"}
    assert paths["model.first.weight"] == ("Pforward", "Mfirst")
    assert paths["tanh"] == ("Pforward",)
    backward = {tuple(r["path"]) for r in records(step) if r.get("part") == "backward"}
    assert ("Pbackward", "Mfirst") in backward


def test_nodes_of_the_optimizer_are_in_the_group_of_their_parameter(step: dict[str, Any]) -> None:
    paths = {tuple(r["path"]) for r in records(step) if r.get("part") == "optimizer" and r["kind"] == "op"}
    assert ("Poptimizer", "Mfirst", "Mbias") in paths
    (state,) = [r for r in records(step) if r["op"] == "model.first.bias.exp_avg"]
    assert state["path"] == ("Poptimizer", "Mfirst", "Mbias")


def test_classes_of_modules_are_known(step: dict[str, Any]) -> None:
    assert step["modules"]["first"] == "Linear"


def test_regions_are_groups_inside_their_node() -> None:
    data = page_data(weft.make_graph(root)(weft.ones(2)))
    (loop,) = named(data, "while_loop")
    inside = f"R{loop['values'][0]}"
    assert {r["path"] for r in named(data, "div")} >= {(inside, "Bbody")}
    (test,) = [r for r in named(data, "greater") if "Btest" in r.get("path", ())]
    assert test["path"] == (inside, "Btest")
    assert "next x" in {r["op"] for r in records(data)}


def test_inputs_without_a_name_are_numbered() -> None:
    values = [Value(weft.TensorType((1,), weft.float32)) for _ in range(2)]
    data = page_data(weft.Graph("f", values, (), values))
    assert [r["op"] for r in records(data)] == ["input 0", "input 1", "output 0", "output 1"]


def test_a_result_that_is_a_number_says_which() -> None:
    data = page_data(weft.parse_graph("graph f(%x: f32[2]) { return %x, f32(1.5) }"))
    outputs = [r for r in records(data) if r["kind"] == "output"]
    assert [r.get("numbers") for r in outputs] == [None, ["1.5"]]


def test_a_graph_of_gradients_alone_is_one_part_without_columns() -> None:
    graph = weft.make_graph(weft.grad(lambda x: weft.sum(x * x)))(weft.ones(3)).optimize()
    data = page_data(graph)
    assert {r["part"] for r in records(data, -1) if r["kind"] == "op"} == {"backward"}
    assert all(r.get("path", ()) == () for r in records(data, -1))


def test_values_given_to_a_region_come_from_outside_of_it() -> None:
    data = page_data(weft.make_graph(root)(weft.ones(2)))
    (outer,) = [r for r in records(data) if r["op"] == "a" and not r.get("path")]
    inner = [r for r in records(data) if r["op"] == "a" and r.get("path")]
    assert inner
    assert all(r["inputs"] == outer["values"] for r in inner)


def test_lines_of_the_source_are_those_of_the_nodes() -> None:
    data = page_data(weft.make_graph(root)(weft.ones(2)))
    (add,) = named(data, "add")
    file, line, function = add["at"]
    source = data["sources"][file]
    assert (line, function) == (line_of("NEWTON"), "root")
    assert source["lines"][line - source["first"]].strip().startswith("new = 0.5 * (x + a / x)")


def test_of_a_long_file_only_what_is_needed_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "long.py"
    path.write_text("#\n" * 2000 + "def f(x):\n    return -x\n" + "#\n" * 2000)
    space: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), space)  # noqa: S102 - a file of this test
    (source,) = page_data(weft.jit.trace(space["f"], weft.ones(2)))["sources"]
    assert source["lines"][2002 - source["first"]] == "    return -x"
    assert len(source["lines"]) < 200


def test_kernels_know_their_nodes_and_cost(step: dict[str, Any]) -> None:
    made = {v for r in records(step, -1) for v in r.get("values", ())}
    assert [k["number"] for k in step["kernels"]] == list(range(1, len(step["kernels"]) + 1))
    assert all(set(k["values"]) <= made for k in step["kernels"])
    assert all(k["seconds"] >= 0 and k["bytes"] > 0 for k in step["kernels"])
    assert step["seconds"] > 0


def test_times_of_a_profile_are_those_of_its_kernels() -> None:
    compiled, args = training_step()
    with weft.profile() as profile:
        for _ in range(3):
            compiled(*args)
    data = page_data(compiled, profile=profile)
    kernels = [e for e in profile.events if e.kind == "kernel"]
    total = sum(k["seconds"] for k in data["kernels"])
    assert total == pytest.approx(1e-9 * sum(e.duration for e in kernels) / 3)
    (tanh,) = [k for k in data["kernels"] if "tanh" in k["ops"]]
    measured = [e.duration for e in kernels if e.name == tanh["ops"]]
    assert len(measured) == 3
    assert tanh["seconds"] == pytest.approx(1e-9 * sum(measured) / 3)


def test_a_profile_without_a_call_is_told() -> None:
    compiled, _ = training_step()
    with weft.profile() as profile:
        weft.ones(2) + 1.0
    with pytest.raises(weft.errors.ArgumentError, match="must have a call of step, got none"):
        page_data(compiled, profile=profile)


def test_views_are_with_the_kernel_that_reads_them() -> None:
    graph = weft.make_graph(lambda x: weft.tanh(x.T + 1.0))(weft.ones((64, 64)))
    data = page_data(graph)
    (kernel,) = data["kernels"]
    by_value = {r["values"][0]: r["op"] for r in records(data, -1) if r["kind"] == "op"}
    assert sorted(by_value[v] for v in kernel["values"]) == ["add", "permute", "tanh"]


def test_the_memory_timeline_agrees_with_the_report() -> None:
    def f(x: Any, w: Any) -> Any:
        return weft.softmax(x @ w, axis=1) @ w.mT

    graph = weft.make_graph(f)(weft.ones((256, 64)), weft.ones((64, 32))).optimize()
    report, memory = graph.memory(), page_data(graph)["memory"]
    assert (memory["arena"], memory["peak"], memory["peakStep"]) == (
        report.arena,
        report.peak,
        report.peak_step,
    )
    assert [b["bytes"] for b in memory["buffers"]] == [b.bytes for b in report.buffers]
    at_peak = [b for b in memory["buffers"] if b["first"] <= memory["peakStep"] <= b["last"]]
    assert sum(b["bytes"] for b in at_peak) >= memory["peak"]


def test_play_tells_every_turn_of_a_loop_in_order() -> None:
    graph = weft.make_graph(root)(weft.ones(2))
    data = page_data(graph, args=[weft.tensor([4.0, 16.0])])
    ops = {r["values"][0]: r["op"] for r in records(data) if r.get("values")}
    played = [(ops[v], results) for v, results in data["events"]]
    turns = [results[0]["data"] for op, results in played if op == "mul"]
    x = np.array([4.0, 16.0], np.float32)
    for turn in turns:
        x = np.float32(0.5) * (x + np.array([4, 16], np.float32) / x)
        assert turn == pytest.approx(x.tolist(), rel=1e-4)
    assert turns[-1] == pytest.approx([2.0, 4.0])
    assert [op for op, _ in played][-2:] == ["div", "cond"]


def test_play_shows_gradients(step: dict[str, Any]) -> None:
    parts = {r["values"][0]: r.get("part") for r in records(step) if r.get("values")}
    assert {parts[v] for v, _ in step["events"]} >= {"forward", "backward", "optimizer"}


def test_playing_changes_nothing() -> None:
    compiled, args = training_step()
    model = compiled._function.__closure__[0].cell_contents
    before = model.first.weight.detach().numpy().copy()
    page_data(compiled, args=args)
    np.testing.assert_array_equal(model.first.weight.detach().numpy(), before)


def test_what_a_program_prints_is_not_printed_again(capfd: pytest.CaptureFixture[str]) -> None:
    def talks(x: Any) -> Any:
        print("x is", x)  # noqa: T201 - an effect in the graph
        return x + 1.0

    compiled = weft.compile(talks)
    compiled(weft.ones(2))
    capfd.readouterr()
    data = page_data(compiled, args=(weft.ones(2),))
    assert capfd.readouterr().out == ""
    assert data["events"][-1][1][0]["data"] == [2.0, 2.0]


def test_the_graph_of_a_gradient_is_there_before_and_after_it_was_needed() -> None:
    w = weft.ones(3, requires_grad=True)
    compiled = weft.compile(lambda x: weft.tanh(x * w).sum())
    loss = compiled(weft.ones(3))
    planned = page_data(compiled)["backward"]
    loss.backward()
    measured = page_data(compiled, args=(weft.ones(3),))["backward"]
    assert {r["op"] for r in records(planned) if r["kind"] == "op"} >= {"mul"}
    assert planned["kernels"][0]["seconds"] is None
    assert measured["kernels"][0]["seconds"] >= 0.0


def test_large_arrays_are_told_by_range_and_distribution() -> None:
    array = np.concatenate([np.linspace(-1.0, 3.0, 999), [np.nan]])
    told = summary(array)
    assert (told["min"], told["max"], told["strange"]) == (-1.0, 3.0, 1)
    assert told["mean"] == pytest.approx(1.0)
    assert sum(told["bars"]) == 999
    assert "data" not in told


def test_strange_numbers_are_text() -> None:
    assert summary(np.array([np.inf, -np.inf, np.nan]))["data"] == ["inf", "-inf", "nan"]
    assert summary(np.array([True, False]))["data"] == [True, False]


def test_the_dynamic_graph_of_a_tensor() -> None:
    model = nn.Linear(2, 3)
    loss = model(weft.ones((4, 2))).sum()
    data = page_data(loss, params=dict(model.named_parameters()))
    ops = [r["op"] for r in records(data)]
    assert set(ops) == {"weight", "bias", "Permute", "Matmul", "Add", "Sum", "tensor"}
    assert ops.index("weight") < ops.index("Matmul") < ops.index("Sum") < ops.index("tensor")


def test_functions_that_were_not_captured_are_if_there_are_arguments() -> None:
    data = page_data(lambda x: weft.tanh(x), args=(weft.ones(2),))
    assert [r["op"] for r in records(data) if r["kind"] == "op"] == ["tanh"]
    assert data["events"][-1][1][0]["data"] == pytest.approx(np.tanh([1.0, 1.0]).tolist(), rel=1e-4)


def test_a_module_can_be_shown() -> None:
    data = page_data(nn.Linear(2, 3), args=(weft.ones((1, 2)),))
    assert "linear" in [r["op"] for r in records(data)]


def test_a_saved_graph_can_be_shown(tmp_path: Path) -> None:
    path = tmp_path / "model.weft"
    weft.jit.trace(nn.Linear(2, 3), weft.ones((1, 2))).save(path)
    assert "linear" in [r["op"] for r in records(page_data(str(path)))]


def test_named_sizes_are_shown_as_they_are() -> None:
    graph = weft.make_graph(lambda x: weft.tanh(x))(weft.TensorType(("n", 3), weft.float32))
    assert {r["types"][0] for r in page_data(graph)["records"]} == {"f32[n,3]"}


def test_arguments_of_a_graph_may_have_names() -> None:
    graph = weft.make_graph(lambda x, y: x - y)(weft.ones(1), weft.ones(1))
    data = page_data(graph, args={"y": [1.0], "x": [3.0]})
    assert data["events"][-1][1][0]["data"] == [2.0]


@pytest.mark.parametrize(
    ("shown", "args", "text"),
    [
        (3, None, "must be a tensor, a graph, a file of one or a captured function, got int"),
        (
            weft.make_graph(lambda x: x + 1.0)(weft.ones(1)),
            [],
            r"args must be one for each input \(x\), got 0",
        ),
        (weft.compile(lambda x: x), None, "has a graph from its first call on"),
    ],
)
def test_mistakes_are_told(shown: Any, args: Any, text: str) -> None:
    with pytest.raises(weft.errors.WeftError, match=text):
        page_data(shown, args=args)

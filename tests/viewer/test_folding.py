"""What repeats in a graph is found: equal blocks, turns of unrolled loops, stretches that are alike."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import weft
from tests.timing import least_seconds
from tests.viewer.large import block_names, data_of_graph, tangled_graph, training_graph, unrolled_graph
from weft import nn, optim
from weft.viewer.folding import Folder, find_runs, kernel_paths
from weft.viewer.packing import pack
from weft.viewer.page import page_data


def folds_of(data: dict[str, Any], stage: int = 0) -> dict[str, list[list[int]]]:
    found: dict[str, list[list[int]]] = data["stages"][stage]["folds"]
    return found


class Block(nn.Module):
    def __init__(self, size: int, wide: int) -> None:
        super().__init__()
        self.up = nn.Linear(size, wide)
        self.down = nn.Linear(wide, size)

    def forward(self, x: Any) -> Any:
        return x + self.down(weft.tanh(self.up(x)))


class Deep(nn.Module):
    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.blocks = nn.ModuleList([Block(4, wide) for wide in widths])

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return x


def graph_of(model: nn.Module) -> weft.Graph:
    return weft.jit.trace(model, weft.ones((2, 4))).graph


@pytest.mark.parametrize("count", [3, 200])
def test_equal_blocks_are_one_fold_in_every_part(count: int) -> None:
    folds = folds_of(data_of_graph(training_graph(count), block_names(count)))
    for part in ("forward", "backward", "optimizer"):
        assert folds[f"/P{part}/Mblocks"] == [[0, 1, count]]


def test_blocks_of_a_real_model_are_equal_up_to_their_parameters() -> None:
    assert folds_of(data_of_graph(graph_of(Deep([8] * 5)))) == {"/Mblocks": [[0, 1, 5]]}


def test_a_real_training_step_folds_in_every_part_and_as_kernels() -> None:
    model = Deep([8] * 4)
    optimizer = optim.AdamW(model.parameters(), lr=0.1)

    @weft.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step(weft.ones((2, 4)))
    data = page_data(step)
    folds = folds_of(data)
    assert {path: rounds[0] for path, rounds in folds.items() if path.endswith("/Mblocks")} == {
        f"/P{part}/Mblocks": [0, 1, 4] for part in ("forward", "backward", "optimizer")
    }
    assert "/Poptimizer/Mblocks" in data["kernelFolds"]


def test_blocks_of_other_sizes_are_not_folded_with_them() -> None:
    assert folds_of(data_of_graph(graph_of(Deep([8, 8, 8, 6, 8, 8, 8])))) == {
        "/Mblocks": [[0, 1, 3, 4, 1, 3]],
    }


def test_a_block_that_is_wired_otherwise_is_not_equal() -> None:
    class Odd(Block):
        def forward(self, x: Any) -> Any:
            return x + self.down(weft.tanh(self.up(x)))

    model = Deep([8] * 6)
    model.blocks[3] = Odd(4, 8)
    modules = {f"blocks.{i}": type(b).__name__ for i, b in enumerate(model.blocks)}
    assert folds_of(data_of_graph(graph_of(model), modules)) == {"/Mblocks": [[0, 1, 3]]}
    assert folds_of(data_of_graph(training_graph(9, odd=4)))["/Pforward/Mblocks"] == [[0, 1, 4, 5, 1, 4]]


def test_wiring_decides_where_ops_are_the_same() -> None:
    def record(value: int, *inputs: int, block: int) -> dict[str, Any]:
        path = (f"M{block}",)
        return {"kind": "op", "op": "mul", "values": [value], "inputs": list(inputs), "path": path}

    def block(number: int, last: int, other: int) -> list[dict[str, Any]]:
        a, b = 10 * number, 10 * number + 1
        return [record(a, last, last, block=number), record(b, a, (a, last)[other], block=number)]

    same = [r for i in range(1, 7) for r in block(i, 10 * (i - 1) + 1, other=0)]
    assert Folder(same).folds(range(12)) == {"": [[0, 1, 6]]}
    mixed = [r for i in range(1, 7) for r in block(i, 10 * (i - 1) + 1, other=int(i > 3))]
    assert Folder(mixed).folds(range(12)) == {"": [[0, 1, 3, 3, 1, 3]]}


def test_turns_of_an_unrolled_loop_are_a_fold_of_their_lines() -> None:
    def f(x: Any, w: Any) -> Any:
        h = weft.exp(x)
        for i in range(7):
            a = h @ w
            h = weft.tanh(a) * float(i)
        return h.sum()

    graph = weft.jit.trace(f, weft.ones((2, 2)), weft.ones((2, 2))).graph
    assert folds_of(data_of_graph(graph)) == {"": [[1, 3, 7]]}


def test_loops_in_loops_are_folds_in_folds() -> None:
    def f(x: Any) -> Any:
        for _ in range(5):
            for _ in range(6):
                x = weft.tanh(x) + 1.0
            x = weft.exp(x)
        return x

    graph = weft.jit.trace(f, weft.ones(2)).graph
    inner = [number for turn in range(5) for number in (13 * turn, 2, 6)]
    assert folds_of(data_of_graph(graph)) == {"": [inner, [0, 2, 5]]}


def test_few_nodes_are_not_folded() -> None:
    graph = weft.make_graph(lambda x: weft.tanh(weft.tanh(weft.tanh(x))))(weft.ones(2))
    assert folds_of(data_of_graph(graph)) == {}


def test_nodes_without_lines_fold_where_they_are_alike() -> None:
    lines = [f"  %{i}: f32[4] = {'tanh' if i % 2 else 'exp'}(%{i - 1 if i else 'x'})" for i in range(40)]
    text = "\n".join(["graph f(%x: f32[4]) {", *lines, "  return %39", "}"])
    assert folds_of(data_of_graph(weft.parse_graph(text))) == {"": [[0, 2, 20]]}


def naive_runs(tokens: list[int]) -> list[tuple[int, int, int]]:
    """What repeats at least three times in a row, tried everywhere with every length."""
    found, at = [], 0
    while at < len(tokens):
        for period in range(1, (len(tokens) - at) // 3 + 1):
            count = 1
            while tokens[at + period * count : at + period * (count + 1)] == tokens[at : at + period]:
                count += 1
            if count >= 3:
                found.append((at, period, count))
                at += period * count
                break
        else:
            at += 1
    return found


@pytest.mark.parametrize("seed", range(8))
def test_runs_are_those_of_a_search_that_tries_everything(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(40):
        tokens: list[int] = []
        while len(tokens) < 40:
            tokens += [chance.randrange(4) for _ in range(chance.randrange(1, 4))] * chance.randrange(1, 5)
        assert find_runs(tokens) == naive_runs(tokens)


def test_folding_takes_time_in_proportion_to_the_nodes() -> None:
    def folding(graph: weft.Graph) -> Callable[[], Any]:
        data = data_of_graph(graph)
        return lambda: Folder(data["records"]).folds(data["stages"][0]["records"])

    for make in (unrolled_graph, tangled_graph):
        most = 12 * least_seconds(folding(make(500)), tries=5)
        assert least_seconds(folding(make(2000)), most) < most


def test_kernels_stand_where_all_of_their_nodes_are() -> None:
    def node(value: int, *path: str) -> dict[str, Any]:
        return {"kind": "op", "op": "exp", "values": [value], "path": path}

    records = [node(0, "Pforward", "Ma"), node(1, "Pforward", "Mb"), node(2, "Pbackward")]
    paths = kernel_paths(records, [0, 1, 2], [{"values": [0, 1]}, {"values": [2]}])
    assert paths == {0: ("Pforward", "K0"), 1: ("Pforward", "K0"), 2: ("Pbackward", "K1")}


def unpack(packed: dict[str, Any]) -> list[dict[str, Any]]:
    """What the page's own code makes of packed records."""
    fields = ("kind", "op", "types", "attrs", "numbers", "path", "part", "at", "gives")
    found = []
    for values, *row in packed["records"]:
        inputs, *words = [*row, *[0] * (10 - len(row))]
        record = {name: packed["words"][word] for name, word in zip(fields, words, strict=True)}
        record |= {"values": [values] if isinstance(values, int) else values, "inputs": inputs}
        found.append({k: v for k, v in record.items() if v})
    return found


def test_packed_records_hold_everything() -> None:
    data = page_data(graph_of(Deep([8] * 3)))

    def plain(x: Any) -> Any:
        return list(x) if isinstance(x, tuple | list) else x

    want = [{k: plain(v) for k, v in r.items()} for r in data["records"]]
    packed = pack(data)
    assert [{k: plain(v) for k, v in r.items()} for r in unpack(packed)] == want
    stretches = packed["stages"][0]["records"]
    numbers = [a + i for a, n in zip(stretches[::2], stretches[1::2], strict=True) for i in range(n)]
    assert numbers == data["stages"][0]["records"]


def test_arguments_of_calls_are_in_words() -> None:
    graph = weft.make_graph(lambda x, w: nn.functional.linear(weft.tanh(x), w))(
        weft.ones((2, 3)), weft.ones((4, 3))
    )
    data = page_data(graph)
    (call,) = [r for r in data["records"] if r["op"] == "linear"]
    assert call["attrs"]["arguments"] == "x=tanh, weight=w"
    inside = [r["op"] for r in data["records"] if r.get("path") and r["kind"] == "input"]
    assert inside == ["x", "weight"]

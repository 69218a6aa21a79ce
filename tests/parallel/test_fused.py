"""Stripes: queries, keys and values that one product makes, cut by heads; what is placed, moved and saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from tests.parallel.test_place import on_mesh
from tests.parallel.training import shrink
from weft import nn
from weft import parallel as par
from weft.base.parts import pieces_of
from weft.errors import ArgumentError, FileError, ParallelError, ShapeError
from weft.io import slices
from weft.ir.interpret import interpret

MOVES = ("all_gather", "all_to_all", "reduce_scatter")
WIDTH, HEADS, LENGTH = 16, 4, 6


class Fused(nn.Module):
    """Attention whose queries, keys and values one product makes, split in one way or another."""

    def __init__(self, split: str, heads: int = HEADS, width: int = WIDTH) -> None:
        super().__init__()
        self.split, self.heads = split, heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        """Values mixed by what queries find."""
        batch, length, width = x.shape
        mixed = F.scaled_dot_product_attention(*self._parts(self.qkv(x)), is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def _parts(self, x: Any) -> Any:
        shape = (*x.shape[:2], self.heads, -1)
        if self.split == "reshape":
            return weft.permute_dims(x.reshape(*x.shape[:2], 3, *shape[2:]), (2, 0, 3, 1, 4))
        return [a.reshape(*shape).transpose(1, 2) for a in x.chunk(3, -1)]


class Standard(nn.Module):
    """The module that is there for it."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x: Any) -> Any:
        """Attention of x to itself."""
        return self.attention(x, x, x, need_weights=False)[0]


class Crossed(Standard):
    """The same for queries of one and keys of another, which takes thirds of the weight."""

    def forward(self, x: Any) -> Any:
        """Attention of x to what is twice as much."""
        return self.attention(x, 2.0 * x, 2.0 * x, need_weights=False)[0]


MODELS: dict[str, Any] = {
    "chunk": lambda: Fused("chunk"),
    "reshape": lambda: Fused("reshape"),
    "standard": Standard,
    "crossed": Crossed,
    "encoder": lambda: nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True, dropout=0.0),
}


def train(name: str, axes: dict[str, int], **settings: Any) -> Any:
    """Losses of a few steps, the weights after them, the bytes that a rank holds, and what is moved."""
    mesh = par.mesh(**axes)
    weft.manual_seed(0)
    model = MODELS[name]()
    if "model" in axes:
        par.place(model, par.auto(model, mesh), mesh)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)

    run = weft.compile(shrink(model, optimizer), mesh=mesh, **settings)
    x = weft.tensor(np.random.default_rng(0).standard_normal((8, LENGTH, WIDTH)).astype(np.float32))
    losses = [float(run(x)) for _ in range(3)]
    names = [node.op.name.removeprefix("start_") for node in run.lowered.walk()]
    moved = [n for n in names if n in MOVES]
    weights = {n: p.detach().full().numpy() for n, p in model.named_parameters()}
    return losses, weights, par.held_bytes(model.parameters()), moved


@pytest.mark.parametrize("name", MODELS)
def test_attention_by_one_product_is_cut_by_heads_and_nothing_is_gathered(name: str) -> None:
    expected, weights, whole, _ = par.simulate(lambda: train(name, {"data": 1}), 1)[0]
    ranks = par.simulate(lambda: train(name, {"data": 1, "model": 2}, reproducible=False), 2)
    for losses, found, held, moved in ranks:
        np.testing.assert_allclose(losses, expected, rtol=1e-5)
        assert moved == []
        assert held < 0.6 * whole
        for n, w in weights.items():
            np.testing.assert_allclose(found[n], w, rtol=1e-4, atol=1e-6, err_msg=n)


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_stripes_go_with_shards_of_a_batch_and_with_zero(zero: int) -> None:
    expected = par.simulate(lambda: train("chunk", {"data": 1, "model": 2}), 2)[0]
    for losses, weights, *_ in par.simulate(lambda: train("chunk", {"data": 2, "model": 2}, zero=zero), 4):
        assert losses == expected[0]  # equal bits along the batch
        for n, w in weights.items():
            np.testing.assert_array_equal(w, expected[1][n], err_msg=n)


def mixed(ranks: int) -> Any:
    """What heads give, of a product that is cut: each element is computed by one rank, as by one alone."""
    mesh = par.mesh(model=ranks)
    weft.manual_seed(0)
    layer = nn.Linear(64, 192)
    par.place(layer, {"*": par.P("3*model")}, mesh)
    model = Fused("chunk")
    run = weft.compile(lambda x: F.scaled_dot_product_attention(*model._parts(layer(x))), mesh=mesh)
    x = np.random.default_rng(1).standard_normal((2, 24, 64)).astype(np.float32)
    with weft.no_grad():
        found = run(weft.tensor(x))
    return found.numpy().tobytes(), sum(
        n.op.name.endswith("start_all_gather") or n.op.name == "all_gather" for n in run.lowered.walk()
    )


def test_heads_have_the_bits_of_one_rank() -> None:
    one = par.simulate(mixed, 1, 1)[0]
    for ranks in (2, 4):
        for found, gathers in par.simulate(mixed, ranks, ranks):
            assert found == one[0]
            assert gathers == 1  # the result


# Placement


@pytest.mark.parametrize(
    "cut", [("3*model",), ("2*model", "data"), (("3*model", "data"),), (("data", "2*model"),)]
)
def test_parts_in_stripes_make_the_whole(cut: Any) -> None:
    x = np.random.default_rng(0).standard_normal((24, 8)).astype(np.float32)

    def program() -> Any:
        mesh = par.mesh(data=2, model=2)
        placed = par.place(weft.tensor(x), par.P(*cut), mesh)
        doubled = weft.compile(lambda x: x * 2.0, mesh=mesh)(placed) if cut == ("3*model",) else placed * 2.0
        return placed.full().numpy(), doubled.full().numpy(), placed._data.part

    for whole, doubled, part in par.simulate(program, 4):
        np.testing.assert_array_equal(whole, x)
        np.testing.assert_array_equal(doubled, 2 * x)
        assert part.size * (4 if "data" in str(cut) else 2) == x.size


def test_pieces_of_a_part_are_where_stripes_are() -> None:
    found = pieces_of((12, 2), ("3*model", ""), "model=2", 1)
    assert [(there[0].start, there[0].stop, here[0].start) for there, here in found] == [
        (2, 4, 0), (6, 8, 2), (10, 12, 4),
    ]  # fmt: skip


def test_what_cannot_be_in_stripes_is_told() -> None:
    for bad in ("0*model", "x*model", "3*", "*model"):
        with pytest.raises(ArgumentError, match="each dimension takes names of axes"):
            par.P(bad)

    def place(make: Any, names: str) -> Any:
        mesh = par.mesh(data=1, model=2)
        return par.place(make(), {names: par.P("3*model")}, mesh)

    for make, names in (
        (lambda: Fused("chunk", 3, 12), "qkv.*"),
        (lambda: nn.MultiheadAttention(12, 3), "in*"),
    ):
        with pytest.raises(ParallelError, match="the 2 ranks along 'model' must divide the heads, got 3"):
            par.simulate(lambda make=make, names=names: place(make, names), 2)
    with pytest.raises(ShapeError, match="must divide each of the 3 pieces"):
        par.simulate(lambda: place(lambda: nn.Linear(4, 9), "*"), 2)
    with pytest.raises(ParallelError, match="stripes must be over another axis than 'data'"):
        on_mesh("data=2", batch_in_stripes)


def batch_in_stripes() -> Any:
    mesh = par.mesh(data=2)
    x = par.place(weft.ones(12), par.P("3*data"), mesh)
    return weft.compile(lambda: x * 2.0, mesh=mesh)()


def test_heads_that_ranks_do_not_divide_are_named() -> None:
    model = nn.ModuleList([Fused("chunk", 3, 12), Fused("chunk", 3, 12)])
    found = par.auto(model, par.Mesh("data=1,model=2"))
    assert "0.qkv.weight" not in found
    assert "uneven: 0.qkv.weight: 3 heads, which 2 ranks do not divide" in str(found)
    assert "3*model" in str(par.auto(model, par.Mesh("model=3")))

    def program() -> Any:
        mesh = par.mesh(model=2)
        layer = par.place(nn.Linear(12, 36), {"*": par.P("3*model")}, mesh)
        uneven = Fused("chunk", 3, 12)
        run = weft.compile(lambda x: uneven._parts(layer(x))[0], mesh=mesh, reshard_limit=1)
        return run(weft.ones(2, 4, 12))

    with pytest.raises(
        ParallelError, match="ranks must divide the dimension that one is split into, such as heads"
    ):
        par.simulate(program, 2)


def test_the_usual_placement_says_what_is_cut_by_heads() -> None:
    text = str(par.auto(nn.Sequential(Standard(), Fused("chunk")), par.Mesh("model=2")))
    for name in ("0.attention.in_proj_weight", "0.attention.in_proj_bias", "1.qkv.weight", "1.qkv.bias"):
        (line,) = [line for line in text.splitlines() if line.startswith(name)]
        assert line.split(maxsplit=1)[1].strip() == "P('3*model')      queries, keys and values by heads"
    assert "uneven" not in text
    fused = par.auto(Fused("chunk"), par.Mesh("model=2"), sequence=True)
    assert fused.sequence == {"qkv": ""}


# Files


def test_checkpoints_hold_the_whole_and_load_on_any_mesh(tmp_path: Path) -> None:
    path = str(tmp_path / "state.safetensors")
    x = np.random.default_rng(0).standard_normal((24, 3)).astype(np.float32)

    def write(axes: dict[str, int]) -> None:
        weft.save({"w": par.place(weft.tensor(x), par.P("3*model"), par.mesh(**axes))}, path)

    def read(axes: dict[str, int]) -> Any:
        found = par.load(path, par.mesh(**axes))["w"]
        return found.full().numpy(), par.held_bytes([found])

    for size in (2, 4):
        par.simulate(lambda size=size: write({"model": size}), size)
        np.testing.assert_array_equal(weft.load(path)["w"].numpy(), x)
        for ranks in (1, 2, 4, 8):
            for whole, held in par.simulate(lambda ranks=ranks: read({"model": ranks}), ranks):
                np.testing.assert_array_equal(whole, x)
                assert held * ranks == x.nbytes
        for whole, held in par.simulate(lambda: read({"data": 2}), 2):
            np.testing.assert_array_equal(whole, x)
            assert held == x.nbytes


@pytest.mark.parametrize("cut", ["0*model", "x*model", "3*model*2", "3*model,,"])
def test_files_with_cuts_that_cannot_be_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    path, x, listed = str(tmp_path / "state.safetensors"), weft.ones(12), slices._listed
    monkeypatch.setattr(slices, "_listed", lambda *given: {**listed(*given), "cut": [cut]})
    par.simulate(lambda: weft.save({"w": par.place(x, par.P("3*model"), par.mesh(model=2))}, path), 2)
    with pytest.raises(FileError, match=r"must be listed as weft\.save does"):
        weft.load(path)


# Rules


@pytest.mark.parametrize(
    ("line", "cut", "expected"),
    [
        ("slice(%x, starts=(0, 4), stops=(2, 8), steps=(1, 1))", ("", "3*model"), "f32[2,4@model]"),
        ("slice(%x, starts=(0, 2), stops=(2, 6), steps=(1, 1))", ("", "3*model"), "f32[2,4]"),
        ("concat(%x, %x, axis=1)", ("", "model"), "f32[2,24@2*model]"),
        (
            "pad(%x, low=(0, 12), high=(0, 24), interior=(0, 0), value=0.0)",
            ("", "model"),
            "f32[2,48@4*model]",
        ),
        ("pad(%x, low=(0, 6), high=(0, 30), interior=(0, 0), value=0.0)", ("", "model"), "f32[2,48]"),
        ("reshape(%x, shape=(2, 3, 4))", ("", "3*model"), "f32[2,3,4@model]"),
        ("reshape(%x, shape=(2, 2, 6))", ("", "model"), "f32[2,2@model,6]"),
        ("reshape(%x, shape=(24,))", ("", "3*model"), "f32[24]"),
    ],
)
def test_stripes_go_through_what_takes_and_makes_pieces(line: str, cut: Any, expected: str) -> None:
    kind = expected.replace("@4*model", "").replace("@2*model", "").replace("@model", "")
    graph = weft.parse_graph(f"graph f(%x: f32[2,12]) {{\n  %0: {kind} = {line}\n  return %0\n}}")
    found = par.propagate(graph, "model=2", {graph.inputs[0]: cut})
    assert f"%0: {expected} = " in str(found)
    local = par.partition(graph, mesh="model=2", inputs=[cut])
    x = np.arange(24, dtype=np.float32).reshape(2, 12)
    (whole,) = interpret(graph, [x])

    def program() -> Any:
        mesh = par.mesh(model=2)
        part = par.place(weft.tensor(x), par.P(*[c or None for c in cut]), mesh)._data.part
        return interpret(local, [part])[0]

    for out in par.simulate(program, 2):
        np.testing.assert_array_equal(out, whole)

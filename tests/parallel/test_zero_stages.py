"""ZeRO on meshes with stages: bits of one process, memory by the formula, messages, checkpoints."""

from __future__ import annotations

import os
from functools import cache, partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.of_code import examples
from tests.parallel.pipelines import KINDS, PLAIN, Layers, quick, train, world
from tests.parallel.test_pipeline_runs import resumed
from tests.parallel.training import shrink
from weft import nn
from weft import parallel as par

P_ROWS = par.P(None, "model")
SETTINGS: dict[str, Any] = {"adam": True, "model": {"dropout": 0.2}, "stages": 2}


@cache
def alone(clip: float, backend: str) -> dict[str, Any]:
    """In one process, with nothing cut."""
    return train({"data": 1, "pipe": 1}, KINDS, clip=clip, backend=backend, **SETTINGS)


def part(shape: tuple[int, ...], count: int) -> int:
    """Bytes of a rank's part: the largest dimension that the ranks divide is cut, else one is padded."""
    if any(s % count == 0 for s in shape):
        return 4 * prod(shape) // count
    return 4 * min(-(-s // count) * prod(shape) // s for s in shape)


@pytest.mark.parametrize(("axes", "zero"), [({"pipe": 2, "data": 4}, 1), ({"data": 2, "pipe": 2}, 3)])
def test_bits_are_those_of_one_process_and_memory_follows_the_formula(axes: Any, zero: int) -> None:
    """Of what a stage holds, each of its n ranks has a part."""
    backend = "llvm" if zero == 3 else "interpret"
    found = par.simulate(lambda: train(axes, KINDS, zero=zero, backend=backend, **SETTINGS), world(axes))
    shapes = {n: p.shape for n, p in Layers(KINDS).named_parameters()}
    n = axes["data"]
    for one in found:
        assert one["losses"] == alone(0.5, backend)["losses"]
        assert one["digest"] == alone(0.5, backend)["digest"]
        mine = [name for name, held in one["held"].items() if held]
        cut, whole = (sum(part(shapes[name], k) for name in mine) for k in (n, 1))
        held = (sum(one["held"].values()), one["grads"], one["state"])
        assert held == (cut if zero == 3 else whole, cut if zero >= 2 else whole, 2 * cut)
    for name, shape in shapes.items():  # each tensor is on the ranks of one stage
        assert sum(bool(one["held"][name]) for one in found) == n, (name, shape)


def test_gradients_come_in_parts_where_nobody_needs_more() -> None:
    axes = {"data": 2, "pipe": 2}
    found = par.simulate(lambda: quick(axes, KINDS, zero=2, clip=0.0, **SETTINGS), 4)
    expected = alone(0.0, "interpret")["digest"]
    assert {one["digest"] for one in found} == {expected}
    names = [node.op.name.removeprefix("start_") for node in found[0]["run"].lowered.nodes]
    assert "reduce_scatter" in names
    off = par.simulate(lambda: quick(axes, KINDS, zero=2, clip=0.0, disable=["place_state"], **SETTINGS), 4)
    assert {one["digest"] for one in off} == {expected}
    assert off[0]["grads"] == sum(off[0]["held"].values())


@examples(40, 2)
@given(
    st.lists(st.integers(0, 4), min_size=2, max_size=4),
    st.sampled_from([{"data": 2, "pipe": 2}, {"pipe": 1, "data": 2}, {"data": 3, "pipe": 2}]),
    st.sampled_from(["1f1b", "gpipe", "zero-bubble"]),
    st.sampled_from([1, 2, 4]),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
)
def test_random_models_are_as_without_zero(
    kinds: list[int],
    axes: dict[str, int],
    schedule: str,
    microbatches: int,
    zero: int,
    tied: bool,
    rows: bool,
) -> None:
    """With one microbatch, too; with weights of two stages, and batches of which ranks hold their rows."""
    options: dict[str, Any] = {"stages": 2, "schedule": schedule, "microbatches": microbatches, "adam": True}
    options["model"] = {"tied": tied, "dropout": 0.2}
    run = lambda zero, rows: par.simulate(  # noqa: E731
        lambda: quick(axes, kinds, zero=zero, rows=rows, **options), world(axes)
    )
    assert {one["digest"] for one in run(zero, rows)} == {run(0, False)[0]["digest"]}


def test_data_operators_stages_and_zero_in_one_mesh() -> None:
    """Products by columns and by rows in each of two stages, on eight ranks."""
    shapes = {"0": (8, 4), "2": (4, 8), "4": (8, 4), "6": (4, 8)}
    columns, rows = {f"{k}.weight": par.P("model") for k in "04"}, {f"{k}.weight": P_ROWS for k in "26"}

    def program(axes: dict[str, int], zero: int) -> Any:
        mesh = par.mesh(**axes)
        weft.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4), nn.Tanh(),
            nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4),
        )  # fmt: skip
        par.place(model, {**columns, **rows}, mesh)
        optimizer = weft.optim.Adam(model.parameters(), lr=0.01)

        more: dict[str, Any] = {"microbatches": 4 // axes["data"], "stages": 2, "backend": "interpret"}
        run = weft.compile(shrink(model, optimizer, clip=0.1), mesh=mesh, zero=zero, **more)
        x = weft.tensor(np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32))
        losses = [float(run(x)) for _ in range(2)]
        weights = b"".join(p.detach().full().numpy().tobytes() for p in model.parameters())
        return losses, weights, {n: par.held_bytes([p]) for n, p in model.named_parameters()}

    expected = par.simulate(program, 2, {"data": 1, "model": 2, "pipe": 1}, 0)[0]
    found = par.simulate(program, 8, {"data": 2, "model": 2, "pipe": 2}, 3)
    assert [one[:2] for one in found] == [expected[:2]] * 8
    for name, shape in shapes.items():
        part = prod(shape)  # bytes: each of 4 ranks has a quarter of 4 times as many
        assert sorted(one[2][f"{name}.weight"] for one in found) == [0] * 4 + [part] * 4


def test_checkpoints_go_from_stages_with_zero_to_any_mesh(tmp_path: Path) -> None:
    path = os.fspath(tmp_path / "state.safetensors")
    whole = par.simulate(lambda: resumed(path, {"data": 1, "pipe": 1}, range(3), load=False), 1)[0]
    axes = {"data": 2, "pipe": 2}
    par.simulate(lambda: resumed(path, axes, range(2), load=False, zero=3), 4)
    found = weft.load(path)["model"]
    assert {n: v.shape for n, v in found.items()} == {n: p.shape for n, p in Layers(PLAIN).named_parameters()}
    for other, zero in (({"data": 1, "pipe": 1}, 0), (axes, 2)):
        again = partial(resumed, path, other, range(2, 3), load=True, zero=zero)
        assert set(par.simulate(again, world(other))) == {whole}

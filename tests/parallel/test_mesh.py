"""Worlds and meshes: who is where, and what is said of sizes that do not fit."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import weft
from weft import parallel as par
from weft.base.ranks import members, mesh_axes, tree_fold
from weft.errors import ArgumentError, DomainError, ParallelError


def test_script_without_launcher_is_a_world_of_one() -> None:
    assert (par.rank(), par.size()) == (0, 1)
    par.barrier()
    made = par.mesh(data=1, model=1)
    assert (made.size, made.sizes, par.rank("data"), par.size("model")) == (1, {"data": 1, "model": 1}, 0, 1)
    assert repr(made) == "mesh(data=1, model=1)"
    assert par.mesh().size == 1


def test_wrong_sizes_are_refused() -> None:
    with pytest.raises(ParallelError, match=r"the 1 rank of the world, got data=2 \(2 ranks\)"):
        par.mesh(data=2)
    with pytest.raises(ParallelError, match="weft launch -n 6"):
        par.mesh(data=2, model=3)
    for sizes in ({"data": 0}, {"data": -2}, {"data": 1.0}, {"data": True}, {"a": -1, "b": -1}):
        with pytest.raises(DomainError):
            par.mesh(**sizes)  # type: ignore[arg-type]
    with pytest.raises(DomainError, match="power of two"):
        par.mesh(shards=6)

    def odd() -> None:
        par.mesh(data=-1, model=3)

    with pytest.raises(ParallelError, match="must divide the 4"):
        par.simulate(odd, 4)


def _without(place: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return place[:axis] + place[axis + 1 :]


def test_ranks_are_counted_along_the_last_axis_first() -> None:
    shape = (2, 3, 4)
    text = "a=2,b=3,c=4"
    places = list(product(*map(range, shape)))
    mesh = par.Mesh(text)
    for rank, place in enumerate(places):
        assert tuple(mesh.place(rank).values()) == place
        for axis, name in enumerate("abc"):
            expected = [k for k, p in enumerate(places) if _without(p, axis) == _without(place, axis)]
            assert members("op", text, name, rank) == tuple(expected)
    both = members("op", text, "c,a", 5)
    assert [places[r] for r in both] == [(a, 1, c) for c in range(4) for a in range(2)]
    assert mesh_axes(text) == (("a", 2), ("b", 3), ("c", 4))


def test_axis_that_the_mesh_has_not_is_an_error() -> None:
    par.mesh(data=1)
    for call in (lambda: par.size("model"), lambda: par.all_reduce(weft.ones(2), "model")):
        with pytest.raises(DomainError, match=r"must be one of the mesh \(data\), got 'model'"):
            call()
    with pytest.raises(ArgumentError, match="must name an axis"):
        par.all_reduce(weft.ones(2), "")


def test_cut_of_a_tensor_names_axes_of_the_mesh_once() -> None:
    text = "data=2,model=4"
    assert par.P("data").cut("op", text, 3) == ("data", "", "")
    assert par.P(None, ("data", "model")).cut("op", text, 2) == ("", "data,model")
    with pytest.raises(DomainError, match="'pipe'"):
        par.P("pipe").cut("op", text, 1)
    with pytest.raises(DomainError, match="an axis cuts one dimension"):
        par.P("data", "data").cut("op", text, 2)
    with pytest.raises(ArgumentError, match="at most 1"):
        par.P("data", None).cut("op", text, 1)
    with pytest.raises(ArgumentError, match="names of axes"):
        par.P(3)  # type: ignore[arg-type]


def test_folding_runs_of_a_power_of_two_first_is_the_same_tree() -> None:
    rng = np.random.default_rng(0)
    for shards in (1, 2, 4, 8, 16):
        parts = list(rng.standard_normal((shards, 7)).astype(np.float32))
        whole = tree_fold(parts, np.add)
        for ranks in (1, 2, 4, 8, 16):
            if shards % ranks == 0:
                k = shards // ranks
                runs = [tree_fold(parts[i : i + k], np.add) for i in range(0, shards, k)]
                assert tree_fold(runs, np.add).tobytes() == whole.tobytes()


def test_captured_graph_is_made_anew_for_another_mesh() -> None:
    def program() -> list[float]:
        total = weft.compile(lambda x: par.all_reduce(x, "a"))
        who = weft.compile(lambda x: x + par.rank())
        out = []
        for sizes in ({"a": 2, "b": 2}, {"a": 4}, {"a": 2, "b": 2}):
            par.mesh(**sizes)
            out.append(float(total(weft.tensor(float(par.rank())))))
        return [*out, float(who(weft.tensor(0.0)))]

    assert par.simulate(program, 4) == [[2.0, 6.0, 2.0, 0.0], [4.0, 6.0, 4.0, 1.0], [2.0, 6.0, 2.0, 2.0],
                                        [4.0, 6.0, 4.0, 3.0]]  # fmt: skip


def test_graph_of_another_world_says_so() -> None:
    text = 'graph f(%x: f32[2]) {\n  %0: f32[2] = all_reduce(%x, axis="data", mesh="data=2")\n  return %0\n}'
    graph = weft.parse_graph(text)
    with pytest.raises(ParallelError, match=r"a graph for 2 ranks \(mesh data=2\) .* got 1"):
        graph(weft.ones(2))

"""Placed tensors: each rank holds its part; what they say, ops on them, and compiled functions of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft
import weft.nn.functional as F
from tests.parallel.programs import Program
from tests.parallel.test_partition import traced
from tests.parallel.training import classify
from weft import nn
from weft import parallel as par
from weft.base.parts import take_part
from weft.base.ranks import mesh_axes
from weft.errors import ArgumentError, DomainError, GradientError, ParallelError
from weft.ir.interpret import interpret
from weft.parallel.cuts import divides
from weft.parallel.placing import put_parts

Array = np.ndarray[Any, Any]
MESHES = ("data=2", "data=3", "data=2,model=2", "data=4,model=2")


def on_mesh(mesh: str, program: Callable[[], Any]) -> list[Any]:
    """What each rank of a mesh returns."""

    def ranked() -> Any:
        par.mesh(**dict(mesh_axes(mesh)))
        return program()

    return par.simulate(ranked, par.Mesh(mesh).size)


def random_cut(rng: Any, mesh: str, ndim: int) -> par.P:
    names = [name for name, _ in mesh_axes(mesh)]
    rng.shuffle(names)
    dims: list[Any] = [None] * ndim
    for name in names:
        dim = int(rng.integers(-1, ndim))
        if dim >= 0:
            dims[dim] = (*(dims[dim] or ()), name)
    return par.P(*dims)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 7), min_size=1, max_size=3), st.sampled_from(MESHES), st.integers(0, 99))
def test_parts_make_the_whole_again_whatever_the_sizes(shape: list[int], mesh: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    array = rng.standard_normal(shape)
    spec = random_cut(rng, mesh, len(shape))
    sizes = dict(mesh_axes(mesh))

    def program() -> tuple[Any, ...]:
        x = par.place(weft.tensor(array), spec)
        return x.shape, x.full().numpy(), par.held_bytes([x])

    counts = [int(np.prod([sizes[n] for n in dim or ()])) for dim in spec]
    most = 8 * int(np.prod([-(-s // n) for s, n in zip(shape, counts, strict=True)]))
    for found, whole, held in on_mesh(mesh, program):
        assert found == tuple(shape)
        np.testing.assert_array_equal(whole, array)
        assert held == most


def test_placed_tensor_speaks_of_the_whole() -> None:
    def program() -> tuple[str, ...]:
        x = par.place(weft.ones(6, 5, requires_grad=True), par.P(None, "data"))
        return repr(x), str(x.shape), str(x.nbytes), repr(x.detach()), str(len(x)), str(x.is_leaf)

    shown = "tensor(<f32[6,5@data] on mesh(data=2)>"
    for found in on_mesh("data=2", program):
        assert found == (f"{shown}, requires_grad=True)", "(6, 5)", "120", f"{shown})", "6", "True")
    alone = par.mesh(data=1)
    assert repr(par.place(weft.ones(2), par.P("data"), alone)) == "tensor([1., 1.])"
    assert repr(weft.ones(2).full()) == "tensor([1., 1.])"


def refused_elements(x: Any) -> list[str]:
    """What is said where one rank asks for elements."""
    found = []
    for ask in (lambda: x.numpy(), lambda: x.tolist(), lambda: np.asarray(x), lambda: x.item()):
        with pytest.raises(ParallelError) as error:
            ask()
        found.append(str(error.value))
    return found


def test_elements_must_be_asked_for_by_all_ranks() -> None:
    def program() -> Any:
        x = par.place(weft.ones(6), par.P("data"))
        return float(x[0]), refused_elements(x)  # an op makes something whole: that takes all ranks

    for first, texts in on_mesh("data=2", program):
        assert first == 1.0
        for text in texts:
            assert "f32[6@data] of which this rank has a part" in text
            assert "x.full()" in text


def test_gradients_outside_of_compiled_steps_are_refused() -> None:
    def program() -> Any:
        return par.place(weft.ones(6, requires_grad=True), par.P("data")) * 2.0

    with pytest.raises(GradientError, match=r"mul: .*compiled steps, got f32\[6@data\]") as found:
        on_mesh("data=2", program)
    assert "weft.compile(step, mesh=mesh)" in str(found.value)


def test_bad_placements_are_refused() -> None:
    mesh = par.mesh(data=1)
    layer = nn.Linear(3, 2)
    with pytest.raises(ArgumentError, match="takes a tensor or a module, got list"):
        par.place([1], par.P("data"), mesh)
    with pytest.raises(ArgumentError, match=r"mesh must be made by par\.mesh, got P"):
        par.place(weft.ones(2), mesh, par.P("data"))  # type: ignore[arg-type]
    with pytest.raises(DomainError, match=r"must name a tensor \(weight, bias, \.\.\.\), got 'wheight'"):
        par.place(layer, {"wheight": par.P("data")}, mesh)
    with pytest.raises(DomainError, match="place of bias: axes must be of the mesh"):
        par.place(layer, {"bias": par.P("model")}, mesh)
    with pytest.raises(ParallelError, match="must be a leaf"):
        par.place(layer.weight * 2, par.P("data"), mesh)

    def two_meshes() -> Any:
        x = par.place(weft.ones(4), par.P("data"), par.mesh(data=2))
        return x + par.place(weft.ones(4), par.P("rows"), par.mesh(rows=2))

    with pytest.raises(ParallelError, match="add: operands must be on one mesh, got data=2, rows=2"):
        par.simulate(two_meshes, 2)

    def collective() -> Any:
        return par.all_reduce(par.place(weft.ones(4), par.P("data")), "data")

    with pytest.raises(ParallelError, match="all_reduce: the tensor must be whole"):
        on_mesh("data=2", collective)


OPS: tuple[Callable[[Any], Any], ...] = (
    lambda x: weft.tanh(x) * 2.0 + x,
    lambda x: x.sum(),
    lambda x: x.sum(axis=1),
    lambda x: x.amax(axis=0),
    lambda x: x @ x.mT,
    lambda x: x.reshape(-1),
    lambda x: x[1:, :2],
    lambda x: x.T + weft.ones(x.shape[0]),
    lambda x: F.softmax(x, axis=-1),
    lambda x: weft.concat([x, x], axis=1),
    lambda x: weft.where(x > 0, x, 0.0),
    lambda x: weft.sort(x, axis=0),
)


@pytest.mark.parametrize("spec", [par.P("data"), par.P(None, "data"), par.P("model", "data")])
def test_ops_on_placed_tensors_give_what_they_give_on_whole_ones(spec: par.P) -> None:
    for shape in ((4, 8), (5, 3)):
        array = np.random.default_rng(0).standard_normal(shape)
        expected = [op(weft.tensor(array)).numpy() for op in OPS]

        def program(array: Array = array) -> list[Any]:
            x = par.place(weft.tensor(array), spec)
            return [op(x).full().numpy() for op in OPS]

        for found in on_mesh("data=2,model=2", program):
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_steps_by_elements_stay_in_parts() -> None:
    def program() -> list[str]:
        x = par.place(weft.ones(8, 6), par.P("data"))
        with weft.no_grad():
            y = x.clone()
            y.mul_(3.0)
            y.copy_(weft.ones(8, 6) * 2)
        return [repr(weft.exp(x * 2) - x), repr(weft.zeros_like(x)), repr(y), repr(x.sum(axis=1))]

    part = "tensor(<f32[8@data,6] on mesh(data=2)>)"
    for found in on_mesh("data=2", program):
        assert found == [part, part, part, "tensor(<f32[8@data] on mesh(data=2)>)"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.integers(0, 10_000), min_size=2, max_size=10),
    st.sampled_from(["data=2", "data=4", "data=2,model=2"]),
    st.booleans(),
)
def test_random_programs_on_parts_equal_the_interpreter(choices: list[int], mesh: str, ordered: bool) -> None:
    """Notes cut the batch and the model; inputs and results are cut over the ranks of the batch on top."""
    program = Program(choices, mesh)
    graph = traced(program, mesh)
    whole = interpret(graph, program.arrays)
    rng = np.random.default_rng(choices)

    def cut(shape: tuple[int, ...]) -> tuple[str, ...]:
        dims = [d for d, s in enumerate(shape) if divides(s, "data", mesh)]
        at = dims[int(rng.integers(len(dims)))] if dims and rng.integers(3) else -1
        return tuple(["data" if d == at else "" for d in range(len(shape))])

    ins, outs = ([cut(v.type.shape) for v in vs] for vs in (graph.inputs, graph.outputs))
    parts = par.partition(graph, mesh=mesh, limit=1 << 40)
    placed = par.place_state(parts, mesh=mesh, inputs=ins, outputs=outs, ordered=ordered)
    placed.verify()

    def rank() -> list[tuple[Any, Any]]:
        given = [take_part(a, c, mesh) for a, c in zip(program.arrays, ins, strict=True)]
        ends = [take_part(np.asarray(a), c, mesh) for a, c in zip(whole, outs, strict=True)]
        return list(zip(interpret(placed, given), ends, strict=True))

    for found in par.simulate(rank, par.Mesh(mesh).size):
        for a, b in found:
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


class Mlp(nn.Module):
    """Two layers, cut by columns and by rows."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        """Scores of each row."""
        return self.fc2(weft.tanh(self.fc1(x)))


SPEC = {"fc1.*": par.P("model"), "fc2.weight": par.P(None, "model"), "fc2.bias": par.P("data")}


def trained(mesh: str, spec: dict[str, par.P], **more: Any) -> list[Any]:
    """Parameters, buffers of the optimizer and losses after steps; and the bytes that each rank holds."""

    def program() -> Any:
        weft.manual_seed(3)
        model = Mlp()
        if spec:
            par.place(model, spec)
        optimizer = weft.optim.Adam(model.parameters(), lr=0.05)

        run = weft.compile(classify(model, optimizer), mesh=par.mesh(**dict(mesh_axes(mesh))), **more)
        rng = np.random.default_rng(0)
        x, y = weft.tensor(rng.standard_normal((16, 6)).astype(np.float32)), rng.integers(0, 3, 16)
        losses = [float(run(x, weft.tensor(y))) for _ in range(3)]
        state = [t for p in model.parameters() for t in optimizer.state[p].values() if t.ndim]
        params = list(model.parameters())
        held = par.held_bytes(params), par.held_bytes([p.grad for p in params]), par.held_bytes(state)
        return losses, [t.detach().full().numpy() for t in (*params, *state)], held

    return on_mesh(mesh, program)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("reproducible", [True, False])
def test_placed_parameters_train_as_whole_ones_and_take_their_part_of_memory(reproducible: bool) -> None:
    expected, arrays, whole = trained("data=1,model=1", {})[0]
    part = 4 * (4 * 6 + 4 + 3 * 4 + 2)  # the last bias is padded to 4
    assert whole == (4 * 83, 4 * 83, 8 * 83)
    for losses, found, held in trained("data=2,model=2", SPEC, reproducible=reproducible):
        np.testing.assert_allclose(losses, expected, rtol=1e-5)
        for a, b in zip(found, arrays, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        assert held == (part, part, 2 * part)


def test_batch_that_ranks_have_parts_of_needs_no_whole() -> None:
    """Each rank gives its own rows; the same bits as where all give the whole batch."""
    rows = np.random.default_rng(0).standard_normal((16, 4)).astype(np.float32)

    def program(own: bool, reproducible: bool) -> Any:
        mesh = par.mesh(data=-1)
        w = weft.ones(4, 3)

        def f(x: Any) -> Any:
            x = par.shard(x, "data")
            return weft.tanh(x @ w).sum(axis=1).square().sum(), x * 2.0

        x = weft.tensor(rows)
        if own:
            n, r = par.size(), par.rank()
            x = par.from_parts(weft.tensor(np.split(rows, n)[r]), par.P("data"), mesh)
        total, twice = weft.compile(f, mesh=mesh, reproducible=reproducible)(x)
        return total.numpy().tobytes(), twice.numpy()

    for reproducible in (True, False):
        expected = par.simulate(program, 2, False, reproducible)[0]
        for total, twice in par.simulate(program, 2, True, reproducible):
            assert total == expected[0]
            np.testing.assert_array_equal(twice, rows * 2)


def test_what_was_whole_when_compiled_may_be_placed_later() -> None:
    def program() -> tuple[Any, ...]:
        mesh = par.mesh(data=-1)
        total = weft.zeros(6)

        def step(x: Any) -> None:
            total.add_(par.shard(x, "data").sum(axis=0))

        run = weft.compile(step, mesh=mesh)
        run(weft.ones(8, 6))
        put_parts(total, ("data",), mesh.text)
        run(weft.ones(8, 6))
        return repr(total), total.full().tolist()

    for shown, values in par.simulate(program, 2):
        assert shown == "tensor(<f32[6@data] on mesh(data=2)>)"
        assert values == [16.0] * 6

"""The sharding passes: what ranks compute on their parts equals the interpreter on the whole graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import weft
import weft.nn.functional as F
from tests.of_code import examples
from tests.parallel.programs import Program
from weft import parallel as par
from weft.backends import backend_named
from weft.base.ranks import enter_world, place_on, world
from weft.errors import DomainError, ParallelError
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.parallel.cuts import local_type
from weft.parallel.step import KEPT_APART
from weft.transform.tracing import trace_graph

Array = np.ndarray[Any, Any]
MESHES = ("data=1", "data=2", "data=4", "data=2,model=2", "data=4,model=2", "a=2,b=2,c=2", "data=16",
          "x=4,y=8", "data=8,model=8")  # fmt: skip


def with_mesh(mesh: str, function: Any) -> Any:
    """Call a function as if this world had a mesh, to note cuts over it."""
    before = world().mesh
    world().mesh = mesh
    try:
        return function()
    finally:
        world().mesh = before


def graph_of(function: Any, mesh: str, *arrays: Array) -> Graph:
    tensors = [weft.tensor(a) for a in arrays]
    graph: Graph = with_mesh(mesh, lambda: weft.make_graph(function, name="f")(*tensors))
    return graph.optimize()


def traced(program: Program, mesh: str, function: Any = None) -> Graph:
    types = [weft.TensorType(a.shape, a.dtype) for a in program.arrays]
    graph, others = with_mesh(mesh, lambda: trace_graph(function or program, types, "f", closed=True))
    assert not others
    return graph.optimize()  # type: ignore[no-any-return]


def _gradient_of(program: Program) -> Any:
    """The gradients of a program by its inputs."""

    def loss(*inputs: Any) -> Any:
        found = [x for x in program(*inputs) if x.dtype == weft.float64]
        return sum([(x * (k + 1.0)).sum() for k, x in enumerate(found)], weft.zeros((), dtype=weft.float64))

    return weft.grad(loss, argnums=(0, 1, 2))


def run_parts(graph: Graph, mesh: str, arrays: list[Array]) -> list[list[Array]]:
    """What each rank of a mesh gets by running a graph of parts on whole inputs."""

    def rank() -> list[Array]:
        return interpret(graph, arrays)

    return par.simulate(rank, par.Mesh(mesh).size)


def check_equal(graph: Graph, mesh: str, arrays: list[Array]) -> Graph:
    whole = interpret(graph, arrays)
    parts = par.partition(graph, mesh=mesh, limit=1 << 40)
    parts.verify()
    for found in run_parts(parts, mesh, arrays):
        for a, b in zip(found, whole, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
    return parts


@examples(60, 20)
@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=12), st.sampled_from(MESHES))
def test_random_programs_on_random_meshes_equal_the_interpreter(choices: list[int], mesh: str) -> None:
    program = Program(choices, mesh, stripes=sum(choices) % 2 == 1)
    check_equal(traced(program, mesh), mesh, program.arrays)


@examples(40, 14)
@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=12), st.sampled_from(["", ",model=2"]))
@example([7640, 2883, 6320, 977, 8104], "")  # what is gathered is the same for all shards
@example([903, 14, 1, 0, 208], ",model=2")  # a place along both axes at once
def test_virtual_shards_give_the_same_bits_on_every_number_of_ranks(choices: list[int], more: str) -> None:
    virtual = f"data=8{more}"
    program = Program(choices, virtual)
    graph = traced(program, virtual)
    parts = par.partition(graph, mesh=virtual, limit=1 << 40)
    first: list[Array] | None = None
    for ranks in (1, 2, 4, 8):
        mesh = f"data={ranks}{more}"
        axes = {(node.op.name, str(node.attrs.get("axis"))) for node in parts.nodes}
        if any("data" in along and (name == "all_to_all" or along != "data") for name, along in axes):
            with pytest.raises(ParallelError, match="must only sum, gather and cut along 'data'"):
                par.fold_shards(parts, mesh=mesh)
            return
        folded = par.bucket(par.fold_shards(parts, mesh=mesh), size=256)
        folded.verify()
        for found in run_parts(folded, mesh, program.arrays):
            first = first or found
            assert [a.tobytes() for a in found] == [a.tobytes() for a in first]
    for a, b in zip(first or [], interpret(graph, program.arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


@examples(40, 14)
@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=10), st.sampled_from(MESHES), st.booleans())
def test_passes_after_the_partition_change_no_bit(choices: list[int], mesh: str, gradients: bool) -> None:
    program = Program(choices, mesh)
    function = _gradient_of(program) if gradients else None
    parts = par.partition(traced(program, mesh, function), mesh=mesh, limit=1 << 40)
    turned = par.turn_sums(parts)
    first = run_parts(turned, mesh, program.arrays)
    for a, b in zip(run_parts(parts, mesh, program.arrays)[0], first[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)  # a product is written the other way
    for graph in (par.bucket(turned, size=256), par.overlap(turned), par.overlap(par.bucket(turned))):
        graph.verify()
        for found, wanted in zip(run_parts(graph, mesh, program.arrays), first, strict=True):
            assert [a.tobytes() for a in found] == [a.tobytes() for a in wanted]


@examples(40, 14)
@given(
    st.lists(st.integers(0, 10_000), min_size=2, max_size=10),
    st.sampled_from(["data=2", "data=4", "data=2,model=2", "data=16", "data=8,model=8"]),
    st.booleans(),
)
def test_state_in_parts_has_the_bits_of_whole_state(choices: list[int], mesh: str, gradients: bool) -> None:
    program, count = Program(choices, mesh), par.Mesh(mesh).sizes["data"]
    function = _gradient_of(program) if gradients else None
    parts = par.partition(traced(program, mesh, function), mesh=mesh, limit=1 << 40)
    rng = np.random.default_rng(choices)

    def some_cut(shape: tuple[int, ...]) -> tuple[str, ...]:
        even = [d for d, size in enumerate(shape) if size and size % count == 0]
        at = int(rng.choice(even)) if even and rng.integers(3) else -1
        return tuple(["data" if d == at else "" for d in range(len(shape))])

    inputs, outputs = ([some_cut(v.type.shape) for v in vs] for vs in (parts.inputs, parts.outputs))
    placed = par.place_state(parts, mesh=mesh, axis="data", inputs=inputs, outputs=outputs)
    placed.verify()

    def own(x: Array, cut: tuple[str, ...]) -> Array:
        if not any(cut):
            return x
        return np.split(x, count, axis=cut.index("data"))[place_on("test", mesh, "data")]

    def rank() -> tuple[list[bytes], list[bytes]]:
        arrays = [own(x, cut) for x, cut in zip(program.arrays, inputs, strict=True)]
        whole = interpret(parts, program.arrays)
        wanted = [own(x, cut) for x, cut in zip(whole, outputs, strict=True)]
        return [x.tobytes() for x in interpret(placed, arrays)], [x.tobytes() for x in wanted]

    for found, wanted in par.simulate(rank, par.Mesh(mesh).size):
        assert found == wanted


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes if node.op.sequence or node.op.ambient]


RNG = np.random.default_rng(0)
X, W1, W2 = RNG.standard_normal((16, 8)), RNG.standard_normal((8, 32)), RNG.standard_normal((32, 4))


def test_data_parallel_gradients_are_one_all_reduce_each() -> None:
    def loss(x: Any, w1: Any, w2: Any) -> Any:
        return (weft.tanh(par.shard(x, "data", None) @ w1) @ w2).square().mean()

    mesh = "data=4"
    graph = graph_of(weft.value_and_grad(loss, argnums=(1, 2)), mesh, X, W1, W2)
    parts = check_equal(graph, mesh, [X, W1, W2])
    assert sorted(names(parts)) == ["all_reduce"] * 3 + ["take_shard"]
    assert all(node.location is not None for node in parts.nodes if node.op.sequence)


def test_column_then_row_product_needs_one_all_reduce() -> None:
    def mlp(x: Any, w1: Any, w2: Any) -> Any:
        return weft.tanh(x @ par.shard(w1, None, "model")) @ w2

    graph = graph_of(mlp, "model=8", X, W1, W2)
    parts = check_equal(graph, "model=8", [X, W1, W2])
    assert names(parts) == ["take_shard", "take_shard", "all_reduce"]
    text = str(par.propagate(graph, "model=8"))
    assert "%w1: f64[8,32@model]" in text
    assert "%w2: f64[32@model,4]" in text


def test_statistics_over_a_cut_batch_are_those_of_the_whole() -> None:
    def f(x: Any) -> Any:
        return F.batch_norm(par.shard(x, "data"), None, None, training=True)

    parts = check_equal(graph_of(f, "data=4", X), "data=4", [X])
    assert "standardize" not in [node.op.name for node in parts.nodes]


def test_axis_that_changes_its_dimension_is_one_all_to_all() -> None:
    def f(x: Any) -> Any:
        return par.shard(weft.tanh(par.shard(x, "data", None)), None, "data") * 2.0

    graph = graph_of(f, "data=4", X)
    parts = check_equal(graph, "data=4", [X])
    assert names(parts) == ["take_shard", "all_to_all", "all_gather"]


def test_lookup_and_its_gradient_add_what_ranks_found_once() -> None:
    table, index = RNG.standard_normal((10, 4)), RNG.integers(0, 10, (8,))

    def f(t: Any, i: Any, base: Any) -> Any:
        rows = t[par.shard(i, "data")]
        gradient = weft.grad(lambda t: (t[par.shard(i, "data")] ** 2).sum())(t)
        return gradient, rows.sum(), weft.index_add(base, par.shard(i, "data"), rows, axis=0)

    check_equal(graph_of(f, "data=8", table, index, table), "data=8", [table, index, table])


# Sequence parallel


def block(x: Any, w1: Any, w2: Any, g: Any) -> Any:
    """A part of a transformer between whose products the sequence is cut over the ranks of the model."""
    x = par.shard(x, None, "model", None)
    h = par.shard(F.layer_norm(x, (8,), g), None, None, None)
    y = weft.gelu(h @ par.shard(w1, None, "model")) @ par.shard(w2, "model", None)
    return (par.shard(x + y, None, "model", None) ** 2).sum()


def block_arrays() -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(s) for s in ((2, 16, 8), (8, 32), (32, 8), (8,))]


@pytest.mark.parametrize("count", [2, 4, 8])
def test_sequence_is_gathered_before_products_and_scattered_after_them(count: int) -> None:
    arrays, mesh = block_arrays(), f"model={count}"
    graph = graph_of(lambda *a: (block(*a), weft.grad(block, argnums=(0, 1, 2, 3))(*a)), mesh, *arrays)
    parts = check_equal(graph, mesh, arrays)
    moved = [
        n for n in parts.nodes if n.op.name in ("all_gather", "reduce_scatter", "all_to_all", "all_reduce")
    ]
    activations = [n for n in moved if n.inputs[0].type.ndim == 3]
    found = [n.op.name for n in activations]
    assert found == ["all_gather", "reduce_scatter", "all_gather", "reduce_scatter", "all_gather"]
    assert activations[-1].outputs[0] is parts.outputs[1]  # the gradient of the whole input, at the end
    norms = [n for n in parts.nodes if n.op.name == "standardize"]
    assert {n.inputs[0].type.shape for n in norms} == {(2, 16 // count, 8)}


def test_sums_of_what_is_cut_alike_stay_sums_where_parts_of_them_are_wanted() -> None:
    def f(x: Any, w: Any) -> Any:
        return par.shard(par.shard(x, None, "model") @ par.shard(w, "model", None), "model", None)

    arrays = [np.random.default_rng(0).standard_normal(s) for s in ((8, 4), (4, 6))]
    parts = check_equal(graph_of(f, "model=4", *arrays), "model=4", arrays)
    assert names(parts) == ["take_shard", "take_shard", "reduce_scatter", "all_gather"]


@examples(40, 14)
@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=8), st.sampled_from(MESHES))
def test_gradients_of_random_programs_equal_the_interpreter(choices: list[int], mesh: str) -> None:
    program = Program(choices, mesh)
    check_equal(traced(program, mesh, _gradient_of(program)), mesh, program.arrays)


# Inputs, errors, notes


def test_inputs_and_outputs_can_be_parts() -> None:
    def f(x: Any, w: Any) -> Any:
        return weft.tanh(x @ w)

    mesh = "data=2,model=4"
    graph = graph_of(f, mesh, X, W1)
    x, w = graph.inputs
    cuts = {x: ("data", ""), w: ("", "model")}
    parts = par.partition(graph, mesh=mesh, inputs=cuts, outputs=[("data", "model")])
    assert names(parts) == []
    assert [str(v.type) for v in (*parts.inputs, *parts.outputs)] == ["f64[8,8]", "f64[8,8]", "f64[8,8]"]
    whole = np.tanh(X @ W1)

    def rank() -> Array:
        place = par.Mesh(mesh).place(par.rank())
        d, m = place["data"], place["model"]
        return interpret(parts, [X[d * 8 : d * 8 + 8], W1[:, m * 8 : m * 8 + 8]])[0]

    for number, out in enumerate(par.simulate(rank, 8)):
        d, m = divmod(number, 4)
        np.testing.assert_allclose(out, whole[d * 8 : d * 8 + 8, m * 8 : m * 8 + 8], rtol=1e-12)


def test_reshard_that_nobody_asked_for_is_an_error_with_line_and_fix() -> None:
    big = np.zeros((1024, 512), np.float32)

    def f(x: Any) -> Any:
        h = weft.tanh(par.shard(x, "data", None))
        return weft.sort(h, axis=0).sum()  # the line of the error

    graph = graph_of(f, "data=4", big)
    with pytest.raises(ParallelError) as found:
        par.partition(graph, mesh="data=4")
    text = str(found.value)
    assert "sort needs a f32[1024,512] cut as (None, None), and it is cut as ('data', None): 2.1 MB" in text
    assert "par.shard(x, None, None)" in text
    assert "the line of the error" in text

    def asked(x: Any) -> Any:
        h = par.shard(weft.tanh(par.shard(x, "data", None)), None, None)
        return weft.sort(h, axis=0).sum()

    assert names(par.partition(graph_of(asked, "data=4", big), mesh="data=4")) == ["take_shard", "all_gather"]
    assert "all_gather" in names(par.partition(graph, mesh="data=4", limit=1 << 22))


def test_op_without_a_rule_is_named() -> None:
    def f(x: Any) -> Any:
        return weft.linalg.pinv(par.shard(x, "data", None))

    found = par.propagate(graph_of(f, "data=4", X), "data=4")
    assert len(found.replicated) == 1
    assert found.replicated[0].startswith("pinv at ")
    assert "replicated, without a rule: pinv" in str(found)


def test_sizes_that_do_not_divide_stay_whole_and_wrong_notes_are_refused() -> None:
    odd = RNG.standard_normal((6, 8))
    graph = graph_of(lambda x: weft.tanh(par.shard(x, None, "data").reshape(48)), "data=8", odd)
    check_equal(graph, "data=8", [odd])
    with pytest.raises(weft.errors.ShapeError, match='must divide by the 8 ranks of "data"'):
        graph_of(lambda x: par.shard(x, "data"), "data=8", odd)
    with pytest.raises(DomainError, match="axes must be of the mesh"):
        par.partition(graph, mesh="model=2")


def test_collectives_of_ones_own_are_refused_in_a_program_for_a_mesh() -> None:
    graph = graph_of(lambda x: par.all_reduce(x, "data"), "data=1", X)
    with pytest.raises(ParallelError, match="must have no collective of its own, got all_reduce"):
        par.partition(graph, mesh="data=2")


def test_note_does_nothing_without_a_mesh() -> None:
    x = weft.tensor(X)
    assert par.shard(x, "nothing") is x
    assert enter_world(None) is None


def test_local_types_are_parts() -> None:
    whole = weft.TensorType((8, 6), weft.float32)
    assert str(local_type(whole, ("data,model", ""), "data=2,model=2")) == "f32[2,6]"


def test_sum_of_what_all_shards_have_alike_counts_each_of_them() -> None:
    text = """
    graph f(%x: f64[]) {
      %0: f64[] = all_reduce(%x, axis="data", mesh="data=8")
      %1: f64[2] = broadcast_to(%0, shape=(2,))
      %2: f64[16] = all_gather(%1, axis="data", dim=0, mesh="data=8")
      return %0, %2
    }"""
    for ranks in (1, 2, 4, 8):
        mesh = f"data={ranks}"
        folded = par.fold_shards(weft.parse_graph(text), mesh=mesh)
        for total, parts in run_parts(folded, mesh, [np.array(0.3)]):
            assert total == 8 * 0.3
            assert parts.tolist() == [8 * 0.3] * 16


@pytest.mark.rotating(2)
@pytest.mark.parametrize(
    "choices",
    [
        [3756, 2047, 9885, 1329, 7360, 1040, 6290, 1618, 111, 8412],  # small products in a loop of one turn
        [9889, 8667, 9634, 8286, 9878, 3425, 2455, 8195, 5988, 5860, 4358],  # cut along the last dimension
    ],
)
def test_machine_code_of_a_shard_does_not_depend_on_how_many_there_are(choices: list[int]) -> None:
    program = Program(choices, "data=8")
    arrays = [a.astype(np.float32) for a in program.arrays]
    program.arrays = arrays
    parts = par.partition(traced(program, "data=8"), mesh="data=8")
    found = []
    for ranks in (1, 4, 8):
        folded = par.fold_shards(parts, mesh=f"data={ranks}").optimize(disable=[KEPT_APART])
        run = backend_named("llvm")(folded)
        found.append([a.tobytes() for a in par.simulate(lambda r: list(r(arrays)), ranks, run)[0]])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("cut", ["columns", "rows", "depth"])
def test_linear_layers_of_half_precision_are_cut_as_products_are(cut: str) -> None:
    x, w = (RNG.integers(-8, 9, shape).astype(weft.bfloat16) for shape in ((8, 16), (12, 16)))
    b = (RNG.integers(-39, 40, 12) / 8).astype(weft.bfloat16)

    def layer(x: Any, w: Any, b: Any) -> Any:
        if cut == "columns":
            return F.linear(x, par.shard(w, "model", None), par.shard(b, "model"))
        if cut == "rows":
            return F.linear(par.shard(x, "model", None), w, b)
        return F.linear(par.shard(x, None, "model"), par.shard(w, None, "model"), b)

    parts = par.partition(graph_of(layer, "model=2", x, w, b), mesh="model=2", limit=1 << 40)
    assert ("all_reduce" in names(parts)) is (cut == "depth")
    exact = x.astype(float) @ w.astype(float).T + b.astype(float)
    for (found,) in run_parts(parts, "model=2", [x, w, b]):
        if cut == "depth":  # the sums of each rank are stored in half precision, one of them with the bias
            np.testing.assert_allclose(found.astype(float), exact, rtol=2**-7, atol=2)
        else:
            np.testing.assert_array_equal(found, exact.astype(weft.bfloat16))

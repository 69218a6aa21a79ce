"""``weft.jit.trace``, ``weft.jit.script``, ``weft.make_graph``: what a trace relies on is in its graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.of_code import examples
from weft.errors import ArgumentError, CaptureError, TraceGuardError


def values(tree: Any) -> list[Any]:
    return [t.detach().numpy() for t in weft.tree_leaves(tree)]


def assert_equal(a: Any, b: Any) -> None:
    for x, y in zip(values(a), values(b), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


# Guards on values


def test_branch_not_taken_is_an_error_with_the_line_and_both_values() -> None:
    def f(x: Any) -> Any:
        if x.sum() > 0:
            return x * 2.0
        return -x

    traced = weft.jit.trace(f, weft.ones(2))
    assert traced(weft.tensor([5.0, -1.0])).tolist() == [10.0, -2.0]
    with pytest.raises(TraceGuardError) as error:
        traced(-weft.ones(2))
    text = str(error.value)
    assert "where a truth was True, got False" in text
    for part in ("if x.sum() > 0:", "test_trace.py"):
        assert part in text


@pytest.mark.parametrize(
    ("ask", "same", "other", "was", "now"),
    [
        (lambda x: int(x.sum()), [1.25, 1.5], [2.0, 2.0], 2, 4),
        (lambda x: x.sum().item(), [0.5, 1.5], [1.0, 2.0], 2.0, 3.0),
        (lambda x: float(x.sum()), [0.5, 1.5], [1.0, 2.0], 2.0, 3.0),
        (lambda x: x.tolist()[0], [1.0, 1.0], [1.0, 2.0], [1.0, 1.0], [1.0, 2.0]),
        (lambda x: float(x.numpy()[0]), [1.0, 1.0], [0.0, 1.0], [1.0, 1.0], [0.0, 1.0]),
        (lambda x: len(list(range(int(x[0])))), [1.0, 9.0], [3.0, 9.0], 1, 3),
    ],
)
def test_value_that_python_asked_for_is_guarded(ask: Any, same: Any, other: Any, was: Any, now: Any) -> None:
    traced = weft.jit.trace(lambda x: x * ask(x), weft.ones(2))
    x = weft.tensor(same)
    np.testing.assert_allclose(traced(x).numpy(), x.numpy() * ask(weft.ones(2)))
    with pytest.raises(TraceGuardError) as error:
        traced(weft.tensor(other))
    assert f"was {was}, got {now}" in str(error.value)


def test_guard_stands_in_the_graph_and_once_for_each_question() -> None:
    def f(x: Any) -> Any:
        for _ in range(3):
            if x[0] > 0:
                x = x + 1.0
        return x

    traced = weft.jit.trace(f, weft.ones(2))
    assert [n.op.name for n in traced.graph.nodes].count("guard") == 3
    twice = weft.jit.trace(lambda x: x * int(x[0]) * int(x[0]), weft.ones(2))
    assert "guard(" in twice.text
    assert twice.code == twice.text

    def again(x: Any) -> Any:
        total = x.sum()
        return x * (2.0 if total > 0 else 1.0) * (float(total) + float(total))

    names = [n.op.name for n in weft.jit.trace(again, weft.ones(2)).graph.nodes]
    assert names.count("guard") == 2


def test_values_are_looked_at_lazily() -> None:
    traced = weft.jit.trace(lambda x: weft.linalg.inv(x), weft.zeros(2, 2))  # never computed: it is singular
    np.testing.assert_allclose(traced(weft.eye(2)).numpy(), np.eye(2))


def test_guards_of_outside_tensors_and_random_numbers() -> None:
    flag = weft.tensor(True)
    traced = weft.jit.trace(lambda x: x + 1.0 if flag else x, weft.zeros(1))
    assert traced(weft.zeros(1)).item() == 1.0
    flag.data = weft.tensor(False)
    with pytest.raises(TraceGuardError):
        traced(weft.zeros(1))
    weft.manual_seed(0)
    drawn = weft.jit.trace(lambda x: x + 1.0 if weft.rand(()) >= 0 else x, weft.zeros(1))
    assert drawn(weft.zeros(1)).item() == 1.0


# Shapes that depend on values

DYNAMIC = {
    "nonzero": lambda x: weft.nonzero(x),
    "argwhere": lambda x: weft.argwhere(x),
    "mask": lambda x: x[x > 0],
    "mask of rows": lambda x: x[x.sum(axis=1) > 0],
    "mask of columns": lambda x: x[:, (x > 0)[0]],
    "masked_select": lambda x: weft.masked_select(x, x > 0.5),
    "unique": lambda x: weft.unique(x),
    "unique with more": lambda x: tuple(weft.unique_all(x)),
    "unique counts": lambda x: weft.unique(x, return_counts=True, return_inverse=True),
    "bincount": lambda x: weft.bincount(x.astype(weft.int64).reshape(-1)),
    "weighted bincount": lambda x: weft.bincount(x.astype(weft.int64).reshape(-1), (x * 0.5).reshape(-1)),
}


@pytest.mark.rotating(4)
@pytest.mark.parametrize("name", DYNAMIC)
@examples(15, 5)
@given(*[st.lists(st.integers(0, 3), min_size=6, max_size=6)] * 2)
def test_count_is_guarded_and_the_rest_computed(name: str, first: list[int], second: list[int]) -> None:
    function = DYNAMIC[name]
    one, two = (weft.tensor(v, dtype=weft.float32).reshape(2, 3) for v in (first, second))
    traced = weft.jit.trace(function, one)
    assert_equal(traced(one), function(one))
    expected = function(two)
    if [v.shape for v in values(expected)] == [v.shape for v in values(function(one))]:
        assert_equal(traced(two), expected)
    else:
        with pytest.raises(TraceGuardError):
            traced(two)


def test_gradients_flow_through_masks() -> None:
    x = weft.tensor([1.0, -2.0, 3.0], requires_grad=True)
    traced = weft.jit.trace(lambda x: (x[x > 0] ** 2).sum(), x)
    traced(x).backward()
    assert x.grad.tolist() == [2.0, 0.0, 6.0]


def test_assignment_by_a_mask_needs_no_guard() -> None:
    def f(x: Any) -> Any:
        y = x + 0.0
        y[x > 0] = 7.0
        return y

    traced = weft.jit.trace(f, weft.ones(2))
    assert traced(-weft.ones(2)).tolist() == [-1.0, -1.0]


# Calls that are not like the traced one


def test_other_types_structures_and_values_are_errors_that_say_what_differs() -> None:
    traced = weft.jit.trace(lambda x, n=1: x * n, weft.ones(2))
    with pytest.raises(TraceGuardError, match=r"x: f32\[2\] before, f32\[3\] now"):
        traced(weft.ones(3))
    with pytest.raises(TraceGuardError, match=r"arguments of another structure"):
        traced(weft.ones(2), 2)
    other = weft.jit.trace(lambda x, n: x * n, weft.ones(2), 1)
    with pytest.raises(TraceGuardError, match=r"n: 1 before, 2 now"):
        other(weft.ones(2), 2)


def test_trace_holds_with_and_without_gradients() -> None:
    w = weft.tensor([2.0, 3.0], requires_grad=True)

    def f(x: Any) -> Any:
        return x * w if x.sum() > 0 else x

    x = weft.ones(2)
    traced = weft.jit.trace(f, x)
    with weft.no_grad():
        assert traced(x).tolist() == [2.0, 3.0]
        assert not traced(x).requires_grad
        with pytest.raises(TraceGuardError):
            traced(-x)
    variable = weft.ones(2, requires_grad=True)
    traced(variable).sum().backward()
    assert (variable.grad.tolist(), w.grad.tolist()) == ([2.0, 3.0], [1.0, 1.0])


def test_gradients_that_were_not_traced_are_an_error_and_not_lost() -> None:
    variable = weft.ones(2, requires_grad=True)
    traced = weft.jit.trace(lambda x: x * 3, weft.ones(2))
    assert traced(weft.tensor([1.0, 2.0])).tolist() == [3.0, 6.0]
    with pytest.raises(TraceGuardError, match=r"f32\[2\] before, f32\[2\] that requires grad now"):
        traced(variable)
    with weft.no_grad():
        assert traced(variable).tolist() == [3.0, 3.0]
    again = weft.jit.trace(lambda x: x * 3, variable)
    again(variable).sum().backward()
    assert variable.grad.tolist() == [3.0, 3.0]  # type: ignore[union-attr]
    assert again(weft.ones(2)).tolist() == [3.0, 3.0]
    counted = weft.jit.trace(lambda x: x.argmax(), weft.ones(2))
    assert counted(variable).item() == 0


def test_changed_python_value_is_an_error_that_names_it() -> None:
    settings = {"scale": 2.0}
    traced = weft.jit.trace(lambda x: x * settings["scale"], weft.ones(1))
    settings["scale"] = 3.0
    with pytest.raises(TraceGuardError, match=r"the item 'scale' of a dict: 2\.0 before, 3\.0 now"):
        traced(weft.ones(1))


def test_tracing_changes_nothing_outside() -> None:
    w = weft.ones(2, requires_grad=True)

    def step(x: Any) -> Any:
        (w * x).sum().backward()
        with weft.no_grad():
            w.data = w - w.grad
        return weft.rand(1)

    weft.manual_seed(0)
    state = weft.get_rng_state().tolist()
    traced = weft.jit.trace(step, weft.ones(2))
    assert (w.tolist(), w.grad, weft.get_rng_state().tolist()) == ([1.0, 1.0], None, state)
    traced(weft.ones(2))
    assert (w.tolist(), w.grad.tolist()) == ([0.0, 0.0], [1.0, 1.0])


def test_traced_function_has_the_signature_of_the_function() -> None:
    def f(x: Any, *, scale: float = 2.0) -> Any:
        """Doc."""
        return {"y": x * scale}

    traced = weft.jit.trace(f, weft.ones(1), scale=3.0)
    assert traced(weft.ones(1), scale=3.0)["y"].item() == 3.0
    assert (traced.__name__, traced.__doc__) == ("f", "Doc.")
    assert repr(traced) == "<graph function f: 1 version>"


def test_trace_and_script_need_something_to_call() -> None:
    with pytest.raises(ArgumentError, match="trace: takes a function or a module, got int"):
        weft.jit.trace(3, weft.ones(1))
    with pytest.raises(ArgumentError, match="script: takes a function or a module, got str"):
        weft.jit.script("f")


# Source


def test_script_takes_both_ways_in_one_graph() -> None:
    @weft.jit.script
    def f(x: Any) -> Any:
        if x.sum() > 0:
            return x * 2.0
        return -x

    assert f(weft.ones(2)).tolist() == [2.0, 2.0]
    assert f(-weft.ones(2)).tolist() == [1.0, 1.0]
    assert len(f.versions) == 1
    assert "cond" in {n.op.name for n in f.graph.walk()}


def test_script_has_a_graph_from_its_first_call_on() -> None:
    f = weft.jit.script(lambda x: x + 1.0)
    with pytest.raises(CaptureError, match="has a graph from its first call on, got none yet"):
        str(f.graph)
    f(weft.ones(1))
    assert len(f.graph.nodes) == 1


# make_graph


def test_graph_is_made_from_types_alone_and_prints_readably() -> None:
    def f(params: Any, x: Any, scale: float) -> Any:
        return weft.softmax(x @ params["w"] + params["b"]) * scale

    spec = weft.TensorType
    graph = weft.make_graph(f)(
        {"w": spec((3, 2), weft.float32), "b": np.zeros(2, np.float32)}, spec(("batch", 3), weft.float32), 0.5
    )
    lines = [line.split("@")[0].strip() for line in str(graph).splitlines()]
    assert lines == [
        "graph f(%params.w: f32[3,2], %params.b: f32[2], %x: f32[batch,3], %scale: f32[]) {",
        "%0: f32[batch,2] = matmul(%x, %params.w)",
        "%1: f32[batch,2] = add(%0, %params.b)",
        "%2: f32[batch,2] = softmax(%1, axis=1)",
        "%3: f32[batch,2] = mul(%2, %scale)",
        "return %3",
        "}",
    ]


def test_graph_names_tensors_from_outside_and_their_updates() -> None:
    class Model:
        def __init__(self) -> None:
            self.weight = weft.ones(2)
            self.count = weft.tensor(0)

        def __call__(self, x: Any) -> Any:
            self.count += 1
            return x * self.weight

    graph = weft.make_graph(Model())(weft.ones(2))
    assert [(v.name, role) for v, role in zip(graph.inputs, graph.roles, strict=True)] == [
        ("x", "arg"),
        ("count", "state"),
        ("weight", "param"),
    ]
    assert [(a.name, str(b.type)) for a, b in graph.updates] == [("count", "i64[]")]


def test_graph_of_a_training_step_needs_no_data() -> None:
    w = weft.ones((3, 1), requires_grad=True)

    def step(x: Any) -> Any:
        loss = (x @ w).square().mean()
        (g,) = weft.autograd.grad(loss, w)
        return loss, w - 0.1 * g

    graph = weft.make_graph(step)(weft.TensorType((8, 3), weft.float32))
    assert [str(v.type) for v in graph.outputs] == ["f32[]", "f32[3,1]"]
    assert any(n.location.phase == "backward" for n in graph.nodes)


def test_value_of_an_abstract_tensor_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(CaptureError) as error:
        weft.make_graph(lambda x: x.numpy())(weft.ones(2))
    assert "numpy: needs a value that is known while" in str(error.value)


def test_errors_in_captured_code_end_at_the_users_line() -> None:
    def f(x: Any) -> Any:
        return weft.ones(3) + x  # this line

    with pytest.raises(weft.errors.ShapeError) as error:
        weft.make_graph(f)(weft.ones(2))
    assert error.traceback[-1].path.name == "test_trace.py"
    assert "this line" in str(error.value)


def test_a_type_is_no_example_and_the_error_says_what_takes_types() -> None:
    with pytest.raises(
        weft.errors.ArgumentError, match=r"examples must be values, got the type f32\[n,2\]"
    ) as caught:
        weft.jit.trace(lambda x: x * 2, {"x": weft.TensorType(("n", 2), weft.float32)})
    assert "weft.make_graph" in str(caught.value)

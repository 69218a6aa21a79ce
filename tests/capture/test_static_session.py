"""Sessions: fetches, feeds, what is computed and what is not, errors that name the placeholder."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest

import weft
from weft.base.sizes import named_size
from weft.errors import ArgumentError, DomainError, DtypeError, GraphError, ShapeError
from weft.ops.op import OPS


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the kernels of some ops ran; machine code does not run them."""
    counts: Counter[str] = Counter()

    def count(name: str) -> None:
        kernel = OPS[name].eval

        def counted(*args: Any, **attrs: Any) -> Any:
            counts[name] += 1
            return kernel(*args, **attrs)

        monkeypatch.setattr(OPS[name], "eval", counted)

    for name in ("exp", "sin", "cos", "mul"):
        count(name)
    return counts


def build() -> tuple[Any, ...]:
    with weft.Graph("f") as g:
        x = weft.placeholder("x", ("batch", 2))
        y = weft.placeholder("y", ("batch", "batch"))
        a = weft.exp(x)
        b = weft.sin(a)
        c = weft.cos(y)
    return g, x, y, a, b, c


# Fetches


def test_only_what_the_fetches_need_is_computed(runs: Counter[str]) -> None:
    g, x, y, a, b, c = build()
    session = weft.Session(g, backend="interpret")
    fed = np.zeros((1, 2), np.float32)
    session.run(b, {x: fed})
    assert runs == {"exp": 1, "sin": 1}
    session.run([a, a, x], {x: fed})
    assert runs == {"exp": 2, "sin": 1}
    session.run([b, a, c], {x: fed, y: np.zeros((1, 1), np.float32)})
    assert runs == {"exp": 3, "sin": 2, "cos": 1}
    assert session.run([], {}) == []
    assert sum(runs.values()) == 6


def test_fetches_are_trees_of_tensors_values_and_names() -> None:
    g, x, _, a, b, _ = build()
    b_value = next(v for v in g.outputs if v.type.shape == b.shape)
    fed = {x: [[0.0, 0.0]]}
    out = weft.Session(g).run({"a": a, "rest": (b_value, ["x", None])}, fed)
    assert out["a"].numpy().tolist() == [[1.0, 1.0]]
    np.testing.assert_allclose(out["rest"][0].numpy(), np.sin([[1.0, 1.0]]), rtol=1e-6)
    assert out["rest"][1][0].numpy().tolist() == [[0.0, 0.0]]
    assert out["rest"][1][1] is None
    assert isinstance(out["a"], weft.Tensor)
    assert not out["a"].requires_grad


def test_parameters_and_values_by_number_can_be_fetched() -> None:
    w = weft.tensor([3.0])
    with weft.Graph("f") as g:
        w * 2.0
    assert weft.Session(g).run([w, "%1"])[1].numpy().tolist() == [6.0]
    assert weft.Session(g).run(w).numpy().tolist() == [3.0]


def test_results_do_not_share_memory_with_parameters() -> None:
    w = weft.tensor([3.0])
    with weft.Graph("f") as g:
        y = w.reshape(1, 1)
    out = weft.Session(g).run(y)
    out += 1.0
    assert w.item() == 3.0


def test_results_of_composites_can_be_fetched_and_their_inside_is_one_call() -> None:
    with weft.Graph("f") as g:
        x = weft.placeholder("x", ("n",))
        s = weft.softplus(x)
        m, v = weft.mean(s), weft.var(s)
        weft.gelu(x)
    calls = [n.attrs.get("function") for n in g.nodes]
    assert "var" in calls
    assert "gelu" in calls
    out = weft.Session(g).run([s, m, v], {x: [1.0, 2.0]})
    expected = np.log1p(np.exp([1.0, 2.0]))
    np.testing.assert_allclose(out[0].numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(out[1].item(), expected.mean(), rtol=1e-6)
    np.testing.assert_allclose(out[2].item(), expected.var(), rtol=1e-5)


@pytest.mark.parametrize(
    ("fetch", "error", "words"),
    [
        ("z", GraphError, "must be in the graph f, got z"),
        (3, ArgumentError, "fetches must be tensors, values or names, got int"),
        (weft.ones(2), GraphError, "fetches must be of graph f, got a tensor"),
    ],
)
def test_what_cannot_be_fetched(fetch: Any, error: Any, words: str) -> None:
    g = build()[0]
    with pytest.raises(error, match=words):
        weft.Session(g).run(fetch)


def test_a_fetch_from_another_graph_names_it_and_its_line() -> None:
    g = build()[0]
    with weft.Graph("other"):
        stranger = weft.placeholder("q")
        result = stranger + 1.0
    with pytest.raises(GraphError, match=r"got a tensor of graph other, made at .*result = stranger \+ 1.0"):
        weft.Session(g).run(result)
    with pytest.raises(
        GraphError, match=r"feeds must be of graph f, got a tensor of graph other, made at .*placeholder"
    ):
        weft.Session(g).run([], {stranger: 1.0})


# Feeds


def test_feeds_are_keyed_by_tensor_value_or_name() -> None:
    g, x, *_ = build()
    value = g.inputs[0]
    for key in (x, value, "x", "%x"):
        assert weft.Session(g).run("x", {key: [[1, 2]]}).numpy().tolist() == [[1.0, 2.0]]


def test_feeding_a_result_overrides_it(runs: Counter[str]) -> None:
    g, x, _, a, b, _ = build()
    session = weft.Session(g, backend="interpret")
    out = session.run([a, b], {a: np.zeros((3, 2), np.float32)})
    assert out[0].numpy().tolist() == out[1].numpy().tolist() == [[0.0, 0.0]] * 3
    assert runs == {"sin": 1}
    again = weft.Session(g).run(b, {a: np.zeros((1, 2), np.float32), x: np.zeros((1, 2), np.float32)})
    assert again.shape == (1, 2)


def test_feeding_a_parameter_overrides_it_for_the_run() -> None:
    w = weft.tensor(2.0)
    with weft.Graph("f") as g:
        y = w * 3.0
    assert weft.Session(g).run(y, {w: 5.0}).item() == 15.0
    assert weft.Session(g).run(y).item() == 6.0


def test_a_missing_feed_names_the_placeholder_and_its_line() -> None:
    g, x, _, a, _, c = build()
    with pytest.raises(
        GraphError, match=r"must be fed, got none for x, made at .*x = weft.placeholder\(\"x\""
    ):
        weft.Session(g).run(a)
    with pytest.raises(GraphError, match="got none for y"):
        weft.Session(g).run([a, c], {x: np.zeros((1, 2))})


def test_an_extra_feed_is_an_error() -> None:
    g, x, *_ = build()
    with pytest.raises(GraphError, match="must be in the graph f, got zz"):
        weft.Session(g).run("x", {x: [[1.0, 2.0]], "zz": 1.0})
    with pytest.raises(GraphError, match="feeds must be of graph f, got a tensor"):
        weft.Session(g).run("x", {x: [[1.0, 2.0]], weft.ones(1): 1.0})


def test_a_feed_that_the_fetches_do_not_need_is_checked_all_the_same() -> None:
    g, x, y, a, *_ = build()
    fed = {x: np.zeros((2, 2)), y: np.zeros((2, 2))}
    assert weft.Session(g).run(a, fed).shape == (2, 2)
    with pytest.raises(ShapeError, match="y "):
        weft.Session(g).run(a, {**fed, y: np.zeros(2)})


def test_an_ill_shaped_feed_names_the_placeholder_and_its_line() -> None:
    g, x, _, a, *_ = build()
    with pytest.raises(
        ShapeError, match=r"x \(at .*placeholder.*\) must be fed f32\[batch,2\], got shape \(2, 3\)"
    ):
        weft.Session(g).run(a, {x: np.zeros((2, 3))})
    with pytest.raises(ShapeError, match=r"must be fed f32\[batch,2\], got shape \(2,\)"):
        weft.Session(g).run(a, {x: np.zeros(2)})


def test_sizes_that_disagree_name_both_placeholders() -> None:
    g, x, y, a, _, c = build()
    with pytest.raises(
        ShapeError,
        match=r"y \(at .*\) must be fed f32\[batch,batch\], got shape \(3, 3\), where batch=2 in x",
    ):
        weft.Session(g).run([a, c], {x: np.zeros((2, 2)), y: np.zeros((3, 3))})
    with pytest.raises(ShapeError, match=r"got shape \(2, 3\), where batch=2 in y"):
        weft.Session(g).run(c, {y: np.zeros((2, 3))})


def test_sizes_in_expressions_are_solved_in_any_order() -> None:
    with weft.Graph("f") as g:
        x = weft.placeholder("x", ("n//2",))
        y = weft.placeholder("y", ("2*n+1",))
        z = x.sum() + y.sum() * y.shape[0]
    out = weft.Session(g).run(z, {x: np.ones(2), y: np.ones(11)})
    assert out.item() == 2 + 11 * 11
    with pytest.raises(ShapeError, match=r"x .* must be fed f32\[n//2\], got shape \(3,\), where n=5 in y"):
        weft.Session(g).run(z, {x: np.ones(3), y: np.ones(11)})
    with pytest.raises(ShapeError, match=r"y .* must be fed f32\[2\*n\+1\], got shape \(10,\)"):
        weft.Session(g).run(z, {x: np.ones(3), y: np.ones(10)})


@pytest.mark.parametrize(
    ("dtype", "item", "expected"),
    [
        (weft.float32, np.float64(2.5), 2.5),
        (weft.float32, 3, 3.0),
        (weft.float32, True, 1.0),
        (weft.int32, np.int64(7), 7),
        (weft.int8, 100, 100),
        (weft.bool, True, True),
        (weft.complex64, 2.0, 2 + 0j),
        (weft.float64, weft.tensor(1.5, dtype=weft.float64), 1.5),
    ],
)
def test_numbers_and_arrays_take_the_dtype_of_the_placeholder(dtype: Any, item: Any, expected: Any) -> None:
    with weft.Graph("f") as g:
        x = weft.placeholder("x", (), dtype)
    out = weft.Session(g).run(x, {x: item})
    assert out.dtype == dtype
    assert out.item() == expected


@pytest.mark.parametrize(
    ("dtype", "item", "words"),
    [
        (weft.int32, 2.5, "must be fed int32, got float32"),
        (weft.float32, np.array(1j), "must be fed float32, got complex128"),
        (weft.bool, 1, "must be fed bool, got int64"),
        (weft.float32, weft.tensor(1.0, dtype=weft.float64), "must be fed float32, got float64"),
        (weft.int8, 300, "must be fed numbers that int8 holds"),
        (weft.uint8, -1, "must be fed numbers that uint8 holds"),
    ],
)
def test_an_ill_typed_feed_names_the_placeholder(dtype: Any, item: Any, words: str) -> None:
    with weft.Graph("f") as g:
        x = weft.placeholder("x", (), dtype)
    with pytest.raises(DtypeError, match=r"x \(at .*\) " + words):
        weft.Session(g).run(x, {x: item})


@pytest.mark.parametrize("item", [None, "text", object(), [[1.0], [1.0, 2.0]]])
def test_what_is_no_number_cannot_be_fed(item: Any) -> None:
    with weft.Graph("f") as g:
        x = weft.placeholder("x", ())
    with pytest.raises(ArgumentError, match="must be fed a tensor, an array or numbers, got"):
        weft.Session(g).run(x, {x: item})


def test_an_error_of_a_run_names_the_line_that_made_the_node() -> None:
    with weft.Graph("f") as g:
        x = weft.placeholder("x", ("n",))
        third = x[2]
    session = weft.Session(g)
    assert session.run(third, {x: [1.0, 2.0, 3.0]}).item() == 3.0
    with pytest.raises(
        IndexError, match=r"(?s)index must be in 0..1 for axis 0 of size 2, got 2.*third = x\[2\]"
    ):
        session.run(third, {x: [1.0, 2.0]})


# Other ways to run


def test_a_graph_can_be_called_and_run_by_itself() -> None:
    w = weft.tensor(1.0)
    with weft.Graph("f") as g:
        x = weft.placeholder("x")
        y = weft.placeholder("y")
        z = x * w - y
        z.name = "z"
        w += z
    assert [v.name for v in g.outputs] == ["z"]
    assert g(3.0, 1.0).item() == 2.0
    assert w.item() == 3.0
    assert g(3.0, y=1.0).item() == 8.0
    assert w.item() == 11.0
    assert g.run(z, {x: 1.0, y: 1.0}).item() == 10.0
    assert w.item() == 11.0
    with pytest.raises(ArgumentError, match="takes 2 arguments, got 3"):
        g(1.0, 2.0, 3.0)
    with pytest.raises(ArgumentError, match="got two values for x"):
        g(1.0, x=3.0)
    with pytest.raises(GraphError, match="got none for y"):
        g(1.0)


def test_a_session_runs_a_captured_graph() -> None:
    graph = weft.make_graph(lambda x: {"double": x * 2.0})(weft.ones(3))
    out = weft.Session(graph).run(graph.outputs, {graph.inputs[0]: [1.0, 2.0, 3.0]})
    assert out[0].numpy().tolist() == [2.0, 4.0, 6.0]


def test_a_session_needs_a_graph_and_a_backend() -> None:
    with pytest.raises(ArgumentError, match="must be given a graph, got str"):
        weft.Session("f")  # type: ignore[arg-type]
    with pytest.raises(DomainError, match=r"must be one of .*interpret.*, got 'abacus'"):
        weft.Session(weft.Graph("f"), backend="abacus")


def test_threads_share_a_session() -> None:
    g, x, _, a, b, _ = build()
    session = weft.Session(g)
    wrong: list[Any] = []

    def work(i: int) -> None:
        for k in range(1, 20):
            fetches, feeds = ([b], {x: np.full((k, 2), i)}) if (i + k) % 2 else ([a], {x: np.full((k, 2), i)})
            (out,) = session.run(fetches, feeds)
            value = np.sin(np.exp(i)) if (i + k) % 2 else np.exp(i)
            if out.shape != (k, 2) or not np.allclose(out.numpy(), value, rtol=1e-4):
                wrong.append((i, k))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_a_graph_that_is_called_lets_gradients_through() -> None:
    w = weft.tensor(3.0, requires_grad=True)
    with weft.Graph("f") as g:
        x = weft.placeholder("x", ("n",))
        x * x * w
    v = weft.tensor([1.0, 2.0], requires_grad=True)
    g(v).sum().backward()
    assert v.grad.numpy().tolist() == [6.0, 12.0]
    assert w.grad.item() == 5.0
    assert weft.vmap(g)(weft.ones(2, 3)).shape == (2, 3)
    with weft.no_grad():
        assert not g(v).requires_grad
    with pytest.raises(ShapeError, match=r"x \(at .*\) must be f32\[n\], got f32\[2,2\]"):
        g(weft.ones(2, 2, requires_grad=True))


def test_a_graph_can_be_called_in_another_one() -> None:
    count = weft.tensor(0.0)
    with weft.Graph("inner") as inner:
        x = weft.placeholder("x", ("n", 2))
        y = weft.gelu(x).sum(1) + count
        y.name = "y"
        count += 1.0
    with weft.Graph("outer") as outer:
        z = weft.placeholder("z", ("m", 2))
        out = inner(z * 2.0)
        (gz,) = weft.gradients(out, z)
    assert out.shape == (named_size("m"),)
    fed = np.array([[1.0, -1.0]], np.float32)
    got = outer.run([out, gz], {z: fed})
    eager = weft.tensor(fed, requires_grad=True)
    expected = weft.gelu(eager * 2.0).sum(1)
    expected.backward(weft.ones(1))
    np.testing.assert_allclose(got[0].numpy(), expected.detach().numpy(), rtol=1e-6)
    np.testing.assert_allclose(got[1].numpy(), eager.grad.numpy(), rtol=1e-6)
    outer.run([], {z: fed}, updates=True)
    assert count.item() == 1.0


@pytest.mark.parametrize("item", [1.7, [1.7, 1 / 3], [[1.7], [1e-300]]])
def test_numbers_that_are_fed_keep_the_digits_that_a_wide_placeholder_holds(item: Any) -> None:
    expected = np.asarray(item, np.float64)
    with weft.Graph("wide") as g:
        x = weft.placeholder("x", expected.shape, weft.float64)
        y = x * 1.0
    assert g.run(y, {x: item}).numpy().tolist() == expected.tolist()
    assert g.run(y, {x: expected.tolist()}).dtype == weft.float64

"""The first op that makes a NaN or an infinity is named, with its line, its inputs and the way to it."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import weft
from tests.ir.random_graphs import arrays_of, graphs
from weft import nn
from weft.backends import backend_named
from weft.errors import AnomalyError, DomainError, NonFiniteError
from weft.ir.graph import Graph
from weft.ir.order import needed_nodes
from weft.ops.op import intercepted

BACKENDS = ("interpret", "llvm")


def line_of(text: str) -> int:
    with open(__file__) as file:
        return next(i for i, line in enumerate(file, 1) if line.rstrip().endswith(f"# {text}"))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(-weft.ones(3))

    def forward(self, x: Any) -> Any:
        h = x * self.scale  # scaled
        shifted = h + 0.5
        return weft.log(shifted).sum()  # logarithm


def grown(x: Any, w: Any) -> Any:
    for _ in range(20):
        x = x * w  # growth
    return x


# Compiled


@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_error_shows_ranges_names_and_the_path_from_the_leaves(backend: str) -> None:
    with pytest.raises(NonFiniteError) as caught:
        weft.compile(Net(), backend=backend, check_nan=True)(weft.tensor([1.0, 2.0, 3.0]))
    first, at, where, head, *path, hint = str(caught.value).splitlines()
    assert first == "log: results must not be NaN, got 3 in f32[3], from f32[3] in -2.5..-0.5"
    assert (
        at == f"  at test_non_finite.py:{line_of('logarithm')}: return weft.log(shifted).sum()  # logarithm"
    )
    assert (where, head) == ("  where shifted is f32[3]", "  from the leaves to it:")
    assert [line.partition("  at ")[0].strip() for line in path] == [
        "x: f32[3] (argument)",
        "scale: f32[3] (parameter)",
        "h = mul(x, scale)",
        "shifted = add(h, f32(0.5))",
        "%2 = log(shifted)",
    ]
    assert path[2].endswith(f"test_non_finite.py:{line_of('scaled')}: h = x * self.scale  # scaled")
    assert hint == "  hint: check_nan=True asks for this error"


@pytest.mark.parametrize("backend", BACKENDS)
def test_overflow_is_found_where_it_begins_if_asked_for(backend: str) -> None:
    x, w = weft.tensor([1.0, 2.0]), weft.tensor([1.0, 1e4])
    assert weft.compile(grown, backend=backend, check_nan=True)(x, w).tolist() == [1.0, np.inf]
    with pytest.raises(NonFiniteError) as caught:
        weft.compile(grown, backend=backend, check_nan="all")(x, w)
    text = str(caught.value)
    assert text.startswith("mul: results must be finite, got 1 infinite in f32[2], from f32[2] in 1..2e+36, ")
    assert f"test_non_finite.py:{line_of('growth')}: " in text
    assert "x: f32[2] (argument)" in text


def mask(x: Any) -> Any:
    return weft.softmax(weft.where(x > 0, x, -float("inf")), axis=0)


def fill(x: Any) -> Any:
    return weft.max(weft.pad(x, (1, 1), value=-float("inf")))


def infinite_input(x: Any) -> Any:
    return weft.exp(x / 0.0 * 0.0 + x) if False else weft.abs(x) + weft.tensor(float("inf"))


def whole_numbers(x: Any) -> Any:
    return (x * 2.0).astype(weft.int32) + 1


def branch(x: Any) -> Any:
    limit = weft.full((), float("inf"))
    if x.sum() > 0:
        limit = limit + 1.0
    return weft.minimum(x, limit)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("f", [mask, fill, infinite_input, whole_numbers, branch])
def test_infinities_that_a_program_asks_for_are_no_errors(f: Callable[[Any], Any], backend: str) -> None:
    x = weft.tensor([1.0, -1.0, 3.0])
    np.testing.assert_allclose(weft.compile(f, backend=backend, check_nan="all")(x).numpy(), f(x).numpy())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("f", "op"),
    [
        (lambda x: weft.log(x - 1.0), "log"),
        (lambda x: x / (x - 1.0), "div"),
        (lambda x: weft.exp(x * 100.0), "exp"),
        (lambda x: (x * 1e38).sum() * 100.0, "sum"),
        (lambda x: (x * 1e20) @ (x * 1e20), "matmul"),
        (lambda x: (x * 1e6).astype(weft.float16), "cast"),
        (lambda x: weft.rsqrt(x - 1.0), "rsqrt"),
    ],
)
def test_infinity_of_finite_inputs_is_an_error_of_its_op(f: Any, op: str, backend: str) -> None:
    x = weft.ones(4)
    with pytest.raises(NonFiniteError, match=f"^{op}: results must be finite"):
        weft.compile(f, backend=backend, check_nan="all")(x)


@pytest.mark.parametrize("dtype", [weft.float16, weft.bfloat16, weft.float64, weft.complex64])
def test_dtypes(dtype: Any) -> None:
    f = weft.compile(lambda x: x * x, backend="llvm", check_nan="all")
    assert f(weft.ones(3, dtype=dtype)).dtype == dtype
    big = weft.full((3,), float(weft.finfo(dtype).max), dtype=dtype)
    with pytest.raises(NonFiniteError, match="mul: results must"):
        f(big)


def test_sessions_and_settings() -> None:
    with weft.Graph("f") as g:
        x = weft.placeholder("x", ("n",))
        y = weft.exp(x)
    assert weft.Session(g, check_nan="all").run(y, {x: [0.0]}).tolist() == [1.0]
    with pytest.raises(NonFiniteError, match=r"x: f32\[n\] \(argument\)"):
        weft.Session(g, check_nan="all").run(y, {x: [0.0, 100.0]})
    with pytest.raises(DomainError, match='check_nan must be True, False or "all", got 1'):
        weft.Session(g, check_nan=1)


def test_long_path_shows_what_is_near_and_says_how_much_is_not() -> None:
    def chain(x: Any) -> Any:
        y = x
        for _ in range(3):
            y = weft.sin(y) * 2.0 + 1.0
            y = weft.cos(y) * 2.0 + 1.0
        return weft.log(y - 100.0)

    graph = weft.passes.unroll(weft.make_graph(chain)(weft.ones(2)))
    with pytest.raises(NonFiniteError) as caught:
        backend_named("interpret")(graph, check_nan=True)([np.ones(2, np.float32)])
    path = caught.value.path
    assert path[0] == "x: f32[2] (argument)"
    assert path[1] == f"... {len(needed_nodes(graph.nodes, graph.results)) - 8} more nodes ..."
    assert len(path) == 10


def outcome(graph: Graph, backend: str, arrays: list[Any]) -> str:
    try:
        backend_named(backend)(graph, check_nan="all")(arrays)
    except NonFiniteError as error:
        return error.message[:20]
    return ""


@settings(max_examples=6, deadline=None)
@given(graph=graphs())
def test_random_graph_fails_where_the_reference_does(graph: Graph) -> None:
    arrays = [a * 1e30 if a.dtype == np.float32 else a for a in arrays_of(graph)]
    assert outcome(graph, "llvm", arrays) == outcome(graph, "interpret", arrays)


# Eager


def test_eager_nan_is_found_in_the_forward_with_ranges_and_path() -> None:
    net, x = Net(), weft.tensor([1.0, 2.0, 3.0])
    with pytest.raises(AnomalyError) as caught, weft.detect_anomaly():
        net(x)
    first, at, where, head, *path = str(caught.value).splitlines()
    assert first == "log: results must not be NaN, got 3 in f32[3], from f32[3] in -2.5..-0.5"
    assert f":{line_of('logarithm')}: " in at
    assert (where, head) == ("  where shifted is f32[3]", "  from the leaves to it:")
    assert [line.partition("  at ")[0].strip() for line in path] == [
        "x: f32[3] in 1..3",
        "self.scale: f32[3] in -1..-1",
        "h = mul(x, self.scale)",
        "shifted = add(h, 0.5)",
        "%2 = log(shifted)",
    ]


def test_eager_overflow_is_found_if_asked_for() -> None:
    x, w = weft.tensor([1.0, 2.0]), weft.tensor([1.0, 1e4])
    with weft.detect_anomaly():
        assert grown(x, w).tolist() == [1.0, np.inf]
    with (
        pytest.raises(AnomalyError, match=r"mul: results must be finite, got 1 infinite in f32\[2\]"),
        weft.detect_anomaly(check_inf=True),
    ):
        grown(x, w)


def test_infinities_alone_can_be_looked_for() -> None:
    x = weft.zeros(2)
    with weft.detect_anomaly(check_nan=False, check_inf=True):
        assert weft.isnan(x / x).all()
        with pytest.raises(AnomalyError, match="must be finite"):
            weft.log(x)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: weft.log(x),
        lambda x: (x * 1.0).log().sum(),
        lambda x: x.sqrt() @ x,
        lambda x: weft.softmax(x / (x - x), axis=0),
        lambda x: weft.logsumexp(weft.sqrt(x), axis=0),
        lambda x: weft.vmap(lambda v: weft.log(v))(x),
        lambda x: weft.grad(lambda v: weft.sqrt(v).sum())(x),
        lambda x: weft.stack([x, x]).log(),
    ],
)
def test_ops_functions_methods_and_transforms_are_watched(f: Any) -> None:
    x = weft.tensor([1.0, -2.0, 3.0])
    with pytest.raises(AnomalyError, match="results must not be NaN"), weft.detect_anomaly():
        f(x)


@pytest.mark.parametrize("size", [10, 100_000])
def test_arrays_of_all_sizes_are_watched_without_gradients_too(size: int) -> None:
    x = -weft.ones(size)
    with pytest.raises(AnomalyError, match="log: results"), weft.detect_anomaly(), weft.no_grad():
        weft.log(x)


def test_nan_that_came_in_is_seen_in_the_ranges() -> None:
    data = weft.tensor([1.0, float("nan")])
    with pytest.raises(AnomalyError, match=r"data: f32\[2\] in 1..1 and 1 NaN"), weft.detect_anomaly():
        data * 2.0


def test_ops_that_mend_nan_are_no_errors() -> None:
    data = weft.tensor([1.0, float("nan")])
    with weft.detect_anomaly():
        assert weft.nan_to_num(data).tolist() == [1.0, 0.0]
        assert weft.isnan(data).tolist() == [False, True]
        assert weft.where(weft.isnan(data), 0.0, data).tolist() == [1.0, 0.0]


def test_forward_can_be_left_out() -> None:
    x = weft.zeros(2)
    with weft.detect_anomaly(forward=False):
        assert weft.isnan(x / x).all()


def test_compiled_code_and_captures_work_inside() -> None:
    x = weft.ones(3)
    f = weft.compile(lambda x: weft.exp(x) + 1.0)
    expected = f(x).tolist()
    with weft.detect_anomaly():
        assert f(x).tolist() == expected
        graph = weft.make_graph(lambda x: weft.log(x))(-x)
        assert [node.op.name for node in graph.nodes] == ["log"]
        assert weft.compile(lambda x: weft.tanh(x))(x).shape == (3,)
        weft.exp(x)
    assert len(graph.nodes) == 1


def test_everything_is_as_before_afterwards() -> None:
    ident = threading.get_ident()
    with weft.detect_anomaly():
        assert ident in intercepted.threads
        with weft.detect_anomaly(check_inf=True):
            pass
        assert ident in intercepted.threads
    assert ident not in intercepted.threads
    assert weft.isnan(weft.zeros(1) / weft.zeros(1)).all()


def test_other_threads_are_not_watched() -> None:
    found: list[bool] = []
    with weft.detect_anomaly():
        thread = threading.Thread(
            target=lambda: found.append(bool(weft.isnan(weft.log(-weft.ones(1))).all()))
        )
        thread.start()
        thread.join()
    assert found == [True]


def test_watching_keeps_no_array_alive() -> None:
    with weft.detect_anomaly():
        x = weft.ones(100)
        y = weft.exp(x)
        kept = weakref.ref(y._data)
        z = y * 2.0
        del y
        gc.collect()
        assert kept() is None
        assert z.shape == (100,)


def test_long_programs_keep_the_newest_ops_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["weft.tensor.provenance"], "_MOST_KNOWN", 50)
    x = weft.ones(2)
    with weft.detect_anomaly():
        for _ in range(200):
            x = x * 1.0
        with pytest.raises(AnomalyError, match=r"\.\.\. 42 more ops \.\.\."):
            weft.log(-x)


def test_nothing_of_it_runs_while_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["weft.tensor.anomaly"], "_look", None)
    monkeypatch.setattr(import_module("weft.tensor.provenance"), "Provenance", None)
    assert weft.isnan(weft.log(-weft.ones(2))).all()
    assert weft.softmax(weft.ones(2), axis=0).tolist() == [0.5, 0.5]

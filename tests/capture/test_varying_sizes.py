"""Sizes of arguments that vary from call to call: one graph serves them all, as eager code does."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.of_code import examples
from weft import nn, optim
from weft.capture.program.sizes import admits, name_sizes, open_key
from weft.errors import ShapeError


def numbers(*shape: int) -> Any:
    return weft.tensor(np.linspace(-1.0, 1.0, int(np.prod(shape)), dtype=np.float32).reshape(shape))


def assert_agree(f: Any, plain: Callable[..., Any], *args: Any) -> None:
    np.testing.assert_allclose(f(*args).numpy(), plain(*args).numpy(), rtol=1e-5, atol=1e-6)


def test_second_size_gets_a_name_and_serves_all_later_ones() -> None:
    f = weft.compile(lambda x: weft.softmax(x, axis=1).sum(axis=0) / x.shape[0])
    for rows in (32, 48, 7, 2, 1000, 48, 32):
        assert_agree(f, f._function, numbers(rows, 8))
    assert [version.is_open for version in f.versions].count(True) == 1
    assert len(f.versions) == 2
    assert str(f.graph.inputs[0].type) == "f32[n,8]"


def test_axes_that_always_had_one_size_share_a_name_until_they_differ() -> None:
    f = weft.compile(lambda x, y: x.sum() * y.sum())
    for pair in ((3, 3), (4, 4), (9, 9)):
        f(*map(weft.ones, pair))
    assert [str(v.type) for v in f.graph.inputs] == ["f32[n]", "f32[n]"]
    assert [f(weft.ones(a), weft.ones(b)).item() for a, b in ((5, 6), (7, 8), (2, 2))] == [30.0, 56.0, 4.0]
    assert [str(v.type) for v in f.graph.inputs] == ["f32[n]", "f32[m]"]
    assert len(f.versions) == 3


def test_sizes_0_and_1_have_graphs_of_their_own() -> None:
    f = weft.compile(lambda x, y: (x + y).sum())
    y = weft.ones(1)
    for size in (3, 4, 1, 0, 5, 1, 0):
        assert f(weft.ones(size), y).item() == 2.0 * size
    kinds = sorted(str(v.graph.inputs[0].type) for v in f.versions)
    assert kinds == ["f32[0]", "f32[1]", "f32[3]", "f32[n]"]


def test_broadcasting_with_a_size_1_is_not_confused_with_a_name() -> None:
    f = weft.compile(lambda x, y: x * y)
    for a, b in ((3, 3), (4, 4), (1, 4), (4, 1), (5, 5), (1, 1)):
        assert_agree(f, f._function, numbers(a), numbers(b))
    with pytest.raises(ShapeError, match="shapes must broadcast together"):
        f(weft.ones(5), weft.ones(6))


def test_gradients_flow_through_a_graph_of_named_sizes() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    compiled = weft.compile(lambda x: (model(x) ** 2).mean())
    for rows in (3, 5, 6):
        found = []
        for run in (compiled, compiled._function):
            model.zero_grad()
            run(numbers(rows, 4)).backward()
            found.append([p.grad.numpy() for p in model.parameters()])
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    assert len(compiled.versions) == 2


def test_backward_graph_learns_a_size_that_none_of_its_values_has() -> None:
    f = weft.compile(lambda x: x.sum())
    for size in (2, 3, 4):
        x = weft.ones(size, requires_grad=True)
        f(x).backward()
        assert x.grad.tolist() == [1.0] * size
    assert len(f.versions) == 2


def test_code_that_needs_the_number_is_captured_for_each_size() -> None:
    f = weft.compile(lambda x: x * np.zeros(x.shape[0], np.float32).size)
    assert [f(weft.ones(size)).tolist() for size in (2, 3, 4)] == [[2.0] * 2, [3.0] * 3, [4.0] * 4]
    assert not any(version.is_open for version in f.versions)


def test_code_that_needs_a_multiple_is_captured_for_each_size(caplog: pytest.LogCaptureFixture) -> None:
    f = weft.compile(lambda x: x.reshape(2, -1).sum(axis=1))
    for size in (4, 6, 8):
        assert_agree(f, f._function, numbers(size))
    with pytest.raises(ShapeError, match="reshape: the number of elements must stay 5"):
        f(weft.ones(5))
    assert len(f.versions) == 3
    assert "x.shape[0] was 4 and is 6, which the code needs as a number" in caplog.text


def test_user_error_at_a_second_size_does_not_keep_sizes_fixed() -> None:
    weight = weft.ones(3)
    f = weft.compile(lambda x: (x * weight).sum() if x.ndim == 1 else x.sum())
    f(weft.ones(3))
    with pytest.raises(ShapeError, match="broadcast"):
        f(weft.ones(4))
    for rows in (2, 3, 4):
        f(weft.ones(rows, 2))
    assert [version.is_open for version in f.versions].count(True) == 1


def test_size_that_a_graph_does_not_fit_gives_the_error_of_the_code_itself() -> None:
    f = weft.compile(lambda x: weft.ones(x.shape[0] - 4) * x.sum())
    for size in (6, 8, 10):
        assert_agree(f, f._function, weft.ones(size))
    with pytest.raises(ShapeError, match="sizes must not be negative, got"):
        f(weft.ones(3))
    assert_agree(f, f._function, weft.ones(20))
    assert len(f.versions) == 2


def test_floats_and_sizes_that_change_together_end_in_one_graph() -> None:
    f = weft.compile(lambda x, rate: x * rate)
    for size in range(2, 10):
        assert_agree(f, f._function, weft.ones(size), size / 7)
    assert len(f.versions) == 3


def test_keywords_trees_and_arrays_have_named_sizes_too() -> None:
    f = weft.compile(lambda batch, *, scale: batch["x"].sum() * scale.sum())
    for size in (2, 3, 4, 5):
        x, scale = np.ones((size, 2), np.float32), weft.ones(size)
        assert f({"x": x}, scale=scale).item() == 2.0 * size * size
    assert len(f.versions) == 2


def test_branch_on_a_size_goes_into_the_graph() -> None:
    @weft.compile
    def f(x: Any) -> Any:
        if x.shape[0] > 4:
            return x.sum() * 2.0
        return x.sum()

    assert [f(weft.ones(n)).item() for n in (3, 4, 5, 6, 2)] == [3.0, 4.0, 10.0, 12.0, 2.0]
    assert len(f.versions) == 2


def test_branch_on_a_size_is_guarded_in_a_trace() -> None:
    @weft.compile(capture="trace")
    def f(x: Any) -> Any:
        return x.sum() * 2.0 if x.shape[0] > 4 else x.sum()

    assert [f(weft.ones(n)).item() for n in (3, 4, 5, 6, 2, 9)] == [3.0, 4.0, 10.0, 12.0, 2.0, 18.0]
    assert len(f.versions) == 3


def test_loop_over_a_size_works_at_all_sizes() -> None:
    @weft.compile
    def f(x: Any) -> Any:
        total = weft.zeros(())
        for i in range(x.shape[0]):
            total = total + x[i] * i
        return total

    for size in (2, 3, 7, 4):
        assert_agree(f, f._function, numbers(size))


def test_training_step_with_a_smaller_last_batch_is_compiled_for_sizes_once() -> None:
    def train(compiled: bool) -> list[float]:
        weft.manual_seed(0)
        model = nn.Linear(3, 1)
        optimizer = optim.Adam(model.parameters(), lr=0.1)

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        run = weft.compile(step) if compiled else step
        losses = [run(numbers(n, 3), numbers(n, 1)).item() for n in (8, 8, 8, 5, 8, 8, 3, 2)]
        if compiled:
            assert len(run.versions) <= 3  # type: ignore[attr-defined]
        return losses

    np.testing.assert_allclose(train(True), train(False), rtol=1e-5)


def test_reason_of_another_capture_is_logged_once_with_its_line(caplog: pytest.LogCaptureFixture) -> None:
    @weft.compile
    def total(x: Any, power: int) -> Any:
        return (x**power).sum()

    with caplog.at_level(logging.WARNING, logger="weft.compile"):
        for size in (32, 48, 7, 32, 48):
            total(weft.ones(size, 2), 2)
        assert [r.getMessage().rpartition(":")[0] for r in caplog.records] == [
            "total: compiled again, x.shape[0] was 32 and is 48 -> now any size n (test_varying_sizes.py"
        ]
        caplog.clear()
        total(weft.ones(32, 2), 3)
        total(weft.ones(32, 2), 3)
        with weft.no_grad():
            total(weft.ones(32, 2), 3)
    first, second = [r.getMessage() for r in caplog.records]
    assert first.startswith("total: compiled again, power was 2 and is 3 (")
    assert second.startswith("total: compiled again, grad mode was on and is off (")


@examples(25, 8)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=8))
def test_any_order_of_sizes_gives_what_eager_code_gives(sizes: list[tuple[int, int]]) -> None:
    f = weft.compile(lambda x, y: weft.concat([x.sum(axis=1), y]) + x.shape[1])
    for rows, columns in sizes:
        assert_agree(f, f._function, numbers(rows, columns), numbers(columns))


def test_names_follow_what_varied() -> None:
    calls = [[(2, 3), (2,), ()], [(2, 5), (2,), ()], [(4, 3), (4,), ()]]
    assert [str(s) for s in name_sizes(calls)] == ["(n, m)", "(n,)", "()"]
    many = name_sizes([[tuple(range(2, 14))], [tuple(reversed(range(102, 114)))]])
    assert len(set(map(str, many[0]))) == 12


def test_key_with_names_admits_sizes_that_agree() -> None:
    f = weft.compile(lambda x, y: x.sum() + y.sum())
    for size in (3, 4):
        f(weft.ones(size, 2), weft.ones(size))
    key = f.versions[0].key
    assert admits(key, [(9, 2), (9,)])
    assert not admits(key, [(9, 3), (9,)])
    assert not admits(key, [(9, 2), (8,)])
    assert open_key(key) == open_key(f.versions[1].key)


def test_a_branch_that_sizes_do_not_fit_is_an_error_only_where_it_runs() -> None:
    @weft.compile
    def pick(x: weft.Tensor, p: weft.Tensor) -> weft.Tensor:
        if p.sum() > 0:
            return x[2]
        return x[0]

    rows = [weft.tensor(np.arange(1, n + 1, dtype=np.float32)) for n in (5, 4, 3, 2)]
    assert [pick(x, weft.tensor(-1.0)).item() for x in rows] == [1.0] * 4
    with pytest.raises(IndexError, match="size 2"):
        pick(rows[-1], weft.tensor(1.0))


def test_state_is_kept_at_sizes_that_a_branch_does_not_fit() -> None:
    """No code can be made for such sizes: the graph is interpreted, and changes what it was to change."""
    count = weft.zeros(4)

    @weft.compile
    def pick(x: weft.Tensor, p: weft.Tensor) -> weft.Tensor:
        count.add_(1.0)
        if p.sum() > 0:
            return x[2]
        return x[0]

    for calls, size in enumerate((5, 4, 3, 2, 2, 5), 1):
        pick(weft.ones(size), weft.tensor(-1.0))
        assert count.tolist() == [calls] * 4

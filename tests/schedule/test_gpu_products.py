"""Small products on the grid interpreter: all layouts, edges of tiles, slices, and what follows them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.agreement import assert_agree, interpreted
from tests.schedule.lowered import shaped
from tests.schedule.test_gpu import normal
from weft.backends.cuda.build import loops_of
from weft.loop import ir
from weft.loop.ir import Program
from weft.loop.verify import verify_program
from weft.loop.walk import launched_functions, statements
from weft.schedule.gpu import sliced
from weft.schedule.gpu.machine import Gpu as Machine

MACHINE = Machine(libraries=True)
SMALL, LARGE = ((4, 2, 4, 4),), ((8, 4, 4, 2),)  # as tiles, with few warps: threads take time here


def program_of(function: Any, *arrays: Any) -> tuple[Program, Any]:
    graph = weft.make_graph(function)(*map(weft.tensor, arrays)).optimize()
    return verify_program(loops_of(graph, MACHINE)), graph


def kernels(program: Program) -> list[str]:
    return [f.name for f in launched_functions(program.main.body)]


def library_calls(program: Program) -> int:
    return sum(isinstance(s, ir.Matmul) for s in statements(program.main.body))


def check(function: Any, *arrays: Any) -> list[str]:
    """Values are those of the interpreter; gives the names of the kernels."""
    program, graph = program_of(function, *arrays)
    assert library_calls(program) == 0
    assert_agree(shaped(program, graph, arrays, {}), interpreted(graph, arrays))
    return kernels(program)


@pytest.fixture
def few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced, "_TILES", SMALL)


LAYOUTS = {
    "as they lie": (lambda x, y: x @ y, (18, 12), (12, 20)),
    "right side turned": (lambda x, y: x @ y.T, (9, 14), (17, 14)),
    "left side turned": (lambda x, y: x.T @ y, (6, 10), (6, 24)),
    "both turned": (lambda x, y: x.T @ y.T, (5, 9), (11, 5)),
    "every other row": (lambda x, y: x[::2] @ y[:, ::2], (20, 8), (8, 20)),
    "one element after another": (lambda x, y: x[:, ::2] @ y[::2], (9, 8), (8, 9)),
    "of batches": (lambda x, y: x @ y, (2, 9, 5), (2, 5, 8)),
    "one side for a batch": (lambda x, y: x @ y, (2, 8, 5), (5, 9)),
    "a row for all": (lambda x, y: weft.broadcast_to(x[:1], (8, 6)) @ y, (2, 6), (6, 8)),
    "depth of one": (lambda x, y: x @ y, (8, 1), (1, 8)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_products_of_all_layouts(name: str, few_threads: None) -> None:
    function, left, right = LAYOUTS[name]
    assert check(function, normal(*left), normal(*right)) == ["matmul"]


@pytest.mark.parametrize("tiles", [SMALL, LARGE])
@pytest.mark.parametrize("turned", [False, True])
def test_depths_of_several_chunks(tiles: Any, turned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of them not full, in both buffers."""
    monkeypatch.setattr(sliced, "_TILES", tiles)
    monkeypatch.setattr(sliced, "_ENOUGH", 1)
    monkeypatch.setattr(sliced, "_SHARED", 6 << 10 if tiles is SMALL else 12 << 10)
    shape = ((36, 9), (36, 12)) if turned else ((9, 36), (12, 36))
    x, y = (normal(*s) for s in shape)
    plan = sliced._plan((9, 12), 36, x.dtype)
    assert plan.chunks >= 2
    check((lambda x, y: x.T @ y) if turned else (lambda x, y: x @ y.T), x, y)


def test_double_precision_is_summed_in_it(few_threads: None) -> None:
    x, y = normal(9, 10, dtype=np.float64), normal(10, 8, dtype=np.float64)
    check(lambda x, y: x @ y, x, y)


def test_what_is_not_finite_stays_where_it_is(few_threads: None) -> None:
    """Also beside what tiles have beyond the ends of rows and of the depth."""
    x, y = normal(9, 7), normal(7, 10)
    x[8, 6], x[1, 2], y[3, 9] = np.inf, np.nan, -np.inf
    x[4], y[:, 4] = 0.0, -0.0
    with np.errstate(invalid="ignore"):
        check(lambda x, y: x @ y, x, y)


def test_products_that_cancel_leave_zero(few_threads: None) -> None:
    """All of them are whole numbers, so that no order of sums rounds."""
    x, y = (np.round(normal(*s) * 4.0) for s in ((9, 16), (16, 8)))
    arrays = [np.concatenate([x, -x], axis=1), np.concatenate([y, y])]
    program, graph = program_of(lambda x, y: x @ y, *arrays)
    (out,) = shaped(program, graph, arrays, {})
    np.testing.assert_array_equal(out, np.zeros((9, 8), np.float32))


def test_what_follows_is_in_the_kernel(few_threads: None) -> None:
    def layer(x: Any, w: Any, b: Any) -> Any:
        return weft.relu(x @ w.T + b)

    assert check(layer, normal(10, 6), normal(9, 6), normal(9)) == ["matmul_add_relu"]
    both = check(lambda x, w: (x @ w, weft.tanh(x @ w)), normal(9, 4), normal(4, 8))
    assert both == ["matmul_tanh"]  # and the product itself is written, too


def test_masks_of_gradients_are_in_the_kernel_and_sums_of_columns_beside(few_threads: None) -> None:
    def gradients(x: Any, w: Any, b: Any, v: Any) -> Any:
        def loss(w: Any, b: Any, v: Any) -> Any:
            return weft.tanh(weft.relu(x @ w.T + b) @ v.T).sum()

        return weft.grad(loss, argnums=(0, 1, 2))(w, b, v)

    names = check(gradients, normal(12, 8), normal(10, 8), normal(10), normal(9, 10))
    assert {"matmul_add_relu", "matmul_greater_where", "sum"}.issubset(names)
    assert "combine" not in names


def test_new_values_of_parameters_are_not_made_by_products() -> None:
    """They come after all that can fail."""
    model = weft.nn.Linear(8, 8)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    graph = weft.make_graph(step)(weft.ones(8, 8)).optimize()
    assert not any("sub" in name and "matmul" in name for name in kernels(loops_of(graph, MACHINE)))


def test_equal_products_share_a_kernel() -> None:
    program, _ = program_of(lambda x, w: (x @ w) @ w, normal(16, 16), normal(16, 16))
    first, second = launched_functions(program.main.body)
    assert first.body is second.body


@pytest.mark.parametrize(
    ("left", "right", "dtype", "calls"),
    [
        ((128, 784), (784, 256), "float32", 0),
        ((512, 512), (512, 512), "float32", 1),  # large
        ((64, 64), (64, 64), "float16", 1),  # units of a card that only a library reaches
        ((4, 1024), (1024, 1024), "float32", 1),  # a few rows
    ],
)
def test_which_products_a_library_has(left: Any, right: Any, dtype: str, calls: int) -> None:
    x, y = (weft.zeros(s, dtype=getattr(weft, dtype)) for s in (left, right))
    graph = weft.make_graph(lambda x, y: x @ y)(x, y).optimize()
    assert library_calls(loops_of(graph, MACHINE)) == calls


# Parts of concatenations


def test_parts_of_a_concatenation_are_written_where_they_will_be() -> None:
    def f(x: Any, y: Any) -> Any:
        return weft.concat([weft.tanh(x), x * y, weft.sin(y)], axis=1)

    for axis in (0, 1):
        names = check(
            lambda x, y, axis=axis: weft.concat([weft.tanh(x), x * y], axis=axis), normal(5, 8), normal(5, 8)
        )
        assert names == ["tanh_mul"]
    assert check(f, normal(3, 7), normal(3, 7)) == ["tanh_mul_sin"]


def test_parts_that_others_see_are_copied() -> None:
    def f(x: Any, y: Any) -> Any:
        a = weft.tanh(x)
        return a, weft.concat([a, x * y], axis=1)

    assert "concat" in check(f, normal(5, 8), normal(5, 8))
    assert "concat" in check(lambda x, y: weft.concat([x, x * y], axis=1), normal(5, 8), normal(5, 8))

    def twice(x: Any) -> Any:
        a = weft.tanh(x)
        return weft.concat([a, a], axis=0)

    check(twice, normal(5, 8))


def test_parts_of_different_shapes_come_from_different_kernels() -> None:
    names = check(
        lambda x, y: weft.concat([weft.tanh(x), weft.sin(y), weft.relu(x @ y.T)], axis=1),
        normal(9, 8), normal(9, 8),
    )  # fmt: skip
    assert "concat" not in names

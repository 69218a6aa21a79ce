"""Writing tokens one after another on a GPU: the loop stays there, and products with one row fuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.emulated import EmulatedDriver, emulated
from weft.backends.cuda.build import build_program
from weft.backends.cuda.program import Again, Fetch, Launch, MatrixProduct, Repeat, all_steps
from weft.passes.lowering.row_products import row_products
from weft.schedule.gpu.machine import Gpu

WIDTH, WORDS, MOST = 64, 24, 6


@pytest.fixture
def card() -> Iterator[EmulatedDriver]:
    with emulated() as found:
        yield found


def weights() -> list[Any]:
    rng = np.random.default_rng(3)
    shapes = (WORDS, WIDTH), (WIDTH, WIDTH), (WIDTH,), (MOST,)
    return [weft.tensor(rng.standard_normal(s).astype(np.float32) * 0.4) for s in shapes]


def write(table: Any, w: Any, b: Any, noise: Any, count: Any) -> Any:
    """Each token follows from the one before, and from a cache of what was seen."""
    token, cache = weft.tensor(0, device=table.device), weft.zeros((MOST, WIDTH), device=table.device)
    out = weft.zeros(MOST, dtype=weft.int64, device=table.device)
    numbers = weft.arange(MOST, device=table.device)
    for t in range(count):
        x = table[token]
        new = weft.tanh(x @ w.T + b)
        cache = weft.where((numbers == t)[:, None], new, cache)
        mixed = cache.sum(0) + x
        token = (table @ mixed + noise[t]).argmax()
        out = weft.where(numbers == t, token, out)
    return out


@pytest.mark.rotating(2)
def test_a_loop_whose_length_is_a_tensor_is_one_graph(card: EmulatedDriver) -> None:
    given = weights()
    compiled = weft.compile(write)
    there = [x.cuda() for x in given]
    for length in (MOST, 3, 0, MOST, 5):
        count = weft.tensor(length)
        found = compiled(*there, count.cuda())
        np.testing.assert_array_equal(found.cpu().numpy(), write(*given, count).numpy())
    assert card.turns["while"] >= MOST + 5  # calls from the third on are graphs
    assert not card.errors


def program_of(function: Any, *given: Any, **options: Any) -> Any:
    return build_program(weft.make_graph(function)(*given).optimize(), machine=Gpu(**options))


def test_nothing_of_such_a_loop_is_fetched() -> None:
    program = program_of(write, *weights(), weft.tensor(MOST), libraries=True, least_product=1)
    steps = list(all_steps(program.steps))
    assert any(isinstance(s, Again) for s in steps)
    assert not any(isinstance(s, Fetch | Repeat) for s in steps)
    assert not any(isinstance(s, MatrixProduct) for s in steps)  # each has one row, and fuses


def test_a_loop_whose_length_is_known_is_counted() -> None:
    def power(x: Any) -> Any:
        return weft.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] @ s[1]), (0, x))[1]

    def power_of_rows(x: Any) -> Any:
        return weft.while_loop(lambda s: s[0] < x.shape[0], lambda s: (s[0] + 1, s[1] @ s[1]), (0, x))[1]

    for function in (power, power_of_rows):
        steps = list(all_steps(program_of(function, weft.ones(8, 8)).steps))
        assert any(isinstance(s, Repeat) for s in steps)
        assert not any(isinstance(s, Fetch | Again) for s in steps)


def test_a_product_with_one_row_is_one_kernel_with_what_follows() -> None:
    def layer(x: Any, w: Any, b: Any, y: Any) -> Any:
        return weft.gelu(x @ w.T + b, approximate="tanh") + y

    half = [weft.ones(s, dtype=weft.bfloat16) for s in ((1, 768), (3072, 768), (3072,), (1, 3072))]
    program = program_of(layer, *half, libraries=True)
    assert [type(s) for s in program.steps] == [Launch]
    assert "ld.global.nc.v4" in program.ptx  # eight of them at a time


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("turned", [False, True])
def test_products_with_one_row_or_column_are_those_of_the_host(dtype: str, turned: bool) -> None:
    rng = np.random.default_rng(0)
    kind = getattr(weft, dtype)
    w, x = (weft.tensor(rng.standard_normal(s)).astype(kind) for s in ((40, 128), (1, 128)))
    function: Any = (lambda x, w: w @ x.T) if turned else (lambda x, w: x @ w.T)
    graph = weft.make_graph(function)(x, w).optimize()
    made = row_products(graph)
    assert "matmul" not in [node.op.name for node in made.nodes]
    found = made(x, w)
    wanted = np.asarray(function(x.astype(weft.float64), w.astype(weft.float64)).numpy())
    bound = {"float32": 1e-5, "bfloat16": 1e-2, "float64": 1e-13}[dtype]
    np.testing.assert_allclose(found.astype(weft.float64).numpy(), wanted, rtol=bound, atol=30 * bound)


@pytest.mark.parametrize(
    ("x", "w"),
    [
        ((1, 128), (128, 40)),  # rows of the matrix are not what is summed
        ((2, 128), (40, 128)),  # two rows
        ((1, 60), (40, 60)),  # too short
        ((1, 130), (40, 130)),  # vectors would not fit
    ],
)
def test_other_products_stay(x: tuple[int, int], w: tuple[int, int]) -> None:
    function: Any = (lambda x, w: x @ w) if w[0] == x[1] else (lambda x, w: x @ w.T)
    graph = weft.make_graph(function)(weft.ones(x), weft.ones(w)).optimize()
    assert row_products(graph) is graph


def test_what_is_summed_in_the_middle_is_computed_by_the_sum() -> None:
    def mixed(p: Any, old: Any, new: Any, at: Any) -> Any:
        values = weft.where(at, new, old)
        return values, (p * values).sum(1)

    rng = np.random.default_rng(1)
    shapes = (3, 6, 1), (3, 6, 8), (3, 1, 8)
    given = [weft.tensor(rng.standard_normal(s).astype(np.float32)) for s in shapes]
    at = weft.tensor(np.arange(6) == 2).reshape(1, 6, 1)
    program = program_of(mixed, *given, at)
    assert [s.kernel for s in program.steps if isinstance(s, Launch)] == ["where", "mul_sum"]
    with emulated() as card:
        found = weft.compile(mixed)(*[x.cuda() for x in given], at.cuda())
        for ours, theirs in zip(mixed(*given, at), found, strict=True):
            np.testing.assert_allclose(theirs.cpu().numpy(), ours.numpy(), rtol=1e-6, atol=1e-6)
        assert not card.errors


def test_what_others_use_too_is_written() -> None:
    def f(x: Any, y: Any) -> Any:
        z = x * y
        return z, z.sum(1)

    program = program_of(f, weft.ones(3, 6, 8), weft.ones(3, 6, 8))
    assert [s.kernel for s in program.steps if isinstance(s, Launch)] == ["mul", "sum"]

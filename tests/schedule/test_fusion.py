"""What becomes one kernel, and that it gives what the graph gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from tests.schedule.lowered import program_of
from weft import nn
from weft.backends.llvm.driver import build_executable
from weft.ir.interpret import interpret
from weft.loop.interpret import run_program
from weft.loop.ir import Launch, Program, Wave
from weft.loop.verify import verify_program

F = nn.functional


def launches(program: Program) -> list[str]:
    """The names of the kernels that a program launches, in order; those of a wave too."""
    found: list[str] = []
    for statement in program.main.body.statements:
        if isinstance(statement, Wave):
            found += [launch.function.name for launch in statement.launches]
        elif isinstance(statement, Launch):
            found.append(statement.function.name)
    return found


def lowered(function: Callable[..., Any], *args: Any) -> list[str]:
    """The kernels of a function, after a run of them was compared with the interpreter."""
    graph = weft.make_graph(function)(*args).optimize()
    program = program_of(graph)
    verify_program(program)
    arrays = [a.numpy() for a in args]
    few = sum(a.size for a in arrays) < 20_000  # the loops of more are run as machine code, in no time
    with np.errstate(all="ignore"):
        expected = interpret(graph, arrays)
        found = run_program(program, arrays) if few else build_executable(graph)(arrays)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.reshape(b.shape), b, rtol=2e-5, atol=2e-5)
    return launches(program)


def some(*shape: int) -> Any:
    return weft.tensor(np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: weft.tanh(x * 2.0 + 1.0) * weft.exp(-x),
        lambda x: weft.softmax(x, axis=-1),
        lambda x: weft.log_softmax(x * 3.0, axis=-1) + 1.0,
        lambda x: weft.logsumexp(x, axis=-1),
        lambda x: F.layer_norm(x, (16,)) * 2.0,
        lambda x: (x - x.mean(axis=-1, keepdims=True)).abs().sum(axis=-1),
        lambda x: weft.concat([x, x], axis=1) + 1.0,
        lambda x: x.permute((1, 0)) + 1.0,
        lambda x: x[1:, ::2] * x[:-1, 1::2],
        lambda x: x.reshape((4, 5, 16)).exp().sum(axis=-1),
    ],
)
def test_a_chain_over_rows_is_one_kernel(function: Callable[..., Any]) -> None:
    assert len(lowered(function, some(20, 16))) == 1


def test_the_gradient_of_layer_norm_is_one_kernel_and_the_sums_of_its_blocks() -> None:
    def loss(x: Any, w: Any, b: Any, g: Any) -> Any:
        return (F.layer_norm(x, (32,), w, b) * g).sum()

    grad = weft.grad(loss, argnums=(0, 1, 2))
    names = lowered(grad, some(2048, 32), some(32), some(32), some(2048, 32))
    assert len(names) - names.count("combine") <= 2  # statistics, then gradients
    assert names.count("combine") == 2


def test_what_follows_a_product_is_in_its_kernel() -> None:
    names = lowered(lambda x, w, b: weft.relu(x @ w + b), some(8, 16), some(16, 12), some(12))
    assert len(names) == 1


def test_cross_entropy_and_its_gradient_are_few_kernels() -> None:
    targets = weft.tensor(np.arange(64) % 10)
    names = lowered(weft.grad(lambda x, y: F.cross_entropy(x, y)), some(64, 10), targets)
    assert len(names) <= 5


def test_adam_over_all_parameters_is_one_wave() -> None:
    model = nn.Sequential(nn.Linear(8, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 3))
    adam = weft.optim.Adam(model.parameters(), lr=1e-3)

    def step(x: Any) -> Any:
        adam.zero_grad()
        loss = (model(x) ** 2).sum()
        loss.backward()
        adam.step()
        return loss

    compiled = weft.compile(step, backend="interpret")
    compiled(some(16, 8))
    program = program_of(compiled.graph.optimize())
    waves = [s for s in program.main.body.statements if isinstance(s, Wave)]
    longest = max(waves, key=lambda wave: len(wave.launches))
    assert len(longest.launches) == 6
    assert len({launch.function.name for launch in longest.launches}) == 1
    assert {i for i, _ in program.donated} >= {
        k for k, r in enumerate(compiled.graph.roles) if r == "state"
    } - {k for k, v in enumerate(compiled.graph.inputs) if v.type.shape == ()}


def test_a_permuted_product_is_written_as_it_is_read() -> None:
    names = lowered(
        lambda p, v: (p @ v).permute((0, 2, 1, 3)).reshape((2, 5, 6)) * 2.0,
        some(2, 3, 5, 5),
        some(2, 3, 5, 2),
    )
    assert len(names) == 2  # the product, and what it is multiplied by: no copy in between


def test_a_gradient_computes_again_what_is_cheap() -> None:
    def loss(x: Any, w: Any, v: Any) -> Any:
        return (F.gelu(x @ w) @ v).sum()

    graph = weft.make_graph(weft.grad(loss, argnums=(1, 2)))(
        some(8, 16), some(16, 24), some(24, 4)
    ).optimize()
    arena = [b for b in program_of(graph).arena if b.size == 8 * 24]
    assert len(arena) <= 4  # the product, its activation, two gradients; not what the activation was made of


def test_sizes_may_be_named() -> None:
    with weft.Graph("named") as graph:
        x = weft.placeholder("x", ("batch", 33))
        weft.softmax(weft.tanh(x), axis=-1).sum(axis=0)
    session = weft.Session(graph, backend="llvm")
    fetch = graph.nodes[-1].outputs[0]
    for rows in (1, 2, 7, 100, 0):
        array = np.random.default_rng(rows).standard_normal((rows, 33)).astype(np.float32)
        exact = np.exp(np.tanh(array.astype(np.float64)))
        expected = (exact / exact.sum(axis=1, keepdims=True)).sum(axis=0)
        np.testing.assert_allclose(session.run([fetch], {"x": array})[0].numpy(), expected, rtol=1e-5)


@pytest.mark.rotating(2)
@pytest.mark.parametrize(
    ("function", "rows"),
    [
        (lambda x, g: (weft.softmax(x, axis=-1) * g).sum(), 40),
        (lambda x, g: (F.layer_norm(x, (160,)) * g).sum(), 40),
        (lambda x, g: (weft.tanh(x) * g).mean(), 40),
        (lambda x, g: (weft.tanh(x) * g).mean(), 256),  # enough for parts whose sums are combined
    ],
)
def test_a_loss_over_all_rows_and_its_gradient_are_one_kernel(
    function: Callable[..., Any], rows: int
) -> None:
    names = lowered(weft.value_and_grad(function), some(rows, 160), some(rows, 160))
    assert len(names) - names.count("combine") == 1


@pytest.mark.rotating(2)
def test_a_gradient_is_not_computed_while_the_forward_pass_goes_on() -> None:
    def loss(x: Any, w: Any) -> Any:
        return (weft.tanh(x) @ w).sum()

    assert "tanh" in lowered(weft.value_and_grad(loss), some(64, 32), some(32, 32))

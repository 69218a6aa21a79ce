"""Slices that the indices of loops bound: one loop of the graph, with sizes that each turn tells."""

from __future__ import annotations

import gc
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.capture import slice_kernels as kernels
from tests.capture.slice_programs import check
from tests.of_code import seed_of_code
from weft.errors import CaptureError

KERNELS = [*kernels.cases(2)]


def copied(arguments: Any) -> list[Any]:
    return [x.copy() if isinstance(x, np.ndarray) else x for x in arguments]


def as_tensors(arguments: Any) -> list[Any]:
    return [weft.tensor(x) if isinstance(x, np.ndarray) else x for x in copied(arguments)]


def parts(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def assert_close(got: Any, want: Any, tolerance: float = 1e-12) -> None:
    for a, b in zip(parts(got), parts(want), strict=True):
        scale = max(1.0, float(np.abs(b).max(initial=0)))
        np.testing.assert_allclose(a.numpy(), b, rtol=tolerance, atol=tolerance * scale)


def has_loop(graph: Any) -> bool:
    return any(node.op.name in ("scan", "while_loop") for node in graph.nodes)


# Kernels


@pytest.mark.rotating(4)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda f: f.__name__)
def test_a_kernel_gives_what_numpy_does_in_the_interpreter(kernel: Any) -> None:
    for n in (0, 1, 2, 5):
        arguments = kernels.cases(n)[kernel]
        compiled = weft.compile(kernel, backend="interpret")
        assert_close(compiled(*as_tensors(arguments)), kernel(*copied(arguments)))


@pytest.mark.rotating(3)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda f: f.__name__)
def test_a_kernel_gives_what_numpy_does_in_machine_code(kernel: Any) -> None:
    arguments = kernels.cases(9)[kernel]
    tensors = as_tensors(arguments)
    want = kernel(*(changed := copied(arguments)))
    compiled = weft.compile(kernel)
    assert_close(compiled(*tensors), want)
    for tensor, array in zip(tensors, changed, strict=True):
        if isinstance(array, np.ndarray):
            assert_close(tensor, array)  # arguments are changed as NumPy's are
    assert has_loop(compiled.versions[0].graph)


@pytest.mark.parametrize("kernel", [kernels.trisolv, kernels.lu_right, kernels.covariance])
@pytest.mark.parametrize("n", [0, 1, 2])
def test_small_sizes_in_machine_code(kernel: Any, n: int) -> None:
    arguments = kernels.cases(n)[kernel]
    assert_close(weft.compile(kernel)(*as_tensors(arguments)), kernel(*copied(arguments)))


@pytest.mark.rotating(4)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda f: f.__name__)
def test_the_graph_of_many_turns_is_that_of_few(kernel: Any) -> None:
    def count(n: int) -> int:
        return sum(1 for _ in weft.make_graph(kernel)(*as_tensors(kernels.cases(n)[kernel])).walk())

    assert count(5) == count(90)  # more turns than Python would write out


def test_open_sizes_bound_the_loop() -> None:
    types = weft.TensorType(("n", "n"), weft.float64), *[weft.TensorType(("n",), weft.float64)] * 2
    graph = weft.make_graph(kernels.trisolv)(*types)
    (body,) = [r for node in graph.nodes for r in node.regions]
    assert [node.op.name for node in body.nodes if node.op.name == "count_below"] == ["count_below"]
    function = weft.compile(kernels.trisolv)
    for n in (3, 8, 13):
        arguments = kernels.cases(n)[kernels.trisolv]
        assert_close(function(*as_tensors(arguments)), kernels.trisolv(*copied(arguments)))
    assert len(function.versions) == 2  # for one size, then for all


# Random loops


@pytest.mark.rotating(3)
@pytest.mark.parametrize("number", range(8))
def test_random_loops_do_what_they_do_eagerly(number: int) -> None:
    outcome = check(seed_of_code() % 1_000_000 + number)
    assert outcome == "same" or outcome.startswith("refused"), outcome


# Every kind of bound

BOUNDS = [
    *("x[:i]", "x[i:]", "x[i + 1:]", "x[:i + 1]", "x[:i + 3]", "x[i + 3:]", "x[-i:]", "x[:-i]", "x[i - 2:]"),
    *("x[:i - 2]", "x[i::2]", "x[:i:2]", "x[1:i:3]", "x[i::-1]", "x[:i:-1]", "x[i:1:-1]", "x[i - 1::-1]"),
    *("x[i:2 * i]", "x[i // 2:i]", "x[:i % 3]", "x[i:i + 2]", "x[i - 1:i + 2]", "x[2:i]", "x[i:5]"),
    *("x[i:-1]", "x[i:-i]", "x[i:i]", "x[n - i:]", "x[n - 1 - i:]", "x[::-1][:i]", "x[:i][::-1]"),
    *("x[i:][:2]", "x[:i][i // 2:]", "x[i:][1:-1]", "x[max(i - 2, 0):i + 1]", "x[min(i, 3):]", "x[:i][:i]"),
    *("x[i:i - 1]", "x[i + 2:i - 1:2]", "x[i - 1:i]", "x[i - 2:i]", "x[i - 1:i - 2]"),
    *("x[i + 1:0:-2]", "x[int(k):]", "x[:int(k) + i]", "x[-int(k):]", "x[k:]"),
]
PROGRAM = """
def f(x, k, out):
    n = x.shape[0]
    for i in range(n):
        s = {bounds}
        out[i] = s.sum() + 100.0 * len(s) + 0.01 * (s * s).sum()
    return out
"""


def from_source(folder: Path, source: str) -> Any:
    """The function f of a module that is written to a folder: its source can be read."""
    path = folder / "program.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("program", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.f


@pytest.mark.rotating(4)
@pytest.mark.parametrize("bounds", BOUNDS)
def test_bounds_mean_what_they_do_in_python(bounds: str, tmp_path: Path) -> None:
    f = from_source(tmp_path, PROGRAM.format(bounds=bounds))
    function = weft.compile(f, backend="interpret")
    for n in (2, 7):
        x = np.random.default_rng(n).normal(size=n)
        want = f(x, 2, np.zeros(n))
        got = function(weft.tensor(x), weft.tensor(2), weft.zeros(n, dtype=weft.float64))
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-12)
    assert has_loop(function.versions[-1].graph)


def test_a_while_loop_counts_a_slice() -> None:
    def f(x: Any) -> Any:
        i, total = 0, 0.0 * x[0]
        while total < 6.0:
            i += 1
            total = x[:i].sum()
        return total, i

    x = np.arange(5.0)
    for backend in ("interpret", "llvm"):
        total, count = weft.compile(f, backend=backend)(weft.tensor(x))
        assert (total.item(), int(count)) == (6.0, 4)


# Views and writes


def test_a_view_of_a_turn_is_a_view() -> None:
    def f(x: Any) -> Any:
        for i in range(x.shape[0]):
            part = x[i:]
            part += 1.0
            x[:i] *= 2.0
        return x

    want = f(np.arange(4.0))
    assert_close(weft.compile(f)(weft.tensor(np.arange(4.0))), want)


def test_a_branch_in_the_loop_knows_the_sizes_of_the_loop() -> None:
    def f(x: Any, y: Any) -> Any:
        for i in range(x.shape[0]):
            a = x[:i]
            if x[i] > 0:
                y[:i] += a * x[i]
            else:
                y[i:] -= x[i:]
        return y

    x = np.array([1.0, -2.0, 3.0, -0.5, 2.0])
    want = f(x, np.zeros(5))
    for backend in ("interpret", "llvm"):
        got = weft.compile(f, backend=backend)(weft.tensor(x), weft.tensor(np.zeros(5)))
        assert_close(got, want)


def test_lengths_that_do_not_fit_are_an_error_of_the_line() -> None:
    def f(x: Any) -> Any:
        total = x[0] * 0.0
        for i in range(3, x.shape[0]):
            total = total + (x[:i] + x[: i - 1]).sum()
        return total

    with pytest.raises(weft.errors.ShapeError, match=r"x\[:i\] \+ x\[: i - 1\]"):
        weft.compile(f)(weft.tensor(np.arange(6.0)))


def test_a_variable_whose_length_each_turn_changes_is_written_out_or_refused() -> None:
    def f(x: Any) -> Any:
        y = x
        for i in range(x.shape[0]):
            y = x[: i + 1]
        return y.sum()

    assert weft.compile(f)(weft.tensor(np.arange(5.0))).item() == 10.0
    with pytest.raises(CaptureError, match="y must stay what it is"):
        weft.compile(f)(weft.tensor(np.arange(100.0)))


def test_vmap_over_the_length_of_a_slice_is_refused() -> None:
    def f(x: Any, n: Any) -> Any:
        total = x[0] * 0.0
        for i in range(3):
            total = total + x[: int(n) + i].sum()
        return total

    function = weft.jit.script(f)
    assert weft.vmap(function, in_axes=(0, None))(weft.ones(2, 6), weft.tensor(1)).tolist() == [6.0, 6.0]
    with pytest.raises(CaptureError, match="one for all examples"):
        weft.vmap(function)(weft.ones(2, 6), weft.tensor([1, 2]))


# Gradients


def loss_of(kernel: Any, numbers: tuple[Any, ...]) -> Any:
    def loss(*tensors: Any) -> Any:
        total: Any = 0.0
        for k, y in enumerate(parts(kernel(*[t.clone() for t in tensors], *numbers))):
            total = total + (y * y).sum() * (k + 1.0)
        return total

    return loss


def split(arguments: Any) -> tuple[list[Any], tuple[Any, ...]]:
    arrays = [x for x in arguments if isinstance(x, np.ndarray)]
    return arrays, tuple(arguments[len(arrays) :])


SMOOTH = [k for k in KERNELS if not k.__name__.startswith("nussinov")]


@pytest.mark.rotating(4)
@pytest.mark.parametrize("kernel", SMOOTH, ids=lambda f: f.__name__)
def test_gradients_are_those_of_eager_code(kernel: Any) -> None:
    arrays, numbers = split(kernels.cases(4)[kernel])
    tensors = [weft.tensor(x) for x in arrays]
    gradient = weft.grad(loss_of(kernel, numbers), argnums=tuple(range(len(arrays))))
    want = gradient(*tensors)
    got = weft.compile(gradient, backend="interpret")(*tensors)
    for a, b in zip(got, want, strict=True):
        assert_close(a, b.numpy())


@pytest.mark.rotating(2)
@pytest.mark.parametrize("kernel", [kernels.trisolv, kernels.lu_right, kernels.durbin, kernels.jacobi_2d])
def test_gradients_in_machine_code_are_finite_differences(kernel: Any) -> None:
    arrays, numbers = split(kernels.cases(5)[kernel])
    loss = loss_of(kernel, numbers)
    tensors = [weft.tensor(x) for x in arrays]
    got = weft.compile(weft.grad(loss, argnums=tuple(range(len(arrays)))))(*tensors)
    rng = np.random.default_rng(0)
    along = [rng.normal(size=x.shape) for x in arrays]
    step = 1e-6

    def moved(by: float) -> float:
        return float(loss(*[weft.tensor(x + by * d) for x, d in zip(arrays, along, strict=True)]))

    expected = (moved(step) - moved(-step)) / (2 * step)
    found = sum(float((g.numpy() * d).sum()) for g, d in zip(got, along, strict=True))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_gradient_of_many_turns_is_that_of_few() -> None:
    def count(n: int) -> int:
        arrays, numbers = split(kernels.cases(n)[kernels.trisolv])
        gradient = weft.grad(loss_of(kernels.trisolv, numbers), argnums=(0, 1, 2))
        return sum(1 for _ in weft.make_graph(gradient)(*[weft.tensor(x) for x in arrays]).walk())

    assert count(5) == count(90)


def test_forward_mode_goes_through_slices() -> None:
    arrays, _ = split(kernels.cases(5)[kernels.trisolv])
    tensors = [weft.tensor(x) for x in arrays]
    ones = [weft.ones_like(t) for t in tensors]

    def push(*tensors: Any) -> Any:
        return weft.jvp(lambda *xs: kernels.trisolv(*[x.clone() for x in xs]), tensors, tuple(ones))[1]

    assert_close(weft.compile(push)(*tensors), push(*tensors).numpy())


def test_captures_with_slices_die() -> None:
    from weft.capture.record.root import Root

    def f(x: Any) -> Any:
        y = x.clone()
        for i in range(5):
            y[i + 1 :] = y[i + 1 :] * 0.5 + x[:i].sum()
        return y

    weft.compile(f)(weft.ones(6))
    gc.collect()
    assert not any(isinstance(x, Root) for x in gc.get_objects())

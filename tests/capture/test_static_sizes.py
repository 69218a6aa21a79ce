"""Named sizes through every op: a graph traced with a size named ``n`` gives what eager code gives at each n.

Samples of the op matrix are traced with their leading size named, outputs and gradients; the graph then runs
at several values of n. What needs a known size is listed, with the reason. A run takes the first sample of
each op and a quarter of the others, another one whenever weft's code is another; ``WEFT_ALL=1`` takes all.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from tests.capture import sizes_matrix as matrix
from tests.ops import checks
from weft.base.sizes import bind, named_size
from weft.errors import ShapeError, WeftError
from weft.ir.interpret import interpret
from weft.ir.types import TensorType
from weft.tensor.selection import read_key
from weft.transform.tracing import trace_graph

# Ops of which some samples ask, by their meaning, whether a size that has a name is another one, or fits it.
UNDECIDED = {
    "affine_grid": "the coordinates are computed from the size",
    "broadcast_to": "a given size is not n",
    "cosine_similarity": "a given size is not n",
    "cross": "the axis must have 3 elements",
    "derive_key": "a key has two elements",
    "rows": "the number of rows is given",
    "fold": "the axis must be a multiple of the kernel",
    "glu": "the axis must be even",
    "irfft": "the length is given beside the axis",
    "istft": "the frequencies are those of a given length",
    "pack_panels": "weights have sizes that are numbers",
    "overlap_add": "the length is given beside the axis",
    "pdist": "the pairs of rows are counted",
    "pixel_shuffle": "the axis must be a multiple",
    "random_bits": "a key has two elements",
    "random_exponential": "a key has two elements",
    "random_gumbel": "a key has two elements",
    "random_integers": "a key has two elements",
    "random_normal": "a key has two elements",
    "random_uniform": "a key has two elements",
    "reshape": "a given size is not n",
    "roll": "a given size is not n",
    "tensorinv": "products of sizes must agree",
    "tensorsolve": "products of sizes must agree",
    "window_spread": "the length is given beside the axis",
}

COUNTED = ("true_places", "count_below")  # whose samples say how many elements there are


def _groups() -> list[tuple[str, list[checks.Entry]]]:
    rows = [e for e in checks.entries() if e.sample.inputs and e.sample.inputs[0].shape[:1] not in ((), (0,))]
    rows = [e for e in rows if e.name not in COUNTED]
    return list(checks.by_name(rows, parts=4).items())


GROUPS = _groups()


@pytest.mark.rotating(5)
@pytest.mark.parametrize(("name", "entries"), GROUPS, ids=[name for name, _ in GROUPS])
def test_a_named_size_gives_what_eager_gives(name: str, entries: list[checks.Entry]) -> None:
    for entry in entries:
        found = matrix.traced(entry)
        if isinstance(found, list):
            assert name in UNDECIDED, f"{name}: {found[-1]}"
            continue
        naming, graph = found
        size = entry.sample.inputs[0].shape[0]
        for n in (size, size + 2):
            matrix.check_at(entry, naming, graph, n)
        for n in (1, 0):  # right, or a clear error
            with suppress(WeftError):
                matrix.check_at(entry, naming, graph, n)


def test_every_reason_is_needed() -> None:
    assert set(UNDECIDED) <= {name for name, _ in GROUPS}


# Programs: a function of tensors, the shapes it takes at a value of n, and what sizes its result has

n: Any = named_size("n")

PROGRAMS: dict[str, tuple[Any, list[tuple[Any, ...]], str]] = {
    "index": (lambda x: x[1], [("n", 4)], "(4,)"),
    "last": (lambda x: x[-1], [("n", 4)], "(4,)"),
    "element": (lambda x: x[-2, 1], [("n", 4)], "()"),
    "tail": (lambda x: x[1:], [("n", 4)], "(max(n-1,0), 4)"),
    "head": (lambda x: x[:-1], [("n", 4)], "(max(n-1,0), 4)"),
    "neighbours": (lambda x: x[1:] - x[:-1], [("n", 4)], "(max(n-1,0), 4)"),
    "middle": (lambda x: x[1:-1], [("n",)], "(max(n-2,0),)"),
    "first two": (lambda x: x[:2], [("n", 4)], "(n-max(n-2,0), 4)"),
    "parts": (lambda x: weft.concat([x[:2], x[2:]]), [("n", 4)], "(n, 4)"),
    "columns": (lambda x: x[:, 1:], [("n", 4)], "(n, 3)"),
    "every second": (lambda x: x[::2], [("n", 4)], "((n+1)//2, 4)"),
    "backwards": (lambda x: x[::-1], [("n", 4)], "(n, 4)"),
    "backwards in threes": (lambda x: x[::-3], [("n",)], "((n+2)//3,)"),
    "range": (lambda x: x[1:5:2], [("n",)], ""),
    "new axis": (lambda x: x[None, :, None], [("n",)], "(1, n, 1)"),
    "fancy": (lambda x: x[weft.tensor([0, 2, 0])], [("n", 4)], "(3, 4)"),
    "by a size": (lambda x: x[: x.shape[0] // 2], [("n", 4)], "(n//2, 4)"),
    "set": (lambda x: _set(x), [("n", 4)], "(n, 4)"),
    "reshape": (lambda x: x.reshape(-1, 2), [("n", 4)], "(2*n, 2)"),
    "reshape by size": (lambda x: x.reshape(x.shape[0], 2, -1), [("n", 4)], "(n, 2, 2)"),
    "flatten": (lambda x: weft.flatten(x), [("n", 4)], "(4*n,)"),
    "grow": (lambda x: weft.concat([x, x[:1] * 2.0, weft.ones((1, 4))]), [("n", 4)], ""),
    "one more": (lambda x: weft.concat([x, weft.ones((1, 4), dtype=x.dtype)]), [("n", 4)], "(n+1, 4)"),
    "stack": (lambda x: weft.stack([x, x * x], axis=1), [("n", 4)], "(n, 2, 4)"),
    "outer": (lambda x: x[:, None] * x[None], [("n",)], "(n, n)"),
    "broadcast": (lambda x, y: x + y, [("n", 1), (4,)], "(n, 4)"),
    "row": (lambda x, y: x * y, [("n", 4), (1, 4)], "(n, 4)"),
    "matmul": (lambda x, y: x @ y, [(3, "n"), ("n", 2)], "(3, 2)"),
    "batched matmul": (lambda x, y: x @ y, [("n", 2, 3), (3, 4)], "(n, 2, 4)"),
    "gram": (lambda x: x @ x.mT, [("n", 3)], "(n, n)"),
    "einsum": (lambda x, y: weft.einsum("bi,bj->ij", x, y), [("n", 2), ("n", 3)], "(2, 3)"),
    "mean": (lambda x: weft.mean(x, axis=0), [("n", 4)], "(4,)"),
    "share": (lambda x: x.sum() * (1.0 / x.shape[0]), [("n", 4)], "()"),
    "scaled": (lambda x: x / x.shape[0] + 2 * x.shape[0], [("n", 4)], "(n, 4)"),
    "power of a size": (lambda x: x * x.shape[0] ** 0.5, [("n", 4)], "(n, 4)"),
    "var": (lambda x: weft.var(x, axis=0, correction=1), [("n", 4)], "(4,)"),
    "standardize": (lambda x: (x - x.mean(0)) / (weft.std(x, axis=0) + 1.0), [("n", 4)], "(n, 4)"),
    "softmax": (lambda x: weft.softmax(x, axis=0), [("n", 4)], "(n, 4)"),
    "logsumexp": (lambda x: weft.logsumexp(x, axis=0), [("n", 4)], "(4,)"),
    "prod": (lambda x: weft.prod(x, axis=0), [("n", 2)], "(2,)"),
    "max": (lambda x: weft.max(x, axis=0), [("n", 2)], "(2,)"),
    "cumprod": (lambda x: weft.cumprod(x, axis=0), [("n", 2)], "(n, 2)"),
    "logcumsumexp": (lambda x: weft.logcumsumexp(x, axis=0), [("n", 2)], "(n, 2)"),
    "as strided": (lambda x: weft.as_strided(x, (x.shape[0] - 1, 2), (2, 1)), [("n", 3)], "(n-1, 2)"),
    "lu": (
        lambda x: sum(t.sum() for t in weft.linalg.lu(x @ x.mT + weft.eye(x.shape[0]))[1:]),
        [("n", 2)],
        "()",
    ),
    "cumsum": (lambda x: weft.cumsum(x, axis=0), [("n", 2)], "(n, 2)"),
    "sort": (lambda x: weft.sort(x, axis=0), [("n", 2)], "(n, 2)"),
    "tril": (lambda x: weft.tril(x @ x.mT), [("n", 2)], "(n, n)"),
    "diagonal": (lambda x: weft.diagonal(x @ x.mT), [("n", 2)], "(n,)"),
    "diag": (lambda x: weft.diag(x), [("n",)], "(n, n)"),
    "pad": (lambda x: weft.pad(x, ((2, 1), (0, 0))), [("n", 2)], "(n+3, 2)"),
    "pad by a size": (
        lambda x: weft.pad(x, ((x.shape[0], 2 * x.shape[0]), (0, 1)), value=0.5),
        [("n", 2)],
        "(4*n, 3)",
    ),
    "pad by a size less": (lambda x: weft.pad(x, ((0, x.shape[0] - 1), (0, 0))), [("n", 2)], "(2*n-1, 2)"),
    "reflect": (
        lambda x: weft.pad(x, ((x.shape[0] + 1, x.shape[0]), (0, 0)), mode="reflect"),
        [("n", 2)],
        "(3*n+1, 2)",
    ),
    "replicate": (lambda x: weft.pad(x, ((x.shape[0], 1), (0, 0)), mode="edge"), [("n", 2)], "(2*n+1, 2)"),
    "circular": (lambda x: weft.pad(x, ((x.shape[0], 1), (0, 0)), mode="wrap"), [("n", 2)], "(2*n+1, 2)"),
    "spectrogram and back": (lambda x: weft.istft(weft.stft(x, 4, 1), 4, 1), [("n",)], "(n,)"),
    "signals of a length": (lambda x: weft.istft(weft.stft(x, 4, 1), 4, 1, length=5), [("n",)], ""),
    "roll": (lambda x: weft.roll(x, 1, 0), [("n", 2)], "(n, 2)"),
    "layer norm": (lambda x: weft.layer_norm(x, (4,)), [("n", 4)], "(n, 4)"),
    "norm over n": (lambda x: weft.layer_norm(x, (x.shape[1],)), [(3, "n")], "(3, n)"),
    "convolution": (
        lambda x, w: weft.conv2d(x, w, padding=1),
        [(2, 3, "n", 5), (4, 3, 3, 3)],
        "(2, 4, n, 5)",
    ),
    "stride": (
        lambda x, w: weft.conv1d(x, w, stride=2),
        [(1, 3, "n"), (2, 3, 3)],
        "(1, 2, max((n+1)//2-1,0))",
    ),
    "dilation": (lambda x, w: weft.conv1d(x, w, dilation=2), [("n", 3, 9), (2, 3, 3)], "(n, 2, 5)"),
    "transposed": (lambda x, w: weft.conv_transpose1d(x, w, stride=2), [(1, 2, "n"), (2, 3, 4)], ""),
    "max pool": (lambda x: weft.max_pool2d(x, 2), [(1, 2, "n", 6)], "(1, 2, n//2, 3)"),
    "average pool": (lambda x: weft.avg_pool1d(x, 3, padding=1), [(1, 2, "n")], ""),
    "global pool": (lambda x: x.mean((2, 3)), [("n", 2, "n", 3)], "(n, 2)"),
    "attention": (
        lambda q, k: weft.scaled_dot_product_attention(q, k, k, is_causal=True),
        [(2, "n", 4), (2, "n", 4)],
        "(2, n, 4)",
    ),
    "features of attention": (
        lambda q, k: weft.scaled_dot_product_attention(q, k, k),
        [(2, 3, "n"), (2, 3, "n")],
        "(2, 3, n)",
    ),
    "cross entropy": (
        lambda x: weft.cross_entropy(x, weft.arange(x.shape[0]) % 4, label_smoothing=0.1),
        [("n", 4)],
        "()",
    ),
    "mse": (lambda x, y: weft.mse_loss(x, y), [("n", 4), ("n", 4)], "()"),
    "huber": (lambda x, y: weft.huber_loss(x, y, reduction="sum"), [("n", 4), ("n", 4)], "()"),
    "vmap": (lambda x, y: weft.vmap(lambda a: weft.tanh(a @ y).sum())(x), [("n", 3), (3, 2)], "(n,)"),
    "vmap over pairs": (lambda x, y: weft.vmap(lambda a, b: a @ b)(x, y), [("n", 3), ("n", 3)], "(n,)"),
    "gradient": (lambda x: weft.grad(lambda a: (a**3).mean())(x), [("n", 3)], "(n, 3)"),
    "jvp": (lambda x: weft.jvp(weft.sin, (x,), (weft.ones_like(x),))[1], [("n", 3)], "(n, 3)"),
    "arange": (lambda x: x * weft.arange(x.shape[0], dtype=x.dtype), [("n",)], "(n,)"),
    "arange in steps": (lambda x: weft.arange(1, x.shape[0], 2) * x.sum(), [("n",)], "(n//2,)"),
    "full": (lambda x: weft.full((x.shape[0], 2), 1.5, dtype=x.dtype) * x[:, None], [("n",)], "(n, 2)"),
    "zeros": (lambda x: weft.zeros(x.shape, dtype=x.dtype) + x, [("n", 2)], "(n, 2)"),
    "eye": (lambda x: weft.eye(x.shape[0], dtype=x.dtype) * x, [("n",)], "(n, n)"),
    "one hot": (lambda x: weft.one_hot(weft.arange(x.shape[0]) % 3, 3) * x[:, None], [("n",)], "(n, 3)"),
    "where": (lambda x: weft.where(x > 0, x, weft.zeros_like(x)), [("n",)], "(n,)"),
    "split": (lambda x: weft.split(x, 2, axis=1)[1], [("n", 4)], ""),
    "chunk": (lambda x: weft.chunk(x, 2, axis=1)[0], [("n", 4)], "(n, 2)"),
    "gather": (lambda x: weft.take(x, weft.tensor([0, 0]), axis=0), [("n", 4)], "(2, 4)"),
    "norm": (lambda x: weft.linalg.vector_norm(x), [("n", 4)], "()"),
    "momentum": (
        lambda w, g: w - 0.1 * (0.9 * w + g) / (weft.sqrt(g * g) + 1e-3),
        [("n", 2), ("n", 2)],
        "(n, 2)",
    ),
}


def _set(x: Any) -> Any:
    y = x * 2.0
    y[0] = x[1]
    y[:, 1] = 3.0
    y[1:] += 1.0
    return y


def _arrays(shapes: list[tuple[Any, ...]], value: int) -> list[Any]:
    rng = np.random.default_rng(value)
    return [rng.uniform(0.5, 1.5, tuple(value if s == "n" else s for s in shape)) for shape in shapes]


def _with_gradients(function: Any) -> Any:
    """The output, the gradients of a sum over it, and those of the sum of their squares."""

    def both(*xs: Any) -> list[Any]:
        leaves = [x.detach().requires_grad_() for x in xs]
        out = function(*leaves)
        if not out.requires_grad:
            return [out]
        first = weft.autograd.grad(weft.sin(out).sum(), leaves, create_graph=True)
        found = [out.detach(), *[g.detach() for g in first]]
        total = sum((g * g).sum() for g in first)
        if total.requires_grad:
            found += [g for g in weft.autograd.grad(total, leaves, allow_unused=True) if g is not None]
        return found

    return both


@pytest.mark.rotating(5)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_with_a_named_size_gives_what_eager_gives(name: str) -> None:
    function, shapes, expected = PROGRAMS[name]
    types = [TensorType(tuple(n if s == "n" else s for s in shape), np.dtype("float64")) for shape in shapes]
    called = _with_gradients(function)
    graph, used = trace_graph(called, types)
    if expected:
        assert str(graph.outputs[0].type.shape) == expected
    graph.verify()
    assert weft.parse_graph(graph.to_text(), graph.constant_data()).same(graph, locations=False)
    better = graph.optimize()
    for value in (3, 5, 6, 2, 1):
        arrays = _arrays(shapes, value)
        try:
            eager = called(*[weft.tensor(a) for a in arrays])
        except WeftError:
            continue
        inputs = [*arrays, *[t.numpy() for t in used]]
        for ran in (graph, better) if value > 3 else (graph,):
            for a, e in zip(interpret(ran, inputs), eager, strict=True):
                assert (a.shape, a.dtype) == (e.shape, e.dtype)
                np.testing.assert_allclose(a, e.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            lambda x: x + weft.ones(3),
            r"add: shapes must broadcast together, got f32\[n\] and f32\[3\] \(n vs 3",
        ),
        (
            lambda x: x.reshape(3, -1),
            r"reshape: the number of elements must stay n, got f32\[n\] to \(3, -1\)",
        ),
        (lambda x: x if x.shape[0] > 3 else -x, "must be known here, got n in n > 3"),
        (lambda x: [x for _ in range(x.shape[0])], "must be known here, got n in"),
        (lambda x: weft.pad(x, ((0, x.shape[0] - 2),), "reflect"), "pad: widths must not be negative"),
        (lambda x: weft.glu(x), r"glu: the size along axis 0 must be even, got f32\[n\]"),
    ],
)
def test_what_cannot_be_decided_is_an_error_that_names_the_size(function: Any, words: str) -> None:
    with weft.Graph("f"), pytest.raises(ShapeError, match=words):
        x = weft.placeholder("x", ("n",))
        weft.gradients(x, x)
        x.requires_grad_()
        function(x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: weft.concat([x, weft.full((4 - x.shape[0],), 9.0)]),
        lambda x: weft.pad(x, ((0, 4 - x.shape[0]),), value=9.0),
        lambda x: weft.pad(x, ((4 - x.shape[0], 0),), value=9.0)[::-1],
    ],
)
def test_a_size_that_turns_out_negative_is_an_error_with_the_users_line(function: Any) -> None:
    with weft.Graph("f") as g:
        x = weft.placeholder("x", ("n",))
        y = function(x)
    for value in (0, 2, 4):
        assert g.run(y, {x: np.ones(value, np.float32)}).tolist() == [1.0] * value + [9.0] * (4 - value)
    for value in (5, 6, 9):
        with pytest.raises(ShapeError, match=r"sizes must not be negative(.|\n)*test_static_sizes.py"):
            g.run(y, {x: np.ones(value, np.float32)})


def test_sizes_have_no_value_outside_a_graph() -> None:
    with weft.Graph("f"):
        x = weft.placeholder("x", ("n",))
    with pytest.raises(
        weft.errors.CaptureError, match="a named size has a value only while its graph runs, got n"
    ):
        x.shape[0] * 0.5


bounds = st.one_of(st.none(), st.integers(-6, 7))


@settings(max_examples=300, deadline=None)
@given(bounds, bounds, st.sampled_from([None, 1, 2, 3, -1, -2, -3]), st.integers(0, 8))
def test_slices_of_a_named_size_are_those_of_a_list(start: Any, stop: Any, step: Any, value: int) -> None:
    selection = read_key(slice(start, stop, step), (n,))
    expected = list(range(value))[start:stop:step]
    assert list(range(*bind(selection.bounds[0], {"n": value}))) == expected
    assert bind(selection.shape[0], {"n": value}) == len(expected)


def _attention() -> Any:
    layer = weft.nn.MultiheadAttention(4, 2)
    return lambda x: layer(x, x, x)[0]


def _recurrent() -> Any:
    layer = weft.nn.LSTM(3, 4)
    return lambda x: layer(x)[0]


LAYERS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "linear": (lambda: weft.nn.Linear(3, 2), ("n", 3)),
    "convolution": (lambda: weft.nn.Conv2d(3, 4, 3, padding=1), ("n", 3, 5, 5)),
    "convolution of any image": (lambda: weft.nn.Conv2d(3, 4, 3, stride=2, padding=1), (2, 3, "n", "n")),
    "batch norm": (lambda: weft.nn.BatchNorm2d(3), ("n", 3, 4, 4)),
    "layer norm": (lambda: weft.nn.LayerNorm(4), ("n", 4)),
    "attention": (_attention, ("n", 3, 4)),
    "recurrent": (_recurrent, ("n", 2, 3)),
}


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_in_a_graph_with_a_named_size_gives_what_eager_gives(name: str) -> None:
    make, shape = LAYERS[name]
    layer = make()
    with weft.Graph("f") as g:
        x = weft.placeholder("x", shape)
        y = layer(x)
        (gx,) = weft.gradients(y, x)
    for value in (2, 5, 1):
        (array,) = (a.astype(np.float32) for a in _arrays([shape], value))
        out, gradient = g.run([y, gx], {x: array})
        leaf = weft.tensor(array, requires_grad=True)
        eager = layer(leaf)
        eager.backward(weft.ones_like(eager))
        np.testing.assert_allclose(out.numpy(), eager.detach().numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(gradient.numpy(), leaf.grad.numpy(), rtol=1e-3, atol=1e-4)

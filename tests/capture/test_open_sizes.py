"""Sizes that stay open: from around a composite, in expressions, told by masks; in graphs, files, models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import weft
from weft import nn
from weft.errors import DomainError, ParseError, ShapeError, WeftError

rng = np.random.default_rng(3)
F = weft.float32


def floats(*shape: int) -> Any:
    return rng.normal(size=shape).astype(np.float32)


def of(*shape: Any) -> weft.TensorType:
    return weft.TensorType(shape, F)


# Composites that use a size none of their arguments has

AROUND: dict[str, Callable[[Any, Any], Any]] = {
    "tile": lambda x, p: weft.tile(p, (x.shape[0], 1)),
    "repeat": lambda x, p: weft.repeat(p, x.shape[0], axis=0),
    "broadcast": lambda x, p: weft.broadcast_to(p, (x.shape[0], 2)),
    "linear": lambda x, p: weft.interpolate(p[None], size=x.shape[0], mode="linear"),
    "nested": lambda x, p: weft.gelu(weft.tile(weft.gelu(p), (2 * x.shape[0], 1))),
}


def _gradient(function: Callable[[Any, Any], Any], x: Any, p: Any) -> Any:
    leaf = weft.tensor(p, requires_grad=True)
    weft.sin(function(weft.tensor(x), leaf)).sum().backward()
    return leaf.grad.numpy()


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", AROUND)
def test_a_gradient_flows_through_a_size_from_around(name: str, tmp_path: Path) -> None:
    function = AROUND[name]
    with weft.Graph("g") as g:
        x, p = weft.placeholder("x", ("n", 2)), weft.placeholder("p", (1, 2))
        y = function(x, p)
        (gradient,) = weft.gradients(weft.sin(y).sum(), p)
    made = weft.make_graph(function)(of("n", 2), of(1, 2))
    weft.save_graph(made, tmp_path / "f.weft")
    calls = {
        "graph": made,
        "file": weft.load_graph(tmp_path / "f.weft"),
        "aot": weft.aot(function, of("n", 2), of(1, 2)),
    }
    for n in (3, 1, 5):
        a, b = floats(n, 2), floats(1, 2)
        wanted = _gradient(function, a, b)
        for backend in ("interpret", "llvm"):
            found = weft.Session(g, backend).run(gradient, {"x": a, "p": b}).numpy()
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
        for call in calls.values():
            np.testing.assert_allclose(_gradient(call, a, b), wanted, rtol=1e-4, atol=1e-6)


def test_a_gradient_that_needs_no_more_than_the_size_of_an_operand_is_saved(tmp_path: Path) -> None:
    leaf = weft.tensor(floats(1, 2), requires_grad=True)

    def f(x: Any) -> Any:
        loss = (weft.roll(leaf.expand(x.shape[0], 2), 1, axis=0) * x).sum()
        return weft.autograd.grad(loss, [leaf])[0]

    x = weft.tensor(floats(5, 2))
    weft.compile(f).save(tmp_path / "f.weft", of("n", 2))
    found = weft.load_graph(tmp_path / "f.weft")(x)
    np.testing.assert_allclose(found.numpy(), f(x).numpy(), rtol=1e-5)


# Expressions


@pytest.mark.parametrize(
    ("text", "sizes"),
    [("4*h", [4, 12]), ("2*h+1", [1, 7]), ("h", [3]), (" h ", [3]), ("7", [7]), ("max(h,0)", [2])],
)
def test_a_text_in_a_type_is_a_size(text: str, sizes: list[int]) -> None:
    graph = weft.make_graph(lambda x: x * 2.0)(of(text))
    for n in sizes:
        if text != "max(h,0)":
            assert graph(weft.ones(n)).shape == (n,)


@pytest.mark.parametrize("text", ["4*", "a b", "", "h//0", "1.5"])
def test_a_text_that_is_no_size_is_an_error(text: str) -> None:
    with pytest.raises(ParseError, match="a size must"):
        weft.make_graph(lambda x: x * 2.0)(of(text))
    with pytest.raises(ParseError, match="a size must"):
        weft.compile(lambda x: x * 2.0).save("nowhere.weft", of(text))


class UNet(nn.Module):
    """Two levels; what comes up is joined with what went down."""

    def __init__(self, up: str) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 2, 3, padding=1)
        self.deep = nn.Conv2d(2, 2, 3, padding=1)
        self.last = nn.Conv2d(4, 1, 3, padding=1)
        self.up = nn.ConvTranspose2d(2, 2, 2, stride=2) if up == "transposed" else nn.Upsample(scale_factor=2)
        self.by_size = up == "size"

    def forward(self, x: Any) -> Any:
        a = weft.relu(self.first(x))
        b = weft.relu(self.deep(weft.max_pool2d(a, 2)))
        c = weft.interpolate(b, size=a.shape[-2:], mode="bilinear") if self.by_size else self.up(b)
        return self.last(weft.concat([a, c], axis=1))


@pytest.mark.rotating(3)
@pytest.mark.parametrize("up", ["nearest", "transposed", "size"])
def test_a_u_net_is_saved_with_open_height_and_width(up: str, tmp_path: Path) -> None:
    model = UNet(up).eval()
    kind = of("batch", 1, "2*h", "2*w") if up != "size" else of("batch", 1, "h", "w")
    weft.compile(model).save(tmp_path / "u.weft", kind)
    loaded = weft.load_graph(tmp_path / "u.weft")
    session = onnxruntime.InferenceSession(weft.onnx.export(model, tmp_path / "u.onnx", kind))
    for shape in ((1, 1, 8, 12), (2, 1, 4, 2)):
        x = floats(*shape)
        with weft.no_grad():
            wanted = model(weft.tensor(x)).numpy()
        np.testing.assert_allclose(loaded(weft.tensor(x)).detach().numpy(), wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-4, atol=1e-5)
    leaf, other = (weft.tensor(x, requires_grad=True) for _ in range(2))
    loaded(leaf).sum().backward()
    model(other).sum().backward()
    np.testing.assert_allclose(leaf.grad.numpy(), other.grad.numpy(), rtol=1e-4, atol=1e-5)
    if up != "size":
        with pytest.raises(ShapeError, match=r"x must be f32\[batch,1,2\*h,2\*w\], got f32\[1,1,9,12\]"):
            loaded(weft.tensor(floats(1, 1, 9, 12)))


def test_a_compiled_function_runs_a_version_of_an_expression_for_sizes_that_it_gives() -> None:
    twice = weft.compile(lambda x, y: weft.concat([x, y]) * 2.0)
    for n in (2, 3, 4, 7):
        x, y = floats(n), floats(3 * n)
        np.testing.assert_allclose(twice(weft.tensor(x), weft.tensor(y)).numpy(), np.concatenate([x, y]) * 2)


@pytest.mark.rotating(4)
@pytest.mark.parametrize("settings", [{}, {"padding": 1}, {"output_padding": 1}, {"dilation": 2}], ids=str)
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_a_transposed_convolution_of_an_open_size_is_as_long_as_of_a_known_one(
    stride: int, settings: dict[str, Any]
) -> None:
    if stride == 1 and "output_padding" in settings:
        return
    w = weft.tensor(floats(1, 1, 3))
    with weft.Graph("g") as g:
        y = weft.conv_transpose1d(weft.placeholder("x", (1, 1, "n")), w, stride=stride, **settings)
    k, p, e = (
        2 * settings.get("dilation", 1) + 1,
        settings.get("padding", 0),
        settings.get("output_padding", 0),
    )
    for n in (0, 1, 2, 5):
        x, length = floats(1, 1, n), (n - 1) * stride - 2 * p + k + e
        if length <= 0:
            continue
        wanted = weft.conv_transpose1d(weft.tensor(x), w, stride=stride, **settings).numpy()
        assert wanted.shape == (1, 1, length)
        for backend in ("interpret", "llvm"):
            found = weft.Session(g, backend).run(y, {"x": x}).numpy()
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


# Resampling

MODES: list[dict[str, Any]] = [
    {"mode": "nearest"},
    {"mode": "nearest-exact"},
    {"mode": "bilinear"},
    {"mode": "bilinear", "align_corners": True},
    {"mode": "bicubic"},
    {"mode": "bicubic", "align_corners": True},
    {"mode": "area"},
]


@pytest.mark.rotating(3)
@pytest.mark.parametrize("settings", MODES, ids=str)
def test_open_sizes_are_resampled_as_known_ones(settings: dict[str, Any]) -> None:
    with weft.Graph("g") as g:
        a = weft.placeholder("a", (1, 2, "h", "w"))
        b = weft.placeholder("b", (1, 2, "p", "q"))
        outs = [
            weft.interpolate(b, size=a.shape[-2:], **settings),
            weft.interpolate(b, size=(4, 9), **settings),
            weft.interpolate(b, scale_factor=2, **settings),
            weft.interpolate(b, scale_factor=(3, 1.5), **settings),
            weft.interpolate(b, scale_factor=0.5, recompute_scale_factor=True, **settings),
        ]
    for sizes in ((5, 7, 3, 4), (2, 2, 4, 6), (1, 3, 2, 2), (6, 8, 3, 4)):
        x = floats(1, 2, *sizes[2:])
        t = weft.tensor(x)
        wanted = [
            weft.interpolate(t, size=sizes[:2], **settings),
            weft.interpolate(t, size=(4, 9), **settings),
            weft.interpolate(t, scale_factor=2, **settings),
            weft.interpolate(t, scale_factor=(3, 1.5), **settings),
            weft.interpolate(t, scale_factor=0.5, recompute_scale_factor=True, **settings),
        ]
        found = g.run(outs, {"a": floats(1, 2, *sizes[:2]), "b": x})
        for y, w in zip(found, wanted, strict=True):
            assert y.shape == w.shape
            np.testing.assert_allclose(y.numpy(), w.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_open_sizes_shrink_smoothly_by_a_known_factor(mode: str) -> None:
    settings: dict[str, Any] = {"scale_factor": 0.25, "mode": mode, "antialias": True}
    with weft.Graph("g") as g:
        b = weft.placeholder("b", (1, 1, "p", "q"))
        y = weft.interpolate(b, **settings)
        with pytest.raises(ShapeError, match="antialias must know"):
            weft.interpolate(b, size=(2, 2), mode=mode, antialias=True)
        with pytest.raises(DomainError, match=r"a fraction of whole numbers to scale size p, got 0\.7"):
            weft.interpolate(b, scale_factor=0.7, mode=mode)
    for shape in ((1, 1, 8, 12), (1, 1, 9, 15)):
        x = floats(*shape)
        wanted = weft.interpolate(weft.tensor(x), **settings).numpy()
        np.testing.assert_allclose(g.run(y, {"b": x}).numpy(), wanted, rtol=1e-5, atol=1e-5)


# Masks: how many elements they pick, a run tells


def _filled(x: Any) -> Any:
    y = x * 1.0
    y[x > 0] = 7.0
    return y


def _unique_all(x: Any) -> list[Any]:
    found = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    return [found[0], found[1], found[2].reshape(x.shape), found[3]]


def _runs(x: Any) -> list[Any]:
    begins = np.append(np.ones(min(len(x), 1), bool), x[1:] != x[:-1])
    starts = begins.nonzero()[0]
    return [x[starts], np.cumsum(begins) - 1, np.diff(np.append(starts, len(x)))]


PICKED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], tuple[int, ...]]] = {
    "nonzero": (lambda x: weft.nonzero(x > 0), lambda x: np.nonzero(x > 0), (4, 3)),
    "argwhere": (lambda x: weft.argwhere(x > 0), lambda x: np.argwhere(x > 0), (4, 3)),
    "mask": (lambda x: x[x > 0] * 2.0, lambda x: x[x > 0] * 2, (4, 3)),
    "rows": (lambda x: x[x[:, 0] > 0].sum(axis=1), lambda x: x[x[:, 0] > 0].sum(axis=1), (6, 2)),
    "select": (lambda x: weft.masked_select(x, x < 0), lambda x: x[x < 0], (7,)),
    "unique": (lambda x: weft.unique(weft.round(x)), lambda x: np.unique(np.round(x)), (9,)),
    "unique_all": (
        lambda x: tuple(weft.unique_all(weft.round(x))),
        lambda x: _unique_all(np.round(x)),
        (5, 2),
    ),
    "unique_consecutive": (
        lambda x: weft.unique_consecutive(weft.round(x), return_inverse=True, return_counts=True),
        lambda x: _runs(np.round(x)),
        (12,),
    ),
    "set": (_filled, lambda x: np.where(x > 0, np.float32(7), x), (6,)),
}


@pytest.mark.rotating(4)
@pytest.mark.parametrize("name", PICKED)
def test_what_a_mask_picks_has_a_size_that_a_run_tells(name: str, tmp_path: Path) -> None:
    function, oracle, shape = PICKED[name]
    kind = of("n", *shape[1:])
    with weft.Graph("g") as g:
        y = function(weft.placeholder("x", kind.shape))
    weft.compile(function).save(tmp_path / "f.weft", kind)
    loaded = weft.load_graph(tmp_path / "f.weft")
    session = onnxruntime.InferenceSession(weft.onnx.export(function, tmp_path / "f.onnx", kind))
    again = weft.onnx.load(tmp_path / "f.onnx")
    runs = {
        "interpret": lambda x: weft.Session(g, "interpret").run(y, {"x": x}),
        "llvm": lambda x: weft.Session(g).run(y, {"x": x}),
        "file": lambda x: loaded(weft.tensor(x)),
        "onnxruntime": lambda x: session.run(None, {"x": x}),
        "read back": lambda x: weft.Session(again).run(list(again.outputs), {"x": x}),
    }
    for n in (shape[0], 2, 1):
        x = floats(n, *shape[1:])
        wanted = oracle(x)
        listed = wanted if isinstance(wanted, tuple | list) else [wanted]
        for run in runs.values():
            out = run(x)
            for a, b in zip(out if isinstance(out, tuple | list) else [out], listed, strict=True):
                array = a.numpy() if hasattr(a, "numpy") else a
                assert array.shape == b.shape
                np.testing.assert_allclose(array, b, rtol=1e-5)


def test_nothing_to_pick_from_gives_nothing() -> None:
    for function, oracle, shape in PICKED.values():
        with weft.Graph("g") as g:
            y = function(weft.placeholder("x", ("n", *shape[1:])))
        x = floats(0, *shape[1:])
        for backend in ("interpret", "llvm"):
            out = weft.Session(g, backend).run(y, {"x": x})
            wanted = oracle(x)
            for a, b in zip(
                out if isinstance(out, tuple) else [out],
                wanted if isinstance(wanted, tuple | list) else [wanted],
                strict=True,
            ):
                assert a.shape == b.shape


def test_a_fetch_that_asks_for_a_told_size_alone_runs_what_tells_it() -> None:
    with weft.Graph("g") as g:
        x = weft.placeholder("x", ("n",))
        picked = x[x > 0]
        ones = weft.ones((picked.shape[0], 2))
    for backend in ("interpret", "llvm"):
        found = weft.Session(g, backend).run(ones, {"x": np.array([1, -1, 2], np.float32)})
        np.testing.assert_array_equal(found.numpy(), np.ones((2, 2)))


def test_a_compiled_function_still_looks_at_its_values() -> None:
    picked = weft.compile(lambda x: x[x > 0].reshape(2, -1))
    x = np.array([1, -1, 2, 3, 4], np.float32)
    np.testing.assert_array_equal(picked(weft.tensor(x)).numpy(), x[x > 0].reshape(2, -1))
    with pytest.raises(WeftError, match="the number of elements must stay"):
        picked(weft.tensor(x[:4]))


# Sparse matrices of open sizes: graphs of any number of nodes and edges


def _convolved(ends: Any, weights: Any, x: Any, w: Any) -> Any:
    n = x.shape[0]
    edges = weft.sparse_coo_tensor(ends, weights, (n, n))
    degrees = edges.sum(axis=1)
    return weft.relu((edges * 2.0) @ (x @ w)) + edges.T @ x[:, :2] + degrees[:, None] + edges.to_dense().sum()


def _dense_convolved(ends: Any, weights: Any, x: Any, w: Any) -> Any:
    edges = np.zeros((len(x), len(x)), np.float32)
    np.add.at(edges, tuple(ends), weights)
    out = np.maximum(2 * edges @ (x @ w), 0) + edges.T @ x[:, :2]
    return out + edges.sum(1)[:, None] + edges.sum()


def test_a_graph_network_is_saved_with_open_numbers_of_nodes_and_edges(tmp_path: Path) -> None:
    types = weft.TensorType((2, "edges"), weft.int64), of("edges"), of("nodes", 3), of(3, 2)
    weft.compile(_convolved).save(tmp_path / "g.weft", *types)
    loaded = weft.load_graph(tmp_path / "g.weft")
    made = weft.make_graph(_convolved)(*types)
    for nodes, edges in ((4, 5), (3, 9), (1, 1), (2, 0)):
        arrays = [rng.integers(0, nodes, (2, edges)), floats(edges), floats(nodes, 3), floats(3, 2)]
        wanted = _dense_convolved(*arrays)
        for call in (loaded, made):
            found = call(*map(weft.tensor, arrays)).numpy()
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    first, second = (weft.tensor(arrays[3], requires_grad=True) for _ in range(2))
    rest = [rng.integers(0, 4, (2, 6)), floats(6), floats(4, 3)]
    for call, leaf in ((loaded, first), (_convolved, second)):
        call(*map(weft.tensor, rest), leaf).sum().backward()
    np.testing.assert_allclose(first.grad.numpy(), second.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_an_edge_to_a_node_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    types = weft.TensorType((2, "edges"), weft.int64), of("edges"), of("nodes", 3), of(3, 2)
    weft.compile(_convolved).save(tmp_path / "g.weft", *types)
    loaded = weft.load_graph(tmp_path / "g.weft")
    with pytest.raises(WeftError, match=r"must be in .*, got 5|indices must be in a tensor of shape"):
        loaded(weft.tensor([[0], [5]]), weft.ones(1), weft.ones((2, 3)), weft.ones((3, 2)))


def got(x: Any) -> Any:
    return x * {3: 5}.get(x.shape[0], 7)


def in_a_dict(x: Any) -> Any:
    return x * (2 if x.shape[0] in {3: 5} else 3)


def in_a_set(x: Any) -> Any:
    return x * (2 if x.shape[0] in {3, 5} else 3)


def hashed(x: Any) -> Any:
    return x * hash(x.shape[0])


@pytest.mark.parametrize("f", [got, in_a_dict, in_a_set, hashed])
def test_a_size_that_stands_for_any_is_no_key(f: Any) -> None:
    with pytest.raises(WeftError, match=r"n[^$]*test_open_sizes.py"):
        weft.make_graph(f)(weft.TensorType(("n",), weft.float32))


def test_the_class_of_a_size_is_int() -> None:
    def f(x: Any) -> Any:
        return x * (2 if type(x.shape[0]) is int and isinstance(x.shape[0], int) else 3)

    graph = weft.make_graph(f)(weft.TensorType(("n",), weft.float32))
    assert graph(weft.ones(2)).tolist() == [2.0, 2.0]


def test_an_axis_of_an_open_size_is_not_squeezed_away() -> None:
    with pytest.raises(ShapeError, match="must be of size 1"):
        weft.make_graph(lambda x: x.squeeze(0))(weft.TensorType(("n", 3), weft.float32))
    graph = weft.make_graph(lambda x: x.squeeze(1))(weft.TensorType(("n", 3), weft.float32))
    assert graph(weft.ones((1, 3))).shape == (1, 3)

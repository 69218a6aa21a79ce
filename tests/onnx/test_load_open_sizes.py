"""Open sizes of a model: what a weight or another input fixes, and numbers that only a run tells."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

import weft
from tests.onnx.models import BACKENDS, check, floats, parse
from weft.errors import CaptureError, ShapeError
from weft.onnx.operators.registry import UnknownValueError

INT = np.int64


def weight(name: str, *shape: int) -> tuple[str, Any]:
    """An initializer as text, and its array."""
    array = floats(*shape)
    return (
        f"float[{','.join(map(str, shape))}] {name} = {{{', '.join(map(repr, map(float, array.flat)))}}}",
        array,
    )


def model(signature: str, weights: dict[str, tuple[int, ...]], body: str, opset: int = 20) -> Any:
    held = ", ".join(weight(name, *shape)[0] for name, shape in weights.items())
    header = f'<ir_version: 10, opset_import: ["": {opset}]>'
    return parse(f"f {signature} {f'<{held}>' if held else ''} {{ {body} }}", header)


# Sizes that the model itself fixes: inputs, weights, nodes, what x is fed, and what its type is then

FIXED: dict[str, tuple[str, dict[str, tuple[int, ...]], str, tuple[int, ...], str]] = {
    "conv": ("float[N,C,H,W]", {"w": (2, 3, 2, 1)}, "y = Conv (x, w)", (2, 3, 4, 5), "f32[N,3,H,W]"),
    "conv in groups": (
        "float[N,C,H]", {"w": (4, 2, 2)}, "y = Conv <group = 2> (x, w)", (2, 4, 4), "f32[N,4,H]",
    ),
    "conv transpose": ("float[N,C,H]", {"w": (3, 2, 2)}, "y = ConvTranspose (x, w)", (2, 3, 4), "f32[N,3,H]"),
    "gemm": ("float[N,K]", {"w": (3, 2), "b": (2,)}, "y = Gemm (x, w, b)", (4, 3), "f32[N,3]"),
    "gemm, both transposed": (
        "float[K,N]", {"w": (2, 3), "b": (2,)}, "y = Gemm <transA = 1, transB = 1> (x, w, b)",
        (3, 4), "f32[3,N]",
    ),
    "matmul": ("float[B,N,K]", {"w": (3, 2)}, "y = MatMul (x, w)", (2, 4, 3), "f32[B,N,3]"),
    "matmul of twice": (
        "float[N,K]", {"w": (6, 2)}, "h = Concat <axis = 1> (x, x) y = MatMul (h, w)", (4, 3), "f32[N,3]",
    ),
    "two weights": (
        "float[N,C,H]", {"w": (2, 3, 1), "v": (4, 2)}, "h = Conv (x, w) y = MatMul (h, v)",
        (1, 3, 4), "f32[N,3,4]",
    ),
    "einsum": ("float[N,C]", {"w": (3, 2)}, 'y = Einsum <equation = "nc,co->no"> (x, w)', (2, 3), "f32[N,3]"),
    "lstm": (
        "float[T,B,I]", {"w": (1, 8, 3), "r": (1, 8, 2)}, "y = LSTM <hidden_size = 2> (x, w, r)", (4, 2, 3),
        "f32[T,B,3]",
    ),
    "gru": (
        "float[T,B,I]", {"w": (1, 6, 3), "r": (1, 6, 2)}, "y = GRU <hidden_size = 2> (x, w, r)", (4, 2, 3),
        "f32[T,B,3]",
    ),
    "layer norm": (
        "float[N,C]", {"w": (3,), "b": (3,)}, "y = LayerNormalization (x, w, b)", (4, 3), "f32[N,3]",
    ),
    "instance norm": (
        "float[N,C,H]", {"w": (3,), "b": (3,)}, "y = InstanceNormalization (x, w, b)",
        (4, 3, 5), "f32[N,3,H]",
    ),
    "batch norm": (
        "float[N,C]", {"w": (3,), "b": (3,), "m": (3,)},
        "v = Exp (b) y = BatchNormalization (x, w, b, m, v)", (4, 3), "f32[N,3]",
    ),
    "bias": ("float[N,C]", {"b": (3,)}, "y = Add (x, b)", (4, 3), "f32[N,3]"),
    "slopes": ("float[N,C,H]", {"s": (3, 1)}, "y = PRelu (x, s)", (4, 3, 2), "f32[N,3,H]"),
    "concat": ("float[N,C]", {"b": (1, 3)}, "y = Concat <axis = 0> (x, b)", (4, 3), "f32[N,3]"),
    "squeeze": (
        "float[N,C]", {}, "a = Constant <value_ints = [1]> () y = Squeeze (x, a)", (4, 1), "f32[N,1]",
    ),
    "reshape": (
        "float[N,C]", {}, "s = Constant <value_ints = [0, 2, 3]> () y = Reshape (x, s)", (4, 6), "f32[N,6]",
    ),
    "split": (
        "float[N,C]", {}, "s = Constant <value_ints = [2, 3]> () y, z = Split <axis = 1> (x, s)",
        (4, 5), "f32[N,5]",
    ),
}  # fmt: skip


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", FIXED)
def test_a_size_that_the_model_fixes_is_no_longer_open(name: str) -> None:
    shape, weights, body, fed, kind = FIXED[name]
    made = model(f"({shape} x) => (float y)", weights, body)
    del made.graph.output[0].type.tensor_type.shape.dim[:]
    made.graph.output[0].type.tensor_type.ClearField("shape")
    graph = weft.onnx.load(made)
    assert str(graph.inputs[0].type) == kind
    check(made, graph, {"x": floats(*fed)}, 1e-4)
    free = [axis for axis, size in enumerate(graph.inputs[0].type.shape) if isinstance(size, int)]
    wrong = [n + 1 if axis in free else n for axis, n in enumerate(fed)]
    with pytest.raises(ShapeError, match=r"feed: x .*must be fed"):
        graph.run(graph.outputs, {"x": floats(*wrong)})


def test_group_norm_of_open_channels_has_those_of_its_scale() -> None:
    made = model("(float[N,C,H] x) => (float[N,C,H] y)", {"w": (4,), "b": (4,)},
                 "y = GroupNormalization <num_groups = 2> (x, w, b)", 21)  # fmt: skip
    graph = weft.onnx.load(made)
    assert str(graph.inputs[0].type) == "f32[N,4,H]"
    check(made, graph, {"x": floats(3, 4, 5)}, 1e-4)


def test_sizes_of_two_inputs_that_must_agree_are_one() -> None:
    made = model("(float[N,K] x, float[M,O] z) => (float[N,O] y)", {}, "y = MatMul (x, z)")
    graph = weft.onnx.load(made)
    assert [str(v.type) for v in graph.inputs] == ["f32[N,K]", "f32[K,O]"]
    check(made, graph, {"x": floats(4, 3), "z": floats(3, 2)}, 1e-4)
    with pytest.raises(ShapeError, match=r"feed: z .*must be fed"):
        graph.run(graph.outputs, {"x": floats(4, 3), "z": floats(2, 2)})


def test_a_size_that_the_caller_fixed_stays_so() -> None:
    made = model("(float[N,C] x) => (float[N,O] y)", {"w": (3, 2)}, "y = MatMul (x, w)")
    assert str(weft.onnx.load(made, sizes={"C": 3}).inputs[0].type) == "f32[N,3]"
    with pytest.raises(ShapeError, match="inner dimensions must agree"):
        weft.onnx.load(made, sizes={"C": 4})
    fixed = model("(float[N,4] x) => (float[N,O] y)", {"w": (3, 2)}, "y = MatMul (x, w)")
    with pytest.raises(ShapeError, match="inner dimensions must agree"):
        weft.onnx.load(fixed)


# Numbers that only a run tells

TOLD: dict[str, tuple[str, str, list[dict[str, Any]]]] = {
    "top k": (
        "(float[N,M] x, int64[1] k) => (float[N,K] y, int64[N,K] z)", "y, z = TopK (x, k)",
        [{"x": (3, 5), "k": [2]}, {"x": (2, 4), "k": [4]}, {"x": (2, 4), "k": [0]}],
    ),
    "slice": (
        "(float[N,M] x, int64[2] a, int64[2] b) => (float[K,L] y)", "y = Slice (x, a, b)",
        [{"x": (6, 5), "a": a, "b": b} for a, b in (
            ([1, 0], [4, 5]), ([-3, -100], [100, -1]), ([4, 2], [2, 3]), ([0, 9], [6, 12]))],
    ),
    "start alone": (
        "(float[N,M] x, int64[1] a) => (float[K,M] y)",
        "e = Constant <value_ints = [9223372036854775807]> () y = Slice (x, a, e)",
        [{"x": (6, 2), "a": [2]}, {"x": (6, 2), "a": [-2]}, {"x": (1, 2), "a": [5]}],
    ),
    "every second": (
        "(float[N,M] x, int64[1] a, int64[1] b) => (float[N,K] y)",
        "i = Constant <value_ints = [1]> () s = Constant <value_ints = [2]> () y = Slice (x, a, b, i, s)",
        [{"x": (2, 7), "a": [1], "b": [6]}, {"x": (2, 7), "a": [-6], "b": [50]}],
    ),
    "backwards": (
        "(float[N,M] x, int64[1] a, int64[1] b) => (float[N,K] y)",
        "i = Constant <value_ints = [1]> () s = Constant <value_ints = [-2]> () y = Slice (x, a, b, i, s)",
        [{"x": (2, 7), "a": a, "b": b} for a, b in (
            ([6], [1]), ([-1], [-100]), ([50], [2]), ([2], [5]), ([-2], [-6]))],
    ),
    "reshape": (
        "(float[N,M] x, int64[3] s) => (float[A,B,C] y)", "y = Reshape (x, s)",
        [{"x": (6, 4), "s": s} for s in ([2, 3, 4], [-1, 2, 4], [0, 2, -1], [1, 24, 1])],
    ),
    "reshape, partly told": (
        "(float[N,M] x, int64[1] s) => (float[A,B] y)",
        "r = Constant <value_ints = [-1]> () t = Concat <axis = 0> (s, r) y = Reshape (x, t)",
        [{"x": (6, 4), "s": [3]}, {"x": (2, 2), "s": [4]}],
    ),
    "expand": (
        "(float[N,1] x, int64[2] s) => (float[A,B] y)", "y = Expand (x, s)", [{"x": (6, 1), "s": [6, 4]}],
    ),
    "tile": (
        "(float[N,M] x, int64[2] s) => (float[A,B] y)", "y = Tile (x, s)",
        [{"x": (2, 3), "s": [3, 2]}, {"x": (2, 3), "s": [1, 0]}],
    ),
    "range": (
        "(int64 a, int64 b, int64 d) => (int64[K] y)", "y = Range (a, b, d)",
        [{"a": a, "b": b, "d": d} for a, b, d in ((0, 5, 1), (3, -5, -2), (2, 2, 1), (1, 10, 4), (5, 1, 1))],
    ),
    "filled": ("(int64[2] s) => (float[A,B] y)", "y = ConstantOfShape (s)", [{"s": [2, 3]}, {"s": [0, 3]}]),
    "depth": (
        "(int64[N] x, int64 d, float[2] values) => (float[N,K] y)", "y = OneHot (x, d, values)",
        [{"x": [0, 2, -1], "d": 4, "values": (2,)}],
    ),
    "pads": (
        "(float[N,M] x, int64[4] p, float v) => (float[A,B] y)", "y = Pad (x, p, v)",
        [{"x": (2, 3), "p": [0, 1, 2, 0], "v": ()}, {"x": (0, 3), "p": [1, 0, 0, 2], "v": ()}],
    ),
    "mirrored": (
        "(float[N,M] x, int64[4] p) => (float[A,B] y)", 'y = Pad <mode = "reflect"> (x, p)',
        [{"x": (4, 3), "p": [0, 1, 2, 2]}],
    ),
    "edges": (
        "(float[N,M] x, int64[4] p) => (float[A,B] y)", 'y = Pad <mode = "edge"> (x, p)',
        [{"x": (4, 3), "p": [0, 3, 2, 2]}],
    ),
    "split": (
        "(float[N,M] x, int64[2] s) => (float[A,M] y, float[B,M] z)", "y, z = Split (x, s)",
        [{"x": (5, 3), "s": [2, 3]}, {"x": (5, 3), "s": [5, 0]}],
    ),
    "diagonal": (
        "(float[N,M] x, int64 k) => (float[N,M] y)", "y = Trilu (x, k)",
        [{"x": (4, 3), "k": 1}, {"x": (4, 3), "k": -2}],
    ),
    "axis": (
        "(float[N,M] x, int64 k) => (float[N,M] y)", "y = CumSum (x, k)",
        [{"x": (4, 3), "k": 0}, {"x": (4, 3), "k": -1}],
    ),
    "sizes": (
        "(float[1,1,H,W] x, int64[4] s) => (float[A,B,C,D] y)", 'y = Resize <mode = "linear"> (x, , , s)',
        [{"x": (1, 1, 3, 4), "s": [1, 1, 6, 5]}],
    ),
    "value of a border": (
        "(float[N,M] x, float v) => (float[A,B] y)",
        "p = Constant <value_ints = [0, 1, 2, 0]> () y = Pad (x, p, v)",
        [{"x": (2, 3), "v": ()}],
    ),
    "boxes": (
        "(float[1,B,4] b, float[1,2,B] s, int64[1] m, float[1] i) => (int64[K,3] y)",
        "y = NonMaxSuppression (b, s, m, i)", [{"b": (1, 6, 4), "s": (1, 2, 6), "m": [2], "i": 0.5}],
    ),
}  # fmt: skip


def _fed(item: Any) -> Any:
    if isinstance(item, float):
        return np.array([item], np.float32)
    return floats(*item) if isinstance(item, tuple) else np.array(item, INT)


@pytest.mark.rotating(4)
@pytest.mark.parametrize("name", TOLD)
def test_a_number_that_a_run_tells_decides_a_shape(name: str) -> None:
    signature, body, cases = TOLD[name]
    made = model(signature, {}, body)
    graph = weft.onnx.load(made)
    checked = weft.Session(graph, "llvm", debug=True)  # every size is told before it is asked for
    for case in cases:
        feeds = {key: _fed(item) for key, item in case.items()}
        check(made, graph, feeds, 1e-4)
        for found, value in zip(checked.run(list(graph.outputs), feeds), graph.outputs, strict=True):
            assert found.ndim == len(value.type.shape)


def test_a_shape_that_does_not_hold_the_elements_is_an_error() -> None:
    graph = weft.onnx.load(model("(float[N,M] x, int64[2] s) => (float[A,B] y)", {}, "y = Reshape (x, s)"))
    for backend in BACKENDS:
        for shape in ([2, 2], [4, 4], [5, -1]):
            with pytest.raises(weft.errors.WeftError):
                weft.Session(graph, backend).run(
                    list(graph.outputs), {"x": floats(2, 3), "s": np.array(shape, INT)}
                )


def test_an_import_that_fails_says_which_number_it_left_to_the_run() -> None:
    made = model(
        "(float[4] x, int64[1] k) => (float[n] y)", {},
        "s = Shape (x) t = Add (k, s) a = ConstantOfShape (t) b = Expand (a, t) y = Add (b, x)",
    )  # fmt: skip
    with pytest.raises(UnknownValueError, match=r"input of ConstantOfShape node 'a'(.*\n)*.*known={'k'"):
        weft.onnx.load(made)
    assert weft.onnx.load(made, known={"k": [0]})(weft.ones(4)).shape == (4,)


def test_gradients_flow_through_what_a_run_cuts_out() -> None:
    graph = weft.onnx.load(
        model(
            "(float[N,M] x, int64[1] a, int64[1] b) => (float[K,M] y)", {}, "h = Slice (x, a, b) y = Exp (h)"
        )
    )
    array = floats(5, 2)
    x = weft.tensor(array, requires_grad=True)
    graph(x, weft.tensor([1]), weft.tensor([3])).sum().backward()
    wanted = np.zeros_like(array)
    wanted[1:3] = np.exp(array[1:3])
    np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=1e-5)


# Lengths of sequences, elements that may be none, loops that may not run: as onnxruntime has them


def check_with_runtime(made: Any, feeds: dict[str, Any]) -> weft.Graph:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    wanted = onnxruntime.InferenceSession(made.SerializeToString(), options).run(None, feeds)
    graph = weft.onnx.load(made)
    for backend in BACKENDS:
        found = weft.Session(graph, backend).run(list(graph.outputs), feeds)
        for a, b in zip(found, wanted, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_allclose(a.numpy(), b, rtol=1e-4, atol=1e-5)
    return graph


@pytest.mark.rotating(4)
@pytest.mark.parametrize("batch", ["B", "2"])
@pytest.mark.parametrize("lengths", ["B", "2", "L"])
@pytest.mark.parametrize(("layer", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_lengths_of_sequences_may_be_of_any_open_size(
    batch: str, lengths: str, layer: str, gates: int
) -> None:
    made = model(
        f"(float[T,{batch},I] x, int32[{lengths}] n) => (float[T2,D,B2,H] y, float[D,B2,H] last)",
        {"w": (2, gates * 2, 3), "r": (2, gates * 2, 2)},
        f'y, last = {layer} <hidden_size = 2, direction = "bidirectional"> (x, w, r, , n)',
    )
    check_with_runtime(made, {"x": floats(4, 2, 3), "n": np.array([3, 4], np.int32)})


def test_a_carry_of_another_size_is_an_error_that_names_the_node() -> None:
    made = model(
        "(float[4,2,3] x, int32[3] n) => (float[T,D,B,H] y)", {"w": (1, 8, 3), "r": (1, 8, 2)},
        "y = LSTM <hidden_size = 2> (x, w, r, , n)",
    )  # fmt: skip
    with pytest.raises((ShapeError, CaptureError), match="LSTM node 'y'"):
        weft.onnx.load(made)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("kind", ["float", "double", "float16", "int64", "uint8", "int8", "bool"])
def test_extremes_over_an_open_size_that_is_0_are_those_of_the_dtype(kind: str) -> None:
    dtype = np.dtype({"float": "float32", "double": "float64"}.get(kind, kind))
    for op in ("ReduceMax", "ReduceMin"):
        made = parse(
            f"f ({kind}[N,M] x) => ({kind}[M] y) <int64[1] a = {{0}}> {{ y = {op} <keepdims = 0> (x, a) }}"
        )
        graph = weft.onnx.load(made)
        for rows in (0, 1, 3):
            x = floats(rows, 4) * 3
            x = x.astype(np.int64) if dtype.kind == "u" else x  # negative ones wrap, without a warning on ARM
            check(made, graph, {"x": x.astype(dtype)})


@pytest.mark.rotating(3)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_hardmax_of_open_sizes(axis: int) -> None:
    made = parse(f"f (float[N,M] x) => (float[N,M] y) {{ y = Hardmax <axis = {axis}> (x) }}")
    graph = weft.onnx.load(made)
    tied = np.array([[1, 3, 3], [-np.inf] * 3, [2, 1, 0]], np.float32)
    for x in (tied, tied[:1], floats(4, 2)):
        check(made, graph, {"x": x})
    for shape in ((0, 3), (3, 0)):
        for backend in BACKENDS:
            found = weft.Session(graph, backend).run(graph.outputs[0], {"x": floats(*shape)})
            assert found.shape == shape


LOOP = """
f (float[3] x{n}) => (float[K] y, float[L,3] z) {held} {{
  c = Constant <value_int = {going}> ()
  t = Cast <to = 9> (c)
  y, z = Loop (n, t, x) <body = b (int64 i, bool g, float[A] s) =>
    (bool again, float[B] after, float[3] row) {{
    again = Identity (g)
    after = {step}
    row = Neg (x)
  }}>
}}
"""


@pytest.mark.parametrize("step", ["Exp (s)", "Concat <axis = 0> (s, s)"])
@pytest.mark.parametrize(("rounds", "going"), [(0, 1), (1, 1), (0, 0), (5, 0)])
def test_a_loop_of_a_known_count_may_run_not_once(step: str, rounds: int, going: int) -> None:
    made = parse(LOOP.format(n="", held=f"<int64 n = {{{rounds}}}>", going=going, step=step))
    check_with_runtime(made, {"x": floats(3)})


def test_a_loop_of_a_count_that_a_run_tells_may_run_not_once() -> None:
    made = parse(LOOP.format(n=", int64 n", held="", going=1, step="Exp (s)"))
    for rounds in (0, 2):
        check_with_runtime(made, {"x": floats(3), "n": np.array(rounds)})

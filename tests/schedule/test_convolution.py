"""Convolutions by way of loops: small ones interpreted, larger ones compiled, all against the op's kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.of_code import examples
from tests.schedule.lowered import assert_same, graph_of, lowered, sized, variants
from weft.backends.llvm.driver import build_executable
from weft.ir.types import TensorType
from weft.loop.interpret import run_function
from weft.loop.ir import Buffer, Function
from weft.ops.conv.primitive import conv
from weft.schedule.arrays import Array
from weft.schedule.cpu.convolution.lowering import lower_conv
from weft.schedule.cpu.convolution.plan import Convolution, prefers_positions
from weft.schedule.cpu.epilogues import Epilogue
from weft.schedule.cpu.machine import Machine
from weft.schedule.writer import Writer

SAMPLES = conv.samples()
FLOAT = np.dtype("f4")


def random_array(*shape: int, dtype: Any = "f8") -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def attributes(
    rank: int, stride: Any = 1, padding: Any = 0, dilation: Any = 1, input_dilation: Any = 1, groups: int = 1
) -> dict[str, Any]:
    """Attributes of ``conv``, from one number for all axes or one for each."""
    each = {"stride": stride, "padding": padding, "dilation": dilation, "input_dilation": input_dilation}
    out: dict[str, Any] = {k: v if isinstance(v, tuple) else (v,) * rank for k, v in each.items()}
    out["padding"] = tuple(p if isinstance(p, tuple) else (p, p) for p in out["padding"])
    return {**out, "groups": groups}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("number", range(len(SAMPLES)))
def test_samples_give_what_the_kernel_gives(number: int, turned: bool) -> None:
    sample = SAMPLES[number]
    arrays = [np.asarray(a) for a in sample.inputs]
    expected = conv.eval(*arrays, **sample.attrs)
    assert_same(lowered("conv", arrays, sample.attrs, turned=turned), expected)


def test_every_dtype_gives_what_the_kernel_gives() -> None:
    for x, w in variants([random_array(2, 3, 6) * 2, random_array(4, 3, 3) * 2]):
        if x.dtype != np.bool_:
            assert_same(
                lowered("conv", [x, w], attributes(1, padding=1)), conv.eval(x, w, **attributes(1, padding=1))
            )


@st.composite
def convolutions(draw: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Small arrays and attributes of any kind."""
    rank = draw(st.integers(1, 3))
    few = st.integers(1, 2)
    taps = [draw(st.integers(1, 3)) for _ in range(rank)]
    dilation = tuple(draw(few) for _ in range(rank))
    spread = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    padding = tuple((draw(st.integers(-1, 2)), draw(st.integers(-1, 2))) for _ in range(rank))
    sizes = [draw(st.integers(3, 5 if rank > 2 else 7)) for _ in range(rank)]
    groups = draw(few)
    n, c, o = draw(few), draw(few), draw(st.integers(1, 3))
    attrs = attributes(rank, tuple(draw(few) for _ in range(rank)), padding, dilation, spread, groups)
    return random_array(n, c * groups, *sizes), random_array(o * groups, c, *taps), attrs


@given(convolutions())
@examples(60, 20)
def test_any_attributes_give_what_the_kernel_gives(case: tuple[Any, Any, dict[str, Any]]) -> None:
    x, w, attrs = case
    assert_same(lowered("conv", [x, w], attrs), conv.eval(x, w, **attrs))


@pytest.mark.rotating(3)
@pytest.mark.parametrize("names", [{2: "batch"}, {7: "height"}, {2: "batch", 7: "height", 6: "width"}])
@pytest.mark.parametrize("padding", [0, 1])
def test_named_sizes_may_be_of_the_batch_and_of_the_image(names: dict[int, str], padding: int) -> None:
    x, w = random_array(2, 3, 7, 6), random_array(4, 3, 3, 3)
    attrs = attributes(2, padding=padding)
    assert_same(sized("conv", [x, w], attrs, names), conv.eval(x, w, **attrs))


CASES = [
    ((4, 16, 14, 14), (24, 16, 3, 3), attributes(2, padding=1)),
    ((4, 16, 15, 15), (24, 16, 3, 3), attributes(2, stride=2, padding=1)),
    ((2, 3, 40, 40), (16, 3, 7, 7), attributes(2, stride=2, padding=3)),
    ((2, 32, 20, 20), (32, 1, 3, 3), attributes(2, padding=1, groups=32)),
    ((2, 32, 20, 20), (32, 1, 3, 3), attributes(2, stride=2, padding=1, groups=32)),
    ((4, 64, 9, 9), (48, 64, 1, 1), attributes(2)),
    ((2, 8, 200), (16, 8, 5), attributes(1, padding=2, dilation=2)),
    ((1, 4, 8, 9, 10), (6, 4, 3, 3, 3), attributes(3, padding=1)),
    ((2, 16, 7, 7), (16, 16, 3, 3), attributes(2, padding=((1, 2), (2, 1)), input_dilation=2)),
    ((8, 20, 26, 26), (16, 20, 24, 24), attributes(2)),
    ((3, 8, 60, 60), (5, 8, 57, 57), attributes(2)),
    ((2, 300, 5, 5), (300, 300, 3, 3), attributes(2, padding=1)),
    ((1, 6, 250, 250), (8, 6, 3, 3), attributes(2, padding=1)),
]


@pytest.mark.rotating(3)
@pytest.mark.parametrize(("x_shape", "w_shape", "attrs"), CASES)
def test_compiled_convolutions_are_as_the_kernels(x_shape: Any, w_shape: Any, attrs: Any) -> None:
    x, w = random_array(*x_shape, dtype="f4"), random_array(*w_shape, dtype="f4")
    graph = graph_of(conv, [TensorType(x_shape, FLOAT), TensorType(w_shape, FLOAT)], attrs)
    (out,) = build_executable(graph)([x, w])
    expected = conv.eval(x, w, **attrs)
    near = 2e-7 * np.prod(w_shape[1:]) ** 0.5  # rounding errors of a sum grow like a random walk
    np.testing.assert_allclose(out, expected, rtol=0, atol=near * abs(expected).max())


@pytest.mark.rotating(4)
@pytest.mark.parametrize(
    ("x_shape", "w_shape"),
    [
        ((2, 3, 8, 8), ("o", 3, 3, 3)),
        ((2, "c", 8, 8), (5, "c", 3, 3)),
        (("n", "c", 30, 30), ("o", "c", 3, 3)),
        ((2, 8, 20), ("o", 8, 5)),
    ],
)
@pytest.mark.parametrize("padding", [0, 1])
def test_compiled_convolutions_with_open_channels_are_as_the_kernels(
    x_shape: Any, w_shape: Any, padding: int
) -> None:
    values = {"o": 5, "c": 6, "n": 3}
    arrays = [random_array(*[values.get(s, s) for s in shape], dtype="f4") for shape in (x_shape, w_shape)]
    attrs = attributes(len(x_shape) - 2, padding=padding)
    function = weft.conv2d if len(x_shape) == 4 else weft.conv1d
    types = [weft.TensorType(shape, weft.float32) for shape in (x_shape, w_shape)]
    graph = weft.make_graph(lambda x, w: function(x, w, padding=padding))(*types)
    (out,) = build_executable(graph.optimize())(arrays)
    np.testing.assert_allclose(out, conv.eval(*arrays, **attrs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stride", [1, 2])
def test_gradients_compile(stride: int) -> None:
    x, w = random_array(4, 6, 12, 12, dtype="f4"), random_array(8, 6, 3, 3, dtype="f4")

    def gradients(x: Any, w: Any) -> Any:
        out, pull = weft.vjp(lambda x, w: weft.conv2d(x, w, stride=stride, padding=1), x, w)
        return pull(out)

    graph = weft.make_graph(gradients)(weft.tensor(x), weft.tensor(w)).optimize()
    eager = gradients(weft.tensor(x), weft.tensor(w))
    for actual, expected in zip(build_executable(graph)([x, w]), eager, strict=True):
        np.testing.assert_allclose(actual, expected.numpy(), rtol=1e-4, atol=1e-3)


def test_results_do_not_depend_on_threads() -> None:
    threads = weft.get_num_threads()
    try:
        for x_shape, w_shape, attrs in CASES[:2] + CASES[9:10]:
            graph = graph_of(conv, [TensorType(x_shape, FLOAT), TensorType(w_shape, FLOAT)], attrs)
            run, outs = build_executable(graph), []
            arrays = [random_array(*x_shape, dtype="f4"), random_array(*w_shape, dtype="f4")]
            for count in (1, 2):
                weft.set_num_threads(count)
                outs.append(run(arrays)[0])
            np.testing.assert_array_equal(*outs)
    finally:
        weft.set_num_threads(threads)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("stride", [1, 2])
def test_tail_gets_every_element_once(stride: int) -> None:
    attrs = attributes(2, stride=stride, padding=1)
    x, w, bias = random_array(2, 3, 6, 6), random_array(5, 3, 3, 3), random_array(5)
    expected = conv.eval(x, w, **attrs) + bias[:, None, None]
    writer = Writer()
    shapes = {"x": x.shape, "w": w.shape, "bias": bias.shape, "out": expected.shape, "twice": expected.shape}
    arrays = {k: Array(Buffer(k, x.dtype, int(np.prod(s))), s) for k, s in shapes.items()}

    def finish(b: Any, reads: Any, writes: Any, index: Any, value: Any) -> None:
        value = b.add(value, b.load(reads[0].buffer, reads[0].at(index[1])))
        b.store(writes[0].buffer, writes[0].at(*index), value)
        b.store(writes[1].buffer, writes[1].at(*index), b.mul(value, 2.0))

    epilogue = Epilogue([arrays["bias"]], [arrays["out"], arrays["twice"]], finish)
    lower_conv(writer, arrays["x"], arrays["w"], arrays["out"], attrs, epilogue)
    buffers = [*[a.buffer for a in arrays.values()], *writer.temporaries]
    main = Function("main", tuple(buffers), (), writer.main.block, frozenset(buffers[3:]))
    memory = [x.ravel(), w.ravel(), bias, *[np.zeros(b.size, b.dtype) for b in buffers[3:]]]
    run_function(main, memory)
    np.testing.assert_allclose(memory[3].reshape(expected.shape), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(memory[4], memory[3] * 2)


def plan(x: Any, w: Any, out: Any, attrs: Any) -> bool:
    arrays = [Array(Buffer("b", FLOAT, int(np.prod(s))), s) for s in (x, w, out)]
    return prefers_positions(Convolution.of(*arrays, attrs), Machine())


def test_images_have_positions_in_lanes() -> None:
    assert plan((64, 32, 26, 26), (64, 32, 3, 3), (64, 64, 24, 24), attributes(2))


def test_gradients_by_weights_have_channels_in_lanes() -> None:
    assert not plan((32, 64, 26, 26), (64, 64, 24, 24), (32, 64, 3, 3), attributes(2))

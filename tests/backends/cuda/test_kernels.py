"""``weft.cuda.kernel``: kernels of the user, eagerly, as custom ops, in compiled programs and graphs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.emulated import EmulatedDriver, emulated
from weft.backends.cuda import kernels
from weft.backends.cuda.kernels import parameters_of
from weft.errors import ArgumentError, DeviceError, DomainError, GradientError

SCALE = """.version 8.0
.target sm_80
.address_size 64

.visible .entry scale(.param .u64 scale_param_0, .param .u64 scale_param_1, .param .f32 scale_param_2,
  .param .u32 scale_param_3)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .f32 %f<4>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [scale_param_0];
  ld.param.u64 %rd2, [scale_param_1];
  ld.param.f32 %f1, [scale_param_2];
  ld.param.u32 %r1, [scale_param_3];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra DONE;
  mul.wide.u32 %rd3, %r5, 4;
  add.s64 %rd4, %rd1, %rd3;
  ld.global.f32 %f2, [%rd4];
  mul.rn.f32 %f3, %f2, %f1;
  add.s64 %rd5, %rd2, %rd3;
  st.global.f32 [%rd5], %f3;
DONE:
  ret;
}
"""


@pytest.fixture
def card() -> Iterator[EmulatedDriver]:
    with emulated() as found:
        yield found


def scale() -> Any:
    return weft.cuda.kernel(
        SCALE,
        "scale",
        out=lambda x, *, factor=2.0: x,
        arguments=lambda x, y, factor: (x, y, factor, x.size),
        block=32,
    )


def test_kernel_runs_on_tensors_of_any_layout(card: EmulatedDriver) -> None:
    k = scale()
    x = np.random.default_rng(0).standard_normal((7, 11)).astype(np.float32)
    there = weft.tensor(x, device="cuda")
    for take in (lambda t: t, lambda t: t.T, lambda t: t[1:, ::2], lambda t: t[:0]):
        found = k(take(there), factor=3.0)
        assert found.device == "cuda"
        np.testing.assert_array_equal(found.cpu().numpy(), take(x) * np.float32(3.0))
    assert k(there).tolist() == (x * np.float32(2.0)).tolist()
    np.testing.assert_array_equal(there.cpu().numpy(), x)
    assert not card.errors


def test_kernel_in_compiled_functions_is_a_part_of_their_graph(card: EmulatedDriver) -> None:
    k = scale()

    @weft.compile
    def f(x: Any) -> Any:
        return k(weft.tanh(x), factor=3.0) + 1.0

    x = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    there = weft.tensor(x, device="cuda")
    card.calls.clear()
    for _ in range(4):
        np.testing.assert_allclose(f(there).cpu().numpy(), np.tanh(x) * 3.0 + 1.0, rtol=1e-5)
    assert "cuGraphLaunch" in card.names()
    names = [card.functions[int(c[4].func)] for c in card.calls if c[0] == "cuGraphAddKernelNode"]
    assert "scale" in names


@pytest.mark.rotating(2)
def test_kernel_in_a_branch_and_in_a_captured_graph(card: EmulatedDriver) -> None:
    k = scale()
    f = weft.compile(lambda x: weft.cond(x.sum() > 0.0, lambda x: k(x, factor=3.0), lambda x: x - 1.0, x))
    for sign in (1.0, -1.0):
        x = weft.full((5,), sign, device="cuda")
        assert f(x).tolist() == [3.0 if sign > 0 else -2.0] * 5
    x = weft.ones(5, device="cuda")
    with weft.cuda.graph() as g:
        y = k(x + 1.0, factor=5.0)
    x.copy_(weft.zeros(5, device="cuda"))
    g.replay()
    assert y.tolist() == [5.0] * 5


def test_custom_op_has_a_kernel_for_each_device_and_a_gradient(card: EmulatedDriver) -> None:
    ran: list[str] = []

    @weft.custom_op(
        "test_cuda::scale",
        type_rule=lambda x, *, factor: x,
        gradient=lambda g, factor: timed(g, factor=factor),
        cuda=weft.cuda.kernel(SCALE, "scale", arguments=lambda x, y, factor: (x, y, factor, x.size)),
        batch="leading",
        replace=True,
    )
    def timed(x: Any, *, factor: float = 2.0) -> Any:
        ran.append("host")
        return x * np.float32(factor)

    for device, host in (("cpu", True), ("cuda", False)):
        ran.clear()
        x: Any = weft.ones(2, 3, device=device).requires_grad_()
        timed(x, factor=4.0).sum().backward()
        assert x.grad.tolist() == [[4.0] * 3] * 2
        assert weft.vmap(lambda t: timed(t, factor=3.0))(x.detach()).tolist() == [[3.0] * 3] * 2
        assert weft.compile(lambda t: timed(t) + 1.0)(x.detach()).tolist() == [[3.0] * 3] * 2
        assert bool(ran) is host
    weft.remove_custom_op("test_cuda::scale")


def test_parameters_by_ptx_and_by_the_source() -> None:
    assert parameters_of(SCALE, "scale") == ("u64", "u64", "f32", "u32")
    text = ".entry f(\n .param .u64 .ptr .global .align 4 f_0,\n .param .b32 f_1, .param .b64 f_2\n)"
    source = 'extern "C" __global__ void f(const float* x, float a /* b */, long long n) {}'
    assert parameters_of(text, "f") == ("u64", "b32", "b64")
    assert parameters_of(text, "f", source) == ("*f32", "f32", "s64")
    for told, kind in (
        ("const unsigned char *__restrict__ x", "*u8"), ("__half* x", "*f16"), ("float2* x", "*"),
        ("float** x", "*"), ("int x[]", "*s32"), ("unsigned int* x", "*u32"),
    ):  # fmt: skip
        assert parameters_of(".entry f(.param .u64 f_0)", "f", f"void f({told}) {{}}") == (kind,)
    with pytest.raises(ArgumentError, match=r"must have a kernel 'g', got f(.|\n)*extern"):
        parameters_of(text, "g", source)
    with pytest.raises(ArgumentError, match=r"pointers or numbers, got \.param \.align 8 \.b8 f_0\[16\]"):
        parameters_of(".entry f(.param .align 8 .b8 f_0[16])", "f")


GIVEN: Any = {
    "out": lambda x, *, factor: x,
    "arguments": lambda x, y, factor: (x, y, factor, x.size),
}
WRONG: list[tuple[Any, Any, str]] = [
    (lambda x, y, factor: (x, y, factor), ArgumentError, "takes 4 parameters, got 3"),
    (lambda x, y, factor: (x, y, x, x.size), ArgumentError, r"an array must go to a pointer, got .* \.f32"),
    (lambda x, y, factor: (x, y, factor, 1.5), ArgumentError, r"must be whole for a parameter \.u32"),
    (lambda x, y, factor: (x, y, factor, -1), DomainError, r"must fit a parameter \.u32, got -1"),
    (lambda x, y, factor: (x, y, factor, "n"), ArgumentError, "an array or a number, got str"),
]


def test_wrong_arguments_are_errors_with_the_line(card: EmulatedDriver) -> None:
    x = weft.ones(3, device="cuda")
    for arguments, error, text in WRONG:
        k = weft.cuda.kernel(SCALE, "scale", out=lambda x, *, factor: x, arguments=arguments)
        with pytest.raises(error, match=text) as raised:
            k(x, factor=2.0)
        assert "test_kernels.py" in str(raised.value)
    with pytest.raises(DeviceError, match="tensors must be on a GPU"):
        scale()(weft.ones(3))
    with pytest.raises(ArgumentError, match="must say the types of its results"):
        weft.cuda.kernel(SCALE, "scale")(x)
    for block in ((64, 64), 0, (0, 4)):
        with pytest.raises(DomainError, match="has 1 to 1024 threads"):
            weft.cuda.kernel(SCALE, "scale", block=block)
    for shared in (-4, 1.5, lambda *given, factor: -1):
        with pytest.raises(ArgumentError, match="shared must be a number of bytes"):
            weft.cuda.kernel(SCALE, "scale", shared=shared, **GIVEN)(x, factor=2.0)
    with pytest.raises(ArgumentError, match="must have a kernel 'skale', got scale"):
        weft.cuda.kernel(SCALE, "skale", out=lambda x: x)(x)
    with pytest.raises(GradientError, match="scale: a kernel must have a gradient"):
        scale()(x.requires_grad_()).sum().backward()
    with pytest.raises(ArgumentError, match="cuda must be a kernel, got int"):
        weft.custom_op("test_cuda::none", type_rule=lambda x: x, gradient=lambda g: g, cuda=3)(lambda x: x)


SOURCE = """extern "C" __global__ void scale(const float* x, float *y, float factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = factor * x[i];
}"""

WRONG_IN_C: list[tuple[Any, Any, str]] = [
    (lambda x, y, factor: (x, 5, factor, x.size), ArgumentError, "must be an array for a pointer, got 5"),
    (lambda x, y, factor: (x, y, 1e300, x.size), DomainError, r"must fit a parameter \.f32, got 1e\+300"),
    (lambda x, y, factor: (x, y, 10**400, x.size), DomainError, r"must fit a parameter \.f32"),
    (lambda x, y, factor: (x, y, factor, 3_000_000_000), DomainError, r"\.s32, got 3000000000"),
    (lambda x, y, factor: (x, y, factor, np.float32(1.5)), ArgumentError, r"must be whole .* \.s32"),
]


def test_arguments_must_fit_the_parameters_of_the_source(
    card: EmulatedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "compile_source", lambda *given: SCALE)
    x = weft.ones(3, device="cuda")
    for arguments, error, text in WRONG_IN_C:
        k = weft.cuda.kernel(SOURCE, "scale", out=lambda x, *, factor: x, arguments=arguments)
        with pytest.raises(error, match=text):
            k(x, factor=2.0)
    k = weft.cuda.kernel(
        SOURCE,
        "scale",
        out=lambda x, *, factor: weft.TensorType(x.shape, weft.float32),
        arguments=lambda x, y, factor: (x, y, np.float64(factor), np.int64(x.size)),
    )
    assert k(x, factor=2.0).tolist() == [2.0] * 3
    for dtype in (weft.float64, weft.int32, weft.bfloat16, weft.bool):
        with pytest.raises(ArgumentError, match=f"elements of its pointer, got {dtype.name} for .f32"):
            k(x.astype(dtype), factor=2.0)


def test_numbers_of_numpy_go_to_parameters_of_bits_by_their_width() -> None:
    assert kernels._encoded("f", 0, np.float32(1.0), "b32") == 0x3F800000
    assert kernels._encoded("f", 0, np.float64(1.0), "b32") == 0x3F800000
    assert kernels._encoded("f", 0, np.int64(-1), "b32") == 0xFFFFFFFF
    with pytest.raises(DomainError, match="must fit"):
        kernels._encoded("f", 0, np.int64(1 << 40), "b32")


def test_source_without_nvrtc_says_what_to_install(
    card: EmulatedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    from weft.backends.cuda import nvrtc

    nvrtc._library.cache_clear()
    monkeypatch.setattr(nvrtc, "find_library", lambda name: None)
    k = weft.cuda.kernel('extern "C" __global__ void f(float* x) {}', "f", out=lambda x: x)
    with pytest.raises(DeviceError, match=r"NVRTC must be there(.|\n)*pip install nvidia-cuda-nvrtc"):
        k(weft.ones(3, device="cuda"))


def test_kernel_is_a_node_of_graphs_that_others_wait_for(card: EmulatedDriver) -> None:
    k = scale()

    @weft.compile
    def f(x: Any, y: Any) -> Any:
        wide = x.sum(axis=0) + y
        return k(k(wide, factor=2.0) + 1.0, factor=3.0).cumsum(0) - k(y, factor=5.0)

    launched = []
    for i in range(7):
        x, y = (
            np.random.default_rng(n).standard_normal(s).astype(np.float32)
            for n, s in ((i, (4, 9)), (9 + i, 9))
        )
        found = f(weft.tensor(x, device="cuda"), weft.tensor(y, device="cuda"))
        expected = (((x.sum(0) + y) * 2.0 + 1.0) * 3.0).cumsum() - y * 5.0
        np.testing.assert_allclose(found.cpu().numpy(), expected, rtol=1e-4, atol=1e-4)
        launched.append(card.names().count("cuGraphLaunch"))
    assert launched[-1] >= 4  # the stand-in takes nodes in any order that edges allow
    assert not card.errors


def test_kernel_in_a_branch_is_decided_by_the_device(card: EmulatedDriver) -> None:
    k = scale()

    @weft.compile
    def f(x: Any) -> Any:
        return weft.cond(x.sum() > 0.0, lambda x: k(x, factor=2.0) + 1.0, lambda x: -x, x)

    for i in range(6):
        x = np.full(5, 1.0 if i % 2 else -1.0, np.float32)
        assert f(weft.tensor(x, device="cuda")).tolist() == [3.0 if i % 2 else 1.0] * 5
    assert card.turns["if"] >= 2
    assert not card.errors

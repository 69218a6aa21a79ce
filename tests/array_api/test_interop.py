"""Tensors beside NumPy and other libraries: DLPack both ways, operators with arrays, pickling."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from weft.tensor.dlpack import AsUint16

DTYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]


class Exporter:
    """An array of another library: it knows DLPack, and nothing else."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)


class OldExporter(Exporter):
    """One that was written before DLPack 1.0."""

    def __dlpack__(self, stream: Any = None) -> Any:  # type: ignore[override]
        return self.array.__dlpack__()


def address(x: Any) -> Any:
    return np.asarray(x).__array_interface__["data"][0]


# DLPack


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_takes_a_tensor_without_copying(dtype: str) -> None:
    x = weft.ones((2, 3), dtype=dtype)
    out = np.from_dlpack(x)
    assert (out.dtype, out.shape, address(out)) == (x.dtype, (2, 3), address(x))
    assert not out.flags.writeable


@pytest.mark.parametrize("exporter", [Exporter, OldExporter])
@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_other_libraries_come_in_without_copying(dtype: str, exporter: Any) -> None:
    array = np.ones((2, 3), dtype).T
    x = weft.from_dlpack(exporter(array))
    assert (x.dtype, x.shape, address(x)) == (array.dtype, (3, 2), address(array))
    assert address(weft.asarray(exporter(array))) != address(array)


def test_bfloat16_goes_through_dlpack() -> None:
    x = weft.tensor([1.0, 2.5, -3.0], dtype=weft.bfloat16)
    for old in (False, True):
        capsule = x.__dlpack__() if old else x.__dlpack__(max_version=(1, 0))
        assert type(capsule).__name__ == "PyCapsule"
        y = weft.from_dlpack((OldExporter if old else Exporter)(x))
        assert y.dtype == weft.bfloat16
        assert y.tolist() == [1.0, 2.5, -3.0]
        assert address(y) == address(x)


def test_only_bfloat16_is_taken_for_uint16() -> None:
    with pytest.raises(BufferError, match="unknown dtype"):
        np.from_dlpack(AsUint16(np.ones(2, "float32")))


def test_copies_on_request() -> None:
    array = np.zeros(3)
    shared, copied = weft.from_dlpack(Exporter(array)), weft.from_dlpack(Exporter(array), copy=True)
    array[0] = 7.0
    assert shared.tolist() == [7.0, 0.0, 0.0]
    assert copied.tolist() == [0.0, 0.0, 0.0]
    x = weft.ones(2)
    assert address(weft.from_dlpack(x)) == address(x)
    assert address(weft.from_dlpack(x, copy=True)) != address(x)
    assert np.from_dlpack(x, copy=True).flags.writeable


def test_tensor_that_changes_leaves_shared_memory_alone() -> None:
    array = np.zeros(3)
    x = weft.from_dlpack(array)
    y = np.from_dlpack(x)
    x[0] = 5.0
    assert array.tolist() == y.tolist() == [0.0, 0.0, 0.0]
    own = weft.zeros(3)
    view = np.from_dlpack(own)
    own[1] = 5.0
    own += 1.0
    assert view.tolist() == [0.0, 0.0, 0.0]


def test_memory_lives_as_long_as_either_side() -> None:
    x = weft.arange(5)
    out = np.from_dlpack(x)
    del x
    gc.collect()
    assert out.tolist() == [0, 1, 2, 3, 4]
    array = np.arange(5)
    alive = weakref.ref(array)
    y = weft.from_dlpack(Exporter(array))
    del array
    gc.collect()
    assert alive() is not None
    assert y.tolist() == [0, 1, 2, 3, 4]
    del y
    gc.collect()
    assert alive() is None


def test_memory_that_must_not_be_written_is_copied_for_an_old_consumer() -> None:
    x = weft.broadcast_to(weft.ones(1), (3,))
    assert weft.from_dlpack(OldExporter(x)).tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(BufferError, match="read-only memory must be copied"):
        x.__dlpack__(copy=False)


def test_what_cannot_be_exported() -> None:
    x = weft.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="must not require grad"):
        x.__dlpack__()
    with weft.no_grad():
        assert np.from_dlpack(x).tolist() == [1.0, 1.0]
    with pytest.raises(BufferError, match="the device must be the cpu"):
        x.detach().__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="stream must be None on the cpu, got 1"):
        x.detach().__dlpack__(stream=1)
    with pytest.raises(TypeError, match="must be an object with __dlpack__, got int"):
        weft.from_dlpack(3)


LAYOUTS = {
    "strided": np.arange(24.0).reshape(4, 6)[1::2, ::3],
    "reversed": np.arange(6.0)[::-1],
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "broadcast": np.broadcast_to(np.arange(3.0), (2, 3)),
    "read-only": np.frombuffer(np.arange(3.0).tobytes()),
    "empty": np.zeros((2, 0, 3)),
    "scalar": np.array(2.5),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "bool"])
def test_any_layout_goes_through_dlpack_without_copying(layout: str, dtype: str) -> None:
    array = (
        LAYOUTS[layout] if dtype == "float64" else LAYOUTS[layout].astype(weft.tensor(0, dtype=dtype).dtype)
    )
    x = weft.from_numpy(array)
    y = weft.from_dlpack(Exporter(x))
    assert (y.dtype, y.shape, y.numpy().strides) == (x.dtype, array.shape, x.numpy().strides)
    assert array.size == 0 or address(y) == address(array)
    assert y.tolist() == x.tolist()


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (None, "dltensor"),
        ((0, 8), "dltensor"),
        ((1, 0), "dltensor_versioned"),
        ((2, 1), "dltensor_versioned"),
    ],
)
def test_capsule_is_of_the_newest_version_that_the_consumer_knows(version: Any, name: str) -> None:
    for dtype in (weft.float32, weft.bfloat16):
        capsule = weft.ones(2, dtype=dtype).__dlpack__(max_version=version, dl_device=(1, 0))
        assert f'"{name}"' in repr(capsule)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_capsule_that_nobody_takes_frees_its_memory(dtype: str) -> None:
    x = weft.tensor([1.0, 2.0], dtype=dtype)
    alive = weakref.ref(x._data)
    capsule = x.__dlpack__(max_version=(1, 0))
    del x
    gc.collect()
    assert alive() is not None
    del capsule
    gc.collect()
    assert alive() is None


def test_device_in_dlpacks_numbers() -> None:
    assert weft.ones(1).__dlpack_device__() == (1, 0)


# NumPy


def test_operator_with_an_array_on_the_left_gives_a_tensor_with_a_gradient() -> None:
    x = weft.tensor([1.0, 2.0], dtype=weft.float64, requires_grad=True)
    for y in (np.array([3.0, 4.0]) * x, np.float64(3.0) * x, x * np.array([3.0, 4.0])):
        assert isinstance(y, weft.Tensor)
        assert y.requires_grad
    (np.array([3.0, 4.0]) * x).sum().backward()
    assert x.grad.tolist() == [3.0, 4.0]


REDUCTIONS = ("all", "any", "argmax", "argmin", "max", "mean", "min", "prod", "std", "sum", "var")


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("options", [{}, {"axis": 0}, {"axis": -1, "keepdims": True}])
def test_numpys_reductions_give_tensors(name: str, options: dict[str, Any]) -> None:
    x = weft.tensor([[1.0, -2.0, 3.0], [4.0, 0.0, -6.0]], dtype=weft.float64)
    function = getattr(np, name)
    y = function(x, **options)
    assert isinstance(y, weft.Tensor)
    np.testing.assert_allclose(y.numpy(), function(x.numpy(), **options))


def test_numpys_reductions_have_gradients() -> None:
    x = weft.tensor([1.0, 2.0, 4.0], requires_grad=True)
    np.sum(np.exp(x) * x).backward()
    np.testing.assert_allclose(
        x.grad.numpy(), (1 + x.detach().numpy()) * np.exp(x.detach().numpy()), rtol=1e-6
    )
    assert weft.grad(np.var)(x).tolist() == pytest.approx([-8 / 9, -2 / 9, 10 / 9])


def test_numpys_keywords_of_reductions() -> None:
    x = weft.tensor([1.0, 2.0, 4.0])
    array = x.numpy()
    assert np.var(x, ddof=1, dtype=np.float64).item() == pytest.approx(np.var(array, ddof=1))
    assert np.sum(a=x, axis=0, out=None).item() == 7.0
    assert np.sum(x, 0, None, np.zeros((), "float32")) == 7.0
    assert np.sum(x, initial=3.0) == 10.0
    assert np.max(x, where=array < 3, initial=0.0) == 2.0
    with pytest.raises(RuntimeError, match="must not require grad"):
        np.sum(weft.ones(2, requires_grad=True), initial=3.0)


def test_numpys_other_functions_see_an_array() -> None:
    x = weft.tensor([[4.0, 1.0], [1.0, 3.0]])
    array = x.numpy()
    for function in (
        np.linalg.inv,
        np.linalg.norm,
        np.sort,
        np.median,
        np.zeros_like,
        np.fft.fft,
    ):
        found = function(x)
        assert not isinstance(found, weft.Tensor)
        np.testing.assert_array_equal(found, function(array))
    np.testing.assert_array_equal(np.transpose(x), array.T)
    for ours, theirs in zip(np.nonzero(x - 1.0), np.nonzero(array - 1.0), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(np.repeat(x, 2), np.repeat(array, 2))
    for joined in (np.concatenate([x, x]), np.stack([x, array]).reshape(4, 2), np.array([*x, *x])):
        np.testing.assert_array_equal(joined, np.tile(array, (2, 1)))
    assert np.shape(x) == (2, 2)
    assert np.allclose(x, array)
    assert np.asarray(x, "float64").dtype == np.float64
    assert np.array(x, copy=True).flags.writeable
    assert np.asarray(x, copy=False).__array_interface__["data"] == array.__array_interface__["data"]
    with pytest.raises(ValueError, match="a copy is needed"):
        np.asarray(x, "float64", copy=False)


@pytest.mark.parametrize(
    "function",
    [
        np.asarray,
        np.array,
        np.linalg.inv,
        np.sort,
        np.add.reduce,
        lambda x: np.concatenate([x, x]),
        lambda x: np.add(x, 1, dtype="float64"),
    ],
)
def test_numpy_takes_no_tensor_that_requires_grad(function: Any) -> None:
    x = weft.ones((2, 2), requires_grad=True) + weft.eye(2)
    with pytest.raises(RuntimeError, match=r"must not require grad[^$]*use .detach\(\)"):
        function(x)
    np.testing.assert_array_equal(function(x.detach()), function(x.detach().numpy()))


def test_numpy_writes_into_arrays_only() -> None:
    x, array = weft.tensor([1.0, 2.0]), np.ones(2, "float32")
    array += x
    assert array.tolist() == [2.0, 3.0]
    array[:] = x
    assert array.tolist() == [1.0, 2.0]
    for write in (
        lambda: np.add(array, 1, out=x),
        lambda: np.sum(array, out=x),
        lambda: np.clip(x, 0, 1, out=x),
    ):
        with pytest.raises(TypeError, match="out must be a NumPy array, got a tensor"):
            write()
    with pytest.raises(TypeError, match="no implementation found"):
        np.zeros(3, like=x)


@pytest.mark.parametrize("share", [weft.from_numpy, lambda a: weft.asarray(a, copy=False), weft.from_dlpack])
def test_arrays_are_shared_in_and_never_written_to(share: Any) -> None:
    array = np.zeros(3)
    x = share(array)
    array[0] = 1.0
    assert x.tolist() == [1.0, 0.0, 0.0]
    x[1] = 5.0
    x *= 2.0
    assert array.tolist() == [1.0, 0.0, 0.0]


def test_masked_elements_are_not_taken_for_numbers() -> None:
    masked = np.ma.masked_array([1.0, 2.0], [False, True])
    for take in (weft.tensor, weft.asarray, weft.from_numpy):
        with pytest.raises(ValueError, match="no element must be masked"):
            take(masked)
    assert weft.tensor(masked[:1]).tolist() == [1.0]


def test_numpy_view_is_read_only_and_unchanged_by_the_tensor() -> None:
    x = weft.zeros(2)
    view = x.numpy()
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1.0
    x += 1.0
    assert view.tolist() == [0.0, 0.0]


# Copies in Python


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
def test_pickle_keeps_values_dtype_and_gradient_state(dtype: str) -> None:
    x = weft.ones((2, 3), dtype=dtype)
    if dtype.startswith(("float", "bfloat", "complex")):
        x.requires_grad_()
    for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):  # noqa: S301 - our own bytes
        assert (y.shape, y.requires_grad) == (x.shape, x.requires_grad)
        assert y.dtype is x.dtype
        assert weft.all(y == x)
        assert address(y.detach()) != address(x.detach())


def test_bfloat16_of_ml_dtypes_is_wefts() -> None:
    assert weft.tensor(np.ones(2, ml_dtypes.bfloat16)).dtype == weft.bfloat16

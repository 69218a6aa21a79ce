"""Memory of a device shared with other libraries: capsules and interfaces both ways, lifetimes, streams."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.standin import StandIn, standing_in
from weft.backends.cuda.card import card
from weft.errors import GradientError, SharingError

pytestmark = pytest.mark.filterwarnings("ignore:.*has no kernel for cuda:RuntimeWarning")
DTYPES = (
    "bool",
    "int8",
    "uint16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
)


class Library:
    """Another library's array: an exporter with the capsule and the streams of its own."""

    def __init__(self, tensor: Any, *, old: bool = False) -> None:
        self.tensor, self.old = tensor, old
        self.streams: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        if self.old and options:
            raise TypeError("unexpected keyword")
        self.streams.append(stream)
        return self.tensor.__dlpack__(stream=stream, **options)


@pytest.mark.parametrize("old", [False, True])
def test_capsules_go_round_without_a_copy(old: bool, api: StandIn) -> None:
    for name in DTYPES:
        x = weft.tensor([[0, 1, 2], [3, 0, 1]], dtype=getattr(weft, name), device="cuda")
        for part in (x, x.T, x[:, ::-1], x[1, 2], x[:0]):
            library = Library(part.detach(), old=old)
            again = weft.from_dlpack(library)
            assert again.device == "cuda"
            assert again._data.pointer == part._data.pointer
            assert library.streams == [card().stream.handle]
            assert again.dtype == part.dtype
            assert again.tolist() == part.tolist()
    assert weft.asarray(Library(x))._data.pointer != x._data.pointer
    assert weft.from_dlpack(Library(x), device="cuda", copy=True)._data.pointer != x._data.pointer


def test_memory_lives_as_long_as_anybody_uses_it(api: StandIn) -> None:
    x = weft.arange(4.0, device="cuda")
    capsule = x.__dlpack__(max_version=(1, 0))
    del x
    assert weft.cuda.memory_allocated() == 512
    del capsule  # which nobody took
    gc.collect()
    assert weft.cuda.memory_allocated() == 0
    y = weft.from_dlpack(Library(weft.arange(4.0, device="cuda")))
    view = y[1:]
    del y
    gc.collect()
    assert weft.cuda.memory_allocated() == 512
    assert view.tolist() == [1.0, 2.0, 3.0]
    del view
    gc.collect()
    assert weft.cuda.memory_allocated() == 0


def test_borrowed_memory_is_never_written(api: StandIn) -> None:
    x = weft.zeros(4, device="cuda")
    y = weft.from_dlpack(Library(x))
    y[1] = 5.0
    y += 1
    assert x.tolist() == [0.0] * 4
    assert y.tolist() == [1.0, 6.0, 1.0, 1.0]


def test_streams_of_both_sides_wait(api: StandIn) -> None:
    x = weft.ones(4, device="cuda")
    side = weft.cuda.Stream()
    api.calls.clear()
    capsule = x.__dlpack__(stream=side.handle)
    waits = [call for call in api.calls if call[0] == "cuStreamWaitEvent"]
    assert [int(call[1]) for call in waits] == [side.handle]
    api.calls.clear()
    rest = x.__dlpack__(stream=-1)
    assert not [call for call in api.calls if call[0] == "cuStreamWaitEvent"]
    del capsule, rest


def test_what_cannot_be_shared_is_refused(api: StandIn) -> None:
    x = weft.ones(4, device="cuda")
    assert x.__dlpack_device__() == (2, 0)
    with pytest.raises(SharingError, match=r"the device must be \(2, 0\) or the cpu, got \(2, 3\)"):
        x.__dlpack__(dl_device=(2, 3))
    with pytest.raises(GradientError, match="must not require grad"):
        x.requires_grad_().__dlpack__()
    np.testing.assert_array_equal(np.from_dlpack(x.detach(), device="cpu"), np.ones(4, np.float32))
    with pytest.raises(BufferError, match=r"must be on the cpu for a library of the host, got one on cuda:0"):
        np.from_dlpack(x.detach())


class Described:
    """An object that only has the interface of CuPy and Numba."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    @property
    def __cuda_array_interface__(self) -> Any:
        return self.tensor.__cuda_array_interface__


def test_array_interface_goes_both_ways(api: StandIn) -> None:
    x: Any = weft.arange(6, dtype=weft.int32, device="cuda").reshape(2, 3)
    found = x.__cuda_array_interface__
    assert found["shape"] == (2, 3)
    assert found["typestr"] == "<i4"
    assert found["data"] == (x._data.pointer, True)
    assert found["strides"] is None
    assert found["version"] == 3
    assert found["stream"] == card().stream.handle
    assert x.T.__cuda_array_interface__["strides"] == (4, 12)
    assert not hasattr(weft.ones(2), "__cuda_array_interface__")
    assert not hasattr(weft.ones(2, device="cuda", dtype=weft.bfloat16), "__cuda_array_interface__")
    for part in (x, x.T, x[:, 1]):
        shared = weft.asarray(Described(part), copy=False)
        assert shared._data.pointer == part._data.pointer
        assert shared.tolist() == part.tolist()
        assert weft.asarray(Described(part))._data.pointer != part._data.pointer


def test_memory_that_an_interface_told_stays_while_the_tensor_lives(api: StandIn) -> None:
    x: Any = weft.arange(6.0, device="cuda")
    before = weft.cuda.memory_allocated()
    pointer, _ = x.__cuda_array_interface__["data"]
    for _ in range(3):
        x += 1.0  # other memory: who took the interface still has the old one
    assert pointer in api.live
    others = [weft.zeros(6, device="cuda") for _ in range(4)]
    assert all(other._data.pointer != pointer for other in others)
    del others
    for _ in range(100):  # who asks at each step does not keep all
        x += 1.0
        x.__cuda_array_interface__  # noqa: B018
    assert weft.cuda.memory_allocated() <= before + 18 * 512
    del x
    gc.collect()
    assert weft.cuda.memory_allocated() <= before  # a number that is kept


def test_an_interface_tells_the_byte_order_a_mask_and_by_its_pointer_the_device() -> None:
    class Told:
        def __init__(self, tensor: Any, **other: Any) -> None:
            self.tensor = tensor
            self.__cuda_array_interface__ = {**tensor.__cuda_array_interface__, **other}

    with standing_in(devices=2):
        x: Any = weft.arange(4.0, device="cuda:1")
        shared = weft.asarray(Told(x), copy=False)
        assert (shared.device, shared._data.pointer) == (x.device, x._data.pointer)
        assert weft.asarray(Told(weft.zeros(0, device="cuda"), data=(0, True)), copy=False).shape == (0,)
        with pytest.raises(SharingError, match="dtype must be one that weft has, got >f4"):
            weft.asarray(Told(x, typestr=">f4"))
        with pytest.raises(SharingError, match="got an array with a mask"):
            weft.asarray(Told(x, mask=object()))

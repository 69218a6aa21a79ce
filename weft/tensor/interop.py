"""How tensors meet other libraries: DLPack both ways, NumPy's operators, the array API's namespace.

Memory is shared without copying. A tensor is a value, so it goes out marked read-only where the protocol can
say so, and what comes in from outside is never written to.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from weft.base.concrete import is_concrete
from weft.base.device import CPU, DeviceLike, as_device
from weft.base.dtypes import bfloat16, bool_, kind, uint16
from weft.base.hooks import hooks
from weft.base.public import public
from weft.errors import ArgumentError, DomainError, GradientError, SharingError
from weft.ops.op import Array
from weft.tensor.convert import from_ndarray
from weft.tensor.mode import thread
from weft.tensor.moving import move
from weft.tensor.tensor import Tensor, wrap

_API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
_DLPACK_CPU = (1, 0)  # kDLCPU
_UNTOLD: Any = object()  # where None is something that callers say
_DLPACK_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged


@public
def from_dlpack(x: Any, /, *, device: DeviceLike | None = None, copy: bool | None = None) -> Tensor:
    """A tensor that shares the memory of an object with ``__dlpack__``, such as an array of another library.

    Args:
        x: the object.
        device: where the tensor should live.
        copy: True copies; False is an error where memory cannot be shared.

    >>> import numpy as np, weft
    >>> weft.from_dlpack(np.arange(3))
    tensor([0, 1, 2])
    """
    target = None if device is None else as_device(device)
    if isinstance(x, Tensor):
        there = x.detach() if target is None else move(x.detach(), target)
        return there.clone() if copy and there.device == x.device else there
    if not (hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__")):
        raise ArgumentError("from_dlpack", f"must be an object with __dlpack__, got {type(x).__name__}")
    place, _ = x.__dlpack_device__()
    if place in _DLPACK_CUDA and (target is None or target != CPU):
        found: Tensor = wrap(hooks.import_from_device(x, copy))
        return found if target is None else move(found, target)
    out: Tensor = wrap(from_ndarray("from_dlpack", _import_array(x, copy), None, False))
    return out if target is None else move(out, target)


def _import_array(x: Tensor, copy: bool | None) -> Array:
    place = tuple(x.__dlpack_device__())
    if place != _DLPACK_CPU and copy is False:
        raise SharingError("from_dlpack", f"memory must be on the cpu to be shared, got device {place}")
    array = _shared_array(x, {} if place == _DLPACK_CPU else {"device": "cpu"})
    return array.copy() if copy else array


def _shared_array(x: Tensor, options: dict[str, Any]) -> Array:
    if isinstance(x, np.ndarray):  # which may be of a dtype that NumPy cannot export
        return x
    try:
        return np.from_dlpack(x, **options)
    except (BufferError, RuntimeError) as error:
        from weft.tensor.dlpack import AsUint16

        try:
            return np.from_dlpack(AsUint16(x), **options).view(bfloat16)  # type: ignore[arg-type]
        except BufferError:
            raise SharingError("from_dlpack", f"the exporter must be able to share, got: {error}") from None


def _dlpack(
    self: Tensor,
    /,
    *,
    stream: object = None,
    max_version: tuple[int, int] | None = None,
    dl_device: Any = _UNTOLD,
    copy: bool | None = None,
) -> Any:
    """A capsule with this tensor's memory, for ``from_dlpack`` of another library.

    From DLPack 1.0 on it is marked read-only; older consumers get a copy of what must not be written.
    """
    told, dl_device = dl_device, None if dl_device is _UNTOLD else dl_device
    if self.device != CPU:
        if told is None and stream is None:  # who reads memory of devices names a stream: this is NumPy
            raise SharingError(
                "__dlpack__",
                f"the tensor must be on the cpu for a library of the host, got one on {self.device}",
                hint="use x.cpu(), or np.from_dlpack(x, device='cpu')",
            )
        return _dlpack_of_device(self, stream, max_version, dl_device, copy)
    if stream is not None:
        raise SharingError("__dlpack__", f"stream must be None on the cpu, got {stream!r}")
    if dl_device is not None and tuple(dl_device) != _DLPACK_CPU:
        raise SharingError("__dlpack__", f"the device must be the cpu, {_DLPACK_CPU}, got {dl_device}")
    _check_plain(self)
    array = _exported_array(
        self._array("__dlpack__"), max_version is not None and tuple(max_version) >= (1, 0), copy
    )
    options: dict[str, Any] = {} if max_version is None else {"max_version": tuple(max_version)}
    if array.dtype != bfloat16:
        return array.__dlpack__(**options)
    from weft.tensor.dlpack import as_bfloat16

    return as_bfloat16(array.view(uint16).__dlpack__(**options))


def _as_in_the_standard(method: Callable[..., object]) -> inspect.Signature:
    """A signature in which None is the default of all keywords."""
    found = inspect.signature(method)
    told = [p.replace(default=None) if p.default is _UNTOLD else p for p in found.parameters.values()]
    return found.replace(parameters=told)


_dlpack.__signature__ = _as_in_the_standard(_dlpack)  # type: ignore[attr-defined]


def _dlpack_of_device(
    self: Tensor, stream: object, max_version: tuple[int, int] | None, dl_device: Any, copy: bool | None
) -> Any:
    """A capsule with memory of a device, or with a copy on the host where that is asked for."""
    _check_plain(self)
    place = _dlpack_device(self)
    if dl_device is not None and tuple(dl_device) != place:
        if tuple(dl_device) != _DLPACK_CPU or copy is False:
            raise SharingError("__dlpack__", f"the device must be {place} or the cpu, got {dl_device}")
        return move(self.detach(), CPU).__dlpack__(max_version=max_version)
    if self._data.dtype not in (bool_, bfloat16) and kind(self._data.dtype) not in "iufc":
        raise SharingError("__dlpack__", f"dtype must be one of DLPack's, got {self._data.dtype.name}")
    return hooks.export_from_device(self._data, stream, max_version, copy)


def _check_plain(self: Tensor) -> None:
    """Raise if a tensor has no memory of its own to share, or gradients would get lost."""
    if self._node is not None and thread.recording:
        raise GradientError(
            "__dlpack__", "the tensor must not require grad, got one that does", hint="use .detach()"
        )
    if not is_concrete(self._data):
        self._array("__dlpack__")


def _array_interface(self: Tensor) -> dict[str, Any]:
    """The memory of a tensor on a CUDA device, in the words that CuPy and Numba share."""
    if self.device == CPU or not is_concrete(self._data):
        raise AttributeError("__cuda_array_interface__")
    return hooks.describe_on_device(self._data, self)


def _exported_array(array: Array, can_mark: bool, copy: bool | None) -> Array:
    """The array to export: a read-only view where the consumer understands that, or a copy."""
    if copy:
        return array.copy()
    if can_mark:
        view = array.view()
        view.flags.writeable = False
        return view
    if array.flags.writeable:
        return array
    if copy is False:
        raise SharingError(
            "__dlpack__", "read-only memory must be copied for a consumer older than DLPack 1.0"
        )
    return array.copy()


def _dlpack_device(self: Tensor, /) -> tuple[int, int]:
    """The device in DLPack's numbers."""
    device = self.device
    return _DLPACK_CPU if device == CPU else (_DLPACK_CUDA[0], device.index or 0)


def _array_namespace(self: Tensor, /, *, api_version: str | None = None) -> ModuleType:
    """The module ``weft``, which is the array API namespace of tensors."""
    if api_version is not None and api_version not in _API_VERSIONS:
        raise DomainError(
            "__array_namespace__",
            f"api_version must be one of {', '.join(_API_VERSIONS)}, got {api_version!r}",
        )
    return sys.modules["weft"]


for _name, _method in (
    ("__dlpack__", _dlpack),
    ("__dlpack_device__", _dlpack_device),
    ("__array_namespace__", _array_namespace),
    ("__cuda_array_interface__", property(_array_interface)),
    # NumPy's operators leave the operation to the operand of higher priority: `array + tensor` is a tensor
    ("__array_priority__", 1000),
):
    setattr(Tensor, _name, _method)

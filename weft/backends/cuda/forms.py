"""The short way of ops that work element by element: from two tensors to a launch with nothing to look up.

A tensor on a device knows its *form*, as one on the host does (``weft.tensor.form``): one object for each
shape and dtype of elements that lie one after another. The form has what runs each op on arrays of it: a
record that lacks three pointers. What is unusual (another stream, a new thread, an op without a kernel) goes
the general way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from weft.backends.cuda import eager, placing
from weft.backends.cuda.array import DeviceArray
from weft.backends.cuda.card import Card, here
from weft.backends.cuda.entries import KernelEntry
from weft.backends.cuda.execute import CudaExecutable
from weft.backends.cuda.launches import Launch
from weft.backends.cuda.native import STREAM
from weft.base.device import Device
from weft.base.dtypes import DType, float32, float64
from weft.base.sizes import is_known
from weft.ir.types import TensorType
from weft.ops.arithmetic import add
from weft.ops.op import Op
from weft.tensor.form import Form

Runner = Callable[..., DeviceArray]
_MOST = 65536


class DeviceForm(Form):
    """One for each shape and dtype in use on a device.

    Attributes:
        card: the device.
        shape, dtype: of the arrays.
        is_plain, is_scalar: False: NumPy's functions do not run on them.
        constants: numbers as 0-d arrays of the device; zero is not among them, for 0.0 equals -0.0.
    """

    __slots__ = ("_alike", "_numbers", "card")

    def __init__(self, card: Card, shape: tuple[int, ...], dtype: DType) -> None:
        super().__init__(shape, dtype, {})
        self.card = card
        self.is_plain = self.is_scalar = False
        self._alike: dict[Op, Runner] = {}  # by op: on arrays of this form
        self._numbers: dict[Op, Runner] = {}  # and on such and a number

    @property
    def device(self) -> Device:
        """Where arrays of this form are."""
        return self.card.device

    def run(self, op: Op, *arrays: DeviceArray) -> DeviceArray:
        """What an op gives on arrays of this form, or on one and a number."""
        table = self._alike if arrays[-1].shape else self._numbers
        runner = table.get(op)
        if runner is None:
            runner = table[op] = _runner(op, self, arrays)
        return runner(*arrays)

    def constant(self, number: float) -> DeviceArray:
        """A number as a 0-d array, kept for the next time."""
        array = placing.constant(np.asarray(number, self.dtype), self.card)
        if number and len(self.constants) < 1024:
            self.constants[number] = array
        return array


_forms: dict[tuple[Any, ...], DeviceForm] = {}


def form_of(array: DeviceArray) -> DeviceForm:
    """The form of an array without gaps."""
    key = (id(array.card), array.shape, array.dtype)
    form = _forms.get(key)
    if form is None:
        if len(_forms) >= _MOST:
            _forms.clear()
        form = _forms[key] = DeviceForm(array.card, array.shape, array.dtype)
    return form


def add_arrays(x: DeviceArray, y: Any) -> DeviceArray:
    """The sum of two arrays of a device."""
    alike = type(y) is DeviceArray and y.shape == x.shape and y.gaps is None and not y.pointer & 15
    form = x.form if alike and y.dtype is x.dtype and y.card is x.card else None
    if form is not None:
        return form.run(add, x, y)  # type: ignore[no-any-return]
    out: DeviceArray = eager.evaluate_on_device(add, (x, y), (x, y), {})[0]
    return out


def form_for(card: Card, kind: TensorType) -> DeviceForm | None:
    """The form of arrays of a type that lie one after another; None where they go the general way."""
    if not is_known(kind.shape) or not kind.shape or kind.dtype not in (float32, float64):
        return None
    key = (id(card), kind.shape, kind.dtype)
    return _forms.get(key) or _forms.setdefault(key, DeviceForm(card, kind.shape, kind.dtype))


def forget_forms() -> None:
    """Drop all forms, for tests that put another driver in place."""
    _forms.clear()


def _runner(op: Op, form: DeviceForm, arrays: Sequence[DeviceArray]) -> Runner:
    """What runs an op on arrays like these: one launch, or the general way."""

    def general(*given: DeviceArray) -> DeviceArray:
        out: DeviceArray = eager.evaluate_on_device(op, given, given, {})[0]
        return out

    found = eager.find_program(op, arrays, {})
    launch, order = _one_launch(getattr(found, "executable", found), arrays, 1)
    usual = launch is not None and order == tuple(range(len(arrays) + 1))
    return _direct(launch, form, len(arrays), general) if launch is not None and usual else general


def direct_runner(
    found: Any, form: DeviceForm, arrays: Sequence[DeviceArray], count: int, general: Callable[[Any], Any]
) -> Callable[[Sequence[DeviceArray]], Sequence[DeviceArray]]:
    """What runs a program for rows on lists of arrays of a form, and numbers: one launch, or as it is.

    Args:
        found: what runs the program on rows.
        form: of the arrays and of the results.
        arrays: like those to come.
        count: of the results.
        general: runs the program in the general way.
    """
    launch, order = _one_launch(found, arrays, count)
    same = all(a.dtype == form.dtype for a in getattr(getattr(found, "program", None), "outputs", ()))
    return general if launch is None or not same else _direct_list(launch, order, form, count, general)


def _one_launch(
    executable: Any, arrays: Sequence[DeviceArray], count: int
) -> tuple[Launch | None, tuple[int, ...]]:
    """A launch that lacks the pointers of arrays and results, if a program is just that; and their order."""
    if not isinstance(executable, CudaExecutable):
        return None, ()
    flat = [eager.in_row(a) if executable.program.sizes and a.shape else a for a in arrays]
    bound = executable.plan_for(flat).bound
    program = executable.program
    if (
        bound is None
        or len(bound.entries) != 1
        or bound.arena
        or program.failures
        or len(program.outputs) != count
    ):
        return None, ()
    entry = bound.entries[0]
    if not isinstance(entry, KernelEntry) or entry.launch.call is None:
        return None, ()
    order = tuple([slot for _, slot, _ in entry.patches])
    first = all(word == i and not offset for i, (word, _, offset) in enumerate(entry.patches))
    if not first or any(slot >= len(arrays) + count for slot in order):
        return None, ()
    own = Launch(entry.launch.function, len(entry.launch.words))  # whose stream nobody else changes
    own.set(*entry.launch.words)
    own.shape(entry.grid, entry.block, entry.shared)
    own.record[STREAM] = executable.card.stream.handle
    return own, order


def _results(form: DeviceForm) -> Callable[[Any], DeviceArray]:
    """A function from memory to the array of a form in it."""
    card, shape, dtype, size = form.card, form.shape, form.dtype, prod(form.shape)
    new = DeviceArray.__new__

    def result(block: Any) -> DeviceArray:
        out = new(DeviceArray)
        out.card, out.block, out.pointer, out.shape = card, block, block.pointer, shape
        out.dtype, out.size, out.gaps = dtype, size, None
        return out

    return result


def _direct_list(
    launch: Launch, order: Sequence[int], form: DeviceForm, count: int, general: Callable[[Any], Any]
) -> Any:
    card, stream, take = form.card, form.card.stream, form.card.pool.take
    call, record, result = launch.call, launch.address, _results(form)
    nbytes = prod(form.shape) * form.dtype.itemsize
    assert call is not None

    def run(arrays: Sequence[DeviceArray]) -> Sequence[DeviceArray]:
        unusual = here.card is not card or here.streams
        if unusual or [a.block.writer for a in arrays].count(stream) != len(arrays):
            return general(arrays)  # type: ignore[no-any-return]
        blocks = [take(nbytes, stream) for _ in range(count)]
        places: list[Any] = [*arrays, *blocks]
        if code := call(record, *[places[i].pointer for i in order]):
            raise launch.failure(code)  # the closure keeps the launch, and so its record, alive
        return [result(block) for block in blocks]

    return run


def _direct(launch: Launch, form: DeviceForm, count: int, general: Runner) -> Runner:
    """The function that launches on the device's own stream; whatever is unusual goes the general way."""
    card, stream, take = form.card, form.card.stream, form.card.pool.take
    call, record, result = launch.call, launch.address, _results(form)
    nbytes = prod(form.shape) * form.dtype.itemsize
    assert call is not None

    def unary(a: DeviceArray) -> DeviceArray:
        if here.card is not card or here.streams or a.block.writer is not stream:
            return general(a)
        block = take(nbytes, stream)
        if code := call(record, a.pointer, block.pointer):
            raise launch.failure(code)  # the closure keeps the launch, and so its record, alive
        return result(block)

    def binary(a: DeviceArray, b: DeviceArray) -> DeviceArray:
        if (
            here.card is not card
            or here.streams
            or a.block.writer is not stream
            or b.block.writer is not stream
        ):
            return general(a, b)
        block = take(nbytes, stream)
        if code := call(record, a.pointer, b.pointer, block.pointer):
            raise launch.failure(code)  # the closure keeps the launch, and so its record, alive
        return result(block)

    return (unary, binary)[count - 1] if launch.words and count <= 2 else general

"""The short way of ops that work element by element: from two tensors to a launch with nothing to look up.

A tensor on a device knows its *form*, as one on the host does (``weft.tensor.form``): one object for each
shape and dtype of elements that lie one after another. The form has what runs each op on arrays of it: a
record that lacks three pointers. What is unusual (another stream, a new thread, an op without a kernel) goes
the general way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from operator import itemgetter
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
from weft.tensor.rules import Saved

Runner = Callable[..., DeviceArray]
Pull = Callable[[DeviceArray, Saved], Sequence[Any] | None]  # from a gradient to those of the inputs
Kept = Sequence[tuple[int, bool]]
_MOST = 65536
_blank = partial(object.__new__, DeviceArray)  # without the constructor


class DeviceForm(Form):
    """One for each shape and dtype in use on a device.

    Attributes:
        card: the device.
        shape, dtype: of the arrays.
        is_plain, is_scalar: False: NumPy's functions do not run on them.
        constants: numbers as 0-d arrays of the device; zero is not among them, for 0.0 equals -0.0.
        alike: by op, what runs it on arrays of this form; ``run`` finds what is not there yet.
        numbers: likewise on such and a number.
        add: gives the sum of two arrays of this form.
    """

    __slots__ = ("add", "alike", "card", "numbers")

    def __init__(self, card: Card, shape: tuple[int, ...], dtype: DType) -> None:
        super().__init__(shape, dtype, {})
        self.card = card
        self.is_plain = self.is_scalar = False
        self.alike: dict[Op, Runner] = {}
        self.numbers: dict[Op, Runner] = {}
        self.add: Runner = partial(self.run, add)  # until it is first used

    @property
    def device(self) -> Device:
        """Where arrays of this form are."""
        return self.card.device

    def run(self, op: Op, *arrays: DeviceArray) -> DeviceArray:
        """What an op gives on arrays of this form, or on one and a number."""
        table = self.alike if arrays[-1].shape else self.numbers
        runner = table.get(op)
        if runner is None:
            runner = table[op] = _runner(op, self, arrays)
            if op is add and table is self.alike:
                self.add = runner
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
    """The sum of two arrays of a device that are not of one form."""
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


def direct_pull(
    found: Any, form: DeviceForm, arrays: Sequence[DeviceArray], places: Sequence[int | None], kept: Kept
) -> Pull | None:
    """What runs the program of a backward rule by one launch; None if that is not all it takes.

    Args:
        found: what runs the program on rows; None if gradients are only passed on.
        form: of the gradient of the output, and of those of the inputs.
        arrays: the gradient, and what was kept.
        places: where the gradient of each input is among the arrays and results; None for none.
        kept: where the arrays are in what was saved; with True for a number.
    """
    count = len({p for p in places if p is not None and p >= len(arrays)})
    if any(p is not None and 0 < p < len(arrays) for p in places):
        return None
    if not count:
        passed = _picker([1 if p is None else 0 for p in places])
        return lambda g, saved: passed((g, None))
    launch, order = _one_launch(found, arrays, count)
    same = all(a.dtype == form.dtype for a in getattr(getattr(found, "program", None), "outputs", ()))
    return _pull(launch, order, form, places, kept) if launch is not None and same else None


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


def _fresh(form: DeviceForm) -> Callable[[], DeviceArray]:
    """A function that gives a new array of a form, of any content, for the device's own stream."""
    card, shape, dtype, size = form.card, form.shape, form.dtype, prod(form.shape)
    take = card.pool.taker(size * dtype.itemsize, card.stream)

    def fresh() -> DeviceArray:
        out = _blank()
        out.block = block = take()
        out.pointer = block.pointer
        out.card, out.shape, out.dtype, out.size, out.gaps, out.form = card, shape, dtype, size, None, form
        return out

    return fresh


def _picker(places: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """A function that gives the items at places."""
    return itemgetter(*places) if len(places) > 1 else lambda items: (items[places[0]],)


def _pull(
    launch: Launch, order: Sequence[int], form: DeviceForm, places: Sequence[int | None], kept: Kept
) -> Pull:
    """The function that launches on the device's own stream; None for what is unusual."""
    card, stream, dtype, fresh = form.card, form.card.stream, form.dtype, _fresh(form)
    call, record = launch.call, launch.address
    given = 1 + len(kept)
    results = range(given, 1 + max(p for p in places if p is not None))
    in_order = itemgetter(*order)
    placed = _picker([-1 if p is None else max(p - given + 1, 0) for p in places])
    assert call is not None

    def pull(g: DeviceArray, saved: Saved) -> Sequence[Any] | None:
        if here.plain is not card or g.block.writer is not stream:
            return None
        words = [g.pointer]
        for place, number in kept:
            a = saved[place]
            if type(a) is not DeviceArray or a.block.writer is not stream:
                return None
            if a.form is not form and not (number and a.shape == () and a.dtype is dtype):
                return None
            words.append(a.pointer)
        out: list[Any] = [g]
        for _ in results:
            made = fresh()
            out.append(made)
            words.append(made.pointer)
        if code := call(record, *in_order(words)):
            raise launch.failure(code)  # the closure keeps the launch, and so its record, alive
        out.append(None)
        return placed(out)

    return pull


def _direct(launch: Launch, form: DeviceForm, count: int, general: Runner) -> Runner:
    """The function that launches on the device's own stream; whatever is unusual goes the general way."""
    card, stream, fresh = form.card, form.card.stream, _fresh(form)
    call, record = launch.call, launch.address
    assert call is not None

    def unary(a: DeviceArray) -> DeviceArray:
        if here.plain is not card or a.block.writer is not stream:
            return general(a)
        out = fresh()
        if code := call(record, a.pointer, out.pointer):
            raise launch.failure(code)  # the closure keeps the launch, and so its record, alive
        return out

    def binary(a: DeviceArray, b: DeviceArray) -> DeviceArray:
        if here.plain is not card or a.block.writer is not stream or b.block.writer is not stream:
            return general(a, b)
        out = fresh()
        if code := call(record, a.pointer, b.pointer, out.pointer):
            raise launch.failure(code)  # the closure keeps the launch, and so its record, alive
        return out

    return (unary, binary)[count - 1] if launch.words and count <= 2 else general

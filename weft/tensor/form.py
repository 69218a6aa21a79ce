"""The form of a plain float array: shape and dtype as one object, so that the hot path compares by ``is``.

A tensor whose ``_form`` is set holds a plain array of that form. None means not known yet, or no plain
float32 or float64 array; then the general path finds out.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from weft.base.concrete import is_concrete
from weft.base.device import CPU, Device
from weft.base.dtypes import DType, float32, float64
from weft.ops.op import Array
from weft.tensor.large import LARGE

ndarray = np.ndarray
_MOST_CONSTANTS = 1024
_MOST_FORMS = 65536


class Form:
    """One for each shape and dtype in use; equal forms are the same object.

    Attributes:
        dtype: float32 or float64.
        shape: the sizes.
        is_scalar: whether there are none.
        is_plain: whether ufuncs run on it as they are: it is neither a scalar, nor large.
        constants: numbers as 0-d arrays of the dtype; zero is not among them, for 0.0 equals -0.0.
        device: where the arrays are.
    """

    __slots__ = ("constants", "dtype", "is_plain", "is_scalar", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: DType, constants: dict[Any, Any]) -> None:
        self.shape = shape
        self.is_scalar = shape == ()
        self.is_plain = shape != () and prod(shape) < LARGE
        self.dtype = dtype
        self.constants = constants

    @property
    def device(self) -> Device:
        """Where arrays of this form are."""
        return CPU


_forms: dict[DType, dict[tuple[int, ...], Form]] = {float32: {}, float64: {}}
_constants: dict[DType, dict[Any, Any]] = {float32: {}, float64: {}}


def form_of(data: object) -> Form | None:
    """The form of data, or None if it is not a plain float32 or float64 array."""
    if type(data) is not ndarray:
        found: Form | None = data.form if is_concrete(data) else None  # type: ignore[attr-defined]
        return found
    if data.dtype is not float32 and data.dtype is not float64:
        return None
    forms, shape = _forms[data.dtype], data.shape
    form = forms.get(shape)
    if form is None:
        if len(forms) >= _MOST_FORMS:  # forms that are forgotten are merely not recognised any more
            forms.clear()
        form = forms[shape] = Form(shape, data.dtype, _constants[data.dtype])
    return form


def constant(form: Form, number: float) -> Array:
    """A number as a 0-d array of a form's dtype, kept for the next time."""
    if type(form) is not Form:
        there: Any = form  # of a device, with the face of one of ours
        return there.constant(number)  # type: ignore[no-any-return]
    array = np.asarray(number, form.dtype)
    array.flags.writeable = False
    if number and len(form.constants) < _MOST_CONSTANTS:
        form.constants[number] = array
    return array

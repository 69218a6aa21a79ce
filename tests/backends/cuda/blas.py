# ruff: noqa: N802, N815 - the names are those of the library
"""A stand-in for cuBLASLt: what descriptors say, computed in columns by NumPy on the memory of a stand-in.

It takes arguments as C does, refuses what the library refuses, and offers several algorithms, which differ in
the time that they say they take.
"""

from __future__ import annotations

from ctypes import c_void_p
from typing import Any

import numpy as np

from tests.backends.cuda.standin import StandIn
from weft.base.dtypes import bfloat16

_TYPES: dict[int, Any] = {0: np.float32, 1: np.float64, 2: np.float16, 14: bfloat16}
NOT_SUPPORTED = 15
ADD_BIAS = 4


class StandInBlas:
    """The functions of the library.

    Attributes:
        asked: how often the library was asked for algorithms.
        used: numbers of the algorithms that products were computed by.
        workspaces: by algorithm, bytes that it works in.
    """

    def __init__(self, api: StandIn) -> None:
        self.api = api
        self.things: dict[int, dict[Any, Any]] = {}
        self.asked = 0
        self.reductions: list[int | None] = []
        self.used: list[int] = []
        self.workspaces = {1: 0, 2: 1024, 3: 512}
        self.counting: set[int] = set()  # algorithms that count in their workspace, from 0 on
        self.cublasLtGetVersion = _Version()

    def _new(self, ref: Any, **fields: Any) -> int:
        number = self.api.number()
        self.things[number] = {**fields}
        ref._obj.value = number
        return 0

    def cublasLtCreate(self, handle: Any) -> int:
        return self._new(handle)

    def cublasLtMatmulDescCreate(self, made: Any, compute: int, scale: int) -> int:
        return self._new(made, compute=compute, scale=scale)

    def cublasLtMatmulPreferenceCreate(self, made: Any) -> int:
        return self._new(made)

    def cublasLtMatmulPreferenceDestroy(self, thing: Any) -> int:
        del self.things[thing.value]
        return 0

    def cublasLtMatrixLayoutCreate(self, made: Any, kind: int, rows: Any, columns: Any, apart: Any) -> int:
        assert apart.value >= rows.value, "columns must not overlap"
        return self._new(made, kind=kind, rows=rows.value, columns=columns.value, apart=apart.value)

    def _set(self, thing: Any, attribute: int, value: Any, size: Any) -> int:
        assert size.value == (8 if isinstance(value._obj, c_void_p) else size.value)
        assert size.value in (4, 8)
        self.things[thing.value][attribute] = value._obj.value
        return 0

    cublasLtMatmulDescSetAttribute = cublasLtMatrixLayoutSetAttribute = _set
    cublasLtMatmulPreferenceSetAttribute = _set

    def cublasLtMatmulAlgoGetHeuristic(
        self, handle: Any, description: Any, *rest: Any
    ) -> int:  # layouts, preference, most, found, count
        *_, preference, most, found, count = rest
        self.asked += 1
        wishes = self.things[preference.value]
        assert wishes[1] == 64 << 20
        self.reductions.append(wishes.get(3))
        assert all(wishes[i] & (wishes[i] - 1) == 0 and wishes[i] <= 16 for i in (5, 6, 7, 8))
        offers = list(self.workspaces.items())[:most]
        for i, (number, workspace) in enumerate(offers):
            found._obj[i].algorithm[0], found._obj[i].workspace, found._obj[i].state = number, workspace, 0
        count._obj.value = len(offers)
        return 0

    def cublasLtMatmulAlgoCheck(self, handle: Any, description: Any, *rest: Any) -> int:
        *_, algorithm, found = rest
        number = algorithm._obj[0]
        if number not in self.workspaces:
            return NOT_SUPPORTED
        found._obj.workspace, found._obj.state = self.workspaces[number], 0
        return 0

    def cublasLtMatmul(
        self, handle: Any, description: Any, alpha: Any, a: Any, a_layout: Any, b: Any, b_layout: Any,
        beta: Any, c: Any, c_layout: Any, d: Any, d_layout: Any, algorithm: Any, workspace: Any,
        size: Any, stream: Any,
    ) -> int:  # fmt: skip
        number = algorithm._obj[0]
        if self.workspaces[number] > size.value:
            return NOT_SUPPORTED
        assert c.value == d.value
        turned = [bool(self.things[description.value].get(i, 0)) for i in (3, 4)]
        factors = float(alpha._obj.value), float(beta._obj.value)
        sides = (a.value, a_layout.value), (b.value, b_layout.value), (c.value, c_layout.value)
        pointer, needed = workspace.value, self.workspaces[number]
        told = self.things[description.value]
        row = told[8] if told.get(7) == ADD_BIAS else None  # as it is now: the next call may say another one

        if number in self.counting:
            self.api.clear(stream.value, pointer, 4)

        def work(on: int) -> None:
            self.used.append(number)
            if number in self.counting:
                assert not self.api.bytes_at(pointer, 4, on, writes=False).any(), "it counts from 0 on"
            if needed:
                self.api.bytes_at(pointer, needed, on, writes=True)[:] = 0xAB
            left, right = (self._matrices(*side, on) for side in sides[:2])
            out = self._matrices(*sides[2], on, writes=True)
            left, right = (x.swapaxes(1, 2) if t else x for x, t in zip((left, right), turned, strict=True))
            summed = np.float64 if out.dtype == np.float64 else np.float32
            product = factors[0] * (left.astype(summed) @ right.astype(summed))
            product = product + factors[1] * out.astype(summed) if factors[1] else product
            out[...] = product if row is None else product + self._row(row, out, on)

        self.api.give(stream.value, work)
        return 0

    def _row(self, pointer: int, out: Any, stream: int) -> Any:
        """A number for each row of what is in columns."""
        count, size = out.shape[1], out.dtype.itemsize
        found = self.api.bytes_at(pointer, count * size, stream, writes=False).view(out.dtype)
        return found.astype(np.promote_types(np.float32, out.dtype) if size > 2 else np.float32)[:, None]

    def _matrices(self, pointer: int, layout: int, stream: int, *, writes: bool = False) -> Any:
        """A batch of matrices in columns."""
        told: Any = self.things[layout]
        batch, stride = told.get(5, 1), told.get(6, 0)
        dtype = np.dtype(_TYPES[told["kind"]])
        rows, columns, apart = told["rows"], told["columns"], told["apart"]
        count = (batch - 1) * stride + (columns - 1) * apart + rows
        memory = self.api.bytes_at(pointer, count * dtype.itemsize, stream, writes=writes).view(dtype)
        size = dtype.itemsize
        return np.ndarray((batch, rows, columns), dtype, memory, 0, (stride * size, size, apart * size))


class _Version:
    restype: Any = None

    def __call__(self) -> int:
        return 130000

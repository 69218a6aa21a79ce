"""The checks that the matrix makes of every op and composite, through the public API.

Values are compared with an independent oracle; derivatives with finite differences in float64 along
one random direction, because a vjp and a jvp derived from one wrong partial agree with each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.of_code import turn_of
from weft.base.dtypes import kind
from weft.ops.op import COMPOSITES, OPS, Composite, Op, Sample, type_of


@dataclass(frozen=True)
class Entry:
    """One row of the matrix."""

    name: str
    call: Callable[..., Any]
    sample: Sample
    op: Op | Composite

    @property
    def differentiable(self) -> list[int]:
        """The inputs that can have a gradient."""
        return [i for i, a in enumerate(self.sample.inputs) if kind(a.dtype) in "fc"]

    def outputs(self, *inputs: Any) -> list[Any]:
        """The tensors that the call gives, flattened."""
        out = self.call(*inputs, **self.sample.attrs)
        return list(out) if isinstance(out, tuple | list) else [out]


@cache
def entries() -> tuple[Entry, ...]:
    """Every sample of every op and composite."""
    for name in weft.__all__:
        getattr(weft, name)  # imported at first use, and with it its ops
    assert weft.fft
    assert weft.linalg
    rows = []
    for table in (OPS, COMPOSITES):
        for name, op in table.items():
            call = op if isinstance(op, Op) else op.sampled
            if isinstance(op, Op) and not op.inputs and not op.variadic:
                call = op.on_tensors  # without a tensor among the inputs, the op itself gives arrays
            rows += [Entry(name, call, sample, op) for sample in (op.samples() if op.samples else ())]
    return tuple(rows)


def by_name(rows: Sequence[Entry], parts: int = 1) -> dict[str, list[Entry]]:
    """Samples by their op: of so many parts one, which has the first sample of every op."""
    groups: dict[str, list[Entry]] = {}
    for row in rows:
        groups.setdefault(row.name, []).append(row)
    return {name: turn_of(group, parts, name=lambda entry: entry.name) for name, group in groups.items()}


def over(rows: Sequence[Entry], parts: int = 1) -> Callable[[Callable[[Entry], None]], Callable[..., None]]:
    """Have a check of one sample made of all, in one test for each op; what fails is noted in the error.

    Of so many parts a run takes one: the first sample of each op, and those whose turn it is for this code.
    """
    numbers = {id(row): number for rows in by_name(rows).values() for number, row in enumerate(rows, 1)}
    groups = by_name(rows, parts)

    def decorate(check: Callable[[Entry], None]) -> Callable[..., None]:
        @pytest.mark.parametrize("name", groups)
        def test(name: str) -> None:
            for entry in groups[name]:
                try:
                    check(entry)
                except BaseException as error:
                    error.add_note(f"sample {numbers[id(entry)]} of {name}")
                    raise

        test.__doc__ = check.__doc__
        return test

    return decorate


def is_real(entry: Entry) -> bool:
    """Whether the inputs of a sample are real, some of them floating."""
    kinds = {kind(a.dtype) for a in entry.sample.inputs}
    return "f" in kinds and "c" not in kinds


def direction(arrays: Sequence[Any], seed: int) -> list[Any]:
    """A random direction of the types of arrays."""
    rng = np.random.default_rng(seed)
    out = []
    for a in arrays:
        v = rng.uniform(-1.0, 1.0, a.shape)
        if kind(a.dtype) == "c":
            v = v + 1j * rng.uniform(-1.0, 1.0, a.shape)
        out.append(v.astype(a.dtype))
    return out


def real_inner(us: Sequence[Any], vs: Sequence[Any]) -> float:
    """The real inner product of two lists of arrays."""
    return float(sum(np.real(np.vdot(np.asarray(u), np.asarray(v))) for u, v in zip(us, vs, strict=True)))


def restricted(entry: Entry) -> tuple[Callable[..., tuple[Any, ...]], list[Any]]:
    """The call as a function of its differentiable inputs alone, with only differentiable outputs."""
    arrays, where = entry.sample.inputs, entry.differentiable

    def function(*xs: Any) -> tuple[Any, ...]:
        full = [weft.tensor(a) for a in arrays]
        for i, x in zip(where, xs, strict=True):
            full[i] = x
        return tuple(o for o in entry.outputs(*full) if kind(o.dtype) in "fc")

    return function, [arrays[i] for i in where]


def tensors(arrays: Sequence[Any]) -> list[Any]:
    """Arrays as tensors."""
    return [weft.tensor(np.asarray(a)) for a in arrays]


def values(outs: Sequence[Any]) -> list[Any]:
    """Tensors as arrays."""
    return [o.detach().numpy() for o in outs]


def check_type(entry: Entry) -> None:
    """The type rule tells the type that evaluation gives."""
    assert isinstance(entry.op, Op)
    inputs = tensors(entry.sample.inputs)
    inferred = entry.op.type_rule(*map(type_of, inputs), **entry.sample.attrs)
    inferred = list(inferred) if isinstance(inferred, tuple | list) else [inferred]
    assert [str(type_of(o)) for o in entry.outputs(*inputs)] == [str(t) for t in inferred]


def check_value(entry: Entry, oracle: Callable[..., Any]) -> None:
    """The values are those of the oracle, which computes half precision in double."""
    actual = entry.outputs(*tensors(entry.sample.inputs))
    narrow = any(a.dtype in HALVES for a in actual)
    inputs = [_widened(a) if narrow else a for a in entry.sample.inputs]
    with np.errstate(all="ignore"):
        expected = oracle(*inputs, **entry.sample.attrs)
    expected = list(expected) if isinstance(expected, tuple | list) else [expected]
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        if a.dtype in HALVES:
            assert_rounded_once(a.numpy(), np.asarray(e))
            continue
        single = a.dtype.itemsize <= (8 if kind(a.dtype) == "c" else 4) and kind(a.dtype) in "fc"
        tolerance = 2e-5 if single else 1e-10
        got = a.numpy().astype(np.float64) if kind(a.dtype) == "f" else a.numpy()
        np.testing.assert_allclose(got, e, rtol=tolerance, atol=tolerance)


_MOST = 1e38  # about the largest number of single precision
HALVES = (weft.float16, weft.bfloat16)


def _widened(a: Any) -> Any:
    return a.astype(np.float64) if a.dtype in HALVES else a


def assert_rounded_once(actual: Any, exact: Any) -> None:
    """Numbers of half precision are within a unit in the last place of exact ones, infinities included."""
    info = ml_dtypes.finfo(actual.dtype)
    with np.errstate(all="ignore"):
        rounded = exact.astype(actual.dtype).astype(np.float64)
    got = actual.astype(np.float64)
    finite = np.isfinite(rounded) & np.isfinite(got)
    np.testing.assert_array_equal(got[~finite], rounded[~finite])
    unit = float(info.eps) * np.maximum(np.abs(exact[finite]), float(info.tiny))
    single = 2.0**-21 * np.abs(exact[finite]).max(initial=1.0)  # what rounding in single precision may leave
    off = np.maximum(np.abs(got[finite] - exact[finite]) - single, 0.0) / unit
    assert off.max(initial=0.0) <= 1.0, f"{off.max()} units in the last place"


def check_half(entry: Entry, oracle: Callable[..., Any], dtype: Any, scale: float) -> None:
    """In half precision the values are those of the oracle at the same numbers, rounded once."""
    with np.errstate(all="ignore"):
        narrow = [(a * scale).astype(dtype) if kind(a.dtype) == "f" else a for a in entry.sample.inputs]
        expected = oracle(*map(_widened, narrow), **entry.sample.attrs)
    expected = list(expected) if isinstance(expected, tuple | list) else [expected]
    try:
        actual = entry.outputs(*tensors(narrow))
    except weft.errors.DtypeError:  # no half precision: matrices are factored in single or double
        return
    for a, e in zip(actual, map(np.asarray, expected), strict=True):
        if a.dtype == dtype and np.abs(e, where=np.isfinite(e), out=np.zeros(e.shape)).max(initial=0) < _MOST:
            assert_rounded_once(a.numpy(), e)


def check_jvp(entry: Entry) -> None:
    """The jvp is the finite difference along a random direction."""
    function, arrays = restricted(entry)
    ts = direction(arrays, 1)
    _, actual = weft.jvp(function, tuple(tensors(arrays)), tuple(tensors(ts)))
    _assert_derivative(lambda xs: values(function(*tensors(xs))), arrays, ts, values(actual))


def _assert_derivative(
    f: Callable[..., list[Any]], xs: Sequence[Any], ts: Sequence[Any], actual: list[Any]
) -> None:
    """Central differences with Richardson extrapolation, so that the error is of fourth order."""
    h = 1e-3

    def difference(step: float) -> list[Any]:
        plus = f([x + step * t for x, t in zip(xs, ts, strict=True)])
        minus = f([x - step * t for x, t in zip(xs, ts, strict=True)])
        return [(p - m) / (2 * step) for p, m in zip(plus, minus, strict=True)]

    for a, coarse, fine in zip(actual, difference(h), difference(h / 2), strict=True):
        np.testing.assert_allclose(a, (4 * fine - coarse) / 3, rtol=2e-6, atol=2e-6)


def check_transposed(entry: Entry) -> None:
    """The vjp is the transpose of the jvp: <u, Jv> = <J^T u, v>."""
    function, arrays = restricted(entry)
    vs = direction(arrays, 2)
    outs, pushed = weft.jvp(function, tuple(tensors(arrays)), tuple(tensors(vs)))
    us = direction(values(outs), 3)
    _, pull = weft.vjp(function, *tensors(arrays))
    pulled = pull(tuple(tensors(us)))
    for p, a in zip(pulled, arrays, strict=True):
        assert (p.shape, p.dtype) == (a.shape, a.dtype)
    np.testing.assert_allclose(
        real_inner(us, values(pushed)), real_inner(values(pulled), vs), rtol=1e-9, atol=1e-9
    )


def check_second_order(entry: Entry) -> None:
    """The jvp of the gradient is its finite difference."""
    function, arrays = restricted(entry)
    us = direction(values(function(*tensors(arrays))), 4)
    ts = direction(arrays, 5)

    def gradient(*xs: Any) -> Any:
        return tuple(weft.vjp(function, *xs)[1](tuple(tensors(us))))

    _, actual = weft.jvp(gradient, tuple(tensors(arrays)), tuple(tensors(ts)))
    _assert_derivative(lambda xs: values(gradient(*tensors(xs))), arrays, ts, values(actual))
    check_double_backward(gradient, arrays, ts, values(actual))


def check_double_backward(
    gradient: Callable[..., Any], arrays: list[Any], ts: list[Any], jvp: list[Any]
) -> None:
    """Reverse over reverse agrees with forward over reverse."""
    vs = direction(jvp, 6)
    _, pull = weft.vjp(gradient, *tensors(arrays))
    pulled = pull(tuple(tensors(vs)))
    np.testing.assert_allclose(real_inner(vs, jvp), real_inner(values(pulled), ts), rtol=1e-8, atol=1e-8)


def check_vmap(entry: Entry, batched: Sequence[bool], axis: int) -> None:
    """vmap gives what a loop over the examples gives; each example is the sample, perturbed."""
    arrays = entry.sample.inputs
    examples = [
        [_perturbed(a, i) if b else a for a, b in zip(arrays, batched, strict=True)] for i in range(3)
    ]
    stacked, in_axes = [], []
    for k, b in enumerate(batched):
        where = min(axis, arrays[k].ndim)
        stacked.append(np.stack([e[k] for e in examples], axis=where) if b else arrays[k])
        in_axes.append(where if b else None)
    out = weft.vmap(lambda *xs: tuple(entry.outputs(*xs)), in_axes=tuple(in_axes))(*tensors(stacked))
    loop = [entry.outputs(*tensors(e)) for e in examples]
    for k, o in enumerate(out):
        expected = np.stack([run[k].numpy() for run in loop])
        np.testing.assert_allclose(o.numpy(), expected, rtol=1e-5, atol=1e-9)


def _perturbed(a: Any, i: int) -> Any:
    if kind(a.dtype) in "fc":
        with np.errstate(all="ignore"):
            return (a * (1 + 0.01 * i)).astype(a.dtype)
    return a

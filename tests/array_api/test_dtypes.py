"""Dtypes: promotion, limits, casts and the inspection API."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.array_api.reference import (
    ALL,
    COMPLEX,
    FLOATING,
    FLOATS,
    INTEGERS,
    SIGNED,
    UNSIGNED,
    Array,
    arrays,
    assert_same,
    few,
    strict,
    to_weft,
)

HALF = ("float16", "bfloat16")
EVERY = (*ALL, *HALF)


def dtype_of(name: str) -> Any:
    return getattr(weft, name)


def standard_result(*names: str) -> str | None:
    """The name of the standard's common dtype, or None where it has none."""
    try:
        return str(strict.result_type(*[getattr(strict, n) for n in names])).rpartition(".")[2]
    except TypeError:
        return None


# Promotion


@pytest.mark.parametrize(("a", "b"), list(product(ALL, ALL)))
def test_promotion_of_two_dtypes_is_the_standards(a: str, b: str) -> None:
    expected = standard_result(a, b)
    if expected is None:
        return
    assert weft.result_type(dtype_of(a), dtype_of(b)) == dtype_of(expected)
    x, y = weft.ones(2, dtype=a), weft.ones((), dtype=b)
    assert weft.result_type(x, y) == dtype_of(expected)
    assert weft.where(weft.tensor(True), x, y).dtype == dtype_of(expected)
    assert weft.concat([x, weft.ones(1, dtype=b)]).dtype == dtype_of(expected)
    assert weft.equal(x, y).dtype == weft.bool
    if expected != "bool":
        assert (x + y).dtype == weft.multiply(x, y).dtype == dtype_of(expected)


BEYOND = [
    *[("bool", other, other) for other in EVERY],
    *[(i, f, f) for i in INTEGERS for f in (*HALF, *FLOATING)],
    ("float16", "bfloat16", "float32"),
    *[(h, f, f) for h in HALF for f in FLOATS],
    *[(h, c, c) for h in HALF for c in COMPLEX],
]


@pytest.mark.parametrize(("a", "b", "result"), BEYOND)
def test_promotion_beyond_the_standard(a: str, b: str, result: str) -> None:
    assert weft.result_type(dtype_of(a), dtype_of(b)) == dtype_of(result)
    assert weft.result_type(dtype_of(b), dtype_of(a)) == dtype_of(result)
    if result != "bool":
        assert (weft.ones(1, dtype=a) + weft.ones(1, dtype=b)).dtype == dtype_of(result)


@pytest.mark.parametrize("signed", SIGNED)
def test_uint64_with_a_signed_integer_has_no_common_dtype(signed: str) -> None:
    with pytest.raises(TypeError, match=f"got uint64 and {signed}|got {signed} and uint64"):
        weft.result_type(weft.uint64, dtype_of(signed))


@pytest.mark.parametrize(("name", "scalar"), list(product(EVERY, [True, 3, 2.5, 1j])))
def test_python_scalar_is_weak(name: str, scalar: Any) -> None:
    kinds = "bifc"
    letter = "b" if name == "bool" else "i" if "int" in name else "c" if "complex" in name else "f"
    own, other = (
        kinds.index(letter),
        kinds.index({bool: "b", int: "i", float: "f", complex: "c"}[type(scalar)]),
    )
    default = ("bool", "int64", "float32", "complex128" if name == "float64" else "complex64")[other]
    expected = dtype_of(name if other <= own else default)
    assert (
        weft.result_type(dtype_of(name), scalar)
        == weft.result_type(scalar, weft.ones(1, dtype=name))
        == expected
    )
    if expected != weft.bool:
        assert (
            (weft.ones(1, dtype=name) + scalar).dtype == (scalar + weft.ones(1, dtype=name)).dtype == expected
        )


def test_result_type_does_not_depend_on_order_and_needs_an_argument() -> None:
    assert weft.result_type(3, weft.int8, weft.ones(1, dtype=weft.uint8), 2) == weft.int16
    assert weft.result_type(1, 2.0) == weft.float32
    with pytest.raises(TypeError, match="takes at least one"):
        weft.result_type()


@pytest.mark.parametrize(("a", "b"), list(product(ALL, ALL)))
def test_can_cast_where_promotion_leads(a: str, b: str) -> None:
    assert weft.can_cast(dtype_of(a), dtype_of(b)) is weft.can_cast(weft.ones(1, dtype=a), dtype_of(b))
    if standard_result(a, b) is not None:
        assert weft.can_cast(dtype_of(a), dtype_of(b)) == (standard_result(a, b) == b)


# Limits


@pytest.mark.parametrize("name", [*FLOATS, *COMPLEX, *HALF])
def test_finfo(name: str) -> None:
    part = {"complex64": "float32", "complex128": "float64"}.get(name, name)
    one = weft.ones((), dtype=part)
    for argument in (dtype_of(name), name, weft.ones(2, dtype=name)):
        info = weft.finfo(argument)
        assert info.dtype == dtype_of(part)
        assert type(info.bits) is int
        assert all(type(v) is float for v in (info.eps, info.max, info.min, info.smallest_normal))
        assert info.bits == 8 * one.itemsize
        assert one + info.eps != one
        assert one + info.eps / 4 == one
        assert math.isfinite(float(weft.full((), info.max, dtype=part)))
        assert info.min == -info.max
        assert info.smallest_normal == info.tiny > 0


@pytest.mark.parametrize("name", INTEGERS)
def test_iinfo(name: str) -> None:
    for argument in (dtype_of(name), name, weft.ones(2, dtype=name)):
        info, expected = weft.iinfo(argument), np.iinfo(name)
        assert (info.bits, info.max, info.min, info.dtype) == (
            expected.bits,
            expected.max,
            expected.min,
            dtype_of(name),
        )
        assert all(type(v) is int for v in (info.bits, info.max, info.min))


def test_limits_of_the_wrong_kind_of_dtype_are_refused() -> None:
    with pytest.raises(TypeError, match="dtype must be floating or complex, got int8"):
        weft.finfo(weft.int8)
    with pytest.raises(TypeError, match="dtype must be integer, got float32"):
        weft.iinfo(weft.float32)


# Kinds

KINDS = {
    "bool": ("bool",),
    "signed integer": SIGNED,
    "unsigned integer": UNSIGNED,
    "integral": INTEGERS,
    "real floating": (*FLOATS, *HALF),
    "complex floating": COMPLEX,
    "numeric": (*INTEGERS, *FLOATS, *HALF, *COMPLEX),
}


@pytest.mark.parametrize(("name", "kind"), list(product(EVERY, KINDS)))
def test_isdtype(name: str, kind: str) -> None:
    assert weft.isdtype(dtype_of(name), kind) is (name in KINDS[kind])
    assert weft.isdtype(dtype_of(name), (kind, dtype_of(name))) is True
    assert weft.isdtype(dtype_of(name), dtype_of(name)) is True
    assert weft.isdtype(dtype_of(name), ("bool", kind)) is (name == "bool" or name in KINDS[kind])


def test_isdtype_of_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"kind must be one of bool, .* got 'floating'"):
        weft.isdtype(weft.int8, "floating")


# Casts


@few
@given(data=st.data(), source=st.sampled_from(ALL), target=st.sampled_from(ALL), copy=st.booleans())
def test_astype(data: Any, source: str, target: str, copy: bool) -> None:
    x = data.draw(
        arrays((source,), min_value=0, max_value=100, allow_nan=False)
        if source not in COMPLEX
        else arrays((source,))
    )
    if source in COMPLEX and target not in (*COMPLEX, "bool"):
        with pytest.raises(TypeError, match="dtype must be complex for complex values"):
            weft.astype(to_weft(x), dtype_of(target))
        return
    with np.errstate(all="ignore"):
        expected = strict.asarray(x.astype(target))
    assert_same(weft.astype(to_weft(x), dtype_of(target), copy=copy), expected)
    assert_same(to_weft(x).astype(dtype_of(target), copy=copy, device="cpu"), expected)


@few
@given(x=arrays(ALL))
def test_astype_copies_unless_told_not_to(x: Array) -> None:
    t = to_weft(x)
    assert weft.astype(t, t.dtype, copy=False) is t
    for copied in (weft.astype(t, t.dtype), t.astype(t.dtype, copy=True)):
        assert copied is not t
        assert not np.shares_memory(np.asarray(copied), np.asarray(t)) or x.size == 0


@pytest.mark.parametrize("spec", [None, "float", "f9", object, 3, [], np.dtype(">f4"), np.dtype("U1")])
def test_what_is_not_a_dtype_is_refused(spec: Any) -> None:
    with pytest.raises(TypeError, match="must be one of bool, int8, "):
        weft.astype(weft.ones(1), spec)


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (float, "float32"),
        (int, "int64"),
        (bool, "bool"),
        (complex, "complex64"),
        ("bfloat16", "bfloat16"),
        (np.int8, "int8"),
    ],
)
def test_python_types_and_names_stand_for_dtypes(spec: Any, name: str) -> None:
    assert weft.ones(1, dtype=spec).dtype == dtype_of(name)


def test_default_dtype_can_be_changed_and_complex_follows() -> None:
    weft.set_default_dtype(weft.float64)
    try:
        assert weft.get_default_dtype() == weft.float64
        assert weft.tensor(1.0).dtype == weft.zeros(1).dtype == weft.linspace(0, 1, 2).dtype == weft.float64
        assert weft.tensor(1j).dtype == weft.complex128
        assert weft.__array_namespace_info__().default_dtypes()["complex floating"] == weft.complex128
    finally:
        weft.set_default_dtype(weft.float32)
    with pytest.raises(TypeError, match="dtype must be floating, got int8"):
        weft.set_default_dtype(weft.int8)


# Inspection


def test_inspection() -> None:
    info = weft.__array_namespace_info__()
    assert info.capabilities() == {
        "boolean indexing": True,
        "data-dependent shapes": True,
        "max dimensions": 64,
    }
    assert info.default_device() == weft.ones(1).device
    assert info.devices() == [info.default_device()]
    assert info.default_dtypes(device="cpu") == {
        "real floating": weft.float32,
        "complex floating": weft.complex64,
        "integral": weft.int64,
        "indexing": weft.int64,
    }


@pytest.mark.parametrize("kind", [None, *KINDS, ("bool", "integral"), ("real floating", "complex floating")])
def test_dtypes_by_kind_are_those_of_the_standard(kind: Any) -> None:
    found = weft.__array_namespace_info__().dtypes(kind=kind)
    assert set(found) == set(strict.__array_namespace_info__().dtypes(kind=kind))
    assert all(dtype == dtype_of(name) for name, dtype in found.items())


def test_device_is_kept() -> None:
    x = weft.ones(2)
    assert x.to_device("cpu") is x
    assert x.to_device(x.device, stream=None) is x
    with pytest.raises(ValueError, match="must be cpu or cuda, got 'tpu'"):
        x.to_device("tpu")

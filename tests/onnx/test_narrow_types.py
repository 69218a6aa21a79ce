"""Casts to and from element types that weft has no dtype for, against ml_dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import weft
from tests.of_code import examples
from tests.onnx.network import Array, reals
from weft.onnx.loading import import_model
from weft.onnx.types import from_carried, to_carried

few = examples(15, 7)
numbers = st.integers(0, 2**31 - 1)
chance = st.sampled_from


NARROW = {
    TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    TensorProto.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    TensorProto.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    TensorProto.FLOAT4E2M1: ml_dtypes.float4_e2m1fn,
}


def cast(x: Array, to: int, saturate: bool = True, **attributes: Any) -> Array:
    """x cast by an imported model: what comes out, as an array of its type."""
    code = next((c for c, dtype in NARROW.items() if x.dtype == dtype), None)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype) if code is None else code
    node = helper.make_node("Cast", ["x"], ["y"], to=to, saturate=int(saturate), **attributes)
    infos = [helper.make_tensor_value_info("x", kind, x.shape)]
    graph = helper.make_graph([node], "cast", infos, [onnx.ValueInfoProto(name="y")])
    imported = import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)]))
    carried = to_carried(x)[0]
    (found,) = weft.Session(imported.graph).run(list(imported.graph.outputs), {"x": carried})
    array = found.numpy()
    return from_carried(array, imported.narrow[0]) if imported.narrow else array


@pytest.mark.parametrize("to", NARROW)
def test_every_small_float_is_what_its_bits_say(to: int) -> None:
    codes = np.arange(16 if to == TensorProto.FLOAT4E2M1 else 256, dtype=np.uint8).view(NARROW[to])
    np.testing.assert_array_equal(cast(codes, TensorProto.FLOAT), codes.astype(np.float32))


@few
@given(to=chance(list(NARROW)), seed=numbers, scale=chance([1e-3, 1.0, 100.0]))
def test_floats_round_to_the_nearest_small_float(to: int, seed: int, scale: float) -> None:
    largest = float(ml_dtypes.finfo(NARROW[to]).max)
    values = np.arange(16 if to == TensorProto.FLOAT4E2M1 else 128, dtype=np.uint8).view(NARROW[to])
    exact = np.unique(values.astype(np.float32)[np.isfinite(values.astype(np.float32))])
    middles = (exact[1:] + exact[:-1]) / 2
    x = np.concatenate([reals(seed, 200) * np.float32(scale), middles, -middles, [0.0, -0.0]])
    x = np.clip(x, -largest, largest).astype(np.float32)
    got, wanted = cast(x, to), x.astype(NARROW[to])
    np.testing.assert_array_equal(got.view(np.uint8), wanted.view(np.uint8))


@pytest.mark.parametrize("to", [t for t in NARROW if t != TensorProto.FLOAT4E2M1])
def test_what_is_too_large_for_a_small_float(to: int) -> None:
    largest = float(ml_dtypes.finfo(NARROW[to]).max)
    x = np.array([np.inf, -np.inf, 1e30, -1e30, largest, np.nan], np.float32)
    kept = cast(x, to).astype(np.float32)
    np.testing.assert_array_equal(kept, [largest, -largest, largest, -largest, largest, np.nan])
    lost = cast(x, to, saturate=False).astype(np.float32)
    beyond = np.inf if to == TensorProto.FLOAT8E5M2 else np.nan
    np.testing.assert_array_equal(lost, [beyond, -beyond, beyond, -beyond, largest, np.nan])


@few
@given(seed=numbers, saturate=st.booleans())
def test_powers_of_two_round_as_asked(seed: int, saturate: bool) -> None:
    x = np.exp2(np.random.default_rng(seed).uniform(-40, 40, 50)).astype(np.float32)
    x[:3] = 1.0, 1.5, 0.25
    exponents = np.log2(x.astype(np.float64))
    below = np.floor(exponents)
    nearest = below + (x >= 1.5 * 2**below)
    for mode, wanted in (("up", np.ceil(exponents)), ("down", below), ("nearest", nearest)):
        got = cast(x, TensorProto.FLOAT8E8M0, saturate, round_mode=mode)
        np.testing.assert_array_equal(got.astype(np.float64), 2.0**wanted)


def test_what_is_no_power_of_two() -> None:
    x = np.array([np.inf, 0.0, np.nan, 2.0**127], np.float32)
    kept = cast(x, TensorProto.FLOAT8E8M0).astype(np.float64)
    np.testing.assert_array_equal(kept, [2.0**127, 2.0**-127, np.nan, 2.0**127])
    lost = cast(x, TensorProto.FLOAT8E8M0, saturate=False, round_mode="nearest").astype(np.float64)
    np.testing.assert_array_equal(lost, [np.nan, np.nan, np.nan, 2.0**127])


def test_integers_keep_their_last_bits() -> None:
    x = np.arange(-20, 20, dtype=np.int32)
    for to, bits, signed in (
        (TensorProto.INT4, 4, True),
        (TensorProto.UINT4, 4, False),
        (TensorProto.INT2, 2, True),
        (TensorProto.UINT2, 2, False),
    ):
        kept = x % 2**bits
        wanted = np.where(kept >= 2 ** (bits - 1), kept - 2**bits, kept) if signed else kept
        np.testing.assert_array_equal(cast(x, to).astype(np.int32), wanted)

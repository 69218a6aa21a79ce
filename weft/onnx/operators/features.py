"""Features of classical models: thresholds, columns, labels as numbers, counts of n-grams."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.onnx.operators.registry import Call, enter_handlers, operator

_ML = "ai.onnx.ml"


@operator("ArrayFeatureExtractor", domain=_ML)
def array_feature_extractor(call: Call, x: Tensor, indices: Tensor) -> Any:
    """Some places of the last axis; at least two axes come out."""
    out = weft.take(x, indices.reshape(-1), axis=x.ndim - 1)
    return out if x.ndim > 1 else out[None]


@operator("Scaler", domain=_ML)
def scaler(call: Call, x: Tensor) -> Tensor:
    """``(x - offset) * scale``, by feature."""
    offset, scale = (np.array(call.attribute(name), np.float32) for name in ("offset", "scale"))
    return (x.astype(weft.float32) - weft.asarray(offset)) * weft.asarray(scale)


@operator("LinearRegressor", domain=_ML)
def linear_regressor(call: Call, x: Tensor) -> Any:
    """Sums of features with weights for each target."""
    targets = call.attribute("targets", 1)
    weight = np.array(call.attribute("coefficients"), np.float32).reshape(targets, -1)
    if call.attribute("post_transform", "NONE") != "NONE":
        raise call.error(f"post_transform must be NONE, got {call.attribute('post_transform')}")
    bias = call.attribute("intercepts")
    given = None if bias is None else weft.asarray(np.array(bias, np.float32))
    return weft.linear(x.astype(weft.float32), weft.asarray(weight), given)


enter_handlers(
    {"Binarizer": lambda call, x: (x > call.attribute("threshold", 0.0)).astype(x.dtype)}, domain=_ML
)

# Labels

_KINDS = {"int64s": np.int64, "floats": np.float32, "tensor": None}
_DEFAULTS = {
    "int64s": ("default_int64", -1),
    "floats": ("default_float", -0.0),
    "tensor": ("default_tensor", None),
}


def _listed(call: Call, what: str) -> tuple[str, Any]:
    """The numbers of ``keys_*`` or ``values_*``, and which of these it was."""
    for kind, dtype in _KINDS.items():
        found = call.attribute(f"{what}_{kind}")
        if found is not None:
            array = np.asarray(found, dtype)
            if array.dtype.kind not in "iuf":
                break
            return kind, array.reshape(-1)
    raise call.error(f"{what} must be numbers, got strings or none")


@operator("LabelEncoder", domain=_ML)
def label_encoder(call: Call, x: Tensor) -> Any:
    """Each number replaced by the value of the key that it equals; a default where there is none."""
    keys, (kind, values) = _listed(call, "keys")[1], _listed(call, "values")
    name, fallback = _DEFAULTS[kind]
    default = call.attribute(name, fallback)
    if default is None:
        default = -1 if values.dtype.kind in "iu" else -0.0
    own = dict(zip(keys.tolist(), range(len(keys)), strict=True))  # of equal keys the last counts
    order = np.array([own[k] for k in sorted(k for k in own if k == k)], np.int64)
    ordered, results = weft.asarray(keys[order]), weft.asarray(values[order])
    at = weft.clip(weft.searchsorted(ordered, x), 0, len(order) - 1)
    found = weft.take(ordered, at, axis=0) == x
    out = weft.where(
        found, weft.take(results, at, axis=0), weft.asarray(np.asarray(default, values.dtype).reshape(()))
    )
    missing = np.flatnonzero(keys != keys)
    if len(missing):
        out = weft.where(weft.isnan(x), weft.asarray(values[missing[-1]]), out)
    return out


# Counts of n-grams


@operator("TfIdfVectorizer")
def tf_idf_vectorizer(call: Call, x: Tensor) -> Tensor:
    """How often each n-gram of a list occurs in rows of integers, perhaps weighted."""
    pool = call.attribute("pool_int64s")
    if pool is None:
        raise call.error("pool_int64s must be given, got strings")
    rows = x if x.ndim == 2 else x[None]
    counts, places = [], []
    for length, grams, first in _grams(call, np.array(pool, np.int64)):
        counts.append(_occurrences(rows, grams, 0 if length == 1 else call.attribute("max_skip_count")))
        places += list(range(first, first + len(grams)))
    indexes = call.attribute("ngram_indexes")
    size = max(indexes) + 1
    if not counts:
        out = weft.zeros((rows.shape[0], size))
    else:
        found = _weighted(call, weft.concat(counts, axis=1).astype(weft.float32), places)
        zeros = weft.zeros((rows.shape[0], size), dtype=weft.float32)
        target = weft.asarray(np.array([indexes[p] for p in places], np.int64))
        out = weft.index_add(zeros, target, found, axis=1)
    return out if x.ndim == 2 else out[0]


def _grams(call: Call, pool: Any) -> list[tuple[int, Any, int]]:
    """For each length that counts: the n-grams (count, length), and the number of the first among all."""
    starts = [*call.attribute("ngram_counts"), len(pool)]
    out, first = [], 0
    for length, (start, end) in enumerate(pairwise(starts), 1):
        grams = pool[start:end].reshape(-1, length)
        if call.attribute("min_gram_length") <= length <= call.attribute("max_gram_length") and len(grams):
            out.append((length, grams, first))
        first += len(grams)
    return out


def _occurrences(rows: Tensor, grams: Any, skips: int) -> Tensor:
    """How often n-grams (G, n) occur in rows (N, L), up to so many elements apart: (N, G)."""
    length, total = grams.shape[1], None
    for skip in range(skips + 1):
        reach = (length - 1) * (skip + 1)
        if reach >= rows.shape[1]:
            break
        hits = None
        for k in range(length):
            part = rows[:, k * (skip + 1) : rows.shape[1] - reach + k * (skip + 1), None]
            equal = part == weft.asarray(grams[:, k].astype(rows.dtype))
            hits = equal if hits is None else hits & equal
        assert hits is not None
        found = weft.sum(hits.astype(weft.int64), axis=1)
        total = found if total is None else total + found
    return weft.zeros((rows.shape[0], len(grams)), dtype=weft.int64) if total is None else total


def _weighted(call: Call, counts: Tensor, places: list[int]) -> Tensor:
    mode, weights = call.attribute("mode"), call.attribute("weights")
    if mode == "IDF":
        counts = weft.minimum(counts, 1.0)
    if mode == "TF" or not weights:
        return counts
    return counts * weft.asarray(np.array([weights[p] for p in places], np.float32))

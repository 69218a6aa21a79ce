"""Classical models: thresholds, columns, labels, counts of n-grams, and ensembles of decision trees."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.onnx.operators.registry import Call, enter_handlers, operator

_ML = "ai.onnx.ml"


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
    {
        "Binarizer": lambda call, x, *, threshold=0.0: (x > threshold).astype(x.dtype),
        "ArrayFeatureExtractor": lambda call, x, indices: weft.take(
            x if x.ndim > 1 else x[None], indices.reshape(-1), axis=max(x.ndim - 1, 1)
        ),
    },
    domain=_ML,
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


# Ensembles of trees: every example goes down all trees at once, one level a step

Array = np.ndarray[Any, Any]
_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
_MEMBER = 6


@dataclass(frozen=True, slots=True)
class Trees:
    """Inner nodes and then leaves, numbered together; a leaf leads to itself.

    Attributes:
        roots: of the trees.
        features: which feature each node looks at.
        splits: what it is compared with.
        modes: how, as a place among the comparisons that there are.
        members: for each node a row of values, for the test of being one of them.
        missing: where a feature that is no number leads to the node for true.
        children: (2, nodes), the nodes for false and for true.
        weights: (nodes, targets), what a leaf adds.
        counted: (nodes, targets), whether it does.
    """

    roots: Array
    features: Array
    splits: Array
    modes: Array
    members: Array
    missing: Array
    children: Array
    weights: Array
    counted: Array


def _depth(call: Call, trees: Trees) -> int:
    """How many steps lead to the last leaf."""
    level, steps = np.unique(trees.roots), 0
    while (trees.children[:, level] != level).any() and steps <= len(trees.splits):
        level, steps = np.unique(trees.children[:, level]), steps + 1
    if steps > len(trees.splits) or not len(trees.roots):
        raise call.error("nodes must lead to leaves, got some that lead back to themselves")
    return steps


def _compared(x: Tensor, split: Tensor, mode: Tensor, used: list[int]) -> Tensor:
    tests = [
        lambda: x <= split, lambda: x < split, lambda: x >= split, lambda: x > split,
        lambda: x == split, lambda: x != split,
    ]  # fmt: skip
    out = tests[used[0]]()
    for kind in used[1:]:
        out = weft.where(mode == kind, tests[kind](), out)
    return out


def _leaves(call: Call, trees: Trees, x: Tensor) -> Any:
    """The leaf that each example (N, features) reaches in each tree."""
    look = {
        name: weft.asarray(getattr(trees, name))
        for name in ("features", "splits", "modes", "members", "missing", "children")
    }
    kinds = sorted(set(trees.modes.tolist()))
    plain = [k for k in kinds if k != _MEMBER] or [0]
    at = weft.broadcast_to(weft.asarray(trees.roots), (x.shape[0], len(trees.roots)))
    for _ in range(_depth(call, trees)):
        value = weft.take_along_axis(x, weft.take(look["features"], at, axis=0), axis=1)
        mode = weft.take(look["modes"], at, axis=0)
        taken = _compared(value, weft.take(look["splits"], at, axis=0), mode, plain)
        if _MEMBER in kinds:
            one_of = weft.any(weft.take(look["members"], at, axis=0) == value[..., None], axis=-1)
            taken = weft.where(mode == _MEMBER, one_of, taken)
        taken = weft.where(weft.isnan(value), weft.take(look["missing"], at, axis=0), taken)
        no, yes = (weft.take(look["children"][k], at, axis=0) for k in (0, 1))
        at = weft.where(taken, yes, no)
    return at


def _aggregated(trees: Trees, leaves: Tensor, how: str) -> Any:
    """What the leaves add up to for each target: (N, targets)."""
    if how in ("SUM", "AVERAGE"):
        total = weft.sum(weft.take(weft.asarray(trees.weights), leaves, axis=0), axis=1)
        return total / len(trees.roots) if how == "AVERAGE" else total
    far = np.inf if how == "MIN" else -np.inf
    table = np.where(trees.counted, trees.weights, far).astype(trees.weights.dtype)
    found = weft.take(weft.asarray(table), leaves, axis=0)
    out = weft.min(found, axis=1) if how == "MIN" else weft.max(found, axis=1)
    return weft.where(weft.isinf(out), 0.0, out)


def _transformed(scores: Tensor, transform: str) -> Any:
    if transform == "NONE":
        return scores
    if transform == "SOFTMAX":
        return weft.softmax(scores, axis=-1)
    if transform == "LOGISTIC":
        return weft.sigmoid(scores)
    if transform == "SOFTMAX_ZERO":
        kept = weft.softmax(weft.where(scores == 0, -weft.inf, scores), axis=-1)
        return weft.where(scores == 0, 0.0, kept)
    return weft.erfinv(2 * scores - 1) * float(np.sqrt(2.0))


# The operator with tensors as attributes


@operator("TreeEnsemble", domain="ai.onnx.ml")
def tree_ensemble(call: Call, x: Tensor) -> Any:
    """The targets of examples (N, features)."""
    trees = _read(call)
    how = ("AVERAGE", "SUM", "MIN", "MAX")[call.attribute("aggregate_function", 1)]
    names = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
    scores = _aggregated(trees, _leaves(call, trees, x), how)
    return _transformed(scores, names[call.attribute("post_transform", 0)])


def _read(call: Call) -> Trees:
    splits, weights = call.attribute("nodes_splits"), call.attribute("leaf_weights")
    count, leaves = len(splits), len(weights)
    last, targets = np.arange(count, count + leaves), list(call.attribute("leaf_targetids"))
    table = np.zeros((count + leaves, call.attribute("n_targets", 1)), weights.dtype)
    counted = np.zeros(table.shape, bool)
    table[last, targets], counted[last, targets] = weights, True

    def nodes(name: str, default: Any = None) -> Array:
        """An attribute of the nodes, zeros for leaves."""
        return np.append(call.attribute(f"nodes_{name}", default), np.zeros(leaves)).astype(np.int64)

    children = np.stack([nodes(f"{way}nodeids") + count * nodes(f"{way}leafs") for way in ("false", "true")])
    children[:, last] = last
    modes = nodes("modes")
    return Trees(
        roots=np.array(call.attribute("tree_roots")),
        features=nodes("featureids"),
        splits=np.append(splits, np.zeros(leaves)).astype(splits.dtype),
        modes=modes,
        members=_members(call, modes, splits.dtype),
        missing=nodes("missing_value_tracks_true", np.zeros(count)) > 0,
        children=children,
        weights=table,
        counted=counted,
    )


def _members(call: Call, modes: Array, dtype: Any) -> Array:
    """For each node the values that its feature may be; rows are filled up with NaN, which equals none."""
    given = call.attribute("membership_values")
    sets: list[list[float]] = [[]]
    for value in () if given is None else given.tolist():
        if np.isnan(value):
            sets.append([])
        else:
            sets[-1].append(value)
    out = np.full((len(modes), max(map(len, sets), default=0) or 1), np.nan, dtype)
    for node, values in zip(np.flatnonzero(modes == _MEMBER), sets, strict=False):
        out[node, : len(values)] = values
    return out


# The older operator, with lists as attributes


@operator("TreeEnsembleRegressor", domain="ai.onnx.ml")
def tree_ensemble_regressor(call: Call, x: Tensor) -> Any:
    """The targets of examples (N, features)."""
    trees = _read_lists(call)
    scores = _aggregated(trees, _leaves(call, trees, x), call.attribute("aggregate_function", "SUM"))
    base = call.attribute("base_values", ())
    if base:
        scores = scores + weft.asarray(np.array(base, np.float32))
    return _transformed(scores, call.attribute("post_transform", "NONE"))


def _read_lists(call: Call) -> Trees:
    """Trees from the attributes of the older operator."""
    keys = list(zip(call.attribute("nodes_treeids"), call.attribute("nodes_nodeids"), strict=True))
    number = {key: i for i, key in enumerate(keys)}
    names = call.attribute("nodes_modes")
    inner = np.array([name != "LEAF" for name in names])
    children = np.tile(np.arange(len(keys)), (2, 1))
    for row, way in enumerate(("false", "true")):
        for i, child in enumerate(call.attribute(f"nodes_{way}nodeids")):
            if inner[i]:
                children[row, i] = number[keys[i][0], child]
    weights = np.zeros((len(keys), call.attribute("n_targets", 1)), np.float32)
    counted = np.zeros(weights.shape, bool)
    ids = (call.attribute(f"target_{name}") for name in ("treeids", "nodeids", "ids", "weights"))
    for tree, node, target, weight in zip(*ids, strict=True):
        weights[number[tree, node], target] += weight
        counted[number[tree, node], target] = True
    reached = set(children[:, inner].reshape(-1).tolist())
    return Trees(
        roots=np.array([i for i in range(len(keys)) if i not in reached], np.int64),
        features=np.array(call.attribute("nodes_featureids")),
        splits=np.array(call.attribute("nodes_values"), np.float32),
        modes=np.array([_MODES.index(name) if name != "LEAF" else 0 for name in names]),
        members=np.full((len(keys), 1), np.nan, np.float32),
        missing=np.array(call.attribute("nodes_missing_value_tracks_true", (0,) * len(keys))) > 0,
        children=children,
        weights=weights,
        counted=counted,
    )

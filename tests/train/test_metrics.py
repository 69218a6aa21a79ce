"""Metrics against formulas by hand and scikit-learn; in parts, merged, over ranks, and in compiled steps."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as reference

import weft
from weft import nn
from weft import parallel as par
from weft.errors import ArgumentError, DomainError, ShapeError
from weft.train import metrics

RNG = np.random.default_rng(7)
N, CLASSES = 120, 4
SCORES = RNG.standard_normal((N, CLASSES)).astype(np.float32)
LABELS = RNG.integers(0, CLASSES, N)
LOGITS = np.round(RNG.standard_normal(N), 1).astype(np.float32)  # rounded: some are equal
TRUTH = (LOGITS + RNG.standard_normal(N) > 0.3).astype(np.int64)
REALS = (1e6 + RNG.standard_normal((N, 3))).astype(np.float64)  # a mean that is large beside the spread
GUESSES = REALS + 0.5 * RNG.standard_normal((N, 3))
FOUND = SCORES.argmax(axis=1)
TOKENS = RNG.standard_normal((N, 5, 7)).astype(np.float32)
WORDS = np.where(RNG.random((N, 5)) < 0.2, -100, RNG.integers(0, 7, (N, 5)))


def perplexity() -> float:
    shifted = TOKENS.astype(np.float64)
    logs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    kept = WORDS != -100
    own = np.take_along_axis(logs, np.where(kept, WORDS, 0)[..., None], axis=-1)[..., 0]
    return float(np.exp(-own[kept].mean()))


def best_two() -> float:
    order = np.argsort(-SCORES, axis=1)[:, :2]
    return float((order == LABELS[:, None]).any(axis=1).mean())


Row = tuple[Callable[[], metrics.Metric], Any, Any, Any]
PRF = {metrics.Precision: "precision_score", metrics.Recall: "recall_score", metrics.F1: "f1_score"}
AVERAGED: dict[str, Row] = {
    f"{make.__name__} {average}": (
        lambda make=make, average=average: make(CLASSES, average),
        SCORES,
        LABELS,
        getattr(reference, name)(LABELS, FOUND, average=average),
    )
    for make, name in PRF.items()
    for average in ("macro", "micro", "weighted", None)
}
BINARY: dict[str, Row] = {
    f"{make.__name__} of two": (make, LOGITS, TRUTH, getattr(reference, name)(TRUTH, LOGITS > 0))
    for make, name in PRF.items()
}
JACCARD = reference.jaccard_score(LABELS, FOUND, average="macro")
CASES: dict[str, Row] = {
    **AVERAGED,
    **BINARY,
    "confusion": (
        lambda: metrics.Confusion(CLASSES),
        SCORES,
        LABELS,
        reference.confusion_matrix(LABELS, FOUND),
    ),
    "iou": (lambda: metrics.IoU(CLASSES), SCORES, LABELS, JACCARD),
    "auc": (metrics.AUC, LOGITS, TRUTH, reference.roc_auc_score(TRUTH, LOGITS)),
    "perplexity": (metrics.Perplexity, TOKENS, WORDS, perplexity()),
    "r2": (
        metrics.R2,
        GUESSES,
        REALS,
        1 - ((GUESSES - REALS) ** 2).sum() / ((REALS - REALS.mean()) ** 2).sum(),
    ),
    "top 2": (lambda: metrics.TopKAccuracy(2), SCORES, LABELS, best_two()),
}
PARTS = (0, 17, 18, 64, N)  # batches of different sizes


def parts(x: Any) -> list[weft.Tensor]:
    return [weft.asarray(x[a:b]) for a, b in pairwise(PARTS)]


def value(found: Any) -> Any:
    return found.numpy() if isinstance(found, weft.Tensor) else found


@pytest.mark.parametrize("name", CASES)
def test_metric_in_parts_is_that_of_all(name: str) -> None:
    make, output, target, expected = CASES[name]
    metric = make()
    for x, y in zip(parts(output), parts(target), strict=True):
        metric.update(x, y)
    np.testing.assert_allclose(value(metric.compute()), expected, rtol=1e-6)
    metric.reset()
    metric.update(weft.asarray(output), weft.asarray(target))
    np.testing.assert_allclose(value(metric.compute()), expected, rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_merged_and_restored_metric_is_that_of_all(name: str) -> None:
    make, output, target, expected = CASES[name]
    first, second, third = make(), make(), make()
    for i, (x, y) in enumerate(zip(parts(output), parts(target), strict=True)):
        (first if i % 2 else second).update(x, y)
    third.load_state_dict(first.state_dict())
    assert third.merge(second) is third
    np.testing.assert_allclose(value(third.compute()), expected, rtol=1e-6)
    kept = first.state_dict()
    first.update(weft.asarray(output), weft.asarray(target))
    assert all((np.asarray(kept[k]) == np.asarray(v)).all() for k, v in kept.items())  # its own tensors


@pytest.mark.parametrize("name", CASES)
def test_ranks_with_batches_of_their_own_agree_on_all(name: str) -> None:
    make, output, target, expected = CASES[name]

    def program() -> Any:
        par.mesh(data=-1)
        metric = make()
        if par.rank() < 2:
            for x, y in list(zip(parts(output), parts(target), strict=True))[par.rank() :: 2]:
                metric.update(x, y)
        before = metric.state_dict()
        whole = value(metric.compute(over="data"))
        after = metric.state_dict()
        assert all((before[k].numpy() == after[k].numpy()).all() for k in before)
        return whole

    for whole in par.simulate(program, 3):  # the third has seen nothing
        np.testing.assert_allclose(whole, expected, rtol=1e-6)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", ["Precision of two", "F1 weighted", "iou", "perplexity", "r2", "top 2"])
def test_metric_is_updated_in_a_compiled_step(name: str) -> None:
    make, output, target, expected = CASES[name]
    metric = make()

    @weft.compile
    def step(x: weft.Tensor, y: weft.Tensor) -> weft.Tensor:
        metric.update(x, y)
        return x.sum()

    for x, y in zip(parts(output), parts(target), strict=True):
        step(x, y)
    np.testing.assert_allclose(value(metric.compute()), expected, rtol=1e-6)


def test_area_in_bins_is_near_and_compiles() -> None:
    metric = metrics.AUC(bins=512)
    step = weft.compile(lambda x, y: metric.update(x, y))
    for x, y in zip(parts(LOGITS), parts(TRUTH), strict=True):
        step(x, y)
    assert metric.compute() == pytest.approx(reference.roc_auc_score(TRUTH, LOGITS), abs=1e-3)


def test_what_was_measured_in_a_graph_can_be_added_outside() -> None:
    metric = metrics.AUC()
    step = weft.compile(lambda x, y: metric.measure(x, y))
    for x, y in zip(parts(LOGITS), parts(TRUTH), strict=True):
        metric.add(step(x, y))
    assert metric.compute() == pytest.approx(reference.roc_auc_score(TRUTH, LOGITS))


def test_nothing_seen_is_nan_or_empty() -> None:
    for metric in (metrics.AUC(), metrics.R2(), metrics.TopKAccuracy(), metrics.Perplexity()):
        assert np.isnan(metric.compute())
    assert metrics.Precision().compute() == 0.0
    assert (metrics.Confusion(3).compute().numpy() == 0).all()


def test_targets_to_ignore_do_not_count() -> None:
    iou = metrics.IoU(3, ignore=255)
    iou.update(weft.tensor([0, 1, 1, 2]), weft.tensor([0, 1, 255, 2]))
    assert iou.compute() == 1.0


BAD = [
    (lambda: metrics.Precision(1), DomainError, "classes must be a whole number from 2 on, got 1"),
    (lambda: metrics.F1(3, "mean"), DomainError, "average must be among macro, micro, weighted, None"),
    (lambda: metrics.AUC(1), DomainError, "bins must be None or a whole number from 2 on"),
    (lambda: metrics.TopKAccuracy(0), DomainError, "k must be a whole number from 1 on"),
    (lambda: used(metrics.TopKAccuracy(9), SCORES, LABELS), DomainError, "k must be at most the 4 classes"),
    (lambda: used(metrics.R2(), REALS, LABELS), ShapeError, "must have the same shape"),
    (lambda: used(metrics.Confusion(3), SCORES, LABELS), ShapeError, "must have 3 classes, got 4"),
    (lambda: used(metrics.Confusion(3), LOGITS, TRUTH), DomainError, "must be of 2 classes, got 3"),
    (lambda: used(metrics.Confusion(3), FOUND, LABELS).compute(), DomainError, "must be from 0 to 2, got"),
    (lambda: used(metrics.Perplexity(), SCORES, SCORES), ShapeError, "and an axis of classes"),
    (lambda: used(metrics.AUC(), LOGITS * np.nan, TRUTH).compute(), DomainError, "can be ordered, got NaN"),
    (lambda: metrics.F1().merge(metrics.F1(3)), ArgumentError, "of the same kind and settings"),
    (lambda: metrics.F1().load_state_dict({"a": 1}), DomainError, "the state must have matrix, outside"),
    (
        lambda: metrics.F1(3).load_state_dict(metrics.F1().state_dict()),
        ShapeError,
        r"matrix must have shape \(3, 3\), got \(2, 2\)",
    ),
    (
        lambda: weft.compile(lambda x, y: metrics.AUC().update(x, y))(weft.ones(3), weft.ones(3)),
        DomainError,
        "must be outside of graphs",
    ),
]


def used(metric: metrics.Metric, output: Any, target: Any) -> metrics.Metric:
    metric.update(weft.asarray(output), weft.asarray(target))
    return metric


@pytest.mark.parametrize(("act", "error", "text"), BAD)
def test_bad_input_is_told(act: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        act()


# In a trainer

GIVEN: dict[str, Any] = {"f1": metrics.F1(CLASSES), "top_2": metrics.TopKAccuracy(2)}


def trained(mesh: Any = None, compile: bool = True, given: Any = GIVEN) -> tuple[Any, Any]:
    weft.manual_seed(0)
    model = nn.Linear(CLASSES, CLASSES)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1)
    batches = [(SCORES[a : a + 24], LABELS[a : a + 24]) for a in range(0, N, 24)]
    settings: dict[str, Any] = {"metrics": given, "progress": False, "compile": compile}
    run = weft.Trainer(model, weft.cross_entropy, optimizer, batches, batches, mesh=mesh, **settings)
    return run.fit(epochs=2), model


@pytest.mark.parametrize("compile", [True, False])
def test_trainer_adds_metrics_up_over_the_epoch(compile: bool) -> None:
    history, model = trained(compile=compile)
    found = model(weft.asarray(SCORES)).detach().numpy().argmax(axis=1)
    expected = reference.f1_score(LABELS, found, average="macro")
    assert history[-1]["val_f1"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.rotating(2)
def test_trainer_on_a_mesh_has_the_metrics_of_one_process() -> None:
    (alone, _) = trained()
    for history, _ in par.simulate(lambda: trained(par.mesh(data=-1)), 2):
        for row, expected in zip(history, alone, strict=True):
            for name in ("f1", "val_f1", "top_2", "val_top_2"):
                assert row[name] == pytest.approx(expected[name], rel=1e-6)


def test_trainer_wants_numbers() -> None:
    with pytest.raises(ArgumentError, match="must give one number each, got Confusion for 'c'"):
        trained(given={"c": metrics.Confusion(CLASSES)})

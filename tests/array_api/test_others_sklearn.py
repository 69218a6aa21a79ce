"""scikit-learn's functions and estimators of array API inputs on tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn import (
    calibration,
    decomposition,
    discriminant_analysis,
    kernel_approximation,
    linear_model,
    metrics,
    model_selection,
    naive_bayes,
    pipeline,
    preprocessing,
)
from sklearn.metrics import pairwise

import weft
from tests.array_api.others import Call, check_gradient, check_values

RNG = np.random.default_rng(5)
ROWS = RNG.standard_normal((20, 4))
OTHERS = RNG.standard_normal((15, 4))
TARGET = ROWS @ np.array([1.0, 2.0, -1.0, 0.5]) + 0.1 * RNG.standard_normal(20)
GUESS = TARGET + 0.3 * RNG.standard_normal(20)
LABELS = (ROWS[:, 0] > 0).astype(np.int64)
GUESSED = (ROWS[:, 0] + ROWS[:, 1] > 0).astype(np.int64)
THIRDS = np.arange(20) % 3
CHANCES = RNG.dirichlet(np.ones(3), 20)


@pytest.fixture(autouse=True)
def dispatch() -> Iterator[None]:
    with sklearn.config_context(array_api_dispatch=True):
        yield


def fitted(estimator: Any, method: str) -> Any:
    """A function that fits an estimator to its arguments and applies it to the first of them."""
    return lambda *data: getattr(sklearn.clone(estimator).fit(*data), method)(data[0])


# Numbers out: the library itself makes Python floats of the results
SCORES = {
    "r2_score": Call(metrics.r2_score, (TARGET, GUESS)),
    "mean_squared_error": Call(metrics.mean_squared_error, (TARGET, GUESS)),
    "root_mean_squared_error": Call(metrics.root_mean_squared_error, (TARGET, GUESS)),
    "mean_absolute_error": Call(metrics.mean_absolute_error, (TARGET, GUESS)),
    "median_absolute_error": Call(metrics.median_absolute_error, (TARGET, GUESS)),
    "max_error": Call(metrics.max_error, (TARGET, GUESS)),
    "explained_variance_score": Call(metrics.explained_variance_score, (TARGET, GUESS)),
    "mean_pinball_loss": Call(metrics.mean_pinball_loss, (TARGET, GUESS)),
    "mean_gamma_deviance": Call(metrics.mean_gamma_deviance, (np.exp(TARGET), np.exp(GUESS))),
    "accuracy_score": Call(metrics.accuracy_score, (LABELS, GUESSED)),
    "balanced_accuracy_score": Call(metrics.balanced_accuracy_score, (LABELS, GUESSED)),
    "f1_score": Call(metrics.f1_score, (LABELS, GUESSED)),
    "cohen_kappa_score": Call(metrics.cohen_kappa_score, (LABELS, GUESSED)),
    "log_loss": Call(metrics.log_loss, (THIRDS, CHANCES)),
    "brier_score_loss": Call(metrics.brier_score_loss, (LABELS, CHANCES[:, 0])),
    "average_precision_score": Call(metrics.average_precision_score, (LABELS, CHANCES[:, 0])),
}
# Tensors out, with gradients
SMOOTH = {
    "cosine_similarity": Call(pairwise.cosine_similarity, (ROWS, OTHERS)),
    "euclidean_distances": Call(pairwise.euclidean_distances, (ROWS, OTHERS)),
    "manhattan_distances": Call(pairwise.manhattan_distances, (ROWS, OTHERS)),
    "rbf_kernel": Call(pairwise.rbf_kernel, (ROWS, OTHERS)),
    "polynomial_kernel": Call(pairwise.polynomial_kernel, (ROWS, OTHERS)),
    "sigmoid_kernel": Call(pairwise.sigmoid_kernel, (ROWS, OTHERS)),
    "laplacian_kernel": Call(pairwise.laplacian_kernel, (ROWS, OTHERS)),
    "chi2_kernel": Call(pairwise.chi2_kernel, (np.abs(ROWS), np.abs(OTHERS))),
    "normalize": Call(preprocessing.normalize, (ROWS,)),
    "StandardScaler": Call(fitted(preprocessing.StandardScaler(), "transform"), (ROWS,)),
    "MinMaxScaler": Call(fitted(preprocessing.MinMaxScaler(), "transform"), (ROWS,)),
    "MaxAbsScaler": Call(fitted(preprocessing.MaxAbsScaler(), "transform"), (ROWS,)),
    "PolynomialFeatures": Call(fitted(preprocessing.PolynomialFeatures(), "transform"), (ROWS,)),
    "KernelCenterer": Call(lambda x: preprocessing.KernelCenterer().fit_transform(x @ x.T), (ROWS,)),
    "PCA": Call(fitted(decomposition.PCA(2, svd_solver="full"), "transform"), (ROWS,)),
    "PCA by covariance": Call(
        fitted(decomposition.PCA(2, svd_solver="covariance_eigh"), "transform"), (ROWS,)
    ),
    "Ridge": Call(fitted(linear_model.Ridge(solver="svd"), "predict"), (ROWS, TARGET)),
    "RidgeCV": Call(fitted(linear_model.RidgeCV(), "predict"), (ROWS, TARGET)),
    "LinearDiscriminantAnalysis": Call(
        fitted(discriminant_analysis.LinearDiscriminantAnalysis(), "predict_proba"), (ROWS, LABELS)
    ),
    "GaussianNB": Call(fitted(naive_bayes.GaussianNB(), "predict_proba"), (ROWS, LABELS)),
    "Nystroem": Call(
        fitted(kernel_approximation.Nystroem(n_components=5, random_state=0), "transform"), (ROWS,)
    ),
    "pipeline": Call(
        fitted(
            pipeline.make_pipeline(preprocessing.MinMaxScaler(), linear_model.Ridge(solver="svd")), "predict"
        ),
        (ROWS, TARGET),
    ),
}
# Tensors out, without gradients
OTHER_RESULTS = {
    "confusion_matrix": Call(metrics.confusion_matrix, (LABELS, GUESSED)),
    "precision_recall_curve": Call(metrics.precision_recall_curve, (LABELS, CHANCES[:, 0])),
    "Binarizer": Call(fitted(preprocessing.Binarizer(), "transform"), (ROWS,)),
    "LabelEncoder": Call(preprocessing.LabelEncoder().fit_transform, (THIRDS,)),
    "LabelBinarizer": Call(preprocessing.LabelBinarizer().fit_transform, (THIRDS,)),
    "PCA randomized": Call(
        fitted(
            decomposition.PCA(2, svd_solver="randomized", power_iteration_normalizer="QR", random_state=0),
            "transform",
        ),
        (ROWS,),
    ),
    "LogisticRegression": Call(fitted(linear_model.LogisticRegression(), "predict_proba"), (ROWS, LABELS)),
    "train_test_split": Call(lambda x: model_selection.train_test_split(x, random_state=0), (ROWS,)),
    "cross_val_predict": Call(
        lambda x, y: model_selection.cross_val_predict(naive_bayes.GaussianNB(), x, y, cv=3), (ROWS, LABELS)
    ),
}


@pytest.mark.parametrize("name", SCORES)
def test_scores_are_those_of_arrays(name: str) -> None:
    call = SCORES[name]
    found = call.function(*map(weft.asarray, call.inputs))
    assert type(found) is float
    rounding = 1e-9 if call.inputs[-1].dtype == np.float64 else 1e-6  # of the default dtype, for integers
    assert found == pytest.approx(call.function(*call.inputs), rel=rounding)


@pytest.mark.parametrize("name", [*SMOOTH, *OTHER_RESULTS])
def test_results_are_those_of_arrays(name: str) -> None:
    check_values((SMOOTH | OTHER_RESULTS)[name])


@pytest.mark.parametrize("name", SMOOTH)
def test_float32_stays_float32(name: str) -> None:
    check_values(SMOOTH[name], "float32")


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_flow_through_what_stays_in_the_namespace(name: str) -> None:
    check_gradient(SMOOTH[name])


def test_fitted_estimators_hold_tensors() -> None:
    model = linear_model.Ridge(solver="svd").fit(weft.asarray(ROWS), weft.asarray(TARGET))
    assert isinstance(model.coef_, weft.Tensor)
    assert model.coef_.dtype == weft.float64


def test_what_adds_to_an_array_of_the_default_dtype_needs_float64_as_that() -> None:
    model = calibration.CalibratedClassifierCV(naive_bayes.GaussianNB(), method="temperature", cv=3)
    expected = model.fit(ROWS, LABELS).predict_proba(ROWS)
    model.fit(weft.asarray(ROWS), weft.asarray(LABELS))
    with pytest.raises(weft.errors.DtypeError, match="must stay float32 in place, got float64"):
        model.predict_proba(weft.asarray(ROWS))
    weft.set_default_dtype(weft.float64)
    try:
        found = model.predict_proba(weft.asarray(ROWS)).numpy()
    finally:
        weft.set_default_dtype(weft.float32)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_gradients_are_never_lost_in_silence() -> None:
    rows, labels = weft.tensor(ROWS, requires_grad=True), weft.tensor(LABELS)
    with pytest.raises(weft.errors.GradientError, match="must not require grad"):
        linear_model.LogisticRegression().fit(rows, labels)

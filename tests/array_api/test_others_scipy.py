"""SciPy's functions of array API inputs on tensors; conftest.py lets SciPy take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import cluster, differentiate, fft, integrate, ndimage, optimize, signal, special, stats
from scipy.spatial.transform import Rotation

import weft
from tests.array_api.others import Call, check_gradient, check_values

RNG = np.random.default_rng(3)
TABLE = RNG.standard_normal((6, 5))
OTHER = RNG.standard_normal((6, 5))
POSITIVE = np.abs(TABLE) + 0.1
SERIES = RNG.standard_normal(16)
TIMES = np.cumsum(RNG.random(16) + 0.1)
VECTORS = RNG.standard_normal((4, 3))
QUATERNIONS = RNG.standard_normal((4, 4))

# Those that compute with the functions of the namespace: gradients flow through them
IN_NAMESPACE = {
    "special.gammainc": Call(special.gammainc, (POSITIVE, POSITIVE)),
    "special.logsumexp": Call(lambda x: special.logsumexp(x, axis=1), (TABLE,)),
    "special.softmax": Call(lambda x: special.softmax(x, axis=1), (TABLE,)),
    "special.log_softmax": Call(lambda x: special.log_softmax(x, axis=1), (TABLE,)),
    "special.rel_entr": Call(special.rel_entr, (POSITIVE, np.abs(OTHER) + 0.1)),
    "special.xlogy": Call(special.xlogy, (TABLE, POSITIVE)),
    "stats.zscore": Call(stats.zscore, (TABLE,)),
    "stats.zmap": Call(stats.zmap, (TABLE, OTHER)),
    "stats.gmean": Call(stats.gmean, (POSITIVE,)),
    "stats.hmean": Call(stats.hmean, (POSITIVE,)),
    "stats.pmean": Call(lambda x: stats.pmean(x, 3), (POSITIVE,)),
    "stats.skew": Call(stats.skew, (TABLE,)),
    "stats.kurtosis": Call(lambda x: stats.kurtosis(x, bias=False), (TABLE,)),
    "stats.moment": Call(lambda x: stats.moment(x, (2, 3)), (TABLE,)),
    "stats.variation": Call(stats.variation, (POSITIVE,)),
    "stats.sem": Call(stats.sem, (TABLE,)),
    "stats.trim_mean": Call(lambda x: stats.trim_mean(x, 0.2), (TABLE,)),
    "stats.iqr": Call(stats.iqr, (TABLE,)),
    "stats.lmoment": Call(stats.lmoment, (TABLE,)),
    "stats.circmean": Call(stats.circmean, (TABLE,)),
    "stats.boxcox_llf": Call(lambda x: stats.boxcox_llf(0.3, x), (POSITIVE,)),
    "signal.fftconvolve": Call(signal.fftconvolve, (SERIES, TIMES)),
    "signal.hilbert": Call(signal.hilbert, (SERIES,)),
    "signal.resample": Call(lambda x: signal.resample(x, 10), (SERIES,)),
    "signal.envelope": Call(signal.envelope, (SERIES,)),
    "integrate.trapezoid": Call(integrate.trapezoid, (SERIES, TIMES)),
    "integrate.cumulative_trapezoid": Call(integrate.cumulative_trapezoid, (SERIES, TIMES)),
    "cluster.vq.whiten": Call(cluster.vq.whiten, (TABLE,)),
    "fft.fft": Call(fft.fft, (TABLE,)),
    "fft.rfftn": Call(fft.rfftn, (TABLE,)),
    "fft.irfft": Call(fft.irfft, (TABLE,)),
    "stats.ttest_ind": Call(lambda x, y: tuple(stats.ttest_ind(x, y)), (TABLE, OTHER)),
    "stats.pearsonr": Call(lambda x, y: tuple(stats.pearsonr(x, y, axis=0)), (TABLE, OTHER)),
    "optimize.rosen": Call(optimize.rosen, (SERIES,)),
    "optimize.rosen_hess_prod": Call(optimize.rosen_hess_prod, (SERIES, TIMES)),
    "Rotation.as_matrix": Call(lambda v: Rotation.from_rotvec(v).as_matrix(), (VECTORS,)),
    "Rotation.apply": Call(lambda q, v: Rotation.from_quat(q).apply(v), (QUATERNIONS, VECTORS)),
    "Rotation.from_euler": Call(lambda a: Rotation.from_euler("xyz", a).as_matrix(), (VECTORS,)),
}
# Those that compute on NumPy arrays inside: a tensor that requires grad is an error there
ON_ARRAYS = {
    "special.i0e": Call(special.i0e, (TABLE,)),
    "signal.lfilter": Call(signal.lfilter, (SERIES[:3], TIMES[:2], SERIES)),
    "signal.detrend": Call(signal.detrend, (SERIES,)),
    "ndimage.gaussian_filter": Call(lambda x: ndimage.gaussian_filter(x, 1.0), (TABLE,)),
    "ndimage.sobel": Call(ndimage.sobel, (TABLE,)),
    "ndimage.zoom": Call(lambda x: ndimage.zoom(x, 2.0), (TABLE,)),
    "fft.dct": Call(fft.dct, (TABLE,)),
    "cluster.vq.vq": Call(cluster.vq.vq, (TABLE, TABLE[:2])),
    "cluster.hierarchy.linkage": Call(cluster.hierarchy.linkage, (TABLE,)),
}


@pytest.mark.parametrize("name", [*IN_NAMESPACE, *ON_ARRAYS])
def test_results_are_those_of_arrays(name: str) -> None:
    check_values((IN_NAMESPACE | ON_ARRAYS)[name])


@pytest.mark.parametrize("name", IN_NAMESPACE)
def test_float32_stays_float32(name: str) -> None:
    check_values(IN_NAMESPACE[name], "float32")


@pytest.mark.parametrize("name", IN_NAMESPACE)
def test_gradients_flow_through_what_stays_in_the_namespace(name: str) -> None:
    check_gradient(IN_NAMESPACE[name])


@pytest.mark.parametrize("name", ON_ARRAYS)
def test_gradients_are_never_lost_in_silence(name: str) -> None:
    call = ON_ARRAYS[name]
    tensors = [weft.tensor(x, requires_grad=True) for x in call.inputs]
    with pytest.raises(weft.errors.GradientError, match="must not require grad"):
        call.function(*tensors)
    with weft.no_grad():
        call.function(*tensors)


def test_results_that_need_a_default_dtype_have_wefts() -> None:
    check_values(Call(stats.rankdata, (SERIES,), exact=False))
    assert fft.fftfreq(4, xp=weft).dtype == weft.float32


def test_derivative_by_differences_of_a_function_of_tensors() -> None:
    def cube(x: Any) -> Any:
        return x**3

    x = weft.asarray(TIMES)
    result = differentiate.derivative(cube, x)
    assert isinstance(result.df, weft.Tensor)
    np.testing.assert_allclose(result.df.numpy(), 3 * TIMES**2, rtol=1e-9)


def test_roots_and_minima_of_functions_of_tensors() -> None:
    from scipy.optimize import elementwise

    low, high = weft.zeros(3, dtype=weft.float64), weft.asarray([2.0, 3.0, 4.0], dtype=weft.float64)
    root = elementwise.find_root(lambda x: x * x - 2.0, (low, high)).x
    assert isinstance(root, weft.Tensor)
    np.testing.assert_allclose(root.numpy(), np.full(3, 2.0**0.5), rtol=1e-12)
    least = elementwise.find_minimum(lambda x: (x - 0.7) ** 2, (low - 1, low, high)).x
    np.testing.assert_allclose(least.numpy(), np.full(3, 0.7), rtol=1e-6)


def test_integrals_of_functions_of_tensors() -> None:
    low, high = weft.zeros(2, dtype=weft.float64), weft.asarray([1.0, 2.0], dtype=weft.float64)
    found = integrate.tanhsinh(weft.exp, low, high).integral
    assert isinstance(found, weft.Tensor)
    np.testing.assert_allclose(found.numpy(), np.expm1([1.0, 2.0]), rtol=1e-12)

"""Problems of the GradBench suite, written anew: gradients and a Jacobian of plain programs, in float64.

``loops`` has three more of them: gmm, bundle (ba) and kmeans.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bench import native
from bench.case import Arrays, Case, Run
from bench.frameworks import weft_compile

FITTED, TERMS = 4096, 16  # points and coefficients of llsq
DIMENSIONS, STEPS = 100, 1000  # of ode
ORDER = 6  # of the matrix of det
LENGTH, WIDTH, LAYERS = 40, 14, 4  # of lstm
BONES, ANGLES, VERTICES = 22, 26, 500  # of ht


# Least squares


def fit_arrays(rng: np.random.Generator) -> Arrays:
    """Coefficients."""
    return {"x": rng.standard_normal(TERMS)}


def fit_in_weft(arrays: Arrays) -> Run:
    import weft

    def loss(x: Any) -> Any:
        total = 0.0
        for i in range(FITTED):
            t = -1.0 + 2.0 * i / (FITTED - 1)
            power, error = 1.0, weft.sign(t)
            for j in range(TERMS):
                error = error - x[j] * power
                power = power * t
            total = total + 0.5 * error * error
        return total

    step = weft_compile(weft.grad(loss))
    x = weft.tensor(arrays["x"])
    return Run(lambda: step(x))


def fit_in_c(arrays: Arrays) -> Run:
    grad = np.empty(TERMS)
    return native.runs("llsq", arrays["x"], grad, FITTED, TERMS, result=grad)


# A differential equation


def ode_arrays(rng: np.random.Generator) -> Arrays:
    """Coefficients of the equation; large, so that the last component is more than rounding."""
    return {"x": rng.uniform(30.0, 40.0, DIMENSIONS)}


def ode_in_weft(arrays: Arrays) -> Run:
    import weft

    def slope(x: Any, y: Any) -> Any:
        return weft.concat([x[:1], x[1:] * y[:-1]])

    def end(x: Any) -> Any:
        y, h = weft.zeros(DIMENSIONS, dtype=weft.float64), 1.0 / STEPS
        for _ in range(STEPS):
            k1 = slope(x, y)
            k2 = slope(x, y + h / 2 * k1)
            k3 = slope(x, y + h / 2 * k2)
            k4 = slope(x, y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return y[-1]

    step = weft_compile(weft.grad(end))
    x = weft.tensor(arrays["x"])
    return Run(lambda: step(x))


def ode_in_c(arrays: Arrays) -> Run:
    grad = np.empty(DIMENSIONS)
    return native.runs("ode_gradient", arrays["x"], grad, DIMENSIONS, STEPS, result=grad)


# A determinant, by minors


def det_arrays(rng: np.random.Generator) -> Arrays:
    """A matrix."""
    return {"a": rng.standard_normal((ORDER, ORDER))}


def det_in_weft(arrays: Arrays) -> Run:
    import weft

    def minor(a: Any, columns: tuple[int, ...]) -> Any:
        row = a.shape[0] - len(columns)
        if len(columns) == 1:
            return a[row, columns[0]]
        total: Any = 0.0
        for k, c in enumerate(columns):
            term = a[row, c] * minor(a, columns[:k] + columns[k + 1 :])
            total = total + term if k % 2 == 0 else total - term
        return total

    step = weft_compile(weft.grad(lambda a: minor(a, tuple(range(ORDER)))))
    a = weft.tensor(arrays["a"])
    return Run(lambda: step(a))


def det_in_numpy(arrays: Arrays) -> Run:
    a = arrays["a"]
    return Run(lambda: np.linalg.det(a) * np.linalg.inv(a).T)


# A recurrent network whose loops Python writes out


def lstm_arrays(rng: np.random.Generator) -> Arrays:
    """Weights of all gates of all layers, and a sequence."""
    return {
        "main": 0.5 * rng.standard_normal((LAYERS, 8, WIDTH)),
        "extra": 0.5 * rng.standard_normal((3, WIDTH)),
        "x": rng.uniform(0.0, 1.0, (LENGTH, WIDTH)),
    }


def lstm_in_weft(arrays: Arrays) -> Run:
    import weft

    def loss(main: Any, extra: Any, x: Any) -> Any:
        hidden = [weft.zeros(WIDTH, dtype=weft.float64) for _ in range(LAYERS)]
        cells = [weft.zeros(WIDTH, dtype=weft.float64) for _ in range(LAYERS)]
        total: Any = 0.0
        for t in range(LENGTH - 1):
            given = x[t] * extra[0]
            for i in range(LAYERS):
                w = main[i]
                forget = weft.sigmoid(given * w[0] + w[4])
                enter = weft.sigmoid(hidden[i] * w[1] + w[5])
                out = weft.sigmoid(given * w[2] + w[6])
                change = weft.tanh(hidden[i] * w[3] + w[7])
                cells[i] = cells[i] * forget + enter * change
                hidden[i] = out * weft.tanh(cells[i])
                given = hidden[i]
            guess = given * extra[1] + extra[2]
            guess = guess - weft.log(weft.exp(guess).sum() + 2.0)
            total = total + (x[t + 1] * guess).sum()
        return -total / ((LENGTH - 1) * WIDTH)

    step = weft_compile(weft.grad(loss, argnums=(0, 1)))
    data = [weft.tensor(arrays[name]) for name in ("main", "extra", "x")]
    return Run(lambda: step(*data))


def lstm_in_c(arrays: Arrays) -> Run:
    grads = [np.empty_like(arrays[name]) for name in ("main", "extra")]
    data = (arrays["main"], arrays["extra"], arrays["x"])
    return native.runs("lstm_gradient", *data, *grads, LENGTH, LAYERS, WIDTH, result=grads)


# Hand tracking


def hand_arrays(rng: np.random.Generator) -> Arrays:
    """Bones with the places where they are at rest, a skin of vertices, and the angles."""
    rest = np.tile(np.eye(4), (BONES, 1, 1))
    rest[:, :3, 3] = 0.1 * rng.standard_normal((BONES, 3))
    weights = rng.uniform(0.0, 1.0, (VERTICES, BONES)) ** 8
    return {
        "rest": rest,
        "weights": weights / weights.sum(1, keepdims=True),
        "skin": np.concatenate([rng.standard_normal((VERTICES, 3)), np.ones((VERTICES, 1))], 1),
        "goal": rng.standard_normal((VERTICES, 3)),
        "angles": 0.3 * rng.standard_normal(ANGLES),
    }


def _parents() -> list[int]:
    """Of each bone the one it hangs by: the wrist, the palm, and five fingers of four bones."""
    return [-1, 0, *[1 if k % 4 == 0 else 1 + k for k in range(20)]]


def hand_in_weft(arrays: Arrays) -> Run:
    import weft

    rest, weights, skin, goal = (weft.tensor(arrays[n]) for n in ("rest", "weights", "skin", "goal"))
    parents = _parents()

    def turned(x: Any, y: Any, z: Any) -> Any:
        a, b, c, d, e, f = weft.cos(x), weft.sin(x), weft.cos(y), weft.sin(y), weft.cos(z), weft.sin(z)
        zero, one = weft.zeros_like(x), weft.ones_like(x)
        rows = [
            [c * e, b * d * e - a * f, a * d * e + b * f, zero],
            [c * f, b * d * f + a * e, a * d * f - b * e, zero],
            [-d, b * c, a * c, zero],
            [zero, zero, zero, one],
        ]
        return weft.stack([weft.stack(row) for row in rows])

    def errors(angles: Any) -> Any:
        zero = weft.zeros(2, dtype=weft.float64)
        places: list[Any] = []
        for i, parent in enumerate(parents):
            own = weft.concat([angles[4 + i : 5 + i], zero]) if i else angles[:3]
            local = rest[i] @ turned(own[0], own[1], own[2])
            places.append(local if parent < 0 else places[parent] @ local)
        moved = weft.einsum("vb,bij,vj->vi", weights, weft.stack(places), skin)
        return (goal - moved[:, :3]).reshape(-1)

    step = weft_compile(lambda angles: weft.jacfwd(errors)(angles))
    angles = weft.tensor(arrays["angles"])
    return Run(lambda: step(angles))


def hand_in_c(arrays: Arrays) -> Run:
    parents = np.asarray(_parents(), np.int32)
    data = [arrays[name] for name in ("rest", "weights", "skin", "angles")]
    result = np.empty((3 * VERTICES, ANGLES))
    return native.runs("hand", *data, parents, result, BONES, VERTICES, result=result)


CASES = [
    Case("gradbench llsq", fit_arrays, {"weft": fit_in_weft, "c": fit_in_c}, goal=1.0),
    Case("gradbench ode", ode_arrays, {"weft": ode_in_weft, "c": ode_in_c}, goal=1.0),
    Case("gradbench det", det_arrays, {"weft": det_in_weft, "numpy": det_in_numpy}, goal=1.0),
    Case("gradbench lstm", lstm_arrays, {"weft": lstm_in_weft, "c": lstm_in_c}, goal=1.0),
    Case("gradbench ht", hand_arrays, {"weft": hand_in_weft, "c": hand_in_c}, goal=1.0),
]

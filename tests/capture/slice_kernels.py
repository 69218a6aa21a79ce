"""Kernels as people write them for NumPy, with slices that the indices of loops bound.

Each is a plain function: on NumPy's arrays it is its own oracle. Those that the benchmark has word for word
are called there.
"""

# ruff: noqa: B007, N803, N806 - as users write them, with their usual names

from __future__ import annotations

from typing import Any

import numpy as np

from bench.workloads.npbench import solvers, stencils


def spd(n: Any, rng: Any) -> Any:
    a = rng.normal(size=(n, n))
    return a @ a.T + n * np.eye(n)


def trisolv(L: Any, b: Any, x: Any) -> Any:
    solvers.trisolv(L, x, b)
    return x


def cholesky(A: Any) -> Any:
    A[0, 0] = A[0, 0] ** 0.5
    for i in range(1, A.shape[0]):
        for j in range(i):
            A[i, j] -= A[i, :j] @ A[j, :j]
            A[i, j] /= A[j, j]
        A[i, i] -= A[i, :i] @ A[i, :i]
        A[i, i] = A[i, i] ** 0.5
    return A


def cholesky_right(A: Any) -> Any:
    n = A.shape[0]
    for k in range(n):
        A[k, k] = A[k, k] ** 0.5
        A[k + 1 :, k] = A[k + 1 :, k] / A[k, k]
        A[k + 1 :, k + 1 :] -= A[k + 1 :, k, None] * A[k + 1 :, k]
    return A


def lu(A: Any) -> Any:
    solvers.lu(A)
    return A


def lu_right(A: Any) -> Any:
    n = A.shape[0]
    for i in range(n):
        A[i + 1 :, i] /= A[i, i]
        A[i + 1 :, i + 1 :] -= A[i + 1 :, i, None] * A[i, i + 1 :]
    return A


def gramschmidt(A: Any, Q: Any, R: Any) -> Any:
    for k in range(A.shape[1]):
        nrm = (A[:, k] * A[:, k]).sum()
        R[k, k] = nrm**0.5
        Q[:, k] = A[:, k] / R[k, k]
        for j in range(k + 1, A.shape[1]):
            R[k, j] = Q[:, k] @ A[:, j]
            A[:, j] -= Q[:, k] * R[k, j]
    return Q, R, A


def durbin(r: Any, y: Any) -> Any:
    alpha = -r[0]
    beta = 1.0 + 0.0 * r[0]
    y[0] = -r[0]
    for k in range(1, r.shape[0]):
        beta = beta * (1.0 - alpha * alpha)
        alpha = -(r[k] + r[:k][::-1] @ y[:k]) / beta
        y[:k] += alpha * y[:k][::-1]
        y[k] = alpha
    return y


def jacobi_1d(A: Any, B: Any, T: Any) -> Any:
    stencils.jacobi_1d(T, A, B)
    return A, B


def jacobi_2d(A: Any, B: Any, T: Any) -> Any:
    stencils.jacobi_2d(T, A, B)
    return A, B


def self_stencil(A: Any, T: Any) -> Any:
    for t in range(T):
        A[1:-1, 1:-1] = 0.2 * (A[1:-1, 1:-1] + A[1:-1, :-2] + A[1:-1, 2:] + A[2:, 1:-1] + A[:-2, 1:-1])
    return A


def seidel_2d(A: Any, T: Any) -> Any:
    stencils.seidel_2d(T, A)
    return A


def heat_3d(A: Any, B: Any, T: Any) -> Any:
    stencils.heat_3d(T, A, B)
    return A, B


def fdtd_2d(ex: Any, ey: Any, hz: Any, fict: Any) -> Any:
    stencils.fdtd_2d(fict.shape[0], ex, ey, hz, fict)
    return ex, ey, hz


def adi(u: Any, v: Any, p: Any, q: Any, T: Any) -> Any:
    N = u.shape[0]
    a, b, c, d, e, f = -0.3, 1.6, -0.3, -0.2, 1.4, -0.2
    for t in range(1, T + 1):
        v[0, 1 : N - 1] = 1.0
        p[1 : N - 1, 0] = 0.0
        q[1 : N - 1, 0] = v[0, 1 : N - 1]
        for j in range(1, N - 1):
            p[1 : N - 1, j] = -c / (a * p[1 : N - 1, j - 1] + b)
            q[1 : N - 1, j] = (
                -d * u[j, 0 : N - 2]
                + (1.0 + 2.0 * d) * u[j, 1 : N - 1]
                - f * u[j, 2:N]
                - a * q[1 : N - 1, j - 1]
            ) / (a * p[1 : N - 1, j - 1] + b)
        v[N - 1, 1 : N - 1] = 1.0
        for j in range(N - 2, 0, -1):
            v[j, 1 : N - 1] = p[1 : N - 1, j] * v[j + 1, 1 : N - 1] + q[1 : N - 1, j]
        u[1 : N - 1, 0] = 1.0
        p[1 : N - 1, 0] = 0.0
        q[1 : N - 1, 0] = u[1 : N - 1, 0]
        for j in range(1, N - 1):
            p[1 : N - 1, j] = -f / (d * p[1 : N - 1, j - 1] + e)
            q[1 : N - 1, j] = (
                -a * v[0 : N - 2, j]
                + (1.0 + 2.0 * a) * v[1 : N - 1, j]
                - c * v[2:N, j]
                - d * q[1 : N - 1, j - 1]
            ) / (d * p[1 : N - 1, j - 1] + e)
        u[1 : N - 1, N - 1] = 1.0
        for j in range(N - 2, 0, -1):
            u[1 : N - 1, j] = p[1 : N - 1, j] * u[1 : N - 1, j + 1] + q[1 : N - 1, j]
    return u, v


def deriche(img: Any, y1: Any, y2: Any) -> Any:
    a1, a2, b1, b2, c1 = 0.1, 0.05, 0.8, -0.3, 1.0
    y1[:, 0] = a1 * img[:, 0]
    y1[:, 1] = a1 * img[:, 1] + a2 * img[:, 0] + b1 * y1[:, 0]
    for j in range(2, img.shape[1]):
        y1[:, j] = a1 * img[:, j] + a2 * img[:, j - 1] + b1 * y1[:, j - 1] + b2 * y1[:, j - 2]
    y2[:, -1] = 0.0
    y2[:, -2] = a1 * img[:, -1]
    for j in range(img.shape[1] - 3, -1, -1):
        y2[:, j] = a1 * img[:, j + 1] + a2 * img[:, j + 2] + b1 * y2[:, j + 1] + b2 * y2[:, j + 2]
    return c1 * (y1 + y2)


def nussinov(seq: Any, table: Any) -> Any:
    N = seq.shape[0]
    for i in range(N - 1, -1, -1):
        for j in range(i + 1, N):
            if j - 1 >= 0:
                table[i, j] = max(table[i, j], table[i, j - 1])
            if i + 1 < N:
                table[i, j] = max(table[i, j], table[i + 1, j])
            if j - 1 >= 0 and i + 1 < N:
                if i < j - 1:
                    table[i, j] = max(table[i, j], table[i + 1, j - 1] + (seq[i] + seq[j] == 3))
                else:
                    table[i, j] = max(table[i, j], table[i + 1, j - 1])
            for k in range(i + 1, j):
                table[i, j] = max(table[i, j], table[i, k] + table[k + 1, j])
    return table


def nussinov_slices(seq: Any, table: Any) -> Any:
    N = seq.shape[0]
    for i in range(N - 1, -1, -1):
        for j in range(i + 1, N):
            best = max(table[i, j], table[i, j - 1])
            if i + 1 < N:
                best = max(best, table[i + 1, j])
            if i < j - 1:
                best = max(best, table[i + 1, j - 1] + (seq[i] + seq[j] == 3))
                best = max(best, (table[i, i + 1 : j] + table[i + 2 : j + 1, j]).max())
            table[i, j] = best
    return table


def ludcmp(A: Any, b: Any, y: Any, x: Any) -> Any:
    n = A.shape[0]
    for i in range(n):
        y[i] = b[i] - A[i, :i] @ y[:i]
    for i in range(n - 1, -1, -1):
        x[i] = (y[i] - A[i, i + 1 :] @ x[i + 1 :]) / A[i, i]
    return x


def trmm(A: Any, B: Any) -> Any:
    for i in range(B.shape[0]):
        for j in range(B.shape[1]):
            B[i, j] += A[i + 1 :, i] @ B[i + 1 :, j]
    return B


def trmm_rows(A: Any, B: Any) -> Any:
    for i in range(B.shape[0]):
        B[i, :] += A[i + 1 :, i] @ B[i + 1 :, :]
    return B


def syrk(A: Any, C: Any) -> Any:
    for i in range(A.shape[0]):
        C[i, : i + 1] *= 0.5
        for k in range(A.shape[1]):
            C[i, : i + 1] += 1.5 * A[i, k] * A[: i + 1, k]
    return C


def symm(A: Any, B: Any, C: Any) -> Any:
    for i in range(C.shape[0]):
        for j in range(C.shape[1]):
            C[:i, j] += 1.5 * B[i, j] * A[i, :i]
            t = B[:i, j] @ A[i, :i]
            C[i, j] = 0.5 * C[i, j] + 1.5 * B[i, j] * A[i, i] + 1.5 * t
    return C


def covariance(data: Any, cov: Any) -> Any:
    data -= data.sum(axis=0) / data.shape[0]
    for i in range(data.shape[1]):
        cov[i:, i] = data[:, i] @ data[:, i:]
        cov[i, i:] = cov[i:, i]
    return cov


def cases(n: int) -> dict[Any, tuple[Any, ...]]:
    """By kernel, arguments for a size: arrays, which it may change, and numbers."""
    rng = np.random.default_rng(n)
    r, m = rng.normal, max(n, 3)
    square = r(size=(m, m))
    return {
        trisolv: (spd(n, rng), r(size=n), np.zeros(n)),
        cholesky: (spd(m, rng),),
        cholesky_right: (spd(n, rng),),
        lu: (spd(n, rng),),
        lu_right: (spd(n, rng),),
        gramschmidt: (r(size=(n + 2, n)), np.zeros((n + 2, n)), np.zeros((n, n))),
        durbin: (0.1 * r(size=max(n, 1)), np.zeros(max(n, 1))),
        jacobi_1d: (r(size=m), r(size=m), 5),
        jacobi_2d: (r(size=(m, m + 1)), r(size=(m, m + 1)), 5),
        self_stencil: (r(size=(m, m + 1)), 5),
        seidel_2d: (square.copy(), 4),
        heat_3d: (r(size=(m, m, m)), r(size=(m, m, m)), 4),
        fdtd_2d: (r(size=(m, m + 1)), r(size=(m, m + 1)), r(size=(m, m + 1)), r(size=4)),
        adi: (square.copy(), square + 1, square * 0.5, square * 0.3, 3),
        deriche: (r(size=(m, m + 2)), np.zeros((m, m + 2)), np.zeros((m, m + 2))),
        nussinov: (rng.integers(0, 4, n), np.zeros((n, n), np.int64)),
        nussinov_slices: (rng.integers(0, 4, n), np.zeros((n, n), np.int64)),
        ludcmp: (spd(n, rng) / max(n, 1), r(size=n), np.zeros(n), np.zeros(n)),
        trmm: (spd(n, rng), r(size=(n, n + 1))),
        trmm_rows: (spd(n, rng), r(size=(n, n + 1))),
        syrk: (r(size=(n, n + 1)), r(size=(n, n))),
        symm: (spd(n, rng), r(size=(n, n + 1)), r(size=(n, n + 1))),
        covariance: (r(size=(n + 2, n)), np.zeros((n, n))),
    }

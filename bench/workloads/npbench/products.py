"""Products of matrices and vectors, and statistics of columns, as NumPy programs write them."""

import numpy as np


def gemm(alpha, beta, c, a, b):
    c[:] = alpha * a @ b + beta * c


def k2mm(alpha, beta, a, b, c, d):
    d[:] = alpha * a @ b @ c + beta * d


def k3mm(a, b, c, d):
    return a @ b @ c @ d


def atax(a, x):
    return (a @ x) @ a


def bicg(a, p, r):
    return r @ a, a @ p


def mvt(x1, x2, y1, y2, a):
    x1 += a @ y1
    x2 += y2 @ a


def gesummv(alpha, beta, a, b, x):
    return alpha * a @ x + beta * b @ x


def gemver(alpha, beta, a, u1, v1, u2, v2, w, x, y, z):
    a += np.outer(u1, v1) + np.outer(u2, v2)
    x += beta * y @ a + z
    w += alpha * a @ x


def doitgen(a, c4):
    nr, nq, np_ = a.shape
    a[:] = np.reshape(np.reshape(a, (nr, nq, 1, np_)) @ c4, (nr, nq, np_))


def symm(alpha, beta, c, a, b):
    m, n = c.shape
    below = np.empty((n,), dtype=c.dtype)
    c *= beta
    for i in range(m):
        for j in range(n):
            c[:i, j] += alpha * b[i, j] * a[i, :i]
            below[j] = b[:i, j] @ a[i, :i]
        c[i, :] += alpha * b[i, :] * a[i, i] + alpha * below


def syrk(alpha, beta, c, a):
    for i in range(a.shape[0]):
        c[i, : i + 1] *= beta
        for k in range(a.shape[1]):
            c[i, : i + 1] += alpha * a[i, k] * a[: i + 1, k]


def syr2k(alpha, beta, c, a, b):
    for i in range(a.shape[0]):
        c[i, : i + 1] *= beta
        for k in range(a.shape[1]):
            c[i, : i + 1] += a[: i + 1, k] * alpha * b[i, k] + b[: i + 1, k] * alpha * a[i, k]


def trmm(alpha, a, b):
    for i in range(b.shape[0]):
        for j in range(b.shape[1]):
            b[i, j] += np.dot(a[i + 1 :, i], b[i + 1 :, j])
    b *= alpha


def covariance(count, data):
    m = data.shape[1]
    data -= np.mean(data, axis=0)
    found = np.zeros((m, m), dtype=data.dtype)
    for i in range(m):
        row = data[:, i] @ data[:, i:m] / (count - 1.0)
        found[i, i:m] = row
        found[i:m, i] = row
    return found


def covariance2(data):
    return np.cov(np.transpose(data))


def correlation(count, data):
    m = data.shape[1]
    mean = np.mean(data, axis=0)
    spread = np.std(data, axis=0)
    spread[spread <= 0.1] = 1.0
    data -= mean
    data /= np.sqrt(count) * spread
    found = np.eye(m, dtype=data.dtype)
    for i in range(m - 1):
        row = data[:, i] @ data[:, i + 1 : m]
        found[i, i + 1 : m] = row
        found[i + 1 : m, i] = row
    return found

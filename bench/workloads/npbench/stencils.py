"""Stencils and recurrences along an axis: slices on both sides of an assignment."""

import numpy as np


def jacobi_1d(steps, a, b):
    for _ in range(1, steps):
        b[1:-1] = 0.33333 * (a[:-2] + a[1:-1] + a[2:])
        a[1:-1] = 0.33333 * (b[:-2] + b[1:-1] + b[2:])


def jacobi_2d(steps, a, b):
    for _ in range(1, steps):
        b[1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])
        a[1:-1, 1:-1] = 0.2 * (b[1:-1, 1:-1] + b[1:-1, :-2] + b[1:-1, 2:] + b[2:, 1:-1] + b[:-2, 1:-1])


def heat_3d(steps, a, b):
    for _ in range(1, steps):
        b[1:-1, 1:-1, 1:-1] = (
            0.125 * (a[2:, 1:-1, 1:-1] - 2.0 * a[1:-1, 1:-1, 1:-1] + a[:-2, 1:-1, 1:-1])
            + 0.125 * (a[1:-1, 2:, 1:-1] - 2.0 * a[1:-1, 1:-1, 1:-1] + a[1:-1, :-2, 1:-1])
            + 0.125 * (a[1:-1, 1:-1, 2:] - 2.0 * a[1:-1, 1:-1, 1:-1] + a[1:-1, 1:-1, :-2])
            + a[1:-1, 1:-1, 1:-1]
        )
        a[1:-1, 1:-1, 1:-1] = (
            0.125 * (b[2:, 1:-1, 1:-1] - 2.0 * b[1:-1, 1:-1, 1:-1] + b[:-2, 1:-1, 1:-1])
            + 0.125 * (b[1:-1, 2:, 1:-1] - 2.0 * b[1:-1, 1:-1, 1:-1] + b[1:-1, :-2, 1:-1])
            + 0.125 * (b[1:-1, 1:-1, 2:] - 2.0 * b[1:-1, 1:-1, 1:-1] + b[1:-1, 1:-1, :-2])
            + b[1:-1, 1:-1, 1:-1]
        )


def fdtd_2d(steps, ex, ey, hz, pulse):
    for t in range(steps):
        ey[0, :] = pulse[t]
        ey[1:, :] -= 0.5 * (hz[1:, :] - hz[:-1, :])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])


def seidel_2d(steps, a):
    n = a.shape[0]
    for _ in range(steps - 1):
        for i in range(1, n - 1):
            a[i, 1:-1] += (
                a[i - 1, :-2]
                + a[i - 1, 1:-1]
                + a[i - 1, 2:]
                + a[i, 2:]
                + a[i + 1, :-2]
                + a[i + 1, 1:-1]
                + a[i + 1, 2:]
            )
            for j in range(1, n - 1):
                a[i, j] += a[i, j - 1]
                a[i, j] /= 9.0


def adi(steps, u):
    n = u.shape[0]
    v = np.empty(u.shape, dtype=u.dtype)
    p = np.empty(u.shape, dtype=u.dtype)
    q = np.empty(u.shape, dtype=u.dtype)
    dx, dy, dt = 1.0 / n, 1.0 / n, 1.0 / steps
    m1, m2 = 2.0 * dt / (dx * dx), dt / (dy * dy)
    a, b, c = -m1 / 2.0, 1.0 + m1, -m1 / 2.0
    d, e, f = -m2 / 2.0, 1.0 + m2, -m2 / 2.0
    for _ in range(steps):
        v[0, 1:-1] = 1.0
        p[1:-1, 0] = 0.0
        q[1:-1, 0] = v[0, 1:-1]
        for j in range(1, n - 1):
            p[1:-1, j] = -c / (a * p[1:-1, j - 1] + b)
            q[1:-1, j] = (
                -d * u[j, :-2] + (1.0 + 2.0 * d) * u[j, 1:-1] - f * u[j, 2:] - a * q[1:-1, j - 1]
            ) / (a * p[1:-1, j - 1] + b)
        v[-1, 1:-1] = 1.0
        for j in range(n - 2, 0, -1):
            v[j, 1:-1] = p[1:-1, j] * v[j + 1, 1:-1] + q[1:-1, j]
        u[1:-1, 0] = 1.0
        p[1:-1, 0] = 0.0
        q[1:-1, 0] = u[1:-1, 0]
        for j in range(1, n - 1):
            p[1:-1, j] = -f / (d * p[1:-1, j - 1] + e)
            q[1:-1, j] = (
                -a * v[:-2, j] + (1.0 + 2.0 * a) * v[1:-1, j] - c * v[2:, j] - d * q[1:-1, j - 1]
            ) / (d * p[1:-1, j - 1] + e)
        u[1:-1, -1] = 1.0
        for j in range(n - 2, 0, -1):
            u[1:-1, j] = p[1:-1, j] * u[1:-1, j + 1] + q[1:-1, j]


def deriche(alpha, image):
    w, h = image.shape
    k = (1.0 - np.exp(-alpha)) * (1.0 - np.exp(-alpha))
    k = k / (1.0 + alpha * np.exp(-alpha) - np.exp(2.0 * alpha))
    a1, a2 = k, k * np.exp(-alpha) * (alpha - 1.0)
    a3, a4 = k * np.exp(-alpha) * (alpha + 1.0), -k * np.exp(-2.0 * alpha)
    b1, b2 = 2.0**-alpha, -np.exp(-2.0 * alpha)
    y1 = np.empty_like(image)
    y1[:, 0] = a1 * image[:, 0]
    y1[:, 1] = a1 * image[:, 1] + a2 * image[:, 0] + b1 * y1[:, 0]
    for j in range(2, h):
        y1[:, j] = a1 * image[:, j] + a2 * image[:, j - 1] + b1 * y1[:, j - 1] + b2 * y1[:, j - 2]
    y2 = np.empty_like(image)
    y2[:, -1] = 0.0
    y2[:, -2] = a3 * image[:, -1]
    for j in range(h - 3, -1, -1):
        y2[:, j] = a3 * image[:, j + 1] + a4 * image[:, j + 2] + b1 * y2[:, j + 1] + b2 * y2[:, j + 2]
    out = y1 + y2
    y1[0, :] = a1 * out[0, :]
    y1[1, :] = a1 * out[1, :] + a2 * out[0, :] + b1 * y1[0, :]
    for i in range(2, w):
        y1[i, :] = a1 * out[i, :] + a2 * out[i - 1, :] + b1 * y1[i - 1, :] + b2 * y1[i - 2, :]
    y2[-1, :] = 0.0
    y2[-2, :] = a3 * out[-1, :]
    for i in range(w - 3, -1, -1):
        y2[i, :] = a3 * out[i + 1, :] + a4 * out[i + 2, :] + b1 * y2[i + 1, :] + b2 * y2[i + 2, :]
    return y1 + y2


def hdiff(field, out, coefficient):
    i, j, _ = out.shape
    laplace = 4.0 * field[1 : i + 3, 1 : j + 3, :] - (
        field[2 : i + 4, 1 : j + 3, :]
        + field[0 : i + 2, 1 : j + 3, :]
        + field[1 : i + 3, 2 : j + 4, :]
        + field[1 : i + 3, 0 : j + 2, :]
    )
    change = laplace[1:, 1 : j + 1, :] - laplace[:-1, 1 : j + 1, :]
    across = np.where(
        change * (field[2 : i + 3, 2 : j + 2, :] - field[1 : i + 2, 2 : j + 2, :]) > 0, 0, change
    )
    change = laplace[1 : i + 1, 1:, :] - laplace[1 : i + 1, :-1, :]
    along = np.where(
        change * (field[2 : i + 2, 2 : j + 3, :] - field[2 : i + 2, 1 : j + 2, :]) > 0, 0, change
    )
    out[:, :, :] = field[2 : i + 2, 2 : j + 2, :] - coefficient[:, :, :] * (
        across[1:, :, :] - across[:-1, :, :] + along[:, 1:, :] - along[:, :-1, :]
    )


def vadv(utens_stage, u_stage, wcon, u_pos, utens, rate):
    i, j, k_end = utens_stage.shape
    beta_v, bet_m, bet_p = 0.0, 0.5, 0.5
    c = np.empty_like(utens_stage)
    d = np.empty_like(utens_stage)
    for k in range(k_end):
        ones = rate * u_pos[:, :, k] + utens[:, :, k] + utens_stage[:, :, k]
        if k == 0:
            gcv = 0.25 * (wcon[1:, :, k + 1] + wcon[:-1, :, k + 1])
            cs = gcv * bet_m
            c[:, :, k] = gcv * bet_p
            b = rate - c[:, :, k]
            d[:, :, k] = ones - cs * (u_stage[:, :, k + 1] - u_stage[:, :, k])
            divided = 1.0 / b
            c[:, :, k] = c[:, :, k] * divided
            d[:, :, k] = d[:, :, k] * divided
        elif k < k_end - 1:
            gav = -0.25 * (wcon[1:, :, k] + wcon[:-1, :, k])
            gcv = 0.25 * (wcon[1:, :, k + 1] + wcon[:-1, :, k + 1])
            av, cs = gav * bet_p, gcv * bet_m
            c[:, :, k] = gcv * bet_p
            b = rate - av - c[:, :, k]
            term = -gav * bet_m * (u_stage[:, :, k - 1] - u_stage[:, :, k]) - cs * (
                u_stage[:, :, k + 1] - u_stage[:, :, k]
            )
            d[:, :, k] = ones + term
            divided = 1.0 / (b - c[:, :, k - 1] * av)
            c[:, :, k] = c[:, :, k] * divided
            d[:, :, k] = (d[:, :, k] - d[:, :, k - 1] * av) * divided
        else:
            gav = -0.25 * (wcon[1:, :, k] + wcon[:-1, :, k])
            av = gav * bet_p
            b = rate - av
            d[:, :, k] = ones - gav * bet_m * (u_stage[:, :, k - 1] - u_stage[:, :, k])
            divided = 1.0 / (b - c[:, :, k - 1] * av)
            d[:, :, k] = (d[:, :, k] - d[:, :, k - 1] * av) * divided
    data = np.zeros((i, j), dtype=utens_stage.dtype) + beta_v
    for k in range(k_end - 1, -1, -1):
        if k == k_end - 1:
            data = d[:, :, k]
        else:
            data = d[:, :, k] - c[:, :, k] * data
        utens_stage[:, :, k] = rate * (data - u_pos[:, :, k])

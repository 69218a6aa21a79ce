"""The arguments of the kernels: one function for each way to make them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

Rng = np.random.Generator


def symmetric(rng: Rng, n: int) -> np.ndarray:
    """A symmetric matrix whose eigenvalues are positive."""
    a = rng.standard_normal((n, n))
    return a @ a.T / n + np.eye(n) * 2.0


def dominant(rng: Rng, n: int) -> np.ndarray:
    """A matrix that needs no pivots."""
    return rng.uniform(0, 1, (n, n)) + np.eye(n) * n


def gemm(rng: Rng, ni: int, nj: int, nk: int) -> tuple[Any, ...]:
    return 1.5, 1.2, rng.random((ni, nj)), rng.random((ni, nk)), rng.random((nk, nj))


def k2mm(rng: Rng, ni: int, nj: int, nk: int, nl: int) -> tuple[Any, ...]:
    return 1.5, 1.2, *(rng.random(s) for s in ((ni, nk), (nk, nj), (nj, nl), (ni, nl)))


def k3mm(rng: Rng, ni: int, nj: int, nk: int, nl: int, nm: int) -> tuple[Any, ...]:
    return tuple(rng.random(s) for s in ((ni, nk), (nk, nj), (nj, nm), (nm, nl)))


def atax(rng: Rng, m: int, n: int) -> tuple[Any, ...]:
    return rng.random((m, n)), rng.random(n)


def bicg(rng: Rng, m: int, n: int) -> tuple[Any, ...]:
    return rng.random((n, m)), rng.random(m), rng.random(n)


def mvt(rng: Rng, n: int) -> tuple[Any, ...]:
    return (*(rng.random(n) for _ in range(4)), rng.random((n, n)))


def gesummv(rng: Rng, n: int) -> tuple[Any, ...]:
    return 1.5, 1.2, rng.random((n, n)), rng.random((n, n)), rng.random(n)


def gemver(rng: Rng, n: int) -> tuple[Any, ...]:
    return 1.5, 1.2, rng.random((n, n)), *(rng.random(n) for _ in range(8))


def doitgen(rng: Rng, nr: int, nq: int, np_: int) -> tuple[Any, ...]:
    return rng.random((nr, nq, np_)), rng.random((np_, np_))


def symm(rng: Rng, m: int, n: int) -> tuple[Any, ...]:
    return 1.5, 1.2, rng.random((m, n)), rng.random((m, m)), rng.random((m, n))


def syrk(rng: Rng, m: int, n: int) -> tuple[Any, ...]:
    return 1.5, 1.2, rng.random((n, n)), rng.random((n, m))


def syr2k(rng: Rng, m: int, n: int) -> tuple[Any, ...]:
    return 1.5, 1.2, rng.random((n, n)), rng.random((n, m)), rng.random((n, m))


def trmm(rng: Rng, m: int, n: int) -> tuple[Any, ...]:
    return 1.5, rng.random((m, m)), rng.random((m, n))


def statistics(rng: Rng, m: int, n: int) -> tuple[Any, ...]:
    return float(n), rng.random((n, m))


def covariance2(rng: Rng, m: int, n: int) -> tuple[Any, ...]:
    return (rng.random((n, m)),)


def trisolv(rng: Rng, n: int) -> tuple[Any, ...]:
    return np.tril(dominant(rng, n)), np.zeros(n), rng.random(n)


def cholesky(rng: Rng, n: int) -> tuple[Any, ...]:
    return (symmetric(rng, n),)


def lu(rng: Rng, n: int) -> tuple[Any, ...]:
    return (dominant(rng, n),)


def ludcmp(rng: Rng, n: int) -> tuple[Any, ...]:
    return dominant(rng, n), rng.random(n)


def durbin(rng: Rng, n: int) -> tuple[Any, ...]:
    """The covariances of a process whose memory fades: every step of the recursion is well conditioned."""
    return (0.5 ** np.arange(1, n + 1) * rng.uniform(0.5, 1, n),)


def gramschmidt(rng: Rng, m: int, n: int) -> tuple[Any, ...]:
    return (rng.random((m, n)) + np.eye(m, n),)


def floyd_warshall(rng: Rng, n: int) -> tuple[Any, ...]:
    return (rng.integers(1, 1000, (n, n)).astype(np.int32),)


def nussinov(rng: Rng, n: int) -> tuple[Any, ...]:
    return (rng.integers(0, 4, n).astype(np.int32),)


def jacobi(rng: Rng, steps: int, n: int, rank: int) -> tuple[Any, ...]:
    return steps, rng.random((n,) * rank), rng.random((n,) * rank)


def fdtd_2d(rng: Rng, steps: int, nx: int, ny: int) -> tuple[Any, ...]:
    return steps, *(rng.random((nx, ny)) for _ in range(3)), np.arange(steps, dtype=np.float64)


def square(rng: Rng, steps: int, n: int) -> tuple[Any, ...]:
    return steps, rng.random((n, n))


def deriche(rng: Rng, w: int, h: int) -> tuple[Any, ...]:
    return 0.25, rng.random((w, h))


def hdiff(rng: Rng, i: int, j: int, k: int) -> tuple[Any, ...]:
    return rng.random((i + 4, j + 4, k)), rng.random((i, j, k)), rng.random((i, j, k))


def vadv(rng: Rng, i: int, j: int, k: int) -> tuple[Any, ...]:
    fields = [rng.random((i, j, k)) for _ in range(4)]
    return fields[0], fields[1], rng.random((i + 1, j, k)), fields[2], fields[3], 3.0 / 20.0


def cavity_flow(rng: Rng, nx: int, ny: int, nt: int, nit: int) -> tuple[Any, ...]:
    u, v, p = (np.zeros((ny, nx)) for _ in range(3))
    return nx, ny, nt, nit, u, v, 0.1 / ((nx - 1) * (ny - 1)), 2 / (nx - 1), 2 / (ny - 1), p, 1.0, 0.1


def channel_flow(rng: Rng, nx: int, ny: int, nit: int) -> tuple[Any, ...]:
    u, v, p = np.zeros((ny, nx)), np.zeros((ny, nx)), np.ones((ny, nx))
    return nit, u, v, 0.1 / ((nx - 1) * (ny - 1)), 2 / (nx - 1), 2 / (ny - 1), p, 1.0, 0.1, 1.0


def mlp(rng: Rng, inputs: int, n: int, s0: int, s1: int, s2: int) -> tuple[Any, ...]:
    sizes = (inputs, s0, s1, s2)
    layers = [(rng.random((a, b)), rng.random(b)) for a, b in pairwise(sizes)]
    return rng.random((n, inputs)), *(part for layer in layers for part in layer)


def conv2d_bias(rng: Rng, n: int, inputs: int, outputs: int, k: int, h: int, w: int) -> tuple[Any, ...]:
    return rng.random((n, h, w, inputs)), rng.random((k, k, inputs, outputs)), rng.random(outputs)


def lenet(rng: Rng, n: int, h: int, w: int) -> tuple[Any, ...]:
    flat = 16 * (((h - 4) // 2 - 4) // 2) * (((w - 4) // 2 - 4) // 2)
    shapes = (
        (5, 5, 1, 6),
        (6,),
        (5, 5, 6, 16),
        (16,),
        (flat, 120),
        (120,),
        (120, 84),
        (84,),
        (84, 10),
        (10,),
    )
    return rng.random((n, h, w, 1)), *(rng.random(shape) for shape in shapes)


def resnet(rng: Rng, n: int, w: int, h: int, c1: int, c2: int) -> tuple[Any, ...]:
    shapes = ((n, h, w, c1), (1, 1, c1, c2), (3, 3, c2, c2), (1, 1, c2, c1))
    return tuple(rng.random(shape) for shape in shapes)


def softmax(rng: Rng, n: int, h: int, sm: int) -> tuple[Any, ...]:
    return (rng.random((n, h, sm, sm)),)


def mandelbrot(rng: Rng, left: float, right: float, high: float, n: int, turns: int) -> tuple[Any, ...]:
    return left, right, -high, high, n, n, turns, 2.0


def nbody(rng: Rng, n: int, end: float, dt: float) -> tuple[Any, ...]:
    mass = 20.0 * np.ones((n, 1)) / n
    return (
        mass,
        rng.standard_normal((n, 3)),
        rng.standard_normal((n, 3)),
        int(np.ceil(end / dt)),
        dt,
        1.0,
        0.1,
    )


def azimint(rng: Rng, n: int, bins: int) -> tuple[Any, ...]:
    return rng.random(n), rng.random(n), bins


def spmv(rng: Rng, m: int, n: int, nnz: int) -> tuple[Any, ...]:
    counts = np.bincount(rng.integers(0, m, nnz), minlength=m)
    rows = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return rows, rng.integers(0, n, nnz), rng.random(nnz), rng.random(n)


def stockham_fft(rng: Rng, radix: int, stages: int) -> tuple[Any, ...]:
    n = radix**stages
    x = rng.random(n) + 1j * rng.random(n)
    return n, radix, stages, x, np.zeros_like(x)


def go_fast(rng: Rng, n: int) -> tuple[Any, ...]:
    return (rng.random((n, n)),)


def crc16(rng: Rng, n: int) -> tuple[Any, ...]:
    return (rng.integers(0, 256, n).astype(np.uint8),)


def arc_distance(rng: Rng, n: int) -> tuple[Any, ...]:
    return tuple(rng.random(n) for _ in range(4))


def compute(rng: Rng, m: int, n: int) -> tuple[Any, ...]:
    return rng.integers(0, 1000, (m, n)), rng.integers(0, 1000, (m, n)), 4, 3, 9


def contour_integral(rng: Rng, nr: int, nm: int, slabs: int, points: int) -> tuple[Any, ...]:
    def numbers(*shape: int) -> np.ndarray:
        return rng.random(shape) + 1j * rng.random(shape)

    turned = np.exp(2j * np.pi * (np.arange(points) + 0.5) / points) * np.where(
        np.arange(points) % 2, 0.5, 2.0
    )
    return slabs, numbers(slabs + 1, nr, nr) + 4 * nr * np.eye(nr), turned, numbers(nr, nm)


def scattering(
    rng: Rng, kz: int, energies: int, qz: int, w: int, dims: int, atoms: int, near: int, orbitals: int
) -> tuple[Any, ...]:
    def numbers(*shape: int) -> np.ndarray:
        return rng.random(shape) + 1j * rng.random(shape)

    sides = (orbitals, orbitals)
    return (
        rng.integers(0, atoms, (atoms, near)).astype(np.int32),
        numbers(atoms, near, dims, *sides),
        numbers(kz, energies, atoms, *sides),
        numbers(qz, w, atoms, near, dims, dims),
        np.zeros((kz, energies, atoms, *sides), np.complex128),
    )

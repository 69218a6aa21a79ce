"""Physics, signals and other programs."""

import numpy as np


def mandelbrot1(xmin, xmax, ymin, ymax, xn, yn, turns, horizon):
    x = np.linspace(xmin, xmax, xn, dtype=np.float64)
    y = np.linspace(ymin, ymax, yn, dtype=np.float64)
    c = x + y[:, None] * 1j
    count = np.zeros(c.shape, dtype=np.int64)
    z = np.zeros(c.shape, dtype=np.complex128)
    for n in range(turns):
        inside = np.less(abs(z), horizon)
        count[inside] = n
        z[inside] = z[inside] ** 2 + c[inside]
    count[count == turns - 1] = 0
    return z, count


def mandelbrot2(xmin, xmax, ymin, ymax, xn, yn, turns, horizon):
    xi, yi = np.mgrid[0:xn, 0:yn]
    c = (
        np.linspace(xmin, xmax, xn, dtype=np.float64)[xi]
        + np.linspace(ymin, ymax, yn, dtype=np.float64)[yi] * 1j
    )
    count = np.zeros(c.shape, dtype=np.int64)
    last = np.zeros(c.shape, dtype=np.complex128)
    xi, yi, c = np.reshape(xi, xn * yn), np.reshape(yi, xn * yn), np.reshape(c, xn * yn)
    z = np.zeros(c.shape, dtype=np.complex128)
    for i in range(turns):
        z = z * z + c
        out = abs(z) > horizon
        count[xi[out], yi[out]] = i + 1
        last[xi[out], yi[out]] = z[out]
        kept = np.logical_not(out)
        z, xi, yi, c = z[kept], xi[kept], yi[kept], c[kept]
    return last, count


def acceleration(pos, mass, gravity, softening):
    x, y, z = pos[:, 0:1], pos[:, 1:2], pos[:, 2:3]
    dx, dy, dz = x.T - x, y.T - y, z.T - z
    cubed = dx**2 + dy**2 + dz**2 + softening**2
    near = cubed > 0
    cubed[near] = cubed[near] ** (-1.5)
    return np.hstack(
        (gravity * (dx * cubed) @ mass, gravity * (dy * cubed) @ mass, gravity * (dz * cubed) @ mass)
    )


def energy(pos, vel, mass, gravity):
    kinetic = 0.5 * np.sum(mass * vel**2)
    x, y, z = pos[:, 0:1], pos[:, 1:2], pos[:, 2:3]
    dx, dy, dz = x.T - x, y.T - y, z.T - z
    inverse = np.sqrt(dx**2 + dy**2 + dz**2)
    near = inverse > 0
    inverse[near] = 1.0 / inverse[near]
    return kinetic, gravity * np.sum(np.triu(-(mass * mass.T) * inverse, 1))


def nbody(mass, pos, vel, steps, dt, gravity, softening):
    vel -= np.mean(mass * vel, axis=0) / np.mean(mass)
    kinetic = np.empty(steps + 1, dtype=np.float64)
    potential = np.empty(steps + 1, dtype=np.float64)
    acc = acceleration(pos, mass, gravity, softening)
    kinetic[0], potential[0] = energy(pos, vel, mass, gravity)
    for i in range(steps):
        vel += acc * dt / 2.0
        pos += vel * dt
        acc = acceleration(pos, mass, gravity, softening)
        vel += acc * dt / 2.0
        kinetic[i + 1], potential[i + 1] = energy(pos, vel, mass, gravity)
    return kinetic, potential


def azimint_naive(data, radius, bins):
    rmax = np.max(radius)
    out = np.zeros(bins, dtype=np.float64)
    for i in range(bins):
        low, high = rmax * i / bins, rmax * (i + 1) / bins
        ring = np.logical_and((low <= radius), (radius < high))
        out[i] = np.mean(data[ring])
    return out


def azimint_hist(data, radius, bins):
    counts = np.histogram(radius, bins)[0]
    sums = np.histogram(radius, bins, weights=data)[0]
    return sums / counts


def spmv(rows, columns, values, x):
    y = np.empty(rows.shape[0] - 1, dtype=values.dtype)
    for i in range(rows.shape[0] - 1):
        start, stop = rows[i], rows[i + 1]
        y[i] = values[start:stop] @ x[columns[start:stop]]
    return y


def stockham_fft(n, radix, stages, x, y):
    i, j = np.mgrid[0:radix, 0:radix]
    dft = np.exp(-2.0j * np.pi * i * j / radix)
    y[:] = x
    for stage in range(stages):
        left, right = radix**stage, radix ** (stages - stage - 1)
        i, j = np.mgrid[0:radix, 0:left]
        twiddle = np.exp(-2.0j * np.pi * i * j / radix ** (stage + 1))
        spread = np.repeat(np.reshape(twiddle, (radix, left, 1)), right, axis=2)
        moved = np.transpose(np.reshape(y, (left, radix, right)), (1, 0, 2))
        y[:] = np.reshape(dft @ np.reshape(moved * spread, (radix, n // radix)), (n,))


def go_fast(a):
    trace = 0.0
    for i in range(a.shape[0]):
        trace += np.tanh(a[i, i])
    return a + trace


def crc16(data):
    crc = 0xFFFF
    for byte in data:
        bits = 0xFF & byte
        for _ in range(8):
            if (crc & 0x0001) ^ (bits & 0x0001):
                crc = (crc >> 1) ^ 0x8408
            else:
                crc >>= 1
            bits >>= 1
    crc = ~crc & 0xFFFF
    crc = (crc << 8) | ((crc >> 8) & 0xFF)
    return crc & 0xFFFF


def arc_distance(theta1, phi1, theta2, phi2):
    between = np.sin((theta2 - theta1) / 2) ** 2
    between = between + np.cos(theta1) * np.cos(theta2) * np.sin((phi2 - phi1) / 2) ** 2
    return 2 * np.arctan2(np.sqrt(between), np.sqrt(1 - between))


def compute(first, second, a, b, c):
    return np.clip(first, 2, 10) * a + second * b + c


def contour_integral(slabs, hamiltonian, points, y):
    nr, nm = y.shape
    p0 = np.zeros((nr, nm), dtype=np.complex128)
    p1 = np.zeros((nr, nm), dtype=np.complex128)
    for z in points:
        tz = np.zeros((nr, nr), dtype=np.complex128)
        for n in range(slabs + 1):
            tz += np.power(z, slabs / 2 - n) * hamiltonian[n]
        x = np.linalg.inv(tz) if nr == nm else np.linalg.solve(tz, y)
        if abs(z) < 1.0:
            x = -x
        p0 += x
        p1 += z * x
    return p0, p1


def scattering_self_energies(neighbours, dh, g, d, sigma):
    for k in range(g.shape[0]):
        for energy in range(g.shape[1]):
            for q in range(d.shape[0]):
                for w in range(d.shape[1]):
                    for i in range(d.shape[-2]):
                        for j in range(d.shape[-1]):
                            for a in range(neighbours.shape[0]):
                                for b in range(neighbours.shape[1]):
                                    if energy - w >= 0:
                                        dhg = g[k, energy - w, neighbours[a, b]] @ dh[a, b, i]
                                        dhd = dh[a, b, j] * d[q, w, a, b, i, j]
                                        sigma[k, energy, a] += dhg @ dhd

"""Flows by finite differences: in a cavity under a moving lid, and in a channel that goes round."""

import numpy as np


def cavity_source(b, rho, dt, u, v, dx, dy):
    across = (u[1:-1, 2:] - u[1:-1, :-2]) / (2 * dx)
    along = (v[2:, 1:-1] - v[:-2, 1:-1]) / (2 * dy)
    mixed = (u[2:, 1:-1] - u[:-2, 1:-1]) / (2 * dy) * (v[1:-1, 2:] - v[1:-1, :-2]) / (2 * dx)
    b[1:-1, 1:-1] = rho * (1 / dt * (across + along) - across**2 - 2 * mixed - along**2)


def cavity_pressure(nit, p, dx, dy, b):
    for _ in range(nit):
        pn = p.copy()
        p[1:-1, 1:-1] = ((pn[1:-1, 2:] + pn[1:-1, :-2]) * dy**2 + (pn[2:, 1:-1] + pn[:-2, 1:-1]) * dx**2) / (
            2 * (dx**2 + dy**2)
        ) - dx**2 * dy**2 / (2 * (dx**2 + dy**2)) * b[1:-1, 1:-1]
        p[:, -1] = p[:, -2]
        p[0, :] = p[1, :]
        p[:, 0] = p[:, 1]
        p[-1, :] = 0


def cavity_flow(nx, ny, nt, nit, u, v, dt, dx, dy, p, rho, nu):
    b = np.zeros((ny, nx), dtype=u.dtype)
    for _ in range(nt):
        un = u.copy()
        vn = v.copy()
        cavity_source(b, rho, dt, u, v, dx, dy)
        cavity_pressure(nit, p, dx, dy, b)
        u[1:-1, 1:-1] = (
            un[1:-1, 1:-1]
            - un[1:-1, 1:-1] * dt / dx * (un[1:-1, 1:-1] - un[1:-1, :-2])
            - vn[1:-1, 1:-1] * dt / dy * (un[1:-1, 1:-1] - un[:-2, 1:-1])
            - dt / (2 * rho * dx) * (p[1:-1, 2:] - p[1:-1, :-2])
            + nu
            * (
                dt / dx**2 * (un[1:-1, 2:] - 2 * un[1:-1, 1:-1] + un[1:-1, :-2])
                + dt / dy**2 * (un[2:, 1:-1] - 2 * un[1:-1, 1:-1] + un[:-2, 1:-1])
            )
        )
        v[1:-1, 1:-1] = (
            vn[1:-1, 1:-1]
            - un[1:-1, 1:-1] * dt / dx * (vn[1:-1, 1:-1] - vn[1:-1, :-2])
            - vn[1:-1, 1:-1] * dt / dy * (vn[1:-1, 1:-1] - vn[:-2, 1:-1])
            - dt / (2 * rho * dy) * (p[2:, 1:-1] - p[:-2, 1:-1])
            + nu
            * (
                dt / dx**2 * (vn[1:-1, 2:] - 2 * vn[1:-1, 1:-1] + vn[1:-1, :-2])
                + dt / dy**2 * (vn[2:, 1:-1] - 2 * vn[1:-1, 1:-1] + vn[:-2, 1:-1])
            )
        )
        u[0, :] = 0
        u[:, 0] = 0
        u[:, -1] = 0
        u[-1, :] = 1
        v[0, :] = 0
        v[-1, :] = 0
        v[:, 0] = 0
        v[:, -1] = 0


def channel_source(rho, dt, dx, dy, u, v):
    b = np.zeros_like(u)
    across = (u[1:-1, 2:] - u[1:-1, :-2]) / (2 * dx)
    along = (v[2:, 1:-1] - v[:-2, 1:-1]) / (2 * dy)
    mixed = (u[2:, 1:-1] - u[:-2, 1:-1]) / (2 * dy) * (v[1:-1, 2:] - v[1:-1, :-2]) / (2 * dx)
    b[1:-1, 1:-1] = rho * (1 / dt * (across + along) - across**2 - 2 * mixed - along**2)
    for here, before, after in ((-1, -2, 0), (0, -1, 1)):
        across = (u[1:-1, after] - u[1:-1, before]) / (2 * dx)
        along = (v[2:, here] - v[:-2, here]) / (2 * dy)
        mixed = (u[2:, here] - u[:-2, here]) / (2 * dy) * (v[1:-1, after] - v[1:-1, before]) / (2 * dx)
        b[1:-1, here] = rho * (1 / dt * (across + along) - across**2 - 2 * mixed - along**2)
    return b


def channel_pressure(nit, p, dx, dy, b):
    for _ in range(nit):
        pn = p.copy()
        p[1:-1, 1:-1] = ((pn[1:-1, 2:] + pn[1:-1, :-2]) * dy**2 + (pn[2:, 1:-1] + pn[:-2, 1:-1]) * dx**2) / (
            2 * (dx**2 + dy**2)
        ) - dx**2 * dy**2 / (2 * (dx**2 + dy**2)) * b[1:-1, 1:-1]
        for here, before, after in ((-1, -2, 0), (0, -1, 1)):
            p[1:-1, here] = (
                (pn[1:-1, after] + pn[1:-1, before]) * dy**2 + (pn[2:, here] + pn[:-2, here]) * dx**2
            ) / (2 * (dx**2 + dy**2)) - dx**2 * dy**2 / (2 * (dx**2 + dy**2)) * b[1:-1, here]
        p[-1, :] = p[-2, :]
        p[0, :] = p[1, :]


def channel_flow(nit, u, v, dt, dx, dy, p, rho, nu, force):
    change = 1.0
    steps = 0
    while change > 0.001:
        un = u.copy()
        vn = v.copy()
        b = channel_source(rho, dt, dx, dy, u, v)
        channel_pressure(nit, p, dx, dy, b)
        u[1:-1, 1:-1] = (
            un[1:-1, 1:-1]
            - un[1:-1, 1:-1] * dt / dx * (un[1:-1, 1:-1] - un[1:-1, :-2])
            - vn[1:-1, 1:-1] * dt / dy * (un[1:-1, 1:-1] - un[:-2, 1:-1])
            - dt / (2 * rho * dx) * (p[1:-1, 2:] - p[1:-1, :-2])
            + nu
            * (
                dt / dx**2 * (un[1:-1, 2:] - 2 * un[1:-1, 1:-1] + un[1:-1, :-2])
                + dt / dy**2 * (un[2:, 1:-1] - 2 * un[1:-1, 1:-1] + un[:-2, 1:-1])
            )
            + force * dt
        )
        v[1:-1, 1:-1] = (
            vn[1:-1, 1:-1]
            - un[1:-1, 1:-1] * dt / dx * (vn[1:-1, 1:-1] - vn[1:-1, :-2])
            - vn[1:-1, 1:-1] * dt / dy * (vn[1:-1, 1:-1] - vn[:-2, 1:-1])
            - dt / (2 * rho * dy) * (p[2:, 1:-1] - p[:-2, 1:-1])
            + nu
            * (
                dt / dx**2 * (vn[1:-1, 2:] - 2 * vn[1:-1, 1:-1] + vn[1:-1, :-2])
                + dt / dy**2 * (vn[2:, 1:-1] - 2 * vn[1:-1, 1:-1] + vn[:-2, 1:-1])
            )
        )
        for here, before, after in ((-1, -2, 0), (0, -1, 1)):
            u[1:-1, here] = (
                un[1:-1, here]
                - un[1:-1, here] * dt / dx * (un[1:-1, here] - un[1:-1, before])
                - vn[1:-1, here] * dt / dy * (un[1:-1, here] - un[:-2, here])
                - dt / (2 * rho * dx) * (p[1:-1, after] - p[1:-1, before])
                + nu
                * (
                    dt / dx**2 * (un[1:-1, after] - 2 * un[1:-1, here] + un[1:-1, before])
                    + dt / dy**2 * (un[2:, here] - 2 * un[1:-1, here] + un[:-2, here])
                )
                + force * dt
            )
            v[1:-1, here] = (
                vn[1:-1, here]
                - un[1:-1, here] * dt / dx * (vn[1:-1, here] - vn[1:-1, before])
                - vn[1:-1, here] * dt / dy * (vn[1:-1, here] - vn[:-2, here])
                - dt / (2 * rho * dy) * (p[2:, here] - p[:-2, here])
                + nu
                * (
                    dt / dx**2 * (vn[1:-1, after] - 2 * vn[1:-1, here] + vn[1:-1, before])
                    + dt / dy**2 * (vn[2:, here] - 2 * vn[1:-1, here] + vn[:-2, here])
                )
            )
        u[0, :] = 0
        u[-1, :] = 0
        v[0, :] = 0
        v[-1, :] = 0
        change = (np.sum(u) - np.sum(un)) / np.sum(u)
        steps += 1
    return steps

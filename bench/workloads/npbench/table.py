"""The table of kernels: where each is, its arguments, and its sizes S, M and for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.workloads.npbench import data
from bench.workloads.npbench.kernel import Kernel, Sizes


def _of(names: str, *rows: tuple[Any, ...]) -> tuple[Sizes, Sizes, Sizes]:
    """Sizes by name, of presets S, M and tiny."""
    small, medium, tiny = (dict(zip(names.split(), row, strict=True)) for row in rows)
    return small, medium, tiny


def _kernel(
    name: str,
    family: str,
    arguments: Callable[..., Any],
    changes: tuple[int, ...],
    sizes: tuple[Sizes, Sizes, Sizes],
    tolerance: float = 1e-9,
) -> Kernel:
    return Kernel(name, family, arguments, changes, *sizes, tolerance=tolerance)


_MN = "m n"
_MATVEC = _of(_MN, (4000, 5000), (10000, 12500), (5, 4))
_RINGS = _of("n bins", (400000, 1000), (4000000, 1000), (60, 4))
_PLANE = "left right high n turns"

KERNELS = (
    _kernel(
        "gemm",
        "products",
        data.gemm,
        (2,),
        _of("ni nj nk", (1000, 1100, 1200), (2500, 2750, 3000), (4, 5, 3)),
    ),
    _kernel(
        "k2mm",
        "products",
        data.k2mm,
        (5,),
        _of("ni nj nk nl", (800, 850, 900, 950), (2000, 2250, 2500, 2750), (4, 5, 3, 2)),
    ),
    _kernel(
        "k3mm",
        "products",
        data.k3mm,
        (),
        _of("ni nj nk nl nm", (800, 850, 900, 950, 1000), (2000, 2200, 2400, 2600, 2800), (4, 5, 3, 2, 6)),
    ),
    _kernel("atax", "products", data.atax, (), _MATVEC),
    _kernel("bicg", "products", data.bicg, (), _MATVEC),
    _kernel("mvt", "products", data.mvt, (0, 1), _of("n", (5500,), (11000,), (5,))),
    _kernel("gesummv", "products", data.gesummv, (), _of("n", (2000,), (4000,), (5,))),
    _kernel("gemver", "products", data.gemver, (2, 7, 8), _of("n", (1000,), (3000,), (5,))),
    _kernel(
        "doitgen", "products", data.doitgen, (0,), _of("nr nq np_", (60, 60, 128), (110, 125, 256), (3, 4, 5))
    ),
    _kernel("symm", "products", data.symm, (2,), _of(_MN, (40, 50), (120, 150), (5, 6))),
    _kernel("syrk", "products", data.syrk, (2,), _of(_MN, (50, 70), (150, 200), (4, 6))),
    _kernel("syr2k", "products", data.syr2k, (2,), _of(_MN, (35, 50), (110, 140), (4, 6))),
    _kernel("trmm", "products", data.trmm, (2,), _of(_MN, (65, 80), (200, 250), (5, 6))),
    _kernel("covariance", "products", data.statistics, (1,), _of(_MN, (500, 600), (1400, 1800), (5, 7))),
    _kernel("covariance2", "products", data.covariance2, (), _of(_MN, (1500, 1800), (5000, 6000), (5, 7))),
    _kernel("correlation", "products", data.statistics, (1,), _of(_MN, (500, 600), (1400, 1800), (5, 7))),
    _kernel("trisolv", "solvers", data.trisolv, (1,), _of("n", (2000,), (5000,), (6,))),
    _kernel("cholesky", "solvers", data.cholesky, (0,), _of("n", (100,), (300,), (6,))),
    _kernel("cholesky2", "solvers", data.cholesky, (0,), _of("n", (1000,), (2200,), (6,))),
    _kernel("lu", "solvers", data.lu, (0,), _of("n", (60,), (220,), (6,))),
    _kernel("ludcmp", "solvers", data.ludcmp, (0,), _of("n", (60,), (220,), (6,))),
    _kernel("durbin", "solvers", data.durbin, (), _of("n", (1000,), (6000,), (6,))),
    _kernel("gramschmidt", "solvers", data.gramschmidt, (0,), _of(_MN, (70, 60), (220, 180), (7, 5))),
    _kernel("floyd_warshall", "solvers", data.floyd_warshall, (0,), _of("n", (200,), (400,), (6,))),
    _kernel("nussinov", "solvers", data.nussinov, (), _of("n", (40,), (90,), (7,))),
    _kernel(
        "jacobi_1d",
        "stencils",
        data.jacobi,
        (1, 2),
        _of("steps n rank", (800, 3200, 1), (3000, 12000, 1), (4, 9, 1)),
    ),
    _kernel(
        "jacobi_2d",
        "stencils",
        data.jacobi,
        (1, 2),
        _of("steps n rank", (50, 150, 2), (80, 350, 2), (4, 7, 2)),
    ),
    _kernel(
        "heat_3d", "stencils", data.jacobi, (1, 2), _of("steps n rank", (25, 25, 3), (50, 40, 3), (4, 5, 3))
    ),
    _kernel(
        "fdtd_2d",
        "stencils",
        data.fdtd_2d,
        (1, 2, 3),
        _of("steps nx ny", (20, 200, 220), (60, 400, 450), (3, 5, 6)),
    ),
    _kernel("seidel_2d", "stencils", data.square, (1,), _of("steps n", (8, 50), (15, 100), (3, 6))),
    _kernel("adi", "stencils", data.square, (1,), _of("steps n", (5, 100), (20, 200), (3, 6))),
    _kernel("deriche", "stencils", data.deriche, (), _of("w h", (400, 200), (1500, 1000), (6, 7))),
    _kernel("hdiff", "stencils", data.hdiff, (1,), _of("i j k", (64, 64, 60), (128, 128, 160), (4, 5, 3))),
    _kernel("vadv", "stencils", data.vadv, (0,), _of("i j k", (60, 60, 40), (112, 112, 80), (3, 4, 5))),
    _kernel(
        "cavity_flow",
        "flows",
        data.cavity_flow,
        (4, 5, 9),
        _of("nx ny nt nit", (61, 61, 25, 5), (121, 121, 50, 10), (6, 7, 3, 2)),
    ),
    _kernel(
        "channel_flow",
        "flows",
        data.channel_flow,
        (1, 2, 6),
        _of("nx ny nit", (61, 61, 5), (121, 121, 10), (6, 7, 2)),
    ),
    _kernel(
        "mlp",
        "learning",
        data.mlp,
        (),
        _of("inputs n s0 s1 s2", (3, 8, 30000, 2000, 2000), (3, 8, 30000, 10000, 10000), (3, 2, 6, 5, 4)),
    ),
    _kernel(
        "conv2d_bias",
        "learning",
        data.conv2d_bias,
        (),
        _of("n inputs outputs k h w", (8, 3, 16, 2, 32, 32), (8, 3, 8, 5, 64, 64), (2, 3, 4, 2, 5, 6)),
    ),
    _kernel("lenet", "learning", data.lenet, (), _of("n h w", (4, 28, 28), (8, 56, 56), (1, 16, 16))),
    _kernel(
        "resnet",
        "learning",
        data.resnet,
        (),
        _of("n w h c1 c2", (8, 14, 14, 32, 8), (8, 28, 28, 64, 16), (2, 3, 4, 3, 2)),
    ),
    _kernel("softmax", "learning", data.softmax, (), _of("n h sm", (16, 16, 128), (32, 8, 256), (2, 3, 4))),
    _kernel(
        "mandelbrot1",
        "science",
        data.mandelbrot,
        (),
        _of(_PLANE, (-1.75, 0.25, 1.0, 125, 60), (-1.75, 0.25, 1.0, 250, 150), (-1.75, 0.25, 1.0, 7, 5)),
        1e-3,
    ),
    _kernel(
        "mandelbrot2",
        "science",
        data.mandelbrot,
        (),
        _of(_PLANE, (-2.0, 0.5, 1.25, 200, 40), (-2.0, 0.5, 1.25, 500, 80), (-2.0, 0.5, 1.25, 7, 5)),
        1e-3,
    ),
    _kernel(
        "nbody",
        "science",
        data.nbody,
        (1, 2),
        _of("n end dt", (25, 2.0, 0.05), (50, 5.0, 0.02), (4, 0.15, 0.05)),
        1e-6,
    ),
    _kernel("azimint_naive", "science", data.azimint, (), _RINGS),
    _kernel("azimint_hist", "science", data.azimint, (), _RINGS),
    _kernel(
        "spmv",
        "science",
        data.spmv,
        (),
        _of("m n nnz", (4096, 4096, 8192), (32768, 32768, 65536), (5, 6, 11)),
    ),
    _kernel(
        "stockham_fft", "science", data.stockham_fft, (4,), _of("radix stages", (2, 15), (2, 18), (2, 3))
    ),
    _kernel("go_fast", "science", data.go_fast, (), _of("n", (2000,), (6000,), (5,))),
    _kernel("crc16", "science", data.crc16, (), _of("n", (1600,), (16000,), (5,))),
    _kernel("arc_distance", "science", data.arc_distance, (), _of("n", (100000,), (1000000,), (7,))),
    _kernel("compute", "science", data.compute, (), _of(_MN, (2000, 2000), (5000, 5000), (4, 5))),
    _kernel(
        "contour_integral",
        "science",
        data.contour_integral,
        (),
        _of("nr nm slabs points", (50, 150, 2, 32), (200, 400, 2, 32), (3, 4, 2, 4)),
    ),
    _kernel(
        "scattering_self_energies",
        "science",
        data.scattering,
        (4,),
        _of(
            "kz energies qz w dims atoms near orbitals",
            (2, 4, 2, 2, 2, 6, 2, 3),
            (3, 5, 3, 2, 2, 10, 3, 4),
            (1, 2, 1, 2, 1, 2, 2, 2),
        ),
    ),
)


def kernel_named(name: str) -> Kernel:
    """The kernel with a name."""
    (found,) = (kernel for kernel in KERNELS if kernel.name == name)
    return found

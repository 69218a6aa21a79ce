"""Linear algebra: the ``linalg`` extension of the array API standard, and what people use besides.

>>> import weft
>>> x = weft.tensor([[2.0, 1.0], [1.0, 3.0]], requires_grad=True)
>>> weft.linalg.det(x).backward()
>>> weft.round(x.grad)
tensor([[ 3., -1.],
        [-1.,  2.]])
"""

from typing import NoReturn

from weft.ops.contract import matmul, outer, tensordot, vecdot
from weft.ops.linalg.determinants import SlogdetResult, det, slogdet
from weft.ops.linalg.eigen import EighResult, EigResult, eig, eigh, eigvals, eigvalsh
from weft.ops.linalg.factorisations import QRResult, cholesky, qr
from weft.ops.linalg.functions import LstsqResult, lstsq, matrix_exp, matrix_power, matrix_rank, pinv
from weft.ops.linalg.ldl import LDLFactorResult, LDLResult, ldl, ldl_factor, ldl_solve
from weft.ops.linalg.lu import LUResult, lu
from weft.ops.linalg.norms import cond, matrix_norm, norm
from weft.ops.linalg.products import cross, multi_dot, tensorinv, tensorsolve, trace
from weft.ops.linalg.svd import SVDResult, svd, svdvals
from weft.ops.linalg.systems import cholesky_solve, inv, solve, solve_triangular
from weft.ops.vector_norm import vector_norm
from weft.ops.view.axes import matrix_transpose
from weft.ops.view.padding import diagonal

__all__ = [
    "EigResult",
    "EighResult",
    "LDLFactorResult",
    "LDLResult",
    "LUResult",
    "LstsqResult",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "cholesky",
    "cholesky_solve",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "ldl",
    "ldl_factor",
    "ldl_solve",
    "lstsq",
    "lu",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "trace",
    "vecdot",
    "vector_norm",
]


def __getattr__(name: str) -> NoReturn:
    from weft.base.elsewhere import unknown

    raise unknown(__name__, name, __all__)

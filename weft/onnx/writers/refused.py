"""What ONNX has no words for, with what to do instead; and the little linear algebra that it has."""

from __future__ import annotations

from typing import Any

from weft.onnx.writers.registry import cannot, emitted, enter_writers, writer
from weft.onnx.writers.writer import Ref, Writer

_RANDOM = "export model.eval(), or a function that takes the random numbers as an argument"
_LINALG = "compute it outside of the exported function, and pass the result in"
_FOURIER = "ONNX has no complex numbers; compute it outside of the exported function"

cannot(_RANDOM, "random_bits derive_key")
cannot(
    _LINALG,
    "solve solve_triangular inv cholesky qr svd svdvals cofactors slogdet eigh eigvalsh eig eigvals pinv"
    " matrix_exp polygamma",
)
cannot(_FOURIER, "fft ifft rfft irfft complex real imag conj")
cannot(
    'a trace holds for one way through the code; use weft.jit.script, or weft.compile with capture="source"',
    "guard",
)
enter_writers({"det": emitted("Det")})


@writer("cross")
def write_cross(w: Writer, x: Ref, y: Ref, *, axis: int) -> Any:
    """The product of vectors of three elements: differences of products of turned ones."""

    def turned(v: Ref, *order: int) -> Any:
        return w.emit("Gather", v, w.ints(order), axis=axis)

    left = w.emit("Mul", turned(x, 1, 2, 0), turned(y, 2, 0, 1))
    return w.emit("Sub", left, w.emit("Mul", turned(x, 2, 0, 1), turned(y, 1, 2, 0)))


cannot(
    "it is made when a graph is lowered: export the graph as it was captured",
    "attention attention_gradient",
)

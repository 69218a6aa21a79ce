"""What people who come from PyTorch type, with the module's name changed, and what NumPy says it gives.

Beside the expression stands one of NumPy (``N``) on the same arrays in capitals, a plain value, or a
``Hint``: words of the error that it gets. Nothing here was copied from what weft gave.
"""

from tests.habits.hint import Row
from tests.habits.rows_pytorch.calculation import GRADIENTS, MATH
from tests.habits.rows_pytorch.dialect import DIALECT
from tests.habits.rows_pytorch.hints import HINTS
from tests.habits.rows_pytorch.networks import DATA, NETWORKS
from tests.habits.rows_pytorch.shapes import SHAPES
from tests.habits.rows_pytorch.values import SPARSE, VALUES

ROWS: list[Row] = [*DIALECT, *SHAPES, *VALUES, *SPARSE, *MATH, *GRADIENTS, *NETWORKS, *DATA, *HINTS]

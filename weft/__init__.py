"""weft: a computation-graph framework. Ordinary Python on tensors, dynamic and static graphs, one cloth."""

from weft import errors

# dtypes
from weft.base.dtypes import (
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    isdtype,
    set_default_dtype,
    uint8,
    uint16,
    uint32,
    uint64,
)
from weft.base.dtypes import bool_ as bool

# contract
from weft.ops.contract import matmul

# elementwise that are functions
from weft.ops.elementwise import where

# reduce
from weft.ops.reduce import sum

# view

# index, sort, search, sets

# neural networks

# linalg, fft

# tensors
from weft.tensor import methods as _methods
from weft.tensor.creation import tensor

# elementwise that are ops
from weft.tensor.functions import add, div, divide, exp, log, mul, multiply, neg, negative, sqrt, sub, subtract, tanh
from weft.tensor.mode import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from weft.tensor.tensor import Tensor

# autograd

# transforms

# random

__version__ = "0.1.0"

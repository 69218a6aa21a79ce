"""PyTorch beside weft: tensors, state dicts, functions and exported programs, both ways."""

from weft.interop.torch.callbacks import from_function
from weft.interop.torch.functions import as_torch
from weft.interop.torch.program import import_program, supported_operators
from weft.interop.torch.state import load_state_dict
from weft.interop.torch.tensors import from_torch, to_torch

__all__ = [
    "as_torch",
    "from_function",
    "from_torch",
    "import_program",
    "load_state_dict",
    "supported_operators",
    "to_torch",
]

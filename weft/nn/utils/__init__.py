"""Helpers around modules: clipping of gradients, parameters as one vector, sequences of different lengths."""

from weft.nn.utils import rnn
from weft.nn.utils.clip import clip_grad_norm_, clip_grad_value_
from weft.nn.utils.vector import parameters_to_vector, vector_to_parameters
from weft.nn.utils.weight_norm import remove_weight_norm, weight_norm

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "parameters_to_vector",
    "remove_weight_norm",
    "rnn",
    "vector_to_parameters",
    "weight_norm",
]

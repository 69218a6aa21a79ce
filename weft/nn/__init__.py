"""Layers of neural networks: modules with parameters, on the public functions of weft.

>>> import weft
>>> from weft import nn
>>> model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
>>> model(weft.ones((3, 4))).shape
(3, 2)
>>> sum(p.numel() for p in model.parameters())
58
"""

from weft.nn import functional, init, utils
from weft.nn.activation import GELU, Dropout, Flatten, ReLU, Sigmoid, SiLU, Softmax, Tanh
from weft.nn.attention import MultiheadAttention, TransformerEncoder, TransformerEncoderLayer
from weft.nn.containers import ModuleDict, ModuleList, Sequential
from weft.nn.conv import Conv2d, MaxPool2d
from weft.nn.linear import Embedding, Identity, Linear
from weft.nn.loss import BCEWithLogitsLoss, CrossEntropyLoss, L1Loss, MSELoss
from weft.nn.module import Module
from weft.nn.norm import BatchNorm1d, BatchNorm2d, LayerNorm, RMSNorm
from weft.nn.parameter import Parameter
from weft.nn.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell

__all__ = [
    "GELU",
    "GRU",
    "LSTM",
    "RNN",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "Conv2d",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Flatten",
    "GRUCell",
    "Identity",
    "L1Loss",
    "LSTMCell",
    "LayerNorm",
    "Linear",
    "MSELoss",
    "MaxPool2d",
    "Module",
    "ModuleDict",
    "ModuleList",
    "MultiheadAttention",
    "Parameter",
    "RMSNorm",
    "RNNCell",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Tanh",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "functional",
    "init",
    "utils",
]

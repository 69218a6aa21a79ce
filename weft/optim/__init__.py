"""Optimizers: how gradients change parameters.

>>> import weft
>>> from weft import nn, optim
>>> model = nn.Linear(2, 1)
>>> optimizer = optim.SGD(model.parameters(), lr=0.1)
>>> loss = model(weft.ones((4, 2))).square().mean()
>>> optimizer.zero_grad()
>>> loss.backward()
>>> optimizer.step()
"""

from weft.nn.utils import clip_grad_norm_, clip_grad_value_
from weft.optim import lr_scheduler
from weft.optim.adam import Adam, AdamW
from weft.optim.optimizer import Optimizer
from weft.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "clip_grad_norm_", "clip_grad_value_", "lr_scheduler"]

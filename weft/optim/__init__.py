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

from typing import NoReturn

from weft.base.public import name_constructor as _name_constructor
from weft.nn.utils import clip_grad_norm_, clip_grad_value_
from weft.optim import lr_scheduler
from weft.optim.adagrad import Adadelta, Adagrad
from weft.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam
from weft.optim.ema import EMA
from weft.optim.lbfgs import LBFGS
from weft.optim.lion import Lion
from weft.optim.optimizer import Optimizer
from weft.optim.rmsprop import RMSprop
from weft.optim.scaler import GradScaler
from weft.optim.sgd import SGD

__all__ = [
    "EMA",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "GradScaler",
    "Lion",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "clip_grad_norm_",
    "clip_grad_value_",
    "lr_scheduler",
]

for _class in [*globals().values(), *vars(lr_scheduler).values()]:
    if isinstance(_class, type) and _class.__module__.startswith(__name__):
        _name_constructor(_class)

for _name in ("adagrad", "adam", "lion", "rmsprop", "sgd"):  # files; functions in Optax: a hint is better
    globals().pop(_name)


def __getattr__(name: str) -> NoReturn:
    from weft.base.elsewhere import unknown

    raise unknown(__name__, name, __all__)

"""Layers of neural networks: modules with parameters, on the public functions of weft.

>>> import weft
>>> from weft import nn
>>> model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
>>> model(weft.ones((3, 4))).shape
(3, 2)
>>> sum(p.numel() for p in model.parameters())
58
"""

from typing import NoReturn

from weft.base.names import LAYERS as _LAYERS
from weft.base.names import homes as _homes
from weft.base.public import name_constructor as _name_constructor
from weft.nn import functional, init, utils

globals().update({name: home.load() for name, home in _homes(_LAYERS).items()})
for _name in _homes(_LAYERS):
    if isinstance(globals()[_name], type):
        _name_constructor(globals()[_name])
for _name in ("dropout", "softmax"):  # files; elsewhere functions: asking for them is to give a hint
    globals().pop(_name)
__all__ = ["functional", "init", "utils", *sorted(_homes(_LAYERS))]


def __getattr__(name: str) -> NoReturn:
    from weft.base.elsewhere import unknown

    raise unknown(__name__, name, __all__)

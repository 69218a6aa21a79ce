"""Training: an optional trainer around models, optimizers and pipelines. See docs/training.md."""

from typing import NoReturn

from weft.base.elsewhere import Missing as _Missing
from weft.base.elsewhere_objects import TRAINER as _TRAINER
from weft.base.public import name_constructor as _name_constructor
from weft.train import metrics
from weft.train.callbacks import Callback, EarlyStopping
from weft.train.checkpoints import Checkpoints
from weft.train.logs import EventFile, Log
from weft.train.trainer import Trainer

__all__ = ["Callback", "Checkpoints", "EarlyStopping", "EventFile", "Log", "Trainer", "metrics"]

_name_constructor(Trainer)
_name_constructor(EarlyStopping)
for _name, _hint in _TRAINER.items():
    setattr(Trainer, _name, _Missing(_name, _hint))


def __getattr__(name: str) -> NoReturn:
    from weft.base.elsewhere import unknown

    raise unknown(__name__, name, __all__)

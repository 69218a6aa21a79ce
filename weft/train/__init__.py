"""Training: an optional trainer around models, optimizers and pipelines. See docs/training.md."""

from weft.train import metrics
from weft.train.callbacks import Callback, EarlyStopping
from weft.train.checkpoints import Checkpoints
from weft.train.logs import EventFile, Log
from weft.train.trainer import Trainer

__all__ = ["Callback", "Checkpoints", "EarlyStopping", "EventFile", "Log", "Trainer", "metrics"]

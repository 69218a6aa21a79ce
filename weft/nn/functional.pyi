"""Written by ``python -m tests.stubs --write``."""

# ruff: noqa
# fmt: off
from weft.functional import *
from weft.nn.ctc import ctc_loss as ctc_loss

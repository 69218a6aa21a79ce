"""The functions that layers are made of: those of ``weft.functional``, and some made of them."""

from typing import NoReturn

from weft.functional import *  # noqa: F403 - it is that module under the name people know
from weft.functional import __all__ as _names
from weft.nn.ctc import ctc_loss

__all__ = [*_names, "ctc_loss"]


def __getattr__(name: str) -> NoReturn:
    from weft.base.elsewhere import unknown

    raise unknown(__name__, name, __all__)

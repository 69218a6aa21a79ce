"""The functions that layers are made of; the same as ``weft.functional``."""

from weft.functional import *  # noqa: F403 - it is that module under the name people know
from weft.functional import __all__ as __all__

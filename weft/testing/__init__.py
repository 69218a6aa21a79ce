"""Checks for tests: gradients against finite differences, batches against loops, values against values."""

from typing import NoReturn

from weft.ops.op import Sample
from weft.testing.compare import assert_close
from weft.testing.gradcheck import check_vmap, gradcheck, gradgradcheck
from weft.testing.ops import check_op

__all__ = ["Sample", "assert_close", "check_op", "check_vmap", "gradcheck", "gradgradcheck"]


def __getattr__(name: str) -> NoReturn:
    from weft.base.elsewhere import unknown

    raise unknown(__name__, name, __all__)

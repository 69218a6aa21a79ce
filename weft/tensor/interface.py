"""The place of the methods that are attached to Tensor; the stub beside this file names their functions."""


class Attached:
    """Empty at run time: Tensor is filled by ``operators``, ``published``, ``methods``, ``casts`` ..."""

    __slots__ = ()

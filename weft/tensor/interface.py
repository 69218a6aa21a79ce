"""The place of the methods that are attached to Tensor; the stub beside this file tells what they are."""


class Attached:
    """Empty at run time; ``operators``, ``methods``, ``elementwise_methods`` and ``casts`` fill Tensor."""

    __slots__ = ()

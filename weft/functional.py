"""What networks are made of, as functions without state: ``import weft.functional as F``.

Every name here is also a name of ``weft`` itself; ``NETWORK`` in ``weft/base/names.py`` lists them. One means
something else here, as in PyTorch: ``F.pad`` takes the widths of the last axis first.

>>> import weft
>>> import weft.functional as F
>>> F.relu is weft.relu
True
"""

from weft.base.names import NETWORK as _NETWORK
from weft.base.names import homes as _homes
from weft.tensor.pytorch import pad as _pad

globals().update({name: home.load() for name, home in _homes(_NETWORK).items()} | {"pad": _pad})
__all__ = sorted(_homes(_NETWORK))

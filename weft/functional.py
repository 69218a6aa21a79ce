"""What networks are made of, as functions without state: ``import weft.functional as F``.

Every name here is also a name of ``weft`` itself; ``NETWORK`` in ``weft/base/names.py`` lists them.

>>> import weft
>>> import weft.functional as F
>>> F.relu is weft.relu
True
"""

from weft.base.names import NETWORK as _NETWORK
from weft.base.names import homes as _homes

globals().update({name: home.load() for name, home in _homes(_NETWORK).items()})
__all__ = sorted(_homes(_NETWORK))

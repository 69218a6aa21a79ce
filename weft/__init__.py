"""weft: a computation-graph framework. Ordinary Python on tensors, dynamic and static graphs, one cloth.

The names are listed in ``weft/base/names.py``. Those of modules that every program needs are there at once,
the others from their first use on, so that ``import weft`` stays quick. Editors read the stub beside this.
"""

import gc as _gc
import sys as _sys

# A collection during import finds nothing, and would take a fifth of the time.
_collecting = _gc.isenabled()
_gc.disable()
try:
    import numpy as _numpy  # noqa: F401 - first: imported deep inside, it takes CPython longer

    from weft import compile as _compile  # noqa: F401 - what every program needs
    from weft.base.names import MODULES as _MODULES
    from weft.base.names import NETWORK as _NETWORK
    from weft.base.names import OTHERS as _OTHERS
    from weft.base.names import homes as _homes
    from weft.tensor import elementwise_methods as _elementwise_methods  # noqa: F401 - attaches methods
    from weft.tensor import methods as _methods  # noqa: F401 - attaches methods
    from weft.tensor import numpy_functions as _numpy_functions  # noqa: F401 - attaches NumPy's protocols
    from weft.tensor.published import FUNCTIONS as _FUNCTIONS

    _HOMES = _homes(_NETWORK, _OTHERS, modules=_MODULES)
    for _name, _home in _HOMES.items():
        if _home.module in _sys.modules:
            globals()[_name] = _home.load()
    globals().update(_FUNCTIONS)
finally:
    if _collecting:
        if not _gc.get_freeze_count():  # all to the oldest generation, without a look at each
            _gc.freeze()
            _gc.unfreeze()
        _gc.enable()

__version__ = "0.1.0"
__array_api_version__ = "2024.12"
# not those that hide types of Python, which a program of ``from weft import *`` still calls
__all__ = sorted({*_HOMES, *_FUNCTIONS, "__array_api_version__", "__version__"} - {"float", "int"})


def __getattr__(name: str) -> object:
    """A name at its first use; its module is imported by it."""
    if name in _HOMES:
        globals()[name] = found = _HOMES[name].load()
        return found
    if name in _FUNCTIONS:  # an op that was declared since
        return _FUNCTIONS[name]
    from weft.base.elsewhere import unknown

    raise unknown("weft", name, {*_HOMES, *_FUNCTIONS})


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_FUNCTIONS})

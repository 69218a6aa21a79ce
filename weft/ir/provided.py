"""What higher layers give to the text of graphs: the table of ops, and the bodies of composites.

Imported at first use, as the methods of a graph are.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

_PROVIDERS = {
    "find_op": "weft.ops.table",
    "op_names": "weft.ops.table",
    "argument_names": "weft.ops.table",
    "call_outputs": "weft.transform.composites",
    "composite_body": "weft.transform.composites",
}


def provided(name: str) -> Callable[..., Any]:
    """The function of a higher layer with a name."""
    function: Callable[..., Any] = getattr(import_module(_PROVIDERS[name]), name)
    return function

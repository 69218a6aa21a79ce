"""From what compiled code noted when it failed to the error that the op's reference kernel raises."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft.base.sizes import is_known
from weft.errors import WeftError
from weft.ir.graph import Node
from weft.ir.interpret import placed
from weft.ops.classes import class_error
from weft.ops.index import bounds_error
from weft.ops.linalg.common import singular_error


def failure_error(node: Node, kind: str, values: Sequence[int]) -> Exception:
    """The error of a node that failed in a way that its lowering names, with the values it noted.

    >>> import weft
    >>> from weft.schedule.failures import failure_error
    >>> graph = weft.make_graph(lambda x, i: x[i])(weft.ones(3), weft.tensor(0))
    >>> node = next(n for n in graph.nodes if n.op.name == "gather")
    >>> print(str(failure_error(node, "bounds", [0, 3, 7])).splitlines()[0])
    gather: index must be in -3..2 for axis 0 of size 3, got 7
    """
    count, error = _ERRORS[kind]
    return placed(error(node, *values[:count]), node)


def _singular(node: Node, number: int) -> WeftError:
    a = node.inputs[0].type
    lead = a.shape[:-2]
    if not lead:
        return singular_error(node.op.name, str(a))
    index = np.unravel_index(number, lead) if is_known(lead) else (number,)
    return singular_error(node.op.name, f"matrix {', '.join(map(str, index))} of {a}")


# By kind of failure, how many values are noted, and the error that they make.
_ERRORS: dict[str, tuple[int, Callable[..., WeftError]]] = {
    "bounds": (3, lambda node, axis, size, index: bounds_error(node.op.name, axis, size, index)),
    "class": (3, lambda node, classes, ignore, got: class_error(classes, ignore, got)),
    "singular": (1, _singular),
}

"""How ATen operators become weft: a rule for each, found by name, that calls weft's functions.

A rule gets a ``Call`` first, which tells what PyTorch says of the results, then the operator's arguments:
tensors of the graph being made, ints and named sizes, numbers, dtypes of weft, lists of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft.base.dtypes import DType, kind
from weft.errors import CaptureError
from weft.interop.forms.elements import astype, is_float
from weft.interop.rules import Rules
from weft.tensor.tensor import Tensor

aten = Rules()  # by name, such as "add.Tensor"; without overload where it is the default one


def rule_name(target: Any) -> str:
    """The name of an operator in the table of rules."""
    text = str(target)
    return text.removeprefix("aten.").removesuffix(".default") if text.startswith("aten.") else text


class Call(NamedTuple):
    """One node of a program, as its rule sees it.

    Attributes:
        target: the operator, as PyTorch names it.
        name: of the node.
        dtypes: of each result; None for one that is no tensor.
        strides: of each tensor among the arguments, as PyTorch has it laid out, by its place.
    """

    target: str
    name: str
    dtypes: Sequence[DType | None]
    strides: Sequence[Any]

    @property
    def dtype(self) -> DType:
        """The dtype of the first result."""
        found = self.dtypes[0]
        assert found is not None
        return found

    def cast(self, x: Any) -> Any:
        """An operand in the dtype of the result, in which PyTorch computes; numbers stay."""
        return astype(x, self.dtype) if isinstance(x, Tensor) else x

    def floating(self, x: Any) -> Any:
        """An operand that is made floating where the result is."""
        needs = isinstance(x, Tensor) and not is_float(x) and kind(self.dtype) in "fc"
        return astype(x, self.dtype) if needs else x

    def error(self, message: str, hint: str | None = None) -> CaptureError:
        """An error about this node, to be raised."""
        return CaptureError("import_program", f"{self.target}: {message}", hint=hint)


def axes_of(dim: Any) -> Any:
    """Axes as weft takes them: None and no axis mean all."""
    if dim is None or (isinstance(dim, list | tuple) and not dim):
        return None
    return as_tuple(dim)


def as_tuple(x: Any) -> Any:
    """A list as a tuple; anything else as it is."""
    return tuple(x) if isinstance(x, list) else x

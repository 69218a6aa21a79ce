"""How ONNX operators become weft: a handler for each, found by name, domain and version.

A handler calls public weft functions on tensors, which stand for values of the graph being made, or hold
arrays where everything is known at import. ``Call`` is what it can ask about the node that it runs for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from weft.base.dtypes import DType
from weft.errors import GraphError, ShapeError
from weft.onnx.facts import Array, Constant, Facts
from weft.onnx.types import dtype_of, narrow_of, type_name
from weft.tensor.tensor import Tensor

Result = Any  # a Tensor, a list of them (a sequence), None, or a tuple of these for several outputs
Handler = Callable[..., Result]
_FIRST, _LAST = 1, 10_000


class UnknownValueError(GraphError):
    """A value must be known while a model is imported, and is not.

    Attributes:
        sources: names of the model's inputs that it is computed from.
    """

    sources: tuple[str, ...] = ()


class Entry(NamedTuple):
    """A handler, the names of attributes that it takes, and the versions of the operator set it is for."""

    handler: Handler
    attributes: tuple[str, ...]
    since: int
    until: int
    moves: bool
    folds: bool

    def run(self, call: Call, inputs: Sequence[Any]) -> list[Result]:
        """The outputs of a node."""
        given = {name: call.attribute(name) for name in self.attributes if call.has(name)}
        result = self.handler(call, *inputs, **given)
        return list(result) if isinstance(result, tuple) else [result]


_handlers: dict[tuple[str, str], list[Entry]] = {}


def operator(
    *names: str,
    since: int = _FIRST,
    until: int = _LAST,
    domain: str = "",
    moves: bool = False,
    folds: bool = True,
) -> Callable[[Handler], Handler]:
    """Register a function as the handler of operators.

    It gets a ``Call`` and a tensor for each input (None for one that is left out, a list for a sequence), and
    returns a tensor, a list, or a tuple for several outputs. Keyword-only parameters are attributes of the
    node by name; one that the node lacks has its default.

    Args:
        names: of the operators.
        since: the first version of the operator set that it is for.
        until: the last one.
        domain: of the operators, "" for ONNX's own.
        moves: whether the operator merely moves elements, so that its outputs have the narrow type of its
            first input (or of the elements, if that is a sequence).
        folds: whether the handler runs on arrays where all inputs are known; else always in the graph.

    >>> import onnx, weft
    >>> @weft.onnx.operator("Scaled", domain="example")
    ... def scaled(call, x, *, factor=1.0):
    ...     return x * factor
    >>> text = "f (float[2] x) => (float[2] y) { y = example.Scaled <factor = 3.0> (x) }"
    >>> header = '<ir_version: 8, opset_import: ["": 18, "example": 1]>'
    >>> weft.onnx.load(onnx.parser.parse_model(header + text))(weft.ones(2))
    tensor([3., 3.])
    """

    def register(handler: Handler) -> Handler:
        parameters = inspect.signature(handler).parameters.values()
        attributes = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
        for name in names:
            entries = _handlers.setdefault((domain, name), [])
            clash = [e for e in entries if e.since <= until and since <= e.until]
            assert not clash, f"{name} has two handlers for one version"
            entries.append(Entry(handler, attributes, since, until, moves, folds))
        return handler

    return register


def enter_handlers(table: Mapping[str, Handler], **settings: Any) -> None:
    """Register handlers that are one line each; a key is one name, or several with blanks between.

    Settings are those of ``operator``.
    """
    for names, handler in table.items():
        operator(*names.split(), **settings)(handler)


def all_inputs(given: Sequence[Any], count: int) -> tuple[Any, ...]:
    """Inputs of a node that may have so many: None for those that are left out at the end."""
    return (*given, *(None,) * (count - len(given)))


def find_handler(domain: str, name: str, version: int) -> Entry | None:
    """The handler of an operator in a version of its operator set, or None."""
    for entry in _handlers.get((domain, name), ()):
        if entry.since <= version <= entry.until:
            return entry
    return None


def operator_names(domain: str = "") -> list[str]:
    """The operators of a domain that have a handler."""
    return sorted(name for own, name in _handlers if own == domain)


@dataclass(frozen=True, eq=False, slots=True)
class Call:
    """One node of an ONNX model, as its handler sees it.

    Attributes:
        op: the name of the operator.
        domain: of the operator.
        version: of the operator set, as the model says.
        name: of the node, as errors show it.
        outputs: for each output of the node whether something uses it.
    """

    op: str
    domain: str
    version: int
    name: str
    outputs: tuple[bool, ...]
    _attributes: Mapping[str, Any]
    _facts: Facts

    # Attributes

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute: an int, float, str, tuple of these, array, graph to call, or the default."""
        return self._attributes.get(name, default)

    def has(self, name: str) -> bool:
        """Whether the node has an attribute."""
        return name in self._attributes

    def dtype(self, code: int) -> DType:
        """The dtype that carries an ONNX element type."""
        found = dtype_of(code)
        if found is None:
            raise self.error(f"element types must be ones that weft has, got {type_name(code)}")
        return found

    def narrow_type(self, code: int) -> str | None:
        """The name of an ONNX element type that weft has no dtype for; None for others."""
        return narrow_of(code)

    # Values

    def known(self, x: Any) -> Array | None:
        """The value of an input as numbers, if it is known now."""
        array = None if x is None else self._facts.array(x)
        return None if array is None or array.dtype == object else array

    def sizes(self, x: Any) -> Array | None:
        """The value of an input as ints and named sizes (an array of objects), if it is known now."""
        array = None if x is None else self._facts.array(x)
        return None if array is None else array.astype(object)

    def _needed(self, array: Array | None, x: Any, what: str) -> Array:
        if array is None:
            raise self.unknown(x, what)
        return array

    def values(self, x: Any, what: str) -> Array:
        """The value of an input as numbers; an error that says how to give it if it is not known."""
        return self._needed(self.known(x), x, what)

    def ints(self, x: Any, what: str) -> tuple[Any, ...]:
        """The value of an input as ints and named sizes; an error if it is not known.

        Args:
            x: the input, of at most one axis.
            what: what the input is called in the definition of the operator.
        """
        flat = self._needed(self.sizes(x), x, what).reshape(-1).tolist()
        return tuple([int(v) if isinstance(v, float | bool) else v for v in flat])

    def told(self, x: Any, name: str) -> Any:
        """Ints that are an input, or in earlier versions an attribute; None where neither is given."""
        return self.attribute(name) if x is None else self.ints(x, name)

    def scalar(self, x: Any, what: str) -> Any:
        """The one number (or size) that an input holds; an error if it is not known."""
        array = self._needed(self.sizes(x), x, what)
        if array.size != 1:
            raise self.error(f"{what} must be one number, got {array.size}")
        return array.reshape(-1).tolist()[0]

    def unknown(self, x: Any, what: str, *, because: str = "") -> UnknownValueError:
        """The error where an input must be known, to be raised.

        Args:
            x: the input.
            what: what it is called in the definition of the operator.
            because: why it must be.
        """
        sources = sorted(self._facts.of(x).sources) if x is not None else []
        reason = f" ({because})" if because else ""
        error = UnknownValueError(
            "onnx.load",
            f"{what} of {self} must be known while the model is imported, got a value that only a run tells"
            f"{reason}",
            hint=_hint(sources),
        )
        error.sources = tuple(sources)
        return error

    def leave_to_run(self, x: Any, what: str) -> None:
        """Note that an input could have been known: where the import fails later on, that is what helps."""
        if self._facts.left_to_run is None:
            self._facts.left_to_run = self.unknown(x, what)

    def constant(self, value: Any) -> Tensor:
        """A number or an array as a tensor of which the value is known."""
        array = np.asarray(value)
        return self._facts.tensor_of(Constant(array, array.dtype))

    def agree(self, size: Any, told: Any, what: str) -> None:
        """Raise unless two sizes are equal: an open size of an input then becomes what it is told to be."""
        if size != told:
            raise ShapeError(self.op, f"{what} must agree, got {size} and {told}", clash=(size, told))

    # Narrow types

    def narrow(self, x: Any) -> str | None:
        """The name of the ONNX type of an input that weft has no dtype for; None for others."""
        return None if x is None else self._facts.of(x).narrow

    def as_narrow(self, x: Tensor, name: str | None) -> Tensor:
        """The same data, noted as being of a narrow type (or, with None, of none)."""
        return self._facts.as_narrow(x, name)

    # Errors

    def error(self, message: str, hint: str | None = None) -> GraphError:
        """An error that names the node, to be raised."""
        return GraphError("onnx.load", f"{self}: {message}", hint=hint)

    def __str__(self) -> str:
        title = f"{self.domain}.{self.op}" if self.domain else self.op
        return f"{title} node {self.name!r}" if self.name else f"{title} node"


def _hint(sources: Sequence[str]) -> str:
    if not sources:
        return "only values that follow from constants, sizes and known= can be used here"
    given = ", ".join(f"{name!r}: ..." for name in sources)
    return f"it follows from inputs of the model; fix their value: weft.onnx.load(..., known={{{given}}})"

"""The inputs of an ONNX model: arguments of the graph, with named sizes, or values that the caller gave."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.base.dtypes import DType, kind
from weft.base.size_text import parse_size
from weft.base.sizes import Size, named_size, size_names
from weft.errors import ArgumentError, DomainError, FileError, WeftError
from weft.onnx.facts import Array, Fact
from weft.onnx.operators.registry import UnknownValueError
from weft.onnx.types import dtype_of, narrow_of, to_carried, type_name

if TYPE_CHECKING:
    import onnx

    from weft.onnx.importer import Runner


class Given(NamedTuple):
    """What the caller says of inputs: values, and sizes; and what nodes have told of open sizes, by name."""

    known: Mapping[str, Any]
    sizes: Mapping[str, Any]
    bound: Mapping[str, Any]


def arguments(graph: onnx.GraphProto, given: Given, runner: Runner) -> dict[str, Any]:
    """A value for each input of a model that is no initializer."""
    names = [item.name for item in graph.input]
    for name in given.known:
        if name not in names:
            raise ArgumentError("onnx.load", f"known must name inputs of the model, got {name!r} of {names}")
    stored = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    maker = _Maker(given, runner)
    out: dict[str, Any] = {}
    for item in graph.input:
        if item.name in given.known:
            out[item.name] = maker.constant(item, given.known[item.name])
        elif item.name not in stored:
            out[item.name] = maker.argument(item.name, item.type, item.name)
    maker.check_sizes(names)
    return out


class _Maker:
    def __init__(self, given: Given, runner: Runner) -> None:
        self.given = given
        self.runner = runner
        self._names: dict[str, str] = {}  # by text of the model, what its sizes are called

    def constant(self, item: onnx.ValueInfoProto, value: Any) -> Any:
        """The value of an input that the caller gave."""
        if value is None:
            return None
        if isinstance(value, list | tuple) and item.type.WhichOneof("value") != "tensor_type":
            return [self.runner.constant(np.asarray(x)) for x in value]
        array = np.asarray(value)
        code = item.type.tensor_type.elem_type
        wanted = dtype_of(code)
        if wanted is not None and narrow_of(code) is None and to_carried(array)[1] is None:
            array = _converted(item.name, array, wanted)
        return self.runner.constant(array)

    def argument(self, name: str, type: onnx.TypeProto, source: str) -> Any:
        """An argument of the graph; a list of them for a sequence. It comes from an input of the model."""
        which = type.WhichOneof("value")
        if which == "optional_type":
            return self.argument(name, type.optional_type.elem_type, source)
        if which == "sequence_type":
            element = type.sequence_type.elem_type
            return [self.argument(f"{name}.{i}", element, source) for i in range(self._length(name))]
        if which != "tensor_type":
            raise FileError(
                "onnx.load", f"input {name!r} must be a tensor, sequence or optional, got {which}"
            )
        return self._tensor(name, type.tensor_type, source)

    def check_sizes(self, inputs: Sequence[str]) -> None:
        """Raise if the caller gave a size to something that is not there."""
        for name, size in self.given.sizes.items():
            owner = name if name in inputs else name.rpartition(".")[0]
            if owner not in inputs and name not in self._names and name not in self._names.values():
                known = ", ".join(map(repr, self._names.values())) or "none"
                raise ArgumentError(
                    "onnx.load",
                    f"sizes must name open sizes or inputs of the model, got {name!r}, where it has {known}",
                )
            if owner not in inputs and not _is_size(size):
                raise ArgumentError("onnx.load", f"sizes: {name!r} must be an int from 0 on, got {size!r}")

    def _length(self, name: str) -> int:
        length: Any = self.given.sizes.get(name)
        if _is_size(length):
            return int(length)
        error = UnknownValueError(
            "onnx.load",
            f"input {name!r} is a sequence, whose length must be known, got {length}",
            hint=f"weft.onnx.load(..., sizes={{{name!r}: 3}}) makes it three arguments",
        )
        error.sources = (name,)
        raise error

    def _tensor(self, name: str, type: Any, source: str) -> Any:
        dtype = dtype_of(type.elem_type)
        if dtype is None:
            got = type_name(type.elem_type)
            raise FileError("onnx.load", f"input {name!r} must be of numbers, got {got}")
        shape = self._shape(name, type)
        self.runner.open_sizes |= size_names(shape)
        tensor = self.runner.block.argument(name, shape, dtype)
        self.runner.facts.note(Fact(tensor, narrow=narrow_of(type.elem_type), sources=frozenset({source})))
        return tensor

    def _shape(self, name: str, type: Any) -> tuple[Any, ...]:
        if name in self.given.sizes and not isinstance(self.given.sizes[name], int):
            return tuple(self._named(s) if isinstance(s, str) else int(s) for s in self.given.sizes[name])
        if not type.HasField("shape"):
            raise UnknownValueError(
                "onnx.load",
                f"input {name!r} must have a shape, got none in the model",
                hint=f"weft.onnx.load(..., sizes={{{name!r}: ('batch', 3)}}) gives it one",
            )
        return tuple(self._size(name, axis, dim) for axis, dim in enumerate(type.shape.dim))

    def _size(self, name: str, axis: int, dim: Any) -> Any:
        if dim.WhichOneof("value") == "dim_value":
            size = int(dim.dim_value)
            if size < 0:
                raise FileError("onnx.load", f"sizes of input {name!r} must not be negative, got {size}")
            return size
        return self._named(dim.dim_param or f"{name}_{axis}", alone=not dim.dim_param)

    def _named(self, text: str, *, alone: bool = False) -> Any:
        """The size that a text of a model stands for: an expression in names, or a name of its own."""
        size: Any = None
        if not alone:
            with suppress(WeftError):
                size = parse_size(text)
        if not isinstance(size, Size):
            return self._bound(self._own_name(text), text)
        values = {name: self._bound(self._own_name(name), name) for name in size.names()}
        return size.substitute(values)

    def _own_name(self, text: str) -> str:
        """The name of a size: two texts never share one."""
        if text not in self._names:
            own = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
            own = own if own and not own[0].isdigit() else f"size_{own}"
            while own in self._names.values():
                own += "_"
            self._names[text] = own
        return self._names[text]

    def _bound(self, name: str, text: str) -> Any:
        """The number that the caller gave for a size, what nodes told of it, or the size itself."""
        given = self.given.sizes.get(text, self.given.sizes.get(name))
        return int(given) if _is_size(given) else self.given.bound.get(name, named_size(name))


def _is_size(x: Any) -> bool:
    return isinstance(x, int | np.integer) and not isinstance(x, bool) and int(x) >= 0


def _converted(name: str, array: Array, dtype: DType) -> Array:
    """A value that the caller gave in the dtype of its input, where that loses no kind of number."""
    allowed = "iubf" if kind(dtype) == "f" else "iub" if kind(dtype) in "iub" else ""
    if array.dtype == dtype or array.dtype.kind in tuple(allowed):
        return array.astype(dtype, copy=False)
    raise DomainError("onnx.load", f"known: {name!r} must be {dtype.name}, got {array.dtype.name}")

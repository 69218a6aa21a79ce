"""What writers write with: ``Ref`` names a value of the model, ``Writer`` adds nodes for one node of weft.

``Sheet`` is a graph that is being written: the model's own, or the body of an operator such as If. A body
sees the names of the sheets around it. Names are unique in the whole model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from onnx import NodeProto, ValueInfoProto, helper, numpy_helper

from weft.base.dtypes import DType, bool_, int64, kind
from weft.base.sizes import Size, is_known
from weft.errors import GraphError
from weft.ir.graph import Array, Node
from weft.ir.types import TensorType
from weft.onnx.types import code_of
from weft.onnx.writers.schemas import WIDER, Schema, first_opset, schema_of

_SMALL = 64  # elements of a constant that is written beside each node that uses it
_FIX = "give the example a number for this size"
_FILLED = 1024  # arrays of one number with more elements than this are made by the model


class Ref(NamedTuple):
    """A value of the model.

    Attributes:
        name: in the model.
        dtype: of weft.
        shape: as the value of weft has it; None where nobody said.
    """

    name: str
    dtype: DType
    shape: Any = None

    @property
    def ndim(self) -> int:
        """The rank."""
        return len(self.shape)


class Book:
    """What all sheets of a model share.

    Attributes:
        opset: whose operators are used.
        tensors: initializers by name: weights, and large constants.
        arrays: what constants hold, by name.
    """

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.tensors: dict[str, Array] = {}
        self.arrays: dict[str, Array] = {}
        self._taken: dict[str, int] = {}
        self._constants: dict[tuple[Any, ...], Ref] = {}

    def unique(self, name: str) -> str:
        """A name that nothing else has, this one if it is free."""
        count = self._taken.get(name, -1) + 1
        self._taken[name] = count
        return name if count == 0 else self.unique(f"{name}_{count}")

    def constant(self, array: Array, name: str = "constant") -> Ref:
        """An array as a constant; equal small ones are one, and large ones are initializers."""
        key = (array.dtype.name, array.shape, array.tobytes()) if array.size <= _FILLED else (id(array),)
        if key not in self._constants:
            own = self.unique(name)
            self.arrays[own] = array
            if array.size > _SMALL:
                self.tensors[own] = array
            self._constants[key] = Ref(own, array.dtype, array.shape)
        return self._constants[key]


class Sheet:
    """A graph that is being written.

    Attributes:
        book: what all sheets share.
        around: the sheet that this one is the body of an operator in, or None.
        nodes: so far.
        infos: types of its values, by name.
        made: names of what its nodes give.
        tellers: by name of a size, an axis of a value that tells it.
        sizes: sizes that were computed, by their text.
    """

    def __init__(self, book: Book, around: Sheet | None = None) -> None:
        self.book = book
        self.around = around
        self.nodes: list[NodeProto] = []
        self.infos: dict[str, ValueInfoProto] = {}
        self.made: set[str] = set()
        self.tellers: dict[str, tuple[Ref, int]] = {}
        self.sizes: dict[str, Ref] = {}

    def owner(self, name: str) -> Sheet | None:
        """The sheet, from this one outwards, that has a value which tells a size."""
        if name in self.tellers:
            return self
        return None if self.around is None else self.around.owner(name)

    def note(self, ref: Ref, kind: TensorType) -> None:
        """Write down the type of a value."""
        self.infos[ref.name] = type_info(ref.name, kind)

    def tell(self, ref: Ref, *, again: Sequence[str] = ()) -> None:
        """Remember the sizes that a value tells; those in ``again`` though they were told before."""
        for axis, size in enumerate(ref.shape):
            if isinstance(size, Size) and len(names := size.names()) == 1:
                (name,) = names
                if name in again or (self.owner(name) is None and _is_solvable(size)):
                    self.tellers[name] = ref, axis
                    self.sizes = {k: v for k, v in self.sizes.items() if k != name}


def _is_solvable(size: Size) -> bool:
    """Whether an axis of this size tells the one name in it."""
    named = [atoms for atoms in size._terms if atoms]
    return len(named) == 1 and len(named[0]) == 1 and isinstance(named[0][0], str)


def type_info(name: str, type: TensorType) -> ValueInfoProto:
    """A value with its type; sizes that are open have their names."""
    shape = [str(s) if isinstance(s, Size) else int(s) for s in type.shape]
    return helper.make_tensor_value_info(name, code_of(type.dtype), shape)


class Writer:
    """Adds the nodes that stand for one node of weft.

    Attributes:
        sheet: that it writes on.
        node: of weft; None where sizes are computed.
    """

    def __init__(self, sheet: Sheet, node: Node | None) -> None:
        self.sheet = sheet
        self.node = node

    @property
    def opset(self) -> int:
        """The opset that is written."""
        return self.sheet.book.opset

    @property
    def type(self) -> TensorType:
        """The type of the first output."""
        assert self.node is not None
        return self.node.outputs[0].type

    # Nodes

    def emit(
        self, operator: str, *inputs: Any, outputs: int = 1, dtype: DType | None = None, **attrs: Any
    ) -> Any:
        """Add a node; gives a Ref for its output, or a list of them for several.

        Inputs are Refs; a number is a constant of the dtype of the first Ref, and None an input that is left
        out. Where the operator does not take a dtype, it computes in a wider one. ``dtype`` is that of
        outputs that inputs do not tell.
        """
        schema = schema_of(operator, self.opset)
        if schema is None:
            hint = f"export with opset={first_opset(operator)} or above"
            self.fail(f"opset {self.opset} must have {operator}, which came later", hint=hint)
        refs = self._refs(inputs)
        wide = self._widened(operator, schema, refs)
        given = [
            None if r is None else self.cast(r, wide.get(_at(schema.inputs, i), r.dtype))
            for i, r in enumerate(refs)
        ]
        names = [self._name(operator) for _ in range(outputs)]
        self.add(operator, ["" if r is None else r.name for r in given], names, attrs)
        out = []
        for i, name in enumerate(names):
            wanted = self._output_dtype(schema, _at(schema.outputs, i), refs) or dtype
            variable = _at(schema.outputs, i)
            assert wanted is not None, operator
            out.append(self.cast(Ref(name, wide.get(variable, wanted)), wanted))
        return out[0] if outputs == 1 else out

    def _refs(self, inputs: Sequence[Any]) -> list[Ref | None]:
        first = next((x.dtype for x in inputs if isinstance(x, Ref) and x.dtype != bool_), bool_)
        return [x if x is None or isinstance(x, Ref) else self.constant(x, first) for x in inputs]

    def _widened(self, operator: str, schema: Schema, refs: Sequence[Ref | None]) -> dict[str, DType]:
        """By type variable whose dtype the operator does not take, the one to compute in."""
        wide: dict[str, DType] = {}
        for i, ref in enumerate(refs):
            variable = _at(schema.inputs, i)
            if ref is None or ref.dtype in (allowed := schema.allowed[variable]) or variable in wide:
                continue
            found = next((d for d in WIDER.get(ref.dtype, ()) if d in allowed), None)
            if found is None:
                self.fail(f"{operator} must take {ref.dtype.name}, which ONNX does not let it")
            wide[variable] = found
        return wide

    def _output_dtype(self, schema: Schema, variable: str, refs: Sequence[Ref | None]) -> DType | None:
        for i, ref in enumerate(refs):
            if ref is not None and _at(schema.inputs, i) == variable:
                return ref.dtype
        only = schema.allowed[variable]
        return next(iter(only)) if len(only) == 1 else None

    def add(
        self, operator: str, inputs: Sequence[str], outputs: Sequence[str], attrs: Mapping[str, Any]
    ) -> None:
        """Add a node as it is: names of inputs and outputs, and attributes."""
        location = None if self.node is None else self.node.location
        module = f"{location.module}/" if location is not None and location.module else ""
        given = {name: value for name, value in attrs.items() if value is not None}
        for name, value in given.items():
            if not is_known(value if isinstance(value, tuple | list) else (value,)):
                self.fail(f"{name} must be known while a model is written, got {value}", hint=_FIX)
        node = helper.make_node(
            operator, inputs, outputs, name=self.sheet.book.unique(f"{module}{operator}"), **given
        )
        self._describe(node)
        self.sheet.nodes.append(node)
        self.sheet.made.update(outputs)

    def _describe(self, made: NodeProto) -> None:
        """Let the node say which line of the user it comes from."""
        if self.node is None:
            return
        name = self.node.attrs.get("function") if self.node.op.name == "call" else self.node.op.name
        props = {"weft.op": str(name)}
        location = self.node.location
        if location is not None:
            where = f"{os.path.basename(location.file)}:{location.line}"
            made.doc_string = where + (f" in {location.function}" if location.function else "")
            props |= {"weft.location": where, "weft.module": location.module, "weft.phase": location.phase}
        for key, value in props.items():
            if value:
                made.metadata_props.add(key=key, value=value)

    def _name(self, operator: str) -> str:
        return self.sheet.book.unique(operator.lower())

    # Values

    def constant(self, value: Any, dtype: DType) -> Ref:
        """A number or an array as a constant."""
        return self.sheet.book.constant(np.asarray(value, dtype))

    def known(self, ref: Ref | None) -> Array | None:
        """What a constant holds; None for anything else."""
        return None if ref is None else self.sheet.book.arrays.get(ref.name)

    def cast(self, x: Ref, dtype: DType) -> Ref:
        """x in another dtype."""
        if x.dtype == dtype:
            return x
        array = self.known(x)
        if array is not None and array.size <= _FILLED:
            return self.constant(array.astype(dtype), dtype)
        name = self._name("cast")
        self.add("Cast", [x.name], [name], {"to": code_of(dtype)})
        return Ref(name, dtype, x.shape)

    def truth(self, x: Ref) -> Ref:
        """x as truth values: whether it is not 0."""
        return self.cast(x, bool_)

    def full(self, shape: Sequence[Any], value: Any, dtype: DType) -> Ref:
        """One number in a shape."""
        if is_known(shape) and int(np.prod(shape)) <= _FILLED:
            return self.constant(np.full(shape, value), dtype)
        fill = numpy_helper.from_array(np.full((1,), value, dtype))
        out: Ref = self.emit("ConstantOfShape", self.ints(shape), value=fill, dtype=dtype)
        return out

    # Sizes, as int64 tensors of one element

    def ints(self, values: Sequence[Any]) -> Ref:
        """Ints and sizes as a vector."""
        if is_known(values):
            return self.constant(np.array(values, np.int64).reshape(-1), int64)
        parts: list[list[Any]] = []
        for value in values:  # numbers side by side are one constant
            if parts and not isinstance(value, Size) and not isinstance(parts[-1][0], Size):
                parts[-1].append(value)
            else:
                parts.append([value])
        refs = [self.size(p[0]) if isinstance(p[0], Size) else self.ints(p) for p in parts]
        return refs[0] if len(refs) == 1 else self.emit("Concat", *refs, axis=0)

    def size(self, size: Any) -> Ref:
        """A size as a vector of one element."""
        from weft.onnx.writers.sizes import size_ref  # which builds on this module

        return size_ref(self, size)

    def scalar_size(self, size: Any) -> Ref:
        """A size as a tensor of rank 0."""
        if not isinstance(size, Size):
            return self.constant(size, int64)
        out: Ref = self.emit("Squeeze", self.size(size), self.ints((0,)))
        return out

    # Shapes that most families need

    def reshape(self, x: Ref, shape: Sequence[Any]) -> Ref:
        """x in another shape."""
        from weft.onnx.writers.view import write_reshape

        out: Ref = write_reshape(self, x, shape=tuple(shape))
        return out._replace(shape=tuple(shape))

    def unsqueeze(self, x: Ref, *axes: int) -> Ref:
        """x with new axes of size 1."""
        out: Ref = self.emit("Unsqueeze", x, self.ints(axes))
        return out

    # Errors

    def fail(self, message: str, *, hint: str | None = None, named: bool = True) -> NoReturn:
        """Raise in the name of export, at the user's line."""
        where = None if self.node is None or self.node.location is None else self.node.location.place
        name = "" if self.node is None or not named else f"{label(self.node)}: "
        raise GraphError("onnx.export", f"{name}{message}", hint=hint, location=where)


def label(node: Node) -> str:
    """What a node is called in errors."""
    return str(node.attrs["function"]) if node.op.name == "call" else str(node.op.name)


def _at(variables: Sequence[str], i: int) -> str:
    return variables[min(i, len(variables) - 1)]


def is_float(x: Ref) -> bool:
    """Whether x has a floating dtype."""
    return kind(x.dtype) == "f"


def same_dtype(x: Ref, *others: Ref | None) -> bool:
    """Whether all that are given have the dtype of x."""
    return all(r is None or r.dtype == x.dtype for r in others)

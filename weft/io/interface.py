"""What goes into a loaded graph and comes out, by name: for programs that know a model by its file alone.

A graph is called with trees, as the function was that it was saved from. Here each tensor among the arguments
and the results has a name: its path in these trees (``x``, ``batch.0``), or that of the output in the graph.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.base.device import DeviceLike
from weft.base.dtypes import bfloat16, canonical, complex128, float64, int64, kind
from weft.base.dtypes import bool_ as bool_dtype
from weft.base.sizes import bind, size_names
from weft.base.trees import tree_flatten, tree_unflatten
from weft.errors import ArgumentError, DtypeError
from weft.io.calls import Binder
from weft.io.layout import Array
from weft.io.model import LoadedGraph, load_graph
from weft.io.saved import names_given, saved_graph
from weft.io.trees import Mark
from weft.ir.types import TensorType
from weft.tensor.tensor import Tensor, wrap

_STEP = re.compile(r"\[(?:'(.*?)'|(.*?))\]")
_NUMBERS = {"float": float64, "int": int64, "bool": bool_dtype, "complex": complex128}
_KINDS = {"b": "b", "i": "biu", "u": "biu", "f": "biuf", "c": "biufc"}  # by kind, the kinds that become it


class Port(NamedTuple):
    """An argument or a result: its name and its type, in which sizes may have names."""

    name: str
    type: TensorType


class Interface:
    """The arguments and results of a loaded graph, by name.

    Attributes:
        loaded: the graph.
        inputs: the tensors that a call takes.
        outputs: the tensors and numbers that it gives.

    >>> import os, tempfile, weft
    >>> from weft.io.interface import Interface
    >>> path = os.path.join(tempfile.mkdtemp(), "model.weft")
    >>> weft.jit.trace(lambda x, k: {"sum": x + k, "product": x * k}, weft.ones(2), weft.ones(2)).save(path)
    >>> interface = Interface(weft.load_graph(path))
    >>> [port.name for port in interface.inputs], [port.name for port in interface.outputs]
    (['x', 'k'], ['sum', 'product'])
    >>> import numpy as np
    >>> interface.run([np.ones(2, np.float32), np.full(2, 3.0, np.float32)])
    [array([4., 4.], dtype=float32), array([3., 3.], dtype=float32)]
    """

    def __init__(self, loaded: Any) -> None:
        self.loaded = loaded
        self._binder = Binder(loaded.__name__, loaded._saved)
        self._places: dict[int, int] = {}  # by number of a tensor among the arguments, its port
        self.inputs = self._find_inputs()
        plans = self._binder.plans
        self._plans = [(self._binder.types[n].dtype, plans[n]) for n in self._places]
        self.outputs, self._kept = self._find_outputs(loaded._saved)

    @property
    def sizes(self) -> list[str]:
        """The names of sizes that a call chooses, in the order of the inputs."""
        found = [sorted(size_names(port.type.shape)) for port in self.inputs]
        return list(dict.fromkeys(name for names in found for name in names))

    def _find_inputs(self) -> tuple[Port, ...]:
        ports: list[Port] = []
        given = names_given(self.loaded._saved)
        for leaf, path in zip(self._binder.leaves, self._binder.structure.paths(), strict=True):
            if isinstance(leaf, Mark) and leaf.value not in self._places:
                self._places[leaf.value] = len(ports)
                ports.append(Port(given.get(leaf.value) or _name(path), self._binder.types[leaf.value]))
        return tuple(ports)

    def _find_outputs(self, saved: Any) -> tuple[tuple[Port, ...], list[int]]:
        """The ports of what is returned, and which of its leaves they are; plain values are none."""
        leaves, structure = tree_flatten(saved.returned, is_leaf=lambda x: isinstance(x, Mark))
        kept = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Mark)]
        paths = structure.paths()
        names = [_name(paths[i], "output") for i in kept]
        outputs = saved.graph.outputs
        marks = [leaves[i] for i in kept]
        own = [str(outputs[m.value].name or "") if m.word == "output" else "" for m in marks]
        if all(own) and len(set(own)) == len(own):
            names = own
        types = [self._result_type(saved, leaves[i]) for i in kept]
        return tuple(map(Port, names, types)), kept

    def _result_type(self, saved: Any, mark: Mark) -> TensorType:
        if mark.word == "number":
            return TensorType((), _NUMBERS[mark.value[1]])
        if mark.word == "weight":
            array = saved.weights[mark.value]
            return TensorType(array.shape, array.dtype)
        if mark.word == "output":
            found: TensorType = saved.graph.outputs[mark.value].type
            return found
        return self._binder.types[mark.value]

    # Calls

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """The results of a call, in the order of ``outputs``; arrays are in that of ``inputs``."""
        args, kwargs = self._arguments(arrays)
        result = self.loaded(*args, **kwargs)
        if type(result) is Tensor:
            return [result._array("run")]
        found = tree_flatten(result)[0]
        pairs = [(found[i], port.type.dtype) for i, port in zip(self._kept, self.outputs, strict=True)]
        return [x._array("run") if isinstance(x, Tensor) else np.asarray(x, dtype) for x, dtype in pairs]

    def check(self, arrays: Sequence[Array]) -> None:
        """Raise the error that a call with these arrays would raise for their types."""
        if not self._fit(arrays):
            self._binder.tensors(*self._arguments(arrays))

    def _fit(self, arrays: Sequence[Array]) -> bool:
        """Whether arrays are plainly of the types of the inputs; if not, there is more to be asked."""
        sizes: dict[str, int] = {}
        for array, (dtype, plan) in zip(arrays, self._plans, strict=True):
            shape = array.shape
            if array.dtype is not dtype or len(shape) != len(plan):
                return False
            for wanted, size in zip(plan, shape, strict=True):
                if wanted != size and not (type(wanted) is str and sizes.setdefault(wanted, size) == size):
                    return False
        return True

    def _arguments(self, arrays: Sequence[Array]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call, by position and by name."""
        tensors = [wrap(array) for array in arrays]
        leaves = [self._argument(leaf, tensors) for leaf in self._binder.leaves]
        if self._binder.is_plain:
            return tuple(leaves), {}
        tree = tree_unflatten(self._binder.structure, leaves)
        bound = inspect.BoundArguments(self._binder.signature, tree)
        return bound.args, bound.kwargs

    def _argument(self, leaf: Any, tensors: Sequence[Any]) -> Any:
        if not isinstance(leaf, Mark):
            return leaf
        tensor = tensors[self._places[leaf.value]]
        return float(tensor._data) if leaf.word == "float_input" else tensor

    def arrays(self, given: Mapping[str, Any]) -> list[Array]:
        """Arrays by name in the order of ``inputs``, in the dtypes of the graph where that loses nothing."""
        op, names = self.loaded.__name__, [port.name for port in self.inputs]
        for name in given:
            if name not in names:
                raise ArgumentError(op, f"inputs must be among {', '.join(names) or 'none'}, got {name!r}")
        for port in self.inputs:
            if port.name not in given:
                raise ArgumentError(op, f"every input must be given, got none for {port.name}: {port.type}")
        return [_converted(op, port, given[port.name]) for port in self.inputs]


def _name(path: str, root: str = "") -> str:
    """The name of a path in a tree: ``x.0`` of ``['x'][0]``, and ``output0`` of ``[0]``."""
    steps = [text or number for text, number in _STEP.findall(path)]
    name = ".".join(steps)
    return root + name if not path.startswith("['") else name


def _converted(op: str, port: Port, given: Any) -> Array:
    """An array with the dtype of a port, from one whose numbers are of a kind that becomes it."""
    array, wanted = np.asarray(given), port.type.dtype
    if wanted == bfloat16 and array.dtype == np.dtype("V2"):  # what NumPy's files make of bfloat16
        return array.view(bfloat16)
    dtype = canonical(array.dtype)
    if dtype is None or kind(dtype) not in _KINDS[kind(wanted)]:
        raise DtypeError(op, f"{port.name} must be {port.type}, got an array of {array.dtype.name}")
    with np.errstate(all="ignore"):
        out: Array = array.astype(wanted, order="C", copy=False)
    if kind(wanted) in "iu" and not (out == array).all():
        raise DtypeError(op, f"{port.name} must hold numbers of {wanted.name}, got others")
    return out


# For programs that try a model


def random_inputs(
    interface: Interface, sizes: Mapping[str, int], generator: np.random.Generator
) -> list[Array]:
    """Random arrays for the inputs of a model: normal floats, and 0 and 1, which are in most ranges."""
    return [
        random_array(bind(port.type.shape, sizes), port.type.dtype, generator) for port in interface.inputs
    ]


def random_array(shape: tuple[int, ...], dtype: Any, generator: np.random.Generator) -> Array:
    """A random array: normal floats; of other kinds 0 and 1."""
    if kind(dtype) in "fc":
        return generator.standard_normal(shape).astype(dtype)
    return generator.integers(0, 2, shape).astype(dtype)


def open_model(path: str | os.PathLike[str], backend: Any = None, device: DeviceLike | None = None) -> Any:
    """The graph in a file of weft or, where the name ends in .onnx, of ONNX, made to run on a device."""
    if str(os.fspath(path)).endswith(".onnx"):
        from weft.onnx import load

        return LoadedGraph(saved_graph(load(path)), backend).to(device)
    return load_graph(path, backend=backend, device=device)

"""Runs the nodes of an ONNX graph by their handlers, so that they become nodes of the graph being captured.

Names of a model stand for ``Constant``s where the value is known, for tensors of the capture, for lists
(sequences) and None (an empty optional). A node whose inputs are all known is computed at once; one whose
inputs hold named sizes is followed on these; any other one runs on tensors that stand for values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.aligned import aligned
from weft.base.concrete import is_concrete
from weft.base.dtypes import DTYPES
from weft.base.frozen import freeze
from weft.capture.static.importing import Importer, placed
from weft.errors import GraphError, ShapeError, WeftError
from weft.ir.location import Location
from weft.onnx.bound_sizes import ToldSizeError, solved_name
from weft.onnx.facts import NOTHING, Array, Constant, Fact, Facts, constant_of_sizes
from weft.onnx.following import follow, follow_moves
from weft.onnx.model import array_of, dense_of, ordered, subgraphs
from weft.onnx.operators.registry import Call, Entry, UnknownValueError, find_handler
from weft.onnx.scope import Body, Functions, Scope, attributes_of
from weft.onnx.types import to_carried
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor
from weft.transform.captured import not_capturing

if TYPE_CHECKING:
    import onnx

_FEW = 64  # integers: they decide where things are, and are no weights
_MOST_NODES = 1_000_000  # a file of functions that call functions must not grow without end


class Runner:
    """Runs nodes of one model.

    Attributes:
        facts: what is known of tensors.
        block: the graph that is being made.
        functions: those that nodes may call.
        file: what the model is called in locations.
        open_sizes: the names of sizes of its inputs.
    """

    def __init__(self, block: Importer, functions: Functions, file: str) -> None:
        self.facts = Facts()
        self.block = block
        self.functions = functions
        self.file = f"<{file}>"
        self.open_sizes: set[str] = set()
        self._count = 0

    # Graphs

    def run_nodes(
        self, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], scope: Scope, where: str
    ) -> list[Any]:
        """Run nodes; gives what some names then are."""
        wanted = set(outputs).union(*[node.input for node in nodes])
        inner = any(True for node in nodes for _ in subgraphs(node))
        for number, node in ordered(nodes, scope, where):
            self._count += 1
            if self._count > _MOST_NODES:
                raise GraphError("onnx.load", f"a model must have at most {_MOST_NODES} nodes, got more")
            used = [bool(name) and (inner or name in wanted) for name in node.output]
            results = self._run_node(node, scope, used, number)
            scope.values.update((name, x) for name, x in zip(node.output, results, strict=False) if name)
        return [self._look_up(name, scope, f"{where}: output") for name in outputs]

    def initializers(self, graph: onnx.GraphProto, where: str) -> dict[str, Constant]:
        """The tensors of a file that a graph holds, by name."""
        arrays = {t.name: array_of(t, where) for t in graph.initializer}
        arrays |= {t.values.name: dense_of(t, where) for t in graph.sparse_initializer}
        return {name: self._initializer(name, array) for name, array in arrays.items()}

    def _initializer(self, name: str, array: Array) -> Constant:
        """A tensor of a file: a parameter of the graph, but for a few integers."""
        constant = self.constant(array)
        few = constant.dtype.kind in "iub" and array.size <= _FEW
        if constant.dtype in DTYPES and not few:
            constant.parameter = lambda: self.block.parameter(name, freeze(aligned(constant.array)))
        return constant

    def constant(self, array: Array) -> Constant:
        """An array as a value that is known."""
        if array.dtype == object and not any(isinstance(x, str | bytes) for x in array.reshape(-1)[:1]):
            return constant_of_sizes(array)
        carried, narrow = to_carried(array)
        return Constant(carried, carried.dtype, narrow)

    # Nodes

    def _run_node(self, node: onnx.NodeProto, scope: Scope, used: Sequence[bool], number: int) -> list[Any]:
        domain = "" if node.domain == "ai.onnx" else node.domain
        version = self._version(domain, scope, node)
        title = node.name or next(filter(None, node.output), "")
        where = f"{node.op_type} node {title!r}"
        attributes = attributes_of(
            node, scope.attributes, where, lambda graph: Body(self, graph, scope, where)
        )
        call = Call(node.op_type, domain, version, title, tuple(used), attributes, self.facts)
        inputs = [self._look_up(name, scope, where) if name else None for name in node.input]
        path = ".".join(filter(None, title.split("/")))
        with self._told(call), placed(Location(self.file, number, node.op_type, path)):
            own = self.functions.own(domain, node.op_type, node.overload)
            entry = None if own else find_handler(domain, node.op_type, version)
            if entry is None:
                return self._run_function(node, call, inputs, scope)
            return self._run_handler(entry, call, inputs)

    def _version(self, domain: str, scope: Scope, node: onnx.NodeProto) -> int:
        if domain in scope.versions:
            return scope.versions[domain]
        if self.functions.own(domain, node.op_type, node.overload):
            return 1
        told = ", ".join(repr(name) for name in scope.versions)
        raise GraphError(
            "onnx.load",
            f"{node.op_type} node {node.name!r}: operator sets must be imported by the model, got "
            f"{domain!r}, where it imports {told}",
        )

    def _look_up(self, name: str, scope: Scope, where: str) -> Any:
        if name not in scope:
            raise GraphError(
                "onnx.load", f"{where} must be an input or made by a node, got {name!r}, which is neither"
            )
        return scope[name]

    def _run_function(
        self, node: onnx.NodeProto, call: Call, inputs: Sequence[Any], scope: Scope
    ) -> list[Any]:
        """Run the nodes of the function that an operator is."""
        key = (call.domain, node.op_type, node.overload)
        if key in scope.functions:
            raise call.error(f"functions must not call themselves, got {node.op_type!r} inside itself")
        types = [self.tensor(x) for x in inputs]
        body = self.functions.find(node, call, types)
        if len(inputs) > len(body.inputs) or len(call.outputs) > len(body.outputs):
            taken = f"{len(body.inputs)} inputs and {len(body.outputs)} outputs"
            raise call.error(f"must have at most {taken}, got {len(inputs)} and {len(call.outputs)}")
        values = {**dict.fromkeys(body.inputs, None), **dict(zip(body.inputs, inputs, strict=False))}
        own = {a.name: a for a in node.attribute if not a.ref_attr_name}
        outer = {
            a.name: scope.attributes[a.ref_attr_name]
            for a in node.attribute
            if a.ref_attr_name in scope.attributes
        }
        inner = Scope(
            values,
            body.versions,
            attributes={**body.defaults, **outer, **own},
            functions=(*scope.functions, key),
        )
        outputs = [name for name, used in zip(body.outputs, call.outputs, strict=False) if used]
        given = iter(self.run_nodes(body.nodes, outputs, inner, str(call)))
        return [next(given) if used else None for used in call.outputs]

    def _run_handler(self, entry: Entry, call: Call, inputs: Sequence[Any]) -> list[Any]:
        sources = NOTHING.union(*[self._sources(x) for x in inputs])
        if any(isinstance(x, Constant) and x.holds_sizes for x in inputs):
            if all(x is None or isinstance(x, Constant) for x in inputs):
                followed = follow(call, inputs)
                followed = followed or follow_moves(call, inputs, lambda xs: self._folded(entry, call, xs))
                if followed is not None:
                    return list(followed)
        elif entry.folds and all(map(self._is_known, inputs)):
            if all(map(_folds, inputs)):
                return self._folded(entry, call, inputs)
            return self._emitted(
                entry, call, inputs, sources, later=lambda: self._folded(entry, call, inputs)
            )
        return self._emitted(entry, call, inputs, sources)

    def _folded(self, entry: Entry, call: Call, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of a node whose inputs are known, as constants."""
        with not_capturing(), np.errstate(all="ignore"):
            given = [self.tensor(self._value(x)) for x in inputs]
            return [self.kept(self._moved(entry, given, x)) for x in entry.run(call, given)]

    def _emitted(
        self, entry: Entry, call: Call, inputs: Sequence[Any], sources: frozenset[str], later: Any = None
    ) -> list[Any]:
        """The outputs of a node as values of the graph."""
        given = [self.tensor(x) for x in inputs]
        made = [self._moved(entry, given, x) for x in entry.run(call, given)]
        for i, x in enumerate(made):
            for tensor in x if isinstance(x, list) else [x]:
                self._note(tensor, sources, None if later is None or isinstance(x, list) else (later, i))
        return [self.kept(x) for x in made]

    def _note(self, tensor: Any, sources: frozenset[str], later: Any) -> None:
        """Remember what is known of a result."""
        if not isinstance(tensor, Tensor):
            return
        fact = self.facts.of(tensor)
        if fact.constant is None and fact.later is None and not fact.sources:
            compute = None if later is None else lambda: _constant_or_none(later[0]()[later[1]])
            self.facts.note(Fact(tensor, None, compute, fact.narrow, sources))

    def _moved(self, entry: Entry, given: Sequence[Any], x: Any) -> Any:
        """A result of an operator that merely moves elements: it has the narrow type of the first input."""
        if not entry.moves or not given:
            return x
        first = given[0][0] if isinstance(given[0], list) and given[0] else given[0]
        if not isinstance(first, Tensor) or (name := self.facts.of(first).narrow) is None:
            return x
        if isinstance(x, list):
            return [self.facts.as_narrow(t, name) for t in x]
        fits = isinstance(x, Tensor) and x.dtype == first.dtype
        return self.facts.as_narrow(x, name) if fits else x

    @contextmanager
    def _told(self, call: Call) -> Iterator[None]:
        """Let errors say at which node they were met."""
        try:
            yield
        except WeftError as error:
            self._told_size(error)
            if error.op == "onnx.load":
                raise
            hint = self._hint() if isinstance(error, ShapeError) else error.hint
            raise _public_class(error)(
                "onnx.load", f"{call}: {error.op}: {error.message}", hint=hint
            ) from error
        except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, MemoryError) as error:
            said = f"{type(error).__name__}: {error}"
            raise GraphError("onnx.load", f"{call}: must be well formed, got {said}") from error

    @contextmanager
    def blaming_numbers(self) -> Iterator[None]:
        """Let an import that fails say which number it left to the run, if there is one."""
        try:
            yield
        except WeftError as error:
            blamed = self.facts.left_to_run
            if blamed is None or isinstance(error, UnknownValueError):
                raise
            raise blamed from error

    def _told_size(self, error: WeftError) -> None:
        """Let an open size of an input be what a node demands of it, such as the channels of a weight."""
        clash = error.clash if isinstance(error, ShapeError) else None
        told = None if clash is None else solved_name(*clash, self.open_sizes)
        if told is not None:
            raise ToldSizeError(*told)

    def _hint(self) -> str | None:
        """Shapes of a model may fit for one value of its open sizes alone."""
        if not self.open_sizes:
            return None
        given = ", ".join(f"{name!r}: ..." for name in sorted(self.open_sizes))
        return f"the model may need a fixed size here: weft.onnx.load(..., sizes={{{given}}})"

    # Values

    def tensor(self, x: Any) -> Any:
        """What a handler gets for a value: tensors for constants, in lists too."""
        if isinstance(x, Constant):
            if x.dtype not in DTYPES:
                return x.array
            return self.facts.tensor_of(x)
        return [self.tensor(item) for item in x] if isinstance(x, list) else x

    def kept(self, x: Any) -> Any:
        """What a name stands for, given what a handler returned, or passes to a graph."""
        if isinstance(x, list):
            return [self.kept(item) for item in x]
        if isinstance(x, np.ndarray):
            return self.constant(x)
        if not isinstance(x, Tensor):
            return x
        fact = self.facts.of(x)
        if fact.constant is not None:
            return fact.constant
        if is_concrete(x._data) and thread.capture is None:
            return Constant(x._data, x.dtype, fact.narrow)
        return x

    def _is_known(self, x: Any) -> bool:
        """Whether everything is known of a value, computed already or not."""
        if isinstance(x, list):
            return all(map(self._is_known, x))
        if not isinstance(x, Tensor):
            return True
        fact = self.facts.of(x)
        return fact.constant is not None or fact.later is not None

    def _value(self, x: Any) -> Any:
        """A value of which everything is known, without tensors of a graph."""
        if isinstance(x, list):
            return [self._value(item) for item in x]
        return self.facts.of(x).value if isinstance(x, Tensor) else x

    def _sources(self, x: Any) -> frozenset[str]:
        if isinstance(x, list):
            return NOTHING.union(*[self._sources(item) for item in x])
        return self.facts.of(x).sources if isinstance(x, Tensor) else NOTHING


def _public_class(error: WeftError) -> type[WeftError]:
    """The class of an error that users know it by; those of its own modules are made of other things."""
    return next(kind for kind in type(error).__mro__ if kind.__module__ == WeftError.__module__)


def _constant_or_none(x: Any) -> Constant | None:
    return x if isinstance(x, Constant) else None


def _folds(x: Any) -> bool:
    """Whether what is computed from a known value is computed at once; it stays in the graph otherwise."""
    if isinstance(x, list):
        return all(map(_folds, x))
    return x.folds if isinstance(x, Constant) else not isinstance(x, Tensor)

"""``weft.aot``: a function and its gradient, captured ahead of time, without data, as two graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.dtypes import kind
from weft.base.frames import format_location
from weft.base.public import public
from weft.base.records import NamedTuple
from weft.base.trees import Structure, flatten_like, tree_flatten, tree_unflatten
from weft.capture.program.arguments import check_callable, leaf_names, name_of
from weft.capture.program.slots import GeneratorSlot
from weft.capture.record.record import call, enter
from weft.capture.record.root import Root
from weft.capture.static.make import type_of_example
from weft.errors import ArgumentError, CaptureError
from weft.ir.graph import Graph, Value
from weft.ir.location import Location
from weft.ir.types import TensorType
from weft.tensor.mode import enable_grad
from weft.tensor.tensor import Tensor, wrap
from weft.transform.aot import Recorder
from weft.transform.arguments import flatten_outputs, normalize_argnums, to_tensor
from weft.transform.joint import Joint, optimized, split, telling_sizes, write_gradients
from weft.transform.partition import bytes_of
from weft.transform.slots import DataSlot


class Residual(NamedTuple):
    """A value that the forward graph saves for the backward graph.

    Attributes:
        op: that made it.
        type: shape and dtype.
        bytes: that it takes; a named size counts as a typical one.
        location: of the user's line that made it, or None.
    """

    op: str
    type: TensorType
    bytes: int
    location: Location | None

    def __str__(self) -> str:
        where = "" if self.location is None else f"  at {format_location(self.location.place)}"
        return f"{self.op}: {self.type}, {self.bytes} bytes{where}"


class _Around(NamedTuple):
    """What a function uses besides its arguments; inputs of the graph in this order.

    Attributes:
        tensors: from outside.
        generators: that it draws from.
        numbers: functions that give Python numbers, each with a dtype.
    """

    tensors: tuple[Tensor, ...]
    generators: tuple[Any, ...]
    numbers: tuple[Any, ...]

    def read(self) -> list[Tensor]:
        """The inputs that they are now."""
        states = [wrap(g._state_array()) for g in self.generators]
        return [*self.tensors, *states, *[wrap(n.read()) for n in self.numbers]]


class AheadOfTime:
    """A function as a forward and a backward graph; made by ``weft.aot``. It is called as the function is.

    Attributes:
        forward: from the arguments and what the function used from around it to its results, followed by
            what the backward graph needs.
        backward: from that, the inputs it reads, and the gradients of the results to the gradients.
        joint: both as one graph.
        saved: what passes from one to the other, apart from inputs.
    """

    def __init__(
        self,
        name: str,
        joint: Joint,
        wrt: Sequence[int],
        around: _Around,
        inputs: Structure,
        outputs: Structure,
        *,
        untold_gradient: bool = False,
        untold_tangent: bool = False,
    ) -> None:
        arguments = len(inputs.paths())
        derivative = split(joint, free=range(arguments, len(joint.inputs)))
        made = derivative.forward.outputs
        self.name = name
        self.joint = joint.graph()
        self.saved = tuple(_residual(joint, v) for v in made[len(made) - derivative.saved :])
        found = telling_sizes(optimized(derivative))
        self._recorder = Recorder(found, wrt, untold_gradient=untold_gradient, untold_tangent=untold_tangent)
        self._around = around
        self._inputs = inputs
        self._outputs = outputs

    @property
    def forward(self) -> Graph:
        """The forward graph."""
        return self._recorder.derivative.forward

    @property
    def backward(self) -> Graph:
        """The backward graph."""
        return self._recorder.derivative.backward

    def __call__(self, *args: Any) -> Any:
        """What the function gives for arguments of the types it was captured with; gradients flow."""
        leaves = flatten_like(self.name, self._inputs, args, "the arguments")
        tensors = [to_tensor(self.name, x, f"argument {i}") for i, x in enumerate(leaves)]
        outs, news = self._recorder((*tensors, *self._around.read()))
        self._update(self.forward.inputs[len(tensors) :], news)
        return tree_unflatten(self._outputs, outs)

    def _update(self, inputs: Sequence[Value], news: Sequence[Tensor]) -> None:
        """Give what the function changes around it its new values."""
        updated = {v: new for (v, _), new in zip(self.forward.updates, news, strict=True)}
        count = len(self._around.tensors)
        for tensor, value in zip(self._around.tensors, inputs[:count], strict=True):
            if value in updated:
                tensor._set(updated[value])
        for generator, value in zip(self._around.generators, inputs[count:], strict=False):
            if value in updated:
                generator.set_state(updated[value])

    def __repr__(self) -> str:
        total = sum(r.bytes for r in self.saved)
        return f"<aot {self.name}: {len(self.saved)} values of {total} bytes saved>"


@public
def aot(f: Callable[..., Any], *examples: Any, argnums: int | Sequence[int] | None = None) -> AheadOfTime:
    """Capture a function and its gradient as two graphs, ahead of time: nothing is computed.

    What passes from one to the other takes the fewest bytes: the backward graph runs cheap ops again.

    Args:
        f: from trees of tensors to a tree of tensors. Tensors that it uses from around it, such as
            parameters, become inputs that are read at each call; other values of Python are fixed.
        examples: for each argument a tree of tensors or arrays, or of ``TensorType``: only types matter.
        argnums: the arguments to differentiate by. By default those whose examples require grad, or
            all that are floating if none does; tensors from around that require grad always count.

    >>> import weft
    >>> f = weft.aot(lambda x: weft.tanh(x) * 2.0, weft.TensorType((3,), weft.float32))
    >>> [str(v.type) for v in f.backward.inputs]
    ['f32[3]', 'f32[3]']
    >>> x = weft.tensor([0.0, 1.0, 2.0], requires_grad=True)
    >>> f(x).sum().backward()
    >>> x.grad
    tensor([2.0000, 0.8399, 0.1413])
    """
    check_callable("aot", f)
    chosen = None if argnums is None else normalize_argnums("aot", argnums, len(examples))
    leaves, structure = tree_flatten(tuple(examples), is_leaf=_is_type)
    types = [_type(x) for x in leaves]
    wrt = _positions(examples, leaves, types, chosen)
    names = leaf_names(f, tree_unflatten(structure, range(len(leaves))), {})
    with enter(name_of(f), staged=True, looks=False) as root, enable_grad():
        given = [root.input(t, name) for t, name in zip(types, names, strict=True)]
        for i in wrt:
            given[i].requires_grad_()
        before = [t._data for t in given]
        outs, out_structure = flatten_outputs("aot", call(f, tree_unflatten(structure, given), {}))
        if any(t._data is not data for t, data in zip(given, before, strict=True)):
            raise CaptureError(
                "aot", "the function must not change its arguments", hint="return the new value"
            )
        ending = _Ending(root, outs, [given[i] for i in wrt])
        del given, outs
    joint, around, further = ending.joint(len(types))
    positions = (*wrt, *further)
    untold = {"untold_gradient": root.untold_gradient, "untold_tangent": root.untold_tangent}
    return AheadOfTime(root.name, joint, positions, around, structure, out_structure, **untold)


class _Ending:
    """What a capture leaves, described without holding tensors: those nobody else holds die with it."""

    def __init__(self, root: Root, outs: Sequence[Tensor], variables: Sequence[Tensor]) -> None:
        self.root = root
        self.results = tuple([root.value_of(t) for t in outs])
        self.forward = len(root.nodes)
        outside = [t for e in root.externals if (t := e.reference()) is not None and t._node is not None]
        self.seeds, self.gradients, self.reached = write_gradients(root, outs, [*variables, *outside])
        self.variables = [id(t) for t in outside]
        self.changes = self._changes()

    def _changes(self) -> dict[int, Value]:
        """The new values of tensors and generators from outside, by their ids; all is put back."""
        self.root.check_hooks()
        found = {}
        for slot, content in self.root.take_changes():
            if isinstance(slot, DataSlot):
                found[id(slot.tensor)] = self.root.value_of(content)
            elif isinstance(slot, GeneratorSlot):
                found[id(slot.generator)] = self.root.value_of(content)
            else:
                raise CaptureError(
                    "aot",
                    f"the function must not change {slot.describe()}",
                    hint="return what is new; call backward on the results, not in the function",
                )
        return found

    def joint(self, count: int) -> tuple[Joint, _Around, list[int]]:
        """The joint graph, what is read at each call, and which of these inputs have gradients."""
        root = self.root
        alive = root.settle()
        sources = [*alive, *[(d, d.generator) for d in root.draws], *[(None, n) for n in root.numbers]]
        held = [x for _, x in sources]
        values = [n[1] if described is None else described.value for described, n in sources]
        ids = [id(x) for x in held]
        updates = [(v, self.changes[i]) for v, i in zip(values, ids, strict=True) if i in self.changes]
        roles = ["arg"] * count + ["state" if i in self.changes else "param" for i in ids]
        joint = Joint(
            root, self.forward, (*root.inputs[:count], *values), tuple(roles), self.results,
            tuple(updates), self.seeds, self.gradients, self.reached,
        )  # fmt: skip
        tensors = tuple(t for _, t in alive)
        around = _Around(tensors, tuple(d.generator for d in root.draws), tuple(n for n, _ in root.numbers))
        return joint, around, [count + ids.index(i) for i in self.variables]


def _is_type(x: Any) -> bool:
    return isinstance(x, TensorType)


def _type(x: Any) -> TensorType:
    found = type_of_example(x)
    if found is None:
        raise ArgumentError("aot", f"examples must be tensors, arrays or types, got {type(x).__name__}")
    return found


def _positions(
    examples: Sequence[Any], leaves: Sequence[Any], types: Sequence[TensorType], chosen: Sequence[int] | None
) -> list[int]:
    """The leaves to differentiate by."""
    floating = [i for i, t in enumerate(types) if kind(t.dtype) in "fc"]
    if chosen is None:
        asked = [i for i in floating if getattr(leaves[i], "requires_grad", False)]
        return asked or floating
    owner = [k for k, tree in enumerate(examples) for _ in tree_flatten(tree, is_leaf=_is_type)[0]]
    return [i for i in floating if owner[i] in chosen]


def _residual(joint: Joint, value: Value) -> Residual:
    node = joint.capture.made[value]
    return Residual(node.op.name, value.type, bytes_of(value), node.location)

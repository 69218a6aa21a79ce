"""The joint graph: a graph together with its gradient, written by the one engine of reverse mode.

A graph is replayed on tensors of a new capture and differentiated there, so that every op's own rule says
what its gradient is. ``differentiate`` then splits the joint graph in two: a forward graph that also gives
what the gradient needs (the *residuals*), and a backward graph that takes them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft.base.dtypes import kind
from weft.base.records import NamedTuple
from weft.base.sizes import Size
from weft.errors import DtypeError
from weft.ir.graph import Graph, Value
from weft.ir.order import sizes_defined, sizes_of, sizes_used
from weft.ops.view.primitives import broadcast_to
from weft.tensor.dispatch import captured_constant
from weft.tensor.engine import run_backward
from weft.tensor.mode import enable_grad
from weft.tensor.tensor import Tensor
from weft.transform.building import Capture, capturing
from weft.transform.capture_root import CaptureRoot
from weft.transform.partition import split_joint
from weft.transform.scopes import checkpointed_nodes, copy_graph
from weft.transform.tracing import replay


class Joint(NamedTuple):
    """A program with its gradient, while it can still be cut in two.

    Attributes:
        capture: holds the nodes, those of the forward pass first, one by one even where calls are folded.
        forward: how many nodes are of the forward pass.
        inputs: of the program.
        roles: of the inputs.
        outputs: of the program.
        updates: of the program.
        seeds: a gradient for each output of a floating or complex dtype; further inputs.
        gradients: of the inputs that were asked for; further outputs.
        reached: for each gradient whether the outputs depend on the input; where not, it is zeros.
    """

    capture: Capture
    forward: int
    inputs: tuple[Value, ...]
    roles: tuple[str, ...]
    outputs: tuple[Value, ...]
    updates: tuple[tuple[Value, Value], ...]
    seeds: tuple[Value, ...]
    gradients: tuple[Value, ...]
    reached: tuple[bool, ...]

    def program(self) -> Graph:
        """The program alone, frozen."""
        return self.capture.graph(self.inputs, self.outputs, roles=self.roles, updates=self.updates)

    def graph(self) -> Graph:
        """The joint graph, frozen."""
        return self.capture.graph(
            (*self.inputs, *self.seeds),
            (*self.outputs, *self.gradients),
            roles=(*self.roles, *["arg"] * len(self.seeds)),
            updates=self.updates,
        )


class Derivative(NamedTuple):
    """A graph split into a forward and a backward graph.

    Attributes:
        forward: from the inputs of the graph to its outputs, followed by the residuals. Inputs, roles,
            updates and the first outputs are those of the graph.
        backward: from the residuals, then the inputs of the graph listed in ``kept``, then one gradient for
            each output of the graph that has a floating or complex dtype, to one gradient for each input
            that was asked for, of its shape and dtype.
        kept: positions of the inputs of the graph that the backward graph reads as they are. They are
            no outputs of the forward graph: whoever calls it has them. (A loop passes one that does not
            change to the reverse loop once, instead of stacking it.)
        reached: for each gradient whether the outputs depend on the input at all; where not, it is zeros.
        saved: how many residuals there are: the last outputs of forward, the first inputs of backward.
    """

    forward: Graph
    backward: Graph
    kept: tuple[int, ...]
    reached: tuple[bool, ...]
    saved: int


def joint_graph(graph: Graph, wrt: Sequence[int]) -> Graph:
    """A graph that computes the outputs of a closed graph and the gradients of some of its inputs.

    Args:
        graph: closed, as every graph is.
        wrt: positions of the inputs to differentiate by; they must be floating or complex.

    Returns:
        A graph whose inputs are those of the graph and one gradient for each output of a floating or complex
        dtype, and whose outputs are those of the graph and one gradient for each of ``wrt``. The gradient
        of an input that the outputs do not depend on is zeros.

    >>> import weft
    >>> from weft.transform.tracing import trace_graph
    >>> graph, _ = trace_graph(lambda x: weft.sin(x), [weft.TensorType((2,), weft.float32)], "f", ["x"])
    >>> [node.op.name for node in joint_graph(graph, [0]).nodes]
    ['sin', 'cos', 'mul']
    """
    return capture_joint(graph, wrt).graph()


def differentiate(
    graph: Graph,
    wrt: Sequence[int],
    *,
    free: Collection[int] = (),
    recompute: bool = False,
    seeded: Collection[int] | None = None,
) -> Derivative:
    """Split a graph into a forward graph that also gives residuals, and a backward graph.

    Args:
        graph: closed, as every graph is.
        wrt: positions of the inputs to differentiate by; they must be floating or complex.
        free: positions of the inputs that cost nothing to keep, because they live on anyhow.
        recompute: save nothing but inputs; the backward graph then runs what it needs of the forward
            pass again. Effects run in the forward graph alone, so what they give is saved.
        seeded: positions of the outputs whose gradients the backward graph takes; by default of all that are
            floating or complex. The gradients of the others are zero.

    >>> import weft
    >>> from weft.transform.tracing import trace_graph
    >>> graph, _ = trace_graph(lambda x: weft.tanh(x), [weft.TensorType((2,), weft.float32)], "f", ["x"])
    >>> forward, backward, kept, reached, saved = differentiate(graph, [0])
    >>> len(forward.outputs), len(backward.inputs), kept, saved
    (2, 2, (), 1)
    """
    return split(capture_joint(graph, wrt, seeded), free, recompute=recompute)


def split(joint: Joint, free: Collection[int] = (), *, recompute: bool = False) -> Derivative:
    """Cut a joint graph in two where the fewest bytes pass from one to the other."""
    capture = joint.capture
    parts = split_joint(
        capture.nodes,
        joint.forward,
        inputs=joint.inputs,
        outputs=joint.outputs,
        seeds=joint.seeds,
        results=joint.gradients,
        constants=capture.constants,
        free={joint.inputs[i] for i in free},
        recompute=recompute,
        checkpointed=checkpointed_nodes(capture.nodes, capture.scopes, joint.forward),
    )
    outputs = (*joint.outputs, *parts.residuals)
    forward = capture.graph(
        joint.inputs, outputs, roles=joint.roles, updates=joint.updates, count=joint.forward
    )
    given = (*parts.residuals, *[joint.inputs[i] for i in parts.kept], *joint.seeds)
    backward = copy_graph(f"{capture.name}_backward", given, parts.nodes, joint.gradients, capture.constants)
    return Derivative(forward, backward, parts.kept, joint.reached, len(parts.residuals))


def optimized(derivative: Derivative) -> Derivative:
    """The derivative with both graphs optimised."""
    forward, backward = derivative.forward.optimize(), derivative.backward.optimize()
    return derivative._replace(forward=forward, backward=backward)


def telling_sizes(derivative: Derivative) -> Derivative:
    """The derivative, whose backward graph also gets inputs that tell the named sizes it asks for.

    That is for graphs that are run by themselves: in a region the graph around knows the sizes.

    >>> import weft
    >>> from weft.transform.tracing import trace_graph
    >>> from weft.base.sizes import named_size
    >>> kind = weft.TensorType((named_size("n"),), weft.float32)
    >>> graph, _ = trace_graph(lambda x: x.sum(), [kind], "f", ["x"])
    >>> telling_sizes(differentiate(graph, [0])).kept
    (0,)
    """
    backward, inputs = derivative.backward, derivative.forward.inputs
    told = set[str]().union(*map(sizes_defined, backward.nodes))
    asked = set[str]().union(
        *map(sizes_used, backward.nodes), sizes_of(v for n in backward.nodes for v in n.outputs)
    )
    missing = asked - told - _plain_names(backward.inputs)
    more = []
    for i, value in enumerate(inputs):
        if missing & _plain_names([value]):
            missing -= _plain_names([value])
            more.append(i)
    if not more:
        return derivative
    place = derivative.saved + len(derivative.kept)
    given = list(backward.inputs)
    given[place:place] = [Value(inputs[i].type, inputs[i].name) for i in more]
    roles = list(backward.roles)
    roles[place:place] = ["arg"] * len(more)
    return derivative._replace(
        backward=backward.replace(inputs=given, roles=roles), kept=(*derivative.kept, *more)
    )


def _plain_names(values: Iterable[Value]) -> set[str]:
    """The names that are sizes of axes by themselves, so that an array tells them."""
    sizes = {str(s) for v in values for s in v.type.shape if isinstance(s, Size)}
    return {name for name in sizes if name.isidentifier()}


def capture_joint(graph: Graph, wrt: Sequence[int], seeded: Collection[int] | None = None) -> Joint:
    """Replay a graph in a capture of its own, and differentiate it there."""
    with capturing(graph.name) as capture, enable_grad():
        given = [capture.input(v.type, v.name) for v in graph.inputs]
        for i in wrt:
            if kind(given[i].dtype) not in "fc":
                what = f"input {graph.inputs[i].name or i} must be floating or complex to be differentiated"
                raise DtypeError(graph.name, f"{what}, got {graph.inputs[i].type}")
            given[i].requires_grad_()
        variables = [given[i] for i in wrt]
        results = replay(graph, given)
        forward = len(capture.nodes)
        outputs = [o for k, o in enumerate(results[: len(graph.outputs)]) if seeded is None or k in seeded]
        seeds, grads, reached = write_gradients(capture, outputs, variables)
        values = [capture.value_of(t) for t in results]
        del given, variables, results, outputs
    capture.settle()
    inputs, given_count = capture.inputs[: len(graph.inputs)], len(graph.outputs)
    old = dict(zip(graph.inputs, inputs, strict=True))
    updates = [(old[a], new) for (a, _), new in zip(graph.updates, values[given_count:], strict=True)]
    return Joint(
        capture, forward, tuple(inputs), graph.roles, tuple(values[:given_count]), tuple(updates),
        seeds, grads, reached,
    )  # fmt: skip


@contextmanager
def noting_hooks(root: CaptureRoot) -> Iterator[None]:
    """While the backward pass of a program is written: if hooks run, the program alone does not tell it."""
    root.ran_hooks = False
    yield
    root.untold_gradient = root.untold_gradient or root.ran_hooks


def write_gradients(
    capture: Capture, outputs: Sequence[Tensor], variables: Sequence[Tensor]
) -> tuple[tuple[Value, ...], tuple[Value, ...], tuple[bool, ...]]:
    """Let the engine write the backward pass into the running capture, as it is on the tape.

    Args:
        capture: the one that runs.
        outputs: tensors of it, or from outside.
        variables: tensors that require grad.

    Returns:
        The values of the gradients of outputs, new inputs, one for each that is floating or complex; the
        values of the gradients of variables, zeros where outputs do not depend on one; whether they do.
    """
    seeded = [o for o in outputs if kind(o.dtype) in "fc"]
    seeds = [capture.input(capture.value_of(o).type, "grad") for o in seeded]
    roots = [(o._node, g) for o, g in zip(seeded, seeds, strict=True) if o._node is not None]
    targets = [x._node for x in variables]
    with noting_hooks(capture.root):
        found = run_backward(roots, retain_graph=False, create_graph=False, targets=targets) if roots else []
    found = found or [None] * len(variables)
    grads = [_zeros(x) if g is None else g for x, g in zip(variables, found, strict=True)]
    reached = tuple(g is not None for g in found)
    return tuple(map(capture.value_of, seeds)), tuple(map(capture.value_of, grads)), reached


def _zeros(like: Tensor) -> Any:
    return broadcast_to(captured_constant(np.zeros((), like.dtype)), shape=like.shape)

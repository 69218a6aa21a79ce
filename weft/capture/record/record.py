"""Capturing a call: run a function in a root, describe what leaves it, and write its gradient.

What comes out of a capture is described without holding tensors, so that those which only the captured code
held die, and are constants of the graph. ``weft.capture.record.ending`` then puts the program together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from weft.capture.convert.functions import convert
from weft.capture.program.arguments import Arguments, containers, leaf_names, rebuild
from weft.capture.program.described import Backward, Change, LeafOut, TreeOut, is_freed
from weft.capture.program.program import Program
from weft.capture.record.counting import lend_numbers
from weft.capture.record.ending import Ending
from weft.capture.record.leaving import Leaving, tensors_in
from weft.capture.record.root import Root, lock
from weft.capture.runtime.number import Number
from weft.capture.runtime.owners import note_arguments
from weft.capture.runtime.undefined import check_defined
from weft.errors import CaptureError
from weft.ir.graph import Value
from weft.tensor.alias import family_of, with_ancestors
from weft.tensor.autocast import not_casting
from weft.tensor.engine import run_backward
from weft.tensor.mode import thread
from weft.tensor.node import Leaf
from weft.tensor.tensor import Tensor, wrap
from weft.tensor.ways import Ways
from weft.transform.building import capturing
from weft.transform.captured import Captured
from weft.transform.control.regions import attempt, check_recording
from weft.transform.control.ways import lead_to_leaves
from weft.transform.frozen import ByValue, Restart, SetUp, Telling, check_groups, check_leaving
from weft.transform.joint import noting_hooks
from weft.transform.slots import DataSlot
from weft.transform.staging import Decide


@contextmanager
def enter(name: str, *, staged: bool, looks: bool) -> Iterator[Root]:
    """Begin a root capture.

    Args:
        name: of the graph.
        staged: whether control flow on tensors goes into the graph; else their truth is asked for.
        looks: whether the values of arguments may be looked at, which leaves guards.
    """
    with lock, capturing(name, make=Root) as root:
        assert isinstance(root, Root)
        root.stages_control = staged
        root.examples = {} if looks else None
        yield root
        for external in root.externals:  # whoever still holds the root, such as a cycle
            external.let_go()


def capture_call(
    root: Root,
    function: Callable[..., Any],
    arguments: Arguments,
    own: tuple[Any, Any] | None,
    shapes: Sequence[tuple[Any, ...]],
    *,
    gradients: bool | None = None,
) -> Program:
    """The program of a call in a root.

    Args:
        root: that begins.
        function: to call.
        arguments: of the call.
        own: the arguments as given, if no array became a tensor.
        shapes: of the tensors among them, with names for sizes that later calls may choose.
        gradients: whether the program has a backward graph; by default where gradients are recorded.
    """
    args, kwargs = rebuild(arguments) if own is None else own
    root.keeps_references = True
    root.read_function(function)
    root.containers = containers((args, kwargs))
    note_arguments(root, (*root.containers.values(), *arguments.leaves))
    for name, leaf in zip(leaf_names(function, args, kwargs), arguments.leaves, strict=True):
        if isinstance(leaf, Tensor | Number):
            root.name_outside(leaf.tensor if isinstance(leaf, Number) else leaf, name)
        root.read_function(leaf)
    for i, (tensor, shape) in enumerate(zip(arguments.tensors, shapes, strict=True)):
        root.arguments[id(tensor)] = i
        root.adopt(tensor, shape)
    root.arrays = arguments.arrays
    lend_numbers(root)
    wanted = thread.recording if gradients is None else gradients
    return record(root, function, args, kwargs, arguments.tensors, gradients=wanted)


def record(
    root: Root,
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    tensors: Sequence[Any] = (),
    *,
    gradients: bool = False,
) -> Program:
    """Run a function in a root, and make a program of what it did, with its gradients if wanted."""
    if isinstance(function, FunctionType) and convert(function) is None:
        root.unknown_hint = _NO_SOURCE
    recording = thread.recording
    result = _run(root, function, args, kwargs)
    check_recording(recording, "a captured function")
    root.check_hooks()
    leaving = Leaving(root, result, _stored(root))
    returned = leaving.tree(result, root.result_of)
    for x in containers(result).values():
        _check_keys(root, x)
    del result
    changes = _take_changes(root, leaving)
    built = leaving.built
    del leaving
    with not_casting():
        trees = [returned, *[c.new for c in changes], *[b.tree for b in built.values()]]
        leaves = _with_graphs(root, trees) if gradients else {}
        ending = Ending(root, tensors)
        ending.flows, ending.cut = _told_to_hang(root, {**leaves, **_freed(trees)} if gradients else {})
        leaves = {k: leaf for k, leaf in leaves.items() if k not in ending.cut}
        ending.apart = frozenset(leaves)
        backward = _differentiate(root, leaves)
        _check_backward(root)
        return ending.program(returned, changes, built, backward)


def _run(root: Root, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a function in a root; once more where it matters which tensors variables refer to."""
    root.by_value, root.decided = set(), {}
    while True:
        try:
            with attempt(root):
                result = call(function, args, kwargs)
                _catch_up(root, result)
                _check_defined([result, *_stored(root)])
                _check_references(root, result)
            root.decided = None  # it is over, and does not begin again
            return result
        except Restart as restart:
            root.telling = max(restart.telling, Telling(root.telling + 1))
        except ByValue as containers:
            root.by_value |= containers.found
        except Decide as found:
            root.decided = {**(root.decided or {}), **dict.fromkeys(found.locations, found.error)}
        except SetUp:
            pass
        # only here are the frames of the run gone, and with them the tensors that it made


def _check_defined(found: list[Any]) -> None:
    """Raise where something in lists, tuples and dicts is nothing that a run could give."""
    seen: dict[int, Any] = {}
    waiting: list[Any] = [found]
    while waiting:
        at = waiting.pop()
        check_defined(at)
        grows = getattr(at, "is_grown", False)  # it holds tensors alone
        if isinstance(at, list | tuple | dict) and not grows and id(at) not in seen:
            seen[id(at)] = at
            waiting += list(at.values()) if isinstance(at, dict) else list(at)


def _catch_up(root: Root, result: Any) -> None:
    """Let what leaves the capture have all changes of its elements, if some may be of one or another."""
    for tensor in _left(root, result) if root.frozen else ():
        root.value_of(tensor)


def _check_references(root: Root, result: Any) -> None:
    """Raise Restart if it is not known which tensor something is that leaves the capture."""
    if root.telling == Telling.ITEMS:
        _check_groups(root, _leaving(root, result))
    elif root.frozen and root.keeps_references:
        leaving = _leaving(root, result)
        check_leaving(root.frozen, leaving, lambda x: any(map(root.is_outside, family_of(x))))
        _check_groups(root, leaving)


def _check_groups(root: Root, leaving: Sequence[Tensor]) -> None:
    """Raise if tensors that share elements, and are no views, are seen after a call."""
    seen = {id(x) for x in leaving}
    check_groups(root.frozen, lambda x: id(x) in seen or root.is_outside(x))


def _leaving(root: Root, result: Any) -> list[Tensor]:
    """The tensors that a function returns or stores outside, and all that they are views of."""
    return [x for tensor in _left(root, result) for x in with_ancestors(tensor)]


def _left(root: Root, result: Any) -> list[Tensor]:
    return tensors_in(root, [result, *_stored(root)])


def _stored(root: Root) -> list[Any]:
    """What the places of Python outside hold now that the code changed."""
    return [slot.get() for slot, _ in root.journal.values() if not isinstance(slot, DataSlot)]


_NO_SOURCE = (
    "the source of the function cannot be read, as of one typed at the prompt before Python 3.13; "
    "put it in a file, or use weft.where, weft.cond or weft.while_loop"
)


def call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function in a capture, converted by need."""
    from weft.capture.runtime import interface as runtime

    run = getattr(runtime, "call", None)
    return function(*args, **kwargs) if run is None else run(function, *args, **kwargs)


def _check_keys(root: Root, container: Any) -> None:
    """Raise where a dict that is returned has tensors as keys."""
    if isinstance(container, dict) and any(isinstance(k, Tensor | Number) for k in container):
        message = "the keys of a dict that is returned must be plain values, got a tensor"
        raise CaptureError(
            root.name, message, hint="use strings or numbers as keys, or return a list of pairs"
        )


def _take_changes(root: Root, leaving: Leaving) -> list[Change]:
    held = {key: old for key, (_, old) in root.journal.items()}
    changes = root.take_changes()
    return [Change(slot, held[slot.key], _describe_content(leaving, slot, new)) for slot, new in changes]


def _describe_content(leaving: Leaving, slot: Any, new: Any) -> TreeOut:
    tree = leaving.tree(new, leaving.root.value_of)
    if isinstance(slot, DataSlot):  # a tensor that stands for the data alone
        return tree._replace(leaves=[leaf._replace(identity=-id(slot)) for leaf in tree.leaves])
    return tree


# The gradient of a program, written on the tape of its capture


def _with_graphs(root: Root, trees: Sequence[TreeOut]) -> dict[int, LeafOut]:
    """Everything that leaves a capture with a graph behind it, by identity."""
    found = [leaf for tree in trees for x in tree.leaves for leaf in x.tensors()]
    return {leaf.identity: leaf for leaf in found if _has_graph(root, leaf)}


def _freed(trees: Sequence[TreeOut]) -> dict[int, LeafOut]:
    """What leaves a capture with a graph that a backward pass has used up, by identity."""
    found = [leaf for tree in trees for x in tree.leaves for leaf in x.tensors()]
    return {leaf.identity: leaf for leaf in found if leaf.edge is not None and is_freed(leaf.edge)}


def _told_to_hang(root: Root, leaves: Mapping[int, LeafOut]) -> tuple[dict[int, Value], frozenset[int]]:
    """By identity of what only a run tells whether gradients flow to it, the truth of that.

    Also the identities of what none flows to in any run: so are two tensors that were swapped twice.
    """
    truths = dict(zip(leaves, lead_to_leaves([leaf.edge for leaf in leaves.values()]), strict=True))
    told = {k: root.value_of(truth) for k, truth in truths.items() if isinstance(truth, Tensor)}
    return told, frozenset(k for k, truth in truths.items() if truth is False)


def _differentiate(root: Root, leaves: Mapping[int, LeafOut]) -> Backward | None:
    """Write the gradient of what leaves a capture with a graph behind it."""
    outside = [(e, t) for e in root.externals if (t := e.reference()) is not None and t._node is not None]
    if not leaves or not outside:
        return None
    forward = len(root.nodes)
    seeds = [Value(leaf.value.type, "grad") for leaf in leaves.values() if leaf.value is not None]
    roots = [(leaf.edge, wrap(Captured(root, s))) for leaf, s in zip(leaves.values(), seeds, strict=True)]
    targets, ways = [t._node for _, t in outside], Ways()
    hooked = dict(root.hooked)
    with _without_hooks(targets), noting_hooks(root):
        grads_of = run_backward(roots, retain_graph=False, create_graph=False, targets=targets, ways=ways)
    root.hooked = hooked
    reached = ways.reach([(leaf.edge, k) for k, leaf in enumerate(leaves.values())], targets)
    grads, reach = dict[Value, Value](), []
    for (e, _), g, way in zip(outside, grads_of, reached, strict=True):
        if g is not None and way.roots():
            grads[e.value] = root.value_of(g)
            reach.append((way.sure, {k: root.value_of(truth) for k, truth in way.told.items()}))
    whole = all(sure == (1 << len(leaves)) - 1 for sure, _ in reach)
    return Backward(forward, tuple(seeds), tuple(leaves), grads, None if whole else reach) if grads else None


def _check_backward(root: Root) -> None:
    """Raise if hooks or methods of a ``weft.Function`` change something in a backward outside."""
    changed = [slot for slot, held in root.journal.values() if slot.get() is not held]
    if changed:
        raise CaptureError(
            "backward",
            "hooks and methods of a weft.Function may change nothing where a backward outside comes to them, "
            f"got a change of {changed[0].describe()}, which no run would make",
            hint="call backward() in the compiled function",
        )


def _has_graph(root: Root, leaf: LeafOut) -> bool:
    if leaf.edge is None or isinstance(leaf.edge, Leaf) or is_freed(leaf.edge):
        return False
    tensor = leaf.reference()
    return tensor is None or not root.is_outside(tensor)


@contextmanager
def _without_hooks(edges: Sequence[Any]) -> Iterator[None]:
    """Leave the hooks of leaves out: they run when a gradient reaches the leaf itself."""
    leaves = [e for e in edges if isinstance(e, Leaf)]
    hooks = [leaf.hooks for leaf in leaves]
    for leaf in leaves:
        leaf.hooks = {}
    try:
        yield
    finally:
        for leaf, own in zip(leaves, hooks, strict=True):
            leaf.hooks = own

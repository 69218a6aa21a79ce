"""The end of a capture: tensors that were lent get their data back, and a program is put together.

Here it is decided where each input comes from at later calls, what each call makes and changes, and which
guards are by identity and which by type: a slot whose tensor the captured code replaces, or somebody else has
replaced between calls, is read anew at each call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from types import NoneType
from typing import Any

from weft.capture.program.aliases import is_tensor_source, signature
from weft.capture.program.described import (
    Backward,
    BuiltOut,
    Change,
    LeafOut,
    TreeOut,
    ViewOut,
    hangs_on,
    is_behind,
    is_freed,
)
from weft.capture.program.guards import Guard, Like, StandIn, TensorGuard, same
from weft.capture.program.program import (
    Built,
    BuiltAt,
    Content,
    Item,
    Made,
    Pick,
    Plain,
    Program,
    Reach,
    Scalar,
    Tree,
    Update,
    View,
)
from weft.capture.program.slots import (
    MISSING,
    GeneratorSlot,
    KindSlot,
    PythonSlot,
    Reading,
    Within,
    grad_slot,
    hooks_slot,
)
from weft.capture.program.sources import Argument, Fixed, Gradient, InSlot, ParentOf, Source, State
from weft.capture.record.alive import check_alive
from weft.capture.record.counting import may_change
from weft.capture.record.root import Root
from weft.capture.record.trees import open_trees
from weft.errors import CaptureError
from weft.ir.graph import Graph, Value
from weft.ops.alias import parents_of
from weft.tensor.node import Leaf
from weft.tensor.tensor import Tensor
from weft.transform.joint import Joint, split, telling_sizes
from weft.transform.slots import DataSlot, GradSlot, PresenceSlot

_TENSOR = "make it a tensor, such as weft.tensor(0), which a graph can change"
_STATES = (bool, str, bytes, NoneType, Enum, list, dict, set)  # of which code has few in one place


class Ending:
    """What is put together when a capture ends."""

    def __init__(self, root: Root, arguments: Sequence[Any]) -> None:
        self.root = root
        self.arguments = tuple(arguments)
        self.stand_ins = tuple(StandIn(i) for i in range(len(arguments)))
        self.inputs: dict[Value, Source] = {}
        self.outside: dict[int, Source] = {}  # by id of a tensor from outside
        self.input_from: dict[int, Value] = {}  # the inputs, by id of a source
        self.made: dict[int, tuple[Value, str]] = {}  # by id of the tensor that stood for it
        self.numbers: dict[int, int] = {}  # likewise, its number among them
        self.views: dict[int, tuple[Any, ViewOut]] = {}  # of those, by the same id
        self.bases: Counter[int] = Counter()  # how many of what leaves are views of each tensor, by its id
        self.leaving: Counter[int] = Counter()  # how often each tensor leaves, by its id
        self.outputs: list[Value] = []
        self.renewed: dict[Value, Value] = {}  # inputs that the program changes, with their new values
        self.roots: frozenset[int] = frozenset()
        self.cut: frozenset[int] = frozenset()  # identities of what no gradient flows to after all
        self.retaining: set[int] = set()  # identities of the tensors that keep their gradients
        self.built: dict[int, tuple[int, type | None]] = {}  # by id, the number and class of what calls build
        self.slots: dict[int, PythonSlot] = {}  # by id, where the code found what is outside
        self.apart: frozenset[int] = (
            frozenset()
        )  # identities of what has a graph, maybe to leaves that are gone
        self.flows: dict[int, Value] = {}  # by identity, whether gradients flow to it, where a run tells
        self.presence: dict[int, LeafOut] = {}  # by id of a tensor, whether it has a gradient in the end

    def program(
        self,
        returned: TreeOut,
        changes: Sequence[Change],
        built: Mapping[int, BuiltOut],
        backward: Backward | None,
    ) -> Program:
        """Give everything that was lent back, and freeze the rest."""
        root = self.root
        self.roots = frozenset(() if backward is None else backward.roots)
        told = [c for c in changes if isinstance(c.slot, PresenceSlot)]
        self.presence = {id(c.slot.tensor): c.new.leaves[0] for c in told if c.new.leaves}
        changes = [c for c in changes if c not in told]
        for change in changes:
            if isinstance(change.slot, DataSlot) and id(change.slot.tensor) in root.arguments:
                root.read_leaf(change.slot.tensor)  # a leaf may refuse it
        root.kept.clear()
        alive = root.settle()
        self._rely_on_replaced(alive, changes)
        self._find_slots(changes, built)
        replaced = {c.slot.key for c in changes if _replaces(c)}
        inner = [b.tree for b in built.values()]
        trees = [returned, *[c.new for c in changes if not isinstance(c.slot, DataSlot)], *inner]
        replaced |= open_trees(root, changes, trees) | self._rebound(changes)
        self._find_sources(alive, replaced)
        self._rely_on_answers()
        found = [leaf for tree in trees for x in tree.leaves for leaf in x.tensors()]
        leaves = {leaf.identity: leaf for leaf in found if leaf.identity}
        self.leaving.update(leaf.identity for leaf in found)
        self.bases.update(b for leaf in leaves.values() if leaf.view is not None for b in leaf.bases())
        self.bases.update(set(leaves) & set(self.bases))
        self.outputs += [x.value for tree in (returned, *inner) for x in tree.leaves if x.value is not None]
        self.outputs += self.flows.values()
        self._check_new_leaves(changes, found)
        self._check_hooks(found)
        self._rely_on_hooks()
        self._check_leaves(found)
        self._note_retaining([*found, *[c.new.leaves[0] for c in changes if isinstance(c.slot, DataSlot)]])
        built = self._in_order(built)
        self.built = {identity: (number, out.kind) for number, (identity, out) in enumerate(built.items())}
        tree = self._tree(returned)
        made = tuple([Built(x.kind, self._tree(x.tree), self._picked(x)) for x in built.values()])
        updates = [u for c in changes if (u := self._update(c)) is not None]
        updates += self._gradients_of_made(changes)
        for slot, held in root.lent_numbers.values():
            root.guards.add(KindSlot(slot), type(held.item()))
        root.states.clear()  # it is part of slots, and holds what stood for the states
        check_alive(root, [leaf.plain for tree in (returned, *trees) for leaf in tree.leaves])
        return self._frozen(tree, updates, backward, alive)._replace(built=made)

    def _find_slots(self, changes: Sequence[Change], built: Mapping[int, BuiltOut]) -> None:
        """Find where containers from outside are that others may be; each call must find them there."""
        guards = self.root.guards
        self.slots = {id(g.expected): g.slot for g in guards if isinstance(g.slot, PythonSlot)}
        wanted = {id(leaf.plain) for b in built.values() for leaf in b.ways() if not leaf.built}
        held: dict[int, list[Change]] = {}
        for change in changes:
            if id(change.old) in wanted - self.slots.keys() and isinstance(change.slot, PythonSlot):
                held.setdefault(id(change.old), []).append(change)
        for identity, found in held.items():
            self.slots[identity] = found[0].slot
            for change in found if len(found) > 1 else ():  # one container, and not one in each of them
                guards.add(change.slot, change.old)

    def _picked(self, built: BuiltOut) -> tuple[Item, Content | None, Content | None] | None:
        """Which container one is that calls build, if it may be another one."""
        if built.pick is None:
            return None
        truth, *ways = built.pick
        self.outputs.append(truth)
        one, other = [None if way is None else self._container(way) for way in ways]
        return self._item(id(truth), truth, ""), one, other

    def _container(self, leaf: LeafOut) -> Content:
        """A container that is there; one from outside is found where the code found it."""
        slot = None if leaf.built else self.slots.get(id(leaf.plain))
        return self._content(leaf) if slot is None else InSlot(slot)

    def _in_order(self, built: Mapping[int, BuiltOut]) -> dict[int, BuiltOut]:
        """What calls build, each container after those that it holds."""
        order: dict[int, BuiltOut] = {}
        inside: set[int] = set()

        def visit(identity: int) -> None:
            if identity in order or built[identity].kind is not None:
                return
            if identity in inside:
                message = "a list or dict that leaves captured code must not hold itself, got one that does"
                raise CaptureError(self.root.name, message, hint="hold it by an object, in an attribute")
            inside.add(identity)
            for leaf in built[identity].leaves():
                if leaf.built:
                    visit(leaf.built)
            order[identity] = built[identity]

        for identity in built:
            visit(identity)
        return {**{k: b for k, b in built.items() if b.kind is not None}, **order}

    def _check_new_leaves(self, changes: Sequence[Change], leaving: Sequence[LeafOut]) -> None:
        """Raise if a result hangs on a tensor from outside whose gradient the call began to ask for."""
        changed = [c for c in changes if isinstance(c.slot, DataSlot)]
        edges = [(c, c.new.leaves[0].edge) for c in changed if c.old._node is None]
        new = {edge: change for change, edge in edges if isinstance(edge, Leaf)}
        for leaf in (*leaving, *[c.new.leaves[0] for c in changed]) if new else ():
            lives = leaf.identity in self.roots or not is_freed(leaf.edge)
            if lives and not isinstance(leaf.edge, Leaf) and hangs_on(leaf.edge, new):
                message = (
                    "must ask for gradients before a call whose results hang on it, got one that begins to"
                )
                hint = "call requires_grad_() before, or use weft.grad(f) inside"
                raise self._error(next(iter(new.values())), message, hint)

    def _rely_on_hooks(self) -> None:
        """Let each call find the hooks that were run on leaves from outside."""
        for leaf in self.root.hooked:
            tensor = leaf.owner()
            if tensor is not None and self.root.is_outside(tensor) and tensor._node is leaf:
                self.root.guards.add(hooks_slot(tensor), hooks_slot(tensor).get())

    def _check_hooks(self, leaving: Sequence[LeafOut]) -> None:
        """Raise if a leaf that calls are to make has hooks, which only the one of the capture would have."""
        for leaf in leaving:
            edge = leaf.edge
            if (
                isinstance(edge, Leaf)
                and leaf.identity not in self.outside
                and (edge.hooks or edge.post_hooks)
            ):
                raise CaptureError(
                    self.root.name,
                    "a leaf that captured code makes must leave it without hooks, got one with",
                    hint="register the hook on the tensor that the call gives",
                )

    def _check_leaves(self, leaving: Sequence[LeafOut]) -> None:
        """Raise if a leaf that calls are to make leaves with what was computed from it."""
        own = {
            leaf.edge for leaf in leaving if isinstance(leaf.edge, Leaf) and leaf.identity not in self.outside
        }
        if own and any(leaf.identity in self.apart and hangs_on(leaf.edge, own) for leaf in leaving):
            raise CaptureError(
                self.root.name,
                "a leaf that captured code makes must not leave it with what was computed from it, got both",
                hint="return the leaf alone, or make it outside, and pass it as an argument",
            )

    def _note_retaining(self, leaving: Sequence[LeafOut]) -> None:
        """Note what keeps its gradient; raise if part of that gradient would come by another result."""
        for leaf in leaving:
            if leaf.retains and leaf.identity in self.roots:
                self.retaining.add(leaf.identity)
                if any(is_behind(other.edge, leaf.edge) for other in leaving):
                    raise CaptureError(
                        "retain_grad",
                        "a result of a captured function that keeps its gradient must not be part of "
                        "another result, got one that is",
                        hint="let the captured function call backward(), or call retain_grad() in eager code",
                    )

    # Where inputs come from

    def _rely_on_replaced(self, alive: Sequence[tuple[Any, Any]], changes: Sequence[Change]) -> None:
        """Guard slots whose tensor is replaced on some ways only: on the others they keep what they hold.

        So are those that a way gave the very tensor which they held.
        """
        used = {id(tensor) for _, tensor in alive}
        for change in changes:
            if (
                isinstance(change.old, Tensor)
                and isinstance(change.slot, PythonSlot)
                and id(change.old) in used
            ):
                self.root.guards.add(change.slot, change.old)

    def _rebound(self, changes: Sequence[Change]) -> set[tuple[Any, ...]]:
        """The slots in which earlier calls found other tensors, unless it matters which one is there."""
        root = self.root
        owners = root.identified.union(id(owner) for owner, _ in root.grads.values())
        owners.update(id(c.slot.tensor) for c in changes if isinstance(c.slot, GradSlot))
        found = [g for g in root.guards if g.slot.key in root.rebound]
        return {guard.slot.key for guard in found if id(guard.expected) not in owners}

    def _find_sources(self, alive: Sequence[tuple[Any, Any]], replaced: set[tuple[Any, ...]]) -> None:
        root = self.root
        self.inputs |= {v: Argument(i) for i, v in enumerate(root.inputs)}
        ways = self._ways()
        for external, tensor in alive:
            self.inputs[external.value] = self.outside[id(tensor)] = self._source(tensor, ways, replaced)
        self.inputs |= {d.value: State(d.generator) for d in root.draws}
        self.inputs |= {value: source for source, value in root.numbers}
        for value, source in self.inputs.items():
            self.input_from.setdefault(id(source), value)
        freed = replaced | root.grads.keys()
        for identity, found in ways.items():
            if (
                len(found) == 1
                and found[0].key in freed
                and identity not in root.arguments
                and identity not in root.identified
            ):
                root.guards.relax(found[0].key)

    def _rely_on_answers(self) -> None:
        """Guard what was asked of tensors from outside: of those that a slot holds at each call."""
        for tensor, slot, value in self.root.asked:
            source = self.outside.get(id(tensor))
            if isinstance(source, InSlot):
                self.root.guards.add(Within(slot, source.slot), value)
            elif isinstance(source, Fixed):
                self.root.guards.add(slot, value)

    def _ways(self) -> dict[int, list[Any]]:
        """For each tensor that was read from a slot, by id, all such slots."""
        root = self.root
        for owner, held in root.grads.values():
            root.guards.add(grad_slot(owner), held)
        ways: dict[int, list[Any]] = {}
        for guard in root.guards:
            if isinstance(guard.expected, Tensor):
                ways.setdefault(id(guard.expected), []).append(guard.slot)
        return ways

    def _source(self, tensor: Any, ways: dict[int, list[Any]], replaced: set[tuple[Any, ...]]) -> Source:
        found = ways.get(id(tensor), [])
        if id(tensor) in self.root.arguments:
            return Argument(self.root.arguments[id(tensor)])
        if len(found) == 1 and found[0].key[0] == "grad":
            return Gradient(self._owner(found[0].owner))
        if len(found) == 1 and found[0].key in replaced and id(tensor) not in self.root.identified:
            return InSlot(found[0])
        view = None if found else self.root.parents.get(id(tensor))
        if view is None or not any(parent is tensor for parent in parents_of(view)):
            return Fixed(tensor)  # nobody else shows its elements any more
        return ParentOf(self._source(view, ways, replaced))

    def _owner(self, tensor: Any) -> Argument | Fixed:
        number = self.root.arguments.get(id(tensor))
        return Fixed(tensor) if number is None else Argument(number)

    # What calls make

    def _tree(self, tree: TreeOut) -> Tree:
        return Tree(tree.structure, tuple(map(self._content, tree.leaves)))

    def _content(self, leaf: LeafOut) -> Content:
        if leaf.number is not None and self.root.keeps_references:
            return self._number_or_tensor(leaf, *leaf.number)
        if leaf.built:
            return BuiltAt(self.built[leaf.built][0])
        if leaf.value is None:
            return Plain(leaf.plain, leaf.copied)
        if leaf.pick is not None and self.root.keeps_references and not self._is_alone(leaf):
            return self._pick(leaf, *leaf.pick)
        tensor = leaf.reference() if leaf.reference is not None else None
        if tensor is not None and id(tensor) in self.outside:
            return self.outside[id(tensor)]  # type: ignore[return-value]
        item = self._item(leaf.identity or id(leaf), leaf.value, self._place(leaf))
        if leaf.view is not None and leaf.identity not in self.views and self.root.keeps_references:
            self._note_view(leaf.identity, leaf.view)
        return item if leaf.kind is None else Scalar(item.number, leaf.kind)

    def _number_or_tensor(self, leaf: LeafOut, truth: Value, kind: type) -> Pick:
        """A number of Python or a tensor: which one a call tells when it has run."""
        content = self._content(leaf._replace(number=None))
        self.outputs += [v for v in (truth, leaf.value) if v is not None]
        value = self._item(leaf.identity, leaf.value, self._place(leaf))
        return Pick(self._item(id(truth), truth, ""), Scalar(value.number, kind), content, value)

    def _is_alone(self, joined: LeafOut) -> bool:
        """Whether nobody can tell which of two tensors one is: neither is seen by another way."""
        ways = joined.tensors()
        plain = all(leaf.edge is None and leaf.view is None for leaf in (joined, *ways))
        return plain and all(
            self.leaving[leaf.identity] == 1
            and not self.bases[leaf.identity]
            and not ((tensor := leaf.reference()) is not None and id(tensor) in self.outside)
            for leaf in ways
        )

    def _pick(self, joined: LeafOut, truth: Value, *leaves: LeafOut) -> Pick:
        """One of two tensors: which one a call tells when it has run."""
        one, other = map(self._content, leaves)
        made = [leaf.value for leaf, x in zip(leaves, (one, other), strict=True) if isinstance(x, Item)]
        self.outputs += [v for v in (truth, joined.value, *made) if v is not None]
        value = self._item(joined.identity, joined.value, self._place(joined))
        return Pick(self._item(id(truth), truth, ""), one, other, value)

    def _item(self, identity: int, value: Any, place: str) -> Item:
        """The tensor that calls make of a value, by an id that tells it from others."""
        self.made.setdefault(identity, (value, place))
        return Item(self.numbers.setdefault(identity, len(self.numbers)))

    def _note_view(self, identity: int, view: ViewOut) -> None:
        """Note what a tensor that calls make is a view of, if anybody can still see that."""
        base = view.base.reference()
        if view.base.pick is not None or (base is not None and id(base) in self.outside):
            parent: Any = self._content(view.base)
        elif self.bases[view.base.identity] < 2:
            return
        else:
            parent = self._content(view.base)
            self.outputs.append(view.base.value)  # type: ignore[arg-type]
        self.outputs += view.numbers
        self.views[identity] = (parent, view)

    def _place(self, leaf: LeafOut) -> str:
        if leaf.edge is None or leaf.identity in self.cut:
            return ""
        if isinstance(leaf.edge, Leaf):
            return "leaf"
        if leaf.identity in self.roots:
            return "graph"
        return "freed" if is_freed(leaf.edge) else "apart" if leaf.identity in self.apart else ""

    # What calls change

    def _update(self, change: Change) -> Update | None:
        slot = change.slot
        if isinstance(slot, DataSlot):
            return self._update_data(change)
        if isinstance(slot, GradSlot):
            return self._update_grad(change)
        owner = slot.owner if isinstance(slot, PythonSlot) else getattr(slot, "obj", None)
        if id(owner) in self.root.guards.inside:
            return None
        if id(owner) in self.root.containers:
            hint = "return the new value, or change a copy"
            raise self._error(change, "a list or dict that is an argument must not be changed", hint)
        if not isinstance(slot, GeneratorSlot) and not self._changes(change):
            return None
        if change.old is MISSING and not isinstance(slot, GeneratorSlot):
            self.root.guards.add(slot, MISSING)  # the code may have asked whether it was there
        tree = self._tree(change.new)
        self._renew(self._input_of(change), change.new.leaves)
        return Update("slot", slot, tree)

    def _update_data(self, change: Change) -> Update | None:
        tensor, (leaf,) = change.slot.tensor, change.new.leaves
        source = self.outside.get(id(tensor))
        value = self._value_of(source)
        same_place = (leaf.edge is None) == (change.old._node is None)
        if source is None or (leaf.value is value and same_place):
            return None
        if id(tensor) in self.root.arrays:
            hint = "pass a tensor, or change a copy"
            message = (
                "a NumPy array that is an argument must not be changed: captured code has it as a tensor"
            )
            raise self._error(change, message, hint)
        self._renew(value, change.new.leaves)
        return Update("data", source, self._tree(change.new), id(tensor) in self.root.replaced)

    def _update_grad(self, change: Change) -> Update | None:
        tensor = change.slot.tensor
        if not self.root.is_outside(tensor):
            return None  # see _gradients_of_made
        if change.old is not None and _is_kept(change):
            return None
        return Update("grad", self._owner(tensor), self._gradient(change))

    def _gradients_of_made(self, changes: Sequence[Change]) -> list[Update]:
        """The gradients of tensors that calls make and give away; one of a gradient may be given by that."""
        waiting = [c for c in changes if isinstance(c.slot, GradSlot)]
        waiting = [c for c in waiting if not self.root.is_outside(c.slot.tensor)]
        found: list[Update] = []
        while ready := [c for c in waiting if id(c.slot.tensor) in self.numbers]:
            waiting = [c for c in waiting if id(c.slot.tensor) not in self.numbers]
            for change in ready:
                made = Item(self.numbers[id(change.slot.tensor)])
                found.append(Update("grad", made, self._gradient(change)))
        return found

    def _gradient(self, change: Change) -> Tree:
        """What a gradient becomes."""
        truth = self.presence.get(id(change.slot.tensor))
        if truth is not None:
            return self._gradient_or_none(change.new, truth)
        self._renew(self._input_of(change), change.new.leaves)
        return self._tree(change.new)

    def _gradient_or_none(self, new: TreeOut, truth: LeafOut) -> Tree:
        """A gradient, of which a call tells whether it is there when it has run."""
        (leaf,) = new.leaves
        self.outputs += [v for v in (truth.value, leaf.value) if v is not None]
        value = self._item(leaf.identity, leaf.value, self._place(leaf))
        told = self._item(truth.identity, truth.value, "")
        return Tree(new.structure, (Pick(told, self._content(leaf), Plain(None, False), value),))

    def _input_of(self, change: Change) -> Value | None:
        """The input that a changed slot is, if the program reads it."""
        if isinstance(change.slot, GeneratorSlot):
            return next((d.value for d in self.root.draws if d.generator is change.slot.generator), None)
        return self._value_of(self.outside.get(id(change.old)))

    def _value_of(self, source: Source | None) -> Value | None:
        """The input that comes from a source."""
        return None if source is None else self.input_from.get(id(source))

    def _renew(self, value: Value | None, leaves: Sequence[LeafOut]) -> None:
        """Note the new value of an input, or an output for what is no input."""
        news = [leaf.value for leaf in leaves if leaf.value is not None]
        if value is not None and len(news) == 1 and value not in self.renewed and news[0].type == value.type:
            self.renewed[value] = news[0]
        else:
            self.outputs += news

    def _changes(self, change: Change) -> bool:
        """Whether a slot of Python holds something else now; a number that was read must not."""
        slot, (structure, leaves) = change.slot, change.new
        guard = self.root.guards.get(slot.key)
        expected = MISSING if guard is None else guard.expected
        if len(leaves) == 1 and leaves[0].value in self.root.lent_numbers:
            return bool(self.root.lent_numbers[leaves[0].value][0].key != slot.key)  # else it is as it was
        if any(leaf.value is not None for leaf in leaves) or len(structure.items) != 1:
            may_change(self.root, slot, expected, _kind_of(leaves[0]) if len(leaves) == 1 else None)
            return True
        new = leaves[0].plain if leaves else None
        if leaves and leaves[0].built:
            kind = self.built[leaves[0].built][1]
            if kind is not None and expected is not MISSING and not isinstance(expected, Tensor | Like):
                raise self._differs(change, f"a new {kind.__name__}")
            return True
        if change.old is new or (same(change.old, new) and not leaves[0].copied):
            return guard is None  # else each call finds it there
        if isinstance(new, _STATES) and isinstance(expected, _STATES):
            return True  # there are few, so each gets a version
        if may_change(self.root, slot, expected, type(new)):
            return True
        if expected is not MISSING and not isinstance(expected, Tensor | Like):
            raise self._differs(change, "nothing" if new is MISSING else repr(new))
        return True

    def _differs(self, change: Change, now: str) -> CaptureError:
        was = "nothing" if change.old is MISSING else repr(change.old)
        return self._error(change, f"must stay the same from call to call, got {was}, then {now}")

    def _error(self, change: Change, message: str, hint: str = _TENSOR) -> CaptureError:
        line = self.root.lines.get(change.slot.key)
        guard = self.root.guards.get(change.slot.key)
        slot = change.slot if guard is None else guard.slot  # which knows the name of a variable
        return CaptureError(
            self.root.name,
            f"{slot.describe()} {message}" if message.startswith("must") else message,
            hint=hint,
            location=None if line is None else line.place,
        )

    # The end

    def _frozen(
        self, tree: Tree, updates: list[Update], backward: Backward | None, alive: Sequence[tuple[Any, Any]]
    ) -> Program:
        root = self.root
        inputs = list(self.inputs)
        renewed = list(self.renewed.items())
        roles = [self._role(v) for v in inputs]
        count = None if backward is None else backward.forward
        graph = root.graph(inputs, self.outputs, roles=roles, updates=renewed, count=count)
        used = {v for n in graph.nodes for v in n.inputs}.union(graph.results, self.renewed)
        if backward is not None:
            used.update(v for n in root.nodes for v in n.inputs)
        inputs = [v for v in inputs if v in used or isinstance(self.inputs[v], Argument)]
        roles = [self._role(v) for v in inputs]
        graph = graph.replace(inputs=inputs, roles=roles)
        results = {v: i for i, v in reversed(list(enumerate(graph.results)))}
        values = {e.value: t for e, t in alive}
        return Program(
            graph=graph,
            sources=tuple(self.inputs[v] for v in inputs),
            returned=tree,
            made=tuple(
                Made(
                    results[v],
                    place,
                    self._view(i, results),
                    i in self.retaining,
                    results[self.flows[i]] if i in self.flows else None,
                )
                for i, (v, place) in self.made.items()
            ),
            updates=tuple(updates),
            guards=self._guards(),
            tensors=tuple(TensorGuard.of(values[v]) for v in inputs if isinstance(self.inputs[v], Fixed)),
            arguments=self.stand_ins,
            aliases=self._aliases(inputs, values, updates),
            untold_gradient=self.root.untold_gradient,
            untold_tangent=self.root.untold_tangent,
            **self._derivative(graph, backward),
        )

    def _view(self, identity: int, results: dict[Value, int]) -> View | None:
        if identity not in self.views:
            return None
        parent, view = self.views[identity]
        return View(parent, view.steps, tuple(results[v] for v in view.numbers))

    def _aliases(self, inputs: Sequence[Value], values: dict[Value, Any], updates: Sequence[Update]) -> Any:
        """The views that inputs are of each other, where the program changes one of them."""
        if not any(u.kind == "data" for u in updates) or (self.root.inputs and not self.arguments):
            return ()  # nothing changes, or its inputs are none that exist
        by_source = {id(self.inputs[v]): t for v, t in values.items()}

        def tensor_of(source: Any) -> Any:
            return self.arguments[source.number] if isinstance(source, Argument) else by_source[id(source)]

        tensors = [tensor_of(s) for v in inputs if is_tensor_source(s := self.inputs[v])]
        return signature(tensors, [tensor_of(u.target) for u in updates if u.kind == "data"])

    def _guards(self) -> tuple[Guard, ...]:
        """The guards, in which others stand for the tensors that were arguments, so that these may die."""
        by_id = {id(t): s for t, s in zip(self.arguments, self.stand_ins, strict=True)}
        out = []
        for slot, expected in self.root.guards:
            if isinstance(slot, Reading) and id(slot.owner) in by_id:
                slot.parts = (by_id[id(slot.owner)], *slot.parts[1:])
            out.append(Guard(slot, by_id.get(id(expected), expected)))
        return tuple(out)

    def _role(self, value: Value) -> str:
        if isinstance(self.inputs[value], Argument):
            return "arg"
        return "state" if value in self.renewed else "param"

    def _derivative(self, graph: Graph, backward: Backward | None) -> dict[str, Any]:
        if backward is None:
            return {}
        grads = {v: g for v, g in backward.targets.items() if v in self.inputs}
        reach, told = self._reach(backward)
        joint = Joint(
            capture=self.root,
            forward=backward.forward,
            inputs=graph.inputs,
            roles=graph.roles,
            outputs=graph.outputs,
            updates=graph.updates,
            seeds=backward.seeds,
            gradients=(*grads.values(), *told),
            reached=(True,) * (len(grads) + len(told)),
        )
        made = list(self.made)
        return {
            "derivative": telling_sizes(split(joint, free=range(len(graph.inputs)))),
            "wrt": tuple(graph.inputs.index(v) for v in grads),
            "reach": reach,
            "roots": tuple(made.index(identity) for identity in backward.roots),
        }

    def _reach(self, backward: Backward) -> tuple[tuple[Reach, ...], list[Value]]:
        """From which roots ways lead to inputs with gradients, and the truths that a run tells of them."""
        told: list[Value] = []
        out = []
        rows = zip(backward.targets, backward.reach or (), strict=backward.reach is not None)
        for value, (sure, truths) in rows:
            if value in self.inputs:
                first = len(told)
                told += truths.values()
                out.append(Reach(sure, tuple(zip(truths, range(first, len(told)), strict=True))))
        return tuple(out), told


def _kind_of(leaf: LeafOut) -> type | None:
    """The kind of number that a leaf is, or may be."""
    return leaf.kind if leaf.number is None else leaf.number[1]


def _replaces(change: Change) -> bool:
    """Whether a slot that held a tensor holds something else now."""
    return isinstance(change.old, Tensor) and not isinstance(change.slot, DataSlot) and not _is_kept(change)


def _is_kept(change: Change) -> bool:
    """Whether a slot holds the very tensor again that it held before."""
    leaves = change.new.leaves
    return len(leaves) == 1 and leaves[0].reference is not None and leaves[0].reference() is change.old

"""The function that runs a version, written as Python source in which everything about the version is fixed.

It gathers the arrays of the inputs, runs the graph, makes tensors of the results, and only then changes what
the program changes, so that a run that fails changes nothing. There is nothing generic in it: no loop, and no
question that is answered already.

A backend may be able to write the new value of a state over the old one, see ``weft.backends``. That is
allowed where nobody but its tensor holds the old array: a tensor that was detached from it, a view, a graph
that saved it hold it too. The result is then the same array, and nothing is left to change.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from weft.base.parts import Parts
from weft.base.sizes import is_known
from weft.base.trees import tree_unflatten
from weft.capture.program.aliases import Aliases, link_view
from weft.capture.program.donation import Rebound, held_count, is_lease, put_array, rebind, unshared
from weft.capture.program.guards import Names
from weft.capture.program.program import (
    BuiltAt,
    Item,
    Pick,
    Plain,
    Program,
    Scalar,
    Tree,
    Update,
    fill_object,
    new_object,
)
from weft.capture.program.sources import Argument, Fixed, Source, array_code, tensor_code
from weft.capture.record.root import lock
from weft.ir.types import TensorType
from weft.ops.op import type_of
from weft.tensor.alias import change, is_aliased
from weft.tensor.form import form_of
from weft.tensor.mode import running_levels
from weft.tensor.node import FREED, Leaf, Output, make_node
from weft.tensor.rules import Backward
from weft.tensor.tensor import Tensor

Arrays = Sequence[Any]
Run = Callable[[Arrays], Arrays]


def _used_up(g: Any, saved: Any, edges: Any) -> Sequence[Any]:
    return ()


_USED_UP = Backward("compiled", _used_up, ())


class Calls:
    """What a generated function needs of its version.

    Attributes:
        run: what the backend made of the graph.
        replay: runs op by op, inside a transform.
        rule: of the node that results hang by; None without gradients.
        aliases: the views among the tensors that it changes; None if it changes none.
    """

    __slots__ = ("aliases", "replay", "rule", "run")

    def __init__(
        self,
        run: Run,
        replay: Callable[[Sequence[Any]], Any],
        rule: Backward | None,
        aliases: Aliases | None = None,
    ) -> None:
        self.run = run
        self.replay = replay
        self.rule = rule
        self.aliases = aliases


def compile_run(program: Program, calls: Calls) -> Callable[[Sequence[Any]], Any]:
    """A function of the tensors among the arguments that gives what the captured function would."""
    return _Writer(program, calls).function()


class _Writer:
    """Writes the source of one function.

    In it ``a`` are the tensors among the arguments, ``x`` the arrays of the inputs, ``r`` those of the
    results, ``t0``, ``t1``, ... tensors that the call makes, and ``u0``, ``u1``, ... those that it changes.
    """

    def __init__(self, program: Program, calls: Calls) -> None:
        self.program = program
        self.results = program.graph.results
        self.calls = calls
        self.names = Names(program.arguments)
        self.names.bound |= _HELPERS
        self.lines: list[str] = []
        self.donated = self._donated()
        self.spared = self._spared()
        self.rebound: list[Rebound] = []
        self.puts: list[tuple[str, str]] = []  # lines that change data, with and without views
        self.quiet = ""  # the name of whether no views see the changes, if it was asked before them
        self.held: dict[str, str] = {}  # by expression, the name of what was there before the changes
        self.constants = {self.names(t.tensor) for t in program.tensors if not t.requires_grad}  # guarded
        self.unused = _only_values(program)
        self.direct = {n for u in program.updates if (n := self._own_item(u)) is not None}

    def function(self) -> Callable[[Sequence[Any]], Any]:
        program = self.program
        self._gather()
        targets = [self._target(k, u) for k, u in enumerate(program.updates)]
        self._run()
        self._make()
        self._build()
        returned = self._tree(program.returned)
        contents = [None if self._own_item(u) is not None else self._tree(u.content) for u in program.updates]
        for made in program.made:
            if made.view is not None:
                self._leaf(made.view.parent)
        changed = [u.target for u in program.updates if u.kind == "data"]
        if not all(isinstance(target, Fixed | Argument) for target in changed):
            self.lines.append(f"quiet = {self._quiet()}")  # of what slots hold before they change
            self.quiet = "quiet"
        for update, target, content in zip(program.updates, targets, contents, strict=True):
            self._change(update, target, content)
        self._write_puts()
        if self.donated:
            self.lines.append(f"if not alone: rebind({self.names(self.rebound)}, r, a)")
        self._link()
        self.lines.append(f"return {returned}")
        head = "def run(a):\n    with lock:\n        " if program.updates else "def run(a):\n    "
        indent = "\n        " if program.updates else "\n    "
        return self.names.define("run", f"{head}{indent.join(self.lines)}\n")  # type: ignore[no-any-return]

    # Before the run

    def _gather(self) -> None:
        gather = f"[{', '.join(array_code(s, self.names) for s in self.program.sources)}]"
        again = f"    x = {gather}"
        self.lines += [
            f"x = {gather}",
            "if running_levels and not are_arrays(x):",
            *(["    with lock:", f"    {again}"] if not self.program.updates else [again]),
            "    if not are_arrays(x):",
            f"        return {self.names(self.calls.replay)}(a)",
        ]

    def _target(self, number: int, update: Update) -> str:
        """The name of what an update changes, found before anything has changed."""
        if update.kind == "slot":
            return self.names(update.target)
        if isinstance(update.target, Item):
            return self._leaf(update.target)
        code = tensor_code(update.target, self.names)
        if isinstance(update.target, Fixed):
            return code
        self.lines.append(f"u{number} = {code}")
        return f"u{number}"

    # The run

    def _donated(self) -> dict[int, int]:
        """By number of a result that may be written over an input, the number of that input."""
        run: Any = self.calls.run
        program = self.program
        if program.derivative is not None or not hasattr(run, "donating"):
            return {}  # what a backward graph may read stays as it is
        pairs = {result: given for given, result in run.donated}
        results = set(self.results)
        kept = {i for i, v in enumerate(program.graph.inputs) if v in results}
        found = {}
        for update in program.updates:
            result = -1 if (item := self._own_item(update)) is None else self._result(item)
            given, where = pairs.get(result), update.target
            if given is None or given in kept or not isinstance(where, Fixed | Argument):
                continue
            if _is_same(program.sources[given], where):
                found[result] = given
        return found

    def _run(self) -> None:
        run: Any = self.calls.run
        if not self.donated:
            self.lines.append(f"r = {self.names(_plain_call(run))}(x)")
            return
        sources, held = self.program.sources, held_count()
        free = {
            i: f"count(x[{i}]) == {held} and ((b := x[{i}].base) is None or is_lease(b))"
            for i in self.donated.values()
        }
        given = self.names(tuple(i in free for i in range(len(sources))))
        apart = [
            f"not is_aliased({tensor_code(s, self.names)})" if i in free else "False"
            for i, s in enumerate(sources)
        ]
        self.lines.append(f"alone = {self._quiet()} and {self._alone(free)}")
        if self.spared:
            given = self._with_spared(given)
        self.lines.append(
            f"r = {self.names(run.donating)}(x, {given} if alone else unshared(x, ({', '.join(apart)},)))"
        )

    def _spared(self) -> dict[int, Any]:
        """By number of a result that is written late, the tensor whose gradient it becomes."""
        late = {*getattr(self.calls.run, "late", ())} if self.donated else set()
        found: dict[int, Any] = {}
        for update in self.program.updates:
            leaves = update.content.leaves
            if update.kind != "grad" or not isinstance(update.target, Fixed) or len(leaves) != 1:
                continue
            result = self._result(leaves[0].number) if isinstance(leaves[0], Item) else -1
            if result in late and is_known(self.results[result].type.shape):
                found.setdefault(result, update.target)
        return found

    def _with_spared(self, given: str) -> str:
        """Add old gradients to the arrays of a call, where nobody needs them; gives the flags of all."""
        spare = self.names(self.calls.run.spare_gradients(list(self.spared)))  # type: ignore[attr-defined]
        owners = ", ".join(tensor_code(target, self.names) for target in self.spared.values())
        flags = [i in self.donated.values() for i in range(len(self.program.sources))]
        more = self.names((*flags, *[True] * len(self.spared)))
        self.lines += [f"s = {spare}(({owners},)) if alone else None", "if s: x += s"]
        return f"({more} if s else {given})"

    def _alone(self, free: Mapping[int, str]) -> str:
        """The expression of whether nobody else holds the arrays that the run may write over."""
        there = getattr(self.calls.run, "sole_arrays", None)  # of a backend whose arrays are on a device
        return " and ".join(free.values()) if there is None else f"{self.names(there(list(free)))}(x)"

    def _quiet(self) -> str:
        """The expression of whether nothing that the call changes is a view, or has one."""
        assert self.calls.aliases is not None, "it is there where data change"
        return self.calls.aliases.quiet_code(self.names)

    def _result(self, item: int) -> int:
        """The position of a made tensor among the results of the graph that runs."""
        return self._placed(self.program.made[item].result)

    def _placed(self, number: int) -> int:
        """The position of a result of the program's graph among those of the graph that runs."""
        program = self.program
        between = program.derivative.saved if program.derivative is not None else 0
        return number if number < len(program.graph.outputs) else number + between

    # Tensors of the results

    def _make(self) -> None:
        program = self.program
        hung = set(program.roots) if self.calls.rule is not None else set()
        if hung:
            self._hang()
        for k, made in enumerate(program.made):
            if k in self.direct or k in self.unused:
                continue
            edge = self._edge(k) if k in hung else self._place(k)
            self.lines += [
                f"t{k} = new(Tensor); t{k}._data = r[{self._result(k)}]; t{k}._node = {edge}",
                f"t{k}._form = {self._form(made.result)}",
            ]
            if made.place == "leaf":
                self.lines.append(f"t{k}._node = Leaf(t{k})")
            if made.retains and k in hung:
                self.lines.append(f"if t{k}._node is not None: t{k}.retain_grad()")

    def _place(self, item: int) -> str:
        place = self.program.made[item].place
        if place == "apart":
            return self._if_flows(item, "make_node(USED_UP, (), ())")
        return self._if_flows(item, "make_node(USED_UP, (), FREED)") if place == "freed" else "None"

    def _edge(self, item: int) -> str:
        roots = self.program.roots
        return self._if_flows(item, "node" if len(roots) == 1 else f"Output(node, {roots.index(item)})")

    def _if_flows(self, item: int, edge: str) -> str:
        flows = self.program.made[item].flows
        return edge if flows is None else f"({edge} if r[{self._placed(flows)}] else None)"

    def _hang(self) -> None:
        """The node that the tensors which gradients flow to hang by."""
        program = self.program
        first = len(program.graph.outputs)
        types = [self.results[program.made[i].result].type for i in program.roots]
        if all(is_known(t.shape) for t in types):
            described = self.names(tuple(types))
        else:
            described = f"({', '.join(f'type_of(r[{self._result(i)}])' for i in program.roots)},)"
        edges = "".join(f"{tensor_code(program.sources[i], self.names)}._node, " for i in program.wrt)
        residuals = f"r[{first}:{first + program.derivative.saved}]"
        self.lines.append(
            f"node = make_node({self.names(self.calls.rule)}, ({edges}), (*x, {residuals}, {described}))"
        )

    def _form(self, result: int) -> str:
        """The name of the form that an array of a result has; None if it has none, or is not known yet."""
        form = self._found_form(result)
        return "None" if form is None else self.names(form)

    def _found_form(self, result: int) -> Any:
        kind = self.results[result].type
        elsewhere = getattr(self.calls.run, "form_of", None)  # of a backend whose arrays are on a device
        return _form_of(kind) if elsewhere is None else elsewhere(kind)

    def _link(self) -> None:
        """Make views of those results that are views of what lives on."""
        for k, made in enumerate(self.program.made):
            if made.view is not None and k not in self.direct:
                parent, steps, numbers = made.view
                found = ", ".join(f"r[{self._placed(n)}]" for n in numbers)
                self.lines.append(f"link_view(t{k}, {self._leaf(parent)}, {self.names(steps)}, [{found}])")

    # What the call gives and changes

    def _build(self) -> None:
        """Containers and objects that the call builds: objects first, which are filled when all are there."""
        fills = []
        for k, (kind, content, pick) in enumerate(self.program.built):
            if kind is None:
                self.lines.append(f"b{k} = {self._container(content, pick)}")
            else:
                self.lines.append(f"b{k} = new_object({self.names(kind)})")
                fills.append((k, content))
        for k, content in fills:
            self.lines.append(f"fill_object(b{k}, *{self._tree(content)})")

    def _container(self, content: Tree, pick: Any) -> str:
        """A container that the call builds, or another one that it is."""
        new = self._tree(content)
        if pick is None:
            return new
        one, other = [new if way is None else self._leaf(way) for way in pick[1:]]
        return f"{one} if t{pick[0].number}._data else {other}"

    def _tree(self, tree: Tree) -> str:
        leaves = [self._leaf(leaf) for leaf in tree.leaves]
        if tree.structure.items == (None,):
            return leaves[0]
        return f"tree_unflatten({self.names(tree.structure)}, [{', '.join(leaves)}])"

    def _leaf(self, leaf: Any) -> str:
        if isinstance(leaf, Item):
            return f"t{leaf.number}"
        if isinstance(leaf, BuiltAt):
            return f"b{leaf.number}"
        if isinstance(leaf, Pick):
            one, other = self._leaf(leaf.one), self._leaf(leaf.other)
            return f"({one} if t{leaf.truth.number}._data else {other})"
        if isinstance(leaf, Plain):
            return f"{self.names(leaf.value)}.copy()" if leaf.copied else self.names(leaf.value)
        if isinstance(leaf, Scalar):
            return f"{self.names(leaf.kind)}(t{leaf.result}._data)"
        code = tensor_code(leaf, self.names)
        if isinstance(leaf, Fixed | Argument):
            return code
        if code not in self.held:  # what a slot holds before the call changes it
            self.held[code] = f"h{len(self.held)}"
            self.lines.append(f"{self.held[code]} = {code}")
        return self.held[code]

    def _own_item(self, update: Update) -> int | None:
        """The number of the tensor that stands for the new data of a tensor, and for nothing else."""
        leaves = update.content.leaves
        if update.kind != "data" or len(leaves) != 1 or not isinstance(leaves[0], Item):
            return None
        return leaves[0].number

    def _change(self, update: Update, target: str, content: str | None) -> None:
        """Write what an update does."""
        if update.kind != "data" or content is not None:
            self._write_puts()  # in the order of the updates
        if update.kind == "grad":
            self.lines.append(f"{target}._grad = {content}")
        elif update.kind == "slot":
            self.lines.append(f"{target}.apply({content})")
        elif content is not None:
            self.lines.append(f"put_data({target}, {content})")
        else:
            self._put_item(update, update.content.leaves[0].number, target)  # type: ignore[union-attr]

    def _put_item(self, update: Update, item: int, target: str) -> None:
        made, result = self.program.made[item], self._result(item)
        graph = made.place == "graph" and self.calls.rule is not None
        if not made.place and target in self.constants:
            pass
        elif made.place == "leaf":
            self._put(f"if type({target}._node) is not Leaf: {target}._node = Leaf({target})")
        else:
            self._put(f"{target}._node = {self._edge(item) if graph else self._place(item)}")
        if result in self.donated and isinstance(update.target, Fixed | Argument):
            form = self._found_form(made.result)
            self.rebound.append(Rebound(update.target, result, form))
        else:
            form = self._form(made.result)
            self._put(
                f"{target}._data = r[{result}]; {target}._form = {form}",
                f"put_array({target}, r[{result}], {form}{', recorded=True' * graph})",
            )

    def _put(self, quiet: str, loud: str | None = None) -> None:
        """Note a line that changes data, and how it reads where views may have to see the change."""
        self.puts.append((quiet, quiet if loud is None else loud))

    def _write_puts(self) -> None:
        """Write the changes of data that were noted: views are looked for once for all of them."""
        if any(quiet != loud for quiet, loud in self.puts):
            self.lines += [f"if {self.quiet or self._quiet()}:", *[f"    {quiet}" for quiet, _ in self.puts]]
            self.lines += ["else:", *[f"    {loud}" for _, loud in self.puts]]
        else:
            self.lines += [quiet for quiet, _ in self.puts]
        self.puts.clear()


def _is_same(a: Source, b: Source) -> bool:
    """Whether two sources are one argument, or one tensor, which is not compared by its elements."""
    if isinstance(a, Fixed) and isinstance(b, Fixed):
        return a.held is b.held
    return isinstance(a, Argument) and isinstance(b, Argument) and a.number == b.number


def _only_values(program: Program) -> set[int]:
    """The numbers of tensors that no call has to make: values of what is one of two that exist."""
    picks: list[Pick] = []
    used: set[int] = set()
    views = [made.view.parent for made in program.made if made.view is not None]
    waiting = [*views, *[x for tree in program.trees for x in tree.leaves]]
    waiting += [built.pick[0] for built in program.built if built.pick is not None]
    while waiting:
        leaf = waiting.pop()
        if isinstance(leaf, Pick):
            picks.append(leaf)
            waiting += [leaf.truth, leaf.one, leaf.other]
        elif isinstance(leaf, Item | Scalar):
            used.add(leaf.number if isinstance(leaf, Item) else leaf.result)
    return {pick.value.number for pick in picks} - used


@functools.lru_cache(4096)
def _form_of(kind: TensorType) -> Any:
    if not is_known(kind.shape):
        return None
    return form_of(np.broadcast_to(np.empty((), kind.dtype), kind.shape))


def _plain_call(run: Any) -> Any:
    """What calls a backend's object without looking up how."""
    return run if isinstance(run, FunctionType) else run.__call__


def are_arrays(arrays: Arrays) -> bool:
    """Whether all inputs are elements; those of a tensor that a capture has borrowed are not."""
    return all(type(a) is np.ndarray or type(a) is Parts for a in arrays)


def put_data(target: Any, content: Any) -> None:
    """Let a tensor hold what another one holds."""
    if content._node is not None and not isinstance(content._node, Leaf) and is_aliased(target):
        change(target, content, history=True)
        return
    if not isinstance(content._node, Leaf):
        target._node = content._node
    elif not isinstance(target._node, Leaf):
        target._node = Leaf(target)
    target._set(content)


_HELPERS: dict[str, Any] = {
    "FREED": FREED,
    "Leaf": Leaf,
    "Output": Output,
    "Tensor": Tensor,
    "USED_UP": _USED_UP,
    "are_arrays": are_arrays,
    "count": sys.getrefcount,
    "fill_object": fill_object,
    "is_aliased": is_aliased,
    "is_lease": is_lease,
    "link_view": link_view,
    "lock": lock,
    "make_node": make_node,
    "new": object.__new__,
    "new_object": new_object,
    "put_array": put_array,
    "put_data": put_data,
    "rebind": rebind,
    "running_levels": running_levels,
    "tree_unflatten": tree_unflatten,
    "type_of": type_of,
    "unshared": unshared,
}

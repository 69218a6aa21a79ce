"""The layout of a compiled step: how each of its inputs and results is cut over the ranks of a mesh.

Tensors that are placed come and go as they are; with ``zero`` the state of optimizers, the gradients and the
parameters are cut over the ranks of the batch, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.base.parts import STRIPES, Cut, Parts, home_of, plain_axes, with_home, without_home
from weft.base.ranks import Mesh
from weft.base.records import NamedTuple
from weft.capture.call.replaying import input_tensors
from weft.capture.program.program import Item, Program
from weft.capture.program.sources import Fixed, Gradient
from weft.errors import DomainError, ParallelError
from weft.ir.graph import Graph
from weft.parallel.cuts import whole_cut
from weft.tensor.node import Leaf

BATCH = "data"  # the axis along which results do not depend on the number of ranks


class Layout(NamedTuple):
    """How the inputs and outputs of a program are cut.

    Attributes:
        inputs: a cut for each.
        outputs: likewise; what overwrites an input is cut as that.
        gradients: by number of a result that is the gradient of an input, the number of that.
    """

    inputs: tuple[Cut, ...]
    outputs: tuple[Cut, ...]
    gradients: Mapping[int, int] = {}

    def results(self, graph: Graph) -> tuple[Cut, ...]:
        """The cut of each result of a graph with these inputs and outputs."""
        places = {v: i for i, v in enumerate(graph.inputs)}
        return (*self.outputs, *[self.inputs[places[old]] for old, _ in graph.updates])

    def without_batch(self) -> Layout:
        """The same, whole along the axis of the batch."""
        return self._changed(beside_batch)

    def without_homes(self) -> Layout:
        """The same, of tensors that all ranks of a pipeline hold."""
        return self._changed(without_home)

    def _changed(self, change: Callable[[Cut], Cut]) -> Layout:
        inputs, outputs = (tuple(map(change, cuts)) for cuts in (self.inputs, self.outputs))
        return self._replace(inputs=inputs, outputs=outputs)

    @property
    def is_whole(self) -> bool:
        """Whether nothing is cut."""
        return not any(map(any, (*self.inputs, *self.outputs)))


def whole_layout(graph: Graph) -> Layout:
    """Everything is whole on every rank."""
    inputs, outputs = (tuple([whole_cut(v.type) for v in vs]) for vs in (graph.inputs, graph.outputs))
    return Layout(inputs, outputs)


def layout_of(
    program: Program, tensors: Sequence[Any], mesh: Mesh, zero: int, placed_on: Mesh | None = None
) -> Layout:
    """The layout of a program, for tensors as they are now.

    Args:
        program: of whole tensors.
        tensors: the tensors among the arguments.
        mesh: of the ranks there are.
        zero: 1 to cut the state of optimizers over the ranks of the batch, 2 the gradients, 3 the parameters.
        placed_on: the mesh that tensors are placed on, where the layout is for another with the same axes.
    """
    return _Layouts(program, tensors, mesh, zero, placed_on or mesh).found()


class _Layouts:
    def __init__(
        self, program: Program, tensors: Sequence[Any], mesh: Mesh, zero: int, placed_on: Mesh
    ) -> None:
        self.program, self.mesh, self.placed_on = program, mesh, placed_on
        self.zero = zero if mesh.sizes.get(BATCH, 1) > 1 else 0
        self.datas = [t._data for t in input_tensors(program, tensors)]
        pairs = [(i, s) for i, s in enumerate(program.sources) if isinstance(s, Fixed)]
        self.params = {i: s.held for i, s in pairs if type(s.held._node) is Leaf}
        self.shapes = {p.shape for p in self.params.values()}
        self.by_tensor = {id(p): i for i, p in self.params.items()}

    def found(self) -> Layout:
        graph = self.program.graph
        inputs = tuple([self._input(i) for i in range(len(graph.inputs))])
        outputs = [whole_cut(v.type) for v in graph.outputs]
        for number, owner in self._gradients():
            if number < len(outputs):
                outputs[number] = self._gradient(owner)
        return Layout(inputs, tuple(outputs), dict(self._gradients()))

    def _input(self, i: int) -> Cut:
        data, source = self.datas[i], self.program.sources[i]
        cut = self._placed(data)
        if i in self.params:
            return self._more(cut, data.shape) if self.zero >= 3 else cut
        if isinstance(source, Gradient):
            owner = source.owner
            at = self.by_tensor.get(id(owner.held)) if isinstance(owner, Fixed) else None
            home = home_of(cut)
            found = cut if at is None else self._gradient(at)
            return found if home is None else with_home(found, *home)
        is_state = self.program.graph.roles[i] == "state" and isinstance(source, Fixed)
        if self.zero and is_state and data.shape in self.shapes:
            return self._more(cut, data.shape)
        return cut

    def _gradient(self, param: int) -> Cut:
        """Gradients are cut as their parameters are, from the second stage on over the batch, too."""
        data = self.datas[param]
        cut = self._placed(data)
        return self._more(cut, data.shape) if self.zero >= 2 else cut

    def _gradients(self) -> list[tuple[int, int]]:
        """The numbers of results that become gradients of parameters, with those parameters."""
        found = []
        for update in self.program.updates:
            leaves = update.content.leaves
            if update.kind != "grad" or len(leaves) != 1 or not isinstance(leaves[0], Item):
                continue
            owner = update.target
            at = self.by_tensor.get(id(owner.held)) if isinstance(owner, Fixed) else None
            if at is not None:
                found.append((self.program.made[leaves[0].number].result, at))
        return found

    def _placed(self, data: Any) -> Cut:
        if not isinstance(data, Parts):
            return ("",) * len(data.shape)
        if data.mesh != self.placed_on.text:
            got = f"{data} on mesh({data.mesh})"
            message = f"placed tensors must be on the mesh of the step, {self.mesh!r}, got {got}"
            raise ParallelError("compile", message, hint="par.place it there")
        for axes in data.cut:
            if STRIPES in axes and BATCH in set(plain_axes(axes).split(",")) - set(axes.split(",")):
                message = f"stripes must be over another axis than {BATCH!r}, got {data}"
                raise ParallelError("compile", message)
            if BATCH in axes.split(",")[:-1]:
                message = f"{BATCH!r} must be the last axis of a dimension, got {data}"
                raise ParallelError("compile", message, hint=f"P(..., ('model', {BATCH!r}))")
        return data.cut

    def _more(self, cut: Cut, shape: tuple[int, ...]) -> Cut:
        return cut_more(cut, shape, self.mesh)


def cut_more(cut: Cut, shape: tuple[int, ...], mesh: Mesh) -> Cut:
    """A cut that is over the ranks of the batch, too: along the largest dimension that they divide.

    Where they divide none, along the one that takes the least padding.

    >>> from weft import parallel as par
    >>> from weft.parallel.layout import cut_more
    >>> cut_more(("", ""), (6, 8), par.Mesh("data=4"))
    ('', 'data')
    >>> cut_more(("model", ""), (8, 3), par.Mesh("data=2,model=2"))
    ('model,data', '')
    """
    if not shape or any(BATCH in axes.split(",") for axes in cut):
        return cut

    def cost(dim: int) -> tuple[float, int, int]:
        count = mesh.sizes[BATCH]
        for name in filter(None, plain_axes(without_home(cut)[dim]).split(",")):
            count *= mesh.sizes[name]
        size = shape[dim]
        padded = -(-size // count) * count
        return padded / max(size, 1), bool(cut[dim]), -size

    best = min(range(len(shape)), key=cost)
    more = f"{cut[best]},{BATCH}".lstrip(",")
    return tuple([more if d == best else axes for d, axes in enumerate(cut)])


def along_batch(cut: Cut) -> Cut:
    """What is left of a cut by the axis of the batch alone."""
    return tuple([BATCH if BATCH in axes.split(",") else "" for axes in cut])


def beside_batch(cut: Cut) -> Cut:
    """A cut without the axis of the batch."""
    return tuple([",".join(a for a in axes.split(",") if a != BATCH) for axes in cut])


def check_zero(zero: object, mesh: Mesh) -> int:
    """The stage of ZeRO that was asked for."""
    if isinstance(zero, bool) or not isinstance(zero, int) or not 0 <= zero <= 3:
        raise DomainError("compile", f"zero must be 0, 1, 2 or 3, got {zero!r}")
    if zero and BATCH not in mesh.sizes:
        raise DomainError("compile", f"zero needs a mesh with the axis {BATCH!r}, got {mesh!r}")
    return zero

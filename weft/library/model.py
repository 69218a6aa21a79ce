"""From a saved graph to what a library is made of: names that C can write for all that goes in and out."""

from __future__ import annotations

import re
from typing import Any

from weft.backends.library import Generator, Model, Tensor, Weight
from weft.base.sizes import size_names
from weft.base.trees import tree_flatten
from weft.errors import ArgumentError, DomainError
from weft.io.saved import Saved
from weft.io.trees import Mark
from weft.ir.graph import Graph, Value
from weft.passes.dce import dce

# Words that C and C++ keep for themselves.
_WORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept const
const_cast constexpr continue decltype default delete do double dynamic_cast else enum explicit export
extern false final float for friend goto if import inline int long main module mutable namespace new
noexcept not not_eq nullptr operator or or_eq override private protected public register reinterpret_cast
requires restrict return short signed sizeof static static_assert static_cast struct switch template this
thread_local throw true try typedef typeid typename typeof union unsigned using virtual void volatile
wchar_t while xor xor_eq
"""

_SYSTEM = ("c", "m", "dl", "pthread", "rt", "util")  # libraries that are there already


def model_of(saved: Saved, name: str | None = None) -> Model:
    """What a library of a graph is made of."""
    graph, labels = _with_outputs(saved)
    own = _library_name(graph.name if name is None else name, given=name is not None)
    place = {v: i for i, v in enumerate(graph.inputs)}
    updates = {place[old]: len(graph.outputs) + k for k, (old, _) in enumerate(graph.updates)}
    inputs: dict[int, tuple[str, int]] = {}
    weights: list[Weight] = []
    generators: list[Generator] = []
    names = _argument_names(saved)
    symbols, weight_symbols = _Symbols(), _Symbols()
    for i, (mark, value) in enumerate(zip(saved.sources, graph.inputs, strict=True)):
        if mark.word == "input":
            inputs[mark.value] = names[mark.value], i
        elif mark.word == "weight":
            array = saved.weights[mark.value]
            symbol = weight_symbols(mark.value)
            weights.append(Weight(mark.value, symbol, value.type, i, array, updates.get(i)))
        else:
            state = None if mark.value == "global" else (mark.value[0], mark.value[1])
            generators.append(Generator(i, updates.get(i), state))
    ordered = [inputs[i] for i in sorted(inputs)]
    open_sizes = [size for _, i in ordered for size in graph.inputs[i].type.shape]
    sizes = list(dict.fromkeys(name for size in open_sizes for name in sorted(size_names([size]))))
    for size in sizes:
        symbols.take(c_name(size))
    given = tuple(Tensor(label, symbols(label), graph.inputs[i].type, i) for label, i in ordered)
    changed = [(f"{label}.new", updates[i]) for label, i in ordered if i in updates]
    results = [*zip(labels, range(len(labels)), strict=True), *changed]
    taken = tuple(Tensor(label, symbols(label), graph.results[i].type, i) for label, i in results)
    return Model(own, graph, given, taken, tuple(weights), tuple(generators), tuple(sizes))


# Names


class _Symbols:
    """Gives names that C can write, each once."""

    def __init__(self) -> None:
        self._taken = {"model"}  # as the parameter before all others is called

    def take(self, name: str) -> None:
        self._taken.add(name)

    def __call__(self, name: str) -> str:
        plain = c_name(name)
        own, number = plain, 1
        while own in self._taken:
            number += 1
            own = f"{plain}_{number}"
        self._taken.add(own)
        return own


def c_name(name: str) -> str:
    """A name that C can write.

    >>> from weft.library.model import c_name
    >>> c_name("layers.0.weight"), c_name("0"), c_name("float"), c_name("<lambda>")
    ('layers_0_weight', 'x0', 'float_', 'lambda')
    """
    plain = re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_") or "x"
    plain = f"x{plain}" if plain[0].isdigit() else plain
    return f"{plain}_" if plain in _WORDS.split() else plain


def _library_name(name: str, *, given: bool) -> str:
    plain = c_name(name)
    plain = f"{plain}_" if plain in _SYSTEM else plain
    if given and plain != name:
        raise DomainError(
            "export_library",
            f"name must be one that C and its linker take, got {name!r}",
            hint=f"use {plain!r}",
        )
    return plain


def _argument_names(saved: Saved) -> dict[int, str]:
    """By number of an argument, what it is called."""
    leaves, structure = tree_flatten(saved.arguments, is_leaf=lambda x: isinstance(x, Mark))
    labels = [_label(path) for path in structure.paths()]
    found: dict[int, str] = {}
    for leaf, label in zip(leaves, labels, strict=True):
        if isinstance(leaf, Mark):
            found.setdefault(leaf.value, label)
    return found


def _label(path: str) -> str:
    """``x.0`` for the path ``['x'][0]``."""
    return ".".join(re.findall(r"[^\[\]'\".]+", path))


# Outputs


def _with_outputs(saved: Saved) -> tuple[Graph, list[str]]:
    """The graph with all that is returned as its outputs, each once, and what each is called."""
    leaves, structure = tree_flatten(saved.returned, is_leaf=lambda x: isinstance(x, Mark))
    found: dict[Value, str] = {}
    labels = structure.paths() if len(leaves) != 1 else [""]
    for leaf, path in zip(leaves, labels, strict=True):
        if isinstance(leaf, Mark):
            label = _label(path) or "out"
            label = f"out{label}" if label[0].isdigit() else label
            found.setdefault(_returned_value(leaf, saved), label)
    if not found and not saved.graph.updates:
        raise ArgumentError(
            "export_library", f"there must be a tensor to give, got none from {saved.graph.name}"
        )
    updates = tuple((old, new) for old, new in saved.graph.updates if old is not new)
    return dce(saved.graph.replace(outputs=tuple(found), updates=updates)), list(found.values())


def _returned_value(mark: Mark, saved: Saved) -> Value:
    graph = saved.graph
    if mark.word == "output":
        found: Value = graph.outputs[mark.value]
        return found
    if mark.word == "number":
        found = graph.outputs[mark.value[0]]
        return found
    for source, value in zip(saved.sources, graph.inputs, strict=True):
        if source == mark:
            return dict(graph.updates).get(value, value)
    message = f"what is returned must be computed, got the tensor {mark.value!r} as it is"
    raise ArgumentError("export_library", message, hint="read it from the weights, and do not return it")


def described(model: Model) -> dict[str, Any]:
    """The signature of a library, for JSON."""
    return {
        "name": model.name,
        "sizes": list(model.sizes),
        "inputs": [_described(t) for t in model.inputs],
        "outputs": [_described(t) for t in model.outputs],
        "weights": [{**_described(w), "changes": w.update is not None} for w in model.weights],
        "random": bool(model.generators),
    }


def _described(tensor: Tensor) -> dict[str, Any]:
    shape, dtype = [s if isinstance(s, int) else str(s) for s in tensor.type.shape], tensor.type.dtype.name
    return {"name": tensor.name, "symbol": tensor.symbol, "dtype": dtype, "shape": shape}

"""The usual placement of transformers: which products are cut by columns, which by rows, what by vocabulary.

Megatron's scheme (Shoeybi and others, "Megatron-LM: training multi-billion parameter language models using
model parallelism", 2019): what goes into heads, and the first product of a network, is cut by its outputs, so
that each rank has some heads and some units; what comes after is cut by its inputs, and summed. Over an axis
of stages, each has some of the blocks that come one after another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from weft.base.public import public
from weft.base.ranks import Mesh, axis_size, mesh_axes
from weft.errors import ArgumentError
from weft.parallel.cuts import divides
from weft.parallel.mesh import P
from weft.parallel.placing import heads_of, mesh_text_of
from weft.parallel.stage import PIPE
from weft.parallel.stages import grouped

_COLUMNS = {
    "query", "key", "value", "q", "k", "v", "q_proj", "k_proj", "v_proj", "wq", "wk", "wv",
    "fc1", "linear1", "w1", "w3", "up", "gate", "up_proj", "gate_proj", "c_fc",
}  # fmt: skip
_FUSED = {"qkv", "qkv_proj", "in_proj", "wqkv", "Wqkv", "c_attn"}  # queries, keys and values by one product
_OF_HEADS = {"query", "key", "value", "q", "k", "v", "q_proj", "k_proj", "v_proj", "wq", "wk", "wv", *_FUSED}
_ROWS = {"out", "o", "o_proj", "out_proj", "wo", "fc2", "linear2", "w2", "down", "down_proj"}
_PLACES = ("place", "position", "pos", "wpe")  # tables of places are read by slices
_WHY = {
    "column": "a product by columns",
    "fused": "queries, keys and values by heads",
    "row": "a product by rows, summed over ranks",
    "rows": "a table by the vocabulary",
}


class Placement(dict[str, P]):
    """Patterns of names with how tensors are cut, for ``par.place``; prints as a table, with what is whole.

    Attributes:
        notes: by pattern, what it is.
        whole: patterns of what is left whole.
        uneven: patterns of those whose heads the ranks do not divide, with what is so.
        stages: names of the modules that each stage of a pipeline but the first begins with.
        sequence: by name of a module whose input is noted, the axis that its positions are cut over; "" for
            none of them.
    """

    def __init__(
        self,
        found: dict[str, P],
        notes: dict[str, str],
        whole: tuple[str, ...],
        stages: tuple[str, ...] = (),
        sequence: Mapping[str, str] | None = None,
        uneven: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(found)
        self.notes = notes
        self.whole = whole
        self.stages = stages
        self.sequence = dict(sequence or {})
        self.uneven = dict(uneven or {})

    def __str__(self) -> str:
        width = max(map(len, self), default=0)
        rows = [f"{name:<{width}}  {p!r:<16}  {self.notes[name]}" for name, p in self.items()]
        begins = [f"stage {k} begins with {name}" for k, name in enumerate(self.stages, 1)]
        groups: dict[str, dict[str, None]] = {}
        for name, axis in self.sequence.items():
            groups.setdefault(axis, {})[_pattern(name)] = None
        cut = [
            f"sequence: what goes into {', '.join(names)} is {f'cut over {axis}' if axis else 'whole'}"
            for axis, names in sorted(groups.items(), reverse=True)
        ]
        uneven = [f"uneven: {name}: {why}" for name, why in self.uneven.items()]
        return "\n".join([*rows, f"whole: {', '.join(self.whole) or 'nothing'}", *uneven, *cut, *begins])


@public
def auto(
    model: Any,
    mesh: Mesh | None = None,
    axis: str = "model",
    stages: int | None = None,
    *,
    sequence: bool = False,
) -> Placement:
    """The usual placement of a transformer over the axes of a mesh, by the names and kinds of its layers.

    Linear layers named as queries, keys, values and first products (``q_proj``, ``fc1``, ...) are cut by
    columns, those after heads and second products (``out``, ``fc2``, ...) by rows, of two in a
    ``Sequential`` the first by columns and the second by rows; tables of tokens and layers that give as many
    logits are cut by the vocabulary. One product that makes queries, keys and values (``qkv``, those of
    ``nn.MultiheadAttention``) is cut by heads: ``P("3*model")``. What has another name, or a size or a number
    of heads that the ranks do not divide, is whole.

    On a mesh with the axis "pipe" the longest list of layers is cut into stages that have as many parameters,
    as near as can be; placing it puts a ``par.next_stage`` before the first layer of each.

    With ``sequence`` the inputs of these layers, (batch, positions, features), are cut along the sequence
    over the same ranks, and what goes into a product by columns is whole: norms, dropout and sums with what
    went before are shared out, too. The ranks must divide the positions; other inputs stay as they are.

    Args:
        model: a module.
        mesh: by default the mesh of this world.
        axis: over which tensors are cut.
        stages: of a pipeline, by default as many as its ranks.
        sequence: whether what runs between products is cut along the sequence.

    >>> from weft import nn, parallel as par
    >>> mesh = par.mesh(model=1)
    >>> model = nn.ModuleDict({"fc1": nn.Linear(4, 8), "fc2": nn.Linear(8, 4), "norm": nn.LayerNorm(4)})
    >>> print(par.auto(model, mesh))
    fc1.weight  P('model')        a product by columns
    fc1.bias    P('model')        a product by columns
    fc2.weight  P(None, 'model')  a product by rows, summed over ranks
    whole: fc2.bias, norm.weight, norm.bias
    >>> _ = par.place(model, par.auto(model, mesh), mesh)
    """
    if not hasattr(model, "named_modules"):
        raise ArgumentError("auto", f"takes a module, got {type(model).__name__}")
    text = mesh_text_of(mesh)
    sizes = dict(mesh_axes(text))
    begins = _stages(model, stages or sizes[PIPE]) if PIPE in sizes else ()
    count = 0 if PIPE in sizes and axis not in sizes else axis_size("auto", text, axis)
    found: dict[str, P] = {}
    notes: dict[str, str] = {}
    cuts = dict(_chosen(model, axis))
    whole: dict[str, None] = {}
    uneven: dict[str, str] = {}
    for name, tensor in model.named_parameters():
        p, why = cuts.get(name, (P(), ""))
        pattern = _pattern(name)
        dim = next((d for d, a in enumerate(p) if a), None)
        heads = heads_of(model, name) if why == _WHY["fused"] or _is_of_heads(name) else None
        if dim is not None and count and heads is not None and heads % count:
            whole[pattern] = None
            uneven[pattern] = f"{heads} heads, which {count} ranks do not divide"
        elif dim is None or not count or not divides(tensor.shape[dim], p[dim], text):
            whole[pattern] = None
            if dim is not None and count:
                uneven[pattern] = f"a size of {tensor.shape[dim]}, which {count} ranks do not divide"
        else:
            found[pattern], notes[pattern] = p, why
    for pattern in whole:  # alike layers of other sizes: what does not fit one is whole in all
        found.pop(pattern, None)
        notes.pop(pattern, None)
    noted = _sequence(model, found, axis) if sequence and count else {}
    return Placement(found, notes, tuple(whole), begins, noted, uneven)


def _sequence(model: Any, found: Mapping[str, P], axis: str) -> dict[str, str]:
    """The modules whose inputs are noted: layers one after another, and products by columns."""
    _, layers = _longest(model)
    columns = [
        name.removesuffix(".weight")
        for name, _ in model.named_parameters()
        if name.endswith(".weight") and found.get(_pattern(name)) in (P(axis), _thirds(axis))
    ]
    from weft import nn

    modules = dict(model.named_modules())
    products = [name for name in columns if isinstance(modules[name], nn.Linear)]
    return {**dict.fromkeys([name for name, _ in layers], axis), **dict.fromkeys(products, "")}


def _longest(model: Any) -> tuple[str, list[tuple[str, Any]]]:
    """The longest list of layers, with their names."""
    from weft import nn

    lists = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.ModuleList | nn.Sequential)]
    if not lists:
        return "", []
    name, layers = max(lists, key=lambda pair: len(list(pair[1].children())))
    return name, [(f"{name}.{n}".lstrip("."), m) for n, m in layers.named_children()]


def _stages(model: Any, count: int) -> tuple[str, ...]:
    """The names of the layers with which stages begin; none where there are too few layers to share out."""
    _, own = _longest(model)
    if count < 2 or len(own) < count:
        return ()
    costs = [float(sum(p.size for p in m.parameters())) for _, m in own]
    group = grouped(costs, count)
    return tuple([own[group.index(k)][0] for k in range(1, count)])


def _pattern(name: str) -> str:
    """A name in which the numbers of layers are any."""
    return ".".join("*" if part.isdecimal() and i else part for i, part in enumerate(name.split(".")))


def _chosen(model: Any, axis: str) -> Iterator[tuple[str, tuple[P, str]]]:
    """The names of parameters that are cut, with how and why."""
    from weft import nn

    modules = list(model.named_modules())
    tables = {n: m for n, m in modules if isinstance(m, nn.Embedding) and not _is_of_places(n)}
    vocabulary = {m.weight.shape[0] for m in tables.values()}
    kinds: dict[str, str] = dict.fromkeys(tables, "rows")
    for name, module in modules:
        own = name.rpartition(".")[2]
        if isinstance(module, nn.Sequential):
            layers = [n for n, m in module.named_children() if isinstance(m, nn.Linear)]
            if len(layers) == 2:
                kinds |= {
                    f"{name}.{layers[0]}".lstrip("."): "column",
                    f"{name}.{layers[1]}".lstrip("."): "row",
                }
        elif isinstance(module, nn.Linear) and name not in kinds:
            is_head = module.weight.shape[0] in vocabulary and own not in _ROWS
            kind = "column" if own in _COLUMNS or is_head else "row" if own in _ROWS else ""
            fused = own in _FUSED and module.weight.shape[0] == 3 * module.weight.shape[1]
            kind = "fused" if fused else kind
            kinds |= {name: kind} if kind else {}
        elif isinstance(module, nn.MultiheadAttention):
            for part in ("in_proj_weight", "in_proj_bias"):
                yield f"{name}.{part}".lstrip("."), (_thirds(axis), _WHY["fused"])
            for part in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
                yield f"{name}.{part}".lstrip("."), (P(axis), _WHY["column"])
    for name, kind in kinds.items():
        cut = _thirds(axis) if kind == "fused" else P(axis)
        yield f"{name}.weight", (P(None, axis) if kind == "row" else cut, _WHY[kind])
        if kind in ("column", "fused"):
            yield f"{name}.bias", (cut, _WHY[kind])


def _thirds(axis: str) -> P:
    """How queries, keys and values are cut that lie one behind the other."""
    return P(f"3*{axis}")


def _is_of_heads(name: str) -> bool:
    """Whether a parameter is one of a layer that gives queries, keys or values."""
    path = name.split(".")
    return len(path) > 1 and path[-2] in _OF_HEADS


def _is_of_places(name: str) -> bool:
    return any(word in name.rpartition(".")[2].lower() for word in _PLACES)

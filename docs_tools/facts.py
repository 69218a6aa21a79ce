"""What the declarations of ops say about functions: gradients, dtypes, where they run, how ONNX says them.

An op or a composite is asked itself, on the first of its own samples; of other functions the example in the
docstring is captured, and the ops in its graph are asked.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import tempfile
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import weft
from docs_tools.docstrings import example_of
from docs_tools.rules import rule_text
from weft.base.dtypes import kind
from weft.config import settings
from weft.errors import WeftError
from weft.ir.graph import Graph
from weft.onnx.writers.registry import HINTS, load_writers
from weft.ops.op import COMPOSITES, OPS, Composite, NoGradient, Op, Sample
from weft.ops.table import import_all

KINDS = {  # of the dtypes that a function is asked about, one each
    "bool": ("bool",),
    "integers": ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    "half": ("float16", "bfloat16"),
    "floats": ("float32", "float64"),
    "complex": ("complex64", "complex128"),
}
_MOST = 8  # names that a line lists


class Facts(NamedTuple):
    """What is known about a function of tensors, in words; "" for what nobody can tell.

    Attributes:
        ops: the ops that its graph is made of.
        gradient: whether there is one, and by which rule.
        dtypes: the kinds that it takes.
        cpu: how compiled programs run it there.
        gpu: likewise.
        onnx: the operators that it becomes, or why it becomes none.
    """

    ops: tuple[str, ...]
    gradient: str
    dtypes: str
    cpu: str
    gpu: str
    onnx: str


@cache
def declared() -> dict[str, Op | Composite]:
    """Every op and composite by the public names that it has."""
    import_all()
    for name in weft.__all__:
        getattr(weft, name)
    found: dict[str, Op | Composite] = {**OPS, **COMPOSITES}
    for op in OPS.values():
        if op.public is not None:
            found |= dict.fromkeys(op.public.names or (op.name,), op)
    return {name: entry for name, entry in found.items() if "::" not in name}


def facts_of(name: str, function: Callable[..., Any]) -> Facts | None:
    """The facts of a function by its public name without modules; None of what is not made of ops."""
    entry = declared().get(name)
    if entry is not None and entry.samples is not None:
        call = _call_of(entry, function)
        samples = [s for s in entry.samples() if _is_plain(s)] or list(entry.samples())
        if samples:
            return _of_sample(entry, call, samples[0])
    with contextlib.redirect_stdout(io.StringIO()):
        graph = _graph_of_example(name, function)
    return None if graph is None else _of_graph(None, graph, "")


def _call_of(entry: Op | Composite, function: Callable[..., Any]) -> Callable[..., Any]:
    """How samples call it: a composite as users do, so that it stays one in graphs."""
    if isinstance(entry, Op):
        return entry if entry.inputs or entry.variadic else entry.on_tensors
    return function if entry.sampled is entry.function else entry.sampled


def _is_plain(sample: Sample) -> bool:
    """Whether a sample has elements and no complex number, so that most of what is asked can be answered."""
    arrays = [np.asarray(a) for a in sample.inputs]
    return sample.smooth and all(a.size and kind(a.dtype) != "c" for a in arrays)


def _of_sample(entry: Op | Composite, call: Callable[..., Any], sample: Sample) -> Facts | None:
    arrays = [np.asarray(a) for a in sample.inputs]
    arrays = [a.astype(np.float32) if a.dtype == np.float64 else a for a in arrays]
    try:
        graph = _captured(call, arrays, sample.attrs)
    except (WeftError, TypeError):
        return None
    return _of_graph(entry, graph, _dtypes(entry, call, arrays, sample.attrs))


def _captured(call: Callable[..., Any], arrays: Sequence[Any], attrs: dict[str, Any]) -> Graph:
    return weft.make_graph(lambda *xs: call(*xs, **attrs))(*[weft.tensor(a) for a in arrays])


def _of_graph(entry: Op | Composite | None, graph: Graph, dtypes: str) -> Facts:
    ops = _ops_of(graph)
    smooth = any(kind(value.type.dtype) in "fc" for value in graph.inputs)
    gradient = _gradient(entry, ops) if smooth else ""
    return Facts(tuple(op.name for op in ops), gradient, dtypes, _cpu(ops), _gpu(ops), _onnx(graph))


def _ops_of(graph: Graph) -> list[Op]:
    """The ops of a graph, composites written out, each once."""
    flat = weft.passes.inline(graph)
    return list({node.op.name: node.op for node in flat.walk() if node.op.name != "call"}.values())


# Gradients


def _gradient(entry: Op | Composite | None, ops: Sequence[Op]) -> str:
    if isinstance(entry, Op):
        return _rule(entry)
    without = [op for op in ops if isinstance(op.vjp, NoGradient)]
    with_one = [op for op in ops if op not in without]
    if not with_one:
        return f"none: {without[0].vjp.reason}" if without else ""
    text = f"yes, by the rules of {_names(op.name for op in with_one)}"
    return text + (f"; none through {_names(op.name for op in without)}" if without else "")


def _rule(op: Op) -> str:
    """The gradient rule that an op declares, in the words of its source where it is one expression."""
    if isinstance(op.vjp, NoGradient):
        return f"none: {op.vjp.reason}"
    if op.partials is not None:
        texts = [(name, _partial(p)) for name, p in zip(op.inputs, op.partials, strict=False)]
        told = "; ".join(f"by {name}: {text}" for name, text in texts if text)
        return f"yes{': ' + told if told else ''}"
    if op.linear:
        several = len(op.inputs) > 1 or op.variadic
        each = "its input" if not several else "each input" if op.linear == "each" else "its inputs together"
        return f"yes: it is linear in {each}, and its transpose gives the gradient"
    rules = op.vjp if isinstance(op.vjp, tuple | list) else ()
    texts = [(name, _partial(rule)) for name, rule in zip(op.inputs, rules, strict=False)]
    told = "; ".join(f"of {name}: {text}" for name, text in texts if text)
    return f"yes{': ' + told if told else ''}"


def _partial(partial: Any) -> str:
    """One partial derivative: a number, an expression, or a reason why there is none."""
    if isinstance(partial, NoGradient):
        return f"none, {partial.reason}"
    if callable(partial):
        text = rule_text(partial)
        return f"`{text}`" if text else ""
    return f"`{partial}`" if partial is not None else ""


# Dtypes


def _dtypes(
    entry: Op | Composite, call: Callable[..., Any], arrays: Sequence[Any], attrs: dict[str, Any]
) -> str:
    """The kinds of dtype that a function takes: its floats, or what is like its first input, are cast."""
    if not arrays:
        return ""
    floats = [i for i, a in enumerate(arrays) if kind(a.dtype) == "f"]
    places = floats or [i for i, a in enumerate(arrays) if a.dtype == arrays[0].dtype]
    taken = [name for name, dtypes in KINDS.items() if _takes(call, arrays, places, dtypes[-1], attrs)]
    text = ", ".join(taken)
    accepts = entry.accepts if isinstance(entry, Op) else ""
    if accepts and "integers" in taken and not set("iu") & set(accepts):
        text += " (integers become floats)"
    return text


def _takes(
    call: Callable[..., Any], arrays: Sequence[Any], places: Sequence[int], dtype: str, attrs: dict[str, Any]
) -> bool:
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            given = [
                weft.tensor(a).astype(getattr(weft, dtype)) if i in places else weft.tensor(a)
                for i, a in enumerate(arrays)
            ]
            call(*given, **attrs)
    except (WeftError, TypeError, ValueError, OverflowError, ArithmeticError):
        return False
    return True


# Where it runs


def _cpu(ops: Sequence[Op]) -> str:
    hosts = [op.name for op in ops if op.host]
    return f"compiled, but for {_names(hosts)}, by a library" if hosts else "compiled"


def _gpu(ops: Sequence[Op]) -> str:
    hosts = [op.name for op in ops if op.host or op.effect]
    return f"{_names(hosts)} on the host, between copies" if hosts else "kernels"


def _onnx(graph: Graph) -> str:
    """The operators of the model that a graph is exported to, or the hint why there is none."""
    import onnx

    load_writers()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            path = weft.onnx.export(graph, Path(folder) / "m.onnx")
        except WeftError as error:
            refused = [node.op.name for node in graph.walk() if node.op.name in HINTS]
            reason = HINTS[refused[0]] if refused else str(error).splitlines()[0].partition(": ")[2]
            return f"no: {reason}"
        model = onnx.load(path)
    names = [name for name in dict.fromkeys(_operators(model.graph.node)) if name != "Constant"]
    return _names(names) if names else "a constant"


def _operators(nodes: Iterable[Any]) -> Iterable[str]:
    for node in nodes:
        yield node.op_type
        for attribute in node.attribute:
            if attribute.g.node:
                yield from _operators(attribute.g.node)


def _names(names: Iterable[str]) -> str:
    listed = [f"`{name}`" for name in names]
    more = f" and {len(listed) - _MOST} more" if len(listed) > _MOST else ""
    return ", ".join(listed[:_MOST]) + more


# Functions that have no declaration of their own


def _graph_of_example(name: str, function: Callable[..., Any]) -> Graph | None:
    """The graph of the first call of a function in its docstring that is made of ops; None if none is."""
    space: dict[str, Any] = {}
    text = example_of(getattr(function, "__doc__", "") or "")
    chosen, dtype = dict(settings.chosen), weft.get_default_dtype()
    try:
        for example in doctest.DocTestParser().get_examples(text):
            tree = ast.parse(example.source.strip())
            for call in [node for node in ast.walk(tree) if _calls(node, name)]:
                graph = _graph_of_call(call, function, space)
                if next(iter(graph.walk()), None) is not None:
                    return graph
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(compile(tree, f"<{name}>", "exec"), space)  # noqa: S102 - our own examples
    except Exception:  # an example that shows an error, or a function of other things than tensors
        return None
    finally:  # examples show settings, too
        settings.chosen = chosen
        weft.set_default_dtype(dtype)
    return None


def _calls(node: ast.AST, name: str) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return (getattr(node.func, "attr", None) or getattr(node.func, "id", None)) == name


def _graph_of_call(call: Any, function: Callable[..., Any], space: dict[str, Any]) -> Graph:
    def value(node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), "<example>", "eval"), space)  # noqa: S307 - likewise

    arguments = {keyword.arg: value(keyword.value) for keyword in call.keywords}
    return weft.make_graph(function)(*[value(node) for node in call.args], **arguments)

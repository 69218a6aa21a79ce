"""A graph of PyTorch, run node by node on tensors of weft, while a graph of weft is captured."""

from __future__ import annotations

import functools
import operator
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import weft
from weft.base.size_bounds import positive
from weft.base.sizes import named_size
from weft.capture.static.importing import placed
from weft.errors import CaptureError
from weft.interop.forms.elements import astype
from weft.interop.forms.loops import repeated, scanned
from weft.interop.torch.aten import backward, elementwise, index, network, reduce, shape
from weft.interop.torch.calls import Call, aten, rule_name
from weft.interop.torch.tensors import from_torch, weft_dtype
from weft.ir.location import Location
from weft.tensor.tensor import Tensor

# Where in a program a node comes from, and the sizes of its tensors

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)')


def location_of(node: Any, package: str) -> Location | None:
    """The innermost line of the user's code that a node was traced from; if there is none, of PyTorch's.

    Args:
        node: of a graph of PyTorch.
        package: the folder of PyTorch, whose lines count only where there are no others.
    """
    trace = node.meta.get("stack_trace") or ""
    frames = [(m["file"], int(m["line"]), m["function"].strip()) for m in _FRAME.finditer(trace)]
    frames = [f for f in frames if not f[0].startswith(("torch/", "<eval_with_key>"))]
    own = [f for f in frames if not f[0].startswith(package)] or frames
    return Location(*own[-1], _module_of(node)) if own else None


def _module_of(node: Any) -> str:
    """The path of the module that was running."""
    entries = list((node.meta.get("nn_module_stack") or {}).values())
    path = entries[-1][0] if entries else ""
    if not isinstance(path, str) or path.startswith("_empty"):
        return ""
    return re.sub(r"\.?L__self__\.?|\[(?P<index>[^]]*)\]", r".\g<index>", path).strip(".")


def package_folder(torch: Any) -> str:
    """The folder that PyTorch is installed in."""
    return os.path.dirname(os.path.abspath(str(torch.__file__))) + os.sep


# Sizes


def size_names(program: Any) -> dict[str, str]:
    """By symbol the name that the user gave a size, where the program still knows it."""
    for node in program.graph.nodes:
        for size in getattr(node.meta.get("val"), "shape", ()):
            env = getattr(getattr(size, "node", None), "shape_env", None)
            if env is not None:
                return _names_of(env)
    return {}


def _names_of(env: Any) -> dict[str, str]:
    told = getattr(env, "source_name_to_debug_name", {})
    found: dict[str, str] = {}
    for symbol, sources in getattr(env, "var_to_sources", {}).items():
        for source in sources:
            name = source.name if isinstance(source.name, str) else source.name()
            own = told.get(name, getattr(source, "source_name", ""))
            if isinstance(own, str) and own.isidentifier():
                found.setdefault(str(symbol), own)
    return found


def as_size(size: Any, names: Mapping[str, str]) -> Any:
    """A size of PyTorch as an int or a named size."""
    if isinstance(size, int):
        return size
    return _evaluated(size.node.expr, names)


def _evaluated(expression: Any, names: Mapping[str, str]) -> Any:
    """An expression of symbols as a named size."""
    if expression.is_Integer:
        return int(expression)
    if expression.is_Symbol:
        if str(expression).startswith("u"):
            raise _data_dependent(expression)
        return named_size(names.get(str(expression), str(expression)))
    parts = [_evaluated(part, names) for part in expression.args]
    kind = type(expression).__name__
    if kind in _OPERATIONS and (kind != "Pow" or (isinstance(parts[1], int) and parts[1] >= 0)):
        return functools.reduce(_OPERATIONS[kind], parts)
    raise CaptureError("import_program", f"sizes must be made of + - * // %, got {expression}")


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Mul": operator.mul,
    "Pow": operator.pow,
    **dict.fromkeys(("FloorDiv", "CleanDiv", "IntTrueDiv"), operator.floordiv),
    **dict.fromkeys(("Mod", "PythonMod"), operator.mod),
}


def _data_dependent(symbol: Any) -> CaptureError:
    return CaptureError(
        "import_program",
        f"shapes must follow from those of the arguments, got {symbol}, which values of a tensor decide",
        hint="use torch.where with a mask of fixed shape",
    )


# Running a graph

FAMILIES = (backward, elementwise, index, network, reduce, shape)  # they fill the table

_MEMORY = ("layout", "device", "pin_memory", "memory_format", "non_blocking")


class Runner:
    """Runs the nodes of a graph of PyTorch on tensors.

    Args:
        torch: the package.
        module: the graph module, whose attributes are the regions of control flow.
        outer: where the node stands that has this graph as a region.
    """

    def __init__(self, torch: Any, module: Any, outer: Location | None = None) -> None:
        self.torch = torch
        self.module = module
        self.outer = outer
        self.package = package_folder(torch)

    def __call__(self, inputs: Sequence[Any]) -> Any:
        """What the graph gives for inputs, as its output node has it: a list, or one result."""
        found: dict[Any, Any] = {}
        given = iter(inputs)
        needed = self._needed()
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                found[node] = next(given)
            elif node.op == "output":
                return self._resolved(node.args[0], found)
            elif node in needed:
                location = location_of(node, self.package) or self.outer
                with placed(location):
                    found[node] = self._value(node, found, location)
        return []

    def _needed(self) -> set[Any]:
        """The nodes that the output follows from; what PyTorch merely checks at a run is not among them."""
        waiting = [n for n in self.module.graph.nodes if n.op == "output"]
        needed: set[Any] = set()
        while waiting:
            for node in waiting.pop().all_input_nodes:
                if node not in needed:
                    needed.add(node)
                    waiting.append(node)
        return needed

    def _value(self, node: Any, found: Mapping[Any, Any], location: Location | None) -> Any:
        if node.op == "get_attr":
            return self._attribute(node.target, location)
        if node.op != "call_function":
            raise CaptureError("import_program", f"nodes must call functions, got {node.op} {node.target}")
        args = self._resolved(node.args, found)
        kwargs = {k: self._resolved(v, found) for k, v in node.kwargs.items() if k not in _MEMORY}
        text = str(node.target)
        if text in _HIGHER:
            return _HIGHER[text](*args, **kwargs)
        if not text.startswith("aten."):
            return self._plain_call(node, args, kwargs)
        rule = aten.get(rule_name(node.target))
        if rule is None:
            raise self._unknown(node)
        call = self._call(node)
        return self._checked(call, rule(call, *args, **kwargs))

    def _attribute(self, target: str, location: Location | None) -> Any:
        item: Any = self.module
        for part in target.split("."):
            item = getattr(item, part)
        if isinstance(item, self.torch.Tensor):
            return weft.tensor(from_torch(item.detach()))
        return Runner(self.torch, item, location)

    def _resolved(self, x: Any, found: Mapping[Any, Any]) -> Any:
        """An argument with values for nodes, and weft's dtypes for PyTorch's."""
        if isinstance(x, self.torch.fx.Node):
            return found[x]
        if isinstance(x, list | tuple):
            return [self._resolved(item, found) for item in x]
        if isinstance(x, dict):
            return {key: self._resolved(item, found) for key, item in x.items()}
        return weft_dtype("import_program", x) if isinstance(x, self.torch.dtype) else x

    def _plain_call(self, node: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A function of Python on sizes and tuples, such as ``operator.mul``."""
        name = getattr(node.target, "__name__", str(node.target))
        function = _ON_SIZES.get(name)
        if function is None:
            raise self._unknown(node)
        return function(*args, **kwargs)

    def _call(self, node: Any) -> Call:
        val = node.meta.get("val")
        results = val if isinstance(val, list | tuple) else [val]
        dtypes = [
            weft_dtype("import_program", r.dtype) if isinstance(r, self.torch.Tensor) else None
            for r in results
        ]
        strides = [self._stride(a) for a in node.args]
        return Call(str(node.target), node.name, dtypes, strides)

    def _stride(self, x: Any) -> Any:
        val = x.meta.get("val") if isinstance(x, self.torch.fx.Node) else None
        return tuple(val.stride()) if isinstance(val, self.torch.Tensor) else None

    def _checked(self, call: Call, out: Any) -> Any:
        """Results in the dtypes that PyTorch tells."""
        if isinstance(out, list | tuple):
            pairs = zip(out, (*call.dtypes, *[None] * len(out)), strict=False)
            return [astype(x, d) if isinstance(x, Tensor) and d is not None else x for x, d in pairs]
        wanted = call.dtypes[0] if call.dtypes else None
        return astype(out, wanted) if isinstance(out, Tensor) and wanted is not None else out

    def _unknown(self, node: Any) -> CaptureError:
        listed = "weft.interop.torch.supported_operators"
        return aten.unknown("import_program", "operator", rule_name(node.target), node.target, listed)


# Control flow


def _cond(predicate: Any, true: Any, false: Any, operands: Any = ()) -> Any:
    if not isinstance(predicate, Tensor):
        return (true if predicate else false)(operands)
    return list(weft.cond(predicate, lambda *xs: tuple(true(xs)), lambda *xs: tuple(false(xs)), *operands))


def _while_loop(condition: Any, body: Any, carried: Any, more: Any = ()) -> Any:
    def goes_on(state: Sequence[Any]) -> Any:
        out = condition([*state, *more])
        return out if isinstance(out, list) else [out]

    return repeated(
        goes_on, lambda state: [*map(_as_tensor, body([*state, *more]))], [*map(_as_tensor, carried)]
    )


def _associative_scan(combine: Any, xs: Any, more: Any = ()) -> Any:
    """All partial results along the first axis, one after the other."""

    def step(carry: Any, row: Any) -> Any:
        new = tuple(combine([*carry, *row, *more]))
        return new, new

    _, rest = weft.scan(step, tuple(x[0] for x in xs), tuple(x[1:] for x in xs))
    return [weft.concat([x[:1], y]) for x, y in zip(xs, rest, strict=True)]


def _as_tensor(x: Any) -> Any:
    return x if isinstance(x, Tensor) else weft.tensor(x)


_HIGHER: dict[str, Callable[..., Any]] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "scan": lambda combine, init, xs, more=(), *rest, reverse=False, **options: scanned(
        lambda given: combine([*given, *more]), init, xs, reverse=bool(reverse)
    ),
    "wrap_with_set_grad_enabled": lambda enabled, body, *args: body(args),
    "wrap_with_autocast": lambda *args: args[4](args[5:]),
    "invoke_subgraph": lambda body, name, *args: body(args),
    "tag_activation_checkpoint": lambda body, *args, **options: body(args),
    "map_impl": lambda body, xs, more=(): scanned(lambda row: body([*row, *more]), (), xs),
    "associative_scan": _associative_scan,
}


# Python's own functions on sizes


def _larger(x: Any, y: Any) -> Any:
    return max(x, y) if isinstance(x, int) and isinstance(y, int) else y + positive(x - y)


_ON_SIZES: dict[str, Any] = {
    **{
        name: getattr(operator, name)
        for name in ("getitem", "add", "sub", "mul", "floordiv", "mod", "neg", "truediv", "pow")
    },
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge", "and_", "or_", "not_")},
    "sym_max": _larger,
    "sym_min": lambda x, y: x + y - _larger(x, y),
    "sym_float": lambda x: float(x) if isinstance(x, int) else x / 1,
    "sym_not": operator.not_,
}

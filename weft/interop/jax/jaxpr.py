"""Jaxprs as graphs of weft: ``import_jaxpr`` and ``import_function``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import weft
from weft.base.public import public
from weft.capture.static.importing import Importer, placed
from weft.errors import ArgumentError
from weft.interop.forms.elements import astype
from weft.interop.jax.calls import Call, is_key, lax, type_of_aval
from weft.interop.jax.lax import control, elementwise, index, linalg, random, reduce, shape
from weft.interop.optional import need
from weft.ir.graph import Graph
from weft.ir.location import Location
from weft.ir.types import TensorType
from weft.tensor.tensor import Tensor

FAMILIES = (control, elementwise, index, linalg, random, reduce, shape)  # they fill the table


@public
def import_jaxpr(closed_jaxpr: Any, *, name: str = "jaxpr", names: Sequence[str] = ()) -> Graph:
    """The graph of a closed jaxpr: weft can then draw, optimise, run and save it.

    Its inputs are the arguments of the graph. Arrays that it closes over are parameters, ``const.0`` and on;
    numbers among them are constants. Each node knows the line of the user's code.

    Args:
        closed_jaxpr: from ``jax.make_jaxpr(f)(*examples)``; of ``jax.grad(f)`` too.
        name: of the graph.
        names: of its arguments, in order.

    Example::

        graph = weft.interop.jax.import_jaxpr(jax.make_jaxpr(jax.numpy.sin)(1.0))
        graph(0.0)  # tensor(0.)
    """
    core = need("import_jaxpr", "jax.extend.core", "jax")
    if not isinstance(closed_jaxpr, core.ClosedJaxpr):
        hint = "make one by jax.make_jaxpr(f)(*examples)"
        raise ArgumentError(
            "import_jaxpr", f"must be a closed jaxpr, got {type(closed_jaxpr).__name__}", hint=hint
        )
    return _import(closed_jaxpr, name, list(names), {})


@public
def import_function(
    function: Callable[..., Any],
    *examples: Any,
    parameters: int | Sequence[int] = (),
    name: str | None = None,
) -> Graph:
    """The graph of a function of JAX, traced by JAX on the types of examples.

    The arguments of the graph are the arrays in the examples, named by their path, such as ``x`` or
    ``params.w``; its results are those of the function, flattened.

    Args:
        function: of arrays and trees of them.
        examples: arrays, trees, shapes of JAX, or ``weft.TensorType`` where sizes may be names.
        parameters: the numbers of arguments whose values are parameters of the graph, such as weights.
        name: of the graph; by default that of the function.

    Example::

        kind = weft.TensorType(("batch", 3), weft.float32)
        graph = weft.interop.jax.import_function(lambda x: jax.nn.softmax(x), kind)
        graph(weft.ones((2, 3)))
    """
    jax = need("import_function", "jax", "jax")
    if not callable(function):
        raise ArgumentError("import_function", f"must be given a function, got {type(function).__name__}")
    bound = (parameters,) if isinstance(parameters, int) else tuple(parameters)
    given = _as_examples(jax, examples)
    closed = jax.make_jaxpr(function)(*given)
    leaves = [
        (place, path, leaf)
        for place, tree in enumerate(given)
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
    ]
    titles = _argument_names(function, len(examples))
    names = [_path_name(titles[place], path) for place, path, _ in leaves]
    data = {i: leaf for i, (place, _, leaf) in enumerate(leaves) if place in bound}
    title = getattr(function, "__name__", "function") if name is None else name
    return _import(closed, title, names, data)


def supported_primitives() -> list[str]:
    """The names of the lax primitives that ``import_jaxpr`` knows.

    >>> import weft
    >>> "dot_general" in weft.interop.jax.supported_primitives()
    True
    """
    return sorted(lax)


# Examples and names


def _as_examples(jax: Any, examples: Sequence[Any]) -> list[Any]:
    """Examples as JAX takes them: types of weft with named sizes become symbolic shapes."""
    scope: list[Any] = []

    def convert(x: Any) -> Any:
        if isinstance(x, Tensor):
            return x._value().numpy()
        if not isinstance(x, TensorType):
            return x
        need("import_function", "jax.export", "jax")
        if not scope:
            scope.append(jax.export.SymbolicScope())
        text = ", ".join(str(s) for s in x.shape)
        shape = jax.export.symbolic_shape(text, scope=scope[0]) if x.shape else ()
        return jax.ShapeDtypeStruct(shape, np.dtype(x.dtype))

    kinds = (Tensor, TensorType)
    return [jax.tree_util.tree_map(convert, e, is_leaf=lambda x: isinstance(x, kinds)) for e in examples]


def _argument_names(function: Callable[..., Any], count: int) -> list[str]:
    try:
        found = [
            p.name for p in inspect.signature(function).parameters.values() if p.kind != p.VAR_POSITIONAL
        ]
    except (TypeError, ValueError):
        found = []
    return [*found[:count], *[f"x{i}" for i in range(len(found[:count]), count)]]


def _path_name(title: str, path: Sequence[Any]) -> str:
    parts = [str(getattr(p, "key", getattr(p, "idx", getattr(p, "name", p)))) for p in path]
    return ".".join([title, *parts])


# The import


def _import(closed: Any, title: str, names: Sequence[str], data: Mapping[int, Any]) -> Graph:
    importer = Importer(title)
    variables = closed.jaxpr.invars
    with importer:
        inputs = []
        for i, variable in enumerate(variables):
            name = names[i] if i < len(names) else f"x{i}"
            if i in data:
                inputs.append(importer.parameter(name, _array(data[i])))
            else:
                kind = type_of_aval(variable.aval)
                inputs.append(importer.argument(name, kind.shape, kind.dtype))
        consts = [_constant(importer, i, c) for i, c in enumerate(closed.consts)]
        found = _Runner()(closed.jaxpr, consts, inputs)
        importer.finish([x if isinstance(x, Tensor) else weft.tensor(x) for x in found])
    return importer.graph


def _array(x: Any) -> Any:
    """The data of an array of JAX, or of a key, that JAX cannot take back."""
    jax = need("import_jaxpr", "jax", "jax")
    plain = jax.random.key_data(x) if is_key(getattr(x, "aval", x)) else x
    return np.array(plain)


def _constant(importer: Importer, number: int, x: Any) -> Tensor:
    array = _array(x)
    return importer.parameter(f"const.{number}", array) if array.ndim else weft.tensor(array)


class _Runner:
    """Runs jaxprs on tensors, equation by equation.

    Attributes:
        known: arrays of tensors that are known now, by id; the tensors are kept alive with them.
    """

    def __init__(self) -> None:
        self.known: dict[int, tuple[Tensor, Any]] = {}

    def __call__(self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        """What a jaxpr gives for inputs."""
        variables = (*jaxpr.constvars, *jaxpr.invars)
        found: dict[Any, Any] = dict(zip(variables, (*consts, *inputs), strict=True))
        needed = _needed(jaxpr)
        for equation, is_needed in zip(jaxpr.eqns, needed, strict=True):
            if is_needed:
                with placed(_location(equation)):
                    outs = self._outputs(equation, [self._read(v, found) for v in equation.invars])
                found.update(zip(equation.outvars, outs, strict=True))
        return [self._read(v, found) for v in jaxpr.outvars]

    def run(self, jaxpr: Any, inputs: Sequence[Any]) -> list[Any]:
        """What a jaxpr, closed or not, gives for inputs."""
        closed = hasattr(jaxpr, "jaxpr")
        consts = [weft.tensor(_array(c)) for c in jaxpr.consts] if closed else []
        return self(jaxpr.jaxpr if closed else jaxpr, consts, inputs)

    def _read(self, variable: Any, found: Mapping[Any, Any]) -> Any:
        if not hasattr(variable, "val"):
            return found[variable]
        array = np.asarray(variable.val, type_of_aval(variable.aval).dtype)
        tensor = weft.tensor(array)
        self.known[id(tensor)] = tensor, array
        return tensor

    def _outputs(self, equation: Any, inputs: Sequence[Any]) -> list[Any]:
        name = equation.primitive.name
        rule = lax.get(name)
        if rule is None:
            listed = "weft.interop.jax.supported_primitives"
            raise lax.unknown("import_jaxpr", "primitive", name, name, listed)
        types = [type_of_aval(v.aval) for v in equation.outvars]
        known = [self.known[id(x)][1] if id(x) in self.known else None for x in inputs]
        out = rule(Call(name, types, known, self.run), *inputs, **_parameters(equation))
        outs = list(out) if isinstance(out, list | tuple) else [out]
        return [astype(x, t.dtype) for x, t in zip(outs, types, strict=True)]


def _needed(jaxpr: Any) -> list[bool]:
    """For each equation whether the results follow from it."""
    wanted = {id(v) for v in jaxpr.outvars}
    flags = []
    for equation in reversed(jaxpr.eqns):
        used = any(id(v) in wanted for v in equation.outvars)
        flags.append(used)
        if used:
            wanted.update(id(v) for v in equation.invars)
    return flags[::-1]


def _location(equation: Any) -> Location | None:
    """The line of the user's code that an equation was traced from."""
    source_info_util = need("import_jaxpr", "jax._src.source_info_util", "jax")
    info = equation.source_info
    frame = source_info_util.user_frame(info.traceback) if info.traceback is not None else None
    if frame is None:
        return None
    phase = "backward" if "transpose" in str(info.name_stack) else ""
    return Location(frame.file_name, frame.start_line, frame.function_name.rpartition(".")[2], "", phase)


# Keys of random numbers: their two words are one axis more than JAX knows of


def _parameters(equation: Any) -> dict[str, Any]:
    parameters = dict(equation.params)
    keys = [v.aval for v in (*equation.invars, *equation.outvars) if is_key(v.aval)]
    if keys and equation.primitive.name in _WITH_WORDS:
        _WITH_WORDS[equation.primitive.name](parameters, equation)
    return parameters


def _longer(*names: str, by: Any) -> Callable[[dict[str, Any], Any], None]:
    def change(parameters: dict[str, Any], equation: Any) -> None:
        for name, more in zip(names, by, strict=True):
            if parameters.get(name) is not None:
                rank = len(equation.invars[0].aval.shape)
                parameters[name] = (*parameters[name], rank if more is None else more)

    return change


def _gathered(parameters: dict[str, Any], equation: Any) -> None:
    numbers = parameters["dimension_numbers"]
    rank = len(equation.outvars[0].aval.shape)
    parameters["dimension_numbers"] = numbers._replace(offset_dims=(*numbers.offset_dims, rank))
    parameters["slice_sizes"] = (*parameters["slice_sizes"], 2)


def _broadcast(parameters: dict[str, Any], equation: Any) -> None:
    rank = len(parameters["shape"])
    parameters["shape"] = (*parameters["shape"], 2)
    parameters["broadcast_dimensions"] = (*parameters["broadcast_dimensions"], rank)


_WITH_WORDS: dict[str, Callable[[dict[str, Any], Any], None]] = {
    "slice": _longer("start_indices", "limit_indices", "strides", by=(0, 2, 1)),
    "dynamic_slice": _longer("slice_sizes", by=(2,)),
    "reshape": _longer("new_sizes", by=(2,)),
    "transpose": _longer("permutation", by=(None,)),
    "broadcast_in_dim": _broadcast,
    "gather": _gathered,
}

"""``weft.onnx.export``: a function, a module or a graph as an ONNX model.

What is exported is what ``fn.save`` would write: a graph, its weights, and how it is called.
``export_model`` makes the model, ``writers`` say each op.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from weft.backends import builder
from weft.base.public import public
from weft.base.trees import tree_leaves
from weft.capture.call.function import GraphFunction
from weft.capture.call.version import Version
from weft.capture.program.arguments import Arguments, as_function
from weft.capture.record.record import capture_call, enter
from weft.errors import ArgumentError, DomainError
from weft.io.atomic import file_path
from weft.io.model import LoadedGraph
from weft.io.parts import Parted
from weft.io.saved import Saved, saved_graph, saved_version, with_weights
from weft.io.trees import Mark
from weft.ir.graph import Graph
from weft.onnx.model import onnx_package
from weft.tensor.autocast import not_casting

_OP = "onnx.export"
_OLDEST, _USUAL = 13, 20
_PARTS = (
    "pass tensors, numbers and strings; of a sparse tensor its indices and values, of a ragged one its values"
)


def _is_parted(x: object) -> bool:
    return isinstance(x, Parted)


@public
def export(
    target: Any,
    path: str | os.PathLike[str],
    /,
    *examples: Any,
    opset: int = _USUAL,
    external_data: bool = False,
    updates: str | None = None,
    **keywords: Any,
) -> str:
    """Write a function, a module or a graph as an ONNX model; gives the path.

    Functions and modules are captured from their source, so that all branches and loops are in the model.
    Weights keep their names, inputs have those of the arguments; outputs are called ``output``, or by their
    place in what is returned, ``output.0`` or the key of a dict. Each node tells the line it comes from. The
    model is checked, and takes its place when it is whole.

    Args:
        target: a function, a module, what ``weft.compile`` or ``weft.jit`` made of one, a graph, or what
            ``weft.load_graph`` gave.
        path: of the file; one that is there is replaced.
        examples: arguments; a type such as ``weft.TensorType(("batch", 3), weft.float32)`` leaves sizes open.
            A graph and a loaded function need none, and a compiled function none after its first call.
        opset: the version of ONNX's operators, 13 or above.
        external_data: whether weights go to a file beside, ``path`` with ``.data`` after it; more than 2 GB
            always do.
        updates: "outputs" to have the new values of what the function changes as outputs, called
            ``<name>.new``; without it, a function that changes something is an error.
        keywords: arguments by name.

    >>> import os, tempfile, weft
    >>> path = os.path.join(tempfile.mkdtemp(), "model.onnx")
    >>> model = weft.nn.Linear(3, 2)
    >>> _ = weft.onnx.export(model, path, weft.TensorType(("batch", 3), weft.float32))
    >>> import onnx
    >>> [node.op_type for node in onnx.load(path).graph.node]
    ['Gemm']
    """
    onnx_package(_OP)
    from weft.onnx.export_model import model_of, write_model

    if examples and not isinstance(path, str | os.PathLike) and isinstance(examples[0], str | os.PathLike):
        hint = "the file comes before the examples: weft.onnx.export(model, path, x)"
        raise ArgumentError(_OP, f"path must be a str or a Path, got {type(path).__name__}", hint=hint)
    where = file_path(_OP, path)
    _check_settings(opset, updates)
    try:
        saved = saved_of(target, examples, keywords)
    except ArgumentError as error:
        if error.op not in ("save", "save_graph"):
            raise
        hint = error.hint if error.op == "save_graph" else _PARTS
        raise ArgumentError(_OP, error.message, hint=hint) from None
    if any(isinstance(x, Parted) for x in tree_leaves(saved.arguments, is_leaf=_is_parted)):
        raise ArgumentError(
            _OP, "arguments must be tensors or plain values, got a sparse or ragged tensor", hint=_PARTS
        )
    made = model_of(saved, opset, new_values=updates is not None)
    write_model(made, where, external=external_data)
    return where


def _check_settings(opset: Any, updates: Any) -> None:
    newest = onnx_package(_OP).defs.onnx_opset_version()
    if not isinstance(opset, int) or isinstance(opset, bool):
        raise ArgumentError(_OP, f"opset must be an int, got {opset!r}")
    if not _OLDEST <= opset <= newest:
        raise DomainError(_OP, f"opset must be in {_OLDEST}..{newest}, got {opset}")
    if updates not in (None, "outputs"):
        raise DomainError(_OP, f'updates must be None or "outputs", got {updates!r}')


def saved_of(target: Any, examples: tuple[Any, ...], keywords: dict[str, Any]) -> Saved:
    """The graph of what is to be exported, with its weights, and how it is called."""
    if isinstance(target, Graph | LoadedGraph):
        if examples or keywords:
            kind = "a graph" if isinstance(target, Graph) else "a loaded function"
            raise ArgumentError(_OP, f"{kind} must be given without examples, got some")
        if isinstance(target, LoadedGraph):
            return with_weights(target._saved, target.weights)
        return _saved_graph(target)
    if not isinstance(target, GraphFunction):
        if not examples and not keywords:
            hint = 'such as weft.TensorType(("batch", 3), weft.float32)'
            raise ArgumentError(_OP, "a function must be given with examples, got none", hint=hint)
        target = _Forward(as_function(_OP, target), staged=True)
    elif (examples or keywords) and target._grows:
        target = _Forward(target._function, staged=target._staged)
    version = target._version_to_save(examples, keywords)
    return saved_version(target._function, version)


class _Forward(GraphFunction[..., Any]):
    """A function that is captured without a backward graph, and not compiled."""

    def __init__(self, function: Any, *, staged: bool) -> None:
        super().__init__(function, builder(_OP, "interpret"), staged=staged, looks=True, grows=True)

    def _version(
        self,
        arguments: Arguments,
        own: Any,
        key: Any,
        shapes: Sequence[Any],
        *,
        typed: bool = False,
        may_fix: bool = False,
    ) -> Version:
        with enter(self.__name__, staged=self._staged, looks=self._looks) as root:
            root.open_counts = True  # a model holds for other values, too
            root.opens_sizes = may_fix
            program = capture_call(root, self._function, arguments, own, shapes, gradients=False)
        with not_casting():
            return Version(program, self._build, key)


def _saved_graph(graph: Graph) -> Saved:
    """A graph, whose outputs keep their names where all have one."""
    saved = saved_graph(graph)
    names = [value.name for value in graph.outputs]
    if not all(names) or len(set(names)) < len(names):
        return saved
    return saved._replace(returned={name: Mark("output", i) for i, name in enumerate(names)})

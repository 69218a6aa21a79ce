"""The table of writers: how each op and composite of weft is said in ONNX."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from weft.onnx import writers
from weft.ops.op import Op, no_gradient

Write = Callable[..., Any]

OPS: dict[str, Write] = {}
COMPOSITES: dict[str, Write] = {}
HINTS: dict[str, str] = {}  # by name of an op that ONNX cannot say, what to do instead


def writer(*names: str) -> Callable[[Write], Write]:
    """Register how ops are written: ``(w, *inputs, **attributes) -> output``, a tuple for several outputs.

    The function gets a ``Writer``, by which it adds nodes, and a ``Ref`` for each input.

    >>> import weft
    >>> @weft.onnx.writer("mylib::double")
    ... def write_double(w, x):
    ...     return w.emit("Mul", x, 2.0)
    """

    def enter(write: Write) -> Write:
        OPS.update(dict.fromkeys(names, write))
        return write

    return enter


def enter_writers(table: Mapping[str, Write]) -> None:
    """Register writers that are one line each; a key is one op, or several with blanks between."""
    for names, write in table.items():
        writer(*names.split())(write)


def emitted(operator: str) -> Write:
    """The writer of an op that is an operator of ONNX as it is; its attributes have the same names."""
    return lambda w, *inputs, **attrs: w.emit(operator, *inputs, **attrs)


def composite_writer(*names: str) -> Callable[[Write], Write]:
    """Register how calls of composites are written: ``(w, **arguments) -> output``.

    Arguments have the names of the function's parameters. A writer that gives None leaves the call to be
    written op by op.
    """

    def enter(write: Write) -> Write:
        COMPOSITES.update(dict.fromkeys(names, write))
        return write

    return enter


def cannot(hint: str, names: str) -> None:
    """Note that ONNX has no word for ops, whose names have blanks between, and what to do instead."""
    HINTS.update(dict.fromkeys(names.split(), hint))


@cache
def load_writers() -> None:
    """Import every module of writers, so that the table is complete."""
    for module in pkgutil.iter_modules(writers.__path__):
        import_module(f"{writers.__name__}.{module.name}")


def stand_in(name: str, *attrs: str, outputs: int = 1) -> Op:
    """An op that only a writer knows: it stands in graphs that are being exported, for several nodes."""
    return Op(
        name,
        inputs=("x",),
        variadic="more",
        attrs=attrs,
        eval=lambda *xs, **attrs: None,
        type_rule=lambda x, *more, **attrs: x,
        vjp=no_gradient("it stands in exported graphs alone"),
        samples=None,
        outputs=outputs,
    )

"""What is done with the elements of a product when they are there: stored, or first added to, activated, ...

A lowering of products (matmul, convolution) computes elements in registers and hands each to a ``Epilogue``,
which writes the code that uses it: so a bias, an activation or a residual costs no pass over memory of its
own, and an epilogue may store more than one result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weft.base.dtypes import DType
from weft.base.shapes import size_of
from weft.ir.graph import Node
from weft.loop.builder import Builder
from weft.loop.ir import Value
from weft.schedule.accumulation import sum_instruction
from weft.schedule.arrays import Array
from weft.schedule.lowerings import lowers
from weft.schedule.pointwise.rules import Indices
from weft.schedule.writer import Writer, unflattened

Anchor = Callable[[Writer, Node, Sequence[Array], Array, "Epilogue | None"], None]
Finish = Callable[[Builder, Sequence[Array], Sequence[Array], Indices, Value], None]


@dataclass(frozen=True)
class Epilogue:
    """Code for each element of a product.

    A product that is stored with a bias added:

    >>> from weft.schedule.cpu.matmul.epilogue import Epilogue
    >>> def biased(out, bias):
    ...     def finish(b, reads, writes, index, value):
    ...         value = b.add(value, b.load(reads[0].buffer, reads[0].at(index[-1])))
    ...         b.store(writes[0].buffer, writes[0].at(*index), value)
    ...     return Epilogue([bias], [out], finish)

    Attributes:
        reads, writes: arrays that it uses; the kernel of the product gets them as parameters.
        finish: ``finish(builder, reads, writes, index, value)`` writes the code for one element: it gets the
            arrays as they are in the kernel, the index of the element in the product's result, one term for
            each axis, and its value, of the result's dtype. One of the axes, mostly the last, may go by the
            variable of a vector loop.
    """

    reads: Sequence[Array]
    writes: Sequence[Array]
    finish: Finish


ANCHORS: dict[str, Anchor] = {}


def anchors(name: str) -> Callable[[Anchor], Anchor]:
    """Enter the lowering of an op whose elements an epilogue may take; without one they are stored."""

    def enter(anchor: Anchor) -> Anchor:
        ANCHORS[name] = anchor
        lowers(name, target="cpu", any_layout=True)(
            lambda writer, node, inputs, outputs: anchor(writer, node, inputs, outputs[0], None)
        )
        return anchor

    return enter


def storing(out: Array) -> Epilogue:
    """The epilogue that stores the product."""

    def finish(
        b: Builder, reads: Sequence[Array], writes: Sequence[Array], index: Indices, value: Value
    ) -> None:
        b.store(writes[0].buffer, writes[0].at(*index), value)

    return Epilogue([], [out], finish)


def add_parts(writer: Writer, parts: Array, epilogue: Epilogue, dtype: DType) -> None:
    """Add parts of a product, which lie along the first axis, in order; an epilogue gets the sums."""
    count, shape = parts.shape[0], parts.shape[1:]
    with writer.kernel("add_parts", [parts, *epilogue.reads], epilogue.writes) as kernel:
        b, source = kernel.builder, kernel.reads[0]
        with b.parallel(size_of(shape[:-1])) as row, b.vector(shape[-1]) as j:
            index = (*unflattened(b, row, shape[:-1]), j)
            total = b.local(0, source.dtype)
            with b.loop(count) as c:
                part = b.load(source.buffer, source.at(c, *index))
                b.set(total, getattr(b, sum_instruction(part.dtype))(b.get(total), part))
            epilogue.finish(b, kernel.reads[1:], kernel.writes, index, b.cast(b.get(total), dtype))

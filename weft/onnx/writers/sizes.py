"""Named sizes and expressions in them as nodes: the axis that tells a name, then arithmetic."""

from __future__ import annotations

from typing import Any

from weft.base.size_bounds import lower_bound
from weft.base.sizes import Atom, Positive, Quotient, Size
from weft.onnx.writers.writer import Ref, Sheet, Writer


def size_ref(w: Writer, size: Any) -> Ref:
    """A size as a vector of one element, computed once, on the outermost sheet that can."""
    if not isinstance(size, Size):
        return w.ints((size,))
    sheet = _home(w, size)
    key = str(size)
    if key not in sheet.sizes:
        sheet.sizes[key] = _computed(Writer(sheet, None), size)
    return sheet.sizes[key]


def _home(w: Writer, size: Size) -> Sheet:
    """The innermost of the sheets that tell the names of a size."""
    owners = []
    for name in size.names():
        owner = w.sheet.owner(name)
        if owner is None:
            w.fail(f"all sizes must follow from inputs, got {size}, where nothing tells {name}")
        owners.append(owner)
    return max(owners, key=_depth)


def _depth(sheet: Sheet) -> int:
    return 0 if sheet.around is None else 1 + _depth(sheet.around)


def _computed(w: Writer, size: Size) -> Ref:
    text = str(size)
    if text.isidentifier():
        return _told(w, text)
    total: Ref | None = None
    for atoms, factor in size._terms.items():
        term: Any = None
        for atom in atoms:
            ref = _atom(w, atom)
            term = ref if term is None else w.emit("Mul", term, ref)
        if term is None:
            term = w.ints((factor,))
        elif factor != 1:
            term = w.emit("Mul", term, w.ints((factor,)))
        total = term if total is None else w.emit("Add", total, term)
    assert total is not None
    return total


def _atom(w: Writer, atom: Atom) -> Ref:
    if isinstance(atom, str):
        return size_ref(w, Size({(atom,): 1}))
    parts = [size_ref(w, part) for part in atom.parts]
    if isinstance(atom, Positive):
        larger: Ref = w.emit("Max", parts[0], w.ints((0,)))
        return larger
    assert isinstance(atom, Quotient)
    top, bottom = parts
    low = lower_bound(atom.parts[0])
    if low is None or low < 0:  # rounded down, where division rounds towards zero
        top = w.emit("Sub", top, w.emit("Mod", top, bottom))
    quotient: Ref = w.emit("Div", top, bottom)
    return quotient


def _told(w: Writer, name: str) -> Ref:
    """A name by the axis that tells it: the axis is factor * name + rest."""
    ref, axis = w.sheet.tellers[name]
    size = ref.shape[axis]
    out = axis_ref(w, ref, axis)
    ((_, factor),) = [item for item in size._terms.items() if item[0]]
    rest = size._terms.get((), 0)
    if rest:
        out = w.emit("Sub", out, w.ints((rest,)))
    return out if factor == 1 else w.emit("Div", out, w.ints((factor,)))


def axis_ref(w: Writer, ref: Ref, axis: int) -> Ref:
    """The size of an axis of a value, as a run has it."""
    if w.opset >= 15:
        out: Ref = w.emit("Shape", ref, start=axis, end=axis + 1)
        return out
    return w.emit("Gather", w.emit("Shape", ref), w.ints((axis,)), axis=0)  # type: ignore[no-any-return]

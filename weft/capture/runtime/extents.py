"""Slices whose bounds only a run tells: ``x[:i]``, ``A[i + 1 :, j]`` in a loop of the graph.

A bound becomes a named size, which the node ``count_below`` tells in each turn; so the slice is one of
``slice``, a view, and its length a size like any other. What is known of the index of a loop (it goes from
``low`` to ``high``) says where nothing has to be clamped; sizes that are one polynomial in such indices are
one size, so that ``x[:i]`` fits ``L[i, :i]``, and ``x[i + 1 :]`` fits ``y[i + 1 :]``.
"""

from __future__ import annotations

from typing import Any

from weft.base.size_bounds import lower_bound
from weft.base.sizes import Size, named_size, simplest
from weft.capture.runtime.number import LoopIndex, Number, number_of
from weft.capture.runtime.number_checks import COUNT
from weft.ir.graph import Value
from weft.ops.op import OPS
from weft.ops.places import count_below
from weft.ops.select import select
from weft.tensor.mode import thread
from weft.tensor.selection import Span
from weft.transform.captured import Captured
from weft.transform.fresh import fresh_size

_DEEPEST = 16  # nodes in a row that a number is made by, and that are compared with those of another


# What is known of a number


def is_sure(form: Any) -> bool:
    """Whether a polynomial in indices of loops is 0 or more in every turn."""
    return _is_sure(form) or any(_is_sure(form - room) for room in _rooms())


def _rooms() -> list[Any]:
    """How far the ends of loops are apart: in a turn of one of them that is 0 or more."""
    out, capture = [], thread.capture
    while capture is not None:
        indices = capture.notes.indices.values()
        out += [x.high - x.low for x in indices if x.high is not None and x.low is not None]
        capture = capture.parent
    return [room for room in out if isinstance(room, Size)]


def _index_named(name: str) -> LoopIndex | None:
    """The index of a loop that is going on; None if a name is that of something else."""
    capture = thread.capture
    while capture is not None:
        if name in capture.notes.indices:
            found: LoopIndex = capture.notes.indices[name]
            return found
        capture = capture.parent
    return None


def _indices_in(form: Any) -> list[LoopIndex]:
    """The indices of loops in a polynomial, the newest last."""
    found = map(_index_named, form.names()) if isinstance(form, Size) else ()
    return sorted([x for x in found if x is not None], key=lambda x: x.number)


def _is_sure(form: Any) -> bool:
    for _ in range(_DEEPEST):
        low = lower_bound(form)
        if low is not None and low >= 0:
            return True
        form = _at_worst(form)
        if form is None:
            return False
    return False


def _at_worst(form: Any) -> Any:
    """A polynomial with that end of the newest index at which it is the least; None if there is none."""
    indices = _indices_in(form)
    if not indices:
        return None
    newest = indices[-1]
    rest = form.substitute({newest.name: 0})
    factor = form.substitute({newest.name: 1}) - rest
    if not isinstance(factor, int) or form.substitute({newest.name: 2}) - rest != 2 * factor:
        return None
    end = newest.low if factor > 0 else newest.high
    return None if end is None else rest + factor * end


def surely_leaves(form: Any) -> bool:
    """Whether a polynomial in indices of loops is surely negative in one of the turns."""
    while _indices_in(form):
        form = _at_worst(form)
    low = None if form is None else lower_bound(-1 - form)
    return low is not None and low >= 0


# Numbers as sizes


def as_size(number: Number) -> Any:
    """An int or a size that is the number in this turn; it must not be negative."""
    form = number.form
    if isinstance(form, int):
        return form
    if isinstance(form, Size):
        out = _in_sizes(form)
        low = lower_bound(out)
        if low is not None and low >= 0:
            return out
        return _told(form, number.tensor)
    return _told(_structure(number.tensor._data.value, 0), number.tensor)


def _in_sizes(form: Any) -> Any:
    """A polynomial in indices of loops as one in sizes.

    What is told of an index is how far it is from its lowest value: so ``j - 1`` is not negative where ``j``
    begins at 1, and ``j`` is more than ``i`` where it begins at ``i + 1``.
    """
    if not isinstance(form, Size):
        return form
    told: dict[str, Any] = {}
    for index in _indices_in(form):
        away = Number(int, index.tensor, named_size(index.name), COUNT)
        if not (isinstance(index.low, int) and index.low == 0):
            away = away - _as_number(index.low)
        told[index.name] = _in_sizes(index.low) + _told(away.form, away.tensor)
    return form.substitute(told)


def _as_number(form: Any) -> Any:
    """The value of a polynomial."""
    if not isinstance(form, Size):
        return form

    def value(atom: Any) -> Any:
        if isinstance(atom, str) and (index := _index_named(atom)) is not None:
            return Number(int, index.tensor, named_size(index.name), COUNT)
        return number_of(simplest({(atom,): 1}))

    return form._evaluate(value)


def _told(key: Any, tensor: Any) -> Size:
    """The size that a number has; told by a node here, unless it is known."""
    capture = thread.capture
    while capture is not None:
        found = capture.notes.extents.get(key)
        if found is not None and found[1] in capture.made:
            return found[0]  # type: ignore[no-any-return]
        capture = capture.parent
    size = fresh_size()
    out = count_below.on_tensors(tensor, trips=size)
    thread.capture.notes.extents[key] = size, out._data.value
    return size


def made_alike(a: Any, b: Any) -> bool:
    """Whether two tensors of the capture are surely equal: the same ops made them of the same values."""
    ours, theirs = a._data, b._data
    if ours is theirs:
        return True
    return type(ours) is type(theirs) is Captured and _structure(ours.value, 0) == _structure(theirs.value, 0)


def _structure(value: Value, depth: int) -> Any:
    """What a number is made by, so that two that are computed alike are one."""
    capture = thread.capture
    if value in capture.constants:
        return "constant", capture.constants[value].tobytes()
    node = capture.made.get(value)
    if node is None or not node.is_pure or node.regions or depth == _DEEPEST:
        return value
    inputs = tuple([_structure(v, depth + 1) for v in node.inputs])
    return node.op, node.outputs.index(value), tuple(map(repr, node.attrs.items())), inputs


# Keys


def surely_within(number: Number, size: Any) -> bool:
    """Whether an int is an index of an axis, counted from its first element, in every turn."""
    form = number.form
    return form is not None and is_sure(form) and is_sure(size - 1 - form)


def span_of(item: slice, size: Any) -> Span | None:
    """What a slice takes of an axis of a size; None where its step is not known."""
    step = 1 if item.step is None else item.step
    if not isinstance(step, int) or isinstance(step, bool) or step == 0:
        return None
    if step < 0:
        return _backward(item, size, -step)
    start = _within(item.start, size, 0)
    length = _length(_within(item.stop, size, size) - start, step)
    return Span(as_size(start), as_size(length), step)


def _backward(item: slice, size: Any, step: int) -> Span:
    """As ``span_of``, from the end on: what Python calls the start is the last element."""
    above = _within(None if item.start is None else _after(item.start), size, size)
    below = _within(None if item.stop is None else _after(item.stop), size, 0)
    length = _length(above - below, step)
    # the first element may be before the axis where there are none
    return Span(as_size(above) - 1, as_size(length), -step)


def _after(bound: Any) -> Any:
    """The place after an element; that after the last one, which is -1, is told from 0."""
    number = number_of(bound)
    if number.form is not None and is_sure(number.form):
        return number + 1
    wraps = number.tensor == -1
    return Number(int, select(wraps, number_of(2**31).tensor, number.tensor + 1))


def _within(bound: Any, size: Any, default: Any) -> Number:
    """A bound counted from the start, and not outside of the axis."""
    whole = number_of(size)
    number = number_of(default if bound is None else bound)
    form = number.form
    if form is not None and is_sure(form):
        counted = number
    elif form is not None and is_sure(-1 - form):
        counted = _not_negative(number + whole)
    else:
        shifted = _not_negative(number + whole)
        counted = Number(int, select(number.tensor < 0, shifted.tensor, number.tensor))
    if counted.form is not None and is_sure(size - counted.form):
        return counted
    return Number(int, OPS["minimum"].on_tensors(counted.tensor, whole.tensor))


def _not_negative(number: Number) -> Number:
    if number.form is not None and is_sure(number.form):
        return number
    return Number(int, OPS["maximum"].on_tensors(number.tensor, number_of(0).tensor))


def _length(span: Number, step: int) -> Number:
    length = _not_negative(span)
    return length if step == 1 else (length + (step - 1)) // step

"""``while_loop``, ``fori_loop`` and ``scan``, on trees of tensors.

On concrete data they are plain Python, recorded on the tape like any other code. In a capture, and in
``vmap`` where each example decides for itself, they become nodes with regions. Functions may use tensors from
around them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from weft.base.dtypes import DEFAULT_INT
from weft.base.public import public
from weft.base.records import NamedTuple
from weft.base.sizes import Size
from weft.errors import ArgumentError, ShapeError
from weft.ops.control import check_index, check_predicate
from weft.ops.op import type_of
from weft.ops.view.primitives import stack
from weft.tensor.checkpoint import checkpoint
from weft.tensor.dispatch import captured_constant
from weft.tensor.mode import call_user
from weft.tensor.tensor import Tensor
from weft.transform.arguments import check_function
from weft.transform.control.flat import CarryMismatch, run_scan, run_while
from weft.transform.control.trees import (
    Tree,
    as_tensor,
    captures,
    check_count,
    flatten_tensors,
    is_known,
    need_tensor,
)


@public
def while_loop(
    cond_fn: Callable[[Any], Any],
    body_fn: Callable[[Any], Any],
    init: object,
    *,
    checkpoint_every: int | None = None,
    max_iterations: int | None = None,
) -> Any:
    """A tree of tensors after a loop that goes on while a predicate of it holds.

    Args:
        cond_fn: from the tree to one truth value.
        body_fn: from the tree to the next one, of the same structure and types.
        init: the tree at first; numbers become tensors.
        checkpoint_every: keep every so many-th state alone for the gradient, and compute the others again.
        max_iterations: stop after so many.

    >>> import weft
    >>> halve = lambda x: weft.while_loop(lambda x: x > 1.0, lambda x: x / 2.0, x)
    >>> halve(weft.tensor(10.0)), weft.grad(halve)(weft.tensor(10.0))
    (tensor(0.6250), tensor(0.0625))
    """
    for function in (cond_fn, body_fn):
        check_function("while_loop", function)
    check_count("while_loop", "checkpoint_every", checkpoint_every, 1)
    check_count("while_loop", "max_iterations", max_iterations, 0)
    carry, form = flatten_tensors("while_loop", "carry", init)
    loop = _While(cond_fn, body_fn, form, checkpoint_every, max_iterations)
    return form.tree(loop.run(carry))


class _While(NamedTuple):
    """A while loop on the leaves of its tree."""

    cond_fn: Callable[[Any], Any]
    body_fn: Callable[[Any], Any]
    form: Tree
    every: int | None
    limit: int | None

    def test(self, carry: Sequence[Tensor]) -> Tensor:
        found = call_user(self.cond_fn, self.form.tree(carry))
        if isinstance(found, bool | np.bool_):
            return as_tensor("while_loop", bool(found), "the predicate")
        out = need_tensor("while_loop", "the predicate", found)
        check_predicate("while_loop", type_of(out))
        return out

    def body(self, carry: Sequence[Tensor]) -> list[Tensor]:
        return self.form.leaves(call_user(self.body_fn, self.form.tree(carry)), "the body")

    def run(self, carry: list[Tensor]) -> list[Tensor]:
        """The leaves after the loop: in Python as long as the predicate is known, else as a node."""
        left = self.limit
        while not captures():
            if left == 0:
                return carry
            going = self.test(carry)
            if not is_known(going):
                break
            if not going._data:
                return carry
            count = self.every or 1
            count = count if left is None else min(count, left)
            carry, done = self._advance(carry, count)
            left = None if left is None else left - done
        return self._node(carry, left)

    def _advance(self, carry: list[Tensor], count: int) -> tuple[list[Tensor], int]:
        """Up to so many iterations, as a checkpoint if asked; the first is known to run."""
        if self.every is None:
            return self._step(carry), 1
        done = 0

        def chunk(*items: Tensor) -> list[Tensor]:
            nonlocal done
            state, done = self._step(list(items)), 1
            while done < count:
                going = self.test(state)
                if not is_known(going) or not going._data:
                    break
                state, done = self._step(state), done + 1
            return state

        return checkpoint(chunk, *carry), done

    def _step(self, carry: list[Tensor]) -> list[Tensor]:
        after = self.body(carry)
        self.form.check(carry, after, "the body")
        return after

    def _node(self, carry: list[Tensor], left: int | None) -> list[Tensor]:
        try:
            if left is None:
                return run_while(self.test, self.body, carry, checkpoint_every=self.every)
            counter = as_tensor("while_loop", left, "max_iterations")
            outs = run_while(
                lambda given: self.test(given[:-1]) & (given[-1] > 0),
                lambda given: [*self.body(given[:-1]), given[-1] - 1],
                [*carry, counter],
                checkpoint_every=self.every,
            )
            return outs[:-1]
        except CarryMismatch as error:
            raise self.form.named(error) from None


@public
def fori_loop(
    lower: object,
    upper: object,
    body_fn: Callable[[Any, Any], Any],
    init: object,
    /,
    *,
    checkpoint_every: int | None = None,
) -> Any:
    """A tree of tensors after ``body_fn(i, tree)`` for each i from ``lower`` up to, but not, ``upper``.

    Args:
        lower: an int, or a tensor of one integer.
        upper: likewise.
        body_fn: from the number of the iteration, an int64 tensor, and the tree to the next one, alike.
        init: the tree at first; numbers become tensors.
        checkpoint_every: keep every so many-th state alone for the gradient, and compute the others again.

    >>> import weft
    >>> weft.fori_loop(1, 5, lambda i, x: x * i, weft.tensor(1))
    tensor(24)
    """
    check_function("fori_loop", body_fn)
    check_count("fori_loop", "checkpoint_every", checkpoint_every, 1)
    bounds = [_bound("lower", lower), _bound("upper", upper)]
    carry, form = flatten_tensors("fori_loop", "carry", init)

    def step(i: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
        return form.leaves(call_user(body_fn, i, form.tree(leaves)), "the body")

    try:
        return form.tree(_for(bounds, step, carry, form, checkpoint_every))
    except CarryMismatch as error:
        raise form.named(error) from None


def _bound(name: str, x: object) -> Any:
    """An end of the range: an int if Python knows it, else a tensor."""
    if isinstance(x, int | np.integer) and not isinstance(x, bool):
        return int(x)
    bound = need_tensor("fori_loop", name, x)
    check_index("fori_loop", type_of(bound))
    return int(bound._data) if is_known(bound) else bound.astype(DEFAULT_INT)


def _for(
    bounds: Sequence[Any],
    step: Callable[[Tensor, Sequence[Tensor]], list[Tensor]],
    carry: list[Tensor],
    form: Tree,
    every: int | None,
) -> list[Tensor]:
    lower, upper = bounds
    if not isinstance(lower, int) or not isinstance(upper, int):
        first, last = (as_tensor("fori_loop", b, "a bound") for b in bounds)
        try:
            outs = run_while(
                lambda given: given[0] < last,
                lambda given: [given[0] + 1, *step(given[0], given[1:])],
                [first, *carry],
                checkpoint_every=every,
            )
        except CarryMismatch as error:
            error.index -= 1  # the counter is none of the user's
            raise
        return outs[1:]
    if captures():
        numbers = captured_constant(np.arange(lower, upper, dtype=DEFAULT_INT))
        return run_scan(lambda c, row: (step(row[0], c), ()), carry, [numbers], checkpoint_every=every)[0]

    def turns(numbers: range, *items: Tensor) -> list[Tensor]:
        state = list(items)
        for i in numbers:
            after = step(as_tensor("fori_loop", i, "i"), state)
            form.check(state, after, "the body")
            state = after
        return state

    for part in _segments(range(lower, upper), every):
        carry = turns(part, *carry) if every is None else checkpoint(turns, part, *carry)
    return carry


def _segments(numbers: range, every: int | None) -> Iterator[range]:
    """Numbers in parts of so many each, the last perhaps shorter; without a number in one part."""
    size = every or len(numbers) or 1
    return (numbers[i : i + size] for i in range(0, len(numbers), size))


@public
def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: object,
    xs: object = None,
    length: object = None,
    reverse: bool = False,
    *,
    checkpoint_every: int | None = None,
) -> tuple[Any, Any]:
    """A carry after going along the first axis of tensors, and what each step gave, stacked.

    Args:
        f: ``f(carry, x)``, from a tree and one row of xs to the next tree, alike, and any tree of tensors.
        init: the carry at first; numbers become tensors.
        xs: a tree of tensors with as many rows each, or None.
        length: the number of steps; may be left out where there are xs.
        reverse: go from the last row to the first; what a step gives stands at the place of its row.
        checkpoint_every: keep every so many-th carry alone for the gradient, and compute the others again.

    >>> import weft
    >>> weft.scan(lambda total, x: (total + x, total), 0.0, weft.tensor([1.0, 2.0, 3.0]))
    (tensor(6.), tensor([0., 1., 3.]))
    """
    check_function("scan", f)
    check_count("scan", "checkpoint_every", checkpoint_every, 1)
    carry, form = flatten_tensors("scan", "carry", init)
    rows, rows_form = flatten_tensors("scan", "xs", xs)
    size = _length(rows, rows_form, length)
    forms: list[Tree] = []

    def step(state: Sequence[Tensor], row: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        found = call_user(f, form.tree(state), rows_form.tree(row))
        if not isinstance(found, tuple) or len(found) != 2:
            raise ArgumentError("scan", f"the function must return (carry, y), got {type(found).__name__}")
        ys, ys_form = flatten_tensors("scan", "y", found[1])
        forms.append(ys_form)
        if ys_form.structure != forms[0].structure:
            both = f"{forms[0].structure} and {ys_form.structure}"
            raise ArgumentError("scan", f"y must keep its structure, got {both}")
        return form.leaves(found[0], "the body"), ys

    if captures() or isinstance(size, Size) or size == 0:
        try:
            carry, ys = run_scan(
                step, carry, rows, length=size, reverse=reverse, checkpoint_every=checkpoint_every
            )
        except CarryMismatch as error:
            raise form.named(error) from None
    else:
        carry, ys = _scan_rows(step, carry, rows, size, reverse, form, checkpoint_every)
    return form.tree(carry), forms[0].tree(ys)


def _length(rows: Sequence[Tensor], form: Tree, length: object) -> Any:
    """The number of steps, on which all must agree."""
    if length is not None and not isinstance(length, Size):
        check_count("scan", "length", length, 0)
    for i, x in enumerate(rows):
        if x.ndim == 0:
            raise ShapeError("scan", f"{form.name(i)} must have an axis to go along, got {type_of(x)}")
        if length is None:
            length = x.shape[0]
        elif x.shape[0] != length:
            raise ShapeError("scan", f"{form.name(i)} must have {length} rows, got {type_of(x)}")
    if length is None:
        raise ArgumentError("scan", "there must be xs or a length, got neither")
    return length


def _scan_rows(
    step: Callable[..., tuple[list[Tensor], list[Tensor]]],
    carry: list[Tensor],
    rows: Sequence[Tensor],
    length: int,
    reverse: bool,
    form: Tree,
    every: int | None,
) -> tuple[list[Tensor], list[Tensor]]:
    """The loop in Python."""

    def turns(numbers: range, *items: Tensor) -> tuple[list[Tensor], list[list[Tensor]]]:
        state, given = list(items), []
        for i in numbers:
            after, ys = step(state, [x[i] for x in rows])
            form.check(state, after, "the body")
            state = after
            given.append(ys)
        return state, given

    given: list[list[Tensor]] = []
    for part in _segments(range(length - 1, -1, -1) if reverse else range(length), every):
        run = turns if every is None else partial(checkpoint, turns)
        carry, more = run(part, *carry)
        given += more
    ordered = given[::-1] if reverse else given
    return carry, [stack(column) for column in zip(*ordered, strict=True)]

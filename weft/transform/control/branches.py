"""``cond`` and ``switch``, on trees of tensors.

On concrete data they are plain Python, recorded on the tape like any other code. In a capture, and in
``vmap`` where each example decides for itself, they become nodes with regions. Functions may use tensors from
around them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.public import public
from weft.base.trees import tree_flatten, tree_unflatten
from weft.errors import ArgumentError, CaptureError
from weft.ops.control import check_index, check_predicate
from weft.ops.op import type_of
from weft.tensor.mode import call_user, thread
from weft.tensor.tensor import Tensor
from weft.transform.arguments import check_function
from weft.transform.control.flat import CarryMismatch, run_cond
from weft.transform.control.trees import Tree, flatten_tensors, is_known, need_tensor
from weft.transform.control.unmet import until_met


@public
def cond(
    predicate: object, true_fn: Callable[..., Any], false_fn: Callable[..., Any], /, *operands: object
) -> Any:
    """What one of two functions gives: the first if a predicate holds, else the second.

    The other one is not run, so that neither its values nor its gradients can do harm.

    Args:
        predicate: one truth value.
        true_fn: a function of the operands.
        false_fn: another one, that returns tensors of the same types in the same structure.
        operands: trees of tensors.

    >>> import weft
    >>> root = lambda x: weft.cond(x > 0.0, weft.sqrt, weft.zeros_like, x)
    >>> root(weft.tensor(4.0)), root(weft.tensor(-4.0))
    (tensor(2.), tensor(0.))
    >>> weft.grad(root)(weft.tensor(0.0))
    tensor(0.)
    """
    for function in (true_fn, false_fn):
        check_function("cond", function)
    if isinstance(predicate, bool | np.bool_):
        return call_user(true_fn if predicate else false_fn, *operands)
    chosen = need_tensor("cond", "the predicate", predicate)
    check_predicate("cond", type_of(chosen))
    if is_known(chosen):
        return converted("cond", (true_fn if chosen._data else false_fn)(*operands))
    return _branch("cond", chosen, (true_fn, false_fn), operands)


@public
def switch(index: object, branches: Sequence[Callable[..., Any]], /, *operands: object) -> Any:
    """What the function with a number gives; an index outside takes the first or the last.

    Args:
        index: one integer.
        branches: functions of the operands that return tensors of the same types in the same structure.
        operands: trees of tensors.

    >>> import weft
    >>> weft.switch(weft.tensor(1), [weft.sin, weft.square, weft.exp], weft.tensor(3.0))
    tensor(9.)
    """
    if not isinstance(branches, tuple | list) or not branches:
        raise ArgumentError("switch", "branches must be a list of at least one function")
    for function in branches:
        check_function("switch", function)
    if isinstance(index, int | np.integer) and not isinstance(index, bool):
        return call_user(branches[min(max(int(index), 0), len(branches) - 1)], *operands)
    chosen = need_tensor("switch", "the index", index)
    check_index("switch", type_of(chosen))
    if is_known(chosen):
        place = min(max(int(chosen._data), 0), len(branches) - 1)
        return converted("switch", branches[place](*operands))
    return _branch("switch", chosen, branches, operands)


def converted(op: str, out: object) -> Any:
    """What a function returned, with tensors for numbers."""
    leaves, form = flatten_tensors(op, "the result", out)
    return form.tree(leaves)


def _branch(op: str, index: Tensor, functions: Sequence[Callable[..., Any]], operands: Sequence[Any]) -> Any:
    """Branches as a node.

    In a capture they are given the operands themselves, as at once: a change of one is a change of it.
    """
    leaves, structure = tree_flatten(tuple(operands))
    captures = thread.capture is not None
    places = [] if captures else [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]
    forms: list[Tree] = []

    def run_all() -> list[Tensor]:
        forms.clear()
        return run_cond(index, [region(f) for f in functions], [leaves[i] for i in places])

    def region(function: Callable[..., Any]) -> Callable[[list[Tensor]], Sequence[Tensor]]:
        def run(given: list[Tensor]) -> Sequence[Tensor]:
            items = list(leaves)
            for i, x in zip(places, given, strict=True):
                items[i] = x
            out = call_user(function, *tree_unflatten(structure, items))
            found, form = flatten_tensors(op, "the result", out)
            forms.append(form)
            if form.structure != forms[0].structure:
                both = f"{forms[0].structure} and {form.structure}"
                raise CaptureError(op, f"branches must return the same structure, got {both}")
            return found

        return run

    try:
        outs = until_met(run_all) if captures else run_all()
    except CarryMismatch as error:
        raise forms[0].named(error) from None
    return forms[0].tree(outs)

"""The functions that run ops on tensors, with a flat path for what is common and small.

An elementwise op on plain float arrays of one form, or on one and a number, goes from the operator to the
ufunc in one Python call. Anything unusual, errors included, falls through to the general path, so that
promotion, messages and other kinds of data are handled in one place. Every line here was measured.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from weft.base.dtypes import DTYPES, kind
from weft.base.hooks import hooks
from weft.base.public import parameters, public
from weft.base.switch import switch
from weft.base.tracebacks import hide_weft
from weft.errors import ArgumentError, WeftError
from weft.ops.op import Container, NoGradient, Op, Operand, casting
from weft.tensor.autocast import in_precision
from weft.tensor.declared import fast_declared
from weft.tensor.dispatch import apply, as_tensors, elementwise_rule, promoted, recording, wrap
from weft.tensor.form import constant, form_of
from weft.tensor.large import LARGE, evaluate_large, with_kernels
from weft.tensor.mode import thread
from weft.tensor.node import Node, make_node
from weft.tensor.promotion import number_array
from weft.tensor.rules import Backward, saved_by_partials
from weft.tensor.tensor import Tensor
from weft.tensor.watch import with_watch

ndarray = np.ndarray
asarray = np.asarray
Function = Callable[..., Any]

_LEFT, _RIGHT, _BOTH, _TWICE, _NUMBER = range(5)  # what needs gradients, and whether the right is a number
MISSING: Any = object()  # stands for an argument that was not given

# Allocates without the check that keeps users from calling the class; a third faster than object.__new__.
blank_tensor = type.__call__.__get__(Tensor)


def build(op: Op, leaves: Callable[[Any], bool] | None = None) -> Function:
    """The function that runs op on tensors; it gives NotImplemented for inputs that ``leaves`` holds of."""
    if not op.accepts:
        whole = _general(op)
        return _named(with_watch(op, whole, fast_declared) if op.outputs == 1 else whole, op)
    general = _promoting(op) if leaves is None else _leaving(_promoting(op), leaves)
    if isinstance(op.vjp, NoGradient):
        return _named(with_watch(op, general, _without_gradient), op)
    if op.partials is None or len(op.inputs) > 2:
        return _named(general, op)
    return _named(with_watch(op, general, _unary if len(op.inputs) == 1 else _binary), op)


@cache
def short_rule(rule: Backward, needed: tuple[bool, ...], case: int) -> Backward:
    """The same rule, of an op that worked element by element on arrays of one form of a device, or a number.

    Args:
        rule: of the op.
        needed: for each input, whether its gradient is wanted.
        case: which of those that have a rule of their own.
    """
    own = rule.replace(is_flat=True)
    own.pull = hooks.short_pull(own, needed, case == _TWICE)
    return own


def _named(function: Callable[..., Any], op: Op) -> Function:
    function.__name__ = function.__qualname__ = op.name
    named: Function = function
    return named


def misfit(op: Op, given: tuple[Any, ...], unknown: dict[str, Any]) -> ArgumentError:
    """The error of a call that does not fit the signature of an elementwise op."""
    if unknown:
        hint = "tensors are given by position"
        return ArgumentError(op.name, f"takes no keywords, got {', '.join(unknown)}=", hint=hint)
    count, takes = sum(x is not MISSING for x in given), len(op.inputs)
    return ArgumentError(op.name, f"takes {takes} tensor{'s' if takes > 1 else ''}, got {count}")


_FIRST = frozenset(("input", "x", "x1", "a"))


def _by_name(
    op: Op, given: tuple[Any, ...], unknown: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call of an elementwise op whose tensors are given by the names of other libraries."""
    found = [x for x in given if x is not MISSING]
    for names in (_FIRST, ("other", "x2", "exponent", "b")):
        name = next((n for n in names if n in unknown), None)
        if name is not None and len(found) == (0 if names is _FIRST else 1):
            found.append(unknown.pop(name))
    if len(found) != len(op.inputs):
        raise misfit(op, given, unknown)
    return tuple(found), unknown


def with_options(op: Op, given: tuple[Any, ...], unknown: dict[str, Any]) -> Any:
    """What a call with more arguments than the tensors of an op means, if the op has options."""
    options = op.public.options if op.public is not None else None
    if (unknown and not _FIRST.isdisjoint(unknown)) or "other" in unknown:
        given, unknown = _by_name(op, given, dict(unknown))
        if not unknown:
            return op.on_tensors(*given)
    if options is None or (not unknown and len(given) > len(parameters(options)[0])):
        raise misfit(op, given, unknown)
    return public(options)(*[x for x in given if x is not MISSING], **unknown)


def _general(op: Op) -> Function:
    def function(*inputs: object, **attrs: object) -> Any:
        for x in inputs:
            if isinstance(x, Container):
                return x.apply_op(op, inputs, attrs)
        if op.precision and casting:
            inputs = tuple(in_precision(op.precision, inputs))
        return apply(op, as_tensors(op, inputs), attrs)

    return function


def _promoting(op: Op) -> Function:
    """The general path of an elementwise op: anything that may flow into it, promoted to one dtype."""

    def function(*inputs: object) -> Any:
        for x in inputs:
            if isinstance(x, Container):
                return x.apply_op(op, inputs, {})
            if x is MISSING:
                raise misfit(op, inputs, {})
        return apply(op, promoted(op, inputs), {})

    return function


def _leaving(general: Function, leaves: Callable[[Any], bool]) -> Function:
    def function(*inputs: object) -> Tensor:
        return NotImplemented if any(map(leaves, inputs)) else general(*inputs)

    return function


def _unary(op: Op, general: Function, staged: Function, intercepted: Any) -> Function:
    ufunc = op.eval
    keep_x, keep_out = saved_by_partials(op, (True,))
    rule = elementwise_rule(op, complex_valued=False)
    nothing = (None, None, None)

    def function(x: Tensor = MISSING, /, *more: Any, **unknown: object) -> Any:
        if more or unknown:
            try:
                return with_options(op, (x, *more), unknown)
            except WeftError as error:
                hide_weft(error)
                raise
        try:
            if intercepted.threads:
                return staged(x)
            form = x._form
            if form is None:
                return fresh(x)
            a = x._data
            if form.is_plain:
                out = ufunc(a)
            elif form.is_scalar:  # of 0-d arrays NumPy makes scalars
                out = asarray(ufunc(a))
            elif type(a) is ndarray:
                return large(x)
            else:
                return elsewhere(x)
            t = blank_tensor()
            t._data = out
            t._form = form
            edge = x._node
            if edge is None:
                t._node = None
                return t
            if switch.off:
                if not thread.recording:
                    t._node = None
                    return t
                if thread.observer is not None:
                    return general(x)
            t._node = node = Node()
            node.rule = rule
            node.nr = edge.nr + 1
            node.left = (edge,)
            if keep_out:
                node.saved = (a if keep_x else None, out, None)
            else:
                node.saved = (a, None, None) if keep_x else nothing
            return t
        except WeftError as error:
            hide_weft(error)
            raise
        except Exception:  # noqa: S110 - whatever it was, the general path says it in the user's terms
            pass
        try:
            return general(x)
        except WeftError as error:
            hide_weft(error)
            raise

    def large(x: Tensor) -> Tensor:
        out, node = evaluate_large(op, (x._data,), {}), None
        if x._node is not None and recording():
            saved = (x._data if keep_x else None, out if keep_out else None, None)
            node = make_node(with_kernels(rule, flat=True), (x._node,), saved)
        return _of_form(out, x._form, node)

    def elsewhere(x: Tensor) -> Any:
        """On a device, whose forms run ops."""
        a, form = x._data, x._form
        runner = form.alike.get(op)
        t = blank_tensor()
        t._data = out = form.run(op, a) if runner is None else runner(a)
        t._form = form
        t._node = None
        edge = x._node
        if edge is not None and recording():
            saved = (a if keep_x else None, out if keep_out else None, None)
            t._node = make_node(cases[0] or new_case(), (edge,), saved)
        return t

    cases: list[Any] = [None]  # the rule on devices

    def new_case() -> Any:
        cases[0] = short_rule(rule, (True,), _LEFT)
        return cases[0]

    def fresh(x: Tensor) -> Any:
        """A tensor whose form is not known yet, or has none."""
        return general(x) if _find_form(x) is None else function(x)

    return function


def _binary(op: Op, general: Function, staged: Function, intercepted: Any) -> Function:
    ufunc = op.eval
    keep_x, keep_y, keep_out = saved_by_partials(op, (True, True))
    rule = elementwise_rule(op, complex_valued=False)
    keeps_nothing = not (keep_x or keep_y or keep_out)
    is_product = saved_by_partials(op, (True, False)) == (False, True, False) and keep_x and not keep_out
    nothing = (None, None, None, None)

    def function(x: Tensor, y: Operand, /) -> Any:
        try:
            if intercepted.threads:
                return staged(x, y)
            form = x._form
            if type(y) is Tensor:
                if form is None or y._form is not form:
                    return mixed(x, y)
                b = y._data
                right = y._node
            elif type(y) is float or type(y) is int:
                b = form.constants.get(y)
                if b is None:
                    b = constant(form, y)
                right = None
            else:
                return mixed(x, y)
            a = x._data
            if form.is_plain:
                out = ufunc(a, b)
            elif form.is_scalar:  # of 0-d arrays NumPy makes scalars
                out = asarray(ufunc(a, b))
            elif type(a) is ndarray:
                return large(x, a, b, right)
            else:
                return elsewhere(x, a, b, right)
            t = blank_tensor()
            t._data = out
            t._form = form
            left = x._node
            if right is None:
                if left is None:
                    t._node = None
                    return t
                nr = left.nr
            else:
                nr = right.nr
                if left is not None and left.nr > nr:
                    nr = left.nr
            if switch.off:
                if not thread.recording:
                    t._node = None
                    return t
                if thread.observer is not None:
                    return general(x, y)
            t._node = node = Node()
            node.rule = rule
            node.nr = nr + 1
            node.left = left
            node.right = right
            if keeps_nothing:
                node.saved = nothing
            elif is_product:
                node.saved = (None if right is None else a, None if left is None else b, None, None)
            else:
                node.saved = (a if keep_x else None, b if keep_y else None, out if keep_out else None, None)
            return t
        except WeftError as error:
            hide_weft(error)
            raise
        except Exception:  # whatever it was, the general path says it in the user's terms
            return mixed(x, y)

    def large(x: Tensor, a: Any, b: Any, right: object) -> Tensor:
        out, node, left = evaluate_large(op, (a, b), {}), None, x._node
        if (left is not None or right is not None) and recording():
            keep = saved_by_partials(op, (left is not None, right is not None))
            kept = [d if k else None for d, k in zip((a, b, out), keep, strict=True)]
            own = rule if keeps_nothing else with_kernels(rule, flat=True)
            node = make_node(own, (left, right), (*kept, None))
        return _of_form(out, x._form, node)

    def elsewhere(x: Tensor, a: Any, b: Any, right: Any) -> Any:
        """On a device, whose forms run ops."""
        form = x._form
        runner = (form.alike if b.shape else form.numbers).get(op)
        t = blank_tensor()
        t._data = out = form.run(op, a, b) if runner is None else runner(a, b)
        t._form = form
        t._node = None
        left = x._node
        if right is None:
            if left is None:
                return t
            case, nr = _LEFT if b.shape else _NUMBER, left.nr
        elif left is None:
            case, nr = _RIGHT, right.nr
        else:
            case, nr = _TWICE if left is right else _BOTH, max(left.nr, right.nr)
        if switch.off and not thread.recording:
            return t
        t._node = node = Node()
        node.rule, keep_a, keep_b, keep_out = cases[case] or new_case(case)
        node.nr = nr + 1
        node.left = left
        node.right = right
        node.saved = (a if keep_a else None, b if keep_b else None, out if keep_out else None, None)
        if switch.off and thread.observer is not None:
            thread.observer(node)
        return t

    cases: list[Any] = [None] * 5  # the rule on devices, and what it needs of the operands and the result

    def new_case(case: int) -> Any:
        needed = case != _RIGHT, case in (_RIGHT, _BOTH, _TWICE)
        cases[case] = (short_rule(rule, needed, case), *saved_by_partials(op, needed))
        return cases[case]

    def mixed(x: Tensor, y: Operand) -> Any:
        """Arrays that are not known to be of one form: new ones, ones that broadcast, integers."""
        if intercepted.threads:
            return staged(x, y)
        if isinstance(x, Tensor) and isinstance(y, Tensor | int | float):
            fresh = x._form is None or (isinstance(y, Tensor) and y._form is None)
            left, right = _find_form(x), _find_form(y)
            if fresh and left is not None and (left is right or not isinstance(y, Tensor)):
                return function(x, y)
            if left is None:
                found = _of_whole_numbers(op, x, y)
            else:
                found = broadcast(x, y) if right is not None and left.dtype is right.dtype else None
            if found is not None:
                return found
        return general(x, y)

    def broadcast(x: Any, y: Any) -> Any:
        a, b = x._data, y._data
        try:
            is_large = a.size >= LARGE or b.size >= LARGE
            out = asarray(evaluate_large(op, (a, b), {}) if is_large else ufunc(a, b))
        except Exception:
            return None
        t = wrap(out)
        t._form = form_of(out)
        edges = (x._node, y._node)
        if edges != (None, None) and recording():
            keep = saved_by_partials(op, (edges[0] is not None, edges[1] is not None))
            kept = [d if k else None for d, k in zip((a, b, out), keep, strict=True)]
            own = with_kernels(rule) if is_large else rule
            t._node = make_node(own, edges, (*kept, (a.shape, b.shape)))
        return t

    return function


def _of_form(data: object, form: object, node: object) -> Tensor:
    """A tensor of data whose form is known, an output of node."""
    t = wrap(data, node)
    t._form = form
    return t


def _find_form(x: object) -> Any:
    """The form of a tensor, found now if it was not known; None of a number."""
    if not isinstance(x, Tensor):
        return None
    if x._form is None:
        x._form = form_of(x._data)
    return x._form


def _of_whole_numbers(op: Op, x: Tensor, y: Operand) -> Tensor | None:
    """The result on bools or integers of one dtype, or None: there is nothing to promote or to record."""
    try:
        a = x._data
        b = y._data if isinstance(y, Tensor) else number_array(op, y, a.dtype)
        if type(a) is type(b) is ndarray and a.dtype is b.dtype and a.dtype.kind in "biu":
            return wrap(asarray(op.eval(a, b))) if kind(a.dtype) in op.accepts else None
    except Exception:
        return None
    return None


def _without_gradient(op: Op, general: Function, staged: Function, intercepted: Any) -> Function:
    ufunc = op.eval
    direct = frozenset(dtype for dtype in DTYPES if kind(dtype) in op.accepts)

    def unary(x: Tensor = MISSING, /, *more: Any, **unknown: object) -> Any:
        is_usual = not (more or unknown)
        if is_usual:
            try:
                if intercepted.threads:
                    return staged(x)
                a = x._data
                if type(a) is ndarray and a.dtype in direct:
                    return wrap(asarray(ufunc(a)))
            except Exception:  # noqa: S110 - as above
                pass
        try:
            return general(x) if is_usual else with_options(op, (x, *more), unknown)
        except WeftError as error:
            hide_weft(error)
            raise

    def binary(x: Tensor, y: Operand, /) -> Any:
        try:
            if intercepted.threads:
                return staged(x, y)
            a = x._data
            if isinstance(y, Tensor):
                b = y._data
            elif x._form is not None and type(y) in (int, float):
                b = constant(x._form, y)  # type: ignore[arg-type]
            else:
                b = number_array(op, y, a.dtype) if type(y) in (int, float) else None
            if type(a) is type(b) is ndarray and a.dtype is b.dtype and a.dtype in direct:
                return wrap(asarray(ufunc(a, b)))
        except Exception:  # noqa: S110 - as above
            pass
        return general(x, y)

    return unary if len(op.inputs) == 1 else binary
